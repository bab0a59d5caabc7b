"""Metrics that processes count together, each of them a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pipelines.local.python_process import SHARED_METRICS, python_environment

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
