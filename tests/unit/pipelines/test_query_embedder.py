"""Queries are embedded by a child process that may be away, slow, dead or lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipelines.models.query_embedder import QueryEmbedder
from pipelines.work.settings import Settings

PATIENT_MS = 60_000

# A child that answers each text with its length, slowly when asked to.
ECHO = """
import sys, time, struct
out, inp = sys.stdout.buffer, sys.stdin.buffer
def write(data):
    out.write(len(data).to_bytes(4, "little") + data); out.flush()
write(b'{"ready": true}')
while head := inp.read(4):
    frame = inp.read(int.from_bytes(head, "little"))
    text = frame[4:].decode()
    if text.startswith("die"):
        sys.exit(1)
    if text.startswith("slow"):
        time.sleep(1.0)
    write(frame[:4] + (b"" if text == "nothing" else struct.pack("<2f", len(text), 1.0)))
"""
BROKEN = "import sys; sys.exit(3)"
UNABLE = """
import sys
data = b'{"error": "no model"}'
sys.stdout.buffer.write(len(data).to_bytes(4, "little") + data)
"""


@contextmanager
def embedder(program: str, **options: int) -> Iterator[QueryEmbedder]:
    command: Sequence[str] = (sys.executable, "-c", program)
    made = QueryEmbedder(Settings(**options), program=command)  # type: ignore[arg-type]  # settings of ours
    try:
        yield made
    finally:
        made.close()


def test_a_text_has_a_vector_and_the_last_ones_are_remembered() -> None:
    with embedder(ECHO, query_embedding_cache=2) as made:
        assert made.embed("abc", timeout_ms=PATIENT_MS) == [3.0, 1.0]
        pid = made.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            assert made.embed("abc", timeout_ms=1) == [3.0, 1.0]
        finally:
            os.kill(pid, signal.SIGCONT)


def test_what_comes_too_late_is_not_taken_for_the_next_answer() -> None:
    with embedder(ECHO) as made:
        assert made.embed("a", timeout_ms=PATIENT_MS) is not None
        assert made.embed("slow", timeout_ms=50) is None
        assert made.embed("four", timeout_ms=PATIENT_MS) == [4.0, 1.0]
        assert made.embed("nothing", timeout_ms=PATIENT_MS) is None
        assert made.embed("seven..", timeout_ms=PATIENT_MS) == [7.0, 1.0]


def test_a_child_that_dies_is_started_again() -> None:
    with embedder(ECHO) as made:
        assert made.embed("die", timeout_ms=PATIENT_MS) is None
        assert made.embed("back", timeout_ms=PATIENT_MS) == [4.0, 1.0]
        first = made.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        made.embed("gone", timeout_ms=PATIENT_MS)
        assert made.embed("again", timeout_ms=PATIENT_MS) == [5.0, 1.0]
        assert made.pid != first


def test_without_a_model_nobody_waits_and_it_is_not_tried_again_at_once() -> None:
    for program in (BROKEN, UNABLE):
        with embedder(program) as made:
            made.warm_up()
            begun = time.monotonic()
            while made.embed("x", timeout_ms=200) is None and made.pid is not None:
                assert time.monotonic() < begun + 60
            assert made.embed("x", timeout_ms=1) is None
            assert made.pid is None


def test_any_text_can_be_asked_for() -> None:
    with embedder(ECHO) as made:
        for text in ("", "\ud800", "\x00", "x" * 100_000):
            assert made.embed(text, timeout_ms=PATIENT_MS) is not None


def test_the_process_ends_with_its_owner() -> None:
    with embedder(ECHO) as made:
        assert made.embed("x", timeout_ms=PATIENT_MS) is not None
        pid = made.pid
    assert made.pid is None
    assert made.embed("y", timeout_ms=100) is None
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return
    raise AssertionError("the process is still there")
