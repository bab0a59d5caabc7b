"""The transport itself: what Faust builds from the broker URL `redisstreams://`."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import faust
import redis
from faust.exceptions import ImproperlyConfigured
from faust.transport import base
from faust.transport.conductor import Conductor as FaustConductor
from faust.types import AppT, Message
from yarl import URL

from pipelines.work.transport.consumer import Consumer


class BlockSchema(faust.Schema[None, Any]):
    """The event's value is the block as it was read.

    Nothing is decoded here, so nothing can fail: Faust acknowledges what it cannot decode.
    """

    def loads_key(self, app: AppT, message: Message, **_: Any) -> None:
        """Blocks have no key."""

    def loads_value(self, app: AppT, message: Message, **_: Any) -> Any:
        """The block."""
        return message.value


class Producer(base.Producer):
    """Refuses to send: only the ledger's append script writes to the ledger."""

    async def send(self, topic: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Always an error.

        Raises:
            ImproperlyConfigured: always.
        """
        raise ImproperlyConfigured(
            f"nothing is sent through Faust (topic {topic!r}): append to the ledger instead; "
            "agent.send, agent.ask, app.Table and channels over topics need a sending transport"
        )

    send_and_wait = send

    def send_soon(self, fut: Any) -> NoReturn:
        """Always an error, as `send`."""
        raise ImproperlyConfigured("nothing is sent through Faust: append to the ledger instead")

    async def create_topic(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Nothing: the ledger makes its streams."""


class Conductor(FaustConductor):
    """Faust's, but it looks for new subscriptions after a second instead of 45."""

    _resubscribe_sleep_lock_seconds = 1.0


class Transport(base.Transport):
    """Faust over the ledger's streams.

    The app has to have the attributes `settings` (which Redis, which keys) and `positions`.
    The URL names the transport only, so that no password is in it.
    """

    Consumer: ClassVar[Any] = Consumer
    Producer: ClassVar[Any] = Producer
    Conductor: ClassVar[Any] = Conductor
    driver_version = f"redis-py={redis.__version__}"

    def __init__(self, url: list[URL], app: AppT, loop: Any = None) -> None:
        super().__init__(url, app, loop)
        if not hasattr(app, "settings") or not hasattr(app, "positions"):
            raise ImproperlyConfigured("redisstreams:// needs app.settings and app.positions")
