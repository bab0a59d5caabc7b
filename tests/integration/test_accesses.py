"""Accesses on a real Neo4j: verify and repair; the rest is in `tests/stages`."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.forgetting_payloads import Accessed, accessed_payloads
from pipelines.proof.verify import verify
from pipelines.work.catch_up import bring_back
from projections.events import Event
from tests.decision_factories import episode, episode_id, forgotten, recalled, system
from tests.fact_factories import feedback_payload
from tests.factories import event_id, session
from tests.integration.consolidation_support import Consolidated
from tests.integration.stack import Stack
from tests.stages.consolidated import without_models

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule stands in for the models of the enrichment."""
    monkeypatch.setattr("pipelines.proof.verify.make_fold", without_models)
    monkeypatch.setattr("pipelines.work.catch_up.make_fold", without_models)


@pytest.fixture
def live(stack: Stack) -> Consolidated:
    """A session of five events that an episode lists."""
    made = Consolidated(stack)
    made.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    return made


def returned(number: int, *events: int, times: int = 1) -> Event:
    named = Accessed({event_id(one): times for one in events}, {}, {})
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
