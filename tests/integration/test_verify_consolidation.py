"""What was decided is folded once more and compared: whatever differs is found, and mended."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pipelines.rebuild import replay
from pipelines.stages import CONSOLIDATION
from pipelines.verify_consolidation import ConsolidationVerified, verify_consolidation
from projections.schema import LINKED_TO, MEMBER_OF, SUMMARIZES
from tests.decided import consolidated
from tests.factories import event, event_id
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


@pytest.fixture
def live(stack: Stack) -> Consolidated:
    made = Consolidated(stack)
    made.live()
    return made


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
            *(sys.executable, "-m", "pipelines.cli", "verify", "--json", *arguments),
            *("--redis", settings.redis_url, "--neo4j", settings.neo4j_url),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "RECOLLECT_PARTITIONS": "2", "RECOLLECT_ID_BUCKETS": "64"},
    )
    return done.returncode, json.loads(done.stdout)
