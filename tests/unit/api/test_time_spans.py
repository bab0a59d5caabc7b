"""The times that questions name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from api.retrieval.time_spans import MAX_SPANS, YEARS_BACK, TimeSpan, time_spans
from consolidation.decay import DAY_MS


def at_ms(year: int, month: int, day: int) -> int:
    return round(datetime(year, month, day, tzinfo=UTC).timestamp() * 1_000)


def span(year: int, month: int, day: int, days: int) -> TimeSpan:
    return TimeSpan(at_ms(year, month, day), at_ms(year, month, day) + days * DAY_MS)


NOW_MS = at_ms(2023, 10, 22) + DAY_MS // 2


@pytest.mark.parametrize(
    "query", ["on 13 October 2023", "October 13th, 2023", "2023-10-13", "the 13th of Oct. 2023"]
)
def test_a_day_is_a_day_however_it_is_written(query: str) -> None:
    assert time_spans(f"What broke {query}?", NOW_MS) == (span(2023, 10, 13, 1),)


@pytest.mark.parametrize("query", ["in February 2024", "Feb 2024", "2024-02"])
def test_a_month_has_its_days(query: str) -> None:
    assert time_spans(query, NOW_MS) == (span(2024, 2, 1, 29),)


def test_a_month_without_a_year_is_of_each_year_up_to_now() -> None:
    found = time_spans("What happened in November?", NOW_MS)
    assert found[0] == span(2022, 11, 1, 30)
    assert len(found) == YEARS_BACK - 1


def test_a_year_has_its_days() -> None:
    assert time_spans("Where was he in 2020?", NOW_MS) == (span(2020, 1, 1, 366),)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("yesterday", span(2023, 10, 21, 1)),
        ("today", span(2023, 10, 22, 1)),
        ("two months ago", span(2023, 8, 8, 30)),
        ("10 days ago", span(2023, 10, 12, 1)),
        ("last week", span(2023, 10, 8, 15)),
        ("this week", span(2023, 10, 15, 8)),
    ],
)
def test_some_times_count_from_now(query: str, expected: TimeSpan) -> None:
    assert time_spans(f"What failed {query}?", NOW_MS) == (expected,)


@pytest.mark.parametrize(
    "query",
    [
        "May I go?",
        "They march on",
        "31 June 2023",
        "2023-13-01",
        "order 4711 of 1850",
        "version 20.21",
        "version 12023",
        "marching",
    ],
)
def test_what_is_no_time_names_none(query: str) -> None:
    assert time_spans(query, NOW_MS) == ()


@pytest.mark.parametrize("now_ms", [-(10**18), 0, 10**18])
def test_any_clock_will_do(now_ms: int) -> None:
    assert len(time_spans("in May, 900 years ago, last year and 29 February", now_ms)) > 0


def test_the_number_of_spans_is_bounded() -> None:
    months = " ".join(f"{day} January," for day in range(1, 29))
    assert len(time_spans(months, NOW_MS)) == MAX_SPANS
