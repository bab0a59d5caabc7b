"""Connections of the Python client: of one process, and of one event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

import recollect
from recollect import AsyncMemory, ClientClosed, Memory, UnexpectedAnswer
from recollect.connection import headers_of


class Answering(BaseHTTPRequestHandler):
    """Answers every request with an empty page of changes, and keeps connections open."""

    protocol_version = "HTTP/1.1"
    callers: ClassVar[list[tuple[str, int]]] = []
    """What a request asks for, and the port that it came from."""

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        """Answer."""
        session = self.path.partition("session=")[2].partition("&")[0]
        self.callers.append((session, self.client_address[1]))
        body = b'{"changes":[],"position":"1-0","is_end":true}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Answering.callers.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_fork_has_connections_of_its_own(url: str) -> None:
    """On those of its parent each would read what the other asked for."""
    script = f"""
import os
from recollect import Memory

memory = Memory({url!r})
list(memory.changes(session="parent", since="0", wait=False))
child = os.fork()
list(memory.changes(session="parent" if child else "child", since="0", wait=False))
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0
"""
    folder = str(Path(recollect.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": folder}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    ports = {name: {port for who, port in Answering.callers if who == name} for name in NAMES}
    assert {name: len(used) for name, used in ports.items()} == {"parent": 1, "child": 1}
    assert ports["parent"].isdisjoint(ports["child"])


NAMES = ("parent", "child")


def test_a_key_may_come_from_a_file() -> None:
    """Which mostly ends with a line break."""
    assert headers_of("secret-of-mine\n", None)["Authorization"] == "Bearer secret-of-mine"


@pytest.mark.parametrize("key", ["", "two\nlines", "schlüssel"], ids=["none", "lines", "umlaut"])
def test_a_key_that_fits_no_header_is_refused_at_once_and_not_told(key: str) -> None:
    for make in (Memory, AsyncMemory):
        with pytest.raises(ValueError, match="key: printable ASCII") as caught:
            make("http://127.0.0.1:1", key)
        assert not key or key not in str(caught.value)


def test_half_a_surrogate_pair_may_be_asked_about(url: str) -> None:
    """As it may be logged."""
    memory = Memory(url)
    with pytest.raises(UnexpectedAnswer):  # of what answers here, and not of httpx or JSON
        memory.ask("what is \ud83d?", text=False)
    memory.close()


def test_a_question_after_close_is_told_so(url: str) -> None:
    """By an error of this package, once, and not by what httpx says."""
    memory = Memory(url)
    memory.close()
    memory.close()  # as a block around it does
    with pytest.raises(ClientClosed, match="closed; make another"):
        memory.ask("what happened?", text=False)
    with pytest.raises(ClientClosed):
        list(memory.changes(since="0", wait=False))
    assert list(memory.changes(since="0")) == []  # following ends where the client is closed

    async def ask_after_close() -> None:
        awaited = AsyncMemory(url)
        await awaited.close()
        with pytest.raises(ClientClosed):
            await awaited.ask("what happened?", text=False)

    asyncio.run(ask_after_close())
    assert Answering.callers == []


def test_a_loop_that_is_over_does_not_end_the_client(url: str) -> None:
    """A program that awaits now and then begins a loop for each time."""
    memory = AsyncMemory(url)

    async def follow() -> int:
        return len([each async for each in memory.changes(session="s", since="0", wait=False)])

    assert [asyncio.run(follow()), asyncio.run(follow())] == [0, 0]
    asyncio.run(memory.close())
    assert len(Answering.callers) == 2
