"""Passes decide the same on every store: the same events, from which the same graph follows."""

from __future__ import annotations

from itertools import combinations

import pytest

from consolidation.decay import DAY_MS
from consolidation.retention import RetentionPolicy
from enrichment.payloads import PassRequest
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.operations.passes.forgetting import forgetting_plan
from pipelines.operations.passes.retained import ages
from pipelines.operations.passes.run import CommunitySettings
from pipelines.operations.passes.scopes import PassScope, due
from projections.schema import REFERENCES, RELATES_TO, SAME_AS, SIMILAR_TO, VECTOR_DIMENSIONS
from tests.decision_factories import system
from tests.factories import NOW_MS, START_MS, event, event_id, sessions
from tests.graph_dump import dump
from tests.passing import LONG_AFTER, TENANT, Passing

pytestmark = pytest.mark.integration


@pytest.fixture
def both(neo4j_graph: Neo4jGraph) -> tuple[Passing, Passing]:
    """The same history on either store."""
    return Passing(), Passing(graph=neo4j_graph)


def happen(live: Passing) -> None:
    """Sessions that share what is rare, fail alike, go back to each other, and what they mean."""
    live.take_in(*sessions(3, 6), event(40, tenant="acme"), event(41, agent_id="agent-9"))
    for number in (1, 2, 3, 16):
        live.mention(number, "GV1N64", "everywhere")
    for number, session_id in ((21, "session-0"), (31, "session-1")):
        call = event(number - 1, at=number * 10, session_id=session_id, tool_name="book_flight")
        failed = call._replace(
            event_id=event_id(number), occurred_at_ms=call.occurred_at_ms + 1, status="failed"
        )
        live.take_in(call, failed)
        live.say(number, "Error: no seats left")
        live.cause(number, number - 1, "tool_result")
    live.take_in(event(32, at=400, session_id="session-1", tool_name="book_flight"))
    live.cause(32, 31, "retry")
    live.cause(5, 1, "value_flow")
    live.take_in(*(event(n, session_id="session-8", parent=1) for n in (50, 51, 52)))


def mean(live: Passing) -> None:
    """Entities, what is known of them, and what is like what."""
    for user, group in ((None, ("Ann", "Bob", "Cleo", "Dan")), ("ann", ("Oslo", "Bodo", "Moss"))):
        for one, other in combinations(group, 2):
            live.relate(one, other, user=user)
    live.relate("Ann", "economy", literal=True)
    live.join(SAME_AS.type, live.entity("Bob"), live.entity("Bobby"), confidence=0.9)
    live.join(REFERENCES.type, (TENANT, event_id(3)), live.entity("Bobby"), role="subject")
    live.entity("Ann", embedding=(1.0, *[0.5] * (VECTOR_DIMENSIONS - 1)), status="archived")
    live.entity("nobody")
    live.join(
        RELATES_TO.type,
        live.entity("Ann"),
        live.entity("Acme"),
        relation="works_at",
        edge_type="semantic",
        valid_from=START_MS,
        event_id=event_id(1),
        confidence=0.05,
        valid_to=START_MS + 1,
    )
    for number, numbers in enumerate(combinations(range(1, 7), 2)):
        ends = ((TENANT, event_id(n)) for n in numbers)
        live.join(SIMILAR_TO.type, *ends, score=0.8 + number / 1_000)


def ledger_of(live: Passing) -> list[tuple[int, bytes]]:
    return [
        (partition, entry.data)
        for partition in range(live.ledger.partitions)
        for entries in live.ledger.scan(partition)
        for entry in entries
    ]


def same(both: tuple[Passing, Passing]) -> None:
    first, second = both
    assert ledger_of(first) == ledger_of(second)
    assert dump(first.graph) == dump(second.graph)


def test_every_part_of_a_pass_decides_the_same(both: tuple[Passing, Passing]) -> None:
    for live in both:
        happen(live)
        mean(live)
        live.run()
    assert len(both[0].links()) > 2
    assert len(both[0].boosts()) > 2
    assert len(both[0].communities()) == 2
    same(both)
    for live in both:
        asked = PassRequest(session_id="session-2").payload()
        live.take_in(
            event(60, at=700, session_id="session-2"),
            *(event(n, tenant="acme", importance_hint=10) for n in range(70, 90)),
            system(90, "memory.consolidation_requested", asked),
            system(91, "memory.consolidation_requested", PassRequest().payload(), tenant="empty"),
        )
        live.mention(60, "GV1N64")
    scopes = [due(live.graph, 100) for live in both]
    assert scopes[0] == scopes[1]
    assert PassScope("acme", least=101) in scopes[0]
    assert PassScope(TENANT, session_id="session-2") in scopes[0]
    for live in both:
        live.run(*scopes[0])
        live.run(PassScope(TENANT, agent_id="agent-9"))
    same(both)


def test_what_is_forgotten_is_the_same(both: tuple[Passing, Passing]) -> None:
    plans = []
    for live in both:
        happen(live)
        mean(live)
        live.settings = CommunitySettings(every_ms=0, chunk_edges=3)
        live.run()
        live.policy = RetentionPolicy()
        plans.append(forgetting_plan(live.graph, TENANT, live.policy, LONG_AFTER))
        report = live.run(now_ms=START_MS + 2 * DAY_MS)
        assert report.pairs_dropped
        assert report.entities_archived
        assert report.facts_expired
        assert live.run().events_forgotten
        live.take_in(event(95, at=900, session_id="session-0"))
        live.run(now_ms=NOW_MS, anew=True)
        assert ages(live.graph, LONG_AFTER, 10)[0]["archive"] > 0
    assert plans[0] == plans[1]
    same(both)
