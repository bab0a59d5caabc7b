"""Graph operations: what a stage returns and the shell applies, and how a batch is merged.

Operations are idempotent sets. A batch is applied in one order: nodes by key, then removals, then
edges by key, so that two workers touch the same keys in the same order and deadlocks stay rare.

Values go by name, {property: value}: all that one stage owns of the schema's row and nothing else;
None removes a property, times are milliseconds since the epoch. An operation is checked against
its row where it is made, and raises `InvalidOperation` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple

from projections.errors import InvalidOperation
from projections.events import Event
from projections.positions import START, Position
from projections.schema import EDGES, NODES, EdgeRow, Kind, Merge, NodeRow, Property

Key = tuple[Any, ...]
Values = Mapping[str, Any]
Verb = Literal["merge", "set", "decide", "ensure", "remove"]

_set_field: Final = object.__setattr__  # of a frozen instance, in its own making


def _stage() -> Any:
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeValues:
    verb: ClassVar[Verb]
    label: str
    key: Key
    values: Values
    stage: str = _stage()
    """Which owns what is written; empty: whoever applies it."""

    def __post_init__(self) -> None:
        _set_field(self, "stage", _check_node(self.verb, self.label, self.key, self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeNode(_NodeValues):
    """Make a node visible and set the properties that its stage owns."""

    verb = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
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
        _set_field(self, "stage", _check_node("decide", self.label, self.key, values))


@dataclass(frozen=True, slots=True)
class EnsureNode:
    """See that a node exists, as a placeholder if need be, so that an edge may end there."""

    label: str
    key: Key
    stage: str = _stage()

    def __post_init__(self) -> None:
        _set_field(self, "stage", _check_node("ensure", self.label, self.key, {}))


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete a node with its edges."""

    label: str
    key: Key
    stage: str = _stage()

    def __post_init__(self) -> None:
        _set_field(self, "stage", _check_node("remove", self.label, self.key, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _EdgeValues:
    verb: ClassVar[Verb]
    type: str
    source: Key
    target: Key
    values: Values
    label: str = ""
    """Of the node where it ends, if it is not the row's `target`."""
    stage: str = _stage()
    """Which owns what is written; empty: whoever applies it."""

    def __post_init__(self) -> None:
        _set_field(self, "stage", _check_edge(self))

    @property
    def place(self) -> Key:
        """What tells the edge from all others, parallel ones too; sorts."""
        parallel = edge_key(self.type)(self.values) if self.values else ()
        return self.type, self.source, self.target, parallel, self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeEdge(_EdgeValues):
    """See that exactly this edge exists; `values` with those of `EdgeRow.key`."""

    verb = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveEdge(_EdgeValues):
    """Delete the stage's edges of the type between two nodes.

    `values` are those of `EdgeRow.key`, to delete one of several parallel edges; empty: all.
    """

    verb = "remove"
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetEdge(_EdgeValues):
    """Set the properties that a stage owns on an edge that another stage made; absent: nothing.

    `values` with those of `EdgeRow.key`.
    """

    verb = "set"


@dataclass(frozen=True, slots=True)
class ClearEdges:
    """Delete the stage's edges of the type that start at a node, before others are merged."""

    type: str
    source: Key
    stage: str = _stage()

    def __post_init__(self) -> None:
        _set_field(self, "stage", _cleared_by(self.type, *map(type, self.source)))


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


# -- the rules -------------------------------------------------------------------------------------

_TYPES: Final[Mapping[Kind, tuple[type, ...]]] = {
    Kind.STRING: (str,),
    Kind.INTEGER: (int,),
    Kind.FLOAT: (float,),
    Kind.BOOLEAN: (bool,),
    Kind.TIME: (int,),
    Kind.STRINGS: (list, tuple),
    Kind.INTEGERS: (list, tuple),
    Kind.TIMES: (list, tuple),
    Kind.VECTOR: (list, tuple),
}
"""Exact types: to the graph 1, 1.0 and true are three values, and so they are to a digest."""
_ELEMENTS: Final[Mapping[Kind, type]] = {
    Kind.STRINGS: str,
    Kind.INTEGERS: int,
    Kind.TIMES: int,
    Kind.VECTOR: float,
}


class _Verdict(NamedTuple):
    """What is left to know of operations with the same names and types, which are right.

    Attributes:
        stage: which owns what they write; empty: whoever applies them.
        lists: properties whose elements are to be looked at, by kind.
        shared: the property that tells the stages of a shared type apart, and the stages by value.
    """

    stage: str
    lists: tuple[tuple[str, Kind], ...] = ()
    shared: tuple[str, Mapping[str, str]] | None = None


def _check_node(verb: Verb, label: str, key: Key, values: Values) -> str:
    """The stage that owns the values."""
    # one look into a dictionary, whatever the number of values: 5,000 events a second come by here
    types = map(type, values.values())
    verdict = _node_verdict(verb, label, len(values), *map(type, key), *values, *types)
    if verdict.lists:
        _check_elements(label, verdict.lists, values)
    return verdict.stage


def _check_edge(edge: _EdgeValues) -> str:
    """The stage that owns the edge or its values."""
    source, values = edge.source, edge.values
    verdict = _edge_verdict(
        edge.verb,
        edge.type,
        edge.label,
        len(source),
        len(values),
        *map(type, source),
        *map(type, edge.target),
        *values,
        *map(type, values.values()),
    )
    if verdict.lists:
        _check_elements(edge.type, verdict.lists, values)
    if verdict.shared is None:
        return verdict.stage
    name, stages = verdict.shared
    stage = stages.get(values[name], "")
    if not stage or verdict.stage not in ("", stage):
        raise InvalidOperation(
            element=edge.type, field=name, rule=f"is {values[name]!r}, not of {verdict.stage}"
        )
    return stage


def _check_elements(element: str, lists: Iterable[tuple[str, Kind]], values: Values) -> None:
    for name, kind in lists:
        types = set(map(type, values[name]))
        if types and types != {_ELEMENTS[kind]}:
            raise _wrong_type(element, name, kind, types)


@cache
def _node_verdict(verb: Verb, label: str, width: int, *signature: Any) -> _Verdict:
    """Judge operations by types of the key, `width` names and as many types of values."""
    row = NODES.get(label)
    if row is None:
        raise InvalidOperation(element=label, field="label", rule="is no row of the schema")
    depth = len(signature) - 2 * width
    _check_key(label, row, signature[:depth])
    types = dict(zip(signature[depth : depth + width], signature[depth + width :], strict=True))
    if verb == "ensure" and row.placeholder is None:
        raise InvalidOperation(element=label, field="label", rule="has no placeholders")
    if verb in ("ensure", "remove"):
        return _Verdict("")
    stage = _only_stage(label, row.properties, types, ()) or row.stage
    if verb == "decide":
        expected = tuple(p for p in row.properties if p.merge is Merge.DECIDED and p.name in types)
    else:
        expected = row.owned(stage)
    if verb == "merge" and stage != row.stage:
        rule = f"belongs to {stage}, nodes are made by {row.stage}"
        raise InvalidOperation(element=label, field=min(types), rule=rule)
    return _Verdict(stage, _check_values(label, expected, types, row.key))


@cache
def _edge_verdict(
    verb: Verb, type_: str, label: str, depth: int, width: int, *signature: Any
) -> _Verdict:
    """Judge operations by types of both keys, the first of `depth`, then as for nodes."""
    row = _edge_row(type_)
    ends = len(signature) - 2 * width
    types = dict(zip(signature[ends : ends + width], signature[ends + width :], strict=True))
    if label not in ("", row.target, row.other_target):
        raise InvalidOperation(element=type_, field="label", rule=f"ends at no {label}")
    _check_key(type_, NODES[row.source], signature[:depth])
    _check_key(type_, NODES[label or row.target], signature[depth:ends])
    shared = row.shared_by and (
        row.shared_by[0],
        {value: stage for stage, value in row.shared_by[1].items()},
    )
    if verb == "remove":
        if not types:
            return _Verdict("" if row.shared_by else row.stage)
        expected = tuple(p for p in row.properties if p.name in row.key)
        lists = _check_values(type_, expected, types, row.key)
        return _Verdict("" if row.shared_by else row.stage, lists, shared)
    stage = _only_stage(type_, row.properties, types, row.key) or row.stage
    if verb == "merge" and not row.written_by(stage):
        rule = f"belongs to {stage}, edges are made by {row.stage}"
        raise InvalidOperation(element=type_, field=min(types), rule=rule)
    return _Verdict(stage, _check_values(type_, row.carried(stage), types, row.key), shared)


@cache
def _cleared_by(type_: str, *source: type) -> str:
    row = _edge_row(type_)
    _check_key(type_, NODES[row.source], source)
    return "" if row.shared_by else row.stage


def _edge_row(type_: str) -> EdgeRow:
    row = EDGES.get(type_)
    if row is None:
        raise InvalidOperation(element=type_, field="type", rule="is no row of the schema")
    return row


def _check_key(element: str, row: NodeRow, types: tuple[type, ...]) -> None:
    names = ", ".join(row.key)
    if len(types) != len(row.key):
        rule = f"of {row.label} is ({names}), has {len(types)} parts"
        raise InvalidOperation(element=element, field="key", rule=rule)
    if not {str, int}.issuperset(types):
        listed = ", ".join(one.__name__ for one in types)
        rule = f"of {row.label} is ({names}), strings or integers, has ({listed})"
        raise InvalidOperation(element=element, field="key", rule=rule)


def _only_stage(
    element: str,
    properties: Iterable[Property],
    names: Iterable[str],
    key: tuple[str, ...],
) -> str:
    """The stage that owns the named properties, those of an edge's key aside; empty: none named."""
    owner = {p.name: p.stage for p in properties}
    stages: dict[str, str] = {}
    for name in names:
        if name not in owner:
            raise InvalidOperation(element=element, field=name, rule="is no property of the row")
        if name not in key:
            stages.setdefault(owner[name], name)
    if len(stages) > 1:
        (first, _), (second, name) = list(stages.items())[:2]
        rule = f"belongs to {second}, others to {first}"
        raise InvalidOperation(element=element, field=name, rule=rule)
    return next(iter(stages), "")


def _check_values(
    element: str,
    expected: Iterable[Property],
    types: Mapping[str, type],
    key: tuple[str, ...],
) -> tuple[tuple[str, Kind], ...]:
    """See that exactly what is expected is there, in its types; the lists among them."""
    kinds = {p.name: p.kind for p in expected}
    for name in types:
        if name not in kinds:
            raise InvalidOperation(element=element, field=name, rule="is not written by this")
    lists = []
    for name, kind in kinds.items():
        if name not in types:
            raise InvalidOperation(element=element, field=name, rule="is missing")
        if types[name] is type(None) and name not in key:
            continue
        if types[name] not in _TYPES[kind]:
            raise _wrong_type(element, name, kind, {types[name]})
        if kind in _ELEMENTS:
            lists.append((name, kind))
    return tuple(lists)


def _wrong_type(element: str, name: str, kind: Kind, types: Iterable[type]) -> InvalidOperation:
    listed = ", ".join(sorted(one.__name__ for one in types))
    return InvalidOperation(element=element, field=name, rule=f"must be {kind}, is {listed}")


# -- reading values in order -----------------------------------------------------------------------


@cache
def node_values(label: str, stage: str) -> Callable[[Values], tuple[Any, ...]]:
    """What reads the values of a stage's operations on nodes in the order of the schema's row."""
    return _in_order([p.name for p in NODES[label].owned(stage)])


@cache
def edge_values(type_: str, stage: str) -> Callable[[Values], tuple[Any, ...]]:
    """What reads the values of a stage's operations on edges in the order of the schema's row."""
    return _in_order([p.name for p in EDGES[type_].carried(stage)])


@cache
def edge_key(type_: str) -> Callable[[Values], tuple[Any, ...]]:
    """What reads the values that tell parallel edges apart, in the order of `EdgeRow.key`."""
    return _in_order(EDGES[type_].key)


def _in_order(names: Sequence[str]) -> Callable[[Values], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    if names:
        (name,) = names
        return lambda values: (values[name],)
    return lambda values: ()


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

    def add(self, operation: Operation) -> None:
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
            known = self.decide_nodes.get(place)
            if known is None or known.position < operation.position:
                self.decide_nodes[place] = operation
        else:
            self.remove_nodes[operation.label, operation.key] = operation

    def _belong_to(self, operation: Operation) -> None:
        if self.stage:
            element = getattr(operation, "type", "") or getattr(operation, "label", "")
            rule = f"is {operation.stage}, the batch is of {self.stage}; see `on_behalf_of`"
            raise InvalidOperation(element=element, field="stage", rule=rule)
        self.stage = operation.stage

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
