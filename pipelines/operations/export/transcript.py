"""A session, or what is of a user, as Markdown for people: who said and did what, by time.

The words are those that the enrichment reads (`enrichment.text`), up to 4,000 characters an event,
as quotations, so that no text of an event can be taken for a heading of the page. Two passes over
the events: one for the order (about 100 bytes an event are held), one for the words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from enrichment.text import clean_text, event_text
from pipelines.operations.export.events import events
from pipelines.operations.export.selection import EXPORTING, ExportReport, ReadLedger, Selection
from pipelines.work.services import Progress
from projections.errors import OperationFailed
from projections.events import Event, is_system_event, timestamp_text

_AT_ONCE = 200


def transcript(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The page, piece by piece; see `events` for the arguments.

    Raises:
        OperationFailed: no such event is in the ledger.
        LedgerUnavailable: Redis went away.
    """
    selected = events(ledger, selection, report, _silent)
    events_of_it = (event for event, _ in selected if not is_system_event(event.event_type))
    places = sorted((event.occurred_at_ms, *event.key) for event in events_of_it)
    if not places:
        raise OperationFailed(
            reason=f"tenant {selection.tenant} has no event of {_of_what(selection)}"
        )
    report.written["events"] = 0
    yield _head(selection, places[0][0], places[-1][0], len(places))
    left = iter(places)
    while page := list(islice(left, _AT_ONCE)):
        entries = ledger.find_many([(tenant, event_id) for _, tenant, event_id in page])
        for _, tenant, event_id in page:
            yield _told(entries[tenant, event_id].event())
            report.written["events"] += 1
        progress(report.written["events"], len(places), EXPORTING)


def _of_what(selection: Selection) -> str:
    named = (("user", selection.user_id), ("session", selection.session_id))
    return ", ".join(f"{what} {_line(name)}" for what, name in named if name is not None)


def _head(selection: Selection, first_ms: int, last_ms: int, count: int) -> bytes:
    what = _of_what(selection)
    return (
        f"# {what[:1].upper()}{what[1:]}\n\n"
        f"- tenant: {selection.tenant}\n"
        f"- from {timestamp_text(first_ms)} to {timestamp_text(last_ms)}\n"
        f"- events: {count:,}\n"
    ).encode()


def _told(event: Event) -> bytes:
    """One event: a heading with time, speaker and type, its words below."""
    text = event_text(event)
    status = f" ({event.status})" if event.status else ""
    user = f", about {_line(event.user_id)}" if event.user_id else ""
    words = "\n".join(f"> {line}".rstrip() for line in text.text.splitlines())
    speaker = _line(text.speaker or event.agent_id)
    return (
        f"\n## {timestamp_text(event.occurred_at_ms)} {speaker}: {event.event_type}{status}\n\n"
        f"{words or '> (no words)'}\n\n"
        f"`{event.event_id}`{user}\n"
    ).encode()


def _silent(done: int, total: int | None, what: str) -> None:
    """The first look is no progress."""


def _line(text: str) -> str:
    """A name as a part of a line."""
    return " ".join(clean_text(text).split())
