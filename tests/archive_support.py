"""A ledger on a real Valkey, folded into a graph in memory, whose entries go into a folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pipelines.ledger import sequence
from pipelines.ledger.entries import LOST, Entry
from pipelines.operations.archive import ArchiveReport, archive
from projections.events import Event
from projections.identity import Position
from tests.fakes.events import numbered_event
from tests.integration.stack import ValkeyStack

Make: TypeAlias = "Callable[..., ArchivedStack]"
SEGMENT_ENTRIES = 7
"""Of tests: a small ledger has many segments."""
_names = itertools.count()


class ArchivedStack(ValkeyStack):
    """A ledger of two partitions and its projection.

    Args:
        redis_url: of a Valkey.
        folder: of the archive; nothing is in it yet.
    """

    def __init__(self, redis_url: str, folder: Path, **options: Any) -> None:
        self.folder = folder
        graph = f"memory://archived-{next(_names)}"
        super().__init__(redis_url, graph, **{"archive_url": str(folder), **options})
        self.events: list[Event] = []

    def put(self, count: int = 120) -> None:
        """Append so many events more, and fold them."""
        first = len(self.events)
        events = [numbered_event(number) for number in range(first, first + count)]
        self.append(*events)
        self.events += events
        self.fold()

    def archive(self, keep: int = 1, **options: Any) -> ArchiveReport:
        return archive(self.services, keep=keep, **options)

    def reopened(self, **options: Any) -> ArchivedStack:
        """The same ledger as another process sees it."""
        settings = self.services.settings.model_copy(update=options)
        other = ArchivedStack.__new__(ArchivedStack)
        other.folder, other.events = self.folder, self.events
        other.services = type(self.services)(settings)
        other.ledger = other.services.ledger
        other.target = other.services.active()
        other.graph = other.services.graph(other.target)
        other.runner = other.new_runner()
        return other

    def entries(self, partition: int, count: int = 1_000) -> list[Entry]:
        return [entry for block in self.ledger.scan(partition, count=count) for entry in block]

    def streamed(self) -> int:
        redis: Any = self.services.redis
        keys = self.ledger.keys
        return sum(redis.xlen(keys.stream(partition)) for partition in range(2))

    def segments(self, partition: int) -> list[Path]:
        return sorted((self.folder / str(partition)).glob("*.parquet"))


def answers(stack: ArchivedStack) -> dict[str, Any]:
    """Everything that a ledger says of its entries, asked in many ways."""
    ledger, told = stack.ledger, dict[str, Any]()
    for partition in range(ledger.partitions):
        entries = stack.entries(partition)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        told[f"all {partition}"] = entries
        for count in (1, 3, 10):
            told[f"blocks {partition} {count}"] = stack.entries(partition, count) == entries
        for number in range(0, len(entries), 5):
            here, place = entries[number], f"{partition} {number}"
            if here.fault == LOST:
                continue  # its position is nobody's
            end = entries[min(number + 9, len(entries) - 1)].position
            told[f"read {place}"] = ledger.read(partition, here.position, 4)
            told[f"known {place}"] = ledger.read(partition, here.position, 8, after_seq=here.seq)
            told[f"until {place}"] = ledger.read(partition, here.position, 100, end)
            told[f"up to {place}"] = ledger.read(partition, Position(0, 0), 100, here.position)
            told[f"before {place}"] = ledger.newest(partition, here.position, 7)
            told[f"at {place}"] = ledger.entry_at(partition, here.position)
            told[f"between {place}"] = ledger.entry_at(partition, Position(here.position.ms, 0))
    keys = [(event.tenant, event.event_id) for event in stack.events]
    told["found"] = ledger.find_many([*keys, ("default", "nobody")])
    told["one"] = ledger.find(*keys[0])
    told["tails"] = ledger.tails()
    told["held out"] = ledger.held_out()
    return told


def contents(stack: ArchivedStack) -> Any:
    """Every entry of a ledger in order, and each that is found by its event's id."""
    keys = [(event.tenant, event.event_id) for event in stack.events]
    return [stack.entries(0), stack.entries(1)], stack.ledger.find_many(keys)


def small_segments(monkeypatch: Any) -> None:
    """Segments of a few entries."""
    monkeypatch.setattr(sequence, "MAX_ENTRIES", SEGMENT_ENTRIES)


@contextmanager
def archived_stacks(
    redis_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """What makes ledgers of small segments in which something is."""
    small_segments(monkeypatch)
    with ExitStack() as opened:

        def make(**options: Any) -> ArchivedStack:
            made = ArchivedStack(redis_url, folder / "archive", **options)
            opened.callback(made.close)
            made.put()
            return made

        yield make
