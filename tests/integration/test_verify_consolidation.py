"""What was decided is folded once more and compared: whatever differs is found, and mended."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

from consolidation.forgetting_payloads import FORGOTTEN_EVENT, FactKey, expired_payloads
from pipelines.operations.rebuild import replay
from pipelines.proof.consolidation import ConsolidationVerified, verify_consolidation
from pipelines.work.stages import CONSOLIDATION
from projections.schema import LINKED_TO, MEMBER_OF, RELATES_TO, SUMMARIZES
from tests.decision_factories import ENTITIES, consolidated, system
from tests.factories import START_MS, event, event_id
from tests.integration.consolidation_support import Consolidated, story
from tests.integration.stack import Stack

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


FADING = FactKey(ENTITIES[2], "knows", "semantic", ENTITIES[3], START_MS, event_id(17))
LASTING = replace(FADING, target_id=ENTITIES[4])
LATE_CHANGES = {
    "an event knows no more whom it was parted from": (
        "MATCH (e:Event) WHERE e.parted_from IS NOT NULL "
        "REMOVE e.parted_from, e.parted_from_decided_at"
    ),
    "an event was parted from more": (
        "MATCH (e:Event) WHERE e.parted_from IS NOT NULL SET e.parted_from = e.parted_from + 'x'"
    ),
    "an event was parted from somebody": (
        "MATCH (e:Event {event_id: $event}) "
        "SET e.parted_from = ['x'], e.parted_from_decided_at = [1, 1]"
    ),
    "a fact is fresh again": f"MATCH ()-[r:{RELATES_TO.type}]->() REMOVE r.faded_at",
    "a fact faded earlier": (
        f"MATCH ()-[r:{RELATES_TO.type}]->() WHERE r.faded_at IS NOT NULL "
        "SET r.faded_at = r.faded_at - duration({days: 1})"
    ),
    "a fact faded that nobody decided of": (
        f"MATCH ()-[r:{RELATES_TO.type}]->() WHERE r.faded_at IS NULL SET r.faded_at = datetime()"
    ),
}
"""Changes of what decisions say of nodes and edges that enrichment made."""


@pytest.fixture
def live(stack: Stack) -> Consolidated:
    made = Consolidated(stack)
    made.live()
    return made


@pytest.fixture
def later(live: Consolidated) -> Consolidated:
    """Two facts, one of which faded, and an event that is there and was parted from another."""
    for fact in (FADING, LASTING):
        live.stack.cypher(
            "MERGE (a:Entity {tenant: 'default', entity_id: $source_id}) "
            "MERGE (b:Entity {tenant: 'default', entity_id: $target_id}) "
            f"CREATE (a)-[:{RELATES_TO.type} {{relation: $relation, edge_type: $edge_type, "
            "valid_from: datetime({epochMillis: $valid_from_ms}), event_id: $event_id}]->(b)",
            **asdict(fact),
        )
    (faded,) = expired_payloads([FADING])
    parted = {"kind": "similar", "pairs": [[event_id(8), event_id(13)]]}
    for number, payload in ((190, faded), (191, parted), (192, faded)):
        live.take_in(system(number, FORGOTTEN_EVENT, payload))
    return live


def verify(live: Consolidated, **options: Any) -> ConsolidationVerified:
    return verify_consolidation(live.stack.services, **options)


def test_a_graph_that_shows_what_was_decided_is_right(live: Consolidated) -> None:
    report = verify(live)
    ordinary = sum(e.session_id != "memory" for part in story() for e in part)
    decided = sum(e.session_id == "memory" for part in story() for e in part)
    assert (report.differences, report.events, report.decisions) == ([], ordinary, decided)


def test_the_digest_does_not_depend_on_how_the_graph_came_to_be(live: Consolidated) -> None:
    before = verify(live).digest
    live.empty()
    live.fold(size=3)
    again = verify(live)
    assert (again.ok, again.digest) == (True, before)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_somebody_changed_is_found_and_mended(live: Consolidated, change: str) -> None:
    expected, digest = live.stack.dump(), verify(live).digest
    live.stack.cypher(change, event=event_id(17))
    assert live.stack.dump() != expected
    found = verify(live)
    assert not found.ok
    report = verify(live, repair=True)
    assert (report.differences, report.digest) == ([], digest)
    assert report.repaired >= found.difference_count
    if "Scope" not in change or "CREATE" not in change:
        assert live.stack.dump() == expected


@pytest.mark.parametrize("change", LATE_CHANGES.values(), ids=LATE_CHANGES.keys())
def test_whatever_somebody_changed_of_what_others_made_is_found_and_mended(
    later: Consolidated, change: str
) -> None:
    test_whatever_somebody_changed_is_found_and_mended(later, change)


def test_a_fact_that_is_no_more_need_not_have_faded(later: Consolidated) -> None:
    later.stack.cypher(f"MATCH ()-[r:{RELATES_TO.type}]->() DELETE r")
    assert verify(later).ok


def test_one_session_is_compared_alone(live: Consolidated) -> None:
    whole = verify(live)
    good = verify(live, session="session-0")
    assert (good.ok, good.events) == (True, 8)
    assert good.digest != whole.digest
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
        assert verify(live, session="session-0", repair=True).digest == good.digest
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
    assert (report.ok, report.lag_entries) == (True, 1)


def test_the_command_compares_the_consolidation(live: Consolidated) -> None:
    code, document = recollect(live, "--stage", "consolidation")
    assert (code, document["ok"], document["stage"]) == (0, True, "consolidation")
    live.stack.cypher("MATCH (p:Pass) DELETE p")
    code, document = recollect(live, "--stage", "consolidation", "--repair")
    assert (code, document["repaired"]) == (0, 1)


def recollect(live: Consolidated, *arguments: str) -> tuple[int, dict[str, Any]]:
    settings = live.stack.services.settings
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pipelines.cli.main", "verify", "--json", *arguments),
            *("--redis", settings.redis_url, "--neo4j", settings.neo4j_url),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "RECOLLECT_PARTITIONS": "2", "RECOLLECT_ID_BUCKETS": "64"},
    )
    return done.returncode, json.loads(done.stdout)
