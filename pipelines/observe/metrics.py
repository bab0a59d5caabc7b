"""Metrics: every Prometheus metric is declared here; log lines are rendered in `logs`.

The declarations below are the one table of metrics: name, type, labels, help. They are also the
accessors: `metrics.DEAD_LETTERS.labels(stage="projection", target="blue").set(0)`.
`docs/reference/metrics.md` is generated from them, and dashboards and alert rules are tested
against them. No metric has a tenant, session or event as a label: their number has no bound.

Several processes may report the same state (every API process sees the lag of the active target),
so gauges of shared state are read with `max by (…)`, and only `partitions_held` is summed.

The processes of one API count together, in a folder (`join`): counters and histograms are sums over
all of them, from the start of the API; a gauge is what was seen last, whoever saw it, but for the
open connections, which are summed. What is of one process (`process_…`) has it as a label.
"""

from __future__ import annotations

import platform
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from socketserver import ThreadingMixIn
from typing import Any, Literal, Self, get_args
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    make_wsgi_app,
)

from pipelines.observe import shared_metrics

PREFIX = "recollect_"
REGISTRY = CollectorRegistry(auto_describe=True)

Kind = Literal["counter", "gauge", "histogram"]
Over = Literal["mostrecent", "sum"]
Phase = Literal["read", "decode", "derive", "gather", "fold", "write"]
IngestOutcome = Literal["accepted", "duplicate", "conflict", "invalid", "overloaded", "unavailable"]
OtlpSignal = Literal["traces", "logs"]
OtlpOutcome = Literal["remembered", "scope", "ignored", "rejected"]
Model = Literal["embedding", "nlp"]
Cache = Literal["query_embedding", "result", "shown"]
CacheOutcome = Literal["hit", "miss", "lost"]
KeptKind = Literal["vector", "analysis", "answer", "event"]
KeptOutcome = Literal["hit", "miss", "damaged", "lost"]
Trigger = Literal["timer", "request", "reflection", "quiet"]
PassOutcome = Literal["complete", "out_of_time", "failed"]
Degraded = Literal["embedding", "nlp", "payload", "llm", "wording", "query_embedding"]
Derivation = Literal[
    "text",
    "embedding",
    "keyword",
    "mention",
    "entity",
    "fact",
    "similar",
    "same_as",
    "cause_tool_result",
    "cause_value_flow",
    "cause_retry",
    "cause_reply",
]
NodeTier = Literal["hot", "warm", "cold", "archive"]
QueryStep = Literal["understand", "seeds", "walk", "rank", "read"]
Channel = Literal["text", "vector", "entity", "context", "graph", "story"]
QueryMethod = Literal["intent_weighted", "ppr", "activation"]
QueryOutcome = Literal["answered", "empty", "partial", "cached"]
Cut = Literal["head_timeout", "body_timeout", "answer_timeout", "head_size", "evicted", "refused"]
Limited = Literal["requests", "events", "streams"]
Signal = Literal["recurring_pattern", "entity_context", "retrieval_history"]
LlmOutcome = Literal[
    "answered",
    "malformed",
    "ungrounded",
    "timeout",
    "rate_limited",
    "server_error",
    "refused",
    "unreachable",
    "suspended",
]

HUNG_UP = 499
"""The status of a request that its client did not finish, as other servers log it."""

