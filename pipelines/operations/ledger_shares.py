"""The ledger, read once and written down by share of the tenants, for the processes that fold it.

To read all of it for every share costs 5 µs of processor time an entry and share. What is written
is what the ledger holds: sealed events stay sealed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

from pipelines.ledger.entries import Entry
from pipelines.ledger.sealing import Opener
from pipelines.local.private_files import open_private
from pipelines.proof.expected import BLOCK, ReadLedger, blocks_between
from pipelines.proof.sums import READING
from pipelines.work.services import Progress
from projections.identity import START, Position
from projections.operations import Checkpoint


def share_of(tenant: str, shares: int) -> int:
    """Which of so many shares a tenant is in, the same in every process."""
    return crc32(tenant.encode()) % shares


def split(
    ledger: ReadLedger, until: Iterable[Checkpoint], folders: Sequence[Path], progress: Progress
) -> None:
    """Write down the entries up to checkpoints of stages that all end there, a folder a share.

    The last entry of a partition is in every share, for it tells where the partition ends, and so
    is one of which nobody can tell whose it is.

    Raises:
        LedgerUnavailable, ArchiveDamaged, UndecodableEntry: as `Ledger.read` does.
    """
    ends = {to.partition: to for to in until}
    done, total = 0, sum(to.seq for to in ends.values())
    for to in ends.values():
        with ExitStack() as stack:
            files = [
                stack.enter_context(open_private(_path(folder, to.partition), "wb"))
                for folder in folders
            ]
            start = Checkpoint(to.stage, to.partition, position=START)
            for entries in blocks_between(ledger, start, to):
                rows: list[list[tuple[object, ...]]] = [[] for _ in folders]
                for entry in entries:
                    tenant = None if entry.fault or entry.seq == to.seq else entry.tenant
                    row = (*entry.position, *entry[2:-1])
                    if tenant is not None:
                        rows[share_of(tenant, len(folders))].append(row)
                    else:
                        for of_share in rows:
                            of_share.append(row)
                for file, of_share in zip(files, rows, strict=True):
                    pickle.dump(of_share, file)
                done += len(entries)
                progress(done, total, READING)


def entries_of(folder: Path, partition: int, keys: Opener) -> Iterator[list[Entry]]:
    """The entries of a partition that were written into a folder, a transaction's at a time.

    Args:
        folder: of a share.
        partition: which.
        keys: what opens them.
    """
    entries: list[Entry] = []
    with _path(folder, partition).open("rb") as file:
        while file.peek(1):
            entries += [
                Entry._make((partition, Position(ms, number), *told, keys))
                for ms, number, *told in pickle.load(file)  # noqa: S301  this program wrote it
            ]
            if len(entries) >= BLOCK:
                yield entries
                entries = []
    if entries:
        yield entries


def _path(folder: Path, partition: int) -> Path:
    return folder / f"{partition}.entries"
