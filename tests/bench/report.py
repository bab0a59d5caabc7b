"""The figures as a Markdown table, ready for `docs/explanation/performance.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AIMS = {"append": 0.6, "stage": 0.8, "verify": 0.6, "lag_p95_ms": 250}


def markdown(document: Mapping[str, Any]) -> str:
    """One table over all sizes, and the command under it."""
    lines = [
        "| events | what | measured | hand-written limit | ratio | aim |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for size, figures in document["sizes"].items():
        lines += [f"| {int(size):,} {row}" for row in _rows(figures)]
    transport = document["transport"]
    machine = document["machine"]
    lines += [
        "",
        f"Faust and the transport alone, blocks read and acknowledged, nothing done with them: "
        f"{transport['transport_per_s']:,.0f} entries/s, a bare XREADGROUP loop "
        f"{transport['bare_per_s']:,.0f}.",
        "",
        f"{machine['system']} {machine['architecture']}, {machine['cores']} cores, "
        f"Python {machine['python']}, Neo4j with {machine['neo4j_heap_mb']:,} MB heap and "
        f"{machine['neo4j_page_cache_mb']} MB page cache; load {machine['load_before']} before, "
        f"{machine.get('load_after', '?')} after. Made by `make bench"
        f"{_arguments(document)}`.",
    ]
    return "\n".join(lines)


def _rows(figures: Mapping[str, Any]) -> list[str]:
    append, live, rebuild = figures["append"], figures["live"], figures["rebuild"]
    verify, lag = figures["verify"], figures["lag"]
    cpu = live["cpu_us_per_event"]
    return [
        _row(
            "append, batches of 500 (events/s)",
            f"{append['append_events_per_s']:,}",
            f"{append['raw_xadd_events_per_s']:,} pipelined XADD",
            append["append_to_raw_ratio"],
            f"≥ {AIMS['append']}",
        ),
        _row(
            "append, one at a time (p50)",
            f"{append['append_single_p50_us']} µs",
            f"{append['raw_xadd_single_p50_us']} µs XADD",
            append["append_single_to_raw_ratio"],
            f"≥ {AIMS['append']}",
        ),
        _row(
            "Stage 1 live, blocks of 1,000 (events/s)",
            f"{live['events_per_s']:,}",
            f"{live['limit_events_per_s']:,} UNWIND",
            live["ratio"],
            f"≥ {AIMS['stage']}",
        ),
        _row(
            "its processor time an event, Python + Neo4j",
            f"{cpu['worker']} + {cpu['worker_neo4j']} µs",
            f"{cpu['hand_neo4j']} µs in Neo4j",
        ),
        _row(
            "Stage 1 rebuild, blocks of 4,000 (events/s)",
            f"{rebuild['events_per_s']:,}",
            f"{rebuild['limit_events_per_s']:,} UNWIND",
            rebuild["ratio"],
            f"≥ {AIMS['stage']}",
        ),
        _row(
            "lag at 500 events/s, p50",
            f"{lag['p50_ms']} ms",
            f"known to {lag['resolution_p50_ms']} ms",
        ),
        _row(
            "lag at 500 events/s, p95",
            f"{lag['p95_ms']} ms",
            f"known to {lag['resolution_p95_ms']} ms",
            aim=f"< {AIMS['lag_p95_ms']} ms",
        ),
        _row(
            "verify (events/s)",
            f"{verify['events_per_s']:,}",
            f"{verify['limit_events_per_s']:,} bare read",
            verify["ratio"],
            f"≥ {AIMS['verify']}",
        ),
        _row(
            "Redis, bytes an event",
            f"{append['redis_bytes_per_event']:,}",
            f"{append['raw_bytes_per_event']:,} raw stream, "
            f"{append['envelope_bytes_per_event']:,} envelope",
            round(append["raw_bytes_per_event"] / append["redis_bytes_per_event"], 2),
        ),
        _row("memory of a worker", f"{live['worker_mb']} MB", aim="flat"),
        _row("memory of verify, peak", f"{verify['peak_mb']} MB", aim="flat"),
        _row("memory of rebuild, peak", f"{rebuild['peak_mb']} MB", aim="flat"),
    ]


def _row(what: str, measured: str, limit: str = "", ratio: Any = "", aim: str = "") -> str:
    return f"| {what} | {measured} | {limit} | {ratio} | {aim} |"


def _arguments(document: Mapping[str, Any]) -> str:
    sizes = " ".join(document["sizes"])
    return "" if sizes == "20000 200000" else f' BENCH_ARGS="--sizes {sizes}"'
