"""What was decided is folded once more and compared: whatever differs is found, and mended."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.operations.rebuild import replay
from pipelines.proof import proof
from pipelines.proof.report import ProofReport
from pipelines.work.stages import CONSOLIDATION
from projections.schema import LINKED_TO, MEMBER_OF, SUMMARIZES
from tests.decision_factories import consolidated
from tests.factories import event, event_id
from tests.integration.consolidation_support import Consolidated
from tests.integration.stack import Proven, Stack
from tests.stages.consolidated import story, without_models

pytestmark = pytest.mark.integration

CHANGES = {
    "a summary says something else": "MATCH (s:Summary {level: 1}) SET s.content = 'It was not.'",
    "a summary is gone": "MATCH (s:Summary {level: 2}) DETACH DELETE s",
    "a summary nobody wrote": "CREATE (:Summary {tenant: 'default', summary_id: 'x', level: 1})",
    "a member is missing": f"MATCH (:Summary)-[r:{SUMMARIZES.type}]->(:Event) DELETE r",
    "a member too many": (
        "MATCH (s:Summary {level: 1}), (e:Event {event_id: $event}) "
        f"MERGE (s)-[:{SUMMARIZES.type}]->(e)"
    ),
    "a level is missing": f"MATCH (:Summary)-[r:{SUMMARIZES.type}]->(:Summary) DELETE r",
    "a link is stronger": f"MATCH ()-[l:{LINKED_TO.type}]->() SET l.score = 0.9",
    "a link is missing": f"MATCH ()-[l:{LINKED_TO.type}]->() DELETE l",
    "somebody left a community": f"MATCH ()-[m:{MEMBER_OF.type}]->() DELETE m",
    "a community has another name": "MATCH (c:Community) WHERE NOT c:Unnamed SET c.name = 'Us'",
    "a community came back": "MATCH (c:Community) WHERE c.gone SET c.gone = false",
    "an event is worth more": "MATCH (e:Event {event_id: $event}) SET e.importance_boost = 9.0",
    "an event is worth less": (
        "MATCH (e:Event) WHERE e.importance_boost > 0 "
        "REMOVE e.importance_boost, e.importance_boost_decided_at"
    ),
    "an entity is active": "MATCH (n:Entity) WHERE n.status = 'archived' SET n.status = 'active'",
    "a tombstone tells another tier": "MATCH (f:Forgotten) SET f.tier = 'cold'",
    "a tombstone is lost": "MATCH (f:Forgotten) WITH f ORDER BY f.event_id LIMIT 1 DELETE f",
    "a tombstone that nobody decided of": (
        "CREATE (:Forgotten {tenant: 'default', event_id: 'x', session_id: 'session-0'})"
    ),
    "a tombstone stands in another session": "MATCH (f:Forgotten) SET f.session_id = 'session-9'",
    "a tombstone stands at another time": (
        "MATCH (f:Forgotten) SET f.occurred_at = f.occurred_at + duration({minutes: 1})"
    ),
    "a tombstone names no summary": "MATCH (f:Forgotten) REMOVE f.summary_id",
    "a tombstone knows no more whom it was parted from": (
        "MATCH (f:Forgotten) WHERE f.parted_from IS NOT NULL "
        "REMOVE f.parted_from, f.parted_from_decided_at"
    ),
    "a tombstone was parted from another": (
        "MATCH (f:Forgotten) WHERE f.parted_from IS NOT NULL SET f.parted_from = ['x']"
    ),
    "a tombstone is recalled": (
        "MATCH (f:Forgotten) SET f.recalled = true, f.recalled_decided_at = [1, 1]"
    ),
    "a request is lost": "MATCH (r:ConsolidationRequest) DELETE r",
    "no pass": "MATCH (p:Pass) DELETE p",
    "a session counts less": (
        "MATCH (s:Scope {session_id: 'session-0'}) SET s.importance_total = 1, s.event_count = 1"
    ),
    "a session that nobody knows": (
        "CREATE (:Scope {tenant: 'default', session_id: 'x', event_count: 1})"
    ),
}


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule stands in for the models of the enrichment."""
    monkeypatch.setattr("pipelines.proof.verify.make_fold", without_models)


