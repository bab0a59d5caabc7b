"""The decay score, the boost of links, and counts that decay when they are read."""

from __future__ import annotations

from itertools import permutations
from math import e, exp, log

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.decay import (
    DAY_MS,
    HOUR_MS,
    DecayWeights,
    Retrievals,
    decay_score,
    effective_confidence,
    retrieval_count,
    retrieved,
    stability_h,
)
from consolidation.decay_scores import decay_scores
from tests.factories import START_MS

shares = st.floats(0, 1)
importances = st.floats(0, 10)
ages_ms = st.integers(0, 3_650 * DAY_MS)
counts = st.integers(0, 10_000)


# -- decay score -----------------------------------------------------------------------------------


def test_recency_importance_and_relevance_count_alike() -> None:
    week = START_MS + 168 * HOUR_MS
    score = decay_score(week, START_MS, importance=6, relevance=0.9)
    assert score == pytest.approx((1 / e + 0.6 + 0.9) / 3)


def test_without_a_query_relevance_is_a_half() -> None:
    assert decay_score(START_MS, START_MS, importance=4) == pytest.approx((1 + 0.4 + 0.5) / 3)


def test_affinity_weighs_half_and_only_with_a_user() -> None:
    expected = (1 + 0.4 + 0.5 + 0.5 * 0.8) / 3.5
    assert decay_score(START_MS, START_MS, importance=4, affinity=0.8) == pytest.approx(expected)


@given(st.lists(st.tuples(ages_ms, ages_ms, counts, importances, shares), max_size=5))
def test_many_scores_at_once_are_the_same(rows: list[tuple[int, int, int, float, float]]) -> None:
    now_ms = START_MS + 1_000 * DAY_MS
    weights = DecayWeights(0.5, 2.0, 1.0)
    columns = (numpy.array(column) for column in (zip(*rows, strict=True) if rows else [[]] * 5))
    occurred, accessed, accesses, importance, relevance = columns
    found = decay_scores(
        now_ms,
        START_MS + occurred,
        START_MS + accessed,
        accesses,
        importance=importance,
        relevance=relevance,
        weights=weights,
    )
    assert found.tolist() == pytest.approx(
        [
            decay_score(
                now_ms,
                START_MS + occurred_ms,
                START_MS + accessed_ms,
                access_count=count,
                importance=important,
                relevance=relevant,
                weights=weights,
            )
            for occurred_ms, accessed_ms, count, important, relevant in rows
        ]
    )


def test_weights_are_the_callers() -> None:
    recent_only = DecayWeights(1, 0, 0)
    assert decay_score(START_MS, START_MS, importance=1, weights=recent_only) == 1


@pytest.mark.parametrize(("accesses", "hours"), [(0, 168), (1, 168 + 24 * log(2)), (6, 214.70184)])
def test_accesses_make_memory_last(accesses: int, hours: float) -> None:
    assert stability_h(accesses) == pytest.approx(hours)


def test_age_counts_from_the_last_access() -> None:
    now_ms = START_MS + 100 * DAY_MS
    fresh = decay_score(now_ms, now_ms, access_count=1)
    assert decay_score(now_ms, START_MS, last_access_ms=now_ms, access_count=1) == fresh


def test_an_access_before_the_event_occurred_makes_it_no_older() -> None:
    before = START_MS - DAY_MS
    assert decay_score(START_MS, START_MS, before) == decay_score(START_MS, START_MS)


def test_an_access_after_now_has_not_happened_yet() -> None:
    now_ms = START_MS + DAY_MS
    assert decay_score(now_ms, START_MS, now_ms + 1) == decay_score(now_ms, START_MS)


@given(ages_ms, ages_ms, counts, importances, shares, st.none() | shares)
def test_the_decay_score_is_from_0_to_1(
    age: int, access: int, count: int, importance: float, relevance: float, affinity: float | None
) -> None:
    score = decay_score(
        START_MS + age, START_MS, START_MS + access, count, importance, relevance, affinity
    )
    assert 0 <= score <= 1


@given(ages_ms, ages_ms, counts, importances)
def test_what_is_older_never_scores_higher(
    age: int, more: int, count: int, importance: float
) -> None:
    scores = [
        decay_score(START_MS + ms, START_MS, None, count, importance) for ms in (age, age + more)
    ]
    assert scores == sorted(scores, reverse=True)


