"""Queries are embedded by a process that may be away, slow, dead or lost."""

from __future__ import annotations

import os
import signal
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from pipelines.local.processes import is_alive, wait_until
from pipelines.models import model_client
from pipelines.models.model_client import ModelHost, QueryEmbedder
from pipelines.work.settings import Settings
from tests.fakes.model_process import fake_program, vector_of

PATIENT_MS = 120_000
BROKEN = [sys.executable, "-c", "import sys; sys.exit(3)"]


@contextmanager
def embedder(
    folder: Path, program: Sequence[str] | None = None, *, cache: int = 2, linger_s: float = 0.2
) -> Iterator[QueryEmbedder]:
    settings = Settings(query_embedding_cache=cache, model_process_dir=folder, data_dir=folder)
    host = ModelHost(settings, program=program or fake_program(folder), linger_s=linger_s)
    made = QueryEmbedder(settings, host=host)
    try:
        yield made
    finally:
        made.close()
    started = folder / "started"
    for pid in started.read_text().split() if started.exists() else ():
        assert wait_until(partial(_is_gone, int(pid)), PATIENT_MS / 1000)


def _is_gone(pid: int) -> bool:
    return not is_alive(pid)


def expected(text: str) -> list[float]:
    return array("f", vector_of(text)).tolist()


def test_a_text_has_a_vector_and_the_last_ones_are_remembered(folder: Path) -> None:
    with embedder(folder) as made:
        assert made.embed("abc", timeout_ms=PATIENT_MS) == expected("abc")
        pid = made.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            assert made.embed("abc", timeout_ms=1) == expected("abc")
        finally:
            os.kill(pid, signal.SIGCONT)


def test_what_comes_too_late_is_not_taken_for_the_next_answer(folder: Path) -> None:
    with embedder(folder, linger_s=5.0) as made:
        assert made.embed("a", timeout_ms=PATIENT_MS) is not None
        pid = made.pid
        assert made.embed("wait gate", timeout_ms=50) is None
        (folder / "gate").touch()
        assert made.embed("four", timeout_ms=PATIENT_MS) == expected("four")
        assert made.embed("fail", timeout_ms=PATIENT_MS) is None
        assert made.embed("seven..", timeout_ms=PATIENT_MS) == expected("seven..")
        assert made.pid == pid


def test_a_process_that_dies_is_started_again_and_asked_again(folder: Path) -> None:
    with embedder(folder) as made:
        assert made.embed("kill once", timeout_ms=PATIENT_MS) == expected("kill once")
        pid = made.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert made.embed("again", timeout_ms=PATIENT_MS) == expected("again")
        assert made.pid != pid
        assert made.embed("kill always", timeout_ms=PATIENT_MS) is None
        assert made.embed("back", timeout_ms=PATIENT_MS) == expected("back")


def test_a_process_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client, "HANGS_S", 0.0)
    with embedder(folder) as made:
        assert made.embed("a", timeout_ms=PATIENT_MS) is not None
        pid = made.pid
        assert pid is not None
        assert made.embed("wait for ever", timeout_ms=50) is None
        assert made.embed("c", timeout_ms=PATIENT_MS) == expected("c")
        assert made.pid != pid


@pytest.mark.parametrize("missing", [True, False], ids=["no model", "a process that ends"])
def test_without_a_model_nobody_waits_and_it_is_not_tried_again_at_once(
    folder: Path, missing: bool
) -> None:
    if missing:
        (folder / "missing").touch()
    with embedder(folder, None if missing else BROKEN) as made:
        # As soon as it is known, whatever the time that a query has.
        assert made.embed("x", timeout_ms=PATIENT_MS) is None
        (folder / "missing").unlink(missing_ok=True)
        assert made.embed("x", timeout_ms=PATIENT_MS) is None
        assert made.pid is None


def test_any_text_can_be_asked_for(folder: Path) -> None:
    with embedder(folder) as made:
        for text in ("", "\ud800", "\x00", "x" * 100_000):
            assert made.embed(text, timeout_ms=PATIENT_MS) is not None


def test_nothing_is_asked_after_the_end(folder: Path) -> None:
    with embedder(folder) as made:
        assert made.embed("x", timeout_ms=PATIENT_MS) is not None
    assert made.pid is None
    assert made.embed("y", timeout_ms=100) is None
    assert wait_until(lambda: not list(folder.glob("*.sock")), PATIENT_MS / 1000)
