"""Metrics are what the table says."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines.local.python_process import SHARED_METRICS, python_environment
from pipelines.observe import metrics
from projections.errors import GraphUnavailable


def samples() -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    body, _ = metrics.render_metrics()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_every_row_of_the_table_is_exposed_with_its_type_and_help() -> None:
    families = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            family.documentation,
        )
        for family in text_string_to_metric_families(metrics.render_metrics()[0].decode())
        if family.name.startswith(metrics.PREFIX)
    }
    rows = {row.name: (row.kind, row.help) for row in metrics.METRICS.values()}
    assert families == rows


def test_names_follow_the_conventions_of_prometheus() -> None:
    for row in metrics.METRICS.values():
        assert row.name.startswith("recollect_")
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
        assert row.kind != "histogram" or row.name.endswith(("_seconds", "_score")), row.name
        assert row.help.endswith("."), row.name


def test_no_label_has_unbounded_values() -> None:
    labels = {label for row in metrics.METRICS.values() for label in row.labels}
    allowed = "stage target partition kind reason phase label type outcome route method status"
    allowed += " cache model tier channel signal step judgement question"
    assert labels == {*allowed.split(), "version", "python"}


def test_every_ingest_outcome_exists_before_the_first_event() -> None:
    outcomes = {dict(labels)["outcome"] for labels in samples()["recollect_ingest_events_total"]}
    assert outcomes == {
        "accepted",
        "duplicate",
        "conflict",
        "invalid",
        "overloaded",
        "unavailable",
    }


def test_a_prepared_stage_has_counters_at_zero() -> None:
    metrics.prepare_stage("projection", "prepared")
    labels = (("stage", "projection"), ("target", "prepared"))
    now = samples()
    assert [
        now[f"recollect_{name}"][labels]
        for name in ("blocks_applied_total", "entries_applied_total", "dead_letters_made_total")
    ] == [0, 0, 0]


def test_lag_is_the_sum_of_entries_and_the_greatest_age() -> None:
    metrics.observe_lag("projection", "lagging", {0: 3, 1: 4}, {0: 1.5, 1: 0.5})
    labels = (("stage", "projection"), ("target", "lagging"))
    now = samples()
    assert now["recollect_lag_entries"][labels] == 7
    assert now["recollect_lag_seconds"][labels] == 1.5
    assert now["recollect_partition_lag_entries"][(("partition", "1"), *labels)] == 4


def test_a_partition_that_is_gone_reports_no_lag() -> None:
    metrics.observe_lag("projection", "shrunk", {0: 3, 1: 4}, {0: 1, 1: 1})
    metrics.observe_lag("projection", "shrunk", {0: 0}, {0: 0})
    partitions = [
        dict(labels)["partition"]
        for labels in samples()["recollect_partition_lag_entries"]
        if ("target", "shrunk") in labels
    ]
    assert partitions == ["0"]


def test_verify_with_a_difference_is_not_ok() -> None:
    metrics.observe_verify("enrichment", "seen", differences=2, duration_s=1.5, ended_at_s=1000)
    metrics.observe_verify("projection", "seen", differences=0, duration_s=1.5, ended_at_s=1000)
    labels = (("stage", "enrichment"), ("target", "seen"))
    now = samples()
    assert (now["recollect_verify_ok"][labels], now["recollect_verify_differences"][labels]) == (
        0,
        2,
    )


def test_graph_counts_are_by_label_and_type() -> None:
    metrics.observe_graph("counted", {"Event": 5}, {"FOLLOWS": 4})
    now = samples()
    assert now["recollect_nodes"][(("label", "Event"), ("target", "counted"))] == 5
    assert now["recollect_edges"][(("target", "counted"), ("type", "FOLLOWS"))] == 4


def test_label_values_of_errors_and_statuses() -> None:
    assert metrics.error_reason(GraphUnavailable(reason="x")) == "graph_unavailable"
    assert [metrics.status_class(status) for status in (200, 404, 503)] == ["2xx", "4xx", "5xx"]


def test_a_worker_serves_its_metrics_on_loopback_until_stopped() -> None:
    with metrics.MetricsServer() as server:
        assert server.host == "127.0.0.1"
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert b"recollect_build_info{" in answer.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


_COUNT = """
import os, sys
from pathlib import Path
from pipelines.observe import shared_metrics
shared_metrics.join(Path(sys.argv[1]), int(sys.argv[2]))
from pipelines.observe import metrics
amount = int(sys.argv[3])
metrics.INGEST_BYTES.inc(amount)
metrics.API_CONNECTIONS.set(amount)
metrics.LEDGER_EPOCH.set(amount)
metrics.API_DURATION.labels("/r", "GET", "2xx").observe(0.003)
if sys.argv[4:] == ["die"]:
    os.kill(os.getpid(), 9)
print(metrics.render_metrics()[0].decode())
"""


def _count(folder: Path, number: int, amount: int, *how: str) -> dict[str, float]:
    """Count in a process; what it shows, by name and labels."""
    command = [sys.executable, "-c", _COUNT, str(folder), str(number), str(amount), *how]
    done = subprocess.run(command, capture_output=True, text=True, check=not how)
    families = text_string_to_metric_families(done.stdout)
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for family in families
        for sample in family.samples
    }


def test_what_processes_count_is_summed_and_outlives_each(tmp_path: Path) -> None:
    _count(tmp_path, 0, 5, "die")
    seen = _count(tmp_path, 1, 7)
    assert seen["recollect_ingest_bytes_total"] == 12
    labels = [("method", "GET"), ("route", "/r"), ("status", "2xx")]
    assert seen[f"recollect_api_request_duration_seconds_count{labels}"] == 2
    bucket = sorted([*labels, ("le", "0.005")])
    assert seen[f"recollect_api_request_duration_seconds_bucket{bucket}"] == 2
    assert seen["recollect_api_connections"] == 12
    assert seen["recollect_ledger_epoch"] == 7, "what was seen last"

    files = set(tmp_path.glob("*.db"))
    again = _count(tmp_path, 0, 1)
    assert set(tmp_path.glob("*.db")) == files, "who takes a place makes no more files"
    assert again["recollect_ingest_bytes_total"] == 13
    assert again["recollect_api_connections"] == 8, "the connections of who ended are closed"
    assert again["recollect_ledger_epoch"] == 1
    assert again["process_resident_memory_bytes[('process', '0')]"] > 2**20
    assert not any("process_" in name and "'1'" in name for name in again), "that has ended"


def test_metrics_that_were_declared_are_not_shared_half(tmp_path: Path) -> None:
    code = (
        "from pipelines.observe import metrics, shared_metrics as s; s.join(__import__('pathlib')"
    )
    command = [sys.executable, "-c", f"{code}.Path('{tmp_path}'), 0)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "declared before" in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_child_counts_in_its_parents_name() -> None:
    os.environ[SHARED_METRICS] = "/nowhere"
    try:
        assert SHARED_METRICS not in python_environment()
    finally:
        del os.environ[SHARED_METRICS]
