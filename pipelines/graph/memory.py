"""The graph in memory: the port's other store, for proofs, simulations, tests and small machines.

It merges as `cypher.py` says, row by row of the schema, and nothing is approximate in it: nearest
neighbours are computed from all vectors of a tenant. Transactions come one at a time; what two at
once do to each other can be shown on Neo4j only.
"""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import Any, Final, cast

import numpy
import numpy.typing

from pipelines.graph.feed import (
    FEED_BYTES,
    FEED_KEPT,
    MOST_CHANGES,
    Touched,
    changes_of,
    encode,
)
from pipelines.graph.port import UNBOUNDED, scanned
from pipelines.graph.rows import (
    Census,
    Changes,
    Counts,
    End,
    FeedPlace,
    FoundEdge,
    FoundNode,
    Span,
)
from pipelines.graph.tables import Pair, StoredNode, Tables, Values
from projections.errors import ChangesLost, Fenced
from projections.identity import Link, Position
from projections.operations import Checkpoint, Key, MergeEdge, Operations
from projections.schema import (
    CHECKPOINT,
    DEAD_LETTER,
    DECIDED_AT,
    EDGES,
    EVENT,
    FORGOTTEN,
    NODES,
    TENANT_TERM,
    EdgeRow,
    Merge,
    NodeRow,
    constraint_names,
    index_definitions,
    tenant_term,
)