@pytest.fixture
def live(stack: Stack) -> Consolidated:
    made = Consolidated(stack)
    made.live()
    return made


def verify(live: Consolidated, **options: Any) -> ProofReport:
    return live.stack.verify(**options)


def digest(report: ProofReport) -> str:
    return report.stages["consolidation"].digest


def test_a_graph_that_shows_what_was_decided_is_right(live: Consolidated) -> None:
    report = verify(live)
    ordinary = sum(e.session_id != "memory" for part in story() for e in part)
    decided = sum(e.session_id == "memory" for part in story() for e in part)
    assert (report.differences, report.events, report.system_events) == ([], ordinary, decided)


def test_the_digest_does_not_depend_on_how_the_graph_came_to_be(live: Consolidated) -> None:
    before = digest(verify(live))
    live.empty()
    live.fold(size=3)
    again = verify(live)
    assert (again.ok, digest(again)) == (True, before)


@pytest.fixture(scope="module")
def proven(module_stack: Stack) -> Proven:
    Consolidated(module_stack).live()
    return Proven(module_stack, without_models)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_somebody_changed_is_found_and_mended(
    proven: Proven, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "RETURN_WAIT_S", 0.0)  # nobody brings back what was recalled by hand
    broken = proven.damage(change, event=event_id(17))
    assert not broken.ok
    assert broken.stages["consolidation"].difference_count == broken.difference_count
    assert proven.mend().repaired >= broken.difference_count


def test_one_session_is_compared_alone(live: Consolidated) -> None:
    whole = verify(live)
    good = verify(live, session="session-0")
    assert (good.ok, good.events) == (True, 8)
    assert digest(good) != digest(whole)
    for change in (
        "MATCH (s:Summary {session_id: 'session-0'}) SET s.content = 'It was not.'",
        f"MATCH (:Summary {{session_id: 'session-0'}})-[l:{LINKED_TO.type}]->() DELETE l",
        f"MATCH (:Summary {{session_id: 'session-0'}})-[r:{SUMMARIZES.type}]->() DELETE r",
        "MATCH (e:Event {session_id: 'session-0'}) SET e.importance_boost = 9.0",
        "MATCH (f:Forgotten {session_id: 'session-0'}) SET f.session_id = 'session-1'",
        "MATCH (s:Scope {session_id: 'session-0'}) SET s.event_count = 1",
    ):
        live.stack.cypher(change)
        assert not verify(live, session="session-0").ok, change
        assert verify(live, session="session-1").ok, change
        assert verify(live, session="session-0", repair=True).stages == good.stages
    live.stack.cypher("MATCH (p:Pass) DELETE p")
    assert verify(live, session="session-0").ok, "a pass is nobody's own"
    assert verify(live, session="session-0", tenant="acme").events == 0


def test_a_replay_changes_nothing(live: Consolidated) -> None:
    before = live.stack.dump()
    assert replay(live.stack.services, CONSOLIDATION).failed == []
    assert live.stack.dump() == before


def test_a_broken_decision_is_right_once_it_is_a_dead_letter(live: Consolidated) -> None:
    live.take_in(consolidated(190, {"kind": "episode", "event_ids": []}))
    report = verify(live)
    assert (report.ok, report.dead_letter_count) == (True, 1)
    live.stack.cypher("MATCH (d:DeadLetter) DELETE d")
    (difference,) = verify(live).differences
    assert (difference.kind, difference.type) == ("missing", "DeadLetter")


def test_what_is_not_folded_yet_is_lag_and_no_difference(live: Consolidated) -> None:
    live.stack.append(event(200, session_id="session-9"))
    report = verify(live)
    assert report.ok
    assert [one.lag_entries for one in report.stages.values()] == [1, 1, 1]
