"""Append beside the hand-written limit: a pipelined XADD loop writing the same bytes.

    python -m tests.bench.bench_append --events 20000 [--json]

Both run in turns, round by round, on one Valkey of the bench's own, so that a busy machine slows
both; the ratio is the median over the rounds. The limit gets its bytes ready-made, neither knows
duplicates nor keeps an index of ids; `append` starts from events and encodes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.events import Event, encode_event
from tests.bench.sample import sample_events

BATCH = 500
ROUNDS = 20
MOST_A_ROUND = 5_000
SINGLE_EVENTS = 2_000
_STREAM = "raw:ledger"


def measure(events: int, url: str) -> dict[str, Any]:
    """Figures of one run on an empty server at `url`."""
    settings = Settings(redis_url=url)
    client: Any = connect_redis(settings)
    ledger = Ledger(client, checkpoints=dict)
    sample = sample_events(events + SINGLE_EVENTS)
    per_round = min(MOST_A_ROUND, max(BATCH, events // ROUNDS // BATCH * BATCH))

    def raw_loop(encoded: Sequence[bytes]) -> None:
        for first in range(0, len(encoded), BATCH):
            pipeline = client.pipeline(transaction=False)
            for seq, data in enumerate(encoded[first : first + BATCH]):
                pipeline.execute_command("XADD", _STREAM, "*", "e", data, "s", seq)
            pipeline.execute()

    def append_loop(part: Sequence[Event]) -> None:
        for first in range(0, len(part), BATCH):
            outcomes = ledger.append(part[first : first + BATCH])
            assert all(isinstance(one, Appended) and not one.duplicate for one in outcomes)

    ledger.admit()
    raw_s, append_s, encode_s, envelope_bytes, raw_bytes, ledger_bytes = [], [], 0.0, 0, 0, 0
    for first in range(0, events, per_round):
        part = list(islice(sample, min(per_round, events - first)))
        begun = time.perf_counter()
        encoded = [encode_event(event) for event in part]
        encode_s += time.perf_counter() - begun
        envelope_bytes += sum(map(len, encoded))
        before = _used(client)
        raw_s.append(_seconds(raw_loop, encoded) / len(part))
        between = _used(client)
        append_s.append(_seconds(append_loop, part) / len(part))
        raw_bytes += between - before
        ledger_bytes += _used(client) - between
    scan_s = _seconds(lambda: [deque(ledger.scan(p), maxlen=0) for p in range(8)]) / events

    raw_single, append_single = [], []
    for event in sample:
        data = encode_event(event)
        raw_single.append(_seconds(client.execute_command, "XADD", _STREAM, "*", "e", data))
        append_single.append(_seconds(ledger.append, [event]))
    ratios = [raw / ours for raw, ours in zip(raw_s, append_s, strict=True)]
    return {
        "events": events,
        "raw_xadd_events_per_s": round(1 / statistics.median(raw_s)),
        "append_events_per_s": round(1 / statistics.median(append_s)),
        "append_to_raw_ratio": round(statistics.median(ratios), 3),
        "scan_events_per_s": round(1 / scan_s),
        "encode_us_per_event": round(encode_s / events * 1e6, 2),
        "raw_xadd_single_p50_us": round(statistics.median(raw_single) * 1e6),
        "append_single_p50_us": round(statistics.median(append_single) * 1e6),
        "append_single_to_raw_ratio": round(
            statistics.median(raw_single) / statistics.median(append_single), 3
        ),
        "envelope_bytes_per_event": round(envelope_bytes / events),
        "raw_bytes_per_event": round(raw_bytes / events),
        "redis_bytes_per_event": round(ledger_bytes / events),
    }


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    before = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - before


def _used(client: Any) -> int:
    return int(client.info("memory")["used_memory_dataset"])


def main() -> int:
    """Start a Valkey, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        server.start()
        try:
            server.wait_ready()
            figures = measure(options.events, server.url)
        finally:
            server.stop()
    if options.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        for name, value in figures.items():
            sys.stdout.write(f"{name:30} {value:>12,}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
