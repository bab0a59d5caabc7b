"""`make bench-columns`: what a question costs in the columns, and what they take in memory.

    make bench-columns
    make bench-columns BENCH_ARGS="--sizes 10000 --count 20"

The memory is that of `make bench-query`, put into the columns without a database. A question asks
for all that a query needs to find and to rank: events by words and by meaning, entities by name
with what surrounds them, what ranking must know of the hits and of those beside them, and three
levels of a walk. By hand is what no search by meaning can do without: all vectors of the tenant,
one byte a number, compared with the question's, and the hundred best of them. Processor time, one
thread.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import simsimd

from api.retrieval.query_terms import name_terms, query_terms
from enrichment.stems import stem
from pipelines.columns.copy import Copy
from pipelines.columns.loading import LabelledNode, TypedEdge, columns_from
from pipelines.columns.names import ColumnNames
from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.columns.texts import quantised
from pipelines.columns.view import View
from pipelines.columns.walk import Walker
from pipelines.columns.walked import walked
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import FeedPlace, FoundEdge, FoundNode, wire_id
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    REFERENCES,
    RELATES_TO,
    SIMILAR_TO,
    VECTOR_DIMENSIONS,
)
from tests.bench.query.graph import START_MS, TENANT, TOPICS, Memory
from tests.steps import walk_asked

HITS = 100
WITH_NEIGHBOURS = 120
SEEDS = 8
Parts = dict[str, list[float]]


def key(own_id: str) -> Key:
    return TENANT, own_id


def node(label: str, own_id: str, **values: Any) -> LabelledNode:
    every = dict.fromkeys(NODE_PROPERTIES[label]) | values
    return label, FoundNode(key(own_id), True, every, False)


def edge(type_: str, source: str, target: str, label: str, **values: Any) -> TypedEdge:
    every = dict.fromkeys(EDGE_PROPERTIES[type_]) | values
    return type_, FoundEdge(key(source), key(target), label, every)


def nodes(memory: Memory) -> Iterator[LabelledNode]:
    """Entities and events."""
    for one in memory.entities():
        named = {"canonical_name": one["canonical"], "name": one["name"]}
        yield node(ENTITY.label, one["id"], entity_type=one["type"], **named)
    for event in memory.events():
        values = {
            "occurred_at": event["at"],
            "session_id": event["session"],
            "agent_id": event["agent"],
            "global_position": event["position"],
            "text": event["text"],
            "importance_score": event["importance"],
            "embedding": event["vector"],
        }
        yield node(EVENT.label, event["id"], **values)


def edges(memory: Memory) -> Iterator[TypedEdge]:
    """Made when they are wanted: nothing but columns is to be left in memory."""
    for event in memory.events():
        if event["cause"]:
            yield edge(CAUSED_BY.type, event["id"], event["cause"], EVENT.label)
        if event["like"]:
            ends = event["id"], event["like"], EVENT.label
            yield edge(SIMILAR_TO.type, *ends, score=0.9)
        for entity_id in [*event["entities"], event["agent_entity"]]:
            ends = event["id"], entity_id, ENTITY.label
            yield edge(REFERENCES.type, *ends, role="object")
    for one in memory.entities():
        if one["id"] != one["other"]:
            ends = one["id"], one["other"], ENTITY.label
            said = {"relation": "uses", "edge_type": "semantic", "event_id": memory.event_id(0)}
            yield edge(RELATES_TO.type, *ends, valid_from=0, confidence=0.8, **said)


def filled(memory: Memory) -> Tenant:
    """The columns of a memory."""
    return columns_from(nodes(memory), edges(memory))[TENANT]


def from_copy(memory: Memory) -> tuple[float, float]:
    """Microseconds an event of a start from a copy on disk, and bytes an event that it takes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "columns.sqlite"
        copy = Copy(path)
        with copy.anew(FeedPlace("", {})) as kept:
            for written in (kept.keep_nodes(nodes(memory)), kept.keep_edges(edges(memory))):
                deque(written, maxlen=0)
        begun_s = time.process_time()
        if copy.place() is None or copy.read() is None:
            raise RuntimeError("the copy cannot be read")
        read_us = 1e6 * (time.process_time() - begun_s) / memory.size
        copy.close()
        return read_us, path.stat().st_size / memory.size


