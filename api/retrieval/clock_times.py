"""Times of day that a question names: "9:15", "10am", "half past two", "noon", "morning". Pure.

A time of day needs a day: `time_windows` takes the one that the question names, else the one that
it is given. Hours without minutes are an hour when something is *at* them, and a moment when it is
before or after them.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, NamedTuple

_HOURS: Final = {
    name: number
    for number, name in enumerate(
        (
            *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
            *("eleven", "twelve"),
        ),
        1,
    )
}
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
