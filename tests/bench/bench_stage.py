"""Stage 1, live and rebuilt, beside a hand-written UNWIND loop that does the same writes.

Live: a worker process is stopped (SIGSTOP) while a slice of events is appended, then drains it;
then the loop writes the same slice, in blocks of the same entries, to the other Neo4j. Both graphs
grow together. Rebuild: the loop and `recollect rebuild` fill the same Neo4j in turns.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from pipelines.graph.neo4j import Neo4jGraph
from projections.events import decode_event
from projections.identity import START, Position
from tests.bench.limits import HandWritten
from tests.bench.sample import sample_events
from tests.bench.stack import (
    Stack,
    cpu_seconds,
    finished,
    per_second,
    phase_seconds,
    resident_mb,
)

SLICE = 20_000


def measure_live(stack: Stack, size: int, passes: int) -> dict[str, Any]:
    """Figures of a backlog of `size` events; the last pass leaves ledger and graph filled."""
    counts: list[int] = []
    live_s: list[float] = []
    hand_s: list[float] = []
    cpu = {"worker": 0.0, "worker_neo4j": 0.0, "hand": 0.0, "hand_neo4j": 0.0}
    figures: dict[str, Any] = {}
    for _ in range(passes):
        stack.clear()
        before = _dataset_bytes(stack)
        hand = HandWritten(stack.green)
        events = sample_events(size)
        behind = [START] * stack.settings.partitions
        with stack.worker() as worker:
            phases = _phases(stack)
            for first in range(0, size, SLICE):
                count = min(SLICE, size - first)
                os.kill(worker.pid, signal.SIGSTOP)
                stack.append(events, count)
                used = _cpu(stack, worker.pid)
                begun = time.perf_counter()
                os.kill(worker.pid, signal.SIGCONT)
                stack.wait_projected()
                live_s.append(time.perf_counter() - begun)
                own = time.process_time()
                seconds, behind = write_by_hand(stack, hand, stack.settings.batch_size, behind)
                hand_s.append(seconds)
                counts.append(count)
                cpu["hand"] += time.process_time() - own
                for name, seconds in _cpu(stack, worker.pid).items():
                    cpu[name] += seconds - used[name]
            figures["worker_mb"] = round(resident_mb(worker.pid), 1)
            spent = _phases(stack)
        figures["redis_bytes_per_event"] = round((_dataset_bytes(stack) - before) / size)
    ratios = [hand / live for hand, live in zip(hand_s, live_s, strict=True)]
    return figures | {
        "events_per_s": per_second(counts, live_s),
        "limit_events_per_s": per_second(counts, hand_s),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "cpu_us_per_event": {name: round(s / sum(counts) * 1e6) for name, s in cpu.items()},
        "phase_us_per_event": {
            name: round((s - phases.get(name, 0.0)) / size * 1e6) for name, s in spent.items()
        },
    }


def measure_rebuild(stack: Stack, rounds: int) -> dict[str, Any]:
    """Figures of `recollect rebuild --into green` on the ledger as it is."""
    size = sum(tail.seq for tail in stack.ledger.tails())
    rebuilt_s: list[float] = []
    hand_s: list[float] = []
    peaks: list[float] = []
    for _ in range(rounds):
        Neo4jGraph(stack.green).clear()
        hand = HandWritten(stack.green)
        starts = [START] * stack.settings.partitions
        hand_s.append(write_by_hand(stack, hand, stack.settings.rebuild_batch_size, starts)[0])
        Neo4jGraph(stack.green).clear()
        stack.services.targets.register(stack.green_target)
        child = stack.child("rebuild", "--into", "green", "--json", stdout=subprocess.PIPE)
        output, peak, _ = finished(child)
        report = json.loads(output)
        assert report["ok"], report
        rebuilt_s.append(size / report["entries_per_second"])
        peaks.append(peak)
        stack.services.targets.drop("green")
    ratios = [hand / rebuilt for hand, rebuilt in zip(hand_s, rebuilt_s, strict=True)]
    return {
        "events_per_s": per_second([size] * rounds, rebuilt_s),
        "limit_events_per_s": per_second([size] * rounds, hand_s),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "peak_mb": round(max(peaks), 1),
    }


def write_by_hand(
    stack: Stack, hand: HandWritten, batch: int, behind: Sequence[Position]
) -> tuple[float, list[Position]]:
    """Write what lies behind these positions; seconds of writing, and the new positions."""
    seconds = 0.0
    ends = list(behind)
    for partition, after in enumerate(behind):
        for entries in stack.ledger.scan(partition, after=after, count=batch):
            events = [(entry.position, decode_event(entry.data)) for entry in entries]
            seconds += hand.write(hand.block(partition, entries[-1].seq, events))
            ends[partition] = entries[-1].position
    return seconds, ends


def _cpu(stack: Stack, worker: int) -> dict[str, float]:
    blue, green = stack.local.neo4j["blue"].pid, stack.local.neo4j["green"].pid
    assert blue is not None
    assert green is not None
    return {
        "worker": cpu_seconds(worker),
        "worker_neo4j": cpu_seconds(blue),
        "hand_neo4j": cpu_seconds(green),
    }


def _phases(stack: Stack) -> dict[str, float]:
    return dict(phase_seconds(stack.metrics()))


def _dataset_bytes(stack: Stack) -> int:
    return int(stack.redis.info("memory")["used_memory_dataset"])
