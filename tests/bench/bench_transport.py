"""Entries a second through Faust and the transport, beside a bare XREADGROUP loop.

Both read the same streams with the same COUNT, acknowledge, and do nothing with the entries.
`python -m tests.bench.bench_transport [ENTRIES]` starts a Valkey of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from pipelines.ledger.entries import Block, Entry
from pipelines.local.servers import ValkeyServer
from pipelines.work.app import StageApp, run
from pipelines.work.settings import Settings, load_settings
from pipelines.work.transport.group import connect
from projections.errors import RecollectError
from projections.events import content_digest
from projections.operations import Checkpoint

PARTITIONS = 8
ENTRY_BYTES = 600


def fill(url: str, entries: int) -> None:
    """Write `entries` entries in the ledger's form, evenly over the partitions."""
    with redis.Redis.from_url(url) as client:
        for partition in range(PARTITIONS):
            stream = f"{{rc:{partition}}}:ledger"
            data = b"x" * ENTRY_BYTES
            entry = {"e": data, "d": content_digest(data)}
            for start in range(1, entries // PARTITIONS + 1, 1_000):
                pipe = client.pipeline(transaction=False)
                for seq in range(start, min(start + 1_000, entries // PARTITIONS + 1)):
                    pipe.xadd(stream, {**entry, "s": seq})
                pipe.execute()


async def bare_loop(settings: Settings, entries: int) -> tuple[float, float]:
    """Entries a second, and CPU µs an entry, of the shortest loop that reads and acknowledges."""
    streams = [f"{{rc:{n}}}:ledger" for n in range(PARTITIONS)]
    commands: Any = connect(settings)
    reader: Any = connect(settings, blocking=True)
    for stream in streams:
        await commands.xgroup_create(stream, "bare", "0")
    cursors = dict.fromkeys(streams, ">")
    done, began, cpu_s = 0, time.perf_counter(), time.process_time()
    while done < entries:
        replies = await reader.xreadgroup(
            "bare", "worker", cursors, count=settings.batch_size, block=500
        )
        pipe = commands.pipeline(transaction=False)
        for stream, raw in replies:
            pipe.xack(stream, "bare", *(entry_id for entry_id, _ in raw))
            done += len(raw)
        await pipe.execute()
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    await reader.aclose()
    await commands.aclose()
    return done / seconds, cpu_s / done * 1e6


class Counter:
    """A folder that counts, and ends the worker when all is there."""

    def __init__(self, entries: int) -> None:
        self._left = entries
        self._counted = 0
        self._began = 0.0
        self._cpu_s = 0.0
        self._lock = threading.Lock()
        self._checkpoints: dict[int, Checkpoint] = {}

    def checkpoint(self, partition: int) -> Checkpoint:
        return self._checkpoints.get(partition, Checkpoint("noop", partition))

    def read(self, *_: object) -> list[Entry]:
        """The ledger has nothing to object to what was read."""
        return []

    def apply_together(self, blocks: Sequence[Block]) -> dict[int, RecollectError | None]:
        for block in blocks:
            self._apply(block)
        return dict.fromkeys(block.partition for block in blocks)

    def interrupt(self) -> None:
        """It waits for nothing."""

    def _apply(self, block: Block) -> None:
        last = block.entries[-1]
        with self._lock:
            self._checkpoints[block.partition] = Checkpoint(
                "noop", block.partition, last.position, last.seq
            )
            if not self._began:
                self._cpu_s = time.process_time()
                self._began = time.perf_counter()  # after the first block: start-up is left out
            else:
                self._counted += len(block.entries)
            self._left -= len(block.entries)
            if self._left == 0:
                rate = self._counted / (time.perf_counter() - self._began)
                cpu_us = (time.process_time() - self._cpu_s) / self._counted * 1e6
                sys.stdout.write(json.dumps({"rate": rate, "cpu_us": cpu_us}) + "\n")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGTERM)


def worker(entries: int) -> int:
    """A worker process; prints its rate and ends."""
    return run(StageApp("noop", load_settings(), "blue", lambda stop: Counter(entries)))


def measure(entries: int = 200_000) -> dict[str, float]:
    """Entries/s of the bare loop and of the transport, their ratio, and CPU time an entry."""
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder) / "valkey")
        server.start()
        try:
            server.wait_ready()
            fill(server.url, entries)
            settings = Settings(redis_url=server.url, partitions=PARTITIONS)
            bare, bare_cpu_us = asyncio.run(bare_loop(settings, entries))
            environment = {
                **os.environ,
                "RECOLLECT_REDIS_URL": server.url,
                "RECOLLECT_PARTITIONS": str(PARTITIONS),
                "RECOLLECT_DATA_DIR": folder,
                "RECOLLECT_LOG_LEVEL": "warning",
            }
            module = "tests.bench.bench_transport"
            out = subprocess.run(
                [sys.executable, "-m", module, "worker", str(entries)],
                env=environment,
                stdout=subprocess.PIPE,
                check=True,
                timeout=300,
            ).stdout
        finally:
            server.stop()
    # Faust has a banner of its own on stdout.
    found = next(json.loads(line) for line in out.splitlines() if b'"rate"' in line)
    return {
        "bare_per_s": bare,
        "transport_per_s": found["rate"],
        "ratio": found["rate"] / bare,
        "bare_cpu_us_per_entry": bare_cpu_us,
        "transport_cpu_us_per_entry": found["cpu_us"],
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        sys.exit(worker(int(sys.argv[2])))
    figures = measure(int(sys.argv[1]) if sys.argv[1:] else 200_000)
    sys.stdout.write(json.dumps({name: round(value, 2) for name, value in figures.items()}) + "\n")
