"""Metrics and logs: every Prometheus metric is declared here, every log line is rendered here.

The declarations below are the one table of metrics: name, type, labels, help. They are also the
accessors: `telemetry.DEAD_LETTERS.labels(stage="projection", target="blue").set(0)`.
`docs/reference/metrics.md` is generated from them, and dashboards and alert rules are tested
against them. No metric has a tenant, session or event as a label: their number has no bound.

Several processes may report the same state (every API process sees the lag of the active target),
so gauges of shared state are read with `max by (…)`, and only `partitions_held` is summed.
"""

from __future__ import annotations

import logging
import logging.config
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Literal, Self, TextIO, get_args

import orjson
import structlog
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
    start_http_server,
)
from pydantic import SecretStr

from pipelines.settings import Settings

PREFIX = "recollect_"
REGISTRY = CollectorRegistry(auto_describe=True)

Kind = Literal["counter", "gauge", "histogram"]
Phase = Literal["read", "decode", "derive", "gather", "fold", "write"]
IngestOutcome = Literal["accepted", "duplicate", "conflict", "invalid", "overloaded", "unavailable"]
Model = Literal["embedding", "nlp"]
Cache = Literal["embedding", "nlp", "llm"]
CacheOutcome = Literal["hit", "miss", "lost"]
Degraded = Literal["embedding", "nlp", "payload", "llm"]
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
LlmOutcome = Literal[
    "answered",
    "malformed",
    "timeout",
    "rate_limited",
    "server_error",
    "refused",
    "unreachable",
    "suspended",
]

# A block of 1,000 entries takes 30 to 300 ms on the reference machine; 60 s is its time limit.
_BLOCK_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
# 30 s is the longest time limit a query may ask for.
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


