"""`make bench-query`: latency of every read by endpoint and method, beside a search by hand.

    make bench-query                                        # 10,000 and 100,000 events
    make bench-query BENCH_ARGS="--sizes 10000 --count 50"
    make bench-query BENCH_ARGS="--ingest 100"              # events/s that come in meanwhile
    make bench-query BENCH_ARGS="--processes 2"             # that serve the API, instead of one

Caches are off: every question is new and is embedded, every answer is found anew. By hand is one
vector search and one step along every edge of what it finds, with vectors that were computed
before. All run in turns, at each rate. Figures are ms from when a question was due. What the
embedding costs is measured alone; where a query's time goes is what the API counted. Processor
time (ms a question) tells most on a machine that others share.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import neo4j
from prometheus_client.parser import text_string_to_metric_families

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.local.workers import RECOLLECT, ApiProcess
from pipelines.models.installed import EMBEDDER
from pipelines.models.model_client import QueryEmbedder
from pipelines.operations.load_generator import Latency, measured
from pipelines.work.settings import Settings
from projections.schema import EVENT, vector_index
from tests.bench.query.graph import AGENTS, SESSION, TENANT, Memory, fill
from tests.bench.query.newest import waits_of_api
from tests.bench.stack import (
    child_pids,
    columns_pids,
    cpu_seconds,
    model_process_pids,
    resident_mb,
)
from tests.waiting import wait_until

HEAP_MB = PAGE_CACHE_MB = 1_024
RATES = (5.0, 10.0)
BY_HAND = f"""CYPHER 25
MATCH (e:{EVENT.label}) SEARCH e IN (VECTOR INDEX {vector_index(EVENT)} FOR $vector
WHERE e.tenant = $tenant LIMIT 20) SCORE AS score
OPTIONAL MATCH (e)-[r]-(m)
WITH e, score, collect([type(r), coalesce(m.event_id, m.entity_id)])[..50] AS around
RETURN collect([e.event_id, e.summary, score, around]) AS rows
"""
DEFAULT_METHOD = "intent_weighted"
Asks = dict[str, Callable[[int], bool]]
BATCH_S = 0.2
"""Between two batches of events that come in."""
CLOSED = 300
ASKERS = 6
IDLE_S = 10
NEW_EVENTS = 50
"""That are sent and then asked for, one after the other."""
WARM = 100
"""Questions of each kind that do not count: Neo4j's machine compiles what is asked often."""


@contextmanager
def services(folder: Path) -> Iterator[tuple[ValkeyServer, Neo4jServer]]:
    """A Valkey and a Neo4j of the measurement's own."""
    valkey = ValkeyServer(folder / "valkey")
    graph = Neo4jServer(folder / "neo4j", heap_mb=HEAP_MB, page_cache_mb=PAGE_CACHE_MB)
    valkey.start()
    graph.start()
    try:
        valkey.wait_ready()
        graph.wait_ready()
        yield valkey, graph
    finally:
        graph.stop()
        valkey.stop()


@dataclass(frozen=True)
class Deployment:
    """A memory that is served over HTTP, in processes that nobody else uses.

    Attributes:
        folder: of all files.
        sockets: folder of the sockets of its embedder and its columns, by which those are told from
            others of this machine.
    """

    folder: Path
    sockets: Path
    valkey: ValkeyServer
    graph: Neo4jServer
    driver: neo4j.Driver
    api: ApiProcess
    client: httpx.Client

    @property
    def options(self) -> list[str]:
        """That lead a command to its services."""
        return ["--redis", self.valkey.url, "--neo4j", self.graph.url]


@contextmanager
def deployed(memory: Memory, processes: int = 1) -> Iterator[Deployment]:
    """A memory in a graph of its own, and an API without caches of results and embeddings.

    Args:
        memory: what is in the graph.
        processes: that serve the API.
    """
    with (
        tempfile.TemporaryDirectory() as name,
        # A socket's path is short, and that of temporary files may not be.
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as sockets,
        services(Path(name)) as (valkey, graph),
        neo4j.GraphDatabase.driver(graph.url, notifications_min_severity="OFF") as driver,
    ):
        fill(Neo4jGraph(driver, browsed=True), memory)
        os.environ.update(
            RECOLLECT_DATA_DIR=name,
            RECOLLECT_MODEL_PROCESS_DIR=sockets,
            RECOLLECT_RESULT_CACHE_S="0",
            RECOLLECT_QUERY_EMBEDDING_CACHE="0",
            RECOLLECT_RECORD_ACCESSES="false",
            RECOLLECT_REQUEST_LIMITS='{"*": ""}',
        )
        with api(Path(name), valkey.url, graph.url, processes) as (process, client):
            yield Deployment(
                folder=Path(name),
                sockets=Path(sockets),
                valkey=valkey,
                graph=graph,
                driver=driver,
                api=process,
                client=client,
            )


