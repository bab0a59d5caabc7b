"""What tracers send, in one form, whichever encoding it came in.

Ids are lower-case hex, empty where there is none; times are nanoseconds since the epoch, 0 where
none was given. Attributes are JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Attributes = Mapping[str, Any]

STATUS_ERROR: Final = 2
"""`STATUS_CODE_ERROR` of a span."""
TRACE_ID_CHARACTERS: Final = 32
SPAN_ID_CHARACTERS: Final = 16

MAX_RECORDS: Final = 10_000
"""Spans, or log records, of one request; SDKs send 512 at a time."""
MAX_OCCURRENCES: Final = 1_000
"""Events of a span that are read; SDKs keep 128."""

_MAX_SAFE: Final = 2**53 - 1


class TooLarge(ValueError):
    """A request holds more than is read of one; the text says what."""


class Occurrence(NamedTuple):
    """An event of a span: a moment in it, with a name."""

    name: str
    time_ns: int
    attributes: Attributes


class Span(NamedTuple):
    """A span.

    Attributes:
        trace_id: 32 characters.
        span_id: 16 characters.
        parent_id: span id of the parent; empty for a root.
        name: as the tracer chose it.
        start_ns: begin.
        end_ns: end.
        attributes: of the span.
        resource: attributes of what sent it, such as `service.name`.
        occurrences: its events.
        status_code: `STATUS_ERROR` or another number.
        status_message: of an error.
        is_log: made from log records: only what they say counts, not that it was there.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    resource: Attributes
    occurrences: tuple[Occurrence, ...] = ()
    status_code: int = 0
    status_message: str = ""
    is_log: bool = False


class LogRecord(NamedTuple):
    """A log record; `event_name` is empty for one that is no event."""

    trace_id: str
    span_id: str
    event_name: str
    time_ns: int
    body: Any
    attributes: Attributes
    resource: Attributes


def plain_integer(value: int) -> int | str:
    """The number, or its digits where JSON would not keep them all."""
    return value if -_MAX_SAFE <= value <= _MAX_SAFE else str(value)


def plain_float(value: float) -> float | str:
    """The number, or its text where JSON has no such number."""
    return value if -_MAX_SAFE <= value <= _MAX_SAFE else str(value)


def plain_bytes(value: bytes) -> str:
    """Bytes are not language: that they were there is what is kept."""
    return f"[binary, {len(value):,} bytes]"
