"""Graph operations: what a stage returns and the shell applies, and how a batch is merged.

Operations are idempotent sets. A batch is applied in one order: nodes by key, then removals, then
edges by key, so that two workers touch the same keys in the same order and deadlocks stay rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from projections.events import Event
from projections.positions import START, Position

Key = tuple[Any, ...]


class MergeNode(NamedTuple):
    """Make a node visible and set the properties that its stage owns; None removes a property.

    `values` stand in the order of `NodeRow.owned(stage)`; times are milliseconds since the epoch.
    """

    label: str
    key: Key
    values: tuple[Any, ...]


class SetNode(NamedTuple):
    """Set the properties that a stage owns on a node that another stage made; absent: nothing."""

    label: str
    key: Key
    values: tuple[Any, ...]


class DecideNode(NamedTuple):
    """Set one decided property; of two decisions the one with the later position stays."""

    label: str
    key: Key
    name: str
    value: Any
    position: Position


class EnsureNode(NamedTuple):
    """See that a node exists, as a placeholder if need be, so that an edge may end there."""

    label: str
    key: Key


class RemoveNode(NamedTuple):
    """Delete a node with its edges."""

    label: str
    key: Key


class MergeEdge(NamedTuple):
    """See that exactly this edge exists; `values` in the order of `EdgeRow.carried(stage)`.

    `label` is that of the node where it ends, if it is not the row's `target`.
    """

    type: str
    source: Key
    target: Key
    values: tuple[Any, ...]
    label: str = ""


class RemoveEdge(NamedTuple):
    """Delete the stage's edges of the type between two nodes.

    `values` are those of `EdgeRow.key`, to delete one of several parallel edges; empty: all.
    `label` is that of the node where it ends, if it is not the row's `target`.
    """

    type: str
    source: Key
    target: Key
    values: tuple[Any, ...] = ()
    label: str = ""


class SetEdge(NamedTuple):
    """Set the properties that a stage owns on an edge that another stage made; absent: nothing.

    `values` in the order of `EdgeRow.carried(stage)`, the edge's key first.
    """

    type: str
    source: Key
    target: Key
    values: tuple[Any, ...]


class ClearEdges(NamedTuple):
    """Delete the stage's edges of the type that start at a node, before others are merged."""

    type: str
    source: Key


Operation = (
    MergeNode
    | SetNode
    | DecideNode
    | EnsureNode
    | RemoveNode
    | MergeEdge
    | SetEdge
    | RemoveEdge
    | ClearEdges
)


@dataclass(slots=True)
class Operations:
    """A batch, merged as it grows: the last word about a node or an edge wins."""

    merge_nodes: dict[tuple[str, Key], MergeNode] = field(default_factory=dict)
    set_nodes: dict[tuple[str, Key], SetNode] = field(default_factory=dict)
    decide_nodes: dict[tuple[str, Key, str], DecideNode] = field(default_factory=dict)
    ensure_nodes: dict[tuple[str, Key], EnsureNode] = field(default_factory=dict)
    remove_nodes: dict[tuple[str, Key], RemoveNode] = field(default_factory=dict)
    merge_edges: dict[tuple[Any, ...], MergeEdge] = field(default_factory=dict)
    set_edges: dict[tuple[Any, ...], SetEdge] = field(default_factory=dict)
    remove_edges: dict[tuple[Any, ...], RemoveEdge] = field(default_factory=dict)
    clear_edges: dict[tuple[Any, ...], ClearEdges] = field(default_factory=dict)
    others: dict[str, Operations] = field(default_factory=dict)
    """By stage, operations on what another stage owns; applied after all else."""
    decisions: list[Event] = field(default_factory=list)
    """Events to append to the ledger, if this worker may decide; applied when read back."""
    questions: list[Any] = field(default_factory=list)
    """What the stage's rules looked at, for `Stage.answer` to decide the rest after the commit."""

    def add(self, operation: Operation) -> None:
        """Take an operation in."""
        if isinstance(operation, MergeEdge):
            self.merge_edges[operation] = operation
        elif isinstance(operation, MergeNode):
            self.merge_nodes[operation.label, operation.key] = operation
        elif isinstance(operation, RemoveEdge):
            self.remove_edges[operation] = operation
        elif isinstance(operation, EnsureNode):
            self.ensure_nodes[operation.label, operation.key] = operation
        elif isinstance(operation, SetNode):
            self.set_nodes[operation.label, operation.key] = operation
        elif isinstance(operation, SetEdge):
            self.set_edges[operation] = operation
        elif isinstance(operation, ClearEdges):
            self.clear_edges[operation] = operation
        elif isinstance(operation, DecideNode):
            place = (operation.label, operation.key, operation.name)
            known = self.decide_nodes.get(place)
            if known is None or known.position < operation.position:
                self.decide_nodes[place] = operation
        else:
            self.remove_nodes[operation.label, operation.key] = operation

    def on_behalf_of(self, stage: str) -> Operations:
        """Where to add operations on what another stage owns."""
        return self.others.setdefault(stage, Operations())

    def extend(self, operations: Iterable[Operation]) -> None:
        """Take several in, in order."""
        for operation in operations:
            self.add(operation)

    def __iter__(self) -> Any:
        """All of them, in the order in which they are applied."""
        for group in (
            self.remove_nodes,
            self.merge_nodes,
            self.ensure_nodes,
            self.set_nodes,
            self.decide_nodes,
            self.clear_edges,
            self.remove_edges,
            self.merge_edges,
            self.set_edges,
        ):
            yield from (group[key] for key in sorted(group))
        for stage in sorted(self.others):
            yield from self.others[stage]

    def __len__(self) -> int:
        """How many."""
        return sum(self.counts().values())

    def counts(self) -> Mapping[str, int]:
        """How many of each kind, for the metrics."""
        own = {
            "merge_node": len(self.merge_nodes),
            "set_node": len(self.set_nodes),
            "decide_node": len(self.decide_nodes),
            "ensure_node": len(self.ensure_nodes),
            "remove_node": len(self.remove_nodes),
            "merge_edge": len(self.merge_edges),
            "set_edge": len(self.set_edges),
            "remove_edge": len(self.remove_edges),
            "clear_edges": len(self.clear_edges),
        }
        found = [own, *(other.counts() for other in self.others.values())]
        return {kind: sum(one[kind] for one in found) for kind in own}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a stage has folded a partition into a target.

    Attributes:
        seq: number of the entry at `position` within its partition, 0 before the first.
        digest: hex of `content_digest` of that entry, empty before the first.
        generation: rises at every reset, so that a worker of before the reset is fenced off.
        fold_version: of the stage's rules that folded the graph.
        models: which models it depends on beside the rules; empty: none.
    """

    stage: str
    partition: int
    position: Position = START
    seq: int = 0
    digest: str = ""
    generation: int = 1
    fold_version: int = 1
    models: str = ""