class _Reads:
    """`port.Reads` over the tables; a lock is held for each question."""

    def __init__(self, tables: Tables, lock: threading.RLock) -> None:
        self._tables = tables
        self._lock = lock

    def nodes(
        self, label: str, keys: Iterable[Key], properties: Sequence[str] = ()
    ) -> dict[Key, FoundNode]:
        with self._lock:
            table = self._tables.nodes[label]
            present = ((key, table.get(key)) for key in map(tuple, keys))
            return {
                key: _shown(label, key, node, properties)
                for key, node in present
                if node is not None
            }

    def find(
        self,
        label: str,
        by: Sequence[str],
        rows: Iterable[Sequence[Any]],
        properties: Sequence[str] = (),
    ) -> dict[tuple[Any, ...], list[FoundNode]]:
        with self._lock:
            index = self._tables.by(label, tuple(by))
            table = self._tables.nodes[label]
            columns = next(one for one in NODES[label].indexes if one[: len(by)] == tuple(by))
            answer = {}
            for row in map(tuple, rows):
                keys = sorted(
                    key
                    for key in index.get(row, ())
                    if table[key].visible and _has_all(table[key], columns)
                )
                if keys:
                    answer[row] = [_shown(label, key, table[key], properties) for key in keys]
            return answer

    def scan(
        self,
        label: str,
        by: Sequence[str],
        rows: Iterable[Sequence[Any]],
        properties: Sequence[str] = (),
        *,
        least: Mapping[str, Any] = UNBOUNDED,
        most: Mapping[str, Any] = UNBOUNDED,
        after: Sequence[Any] = (),
        descending: bool = False,
        limit: int,
    ) -> dict[tuple[Any, ...], list[FoundNode]]:
        index = scanned(label, by)
        with self._lock:
            table = self._tables.nodes[label]
            order = self._tables.ordered(label, index)
            answer = {}
            for row in map(tuple, rows):
                places = order.behind(row, tuple(after), descending=descending)
                keys = (key for key in places if _is_within(table[key].values, least, most))
                nodes = [_shown(label, key, table[key], properties) for key in islice(keys, limit)]
                if nodes:
                    answer[row] = nodes
            return answer

    def edges(
        self,
        type_: str,
        ends: Iterable[Key],
        properties: Sequence[str] = (),
        *,
        by: End = End.SOURCE,
        label: str = "",
    ) -> dict[Key, list[FoundEdge]]:
        target_label = label or EDGES[type_].target
        with self._lock:
            answer = {}
            for end in map(tuple, ends):
                at = self._pairs_at(type_, end, by, target_label)
                pairs = [pair for pair in at if pair[1] == target_label]
                if pairs:
                    answer[end] = self._edges_of(type_, pairs, properties)
            return answer

    def between(
        self,
        type_: str,
        pairs: Iterable[tuple[Key, Key]],
        properties: Sequence[str] = (),
        *,
        label: str = "",
    ) -> dict[tuple[Key, Key], list[FoundEdge]]:
        target_label = label or EDGES[type_].target
        with self._lock:
            answer = {}
            for source, target in pairs:
                pair = (tuple(source), target_label, tuple(target))
                if pair in self._tables.pairs[type_]:
                    shown = self._edges_of(type_, [pair], properties)
                    answer[tuple(source), tuple(target)] = shown
            return answer

    def degrees(
        self, type_: str, ends: Iterable[Key], *, by: End = End.SOURCE, label: str = ""
    ) -> dict[Key, int]:
        row = EDGES[type_]
        near = (label or row.target) if by is End.TARGET else row.source
        with self._lock:
            nodes, degree = self._tables.nodes[near], self._tables.degree
            return {end: degree(type_, near, end, by) for end in map(tuple, ends) if end in nodes}

    def across(
        self,
        type_: str,
        ends: Iterable[Key],
        name: str,
        *,
        by: End = End.SOURCE,
        label: str = "",
        most: int,
    ) -> dict[Key, tuple[Any, ...]]:
        row = EDGES[type_]
        target = label or row.target
        with self._lock:
            tables, answer = self._tables, {}
            for end in map(tuple, ends):
                far: Iterable[tuple[str, Key]]
                if by is End.TARGET:
                    sources = tables.sources[type_].get((target, end), ())
                    far = ((row.source, source) for source in sources)
                else:
                    far = (to for to in tables.targets[type_].get(end, ()) if to[0] == target)
                values = set()
                for other, key in far:
                    node = tables.nodes[other][key]
                    if node.visible and (value := node.values.get(name)) is not None:
                        values.add(value)
                        if len(values) == most:  # an end of everything is not gone through
                            break
                if values:
                    answer[end] = tuple(sorted(values))
            return answer

    def _pairs_at(self, type_: str, end: Key, by: End, target: str = "") -> list[Pair]:
        """Pairs of a type with a node at the end `by`; `target` is its label where it is one."""
        tables, pairs = self._tables, dict[Pair, None]()
        if by is not End.TARGET:
            pairs.update(((end, *to), None) for to in tables.targets[type_].get(end, ()))
        if by is not End.SOURCE:
            sources = tables.sources[type_].get((target, end), ())
            pairs.update(((source, target, end), None) for source in sources)
        return list(pairs)

    def stretch(
        self,
        label: str,
        spans: Sequence[Span],
        *,
        before: int = 0,
        within: int,
        after: int = 0,
        having: str = "",
    ) -> list[list[FoundNode]]:
        with self._lock:
            table = self._tables.nodes[label]
            answer = []
            for span in spans:
                tenant = span.session[0]
                chain = self._tables.chains[label].get(span.session, [])
                counts = _counts(table, tenant, span, having)
                low, high = bisect_left(chain, span.low), bisect_right(chain, span.high)
                members = [
                    *reversed(_first(reversed(chain[:low]), before, counts)),
                    *_first(chain[low:high], within, counts),
                    *_first(chain[high:], after, counts),
                ]
                keys = ((tenant, link.event_id) for link in members)
                answer.append([_shown(label, key, table[key], ("occurred_at",)) for key in keys])
            return answer

    def nearest(
        self,
        label: str,
        vectors: Mapping[Key, Sequence[float]],
        k: int,
        properties: Sequence[str] = (),
    ) -> dict[Key, list[tuple[FoundNode, float]]]:
        with self._lock:
            table = self._tables.nodes[label]
            answer = {}
            for key, vector in vectors.items():
                ranked = self._tables.vectors_of(label, key[0]).nearest(vector, k + 1)
                answer[key] = [
                    (_shown(label, other, table[other], properties), cosine)
                    for other, cosine in ranked
                    if other != key and table[other].visible
                ][:k]
            return answer

    def stream(
        self,
        label_or_type: str,
        properties: Sequence[str] = (),
        *,
        tenants: Collection[str] | None = None,
    ) -> Iterator[FoundNode] | Iterator[FoundEdge]:
        if label_or_type in EDGES:
            return self._stream_edges(label_or_type, properties, tenants)
        return self._stream_nodes(label_or_type, properties, tenants)

    def _stream_nodes(
        self, label: str, properties: Sequence[str], tenants: Collection[str] | None
    ) -> Iterator[FoundNode]:
        with self._lock:
            of_all = tenants is None or "tenant" not in NODES[label].key
            keys = [k for k in self._tables.nodes[label] if of_all or k[0] in (tenants or ())]
        for key in sorted(keys):
            node = self._tables.nodes[label].get(key)
            if node is not None:
                yield _shown(label, key, node, properties)

    def _stream_edges(
        self, type_: str, properties: Sequence[str], tenants: Collection[str] | None
    ) -> Iterator[FoundEdge]:
        with self._lock:
            pairs = [
                pair
                for pair in self._tables.pairs[type_]
                if tenants is None or pair[0][0] in tenants
            ]
        for pair in sorted(pairs, key=itemgetter(0, 2, 1)):
            yield from self._edges_of(type_, [pair], properties)

    def _edges_of(
        self, type_: str, pairs: Iterable[Pair], properties: Sequence[str]
    ) -> list[FoundEdge]:
        key = EDGES[type_].key
        table = self._tables.pairs[type_]
        copies = []
        for source, label, target in pairs:
            parallel = table.get((source, label, target), ())
            for values in parallel:
                place = [_sortable(values.get(name)) for name in key] if len(parallel) > 1 else []
                copies.append((source, target, place, label, values))
        if len(copies) > 1:
            copies.sort(key=itemgetter(0, 1, 2))
        return [
            FoundEdge(source, target, label, {name: values.get(name) for name in properties})
            for source, target, _, label, values in copies
        ]


