"""The embedded services: start, stop, restart, and nobody left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from neo4j import Driver, GraphDatabase

from pipelines.local.data_folder import connection_settings, read_state, target_dir
from pipelines.local.processes import free_port, is_alive, port_is_free
from pipelines.local.servers import Neo4jServer, ValkeyServer, neo4j_answers, valkey_answers
from pipelines.local.services import down, drop_target, ensure_target, up
from projections.errors import OperationFailed
from tests.servers import emptied_neo4j, kill_synced
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

_HOLDER = """
import sys, threading, time
from pathlib import Path
from pipelines.local.servers import ValkeyServer
server = ValkeyServer(Path(sys.argv[1]))
server._use_watcher = sys.argv[2] == "watcher"
# A thread that ends: its children must stay until the process ends.
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
server.wait_ready()
print(server.pid, server.port, flush=True)
time.sleep(600)
"""


def ledger(data_dir: Path) -> redis.Redis:
    settings = connection_settings(data_dir)
    return redis.from_url(settings["redis_url"], password=settings["redis_password"])


def login(data_dir: Path, name: str) -> Driver:
    state = read_state(data_dir)
    assert state is not None
    settings = connection_settings(data_dir)
    auth = (settings["neo4j_user"], settings["neo4j_password"])
    return GraphDatabase.driver(state.neo4j_urls[name], auth=auth)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all: who finds the services running need not start them, which takes seconds."""
    folder = tmp_path_factory.mktemp("local") / "data"
    yield folder
    down(folder)


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "valkey")
    server.start()
    server.wait_ready()
    yield server
    server.kill()


def test_session_services_answer(redis_url: str, neo4j_url: str) -> None:
    with redis.from_url(redis_url) as client, GraphDatabase.driver(neo4j_url) as driver:
        assert client.dbsize() == 0
        assert driver.execute_query("MATCH (n) RETURN count(n) AS n").records[0]["n"] == 0


def test_killed_valkey_restarts_on_its_port_with_its_data(own_valkey: ValkeyServer) -> None:
    with redis.from_url(own_valkey.url) as client:
        client.set("kept", "yes")
    before = own_valkey.url
    kill_synced(own_valkey)
    assert own_valkey.pid is None
    own_valkey.start()
    own_valkey.wait_ready()
    with redis.from_url(before) as client:
        assert client.get("kept") == b"yes"


def test_what_a_server_writes_is_for_its_user_alone(own_valkey: ValkeyServer) -> None:
    with redis.from_url(own_valkey.url) as client:
        client.set("kept", "yes")
    files = [path for path in (own_valkey.data_dir / "appendonlydir").rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_replica_follows_its_primary(own_valkey: ValkeyServer, tmp_path: Path) -> None:
    replica = ValkeyServer(
        tmp_path / "replica",
        replicaof=("127.0.0.1", own_valkey.port),
        extra_args=["--repl-diskless-sync-delay", "0"],
    )
    replica.start()
    try:
        replica.wait_ready()
        with redis.from_url(own_valkey.url) as primary, redis.from_url(replica.url) as follower:
            primary.set("kept", "yes")
            wait_until(lambda: follower.get("kept") == b"yes", "it is followed")
    finally:
        replica.stop()


def test_starting_twice_is_refused(own_valkey: ValkeyServer) -> None:
    with pytest.raises(OperationFailed, match="runs already"):
        own_valkey.start()


def test_failed_start_shows_the_log(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path / "valkey", extra_args=["--no-such-option", "1"])
    server.start()
    with pytest.raises(OperationFailed, match="no-such-option"):
        server.wait_ready()


def test_killed_neo4j_restarts_on_its_port_with_its_data(second_neo4j: Neo4jServer) -> None:
    server = second_neo4j
    emptied_neo4j(server)
    with GraphDatabase.driver(server.url) as driver:
        driver.execute_query("CREATE (:Kept {value: 1})")
    url = server.url
    server.kill()
    assert not neo4j_answers(server.port)
    server.start()
    server.wait_ready()
    with GraphDatabase.driver(url) as driver:
        assert len(driver.execute_query("MATCH (n:Kept) RETURN n").records) == 1


@pytest.mark.parametrize("way", ["death signal", "watcher"])
def test_killed_parent_leaves_no_orphan(tmp_path: Path, way: str) -> None:
    if way == "death signal" and not sys.platform.startswith("linux"):
        pytest.skip("only Linux has a parent-death signal")
    parent = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path / "valkey"), way], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid, port = map(int, parent.stdout.readline().split())
    try:
        assert is_alive(pid)
        assert valkey_answers(port)
    finally:
        parent.kill()
        parent.communicate()
    wait_until(lambda: not is_alive(pid), "its end")
    wait_until(lambda: port_is_free(port), "its port is free")


