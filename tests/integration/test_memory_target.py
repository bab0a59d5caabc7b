"""Commands on a target whose graph lives in this process, with a ledger in a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from pipelines.graph.port import Graph
from pipelines.ledger.entries import Block
from pipelines.ledger.ledger import Appended
from pipelines.operations.rebuild import replay
from pipelines.work.runner import Runner
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION
from projections.operations import RemoveNode
from projections.schema import EVENT
from tests.contracts.test_graph_reads import put
from tests.factories import sessions
from tests.fakes.stages import PROJECTING, QUICK
from tests.graph_dump import dump

pytestmark = pytest.mark.integration


@pytest.fixture
def services(redis_url: str) -> Iterator[Services]:
    settings = Settings(
        redis_url=redis_url,
        neo4j_url=f"memory://{uuid4().hex}",
        partitions=2,
        id_buckets=64,
    )
    with Services(settings) as opened:
        outcomes = opened.ledger.append(sessions(4, 5))
        assert all(isinstance(one, Appended) for one in outcomes)
        yield opened


@pytest.fixture
def graph(services: Services) -> Graph:
    return services.graph(services.active())


@pytest.fixture
def runner(services: Services, graph: Graph) -> Runner:
    made = Runner(PROJECTING, graph, target=services.active().name, policy=QUICK)
    made.prepare(services.ledger.partitions)
    return made


def fold(services: Services, runner: Runner) -> None:
    for partition in range(services.ledger.partitions):
        for entries in services.ledger.scan(partition):
            runner.apply(Block(partition, tuple(entries)))


def test_a_ledger_is_folded_and_replayed(services: Services, graph: Graph, runner: Runner) -> None:
    fold(services, runner)
    before = dump(graph)
    assert len(before.nodes) == 20
    put(graph, *(RemoveNode(EVENT.label, key) for _, key in sorted(before.nodes)[::3]))
    report = replay(services, PROJECTION)
    assert (report.entries, report.failed) == (20, [])
    assert dump(graph) == before
