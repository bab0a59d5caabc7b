"""Graph operations: what a stage returns and the shell applies, and how a batch is merged.

Operations are idempotent sets. A batch is applied in one order: nodes by key, then removals, then
edges by key, so that two workers touch the same keys in the same order and deadlocks stay rare.

Values go by name, {property: value}: all that one stage owns of the schema's row and nothing else;
None removes a property, times are milliseconds since the epoch. An operation is checked against
its row where it is made, and raises `InvalidOperation` there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

from projections.errors import InvalidOperation
from projections.events import Event
from projections.identity import START, Position
from projections.identity import Key as Key
from projections.operation_rules import (
    Values,
    Verb,
    cleared_stage,
    edge_key,
    edge_stage,
    node_stage,
)
from projections.schema import EDGES

_NOTHING: Final[Values] = {}
_set_field: Final = object.__setattr__  # of a frozen instance, in its own making


def _stage() -> Any:
    return field(init=False, repr=False, compare=False)


def _setters(kind: type) -> Iterator[Any]:
    """What fills the slots: thousands a second are made, and each is spared a look by name."""
    return (vars(kind)[slot.name].__set__ for slot in fields(kind))


@dataclass(frozen=True, slots=True, init=False)
class _NodeValues:
    verb: ClassVar[Verb]
    label: str
    key: Key
    values: Values
    stage: str = _stage()
    """Which owns what is written; empty: whoever applies it."""

    def __init__(self, *, label: str, key: Key, values: Values) -> None:
        _set_label(self, label)
        _set_key(self, key)
        _set_node_values(self, values)
        _set_node_stage(self, node_stage(self.verb, label, key, values))


_set_label, _set_key, _set_node_values, _set_node_stage = _setters(_NodeValues)


@dataclass(frozen=True, slots=True, init=False)
class MergeNode(_NodeValues):
    """Make a node visible and set the properties that its stage owns."""

    verb = "merge"


@dataclass(frozen=True, slots=True, init=False)
class SetNode(_NodeValues):
    """Set the properties that a stage owns on a node that another stage made; absent: nothing."""

    verb = "set"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideNode:
    """Set one decided property; of two decisions the one with the later position stays."""

    label: str
    key: Key
    name: str
    value: Any
    position: Position
    stage: str = _stage()

    def __post_init__(self) -> None:
        values = {self.name: self.value}
        _set_field(self, "stage", node_stage("decide", self.label, self.key, values))


@dataclass(frozen=True, slots=True)
class EnsureNode:
    """See that a node exists, as a placeholder if need be, so that an edge may end there."""

    label: str
    key: Key
    stage: str = _stage()

    def __post_init__(self) -> None:
        _set_field(self, "stage", node_stage("ensure", self.label, self.key, {}))


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete a node with its edges."""

    label: str
    key: Key
    stage: str = _stage()

    def __post_init__(self) -> None:
        _set_field(self, "stage", node_stage("remove", self.label, self.key, {}))


@dataclass(frozen=True, slots=True, init=False)
class _EdgeValues:
    verb: ClassVar[Verb]
    type: str
    source: Key
    target: Key
    values: Values
    label: str
    """Of the node where it ends, if it is not the row's `target`."""
    stage: str = _stage()
    """Which owns what is written; empty: whoever applies it."""

    def __init__(
        self,
        *,
        type: str,
        source: Key,
        target: Key,
        values: Values = _NOTHING,
        label: str = "",
    ) -> None:
        _set_type(self, type)
        _set_source(self, source)
        _set_target(self, target)
        _set_edge_values(self, values)
        _set_end(self, label)
        stage = edge_stage(
            self.verb, type, source=source, target=target, values=values, label=label
        )
        _set_edge_stage(self, stage)

    @property
    def place(self) -> Key:
        """What tells the edge from all others, parallel ones too; sorts."""
        parallel = edge_key(self.type)(self.values) if self.values else ()
        return self.type, self.source, self.target, parallel, self.label


_set_type, _set_source, _set_target, _set_edge_values, _set_end, _set_edge_stage = _setters(
    _EdgeValues
)


