"""Answers to the questions of `reads.events`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from pipelines.graph.answers.seen import (
    Answer,
    Row,
    Seen,
    columns,
    newest_first,
    properties,
    said_in,
)
from pipelines.graph.reads import events as asked
from pipelines.graph.reads.scope import MAX_LATER, MAX_SCANNED
from pipelines.graph.rows import End, FoundNode
from projections.schema import CAUSED_BY, EDGES, EVENT, FOLLOWS, EdgeRow


def _events(seen: Seen) -> list[Row]:
    return [{"node": columns(EVENT, node)} for node in seen.events(seen.given["ids"])]


def _next(seen: Seen, ids: Iterable[str], row: EdgeRow, *, forward: bool) -> list[FoundNode]:
    by = End.SOURCE if forward else End.TARGET
    edges = seen.edges(row, ids, by=by)
    return seen.nodes(EVENT, ((edge.target if forward else edge.source)[1] for edge in edges))


def _passed_over(
    seen: Seen, start: str, row: EdgeRow, *, forward: bool, least: int = 0
) -> Iterator[FoundNode]:
    """Events one step away; of the order of sessions, behind those that came later.

    Args:
        seen: who looks.
        start: id of the event that is left.
        row: of the edges.
        forward: along their direction.
        least: so many must be passed over.
    """
    ids = [start]
    for passed in range(MAX_LATER + 1):
        nodes = _next(seen, ids, row, forward=forward)
        if passed >= least:
            yield from nodes
        ids = [node.key[1] for node in nodes if seen.later(node)]
        if not ids or row is not FOLLOWS:
            return


def _neighbours(seen: Seen, row: EdgeRow, *, forward: bool) -> list[Row]:
    gone = set(seen.given["seen"])
    by_key = {
        node.key: node
        for start in seen.events(seen.given["ids"])
        for node in _passed_over(seen, start.key[1], row, forward=forward)
        if node.key[1] not in gone and seen.visible(EVENT, node)
    }
    nodes = sorted(by_key.values(), key=newest_first)[: seen.given["limit"]]
    return [{"node": columns(EVENT, node)} for node in nodes]


def _edges_among(seen: Seen, types: tuple[str, ...]) -> list[Row]:
    shown = {node.key[1] for node in seen.events(seen.given["ids"])}
    rows = [
        {
            "type": type_,
            "source": edge.source[1],
            "target": edge.target[1],
            "properties": properties(edge),
        }
        for type_ in types
        for edge in seen.edges(EDGES[type_], shown)
        if edge.target[1] in shown
    ]
    return sorted(rows, key=lambda row: (row["type"], row["source"], row["target"]))


def _around(seen: Seen, ids: Iterable[str], row: EdgeRow) -> list[FoundNode]:
    """Events one edge away from others, in either direction."""
    ids = list(ids)
    return [
        *_next(seen, ids, row, forward=True),
        *_next(seen, ids, row, forward=False),
    ]


def _beside(seen: Seen, row: EdgeRow) -> list[Row]:
    by_key = {node.key: node for node in _around(seen, seen.given["ids"], row)}
    hidden = [
        node
        for node in islice(by_key.values(), MAX_SCANNED)
        if seen.stands(EVENT, node) and not seen.of_viewer(node.values)
    ]
    return [{"withheld": len(hidden)}]


def _surroundings(seen: Seen) -> list[Row]:
    def has(node: FoundNode, row: EdgeRow) -> bool:
        return any(seen.visible(EVENT, other) for other in _around(seen, [node.key[1]], row))

    return [
        {
            "status": node.values["status"],
            "caused": has(node, CAUSED_BY),
            "followed": has(node, FOLLOWS),
        }
        for node in seen.events([seen.given["id"]])
    ]


def _followed(seen: Seen) -> list[Row]:
    among = seen.given["among"]
    rows = [
        {
            "source": start.key[1],
            "target": node.key[1],
            "session_id": start.values["session_id"],
            "delta_ms": node.values["occurred_at"] - start.values["occurred_at"],
        }
        for start in seen.events(seen.given["event_ids"])
        for node in _passed_over(seen, start.key[1], FOLLOWS, forward=True, least=1)
        if node.key[1] in among and seen.visible(EVENT, node)
    ]
    return sorted(rows, key=lambda row: (row["source"], row["target"]))


def _texts(seen: Seen) -> list[Row]:
    return [{"id": node.key[1], "text": said_in(node)} for node in seen.events(seen.given["ids"])]


ANSWERS: Final[Mapping[str, Answer]] = {
    asked.EVENTS: _events,
    asked.SURROUNDINGS: _surroundings,
    asked.FOLLOWED: _followed,
    asked.TEXTS: _texts,
    **{text: partial(_edges_among, types=rows) for rows, text in asked.EDGES_AMONG.items()},
    **{
        text: partial(_neighbours, row=EDGES[type_], forward=forward)
        for (type_, forward, _), text in asked.NEIGHBOURS.items()
    },
    **{text: partial(_beside, row=EDGES[type_]) for type_, text in asked.BESIDE.items()},
}
"""By text."""
