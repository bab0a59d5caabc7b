"""The fast look: sums that agree, the ledger's in a second process, and no child left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import pytest

from pipelines.graph.reads.chains import ChainEvent, ChainReader
from pipelines.local import python_process
from pipelines.proof import fast, ledger_sums
from pipelines.proof import verify as verifying
from pipelines.proof.ledger_sums import Task
from pipelines.proof.verify import verify_sample
from pipelines.work.settings import Settings
from projections.identity import Position
from projections.schema import CAUSED_BY, EVENT, FOLLOWS
from tests.factories import event, event_id, full_event, sessions
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The children that were started; any ledger is large enough for one."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*arguments, **options))
        return started[-1]

    class Subprocess:
        PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired
        Popen = staticmethod(start)

    monkeypatch.setattr(python_process, "subprocess", Subprocess)
    monkeypatch.setattr(ledger_sums, "CHILD_FROM_ENTRIES", 1)
    return started


def projected(stack: Stack) -> Stack:
    """Events of every kind: causes, late ones, a system event, an entry that is none."""
    stack.append(*sessions(3, 5), full_event(90, session_id="session-9", at=90))
    stack.append(event(91, event_type="memory.accessed", session_id="session-0", at=91))
    stack.append_raw(0, b"no event")
    stack.fold()
    stack.append(event(92, session_id="session-0", at=2), event(93, session_id="session-1", at=93))
    stack.fold()
    return stack


def report_of(stack: Stack) -> dict[str, Any]:
    return {**stack.verify(fast=True).as_dict(), "duration_s": None}


def test_it_says_what_the_proof_says_of_the_first_stage(stack: Stack) -> None:
    fast, whole = projected(stack).verify(fast=True), stack.verify()
    assert fast.notes
    assert (fast.ok, fast.digest, fast.stages) == (whole.ok, whole.digest, whole.stages)
    for name in ("events", "system_events", "dead_letter_count"):
        assert getattr(fast, name) == getattr(whole, name)
    places = {EVENT.label, FOLLOWS.type, CAUSED_BY.type}
    counted = {name: whole.compared[name] for name in places}
    placeholders = whole.waiting_parent_count
    assert fast.compared == {**counted, EVENT.label: counted[EVENT.label] - placeholders}


@pytest.mark.parametrize(
    "change",
    [
        f"MATCH (e:Event {{event_id: '{event_id(3)}'}}) SET e.global_position = '1-1'",
        f"MATCH (e:Event {{event_id: '{event_id(3)}'}}) SET e.agent_id = 'x'",
        f"MATCH (e:Event {{event_id: '{event_id(3)}'}}) DETACH DELETE e",
        "MATCH ()-[r:FOLLOWS]->() WITH r LIMIT 1 SET r.delta_ms = 7",
        "MATCH ()-[r:FOLLOWS]->() WITH r LIMIT 1 DELETE r",
        "MATCH ()-[r:CAUSED_BY]->() WITH r LIMIT 1 DELETE r",
        "MATCH (d:DeadLetter) DELETE d",
    ],
)
def test_what_its_sums_doubt_is_proved(stack: Stack, change: str) -> None:
    projected(stack).cypher(change)
    report = stack.verify(fast=True)
    assert report.difference_count > 0
    assert not report.notes
    assert report.differences == stack.verify(stage="projection").differences
    assert stack.verify(fast=True, repair=True).ok


def test_a_sample_reads_the_sessions_that_are_drawn_alone(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.append(*sessions(60, 3))
    stack.fold()
    read: list[tuple[str, str]] = []
    events_of = ChainReader.events_of

    def watched(reader: ChainReader, drawn: Sequence[tuple[str, str]]) -> Iterator[ChainEvent]:
        read.extend(drawn)
        return events_of(reader, drawn)

    monkeypatch.setattr(ChainReader, "events_of", watched)
    report = verify_sample(stack.services, 0.2)
    assert report.ok
    assert 0 < len(read) < 40
    assert report.compared[EVENT.label] == report.events == 3 * len(read)
    assert report.compared[FOLLOWS.type] == 2 * len(read)
    assert report.stages["projection"].entries == 180
    assert stack.services.reports.all() == []
    sizes = {verify_sample(stack.services, 0.2).events for _ in range(20)}
    assert len(sizes) > 1, "the same sessions each time"


@pytest.mark.parametrize(
    "change",
    [
        "MATCH (e:Event {session_id: 'session-1'}) SET e.global_position = '1-1'",
        "MATCH (e:Event {session_id: 'session-1'}) SET e.agent_id = 'x'",
        "MATCH (e:Event {session_id: 'session-1'}) DETACH DELETE e",
        "MATCH (:Event {session_id: 'session-1'})-[r:FOLLOWS]->() DELETE r",
        "MATCH (e:Event {session_id: 'session-1'}) WITH e LIMIT 1 "
        "MERGE (e)-[:CAUSED_BY {weight: 1.0}]->(e)",
    ],
)
def test_a_sample_names_the_sessions_that_differ(stack: Stack, change: str) -> None:
    projected(stack).cypher(change)
    report = verify_sample(stack.services, 1.0)
    assert [one.key for one in report.differences] == [("default", "session-1")]
    assert not report.ok
    assert not stack.verify(session="session-1").ok
    assert stack.verify(session="session-2").ok


def test_a_sample_of_a_graph_that_goes_on_says_nothing_wrong(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    projected(stack)
    add_up = ledger_sums.LedgerSide.sums
    looks = 0

    def overtaken(side: Any) -> Any:
        nonlocal looks
        looks += 1
        summed = add_up(side)
        if looks == 1:  # it is taken out of the graph between the two sides, and put back
            stack.cypher("MATCH (e:Event {session_id: 'session-1'}) SET e.agent_id = 'x'")
        return summed

    def after(*arguments: Any) -> Any:
        found = look(*arguments)
        stack.verify(repair=True)
        return found

    look = fast.look
    monkeypatch.setattr(ledger_sums.LedgerSide, "sums", overtaken)
    monkeypatch.setattr(verifying, "look", after)
    assert verify_sample(stack.services, 1.0).ok
    assert looks == 2


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

    def interrupt(reader: ChainReader) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ChainReader, "events", interrupt)
    with pytest.raises(KeyboardInterrupt):
        stack.verify(fast=True)
    assert [child.returncode is not None for child in children] == [True]


def test_a_child_ends_when_its_parent_is_gone() -> None:
    """It waits for a server that never answers, when the parent's end of its input closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = Settings(
            redis_url=f"redis://127.0.0.1:{server.getsockname()[1]}", redis_timeout_s=60
        )
        task = Task({0: Position(0, 0)}, 1, {}, frozenset())
        child = subprocess.Popen(
            python_process.task_command(ledger_sums.__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
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