def asked(tenant: Tenant, question: str, vector: Any, parts: Parts) -> None:
    """One question; adds the milliseconds of each of its parts."""

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begun_s = time.process_time()
        answer = work()
        parts.setdefault(name, []).append(1_000 * (time.process_time() - begun_s))
        return answer

    begun_s = time.process_time()
    view = View(tenant, Scope(TENANT, None, START_MS * 2))
    names = ColumnNames(view)
    terms, named = query_terms(question), name_terms(question)
    stems = [stem(word) for word in terms.words]
    text = timed("words", lambda: view.text_hits(stems, HITS))
    near = timed("meaning", lambda: view.vector_hits(vector, HITS))
    found = timed("entities", lambda: names.found(named.words, named.names, 50))
    ids = [one.entity_id for one in found]
    timed("surroundings", lambda: (names.surroundings(ids), names.same_as(ids)))
    hits = [hit.event_id for hits in (text, near) for hit in hits.shown]
    timed(
        "standings",
        lambda: view.standings(
            view.chosen(hits[:WITH_NEIGHBOURS], hits[WITH_NEIGHBOURS:]), stems=stems, vector=vector
        ),
    )
    seeds = [*hits[:SEEDS], *(wire_id(ENTITY.label, one) for one in ids[:SEEDS])]
    walk = walk_asked(dict.fromkeys(seeds, 1.0), {"general": 1.0})
    timed("walk", lambda: walked(walk, Walker(view).rows, view.scope.now_ms))
    parts.setdefault("all", []).append(1_000 * (time.process_time() - begun_s))


def by_hand(levels: Any, vector: Any) -> float:
    """Milliseconds of comparing all vectors with one and taking the best."""
    begun_s = time.process_time()
    products = numpy.asarray(simsimd.cdist(levels, quantised(vector)[None, :], metric="dot"))
    numpy.argpartition(-products.ravel(), HITS)[:HITS]
    return 1_000 * (time.process_time() - begun_s)


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measured(size: int, count: int) -> list[str]:
    """A row of the table."""
    memory = Memory(size)
    questions, topics = memory.questions(count + 5, 3), memory.topics.astype(numpy.float32)
    begun_s = time.process_time()
    deque(chain(nodes(memory), edges(memory)), maxlen=0)
    to_make_s = time.process_time() - begun_s
    gc.collect()
    before, begun_s = resident_bytes(), time.process_time()
    tenant = filled(memory)
    build_us = 1e6 * (time.process_time() - begun_s - to_make_s) / size
    gc.collect()
    held = (resident_bytes() - before) / size
    levels = numpy.random.default_rng(1).integers(-127, 127, (size, VECTOR_DIMENSIONS), dtype="i1")
    parts: Parts = {}
    limits = []
    for number, question in enumerate(questions):
        vector = topics[number * 7 % TOPICS]
        if number < 5:  # what is computed the first time is not counted
            asked(tenant, question, vector, {})
            continue
        asked(tenant, question, vector, parts)
        limits.append(by_hand(levels, vector))
    whole, limit = numpy.array(parts["all"]), float(numpy.median(limits))
    median = {name: float(numpy.median(times)) for name, times in parts.items()}
    told = ", ".join(f"{name} {ms:.1f}" for name, ms in median.items() if name != "all")
    return [
        f"{size:,}",
        f"{median['all']:.1f}",
        f"{numpy.percentile(whole, 95):.1f}",
        f"{limit:.2f}",
        f"{median['all'] / limit:.1f}",
        told,
        f"{held:,.0f}",
        f"{build_us:,.0f}",
        *(f"{figure:,.0f}" for figure in from_copy(memory)),
    ]


HEAD = (
    *("events", "processor ms a question, p50", "p95", "by hand", "ratio"),
    *("its parts", "bytes an event", "µs to take one in", "from disk", "bytes there"),
)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.columns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--count", type=int, default=60, help="questions")
    options = parser.parse_args()
    # a process for each size: what one has left of memory is another's
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        rows = pool.map(measured, options.sizes, repeat(options.count))
        for row in chain((HEAD, ["---:"] * len(HEAD)), rows):
            sys.stdout.write(f"| {' | '.join(row)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
