"""What the schema's rows say of an operation: whose it is, and whether it is right.

Operations with the same names and types obey the same rules, so those are worked out once; then an
operation costs a look into a dictionary and its lists a look at their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

from projections.errors import InvalidOperation
from projections.identity import Key
from projections.schema import EDGES, NODES, EdgeRow, Kind, Merge, NodeRow, Property

Values = Mapping[str, Any]
"""By the names of properties."""
Verb = Literal["merge", "set", "decide", "ensure", "remove"]


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


def node_stage(verb: Verb, label: str, key: Key, values: Values) -> str:
    """Which stage owns what an operation writes; empty: whoever applies it.

    Raises:
        InvalidOperation: if the operation is not what the row says.
    """
    types = map(type, (*key, *values.values()))
    verdict = _node_verdict((verb, label, len(values), *values, *types))
    if verdict.lists:
        _check_elements(label, verdict.lists, values)
    return verdict.stage


def edge_stage(
    verb: Verb, type_: str, *, source: Key, target: Key, values: Values, label: str
) -> str:
    """Which stage owns what an operation writes; empty: whoever applies it.

    Raises:
        InvalidOperation: if the operation is not what the row says.
    """
    types = map(type, (*source, *target, *values.values()))
    verdict = _edge_verdict((verb, type_, label, len(source), len(values), *values, *types))
    if verdict.lists:
        _check_elements(type_, verdict.lists, values)
    if verdict.shared is None:
        return verdict.stage
    name, stages = verdict.shared
    stage = stages.get(values[name], "")
    if not stage or verdict.stage not in ("", stage):
        writer = f"{verdict.stage} does not write" if verdict.stage else "no stage writes"
        rule = f"is {values[name]!r}, which {writer}"
        raise InvalidOperation(element=type_, field=name, rule=rule)
    return stage


def _check_elements(element: str, lists: Iterable[tuple[str, Kind]], values: Values) -> None:
    for name, kind in lists:
        dtype = getattr(values[name], "dtype", None)  # an array's elements are of one type
        if dtype is None:
            types = set(map(type, values[name]))
        else:
            types = {float} if dtype.kind == "f" else {dtype.type}
        if types and types != {_ELEMENTS[kind]}:
            raise _wrong_type(element, name, kind, types)


@cache
def _node_verdict(signature: tuple[Any, ...]) -> _Verdict:
    """Judge by verb, label, number of values, names, types of the key and of the values."""
    verb, label, width, *given = signature
    names, given = given[:width], given[width:]
    row = NODES.get(label)
    if row is None:
        raise InvalidOperation(element=label, field="label", rule="is no row of the schema")
    depth = len(given) - width
    _check_key(label, row, given[:depth])
    types = dict(zip(names, given[depth:], strict=True))
    if verb == "ensure" and row.placeholder is None:
        raise InvalidOperation(element=label, field="label", rule="has no placeholders")
    if verb in ("ensure", "remove"):
        return _Verdict("")
    stage = _only_stage(label, row.properties, types, ()) or row.stage
    expected, other = row.owned(stage), "is decided, by `DecideNode` alone"
    if verb == "decide":
        expected = tuple(p for p in row.properties if p.merge is Merge.DECIDED and p.name in types)
        other = "is not decided"
    if verb == "merge" and stage != row.stage:
        rule = f"belongs to {stage}, nodes are made by {row.stage}"
        raise InvalidOperation(element=label, field=min(types), rule=rule)
    return _Verdict(stage, _check_values(label, expected, types, other=other))


@cache
def _edge_verdict(signature: tuple[Any, ...]) -> _Verdict:
    """Judge by verb, type, label, parts of the source's key, then as for nodes, with both keys."""
    verb, type_, label, depth, width, *given = signature
    names, given = given[:width], given[width:]
    row = _edge_row(type_)
    ends = len(given) - width
    types = dict(zip(names, given[ends:], strict=True))
    if label not in ("", row.target, row.other_target):
        raise InvalidOperation(element=type_, field="label", rule=f"ends at no {label}")
    _check_key(type_, NODES[row.source], given[:depth])
    _check_key(type_, NODES[label or row.target], given[depth:ends])
    shared = row.shared_by and (
        row.shared_by[0],
        {value: stage for stage, value in row.shared_by[1].items()},
    )
    if verb == "remove":
        if not types:
            return _Verdict("" if row.shared_by else row.stage)
        expected = tuple(p for p in row.properties if p.name in row.key)
        lists = _check_values(type_, expected, types, key=row.key, other="is not of the key")
        return _Verdict("" if row.shared_by else row.stage, lists, shared)
    stage = _only_stage(type_, row.properties, types, row.key) or row.stage
    if verb == "merge" and not row.written_by(stage):
        rule = f"belongs to {stage}, edges are made by {row.stage}"
        raise InvalidOperation(element=type_, field=min(types), rule=rule)
    return _Verdict(stage, _check_values(type_, row.carried(stage), types, key=row.key), shared)


def cleared_stage(type_: str, source: Key) -> str:
    """Which stage owns the edges of a type that start at a node; empty: several own some.

    Raises:
        InvalidOperation: if there is no such type, or it starts at no such node.
    """
    row = _edge_row(type_)
    _check_key(type_, NODES[row.source], [type(part) for part in source])
    return "" if row.shared_by else row.stage


def _edge_row(type_: str) -> EdgeRow:
    row = EDGES.get(type_)
    if row is None:
        raise InvalidOperation(element=type_, field="type", rule="is no row of the schema")
    return row


def _check_key(element: str, row: NodeRow, types: Sequence[type]) -> None:
    names = ", ".join(row.key)
    if len(types) != len(row.key):
        rule = f"of {row.label} is ({names}), has {len(types)} parts"
        raise InvalidOperation(element=element, field="key", rule=rule)
    if not {str, int}.issuperset(types):
        listed = ", ".join(type_.__name__ for type_ in types)
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
    *,
    key: tuple[str, ...] = (),
    other: str = "is not written with the rest",
) -> tuple[tuple[str, Kind], ...]:
    """See that exactly what is expected is there, in its types; the lists among them.

    `other` says what is wrong with a property of the row that is not expected.
    """
    kinds = {p.name: p.kind for p in expected}
    for name in types:
        if name not in kinds:
            raise InvalidOperation(element=element, field=name, rule=other)
    lists = []
    for name, kind in kinds.items():
        if name not in types:
            raise InvalidOperation(element=element, field=name, rule="is missing")
        if types[name] is type(None) and name not in key:
            continue
        if types[name] not in _TYPES[kind] and not (kind is Kind.VECTOR and _is_array(types[name])):
            raise _wrong_type(element, name, kind, {types[name]})
        if kind in _ELEMENTS:
            lists.append((name, kind))
    return tuple(lists)


def _is_array(type_: type) -> bool:
    """Whether it is numpy's, which nothing here needs to load."""
    return (type_.__module__, type_.__name__) == ("numpy", "ndarray")


def _wrong_type(element: str, name: str, kind: Kind, types: Iterable[type]) -> InvalidOperation:
    listed = ", ".join(sorted(type_.__name__ for type_ in types))
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
