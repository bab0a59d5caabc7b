"""How plans meet httpx: the same for both clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import httpx

from recollect.calls import Call, Reply, answer_of, error_of, model_reader
from recollect.changes import EVENT_STREAM
from recollect.delivery import Send
from recollect.errors import ClientClosed, ConnectionFailed, NoAnswer, UnexpectedAnswer
from recollect.events import json_of
from recollect.models import BatchAccepted, BatchResult

LINKS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20)
QUEUE_EVENTS: Final = 10_000
"""That may wait, if the caller does not say."""
TIMEOUT_S: Final = 10.0
"""Of a question, likewise; the first of its kind takes long, as its plan is made."""
DELIVERY_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
_TENANT: Final = "X-Tenant"


ClientT = TypeVar("ClientT", httpx.Client, httpx.AsyncClient)


class Links(Generic[ClientT]):
    """A client of httpx, and another one where its connections are of no use.

    A child of a fork would read what its parent asked for, and the other way round; an event loop
    that is over wakes nobody.

    Args:
        make: a client.
        where: what its connections belong to; by default a process.
    """

    def __init__(
        self, make: Callable[[], ClientT], where: Callable[[], object] = os.getpid
    ) -> None:
        self._make: Callable[[], ClientT] = make
        self._where = where
        self._held: tuple[object, ClientT] | None = None

    def here(self) -> ClientT:
        """The client to be used here."""
        held, where = self._held, self._where()
        if held is None or held[0] != where:
            held = self._held = (where, self._make())
        return held[1]

    def to_ask(self) -> ClientT:
        """The client to be used here, if it can be.

        Raises:
            ClientClosed: it was closed.
        """
        client = self.here()
        if client.is_closed:
            raise ClientClosed("This client is closed; make another one")
        return client


def checked_url(url: str) -> str:
    """The address of an API.

    Raises:
        ValueError: it is none.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url: {url!r} is no address of an API, such as http://127.0.0.1:8080")
    return url


def headers_of(key: str | None, tenant: str | None) -> dict[str, str]:
    """What every request says.

    Raises:
        ValueError: the key, which is not told, fits no header.
    """
    headers = {"User-Agent": "recollect-python"}
    if key is not None:
        key = key.strip()  # of a file, a line break
        if not (key and key.isascii() and key.isprintable()):
            raise ValueError("key: printable ASCII, at least one character; None: none is needed")
        headers["Authorization"] = f"Bearer {key}"
    if tenant is not None:
        headers[_TENANT] = tenant
    return headers


def parts_of(call: Call[Any]) -> dict[str, Any]:
    """A call as the arguments of httpx' `request`."""
    parts: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "headers": {"Accept": call.accept},
        "timeout": httpx.Timeout(call.timeout_s, connect=CONNECT_TIMEOUT_S),
    }
    if call.query is not None:
        parts["params"] = call.query
    if call.body is not None:
        body = call.body
        parts["content"] = body if isinstance(body, bytes) else json_of(body)
        parts["headers"]["Content-Type"] = "application/json"
    return parts


@contextmanager
def told() -> Iterator[None]:
    """Errors of httpx become ours.

    Raises:
        ConnectionFailed: nothing answered, or the connection broke.
    """
    try:
        yield
    except httpx.TimeoutException as error:
        raise NoAnswer(f"Nothing answered in time ({type(error).__name__})") from error
    except httpx.TransportError as error:
        raise ConnectionFailed(f"The API cannot be reached ({error})") from error


def reply_of(request: Callable[[], httpx.Response]) -> Reply:
    """What came back.

    Raises:
        ConnectionFailed: nothing did.
    """
    with told():
        return as_reply(request())


def as_reply(response: httpx.Response) -> Reply:
    """What came back, without httpx."""
    headers: Mapping[str, str] = response.headers
    return Reply(response.status_code, headers, response.content)


def require_stream(response: httpx.Response) -> None:
    """See whether a stream has begun; of what has not, the body was read.

    Raises:
        RecollectError: what the API says instead.
    """
    if response.status_code >= 400:
        raise error_of(as_reply(response))
    if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
        raise UnexpectedAnswer("What answered is not the API that is known here (no stream)")


def sender(links: Links[httpx.Client]) -> Send:
    """Sends batches of events over a client."""
    read = model_reader(BatchAccepted)

    def send(body: bytes) -> Sequence[BatchResult]:
        call = Call("POST", "/v1/events/batch", read, body=body, timeout_s=DELIVERY_TIMEOUT_S)
        reply = reply_of(lambda: links.here().request(**parts_of(call)))
        return answer_of(call, reply).results

    return send
