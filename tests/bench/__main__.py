"""`make bench`: every figure beside the hand-written limit for the same bytes and writes.

    make bench                              # all parts, an hour
    make bench BENCH_ARGS="--quick"         # tiny sizes, a few minutes, to see that it works
    make bench BENCH_ARGS="--sizes 50000 --json bench.json"
    make bench BENCH_ARGS="--only enrichment enrichment-rebuild --enriched 2000"

Parts: stage1 (append, Stage 1, verify, lag; at each of --sizes), enrichment, enrichment-rebuild
(uses what the part before it enriched, or enriches first), ingest-enrichment, ingest-rebuild,
consolidation (empties everything first), similar. It starts a Valkey and two Neo4j of its own.
Limits and product run in turns, so that a busy machine slows both; a ratio is the median over the
turns, and 1 is as fast as the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tests.bench import (
    bench_append,
    bench_consolidation,
    bench_enrichment,
    bench_ingest,
    bench_lag,
    bench_similar,
    bench_stage,
    bench_transport,
    bench_verify,
)
from tests.bench.machine import load, machine, say
from tests.bench.report import markdown
from tests.bench.stack import HEAP_MB, PAGE_CACHE_MB, Stack, running_stack

PARTS = (
    "stage1",
    "enrichment",
    "enrichment-rebuild",
    "ingest-enrichment",
    "ingest-rebuild",
    "consolidation",
    "similar",
)
"""In this order: what `similar` leaves behind takes long to clear."""
SIZES = (20_000, 200_000)
QUICK = 2_000
WARM_UP = 30_000
PASSES_UP_TO = 20_000
"""Sizes that are run three times over; larger ones are cut into slices, each a turn."""


@dataclass(frozen=True)
class Extent:
    """How much of everything.

    Attributes:
        sizes: events of Stage 1.
        lag_s: of a measurement of lag.
        warm_up: events through both Neo4j before anything is measured.
        enriched: sample events of the enrichment.
        enriched_before: sample events that warm it up.
        conversations: turns of real conversations at most; None: all.
        similar: vectors.
        real: so many of them come from texts.
        backlog: events that wait for the enrichment beside ingest.
        rebuilt: events that are rebuilt beside ingest.
        offered: events/s that ingest is offered beside a rebuild, at most.
        offered_s: for so long.
        rounds: turns of what runs beside ingest, and of the rebuild with models.
        consolidated: events of a pass.
    """

    sizes: tuple[int, ...] = SIZES
    lag_s: float = 25.0
    warm_up: int = WARM_UP
    enriched: int = 2_000
    enriched_before: int = 1_000
    conversations: int | None = None
    similar: tuple[int, ...] = (10_000, 100_000)
    real: int = 4_000
    backlog: int = 20_000
    rebuilt: int = 50_000
    offered: int = 2_000
    offered_s: float = 15.0
    rounds: int = 2
    consolidated: tuple[int, ...] = (10_000, 50_000, 200_000)


TINY = Extent(
    sizes=(QUICK,),
    lag_s=5.0,
    warm_up=500,
    enriched=150,
    enriched_before=100,
    conversations=150,
    similar=(500, 1_500),
    real=200,
    backlog=4_000,
    rebuilt=6_000,
    offered_s=5.0,
    rounds=1,
    consolidated=(QUICK,),
)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = Extent()
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, short waits")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    many: dict[str, Any] = {"type": int, "nargs": "+", "metavar": "EVENTS"}
    one: dict[str, Any] = {"type": int, "metavar": "EVENTS"}
    parser.add_argument("--sizes", help=f"of stage1 {usual.sizes}", **many)
    parser.add_argument("--enriched", help=f"sample events ({usual.enriched:,})", **one)
    parser.add_argument("--conversations", help="turns of conversations (all)", **one)
    parser.add_argument("--similar", help=f"vectors {usual.similar}", **many)
    parser.add_argument("--consolidated", help=f"events of a pass {usual.consolidated}", **many)
    parser.add_argument("--real", help=f"vectors of real texts ({usual.real:,})", **one)
    parser.add_argument("--backlog", help=f"of ingest-enrichment ({usual.backlog:,})", **one)
    parser.add_argument("--rebuilt", help=f"of ingest-rebuild ({usual.rebuilt:,})", **one)
    parser.add_argument("--offered", type=int, metavar="RATE", help=f"to it ({usual.offered:,}/s)")
    parser.add_argument("--lag-seconds", dest="lag_s", type=float, metavar="SECONDS")
    parser.add_argument("--rounds", type=int, help=f"of what has turns ({usual.rounds})")
    options = vars(parser.parse_args())
    given: dict[str, Any] = {
        field.name: tuple(sorted(value)) if isinstance(value, list) else value
        for field in fields(Extent)
        if (value := options.get(field.name)) is not None
    }
    extent = replace(TINY if options["quick"] else usual, **given)
    document = run(options["only"], extent, save=options["json"])
    sys.stdout.write(markdown(document) + "\n")
    return 0


def run(parts: Sequence[str], extent: Extent, *, save: Path | None = None) -> dict[str, Any]:
    """The figures of some parts.

    Args:
        parts: of `PARTS`.
        extent: how much.
        save: the figures go here after each part, so that an hour is not lost with the last.
    """
    document: dict[str, Any] = {
        "machine": machine(heap_mb=HEAP_MB, page_cache_mb=PAGE_CACHE_MB),
        "arguments": sys.argv[1:],
        "sizes": {},
        "parts": {},
    }

    def kept() -> None:
        document["machine"]["load_after"] = load()
        if save is not None:
            save.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        if "stage1" in parts:
            say("transport")
            document["transport"] = bench_transport.measure(min(200_000, 10 * extent.sizes[-1]))
        say("starting Valkey and two Neo4j")
        with running_stack(Path(folder)) as stack:
            if set(parts) != {"similar"}:
                say(f"warming the JVMs up with {extent.warm_up:,} events")
                bench_stage.measure_live(stack, extent.warm_up, passes=1)
                bench_stage.measure_rebuild(stack, rounds=1)
            if "stage1" in parts:
                for size in extent.sizes:
                    document["sizes"][str(size)] = _measure(stack, size, extent.lag_s)
                    kept()
            for name in PARTS[1:]:
                if name in parts:
                    say(name)
                    _part(stack, name, extent, document["parts"])
                    kept()
    return document


def _part(stack: Stack, name: str, extent: Extent, figures: dict[str, Any]) -> None:
    def enrichment() -> dict[str, Any]:
        return bench_enrichment.measure(
            stack,
            sample=extent.enriched,
            conversations=extent.conversations,
            warm_up=extent.enriched_before,
        )

    def enrichment_rebuild() -> dict[str, Any]:
        if "enrichment" not in figures:
            enrichment()
        return bench_enrichment.measure_rebuild(stack, extent.rounds)

    def consolidation() -> dict[str, Any]:
        found = {}
        for size in extent.consolidated:
            found[str(size)] = bench_consolidation.measure(stack, size)
            say(f"consolidation of {size:,} events: {json.dumps(found[str(size)])}")
        return found

    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "enrichment": enrichment,
        "enrichment-rebuild": enrichment_rebuild,
        "ingest-enrichment": lambda: bench_ingest.measure_beside_enrichment(
            stack, backlog=extent.backlog, seconds=extent.lag_s, rounds=extent.rounds
        ),
        "ingest-rebuild": lambda: bench_ingest.measure_beside_rebuild(
            stack,
            events=extent.rebuilt,
            offered_per_s=extent.offered,
            seconds=extent.offered_s,
            rounds=extent.rounds,
        ),
        "consolidation": consolidation,
        "similar": lambda: bench_similar.measure(stack, extent.similar, real=extent.real),
    }
    gc.collect()
    found = measures[name]()
    figures[name] = found | {"load": load()}
    say(f"{name}: {json.dumps(figures[name])}")


def _measure(stack: Stack, size: int, lag_seconds: float) -> dict[str, Any]:
    repeated = size <= PASSES_UP_TO
    figures: dict[str, Any] = {}

    def note(name: str, found: dict[str, Any]) -> None:
        gc.collect()
        figures[name] = found | {"load": load()}
        say(f"{size:,} events, {name}: {json.dumps(figures[name])}")

    stack.clear()
    stack.redis.flushall()
    note("append", bench_append.measure(size, stack.settings.redis_url))
    note("live", bench_stage.measure_live(stack, size, passes=3 if repeated else 1))
    note("fast", bench_verify.measure(stack, 5 if repeated else 3, "--fast"))
    note("verify", bench_verify.measure(stack, 2))
    note("rebuild", bench_stage.measure_rebuild(stack, rounds=3 if repeated else 2))
    note("lag", bench_lag.measure(stack, lag_seconds))
    return figures


if __name__ == "__main__":
    sys.exit(main())
