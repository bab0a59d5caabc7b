"""What a reader may see of a graph, asked through the port: the test of `reads.scope`, in Python.

A question is known by its text, and its parameters are those that the database would be given. So
whoever asks does not know which store answers, and a test of all questions on both holds the two
together (`tests/contracts/test_answers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pipelines.graph.port import Reads, pages
from pipelines.graph.reader import HIDDEN
from pipelines.graph.reads.scope import SUPPORT
from pipelines.graph.rows import End, FoundEdge, FoundNode
from projections.identity import Position
from projections.operations import Key
from projections.schema import (
    EDGES,
    ENTITY,
    EVENT,
    NODES,
    REFERENCES,
    RELATES_TO,
    SUMMARY,
    EdgeRow,
    Kind,
    NodeRow,
)

Row = Mapping[str, Any]
"""One of an answer."""
PAGE: Final = 500
"""Nodes that are read at once where it is not known how many will do."""
_MENTIONS_AT_ONCE: Final = 200
"""Events among which one is looked for that the viewer sees."""

_NAMES: Final = {
    row.label: tuple(prop.name for prop in row.properties if prop.kind is not Kind.VECTOR)
    for row in NODES.values()
}
_EDGE_NAMES: Final = {
    row.type: tuple(prop.name for prop in row.properties) for row in EDGES.values()
}


def plain(value: Any) -> Any:
    """A value as a row of an answer carries it: lists are lists."""
    return list(value) if isinstance(value, tuple) else value


def newest_first(node: FoundNode) -> tuple[int, str]:
    """To sort events by: the latest first, of one moment the smaller id."""
    return -(node.values["occurred_at"] or 0), node.key[1]


class Seen:
    """A graph as one viewer sees it, and the parameters of one question.

    Args:
        graph: that is read.
        given: the parameters, those of `Scope.parameters` among them.
    """

    def __init__(self, graph: Reads, given: Mapping[str, Any]) -> None:
        self.graph = graph
        self.given = given
        self.tenant: str = given["tenant"]
        self.everyone: bool = given["everyone"]
        until = given.get("until")
        self._until = None if until is None else tuple(until)
        self._met: dict[Key, bool] = {}

    # -- nodes and edges -----------------------------------------------------------------------

    def nodes(self, row: NodeRow, ids: Iterable[str]) -> list[FoundNode]:
        """Nodes of the tenant by their own ids, each once, in the order of the ids."""
        keys = [(self.tenant, own_id) for own_id in dict.fromkeys(ids)]
        stored = self.graph.nodes(row.label, keys, _NAMES[row.label])
        return [stored[key] for key in keys if key in stored]

    def visible_nodes(self, row: NodeRow, ids: Iterable[str]) -> list[FoundNode]:
        """Those of them that the viewer sees."""
        return [node for node in self.nodes(row, ids) if self.visible(row, node)]

    def events(self, ids: Iterable[str]) -> list[FoundNode]:
        """Events that the viewer sees, in the order of the ids."""
        return self.visible_nodes(EVENT, ids)

    def paged(
        self, row: NodeRow, by: Sequence[str], first: Sequence[Any], **bounds: Any
    ) -> Iterator[FoundNode]:
        """Nodes along an index; see `port.pages`."""
        stretches = pages(
            self.graph,
            row.label,
            by,
            (self.tenant, *first),
            properties=_NAMES[row.label],
            size=PAGE,
            **bounds,
        )
        return (node for page in stretches for node in page)

    def edges(
        self, row: EdgeRow, ids: Iterable[str], *, by: End = End.SOURCE, label: str = ""
    ) -> list[FoundEdge]:
        """Edges of a type at nodes of the tenant, both of whose ends are the tenant's; each once.

        Args:
            row: of the type.
            ids: of the nodes, by whose order the edges are sorted.
            by: at which end the nodes are.
            label: of the target, where it is not the row's.
        """
        ends = [(self.tenant, own_id) for own_id in dict.fromkeys(ids)]
        stored = self.graph.edges(row.type, ends, _EDGE_NAMES[row.type], by=by, label=label)
        edges: dict[tuple[Any, ...], FoundEdge] = {}
        for end in ends:
            for edge in stored.get(end, ()):
                if edge.source[0] == edge.target[0] == self.tenant:
                    values = tuple(edge.values[name] for name in row.key)
                    edges.setdefault((edge.source, edge.target, *values), edge)
        return list(edges.values())

    # -- who may see what ----------------------------------------------------------------------

    def of_viewer(self, values: Mapping[str, Any]) -> bool:
        """Whether an event or a fact is of the viewer, or of nobody."""
        return self.everyone or values["user_id"] in (None, self.given["user_id"])

    def later(self, node: FoundNode) -> bool:
        """Whether an event is behind the position that is asked about."""
        position = node.values["global_position"]
        return (
            self._until is not None
            and position is not None
            and tuple(Position.parse(position)) > self._until
        )

    def stands(self, row: NodeRow, node: FoundNode) -> bool:
        """Whether a node is in the graph, whoever may see it."""
        if not node.visible or node.values.get("gone"):
            return False
        if self._until is None or row is ENTITY:
            return True
        if row is EVENT:
            return not self.later(node)
        decided_at = node.values["decided_at"]
        return decided_at is not None and tuple(decided_at) <= self._until

    def allowed(self, row: NodeRow, node: FoundNode) -> bool:
        """Whether the viewer may see a node, if it stands."""
        if row is EVENT:
            return self.of_viewer(node.values)
        if row is ENTITY:
            return self._has_met(node.key)
        sources = node.values["user_ids"]
        return self.everyone or (
            sources is not None and all(source == self.given["user_id"] for source in sources)
        )

    def visible(self, row: NodeRow, node: FoundNode) -> bool:
        """Whether the viewer sees a node."""
        return self.stands(row, node) and self.allowed(row, node)

    def fact_visible(self, edge: FoundEdge) -> bool:
        """Whether a fact may be seen, whether it holds or not."""
        if not self.of_viewer(edge.values):
            return False
        if self._until is None:
            return True
        return not any(self.later(node) for node in self.nodes(EVENT, [edge.values["event_id"]]))

    def fact_holds(self, edge: FoundEdge) -> bool:
        """Whether a fact holds at the moment that is asked about."""
        values, now = edge.values, self.given["now"]
        ends = values["valid_to"] if values["valid_to"] is not None else values["expired_at"]
        return values["valid_from"] <= now and (ends is None or ends > now)

    def _has_met(self, key: Key) -> bool:
        """An entity is seen through the events that mention it and the facts that it stands in."""
        if self.given["all_entities"]:
            return True
        if key not in self._met:
            facts = self.edges(RELATES_TO, [key[1]], by=End.EITHER)
            self._met[key] = any(map(self.fact_visible, facts)) or self._is_mentioned(key[1])
        return self._met[key]

    def _is_mentioned(self, entity_id: str) -> bool:
        ids = [edge.source[1] for edge in self.edges(REFERENCES, [entity_id], by=End.TARGET)]
        starts = range(0, len(ids), _MENTIONS_AT_ONCE)
        return any(self.events(ids[first : first + _MENTIONS_AT_ONCE]) for first in starts)

    # -- what is shown -------------------------------------------------------------------------

    def first_seen(self, node: FoundNode, name: str) -> Any:
        """What an entity has from its first event, if that is the viewer's to see."""
        first = node.values["first_user_id"]
        shown = self.everyone or first in (None, self.given["user_id"])
        return node.values[name] if shown else None

    def entity(self, node: FoundNode) -> dict[str, Any]:
        """The columns of an entity's name, as `ENTITY_COLUMNS`."""
        name, values = self.first_seen(node, "name"), node.values
        return {
            "entity_id": node.key[1],
            "name": _first(values["display_name"], name, values["canonical_name"]),
            "entity_type": _first(values["corrected_type"], values["entity_type"]),
            "subtype": self.first_seen(node, "subtype"),
            "names": [values["canonical_name"], name, values["display_name"]],
        }

    def entity_node(self, node: FoundNode) -> dict[str, Any]:
        """What the viewer may see of an entity, as `ENTITY_NODE`."""
        first = ("name", "subtype", "first_seen", "first_event_id", "first_user_id")
        return (
            columns(ENTITY, node)
            | {name: plain(self.first_seen(node, name)) for name in first}
            | {"supports": self._supports(node.key[1])}
        )

    def _supports(self, entity_id: str) -> list[list[Any]]:
        """The newest events that the viewer knows an entity from, of those that are named."""
        ids = self.given["supporting"].get(entity_id, ())
        names: dict[str, str | None] = {}
        for edge in self.edges(REFERENCES, ids):
            if edge.target[1] == entity_id:
                names[edge.source[1]] = max(
                    (names.get(edge.source[1]), edge.values["name"]), key=lambda name: name or ""
                )
        return [
            [names[node.key[1]], *(columns(EVENT, node)[name] for name in SUPPORT[1:])]
            for node in self.events(names)
        ]

    def summaries_of(self, session_id: str) -> Iterator[FoundNode]:
        """The summaries of a session that the viewer sees, of whichever scope, by id."""
        summaries = self.paged(SUMMARY, SUMMARY.indexes[0], (session_id,))
        return (node for node in summaries if self.visible(SUMMARY, node))


def columns(row: NodeRow, node: FoundNode) -> dict[str, Any]:
    """What a reader may see of a node, as `reader.node_columns`."""
    names = (name for name in _NAMES[row.label] if name not in HIDDEN)
    return {row.key[1]: node.key[1]} | {name: plain(node.values[name]) for name in names}


def properties(edge: FoundEdge) -> dict[str, Any]:
    """All properties that an edge has."""
    return {name: plain(value) for name, value in edge.values.items() if value is not None}


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def event_row(node: FoundNode) -> dict[str, Any]:
    """An event with all that was kept of its words."""
    return {"node": columns(EVENT, node), "text": node.values["text"] or ""}


def said_in(node: FoundNode) -> str:
    """What an event says, as far as it was kept."""
    return node.values["text"] or node.values["summary"] or ""


Answer = Callable[[Seen], list[Row]]
"""How a question is answered from what its reader may see."""
