"""Tables of the graph in memory: nodes, edges, their indexes, and a log to take changes back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy
import numpy.typing

from pipelines.graph.rows import End
from projections.identity import Link, SessionKey
from projections.operations import Key
from projections.schema import EDGES, NODES

CHAIN: Final = ("tenant", "session_id", "occurred_at", "event_id")
"""The index that makes a label's nodes members of their sessions' chains."""

Values = dict[str, Any]
Pair = tuple[Key, str, Key]
"""Source, label of the target, target."""
_Undo = Callable[[], None]


Index = TypeVar("Index")


@dataclass(frozen=True, slots=True)
class StoredNode:
    """Values are never changed in place, so that a rollback puts the old node back."""

    values: Values
    visible: bool


@dataclass(slots=True)
class Vectors:
    """The vectors of one label and tenant, as rows of one array that grows by doubling."""

    keys: list[Key] = field(default_factory=list)
    places: dict[Key, int] = field(default_factory=dict)
    rows: numpy.typing.NDArray[numpy.float32] | None = None

    def put(self, key: Key, vector: numpy.typing.NDArray[numpy.float32]) -> None:
        """Hold a vector, scaled to unit length."""
        place = self.places.get(key)
        if place is None:
            place = self.places[key] = len(self.keys)
            self.keys.append(key)
        if self.rows is None:
            self.rows = numpy.zeros((64, len(vector)), numpy.float32)
        elif place >= len(self.rows):
            self.rows = numpy.concatenate([self.rows, numpy.zeros_like(self.rows)])
        norm = float(numpy.linalg.norm(vector))
        self.rows[place] = vector / norm if norm else vector

    def drop(self, key: Key) -> None:
        """Forget a vector, if it is held."""
        place = self.places.pop(key, None)
        if place is None or self.rows is None:
            return
        last = self.keys.pop()
        if last != key:  # the last one moves into the gap
            self.keys[place] = last
            self.places[last] = place
            self.rows[place] = self.rows[len(self.keys)]

    def nearest(self, vector: Sequence[float], most: int) -> list[tuple[Key, float]]:
        """The `most` keys of the largest cosines, the largest first; ties by key."""
        if self.rows is None or not self.keys:
            return []
        wanted = numpy.asarray(vector, numpy.float32)
        norm = float(numpy.linalg.norm(wanted))
        if not norm:
            return []
        cosines = self.rows[: len(self.keys)] @ (wanted / norm)
        if most < len(cosines):
            least = numpy.partition(cosines, -most)[-most]
            places = numpy.flatnonzero(cosines >= least)
        else:
            places = numpy.arange(len(cosines))
        ranked = sorted((-float(cosines[place]), self.keys[place]) for place in places)
        return [(key, -negative) for negative, key in ranked[:most]]


@dataclass(slots=True)
class Order:
    """The keys of a label's nodes that have all of some properties, in the order of these.

    Attributes:
        names: of the properties.
        tail: places of the key that are not among them, which decide between equals.
        places: values, then that part of the key, then the key; sorted, of any type.
    """

    names: tuple[str, ...]
    tail: tuple[int, ...]
    places: list[tuple[Any, ...]] = field(default_factory=list)

    def put(self, key: Key, node: StoredNode) -> None:
        """Take a node in, if it has all of the properties."""
        place = self._place(key, node)
        if place is not None:
            insort(self.places, place)

    def drop(self, key: Key, node: StoredNode) -> None:
        """Take a node out, as it was when it was taken in."""
        place = self._place(key, node)
        if place is not None:
            del self.places[bisect_left(self.places, place)]

    def behind(
        self, row: tuple[Any, ...], after: tuple[Any, ...], *, descending: bool
    ) -> Iterator[Key]:
        """The keys of nodes that begin with a row, behind a place, in their order."""
        low, high = self._range(row)
        if not descending:
            yield from self._keys(self._range((*row, *after))[1] if after else low, high)
            return
        groups, place = len(self.names), (*row, *after)
        if len(place) > groups:  # the rest of the group in which the place is
            start, end = self._range(place[:groups])
            yield from self._keys(self._range(place)[1], end)
            high = start
        elif after:
            high = self._range(place)[0]
        while high > low:
            values = self.places[high - 1][:groups]
            start = bisect_left(self.places, values, low, high, key=lambda place: place[:groups])
            yield from self._keys(start, high)
            high = start

    def _range(self, row: tuple[Any, ...]) -> tuple[int, int]:
        """Where the places are that begin with a row: the first, and the one behind the last."""
        start = _ranked(row)
        low = bisect_left(self.places, start)
        return low, bisect_right(self.places, start, low, key=lambda place: place[: len(start)])

    def _keys(self, low: int, high: int) -> Iterator[Key]:
        return (self.places[place][-1] for place in range(low, high))

    def _place(self, key: Key, node: StoredNode) -> tuple[Any, ...] | None:
        values = _picked(node, self.names)
        if None in values:
            return None
        return (*_ranked((*values, *(key[n] for n in self.tail))), key)


class Tables:
    """What the store holds, its indexes, and how to take back what a transaction changed."""

    def __init__(self) -> None:
        self.undo: list[_Undo] = []
        self.empty()

    def empty(self, keep: Collection[str] = ()) -> None:
        """Hold nothing but the nodes of some labels (without edges and chains), for good."""
        kept_nodes = {label: self.nodes[label] for label in keep}
        self.nodes: dict[str, dict[Key, StoredNode]] = {label: {} for label in NODES} | kept_nodes
        self.pairs: dict[str, dict[Pair, tuple[Values, ...]]] = {type_: {} for type_ in EDGES}
        self.targets: dict[str, dict[Key, dict[tuple[str, Key], None]]] = {t: {} for t in EDGES}
        self.sources: dict[str, dict[tuple[str, Key], dict[Key, None]]] = {t: {} for t in EDGES}
        self.parallel: dict[str, Counter[Key | tuple[str, Key]]] = {t: Counter() for t in EDGES}
        """Edges beside the first one of a pair, by the places of `targets` and of `sources`."""
        self.chains: dict[str, dict[SessionKey, list[Link]]] = {
            label: {} for label, row in NODES.items() if CHAIN in row.indexes
        }
        self.vectors: dict[str, dict[Any, Vectors]] = {}
        self.found_by: dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], set[Key]]] = {}
        self.orders: dict[tuple[str, tuple[str, ...]], Order] = {}

    def put_node(self, label: str, key: Key, node: StoredNode | None) -> None:
        """Replace a node, or take it away; its edges are the caller's business."""
        self._place_node(label, key, node)

    def _place_node(
        self, label: str, key: Key, node: StoredNode | None, *, log: bool = True
    ) -> None:
        table = self.nodes.setdefault(label, {})
        before = table.get(key)
        if node is None:
            table.pop(key, None)
        else:
            table[key] = node
        self._index(label, key, before, node)
        if log:
            self.undo.append(lambda: self._place_node(label, key, before, log=False))

    def put_pair(self, type_: str, pair: Pair, copies: tuple[Values, ...]) -> None:
        """Replace all edges of a type between two nodes."""
        self._place_pair(type_, pair, copies)

    def _place_pair(
        self, type_: str, pair: Pair, copies: tuple[Values, ...], *, log: bool = True
    ) -> None:
        source, label, target = pair
        table = self.pairs.setdefault(type_, {})
        before = table.get(pair, ())
        targets = self.targets.setdefault(type_, {})
        sources = self.sources.setdefault(type_, {})
        if copies:
            table[pair] = copies
            targets.setdefault(source, {})[label, target] = None
            sources.setdefault((label, target), {})[source] = None
        elif before:
            del table[pair]
            _take_out(targets, source, (label, target))
            _take_out(sources, (label, target), source)
        if more := max(len(copies), 1) - max(len(before), 1):
            for place in (source, (label, target)):
                self.parallel[type_][place] += more
        if log:
            self.undo.append(lambda: self._place_pair(type_, pair, before, log=False))

    def degree(self, type_: str, label: str, key: Key, by: End) -> int:
        """How many edges of a type a node has at the end `by`; `label` is its own."""
        parallel, degree = self.parallel[type_], 0
        if by is not End.TARGET:
            degree += len(self.targets[type_].get(key, ())) + parallel[key]
        if by is not End.SOURCE:
            degree += len(self.sources[type_].get((label, key), ())) + parallel[label, key]
        if by is End.EITHER:
            degree -= len(self.pairs[type_].get((key, label, key), ()))  # counted at both
        return degree

    def pairs_at(self, type_: str, label: str, key: Key) -> list[Pair]:
        """All pairs of a type that a node is an end of, on either side."""
        row = EDGES.get(type_)
        starts = row is None or row.source == label
        outgoing = [(key, *end) for end in self.targets[type_].get(key, ())] if starts else []
        incoming = [(source, label, key) for source in self.sources[type_].get((label, key), ())]
        return list(dict.fromkeys([*outgoing, *incoming]))

    def rollback(self) -> None:
        """Take back everything since the last commit, the latest change first."""
        undo, self.undo = self.undo, []
        for take_back in reversed(undo):
            take_back()

    def by(self, label: str, names: tuple[str, ...]) -> dict[tuple[Any, ...], set[Key]]:
        """The keys of a label's nodes by the values of some properties; kept from then on."""
        index = self.found_by.get((label, names))
        if index is None:
            index = self.found_by[label, names] = {}
            for key, node in self.nodes[label].items():
                index.setdefault(_picked(node, names), set()).add(key)
        return index

    def ordered(self, label: str, names: tuple[str, ...]) -> Order:
        """The nodes of a label along an index; kept from then on."""
        order = self.orders.get((label, names))
        if order is None:
            key_names = NODES[label].key
            tail = tuple(n for n, name in enumerate(key_names) if name not in names)
            order = self.orders[label, names] = Order(names, tail)
            for key, node in self.nodes[label].items():
                order.put(key, node)
        return order

    def vectors_of(self, label: str, tenant: Any) -> Vectors:
        """The vectors of a label and tenant; those of the label are kept from then on."""
        if label not in self.vectors:
            self.vectors[label] = {}
            for key, node in self.nodes[label].items():
                self._index_vector(label=label, key=key, before=None, after=node)
        return self.vectors[label].get(tenant) or Vectors()

    def _index(
        self, label: str, key: Key, before: StoredNode | None, after: StoredNode | None
    ) -> None:
        if label in self.chains:
            self._index_chain(label, key, before, after)
        for names, index in _moved(self.found_by, label, before, after):
            if before is not None:
                _discard(index, _picked(before, names), key)
            if after is not None:
                index.setdefault(_picked(after, names), set()).add(key)
        for _, order in _moved(self.orders, label, before, after):
            if before is not None:
                order.drop(key, before)
            if after is not None:
                order.put(key, after)
        if label in self.vectors:
            self._index_vector(label=label, key=key, before=before, after=after)

    def _index_chain(
        self, label: str, key: Key, before: StoredNode | None, after: StoredNode | None
    ) -> None:
        left, entered = _place(key, before), _place(key, after)
        if left == entered:
            return
        chains = self.chains[label]
        if left is not None:
            session, link = left
            chain = chains[session]
            del chain[bisect_left(chain, link)]
        if entered is not None:
            session, link = entered
            insort(chains.setdefault(session, []), link)

    def _index_vector(
        self, label: str, key: Key, before: StoredNode | None, after: StoredNode | None
    ) -> None:
        name = NODES[label].vector
        assert name is not None
        old = None if before is None else before.values.get(name)
        new = None if after is None else after.values.get(name)
        if new is old:
            return
        vectors = self.vectors[label].setdefault(key[0], Vectors())
        if new is None:
            vectors.drop(key)
        else:
            vectors.put(key, new)


