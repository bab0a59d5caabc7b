"""The port on Neo4j: questions and operations as Cypher, sent by the one client."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Any, TypeVar

import neo4j

from pipelines.graph import cypher, questions
from pipelines.graph.client import ClientTransaction, GraphClient, checkpoint_of
from pipelines.graph.feed import (
    FEED_BYTES,
    FEED_KEPT,
    MOST_CHANGES,
    Touched,
    changes_of,
    encode,
    expected,
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
from projections.errors import ChangesLost, Fenced
from projections.identity import START
from projections.operations import Checkpoint, Key, Operations
from projections.schema import (
    EDGES,
    EVENT,
    FEED_NODES,
    NODES,
    EdgeRow,
    NodeRow,
    constraint_names,
    fulltext_statements,
    index_definitions,
    schema_statements,
    vector_statements,
)

T = TypeVar("T")
Rows = list[list[Any]]

_ASKED_AT_ONCE = 1_000
"""Rows of a question at once; the database holds what it says of all of them before it answers."""
_UNCOUNTED = {row.placeholder for row in NODES.values() if row.placeholder} | {
    row.label for row in FEED_NODES
}
_SETTLED = 5
"""So often changes that are being committed may be in the way of those behind a place."""
_NO_FEED = "there is no feed, or the graph is being emptied"
SCHEMA_TIMEOUT_S = 3_600.0
"""An index of a graph that is there already is filled from all of it."""
_VECTORS = 100
"""Searches of a question at once."""


class _Neo4jReads:
    """The questions of the port, asked where the subclass asks."""

    client: GraphClient

    def _ask(self, text: str, **parameters: Any) -> list[Any]:
        """The rows of an answer, of which each record has some."""
        raise NotImplementedError

    def _open(self, text: str, **parameters: Any) -> Iterator[neo4j.Record]:
        """The rows of an answer, some of them in memory at once."""
        raise NotImplementedError

    def nodes(
        self, label: str, keys: Iterable[Key], properties: Sequence[str] = ()
    ) -> dict[Key, FoundNode]:
        names = tuple(properties)
        return self._keyed(questions.nodes_text(label, names), label, dict.fromkeys(keys), names)

    def _keyed(
        self, text: str, label: str, keys: Iterable[Key], names: tuple[str, ...]
    ) -> dict[Key, FoundNode]:
        depth = len(NODES[label].key)
        nodes = (
            _node(depth, names, row)
            for some in _chunks(keys, _ASKED_AT_ONCE)
            for row in self._ask(text, rows=[list(key) for key in some])
        )
        return {node.key: node for node in nodes}

    def find(
        self,
        label: str,
        by: Sequence[str],
        rows: Iterable[Sequence[Any]],
        properties: Sequence[str] = (),
    ) -> dict[tuple[Any, ...], list[FoundNode]]:
        names, depth = tuple(properties), len(NODES[label].key)
        text = questions.find_text(label, tuple(by), names)
        wanted = list(dict.fromkeys(map(tuple, rows)))
        answer: dict[tuple[Any, ...], list[FoundNode]] = {}
        for some in _chunks(enumerate(wanted), _ASKED_AT_ONCE):
            for number, *row in self._ask(text, rows=[[n, *values] for n, values in some]):
                answer.setdefault(wanted[number], []).append(_node(depth, names, row))
        for nodes in answer.values():
            nodes.sort(key=lambda node: node.key)
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
        index, names = scanned(label, by), tuple(properties)
        width = len(NODES[label].key)
        wanted = list(dict.fromkeys(map(tuple, rows)))
        if not wanted:
            return {}
        text = questions.scan_text(
            label,
            index,
            names,
            depth=len(wanted[0]),
            least=tuple(least),
            most=tuple(most),
            after=len(after),
            descending=descending,
        )
        bounds: dict[str, Any] = {
            "lower": dict(least),
            "upper": dict(most),
            "place": list(after),
            "limit": limit,
        }
        answer = {}
        for some in _chunks(enumerate(wanted), _ASKED_AT_ONCE):
            for number, nodes in self._ask(text, rows=[[n, *row] for n, row in some], **bounds):
                if nodes:
                    answer[wanted[number]] = [_node(width, names, node) for node in nodes]
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
        row, names = EDGES[type_], tuple(properties)
        target = label or row.target
        text = questions.edges_text(type_, _with_key(row, names), by, target)
        decode = _EdgeDecoder(row, names, target)
        return {end: decode.around(end, edges, by) for end, edges in self._beside(text, ends)}

    def between(
        self,
        type_: str,
        pairs: Iterable[tuple[Key, Key]],
        properties: Sequence[str] = (),
        *,
        label: str = "",
    ) -> dict[tuple[Key, Key], list[FoundEdge]]:
        row, names = EDGES[type_], tuple(properties)
        target = label or row.target
        text = questions.between_text(type_, _with_key(row, names), target)
        decode = _EdgeDecoder(row, names, target)
        answer: dict[tuple[Key, Key], list[FoundEdge]] = {}
        for some in _chunks(dict.fromkeys(pairs), _ASKED_AT_ONCE):
            edges = self._ask(text, rows=[[*one, *other] for one, other in some])
            for edge in decode.sorted(edges):
                answer.setdefault((edge.source, edge.target), []).append(edge)
        return answer

    def degrees(
        self, type_: str, ends: Iterable[Key], *, by: End = End.SOURCE, label: str = ""
    ) -> dict[Key, int]:
        return dict(self._beside(questions.degrees_text(type_, by, label), ends))

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
        text = questions.across_text(type_, name, by, label)
        beside = self._beside(text, ends, most=most)
        return {end: tuple(sorted(values)) for end, values in beside if values}

    def _beside(self, text: str, ends: Iterable[Key], **bounds: int) -> Iterator[tuple[Key, Any]]:
        """What a question with rows [end…, answer] says of each end."""
        for some in _chunks(dict.fromkeys(ends), _ASKED_AT_ONCE):
            for *end, answer in self._ask(text, rows=[list(key) for key in some], **bounds):
                yield tuple(end), answer

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
        time = NODES[label].indexes[0][2]
        stretches: list[list[FoundNode]] = [[] for _ in spans]
        if not (before or within or after):
            return stretches
        text = questions.stretch_text(
            label,
            before=before > 0,
            within=within > 0,
            after=after > 0,
            having=having,
        )
        for some in _chunks(enumerate(spans), _ASKED_AT_ONCE):
            rows = [
                [number, *span.session, *span.low, *span.high, sorted(span.anyway)]
                for number, span in some
            ]
            for number, members in self._ask(
                text, rows=rows, before=before, within=within, after=after
            ):
                tenant = spans[number].session[0]
                stretches[number] = [
                    FoundNode((tenant, own_id), True, {time: ms}, False)
                    for ms, own_id in sorted(members)
                ]
        return stretches

    def nearest(
        self,
        label: str,
        vectors: Mapping[Key, Sequence[float]],
        k: int,
        properties: Sequence[str] = (),
    ) -> dict[Key, list[tuple[FoundNode, float]]]:
        if not vectors:
            return {}
        filtered = self.client.searches_within_tenants()
        names, depth = tuple(properties), len(NODES[label].key)
        text = questions.nearest_text(label, names, k, filtered=filtered)
        answer: dict[Key, list[tuple[FoundNode, float]]] = {}
        for some in _chunks(sorted(vectors.items(), key=lambda item: item[0]), _VECTORS):
            rows = [[*key, list(vector)] for key, vector in some]
            for *key, near in self._ask(text, rows=rows):
                scored = [(_node(depth, names, one[1:]), 2.0 * one[0] - 1.0) for one in near]
                scored.sort(key=lambda pair: (-pair[1], pair[0].key))
                answer[tuple(key)] = scored[:k]
        return answer

    def stream(
        self,
        label_or_type: str,
        properties: Sequence[str] = (),
        *,
        tenants: Collection[str] | None = None,
    ) -> Iterator[FoundNode] | Iterator[FoundEdge]:
        """As the port says.

        Nodes without a whole key, and edges between other labels than the row's, are left out;
        `Census.stray` counts them.
        """
        names = tuple(properties)
        if label_or_type in NODES:
            return self._stream_nodes(NODES[label_or_type], names, tenants)
        return self._stream_edges(EDGES[label_or_type], names, tenants)

    def _stream_nodes(
        self, row: NodeRow, names: tuple[str, ...], tenants: Collection[str] | None
    ) -> Iterator[FoundNode]:
        of_one = tenants is not None and "tenant" in row.key
        text = questions.stream_nodes_text(row.label, names, one_tenant=of_one)
        for node in self._streamed(text, tenants if of_one else None):
            yield _node(len(row.key), names, node)

    def _stream_edges(
        self, row: EdgeRow, names: tuple[str, ...], tenants: Collection[str] | None
    ) -> Iterator[FoundEdge]:
        text = questions.stream_edges_text(
            row.type, _with_key(row, names), one_tenant=tenants is not None
        )
        decode = _EdgeDecoder(row, names)
        width = decode.width
        rows = self._streamed(text, tenants)
        for _, pair in groupby(rows, key=lambda edge: edge[1 : 1 + width]):
            edges = list(pair)
            for label, parallel in groupby(edges, key=lambda edge: str(edge[0])):
                yield from decode.sorted([edge[1:] for edge in parallel], label)

    def _streamed(self, text: str, tenants: Collection[str] | None) -> Iterator[list[Any]]:
        if tenants is None:
            for record in self._open(text):
                yield record[0]
            return
        for tenant in sorted(set(tenants)):
            for record in self._open(text, tenant=tenant):
                yield record[0]


class Neo4jTransaction(_Neo4jReads):
    """What may happen between begin and commit; made by `Neo4jGraph.transaction`."""

    def __init__(self, transaction: ClientTransaction, graph: Neo4jGraph) -> None:
        self._transaction = transaction
        self.graph = graph
        self.client = graph.client
        self._tombstones = 0
        self._touched = Touched()
        self.dead_letters = 0
        self.advanced = False

    @property
    def has_tombstones(self) -> bool:
        return self._tombstones > 0

    def run(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        """The rows of a statement of an adapter's own."""
        return list(self._transaction.run(text, parameters))

    def _ask(self, text: str, **parameters: Any) -> list[Any]:
        records = self._transaction.run(text, parameters)
        return [row for record in records for row in record[0]]

    def _open(self, text: str, **parameters: Any) -> Iterator[neo4j.Record]:
        return iter(self._transaction.run(text, parameters))

    def hold(self, names: Iterable[str]) -> None:
        self._transaction.run(cypher.HOLD, {"names": sorted(set(names))}).consume()

    def advance(self, start: Checkpoint, to: Checkpoint) -> None:
        rows = self.run(
            cypher.ADVANCE,
            stage=start.stage,
            partition=start.partition,
            generation=start.generation,
            position=str(start.position),
            fold_version=start.fold_version,
            to_position=str(to.position),
            to_seq=to.seq,
            to_digest=to.digest,
        )
        if not rows:
            raise Fenced(
                stage=start.stage,
                partition=start.partition,
                position=str(start.position),
                generation=start.generation,
            )
        self._note_counts(rows[0])
        self._touched.note_checkpoint(to)
        self.advanced = True

    def lock(self, stage: str, partition: int) -> Checkpoint | None:
        rows = self.run(cypher.LOCK, stage=stage, partition=partition)
        if not rows:
            return None
        self._note_counts(rows[0])
        self._touched.note_lock(stage, partition)
        return checkpoint_of({**rows[0].data(), "stage": stage, "partition": partition})

    def _note_counts(self, row: neo4j.Record) -> None:
        self._tombstones, self.dead_letters = row["forgotten"], row["dead_letters"]

    def reset(self, checkpoint: Checkpoint) -> int:
        (row,) = self.run(
            cypher.RESET_CHECKPOINT,
            stage=checkpoint.stage,
            partition=checkpoint.partition,
            position=str(checkpoint.position),
            seq=checkpoint.seq,
            digest=checkpoint.digest,
            fold_version=checkpoint.fold_version,
            models=checkpoint.models,
        )
        self._touched.note_checkpoint(checkpoint)
        return int(row["generation"])

    def lock_nodes(
        self, label: str, keys: Iterable[Key], properties: Sequence[str] = (), *, make: bool = False
    ) -> dict[Key, FoundNode]:
        names, wanted = tuple(properties), sorted(set(keys))
        text = questions.lock_nodes_text(label, names, make=make)
        if make:
            self._touched.note_nodes(label, wanted)
        return self._keyed(text, label, wanted, names)

    def apply(self, operations: Operations, stage: str) -> None:
        for text, parameters in cypher.statements(operations, stage):
            self._transaction.run(text, parameters).consume()
        self._touched.note_operations(operations)

    # -- dead letters ------------------------------------------------------------------------------

    def dead_letters_of(self, stage: str, partition: int) -> list[Mapping[str, Any]]:
        rows = self.run(cypher.READ_DEAD_LETTERS, stage=stage, partition=partition)
        return [row.data() for row in rows]

    def add_dead_letter(self, stage: str, partition: int, seq: int, **fields: Any) -> None:
        self.run(cypher.CREATE_DEAD_LETTER, stage=stage, partition=partition, seq=seq, **fields)

    def drop_dead_letters(self, stage: str, partition: int, seqs: Sequence[int]) -> None:
        if self.dead_letters:
            self.run(cypher.DELETE_DEAD_LETTERS, stage=stage, partition=partition, seqs=list(seqs))

    def drop_later_dead_letters(self, stage: str, partition: int, seq: int) -> None:
        self.run(cypher.DELETE_LATER_DEAD_LETTERS, stage=stage, partition=partition, seq=seq)

    # -- repair ------------------------------------------------------------------------------------

    def restore_nodes(
        self, label: str, nodes: Iterable[FoundNode], *, gone: Iterable[Key] = ()
    ) -> None:
        row, removed = NODES[label], sorted(set(gone))
        restored = sorted(nodes, key=lambda node: node.key)
        self._touched.note_nodes(label, (node.key for node in restored), gone=removed)
        for keys in _chunks(removed, _ASKED_AT_ONCE):
            self._write(cypher.remove_nodes_text(label), [list(key) for key in keys])
        for some in _chunks(restored, _ASKED_AT_ONCE):
            for visible in (True, False):
                rows = [_stored(row, node) for node in some if node.visible is visible]
                self._write(cypher.restore_nodes_text(label, visible=visible), rows)

    def restore_values(
        self, label: str, names: tuple[str, ...], nodes: Sequence[FoundNode]
    ) -> None:
        self._touched.note_nodes(label, (node.key for node in nodes))
        text = cypher.restore_values_text(label, names)
        for some in _chunks(sorted(nodes, key=lambda node: node.key), _ASKED_AT_ONCE):
            self._write(text, [[*one.key, *(one.values[name] for name in names)] for one in some])

    def restore_edges(
        self,
        type_: str,
        edges: Iterable[FoundEdge],
        *,
        gone: Iterable[tuple[Key, Key, str]] = (),
    ) -> None:
        names = [p.name for p in EDGES[type_].properties]
        by_label: dict[str, list[FoundEdge]] = {}
        for edge in edges:
            by_label.setdefault(edge.label, []).append(edge)
        pairs: dict[str, set[tuple[Key, Key]]] = {
            label: {(edge.source, edge.target) for edge in given}
            for label, given in by_label.items()
        }
        for source, target, label in gone:
            pairs.setdefault(label, set()).add((source, target))
        for label in sorted(pairs):
            self._touched.note_edges(type_, ((*pair, label) for pair in sorted(pairs[label])))
            for cleared in _chunks(sorted(pairs[label]), _ASKED_AT_ONCE):
                text = cypher.clear_pairs_text(type_, label)
                self._write(text, [[*source, *target] for source, target in cleared])
            given = sorted(by_label.get(label, ()), key=lambda edge: (edge.source, edge.target))
            for some in _chunks(given, _ASKED_AT_ONCE):
                rows = [
                    [*one.source, *one.target, *(one.values.get(name) for name in names)]
                    for one in some
                ]
                self._write(cypher.restore_edges_text(type_, label), rows)

    def remove_foreign(self, labels: Collection[str], types: Collection[str]) -> None:
        self._touched.everything = True
        for type_ in sorted(types):
            self.run(questions.remove_type_text(type_))
        for label in sorted(labels):
            text = questions.remove_label_text(label) if label else questions.REMOVE_UNLABELLED
            self.run(text)
        for text in questions.remove_strays_texts():
            self.run(text)

    def _write(self, text: str, rows: Rows) -> None:
        if rows:
            self._transaction.run(text, {"rows": rows}).consume()

    def tell(self) -> None:
        """Number what was touched, as a change; nothing but the commit comes after it."""
        if self._touched:
            payload = encode(self._touched)
            chain = self._touched.chain
            told = {"chain": chain, "payload": payload, "size": len(payload)}
            bounds = {"kept": FEED_KEPT, "most": FEED_BYTES}
            self._transaction.run(cypher.TELL, told | bounds)  # the commit takes its answer


