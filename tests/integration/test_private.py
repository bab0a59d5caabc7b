"""What `up` makes is its user's alone: passwords, modes of files, and pages of a browser."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from neo4j import GraphDatabase

from pipelines.cli.invocation import settings_of
from pipelines.ledger.check import check
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Ledger
from pipelines.local.data_folder import (
    VALKEY,
    LocalState,
    connection_settings,
    password_of,
    read_state,
)
from pipelines.local.python_process import python_command, python_environment
from pipelines.local.servers import neo4j_answers, valkey_answers
from pipelines.local.services import LocalServices, down, ensure_target, up
from pipelines.work.settings import Settings
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration
BOLT = bytes.fromhex("6060b017 00010205 00000000 00000000 00000000")
HELLO = b"\xb1\x01\xa1\x8auser_agent\x86page/1"
LOGON_NONE = b"\xb1\x6a\xa1\x86scheme\x84none"
LOGON_GUESSED = b"\xb1\x6a\xa3\x86scheme\x85basic\x89principal\x85neo4j\x8bcredentials\x85neo4j"
RUN = b"\xb3\x10\x88RETURN 1\xa0\xa0"
SUCCESS, FAILURE = 0x70, 0x7F


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalState]:
    """What runs on a new folder, made with the umask of most machines."""
    folder = tmp_path_factory.mktemp("private") / "data"
    before = os.umask(0o022)
    try:
        up(folder, detach=True)
        ensure_target(folder, "green")
        running = read_state(folder)
        assert running is not None
        yield running
    finally:
        down(folder)
        os.umask(before)


def port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def secrets_of(data_dir: Path) -> list[str]:
    settings = connection_settings(data_dir)
    return [settings["redis_password"], settings["neo4j_password"]]


def open_to_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & 0o077]


class Page:
    """A script of a web page that has found the graph's port: Bolt over a WebSocket."""

    def __init__(self, number: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", number), timeout=10)
        self._socket.sendall(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://page.example\r\n"
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._exactly(1)
        assert head.startswith(b"HTTP/1.1 101")
        self._unread = b""
        self._send(BOLT)
        assert self._take(4) == b"\x00\x00\x02\x05"
        assert self.say(HELLO) == SUCCESS

    def say(self, message: bytes) -> int:
        """Send a message; the tag of the answer."""
        self._send(struct.pack(">H", len(message)) + message + b"\x00\x00")
        answer = b""
        while size := struct.unpack(">H", self._take(2))[0]:
            answer += self._take(size)
        return answer[1]

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        mask = bytes(4)
        self._socket.sendall(b"\x82" + bytes([0x80 | len(data)]) + mask + data)

    def _take(self, count: int) -> bytes:
        """So many bytes of what the frames hold."""
        while len(self._unread) < count:
            size = self._exactly(2)[1]
            if size == 126:
                size = int.from_bytes(self._exactly(2), "big")
            self._unread += self._exactly(size)
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data


@pytest.mark.parametrize("target", ["blue", "green"])
@pytest.mark.parametrize("login", [LOGON_NONE, LOGON_GUESSED, RUN], ids=["none", "guess", "skip"])
def test_a_page_of_a_browser_cannot_open_the_graph(
    state: LocalState, target: str, login: bytes
) -> None:
    number = port(state.neo4j_urls[target])
    for _ in range(4):
        page = Page(number)
        assert page.say(login) == FAILURE
        page.close()
    _, password = secrets_of(state.data_dir)
    assert neo4j_answers(number, password), "guesses shut out who has the password"


def test_the_ledger_takes_no_command_without_its_password(state: LocalState) -> None:
    assert not valkey_answers(port(state.redis_url))
    with redis.from_url(state.redis_url) as client:
        for command in ("PING", "FLUSHALL", "INFO", "REPLICAOF NO ONE"):
            with pytest.raises(redis.exceptions.AuthenticationError):
                client.execute_command(command)
    with connect_redis(settings_of(None, None, state.data_dir)) as client:
        assert client.ping()


def test_nobody_else_can_read_what_is_in_the_folder(state: LocalState) -> None:
    with connect_redis(settings_of(None, None, state.data_dir)) as client:
        client.set("kept", "yes")
    logs = [path.name for path in (state.data_dir / "log").iterdir()]
    assert set(logs) >= {"supervisor-main.log", "supervisor-target-green.log"}
    assert open_to_others(state.data_dir) == []


def test_no_password_is_told_but_in_its_file(state: LocalState) -> None:
    passwords = [secret.encode() for secret in secrets_of(state.data_dir)]
    supervisors = {row.supervisor_pid for row in (state.valkey, *state.targets.values())}
    pids = {state.valkey.pid, *(row.pid for row in state.targets.values())} | supervisors
    told = [
        Path(f"/proc/{pid}/{what}").read_bytes() for pid in pids for what in ("cmdline", "environ")
    ]
    shown = subprocess.run(
        python_command("pipelines.cli.main", "status", "--json", "--data", str(state.data_dir)),
        env=python_environment(),
        capture_output=True,
        timeout=120,
        check=True,
    )
    told += [shown.stdout, shown.stderr, json.dumps(state.as_json()).encode()]
    told += [path.read_bytes() for path in state.data_dir.rglob("*.log")]
    assert [text for text in told for password in passwords if password in text] == []
    kept = {
        path.name
        for path in state.data_dir.rglob("*")
        if path.is_file() and any(password in path.read_bytes() for password in passwords)
    }
    assert kept == {"neo4j-password", "valkey-password", "valkey.conf"}


def test_the_url_that_up_prints_leads_to_its_password(
    state: LocalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_password, neo4j_password = secrets_of(state.data_dir)
    for url in (state.redis_url, None):
        settings = settings_of(url, state.neo4j_urls["green"], state.data_dir)
        assert settings.redis_password is not None
        assert settings.redis_password.get_secret_value() == redis_password
        assert settings.neo4j_password is not None
        assert settings.neo4j_password.get_secret_value() == neo4j_password
    elsewhere = settings_of(None, "bolt://127.0.0.1:1", state.data_dir)
    assert elsewhere.redis_password is not None
    assert elsewhere.neo4j_password is None, "the password went to somebody else's server"
    monkeypatch.setenv("RECOLLECT_REDIS_PASSWORD", "chosen by the user")
    chosen = settings_of(None, None, state.data_dir).redis_password
    assert chosen is not None
    assert chosen.get_secret_value() == "chosen by the user"


def test_a_folder_of_before_passwords_keeps_its_data_and_gets_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with LocalServices(folder, auth=False) as services:
        settings = services.settings
        assert set(settings) == {"redis_url", "neo4j_url", "derivations_url"}
        with redis.from_url(settings["redis_url"]) as client:
            client.set("kept", "yes")
        with GraphDatabase.driver(settings["neo4j_url"]) as driver:
            driver.execute_query("CREATE (:Kept)")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with LocalServices(folder) as services:
        found = services.settings
        assert {name: found[name] for name in settings} == settings
        assert not valkey_answers(port(found["redis_url"]))
        assert not neo4j_answers(port(found["neo4j_url"]))
        password = found["redis_password"]
        with redis.from_url(found["redis_url"], password=password) as client:
            assert client.get("kept") == b"yes"
        login = (found["neo4j_user"], found["neo4j_password"])
        with GraphDatabase.driver(found["neo4j_url"], auth=login) as driver:
            assert len(driver.execute_query("MATCH (n:Kept) RETURN n").records) == 1
        assert open_to_others(folder) == []


@contextmanager
def ledger_alone(folder: Path) -> Iterator[Ledger]:
    with LocalServices(folder, targets=()) as services:
        settings = Settings(**services.settings)  # type: ignore[arg-type]  # by name
        with connect_redis(settings) as client:
            yield Ledger(client, checkpoints=dict)


def test_the_append_only_file_alone_is_a_backup(tmp_path: Path) -> None:
    """As docs/how-to says it: the new folder has passwords of its own, and all events."""
    events = [numbered_event(number) for number in range(100)]
    with ledger_alone(tmp_path / "memory") as stored:
        stored.append(events)
    copied = tmp_path / "restored" / "valkey" / "appendonlydir"
    shutil.copytree(tmp_path / "memory" / "valkey" / "appendonlydir", copied)
    with ledger_alone(tmp_path / "restored") as restored:
        report = check(restored, repair=False)
    assert (report.ok, report.entries) == (True, len(events))
    assert password_of(tmp_path / "restored", VALKEY) != password_of(tmp_path / "memory", VALKEY)


def test_what_is_not_ours_keeps_its_readers(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir(mode=0o755)
    (tmp_path / "log").mkdir(mode=0o755)
    elsewhere = tmp_path / "notes" / "elsewhere.txt"
    elsewhere.touch(mode=0o644)
    (tmp_path / "log" / "link").symlink_to(elsewhere)
    tmp_path.chmod(0o755)
    LocalServices(tmp_path)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path, notes, elsewhere)] == [
        0o755,
        0o755,
        0o644,
    ]
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
