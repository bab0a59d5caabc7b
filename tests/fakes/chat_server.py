"""A server that speaks chat completions on a real socket and misbehaves as it is told."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


def says(content: Any) -> Behaviour:
    """Answers with a value as JSON, or with a text as it is."""
    text = content if isinstance(content, str) else json.dumps(content)
    return sends(json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}))


def sends(body: str | bytes, status: int = 200, **headers: str) -> Behaviour:
    """Answers with a body as it is; `_` in the name of a header is `-`."""
    data = body.encode() if isinstance(body, str) else body

    def behave(handler: Handler) -> None:
        # Before the first byte: a client asks again while this thread is still on its way out.
        handler.chat.answered(handler)
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return behave


def hangs(handler: Handler) -> None:
    """Says nothing until the test is over."""
    handler.chat.over.wait(30)


def drips(handler: Handler) -> None:
    """Sends a header, then one byte after the other, without end."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.chat.over.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def drips_headers(handler: Handler) -> None:
    """Never comes to the end of its headers."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
    while not handler.chat.over.wait(0.02):
        handler.wfile.write(b"a")
        handler.wfile.flush()


def floods(handler: Handler) -> None:
    """Sends as much as is taken."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.chat.over.is_set():
        handler.wfile.write(b" " * 2**16)


def breaks_off(handler: Handler) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')


def talks_nonsense(handler: Handler) -> None:
    """Does not speak HTTP."""
    handler.wfile.write(b"\x00\xff HELLO\r\n\r\n")


@dataclass
class ChatServer:
    """What the server was asked, and what it does next.

    Attributes:
        script: behaviours in order; the last one stays.
        asked: bodies of the requests.
        keys: values of the header Authorization.
        most: requests at the same moment, at most.
    """

    script: list[Behaviour] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    most: int = 0
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    _open: set[Handler] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def does(self, *behaviours: Behaviour) -> None:
        """From now on."""
        self.script[:] = behaviours

    def next(self, handler: Handler) -> None:
        """Note a request and answer it."""
        length = int(handler.headers.get("Content-Length", 0))
        body = json.loads(handler.rfile.read(length))
        with self._lock:
            self.asked.append(body)
            self.keys.append(handler.headers.get("Authorization"))
            self.paths.append(handler.path)
            self._open.add(handler)
            self.most = max(self.most, len(self._open))
            behave = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        try:
            behave(handler)
        except OSError:
            pass  # the client did not wait
        finally:
            self.answered(handler)

    def answered(self, handler: Handler) -> None:
        """A request no longer waits."""
        with self._lock:
            self._open.discard(handler)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    chat: ChatServer

    def do_POST(self) -> None:
        self.chat.next(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def chat_server(*behaviours: Behaviour) -> Iterator[ChatServer]:
    """A server on a free port until the block ends."""
    chat = ChatServer(list(behaviours) or [says({})])
    bound = type("Bound", (Handler,), {"chat": chat})
    server = _Server(("127.0.0.1", 0), bound)
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield chat
    finally:
        chat.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def nobody_listens() -> str:
    """The URL of a port on which there is nothing."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"http://127.0.0.1:{held.getsockname()[1]}/v1"
