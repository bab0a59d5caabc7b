"""Accesses: counted once, kept apart from replay, the same in a graph folded anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from consolidation.forgetting_payloads import Accessed, FactKey, accessed_payloads
from enrichment.stage import fact_edge
from pipelines.graph.rows import FoundNode
from projections.events import Event
from projections.operations import EnsureNode, Operations
from projections.schema import ENTITY, EVENT, RELATES_TO
from tests.decision_factories import episode, episode_id, forgotten, recalled, system
from tests.fact_factories import assertion, facts, feedback_payload
from tests.factories import START_MS, event, event_id, session
from tests.memory_stack import PARTITIONS, MemoryStack
from tests.stages.consolidated import ConsolidatedLedger

Consolidated = ConsolidatedLedger[MemoryStack]


@pytest.fixture
def live() -> Consolidated:
    """A session of five events that an episode lists."""
    made = Consolidated(MemoryStack())
    made.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    return made


def returned(number: int, *events: int, times: int = 1, facts: tuple[FactKey, ...] = ()) -> Event:
    named = Accessed({event_id(one): times for one in events}, {}, dict.fromkeys(facts, times))
    (payload,) = accessed_payloads(named)
    return system(number, "memory.accessed", payload)


def accesses(live: Consolidated) -> dict[str, list[Any]]:
    """Of placeholders too: one waits for an event that was recalled."""
    names = ("access_count", "last_accessed_at")
    nodes = cast(Iterator[FoundNode], live.stack.graph.stream(EVENT.label, names))
    return {
        node.key[1]: [*node.values.values()]
        for node in nodes
        if node.values["access_count"] is not None
    }


READS = [
    returned(100, 1, 2),
    returned(103, 2, times=2),
    system(101, "memory.feedback", feedback_payload([event_id(1)], [event_id(2)])),
]
EXPECTED = {event_id(1): [2, START_MS + 101], event_id(2): [2, START_MS + 103]}


@pytest.mark.parametrize("size", [1, 500])
def test_what_reads_returned_is_counted_once(live: Consolidated, size: int) -> None:
    live.take_in(*READS, size=size)
    assert accesses(live) == EXPECTED
    for partition in range(PARTITIONS):
        live.refold(partition, 0, 100)
    assert accesses(live) == EXPECTED


def test_a_rebuilt_graph_counts_the_same(live: Consolidated) -> None:
    gone = forgotten(110, [2, 3], episode_id("session-0"))
    live.take_in(*READS, gone, returned(111, 2, 3, 4), recalled(112, [2]), returned(113, 2))
    shown = accesses(live)
    assert shown == {
        event_id(1): [2, START_MS + 101],
        event_id(2): [2, START_MS + 113],
        event_id(4): [1, START_MS + 111],
    }
    expected = live.stack.dump()
    live.empty()
    live.fold(2)
    assert live.stack.dump() == expected


def test_a_fact_that_is_traversed_keeps_what_it_was_worth(live: Consolidated) -> None:
    (fact,) = facts(assertion(1, "Oslo", 0))
    ends = (("default", fact.source_id), ("default", fact.target_id))
    batch = Operations()
    batch.extend([*(EnsureNode(ENTITY.label, end) for end in ends), fact_edge("default", fact)])
    with live.stack.graph.transaction() as transaction:
        transaction.apply(batch, ENTITY.stage)
    key = FactKey(
        fact.source_id,
        fact.relation,
        fact.edge_type,
        fact.target_id,
        fact.valid_from_ms,
        fact.event_id,
    )
    live.take_in(returned(100, facts=(key,), times=2), returned(100 + 86_400_000, facts=(key,)))
    ((*_, weight, at_ms),) = live.stack.edges(
        RELATES_TO.type, "retrieval_count", "last_retrieved_at"
    )
    assert (weight, at_ms) == (pytest.approx(2 * 0.99005 + 1, abs=1e-4), START_MS + 86_400_100)


def test_feedback_about_what_nobody_has_leaves_no_trace(live: Consolidated) -> None:
    before = live.stack.dump()
    live.take_in(system(100, "memory.feedback", feedback_payload([event_id(77)])))
    assert live.stack.dump() == before


def test_feedback_about_what_comes_later_leaves_no_trace_in_either_order(
    live: Consolidated,
) -> None:
    early = system(100, "memory.feedback", feedback_payload([event_id(77)]))
    live.take_in(early)
    live.take_in(event(77, session_id="session-0"))
    assert accesses(live) == {}
    expected = live.stack.dump()
    live.empty()
    live.fold()
    assert live.stack.dump() == expected
