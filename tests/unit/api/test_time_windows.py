"""Stretches of time that a question limits its answer to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from api.retrieval.time_windows import at_its_beginning, exact_windows

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
        ("Which call failed on the 23rd and how?", "2026-11-23", "2026-11-24"),
        ("What was it on the 30th?", "2026-10-30", "2026-10-31"),  # of the month before
        ("What was it on the 31st?", "2026-10-31", "2026-11-01"),
        ("Friday the 20th: what did we do?", "2026-11-20", "2026-11-21"),
        ("What did we do on Friday, 20 November?", "2026-11-20", "2026-11-21"),
        ("What changed between the 12th and the 14th?", "2026-11-12", "2026-11-15"),
        ("What changed since the 20th?", "2026-11-20", "2026-11-24T18:00"),
        ("What did we do on 14/15 November?", "2026-11-14", "2026-11-16"),
        ("What did we do over the weekend of 14 and 15 November?", "2026-11-14", "2026-11-16"),
        ("What happened in the week of 18 November?", "2026-11-16", "2026-11-23"),
        ("What happened over the weekend?", "2026-11-21", "2026-11-23"),
    ],
)
def test_a_window_is_found(question: str, first: str, end: str) -> None:
    (window,) = exact_windows(question, NOW_MS)
    assert (window.span.first_ms, window.span.end_ms) == (ms(first), ms(end))


def test_what_was_before_a_day_has_no_beginning() -> None:
    (window,) = exact_windows("What did it say before 20 November?", NOW_MS)
    assert (window.span.first_ms, window.span.end_ms) == (EVER, ms("2026-11-20"))
    assert window.first_end_ms is None


@pytest.mark.parametrize(
    ("question", "end"),
    [
        ("What did the entry from 20 November say?", "2026-11-21"),
        ("What did it say from 20 November on?", "2026-11-24T18:00"),
        ("What did it say since 20 November?", "2026-11-24T18:00"),
        ("What did it say on 20 November?", "2026-11-21"),
        ("There is a note from 20 November on my desk.", "2026-11-21"),
    ],
)
def test_what_is_from_a_day_and_does_not_go_on_may_be_of_that_day(question: str, end: str) -> None:
    (window,) = map(at_its_beginning, exact_windows(question, NOW_MS))
    assert (window.span.first_ms, window.span.end_ms) == (ms("2026-11-20"), ms(end))


DAY = "2026-11-20"
TIMES = [
    ("Which parcels left between 09:15 and 09:30?", "09:15", "09:31"),
    ("Which parcels left from 9:15 to 9:30?", "09:15", "09:31"),
    ("Which parcels left between 9 and 9:30?", "09:00", "09:31"),
    ("Which parcels left between 9am and 11am?", "09:00", "11:00"),
    ("Which parcels left between 9 and 11 am?", "09:00", "11:00"),
    ("Which parcels left 9-11am?", "09:00", "11:00"),
    ("Which parcels left 9:00-9:45?", "09:00", "09:46"),
    ("Which parcels left from 2 to 4 pm?", "14:00", "16:00"),
    ("Which parcels left between 10 and 2 pm?", "10:00", "14:00"),
    ("Which parcels left between noon and 3 o'clock in the afternoon?", "12:00", "15:00"),
    ("Which parcels left after 10am?", "10:00", "24:00"),
    ("Which parcels left after 10:20?", "10:20", "24:00"),
    ("Since 9 a.m., which parcels left?", "09:00", "24:00"),
    ("Which parcels left from 9am on?", "09:00", "24:00"),
    ("Which parcels left before noon?", "00:00", "12:00"),
    ("Which parcels had left by half past nine?", "00:00", "09:30"),
    ("Which parcels left until quarter to 5 pm?", "00:00", "16:45"),
    ("Which parcels left at 9am?", "09:00", "10:00"),
    ("Which parcels left at 09:21?", "09:21", "09:22"),
    ("Which parcels left at 09:21:30?", "09:21", "09:22"),
    ("Which parcels left around 14:30?", "14:20", "14:40"),
    ("Which parcels left around noon?", "11:30", "12:30"),
    ("Which parcels left between midnight and 6 o'clock?", "00:00", "06:00"),
    ("Which parcels left after 12 pm?", "12:00", "24:00"),
    ("Which parcels left before 12 am?", "00:00", "00:00"),
]


def at(day: str, clock: str) -> int:
    hours, minutes = map(int, clock.split(":"))
    return ms(day) + (hours * 60 + minutes) * 60_000


@pytest.mark.parametrize(("question", "first", "end"), TIMES)
def test_a_time_without_a_day_is_of_the_day_that_is_given(
    question: str, first: str, end: str
) -> None:
    (window,) = exact_windows(question, NOW_MS, day_ms=at(DAY, "16:05"))
    assert (window.span.first_ms, window.span.end_ms) == (at(DAY, first), at(DAY, end))
    assert not window.has_day


def test_a_time_without_a_day_is_of_today_where_none_is_given() -> None:
    (window,) = exact_windows("What happened before noon?", NOW_MS)
    assert window.span.end_ms == ms("2026-11-24T12:00")


@pytest.mark.parametrize(
    ("question", "first", "end"),
    [
        ("Who left between 9:15 and 9:30 on Monday?", "2026-11-23T09:15", "2026-11-23T09:31"),
        ("On Monday, who left between 9:15 and 9:30?", "2026-11-23T09:15", "2026-11-23T09:31"),
        ("Who left on Monday at 9am?", "2026-11-23T09:00", "2026-11-23T10:00"),
        ("Who left yesterday after 10am?", "2026-11-23T10:00", "2026-11-24"),
        ("Who left since yesterday 9am?", "2026-11-23T09:00", "2026-11-24T18:00"),
        ("Who left before noon on March 3?", "2026-03-03", "2026-03-03T12:00"),
        ("Who left on 3 March before 10:30?", "2026-03-03", "2026-03-03T10:30"),
        ("Who left on 2026-03-03 from 8 to 9:30?", "2026-03-03T08:00", "2026-03-03T09:31"),
        ("Who left yesterday morning?", "2026-11-23", "2026-11-23T12:00"),
        ("Who left in the afternoon of March 3?", "2026-03-03T12:00", "2026-03-03T18:00"),
        ("Who left on Sunday from 22:00 until 02:00?", "2026-11-22T22:00", "2026-11-23T02:01"),
        ("Who left this morning?", "2026-11-24", "2026-11-24T12:00"),
        ("Who left this evening?", "2026-11-24T18:00", "2026-11-25"),
        ("Who left last night?", "2026-11-23T18:00", "2026-11-24T06:00"),
        ("Friday the 20th, afternoon: who left?", "2026-11-20T12:00", "2026-11-20T18:00"),
        ("Who left in the small hours of 20 November?", "2026-11-20", "2026-11-20T06:00"),
    ],
)
def test_a_time_is_of_the_day_that_the_question_names(question: str, first: str, end: str) -> None:
    (window,) = exact_windows(question, NOW_MS, day_ms=ms("2026-11-20"))
    assert (window.span.first_ms, window.span.end_ms) == (ms(first), ms(end))
    assert window.has_day


def test_times_are_those_of_the_zone() -> None:
    berlin = timezone(timedelta(hours=1))
    (window,) = exact_windows("Who left after 10am?", NOW_MS, berlin, day_ms=ms("2026-11-20"))
    assert window.span.first_ms == ms("2026-11-20T09:00")


@pytest.mark.parametrize(
    "question",
    [
        "Good morning, what is my order?",
        "What is the ratio 10:75?",
        "Who is on call at night?",
        "Why did job 12 fail after 3 attempts?",
        "What is case 2026-1:20?",
        "What happened at 25:10?",
        "Between 9 and 11 parcels were late: which?",
        "I am 13 am I not?",
    ],
)
def test_what_is_no_time_of_day_limits_nothing(question: str) -> None:
    assert exact_windows(question, NOW_MS) == ()


@pytest.mark.parametrize(
    "question",
    [
        "Why did the payment fail?",
        "What may we do?",
        "When was the second call?",
        "Why did the 2nd attempt fail?",
        "Who lives on the 4th floor?",
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
