"""Ask the labelled questions over HTTP, by each method, and print how well they are answered.

Starts Valkey, Neo4j and the API, imports conversations of tau-bench, enriches them with the real
models, and asks one question after the other with the caches of results and embeddings off.
Quality is asked for: a busy machine must not leave a channel out, so limits are wide, an answer
that lacks something is asked for again, and those that still do are counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import httpx
import orjson

from enrichment.payloads import offered_event
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.formats.chat import conversation_events
from projections.events import Event
from tests.bench.retrieval_methods.label import INTENTS, Place, Question, sampled
from tests.integration.api_support import Api, running_api
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS

DATA = Path(__file__).resolve().parents[4] / "shared/data/tau-bench/gpt-4o-airline.json.gz"
METHODS = ("intent_weighted", "ppr", "activation")
CUTS = (5, 10, 50)
MAX_NODES = 60
NOW_MS = 1_900_000_000_000
TENANT = "acme"
TIMEOUT_MS = 30_000
"""Of a question, of each channel that it asks, and of an activation."""
TRIES = 3
"""How often a question is put whose answer lacks something."""


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Imported(NamedTuple):
    """Conversations as events.

    Attributes:
        ids: event id by (conversation, message).
        sessions: session and user of each conversation.
    """

    events: list[Event]
    ids: Mapping[Place, str]
    sessions: Sequence[tuple[str, str | None]]


class Run(NamedTuple):
    """One question by one method.

    Attributes:
        perfect: recall that the ten best could have: of twelve gold events at most ten.
        understood: the intent that the label has is among those that were inferred.
        partial: something was left out of the answer.
    """

    question: int
    intent: str
    method: str
    precision: Mapping[int, float]
    recall: Mapping[int, float]
    perfect: float
    ms: float
    understood: bool
    partial: bool
    found: Sequence[str]
    gold: Sequence[str]


def chosen(path: Path, tasks: int) -> list[dict[str, Any]]:
    """All trials of the first tasks."""
    with gzip.open(path) as file:
        conversations: list[dict[str, Any]] = json.load(file)
    numbers = sorted({conversation["task_id"] for conversation in conversations})[:tasks]
    return [one for one in conversations if one["task_id"] in numbers]


def imported(conversations: Sequence[Mapping[str, Any]]) -> Imported:
    """The events of conversations, and where each message went."""
    events: list[Event] = []
    ids: dict[Place, str] = {}
    sessions: list[tuple[str, str | None]] = []
    for number, conversation in enumerate(conversations):
        for mapped in conversation_events(conversation):
            assert mapped.envelope is not None
            event = offered_event(mapped.envelope, now_ms=NOW_MS, tenant=TENANT)
            events.append(event)
            ids[number, mapped.place] = event.event_id
        sessions.append((events[-1].session_id, events[-1].user_id))
    return Imported(events, ids, sessions)


@contextmanager
def services(events: Sequence[Event]) -> Iterator[Api]:
    """Valkey, Neo4j and the API, with the events enriched."""
    with tempfile.TemporaryDirectory() as folder:
        valkey, neo4j = ValkeyServer(Path(folder) / "valkey"), Neo4jServer(Path(folder) / "neo4j")
        stack: Stack | None = None
        try:
            for server in (valkey, neo4j):
                server.start()
            for server in (valkey, neo4j):
                server.wait_ready()
            stack = Stack(valkey.url, neo4j.url)
            began_s = time.monotonic()
            Enriched(stack).take_in(*events)
            _tell(f"{len(events):,} events enriched in {time.monotonic() - began_s:.0f} s")
            options = {
                "partitions": PARTITIONS,
                "id_buckets": 64,
                "result_cache_s": 0,
                "query_embedding_cache": 0,
                "channel_timeout_ms": TIMEOUT_MS,
                "activation_timeout_ms": TIMEOUT_MS,
            }
            with running_api(valkey.url, neo4j.url, **options) as api:
                yield api
        finally:
            if stack is not None:
                stack.close()
            for server in (neo4j, valkey):
                server.stop()


def asked(
    client: httpx.Client, question: Question, data: Imported, method: str
) -> tuple[list[str], float, Mapping[str, Any]]:
    """Ids of the events that are found, the best first, milliseconds, and meta."""
    session_id, user_id = data.sessions[question.conversation]
    body = {
        "query": question.text,
        "session_id": session_id,
        "agent_id": "assistant",
        "user_id": user_id,
        "max_nodes": MAX_NODES,
        "retrieval_method": method,
        "proactive": False,
        "record_access": False,
        "timeout_ms": TIMEOUT_MS,
    }
    began_s = time.perf_counter()
    answer = client.post("/v1/query/subgraph", json=body)
    ms = (time.perf_counter() - began_s) * 1000
    answer.raise_for_status()
    document = answer.json()
    found = [node["node_id"] for node in document["nodes"] if node["type"] == "Event"]
    return found, ms, document["meta"]


def judged(
    number: int, question: Question, data: Imported, method: str, client: httpx.Client
) -> Run:
    """How well a method answers a question."""
    for _ in range(TRIES):
        found, ms, meta = asked(client, question, data, method)
        if not meta["degraded"]:
            break
    gold = {data.ids[place] for place in question.gold}
    ignored = {data.ids[place] for place in question.ignored} - gold
    ranked = [own_id for own_id in found if own_id not in ignored]
    hits = {cut: sum(own_id in gold for own_id in ranked[:cut]) for cut in CUTS}
    return Run(
        number,
        question.intent,
        method,
        {cut: hits[cut] / cut for cut in CUTS},
        {cut: hits[cut] / len(gold) for cut in CUTS},
        min(CUTS[1], len(gold)) / len(gold),
        ms,
        question.intent in meta["inferred_intents"],
        bool(meta["degraded"]),
        ranked,
        sorted(gold),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies; of the sorted values the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def difference(one: Sequence[float], other: Sequence[float], seed: int) -> tuple[float, float]:
    """95 % interval of the mean of paired differences, by 2,000 resamples."""
    chooser = random.Random(seed)
    pairs = [a - b for a, b in zip(one, other, strict=True)]
    means = sorted(fmean(chooser.choices(pairs, k=len(pairs))) for _ in range(2_000))
    return means[50], means[1_949]


def table(runs: Sequence[Run]) -> str:
    """A row for each intent and method, and over all of them."""
    lines = [
        "| intent | method | questions | P@5 | P@10 | R@5 | R@10 | R@50 | perfect R@10 | "
        "R@10 against intent_weighted | p50 ms | p95 ms | understood | partial |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for intent in (*INTENTS, "all"):
        of_intent = [run for run in runs if intent in ("all", run.intent)]
        base = [run.recall[10] for run in of_intent if run.method == METHODS[0]]
        for method in METHODS:
            rows = [run for run in of_intent if run.method == method]
            if not rows:
                continue
            figures = [fmean(run.precision[cut] for run in rows) for cut in CUTS[:2]]
            figures += [fmean(run.recall[cut] for run in rows) for cut in CUTS]
            figures.append(fmean(run.perfect for run in rows))
            against = "-"
            if method != METHODS[0]:
                own = [run.recall[10] for run in rows]
                low, high = difference(own, base, seed=1)
                against = f"{fmean(own) - fmean(base):+.3f} [{low:+.3f}, {high:+.3f}]"
            times = [run.ms for run in rows]
            understood = fmean(run.understood for run in rows)
            lines.append(
                f"| {intent} | {method} | {len(rows)} | "
                + " | ".join(f"{figure:.3f}" for figure in figures)
                + f" | {against} | {quantile(times, 0.5):.0f} | {quantile(times, 0.95):.0f} | "
                f"{understood:.2f} | {sum(run.partial for run in rows)} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.retrieval_methods")
    parser.add_argument("--tasks", type=int, default=15, help="of which all trials are imported")
    parser.add_argument("--questions", type=int, default=15, help="of each intent, at most")
    parser.add_argument("--seed", type=int, default=1, help="which questions")
    parser.add_argument("--out", type=Path, help="write every single result here, as JSON")
    options = parser.parse_args(arguments)
    if not DATA.exists():
        _tell(f"{DATA.name} is not here")
        return 1
    conversations = chosen(DATA, options.tasks)
    data = imported(conversations)
    asked_for = sampled(conversations, options.questions, options.seed)
    _tell(f"{len(conversations)} conversations, {len(asked_for)} questions")
    runs = []
    order = random.Random(options.seed)
    with services(data.events) as api, api.client() as client:
        asked(client, asked_for[0], data, METHODS[0])  # plans, and the model of queries
        for number, question in enumerate(asked_for):
            for method in order.sample(METHODS, len(METHODS)):
                runs.append(judged(number, question, data, method, client))
    _tell(table(runs))
    if options.out is not None:
        listed = [{**run._asdict(), "text": asked_for[run.question].text} for run in runs]
        options.out.write_bytes(orjson.dumps(listed, option=orjson.OPT_NON_STR_KEYS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
