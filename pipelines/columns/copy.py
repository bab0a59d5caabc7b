"""A copy on disk of what columns have read, so that a start does not read the graph.

A SQLite file holds nodes and edges as they were read, and the place of the graph's feed that they
are of; both change in one transaction, so of a killed process what it was writing is lost, and the
feed tells it again. Each row has a checksum. A file that is damaged or of another format is dropped
and made anew from the graph: the copy is missed, and never believed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy
import orjson
import structlog

import consolidation
import enrichment
from pipelines.columns.loading import LabelledNode, Readings, TypedEdge, columns_from
from pipelines.columns.tables import Array
from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.graph.rows import FeedPlace, FoundEdge, FoundNode
from pipelines.ledger.sealing import ERASED_USER
from pipelines.local.data_folder import locked
from pipelines.local.private_files import (
    connect,
    delete_database,
    empty_log,
    make_file,
    prepare,
    private_folder,
    writing,
)
from projections import structural
from projections.operations import Key
from projections.schema import EDGES, EVENT, NODES

_FORMAT: Final = orjson.dumps(
    [
        1,  # of the rows here
        [structural.FOLD_VERSION, enrichment.FOLD_VERSION, consolidation.FOLD_VERSION],
        [[label, names] for label, names in NODE_PROPERTIES.items()],
        [[type_, names] for type_, names in EDGE_PROPERTIES.items()],
    ]
)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY, format BLOB NOT NULL, data BLOB NOT NULL, sum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS node (
    label TEXT NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL, vector BLOB NOT NULL,
    sum INTEGER NOT NULL, UNIQUE (key, label)
);
CREATE TABLE IF NOT EXISTS edge (
    type TEXT NOT NULL, source BLOB NOT NULL, target BLOB NOT NULL, label TEXT NOT NULL,
    nth INTEGER NOT NULL, data BLOB NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (source, type, target, label, nth)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS edge_target ON edge (target, label);
"""
_ROWS: Final = 1_000
"""Written at once."""
_SINGLE, _DOUBLE = numpy.dtype("<f4"), numpy.dtype("<f8")

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = structlog.get_logger(__name__)


class _Unusable(Exception):
    """What the file says cannot be believed, or not be understood."""