# A block of 1,000 entries takes 30 to 300 ms on the reference machine; 60 s is its time limit.
_BLOCK_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
# 30 s is the longest time limit a query may ask for.
_SCORE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# A small question takes 40 us, a step of a walk 15 ms.
_COLUMNS_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5)
_API_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# `_created` series would double the number of counters
disable_created_metrics()  # type: ignore[no-untyped-call]  # the package leaves it unannotated


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Attributes:
        name: as exposed, with prefix, unit and `_total` for counters.
        kind: counter, gauge or histogram.
        labels: names, in the order of declaration.
        help: one sentence, with the unit where the name has none.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> tuple[str, ...]:
        """Names under which Prometheus stores it."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


METRICS: dict[str, Metric] = {}
_COUNTERS: dict[str, tuple[Counter, list[dict[str, str]]]] = {}
"""By name without prefix; with each combination of the labels whose values are a closed set."""
_GAUGES: dict[str, Gauge] = {}


def _declare(kind: Kind, name: str, text: str, labels: tuple[str, ...]) -> str:
    row = Metric(PREFIX + name, kind, labels, text)
    METRICS[row.name] = row
    return row.name


def _counter(name: str, text: str, *labels: str, **closed: tuple[str, ...]) -> Counter:
    """A counter; `closed` are further labels, each with all the values that it can have.

    `{label}` in its text stands for those values.

    A counter that first appears with the value 1 has no rate: with closed labels alone all its
    series exist from the start, with others as soon as `prepare_stage` knows those.
    """
    names = (*labels, *closed)
    text = text.format_map({label: ", ".join(values) for label, values in closed.items()})
    counter = Counter(_declare("counter", name, text, names), text, names, registry=REGISTRY)
    series = [dict(zip(closed, values, strict=True)) for values in product(*closed.values())]
    _COUNTERS[name] = (counter, series)
    if closed and not labels:
        for values in series:
            counter.labels(**values)
    return counter


def _gauge(name: str, text: str, *labels: str, over: Over = "mostrecent") -> Gauge:
    """A gauge; `over` says what it is over the processes of one API."""
    full_name = _declare("gauge", name, text, labels)
    gauge = Gauge(full_name, text, labels, registry=REGISTRY, multiprocess_mode=over)
    _GAUGES[name] = gauge
    return gauge


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    full_name = _declare("histogram", name, text, labels)
    return Histogram(full_name, text, labels, registry=REGISTRY, buckets=buckets)


_STAGE = ("stage", "target")

# Lag: how far the graph is behind the ledger
LAG_ENTRIES = _gauge(
    "lag_entries",
    "Entries of the ledger after the stage's checkpoints, all partitions together.",
    *_STAGE,
)
LAG_SECONDS = _gauge(
    "lag_seconds",
    "Age of the oldest entry the stage has not applied, over all partitions; 0 when none.",
    *_STAGE,
)
PARTITION_LAG_ENTRIES = _gauge(
    "partition_lag_entries",
    "Entries of one partition after the stage's checkpoint.",
    *_STAGE,
    "partition",
)
PARTITION_LAG_SECONDS = _gauge(
    "partition_lag_seconds",
    "Age of the oldest entry of one partition that the stage has not applied; 0 when none.",
    *_STAGE,
    "partition",
)

# Work of a stage
BLOCKS_APPLIED = _counter(
    "blocks_applied_total", "Blocks whose transaction was committed.", *_STAGE
)
ENTRIES_APPLIED = _counter(
    "entries_applied_total", "Entries whose transaction was committed.", *_STAGE
)
OPERATIONS = _counter(
    "operations_total",
    "Graph operations committed, by kind (merge_node, merge_edge, remove_node, remove_edge).",
    *_STAGE,
    "kind",
)
RETRIES = _counter(
    "retries_total",
    "Blocks tried again, by the error's class in snake case (graph_unavailable …).",
    *_STAGE,
    "reason",
)
BISECTIONS = _counter(
    "bisections_total", "Failing blocks cut in two to find the poison entry.", *_STAGE
)
FENCED_BLOCKS = _counter(
    "fenced_blocks_total",
    "Blocks rolled back because the checkpoint was elsewhere: another worker had gone on.",
    *_STAGE,
)
DEAD_LETTERS = _gauge("dead_letters", "Dead letters in the graph now.", *_STAGE)
DEAD_LETTERS_MADE = _counter(
    "dead_letters_made_total", "Entries given up after the last attempt.", *_STAGE
)
STAGE_HELD = _gauge(
    "stage_held",
    "1 while so many different entries fail that the stage holds and gives none up.",
    "stage",
    "target",
)
BLOCK_DURATION = _histogram(
    "block_duration_seconds",
    "Time of one block, by phase: " + ", ".join(get_args(Phase)) + " (derive: models run).",
    *_STAGE,
    "phase",
    buckets=_BLOCK_BUCKETS,
)
PARTITIONS_HELD = _gauge("partitions_held", "Partitions whose lease this worker holds.", *_STAGE)
REBUILD_NEEDED = _gauge(
    "rebuild_needed",
    "1 when the graph was folded by another fold version, or with other models, so that workers "
    "refuse to write.",
    *_STAGE,
)

# What enrichment derives, the models it takes, and what is cached of them
DERIVED = _counter(
    "derived_total",
    "Items of enrichment written, again when folded again, by kind: {kind}.",
    "target",
    kind=get_args(Derivation),
)
MODEL_TEXTS = _counter(
    "model_texts_total",
    "Texts a model computed, kept ones left out: {model}.",
    model=get_args(Model),
)
MODEL_SECONDS = _counter(
    "model_seconds_total", "Time a model has computed, loading it left out.", model=get_args(Model)
)
DERIVATION_LOOKUPS = _counter(
    "derivation_lookups_total",
    "Look-ups of what models and rules made before, by kind and outcome: {outcome} "
    "(damaged: computed again; lost: the store did not answer).",
    kind=get_args(KeptKind),
    outcome=get_args(KeptOutcome),
)
DERIVATIONS_UNKEPT = _counter(
    "derivations_unkept_total",
    "Derivations that the store did not take, so that the next one who wants them computes them.",
    kind=get_args(KeptKind),
)
CACHE_LOOKUPS = _counter(
    "cache_lookups_total",
    "Look-ups in the caches, by cache and outcome: {outcome} "
    "(lost: Redis did not answer, or what it held is damaged).",
    cache=get_args(Cache),
    outcome=get_args(CacheOutcome),
)
CACHE_REFUSED = _counter(
    "cache_refused_total",
    "Values not cached because the caches hold all the bytes they may, or Redis refused.",
    cache=get_args(Cache),
)
DEGRADED = _counter(
    "degraded_total",
    "Items that had to go without something, by what failed: {kind} (wording: of what passes find, "
    "which stays as rules word it).",
    kind=get_args(Degraded),
)
LLM_QUESTIONS = _counter(
    "llm_questions_total",
    "Questions to the language model that were not answered before, by outcome: {outcome} "
    "(ungrounded: it says what it was not told; refused: by the server, for good; suspended: not "
    "asked, after repeated failures, or because the time of a pass is over).",
    outcome=get_args(LlmOutcome),
)

# Consolidation: what it decides, and how far it is
CONSOLIDATION_LAG_SECONDS = _gauge(
    "consolidation_lag_seconds",
    "Age of the oldest entry that the consolidation has not applied; lag_seconds of that stage.",
    "target",
)
ENRICHMENT_LAG_SECONDS = _gauge(
    "enrichment_lag_seconds",
    "Age of the oldest entry that the enrichment has not applied; lag_seconds of that stage.",
    "target",
)
LAST_RUN = _gauge(
    "reconsolidation_last_run_timestamp_seconds",
    "When the last pass of consolidation ended, in Unix time; 0: none has.",
    "target",
)
PASSES = _counter(
    "reconsolidation_runs_total",
    "Passes of this worker that ended, by outcome: {outcome}.",
    "target",
    outcome=get_args(PassOutcome),
)
PASS_SECONDS = _gauge(
    "reconsolidation_duration_seconds", "Time the last pass of consolidation took.", "target"
)
TRIGGERS = _counter(
    "reconsolidation_triggers_total",
    "Passes that this worker began, by reason: {reason}.",
    "target",
    reason=get_args(Trigger),
)
REFLECTION_TRIGGERS = _counter(
    "reflection_triggers_total",
    "Tenants with a session whose importance since its last pass was found above the limit.",
    "target",
)
PRUNED = _counter(
    "graph_nodes_pruned_total",
    "Events that left the graph, again when applied again, by tier: {tier}.",
    "target",
    tier=get_args(NodeTier),
)
TIER_NODES = _gauge(
    "graph_nodes",
    "Events in the graph by age when the last pass that looked at all ended: "
    + ", ".join(get_args(NodeTier))
    + ".",
    "target",
    "tier",
)
DECAY_SCORES = _histogram(
    "decay_score",
    "Decay scores, 0 to 1, of a sample of the events in the graph at the end of each pass that "
    "looked at all.",
    "target",
    buckets=_SCORE_BUCKETS,
)

# The graph
NODES = _gauge("nodes", "Nodes in the graph, by label.", "target", "label")
EDGES = _gauge("edges", "Edges in the graph, by type.", "target", "type")
TARGET_ACTIVE = _gauge(
    "target_active", "1 for the target that reads and 429 look at, 0 for others.", "target"
)

# The ledger
INGEST_EVENTS = _counter(
    "ingest_events_total",
    "Events offered, by outcome: {outcome}.",
    outcome=get_args(IngestOutcome),
)
INGEST_BYTES = _counter("ingest_bytes_total", "Bytes of new events, as they were sent to Redis.")
OTLP_RECORDS = _counter(
    "otlp_records_total",
    "Spans and log records of OpenTelemetry that were answered, by outcome: {outcome} "
    "(scope: of GenAI, says nothing of its own; ignored: not of GenAI).",
    signal=get_args(OtlpSignal),
    outcome=get_args(OtlpOutcome),
)
OTLP_RETOLD = _counter(
    "otlp_retold_events_total",
    "Events in OpenTelemetry spans that another span had told before, in other words.",
)
LEDGER_EPOCH = _gauge("ledger_epoch", "Number of server processes the ledger has admitted.")
LEDGER_PARTITIONS = _gauge("ledger_partitions", "Partitions of the ledger.")
HALTED_PARTITIONS = _gauge(
    "halted_partitions", "Partitions that refuse events because the graph is ahead of the ledger."
)
ENTRIES_HELD_OUT = _gauge(
    "ledger_entries_held_out",
    "Entries that are not what was appended, by kind: altered (as far as somebody read them), "
    "lost.",
    "kind",
)
LEDGER_AT_RISK = _gauge(
    "ledger_at_risk",
    "1: Redis may lose what it acknowledges, because it evicts or keeps no append-only file; "
    "no event is taken.",
)
ARCHIVED = _counter("archived_entries_total", "Entries that this archiver moved out of Redis.")
ARCHIVE_ENTRIES = _gauge("ledger_archive_entries", "Entries of the ledger that are archived.")
ARCHIVE_STOPPED = _gauge(
    "ledger_archive_stopped",
    "1: the archiver cannot go on, `recollect status` says why; entries stay in Redis.",
)
ENTRIES_RESTORED = _counter(
    "ledger_entries_restored_total",
    "Entries that were altered or lost, and put right because their event was sent again.",
)
REDIS_MEMORY_USED = _gauge("redis_memory_used_bytes", "Memory Redis uses.")
REDIS_MEMORY_MAX = _gauge("redis_memory_max_bytes", "Redis' maxmemory; 0: no limit.")

# The API
API_DURATION = _histogram(
    "api_request_duration_seconds",
    "Time of one request, by route template, method and status class (2xx …; 499: the client hung "
    "up in the middle of it).",
    *("route", "method", "status"),
    buckets=_API_BUCKETS,
)
API_CONNECTIONS = _gauge("api_connections", "Connections of clients that are open.", over="sum")
API_STREAMS = _gauge("api_streams", "Streams of changes that are open.", over="sum")
API_CONNECTIONS_CUT = _counter(
    "api_connections_cut_total",
    "Connections that the API ended, by reason: {reason} "
    "(evicted: it waited for its client, and made room for another one).",
    reason=get_args(Cut),
)
RATE_LIMITED = _counter(
    "api_rate_limited_total",
    "Requests refused because a key, or a tenant, sent more than it may: {kind}.",
    kind=get_args(Limited),
)

# Retrieval
QUERIES = _counter(
    "queries_total",
    "Answers to `POST /v1/query/subgraph`, by method and outcome: {outcome} "
    "(partial: time was over, or a channel had to be left out).",
    method=get_args(QueryMethod),
    outcome=get_args(QueryOutcome),
)
QUERY_STEP_DURATION = _histogram(
    "query_step_duration_seconds",
    "Time of one step of a query: " + ", ".join(get_args(QueryStep)) + ".",
    "step",
    buckets=_API_BUCKETS,
)
CHANNEL_NODES = _counter(
    "query_channel_nodes_total",
    "Nodes of answers that a channel had found, by channel: {channel}.",
    channel=get_args(Channel),
)
CHANNEL_FAILURES = _counter(
    "query_channel_failures_total",
    "Channels that a query had to go without, by channel: {channel}.",
    channel=get_args(Channel),
)
COLUMNS_EVENTS = _gauge(
    "columns_events", "Events that the columns hold; 0 while they are loaded, or nobody holds them."
)
COLUMNS_MEMORY = _gauge("columns_memory_bytes", "Memory of the process that holds the columns.")
COLUMNS_BEHIND = _gauge(
    "columns_behind_seconds", "Since the columns last looked at the graph with success."
)
COLUMNS_QUESTION_DURATION = _histogram(
    "columns_question_duration_seconds",
    "Time of one question to the columns, there and back, by name.",
    "question",
    buckets=_COLUMNS_BUCKETS,
)
OPERATOR_READS = _counter(
    "api_operator_reads_total", 'Reads over all users (`user_id: "*"`), which the log names.'
)
PROACTIVE_NODES = _counter(
    "proactive_nodes_total",
    "Nodes of answers that nobody asked for, by signal: {signal}.",
    signal=get_args(Signal),
)
PROACTIVE_READ = _counter(
    "proactive_nodes_read_total",
    "Nodes that had been shown unasked and were asked for later, by signal.",
    signal=get_args(Signal),
)
PROACTIVE_FEEDBACK = _counter(
    "proactive_nodes_judged_total",
    "Judgements of nodes that had been shown unasked, by signal and judgement.",
    signal=get_args(Signal),
    judgement=("useful", "not_useful"),
)
ACCESSES_DROPPED = _counter(
    "accesses_dropped_total",
    "Nodes returned by reads that could not be counted: the ledger was away or overloaded.",
)

# Proof and repair
VERIFY_OK = _gauge("verify_ok", "1 when the last verify found no difference, else 0.", *_STAGE)
VERIFY_DIFFERENCES = _gauge(
    "verify_differences",
    "Differences of the last verify of everything.",
    *_STAGE,
)
VERIFY_DURATION = _gauge("verify_duration_seconds", "Time the last verify took.", *_STAGE)
VERIFY_TIMESTAMP = _gauge(
    "verify_timestamp_seconds", "When the last verify ended, in Unix time.", *_STAGE
)
REBUILD_PROGRESS = _gauge(
    "rebuild_progress_ratio", "Share of the ledger a rebuild has folded, 0 to 1.", "target"
)

BUILD_INFO = _gauge("build_info", "Always 1; the labels say what runs.", "version", "python")


def _package_version() -> str:
    try:
        return version("recollect")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


BUILD_INFO.labels(version=_package_version(), python=platform.python_version()).set(1)
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def prepare_stage(stage: str, target: str, metrics: Sequence[str] = ()) -> None:
    """Make the counters of a stage appear with 0, so that their first increase is seen.

    Args:
        stage: its name.
        target: its name.
        metrics: names, without prefix, of counters that only this stage sets, by target.
    """
    for counter in (
        BLOCKS_APPLIED,
        ENTRIES_APPLIED,
        BISECTIONS,
        FENCED_BLOCKS,
        DEAD_LETTERS_MADE,
    ):
        counter.labels(stage=stage, target=target)
    PARTITIONS_HELD.labels(stage=stage, target=target)
    STAGE_HELD.labels(stage=stage, target=target)
    for name in metrics:
        counter, series = _COUNTERS[name]
        for values in series:
            counter.labels(target=target, **values)


_lag_lock = threading.Lock()
_lag_partitions: dict[tuple[str, str], frozenset[int]] = {}


def observe_lag(
    stage: str,
    target: str,
    entries: Mapping[int, int],
    seconds: Mapping[int, float],
    *,
    lag_metric: str | None = None,
) -> None:
    """Set the gauges of lag from one look at *all* partitions.

    Args:
        stage: name of the stage.
        target: name of the target.
        entries: partition → entries after its checkpoint.
        seconds: partition → age of the oldest of them; same keys.
        lag_metric: name, without prefix, of a gauge for the age in this stage alone.
    """
    with _lag_lock:
        seen = frozenset(entries)
        for gone in _lag_partitions.get((stage, target), frozenset()) - seen:
            PARTITION_LAG_ENTRIES.remove(stage, target, str(gone))
            PARTITION_LAG_SECONDS.remove(stage, target, str(gone))
        _lag_partitions[(stage, target)] = seen
        for number in seen:
            PARTITION_LAG_ENTRIES.labels(stage, target, str(number)).set(entries[number])
            PARTITION_LAG_SECONDS.labels(stage, target, str(number)).set(seconds[number])
        LAG_ENTRIES.labels(stage, target).set(sum(entries.values()))
        oldest_s = max(seconds.values(), default=0.0)
        LAG_SECONDS.labels(stage, target).set(oldest_s)
        if lag_metric is not None:
            _GAUGES[lag_metric].labels(target).set(oldest_s)


def observe_graph(target: str, nodes: Mapping[str, int], edges: Mapping[str, int]) -> None:
    """Set the counts of a target, `nodes` by label and `edges` by type."""
    for label, count in nodes.items():
        NODES.labels(target, label).set(count)
    for edge_type, count in edges.items():
        EDGES.labels(target, edge_type).set(count)


def observe_verify(
    stage: str, target: str, *, differences: int, duration_s: float, ended_at_s: float
) -> None:
    """Set the result of the last verify of a stage; `ended_at_s` is Unix time."""
    VERIFY_OK.labels(stage, target).set(differences == 0)
    VERIFY_DIFFERENCES.labels(stage, target).set(differences)
    VERIFY_DURATION.labels(stage, target).set(duration_s)
    VERIFY_TIMESTAMP.labels(stage, target).set(ended_at_s)


def count_unanswered(kind: Degraded, outcome: LlmOutcome, count: int = 1) -> None:
    """Questions to the language model without an answer, and what goes without it."""
    LLM_QUESTIONS.labels(outcome=outcome).inc(count)
    DEGRADED.labels(kind=kind).inc(count)


def observe_pass(target: str, values: Mapping[str, float]) -> None:
    """Set the gauges of the last pass of consolidation.

    Args:
        target: that it decided about.
        values: `ended_at_s` (Unix time), `duration_s`, and `tier_…`, the events of each tier.
    """
    LAST_RUN.labels(target).set(values["ended_at_s"])
    PASS_SECONDS.labels(target).set(values["duration_s"])
    for tier in get_args(NodeTier):
        if f"tier_{tier}" in values:
            TIER_NODES.labels(target, tier).set(values[f"tier_{tier}"])


def error_reason(error: BaseException) -> str:
    """Class name in snake case, the value of the label `reason`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(error).__name__).lower()