@contextmanager
def api(
    folder: Path, redis_url: str, neo4j_url: str, processes: int
) -> Iterator[tuple[ApiProcess, httpx.Client]]:
    """An API in processes of its own, and a client."""
    options = ["--redis", redis_url, "--neo4j", neo4j_url, "--insecure-dev"]
    process = ApiProcess(folder, options, processes=processes)
    process.start()
    try:
        wait_until(process.is_ready, "the API is warm")
        wait_until(lambda: _serving(folder) >= processes, "all processes serve")
        headers = {"X-Tenant": TENANT}
        limits = httpx.Limits(max_connections=128, max_keepalive_connections=128)
        with httpx.Client(
            base_url=process.url, headers=headers, timeout=60, limits=limits
        ) as client:
            yield process, client
    finally:
        process.stop()


def _serving(folder: Path) -> int:
    """How many processes have begun to take connections, as the API's log says."""
    log = (folder / "api.log").read_text(encoding="utf-8")
    return log.count("Application startup complete")


def subgraph(client: httpx.Client, questions: Sequence[str], method: str) -> Callable[[int], bool]:
    """A question of each number, by a method; whether its answer lacks nothing."""

    def ask(number: int) -> bool:
        body = {
            "query": questions[number],
            "session_id": f"asking-{number}",
            "agent_id": "agent-0",
            "retrieval_method": method,
            "timeout_ms": 30_000,
        }
        answer = client.post("/v1/query/subgraph", json=body)
        return answer.status_code == 200 and not answer.json()["meta"]["degraded"]

    return ask