class Neo4jGraph(_Neo4jReads):
    """One target's graph in a Neo4j; threads may share it, each transaction stands alone.

    Args:
        driver: stays open when the graph is done with.
        database: name of the database.
        timeout_s: of one question, and of one transaction.
        browsed: people search there, so that events have indexes which Recollect does not ask.
    """

    def __init__(
        self,
        driver: neo4j.Driver,
        database: str = "neo4j",
        *,
        timeout_s: float = 60.0,
        browsed: bool = False,
    ) -> None:
        self.client = GraphClient(driver, database, timeout_s=timeout_s)
        self._browsed = browsed

    def _ask(self, text: str, **parameters: Any) -> list[Any]:
        return [row for record in self.client.ask(text, **parameters) for row in record[0]]

    def _open(self, text: str, **parameters: Any) -> Iterator[neo4j.Record]:
        return self.client.stream(text, **parameters)

    def held(self, names: Collection[str]) -> Iterator[tuple[str, FoundNode | FoundEdge]]:
        """Every node and edge of these labels and types, with all that is stored, in no order.

        Each comes behind its label or type. It needs no index, so it may be asked while indexes
        are made. Edges come along with the event where they begin: a row an edge costs more.
        """
        along = [name for name in names if name in EDGES and EDGES[name].source == EVENT.label]
        for name in names:
            if name in NODES:
                yield from self._held_nodes(name, tuple(along) if name == EVENT.label else ())
            elif name not in along or EVENT.label not in names:
                decode = _EdgeDecoder(EDGES[name], tuple(p.name for p in EDGES[name].properties))
                for record in self._open(questions.held_edges_text(name)):
                    label, *edge = record[0]
                    yield name, decode.edge(edge, label)

    def _held_nodes(
        self, label: str, types: tuple[str, ...]
    ) -> Iterator[tuple[str, FoundNode | FoundEdge]]:
        row = NODES[label]
        depth, names = len(row.key), tuple(p.name for p in row.stored())
        width = depth + 2 + len(names)
        along = [(type_, tuple(p.name for p in EDGES[type_].properties)) for type_ in types]
        for record in self._open(questions.held_nodes_text(label, types)):
            values = record[0]
            node = _node(depth, names, values[:width])
            yield label, node
            for (type_, carried), edges in zip(along, values[width:], strict=True):
                for end, *stored in edges:
                    if end is not None:
                        target = tuple(end[1:])
                        yield type_, FoundEdge(node.key, target, end[0], _values(carried, stored))

    def ensure_schema(self, *, awaited: bool = True) -> None:
        """As the port says; if it is not `awaited`, constraints alone are there at the end.

        One worker at a time does so: of several that create one constraint at once, Neo4j can keep
        an index that belongs to none of them, never comes online and bars the constraint. A worker
        that is killed leaves the same; it is dropped here.
        """
        statements = {
            **schema_statements(),
            **vector_statements(
                filtered=self.client.searches_within_tenants(), browsed=self._browsed
            ),
            **fulltext_statements(browsed=self._browsed),
        }
        if self._missing(statements):
            self._create(statements, awaited=awaited)
        self.client.write(cypher.ENSURE_FEED)

    def _create(self, statements: Mapping[str, str], *, awaited: bool) -> None:
        with self.client.transaction(SCHEMA_TIMEOUT_S) as alone:
            alone.run(cypher.HOLD_SCHEMA, {})
            for name in self._column(questions.INDEXES_WITHOUT_CONSTRAINT):
                if name in constraint_names():
                    self.client.write(cypher.drop_index_text(name))
            if missing := self._missing(statements):  # else another worker has just made it
                for text, parameters in cypher.name_statements():
                    self.client.write(text, **parameters)
            for name in missing:
                self.client.write(statements[name])
            if awaited:
                self.client.write("CALL db.awaitIndexes($seconds)", seconds=int(SCHEMA_TIMEOUT_S))
            alone.rollback()

    def _missing(self, names: Iterable[str]) -> list[str]:
        """Those that are not online; a constraint has an index of its name, but is more."""
        online, constraints = self._online()
        present = online - constraint_names() | constraints
        return [name for name in names if name not in present]

    def ensure_checkpoints(
        self, stage: str, partitions: int, fold_version: int, models: str = ""
    ) -> None:
        self.client.write(
            cypher.CREATE_CHECKPOINTS,
            partitions=list(range(partitions)),
            stage=stage,
            position=str(START),
            fold_version=fold_version,
            models=models,
        )

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        rows = self.client.ask(questions.READ_CHECKPOINTS, stage=stage)
        return [checkpoint_of(row) for row in rows]

    def settle(self, stage: str, partitions: Iterable[int]) -> None:
        self.client.settle(stage, partitions)

    def dead_letters(
        self, stage: str | None = None, partition: int | None = None
    ) -> list[Mapping[str, Any]]:
        rows = self.client.ask(cypher.READ_DEAD_LETTERS, stage=stage, partition=partition)
        return [row.data() for row in rows]

    @contextmanager
    def transaction(self) -> Iterator[Neo4jTransaction]:
        with self.client.transaction() as opened:
            transaction = Neo4jTransaction(opened, self)
            yield transaction
            transaction.tell()

    def clear(self, *, keep_checkpoints: bool = False) -> None:
        self.client.write(cypher.CLOSE_FEED)
        self.client.write(cypher.CLEAR_MEMORY if keep_checkpoints else cypher.CLEAR)
        self.client.write(cypher.RENEW_FEED)

    def renew_feed(self) -> None:
        self.client.write(cypher.RENEW_FEED)

    def feed(self) -> FeedPlace:
        rows = self.client.ask(cypher.READ_FEED)
        if not rows:
            raise ChangesLost(reason=_NO_FEED)
        numbers = {chain: number for chain, number in rows[0]["chains"] if chain is not None}
        self._settle_feed(numbers)
        return FeedPlace(rows[0]["identity"], numbers)

    def changes(self, place: FeedPlace, most: int = MOST_CHANGES) -> Changes:
        newest, rows = self._read_changes(place, most)
        for _ in range(_SETTLED):
            if len(rows) == expected(place, newest, most):
                break
            self._settle_feed(newest)  # the newest is being committed, or they are lost
            newest, rows = self._read_changes(place, most)
        told = changes_of(place, newest, rows, most)
        self._settle_feed(
            name for name, number in newest.items() if told.place.numbers[name] == number
        )
        return told

    def _read_changes(
        self, place: FeedPlace, most: int
    ) -> tuple[dict[str, int], list[tuple[str, int, bytes]]]:
        """The newest numbers of the chains that are elsewhere, and what is between, as kept."""
        rows = self.client.ask(cypher.READ_CHANGES, numbers=dict(place.numbers), most=most)
        if not rows:
            raise ChangesLost(reason=_NO_FEED)
        (row,) = rows
        if row["identity"] != place.identity:
            raise ChangesLost(reason="this is another feed")
        if row["known"] < len(place.numbers):
            raise ChangesLost(reason="chains are missing")
        return dict(row["newest"]), [(*at, payload) for *at, payload in row["changes"]]

    def _settle_feed(self, chains: Iterable[str]) -> None:
        """Wait until all of the newest changes can be read: a commit shows its parts one by one."""
        if names := list(chains):
            limit_s = self.client.timeout_s
            self.client.write(cypher.HOLD_CHAINS, limit_s, chains=names)

    def store_id(self) -> str:
        (row,) = self.client.ask(cypher.STORE_ID)
        return str(row[0])

    def counts(self) -> Counts:
        return questions.counts_of(self.client.ask(questions.COUNTS))

    def census(self) -> Census:
        labels = {
            label: self._count(questions.count_nodes_text(label))
            for label in self._column(questions.LABELS)
            if label not in _UNCOUNTED
        }
        labels[""] = self._count(questions.COUNT_UNLABELLED)
        types = {
            type_: self._count(questions.count_edges_text(type_))
            for type_ in self._column(questions.TYPES)
        }
        stray = {name: self._count(text) for name, text in questions.STRAYS.items()}
        online, constraints = self._online()
        return Census(
            labels=_counted(labels),
            types=_counted(types),
            node_properties=self._names(questions.NODE_PROPERTIES),
            edge_properties=self._names(questions.EDGE_PROPERTIES),
            indexes=online - constraints,
            constraints=constraints,
            stray=_counted(stray),
        )

    def _online(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names of the indexes that are online, and of the constraints.

        One that bears a name of ours and is something else is told with what it covers.
        """
        expected = index_definitions()
        online = set()
        for name, labels, properties in self.client.stream(questions.ONLINE_INDEXES):
            label, columns = expected.get(name, ("", ()))
            is_ours = labels == [label] and tuple(properties[: len(columns)]) == columns
            other = name in expected and not is_ours
            online.add(f"{name} on {labels}, {properties}" if other else name)
        backed: dict[str, str | None] = dict(map(tuple, self.client.stream(questions.CONSTRAINTS)))
        constraints = {name for name, index in backed.items() if index is None or index in online}
        return frozenset(online), frozenset(constraints)

    def _column(self, text: str) -> list[str]:
        return [row[0] for row in self.client.stream(text)]

    def _count(self, text: str) -> int:
        (row,) = self.client.stream(text)
        return int(row[0])

    def _names(self, text: str) -> dict[str, frozenset[str]]:
        answer: dict[str, set[str]] = {}
        for kind, name in self.client.stream(text):
            answer.setdefault(kind, set()).add(name)
        return {kind: frozenset(names) for kind, names in answer.items() if kind not in _UNCOUNTED}


class _EdgeDecoder:
    """Makes edges of rows [source…, target…, value…], which end with the values of the row's key.

    Args:
        row: of the type.
        names: of the properties that were asked for.
        target: label of the nodes where they end; empty: the row's.
    """

    def __init__(self, row: EdgeRow, names: tuple[str, ...], target: str = "") -> None:
        self._names = names
        self._target = target or row.target
        self._source_width = len(NODES[row.source].key)
        self.width = self._source_width + len(NODES[self._target].key)
        self._keyed = self.width + len(names)

    def around(self, end: Key, rows: Rows, by: End) -> list[FoundEdge]:
        """Those of one end, of which the rows leave it out where `by` says which it is."""
        if by is End.SOURCE:
            rows = [[*end, *row] for row in rows]
        elif by is End.TARGET:
            width = self._source_width
            rows = [[*row[:width], *end, *row[width:]] for row in rows]
        return self.sorted(rows)

    def sorted(self, rows: Iterable[list[Any]], label: str = "") -> list[FoundEdge]:
        """The edges, by source, target and the row's key."""
        keyed = self._keyed
        ordered = list(rows)
        if len(ordered) > 1:
            ordered.sort(
                key=lambda row: (row[: self.width], [_sortable(value) for value in row[keyed:]])
            )
        return [self.edge(row, label or self._target) for row in ordered]

    def edge(self, row: list[Any], label: str) -> FoundEdge:
        """The edge of a row; `label` is that of the node where it ends."""
        return FoundEdge(
            tuple(row[: self._source_width]),
            tuple(row[self._source_width : self.width]),
            label,
            _values(self._names, row[self.width : self._keyed]),
        )


def _with_key(row: EdgeRow, names: tuple[str, ...]) -> tuple[str, ...]:
    return (*names, *row.key)


def _sortable(value: Any) -> tuple[str, Any]:
    """A value among others that may be of another type, or none."""
    return ("", 0) if value is None else (type(value).__name__, value)


def _node(depth: int, names: tuple[str, ...], row: Sequence[Any]) -> FoundNode:
    values = _values(names, row[depth + 2 :])
    return FoundNode(tuple(row[:depth]), row[depth], values, row[depth + 1])


def _values(names: tuple[str, ...], values: Sequence[Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if type(value) is list else value
        for name, value in zip(names, values, strict=True)
    }


def _stored(row: NodeRow, node: FoundNode) -> list[Any]:
    """The values of a restored node, as `cypher.restore_nodes_text` takes them."""
    given = {**node.values, **dict(zip(row.key, node.key, strict=True))}
    return [given.get(p.name) for p in row.stored()]


def _counted(numbers: Mapping[str, int]) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if number}


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
