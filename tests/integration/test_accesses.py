"""Accesses, on real services: counted once, kept apart from replay, the same in a rebuilt graph."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.forgetting_payloads import Accessed, FactKey, accessed_payloads
from pipelines.proof.verify import verify
from pipelines.work.restored import bring_back
from projections.events import Event
from projections.schema import RELATES_TO
from tests.decided import ENTITIES, episode, episode_id, forgotten, recalled, system
from tests.factories import START_MS, event_id, session
from tests.integration.consolidation_support import Consolidated, without_models
from tests.integration.stack import PARTITIONS, Stack
from tests.said import feedback_payload

pytestmark = pytest.mark.integration

FACT = FactKey(ENTITIES[0], "works_at", "semantic", ENTITIES[1], START_MS, event_id(1))


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule stands in for the models of the enrichment."""
    monkeypatch.setattr("pipelines.proof.verify.make_fold", without_models)
    monkeypatch.setattr("pipelines.work.restored.make_fold", without_models)


@pytest.fixture
def live(stack: Stack) -> Consolidated:
    """A session of five events that an episode lists."""
    made = Consolidated(stack)
    made.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    return made


def returned(number: int, *events: int, times: int = 1, facts: bool = False) -> Event:
    named = Accessed({event_id(one): times for one in events}, {}, {FACT: times} if facts else {})
    (payload,) = accessed_payloads(named)
    return system(number, "memory.accessed", payload)


def accesses(live: Consolidated) -> dict[str, list[Any]]:
    rows = live.stack.cypher(
        "MATCH (e:Event) WHERE e.access_count IS NOT NULL "
        "RETURN e.event_id, e.access_count, e.last_accessed_at.epochMillis"
    )
    return {row[0]: row[1:] for row in rows}


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


def test_verify_adds_them_up_again_and_repair_sets_them_right(live: Consolidated) -> None:
    gone = forgotten(110, [3], episode_id("session-0"))
    live.take_in(*READS, returned(104, 3), gone, recalled(112, [3]))
    services = live.stack.services
    assert bring_back(services, live.stack.target) == 1
    shown = accesses(live)
    assert verify(services).differences == []
    live.stack.cypher(
        "MATCH (e:Event) WHERE e.event_id IN $ids SET e.access_count = e.access_count + 7",
        ids=[event_id(1), event_id(3)],
    )
    live.stack.cypher(
        "MATCH (e:Event {event_id: $id}) REMOVE e.access_count, e.last_accessed_at", id=event_id(2)
    )
    report = verify(services)
    assert [one.key[1] for one in report.differences] == [event_id(n) for n in (1, 2, 3)]
    assert verify(services, repair=True).ok
    assert accesses(live) == shown


def test_a_fact_that_is_traversed_keeps_what_it_was_worth(live: Consolidated) -> None:
    live.stack.cypher(
        "UNWIND $ids AS id CREATE (:Entity {tenant: 'default', entity_id: id})", ids=ENTITIES[:2]
    )
    live.stack.cypher(
        "MATCH (a:Entity {entity_id: $a}), (b:Entity {entity_id: $b}) "
        f"CREATE (a)-[:{RELATES_TO.type} {{relation: $relation, edge_type: $edge_type, "
        "valid_from: datetime({epochMillis: $at}), event_id: $id}]->(b)",
        a=FACT.source_id,
        b=FACT.target_id,
        relation=FACT.relation,
        edge_type=FACT.edge_type,
        at=FACT.valid_from_ms,
        id=FACT.event_id,
    )
    live.take_in(returned(100, facts=True, times=2), returned(100 + 86_400_000, facts=True))
    ((weight, at_ms),) = live.stack.cypher(
        f"MATCH ()-[r:{RELATES_TO.type}]->() "
        "RETURN r.retrieval_count, r.last_retrieved_at.epochMillis"
    )
    assert (weight, at_ms) == (pytest.approx(2 * 0.99005 + 1, abs=1e-4), START_MS + 86_400_100)


def test_feedback_about_what_nobody_has_leaves_no_trace(live: Consolidated) -> None:
    before = live.stack.dump()
    live.take_in(system(100, "memory.feedback", feedback_payload([event_id(77)])))
    assert live.stack.dump() == before
    assert live.stack.verify().ok
