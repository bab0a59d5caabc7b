"""Payloads behind references: only from where it is allowed, bounded in size and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipelines.ledger.payloads import FsspecResolver
from pipelines.observe import metrics
from pipelines.work.settings import Settings


class Handler(BaseHTTPRequestHandler):
    release = threading.Event()

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path == "/open/moved":
            self.send_response(302)
            self.send_header("Location", "/secret")
            self.end_headers()
            self.wfile.write(b"moved")
        elif self.path == "/open/slow":
            self.release.wait(30)
        elif self.path in ("/open/json", "/secret"):
            self.send_response(200)
            self.send_header("Content-Length", "8")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b'{"a": 1}')
        elif self.path == "/open/endless":
            self.send_response(200)
            self.end_headers()
            if self.command == "GET":
                try:
                    for _ in range(10_000):
                        self.wfile.write(bytes(1_000))
                except OSError:
                    pass  # the reader had enough
        else:
            self.send_error(404)


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """A web server's address, with payloads below `/open/`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        Handler.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def failures() -> float:
    value: float = metrics.DEGRADED.labels(kind="payload")._value.get()
    return value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "payloads"
    made.mkdir()
    (made / "call.json").write_text('{"name": "refund", "amounts": [1, 2.5]}')
    (made / "note.txt").write_text("grüße\n")
    (made / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    (made / "big.txt").write_text("x" * 262_145)
    (made / "full.txt").write_text("x" * 262_144)
    (made / "empty").write_text("")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "payloads-of-others").mkdir()
    (tmp_path / "payloads-of-others" / "a.txt").write_text("secret")
    (made / "link.txt").symlink_to(tmp_path / "secret.txt")
    return made


def test_by_default_nothing_is_read(folder: Path) -> None:
    before = failures()
    resolver = FsspecResolver.from_settings(Settings())
    assert resolver.resolve(f"file://{folder}/call.json") is None
    assert failures() == before + 1


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_json_and_text_are_read(folder: Path, scheme: str) -> None:
    before = failures()
    resolver = FsspecResolver([f"{scheme}{folder}"])
    found = [resolver.resolve(f"{scheme}{folder}/{n}") for n in ("call.json", "note.txt", "empty")]
    assert found == [{"name": "refund", "amounts": [1, 2.5]}, "grüße\n", ""]
    assert len(resolver.resolve(f"{scheme}{folder}/full.txt") or "") == 262_144
    assert failures() == before


@pytest.mark.parametrize(
    "name",
    [
        "missing.json",
        "picture.png",
        "big.txt",
        "",
        "link.txt",
        "../secret.txt",
        "../payloads/../secret.txt",
        "../payloads-of-others/a.txt",
        "call.json::file://x",
        "call.json\n",
        "call.json\x00",
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_cannot_or_may_not_be_read_is_counted(folder: Path, scheme: str, name: str) -> None:
    before = failures()
    assert FsspecResolver([f"{scheme}{folder}"]).resolve(f"{scheme}{folder}/{name}") is None
    assert failures() == before + 1


def test_a_prefix_is_a_whole_folder(folder: Path) -> None:
    other = f"file://{folder.parent}/payloads-of-others/a.txt"
    assert FsspecResolver([f"file://{folder}"]).resolve(other) is None


@pytest.mark.parametrize("reference", ["", "key-of-something", "gopher://x/y", "memory://open/a"])
def test_other_references_are_left_alone(folder: Path, reference: str) -> None:
    assert FsspecResolver([str(folder)]).resolve(reference) is None


def test_a_file_system_that_is_not_installed_is_counted() -> None:
    before = failures()
    assert FsspecResolver(["nosuchthing://a/"]).resolve("nosuchthing://a/b") is None
    assert failures() == before + 1


def test_the_web_is_read(web: str) -> None:
    assert FsspecResolver([f"{web}/open/"]).resolve(f"{web}/open/json") == {"a": 1}


@pytest.mark.parametrize("path", ["moved", "missing", "endless", "../secret", "%2e%2e/secret"])
def test_the_web_is_read_only_where_allowed(web: str, path: str) -> None:
    before = failures()
    assert FsspecResolver([f"{web}/open/"]).resolve(f"{web}/open/{path}") is None
    assert failures() == before + 1


def test_a_slow_server_costs_the_time_limit_and_no_more(web: str) -> None:
    before = failures()
    resolver = FsspecResolver([f"{web}/open/"], timeout_s=0.2)
    begun = time.monotonic()
    found = [resolver.resolve(f"{web}/open/slow") for _ in range(6)]
    # The first four hold their thread; beyond that, no more are begun.
    assert found == [None] * 6
    assert time.monotonic() - begun < 4.0
    assert failures() == before + 6
