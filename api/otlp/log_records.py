"""Log records that tell what was said become spans, which are mapped as all others are.

Two generations: one record for a whole call of a model (1.37 and later), or one for each message,
which are put together by their span, as far as they came in one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from projections.traces.conversations import CONTENT_EVENTS
from projections.traces.spans import (
    SESSION,
    SPAN_ID_CHARACTERS,
    TRACE_ID_CHARACTERS,
    LogRecord,
    Occurrence,
    Span,
    text_of,
)

_EVENT_NAME: Final = "event.name"
"""Where the name of an event stood before records had a field for it."""


class FromLogs(NamedTuple):
    """Log records, sorted out.

    Attributes:
        spans: what they tell.
        places: of the records that each span was made from.
        ignored: records that tell nothing of GenAI.
        refused: place of a record, and why it is none.
    """

    spans: list[Span]
    places: list[list[int]]
    ignored: int
    refused: list[tuple[int, str]]


def spans_of(records: Sequence[LogRecord]) -> FromLogs:
    """The spans that log records tell of."""
    groups: dict[tuple[str, str], list[int]] = {}
    refused: list[tuple[int, str]] = []
    ignored = 0
    for place, record in enumerate(records):
        if _name(record) not in CONTENT_EVENTS:
            ignored += 1
        elif len(record.trace_id) != TRACE_ID_CHARACTERS:
            refused.append((place, "trace_id: required, 16 bytes"))
        elif len(record.span_id) != SPAN_ID_CHARACTERS:
            refused.append((place, "span_id: required, 8 bytes"))
        elif not record.time_ns:
            refused.append((place, "time_unix_nano: required"))
        else:
            groups.setdefault((record.trace_id, record.span_id), []).append(place)
    places = list(groups.values())
    spans = [_span([records[place] for place in group]) for group in places]
    return FromLogs(spans, places, ignored, refused)


def _name(record: LogRecord) -> str:
    return record.event_name or text_of(record.attributes, (_EVENT_NAME,)) or ""


def _span(records: Sequence[LogRecord]) -> Span:
    """One span of its records, in the order of time."""
    ordered = sorted(records, key=lambda record: record.time_ns)
    first, last = ordered[0], ordered[-1]
    named = next((r for r in ordered if text_of(r.attributes, SESSION) is not None), first)
    content = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")
    return Span(
        trace_id=first.trace_id,
        span_id=first.span_id,
        parent_id="",
        name=_name(first),
        start_ns=first.time_ns,
        end_ns=last.time_ns,
        attributes={
            "gen_ai.operation.name": "chat",
            **{name: value for name, value in named.attributes.items() if name not in content},
        },
        resource=first.resource,
        occurrences=tuple(
            Occurrence(_name(record), record.time_ns, _told(record)) for record in ordered
        ),
        is_log=True,
    )


def _told(record: LogRecord) -> Mapping[str, Any]:
    if isinstance(record.body, Mapping):
        return {**record.attributes, **record.body}
    if isinstance(record.body, str) and record.body:
        return {"content": record.body, **record.attributes}
    return record.attributes
