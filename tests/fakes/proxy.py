"""A TCP proxy that cuts connections after so many bytes, as a bad network does."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class CuttingProxy:
    """Forwards to a port of 127.0.0.1 and cuts as told.

    Args:
        target_port: where to.
        cut_request_after: bytes of requests after which a connection is cut, one number for each
            connection in order; those after the last pass whole.
        cut_reply_after: likewise of replies; the request was then executed.
    """

    def __init__(
        self,
        target_port: int,
        *,
        cut_request_after: tuple[int, ...] = (),
        cut_reply_after: tuple[int, ...] = (),
    ) -> None:
        self.cuts = 0
        self._target = target_port
        self._request = list(cut_request_after)
        self._reply = list(cut_reply_after)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                request = self._request.pop(0) if self._request else None
                reply = self._reply.pop(0) if self._reply else None
                for source, sink, limit in ((client, server, request), (server, client, reply)):
                    threading.Thread(
                        target=self._copy, args=(source, sink, limit), daemon=True
                    ).start()

    def _copy(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if limit is not None and passed + len(data) > limit:
                    sink.sendall(data[: limit - passed])
                    self.cuts += 1
                    break
                sink.sendall(data)
                passed += len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
