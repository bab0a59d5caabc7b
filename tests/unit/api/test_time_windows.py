"""Stretches of time that a question limits its answer to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from api.retrieval.time_windows import exact_windows

NOW = datetime(2026, 11, 24, 18, 0, tzinfo=UTC)  # a Tuesday


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


NOW_MS = ms("2026-11-24T18:00")
EVER = ms("1971-01-01")


@pytest.mark.parametrize(
    ("question", "first", "end"),
    [
        ("What happened yesterday?", "2026-11-23", "2026-11-24"),
        ("What did we do today?", "2026-11-24", "2026-11-25"),
        ("And the day before yesterday?", "2026-11-22", "2026-11-23"),
        ("What went on on Sunday?", "2026-11-22", "2026-11-23"),
        ("What went on last Friday?", "2026-11-20", "2026-11-21"),
        ("What happened on Tuesday?", "2026-11-17", "2026-11-18"),  # the last one, not today
        ("What was it on 15 November?", "2026-11-15", "2026-11-16"),
        ("What was it on the 15th of November?", "2026-11-15", "2026-11-16"),
        ("What was it on November 15th?", "2026-11-15", "2026-11-16"),
        ("What was it on 2026-11-15?", "2026-11-15", "2026-11-16"),
        ("What was it on 3 May 2025?", "2025-05-03", "2025-05-04"),
        ("What was it on 24 December?", "2025-12-24", "2025-12-25"),  # not in the future
        ("What happened in October?", "2026-10-01", "2026-11-01"),
        ("What happened in December?", "2025-12-01", "2026-01-01"),
        ("What happened in May 2025?", "2025-05-01", "2025-06-01"),
        ("What happened last week?", "2026-11-16", "2026-11-23"),
        ("What happened this week?", "2026-11-23", "2026-11-24T18:00"),
        ("What happened last month?", "2026-10-01", "2026-11-01"),
        ("What happened last year?", "2025-01-01", "2026-01-01"),
        ("What happened in the last 24 hours?", "2026-11-23T18:00", "2026-11-24T18:00"),
        ("What happened in the past three days?", "2026-11-21T18:00", "2026-11-24T18:00"),
        ("What happened two days ago?", "2026-11-22", "2026-11-23"),
        ("Between 9 November and 10 November?", "2026-11-09", "2026-11-11"),
        ("From Monday to Wednesday?", "2026-11-18", "2026-11-24"),
        ("What changed since 20 November?", "2026-11-20", "2026-11-24T18:00"),
        ("What changed after 20 November?", "2026-11-21", "2026-11-24T18:00"),
    ],
)
def test_a_window_is_found(question: str, first: str, end: str) -> None:
    (window,) = exact_windows(question, NOW_MS)
    assert (window.span.first_ms, window.span.end_ms) == (ms(first), ms(end))


def test_what_was_before_a_day_has_no_beginning() -> None:
    (window,) = exact_windows("What did it say before 20 November?", NOW_MS)
    assert (window.span.first_ms, window.span.end_ms) == (EVER, ms("2026-11-20"))
    assert not window.is_point


@pytest.mark.parametrize(
    "question",
    [
        "Why did the payment fail?",
        "What may we do?",
        "When was the second call?",
        "What is 31 February?",
        "Which march did they join?",
        "What is order 2026-99-99?",
    ],
)
def test_what_names_no_time_has_no_window(question: str) -> None:
    assert exact_windows(question, NOW_MS) == ()


def test_days_begin_at_midnight_of_the_zone() -> None:
    (window,) = exact_windows("What happened yesterday?", NOW_MS, timezone(timedelta(hours=9)))
    # In Tokyo it is the 25th already.
    assert (window.span.first_ms, window.span.end_ms) == (
        ms("2026-11-23T15:00"),
        ms("2026-11-24T15:00"),
    )


def test_the_words_of_a_window_are_told() -> None:
    (window,) = exact_windows("Give me the events between 9 and 10 November, please", NOW_MS)
    assert window.text in ("10 November", "between 9 and 10 November", "9 and 10 November")
    (window,) = exact_windows("Since last week, what failed?", NOW_MS)
    assert window.text == "Since last week"


@pytest.mark.parametrize("now_ms", [-(10**15), 0, 10**16])
def test_a_clock_at_the_end_of_time_is_no_error(now_ms: int) -> None:
    exact_windows("yesterday, 3 years ago, last month and 29 February", now_ms)
