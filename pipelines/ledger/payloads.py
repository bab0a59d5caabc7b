"""Payloads that live elsewhere, read through fsspec from where the operator allows it.

A `payload_ref` comes from whoever may send events, so it is a way to make the worker read files
and addresses of its own network. Nothing is read that does not begin with an allowed prefix.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from enrichment.ports import PayloadResolver
from pipelines.observe import metrics
from pipelines.work.settings import Settings

# Reads that do not end hold a thread each; with so many of them, no more are begun.
_AT_ONCE = 4
_HTTP = ("http", "https")
_OK = 200
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class FsspecResolver(PayloadResolver):
    """Reads JSON or text behind a reference.

    Args:
        prefixes: of URLs (`s3://bucket/payloads/`) or absolute paths; a reference must begin with
            one. None: nothing is read.
        max_bytes: a longer payload is not taken.
        timeout_s: for one payload, seconds.
    """

    def __init__(
        self, prefixes: Sequence[str] = (), *, max_bytes: int = 2**18, timeout_s: float = 5.0
    ) -> None:
        # `…/payloads` must not allow `…/payloads-of-others`.
        self._prefixes = tuple(prefix.rstrip("/") + "/" for prefix in prefixes)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._free = threading.Semaphore(_AT_ONCE)

    @classmethod
    def from_settings(cls, settings: Settings) -> FsspecResolver:
        """A resolver with the prefixes and limits of the settings."""
        return cls(
            settings.payload_prefixes,
            max_bytes=settings.payload_max_bytes,
            timeout_s=settings.payload_timeout_s,
        )

    def resolve(self, reference: str) -> Any | None:
        """The payload: JSON when it is JSON, else text; None when it cannot be had (counted)."""
        data = self._within_time(reference) if self._allowed(reference) else None
        payload = None if data is None else _payload(data)
        if payload is None:
            metrics.DEGRADED.labels(kind="payload").inc()
        return payload

    def _allowed(self, reference: str) -> bool:
        prefix = next((p for p in self._prefixes if reference.startswith(p)), None)
        # `::` chains file systems (`zip://x::https://…`), and what is not printable is a trick.
        if prefix is None or "::" in reference or not reference.isprintable():
            return False
        path = _local_path(reference)
        if path is not None:
            allowed = _local_path(prefix)
            # Where it really is: neither `..` nor a link leads out.
            return allowed is not None and path.resolve().is_relative_to(allowed.resolve())
        below = unquote(unquote(reference[len(prefix) :])).replace("\\", "/")
        return ".." not in below.split("/")

    def _within_time(self, reference: str) -> bytes | None:
        if not self._free.acquire(blocking=False):
            return None
        contents: list[bytes | None] = []

        def read() -> None:
            try:
                contents.append(self._read(reference))
            finally:
                self._free.release()

        # A daemon, because not every file system has a time-out, and a worker must be able to end.
        thread = threading.Thread(target=read, name="payload", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        return contents[0] if contents else None

    def _read(self, reference: str) -> bytes | None:
        import fsspec

        web = urlsplit(reference).scheme.lower() in _HTTP
        # Streamed, because a server may ignore a range; and where a redirect leads, nobody has
        # allowed.
        options: dict[str, Any] = {"block_size": 0, "allow_redirects": False} if web else {}
        try:
            with fsspec.open(reference, "rb", **options) as file:
                if web and file.r.status != _OK:
                    return None
                data = self._bounded(file)
        # Each file system raises what its client library does; ImportError: that is not installed.
        except (
            OSError,
            ValueError,
            ImportError,
            RuntimeError,
            LookupError,
            TypeError,
            AttributeError,
        ):
            return None
        return data if len(data) <= self._max_bytes else None

    def _bounded(self, file: Any) -> bytes:
        """All that is in a file, or a little more than is allowed; a read may give less."""
        data = bytearray()
        while len(data) <= self._max_bytes and (part := file.read(self._max_bytes + 1 - len(data))):
            data += part
        return bytes(data)


def _local_path(reference: str) -> Path | None:
    """The path on this machine that a reference or prefix means, if it means one."""
    if not _SCHEME.match(reference):
        return Path(reference)
    scheme, _, path = reference.partition("://")
    return Path(path) if scheme.lower() in ("file", "local") else None


def _payload(data: bytes) -> Any | None:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
