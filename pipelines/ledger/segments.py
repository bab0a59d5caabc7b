"""The archive's files: segments of entries as Parquet, and the manifest that lists them.

A segment holds the entries of one partition from a number to another, without a gap, so the place
of an entry in it is arithmetic. A manifest chains its segments: each row's digest covers the one
before it, from the first segment on.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import orjson

from pipelines.ledger.entries import Entry
from projections.errors import ArchiveDamaged
from projections.identity import START, Position

MAX_ENTRIES: Final = 16_384
MAX_BYTES: Final = 8 * 2**20
"""Of a segment's entries before they are packed; a single entry may not be larger than 320 KiB."""
FORMAT: Final = 1
MANIFEST: Final = "manifest"
_METADATA: Final = b"recollect"
_ZSTD_LEVEL: Final = 3
_WORDS: Final = 3  # of a file's name
NO_NUMBER: Final = 2**63
_NAME_DIGITS: Final = 16  # of a digest, in a file's name


class Row(NamedTuple):
    """What a manifest says of a segment.

    Attributes:
        file: its name, below the partition's folder.
        first_seq, last_seq: numbers of its first and its last entry.
        first_position, last_position: as text, `ms-n`.
        entries: how many; as many as the numbers say.
        held_out: how many of them are not what was appended.
        data_bytes: of its entries.
        bytes: of the file.
        sha256: of the file, hex.
        chain: SHA-256 over the chain before it and the rest of this row, hex.
        derivations: SHA-256 of the file beside it that holds what was derived of its entries, hex;
            empty: there is none.
    """

    file: str
    first_seq: int
    last_seq: int
    first_position: str
    last_position: str
    entries: int
    held_out: int
    data_bytes: int
    bytes: int
    sha256: str
    chain: str
    derivations: str = ""

    @property
    def derivations_file(self) -> str:
        """Name of the file with what was derived of its entries; empty: there is none."""
        if not self.derivations:
            return ""
        return _file(self.first_seq, self.last_seq, self.derivations, "derivations.parquet")

    def chained(self, before: str) -> Self:
        """The row behind another one, whose chain digest is `before`."""
        told = self._asdict()
        del told["chain"]
        if not self.derivations:
            del told["derivations"]  # rows of before there were any have the same chain
        text = before.encode() + orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
        return self._replace(chain=hashlib.sha256(text).hexdigest())


class Packed(NamedTuple):
    """A segment as it is written.

    Attributes:
        row: of the manifest.
        data: bytes of the file.
        derivations: of the file beside it; empty: there is none.
    """

    row: Row
    data: bytes
    derivations: bytes = b""


class Manifest(NamedTuple):
    """The segments of a partition, in order.

    Attributes:
        ledger: identity of the ledger that they are of.
        partition: of it.
        rows: gapless from number 1 on.
    """

    ledger: str
    partition: int
    rows: tuple[Row, ...] = ()

    @property
    def last_seq(self) -> int:
        """Number of the last archived entry; 0: none."""
        return self.rows[-1].last_seq if self.rows else 0

    @property
    def last_position(self) -> Position:
        """Its position."""
        return Position.parse(self.rows[-1].last_position) if self.rows else START

    @property
    def chain(self) -> str:
        """Head of the digest chain."""
        if self.rows:
            return self.rows[-1].chain
        return hashlib.sha256(f"{self.ledger}:{self.partition}".encode()).hexdigest()

    @property
    def file(self) -> str:
        """Its name, below the partition's folder."""
        return manifest_file(self.last_seq, self.chain)

    def first(self, count: int) -> Self:
        """The manifest of its first segments."""
        return self._replace(rows=self.rows[:count])

    def with_segment(self, packed: Packed) -> Self:
        """The manifest with one segment more."""
        return self._replace(rows=(*self.rows, packed.row.chained(self.chain)))

    def packed(self) -> bytes:
        """As it is written."""
        document = {
            "format": FORMAT,
            "ledger": self.ledger,
            "partition": self.partition,
            "segments": [row._asdict() for row in self.rows],
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)

    @classmethod
    def unpacked(cls, data: bytes, name: str) -> Self:
        """From the bytes of a file, its chain and its numbers compared.

        Raises:
            ArchiveDamaged: naming the file and the rule.
        """
        try:
            document = orjson.loads(data)
            if document["format"] != FORMAT:
                raise ArchiveDamaged(name=name, rule=f"format is {FORMAT}")
            rows = tuple(Row(**row) for row in document["segments"])
            manifest = cls(str(document["ledger"]), int(document["partition"]), rows)
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveDamaged(name=name, rule=f"is a manifest ({error})") from None
        before = cls(manifest.ledger, manifest.partition)
        for row in rows:
            if row.chained(before.chain) != row:
                raise ArchiveDamaged(name=name, rule=f"the digest chain holds at {row.file}")
            if (
                row.first_seq != before.last_seq + 1
                or row.entries != row.last_seq - before.last_seq
            ):
                raise ArchiveDamaged(name=name, rule=f"numbers are gapless at {row.file}")
            before = before._replace(rows=(row,))
        return manifest

    def rows_between(self, seq: int, last_seq: int) -> Sequence[Row]:
        """The segments that hold numbers from `seq` to `last_seq`."""
        first = bisect_left(self.rows, seq, key=lambda row: row.last_seq)
        beyond = bisect_left(self.rows, last_seq + 1, key=lambda row: row.first_seq)
        return self.rows[first:beyond]

    def row_at(self, position: Position) -> Row | None:
        """The first segment that reaches a position; None: all end before it."""
        index = bisect_left(self.rows, position, key=lambda row: Position.parse(row.last_position))
        return self.rows[index] if index < len(self.rows) else None