class MemoryTransaction(_Reads):
    """`port.Transaction` over the tables; every change is logged so that it can be taken back."""

    def __init__(self, graph: MemoryGraph) -> None:
        super().__init__(graph._tables, graph._lock)
        self.graph = graph
        self.advanced = False
        self.dead_letters = 0
        self.touched = Touched()
        self._tombstones = False

    @property
    def has_tombstones(self) -> bool:
        return self._tombstones

    def hold(self, names: Iterable[str]) -> None:
        """Nothing to wait for: transactions come one at a time."""

    def advance(self, start: Checkpoint, to: Checkpoint) -> None:
        held = self._checkpoint(start.stage, start.partition)
        expected = (start.generation, start.position, start.fold_version)
        if held is None or (held.generation, held.position, held.fold_version) != expected:
            raise Fenced(
                stage=start.stage,
                partition=start.partition,
                position=str(start.position),
                generation=start.generation,
            )
        self._count()
        self.touched.note_checkpoint(to)
        self._put_checkpoint(
            Checkpoint(
                start.stage,
                start.partition,
                position=to.position,
                seq=to.seq,
                digest=to.digest,
                generation=held.generation,
                fold_version=held.fold_version,
                models=held.models,
            )
        )
        self.advanced = True

    def lock(self, stage: str, partition: int) -> Checkpoint | None:
        held = self._checkpoint(stage, partition)
        if held is not None:
            self._count()
            self.touched.note_lock(stage, partition)
        return held

    def reset(self, checkpoint: Checkpoint) -> int:
        held = self._checkpoint(checkpoint.stage, checkpoint.partition)
        if held is None:
            raise KeyError((checkpoint.stage, checkpoint.partition))
        values = {**_checkpoint_values(checkpoint), "generation": held.generation + 1}
        key = (checkpoint.stage, checkpoint.partition)
        self._tables.put_node(CHECKPOINT.label, key, StoredNode(_kept(values), visible=True))
        self.touched.note_checkpoint(checkpoint)
        return held.generation + 1

    def lock_nodes(
        self, label: str, keys: Iterable[Key], properties: Sequence[str] = (), *, make: bool = False
    ) -> dict[Key, FoundNode]:
        wanted = [tuple(key) for key in keys]
        if make:
            self.touched.note_nodes(label, wanted)
            for key in wanted:
                self._ensure(label, key)
        return self.nodes(label, wanted, properties)

    def apply(self, operations: Operations, stage: str) -> None:
        operations.require_stage(stage)
        self.touched.note_operations(operations)
        self._apply(operations, stage)

    def _apply(self, operations: Operations, stage: str) -> None:  # noqa: C901 - a loop a kind
        for removed in operations.remove_nodes.values():
            self._remove_node(removed.label, removed.key)
        for merged in operations.merge_nodes.values():
            self._merge_node(merged.label, merged.key, merged.values)
        for ensured in operations.ensure_nodes.values():
            self._ensure(ensured.label, ensured.key)
        for changed in operations.set_nodes.values():
            node = self._tables.nodes[changed.label].get(changed.key)
            if node is not None and node.visible:
                self._merge_node(changed.label, changed.key, changed.values)
        for decided in operations.decide_nodes.values():
            self._decide(
                label=decided.label,
                key=decided.key,
                name=decided.name,
                value=decided.value,
                position=decided.position,
            )
        for cleared in operations.clear_edges.values():
            for to in list(self._tables.targets[cleared.type].get(cleared.source, ())):
                self._drop_edges(cleared.type, (cleared.source, *to), stage, {})
        for dropped in operations.remove_edges.values():
            label = dropped.label or EDGES[dropped.type].target
            pair = (dropped.source, label, dropped.target)
            self._drop_edges(dropped.type, pair, stage, dropped.values)
        for edge in operations.merge_edges.values():
            self._merge_edge(edge)
        for edge_set in operations.set_edges.values():
            label = EDGES[edge_set.type].target
            pair = (edge_set.source, label, edge_set.target)
            self._set_edges(edge_set.type, pair, edge_set.values)
        for other in sorted(operations.others):
            self._apply(operations.others[other], other)

    def dead_letters_of(self, stage: str, partition: int) -> list[Mapping[str, Any]]:
        return _dead_letters(self._tables, stage, partition)

    def add_dead_letter(self, stage: str, partition: int, seq: int, **fields: Any) -> None:
        values = _kept({"stage": stage, "partition": partition, "seq": seq, **fields})
        key = (stage, partition, seq)
        self._tables.put_node(DEAD_LETTER.label, key, StoredNode(values, visible=True))

    def drop_dead_letters(self, stage: str, partition: int, seqs: Sequence[int]) -> None:
        for seq in seqs:
            self._remove_node(DEAD_LETTER.label, (stage, partition, seq))

    def drop_later_dead_letters(self, stage: str, partition: int, seq: int) -> None:
        for key in list(self._tables.nodes[DEAD_LETTER.label]):
            if key[:2] == (stage, partition) and key[2] > seq:
                self._remove_node(DEAD_LETTER.label, key)

    # -- repair ------------------------------------------------------------------------------------

    def restore_nodes(
        self, label: str, nodes: Iterable[FoundNode], *, gone: Iterable[Key] = ()
    ) -> None:
        removed, restored = [tuple(key) for key in gone], list(nodes)
        self.touched.note_nodes(label, (tuple(node.key) for node in restored), gone=removed)
        for key in removed:
            self._remove_node(label, key)
        for node in restored:
            values = {**_key_values(NODES[label], node.key), **node.values}
            held = _kept({name: _stored(label, name, value) for name, value in values.items()})
            self._tables.put_node(label, tuple(node.key), StoredNode(held, node.visible))

    def restore_values(
        self, label: str, names: tuple[str, ...], nodes: Sequence[FoundNode]
    ) -> None:
        self.touched.note_nodes(label, (tuple(node.key) for node in nodes))
        for node in nodes:
            held = self._tables.nodes[label].get(tuple(node.key))
            if held is not None:
                values = {name: _stored(label, name, node.values[name]) for name in names}
                merged = StoredNode(_kept({**held.values, **values}), held.visible)
                self._tables.put_node(label, tuple(node.key), merged)

    def restore_edges(
        self,
        type_: str,
        edges: Iterable[FoundEdge],
        *,
        gone: Iterable[tuple[Key, Key, str]] = (),
    ) -> None:
        exactly: dict[Pair, list[Values]] = {
            (tuple(source), label, tuple(target)): [] for source, target, label in gone
        }
        for edge in edges:
            pair = (tuple(edge.source), edge.label, tuple(edge.target))
            exactly.setdefault(pair, []).append(_kept(edge.values))
        pairs = ((source, target, label) for source, label, target in exactly)
        self.touched.note_edges(type_, pairs)
        for pair, copies in exactly.items():
            if not copies or self._has_ends(type_, pair):
                self._tables.put_pair(type_, pair, tuple(copies))

    def remove_foreign(self, labels: Collection[str], types: Collection[str]) -> None:
        self.touched.everything = True
        for type_ in types:
            for pair in list(self._tables.pairs.get(type_, ())):
                self._tables.put_pair(type_, pair, ())
        for label in labels:
            for key in list(self._tables.nodes.get(label, ())):
                self._remove_node(label, key)

    # -- one operation -----------------------------------------------------------------------------

    def _remove_node(self, label: str, key: Key) -> None:
        if key not in self._tables.nodes[label]:
            return
        for type_ in self._tables.pairs:
            for pair in self._tables.pairs_at(type_, label, key):
                self._tables.put_pair(type_, pair, ())
        self._tables.put_node(label, key, None)

    def _ensure(self, label: str, key: Key) -> None:
        if key not in self._tables.nodes[label]:
            row = NODES[label]
            self._tables.put_node(
                label, key, StoredNode(_key_values(row, key), visible=row.placeholder is None)
            )

    def _merge_node(self, label: str, key: Key, values: Mapping[str, Any]) -> None:
        row = NODES[label]
        node = self._tables.nodes[label].get(key)
        held = _key_values(row, key) if node is None else node.values
        earlier = row.earliest_by is None or _is_earlier(row.earliest_by, values, held)
        merged = dict(held)
        special = _merges(row)
        for name, value in values.items():
            merge = special.get(name)
            if merge is not None:
                old = held.get(name)
                if merge is Merge.EARLIEST and not earlier:
                    continue
                if merge is Merge.LATEST and old is not None and (value is None or old >= value):
                    continue
                if merge is Merge.KEPT and old is not None:
                    continue
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = _frozen(value) if name != row.vector else _stored(label, name, value)
        if any(name in values for name in row.fulltext):
            merged[TENANT_TERM] = tenant_term(key[row.key.index("tenant")])
        self._tables.put_node(label, key, StoredNode(merged, visible=True))

    def _decide(self, label: str, key: Key, name: str, value: Any, position: Position) -> None:
        self._ensure(label, key)
        node = self._tables.nodes[label][key]
        at = node.values.get(name + DECIDED_AT)
        if at is None or at < tuple(position):
            decided = {name: _stored(label, name, value), name + DECIDED_AT: tuple(position)}
            merged = _kept({**node.values, **decided})
            self._tables.put_node(label, key, StoredNode(merged, node.visible))

    def _drop_edges(self, type_: str, pair: Pair, stage: str, values: Mapping[str, Any]) -> None:
        row = EDGES[type_]
        copies = self._tables.pairs[type_].get(pair, ())
        stay = tuple(
            copy
            for copy in copies
            if not _is_own(row, stage, copy)
            or any(copy.get(name) != value for name, value in values.items())
        )
        if len(stay) < len(copies):
            self._tables.put_pair(type_, pair, stay)

    def _merge_edge(self, edge: MergeEdge) -> None:
        row = EDGES[edge.type]
        pair = (edge.source, edge.label or row.target, edge.target)
        if not self._has_ends(edge.type, pair):
            return
        values = {name: _frozen(value) for name, value in edge.values.items()}
        held = self._tables.pairs[edge.type].get(pair)
        if held is None:
            self._tables.put_pair(edge.type, pair, (_kept(values),))
            return
        copies = list(held)
        same = [n for n, copy in enumerate(copies) if _has(copy, row.key, values)]
        if not same:
            copies.append(_kept(values))
        for n in same:
            at = copies[n].get(row.decided_by) if row.decided_by is not None else None
            if at is None or at < values[cast(str, row.decided_by)]:
                copies[n] = _kept({**copies[n], **values})
        self._tables.put_pair(edge.type, pair, tuple(copies))

    def _set_edges(self, type_: str, pair: Pair, values: Mapping[str, Any]) -> None:
        row = EDGES[type_]
        copies = self._tables.pairs[type_].get(pair, ())
        frozen = {name: _frozen(value) for name, value in values.items()}
        if any(_has(copy, row.key, frozen) for copy in copies):
            changed = (
                _kept({**copy, **frozen}) if _has(copy, row.key, frozen) else copy
                for copy in copies
            )
            self._tables.put_pair(type_, pair, tuple(changed))

    def _has_ends(self, type_: str, pair: Pair) -> bool:
        source, label, target = pair
        nodes = self._tables.nodes
        return source in nodes[EDGES[type_].source] and target in nodes[label]

    # -- checkpoints -------------------------------------------------------------------------------

    def _checkpoint(self, stage: str, partition: int) -> Checkpoint | None:
        node = self._tables.nodes[CHECKPOINT.label].get((stage, partition))
        return None if node is None else _checkpoint(node)

    def _put_checkpoint(self, checkpoint: Checkpoint) -> None:
        key = (checkpoint.stage, checkpoint.partition)
        values = _kept(_checkpoint_values(checkpoint))
        self._tables.put_node(CHECKPOINT.label, key, StoredNode(values, visible=True))

    def _count(self) -> None:
        self.dead_letters = len(self._tables.nodes[DEAD_LETTER.label])
        self._tombstones = bool(self._tables.nodes[FORGOTTEN.label])


