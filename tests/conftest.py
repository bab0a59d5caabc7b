"""Real services for tests: started once a session when first asked for, stopped by process id."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from pipelines.local.servers import Neo4jServer, ValkeyServer
from tests.servers import (
    NEO4J_URL,
    REDIS_URL,
    GivenServer,
    emptied_neo4j,
    emptied_valkey,
    running,
)

# The machines are shared: an example that took long says nothing about what it is an example of.
settings.register_profile(
    "shared", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")

# Of the frameworks, which have an environment of their own: `test_frameworks.py` runs these there.
collect_ignore = ["adapters"]


# Every Neo4j that a test or a process of a test starts compiles for a fast start: half the time of
# the processor, which the tests share with it; of one that serves a whole run as much as otherwise.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


# Modules and tests are objects that stay: looking for cycles among them, again and again, was a
# quarter of the time to collect them.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on cycles are looked for, among what tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


_DEPLOYMENTS = "deployments"
_WITH_GRAPH = ("tests/contracts/", "tests/integration/")


class _ByServers(LoadFileScheduling):  # type: ignore[misc]
    """Tests of a file stay together, and so do files that need what is dear to have twice.

    Of whole deployments there is one at a time. A second Neo4j costs half a minute of a processor
    before it has planned the questions of a test: one process has it, and so all files that ask.
    Nor does every process plan the questions of all tests in a Neo4j of its own: the one that had
    the deployments goes on with what needs none, which the others leave to it.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        files = (config.rootpath / "tests").rglob("test_*.py")
        self._with_second = {
            path.relative_to(config.rootpath).as_posix()
            for path in files
            if second_neo4j.__name__ in path.read_text(encoding="utf-8")
        }

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        if file.startswith("tests/acceptance/"):
            return _DEPLOYMENTS
        return "second Neo4j" if file in self._with_second else file

    def _assign_work_unit(self, node: Any) -> None:
        """Put first what this process had better take; of that, what was collected first."""
        with_graph = _DEPLOYMENTS not in self.assigned_work[node]
        for scope, tests in self.workqueue.items():
            if _DEPLOYMENTS in self.workqueue:
                is_better = scope == _DEPLOYMENTS
            else:
                is_better = next(iter(tests)).startswith(_WITH_GRAPH) == with_graph
            if is_better:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByServers:
    """How tests are shared out among processes, instead of `--dist`."""
    return _ByServers(config, log)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer | GivenServer]:
    """A Valkey for the whole session. A test that kills it takes `start_valkey` instead."""
    if REDIS_URL in os.environ:
        yield GivenServer(os.environ[REDIS_URL])
        return
    with running(ValkeyServer(tmp_path_factory.mktemp("valkey"))) as server:
        yield server


@pytest.fixture(scope="session")
def neo4j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neo4jServer | GivenServer]:
    """A Neo4j without login for the whole session."""
    if NEO4J_URL in os.environ:
        yield GivenServer(os.environ[NEO4J_URL])
        return
    with running(Neo4jServer(tmp_path_factory.mktemp("neo4j"))) as server:
        yield server


@pytest.fixture(scope="session")
def second_neo4j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neo4jServer]:
    """Another, of a second target. Whoever takes it empties it; it may be killed and started."""
    with running(Neo4jServer(tmp_path_factory.mktemp("second-neo4j"))) as server:
        yield server


@pytest.fixture
def redis_url(valkey: ValkeyServer) -> str:
    """URL of a Valkey that holds nothing, neither data nor scripts nor functions."""
    return emptied_valkey(valkey)


@pytest.fixture(scope="module")
def module_redis_url(valkey: ValkeyServer) -> str:
    """The same, emptied once for a module."""
    return emptied_valkey(valkey)


@pytest.fixture
def neo4j_url(neo4j: Neo4jServer) -> str:
    """URL of a Neo4j without nodes; constraints and indexes of earlier tests may be there."""
    return emptied_neo4j(neo4j)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private one whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def start_valkey(tmp_path: Path) -> Iterator[Callable[..., ValkeyServer]]:
    """Starts servers of the test's own, that it may kill; options as of `ValkeyServer`."""
    servers: list[ValkeyServer] = []

    def start(**options: Any) -> ValkeyServer:
        server = ValkeyServer(tmp_path / f"valkey-{len(servers)}", **options)
        servers.append(server)
        server.start()
        server.wait_ready()
        return server

    yield start
    for server in servers:
        server.kill()
