"""Tiers at their boundaries, the policy's rules, and why an event leaves or stays."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.decay import DAY_MS, HOUR_MS
from consolidation.forgetting_payloads import (
    FORGOTTEN_EVENT,
    forgotten_payloads,
    parse_departure,
)
from consolidation.retention import (
    DEFAULT_POLICY,
    Departure,
    ExplainedRow,
    Reason,
    RetainedEvent,
    RetentionPolicy,
    Tier,
    departures,
    explain,
    tier_of,
    verdict,
    verdicts,
)
from projections.errors import InvalidInput
from tests.factories import START_MS, event_id

SUMMARY = "5a" * 16
NOW_MS = START_MS + 400 * DAY_MS


def retained(number: int = 1, **fields: Any) -> RetainedEvent:
    """A summarised event; `days` is its age, `after` the numbers of its causes."""
    at_ms = NOW_MS - round(fields.pop("days", 10) * DAY_MS)
    causes = tuple(event_id(one) for one in fields.pop("after", ()))
    made = RetainedEvent(
        event_id(number), at_ms, at_ms, importance=4, causes=causes, summary_id=SUMMARY
    )
    return made._replace(**fields)


def judged(made: RetainedEvent, **settings: Any) -> tuple[Tier, bool, Reason]:
    found = verdict(made, DEFAULT_POLICY.with_overrides(settings), NOW_MS)
    return found.tier, found.leaves, found.reason


def test_an_expired_event_leaves_also_when_no_summary_lists_it() -> None:
    policy = RetentionPolicy(enabled=False, expire_after_days={"trial*": 9})
    made = retained(1, consent_ref="trial-7", summary_id=None, causal_in_degree=9)
    found = verdict(made, policy, NOW_MS)
    assert (found.leaves, found.reason) == (True, Reason.EXPIRED)
    assert [one.summary_id for one in departures([found])] == [None]
    (payload,) = forgotten_payloads(departures([found]))
    assert parse_departure(FORGOTTEN_EVENT, payload).payload() == payload
    assert "summary_id" not in payload


@pytest.mark.parametrize("days", [0, -1, True, "3", None])
def test_the_days_of_a_class_are_a_number_above_0(days: Any) -> None:
    with pytest.raises(InvalidInput, match=r"expire_after_days\.trial"):
        DEFAULT_POLICY.with_overrides({"expire_after_days": {"trial": days}})
    with pytest.raises(InvalidInput, match="expire_after_days"):
        DEFAULT_POLICY.with_overrides({"expire_after_days": days})


# -- tiers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boundary_ms", "younger", "older"),
    [
        (24 * HOUR_MS, Tier.HOT, Tier.WARM),
        (7 * DAY_MS, Tier.WARM, Tier.COLD),
        (30 * DAY_MS, Tier.COLD, Tier.ARCHIVE),
    ],
)
def test_a_boundary_belongs_to_the_older_tier(boundary_ms: int, younger: Tier, older: Tier) -> None:
    tiers = [tier_of(START_MS + boundary_ms + off_ms, START_MS, START_MS) for off_ms in (-1, 0, 1)]
    assert tiers == [younger, older, older]


@pytest.mark.parametrize(
    ("occurred", "arrived", "accessed", "expected"),
    [
        (40, 40, None, Tier.ARCHIVE),
        (400, 1, None, Tier.WARM),  # an imported history is not forgotten on arrival
        (40, 40, 0.5, Tier.HOT),
        (40, 10, 20, Tier.COLD),
        (40, 20, 10, Tier.COLD),
        (-0.001, 1, None, Tier.HOT),  # a producer's clock may be ahead
    ],
)
def test_age_counts_from_the_latest_of_occurrence_arrival_and_access(
    occurred: float, arrived: float, accessed: float | None, expected: Tier
) -> None:
    def before(days: float) -> int:
        return NOW_MS - round(days * DAY_MS)

    last_access_ms = None if accessed is None else before(accessed)
    assert tier_of(NOW_MS, before(occurred), before(arrived), last_access_ms) == expected


@pytest.mark.parametrize(("off_ms", "expected"), [(-1, Tier.ARCHIVE), (0, Tier.HOT)])
def test_before_the_arrival_age_counts_from_the_occurrence_alone(
    off_ms: int, expected: Tier
) -> None:
    arrived_ms = START_MS + 60 * DAY_MS
    accessed_ms = arrived_ms + DAY_MS
    assert tier_of(arrived_ms + off_ms, START_MS, arrived_ms, accessed_ms) == expected


def test_boundaries_are_the_policys() -> None:
    policy = RetentionPolicy(warm_after_h=1, cold_after_h=2, archive_after_h=2)
    tiers = [
        tier_of(START_MS + round(hours * HOUR_MS), START_MS, START_MS, None, policy)
        for hours in (0.9, 1, 1.9, 2)
    ]
    assert tiers == [Tier.HOT, Tier.WARM, Tier.WARM, Tier.ARCHIVE]


# -- policy ----------------------------------------------------------------------------------------


def test_the_defaults_are_the_models() -> None:
    assert RetentionPolicy() == RetentionPolicy(
        enabled=True,
        warm_after_h=24,
        cold_after_h=168,
        archive_after_h=720,
        similar_keep=3,
        similar_score=0.7,
        cold_min_importance=5,
        cold_min_accesses=3,
        archive_min_importance=8,
        archive_min_accesses=10,
        protected_in_degree=3,
        entity_min_accesses=3,
        fact_min_confidence=0.1,
    )


def test_a_tenant_overrides_what_it_names() -> None:
    policy = RetentionPolicy(similar_keep=5).with_overrides({"cold_min_accesses": 1})
    assert policy == RetentionPolicy(similar_keep=5, cold_min_accesses=1)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("enabled", 1, "true or false"),
        ("warm_after_h", 0, "hours above 0, at most 8,784,000"),
        ("warm_after_h", float("nan"), "hours above 0, at most 8,784,000"),
        ("archive_after_h", float("inf"), "hours above 0, at most 8,784,000"),
        ("cold_after_h", True, "hours above 0, at most 8,784,000"),
        ("cold_after_h", 23, "at least warm_after_h (24)"),
        ("archive_after_h", 100, "at least cold_after_h (168)"),
        ("similar_keep", -1, "an integer from 0 to 1,000,000"),
        ("similar_keep", 2.0, "an integer from 0 to 1,000,000"),
        ("similar_score", 1.1, "a number from -1 to 1"),
        ("cold_min_importance", "5", "a number from 0 to 11"),
        ("cold_min_accesses", None, "an integer from 0 to 1,000,000"),
        ("protected_in_degree", 0, "an integer from 1 to 1,000,000"),
        ("entity_min_accesses", True, "an integer from 0 to 1,000,000"),
        ("fact_min_confidence", -0.1, "a number from 0 to 1"),
        ("warm_after", 24, "unknown"),
    ],
)
def test_a_broken_setting_is_named_with_its_rule(field: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        DEFAULT_POLICY.with_overrides({field: value})
    assert caught.value.errors == ((f"retention.{field}", rule),)


def test_all_broken_settings_are_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        DEFAULT_POLICY.with_overrides({"hot": 1, "similar_keep": "all", "cold_after_h": 1})
    fields = [field for field, _ in caught.value.errors]
    assert fields == ["retention.hot", "retention.similar_keep", "retention.cold_after_h"]


def test_a_policy_is_checked_when_it_is_made() -> None:
    with pytest.raises(InvalidInput):
        RetentionPolicy(similar_keep=-1)


# -- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (retained(days=0.5, importance=1), (Tier.HOT, False, Reason.YOUNG)),
        (retained(days=6.9, importance=1), (Tier.WARM, False, Reason.YOUNG)),
        (retained(), (Tier.COLD, True, Reason.UNASKED)),
        (retained(importance=5), (Tier.COLD, False, Reason.IMPORTANT)),
        (retained(boost=0.9), (Tier.COLD, True, Reason.UNASKED)),
        (retained(boost=1.0), (Tier.COLD, False, Reason.IMPORTANT)),
        (retained(access_count=2), (Tier.COLD, True, Reason.UNASKED)),
        (retained(access_count=3), (Tier.COLD, False, Reason.ACCESSED)),
        (retained(causal_in_degree=2), (Tier.COLD, True, Reason.UNASKED)),
        (retained(causal_in_degree=3), (Tier.COLD, False, Reason.CAUSE)),
        (retained(summary_id=None), (Tier.COLD, False, Reason.UNSUMMARISED)),
        (retained(days=31, importance=7, access_count=9), (Tier.ARCHIVE, True, Reason.OLD)),
        (retained(days=31, importance=8), (Tier.ARCHIVE, False, Reason.IMPORTANT)),
        (retained(days=31, access_count=10), (Tier.ARCHIVE, False, Reason.ACCESSED)),
        (retained(days=31, causal_in_degree=3), (Tier.ARCHIVE, False, Reason.CAUSE)),
        (retained(days=31, summary_id=None), (Tier.ARCHIVE, False, Reason.UNSUMMARISED)),
    ],
)
def test_each_rule_decides(made: RetainedEvent, expected: tuple[Tier, bool, Reason]) -> None:
    assert judged(made) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"enabled": False}, (Tier.COLD, False, Reason.DISABLED)),
        ({"cold_after_h": 24 * 11}, (Tier.WARM, False, Reason.YOUNG)),
        ({"cold_min_importance": 4}, (Tier.COLD, False, Reason.IMPORTANT)),
        ({"cold_min_accesses": 0}, (Tier.COLD, False, Reason.ACCESSED)),
        ({"protected_in_degree": 1}, (Tier.COLD, False, Reason.CAUSE)),
        ({"archive_after_h": 24 * 9}, (Tier.ARCHIVE, True, Reason.OLD)),
        ({"archive_min_importance": 4}, (Tier.COLD, False, Reason.IMPORTANT)),
        ({"archive_min_accesses": 0}, (Tier.COLD, False, Reason.ACCESSED)),
    ],
)
def test_each_setting_acts(settings: dict[str, Any], expected: tuple[Tier, bool, Reason]) -> None:
    assert judged(retained(causal_in_degree=1), **settings) == expected


def test_nothing_ten_important_is_forgotten_in_the_cold_tier_at_its_strictest() -> None:
    strictest = {"cold_min_importance": 11, "archive_min_importance": 11}
    assert judged(retained(importance=10), **{**strictest, "cold_min_importance": 10})[1] is False
    assert judged(retained(importance=10, boost=3.0), **strictest)[1] is True


@pytest.mark.parametrize("kept", [{"importance": 8}, {"boost": 4.0}, {"access_count": 10}])
@pytest.mark.parametrize("days", [8, 31, 300])
def test_age_alone_takes_nothing_important_or_much_asked_for(
    days: float, kept: dict[str, Any]
) -> None:
    assert judged(retained(days=days, **kept))[1] is False
    strict = {"cold_min_importance": 11, "cold_min_accesses": 1_000}
    assert judged(retained(days=days, **kept), **strict)[1] is False


def test_effects_that_leave_protect_no_longer() -> None:
    """Two of four effects leave; then the hub goes, and then that of which it was the third."""
    root = retained(1, causal_in_degree=5)
    hub = retained(2, causal_in_degree=4, after=[1])
    effects = [retained(n, after=[1, 2]) for n in (3, 4)]
    staying = [retained(n, after=[2], importance=9) for n in (5, 6)]
    gone = [
        one.event_id
        for one in departures(verdicts([root, hub, *effects, *staying], NO_CHANGE, NOW_MS))
    ]
    assert gone == [event_id(n) for n in (1, 2, 3, 4)]


def test_effects_that_stay_protect() -> None:
    hub = retained(1, days=99, causal_in_degree=4)
    effects = [retained(n, after=[1], importance=9 - n) for n in (2, 3, 4, 5)]
    gone = [one.event_id for one in departures(verdicts([hub, *effects], NO_CHANGE, NOW_MS))]
    assert gone == [event_id(5)]


def test_effects_elsewhere_count_as_retained() -> None:
    hub = retained(1, causal_in_degree=4)
    found = verdicts([hub, retained(2, after=[1])], NO_CHANGE, NOW_MS)
    assert [(one.leaves, one.detail) for one in found] == [
        (False, "cause of 3 (from 3 on)"),
        (True, "cold: importance 4 below 5, 0 accesses below 3"),
    ]


NO_CHANGE = DEFAULT_POLICY


def test_departures_come_by_summary_with_tier_and_reason() -> None:
    other = "0b" * 16
    events = [retained(3), retained(1, days=31), retained(2, summary_id=other), retained(4, days=1)]
    unasked = "cold: importance 4 below 5, 0 accesses below 3"
    assert departures(verdicts(events, DEFAULT_POLICY, NOW_MS)) == [
        Departure(event_id(2), Tier.COLD, unasked, other),
        Departure(event_id(1), Tier.ARCHIVE, "archive: 720 h or older", SUMMARY),
        Departure(event_id(3), Tier.COLD, unasked, SUMMARY),
    ]


# -- dry run ---------------------------------------------------------------------------------------


def test_the_dry_run_counts_what_leaves_first_and_gives_examples() -> None:
    events = [
        *(retained(n) for n in range(1, 6)),
        retained(6, days=31),
        retained(7, summary_id=None),
        retained(8, days=0.1),
    ]
    rows = explain(reversed(verdicts(events, DEFAULT_POLICY, NOW_MS)))
    unasked = "cold: importance 4 below 5, 0 accesses below 3"
    assert rows == [
        ExplainedRow(
            True,
            Tier.COLD,
            Reason.UNASKED,
            5,
            tuple(f"{event_id(n)}: {unasked}" for n in (1, 2, 3)),
        ),
        ExplainedRow(
            True, Tier.ARCHIVE, Reason.OLD, 1, (f"{event_id(6)}: archive: 720 h or older",)
        ),
        ExplainedRow(False, Tier.HOT, Reason.YOUNG, 1, (f"{event_id(8)}: hot: below 168 h",)),
        ExplainedRow(
            False,
            Tier.COLD,
            Reason.UNSUMMARISED,
            1,
            (f"{event_id(7)}: cold, but no summary lists it",),
        ),
    ]