class _Chain:
    """The last changes of a chain of the feed; the newest has the number `number`."""

    def __init__(self) -> None:
        self.number = 0
        self.payloads: deque[bytes] = deque()
        self._bytes = 0

    def add(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self.number += 1
        self._bytes += len(payload)
        while len(self.payloads) > FEED_KEPT or self._bytes - len(self.payloads[0]) >= FEED_BYTES:
            self._bytes -= len(self.payloads.popleft())

    def empty(self) -> None:
        """Forget all changes; those to come are numbered on."""
        self.payloads.clear()
        self._bytes = 0

    def behind(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """Numbers and payloads of changes behind a number."""
        oldest = self.number - len(self.payloads) + 1
        first = max(after + 1 - oldest, 0)
        return list(islice(enumerate(self.payloads, oldest), first, first + most))


class MemoryGraph(_Reads):
    """`port.Graph` in this process; it ends with the process."""

    def __init__(self) -> None:
        super().__init__(Tables(), threading.RLock())
        self._id = uuid.uuid4().hex
        self._chains: dict[str, _Chain] = {}
        self.renew_feed()

    def ensure_schema(self) -> None:
        """Nothing to create: indexes are made when they are asked for."""

    def ensure_checkpoints(
        self, stage: str, partitions: int, fold_version: int, models: str = ""
    ) -> None:
        with self._lock:
            for partition in range(partitions):
                if (stage, partition) not in self._tables.nodes[CHECKPOINT.label]:
                    first = Checkpoint(stage, partition, fold_version=fold_version, models=models)
                    node = StoredNode(_kept(_checkpoint_values(first)), visible=True)
                    self._tables.put_node(CHECKPOINT.label, (stage, partition), node)
            self._tables.undo.clear()

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        with self._lock:
            nodes = self._tables.nodes[CHECKPOINT.label]
            return [_checkpoint(nodes[key]) for key in sorted(nodes) if stage in (None, key[0])]

    def settle(self, stage: str, partitions: Iterable[int]) -> None:
        """Nothing to wait for: a commit shows all of itself at once."""

    def dead_letters(
        self, stage: str | None = None, partition: int | None = None
    ) -> list[Mapping[str, Any]]:
        with self._lock:
            return _dead_letters(self._tables, stage, partition)

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        with self._lock:
            try:
                transaction = MemoryTransaction(self)
                yield transaction
            except BaseException:
                self._tables.rollback()
                raise
            self._tables.undo.clear()
            if transaction.touched:
                chain = self._chains.setdefault(transaction.touched.chain, _Chain())
                chain.add(encode(transaction.touched))

    def clear(self, *, keep_checkpoints: bool = False) -> None:
        with self._lock:  # a transaction under way goes on, as on a server, with what is left
            self._tables.empty(keep=(CHECKPOINT.label,) if keep_checkpoints else ())
            for chain in self._chains.values():
                chain.empty()
            self.renew_feed()

    def renew_feed(self) -> None:
        self._feed = uuid.uuid4().hex

    def feed(self) -> FeedPlace:
        with self._lock:
            return FeedPlace(self._feed, {name: one.number for name, one in self._chains.items()})

    def changes(self, place: FeedPlace, most: int = MOST_CHANGES) -> Changes:
        with self._lock:
            if place.identity != self._feed:
                raise ChangesLost(reason="this is another feed")
            at = place.numbers
            newest = {**dict.fromkeys(at, 0), **self.feed().numbers}
            moved = {name: number for name, number in newest.items() if number != at.get(name)}
            rows = [
                (number - at.get(name, 0), name, payload)
                for name in moved.keys() & self._chains.keys()
                for number, payload in self._chains[name].behind(at.get(name, 0), most)
            ]
            first = nsmallest(most, rows, key=itemgetter(0, 1))
            told = [(name, at.get(name, 0) + nth, payload) for nth, name, payload in first]
            return changes_of(place, moved, told, most)

    def held(self, label_or_type: str) -> Iterator[FoundNode] | Iterator[FoundEdge]:
        """Every node of a label, or edge of a type, with the very values that are held of it.

        For who writes them all down while nobody changes anything: nothing is copied, what is not
        there is missing, and the vector of an index is an array. Nodes come in the order of keys,
        the edges of a pair together.
        """
        if label_or_type in EDGES:
            for (source, label, target), copies in self._tables.pairs[label_or_type].items():
                for values in copies:
                    yield FoundEdge(source, target, label, values)
            return
        for key, node in sorted(self._tables.nodes[label_or_type].items(), key=itemgetter(0)):
            yield FoundNode(key, node.visible, node.values, len(node.values) == len(key))

    def store_id(self) -> str:
        return self._id

    def counts(self) -> Counts:
        with self._lock:
            shown = {
                label: sum(node.visible for node in nodes.values())
                for label, nodes in self._tables.nodes.items()
                if label in NODES
            }
            events = self._tables.nodes[EVENT.label]
            edges = {
                type_: sum(
                    len(copies)
                    for (_, label, target), copies in self._tables.pairs[type_].items()
                    if label != EVENT.label or events[target].visible
                )
                for type_ in EDGES
            }
            return Counts(shown, edges, len(events) - shown[EVENT.label])

    def census(self) -> Census:
        with self._lock:
            tables = self._tables
            return Census(
                labels={label: len(nodes) for label, nodes in tables.nodes.items() if nodes},
                types={
                    type_: sum(map(len, pairs.values()))
                    for type_, pairs in tables.pairs.items()
                    if pairs
                },
                node_properties={
                    label: frozenset(name for node in nodes.values() for name in node.values)
                    for label, nodes in tables.nodes.items()
                    if nodes
                },
                edge_properties={
                    type_: frozenset(n for copies in pairs.values() for c in copies for n in c)
                    for type_, pairs in tables.pairs.items()
                    if pairs
                },
                indexes=frozenset(index_definitions()) - constraint_names(),
                constraints=constraint_names(),
            )


# -- small things ----------------------------------------------------------------------------------


def _shown(label: str, key: Key, node: StoredNode, properties: Sequence[str]) -> FoundNode:
    vector = NODES[label].vector if label in NODES else None
    values = {name: node.values.get(name) for name in properties}
    if vector is not None and values.get(vector) is not None:
        values[vector] = tuple(node.values[vector].tolist())
    return FoundNode(key, node.visible, values, len(node.values) == len(key))


def _stored(label: str, name: str, value: Any) -> Any:
    """A value as it is kept: vectors of an index as arrays of 4 bytes a number, lists as tuples."""
    if value is not None and name == NODES[label].vector:
        return numpy.asarray(value, numpy.float32)
    return _frozen(value)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _kept(values: Mapping[str, Any]) -> Values:
    """A property that is None is not there."""
    return {name: _frozen(value) for name, value in values.items() if value is not None}


def _key_values(row: NodeRow, key: Key) -> Values:
    return dict(zip(row.key, key, strict=True))


_SPECIAL: Final = (Merge.EARLIEST, Merge.LATEST, Merge.KEPT)
_MERGES: dict[str, dict[str, Merge]] = {}


def _merges(row: NodeRow) -> dict[str, Merge]:
    """How those properties are merged of which not simply the last value stays."""
    if row.label not in _MERGES:
        _MERGES[row.label] = {p.name: p.merge for p in row.properties if p.merge in _SPECIAL}
    return _MERGES[row.label]


def _is_earlier(by: tuple[str, str], new: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    time, text = by
    return held.get(time) is None or (new[time], new[text]) < (held[time], held[text])


def _is_own(row: EdgeRow, stage: str, values: Mapping[str, Any]) -> bool:
    """As `cypher.own_edges`: an edge whose shared property is nobody's counts as the owner's."""
    if row.shared_by is None:
        return True
    name, by_stage = row.shared_by
    if stage != row.stage:
        return bool(values.get(name) == by_stage[stage])
    return values.get(name) not in {value for s, value in by_stage.items() if s != stage}


def _is_within(
    values: Mapping[str, Any], least: Mapping[str, Any], most: Mapping[str, Any]
) -> bool:
    return all(values[name] >= bound for name, bound in least.items()) and all(
        values[name] <= bound for name, bound in most.items()
    )


def _has_all(node: StoredNode, names: Iterable[str]) -> bool:
    return all(node.values.get(name) is not None for name in names)


def _has(copy: Mapping[str, Any], names: Iterable[str], values: Mapping[str, Any]) -> bool:
    return all(copy.get(name) == values[name] for name in names)


def _counts(
    table: Mapping[Key, StoredNode], tenant: str, span: Span, having: str
) -> Callable[[Link], bool]:
    if not having:
        return lambda _: True
    return lambda link: (
        link.event_id in span.anyway or table[tenant, link.event_id].values.get(having) is not None
    )


def _first(links: Iterable[Link], most: int, counts: Callable[[Link], bool]) -> list[Link]:
    chosen: list[Link] = []
    if most:
        for link in links:
            if counts(link):
                chosen.append(link)
                if len(chosen) == most:
                    break
    return chosen


def _sortable(value: Any) -> tuple[bool, str, Any]:
    """Values of several kinds may stand beside each other, where somebody else wrote one."""
    return value is not None, type(value).__name__, value if value is not None else 0


def _dead_letters(
    tables: Tables, stage: str | None, partition: int | None
) -> list[Mapping[str, Any]]:
    names = (*DEAD_LETTER.key, *(p.name for p in DEAD_LETTER.properties))
    nodes = tables.nodes[DEAD_LETTER.label]
    return [
        {name: nodes[key].values.get(name) for name in names}
        for key in sorted(nodes)
        if stage in (None, key[0]) and partition in (None, key[1])
    ]


def _checkpoint_values(checkpoint: Checkpoint) -> Values:
    return {
        "stage": checkpoint.stage,
        "partition": checkpoint.partition,
        "position": str(checkpoint.position),
        "seq": checkpoint.seq,
        "digest": checkpoint.digest,
        "generation": checkpoint.generation,
        "fold_version": checkpoint.fold_version,
        "models": checkpoint.models,
    }


def _checkpoint(node: StoredNode) -> Checkpoint:
    values = {**node.values, "position": Position.parse(node.values["position"])}
    return Checkpoint(**values)