def _declare(kind: Kind, name: str, text: str, labels: tuple[str, ...]) -> str:
    row = Metric(PREFIX + name, kind, labels, text)
    METRICS[row.name] = row
    return row.name


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(_declare("counter", name, text, labels), text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(_declare("gauge", name, text, labels), text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    full_name = _declare("histogram", name, text, labels)
    return Histogram(full_name, text, labels, registry=REGISTRY, buckets=buckets)


# Lag: how far the graph is behind the ledger
LAG_ENTRIES = _gauge(
    "lag_entries",
    "Entries of the ledger after the stage's checkpoints, all partitions together.",
    "stage",
    "target",
)
LAG_SECONDS = _gauge(
    "lag_seconds",
    "Age of the oldest entry the stage has not applied, over all partitions; 0 when none.",
    "stage",
    "target",
)
PARTITION_LAG_ENTRIES = _gauge(
    "partition_lag_entries",
    "Entries of one partition after the stage's checkpoint.",
    "stage",
    "target",
    "partition",
)
PARTITION_LAG_SECONDS = _gauge(
    "partition_lag_seconds",
    "Age of the oldest entry of one partition that the stage has not applied; 0 when none.",
    "stage",
    "target",
    "partition",
)

# Work of a stage
BLOCKS_APPLIED = _counter(
    "blocks_applied_total", "Blocks whose transaction was committed.", "stage", "target"
)
ENTRIES_APPLIED = _counter(
    "entries_applied_total", "Entries whose transaction was committed.", "stage", "target"
)
OPERATIONS = _counter(
    "operations_total",
    "Graph operations committed, by kind (merge_node, merge_edge, remove_node, remove_edge).",
    "stage",
    "target",
    "kind",
)
RETRIES = _counter(
    "retries_total",
    "Blocks tried again, by the error's class in snake case (graph_unavailable …).",
    "stage",
    "target",
    "reason",
)
BISECTIONS = _counter(
    "bisections_total", "Failing blocks cut in two to find the poison entry.", "stage", "target"
)
FENCED_BLOCKS = _counter(
    "fenced_blocks_total",
    "Blocks rolled back because the checkpoint was elsewhere: another worker had gone on.",
    "stage",
    "target",
)
DEAD_LETTERS = _gauge("dead_letters", "Dead letters in the graph now.", "stage", "target")
DEAD_LETTERS_MADE = _counter(
    "dead_letters_made_total", "Entries given up after the last attempt.", "stage", "target"
)
BLOCK_DURATION = _histogram(
    "block_duration_seconds",
    "Time of one block, by phase: " + ", ".join(get_args(Phase)) + " (derive: models run).",
    "stage",
    "target",
    "phase",
    buckets=_BLOCK_BUCKETS,
)
PARTITIONS_HELD = _gauge(
    "partitions_held", "Partitions whose lease this worker holds.", "stage", "target"
)
REBUILD_NEEDED = _gauge(
    "rebuild_needed",
    "1 when the graph was folded by another fold version, or with other models, so that workers "
    "refuse to write.",
    "stage",
    "target",
)

# What enrichment derives, the models it takes, and what is cached of them
DERIVED = _counter(
    "derived_total",
    "Items of enrichment written, again when folded again, by kind: "
    + ", ".join(get_args(Derivation))
    + ".",
    "target",
    "kind",
)
MODEL_TEXTS = _counter(
    "model_texts_total",
    "Texts a model computed, cached ones left out: " + ", ".join(get_args(Model)) + ".",
    "model",
)
MODEL_SECONDS = _counter(
    "model_seconds_total", "Time a model has computed, loading it left out.", "model"
)
CACHE_LOOKUPS = _counter(
    "cache_lookups_total",
    "Look-ups in the caches in Redis, by cache and outcome: "
    + ", ".join(get_args(CacheOutcome))
    + " (lost: Redis did not answer, or what it held is damaged).",
    "cache",
    "outcome",
)
CACHE_REFUSED = _counter(
    "cache_refused_total",
    "Values not cached because the caches hold all the bytes they may, or Redis refused.",
    "cache",
)
DEGRADED = _counter(
    "degraded_total",
    "Items that enrichment went without, by what failed: " + ", ".join(get_args(Degraded)) + ".",
    "kind",
)
LLM_QUESTIONS = _counter(
    "llm_questions_total",
    "Questions to the language model that no cache could answer, by outcome: "
    + ", ".join(get_args(LlmOutcome))
    + " (refused: by the server, for good; suspended: not asked, after repeated failures).",
    "outcome",
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
    "Events offered, by outcome: " + ", ".join(get_args(IngestOutcome)) + ".",
    "outcome",
)
INGEST_BYTES = _counter("ingest_bytes_total", "Bytes of accepted events, as canonical JSON.")
LEDGER_EPOCH = _gauge("ledger_epoch", "Number of server processes the ledger has admitted.")
LEDGER_PARTITIONS = _gauge("ledger_partitions", "Partitions of the ledger.")
HALTED_PARTITIONS = _gauge(
    "halted_partitions", "Partitions that refuse events because the graph is ahead of the ledger."
)
REDIS_MEMORY_USED = _gauge("redis_memory_used_bytes", "Memory Redis uses.")
REDIS_MEMORY_MAX = _gauge("redis_memory_max_bytes", "Redis' maxmemory; 0: no limit.")

# The API
API_DURATION = _histogram(
    "api_request_duration_seconds",
    "Time of one request, by route template, method and status class (2xx …).",
    "route",
    "method",
    "status",
    buckets=_API_BUCKETS,
)

# Proof and repair
VERIFY_OK = _gauge("verify_ok", "1 when the last verify found no difference, else 0.", "target")
VERIFY_DIFFERENCES = _gauge("verify_differences", "Differences of the last verify.", "target")
VERIFY_DURATION = _gauge("verify_duration_seconds", "Time the last verify took.", "target")
VERIFY_TIMESTAMP = _gauge(
    "verify_timestamp_seconds", "When the last verify ended, in Unix time.", "target"
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

# A counter that first appears with the value 1 has no rate: the outcomes exist from the start.
for _outcome in get_args(IngestOutcome):
    INGEST_EVENTS.labels(outcome=_outcome)
for _model in get_args(Model):
    MODEL_TEXTS.labels(model=_model)
    MODEL_SECONDS.labels(model=_model)
for _cache in get_args(Cache):
    CACHE_REFUSED.labels(cache=_cache)
    for _cache_outcome in get_args(CacheOutcome):
        CACHE_LOOKUPS.labels(cache=_cache, outcome=_cache_outcome)
for _kind in get_args(Degraded):
    DEGRADED.labels(kind=_kind)
for _llm_outcome in get_args(LlmOutcome):
    LLM_QUESTIONS.labels(outcome=_llm_outcome)


def prepare_stage(stage: str, target: str) -> None:
    """Make the counters of a stage appear with 0, so that their first increase is seen."""
    for counter in (
        BLOCKS_APPLIED,
        ENTRIES_APPLIED,
        BISECTIONS,
        FENCED_BLOCKS,
        DEAD_LETTERS_MADE,
    ):
        counter.labels(stage=stage, target=target)
    PARTITIONS_HELD.labels(stage=stage, target=target)
    if stage == "enrichment":
        for kind in get_args(Derivation):
            DERIVED.labels(target=target, kind=kind)


_lag_lock = threading.Lock()
_lag_partitions: dict[tuple[str, str], frozenset[int]] = {}


def observe_lag(
    stage: str, target: str, entries: Mapping[int, int], seconds: Mapping[int, float]
) -> None:
    """Set the four gauges of lag from one look at *all* partitions.

    Args:
        stage: name of the stage.
        target: name of the target.
        entries: partition → entries after its checkpoint.
        seconds: partition → age of the oldest of them; same keys.
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
        LAG_SECONDS.labels(stage, target).set(max(seconds.values(), default=0.0))


def observe_graph(target: str, nodes: Mapping[str, int], edges: Mapping[str, int]) -> None:
    """Set the counts of a target, `nodes` by label and `edges` by type."""
    for label, count in nodes.items():
        NODES.labels(target, label).set(count)
    for edge_type, count in edges.items():
        EDGES.labels(target, edge_type).set(count)


def observe_verify(target: str, *, differences: int, duration_s: float, ended_at_s: float) -> None:
    """Set the result of the last verify; `ended_at_s` is Unix time."""
    VERIFY_OK.labels(target).set(differences == 0)
    VERIFY_DIFFERENCES.labels(target).set(differences)
    VERIFY_DURATION.labels(target).set(duration_s)
    VERIFY_TIMESTAMP.labels(target).set(ended_at_s)


def error_reason(error: BaseException) -> str:
    """Class name in snake case, the value of the label `reason`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(error).__name__).lower()


def status_class(status: int) -> str:
    """The label `status` of an HTTP status: 404 → `4xx`."""
    return f"{status // 100}xx"


def render_metrics() -> tuple[bytes, str]:
    """What `/metrics` answers: body and content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


class MetricsServer:
    """The metrics of one process over HTTP, in a thread, until `stop`."""

    def __init__(self, host: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, host, REGISTRY)
        self.host = host
        self.port: int = self._server.server_port

    def stop(self) -> None:
        """Close the socket and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve_metrics(host: str = "127.0.0.1", port: int = 0) -> MetricsServer:
    """Serve the metrics of a worker; port 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    return MetricsServer(host, port)


# Logs

REDACTED = "[redacted]"
_MAX_DEPTH = 8
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|cookie"
    r"|(^|[_\-.])(auth|pwd)$|(api|access|private|signing|encryption)[_\-]?keys?|^x-api-key$|^keys?$",
    re.IGNORECASE,
)
# Names that hold one of the words above and are no secret; the page token is the caller's own.
_HARMLESS_NAMES = frozenset({"page_token", "tokens", "token_count"})
# Every repetition that may run over a long text is bounded or linear.
_SECRET_TEXT = (
    # redis://:pw@host, bolt://user:pw@host; a password may hold an unescaped slash or @, so up to
    # the last @ before a blank or a quote
    (re.compile(r"(?<=://)[^\s'\"<>]{0,512}@"), f"{REDACTED}@"),
    (
        re.compile(r"(authorization[\"']?\s*[=:]\s*[\"']?)[^\s\"'][^\r\n\"']*", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=:-]{6,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (
        re.compile(
            r"((?:password|passwd|passphrase|secret|token|api[_-]?key|\bauth|\bpwd)"
            r"[\"']?\s*[=:]\s*)(?!\[redacted\])(\"[^\"]*\"|'[^']*'|[^\s,;&})\]]+)",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
)
# Shorter values would cut ordinary words out of every line.
_SHORTEST_SECRET = 4


class Redactor:
    """A structlog processor: no password, key or credential leaves in a log line.

    Three nets: values under a name that sounds secret, text that looks like a credential (in URLs,
    headers, assignments), and the very secrets the settings hold, wherever they appear.

    Args:
        secrets: values that must not come out, in whatever text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        # The longest first, so that a secret which is part of another leaves no rest of it.
        ordered = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> dict[str, Any]:
        """The event with secrets replaced; values become JSON types."""
        return {self.text(str(name)): self._field(str(name), event[name], 0) for name in event}

    def text(self, text: str) -> str:
        """`text` with what looks like a secret replaced."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern, replacement in _SECRET_TEXT:
            text = pattern.sub(replacement, text)
        return text

    def _field(self, name: str, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool):
            return value
        if _SECRET_NAME.search(name) and name.lower() not in _HARMLESS_NAMES:
            return REDACTED
        return self._value(value, depth)

    def _value(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, bytes | bytearray):
            return self.text(value.decode("utf-8", "replace"))
        if isinstance(value, str):
            return self.text(value)
        if depth >= _MAX_DEPTH:
            return "…"
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): self._field(str(name), item, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            items = list(value)
            if len(items) == 2 and isinstance(items[0], str | bytes):  # a header
                name = items[0] if isinstance(items[0], str) else items[0].decode("latin-1")
                return [self.text(name), self._field(name, items[1], depth + 1)]
            return [self._value(item, depth + 1) for item in items]
        return self.text(str(value))


def known_secrets(settings: Settings) -> frozenset[str]:
    """Every secret value of the settings, and the passwords inside its URLs."""
    found = {key.key.get_secret_value() for key in settings.api_keys}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            found.add(value.get_secret_value())
        elif isinstance(value, str) and (match := re.search(r"://[^@\s]*?:(.+)@", value)):
            found.add(match.group(1))
    return frozenset(found)


def _render_json(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    line: dict[str, Any] = {
        name: event[name] for name in ("timestamp", "level", "event", "logger") if name in event
    }
    line.update((name, value) for name, value in event.items() if name not in line)
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate: text can hold both
        safe = {name: repr(value) for name, value in line.items()}
        return orjson.dumps(
            {name: text.encode("utf-8", "backslashreplace").decode() for name, text in safe.items()}
        ).decode()


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes lines to what is stderr when logging is configured.

    Faust replaces `sys.stderr` by something that logs, so it must not be looked up for each line.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Say that a line is lost; the default prints its arguments as they are, secrets too."""
        try:
            self.stream.write(f"a log line of {record.name} could not be written\n")
        except (OSError, ValueError):  # closed or full: there is nowhere left to say it
            return


_SHARED: tuple[Callable[..., Any], ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)


def logging_config(settings: Settings) -> dict[str, Any]:
    """The `logging.config.dictConfig` that renders every logger of the process in one way.

    For those who insist on configuring logging themselves: Faust (`logging_config=` of the app)
    and uvicorn (`log_config=`). Lines go to stderr, so that stdout stays the command's own.
    """
    console = settings.log_format == "console"
    render: Callable[..., Any] = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The default prints local variables, and with them whatever they hold.
            exception_formatter=structlog.dev.plain_traceback,
        )
        if console
        else _render_json
    )
    level = settings.log_level.upper()
    quiet = level if settings.log_level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "recollect": {
                "()": partial(
                    structlog.stdlib.ProcessorFormatter,
                    foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
                    processors=[
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        # Before redaction, for a traceback quotes what the error was given.
                        structlog.processors.format_exc_info,
                        Redactor(known_secrets(settings)),
                        render,
                    ],
                )
            }
        },
        "handlers": {
            "stderr": {"()": StderrHandler, "formatter": "recollect"},
        },
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {
            # These bring handlers or levels of their own; here they only pass records up.
            "faust": {"handlers": [], "propagate": True},
            "mode": {"handlers": [], "propagate": True},
            "uvicorn": {"handlers": [], "propagate": True},
            "uvicorn.error": {"handlers": [], "propagate": True},
            # The API logs its own requests, with route and request id and without the query.
            "uvicorn.access": {"handlers": [], "propagate": True, "level": quiet},
            "aiohttp.access": {"handlers": [], "propagate": True, "level": quiet},
            "redis": {"handlers": [], "propagate": True, "level": quiet},
            # Its retries at WARNING repeat what the runner reports once.
            "neo4j": {
                "handlers": [],
                "propagate": True,
                "level": level if settings.log_level == "debug" else "ERROR",
            },
        },
    }


def configure_logging(settings: Settings) -> None:
    """Render structlog and stdlib logging of this process as the settings say; may be repeated."""
    logging.config.dictConfig(logging_config(settings))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a second call, as in tests, must reach old loggers
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; the event is a constant text, the data are keywords."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


# `with log_context(request_id=…, stage=…, target=…, partition=…):` adds these to every line
# inside, in this thread or task and in those started by `asyncio.to_thread`.
log_context = structlog.contextvars.bound_contextvars