@dataclass(frozen=True, slots=True, init=False)
class MergeEdge(_EdgeValues):
    """See that exactly this edge exists; `values` with those of `EdgeRow.key`."""

    verb = "merge"


@dataclass(frozen=True, slots=True, init=False)
class SetEdge(_EdgeValues):
    """Set the properties that a stage owns on an edge that another stage made; absent: nothing.

    `values` with those of `EdgeRow.key`.
    """

    verb = "set"


@dataclass(frozen=True, slots=True, init=False)
class RemoveEdge(_EdgeValues):
    """Delete the stage's edges of the type between two nodes.

    `values` are those of `EdgeRow.key`, to delete one of several parallel edges; empty: all.
    """

    verb = "remove"


@dataclass(frozen=True, slots=True)
class ClearEdges:
    """Delete the stage's edges of the type that start at a node, before others are merged."""

    type: str
    source: Key
    stage: str = _stage()

    def __post_init__(self) -> None:
        _set_field(self, "stage", cleared_stage(self.type, self.source))


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


# -- a batch ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Operations:
    """A batch, merged as it grows: the last word about a node or an edge wins.

    Attributes:
        stage: which owns what is written; empty: that of the first operation that writes anything.
    """

    stage: str = ""

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

    def add(self, operation: Operation) -> None:  # noqa: C901 - a branch a kind, most frequent first
        """Take an operation in.

        Raises:
            InvalidOperation: if it writes what another stage owns than the rest of the batch.
        """
        if operation.stage and operation.stage != self.stage:
            self._belong_to(operation)
        if isinstance(operation, MergeEdge):
            place = operation.place
            before = self.merge_edges.setdefault(place, operation)
            if before is not operation:
                self.merge_edges[place] = _last_of(before, operation)
        elif isinstance(operation, MergeNode):
            self.merge_nodes[operation.label, operation.key] = operation
        elif isinstance(operation, RemoveEdge):
            self.remove_edges[operation.place] = operation
        elif isinstance(operation, EnsureNode):
            self.ensure_nodes[operation.label, operation.key] = operation
        elif isinstance(operation, SetNode):
            self.set_nodes[operation.label, operation.key] = operation
        elif isinstance(operation, SetEdge):
            self.set_edges[operation.place] = operation
        elif isinstance(operation, ClearEdges):
            self.clear_edges[operation.type, operation.source] = operation
        elif isinstance(operation, DecideNode):
            place = (operation.label, operation.key, operation.name)
            earlier = self.decide_nodes.get(place)
            if earlier is None or earlier.position < operation.position:
                self.decide_nodes[place] = operation
        else:
            self.remove_nodes[operation.label, operation.key] = operation

    def _belong_to(self, operation: Operation) -> None:
        if self.stage:
            element = getattr(operation, "type", "") or getattr(operation, "label", "")
            rule = f"is {operation.stage}, the batch is of {self.stage}; see `on_behalf_of`"
            raise InvalidOperation(element=element, field="stage", rule=rule)
        self.stage = operation.stage

    def require_stage(self, stage: str) -> None:
        """See that a stage may apply the batch.

        Raises:
            InvalidOperation: another stage owns what it writes.
        """
        if self.stage not in ("", stage):
            rule = f"is {self.stage}, {stage} applies the batch"
            raise InvalidOperation(element="the batch", field="stage", rule=rule)

    def on_behalf_of(self, stage: str) -> Operations:
        """Where to add operations on what another stage owns."""
        return self.others.setdefault(stage, Operations(stage))

    def extend(self, operations: Iterable[Operation]) -> None:
        """Take several in, in order."""
        for operation in operations:
            self.add(operation)

    def __iter__(self) -> Iterator[Operation]:
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
        counted = {
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
        parts = [counted, *(other.counts() for other in self.others.values())]
        return {kind: sum(counts[kind] for counts in parts) for kind in counted}


def _last_of(before: MergeEdge, after: MergeEdge) -> MergeEdge:
    """Of two words about an edge the last, or that of the later decision."""
    by = EDGES[after.type].decided_by
    if by is not None and tuple(after.values[by]) <= tuple(before.values[by]):
        return before
    return after


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
