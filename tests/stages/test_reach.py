"""A decision waits for all of the enrichment, an ordinary event only for its own partition."""

from __future__ import annotations

import threading

import pytest

from pipelines.ledger.entries import Block
from pipelines.work.live import LiveRunner
from pipelines.work.runner import Runner
from pipelines.work.services import make_fold
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT
from projections.errors import Stopped
from projections.events import Event
from projections.identity import partition_of
from tests.decision_factories import boosted
from tests.factories import event, sessions
from tests.memory_stack import MemoryStack
from tests.stages.consolidated import ConsolidatedLedger

Consolidated = ConsolidatedLedger[MemoryStack]

PARTITIONS = 5
DECISIONS, ELSEWHERE = (
    partition_of("default", session, PARTITIONS) for session in ("memory", "session-0")
)


@pytest.fixture
def live() -> Consolidated:
    made = Consolidated(MemoryStack(PARTITIONS))
    made.take_in(*sessions(3, 2))
    return made


@pytest.fixture
def runner(live: Consolidated) -> LiveRunner:
    """It is to stop, so wherever it would wait it says so."""
    stop = threading.Event()
    stop.set()
    return LiveRunner(
        make_fold(CONSOLIDATION, live.stack.services, live.stack.target),
        live.stack.graph,
        live.stack.ledger,
        target="blue",
        stop=stop,
    )


def block(live: Consolidated, runner: Runner, partition: int) -> Block:
    at = runner.checkpoint(partition)
    return Block(partition, tuple(live.stack.ledger.read(partition, at.position, 10)))


def enrich(live: Consolidated, partition: int) -> None:
    live.enrichment.apply(block(live, live.enrichment, partition))


def came(live: Consolidated, *events: Event) -> None:
    """Appended and projected, and enriched where decisions are."""
    live.stack.append(*events)
    live.stack.fold(runner=live.projection)
    enrich(live, DECISIONS)


def test_a_decision_waits_until_every_partition_is_enriched(
    live: Consolidated, runner: LiveRunner
) -> None:
    assert DECISIONS != ELSEWHERE
    came(live, event(50, at=900, session_id="session-0"), boosted(60, {1: 1.0}))
    decision = block(live, runner, DECISIONS)
    with pytest.raises(Stopped):
        runner.apply(decision)
    enrich(live, ELSEWHERE)
    assert runner.apply(decision).position == decision.entries[-1].position


def test_a_decision_waits_until_all_of_every_partition_can_be_read(
    live: Consolidated, runner: LiveRunner
) -> None:
    came(live, event(50, at=900, session_id="session-0"), boosted(60, {1: 1.0}))
    enrich(live, ELSEWHERE)
    unsettled = live.stack.graph.unsettled
    unsettled |= {(ENRICHMENT.name, partition) for partition in range(PARTITIONS)}
    runner.apply(block(live, runner, DECISIONS))
    assert not unsettled


def test_what_came_after_a_decision_is_not_waited_for(
    live: Consolidated, runner: LiveRunner
) -> None:
    came(live, boosted(60, {1: 1.0}), event(50, at=900, session_id="session-0"))
    live.stack.append(event(51, at=910, session_id="session-0"))
    enrich_first = live.stack.ledger.read(
        ELSEWHERE, live.enrichment.checkpoint(ELSEWHERE).position, 1
    )
    live.enrichment.apply(Block(ELSEWHERE, tuple(enrich_first)))
    decision = block(live, runner, DECISIONS)
    assert runner.apply(decision).position == decision.entries[-1].position