def asked(client: httpx.Client, memory: Memory, count: int, seed: int) -> Asks:
    """What is measured over HTTP, by name."""
    questions = memory.questions(count, seed)

    def facts(number: int) -> bool:
        answer = client.post("/v1/query/facts", json={"query": questions[number]})
        return answer.status_code == 200

    def context(number: int) -> bool:
        session = number * 31 % max(1, memory.size // SESSION)
        return client.get(f"/v1/context/session-{session}").status_code == 200

    def lineage(number: int) -> bool:
        event_id = memory.event_id(number * 997 % memory.size)
        return client.get(f"/v1/nodes/{event_id}/lineage").status_code == 200

    def entity(number: int) -> bool:
        return client.get(f"/v1/entities/entity:agent-{number % AGENTS}").status_code == 200

    methods: Asks = {
        f"subgraph {method}": subgraph(client, [f"{one} {method}" for one in questions], method)
        for method in (DEFAULT_METHOD, "ppr", "activation")
    }
    pages: Asks = {"context": context, "lineage": lineage, "entity": entity}
    return {**methods, "facts": facts, **pages}


@contextmanager
def ingesting(served: Deployment, memory: Memory, per_s: int) -> Iterator[None]:
    """Events of sessions of their own come in through the API, and a worker projects them."""
    worker = subprocess.Popen(
        [*RECOLLECT, "worker", "projection", *served.options],
        env={**os.environ, "RECOLLECT_METRICS_PORT": "0", "RECOLLECT_LOG_LEVEL": "warning"},
        stdout=subprocess.DEVNULL,
    )
    over = threading.Event()

    def ingest() -> None:
        number = 0
        while not over.wait(BATCH_S):
            events = [memory.incoming(number + one) for one in range(round(per_s * BATCH_S))]
            number += len(events)
            served.client.post("/v1/events/batch", json=events).raise_for_status()

    thread = threading.Thread(target=ingest)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        worker.terminate()
        worker.wait()


def embedding_ms(memory: Memory) -> float:
    """What one question costs to be embedded, the median of fifty, with the models loaded."""
    embedder = QueryEmbedder(Settings(query_embedding_cache=0))
    taken = []
    try:
        embedder.embed("first", timeout_ms=60_000)
        for question in memory.questions(50, 99):
            begun = time.perf_counter()
            embedder.embed(question, timeout_ms=60_000)
            taken.append(time.perf_counter() - begun)
    finally:
        embedder.close()
    return sorted(taken)[len(taken) // 2] * 1_000


def steps_ms(client: httpx.Client) -> dict[str, float]:
    """Mean of each step of a query, as the API counted them."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            if sample.name == "recollect_query_step_duration_seconds_sum":
                sums[sample.labels["step"]] = sample.value
            elif sample.name == "recollect_query_step_duration_seconds_count":
                counts[sample.labels["step"]] = sample.value
    return {step: 1_000 * total / counts[step] for step, total in sums.items() if counts[step]}


class Used(NamedTuple):
    """Processor time, s: of the API, of columns, of the embedder, of Neo4j, of Valkey."""

    api: float
    columns: float
    embedder: float
    neo4j: float
    valkey: float


def processes(served: Deployment) -> dict[str, list[int]]:
    """The ids of all that answer a question, by the names of `Used`."""
    ids = {"api": served.api.pid, "neo4j": served.graph.pid, "valkey": served.valkey.pid}
    alone = {name: [pid] for name, pid in ids.items() if pid is not None}
    shared = {
        "columns": columns_pids(served.sockets),
        "embedder": model_process_pids(served.sockets),
    }
    api = alone["api"][0]
    alone["api"] += [pid for pid in child_pids(api) if pid not in shared["columns"]]
    return alone | shared


def used(served: Deployment) -> Used:
    """Since they were started."""
    return Used(**{name: sum(map(cpu_seconds, pids)) for name, pids in processes(served).items()})


def idle_ms(served: Deployment) -> Used:
    """Processor time a second, ms, while nobody asks anything."""
    before = used(served)
    time.sleep(IDLE_S)
    spent = zip(used(served), before, strict=True)
    return Used(*((after - begun) * 1_000 / IDLE_S for after, begun in spent))


def by_hand(driver: neo4j.Driver, memory: Memory) -> Callable[[int], bool]:
    """A bare vector search and one step, through the driver, with vectors of topics."""

    def ask(number: int) -> bool:
        vector = memory.topics[number % len(memory.topics)].tolist()
        with driver.session() as session:
            row = session.run(BY_HAND, vector=vector, tenant=TENANT).single(strict=True)
        return bool(row["rows"])

    return ask


def measure(
    size: int, count: int, rates: list[float], *, ingest: int, processes: int
) -> tuple[list[Latency], list[Used]]:
    """All figures for one size; of what was used, ms a question."""
    memory = Memory(size)
    found = []
    costs = []
    with deployed(memory, processes) as served:
        client = served.client
        hand = {"by hand": by_hand(served.driver, memory)}
        for ask in {**hand, **asked(client, memory, WARM, 1)}.values():
            for number in range(WARM):
                ask(number)
        coming: Any = ingesting(served, memory, ingest) if ingest else nullcontext()
        with coming:
            for turn, rate in enumerate(rates):
                for kind, ask in {**hand, **asked(client, memory, count, 2 + turn)}.items():
                    before = used(served)
                    found.append(
                        measured(kind, ask, rate=rate, count=count, unanswered=(httpx.HTTPError,))
                    )
                    spent = zip(used(served), before, strict=True)
                    costs.append(Used(*((b - a) * 1_000 / count for b, a in spent)))
        ask = asked(client, memory, CLOSED, 90)[f"subgraph {DEFAULT_METHOD}"]
        sys.stdout.write(f"closed loop: {closed_loop(ask):.1f} questions/s\n")
        held = 2**20 * sum(map(resident_mb, columns_pids(served.sockets))) / size
        sys.stdout.write(f"memory of the columns' process: {held:,.0f} bytes an event\n")
        told = ", ".join(f"{name} {ms:.1f}" for name, ms in idle_ms(served)._asdict().items())
        sys.stdout.write(f"processor ms a second when nobody asks: {told}\n")
        waits = sorted(wait.found for wait in waits_of_api(client, NEW_EVENTS))
        middle, slow = waits[len(waits) // 2], waits[len(waits) * 95 // 100]
        sys.stdout.write(f"found at once, ms: p50 {middle:.0f}, p95 {slow:.0f}\n")
        steps = ", ".join(f"{step} {ms:.0f}" for step, ms in steps_ms(client).items())
        sys.stdout.write(f"steps of a query, mean ms: {steps}\n")
    return found, costs


def closed_loop(ask: Callable[[int], bool]) -> float:
    """Questions a second of the default method by ASKERS, each asking when it was answered."""
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(ASKERS) as pool:
        answered = sum(pool.map(ask, range(CLOSED)))
    return answered / (time.perf_counter() - begun_s)


def table(size: int, rows: list[Latency], costs: list[Used]) -> str:
    """As Markdown."""
    lines = [
        f"\n{size:,} events\n",
        "| | questions/s | p50 ms | p95 ms | p99 ms | x by hand | failed "
        "| CPU ms of API, columns, embedder, Neo4j, Valkey | in all |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    base = {row.rate: row.p95 for row in rows if row.name == "by hand"}
    for row, cost in zip(rows, costs, strict=True):
        cpu = ", ".join(f"{ms:.0f}" for ms in cost)
        lines.append(
            f"| {row.name} | {row.rate:g} | {row.p50:.0f} | {row.p95:.0f} | {row.p99:.0f} | "
            f"{row.p95 / base[row.rate]:.1f} | {row.failed} of {row.asked} | {cpu} | "
            f"{sum(cost):.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.query", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--count", type=int, default=150, help="questions of a measurement")
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--ingest", type=int, default=0, help="events/s that come in meanwhile")
    parser.add_argument("--processes", type=int, default=1, help="that serve the API")
    given = parser.parse_args()
    channel = Settings().channel_timeout_ms
    limit = "its share of the time" if channel is None else f"{channel} ms"
    sys.stdout.write(f"model {EMBEDDER}; a channel has {limit}\n")
    sys.stdout.write(f"a question's embedding alone: {embedding_ms(Memory(1)):.1f} ms\n")
    for size in given.sizes:
        figures = measure(
            size, given.count, given.rates, ingest=given.ingest, processes=given.processes
        )
        sys.stdout.write(table(size, *figures) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
