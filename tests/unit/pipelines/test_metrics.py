"""Metrics are what the table says."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

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
