"""Tombstones of events that may come back, page by page; it writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import neo4j

from pipelines.graph.client import GraphClient
from projections.events import LAST_MS
from projections.identity import Position
from projections.schema import EVENT, FORGOTTEN, PLACEHOLDER, SUMMARIZES, SUMMARY

TOMBSTONES_AT_ONCE = 1_000

_SHOWN = (
    "RETURN f.tenant AS tenant, f.event_id AS event_id, f.session_id AS session_id, "
    "f.occurred_at.epochMillis AS occurred_at_ms, coalesce(f.recalled, false) AS recalled, "
    "f.recalled_decided_at AS decided_at, "
    f"EXISTS {{ MATCH (e:{EVENT.label} {{tenant: f.tenant, event_id: f.event_id}}) "
    f"WHERE NOT e:{PLACEHOLDER} AND e.importance_score IS NOT NULL }} AS back"
)
_BY_ID = f"UNWIND $ids AS id MATCH (f:{FORGOTTEN.label} {{tenant: $tenant, event_id: id}}) {_SHOWN}"
_CHAIN = f"USING INDEX f:{FORGOTTEN.label}({', '.join(FORGOTTEN.indexes[0])})"
_ORDER = f"ORDER BY {', '.join(f'f.{name}' for name in FORGOTTEN.indexes[0])} LIMIT $limit "
_BEHIND = (
    "AND f.occurred_at IS NOT NULL AND f.event_id IS NOT NULL "
    "AND datetime({epochMillis: $since_ms}) <= f.occurred_at "
    "AND f.occurred_at <= datetime({epochMillis: $until_ms}) "
    "AND CASE WHEN f.session_id > $session_id THEN true "
    "WHEN f.occurred_at = datetime({epochMillis: $at_ms}) THEN f.event_id > $event_id "
    "ELSE f.occurred_at > datetime({epochMillis: $at_ms}) END "
)
_OF_TENANT = (
    f"MATCH (f:{FORGOTTEN.label}) {_CHAIN} WHERE f.tenant = $tenant "
    f"AND f.session_id >= $session_id {_BEHIND}WITH f {_ORDER}{_SHOWN}"
)
_OF_SESSION = (
    f"MATCH (f:{FORGOTTEN.label}) {_CHAIN} WHERE f.tenant = $tenant "
    f"AND f.session_id = $session_id {_BEHIND}WITH f {_ORDER}{_SHOWN}"
)
_LISTED = (
    f"MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}})"
    f"-[:{SUMMARIZES.type}*0..2]->(e:{SUMMARY.label}) WHERE e.level = 1 "
    "RETURN DISTINCT e.source_event_ids AS event_ids"
)


class Selection(NamedTuple):
    """Which forgotten events: of the tenant, within all that is named.

    Attributes:
        event_ids: these; None: not by id.
        summary_id: those that this Summary lists, or those below it; the bare hash.
        session_id: of this session.
        since_ms: that occurred at that moment or later.
        until_ms: that occurred until then.
    """

    tenant: str
    event_ids: tuple[str, ...] | None = None
    summary_id: str | None = None
    session_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class Gone(NamedTuple):
    """An event that was forgotten.

    Attributes:
        recalled: it may come back.
        decided_at: position of the decision that it left, or that it may come back.
        back: it is there again, enriched.
    """

    tenant: str
    event_id: str
    recalled: bool
    decided_at: Position | None
    back: bool


class TombstoneReader(GraphClient):
    """Answers which events were forgotten; safe to share between threads."""

    def pages(
        self, selection: Selection, *, page: int = TOMBSTONES_AT_ONCE
    ) -> Iterator[list[Gone]]:
        """Tombstones of the selected events, page by page."""
        if selection.summary_id is not None:
            rows = self.ask(_LISTED, tenant=selection.tenant, id=selection.summary_id)
            listed = {one for row in rows for one in row["event_ids"]}
            named = selection.event_ids
            chosen = listed if named is None else listed & set(named)
            yield from self._by_id(selection, sorted(chosen), page)
        elif selection.event_ids is not None:
            yield from self._by_id(selection, sorted(set(selection.event_ids)), page)
        else:
            yield from self._by_place(selection, page)

    def _by_id(self, selection: Selection, ids: Sequence[str], page: int) -> Iterator[list[Gone]]:
        left = iter(ids)
        while some := list(islice(left, page)):
            rows = self.ask(_BY_ID, tenant=selection.tenant, ids=some)
            yield [_gone(row) for row in rows if _is_within(row, selection)]

    def _by_place(self, selection: Selection, page: int) -> Iterator[list[Gone]]:
        text = _OF_TENANT if selection.session_id is None else _OF_SESSION
        since_ms = 0 if selection.since_ms is None else selection.since_ms
        until_ms = LAST_MS if selection.until_ms is None else selection.until_ms
        for rows in self.by_place(
            text,
            session_id=selection.session_id or "",
            at_ms=since_ms - 1,
            tenant=selection.tenant,
            since_ms=since_ms,
            until_ms=until_ms,
            limit=page,
        ):
            yield [_gone(row) for row in rows]


def _is_within(row: neo4j.Record, selection: Selection) -> bool:
    """Whether an event that was found by its id is in the rest of the selection too."""
    at_ms = row["occurred_at_ms"]
    if selection.session_id not in (None, row["session_id"]):
        return False
    if at_ms is None:
        return selection.since_ms is None and selection.until_ms is None
    since_ms = at_ms if selection.since_ms is None else selection.since_ms
    until_ms = at_ms if selection.until_ms is None else selection.until_ms
    return bool(since_ms <= at_ms <= until_ms)


def _gone(row: neo4j.Record) -> Gone:
    decided_at = row["decided_at"]
    return Gone(
        tenant=row["tenant"],
        event_id=row["event_id"],
        recalled=row["recalled"],
        decided_at=None if decided_at is None else Position(*decided_at),
        back=row["back"],
    )
