"""The figures as a Markdown table, ready for `docs/explanation/performance.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from projections.schema import SIMILAR_TO

AIMS = {
    "append": 0.6,
    "stage": 0.8,
    "verify": 0.6,
    "lag_p95_ms": 250,
    "enrichment": 0.7,
    "embedded_again": 0,
    "lag_p95_ms_beside_enrichment": 1_000,
    "ingest_beside_rebuild": 0.67,
    "incremental_pass": 0.05,
}


def markdown(document: Mapping[str, Any]) -> str:
    """One table over all sizes, and the command under it."""
    lines = [
        "| events | what | measured | hand-written limit | ratio | aim |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for size, figures in document["sizes"].items():
        lines += [f"| {int(size):,} {row}" for row in _rows(figures)]
    for name, rows in _PARTS.items():
        if name in document["parts"]:
            lines += rows(document["parts"][name])
    if "transport" in document:
        transport = document["transport"]
        lines += [
            "",
            "Faust and the transport alone, blocks read and acknowledged, nothing done with them: "
            f"{transport['transport_per_s']:,.0f} entries/s, a bare XREADGROUP loop "
            f"{transport['bare_per_s']:,.0f}.",
        ]
    return "\n".join([*lines, "", made_by(document, "bench")])


def made_by(document: Mapping[str, Any], target: str) -> str:
    """The machine, and the command that makes the figures: `make TARGET`."""
    machine = document["machine"]
    return (
        f"{machine['system']} {machine['architecture']}, {machine['cores']} cores, "
        f"Python {machine['python']}, Neo4j with {machine['neo4j_heap_mb']:,} MB heap and "
        f"{machine['neo4j_page_cache_mb']:,} MB page cache; load {machine['load_before']} before, "
        f"{machine.get('load_after', '?')} after. Made by `make {target}{_arguments(document)}`."
    )


def _rows(figures: Mapping[str, Any]) -> list[str]:
    append, live, rebuild = figures["append"], figures["live"], figures["rebuild"]
    fast, verify, lag = figures["fast"], figures["verify"], figures["lag"]
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
            "verify --fast (events/s)",
            f"{fast['events_per_s']:,}",
            f"{fast['limit_events_per_s']:,} bare read",
            fast["ratio"],
            f"≥ {AIMS['verify']}",
        ),
        _row(
            "verify (events/s)",
            f"{verify['events_per_s']:,}",
            f"{verify['limit_events_per_s']:,} bare read",
            verify["ratio"],
        ),
        _row(
            "Redis, bytes an event",
            f"{append['redis_bytes_per_event']:,}",
            f"{append['raw_bytes_per_event']:,} raw stream, "
            f"{append['envelope_bytes_per_event']:,} envelope",
            round(append["raw_bytes_per_event"] / append["redis_bytes_per_event"], 2),
        ),
        _row("memory of a worker", f"{live['worker_mb']} MB", aim="flat"),
        _row("memory of verify --fast, peak", f"{fast['peak_mb']} MB", aim="flat"),
        _row("memory of verify, peak", f"{verify['peak_mb']} MB"),
        _row("memory of rebuild, peak", f"{rebuild['peak_mb']} MB", aim="flat"),
    ]


def _row(what: str, measured: str, limit: str = "", ratio: Any = "", aim: str = "") -> str:
    return f"| {what} | {measured} | {limit} | {ratio} | {aim} |"


def _arguments(document: Mapping[str, Any]) -> str:
    given = list(document["arguments"])
    if "--json" in given:  # where the figures went is nobody's business
        place = given.index("--json")
        del given[place : place + 2]
    return f' BENCH_ARGS="{" ".join(given)}"' if given else ""


def _enrichment_rows(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    for source in ("conversations", "sample"):
        found = figures[source]
        if "skipped" in found:
            lines.append(f"| 0 {_row(f'enrichment, {source}', found['skipped'])}")
            continue
        cpu = found["cpu_us_per_event"]
        rows = [
            _row(
                f"enrichment, {source} (texts/s)",
                f"{found['texts_per_s']:,}",
                f"{found['limit_texts_per_s']:,} embedder alone",
                found["ratio"],
                f"≥ {AIMS['enrichment']}",
            ),
            _row(
                "its processor time an event, worker + embedder + analyst + Neo4j",
                " + ".join(f"{cpu[name]:,}" for name in ("worker", "embedder", "analyst", "neo4j"))
                + " µs",
                f"{cpu['embedder_alone']:,} µs",
            ),
        ]
        lines += [f"| {found['events']:,} {row}" for row in rows]
    if "edges" in figures:
        edges = figures["edges"]
        row = _row(
            f"{SIMILAR_TO.type}, conversations",
            f"{edges['edges']:,}",
            f"{edges['wanted']:,} by brute force",
            f"recall {edges['recall']}",
        )
        lines.append(f"| {edges['events']:,} {row}")
    events = sum(figures[source].get("events", 0) for source in ("conversations", "sample"))
    rows = [
        _row("memory of its worker, peak", f"{figures['worker_peak_mb']} MB"),
        _row("memory of the process of the embedder, peak", f"{figures['embedder_peak_mb']} MB"),
        _row("memory of the worker's analyst, peak", f"{figures['analyst_peak_mb']} MB"),
    ]
    return lines + [f"| {events:,} {row}" for row in rows]


def _enrichment_rebuild_rows(figures: Mapping[str, Any]) -> list[str]:
    rows = [
        _row("rebuild with both stages, models cached (events/s)", f"{figures['events_per_s']:,}"),
        _row(
            "texts embedded, and analysed, by it",
            f"{figures['embedded']}, {figures['analysed']}",
            aim=f"{AIMS['embedded_again']}, {AIMS['embedded_again']}",
        ),
        _row("memory of it, peak", f"{figures['peak_mb']} MB"),
    ]
    return [f"| {figures['events']:,} {row}" for row in rows]


def _similar_rows(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    for size, found in figures.items():
        if size == "load":
            continue
        rows = [
            _row(
                "comparing an event with all, processor time",
                f"{found['ms_an_event']} ms",
                f"{found['ms_a_late_event']} ms a late one, which opens again "
                f"{found['opened_by_a_late_event']}",
            ),
            _row("reading them, once a worker's life", f"{found['loaded_s']} s"),
            _row("memory of them in the worker, an event", f"{found['bytes_an_event']} bytes"),
        ]
        lines += [f"| {int(size):,} {row}" for row in rows]
    return lines


def _ingest_enrichment_rows(figures: Mapping[str, Any]) -> list[str]:
    alone, beside = figures["alone"], figures["beside"]
    rate = f"at {figures['offered_per_s']} events/s beside enrichment"
    aim = f"< {AIMS['lag_p95_ms_beside_enrichment']:,} ms"
    rows = [
        _row(
            f"{what} {rate}, {name}",
            f"{beside[key]} ms",
            f"{alone[key]} ms without",
            aim=aim if key == "p95_ms" else "",
        )
        for what, name, key in (
            ("append", "p50", "append_p50_ms"),
            ("append", "p95", "append_p95_ms"),
            ("lag", "p50", "p50_ms"),
            ("lag", "p95", "p95_ms"),
        )
    ]
    return [f"| {figures['backlog']:,} {row}" for row in rows]


def _ingest_rebuild_rows(figures: Mapping[str, Any]) -> list[str]:
    rows = [
        _row(
            f"append beside a rebuild, {figures['offered_per_s']:,} offered (events/s)",
            f"{figures['events_per_s_beside']:,.0f}",
            f"{figures['events_per_s_alone']:,.0f} without",
            figures["ratio"],
            f"≥ {AIMS['ingest_beside_rebuild']}",
        ),
        _row(
            "had the producer never paused (events/s)",
            f"{figures['unbounded_per_s_beside']:,.0f}",
            f"{figures['unbounded_per_s_alone']:,.0f} without",
            figures["unbounded_ratio"],
        ),
        _row(
            "its batches of 100, p95",
            f"{figures['append_p95_ms_beside']} ms",
            f"{figures['append_p95_ms_alone']} ms without",
        ),
    ]
    return [f"| {figures['events']:,} {row}" for row in rows]


def _consolidation_rows(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    for size, found in figures.items():
        if size == "load":
            continue
        full, incremental = found["full"], found["incremental"]
        own, graph = (full[name] / int(size) * 1e6 for name in ("own_cpu_s", "graph_cpu_s"))
        rows = [
            _row(
                f"a pass of all, {found['sessions']:,} sessions (µs an event)",
                f"{full['seconds'] / int(size) * 1e6:,.0f}",
                f"{full['applying_s'] / full['seconds']:.0%} of it to apply "
                f"{full['decisions']:,} decisions",
            ),
            _row("its processor time an event, Python + Neo4j", f"{own:.0f} + {graph:.0f} µs"),
            _row(
                f"a pass after {found['changed_sessions']:,} sessions changed, processor time (s)",
                _processor_s(incremental),
                f"{_processor_s(full)} of all",
                round(_cpu_s(incremental) / _cpu_s(full), 4),
                f"≤ {AIMS['incremental_pass']}",
            ),
            _row("a pass with nothing to do, likewise", _processor_s(found["nothing"])),
            _row("a pass of the communities alone, likewise", _processor_s(found["communities"])),
            _row("memory while it passes, peak", f"{full['peak_mb']} MB"),
        ]
        lines += [f"| {int(size):,} {row}" for row in rows]
    return lines


def _processor_s(found: Mapping[str, Any]) -> str:
    return f"{found['own_cpu_s']} + {found['graph_cpu_s']}"


def _cpu_s(found: Mapping[str, Any]) -> float:
    return float(found["own_cpu_s"] + found["graph_cpu_s"])


_PARTS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "enrichment": _enrichment_rows,
    "enrichment-rebuild": _enrichment_rebuild_rows,
    "ingest-enrichment": _ingest_enrichment_rows,
    "ingest-rebuild": _ingest_rebuild_rows,
    "consolidation": _consolidation_rows,
    "similar": _similar_rows,
}
