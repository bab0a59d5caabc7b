"""The vector index beside brute force, with the product's own question and at its batch size.

The vectors are written as Event nodes of one tenant, without the rest of an event. The first of
them are real, of as many distinct texts; computing 100,000 would take too long, so the
others are made of those: two of them mixed, a little noise added, of unit length again. Each real
vector then has its neighbourhood of made ones, from almost equal down to hardly alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from enrichment.similarity import NEIGHBOURS, THRESHOLD
from enrichment.text import event_text
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.models.embedder import OnnxEmbedder
from projections.events import DEFAULT_TENANT
from projections.schema import EVENT
from tests.bench.brute_force import Vectors, best_cosines
from tests.bench.stack import Stack
from tests.bench.texts import locomo_events, made_up_texts

AT = 10
"""Neighbours that are looked for, as many as an event may have edges."""
QUERIES = 500
ROUNDS = 3
_ASKED_AT_ONCE = 100
"""As `EnrichmentFacts` asks."""
_WRITTEN_AT_ONCE = 100
"""As the enrichment commits, since an index is searched by the pieces it grew in."""
_EQUAL = 1e-5
"""Cosines that differ less are the same: either event is as good a neighbour."""


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
        f"{{tenant: r[0], event_id: r[1], {EVENT.vector}: r[2]}})"
    )
    with stack.green.session() as session:
        for low in range(first, end, _WRITTEN_AT_ONCE):
            numbers = range(low, min(low + _WRITTEN_AT_ONCE, end))
            rows = [[DEFAULT_TENANT, _name(n), vectors[n].tolist()] for n in numbers]
            session.run(text, rows=rows).consume()


def _measured(graph: Neo4jGraph, vectors: Vectors) -> dict[str, Any]:
    size = len(vectors)
    count = min(QUERIES, size)
    queries = sorted(np.random.default_rng(29).choice(size, size=count, replace=False).tolist())
    _ask(graph, vectors, queries)  # plans are made, code is compiled
    milliseconds: list[float] = []
    found: list[list[tuple[int, float]]] = []
    for _ in range(ROUNDS):
        found, spent = _ask(graph, vectors, queries)
        milliseconds += spent
    best = best_cosines(vectors, queries, AT)
    hits = close_hits = close = 0
    error = 0.0
    for query, near, truth in zip(queries, found, best, strict=True):
        scores = sorted((score for _, score in near), reverse=True)[:AT]
        exact = [float(vectors[query] @ vectors[other]) for other, _ in near]
        error = max([error, *(abs(a - b) for (_, a), b in zip(near, exact, strict=True))])
        hits += sum(score >= truth[-1] - _EQUAL for score in scores)
        above = truth[truth > THRESHOLD + _EQUAL]
        close += len(above)
        if len(above):
            close_hits += min(len(above), sum(score >= above[-1] - _EQUAL for score in scores))
    return {
        "queries": count,
        "recall_at_10": round(hits / (AT * count), 4),
        "recall_at_10_above_threshold": round(close_hits / close, 4) if close else None,
        "neighbours_above_threshold": round(close / count, 1),
        "largest_error": round(error, 6),
        "ms_a_query": round(statistics.median(milliseconds), 2),
        "ms_a_query_worst_batch": round(max(milliseconds), 2),
    }


def _ask(
    graph: Neo4jGraph, vectors: Vectors, queries: Sequence[int]
) -> tuple[list[list[tuple[int, float]]], list[float]]:
    """For each query what was found, with plain cosines; for each batch, ms a query."""
    found: dict[str, list[tuple[int, float]]] = {}
    spent = []
    for first in range(0, len(queries), _ASKED_AT_ONCE):
        part = queries[first : first + _ASKED_AT_ONCE]
        asked = {(DEFAULT_TENANT, _name(n)): vectors[n].tolist() for n in part}
        with graph.transaction() as transaction:
            begun = time.perf_counter()
            near = transaction.nearest(EVENT.label, asked, NEIGHBOURS)
            spent.append((time.perf_counter() - begun) / len(part) * 1e3)
        for key, others in near.items():
            found[key[1]] = [(int(node.key[1][-12:]), cosine) for node, cosine in others]
    return [found[_name(n)] for n in queries], spent