def _place(key: Key, node: StoredNode | None) -> tuple[SessionKey, Link] | None:
    """Where a node stands in its chain; None: in none."""
    if node is None:
        return None
    session, occurred_at = node.values.get("session_id"), node.values.get("occurred_at")
    if session is None or occurred_at is None:
        return None
    return (key[0], session), Link(occurred_at, key[1])


def _ranked(values: Iterable[Any]) -> tuple[tuple[str, Any], ...]:
    """Values among others that may be of another type, where somebody else wrote one."""
    return tuple((type(value).__name__, value) for value in values)


def _picked(node: StoredNode, names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(node.values.get(name) for name in names)


def _take_out(index: dict[Any, dict[Any, None]], place: Any, member: Any) -> None:
    members = index[place]
    del members[member]
    if not members:
        del index[place]


def _moved(
    indexes: Mapping[tuple[str, tuple[str, ...]], Index],
    label: str,
    before: StoredNode | None,
    after: StoredNode | None,
) -> Iterator[tuple[tuple[str, ...], Index]]:
    """The indexes of a label in which a node has another place than before, each with its names.

    In a sorted list of all nodes the same place would be made free and taken again.
    """
    for (indexed, names), index in indexes.items():
        if indexed == label and not (
            before is not None
            and after is not None
            and _picked(before, names) == _picked(after, names)
        ):
            yield names, index


def _discard(index: dict[tuple[Any, ...], set[Key]], place: tuple[Any, ...], key: Key) -> None:
    index[place].discard(key)
    if not index[place]:
        del index[place]
