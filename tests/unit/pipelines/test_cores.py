"""How many processes serve: as many as are wanted, or as many as there are cores to use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.local.processes import usable_cores
from pipelines.operations import api
from pipelines.work.settings import Settings

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("max 100000\n", CORES),
        ("100000 100000\n", 1),
        ("10000 100000\n", 1),
        ("110000 100000\n", min(2, CORES)),
        ("6400000 100000\n", min(64, CORES)),
        ("nonsense\n", CORES),
        (None, CORES),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, limit: str | None, cores: int) -> None:
    quota = tmp_path / "cpu.max"
    if limit is not None:
        quota.write_text(limit, encoding="ascii")
    assert usable_cores(quota) == cores


@pytest.mark.parametrize(
    ("wanted", "cores", "served"),
    [(None, 1, "main"), (None, 3, "processes 3"), (1, 3, "main"), (2, 1, "processes 2")],
)
def test_as_many_processes_serve_as_are_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: int | None, cores: int, served: str
) -> None:
    """One serves alone, without another that looks after it."""
    called: list[str] = []

    def serve_of(module: str, name: str) -> Callable[..., None]:
        assert name == "serve"
        return lambda _, *processes: called.append(" ".join(map(str, (module, *processes))))

    monkeypatch.setattr(api, "usable_cores", lambda: cores)
    monkeypatch.setattr(api, "_of_api", serve_of)
    api.serve_api(Settings(api_processes=wanted))
    assert called == [served]
