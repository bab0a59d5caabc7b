"""Columns answer by what the graph holds, and not by the order in which they came to know it.

Another process reads the same graph in another order, and one that follows it reads much of it
twice; neither may answer otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipelines.columns.follow import Columns
from pipelines.columns.loading import columns_from, columns_of, edges_of, nodes_of
from pipelines.columns.tenant import NODE_PROPERTIES, Tenant
from pipelines.columns.view import View
from pipelines.columns.view_reads import ViewReads
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.reads.scope import MAX_SCANNED
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.schema import CAUSED_BY, EDGE_CAPS, ENTITY, EVENT, NODES
from tests.contracts.test_columns import World
from tests.contracts.test_columns_service import SCOPE, plain, questions

Item = tuple[str, FoundNode | FoundEdge]
LATE = ("text", "speaker", "importance_score", "embedding")
"""What enrichment says of an event, behind what the projection does."""


class Alike(World):
    """In which much is as good: few texts, vectors, times, confidences and scores."""

    def _vector(self) -> tuple[float, ...]:
        at = self.draw.choice((0, 7, 200))
        return tuple(float(place in (at, 3)) for place in range(384))

    def _node(self, label: str, own_id: str, visible: bool = True, **values: Any) -> None:
        if label == EVENT.label:
            values["occurred_at"] //= 100_000
            words = (values["text"] or "").split()
            values["text"] = " ".join(words[:1]) or None
        if label == ENTITY.label and own_id in self.entities[:4]:
            values["canonical_name"] = values["name"] = "ann lee"
        super()._node(label, own_id, visible, **values)

    def _edge(self, type_: str, source: str, target: str, label: str = "", **values: Any) -> None:
        for name in ("score", "confidence"):
            if values.get(name) is not None:
                values[name] = 1.0
        super()._edge(type_, source, target, label, **values)


def bare(node: FoundNode) -> FoundNode:
    """An event as the projection leaves it."""
    return node._replace(values={**node.values, **dict.fromkeys(LATE)})


def in_parts(items: Sequence[Item], draw: random.Random) -> Iterator[list[Item]]:
    """The items in another order, some at once."""
    left = draw.sample(items, len(items))
    while left:
        some = draw.randint(1, 9)
        yield left[:some]
        left = left[some:]


def followed(world: World, seed: int) -> Tenant:
    """By columns that were there before everything, as partitions race."""
    draw, graph = random.Random(seed), MemoryGraph()
    graph.ensure_schema()
    columns = Columns(graph)
    columns.load()
    nodes = [(label, node) for label in NODES for node in world.nodes[label]]
    first: list[Item] = [
        (label, bare(node) if label == EVENT.label else node) for label, node in nodes
    ]
    then: list[Item] = [
        *(pair for pair in nodes if pair[0] == EVENT.label),
        *((type_, edge) for type_ in world.edges for edge in world.different(type_)),
    ]
    for part in (*in_parts(first, draw), *in_parts(then, draw)):
        with graph.transaction() as transaction:
            for name, item in part:
                if isinstance(item, FoundNode):
                    transaction.restore_nodes(name, [item])
                else:
                    ends = item[:3]
                    between = [edge for edge in world.different(name) if edge[:3] == ends]
                    transaction.restore_edges(name, between)
        columns.catch_up()
    return columns.tenant(world.tenant)


def shuffled(graph: MemoryGraph, world: World, seed: int) -> Tenant:
    """By columns that read the graph in another order."""
    draw = random.Random(seed)
    nodes, edges = list(nodes_of(graph)), list(edges_of(graph))
    draw.shuffle(nodes)
    draw.shuffle(edges)
    return columns_from(nodes, edges)[world.tenant]


@pytest.mark.parametrize("seed", range(3))
def test_answers_do_not_tell_how_columns_came_to_be(seed: int) -> None:
    world = Alike(seed)
    graph = MemoryGraph()
    graph.ensure_schema()
    world.write(graph)
    loaded = columns_of(graph)[world.tenant]
    others = [followed(world, seed), shuffled(graph, world, seed), shuffled(graph, world, seed + 1)]
    asked = questions(world)
    unlike: set[str] = set()
    for scope in world.scopes():
        expected = ViewReads(View(loaded, scope))
        for other in others:
            reads = ViewReads(View(other, scope))
            for name, each in asked.items():
                for ask in each:
                    if plain(ask(reads)) != plain(ask(expected)):
                        unlike.add(name)
    assert unlike == set()


def test_of_too_many_effects_the_newest_are_followed() -> None:
    """Whichever of them columns came to know last."""
    count, nodes = MAX_SCANNED + 50, []
    for number in range(count):
        values = dict.fromkeys(NODE_PROPERTIES[EVENT.label]) | {
            "occurred_at": number,
            "session_id": f"s-{number}",
            "agent_id": "bot",
            "global_position": f"{number}-0",
        }
        nodes.append((EVENT.label, FoundNode(("t", f"e{number:03}"), True, values, False)))
    why = {"confidence": None, "rule": None}
    edges = [
        (CAUSED_BY.type, FoundEdge(node.key, ("t", "e000"), EVENT.label, why))
        for _, node in nodes[1:]
    ]
    caps = {**EDGE_CAPS, CAUSED_BY.type: count}
    told = [
        plain(ViewReads(View(columns_from(nodes, order)["t"], SCOPE)).steps(["e000"], caps))
        for order in (edges, edges[::-1])
    ]
    assert told[0] == told[1]
    assert told[0][0][1:] == [f"e{number:03}" for number in range(count - 1, 50 - 1, -1)]
