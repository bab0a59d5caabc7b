"""Events as a Parquet file, for those who count and join: a column for each field of the envelope.

The payload is JSON text, times are timestamps in UTC, `position` is where the ledger has the event.
To come back into a ledger, export JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from pipelines.operations.export.events import events
from pipelines.operations.export.selection import ExportReport, ReadLedger, Selection
from pipelines.work.services import Progress
from projections.events import Event

_ROWS = 10_000
"""Of a group, which is held in memory."""


def event_table(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The file, piece by piece; see `events` for the arguments.

    Raises:
        LedgerUnavailable: Redis went away.
    """
    import pyarrow
    from pyarrow import parquet

    times = pyarrow.timestamp("ms", tz="UTC")
    kinds = {"occurred_at_ms": times, "ended_at_ms": times}
    kinds |= {"schema_version": pyarrow.int32(), "importance_hint": pyarrow.int32()}
    schema = pyarrow.schema(
        [
            *(
                (name.removesuffix("_ms"), kinds.get(name, pyarrow.string()))
                for name in Event._fields
            ),
            ("position", pyarrow.string()),
        ]
    )
    sink = _Sink()
    writer = parquet.ParquetWriter(sink, schema, compression="zstd")
    selected = events(ledger, selection, report, progress)
    while group := list(islice(selected, _ROWS)):
        rows = [(*_cells(event), str(entry.position)) for event, entry in group]
        columns = [
            pyarrow.array(values, type=field.type)
            for values, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        writer.write_table(pyarrow.table(columns, schema=schema))
        yield sink.taken()
    writer.close()
    yield sink.taken()


def _cells(event: Event) -> Iterator[Any]:
    for name, value in zip(Event._fields, event, strict=True):
        yield orjson.dumps(value).decode() if name == "payload" and value is not None else value


class _Sink:
    """A file that hands over what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """What was written stays to be taken."""

    def taken(self) -> bytes:
        """All since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
