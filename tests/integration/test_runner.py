"""The runner on a real Neo4j: poison, other rules, lost answers, stopping."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.ledger.connect import Block
from pipelines.operations import dead_letters
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from pipelines.work.stages import PROJECTION
from projections.errors import (
    Fenced,
    FoldVersionMismatch,
    GraphUnavailable,
    RecollectError,
    Stopped,
)
from projections.events import Event, encode_event, event_partition
from projections.identity import Position
from projections.operations import Operations
from projections.structural import Facts
from tests.factories import block, event, event_id, session
from tests.fakes.stages import PROJECTING, QUICK
from tests.integration.stack import PARTITIONS, Stack

pytestmark = pytest.mark.integration


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"stage": "projection", "target": "blue", **labels}) or 0


def event_ids(stack: Stack) -> list[str]:
    found: list[str] = stack.cypher("MATCH (e:Event) RETURN e.event_id ORDER BY e.event_id")
    return found


def letters(stack: Stack) -> list[dict[str, Any]]:
    return dead_letters.list_(stack.services).dead_letters


def folding(fold: Callable[[Sequence[tuple[Position, Event]], Facts], Operations]) -> StageFold:
    """Stage 1 with another fold."""
    return replace(PROJECTING, fold=fold)


@contextmanager
def unique_tool_names(stack: Stack) -> Iterator[None]:
    """A cause of poison that is real, and goes away: the database refuses a second tool_name."""
    stack.cypher("CREATE CONSTRAINT poison FOR (e:Event) REQUIRE e.tool_name IS UNIQUE")
    try:
        yield
    finally:
        stack.cypher("DROP CONSTRAINT poison IF EXISTS")


# -- poison ----------------------------------------------------------------------------------------


def test_a_poison_entry_is_passed_and_its_neighbours_flow(stack: Stack) -> None:
    before = metric("recollect_dead_letters_total")
    events = [
        event(n, tool_name=f"tool-{n}" if n != 13 else "tool-7", parent=n - 1 if n > 1 else None)
        for n in range(1, 21)
    ]
    partition = event_partition(events[0], PARTITIONS)
    with unique_tool_names(stack):
        stack.append(*events)
        stack.fold()
        assert event_ids(stack) == [event_id(n) for n in range(1, 21)]  # 13 as a placeholder
        (letter,) = letters(stack)
        assert (letter["partition"], letter["seq"], letter["event_id"]) == (
            *(partition, 13, event_id(13)),
        )
        assert (letter["kind"], letter["attempts"], letter["tenant"]) == ("poison", 5, "default")
        assert "ConstraintValidationFailed" in letter["reason"]
        assert stack.runner.checkpoint(partition).seq == 20
        report = stack.verify()
        assert report.ok
        assert report.dead_letter_count == 1
        assert report.waiting_parents == [("default", event_id(13))]
        again = dead_letters.retry(stack.services)
        assert (again.done, len(again.failed)) == (0, 1)
        assert "ConstraintValidationFailed" in again.failed[0]["reason"]
        assert len(letters(stack)) == 1
    done = dead_letters.retry(stack.services)
    assert (done.done, done.failed) == (1, [])
    assert letters(stack) == []
    report = stack.verify()
    assert report.ok
    assert report.waiting_parents == []
    assert report.digest == digest_of_another(stack, events)
    if before:
        assert metric("recollect_dead_letters_total") == before + 1


def digest_of_another(stack: Stack, events: list[Event]) -> str:
    """The digest that the same events have without any trouble, in a ledger and graph of theirs."""
    stack.graph.clear()
    other = Stack(
        stack.services.settings.redis_url, stack.services.settings.neo4j_url, prefix="untroubled"
    )
    other.append(*events)
    other.fold()
    report = other.verify()
    assert report.ok
    other.close()
    return report.digest


@pytest.mark.parametrize("size", [1, 2, 500])
def test_several_poison_entries_in_one_block(stack: Stack, size: int) -> None:
    bad = {1, 2, 9, 16}

    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        if any(made.agent_id == "bad" for _, made in events):
            raise ValueError("a bad agent")
        return PROJECTING.fold(events, facts)

    stack.append(*(event(n, agent_id="bad" if n in bad else "good") for n in range(1, 17)))
    stack.fold(size, stack.new_runner(folding(fold)))
    assert [letter["seq"] for letter in letters(stack)] == sorted(bad)
    assert {letter["reason"] for letter in letters(stack)} == {"ValueError: a bad agent"}
    assert event_ids(stack) == [event_id(n) for n in range(1, 17) if n not in bad]
    assert stack.verify().ok


def test_an_entry_alone_has_five_attempts(stack: Stack) -> None:
    alone: list[int] = []

    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        if any(made.event_id == event_id(2) for _, made in events):
            if len(events) == 1:
                alone.append(1)
            raise AssertionError  # without a word
        return PROJECTING.fold(events, facts)

    stack.append(*(event(n) for n in range(1, 5)))
    stack.fold(runner=stack.new_runner(folding(fold)))
    assert len(alone) == 5
    assert letters(stack)[0]["reason"] == "AssertionError"


def test_an_entry_that_passes_at_the_fifth_attempt_is_no_dead_letter(stack: Stack) -> None:
    alone: list[int] = []

    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        alone.append(1)
        if len(alone) < 5:
            raise ValueError("not yet")
        return PROJECTING.fold(events, facts)

    stack.append(event(1))
    stack.fold(runner=stack.new_runner(folding(fold)))
    assert len(alone) == 5
    assert letters(stack) == []
    assert event_ids(stack) == [event_id(1)]


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b"{}",
        encode_event(event(5)).replace(b"2026-02-02", b"2026-02-99"),
        encode_event(event(5)).replace(b'"default"', b'{"a":1}'),
        encode_event(event(5)).replace(f'"{event_id(5)}"'.encode(), b"[1,[2]]"),
        encode_event(event(5, payload=1)).replace(b'"agent-1"', b'{"a":1}'),
    ],
    ids=["no json", "no fields", "no date", "a tenant that is a map", "an id of lists", "a map"],
)
def test_an_entry_that_is_no_event_is_passed(stack: Stack, data: bytes) -> None:
    stack.append(event(1))
    partition = event_partition(event(1), PARTITIONS)
    odd = stack.append_raw(partition, data)
    stack.fold()
    (letter,) = letters(stack)
    assert (letter["seq"], letter["position"]) == (odd.seq, str(odd.position))
    assert event_ids(stack) == [event_id(1)]
    report = stack.verify()
    assert report.ok, report.differences
    shown = dead_letters.show(stack.services, "projection", partition, odd.seq)
    assert len(shown.dead_letters) == 1


def test_a_system_event_that_nobody_owns_is_a_dead_letter_and_others_are_passed(
    stack: Stack,
) -> None:
    stack.append(
        event(1, event_type="memory.accessed"),
        event(2, event_type="memory.unheard_of"),
        event(3, event_type="memory.gap_recorded"),
        event(4),
    )
    stack.fold()
    (letter,) = letters(stack)
    assert letter["event_id"] == event_id(2)
    assert "memory.unheard_of" in letter["reason"]
    assert event_ids(stack) == [event_id(4)]
    report = stack.verify()
    assert (report.ok, report.events, report.system_events) == (True, 1, 2)


# -- what is retried -------------------------------------------------------------------------------


class Flaky(Neo4jGraph):
    """A graph whose next commits go wrong."""

    def __init__(self, graph: Neo4jGraph) -> None:
        super().__init__(graph.client.driver, graph.client.database)
        self.before: list[Exception] = []
        self.after: list[Exception] = []

    @contextmanager
    def transaction(self) -> Iterator[Neo4jTransaction]:
        with super().transaction() as transaction:
            yield transaction
            if self.before:
                raise self.before.pop()
        if self.after:
            raise self.after.pop()


@pytest.fixture
def flaky(stack: Stack) -> Flaky:
    return Flaky(stack.graph)


def test_what_may_pass_later_never_counts_as_an_attempt(stack: Stack, flaky: Flaky) -> None:
    flaky.before = [GraphUnavailable(reason="away") for _ in range(7)]
    runner = Runner(PROJECTING, flaky, target="blue", policy=replace(QUICK, max_attempts=2))
    end = runner.apply(block(event(1), event(2)))
    assert end.seq == 2
    assert not flaky.before
    assert stack.cypher("MATCH (d:DeadLetter) RETURN count(d)") == [0]
    assert event_ids(stack) == [event_id(1), event_id(2)]


def test_a_commit_whose_answer_was_lost_is_recognised(stack: Stack, flaky: Flaky) -> None:
    flaky.after = [GraphUnavailable(reason="the answer was lost")]
    runner = Runner(PROJECTING, flaky, target="blue")
    assert runner.apply(block(event(1), event(2))).seq == 2
    assert runner.apply(block(event(3), first_seq=3)).seq == 3
    assert len(event_ids(stack)) == 3


def test_a_rival_that_moved_the_checkpoint_fences(stack: Stack, flaky: Flaky) -> None:
    runner = Runner(PROJECTING, flaky, target="blue")
    assert runner.checkpoint(0).seq == 0
    stack.runner.apply(block(event(1), event(2)))
    with pytest.raises(Fenced):
        runner.apply(block(event(1)))
    assert runner.apply(block(event(3), first_seq=3)).seq == 3


def test_a_block_with_a_gap_or_of_before_the_checkpoint_is_refused(stack: Stack) -> None:
    stack.runner.apply(block(event(1), event(2)))
    first, second = block(event(3), event(4), first_seq=3).entries
    for entries in ((second,), (first, block(event(5), first_seq=5).entries[0]), (second, first)):
        with pytest.raises(Fenced):
            stack.runner.apply(Block(0, entries))
    with pytest.raises(Fenced):
        stack.runner.apply(block(event(1), event(2)))
    assert stack.runner.apply(Block(0, (first, second))).seq == 4


def test_a_stopping_worker_gives_up_and_loses_nothing(stack: Stack, flaky: Flaky) -> None:
    stop = threading.Event()
    flaky.before = [GraphUnavailable(reason="away") for _ in range(10_000)]
    runner = Runner(PROJECTING, flaky, target="blue", stop=stop)
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    with pytest.raises(Stopped):
        runner.apply(block(event(1)))
    timer.join()
    assert event_ids(stack) == []
    flaky.before = []
    assert Runner(PROJECTING, flaky, target="blue").apply(block(event(1))).seq == 1


def test_other_rules_refuse_to_write(stack: Stack) -> None:
    stack.append(*session("session-1", range(1, 4)))
    stack.fold()
    newer = stack.new_runner(replace(PROJECTING, stage=replace(PROJECTION, fold_version=2)))
    partition = event_partition(event(1), PARTITIONS)
    with pytest.raises(FoldVersionMismatch) as caught:
        newer.checkpoint(partition)
    assert (caught.value.found, caught.value.expected) == (1, 2)
    entries = next(stack.blocks(partition)).entries
    with pytest.raises(FoldVersionMismatch):
        newer.refold(partition, entries)
    with pytest.raises(FoldVersionMismatch):
        newer.apply(block(event(9), first_seq=4, partition=partition))


def test_rules_that_change_under_a_running_worker_are_noticed(stack: Stack) -> None:
    stack.runner.apply(block(event(1)))
    stack.cypher("MATCH (c:Checkpoint) SET c.fold_version = 2")
    with pytest.raises(FoldVersionMismatch):
        stack.runner.apply(block(event(2), first_seq=2))
    assert event_ids(stack) == [event_id(1)]


# -- once more -------------------------------------------------------------------------------------


def test_folding_again_changes_nothing(stack: Stack) -> None:
    stack.fill()
    before = stack.dump()
    for partition in range(PARTITIONS):
        for again in stack.blocks(partition, size=3):
            assert stack.runner.refold(partition, again.entries) == []
    assert stack.dump() == before


def test_folding_again_leaves_what_lies_beyond_the_checkpoint(stack: Stack) -> None:
    stack.append(*(event(n) for n in range(1, 5)))
    partition = event_partition(event(1), PARTITIONS)
    (whole,) = stack.blocks(partition)
    stack.runner.apply(Block(partition, whole.entries[:2]))
    assert stack.runner.refold(partition, whole.entries) == []
    assert event_ids(stack) == [event_id(1), event_id(2)]


def test_folding_again_tells_what_cannot_be_folded(stack: Stack) -> None:
    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        if any(made.event_id in (event_id(2), event_id(7)) for _, made in events):
            raise ValueError("never")
        return PROJECTING.fold(events, facts)

    stack.append(*(event(n) for n in range(1, 9)))
    stack.fold()
    partition = event_partition(event(1), PARTITIONS)
    (whole,) = stack.blocks(partition)
    failed = stack.new_runner(folding(fold)).refold(partition, whole.entries)
    assert [entry.seq for entry, _ in failed] == [2, 7]
    assert stack.verify().ok


def test_errors_know_whether_to_retry() -> None:
    assert GraphUnavailable.retryable
    assert not Stopped.retryable
    assert not RecollectError.retryable
    assert json.dumps(str(Stopped()))
