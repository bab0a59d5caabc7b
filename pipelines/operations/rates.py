"""What happens a second: two looks at `status` and at the API's metrics, and the time between.

Nothing is counted here that is not counted already: lag, dead letters and memory are those of
`recollect status`, requests those that the API shows to Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from pipelines.operations.api import SUBGRAPH, RunningApi
from pipelines.operations.status import status
from pipelines.work.services import Services
from projections.errors import OperationFailed

Labels = frozenset[tuple[str, str]]
Samples = Mapping[tuple[str, Labels], float]

REQUESTS: Final = "recollect_api_request_duration_seconds"
QUERIES: Final = "recollect_queries_total"
API_MEMORY: Final = "process_resident_memory_bytes"
_QUANTILES: Final = (0.5, 0.95, 0.99)


class Look(NamedTuple):
    """What was so at a moment.

    Attributes:
        at_s: by a clock that only goes forward.
        status: the document of `recollect status`.
        samples: of the API's metrics, by name and labels; None: no API was asked, or none answered.
        missing: why there are none.
    """

    at_s: float
    status: dict[str, Any]
    samples: Samples | None
    missing: str = ""


def look(services: Services, api: RunningApi | None) -> Look:
    """Look once.

    Raises:
        LedgerUnavailable: without the ledger there is nothing to say.
    """
    samples, missing = None, "no API runs here: --api URL names one"
    if api is not None:
        try:
            samples, missing = samples_of(api.metrics()), ""
        except OperationFailed as error:
            missing = str(error)
    return Look(time.monotonic(), status(services), samples, missing)


def samples_of(text: str) -> Samples:
    """What a page of metrics says."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rates(before: Look, after: Look) -> dict[str, Any]:
    """What came to pass between two looks, a second; what is so at the second one.

    A figure is None where nobody can say it: no API was asked, or no stage has begun.
    """
    passed_s = max(after.at_s - before.at_s, 1e-6)
    now, then = after.status, before.status
    appended = now["ledger"]["entries"] - then["ledger"]["entries"]
    columns = now["columns"] or {}
    return {
        "ok": now["ok"],
        "interval_s": round(passed_s, 3),
        "target": now["active"],
        "appended_per_s": appended / passed_s,
        "stages": {
            name: _stage(stage, then["stages"].get(name), passed_s)
            for name, stage in now["stages"].items()
        },
        "api": _api(before.samples, after.samples, passed_s),
        "api_missing": after.missing or None,
        "memory": {
            "redis_bytes": now["ledger"]["memory"]["used_bytes"],
            "redis_max_bytes": now["ledger"]["memory"]["max_bytes"],
            "columns_bytes": columns.get("memory_bytes"),
            "api_bytes": _sum(after.samples, API_MEMORY),
        },
        "halted_partitions": now["ledger"]["halted"],
        "errors": now["errors"],
    }


def _stage(now: Mapping[str, Any], then: Mapping[str, Any] | None, passed_s: float) -> Any:
    folded = None
    if now["started"] and then is not None:
        seqs = {row["partition"]: row["seq"] for row in then["partitions"]}
        # A rebuild in place begins again: what was folded before is not taken back.
        folded = sum(
            max(row["seq"] - seqs.get(row["partition"], 0), 0) for row in now["partitions"]
        )
    return {
        "started": now["started"],
        "lag_entries": now["lag_entries"],
        "lag_seconds": now["lag_seconds"],
        "dead_letters": now["dead_letters"],
        "held": now["held"] is not None,
        "folded_per_s": None if folded is None else folded / passed_s,
    }


def _api(before: Samples | None, after: Samples | None, passed_s: float) -> dict[str, Any] | None:
    if before is None or after is None:
        return None

    def counted(name: str, chosen: Callable[[dict[str, str]], bool]) -> float:
        return sum(_growth(before, after, name, chosen).values()) / passed_s

    return {
        "requests_per_s": counted(f"{REQUESTS}_count", lambda labels: True),
        "errors_per_s": counted(f"{REQUESTS}_count", lambda labels: labels["status"] == "5xx"),
        "queries_per_s": counted(QUERIES, lambda labels: True),
        "partial_per_s": counted(QUERIES, lambda labels: labels["outcome"] == "partial"),
        "query_ms": _latency(before, after),
        "connections": _sum(after, "recollect_api_connections"),
    }


def _latency(before: Samples, after: Samples) -> dict[str, float | None]:
    """Of questions between the looks, in ms, as exact as the buckets are; None: nobody asked."""
    grown = _growth(before, after, f"{REQUESTS}_bucket", lambda labels: labels["route"] == SUBGRAPH)
    buckets: dict[float, float] = {}
    for labels, number in grown.items():
        le = float(dict(labels)["le"])
        buckets[le] = buckets.get(le, 0.0) + number
    return {f"p{share * 100:g}": _quantile(buckets, share) for share in _QUANTILES}


def _quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Where that share of a cumulative histogram ends, in ms: between two bounds by a line."""
    whole = max(buckets.values(), default=0.0)
    if not whole:
        return None
    low = below = 0.0
    for bound in sorted(buckets):
        if buckets[bound] >= share * whole:
            if bound == float("inf"):
                return low * 1000
            inside = (share * whole - below) / (buckets[bound] - below)
            return (low + (bound - low) * inside) * 1000
        low, below = bound, buckets[bound]
    return low * 1000


def _growth(
    before: Samples, after: Samples, name: str, chosen: Callable[[dict[str, str]], bool]
) -> dict[Labels, float]:
    """How much counters have grown, by their labels; one that began again counts from 0."""
    grown = {}
    for (series, labels), value in after.items():
        if series == name and chosen(dict(labels)):
            was = before.get((series, labels), 0.0)
            grown[labels] = value - was if value >= was else value
    return grown


def _sum(samples: Samples | None, name: str) -> float | None:
    """Over all labels; None: nobody says it."""
    values = [value for (own, _), value in (samples or {}).items() if own == name]
    return sum(values) if values else None
