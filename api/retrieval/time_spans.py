"""When something was, by the English words of calendar and clock. Pure.

`on 3 May 2023`, `May 3rd, 2023`, `2023-05-03`, `in May 2023`, `in May` (of any year up to now),
`in 2023`, and what counts from now: `yesterday`, `last week`, `two months ago`, `today`.

Times of day are `9:15`, `10am`, `half past two`, `noon`, `morning`. They need a day: `time_windows`
takes the one that the question names, else the one that it is given. Hours without minutes are an
hour when something is *at* them, and a moment when it is before or after them.
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


# -- times of day ----------------------------------------------------------------------------------

_HOURS: Final = {name: number for number, name in enumerate(_COUNTED, 1)}
_HOUR: Final = r"(?:\d{1,2}|" + "|".join(_HOURS) + ")"
_HALF: Final = r"(?:[ap]\.?m\.?(?!\w)|o['’]?clock(?:\s+in\s+the\s+(?:morning|afternoon|evening))?)"  # noqa: RUF001
_NOON: Final = {"noon": 12, "midday": 12, "midnight": 0}
_PARTS: Final = {
    "morning": (0, 12),
    "afternoon": (12, 18),
    "evening": (18, 24),
    "night": (18, 30),
    "small hours": (0, 6),
}
"""Hours of the day at which a part of it begins and ends; a night ends on the next one."""
_CLOCK: Final = re.compile(
    rf"(?<![\w:.])(?<![^\d]-)(?<!\d{{3}}-)(?:(?P<past>half|quarter)\s+(?P<way>past|to)\s+(?P<of>{_HOUR})(?:\s*(?P<of_half>{_HALF}))?"
    rf"|(?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?::\d\d)?(?:\s*(?P<half>[ap]\.?m\.?(?!\w)|h(?!\w)))?"
    rf"|(?P<whole>{_HOUR})\s*(?P<whole_half>{_HALF})"
    rf"|(?P<name>{'|'.join(_NOON)})"
    rf"|(?:(?:in|on|during)\s+)?(?:the\s+)?(?P<part>{'|'.join(_PARTS)})(?:\s+of(?=\s))?)(?!\w|:\d|-\D)",
    re.IGNORECASE,
)
_BARE_FIRST: Final = re.compile(
    rf"(?<=between )(?P<bare>{_HOUR})(?=\s+and\s+)"
    rf"|(?<=from )(?P<bare_from>{_HOUR})(?=\s+(?:to|until|till)\s+)"
    rf"|(?<![\w:.-])(?P<bare_dash>\d{{1,2}})(?=\s*[-–]\s*$)",  # noqa: RUF001
    re.IGNORECASE,
)
_BARE_SECOND: Final = re.compile(
    rf"^\s*(?:and|to|until|till|[-–])\s*(?P<bare>{_HOUR})(?![\w:.-])",  # noqa: RUF001
    re.IGNORECASE,
)
_RANGE: Final = re.compile(r"^\s*(?:and|to|until|till|[-–])\s*$", re.IGNORECASE)  # noqa: RUF001
_AROUND: Final = re.compile(r"(?:around|about|roughly|near|approximately)\s+$", re.IGNORECASE)
_NEAR_HOUR: Final = timedelta(minutes=30)
_NEAR_MINUTE: Final = timedelta(minutes=10)


class Clock(NamedTuple):
    """A time of day.

    Attributes:
        first: after midnight.
        end: of what is at this time.
        begin, stop: where it stands in the text.
        is_part: a part of the day, and no moment.
    """

    first: timedelta
    end: timedelta
    begin: int
    stop: int
    is_part: bool = False


def clocks_in(text: str) -> list[Clock]:
    """The times of day in a text, in their order; parts of days that stand alone are left out."""
    clocks = [clock for match in _CLOCK.finditer(text) if (clock := _of(match, text)) is not None]
    return _with_bare(text, clocks)


def _of(match: re.Match[str], text: str) -> Clock | None:
    parts = match.groupdict()
    if (name := parts["name"]) is not None:
        return _moment(match, text, _NOON[name.lower()] * 60, is_hour=True)
    if (part := parts["part"]) is not None:
        first, end = _PARTS[part.lower()]
        return Clock(
            *(timedelta(hours=first), timedelta(hours=end)),
            *(match.start(), match.end()),
            is_part=True,
        )
    if (past := parts["past"]) is not None:
        minutes = 30 if past.lower() == "half" else 15
        hour = _hour(parts["of"] or "", parts["of_half"])
        before = parts["way"].lower() == "to"
        return _checked(match, text, hour, -minutes if before else minutes, is_hour=False)
    if parts["hour"] is not None:
        minute = int(parts["minute"])
        hour = _hour(parts["hour"], parts["half"])
        return _checked(match, text, hour, minute, is_hour=False) if minute < 60 else None
    hour = _hour(parts["whole"] or "", parts["whole_half"])
    return _checked(match, text, hour, 0, is_hour=True)


def _hour(text: str, half: str | None) -> int:
    """An hour of 24; a larger number is none."""
    hour = _HOURS.get(text.lower()) or int(text if text.isdigit() else 99)
    mark = (half or "").lower().replace(".", "")
    later = mark == "pm" or mark.endswith(("afternoon", "evening"))
    if mark in ("am", "pm") and not 1 <= hour <= 12:
        return 99
    if hour == 12 and mark == "am":
        return 0
    return hour + 12 if later and hour < 12 else hour


def _checked(
    match: re.Match[str], text: str, hour: int, minute: int, *, is_hour: bool
) -> Clock | None:
    return _moment(match, text, hour * 60 + minute, is_hour=is_hour) if hour < 24 else None


def _moment(match: re.Match[str], text: str, minutes: int, *, is_hour: bool) -> Clock:
    first = timedelta(minutes=minutes % (24 * 60))
    end = first + (timedelta(hours=1) if is_hour else timedelta(minutes=1))
    around = _AROUND.search(text[: match.start()])
    if around is None:
        return Clock(first, end, match.start(), match.end())
    near = _NEAR_HOUR if is_hour else _NEAR_MINUTE
    return Clock(max(timedelta(), first - near), first + near, around.start(), match.end())


def _with_bare(text: str, told: list[Clock]) -> list[Clock]:
    """Hours that are told by the other end of their range: "between 9 and 10:30", "2-4 pm"."""
    clocks = list(told)
    for clock in told:
        if clock.is_part:
            continue
        for match in _BARE_FIRST.finditer(text[: clock.begin]):
            bare = next(group for group in match.groups() if group)
            if _RANGE.match(text[match.end() : clock.begin]):
                clocks.append(_opening(bare, match, clock))
        if (second := _BARE_SECOND.match(text[clock.stop :])) is not None:
            hour = _hour(second["bare"], None)
            starts = clock.stop + second.start("bare")
            if hour < 24 and not any(other.begin == starts for other in told):
                first = timedelta(hours=hour)
                if first <= clock.first and hour < 12:
                    first += timedelta(hours=12)
                clocks.append(Clock(first, first, starts, clock.stop + second.end("bare")))
    of_day = [clock for clock in clocks if clock.first < timedelta(hours=24)]
    return sorted(of_day, key=lambda clock: clock.begin)


def _opening(bare: str, match: re.Match[str], closing: Clock) -> Clock:
    """The hour before a time that says whether it is in the morning."""
    first = timedelta(hours=_hour(bare, None))
    later = first + timedelta(hours=12)
    if later <= closing.first and closing.first >= timedelta(hours=12):
        first = later
    return Clock(first, first, match.start(), match.end())
