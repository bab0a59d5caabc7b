"""Passes that forget, every tier at its boundary, and what is never forgotten."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from consolidation.decay import DAY_MS
from consolidation.retention import Reason, RetentionPolicy, Tier
from pipelines.operations.passes.forgetting import forgetting_plan
from pipelines.operations.passes.retained import retained_events
from projections.operations import Key
from projections.schema import ENTITY, FORGOTTEN, REFERENCES, RELATES_TO, SIMILAR_TO, SUMMARY
from tests.decision_factories import ENTITIES, system
from tests.factories import START_MS, event, event_id, session, sessions
from tests.graph_dump import dump
from tests.passing import LONG_AFTER, Passing

HOUR_MS = DAY_MS // 24


@pytest.fixture
def live() -> Passing:
    made = Passing()
    made.policy = RetentionPolicy()
    return made


def key(own_id: str) -> Key:
    return "default", own_id


def make_alike(live: Passing, one: int, other: int, score: float) -> None:
    """A SIMILAR_TO edge, as enrichment would make it."""
    first, second = sorted((one, other))
    live.join(SIMILAR_TO.type, key(event_id(first)), key(event_id(second)), score=score)


def pairs(live: Passing) -> list[tuple[str, str]]:
    return [(edge.source[1], edge.target[1]) for edge in live.drawn(SIMILAR_TO.type)]


def ids(*numbers: int) -> list[str]:
    return sorted(map(event_id, numbers))


# -- tiers at their boundaries ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("importance", "last_kept_ms", "first_gone_ms", "tier"),
    [
        (None, 7 * DAY_MS - 1, 7 * DAY_MS, Tier.COLD),
        (7, 30 * DAY_MS - 1, 30 * DAY_MS, Tier.ARCHIVE),
    ],
)
def test_an_event_leaves_when_its_tier_begins(
    live: Passing, importance: int | None, last_kept_ms: int, first_gone_ms: int, tier: Tier
) -> None:
    live.take_in(event(1, at=0, importance_hint=importance))
    assert live.run(now_ms=START_MS + last_kept_ms).events_forgotten == {}
    assert live.retained() == ids(1)
    assert live.run(now_ms=START_MS + first_gone_ms).events_forgotten == {tier: 1}
    assert live.retained() == []


def test_exactly_a_day_old_is_warm(live: Passing) -> None:
    live.take_in(*(event(n, at=0) for n in range(1, 6)))
    for n, (one, other) in enumerate(combinations(range(1, 6), 2)):
        make_alike(live, one, other, 0.9 + n / 1000)
    before = pairs(live)
    assert live.run(now_ms=START_MS + 24 * HOUR_MS - 1).pairs_dropped == 0
    assert pairs(live) == before
    assert (
        live.run(now_ms=START_MS + 24 * HOUR_MS).pairs_dropped == len(before) - len(pairs(live)) > 0
    )
    kept = set(pairs(live))
    assert live.run(now_ms=START_MS + 25 * HOUR_MS).pairs_dropped == 0
    assert set(pairs(live)) == kept
    assert min(sum(event_id(n) in pair for pair in kept) for n in range(1, 6)) >= 3


def test_age_counts_from_arrival_when_the_clock_is_past_it(live: Passing) -> None:
    (appended,) = live.append([event(1, at=0)])
    live.fold()
    assert live.run(now_ms=appended.position.ms + 7 * DAY_MS - 1).events_forgotten == {}
    assert live.run(now_ms=appended.position.ms + 7 * DAY_MS).events_forgotten == {Tier.COLD: 1}


def test_age_counts_from_the_last_access(live: Passing) -> None:
    (appended,) = live.append([event(1, at=0)])
    live.fold()
    read_ms = appended.position.ms + DAY_MS
    accessed = system(2, "memory.accessed", {"events": {event_id(1): 1}})
    live.take_in(accessed._replace(occurred_at_ms=read_ms))
    assert live.run(now_ms=read_ms + 7 * DAY_MS - 1).events_forgotten == {}
    assert live.run(now_ms=read_ms + 7 * DAY_MS).events_forgotten == {Tier.COLD: 1}


def test_a_class_that_expires_leaves_whatever_would_keep_it(live: Passing) -> None:
    live.policy = RetentionPolicy(enabled=False, expire_after_days={"trial*": 3, "trial-9": 1})
    live.take_in(
        event(1, at=0, importance_hint=10, consent_ref="trial-7"),
        event(2, at=0, consent_ref="care-7"),
        event(3, at=0),
        event(4, at=0, consent_ref="trial-9"),
    )
    assert live.run(now_ms=START_MS + DAY_MS).events_forgotten == {Tier.COLD: 1}
    assert live.run(now_ms=START_MS + 3 * DAY_MS - 1).events_forgotten == {}
    assert live.run(now_ms=START_MS + 3 * DAY_MS).events_forgotten == {Tier.COLD: 1}
    assert live.retained() == ids(2, 3)
    assert live.run(now_ms=START_MS + 900 * DAY_MS).events_forgotten == {}
    (row, *_) = forgetting_plan(live.graph, "default", live.policy, START_MS + 4 * DAY_MS)
    assert not row.leaves


def test_what_was_asked_for_often_enough_stays_through_the_cold(live: Passing) -> None:
    live.take_in(
        event(1, at=0),
        event(2, at=0),
        system(3, "memory.accessed", {"events": {event_id(1): 3, event_id(2): 2}}),
    )
    live.run(now_ms=START_MS + 8 * DAY_MS)
    assert live.retained() == ids(1)


def test_a_tenant_has_a_policy_of_its_own(live: Passing) -> None:
    live.take_in(event(1, at=0))
    live.policy = RetentionPolicy(enabled=False)
    assert live.run().events_forgotten == {}
    live.policy = RetentionPolicy(warm_after_h=1, cold_after_h=2, archive_after_h=3)
    assert live.run(now_ms=START_MS + 3 * HOUR_MS).events_forgotten == {Tier.ARCHIVE: 1}


# -- what stays ------------------------------------------------------------------------------------


def test_nothing_leaves_that_no_summary_lists(live: Passing) -> None:
    live.take_in(*sessions(2, 4))
    left = iter([False])  # no time for summaries, and all the time afterwards
    report = live.run(in_time=lambda: next(left, True))
    assert len(live.retained()) == 8 - report.events_forgotten.get(Tier.ARCHIVE, 0)
    gone, summarised = (
        {node.values["session_id"] for node in live.shown(label, "session_id")}
        for label in (FORGOTTEN.label, SUMMARY.label)
    )
    assert gone <= summarised


def test_a_cause_of_three_stays_until_its_effects_leave(live: Passing) -> None:
    causes = [event(1, at=0), *(event(n, at=n, parent=1) for n in (2, 3))]
    late = event(4, at=20 * DAY_MS, parent=1, importance_hint=9)
    live.take_in(*causes, late)
    report = live.run(now_ms=START_MS + 35 * DAY_MS)
    # 1 is the cause of two that leave and one that stays: below the limit, so nothing protects it
    assert live.retained() == ids(4)
    assert report.events_forgotten == {Tier.ARCHIVE: 3}


def test_a_cause_of_three_that_stay_is_protected(live: Passing) -> None:
    live.take_in(
        event(1, at=0),
        *(event(n, at=20 * DAY_MS, parent=1, importance_hint=7) for n in (2, 3, 4)),
    )
    live.run(now_ms=START_MS + 35 * DAY_MS)
    assert live.retained() == ids(1, 2, 3, 4)
    live.run(now_ms=START_MS + 50 * DAY_MS)
    assert live.retained() == []


def test_forgotten_ids_stay_on_their_summary(live: Passing) -> None:
    live.take_in(*sessions(1, 4))
    live.run()
    assert live.retained() == []
    listed = [
        node.values["source_event_ids"]
        for node in live.shown(SUMMARY.label, "level", "source_event_ids")
        if node.values["level"] == 1
    ]
    assert sorted(listed[0]) == ids(1, 2, 3, 4)
    assert [node.key[1] for node in live.shown(FORGOTTEN.label)] == ids(1, 2, 3, 4)


# -- passes ----------------------------------------------------------------------------------------


def test_a_second_look_finds_nothing_more(live: Passing) -> None:
    live.take_in(*sessions(3, 6))
    live.run()
    before = live.seqs()
    assert live.run().events_forgotten == {}
    assert live.seqs() == before


def test_killed_between_append_and_apply_nothing_is_decided_twice(live: Passing) -> None:
    live.take_in(*sessions(3, 6))
    live.run(now_ms=START_MS + HOUR_MS)
    live.run(applied=lambda: None)
    after_first = live.seqs()
    live.run(applied=lambda: None)
    assert live.seqs() == after_first
    live.fold()
    assert live.retained() == []
    assert len(live.shown(FORGOTTEN.label)) == 18


def test_a_pass_without_time_is_taken_up_by_the_next(live: Passing) -> None:
    live.take_in(*sessions(3, 6))
    live.run(now_ms=START_MS + HOUR_MS)
    report = live.run(in_time=lambda: False)
    assert (report.complete, report.events_forgotten) == (False, {})
    report = live.run()
    assert (report.complete, report.events_forgotten) == (True, {Tier.ARCHIVE: 18})


def test_a_rebuilt_graph_forgot_the_same(live: Passing) -> None:
    live.take_in(*sessions(3, 6), *session("session-9", range(40, 44), importance_hint=9))
    live.run(now_ms=START_MS + 8 * DAY_MS)
    assert live.retained() == ids(40, 41, 42, 43)
    expected = dump(live.graph)
    live.empty()
    live.fold(3)
    assert dump(live.graph) == expected


def test_pages_meet_without_gap_or_overlap(live: Passing) -> None:
    live.take_in(*sessions(3, 6), event(90, at=60, session_id="session-0"))
    expected = [
        one
        for page in retained_events(live.graph, "default", until_ms=LONG_AFTER, protected=3)
        for one in page
    ]
    for size in (1, 2, 5):
        pages = retained_events(live.graph, "default", until_ms=LONG_AFTER, protected=3, page=size)
        assert [one for page in pages for one in page] == expected
    assert sorted(one.event_id for one in expected) == ids(*range(1, 19), 90)


def test_no_tenant_forgets_for_another(live: Passing) -> None:
    live.take_in(event(1, at=0), event(2, at=0, tenant="acme"))
    live.policy = RetentionPolicy()
    assert [
        e.event_id
        for p in retained_events(live.graph, "acme", until_ms=LONG_AFTER, protected=3)
        for e in p
    ] == ids(2)


# -- the dry run -----------------------------------------------------------------------------------


def test_the_dry_run_says_what_would_go_and_why_and_does_nothing(live: Passing) -> None:
    live.take_in(*session("session-0", [1, 4, 7, 10, 13, 16]), event(30, at=0, importance_hint=9))
    live.run(now_ms=START_MS + HOUR_MS)
    live.take_in(event(31, at=8 * DAY_MS))
    before = live.seqs()
    rows = forgetting_plan(live.graph, "default", RetentionPolicy(), START_MS + 9 * DAY_MS)
    assert [(row.leaves, row.tier, row.reason, row.events) for row in rows] == [
        (True, Tier.COLD, Reason.UNASKED, 6),
        (False, Tier.WARM, Reason.YOUNG, 1),
        (False, Tier.COLD, Reason.IMPORTANT, 1),
    ]
    assert len(rows[0].examples) == 3
    assert live.seqs() == before
    assert live.run(now_ms=START_MS + 9 * DAY_MS).events_forgotten == {Tier.COLD: 6}


# -- entities and facts ----------------------------------------------------------------------------


@pytest.fixture
def entities(live: Passing) -> Passing:
    """Entities: 0 without edges, 1 without but asked for, 2 mentioned, 3 to 4 with facts."""
    for own_id in ENTITIES[:5]:
        live.put(ENTITY.label, own_id, canonical_name=own_id, name=own_id, entity_type="concept")
    live.take_in(event(1, at=0), system(90, "memory.accessed", {"entities": {ENTITIES[1]: 3}}))
    live.join(REFERENCES.type, key(event_id(1)), key(ENTITIES[2]), role="subject")
    return live


def statuses(live: Passing) -> dict[str, Any]:
    nodes = live.shown(ENTITY.label, "status")
    return {node.key[1]: node.values["status"] for node in nodes if node.values["status"]}


def test_entities_without_edges_are_archived_and_come_back(entities: Passing) -> None:
    live = entities
    first = live.run(now_ms=START_MS + HOUR_MS)
    assert (first.entities_archived, first.entities_returned) == (3, 0)
    assert statuses(live) == dict.fromkeys((ENTITIES[0], *ENTITIES[3:5]), "archived")
    live.join(REFERENCES.type, key(event_id(1)), key(ENTITIES[0]), role="subject")
    assert live.run(now_ms=START_MS + HOUR_MS).entities_returned == 1
    assert statuses(live)[ENTITIES[0]] == "active"
    live.part(REFERENCES.type, key(event_id(1)), key(ENTITIES[0]))
    assert live.run(now_ms=START_MS + HOUR_MS).entities_archived == 1
    assert statuses(live)[ENTITIES[0]] == "archived"


def test_an_entity_that_only_forgotten_events_mention_is_archived(entities: Passing) -> None:
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
    entities: Passing, confidence: float, ended: bool, expired: bool, fades: bool
) -> None:
    live, now_ms = entities, START_MS + HOUR_MS
    live.join(
        RELATES_TO.type,
        key(ENTITIES[3]),
        key(ENTITIES[4]),
        relation="works_at",
        edge_type="semantic",
        valid_from=START_MS,
        event_id=event_id(1),
        confidence=confidence,
        valid_to=now_ms if ended else None,
        expired_at=now_ms if expired else None,
    )
    assert live.run(now_ms=now_ms).facts_expired == int(fades)
    (fact,) = live.drawn(RELATES_TO.type, "faded_at")
    assert fact.values["faded_at"] == (now_ms if fades else None)
    assert live.run(now_ms=now_ms + 1).facts_expired == 0
