"""Many events through a small Redis, with an archiver beside: `python -m tests.bench.archive`.

Events are small (an envelope, `--text` random characters and a random id) and count as folded at
once, so what is measured is ledger and archive, not a graph. An archiver in a process of its own
does what `recollect worker archive` does. Prints what was refused, what memory it took, what an
event leaves in Redis and on the disk, how soon the oldest event is read, and how long backup and
restore take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.ledger.ledger import Appended
from pipelines.local.servers import ValkeyServer
from pipelines.operations import archive as archiving
from pipelines.operations.archive import Low, archive, archive_when_due
from pipelines.operations.backup import backup, restore
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from projections.errors import LedgerUnavailable, RecollectError
from projections.events import Event
from tests.fakes.events import numbered_event
from tests.servers import running

_AT_ONCE = 1_000
_LOOKS = 200
_COLD_LOOKS = 7
_TEXT = 40
MB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--redis-mb", type=int, default=64)
    parser.add_argument("--text", type=int, default=_TEXT)
    parser.add_argument("--id-buckets", type=int, default=32_768)
    parser.add_argument("--minutes", type=float, default=1e6, help="append no longer than this")
    parser.add_argument("--no-drill", action="store_true", help="neither backup nor restore")
    options = parser.parse_args()
    _count_as_folded()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(
            ValkeyServer(Path(folder), extra_args=["--maxmemory", f"{options.redis_mb}mb"])
        ) as server,
        Services(
            Settings(
                redis_url=server.url,
                neo4j_url="memory://bench",
                id_buckets=options.id_buckets,
                archive_url=f"{folder}/archive",
            )
        ) as services,
    ):
        most_s = options.minutes * 60
        if _measure(services, options.events, options.text, most_s) and not options.no_drill:
            _drill(services)


def _count_as_folded() -> None:
    rules: Any = archiving
    folded = Low(2**62, "bench")
    rules.lowest = lambda _, partitions: dict.fromkeys(range(partitions), folded)


def _archiver(settings: Settings, stop: Any) -> None:
    _count_as_folded()
    with Services(settings) as services:
        while not stop.wait(settings.archive_every_s / 4):
            try:
                archive_when_due(services, lambda: None)
            except RecollectError as error:
                _say("archiver", str(error))


@contextmanager
def _archiving(settings: Settings) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    process = context.Process(target=_archiver, args=(settings, stop))
    process.start()
    try:
        yield
    finally:
        stop.set()
        process.join()


def _measure(services: Services, events: int, text: int, most_s: float) -> bool:
    """Whether all of them got in."""
    ledger = services.ledger
    empty, limit = ledger.memory()
    refused, most, begun = 0, 0, time.perf_counter()
    with _archiving(services.settings):
        for first in range(0, events, _AT_ONCE):
            batch = [_event(n, text) for n in range(first, min(first + _AT_ONCE, events))]
            while True:
                try:
                    assert all(isinstance(one, Appended) for one in ledger.append(batch))
                    break
                except LedgerUnavailable as error:
                    if "maxmemory" not in str(error):
                        raise
                    refused += 1
                    time.sleep(0.5)
                    if refused > _LOOKS:
                        _say("given up", f"full at {first:,} events")
                        return False
            most = max(most, ledger.memory()[0])
            if time.perf_counter() - begun > most_s:
                events = first + len(batch)
                break
        seconds = time.perf_counter() - begun
    _say("appended", f"{events:,} events in {seconds:.0f} s, {events / seconds:,.0f}/s")
    _say("refused for want of memory", f"{refused} batches")
    _say("memory of Redis, most", f"{most / MB:.0f} of {limit / MB:.0f} MB")
    last = archive(services, keep=1)
    boundaries = ledger.archive.boundaries(range(ledger.partitions))
    _say(
        "archived",
        f"{sum(one.seq for one in boundaries):,} in {sum(b.segments for b in boundaries)} segments",
    )
    _say("the rest by hand", f"{last.archived:,}")
    _say(
        "left in Redis",
        f"{(ledger.memory()[0] - empty) / events:.1f} bytes an event: where each stands",
    )
    size = sum(
        path.stat().st_size for path in Path(services.settings.archive_url or "").rglob("*.*")
    )
    _say("on the disk", f"{size / events:.0f} bytes an event")
    oldest, newest = _event(0, text), _event(events - 1, text)
    cold = [_cold(services.settings, oldest) for _ in range(_COLD_LOOKS)]
    with Services(services.settings) as fresh:
        warm = [_ms(lambda: fresh.ledger.find(*oldest.key)) for _ in range(_LOOKS)]
        streamed = [_ms(lambda: fresh.ledger.find(*newest.key)) for _ in range(_LOOKS)]
        wall, processor = (statistics.median(each) for each in zip(*cold, strict=True))
        told = f"{wall:.1f} ms, of them {processor:.1f} of processor time, median of {len(cold)}"
        _say("the oldest event, first time", told)
        _say("… again, median", f"{statistics.median(warm):.2f} ms")
        _say("the newest event, median", f"{statistics.median(streamed):.2f} ms")
        begun = time.perf_counter()
        read = sum(len(block) for n in range(ledger.partitions) for block in fresh.ledger.scan(n))
        _say("read as one sequence", f"{read:,} at {read / (time.perf_counter() - begun):,.0f}/s")
    assert read == events
    return True


def _drill(services: Services) -> None:
    """Back up, and restore into a Redis of its own that has no limit."""
    folder = Path(services.settings.archive_url or "").parent
    backed = backup(services, f"{folder}/backup")
    _say("backed up", f"{backed.written:,} in {backed.seconds:.0f} s")
    with running(ValkeyServer(folder / "goal")) as goal:
        settings = {"redis_url": goal.url, "archive_url": f"{folder}/goal-archive"}
        with Services(services.settings.model_copy(update=settings)) as other:
            report = restore(other, f"{folder}/backup")
            _say("restored", f"{report.entries:,} in {report.seconds:.0f} s")
            found = other.ledger.find_many([_event(n, _TEXT).key for n in (0, report.entries - 1)])
            assert len(found) == 2


def _event(number: int, characters: int) -> Event:
    """Nothing in it is easy to pack."""
    drawn = random.Random(number)
    event_id = str(uuid.UUID(int=drawn.getrandbits(128)))
    text = f"{drawn.getrandbits(4 * characters):x}"
    return numbered_event(number, event_id=event_id, payload={"text": text})


def _cold(settings: Settings, event: Event) -> tuple[float, float]:
    """How long who has read nothing yet looks for an event, ms, and its processor time."""
    with Services(settings) as fresh:
        begun, used = time.perf_counter(), time.process_time()
        assert fresh.ledger.find(*event.key) is not None
        return (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000


def _ms(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    assert function() is not None
    return (time.perf_counter() - begun) * 1000


def _say(what: str, value: str) -> None:
    sys.stdout.write(f"{what:<32} {value}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
