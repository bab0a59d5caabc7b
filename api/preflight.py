"""What comes before an API is made: settings that must not be served, the port, its processes.

Loaded by who only starts processes that serve, so it loads nothing of the API itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.work.settings import Settings
from projections.errors import ConfigurationError


def check_settings(settings: Settings) -> None:
    """Refuse what must not be served.

    Raises:
        ConfigurationError: no key and not insecure on purpose, or one key under two names.
    """
    if not settings.api_keys and not settings.insecure_dev:
        raise ConfigurationError(
            reason="no API key is configured: set RECOLLECT_API_KEYS, or use --insecure-dev on a "
            "machine that nobody else reaches"
        )
    secrets = [key.key.get_secret_value() for key in settings.api_keys]
    if len(set(secrets)) != len(secrets):
        raise ConfigurationError(reason="api_keys: the same key is given twice")


@contextmanager
def listening(settings: Settings) -> Iterator[tuple[socket.socket, str]]:
    """The open port and its URL.

    Args:
        settings: `api_port` 0 takes a free port.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.api_host else socket.AF_INET
    address = (settings.api_host, settings.api_port)
    with socket.create_server(address, family=family) as listener:
        host = f"[{settings.api_host}]" if family == socket.AF_INET6 else settings.api_host
        yield listener, f"http://{host}:{listener.getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class Share:
    """The place of one process among those of an API.

    Attributes:
        processes: of the API, this one included.
        number: of the place, from 0; who takes the place of one that ended has the same.
        folder: of what they count together, private; None: the process is alone.
        waits: connections are taken once it is warm, because others take them meanwhile.
    """

    processes: int = 1
    number: int = 0
    folder: Path | None = None
    waits: bool = False

    @property
    def counts(self) -> Path | None:
        """The file of what is counted for limits; None: memory of this process."""
        return None if self.folder is None else self.folder / "limits"

    @property
    def streams(self) -> Path | None:
        """The file whose bytes are locked for streams; None: the process is alone."""
        return None if self.folder is None else self.folder / "streams"

    def of(self, amount: int) -> int:
        """The part of an amount that is this process' own, at least 1 of 1 or more."""
        return -(-amount // self.processes)


ALONE: Final = Share()
