"""`python -m tests.bench.changes`: what it costs to follow the ledger, and how soon one knows.

Streams follow the ledger of a real Valkey while another process appends to it, a tenant's events
at a time that stand in their payloads. First as they do, then with no memory of the newest
changes, so that each stream reads the ledger itself. HTTP is left out: it costs both the same.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

import orjson

from api import changes
from api.changes import Change, Changes, Reading, Wanted
from pipelines.graph.reads.scope import operator_scope
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.sequence import last_position
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.identity import START
from tests.fakes.events import numbered_event
from tests.servers import running

SECONDS: Final = 5.0
STREAMS: Final = (1, 20, 100)
RATES: Final = (20, 500)
"""Events a second."""
BATCH: Final = 5
HISTORY: Final = 20_000
TENANT: Final = "default"


class Figures(NamedTuple):
    """Of some streams.

    Attributes:
        p50_ms: from before the append to the stream, at the median.
        p95_ms: likewise.
        cpu_share: of a core, that the following process took.
    """

    p50_ms: float
    p95_ms: float
    cpu_share: float


def ledger_of(url: str) -> Ledger:
    """The ledger there."""
    return Ledger(connect_redis(Settings(redis_url=url)), checkpoints=dict)


def write(url: str, rate: int) -> None:
    """Append for a while, as fast as is said; in a process of its own."""
    ledger, ends_s, number = ledger_of(url), time.monotonic() + SECONDS, 0
    while (now_s := time.monotonic()) < ends_s:
        at = {"at_ns": time.monotonic_ns(), "text": "what was said " * 20}
        events = [
            numbered_event(number + n, event_id=str(uuid.uuid4()), payload=at) for n in range(BATCH)
        ]
        ledger.append(events)
        number += BATCH
        time.sleep(max(0.0, now_s + BATCH / rate - time.monotonic()))


async def follow(url: str, streams: int, rate: int) -> Figures:
    """Streams beside a writer."""
    ledger = ledger_of(url)
    followed = Changes(lambda: ledger)
    wanted = Wanted(operator_scope(TENANT, 0))
    here = last_position(ledger.tails())
    latencies: list[float] = []

    def note(change: Change) -> None:
        at_ns = orjson.loads(change.json)["payload"]["at_ns"]
        latencies.append((time.monotonic_ns() - at_ns) / 1e6)

    async def stream(told: Callable[[Change], None]) -> int:
        count, idle = 0, 0
        with Reading(followed, wanted, here) as reading:
            while idle < 3:
                came = await reading.next(0.5)
                idle = 0 if came or not count else idle + 1
                count += len(came)
                for change in came:
                    told(change)
        return count

    writer = get_context("spawn").Process(target=write, args=(url, rate))
    writer.start()
    began_s = time.process_time()
    counts = await asyncio.gather(
        stream(note), *(stream(lambda _: None) for _ in range(streams - 1))
    )
    cpu_s = time.process_time() - began_s
    await asyncio.to_thread(writer.join)
    followed.stop()
    assert len(set(counts)) == 1
    cuts = quantiles(latencies, n=20)
    return Figures(cuts[9], cuts[18], cpu_s / SECONDS)


async def catch_up(url: str) -> tuple[float, float]:
    """Events a second from the beginning; and of a bare reading of all partitions, decoded."""
    ledger = ledger_of(url)
    for first in range(0, HISTORY, 1_000):
        ledger.append(
            [numbered_event(n, event_id=str(uuid.uuid4())) for n in range(first, first + 1_000)]
        )
    began_s, bare = time.perf_counter(), 0
    for partition in range(ledger.partitions):
        for block in ledger.scan(partition):
            bare += sum(entry.event() is not None for entry in block)
    bare_s = time.perf_counter() - began_s
    followed = Changes(lambda: ledger)
    count, began_s = 0, time.perf_counter()
    with Reading(followed, Wanted(operator_scope(TENANT, 0)), START) as reading:
        while count < bare:
            count += len(await reading.next(10))
    followed.stop()
    return count / (time.perf_counter() - began_s), bare / bare_s


def main() -> None:
    """Print the figures."""
    say = sys.stdout.write
    kept = changes.RING_BYTES
    with tempfile.TemporaryDirectory() as folder, running(ValkeyServer(Path(folder))) as server:
        say("| streams | events/s | reads | p50 ms | p95 ms | of a core |\n")
        say("|--:|--:|--|--:|--:|--:|\n")
        for ring_bytes, name in ((kept, "the tail, once"), (1, "each for itself")):
            changes.RING_BYTES = ring_bytes  # type: ignore[misc]  # the bench alone does that
            for streams in STREAMS:
                for rate in RATES:
                    seen = asyncio.run(follow(server.url, streams, rate))
                    times = f"{seen.p50_ms:.1f} | {seen.p95_ms:.1f}"
                    say(f"| {streams} | {rate} | {name} | {times} | {seen.cpu_share:.2f} |\n")
        changes.RING_BYTES = kept  # type: ignore[misc]  # likewise
        fast, bare = asyncio.run(catch_up(server.url))
        say(f"\nfrom the beginning: {fast:,.0f} events/s; read and decoded alone {bare:,.0f}\n")


if __name__ == "__main__":
    main()
