"""The servers of `up` under kills and hangs: each comes back by itself, and nobody waits for it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from neo4j import GraphDatabase

from pipelines.local.data_folder import (
    LocalState,
    ServerState,
    connection_settings,
    live_servers,
    read_state,
    target_dir,
)
from pipelines.local.processes import is_alive
from pipelines.local.servers import Neo4jServer, ValkeyServer, neo4j_answers, valkey_answers
from pipelines.local.services import down, up
from tests.servers import wait_synced
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
SOON_S = 60.0
"""For a server to be back, on a machine that is shared."""
FILLED_MB = 200
"""What a Valkey loads for a while when it starts."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kept-up") / "data"
    up(folder, detach=True)
    yield folder
    down(folder)


@pytest.fixture
def before(data_dir: Path) -> LocalState:
    """What runs, after all of it answers."""
    wait_until(lambda: all_answer(data_dir), "everything answers", 2 * SOON_S)
    state = read_state(data_dir)
    assert state is not None
    return state


def all_answer(data_dir: Path) -> bool:
    servers = live_servers(data_dir)
    return bool(servers) and all(row.answers for row in servers.values())


def server(data_dir: Path, name: str) -> ServerState:
    return live_servers(data_dir)[name]


def port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def killed(data_dir: Path, name: str, *, before: int) -> int:
    """Kill the process that came after the process `before`, as soon as it is there."""

    def newer() -> int | None:
        pid = server(data_dir, name).pid
        return pid if pid not in (0, before) and is_alive(pid) else None

    wait_until(newer, f"another {name}", SOON_S)
    pid = server(data_dir, name).pid
    os.kill(pid, signal.SIGKILL)
    return pid


def is_back(data_dir: Path, name: str, pid: int) -> bool:
    row = server(data_dir, name)
    settings = connection_settings(data_dir)
    if row.pid == pid or not row.answers or not settings:
        return False
    if name == "valkey":
        return valkey_answers(port(row.url), settings["redis_password"])
    return neo4j_answers(port(row.url), settings["neo4j_password"])


def ledger(data_dir: Path) -> redis.Redis:
    settings = connection_settings(data_dir)
    return redis.from_url(settings["redis_url"], password=settings["redis_password"])


def test_a_valkey_that_is_killed_while_it_loads_comes_back(
    data_dir: Path, before: LocalState
) -> None:
    with ledger(data_dir) as client:
        for n in range(FILLED_MB):
            client.set(f"filled-{n}", os.urandom(1 << 20))
        wait_synced(client)
    os.kill(before.valkey.pid, signal.SIGKILL)
    time.sleep(0.28)
    pid = killed(data_dir, "valkey", before=before.valkey.pid)
    wait_until(lambda: is_back(data_dir, "valkey", pid), "Valkey is back", SOON_S)
    with ledger(data_dir) as client:
        assert client.dbsize() == FILLED_MB
        client.flushall()


def test_a_neo4j_that_is_killed_while_it_starts_comes_back_and_holds_up_nobody(
    data_dir: Path, before: LocalState
) -> None:
    graph, ledger = before.targets["blue"], before.valkey
    os.kill(graph.pid, signal.SIGKILL)
    time.sleep(1.0)
    pid = killed(data_dir, "blue", before=graph.pid)
    os.kill(ledger.pid, signal.SIGKILL)
    wait_until(lambda: is_back(data_dir, "valkey", ledger.pid), "Valkey is back", SOON_S)
    assert not server(data_dir, "blue").answers, "the graph started first: nothing was shown"
    wait_until(lambda: is_back(data_dir, "blue", pid), "Neo4j is back", 2 * SOON_S)
    assert server(data_dir, "blue").url == graph.url


def was_silent(data_dir: Path) -> int:
    """How often a server was killed because it did not answer."""
    log = data_dir / "log" / "supervisor-main.log"
    return log.read_text(encoding="utf-8").count("has not answered for")


def test_a_graph_that_hangs_is_started_again_while_seven_kills_of_the_ledger_are_survived(
    data_dir: Path, before: LocalState
) -> None:
    graph, told = before.targets["blue"], was_silent(data_dir)
    os.kill(graph.pid, signal.SIGSTOP)
    pid = before.valkey.pid
    os.kill(pid, signal.SIGKILL)
    for _ in range(6):
        pid = killed(data_dir, "valkey", before=pid)
    wait_until(lambda: is_back(data_dir, "valkey", pid), "Valkey is back", SOON_S)
    patience_s = Neo4jServer.silence_s + 2 * SOON_S
    wait_until(lambda: is_back(data_dir, "blue", graph.pid), "Neo4j is back", patience_s)
    assert not is_alive(graph.pid)
    assert was_silent(data_dir) == told + 1
    after = read_state(data_dir)
    assert after is not None
    assert after.valkey.supervisor_pid == before.valkey.supervisor_pid
    assert after.targets == {
        **before.targets,
        "blue": replace(graph, pid=after.targets["blue"].pid),
    }


def test_a_ledger_that_hangs_is_started_again_and_a_graph_without_its_files_begins_again(
    data_dir: Path, before: LocalState
) -> None:
    pid, told = before.targets["blue"].pid, was_silent(data_dir)
    shutil.rmtree(target_dir(data_dir, "blue") / "data")
    os.kill(before.valkey.pid, signal.SIGSTOP)
    patience_s = ValkeyServer.silence_s + 2 * SOON_S
    wait_until(lambda: is_back(data_dir, "valkey", before.valkey.pid), "Valkey is back", patience_s)
    assert not is_alive(before.valkey.pid)
    assert was_silent(data_dir) == told + 1, "the graph's turn comes later"
    patience_s = Neo4jServer.silence_s + 2 * SOON_S
    wait_until(lambda: is_back(data_dir, "blue", pid), "Neo4j is back", patience_s)
    assert not is_alive(pid)
    settings = connection_settings(data_dir)
    login = ("neo4j", settings["neo4j_password"])
    with GraphDatabase.driver(settings["neo4j_url"], auth=login) as driver:
        driver.execute_query("CREATE (:Event)")
