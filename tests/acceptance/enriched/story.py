"""Enrich real conversations in two orders, rebuild, replay, and compare what must be the same."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from pipelines.observe import metrics
from pipelines.operations.formats.chat import conversation_events
from pipelines.operations.rebuild import replay
from pipelines.work.stages import ENRICHMENT
from projections.events import Event, parse_event
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack

SHARED = Path(__file__).parents[4] / "shared"
TAU_BENCH = SHARED / "data/tau-bench/gpt-4o-airline.json.gz"
LOCOMO = SHARED / "bench/locomo/data/events.jsonl"
FAR_FUTURE_MS = 2**45
DUPLICATES = 0.1

Say = Callable[[str], None]


def tau_bench(conversations: int) -> Iterator[Event]:
    """Events of the first conversations."""
    with gzip.open(TAU_BENCH) as file:
        trajectories = json.load(file)
    for trajectory in trajectories[:conversations]:
        for mapped in conversation_events(trajectory):
            assert mapped.envelope is not None
            yield parse_event(mapped.envelope, now_ms=FAR_FUTURE_MS)


def locomo(turns: int) -> Iterator[Event]:
    """Events of the first turns; their tenants are the conversations."""
    for line in LOCOMO.read_bytes().splitlines()[:turns]:
        yield parse_event(orjson.loads(line), now_ms=FAR_FUTURE_MS)


def tell(make_stack: Callable[..., Stack], events: list[Event], say: Say) -> dict[str, Any]:
    """Run the story on an empty ledger and graph.

    Returns:
        Figures: counts by kind, and whether each comparison held.
    """
    figures: dict[str, Any] = {"events": len(events)}
    first = Enriched(make_stack(prefix="first"))
    figures["seconds"] = _seconds(lambda: first.take_in(*events, size=100))
    figures["graph"] = _counts(first)
    figures["enriched"] = first.stack.cypher(
        "MATCH (e:Event) WHERE e.importance_score IS NOT NULL RETURN count(e)"
    )[0]
    folded = first.folded()
    say(f"{len(events):,} events in {figures['seconds']:.0f} s: {json.dumps(figures['graph'])}")

    before = first.stack.dump()
    for _ in range(2):
        assert replay(first.stack.services, ENRICHMENT).failed == []
    figures["replay_changes_nothing"] = first.stack.dump() == before
    say(f"replayed twice, the same: {figures['replay_changes_nothing']}")

    embedded = _embedded()
    _empty(first)
    again = Enriched(first.stack)
    first.stack.runner.prepare(first.stack.ledger.partitions)
    first.stack.fold(runner=first.stack.new_runner())
    figures["rebuild_seconds"] = _seconds(lambda: again.fold(100))
    figures["rebuild_embeds"] = _embedded() - embedded
    figures["rebuild_is_the_same"] = again.folded() == folded
    say(
        f"rebuilt in {figures['rebuild_seconds']:.0f} s, embedded {figures['rebuild_embeds']}, "
        f"the same: {figures['rebuild_is_the_same']}"
    )

    _empty(first)
    rng = random.Random(7)
    shuffled = [*events, *rng.sample(events, int(DUPLICATES * len(events)))]
    rng.shuffle(shuffled)
    other = Enriched(make_stack(prefix="other"))
    part = max(1, len(shuffled) // 7)
    for start in range(0, len(shuffled), part):  # enrichment between parts: the rest comes late
        other.take_in(*shuffled[start : start + part], size=137)
    figures["shuffled_is_the_same"] = other.folded() == folded
    say(f"shuffled with duplicates and late parts, the same: {figures['shuffled_is_the_same']}")
    return figures


def _counts(enriched: Enriched) -> dict[str, int]:
    counts = enriched.stack.services.reader(enriched.stack.target).counts()
    rules = enriched.stack.cypher(
        "MATCH ()-[r]->() WHERE r.rule IS NOT NULL RETURN r.rule, count(r) ORDER BY r.rule"
    )
    found = {**counts.nodes, **counts.edges, **dict(rules)}
    return {name: number for name, number in found.items() if number}


def _embedded() -> float:
    value: float = metrics.MODEL_TEXTS.labels(model="embedding")._value.get()
    return value


def _empty(enriched: Enriched) -> None:
    enriched.stack.graph.clear()


def _seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