def test_a_valkey_that_cannot_write_answers(tmp_path: Path) -> None:
    """Killed as if it hung, it would lose what it has taken and not written."""
    folder = tmp_path / "valkey"
    server = ValkeyServer(folder, extra_args=("--save", "900 1"))
    server.start()
    try:
        server.wait_ready()
        with redis.from_url(server.url) as client:
            folder.rename(tmp_path / "away")
            shutil.rmtree(tmp_path / "away")
            client.bgsave()
            wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "it")
            with pytest.raises(redis.ResponseError, match="MISCONF"):
                client.set("one", "more")
        assert server.answers()
    finally:
        server.kill()


def test_port_in_use_is_not_chosen(own_valkey: ValkeyServer) -> None:
    assert free_port(own_valkey.port) != own_valkey.port


def test_target_name_cannot_leave_the_data_folder(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="name"):
        target_dir(tmp_path, "../other")


def test_up_asks_for_its_password_reports_restarts_and_goes_down(
    data_dir: Path, record_property: Callable[[str, object], None]
) -> None:
    assert read_state(data_dir) is None
    began = time.monotonic()
    first = up(data_dir, detach=True)
    record_property("up_s", round(time.monotonic() - began, 1))
    assert up(data_dir, detach=True) == first  # a second one only reports
    port = int(first.neo4j_urls["blue"].rsplit(":", 1)[1])
    assert neo4j_answers(port, connection_settings(data_dir)["neo4j_password"])
    assert not neo4j_answers(port, "wrong-password")
    assert not neo4j_answers(port)
    with ledger(data_dir) as client:
        client.set("kept", "yes")
    with login(data_dir, "blue") as driver:
        driver.execute_query("CREATE (:Kept)")

    down(data_dir)
    pids = [first.valkey.pid, first.targets["blue"].pid, first.valkey.supervisor_pid]
    assert [is_alive(pid) for pid in pids] == [False] * 3
    assert read_state(data_dir) is None
    assert connection_settings(data_dir) == {}

    second = up(data_dir, detach=True)
    assert second.redis_url == first.redis_url
    assert second.neo4j_urls == first.neo4j_urls
    with ledger(data_dir) as client:
        assert client.get("kept") == b"yes"
    with login(data_dir, "blue") as driver:
        assert len(driver.execute_query("MATCH (n:Kept) RETURN n").records) == 1


def test_a_killed_server_is_started_again_and_a_killed_supervisor_leaves_nothing(
    data_dir: Path,
) -> None:
    before = up(data_dir, detach=True)
    os.kill(before.valkey.pid, signal.SIGKILL)

    def restarted() -> bool:
        now = read_state(data_dir)
        return now is not None and now.valkey.pid != before.valkey.pid and now.valkey.answers

    wait_until(restarted, "it is started again")
    with ledger(data_dir) as client:
        assert client.ping()

    state = read_state(data_dir)
    assert state is not None
    os.kill(state.valkey.supervisor_pid, signal.SIGKILL)
    for pid in (state.valkey.pid, state.targets["blue"].pid):
        wait_until(lambda: not is_alive(pid), "its end")  # noqa: B023 - called at once
    # The services go with the thread that started them, an instant before the process is gone.
    wait_until(lambda: read_state(data_dir) is None, "nothing is left")
    assert up(data_dir, detach=True).redis_url == state.redis_url


def test_second_target_comes_and_the_first_goes(data_dir: Path) -> None:
    up(data_dir, detach=True)
    green = ensure_target(data_dir, "green")
    assert ensure_target(data_dir, "green") == green
    with login(data_dir, "green") as driver:
        driver.execute_query("CREATE (:Kept)")

    drop_target(data_dir, "blue")
    state = read_state(data_dir)
    assert state is not None
    assert list(state.targets) == ["green"]
    assert not target_dir(data_dir, "blue").exists()
    assert connection_settings(data_dir)["neo4j_url"] == green

    down(data_dir)
    assert not is_alive(state.targets["green"].pid)
    assert up(data_dir, detach=True).neo4j_urls == {"green": green}


def test_up_in_the_foreground_stops_on_sigterm(data_dir: Path) -> None:
    down(data_dir)
    code = (
        "import sys; from pathlib import Path; from pipelines.local.services import up\n"
        "up(Path(sys.argv[1]), False, on_ready=lambda s: print(s.redis_url, flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(data_dir)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    state = read_state(data_dir)
    assert state is not None
    assert state.redis_url == url
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert read_state(data_dir) is None
    assert state.targets
    assert not any(is_alive(target.pid) for target in state.targets.values())