@given(ages_ms, counts, importances, importances)
def test_what_is_more_important_never_scores_lower(
    age: int, count: int, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    scores = [decay_score(START_MS + age, START_MS, None, count, i) for i in (low, high)]
    assert scores == sorted(scores)


@given(ages_ms, counts, counts)
def test_what_was_asked_for_more_often_never_scores_lower(age: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    scores = [decay_score(START_MS + age, START_MS, None, count) for count in (low, high)]
    assert scores == sorted(scores)


@given(ages_ms, ages_ms, st.data())
def test_a_later_access_never_scores_lower(age: int, one: int, data: st.DataObject) -> None:
    now_ms = START_MS + age + one
    early = START_MS + one
    late = data.draw(st.integers(early, now_ms))
    scores = [decay_score(now_ms, START_MS, at) for at in (early, late)]
    assert scores == sorted(scores)


# -- links -----------------------------------------------------------------------------------------


@given(shares)
def test_a_link_that_was_never_retrieved_keeps_its_confidence(confidence: float) -> None:
    assert effective_confidence(confidence, 0) == confidence


@pytest.mark.parametrize(
    ("confidence", "count", "expected"),
    [(0.5, 1, 0.5 * (1 + 0.2 * log(2))), (0.5, e - 1, 0.6), (0.9, 10, 1.0), (1.0, 3, 1.0)],
)
def test_retrievals_raise_a_confidence_up_to_1(
    confidence: float, count: float, expected: float
) -> None:
    assert effective_confidence(confidence, count) == pytest.approx(expected)


@given(shares, st.floats(0, 10**6), st.floats(0, 10**6))
def test_more_retrievals_never_lower_a_confidence(c: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    confidences = [effective_confidence(c, count) for count in (0, low, high)]
    assert confidences == sorted(confidences)
    assert confidences[-1] <= 1


# -- decaying counts -------------------------------------------------------------------------------


def counted(moments: list[int]) -> Retrievals | None:
    stored: Retrievals | None = None
    for at_ms in moments:
        stored = retrieved(stored, Retrievals(1.0, at_ms))
    return stored


def test_a_count_that_nobody_stored_is_0() -> None:
    assert retrieval_count(None, START_MS) == 0


@pytest.mark.parametrize("days", [0, 1, 69.3, 1_000])
def test_a_count_decays_by_a_hundredth_a_day(days: float) -> None:
    now_ms = START_MS + round(days * DAY_MS)
    assert retrieval_count(Retrievals(8.0, START_MS), now_ms) == pytest.approx(8 * exp(-days / 100))


def test_a_clock_before_the_last_retrieval_does_not_inflate() -> None:
    assert retrieval_count(Retrievals(3.0, START_MS), START_MS - 400 * DAY_MS) == 3


def test_the_latest_moment_stays_whatever_comes_after_it() -> None:
    moments = [START_MS, START_MS + DAY_MS, START_MS + 2 * DAY_MS]
    assert {one.at_ms for order in permutations(moments) if (one := counted(list(order)))} == {
        START_MS + 2 * DAY_MS
    }


moments = st.lists(st.integers(0, 3_650 * DAY_MS).map(START_MS.__add__), min_size=1, max_size=30)


@given(moments, st.randoms(use_true_random=False), ages_ms)
def test_the_order_of_retrievals_does_not_matter(at: list[int], random, age: int) -> None:  # type: ignore[no-untyped-def]  # Hypothesis's Random
    shuffled = random.sample(at, len(at))
    now_ms = max(at) + age
    expected = sum(exp(-0.01 * (now_ms - one) / DAY_MS) for one in at)
    for order in (at, shuffled):
        assert retrieval_count(counted(order), now_ms) == pytest.approx(expected, rel=1e-12)


@given(moments, moments)
def test_counts_that_were_added_up_apart_add_up(one: list[int], other: list[int]) -> None:
    apart = counted(other)
    assert apart is not None
    together = retrieved(counted(one), apart)
    assert together == pytest.approx(counted(one + other), rel=1e-12)
