"""When something was, by the calendar's English words. Pure.

`on 3 May 2023`, `May 3rd, 2023`, `2023-05-03`, `in May 2023`, `in May` (of any year up to now),
`in 2023`, and what counts from now: `yesterday`, `last week`, `two months ago`, `today`.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from consolidation.decay import DAY_MS

MAX_SPANS: Final = 64
YEARS_BACK: Final = 10
"""A month without a year may be of this one or of so many before."""
# Calendars of computers end somewhere; "ten years ago" is still one of theirs.
_FIRST_MS = -30_000 * DAY_MS
_LAST_MS = 2_900_000 * DAY_MS

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
MONTH_NUMBERS = {name[:3]: number for number, name in enumerate(MONTHS, 1)}
_COUNTED = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)
_NUMBERS = {name: n for n, name in enumerate(_COUNTED, 1)} | {"a": 1, "an": 1, "a couple of": 2}

MONTH = r"(?P<month>" + "|".join([*MONTHS, "sept", *(name[:3] for name in MONTHS)]) + r")\.?"
DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
YEAR = r"(?P<year>(?:19|20)\d\d)"
_COUNT = "|".join(sorted(_NUMBERS, key=len, reverse=True))


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{text})(?!\w)", re.IGNORECASE)


_CALENDAR: Final = (
    _pattern(r"(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)(?:-(?P<day>\d\d))?"),
    _pattern(rf"{DAY}\s+(?:of\s+)?{MONTH}(?:,?\s+{YEAR})?"),
    _pattern(rf"{MONTH}\s+{DAY}(?:,?\s+{YEAR})?"),
    _pattern(rf"{MONTH},?\s+(?:of\s+)?{YEAR}"),
    # "may" and "march" alone are mostly no months
    _pattern(rf"(?:in|of|by|since|until|during|this|last|early|late|mid|around)[\s-]+{MONTH}"),
    _pattern(r"(?P<month>" + "|".join(n for n in MONTHS if n not in ("may", "march")) + ")"),
    _pattern(YEAR),
)
"""The most exact first; what one has taken the next does not see."""
_UNITS = r"(?P<unit>day|week|month|year)"
_AGO = _pattern(rf"(?P<count>\d{{1,3}}|{_COUNT})\s+{_UNITS}s?\s+(?:ago|earlier|back)")
_LAST = _pattern(rf"(?P<which>last|past|this|previous)\s+{_UNITS}")
_NEAR = _pattern(r"(?P<name>today|tonight|this\s+morning|yesterday|last\s+night)")
_UNIT_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}


class TimeSpan(NamedTuple):
    """From `first_ms` up to and without `end_ms`, milliseconds since the epoch, UTC."""

    first_ms: int
    end_ms: int


def time_spans(query: str, now_ms: int) -> tuple[TimeSpan, ...]:
    """The stretches of time that a question names, in no order; at most MAX_SPANS.

    Args:
        query: in English; other languages name nothing.
        now_ms: the clock; nothing that it names without a year lies behind it.
    """
    now = datetime.fromtimestamp(min(max(now_ms, _FIRST_MS), _LAST_MS) / 1_000, UTC)
    spans: list[TimeSpan] = []
    left = query
    for pattern in _CALENDAR:
        for match in pattern.finditer(left):
            spans.extend(_of_calendar(match.groupdict(), now))
        left = pattern.sub(" ; ", left)
    spans.extend(_from_now(left, now))
    return tuple(dict.fromkeys(spans))[:MAX_SPANS]


def _of_calendar(parts: dict[str, str | None], now: datetime) -> Iterator[TimeSpan]:
    month = MONTH_NUMBERS[name[:3].lower()] if (name := parts.get("month")) else None
    if number := parts.get("number"):
        month = int(number)
    day = int(text) if (text := parts.get("day")) else None
    given = parts.get("year")
    years = [int(given)] if given else range(now.year, now.year - YEARS_BACK, -1)
    for year in years:
        if (span := _calendar_span(year, month, day)) is not None and (
            given or span.first_ms <= now.timestamp() * 1_000
        ):
            yield span


def _calendar_span(year: int, month: int | None, day: int | None) -> TimeSpan | None:
    """A year, month or day; None: there is no such one."""
    if month is None:
        return _span(datetime(year, 1, 1, tzinfo=UTC), 366 if _leap(year) else 365)
    if not 1 <= month <= 12:
        return None
    days = monthrange(year, month)[1]
    if day is None:
        return _span(datetime(year, month, 1, tzinfo=UTC), days)
    return _span(datetime(year, month, day, tzinfo=UTC), 1) if 1 <= day <= days else None


def _leap(year: int) -> bool:
    return monthrange(year, 2)[1] == 29


def _from_now(text: str, now: datetime) -> Iterator[TimeSpan]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for match in _AGO.finditer(text):
        count = match["count"].lower()
        days = _UNIT_DAYS[match["unit"].lower()]
        back = min(days * (int(count) if count.isdigit() else _NUMBERS[count]), 100 * 365)
        yield _span(today - timedelta(back + days // 2), max(1, days))
    for match in _LAST.finditer(text):
        days = _UNIT_DAYS[match["unit"].lower()]
        # "last week" is the week before this one, or the last seven days: both.
        this = match["which"].lower() == "this"
        yield _span(today - timedelta(days if this else 2 * days), (1 if this else 2) * days + 1)
    for match in _NEAR.finditer(text):
        before = match["name"].lower().startswith(("yesterday", "last"))
        yield _span(today - timedelta(int(before)), 1)


def _span(first: datetime, days: int) -> TimeSpan:
    first_ms = round(first.timestamp() * 1_000)
    return TimeSpan(first_ms, first_ms + days * DAY_MS)
