"""Reading an enriched graph as it is, streamed or under a lock, and mending what is extra."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from enrichment.stage import EntityKey, EventKey, HistoryKey
from pipelines.graph.audit import GraphAudit
from pipelines.graph.audits import enrichment_cypher as texts
from pipelines.graph.neo4j import Neo4jTransaction
from pipelines.proof.enriched_differences import FoundEntity, FoundEvent, FoundHistory
from pipelines.proof.expected_enrichment import frozen
from projections.structural import SessionKey


class EnrichmentAudit(GraphAudit):
    """The reading side of verify for Stage 2, on one target."""

    def stream_enriched(self, session: SessionKey | None = None) -> Iterator[FoundEvent]:
        """Every event, or a session's, session by session in the chain's order."""
        if session is None:
            rows = self._stream(texts.STREAM_EVENTS)
        else:
            rows = self._stream(texts.STREAM_SESSION, tenant=session[0], session=session[1])
        return map(_event, rows)

    def thinned_sessions(self) -> set[SessionKey]:
        """Sessions from which events were forgotten."""
        return {(row[0], row[1]) for row in self._stream(texts.STREAM_THINNED)}

    def stream_entities(self) -> Iterator[FoundEntity]:
        """Every entity, in no order."""
        return map(_entity, self._stream(texts.STREAM_ENTITIES))

    def stream_histories(self) -> Iterator[FoundHistory]:
        """Every history, in no order."""
        return map(_history, self._stream(texts.STREAM_HISTORIES))

    def read_entities(self, keys: Iterable[EntityKey]) -> dict[EntityKey, FoundEntity]:
        """The entities of those keys that are there, without their edges."""
        rows = self._stream(texts.READ_BARE_ENTITIES, keys=[list(key) for key in keys])
        return {found.key: found for found in map(_entity, rows)}

    def read_histories(self, keys: Iterable[HistoryKey]) -> dict[HistoryKey, FoundHistory]:
        """The histories of those keys that are there."""
        rows = self._stream(texts.READ_HISTORIES, keys=[list(key) for key in keys])
        return {found.key: found for found in map(_history, rows)}


def locked_events(
    transaction: Neo4jTransaction, keys: Sequence[EventKey]
) -> dict[EventKey, FoundEvent]:
    """Events by key, within a transaction that holds their checkpoint's lock."""
    rows = transaction.run(texts.READ_EVENTS, keys=[list(key) for key in keys])
    return {found.key: found for found in map(_event, rows)}


def locked_entities(
    transaction: Neo4jTransaction, keys: Sequence[EntityKey], *, bare: bool = False
) -> dict[EntityKey, FoundEntity]:
    """Entities by key, within a transaction that holds locks; `bare`: without their edges."""
    text = texts.READ_BARE_ENTITIES if bare else texts.READ_ENTITIES
    rows = transaction.run(text, keys=[list(key) for key in keys])
    return {found.key: found for found in map(_entity, rows)}


def locked_histories(
    transaction: Neo4jTransaction, keys: Sequence[HistoryKey]
) -> dict[HistoryKey, FoundHistory]:
    """Histories by key, within a transaction that holds locks."""
    rows = transaction.run(texts.READ_HISTORIES, keys=[list(key) for key in keys])
    return {found.key: found for found in map(_history, rows)}


def overwrite_entities(transaction: Neo4jTransaction, rows: Sequence[Sequence[Any]]) -> None:
    """Make entities what the rows of `OVERWRITE_ENTITIES` say."""
    if rows:
        transaction.run(texts.OVERWRITE_ENTITIES, rows=[list(row) for row in rows])


def rename_entities(transaction: Neo4jTransaction, rows: Sequence[Sequence[Any]]) -> None:
    """Give entities the name that the rows of `RENAME_ENTITIES` say."""
    if rows:
        transaction.run(texts.RENAME_ENTITIES, rows=[list(row) for row in rows])


def remove_nodes(transaction: Neo4jTransaction, element_ids: Sequence[str]) -> None:
    """Delete nodes with their edges."""
    if element_ids:
        transaction.run(texts.REMOVE_NODES, ids=list(element_ids))


def remove_edges(transaction: Neo4jTransaction, element_ids: Sequence[str]) -> None:
    """Delete edges."""
    if element_ids:
        transaction.run(texts.REMOVE_EDGES, ids=list(element_ids))


def similar_edges(transaction: Neo4jTransaction, key: EventKey) -> list[list[Any]]:
    """[score, element id] of the SIMILAR_TO at an event."""
    rows = transaction.run(texts.READ_SIMILAR, key=list(key))
    return [edge for row in rows for edge in row[0]]


def rescore_similar(transaction: Neo4jTransaction, rows: Sequence[Sequence[Any]]) -> None:
    """Set the score of SIMILAR_TO edges: rows [element id, score]."""
    if rows:
        transaction.run(texts.RESCORE_SIMILAR, rows=[list(row) for row in rows])


def _event(record: Sequence[Any]) -> FoundEvent:
    (
        tenant,
        event_id,
        session_id,
        occurred_at_ms,
        position,
        values,
        model,
        length,
        references,
        causes,
        similar,
        similar_count,
    ) = record
    return FoundEvent(
        frozen((tenant, event_id)),
        frozen((tenant, session_id)),
        occurred_at_ms,
        position,
        frozen(values),
        model,
        length,
        frozen(references),
        frozen(causes),
        frozen(similar),
        similar_count,
    )


def _entity(record: Sequence[Any]) -> FoundEntity:
    tenant, own_id, element_id, visible, values, decided, facts, same = record
    return FoundEntity(
        frozen((tenant, own_id)),
        element_id,
        visible,
        frozen(values),
        frozen(decided),
        frozen(facts),
        frozen(same),
    )


def _history(record: Sequence[Any]) -> FoundHistory:
    tenant, history_id, element_id, entries = record
    return FoundHistory(frozen((tenant, history_id)), element_id, entries)
