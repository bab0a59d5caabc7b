"""The ledger's side of verify in a second process: the same report, and no child left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

import pytest

from pipelines.graph.audit import GraphAudit
from pipelines.proof import ledger_sums
from pipelines.proof.ledger_sums import CHILD, Task
from pipelines.work.settings import Settings
from projections.identity import Position
from projections.schema import EVENT
from tests.factories import event, event_id, full_event, sessions
from tests.integration.stack import Stack, keys_of

pytestmark = pytest.mark.integration


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The children that were started; any ledger is large enough for one."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*arguments, **options))
        return started[-1]

    class Subprocess:
        PIPE = subprocess.PIPE
        Popen = staticmethod(start)

    monkeypatch.setattr(ledger_sums, "subprocess", Subprocess)
    monkeypatch.setattr(ledger_sums, "CHILD_FROM_ENTRIES", 1)
    return started


def projected(stack: Stack) -> Stack:
    """Events of every kind: causes, a forgotten one, a system event, entries that are none."""
    stack.append(*sessions(3, 5), full_event(90, session_id="session-9", at=90))
    stack.append(event(91, event_type="memory.accessed", session_id="session-0", at=91))
    stack.append_raw(0, b"no event")
    stack.fold()
    stack.append_raw(1, b"no event either, and no dead letter")
    stack.append(event(92, session_id="session-0", at=92), event(93, session_id="session-1", at=93))
    stack.fold()
    stack.cypher("MATCH (d:DeadLetter {partition: 1}) DETACH DELETE d")
    stack.cypher(
        f"MATCH (e:{EVENT.label} {{event_id: '{event_id(3)}'}}) SET e.global_position = '1-1'"
    )
    return stack


def report_of(stack: Stack) -> dict[str, Any]:
    return {**stack.verify().as_dict(), "duration_s": None}


def test_the_report_is_the_same_with_a_second_process(
    stack: Stack, children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    projected(stack)
    with monkeypatch.context() as patched:
        patched.delattr(ledger_sums, "add_up")  # this process cannot have done it
        with_child = report_of(stack)
    assert [child.returncode is not None for child in children] == [True]
    monkeypatch.setattr(ledger_sums, "CHILD_FROM_ENTRIES", 10**9)
    assert report_of(stack) == with_child
    assert len(children) == 1
    assert with_child["system_events"] == 1
    assert len(keys_of(stack.verify())) == 2


def test_a_child_that_crashes_is_replaced_by_this_process(
    stack: Stack, children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    projected(stack)
    good = report_of(stack)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert report_of(stack) == good
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    assert report_of(stack) == good
    assert [child.returncode for child in children[1:]] == [1]


def test_an_interrupt_ends_the_child(
    stack: Stack, children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    projected(stack)

    def interrupt(audit: GraphAudit) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GraphAudit, "stream_events", interrupt)
    with pytest.raises(KeyboardInterrupt):
        stack.verify()
    assert [child.returncode is not None for child in children] == [True]


def test_a_child_ends_when_its_parent_is_gone() -> None:
    """It waits for a server that never answers, when the parent's end of its input closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = Settings(
            redis_url=f"redis://127.0.0.1:{server.getsockname()[1]}", redis_timeout_s=60
        )
        task = Task({0: Position(0, 0)}, 1, {}, frozenset())
        child = subprocess.Popen(
            [sys.executable, *CHILD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            assert child.stdin is not None
            Connection(os.dup(child.stdin.fileno()), readable=False).send((settings, task))
            server.settimeout(60)
            connection, _ = server.accept()
            child.stdin.close()
            assert child.wait(30) == 1
            connection.close()
        finally:
            child.kill()
            child.wait()
