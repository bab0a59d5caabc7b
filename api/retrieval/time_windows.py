"""Stretches of time that a question limits its answer to, exactly. Pure.

"Yesterday", "on Sunday", "between 3 and 5 May", "since last week", "in the last 24 hours", "as of
15 November", "on the 23rd", "over the weekend of 14/15 November", "in the week of 16 November",
"between 9:15 and 9:30", "before noon on Monday". A day begins and ends at midnight of
a time zone. A date without a year is the last one that is not in the future, a weekday the last one
before today. A time of day without a day is of the day that is given, else of today; before it is
from midnight, after it until midnight. (`time_spans` finds what a question may be
about, loosely: people tell of things days later.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from api.retrieval.time_spans import (
    DAY,
    MONTH,
    MONTH_NUMBERS,
    MONTHS,
    YEAR,
    Clock,
    TimeSpan,
    clocks_in,
)
from enrichment.vocabulary import word_set

MAX_WINDOWS: Final = 8
_LONGEST: Final = timedelta(days=36_500)
_EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = round(datetime(1973, 1, 1, tzinfo=UTC).timestamp()) * 1_000
_LAST_MS: Final = round(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1_000
"""Clocks before and behind are taken for these: calendars end somewhere."""

_SATURDAY: Final = 5
_MONTHS_BACK: Final = 3
"""That a day of a month is looked for in: not every one has a 31st."""
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS: Final = {
    name: number
    for number, name in enumerate(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1
    )
} | {"a": 1, "an": 1, "couple of": 2, "few": 3}
_HOURS_OF_PART: Final = {
    "this morning": (0, 12),
    "this afternoon": (12, 18),
    "this evening": (18, 24),
    "tonight": (18, 30),
    "last night": (18, 30),
}
_UNITS: Final = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}

_COUNT = r"(?P<count>\d{1,4}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + ")"
_UNIT = r"(?P<unit>minute|hour|day|week|month|year)s?"
_CLOCK = r"(?:,?\s+(?:at\s+)?(?P<hour>\d{1,2}):(?P<minute>\d\d))?"


_BEHIND_A_DAY: Final = word_set(
    "and or to until till at in from between by with for on before after around about what who "
    "which how when where why did do does was were is are has have had i we you they he she it"
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{text})(?![\w-])", re.IGNORECASE)


class Window(NamedTuple):
    """A stretch of time, and the words that name it.

    Attributes:
        span: from and up to, milliseconds since the epoch.
        text: as it stands in the question, with "on", "between" and the like.
        has_day: it names its day; else that was given.
        beside: what names its day, where it stands apart.
        first_end_ms: of what begins with a day and goes on, the end of that day.
    """

    span: TimeSpan
    text: str
    has_day: bool = True
    beside: str = ""
    first_end_ms: int | None = None


class _Point(NamedTuple):
    """A day or the like, or a time of it (`clock`); `beside` names a day that stands apart."""

    first: datetime
    end: datetime
    begin: int
    stop: int
    clock: Clock | None = None
    has_day: bool = True
    beside: str = ""


_ISO: Final = _pattern(
    rf"{YEAR}-(?P<number>\d\d)-(?P<day>\d\d)(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::\d\d)?Z?)?"
)
_OF_WEEKDAY: Final = rf"(?:(?:{'|'.join(WEEKDAYS)}),?\s+)?"
"""Says of a date what it is known to be."""
_DAY_MONTH: Final = _pattern(
    rf"{_OF_WEEKDAY}(?:the\s+)?{DAY}\s+(?:of\s+)?{MONTH}(?:,?\s+{YEAR})?{_CLOCK}"
)
_MONTH_DAY: Final = _pattern(rf"{_OF_WEEKDAY}{MONTH}\s+(?:the\s+)?{DAY}(?:,?\s+{YEAR})?{_CLOCK}")
_DAYS_MONTH: Final = _pattern(
    r"(?:the\s+)?(?P<from_day>\d{1,2})(?:st|nd|rd|th)?\s*(?:/|[-\u2013]|\+|&|and|to|until|till)\s*"
    rf"(?:the\s+)?{DAY}\s+(?:of\s+)?{MONTH}(?:,?\s+{YEAR})?"
)
"""Several days of a month: "14/15 November", "3 to 5 May"."""
_ORDINAL: Final = _pattern(
    rf"(?:(?:{'|'.join(WEEKDAYS)}),?\s+(?:the\s+)?|the\s+)(?P<day>\d{{1,2}})(?:st|nd|rd|th)"
    rf"(?=\W*$|\s*[,.;:?!]|\s+(?:{'|'.join(sorted(_BEHIND_A_DAY))})\b)"
)
"""A day of this month or of the one before; "the 2nd attempt" is none."""
_MONTH_YEAR: Final = _pattern(rf"{MONTH},?\s+(?:of\s+)?{YEAR}")
_IN_MONTH: Final = re.compile(rf"(?<=\bin )(?P<month>{'|'.join(MONTHS)})(?![\w-])", re.IGNORECASE)
_WEEKDAY: Final = _pattern(
    r"(?:last\s+|this\s+past\s+|this\s+)?(?P<weekday>" + "|".join(WEEKDAYS) + ")"
)
_NAMED: Final = _pattern(
    r"(?P<name>the\s+day\s+before\s+yesterday|today|tonight|this\s+(?:morning|afternoon|evening)|"
    r"yesterday|last\s+night|(?:(?:last|this|the|this\s+past)\s+)?weekend(?!\s+(?:of|from)\b))"
)
_AGO: Final = _pattern(rf"{_COUNT}\s+{_UNIT}\s+ago")
_RUNNING: Final = _pattern(rf"(?:the\s+|these\s+)?(?:last|past|previous)\s+{_COUNT}\s+{_UNIT}")
_PERIOD: Final = _pattern(r"(?P<which>last|past|this|previous)\s+(?P<unit>hour|week|month|year)")

_BETWEEN = re.compile(r"(?:between|from)\s+$", re.IGNORECASE)
_JOINED = re.compile(r"^\s*(?:and|to|until|till|through|up\s+to|[-–])\s*$", re.IGNORECASE)  # noqa: RUF001
_SINCE = re.compile(r"(?:since|from|starting(?:\s+on)?)\s+$", re.IGNORECASE)
_BEFORE = re.compile(r"(?:before|until|till|up\s+to|prior\s+to)\s+$", re.IGNORECASE)
_AFTER = re.compile(r"(?:after|past|later\s+than)\s+$", re.IGNORECASE)
_UNTIL_CLOCK = re.compile(r"(?:by|earlier\s+than)\s+$", re.IGNORECASE)
_CLOCK_BESIDE = re.compile(r"^,?\s*(?:at|around|about|from|in|on|of|the|\s)*$", re.IGNORECASE)
"""What may stand between a day and a time of it."""
_LONGEST_DAY: Final = timedelta(hours=25)
_ON = re.compile(r"(?:as\s+of|on|in|at|during|within|over|for)\s+(?:the\s+)?$", re.IGNORECASE)
_WEEK_OF = re.compile(
    r"(?:(?:in|during|for|of)\s+)?(?:the\s+)?week\s+(?:of|from|starting|beginning)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_WEEKEND_OF = re.compile(
    r"(?:(?:on|over|at|during|for|of|in)\s+)?(?:the\s+)?(?:weekend|days?|night)\s+(?:of|from)\s+$",
    re.IGNORECASE,
)
_ONWARDS = re.compile(
    r"^\s*(?:onwards?|on(?!\s+(?:my|our|your|his|her|their|its|the|this|that|an?)\b))(?!\w)",
    re.IGNORECASE,
)
"""What is on something, "the note from 3 May on my desk", goes on no further."""


def exact_windows(
    text: str, now_ms: int, zone: tzinfo = UTC, *, day_ms: int | None = None
) -> tuple[Window, ...]:
    """The windows that a question names, in their order; at most MAX_WINDOWS.

    Args:
        text: in English.
        now_ms: the clock.
        zone: whose midnights days begin at.
        day_ms: a moment of the day that times without one are of; None: of today.
    """
    now, today = _at(now_ms, zone), _at(now_ms if day_ms is None else day_ms, zone)
    points = _with_clocks(text, _points(text, now), _midnight(today))
    windows = []
    place = 0
    while place < len(points):
        taken, window = _window(text, points, place, now)
        windows.append(window)
        place += taken
    return tuple(windows)[:MAX_WINDOWS]


def _at(moment_ms: int, zone: tzinfo) -> datetime:
    moment_ms = min(max(moment_ms, _FIRST_MS), _LAST_MS)
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).astimezone(zone)


def _window(text: str, points: list[_Point], place: int, now: datetime) -> tuple[int, Window]:
    """How many of the points a window takes, and the window that begins with one of them."""
    taken, window = _taken(text, points, place, now)
    point = points[place]
    return taken, window._replace(has_day=point.has_day, beside=point.beside)


def _taken(text: str, points: list[_Point], place: int, now: datetime) -> tuple[int, Window]:
    point = points[place]
    if point.clock is not None and not point.clock.is_part:
        return _of_clock(text, points, place, now)
    before, behind = text[: point.begin], text[point.stop :]
    if place + 1 < len(points) and (opening := _BETWEEN.search(before)) is not None:
        other = points[place + 1]
        if _JOINED.match(text[point.stop : other.begin]):
            first, end = min(point.first, other.first), max(point.end, other.end)
            return 2, _made(text, opening.start(), other.stop, first=first, end=end)
    if (match := _SINCE.search(before)) is not None:
        onwards = _ONWARDS.match(behind)
        stop = point.stop + (onwards.end() if onwards else 0)
        window = _made(text, match.start(), stop, first=point.first, end=now)
        is_open = onwards is not None or match[0].lower().startswith(("since", "starting"))
        return 1, window if is_open else window._replace(first_end_ms=_ms(point.end))
    if (match := _BEFORE.search(before)) is not None:
        return 1, _made(text, match.start(), point.stop, first=_EARLIEST, end=point.first)
    if (match := _AFTER.search(before)) is not None:
        return 1, _made(text, match.start(), point.stop, first=point.end, end=now)
    if (match := _WEEK_OF.search(before)) is not None and _is_day(point):
        first = point.first - timedelta(days=point.first.weekday())
        end = first + timedelta(days=7)
        return 1, _made(text, match.start(), point.stop, first=first, end=end)
    match = _WEEKEND_OF.search(before) or _ON.search(before)
    begin = point.begin if match is None else match.start()
    return 1, _made(text, begin, point.stop, first=point.first, end=point.end)


def _of_clock(text: str, points: list[_Point], place: int, now: datetime) -> tuple[int, Window]:
    """The window of a time of day, or of two."""
    point = points[place]
    before, day = text[: point.begin], _midnight(point.first)
    if place + 1 < len(points) and points[place + 1].clock is not None:
        other = points[place + 1]
        opening = _BETWEEN.search(before)
        if _JOINED.match(text[point.stop : other.begin]):
            begin = point.begin if opening is None else opening.start()
            end = other.first if _is_hour(other) else other.end
            if end <= point.first:  # past midnight
                end += timedelta(days=1)
            return 2, _made(text, begin, other.stop, first=point.first, end=end)
    named: dict[str, datetime] = {}
    match = None
    if (match := _SINCE.search(before)) is not None:
        end = now if point.has_day else day + timedelta(days=1)
        named = {"first": point.first, "end": max(end, point.first)}
    elif (match := _BEFORE.search(before) or _UNTIL_CLOCK.search(before)) is not None:
        named = {"first": day, "end": point.first}
    elif (match := _AFTER.search(before)) is not None:
        named = {"first": point.first, "end": day + timedelta(days=1)}
    if match is not None:
        onwards = _ONWARDS.match(text[point.stop :])
        stop = point.stop + (onwards.end() if onwards else 0)
        return 1, _made(text, match.start(), stop, **named)
    match = _ON.search(before)
    begin = point.begin if match is None else match.start()
    return 1, _made(text, begin, point.stop, first=point.first, end=point.end)


def _is_hour(point: _Point) -> bool:
    return point.end - point.first > timedelta(minutes=1)


def _with_clocks(text: str, points: list[_Point], today: datetime) -> list[_Point]:
    """Days with the times that the question names of them; the times alone of `today`."""
    unread = text
    for point in points:
        unread = unread[: point.begin] + "\0" * (point.stop - point.begin) + unread[point.stop :]
    clocks, days = clocks_in(unread), [point for point in points if _is_day(point)]
    taken: dict[_Point, None] = {}
    of_days: list[tuple[Clock, _Point | None]] = []
    for clock in clocks:
        day = next((day for day in days if _beside(text, clock, day)), None)
        of_days.append((clock, day))
        taken |= {} if day is None else {day: None}
    alone = days[0] if len(days) == 1 else None
    timed = [point for point in points if point not in taken]
    for clock, day in of_days:
        near = day or next(iter(taken), alone)
        if near is None and clock.is_part:
            continue  # "in the morning" of no day may be of every day
        first = today if near is None else _midnight(near.first)
        beside = "" if near is None or day is not None else text[near.begin : near.stop]
        timed.append(
            _Point(
                first + clock.first,
                first + clock.end,
                min(clock.begin, clock.begin if day is None else day.begin),
                max(clock.stop, clock.stop if day is None else day.stop),
                clock=clock,
                has_day=near is not None,
                beside=beside if near is alone or near in taken else "",
            )
        )
        if near is not None and near in timed:
            timed.remove(near)
    return sorted(timed, key=lambda point: point.begin)


def _is_day(point: _Point) -> bool:
    """Whether a point is a day as a whole, and not an hour or a week."""
    length = point.end - point.first
    return timedelta(hours=22) < length <= _LONGEST_DAY and point.first == _midnight(point.first)


def _beside(text: str, clock: Clock, day: _Point) -> bool:
    """Whether a time and a day stand side by side."""
    first, last = sorted(((clock.begin, clock.stop), (day.begin, day.stop)))
    return _CLOCK_BESIDE.match(text[first[1] : last[0]]) is not None


def _made(text: str, begin: int, stop: int, *, first: datetime, end: datetime) -> Window:
    return Window(TimeSpan(_ms(first), _ms(end)), text[begin:stop])


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)


def at_its_beginning(window: Window) -> Window:
    """A day for what is from a day: what an entry "from 17 November" said, it said then."""
    end_ms = window.first_end_ms
    if end_ms is None:
        return window
    return window._replace(span=window.span._replace(end_ms=end_ms))


def _points(text: str, now: datetime) -> list[_Point]:
    """Days, weeks and the like, in their order; what a pattern took the next does not see."""
    left, points = text, []
    for pattern, reader in _READERS:
        for match in pattern.finditer(left):
            span = reader(match.groupdict(), now)
            if span is not None:
                points.append(_Point(*span, match.start(), match.end()))
        left = pattern.sub(lambda match: "\0" * len(match[0]), left)
    return sorted(points, key=lambda point: point.begin)


Span = tuple[datetime, datetime]


def _of_date(parts: Mapping[str, str | None], now: datetime) -> Span | None:
    name = parts.get("month")
    month = MONTH_NUMBERS[name[:3].lower()] if name else int(parts["number"] or 0)
    given, day = parts.get("year"), int(parts["day"] or 0)
    years = [int(given)] if given else [now.year, now.year - 1]
    for year in years:
        first = _date(year, month, day, now)
        if first is not None and (given or first <= now):
            if (hour := parts.get("hour")) is not None and int(hour) < 24:
                first = first.replace(hour=int(hour), minute=int(parts["minute"] or 0) % 60)
                return first, first + timedelta(minutes=1)
            return first, first + timedelta(days=1)
    return None


def _of_days(parts: Mapping[str, str | None], now: datetime) -> Span | None:
    last = _of_date(parts, now)
    if last is None or int(parts["from_day"] or 0) >= int(parts["day"] or 0):
        return None
    first = _date(last[0].year, last[0].month, int(parts["from_day"] or 0), now)
    return None if first is None else (first, last[1])


def _of_ordinal(parts: Mapping[str, str | None], now: datetime) -> Span | None:
    day, month = int(parts["day"] or 0), now.replace(day=1)
    for _ in range(_MONTHS_BACK):
        first = _date(month.year, month.month, day, now)
        if first is not None and first <= now:
            return first, first + timedelta(days=1)
        month = (month - timedelta(days=1)).replace(day=1)
    return None


def _of_month(parts: Mapping[str, str | None], now: datetime) -> Span | None:
    month = MONTH_NUMBERS[str(parts["month"])[:3].lower()]
    given = parts.get("year")
    year = int(given) if given else now.year - (month > now.month)
    first = _date(year, month, 1, now)
    end = _date(year + month // 12, month % 12 + 1, 1, now)
    return None if first is None or end is None else (first, end)


def _date(year: int, month: int, day: int, now: datetime) -> datetime | None:
    try:
        return datetime(year, month, day, tzinfo=now.tzinfo)
    except ValueError:  # there is no such day
        return None


def _of_weekday(parts: Mapping[str, str | None], now: datetime) -> Span:
    back = (now.weekday() - WEEKDAYS.index(str(parts["weekday"]).lower())) % 7 or 7
    first = _midnight(now) - timedelta(days=back)
    return first, first + timedelta(days=1)


def _of_name(parts: Mapping[str, str | None], now: datetime) -> Span:
    name = " ".join(str(parts["name"]).lower().split())
    back = {"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(name, 0)
    if name.endswith("weekend"):
        first = _midnight(now) - timedelta(days=(now.weekday() - _SATURDAY) % 7)
        return first, first + timedelta(days=2)
    first = _midnight(now) - timedelta(days=back)
    begins, ends = _HOURS_OF_PART.get(name, (0, 24))
    return first + timedelta(hours=begins), first + timedelta(hours=ends)


def _of_ago(parts: Mapping[str, str | None], now: datetime) -> Span:
    unit = _UNITS[str(parts["unit"]).lower()]
    at = now - min(_count(parts) * unit, _LONGEST)
    if unit < _UNITS["day"]:
        return at - unit / 2, at + unit / 2
    first = _midnight(at) - (unit / 2 if unit > _UNITS["day"] else timedelta())
    return first, first + unit


def _of_running(parts: Mapping[str, str | None], now: datetime) -> Span:
    unit = _UNITS[str(parts["unit"]).lower()]
    return now - min(_count(parts) * unit, _LONGEST), now


def _of_period(parts: Mapping[str, str | None], now: datetime) -> Span:
    unit, this = str(parts["unit"]).lower(), str(parts["which"]).lower() == "this"
    if unit == "hour":
        return now - _UNITS["hour"], now
    today = _midnight(now)
    if unit == "week":
        first = today - timedelta(days=today.weekday())
        return (first, now) if this else (first - timedelta(days=7), first)
    if unit == "month":
        first = today.replace(day=1)
        return (first, now) if this else ((first - timedelta(days=1)).replace(day=1), first)
    first = today.replace(month=1, day=1)
    return (first, now) if this else (first.replace(year=first.year - 1), first)


def _count(parts: Mapping[str, str | None]) -> int:
    text = " ".join(str(parts["count"]).lower().split())
    return int(text) if text.isdigit() else _NUMBERS[text]


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


_READERS: Final = (
    (_ISO, _of_date),
    (_DAYS_MONTH, _of_days),
    (_DAY_MONTH, _of_date),
    (_MONTH_DAY, _of_date),
    (_ORDINAL, _of_ordinal),
    (_MONTH_YEAR, _of_month),
    (_IN_MONTH, _of_month),
    (_AGO, _of_ago),
    (_RUNNING, _of_running),
    (_NAMED, _of_name),
    (_WEEKDAY, _of_weekday),
    (_PERIOD, _of_period),
)