class Copy:
    """The file; nothing here raises: where it fails it is dropped, and columns do without it.

    Args:
        path: of the file; None: nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stack = ExitStack()
        self._db: sqlite3.Connection | None = None
        self._nth = 0
        if path is not None:
            self._take(path)

    def _take(self, path: Path) -> None:
        """Take the file for this process, as long as it lives."""
        try:
            private_folder(path.parent)
            self._stack.enter_context(_held(path))
            _drop_left(path.parent)
        except OSError as error:  # another process has it, or the disk does not want to
            logger.warning("columns keep no copy", path=str(path), reason=str(error))
            self._path = None

    @property
    def is_kept(self) -> bool:
        """Whether there is a file for it."""
        return self._path is not None

    def close(self) -> None:
        """Close the file."""
        self._release()
        self._stack.close()
        self._path = None

    # -- reading -----------------------------------------------------------------------------------

    def place(self) -> FeedPlace | None:
        """Of the feed, that the copy is of; None: there is none that can be used."""
        if self._path is None or not self._path.exists():
            return None
        self._open(self._path)
        return self._try(self._read_place)

    def read(self) -> dict[str, Tenant] | None:
        """The columns of each tenant, by name; None: the file was damaged, and is gone."""

        def columns(db: sqlite3.Connection) -> dict[str, Tenant]:
            nodes = db.execute("SELECT label, key, data, vector, sum FROM node")
            edges = db.execute("SELECT type, source, target, label, nth, data, sum FROM edge")
            return columns_from(map(_node, nodes), map(_edge, edges))

        return self._try(columns)

    def _read_place(self, db: sqlite3.Connection) -> FeedPlace:
        ((health,),) = db.execute("PRAGMA quick_check(1)").fetchall()
        if health != "ok":
            raise _Unusable(health)
        row = db.execute("SELECT format, data, sum FROM place").fetchone()
        if row is None or row[0] != _FORMAT:
            raise _Unusable("it was not finished, or is of another version")
        _check(row)
        identity, numbers, self._nth = orjson.loads(row[1])
        return FeedPlace(identity, numbers)

    # -- writing -----------------------------------------------------------------------------------

    @contextmanager
    def anew(self, place: FeedPlace) -> Iterator[Copy]:
        """Begin another copy, of a place; it is there once the body has given it everything."""
        self._drop()
        if self._path is not None:
            self._open(self._path)
        self._try(lambda db: db.execute("BEGIN IMMEDIATE"))
        try:
            yield self
        except BaseException:
            self._drop()
            raise
        self._try(lambda db: self._put_place(db, place))
        self._try(lambda db: db.execute("COMMIT"))

    def keep_nodes(self, nodes: Iterable[LabelledNode]) -> Iterator[LabelledNode]:
        """Hand nodes on, and keep them."""
        for some in _chunks(nodes):
            self._try(lambda db: _put_nodes(db, some))  # noqa: B023  # called here
            yield from some

    def keep_edges(self, edges: Iterable[TypedEdge]) -> Iterator[TypedEdge]:
        """Hand edges on, and keep them."""
        for some in _chunks(edges):
            self._try(lambda db: self._put_edges(db, some))  # noqa: B023  # called here
            yield from some

    def keep(self, readings: Readings, place: FeedPlace) -> None:
        """Keep what was read again, up to a place."""

        def write(db: sqlite3.Connection) -> None:
            with writing(db):
                _drop_edges(db, readings)
                gone = [at for at, node in readings.nodes.items() if node is None]
                db.executemany(
                    "DELETE FROM node WHERE label = ? AND key = ?",
                    [(label, _packed(key)) for label, key in gone],
                )
                nodes = [(at[0], node) for at, node in readings.nodes.items() if node is not None]
                _put_nodes(db, nodes)
                self._put_edges(db, readings.edges)
                self._put_place(db, place)
            if gone or any(_is_erased(at[0], node) for at, node in readings.nodes.items()):
                empty_log(db)
                if self._path is not None:
                    _drop_left(self._path.parent)

        self._try(write)

    def _put_edges(self, db: sqlite3.Connection, edges: Iterable[TypedEdge]) -> None:
        rows = []
        for type_, edge in edges:
            self._nth += 1
            data = orjson.dumps([edge.values[name] for name in EDGE_PROPERTIES[type_]])
            ends = _packed(edge.source), _packed(edge.target)
            rows.append(_summed(type_, *ends, edge.label, self._nth, data))
        db.executemany("INSERT INTO edge VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _put_place(self, db: sqlite3.Connection, place: FeedPlace) -> None:
        data = orjson.dumps([place.identity, dict(place.numbers), self._nth])
        db.execute("INSERT OR REPLACE INTO place VALUES (1, ?, ?, ?)", _summed(_FORMAT, data))

    # -- the file ----------------------------------------------------------------------------------

    def _open(self, path: Path) -> None:
        try:
            make_file(path)
            self._db = connect(path)
        except (sqlite3.Error, OSError) as error:
            self._drop(str(error))
        self._try(lambda db: prepare(db, _SCHEMA))

    def _try(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """What the file says; None where it fails, which is the end of it."""
        if self._db is None:
            return None
        try:
            return work(self._db)
        except (sqlite3.Error, OSError, _Unusable, orjson.JSONEncodeError) as error:
            self._drop(f"{type(error).__name__}: {error}")
            return None

    def _drop(self, reason: str = "") -> None:
        """Delete the file."""
        self._release()
        if self._path is None:
            return
        if reason:
            logger.warning("copy of the columns dropped", path=str(self._path), reason=reason)
        try:
            delete_database(self._path)
        except OSError as error:
            logger.warning("columns keep no copy", path=str(self._path), reason=str(error))
            self.close()

    def _release(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _held(path: Path) -> AbstractContextManager[object]:
    """The lock of a copy."""
    return locked(path.with_name(f"{path.name}.lock"), blocking=False)


def _drop_left(folder: Path) -> None:
    """Delete the copies that no process has: nobody takes out of them what is erased."""
    for path in folder.glob("*.sqlite"):
        with suppress(BlockingIOError), _held(path):
            delete_database(path)


# -- rows ------------------------------------------------------------------------------------------


def _is_erased(label: str, node: FoundNode | None) -> bool:
    """Whether it is an event of somebody who was erased."""
    user = node.values.get("user_id") if node is not None and label == EVENT.label else None
    return isinstance(user, str) and user.startswith(ERASED_USER)


def _put_nodes(db: sqlite3.Connection, nodes: Iterable[LabelledNode]) -> None:
    rows = []
    for label, node in nodes:
        name = NODES[label].vector or ""
        values = {**node.values, name: None}
        data = orjson.dumps([node.visible, *(values[name] for name in NODE_PROPERTIES[label])])
        vector = _vector_bytes(node.values.get(name))
        rows.append(_summed(label, _packed(node.key), data, vector))
    db.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?)", rows)


def _node(row: tuple[Any, ...]) -> LabelledNode:
    label, key, data, vector, _ = _check(row)
    visible, *listed = orjson.loads(data)
    values = _values(NODE_PROPERTIES[label], listed)
    if vector:
        values[NODES[label].vector or ""] = _vector(vector)
    return label, FoundNode(_key(key), visible, values, False)


def _edge(row: tuple[Any, ...]) -> TypedEdge:
    type_, source, target, label, _, data, _ = _check(row)
    values = _values(EDGE_PROPERTIES[type_], orjson.loads(data))
    return type_, FoundEdge(_key(source), _key(target), label, values)


def _drop_edges(db: sqlite3.Connection, readings: Readings) -> None:
    """Delete the edges that are not as they were."""
    from_source = "DELETE FROM edge WHERE source = ? AND type = ?"
    into = [(_packed(key), label) for label, keys in readings.removed.items() for key in keys]
    db.executemany("DELETE FROM edge WHERE target = ? AND label = ?", into)
    out = [(key, type_) for key, label in into for type_ in _types_from(label)]
    db.executemany(from_source, out)
    cleared = [(_packed(key), type_) for type_, keys in readings.cleared.items() for key in keys]
    db.executemany(from_source, cleared)
    db.executemany(
        f"{from_source} AND target = ? AND label = ?",
        [
            (_packed(source), type_, _packed(target), label)
            for type_, pairs in readings.pairs.items()
            for source, target, label in pairs
        ],
    )


def _types_from(label: str) -> list[str]:
    """Types whose edges begin at nodes of a label."""
    return [type_ for type_ in EDGE_PROPERTIES if EDGES[type_].source == label]


def _packed(key: Key) -> bytes:
    return orjson.dumps(key)


def _key(packed: bytes) -> Key:
    return tuple(orjson.loads(packed))


def _values(names: Sequence[str], listed: Sequence[Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if type(value) is list else value
        for name, value in zip(names, listed, strict=True)
    }


def _vector_bytes(vector: Sequence[float] | None) -> bytes:
    """The numbers as they are, in 4 bytes each if that is enough; behind them how many bytes."""
    if vector is None:
        return b""
    exact = numpy.asarray(vector, _DOUBLE)
    single = exact.astype(_SINGLE)
    shortest = single if (single == exact).all() else exact
    return shortest.tobytes() + bytes([shortest.itemsize])


def _vector(packed: bytes) -> Array:
    kind = _SINGLE if packed[-1] == _SINGLE.itemsize else _DOUBLE
    return numpy.frombuffer(packed[:-1], kind).astype(_DOUBLE)


def _summed(*parts: Any) -> tuple[Any, ...]:
    """A row with its checksum behind it."""
    return *parts, _sum(parts)


def _check(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row.

    Raises:
        _Unusable: it is not as it was written.
    """
    if row[-1] != _sum(row[:-1]):
        raise _Unusable("a row is not as it was written")
    return row


def _sum(parts: Iterable[Any]) -> int:
    # as Python writes them: text that has become bytes is something else
    plain = (part if type(part) is bytes else repr(part).encode() for part in parts)
    return zlib.crc32(b"\0".join(plain))


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    left = iter(items)
    while some := list(islice(left, _ROWS)):
        yield some