def status_class(status: int) -> str:
    """The label `status` of an HTTP status: 404 → `4xx`; 499, a client that hung up, as it is."""
    return str(HUNG_UP) if status == HUNG_UP else f"{status // 100}xx"


def render_metrics() -> tuple[bytes, str]:
    """What `/metrics` answers: body and content type."""
    registry = shared_metrics.joined()
    return generate_latest(REGISTRY if registry is None else registry), CONTENT_TYPE_LATEST


HEALTH_PATH = "/health"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *_: object) -> None:
        """Nothing: a probe every few seconds is no news."""


class MetricsServer:
    """Metrics and health of one process over HTTP, in a thread, until `stop`.

    `/health` is 200 while the process gets on, else 503 with what does not move.

    Args:
        host: address to listen on.
        port: there; 0 takes a free one.
        problem: what does not move; None: nothing.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        problem: Callable[[], str | None] = lambda: None,
    ) -> None:
        show_metrics = make_wsgi_app(REGISTRY)

        def answer(environ: Any, start_response: Any) -> Any:
            if environ["PATH_INFO"] != HEALTH_PATH:
                return show_metrics(environ, start_response)
            trouble = problem()
            status = "200 OK" if trouble is None else "503 Service Unavailable"
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{trouble or 'ok'}\n".encode()]

        self._server = make_server(host, port, answer, server_class=_Server, handler_class=_Silent)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()
        self.host = host
        self.port: int = self._server.server_port

    def stop(self) -> None:
        """Close the socket and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
