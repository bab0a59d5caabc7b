"""Stage 2 beside the bare embedder on the same texts, and rebuilt when its models are cached.

A worker of the enrichment is stopped (SIGSTOP) while a slice of events is appended and projected,
then drains it; then the embedder alone, in this process and at the worker's priority, computes the
vectors of the same texts. Nothing is cached for either: hardly a text comes twice.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, Self

from enrichment.similarity import CAP, THRESHOLD
from enrichment.text import event_text
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.models.embedder import OnnxEmbedder
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT
from projections.events import Event
from projections.schema import EVENT, SIMILAR_TO
from tests.bench.brute_force import Pair, nearest_before, pairs_above
from tests.bench.sample import sample_events
from tests.bench.stack import (
    Stack,
    child_pids,
    cpu_seconds,
    finished,
    metric,
    model_process_pids,
    peak_mb,
    per_second,
    phase_seconds,
)
from tests.bench.texts import locomo_events

SLICE = 1_000
"""Events of a turn. A stopped worker loses its leases after ten seconds, and a slice is appended
and projected well within them."""
_ROUNDING = 1e-3
"""A stored score may differ so much from the cosine computed here."""


class _BareEmbedder:
    """The product's embedder and nothing else, with as many threads and as low a priority."""

    def __init__(self, settings: Settings) -> None:
        self._embedder = OnnxEmbedder(settings.embedding_folder, threads=settings.embedding_threads)
        # Loaded in that thread, so that threads of the runtime's own inherit its priority.
        self._thread = ThreadPoolExecutor(1, initializer=partial(_step_back, settings))

    def __enter__(self) -> Self:
        self._thread.submit(self._embedder.load).result()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()

    def seconds(self, texts: Sequence[str]) -> float:
        """How long it takes: all at once, so sorted by length further than any block can be."""
        begun = time.perf_counter()
        self._thread.submit(self._embedder.embed, texts).result()
        return time.perf_counter() - begun


def _step_back(settings: Settings) -> None:
    if sys.platform == "linux":  # where a thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), settings.enrichment_nice)


def measure(
    stack: Stack, *, sample: int, conversations: int | None = None, warm_up: int
) -> dict[str, Any]:
    """Figures of a backlog of real turns, and of one of sample events; leaves the graph enriched.

    Args:
        stack: the services, which are emptied first.
        sample: so many sample events.
        conversations: so many turns of conversations at most.
        warm_up: events that are enriched before, so that models are loaded and Java is compiled.
    """
    turns = locomo_events(conversations)
    sources = {"conversations": turns, "sample": list(sample_events(sample))}
    figures: dict[str, Any] = {}
    stack.clear()
    with (
        _BareEmbedder(stack.settings) as bare,
        stack.worker(),
        stack.worker(ENRICHMENT.name) as worker,
    ):
        first = list(sample_events(warm_up, seed=3))
        stack.append(iter(first), len(first))
        _wait_settled(stack)
        bare.seconds(_texts(first[:100]))
        for name, events in sources.items():
            if not events:
                figures[name] = {"skipped": "no such file, see tests/bench/texts.py"}
                continue
            figures[name] = _in_turns(stack, worker.pid, bare, events)
        analysts = [peak_mb(child) for child in child_pids(worker.pid)]
        figures["worker_peak_mb"] = round(peak_mb(worker.pid), 1)
        figures["embedder_peak_mb"] = round(sum(map(peak_mb, model_process_pids())), 1)
        figures["analyst_peak_mb"] = round(sum(analysts), 1)
    if turns:
        figures["edges"] = edge_recall(stack, sorted({event.tenant for event in turns}))
    return figures


def _in_turns(stack: Stack, pid: int, bare: _BareEmbedder, events: Sequence[Event]) -> Any:
    slices = _slices(events)
    live_s: list[float] = []
    bare_s: list[float] = []
    cpu: dict[str, float] = {}
    metrics = stack.metrics(ENRICHMENT.name)
    for part in slices:
        os.kill(pid, signal.SIGSTOP)
        stack.append(iter(part), len(part))
        stack.wait_projected()
        used = _cpu(stack, pid)
        begun = time.perf_counter()
        os.kill(pid, signal.SIGCONT)
        stack.wait_passed(ENRICHMENT.name, every_s=0.05)
        live_s.append(time.perf_counter() - begun)
        for name, seconds in _cpu(stack, pid).items():
            cpu[name] = cpu.get(name, 0.0) + seconds - used[name]
        _wait_settled(stack)
        own = time.process_time()
        bare_s.append(bare.seconds(_texts(part)))
        cpu["embedder_alone"] = cpu.get("embedder_alone", 0.0) + time.process_time() - own
    after = stack.metrics(ENRICHMENT.name)
    before, spent = phase_seconds(metrics), phase_seconds(after)
    ratios = [alone / live for alone, live in zip(bare_s, live_s, strict=True)]
    counts = [len(part) for part in slices]
    size = len(events)
    return {
        "events": size,
        "texts_per_s": per_second(counts, live_s),
        "limit_texts_per_s": per_second(counts, bare_s),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        # with the names of entities, which the bare embedder is not given
        "embedded": _computed(after, "embedding") - _computed(metrics, "embedding"),
        "analysed": _computed(after, "nlp") - _computed(metrics, "nlp"),
        "cpu_us_per_event": {name: round(s / size * 1e6) for name, s in cpu.items()},
        "phase_us_per_event": {
            name: round((s - before.get(name, 0.0)) / size * 1e6) for name, s in spent.items()
        },
    }


