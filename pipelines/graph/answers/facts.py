"""Answers to the questions of `reads.facts`.

Names are matched by the words that they begin with, and ordered simply: what is asked in words is
answered from columns, and this by whoever looks at the graph itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import numpy
import numpy.typing

from pipelines.graph.answers.seen import Answer, Row, Seen, newest_first, properties
from pipelines.graph.fulltext import MIN_PREFIX_CHARACTERS, folded, words_of
from pipelines.graph.reads import facts as asked
from pipelines.graph.reads.scope import MAX_SCANNED
from pipelines.graph.rows import End, FoundEdge, FoundNode
from projections.schema import ENTITY, REFERENCES, RELATES_TO, SAME_AS


def _by_name(seen: Seen) -> list[FoundNode]:
    """Entities with one of the canonical names, by id."""
    rows = [(seen.tenant, name) for name in seen.given["names"]]
    matches = seen.graph.find(ENTITY.label, ("tenant", "canonical_name"), rows)
    ids = sorted({node.key[1] for nodes in matches.values() for node in nodes})
    return seen.nodes(ENTITY, ids)


def _by_text(seen: Seen) -> list[tuple[float, FoundNode]]:
    """Entities with a name that has a word beginning with one of the words, the best first."""
    words = {folded(one) for word in seen.given["terms"] for one in words_of(word)}
    scored = []
    for node in seen.paged(ENTITY, ENTITY.indexes[0], ()):
        spelt = " ".join(filter(None, (node.values[name] for name in ENTITY.fulltext)))
        held = {folded(word) for word in words_of(spelt)}
        score = sum(_likeness(word, held) for word in words) / (1 + len(held))
        if score:
            scored.append((score, node))
    scored.sort(key=lambda match: (-match[0], match[1].key))
    return scored[: seen.given["fetched"]]


def _likeness(word: str, held: set[str]) -> float:
    if word in held:
        return 1.0
    is_prefix = len(word) >= MIN_PREFIX_CHARACTERS and any(one.startswith(word) for one in held)
    return 0.5 if is_prefix else 0.0


def _shown_by_name(seen: Seen) -> list[dict[str, Any]]:
    nodes = (node for node in _by_name(seen) if seen.visible(ENTITY, node))
    return [seen.entity(node) for node in islice(nodes, seen.given["most"])]


def _shown_by_text(seen: Seen) -> list[dict[str, Any]]:
    best = (one for one in _by_text(seen) if seen.visible(ENTITY, one[1]))
    return [
        seen.entity(node) | {"score": score} for score, node in islice(best, seen.given["most"])
    ]


def _found_by_name(seen: Seen) -> list[Row]:
    return list(_shown_by_name(seen))


def _found_by_text(seen: Seen) -> list[Row]:
    return list(_shown_by_text(seen))


def _found(seen: Seen) -> list[Row]:
    return [{"rows": [*_shown_by_text(seen), *_shown_by_name(seen)]}]


def _found_by_id(seen: Seen) -> list[Row]:
    return [seen.entity(node) for node in seen.visible_nodes(ENTITY, seen.given["ids"])]


def _same(seen: Seen) -> list[Row]:
    rows: list[Row] = []
    for node in seen.visible_nodes(ENTITY, seen.given["ids"]):
        own_id = node.key[1]
        edges = seen.edges(SAME_AS, [own_id], by=End.EITHER)
        others = [_other(edge, own_id) for edge in edges if not edge.values["retracted"]]
        shown = {other.key[1] for other in seen.visible_nodes(ENTITY, others)}
        rows += [{"one": own_id, "other": other} for other in others if other in shown]
    return rows


def _other(edge: FoundEdge, own_id: str) -> str:
    return str(edge.target[1] if edge.source[1] == own_id else edge.source[1])


def _mentions(seen: Seen, entity_id: str) -> list[FoundNode]:
    """Events that the viewer sees and that mention an entity."""
    edges = seen.edges(REFERENCES, [entity_id], by=End.TARGET)
    return seen.events(edge.source[1] for edge in islice(edges, asked.MAX_MENTIONS))


def _newest_mentions(seen: Seen) -> list[Row]:
    rows = []
    for node in seen.visible_nodes(ENTITY, seen.given["ids"]):
        newest = sorted(_mentions(seen, node.key[1]), key=newest_first)[: seen.given["limit"]]
        rows.append({"id": node.key[1], "newest": [event.key[1] for event in newest]})
    return list(rows)


def _mentioned(seen: Seen) -> list[Row]:
    return [
        {"id": node.key[1], "mentions": len(_mentions(seen, node.key[1]))}
        for node in seen.visible_nodes(ENTITY, seen.given["ids"])
    ]


def _facts_of(seen: Seen) -> list[Row]:
    types = seen.given["edge_types"]
    matches: dict[tuple[Any, ...], FoundEdge] = {}
    for own_id in seen.given["ids"]:
        counting = [
            edge
            for edge in seen.edges(RELATES_TO, [own_id], by=End.EITHER)
            if seen.fact_holds(edge)
            and (not types or edge.values["edge_type"] in types)
            and seen.fact_visible(edge)
        ]
        counting.sort(key=_most_trusted)
        matches |= {_fact_key(edge): edge for edge in counting[: seen.given["per_entity"]]}
    return _facts(seen, matches.values())


def _most_trusted(edge: FoundEdge) -> tuple[Any, ...]:
    values = edge.values
    confidence = values["confidence"]
    return (
        confidence is not None,
        -(confidence or 0.0),
        -values["valid_from"],
        values["event_id"],
        values["relation"],
    )


def _fact_key(edge: FoundEdge) -> tuple[Any, ...]:
    return (edge.source, edge.target, *(edge.values[name] for name in RELATES_TO.key))


def _facts(seen: Seen, edges: Iterable[FoundEdge]) -> list[Row]:
    """Facts with what is to be said of their ends, as the columns of a fact."""
    edges = list(edges)
    ids = [end[1] for edge in edges for end in (edge.source, edge.target)]
    ends = {node.key: seen.entity(node) for node in seen.nodes(ENTITY, ids)}
    return [
        _end("source", ends[edge.source])
        | _end("target", ends[edge.target])
        | {"properties": properties(edge)}
        for edge in edges
    ]


def _end(side: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    names = {"entity_id": "id", "name": "name", "entity_type": "type", "subtype": "subtype"}
    return {f"{side}_{short}": columns[name] for name, short in names.items()}


def _history_of(seen: Seen) -> list[Row]:
    after = seen.given["since"], seen.given["place"]
    placed = {
        (-edge.values["valid_from"], _place(edge)): edge
        for edge in seen.edges(RELATES_TO, seen.given["ids"], by=End.EITHER)
        if seen.fact_visible(edge)
    }
    page = [one for one in sorted(placed) if one > after][: seen.given["limit"]]
    facts = _facts(seen, (placed[one] for one in page))
    return [
        {**fact, "valid_from": -since, "place": place}
        for fact, (since, place) in zip(facts, page, strict=True)
    ]


def _place(edge: FoundEdge) -> str:
    values = edge.values
    parts = (values["event_id"], values["relation"], values["edge_type"])
    return " ".join((*parts, edge.source[1], edge.target[1]))


def _facts_between(seen: Seen) -> list[Row]:
    matches = [
        edge
        for source, target, events in seen.given["ends"]
        for edge in seen.edges(RELATES_TO, [source])
        if edge.target[1] == target
        and edge.values["event_id"] in events
        and seen.fact_visible(edge)
    ]
    return _facts(seen, matches)


def _withheld_names(seen: Seen) -> list[Row]:
    nodes = {node.key: node for node in (*(node for _, node in _by_text(seen)), *_by_name(seen))}
    hidden = [
        node
        for node in nodes.values()
        if seen.stands(ENTITY, node) and not seen.allowed(ENTITY, node)
    ]
    return [{"withheld": len(hidden)}]


def _withheld_facts(seen: Seen) -> list[Row]:
    edges = islice(seen.edges(RELATES_TO, seen.given["ids"], by=End.EITHER), MAX_SCANNED)
    return [{"withheld": sum(not seen.of_viewer(edge.values) for edge in edges)}]


def _sessions(seen: Seen) -> list[Row]:
    matches = dict.fromkeys(node.values["session_id"] for node in seen.events(seen.given["ids"]))
    return [{"session_id": session_id} for session_id in matches if session_id is not None]


def _cosines(seen: Seen) -> list[Row]:
    nodes = seen.visible_nodes(ENTITY, seen.given["ids"])
    vectors = seen.graph.nodes(ENTITY.label, [node.key for node in nodes], (ENTITY.vector or "",))
    wanted = _unit(seen.given["vector"])
    return [
        {"id": key[1], "cosine": float(numpy.dot(_unit(vector), wanted))}
        for key, node in vectors.items()
        if (vector := node.values[ENTITY.vector or ""]) is not None
    ]


def _unit(vector: Iterable[float]) -> numpy.typing.NDArray[numpy.float64]:
    values = numpy.array(list(vector), dtype=numpy.float64)
    return values / (numpy.linalg.norm(values) or 1.0)


ANSWERS: Final[Mapping[str, Answer]] = {
    asked.FOUND_BY_TEXT: _found_by_text,
    asked.FOUND_BY_NAME: _found_by_name,
    asked.FOUND: _found,
    asked.FOUND_BY_ID: _found_by_id,
    asked.SAME: _same,
    asked.NEWEST_MENTIONS: _newest_mentions,
    asked.MENTIONED: _mentioned,
    asked.FACTS_OF: _facts_of,
    asked.HISTORY_OF: _history_of,
    asked.FACTS_BETWEEN: _facts_between,
    asked.WITHHELD_NAMES: _withheld_names,
    asked.WITHHELD_FACTS: _withheld_facts,
    asked.SESSIONS: _sessions,
    asked.COSINES: _cosines,
}
"""By text."""
