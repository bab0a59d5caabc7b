"""A TCP proxy that cuts connections after so many bytes, or is slow, as a bad network."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType


class CuttingProxy:
    """Forwards to a port of 127.0.0.1, and cuts and waits as told.

    Args:
        target_port: where to.
        cut_request_after: bytes of requests after which a connection is cut, one number for each
            connection in order; those after the last pass whole.
        lose_replies_to: a word of the requests that are executed, but whose reply never arrives:
            the connection is cut instead.
        times: how many of those.
        first_reply_after_s: seconds until a connection has its first reply.
    """

    def __init__(
        self,
        target_port: int,
        *,
        cut_request_after: tuple[int, ...] = (),
        lose_replies_to: bytes | None = None,
        times: int = 1,
        first_reply_after_s: float = 0.0,
    ) -> None:
        self.cuts = 0
        self._target = target_port
        self._request = list(cut_request_after)
        self._lose_replies_to = lose_replies_to
        self._times = times
        self._first_reply_after_s = first_reply_after_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._serve)

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        _close(*self._ends)
        for thread in self._threads:
            thread.join(5)
        for end in (self._listener, *self._ends):
            end.close()

    def cut(self) -> None:
        """Cut what is connected now."""
        self.cuts += 1
        _close(*self._ends)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._ends += (client, server)
                limit = self._request.pop(0) if self._request else None
                doomed = threading.Event()
                self._run(self._copy_requests, client, server, limit, doomed)
                self._run(self._copy_replies, server, client, doomed)

    def _copy_requests(
        self,
        client: socket.socket,
        server: socket.socket,
        limit: int | None,
        doomed: threading.Event,
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                if limit is not None and passed + len(data) > limit:
                    server.sendall(data[: limit - passed])
                    self.cuts += 1
                    break
                if self._lose_replies_to and self._lose_replies_to in data and self._times:
                    self._times -= 1
                    doomed.set()
                server.sendall(data)
                passed += len(data)
        _close(client, server)

    def _copy_replies(
        self, server: socket.socket, client: socket.socket, doomed: threading.Event
    ) -> None:
        time.sleep(self._first_reply_after_s)
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if doomed.is_set():
                    self.cuts += 1
                    break
                client.sendall(data)
        _close(client, server)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
