"""Passes that forget, on real services: every tier at its boundary, and what is never forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from consolidation.decay import DAY_MS
from consolidation.forgetting_payloads import FactKey
from consolidation.retention import Reason, RetentionPolicy, Tier
from pipelines.operations.passes.forgetting import forgetting_plan
from projections.schema import REFERENCES, RELATES_TO
from tests.decision_factories import ENTITIES, system
from tests.factories import START_MS, event, event_id, session, sessions
from tests.integration.consolidation_support import MINE
from tests.integration.forgetting_support import HOUR_MS, LONG_AFTER, Forgetful
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration


@pytest.fixture
def live(stack: Stack) -> Forgetful:
    return Forgetful(stack)


def ids(*numbers: int) -> list[str]:
    return sorted(map(event_id, numbers))


# -- tiers at their boundaries ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("importance", "last_kept_ms", "first_gone_ms", "tier"),
    [
        (None, 7 * DAY_MS - 1, 7 * DAY_MS, Tier.COLD),
        (9, 30 * DAY_MS - 1, 30 * DAY_MS, Tier.ARCHIVE),
    ],
)
def test_an_event_leaves_when_its_tier_begins(
    live: Forgetful, importance: int | None, last_kept_ms: int, first_gone_ms: int, tier: Tier
) -> None:
    live.take_in(event(1, at=0, importance_hint=importance))
    assert live.run(START_MS + last_kept_ms).events_forgotten == {}
    assert live.retained() == ids(1)
    assert live.run(START_MS + first_gone_ms).events_forgotten == {tier: 1}
    assert live.retained() == []
    assert live.stack.verify().ok


def test_exactly_a_day_old_is_warm(live: Forgetful) -> None:
    live.take_in(*(event(n, at=0) for n in range(1, 6)))
    for n, (one, other) in enumerate(combinations(range(1, 6), 2)):
        live.make_alike(one, other, 0.9 + n / 1000)
    before = live.pairs()
    assert live.run(START_MS + 24 * HOUR_MS - 1).pairs_dropped == 0
    assert live.pairs() == before
    assert live.run(START_MS + 24 * HOUR_MS).pairs_dropped == len(before) - len(live.pairs()) > 0
    kept = set(live.pairs())
    assert live.run(START_MS + 25 * HOUR_MS).pairs_dropped == 0
    assert set(live.pairs()) == kept
    assert min(sum(event_id(n) in pair for pair in kept) for n in range(1, 6)) >= 3


def test_age_counts_from_arrival_when_the_clock_is_past_it(live: Forgetful) -> None:
    (appended,) = live.stack.append(event(1, at=0))
    live.fold()
    assert live.run(appended.position.ms + 7 * DAY_MS - 1).events_forgotten == {}
    assert live.run(appended.position.ms + 7 * DAY_MS).events_forgotten == {Tier.COLD: 1}


def test_age_counts_from_the_last_access(live: Forgetful) -> None:
    (appended,) = live.stack.append(event(1, at=0))
    live.fold()
    read_ms = appended.position.ms + DAY_MS
    accessed = system(2, "memory.accessed", {"events": {event_id(1): 1}})
    live.take_in(accessed._replace(occurred_at_ms=read_ms))
    assert live.run(read_ms + 7 * DAY_MS - 1).events_forgotten == {}
    assert live.run(read_ms + 7 * DAY_MS).events_forgotten == {Tier.COLD: 1}


def test_what_was_asked_for_often_enough_stays_through_the_cold(live: Forgetful) -> None:
    live.take_in(
        event(1, at=0),
        event(2, at=0),
        system(3, "memory.accessed", {"events": {event_id(1): 3, event_id(2): 2}}),
    )
    live.run(START_MS + 8 * DAY_MS)
    assert live.retained() == ids(1)


def test_a_tenant_has_a_policy_of_its_own(live: Forgetful) -> None:
    live.take_in(event(1, at=0))
    live.policy = RetentionPolicy(enabled=False)
    assert live.run().events_forgotten == {}
    live.policy = RetentionPolicy(warm_after_h=1, cold_after_h=2, archive_after_h=3)
    assert live.run(START_MS + 3 * HOUR_MS).events_forgotten == {Tier.ARCHIVE: 1}


# -- what stays ------------------------------------------------------------------------------------


def test_nothing_leaves_that_no_summary_lists(live: Forgetful) -> None:
    live.take_in(*sessions(2, 4))
    left = iter([False])  # no time for summaries, and all the time afterwards
    report = live.run(in_time=lambda: next(left, True))
    summaries = live.stack.cypher("MATCH (s:Summary) WHERE NOT s:Unwritten RETURN s.session_id")
    assert len(live.retained()) == 8 - report.events_forgotten.get(Tier.ARCHIVE, 0)
    gone = live.stack.cypher("MATCH (f:Forgotten) RETURN DISTINCT f.session_id")
    assert set(gone) <= set(summaries)


def test_a_cause_of_three_stays_until_its_effects_leave(live: Forgetful) -> None:
    causes = [event(1, at=0), *(event(n, at=n, parent=1) for n in (2, 3))]
    late = event(4, at=20 * DAY_MS, parent=1, importance_hint=9)
    live.take_in(*causes, late)
    report = live.run(START_MS + 35 * DAY_MS)
    # 1 is the cause of two that leave and one that stays: below the limit, so nothing protects it
    assert live.retained() == ids(4)
    assert report.events_forgotten == {Tier.ARCHIVE: 3}


def test_a_cause_of_three_that_stay_is_protected(live: Forgetful) -> None:
    live.take_in(
        event(1, at=0),
        *(event(n, at=20 * DAY_MS, parent=1, importance_hint=9) for n in (2, 3, 4)),
    )
    live.run(START_MS + 35 * DAY_MS)
    assert live.retained() == ids(1, 2, 3, 4)
    live.run(START_MS + 50 * DAY_MS)
    assert live.retained() == []


def test_forgotten_ids_stay_on_their_summary(live: Forgetful) -> None:
    live.take_in(*sessions(1, 4))
    live.run()
    assert live.retained() == []
    listed = "MATCH (s:Summary {level: 1}) RETURN s.source_event_ids"
    assert sorted(live.stack.cypher(listed)[0]) == ids(1, 2, 3, 4)
    assert sorted(live.stack.cypher("MATCH (f:Forgotten) RETURN f.event_id")) == ids(1, 2, 3, 4)


# -- passes ----------------------------------------------------------------------------------------


def test_a_second_look_finds_nothing_more(live: Forgetful) -> None:
    live.take_in(*sessions(3, 6))
    live.run()
    before = live.seqs()
    assert live.run().events_forgotten == {}
    assert live.seqs() == before


def test_killed_between_append_and_apply_nothing_is_decided_twice(live: Forgetful) -> None:
    live.take_in(*sessions(3, 6))
    live.run(START_MS + HOUR_MS)
    live.run(applied=lambda: None)
    after_first = live.seqs()
    live.run(applied=lambda: None)
    assert live.seqs() == after_first
    live.fold()
    assert live.retained() == []
    tombs = live.stack.cypher("MATCH (f:Forgotten) RETURN count(f)")
    assert (tombs, live.stack.verify().ok) == ([18], True)


def test_a_pass_without_time_is_taken_up_by_the_next(live: Forgetful) -> None:
    live.take_in(*sessions(3, 6))
    live.run(START_MS + HOUR_MS)
    report = live.run(in_time=lambda: False)
    assert (report.complete, report.events_forgotten) == (False, {})
    report = live.run()
    assert (report.complete, report.events_forgotten) == (True, {Tier.ARCHIVE: 18})


def test_a_rebuilt_graph_forgot_the_same(live: Forgetful) -> None:
    live.take_in(*sessions(3, 6), *session("session-9", range(40, 44), importance_hint=9))
    live.run(START_MS + 8 * DAY_MS)
    assert live.retained() == ids(40, 41, 42, 43)
    expected = live.stack.dump()
    live.empty()
    live.fold(3)
    assert live.stack.dump() == expected


def test_pages_meet_without_gap_or_overlap(live: Forgetful) -> None:
    live.take_in(*sessions(3, 6), event(90, at=60, session_id="session-0"))
    expected = [
        one
        for page in live.reader().events("default", until_ms=LONG_AFTER, protected=3)
        for one in page
    ]
    for size in (1, 2, 5):
        pages = live.reader().events("default", until_ms=LONG_AFTER, protected=3, page=size)
        assert [one for page in pages for one in page] == expected
    assert sorted(one.event_id for one in expected) == ids(*range(1, 19), 90)


def test_no_tenant_forgets_for_another(live: Forgetful) -> None:
    live.take_in(event(1, at=0), event(2, at=0, tenant="acme"))
    live.policy = RetentionPolicy()
    assert [
        e.event_id
        for p in live.reader().events("acme", until_ms=LONG_AFTER, protected=3)
        for e in p
    ] == ids(2)


# -- the dry run -----------------------------------------------------------------------------------


def test_the_dry_run_says_what_would_go_and_why_and_does_nothing(live: Forgetful) -> None:
    live.take_in(*session("session-0", MINE), event(30, at=0, importance_hint=9))
    live.run(START_MS + HOUR_MS)
    live.take_in(event(31, at=8 * DAY_MS))
    before = live.seqs()
    rows = forgetting_plan(live.reader(), "default", RetentionPolicy(), START_MS + 9 * DAY_MS)
    assert [(row.leaves, row.tier, row.reason, row.events) for row in rows] == [
        (True, Tier.COLD, Reason.UNASKED, 6),
        (False, Tier.WARM, Reason.YOUNG, 1),
        (False, Tier.COLD, Reason.IMPORTANT, 1),
    ]
    assert len(rows[0].examples) == 3
    assert live.seqs() == before
    assert live.run(START_MS + 9 * DAY_MS).events_forgotten == {Tier.COLD: 6}


# -- entities and facts ----------------------------------------------------------------------------


@pytest.fixture
def entities(live: Forgetful) -> Forgetful:
    """Entities: 0 without edges, 1 without but asked for, 2 mentioned, 3 to 4 with facts."""
    live.stack.cypher(
        "UNWIND $ids AS id CREATE (:Entity {tenant: 'default', entity_id: id, "
        "canonical_name: id, name: id, entity_type: 'concept'})",
        ids=ENTITIES[:5],
    )
    live.take_in(event(1, at=0), system(90, "memory.accessed", {"entities": {ENTITIES[1]: 3}}))
    live.stack.cypher(
        "MATCH (e:Event {event_id: $e}), (n:Entity {entity_id: $n}) "
        f"CREATE (e)-[:{REFERENCES.type} {{role: 'subject'}}]->(n)",
        e=event_id(1),
        n=ENTITIES[2],
    )
    return live


def statuses(live: Forgetful) -> dict[str, Any]:
    rows = live.stack.cypher(
        "MATCH (n:Entity) WHERE n.status IS NOT NULL RETURN n.entity_id, n.status"
    )
    return {row[0]: row[1] for row in rows}


def test_entities_without_edges_are_archived_and_come_back(entities: Forgetful) -> None:
    live = entities
    first = live.run(START_MS + HOUR_MS)
    assert (first.entities_archived, first.entities_returned) == (3, 0)
    assert statuses(live) == dict.fromkeys((ENTITIES[0], *ENTITIES[3:5]), "archived")
    live.stack.cypher(
        "MATCH (e:Event), (n:Entity {entity_id: $n}) "
        f"CREATE (e)-[:{REFERENCES.type} {{role: 'subject'}}]->(n)",
        n=ENTITIES[0],
    )
    assert live.run(START_MS + HOUR_MS).entities_returned == 1
    assert statuses(live)[ENTITIES[0]] == "active"
    live.stack.cypher("MATCH ()-[r]->(:Entity {entity_id: $n}) DELETE r", n=ENTITIES[0])
    assert live.run(START_MS + HOUR_MS).entities_archived == 1
    assert statuses(live)[ENTITIES[0]] == "archived"


def test_an_entity_that_only_forgotten_events_mention_is_archived(entities: Forgetful) -> None:
    report = entities.run()
    assert (report.events_forgotten, report.entities_archived) == ({Tier.ARCHIVE: 1}, 4)


@pytest.mark.parametrize(
    ("confidence", "ended", "expired", "fades"),
    [
        (0.09, True, False, True),
        (0.1, True, False, False),
        (0.09, False, False, False),
        (0.09, True, True, False),
    ],
)
def test_facts_that_ended_and_hardly_count_fade(
    entities: Forgetful, confidence: float, ended: bool, expired: bool, fades: bool
) -> None:
    live, now_ms = entities, START_MS + HOUR_MS
    key = FactKey(ENTITIES[3], "works_at", "semantic", ENTITIES[4], START_MS, event_id(1))
    live.stack.cypher(
        "MATCH (a:Entity {entity_id: $a}), (b:Entity {entity_id: $b}) "
        f"CREATE (a)-[r:{RELATES_TO.type} {{relation: $relation, edge_type: $edge_type, "
        "valid_from: datetime({epochMillis: $at}), event_id: $id, confidence: $confidence}]->(b) "
        "SET r.valid_to = CASE WHEN $ended THEN datetime({epochMillis: $now}) END, "
        "r.expired_at = CASE WHEN $expired THEN datetime({epochMillis: $now}) END",
        a=key.source_id,
        b=key.target_id,
        relation=key.relation,
        edge_type=key.edge_type,
        at=key.valid_from_ms,
        id=key.event_id,
        confidence=confidence,
        ended=ended,
        expired=expired,
        now=now_ms,
    )
    assert live.run(now_ms).facts_expired == int(fades)
    shown: Sequence[Any] = live.stack.cypher(
        f"MATCH ()-[r:{RELATES_TO.type}]->() RETURN r.faded_at.epochMillis"
    )
    assert shown == [now_ms if fades else None]
    assert live.run(now_ms + 1).facts_expired == 0
