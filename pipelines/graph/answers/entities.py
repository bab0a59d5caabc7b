"""Answers to the questions of `reads.entities`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, Final

from pipelines.graph.answers.seen import Answer, Row, Seen, columns, plain
from pipelines.graph.reads import entities as asked
from pipelines.graph.rows import End, FoundEdge, FoundNode
from projections.schema import (
    COMMUNITY,
    ENTITY,
    LINKED_TO,
    MEMBER_OF,
    REFERENCES,
    SAME_AS,
    SUMMARIZES,
    SUMMARY,
    TRAIT,
    TRAIT_EDGES,
    NodeRow,
)


def _named(seen: Seen, **bounds: Any) -> Iterator[FoundNode]:
    """Entities by canonical name and id."""
    return seen.paged(ENTITY, ENTITY.indexes[0], (), **bounds)


def _is_typed(seen: Seen, node: FoundNode) -> bool:
    wanted = seen.given["type"]
    return wanted is None or wanted == seen.entity(node)["entity_type"]


def _listed(seen: Seen) -> list[Row]:
    candidates = _named(seen, after=(seen.given["name"], seen.given["id"]))
    shown = (n for n in candidates if _is_typed(seen, n) and seen.visible(ENTITY, n))
    return [
        seen.entity(node) | {"canonical_name": node.values["canonical_name"]}
        for node in islice(shown, seen.given["limit"])
    ]


def _most_mentioned(seen: Seen) -> list[Row]:
    shown = (node for node in _named(seen) if seen.visible(ENTITY, node))
    keys = [node.key for node in islice(shown, seen.given["most"])]
    counts = seen.graph.degrees(REFERENCES.type, keys, by=End.TARGET)
    best = sorted(keys, key=lambda key: (-counts[key], key))[: seen.given["limit"]]
    return [{"entity_id": own_id} for _, own_id in best]


def _prefixed(seen: Seen) -> list[Row]:
    name = seen.given["name"]
    beginning = takewhile(
        lambda node: node.values["canonical_name"].startswith(name),
        _named(seen, least={"canonical_name": name}),
    )
    shown = (node for node in beginning if seen.visible(ENTITY, node))
    return [seen.entity(node) for node in islice(shown, seen.given["limit"])]


def _entities(seen: Seen) -> list[Row]:
    return [
        {
            "node": seen.entity_node(node),
            "community": _community_with(seen, node.key[1]),
            "same": _same(seen, node.key[1]),
        }
        for node in seen.visible_nodes(ENTITY, seen.given["ids"])
    ]


def _community_with(seen: Seen, entity_id: str) -> dict[str, Any] | None:
    ids = (edge.target[1] for edge in seen.edges(MEMBER_OF, [entity_id]))
    return next(
        (columns(COMMUNITY, visible_node) for visible_node in seen.visible_nodes(COMMUNITY, ids)),
        None,
    )


def _same(seen: Seen, entity_id: str) -> list[list[Any]]:
    rows = []
    for edge in seen.edges(SAME_AS, [entity_id], by=End.EITHER):
        other = edge.target[1] if edge.source[1] == entity_id else edge.source[1]
        if not edge.values["retracted"] and seen.visible_nodes(ENTITY, [other]):
            rows.append([other, edge.values["confidence"], edge.values["justification"]])
    return rows


def _summaries_of(seen: Seen) -> list[Row]:
    return _shown(SUMMARY, seen.visible_nodes(SUMMARY, seen.given["ids"]))


def _shown(row: NodeRow, nodes: list[FoundNode]) -> list[Row]:
    return [{"node": columns(row, node)} for node in nodes]


def _summaries_in(seen: Seen) -> list[Row]:
    wanted = seen.given["kind"], seen.given["scope_id"]
    candidates = [
        node
        for node in seen.summaries_of(seen.given["session_id"])
        if (node.values["scope"], node.values["scope_id"]) == wanted
    ]
    candidates.sort(key=_by_users)
    return _shown(SUMMARY, candidates[: asked.MAX_PARTS])


def _by_users(node: FoundNode) -> tuple[Any, ...]:
    users = node.values["user_ids"] or ()
    return len(users), users, node.key


def _made_from(seen: Seen) -> list[FoundNode]:
    """Summaries that some summaries are made from, each once."""
    edges = seen.edges(SUMMARIZES, seen.given["ids"], label=SUMMARY.label)
    return seen.nodes(SUMMARY, (edge.target[1] for edge in edges))


def _below(seen: Seen) -> list[Row]:
    def place(node: FoundNode) -> tuple[int, str]:
        return (node.values["time_range"] or (0,))[0], node.key[1]

    after = seen.given["began"], seen.given["after"]
    candidates = [
        node for node in _made_from(seen) if place(node) > after and seen.visible(SUMMARY, node)
    ]
    return _shown(SUMMARY, sorted(candidates, key=place)[: seen.given["limit"]])


def _links(seen: Seen) -> list[Row]:
    own_id = seen.given["id"]
    rows = []
    if seen.visible_nodes(SUMMARY, [own_id]):
        for edge in seen.edges(LINKED_TO, [own_id], by=End.EITHER):
            other = edge.target[1] if edge.source[1] == own_id else edge.source[1]
            rows += [_link(edge, node) for node in seen.visible_nodes(SUMMARY, [other])]
    rows.sort(key=lambda row: (-(row["score"] or 0.0), row["summary_id"], row["reason"]))
    return list(rows[: seen.given["limit"]])


def _link(edge: FoundEdge, node: FoundNode) -> dict[str, Any]:
    names = ("reason", "score", "evidence", "resolution_event_id", "event_id")
    return {
        "summary_id": node.key[1],
        "scope": node.values["scope"],
        "scope_id": node.values["scope_id"],
        **{name: plain(edge.values[name]) for name in names},
    }


def _all_communities(seen: Seen) -> Iterator[FoundNode]:
    return seen.paged(COMMUNITY, COMMUNITY.key, (), after=(seen.given["after"],))


def _communities(seen: Seen) -> list[Row]:
    shown = (node for node in _all_communities(seen) if seen.visible(COMMUNITY, node))
    return _shown(COMMUNITY, list(islice(shown, seen.given["limit"])))


def _community_of(seen: Seen) -> list[Row]:
    return _shown(COMMUNITY, seen.visible_nodes(COMMUNITY, [seen.given["id"]]))


def _traits(seen: Seen) -> list[Row]:
    edges = (edge for row in TRAIT_EDGES.values() for edge in seen.edges(row, seen.given["ids"]))
    shown = seen.visible_nodes(TRAIT, (edge.target[1] for edge in edges))
    strongest = ("session_count", "strength")
    shown.sort(key=lambda node: (*(-node.values[name] for name in strongest), node.key))
    return _shown(TRAIT, shown)


def _all_members(seen: Seen) -> list[FoundNode]:
    """Entities of a community that the viewer sees, by id."""
    own_id = seen.given["id"]
    if not seen.visible_nodes(COMMUNITY, [own_id]):
        return []
    edges = seen.edges(MEMBER_OF, [own_id], by=End.TARGET)
    return seen.nodes(ENTITY, sorted(edge.source[1] for edge in edges))


def _members(seen: Seen) -> list[Row]:
    behind = (node for node in _all_members(seen) if node.key[1] > seen.given["after"])
    shown = (node for node in behind if seen.visible(ENTITY, node))
    return [{"entity_id": node.key[1]} for node in islice(shown, seen.given["limit"])]


def _withheld(seen: Seen, row: NodeRow, nodes: Iterator[FoundNode]) -> list[Row]:
    """How many of the first MAX_COUNTED nodes are there, and kept from the viewer."""
    looked_at = islice(nodes, asked.MAX_COUNTED)
    hidden = [node for node in looked_at if seen.stands(row, node) and not seen.allowed(row, node)]
    return [{"withheld": len(hidden)}]


def _withheld_entities(seen: Seen) -> list[Row]:
    last = seen.given["last"]
    bounds = {} if last is None else {"most": {"canonical_name": last}}
    candidates = _named(seen, after=(seen.given["name"], seen.given["id"]), **bounds)
    return _withheld(seen, ENTITY, (node for node in candidates if _is_typed(seen, node)))


def _withheld_below(seen: Seen) -> list[Row]:
    return _withheld(seen, SUMMARY, iter(_made_from(seen)))


def _withheld_members(seen: Seen) -> list[Row]:
    return _withheld(seen, ENTITY, iter(_all_members(seen)))


def _withheld_communities(seen: Seen) -> list[Row]:
    return _withheld(seen, COMMUNITY, _all_communities(seen))


ANSWERS: Final[Mapping[str, Answer]] = {
    asked.LISTED: _listed,
    asked.MOST_MENTIONED: _most_mentioned,
    asked.PREFIXED: _prefixed,
    asked.ENTITIES: _entities,
    asked.SUMMARIES_OF: _summaries_of,
    asked.SUMMARIES_IN: _summaries_in,
    asked.BELOW: _below,
    asked.LINKS: _links,
    asked.COMMUNITIES: _communities,
    asked.COMMUNITY_OF: _community_of,
    asked.TRAITS: _traits,
    asked.MEMBERS: _members,
    asked.WITHHELD_ENTITIES: _withheld_entities,
    asked.WITHHELD_BELOW: _withheld_below,
    asked.WITHHELD_MEMBERS: _withheld_members,
    asked.WITHHELD_COMMUNITIES: _withheld_communities,
}
"""By text."""