def manifest_file(last_seq: int, chain: str) -> str:
    """Name of the manifest that ends at a number, with that head of its chain."""
    return f"{MANIFEST}-{last_seq:012d}-{chain[:_NAME_DIGITS]}.json"


def last_seq_of(name: str) -> int:
    """The last number that a file is about, as its name says; of other files, beyond all."""
    words = name.split("-")
    return int(words[1]) if len(words) == _WORDS and words[1].isdecimal() else NO_NUMBER


def packed_segment(before: Manifest, entries: Sequence[Entry], derivations: bytes = b"") -> Packed:
    """The segment of entries that continue a manifest.

    Args:
        before: what is archived of their partition; the file names its chain.
        entries: at least one, without a gap.
        derivations: what was derived of them, as a file.
    """
    import pyarrow
    from pyarrow import parquet

    origin = {"ledger": before.ledger, "partition": before.partition, "after": before.chain}
    schema = pyarrow.schema(
        [
            ("seq", pyarrow.int64()),
            ("ms", pyarrow.uint64()),
            ("n", pyarrow.uint64()),
            ("data", pyarrow.binary()),
            ("request_id", pyarrow.string()),
            ("fault", pyarrow.string()),
        ],
        metadata={_METADATA: orjson.dumps(origin)},
    )
    columns = [
        [entry.seq for entry in entries],
        [entry.position.ms for entry in entries],
        [entry.position.seq for entry in entries],
        [entry.data for entry in entries],
        [entry.request_id for entry in entries],
        [entry.fault for entry in entries],
    ]
    arrays = [
        pyarrow.array(values, type=field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    sink = io.BytesIO()
    parquet.write_table(
        pyarrow.table(arrays, schema=schema),
        sink,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=["request_id", "fault"],
        write_statistics=["seq", "ms"],
    )
    data = sink.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    first, last = entries[0], entries[-1]
    row = Row(
        file=_file(first.seq, last.seq, sha256, "parquet"),
        first_seq=first.seq,
        last_seq=last.seq,
        first_position=str(first.position),
        last_position=str(last.position),
        entries=len(entries),
        held_out=sum(bool(entry.fault) for entry in entries),
        data_bytes=sum(len(entry.data) for entry in entries),
        bytes=len(data),
        sha256=sha256,
        chain="",
        derivations=hashlib.sha256(derivations).hexdigest() if derivations else "",
    )
    return Packed(row, data, derivations)


def _file(first_seq: int, last_seq: int, sha256: str, kind: str) -> str:
    return f"{first_seq:012d}-{last_seq:012d}-{sha256[:_NAME_DIGITS]}.{kind}"


class Segment:
    """The entries of a segment that was read.

    Args:
        partition: that it is of.
        row: what the manifest says of it.
        data: bytes of the file.
        name: of the file, for errors.

    Raises:
        ArchiveDamaged: it is not what the manifest says.
    """

    def __init__(self, partition: int, row: Row, data: bytes, name: str) -> None:
        if hashlib.sha256(data).hexdigest() != row.sha256:
            raise ArchiveDamaged(name=name, rule="its SHA-256 is the manifest's")
        import pyarrow
        from pyarrow import parquet

        self.row = row
        self._partition = partition
        self._table: Any = parquet.read_table(pyarrow.BufferReader(data), use_threads=False)
        self._ms = self._table.column("ms").to_numpy()
        self._n = self._table.column("n").to_numpy()
        if self._table.num_rows != row.entries:
            raise ArchiveDamaged(name=name, rule="it has as many entries as the manifest says")

    def entries(self, first_seq: int, last_seq: int) -> list[Entry]:
        """Those of these numbers, as far as they are in it."""
        start = max(first_seq, self.row.first_seq) - self.row.first_seq
        stop = min(last_seq, self.row.last_seq) - self.row.first_seq + 1
        columns = self._table.slice(start, max(0, stop - start)).to_pydict()
        values = zip(*(columns[name] for name in _COLUMNS), strict=True)
        return [Entry(self._partition, Position(ms, n), *rest) for ms, n, *rest in values]

    def seq_at(self, position: Position, *, behind: bool = False) -> int:
        """Number of the first entry that is not before a position, or is behind it.

        One beyond the last: there is none.
        """
        import numpy as np

        ms, n = np.uint64(position.ms), np.uint64(position.seq)
        low, high = (int(self._ms.searchsorted(ms, side)) for side in ("left", "right"))
        side = "right" if behind else "left"
        return self.row.first_seq + low + int(self._n[low:high].searchsorted(n, side))


_COLUMNS: Final = ("ms", "n", "seq", "data", "request_id", "fault")
"""As `Entry` has them, behind its partition."""
