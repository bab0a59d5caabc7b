"""`make bench`: every figure beside the hand-written limit for the same bytes and writes.

    make bench                              # 20,000 and 200,000 events, half an hour
    make bench BENCH_ARGS="--quick"         # 2,000 events, to see that it works
    make bench BENCH_ARGS="--sizes 50000 --json bench.json"

It starts a Valkey and two Neo4j of its own. Limits and product run in turns, so that a busy
machine slows both; a ratio is the median over the turns, and 1 is as fast as the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import bench_append, bench_lag, bench_stage, bench_transport, bench_verify
from tests.bench.report import markdown
from tests.bench.stack import HEAP_MB, PAGE_CACHE_MB, Stack, running_stack

SIZES = (20_000, 200_000)
QUICK = 2_000
WARM_UP = 30_000
PASSES_UP_TO = 20_000
"""Sizes that are run three times over; larger ones are cut into slices, each a turn."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="EVENTS")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} events, short waits")
    parser.add_argument("--lag-seconds", type=float, default=25.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args()
    sizes: list[int] = [QUICK] if options.quick else sorted(options.sizes)
    lag_seconds: float = 5.0 if options.quick else options.lag_seconds
    document = run(sizes, lag_seconds, warm_up=QUICK if options.quick else WARM_UP)
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(markdown(document) + "\n")
    return 0


def run(sizes: Sequence[int], lag_seconds: float, *, warm_up: int) -> dict[str, Any]:
    """All figures, by size."""
    document: dict[str, Any] = {"machine": _machine(), "sizes": {}}
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        _say("transport")
        document["transport"] = bench_transport.measure(min(200_000, 10 * sizes[-1]))
        _say("starting Valkey and two Neo4j")
        with running_stack(Path(folder)) as stack:
            _say(f"warming the JVMs up with {warm_up:,} events")
            bench_stage.measure_live(stack, warm_up, passes=1)
            bench_stage.measure_rebuild(stack, rounds=1)
            for size in sizes:
                document["sizes"][str(size)] = _measure(stack, size, lag_seconds)
    document["machine"]["load_after"] = _load()
    return document


def _measure(stack: Stack, size: int, lag_seconds: float) -> dict[str, Any]:
    repeated = size <= PASSES_UP_TO
    figures: dict[str, Any] = {}

    def note(name: str, found: dict[str, Any]) -> None:
        gc.collect()
        figures[name] = found | {"load": _load()}
        _say(f"{size:,} events, {name}: {json.dumps(figures[name])}")

    stack.clear()
    stack.redis.flushall()
    note("append", bench_append.measure(size, stack.settings.redis_url))
    note("live", bench_stage.measure_live(stack, size, passes=3 if repeated else 1))
    note("verify", bench_verify.measure(stack, rounds=5 if repeated else 3))
    note("rebuild", bench_stage.measure_rebuild(stack, rounds=3 if repeated else 2))
    note("lag", bench_lag.measure(stack, lag_seconds))
    return figures


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "neo4j_heap_mb": HEAP_MB,
        "neo4j_page_cache_mb": PAGE_CACHE_MB,
        "load_before": _load(),
    }


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
