"""An archiver that is killed at its nth step: `python -m tests.killed_archiver REDIS_URL FOLDER`.

Each line of standard input is a number; the answer is `killed`, or `done` when it had no so many
steps. Each try is a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.ledger import sequence
from pipelines.ledger.archive import Archive
from pipelines.ledger.archive_files import ArchiveStore
from pipelines.ledger.archived_ids import ArchivedIds
from pipelines.ledger.entries import Entry
from pipelines.operations import archive as archiving
from pipelines.operations.derived_files import Collected
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from tests.archive_support import SEGMENT_ENTRIES

_STEPS = (
    *((ArchiveStore, name) for name in ("get", "put", "names", "remove")),
    (Archive, "move"),
    (ArchivedIds, "pack"),
    (os, "fsync"),
)


def _kill_at(step: int) -> None:
    """Kill this process before its nth step."""
    taken = 0

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return run

    for owner, name in _STEPS:
        setattr(owner, name, stepping(getattr(owner, name)))


def _archive(redis_url: str, folder: str) -> None:
    rules: Any = archiving
    reading: Any = sequence
    reading.MAX_ENTRIES = SEGMENT_ENTRIES
    # The graph is in the test's own process; all has been folded there.
    folded = archiving.Low(2**31, "the test")
    rules.lowest = lambda _, partitions: dict.fromkeys(range(partitions), folded)
    rules.Collector.of = _of  # the steps that it adds are the files'; what is in them is no matter
    settings = Settings(redis_url=redis_url, partitions=2, id_buckets=64, archive_url=folder)
    with Services(settings) as services:
        services.redis.delete(services.ledger.keys.archive_lease)  # of the one killed before
        archiving.archive(services, keep=1)


def _of(_: object, entries: Sequence[Entry]) -> Collected:
    return Collected(b"derived of %d" % entries[0].seq, 1)


def main() -> None:
    for line in sys.stdin:
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            assert status in (0, signal.SIGKILL), status
            sys.stdout.write("killed\n" if status else "done\n")
            sys.stdout.flush()
        else:
            _kill_at(int(line))
            _archive(*sys.argv[1:3])
            os._exit(0)


if __name__ == "__main__":
    main()
