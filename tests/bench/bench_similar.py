"""What it costs to say which events are alike: all vectors of a tenant are compared.

The vectors are written as Event nodes of one tenant, without the rest of an event. The first of
them are real, of as many distinct texts; computing 100,000 would take too long, so the
others are made of those: two of them mixed, a little noise added, of unit length again. Each real
vector then has its neighbourhood of made ones, from almost equal down to hardly alike.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from enrichment.similarity import Embedded, EmbeddedEvents
from enrichment.text import event_text
from enrichment.vectors import whole_numbers
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.models.embedder import OnnxEmbedder
from pipelines.work.gather.likeness import Likeness
from projections.events import DEFAULT_TENANT
from projections.schema import EVENT
from tests.bench.brute_force import Vectors
from tests.bench.stack import Stack
from tests.bench.texts import locomo_events, made_up_texts

QUERIES = 500
AT_ONCE = 100
"""Events of a batch, and about as many as the enrichment writes at once."""


def measure(stack: Stack, sizes: Sequence[int], *, real: int) -> dict[str, Any]:
    """Figures by size, on the other Neo4j, which is emptied; it grows from size to size.

    Args:
        stack: the services.
        sizes: how many events, rising.
        real: how many of the vectors come from texts.
    """
    graph = Neo4jGraph(stack.green)
    graph.clear()
    graph.ensure_schema()
    base = _real_vectors(stack, min(real, sizes[0]))
    vectors = np.concatenate([base, *_made_vectors(base, sizes[-1] - len(base))])
    figures: dict[str, Any] = {}
    written = 0
    for size in sizes:
        begun = time.perf_counter()
        _write(stack, vectors, written, size)
        seconds = time.perf_counter() - begun
        figures[str(size)] = _measured(graph, vectors[:size]) | {
            "real": len(base),
            "written_per_s": round((size - written) / max(seconds, 1e-9)),
        }
        written = size
    return figures


def _real_vectors(stack: Stack, count: int) -> Vectors:
    said = dict.fromkeys(event_text(event).text for event in locomo_events())
    told = iter([*filter(None, said)])
    texts = list(islice(told, count // 2))  # half of them made up, wherever it runs
    texts += islice(made_up_texts(), count - len(texts))
    settings = stack.settings
    embedder = OnnxEmbedder(settings.embedding_folder, threads=settings.embedding_threads)
    return np.stack([np.frombuffer(data, dtype="<f4") for data in embedder.embed(texts)])


def _made_vectors(base: Vectors, count: int, seed: int = 23) -> Iterator[Vectors]:
    """Mixtures of two of the base and noise: cosines to the first of about 0.5 to 1."""
    rng = np.random.default_rng(seed)
    while count > 0:
        rows = min(count, 10_000)
        one, other = base[rng.integers(len(base), size=(2, rows))]
        share = rng.uniform(0.5, 1.0, size=(rows, 1))
        noise = rng.normal(size=one.shape) / np.sqrt(base.shape[1])
        mixed = share * one + (1 - share) * other + rng.uniform(0.05, 0.6, (rows, 1)) * noise
        yield (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)
        count -= rows


def _name(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def _write(stack: Stack, vectors: Vectors, first: int, end: int) -> None:
    text = (
        f"UNWIND $rows AS r CREATE (e:{EVENT.label} "
        f"{{tenant: r[0], event_id: r[1], {EVENT.vector}: r[2], "
        "occurred_at: datetime({epochMillis: r[3]})})"
    )
    with stack.green.session() as session:
        for low in range(first, end, AT_ONCE):
            numbers = range(low, min(low + AT_ONCE, end))
            rows = [[DEFAULT_TENANT, _name(n), vectors[n].tolist(), n] for n in numbers]
            session.run(text, rows=rows).consume()


def _measured(graph: Neo4jGraph, vectors: Vectors) -> dict[str, Any]:
    size = len(vectors)
    begun = time.perf_counter()
    likeness = Likeness()
    likeness._catch_up(graph)
    loaded_s = time.perf_counter() - begun
    events = likeness._tenants[DEFAULT_TENANT]
    rng = np.random.default_rng(29)
    made = [*_made_vectors(vectors[:AT_ONCE], QUERIES, seed=31)]
    fresh = whole_numbers([vector.tobytes() for vector in np.concatenate(made)[:QUERIES]])
    latest = [Embedded(_name(size + n), size + n, None, numbers) for n, numbers in enumerate(fresh)]
    times = rng.choice(size, size=QUERIES).tolist()
    late = [one._replace(at_ms=at) for one, at in zip(latest, times, strict=True)]
    figures = {
        "queries": QUERIES,
        "ms_an_event": _ms(events, latest),
        "ms_a_late_event": _ms(events, late),
        "ms_a_late_event_again": _ms(events, late),
        "opened_by_a_late_event": round(
            sum(len(events.neighbours([event])) - 1 for event in late) / QUERIES, 1
        ),
        "loaded_s": round(loaded_s, 1),
        "bytes_an_event": _bytes_an_event(vectors),
    }
    return figures


def _ms(events: EmbeddedEvents, batch: Sequence[Embedded]) -> float:
    """Milliseconds of processor time an event."""
    begun = time.process_time()
    for first in range(0, len(batch), AT_ONCE):
        events.neighbours(batch[first : first + AT_ONCE])
    return round((time.process_time() - begun) / len(batch) * 1e3, 2)


def _bytes_an_event(vectors: Vectors) -> int:
    tracemalloc.start()
    try:
        events = EmbeddedEvents()
        for n, vector in enumerate(vectors):
            events.put(Embedded(_name(n), n, None, *whole_numbers([vector.tobytes()])))
        return round(tracemalloc.get_traced_memory()[0] / len(vectors))
    finally:
        tracemalloc.stop()
