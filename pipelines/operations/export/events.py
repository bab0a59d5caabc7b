"""Events as JSON lines: the bytes of the ledger's entries, in the order in which it took them.

That order is the whole point. Of two decisions about one subject the later one stays, a statement
ends the one before it: a ledger that takes the same events in the same order folds to the same
graph, whatever its positions, partitions and clock are. Positions themselves are not written: they
are the clock of the ledger that took the events, and another one has its own.

Memory is bounded: at any time at most about WINDOW_ENTRIES entries of all partitions are held.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from itertools import chain
from operator import attrgetter

from pipelines.ledger.entries import Entry
from pipelines.ledger.sealing import is_withheld, sealed_by
from pipelines.operations.export.selection import EXPORTING, ExportReport, ReadLedger, Selection
from pipelines.work.services import Progress
from projections.errors import UndecodableEntry
from projections.events import PARTITION_KEY, Event, encode_event
from projections.identity import partition_of

WINDOW_ENTRIES = 512
"""Read ahead, of all partitions together: about 1 MB, 160 MB if each is as large as can be."""
_FEWEST_AT_ONCE = 8


def events(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[tuple[Event, Entry]]:
    """The selected events with their entries, in the order of the ledger, up to where it now ends.

    Args:
        ledger: that is read.
        selection: which of its events.
        report: told of entries that nobody can read; they may be of any tenant.
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable: Redis went away.
    """
    for entry in _in_order(ledger, _partitions(ledger, selection), progress):
        try:
            event = entry.event()
        except UndecodableEntry as error:
            report.leave_out(entry, str(error.data["reason"]))
            continue
        if selection.has(event):
            report.written["events"] += 1
            yield event, entry


def event_lines(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The same as lines, which `recollect import` reads; see `events`."""
    for event, entry in events(ledger, selection, report, progress):
        is_as_taken = sealed_by(entry.data) is None and not is_withheld(entry.keys, event)
        yield (entry.data if is_as_taken else encode_event(event)) + b"\n"


def _partitions(ledger: ReadLedger, selection: Selection) -> Collection[int]:
    """Where selected events may be: a session's, and what was stated in it."""
    tenant, session_id, count = selection.tenant, selection.session_id, ledger.partitions
    if tenant is None or session_id is None:
        return range(count)
    return {partition_of(tenant, key, count) for key in (session_id, PARTITION_KEY)}


def _in_order(
    ledger: ReadLedger, partitions: Collection[int], progress: Progress
) -> Iterator[Entry]:
    """Entries of partitions by position, which is a total order over all of them."""
    tails = ledger.tails()
    total = sum(tails[partition].seq for partition in partitions)
    at_once = max(WINDOW_ENTRIES // max(len(partitions), 1), _FEWEST_AT_ONCE)
    streams = [
        chain.from_iterable(ledger.scan(partition, until=tails[partition].position, count=at_once))
        for partition in sorted(partitions)
        if tails[partition].seq
    ]
    done = 0
    for done, entry in enumerate(heapq.merge(*streams, key=attrgetter("position")), 1):
        yield entry
        if done % WINDOW_ENTRIES == 0:
            progress(done, total, EXPORTING)
    progress(done, total, EXPORTING)
