"""A graph in memory that is written as the real one; `tests/contracts` holds both to it.

Transactions come one at a time: what two at once do to each other is shown on the real one only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pipelines.graph.writer import GraphWriter

from projections.errors import Fenced
from projections.events import Event
from projections.operations import Checkpoint, Key, Operations
from projections.schema import EDGES, EVENT, FORGOTTEN, NODES
from projections.structural import (
    Facts,
    Link,
    Neighbours,
    SessionGraph,
    SessionKey,
    Wanted,
    neighbours_in,
)

NodeKey = tuple[str, Key]
EdgeKey = tuple[str, Key, Key]
Properties = Mapping[str, Any]


@dataclass(slots=True)
class FakeGraph:
    """What a database holds. Values are never changed in place, so a copy of the maps is a copy.

    Attributes:
        nodes: properties by (label, key), the key among them; times are milliseconds.
        placeholders: nodes with that second label.
        edges: properties of each parallel edge by (type, source, target).
    """

    nodes: dict[NodeKey, Properties] = field(default_factory=dict)
    placeholders: set[NodeKey] = field(default_factory=set)
    edges: dict[EdgeKey, tuple[Properties, ...]] = field(default_factory=dict)
    checkpoints: dict[tuple[str, int], Checkpoint] = field(default_factory=dict)
    dead_letters: dict[tuple[str, int, int], Properties] = field(default_factory=dict)

    def copy(self) -> FakeGraph:
        return FakeGraph(
            dict(self.nodes),
            set(self.placeholders),
            dict(self.edges),
            dict(self.checkpoints),
            dict(self.dead_letters),
        )

    def forget(self, key: tuple[str, str]) -> None:
        """Leave a tombstone, and take the event away if it is there."""
        self.nodes[FORGOTTEN.label, key] = dict(zip(FORGOTTEN.key, key, strict=True))
        self.remove_node((EVENT.label, key))

    def remove_node(self, node: NodeKey) -> None:
        self.nodes.pop(node, None)
        self.placeholders.discard(node)
        for edge in [edge for edge in self.edges if node[1] in edge[1:]]:
            del self.edges[edge]

    def chain(self, session: SessionKey) -> list[Link]:
        return sorted(
            Link(properties["occurred_at"], key[1])
            for (label, key), properties in self.nodes.items()
            if label == EVENT.label
            and (key[0], properties.get("session_id")) == session
            and properties.get("occurred_at") is not None
        )

    def visible(self) -> SessionGraph:
        """All events and the edges that start there, in the form of the fold."""
        owned = [p.name for p in EVENT.owned("projection")]
        return SessionGraph(
            {
                cast(tuple[str, str], key): tuple(properties.get(name) for name in owned)
                for (label, key), properties in self.nodes.items()
                if label == EVENT.label and (label, key) not in self.placeholders
            },
            {
                edge: [
                    tuple(copy.get(p.name) for p in EDGES[edge[0]].carried("projection"))
                    for copy in copies
                ]
                for edge, copies in self.edges.items()
            },
        )


class FakeGraphWriter:
    """Stands in for `pipelines.graph.writer.GraphWriter`.

    Attributes:
        before_commit, after_commit: called around each commit; what they raise is what the caller
            of the transaction gets. Before it nothing is kept, after it all is.
    """

    def __init__(self, graph: FakeGraph | None = None) -> None:
        self.graph = graph or FakeGraph()
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None
        self.commits = 0
        self._lock = threading.Lock()

    def as_writer(self) -> GraphWriter:
        """For the type checker."""
        return cast(GraphWriter, self)

    def ensure_schema(self) -> None:
        return

    def ensure_checkpoints(
        self, stage: str, partitions: int, fold_version: int, models: str = ""
    ) -> None:
        for partition in range(partitions):
            self.graph.checkpoints.setdefault(
                (stage, partition),
                Checkpoint(stage, partition, fold_version=fold_version, models=models),
            )

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        return [
            checkpoint
            for (owner, _), checkpoint in sorted(self.graph.checkpoints.items())
            if stage in (None, owner)
        ]

    def clear(self) -> None:
        self.graph = FakeGraph()

    @contextmanager
    def transaction(self) -> Iterator[FakeGraphTransaction]:
        with self._lock:
            graph = self.graph.copy()
            yield FakeGraphTransaction(graph)
            self.before_commit()
            self.graph = graph
            self.commits += 1
            self.after_commit()


class FakeGraphTransaction:
    """What may happen between begin and commit, on a copy."""

    def __init__(self, graph: FakeGraph) -> None:
        self._graph = graph
        self.dead_letters = 0
        self.advanced = False

    def advance(self, start: Checkpoint, to: Checkpoint) -> None:
        place = (start.stage, start.partition)
        found = self._graph.checkpoints.get(place)
        if found is None or (found.generation, found.position, found.fold_version) != (
            start.generation,
            start.position,
            start.fold_version,
        ):
            raise Fenced(
                stage=start.stage,
                partition=start.partition,
                position=str(start.position),
                generation=start.generation,
            )
        self._graph.checkpoints[place] = replace(
            found, position=to.position, seq=to.seq, digest=to.digest
        )
        self.dead_letters = len(self._graph.dead_letters)
        self.advanced = True

    def lock(self, stage: str, partition: int) -> Checkpoint | None:
        self.dead_letters = len(self._graph.dead_letters)
        return self._graph.checkpoints.get((stage, partition))

    def reset(self, checkpoint: Checkpoint) -> int:
        place = (checkpoint.stage, checkpoint.partition)
        generation = self._graph.checkpoints[place].generation + 1
        self._graph.checkpoints[place] = replace(checkpoint, generation=generation)
        return generation

    def facts(self, events: Sequence[Event], wanted: Wanted) -> Facts:
        neighbours: dict[tuple[SessionKey, Link], Neighbours] = {}
        for session, links in wanted.sessions.items():
            chain = self._graph.chain(session)
            for link in links:
                neighbours[session, link] = neighbours_in(chain, link)
        return Facts(neighbours, self.tombstones(events))

    def dead_letter_seqs(self, stage: str, partition: int) -> set[int]:
        return {seq for s, p, seq in self._graph.dead_letters if (s, p) == (stage, partition)}

    def tombstones(self, events: Iterable[Event]) -> set[tuple[str, str]]:
        return {event.key for event in events if (FORGOTTEN.label, event.key) in self._graph.nodes}

    def apply(self, operations: Operations, stage: str) -> None:
        graph = self._graph
        for removed in operations.remove_nodes:
            graph.remove_node(removed)
        for node, merged in operations.merge_nodes.items():
            held = {
                **dict(zip(NODES[node[0]].key, node[1], strict=True)),
                **graph.nodes.get(node, {}),
                **merged.values,
            }
            graph.nodes[node] = {name: value for name, value in held.items() if value is not None}
            graph.placeholders.discard(node)
        for node in operations.ensure_nodes:
            if node not in graph.nodes:
                graph.nodes[node] = dict(zip(NODES[node[0]].key, node[1], strict=True))
                if node[0] == EVENT.label:
                    graph.placeholders.add(node)
        for type_, source, target, *_ in operations.remove_edges:
            graph.edges.pop((type_, source, target), None)
        for edge in operations.merge_edges.values():
            self._merge_edge(edge.type, edge.source, edge.target, edge.values)

    def _merge_edge(self, type_: str, source: Key, target: Key, properties: Properties) -> None:
        row = EDGES[type_]
        if (row.source, source) not in self._graph.nodes or (
            row.target,
            target,
        ) not in self._graph.nodes:
            return
        place = (type_, source, target)
        copies = list(self._graph.edges.get(place, ()))
        matching = [
            n
            for n, copy in enumerate(copies)
            if all(copy.get(name) == properties[name] for name in row.key)
        ]
        for n in matching:
            copies[n] = {**copies[n], **properties}
        self._graph.edges[place] = tuple(copies if matching else [*copies, properties])

    def add_dead_letter(self, stage: str, partition: int, seq: int, **fields: Any) -> None:
        self._graph.dead_letters[stage, partition, seq] = fields

    def drop_later_dead_letters(self, stage: str, partition: int, seq: int) -> None:
        later = [
            place
            for place in self._graph.dead_letters
            if place[:2] == (stage, partition) and place[2] > seq
        ]
        for place in later:
            del self._graph.dead_letters[place]

    def drop_dead_letters(self, stage: str, partition: int, seqs: Sequence[int]) -> None:
        for seq in seqs:
            self._graph.dead_letters.pop((stage, partition, seq), None)
