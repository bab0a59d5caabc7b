"""Many events through a small Redis, with an archiver beside: `python -m tests.bench.archive`.

Events are small: an envelope, `--text` random characters and a random id, in sessions of fifty.
They count as folded at once, so what is measured is ledger and archive, not a graph. With `--graph`
a worker projects them into a Neo4j, no event leaves Redis before it is folded, and the graph is
verified at the end: then the producer is never further ahead of the graph than `--ahead`, because a
memory that is offered more than it folds for hours must refuse at last. An archiver in a process of
its own does what `recollect worker archive` does. Prints what was refused, what memory it took,
what an event leaves in Redis and on the disk, how soon the oldest event is read, and how long
backup and restore take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.ledger.ledger import Appended
from pipelines.local.processes import free_port
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations import archive as archiving
from pipelines.operations.archive import Low, archive, archive_when_due
from pipelines.operations.backup import backup, restore
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION
from projections.errors import LedgerUnavailable, RecollectError
from projections.events import Event
from tests.bench.stack import finished
from tests.fakes.events import numbered_event
from tests.servers import running
from tests.waiting import wait_until

_AT_ONCE = 1_000
_LOOKS = 200
_COLD_LOOKS = 7
_TEXT = 40
_OPEN = 200
_SESSION = 50
_TOLD_EVERY = 100_000
_PAUSE_S = 0.05
_PATIENCE_S = 3_600.0
_COUNTED_AS_FOLDED = "memory://bench"
MB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--redis-mb", type=int, default=64)
    parser.add_argument("--text", type=int, default=_TEXT)
    parser.add_argument("--id-buckets", type=int, default=32_768)
    parser.add_argument("--minutes", type=float, default=1e6, help="append no longer than this")
    parser.add_argument("--no-drill", action="store_true", help="neither backup nor restore")
    parser.add_argument("--graph", action="store_true", help="project them, and verify")
    parser.add_argument("--patient", action="store_true", help="ask a server again that is away")
    parser.add_argument("--ahead", type=int, default=60_000, help="of the graph, at most")
    parser.add_argument("--page-cache-mb", type=int, default=2_048, help="of its Neo4j")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        valkey = ValkeyServer(
            Path(folder) / "valkey", extra_args=["--maxmemory", f"{options.redis_mb}mb"]
        )
        graph_url = _COUNTED_AS_FOLDED
        if options.graph:
            server = Neo4jServer(
                Path(folder) / "neo4j", heap_mb=1_024, page_cache_mb=options.page_cache_mb
            )
            graph_url = stack.enter_context(running(server)).url
        settings = Settings(
            redis_url=stack.enter_context(running(valkey)).url,
            neo4j_url=graph_url,
            id_buckets=options.id_buckets,
            archive_url=f"{folder}/archive",
            data_dir=Path(folder),
            log_level="warning",
        )
        _count_as_folded(settings)
        services = stack.enter_context(Services(settings))
        ahead = options.ahead if options.graph else None
        if options.graph:
            services.active()
            services.ledger.admit()
            stack.enter_context(_projecting(settings, Path(folder)))
        most_s = options.minutes * 60
        offer = _Offer(options.events, options.text, most_s, ahead, options.patient)
        if not _measure(services, offer):
            return
        if options.graph:
            _verify(services)
        if not options.no_drill:
            _drill(services)


class _Offer(NamedTuple):
    events: int
    text: int
    most_s: float
    ahead: int | None
    is_patient: bool


def _count_as_folded(settings: Settings) -> None:
    if settings.neo4j_url != _COUNTED_AS_FOLDED:
        return
    rules: Any = archiving
    folded = Low(2**62, "bench")
    rules.lowest = lambda _, partitions: dict.fromkeys(range(partitions), folded)


@contextmanager
def _projecting(settings: Settings, folder: Path) -> Iterator[None]:
    """A worker of Stage 1 in a process of its own."""
    with (folder / "worker.log").open("wb") as log:
        process = _recollect(settings, "worker", PROJECTION.name, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _recollect(settings: Settings, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    said = settings.model_dump(
        include={"redis_url", "neo4j_url", "id_buckets", "archive_url", "data_dir", "log_level"}
    )
    variables = {f"RECOLLECT_{name.upper()}": str(value) for name, value in said.items()}
    variables["RECOLLECT_METRICS_PORT"] = str(free_port())
    command = [sys.executable, "-m", "pipelines.cli.main", *arguments]
    return subprocess.Popen(command, env=os.environ | variables, **options)


def _behind(services: Services) -> int:
    """Entries that the graph has not folded yet."""
    folded = sum(one.seq for one in services.graph(services.active()).checkpoints(PROJECTION.name))
    return sum(tail.seq for tail in services.ledger.tails()) - folded


def _verify(services: Services) -> None:
    """Wait for the worker, then prove what it made."""
    begun = time.perf_counter()
    wait_until(lambda: _behind(services) == 0, "the graph holds it all", _PATIENCE_S)
    _say("folded after the last append", f"{time.perf_counter() - begun:.0f} s")
    for arguments in (["--sample", "0.001"], ["--fast"]):
        begun = time.perf_counter()
        process = _recollect(services.settings, "verify", *arguments, stdout=subprocess.PIPE)
        output, peak_mb, _ = finished(process)
        last = output.decode().strip().splitlines()[-1]
        _say(f"verify {arguments[0]}", f"exit {process.returncode}: {last}")
        _say("…", f"{time.perf_counter() - begun:.0f} s, at most {peak_mb:.0f} MB")


def _archiver(settings: Settings, stop: Any) -> None:
    _count_as_folded(settings)
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


def _measure(services: Services, offer: _Offer) -> bool:
    """Whether all of them got in."""
    ledger = services.ledger
    events, text = offer.events, offer.text
    empty, limit = ledger.memory()
    refused, most, begun = 0, 0, time.perf_counter()
    with _archiving(services.settings):
        for first in range(0, events, _AT_ONCE):
            batch = [_event(n, text) for n in range(first, min(first + _AT_ONCE, events))]
            while offer.ahead is not None and _behind(services) > offer.ahead:
                time.sleep(_PAUSE_S)
            while True:
                try:
                    assert all(isinstance(one, Appended) for one in ledger.append(batch))
                    break
                except LedgerUnavailable as error:
                    if "maxmemory" not in str(error):
                        if not offer.is_patient:
                            raise
                        _say("no answer", str(error))
                        continue
                    refused += 1
                    time.sleep(0.5)
                    if refused > _LOOKS:
                        _say("given up", f"full at {first:,} events")
                        return False
            most = max(most, ledger.memory()[0])
            if first % _TOLD_EVERY == 0:
                sys.stderr.write(f"{first:,} after {time.perf_counter() - begun:,.0f} s\n")
            if time.perf_counter() - begun > offer.most_s:
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
    session = number % _OPEN + number // (_OPEN * _SESSION) * _OPEN
    return numbered_event(
        number, event_id=event_id, session_id=f"session-{session}", payload={"text": text}
    )


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
