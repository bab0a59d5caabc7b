"""What the columns find relevant beside a question: earlier resolutions, what matters, is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Final

import numpy

from enrichment.event_kinds import FAILED
from pipelines.columns.reads import Beside
from pipelines.columns.tables import NOBODY
from pipelines.columns.view import View
from pipelines.graph.reads.scope import MAX_SCANNED
from pipelines.graph.rows import LEAST, Least, Signalled

_SUCCESS: Final = "completed"
_MOST: Final = 10.0
"""Importance, and accesses, from which on a signal is as strong as can be."""


def beside(view: View, start: Beside, least: Least = LEAST) -> list[Signalled]:
    """Events nobody asked for, the most telling first; one may come by several signals."""
    signalled = [
        *_best(_alike_resolved(view, start.session_ids, least.score), least.most),
        *_best(_similar_resolved(view, start.event_ids), least.most),
        *_important(view, start.entity_ids, least),
        *_read_again(view, start.history, least.accesses),
    ]
    return sorted(signalled, key=_strength)


def _strength(signal: Signalled) -> tuple[float, str]:
    return -signal.score, signal.event_id


def _best(signalled: Iterable[Signalled], most: int) -> list[Signalled]:
    best: dict[str, Signalled] = {}
    for signal in signalled:
        if signal.event_id not in best or best[signal.event_id].score < signal.score:
            best[signal.event_id] = signal
    return nsmallest(most, best.values(), key=_strength)


def _alike_resolved(
    view: View, session_ids: Iterable[str], least_score: float
) -> Iterator[Signalled]:
    """Sessions that failed alike, and the event that resolved it there."""
    tenant = view.tenant
    for summary_id in session_ids:
        if not view.sees_made(tenant.summaries.get(summary_id)):
            continue
        for link in tenant.links.get(summary_id, ()):
            if link.resolution_id is None or link.score < least_score:
                continue
            row = tenant.events.rows.get(link.resolution_id)
            seen = row is not None and view.sees_event(row)
            if seen and view.sees_made(tenant.summaries.get(link.other_id)):
                yield Signalled(link.resolution_id, "recurring_pattern", link.score)


def _similar_resolved(view: View, event_ids: Iterable[str]) -> Iterator[Signalled]:
    """Events of other sessions that are alike and failed, and the retry that succeeded."""
    tenant, events = view.tenant, view.tenant.events
    sessions, statuses = events.table["session"], events.table["status"]
    failures = {events.names.find(status) for status in FAILED} - {NOBODY}
    success = events.names.find(_SUCCESS)
    for row in (events.rows[event_id] for event_id in event_ids if event_id in events.rows):
        if not view.sees_event(row):
            continue
        for other, score in (*tenant.similar.targets(row), *tenant.similar.sources(row)):
            failed = int(statuses[other]) in failures and sessions[other] != sessions[row]
            if not failed or not view.sees_event(other):
                continue
            for cause in tenant.causes.into(other):
                resolved = cause.mark and statuses[cause.source] == success
                if resolved and view.sees_event(cause.source):
                    sure = 1.0 if numpy.isnan(cause.score) else cause.score
                    yield Signalled(events.ids[cause.source], "recurring_pattern", score * sure)


def _important(view: View, entity_ids: Iterable[str], least: Least) -> Iterator[Signalled]:
    """Important events about what the query is about."""
    entities, events = view.tenant.entities, view.tenant.events
    for row in (entities.rows[entity_id] for entity_id in entity_ids if entity_id in entities.rows):
        if not view.sees_entity(row):
            continue
        mentioned = entities.all[row].mentioned_in()[-MAX_SCANNED:]
        mentioned = mentioned[view.seen[mentioned]]
        importance = events.table["importance"][mentioned] + events.table["boost"][mentioned]
        chosen = [
            (-float(much), -int(events.table["occurred_ms"][event]), events.ids[event])
            for event, much in zip(mentioned.tolist(), importance.tolist(), strict=True)
            if much >= least.importance
        ]
        for minus, _, event_id in nsmallest(least.most, chosen):
            yield Signalled(event_id, "entity_context", min(1.0, -minus / _MOST))


def _read_again(view: View, history: Iterable[str], least: int) -> Iterator[Signalled]:
    """Events that the session was shown before, and that were read again."""
    events = view.tenant.events
    for event_id in dict.fromkeys(history):
        row = events.rows.get(event_id)
        if row is not None and view.sees_event(row):
            count = int(events.table["accesses"][row])
            if count >= least:
                yield Signalled(event_id, "retrieval_history", min(1.0, count / _MOST))
