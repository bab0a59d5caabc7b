"""Times: whole milliseconds since the epoch within, RFC 3339 in UTC where they are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: behind everything."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # UTC by convention; see timestamp_text
MILLISECOND = timedelta(milliseconds=1)
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def timestamp_ms(text: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time with zone, finer digits cut off.

    Raises:
        ValueError: when `text` is no such time.
    """
    if _TIMESTAMP.fullmatch(text) is None:
        raise ValueError("an RFC 3339 time with zone, such as 2026-02-11T10:30:00Z")
    try:
        # in UTC first: a zone may carry it out of the years 1 to 9999, which no text could tell
        moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"an RFC 3339 time with zone ({error})") from error
    return (moment - EPOCH) // MILLISECOND


def timestamp_text(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds, the one form that the ledger stores."""
    seconds, ms = divmod(ms, 1_000)
    minute, second = divmod(seconds, 60)
    return _minute_text(minute) + _SECOND_TEXTS[second] + _MS_TEXTS[ms]


def day_text(ms: int) -> str:
    """The day of a time, as texts for people tell it."""
    return timestamp_text(ms)[:10]


@lru_cache(maxsize=1_024)  # events come in bursts; a hit makes the whole text five times as fast
def _minute_text(minute: int) -> str:
    # isoformat is four times as fast as strftime, and pads the year to four digits everywhere.
    return (_NAIVE_EPOCH + timedelta(minutes=minute)).isoformat(timespec="minutes")


_SECOND_TEXTS = [f":{second:02}." for second in range(60)]
_MS_TEXTS = [f"{ms:03}Z" for ms in range(1_000)]
