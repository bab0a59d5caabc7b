"""Reading what consolidation wrote, to compare it with what was decided, and mending it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from consolidation import NAME
from consolidation.access_counts import FactPlace
from consolidation.decisions import Sums
from consolidation.forgetting import EventKey
from consolidation.forgetting_payloads import FactKey, chunks
from pipelines.graph.audit import GraphAudit
from pipelines.graph.audits import consolidation_cypher as texts
from pipelines.graph.neo4j import Neo4jTransaction
from pipelines.proof.expected_consolidation import (
    DECIDED,
    DECIDED_AT,
    FADED,
    LINKS,
    PLACED,
    VALUE,
    WHOLE,
    Element,
    compared,
)
from pipelines.proof.expected_enrichment import frozen
from projections.schema import EDGES, FORGOTTEN, NODES
from projections.structural import SessionKey

_ROWS = 1_000


class ConsolidationAudit(GraphAudit):
    """The reading side of verify for Stage 3, on one target."""

    def stream_elements(self) -> Iterator[tuple[Element, dict[str, Any]]]:
        """Everything that decisions made, in no order."""
        for row in WHOLE:
            names = [p.name for p in compared(row)]
            for key, values in self._stream(texts.STREAM_NODES[row.label]):
                found = dict(zip(names, frozen(values), strict=True))
                yield Element("node", row.label, frozen(key)), found
        for row, name in DECIDED:
            for key, value, position in self._stream(texts.STREAM_DECIDED[row.label, name]):
                element = Element("node", f"{row.label}.{name}", frozen(key))
                yield element, {VALUE: frozen(value), DECIDED_AT: frozen(position)}
        yield from self._edges()
        for key, values in self._stream(texts.STREAM_TOMBSTONES):
            shown = dict(zip(PLACED, frozen(values), strict=True))
            yield Element("node", FORGOTTEN.label, frozen(key)), shown
        for key, faded_at in self._stream(texts.STREAM_FADED):
            yield Element("edge", FADED, frozen(key)), {VALUE: frozen(faded_at)}

    def _edges(self) -> Iterator[tuple[Element, dict[str, Any]]]:
        for (edge_type, label), text in texts.STREAM_EDGES.items():
            row = EDGES[edge_type]
            names = [p.name for p in row.carried(NAME)]
            for source, target, values in self._stream(text):
                found = dict(zip(names, frozen(values), strict=True))
                parallel = tuple(found[name] for name in row.key)
                key = (*frozen(source), label, *frozen(target)[1:], *parallel)
                yield Element("edge", edge_type, key), found

    def scopes(self) -> dict[SessionKey, Sums]:
        """The sums of all sessions that have some."""
        return {
            (key[0], key[1]): sums
            for key, values in self._stream(texts.STREAM_SCOPES)
            if any(sums := Sums(*values))
        }

    def present(self, keys: Iterable[EventKey]) -> set[EventKey]:
        """Those of the events that have a node, be it a placeholder."""
        found: set[EventKey] = set()
        for some in chunks(sorted(keys), _ROWS):
            rows = self._stream(texts.PRESENT_EVENTS, keys=[list(key) for key in some])
            found |= {(row["tenant"], row["event_id"]) for row in rows}
        return found

    def facts(self, places: Iterable[FactPlace]) -> set[FactPlace]:
        """Those of the facts that there are."""
        found: set[FactPlace] = set()
        for some in chunks(sorted(places), _ROWS):
            rows = self._stream(texts.FACTS, keys=[[tenant, *key.parts] for tenant, key in some])
            found |= {(tenant, FactKey(*key)) for tenant, *key in (row["key"] for row in rows)}
        return found

    def importance(self, keys: Sequence[EventKey]) -> dict[EventKey, int | None]:
        """What events, or their tombstones, count for in the sums."""
        rows = self._stream(texts.COUNTED, keys=[list(key) for key in keys])
        return {(row["tenant"], row["event_id"]): row["importance"] for row in rows}


def clear_elements(transaction: Neo4jTransaction, elements: Sequence[Element]) -> None:
    """Take elements out of the graph, so that they can be made once more."""
    for row in (*WHOLE, FORGOTTEN):
        keys = [list(one.key) for one in elements if one[:2] == ("node", row.label)]
        if keys:
            transaction.run(texts.remove_nodes_text(row), keys=keys)
    for row, name in DECIDED:
        keys = [list(one.key) for one in elements if one.type == f"{row.label}.{name}"]
        if keys:
            transaction.run(texts.clear_decided_text(row, name), keys=keys)
    for edge in LINKS:
        for label in {str(one.key[2]) for one in elements if one[:2] == ("edge", edge.type)}:
            keys = [
                [*one.key[:2], one.key[3]]
                for one in elements
                if one[:2] == ("edge", edge.type) and one.key[2] == label
            ]
            transaction.run(texts.remove_edges_text(edge, NODES[label]), keys=keys)

    keys = [list(one.key) for one in elements if one.type == FADED]
    if keys:
        transaction.run(texts.CLEAR_FADED, keys=keys)


def set_places(transaction: Neo4jTransaction, places: Mapping[EventKey, Sequence[Any]]) -> None:
    """Set of tombstones where their events stood: session, time in ms, Summary, importance.

    The importance is set where there is none.
    """
    rows = [[*key, *one] for key, one in sorted(places.items())]
    for some in chunks(rows, _ROWS):
        transaction.run(texts.SET_PLACES, rows=list(some))


def set_scopes(transaction: Neo4jTransaction, sums: dict[SessionKey, Sums]) -> None:
    """Set the sums of sessions."""
    if sums:
        rows = [[*key, *one] for key, one in sums.items()]
        transaction.run(texts.SET_SCOPES, rows=rows)