def _slices(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Parts of about the same size, three at least: a turn each."""
    turns = max(3, round(len(events) / SLICE))
    bounds = [len(events) * n // turns for n in range(turns + 1)]
    return [events[low:high] for low, high in pairwise(bounds)]


def _wait_settled(stack: Stack) -> None:
    """Until what the enrichment itself appended is enriched too, and the worker idle."""
    while True:
        tails = [tail.seq for tail in stack.ledger.tails()]
        stack.wait_passed(ENRICHMENT.name)
        if [tail.seq for tail in stack.ledger.tails()] == tails:
            return


def _texts(events: Sequence[Event]) -> list[str]:
    return [text for event in events if (text := event_text(event).text)]


def _cpu(stack: Stack, worker: int) -> dict[str, float]:
    neo4j = stack.local.neo4j["blue"].pid
    assert neo4j is not None
    return {
        "worker": cpu_seconds(worker),
        "embedder": sum(map(cpu_seconds, model_process_pids())),
        "analyst": sum(map(cpu_seconds, child_pids(worker))),
        "neo4j": cpu_seconds(neo4j),
    }


def _computed(metrics: str, model: str) -> int:
    return round(metric(metrics, f'recollect_model_texts_total{{model="{model}"}}'))


def edge_recall(stack: Stack, tenants: Sequence[str]) -> dict[str, Any]:
    """The live graph's SIMILAR_TO beside what comparing all with all would have made."""
    key = ", ".join(f"e.{name}" for name in EVENT.key)
    vectors, events = {}, {}
    with stack.blue.session() as session:
        for tenant, event_id, vector, at_ms, user_id in session.run(
            f"MATCH (e:{EVENT.label}) WHERE e.tenant IN $tenants AND e.{EVENT.vector} IS NOT NULL "
            f"RETURN {key}, e.{EVENT.vector}, e.occurred_at.epochMillis, e.user_id",
            tenants=list(tenants),
        ):
            vectors[tenant, event_id] = vector
            events[tenant, event_id] = at_ms, user_id
        edges = {
            (tenant, one, other): score
            for tenant, one, other, score in session.run(
                f"MATCH (e:{EVENT.label})-[s:{SIMILAR_TO.type}]->(o:{EVENT.label}) "
                f"WHERE e.tenant IN $tenants RETURN {key}, o.event_id, s.score",
                tenants=list(tenants),
            )
        }
    pairs = pairs_above(vectors, THRESHOLD)
    return _compared(edges, pairs, nearest_before(pairs, events, CAP), len(vectors))


def _compared(
    edges: Mapping[Pair, float],
    pairs: Mapping[Pair, float],
    wanted: Mapping[Pair, float],
    events: int,
) -> dict[str, Any]:
    off = [abs(score - pairs[pair]) for pair, score in edges.items() if pair in pairs]
    # a cosine at the threshold may fall on the one side there and on the other here
    clear = {pair for pair, cosine in wanted.items() if cosine > THRESHOLD + _ROUNDING}
    return {
        "events": events,
        "edges": len(edges),
        "wanted": len(wanted),
        "pairs_above_threshold": len(pairs),
        "recall": round(len(clear & edges.keys()) / max(1, len(clear)), 4),
        "not_among_the_pairs": len(edges.keys() - pairs.keys()),
        "largest_error": round(max(off, default=0.0), 6),
    }


def measure_rebuild(stack: Stack, rounds: int) -> dict[str, Any]:
    """Figures of `recollect rebuild --into green` on the ledger as it is, all of it enriched once.

    Args:
        stack: the services.
        rounds: that count; of more than one, another goes before them, on a Java not yet warm.

    Raises:
        AssertionError: a model computed something, or the graph came out wrong.
    """
    size = sum(tail.seq for tail in stack.ledger.tails())
    counts_file = stack.folder / "counted.json"
    rebuilt_s: list[float] = []
    peaks: list[float] = []
    cpu: list[float] = []
    computed: dict[str, float] = {}
    for number in range(rounds if rounds == 1 else rounds + 1):
        Neo4jGraph(stack.green).clear()
        stack.services.targets.register(stack.green_target)
        child = stack.child(
            *("rebuild", "--into", "green", "--json"),
            program=("tests.bench.counted", str(counts_file)),
            stdout=subprocess.PIPE,
        )
        output, peak, used = finished(child)
        report = json.loads(output)
        assert report["ok"], report
        computed = json.loads(counts_file.read_text(encoding="utf-8"))
        assert computed["embedding"] == 0, computed
        enriched = sum(stack.seqs(ENRICHMENT.name, "green").values())
        assert enriched == size, f"{enriched} of {size} entries were enriched"
        stack.services.targets.drop("green")
        if rounds > 1 and number == 0:
            continue
        rebuilt_s.append(size / report["entries_per_second"])
        peaks.append(peak)
        cpu.append(used)
    return {
        "events": size,
        "events_per_s": per_second([size] * rounds, rebuilt_s),
        "events_per_s_of_rounds": [round(size / seconds) for seconds in rebuilt_s],
        "embedded": round(computed["embedding"]),
        "analysed": round(computed["nlp"]),
        "peak_mb": round(max(peaks), 1),
        "cpu_us_per_event": round(statistics.median(cpu) / size * 1e6),
    }
