"""The runner on a store with faults on demand: poison, other rules, lost answers, stopping."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pipelines.ledger.entries import Block
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
from projections.schema import DEAD_LETTER
from projections.structural import Facts
from tests.factories import block, event, event_id, session
from tests.fakes.stages import PROJECTING, QUICK
from tests.graph_dump import Dump
from tests.memory_stack import PARTITIONS, MemoryStack


@pytest.fixture
def stack() -> MemoryStack:
    return MemoryStack()


def raising(errors: list[Exception]) -> Callable[[], None]:
    """A fault for each commit that comes, as long as there are some."""

    def fail() -> None:
        if errors:
            raise errors.pop()

    return fail


def assert_as_if_only(stack: MemoryStack, *events: Event) -> None:
    """The graph is that of these events, dead letters and positions aside."""
    other = MemoryStack()
    other.append(*events)
    other.fold()
    assert bare(stack) == bare(other)


def bare(stack: MemoryStack) -> Dump:
    found = stack.dump()
    nodes = {
        place: (visible, {k: v for k, v in values.items() if k != "global_position"})
        for place, (visible, values) in found.nodes.items()
        if place[0] != DEAD_LETTER.label
    }
    return Dump(nodes, found.edges)


def folding(fold: Callable[[Sequence[tuple[Position, Event]], Facts], Operations]) -> StageFold:
    """Stage 1 with another fold."""
    return replace(PROJECTING, fold=fold)


@pytest.mark.parametrize("size", [1, 2, 500])
def test_several_poison_entries_in_one_block(stack: MemoryStack, size: int) -> None:
    bad = {1, 2, 9, 16}

    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        if any(made.agent_id == "bad" for _, made in events):
            raise ValueError("a bad agent")
        return PROJECTING.fold(events, facts)

    stack.append(*(event(n, agent_id="bad" if n in bad else "good") for n in range(1, 17)))
    stack.fold(size, stack.new_runner(folding(fold)))
    assert [letter["seq"] for letter in stack.letters()] == sorted(bad)
    assert {letter["reason"] for letter in stack.letters()} == {"ValueError: a bad agent"}
    assert stack.event_ids() == [event_id(n) for n in range(1, 17) if n not in bad]
    assert_as_if_only(stack, *(event(n, agent_id="good") for n in range(1, 17) if n not in bad))


def test_an_entry_alone_has_five_attempts(stack: MemoryStack) -> None:
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
    assert stack.letters()[0]["reason"] == "AssertionError"


def test_an_entry_that_passes_at_the_fifth_attempt_is_no_dead_letter(stack: MemoryStack) -> None:
    alone: list[int] = []

    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        alone.append(1)
        if len(alone) < 5:
            raise ValueError("not yet")
        return PROJECTING.fold(events, facts)

    stack.append(event(1))
    stack.fold(runner=stack.new_runner(folding(fold)))
    assert len(alone) == 5
    assert stack.letters() == []
    assert stack.event_ids() == [event_id(1)]


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
def test_an_entry_that_is_no_event_is_passed(stack: MemoryStack, data: bytes) -> None:
    stack.append(event(1))
    partition = event_partition(event(1), PARTITIONS)
    odd = stack.append_raw(partition, data)
    stack.fold()
    (letter,) = stack.letters()
    assert (letter["seq"], letter["position"]) == (odd.seq, str(odd.position))
    assert stack.event_ids() == [event_id(1)]
    assert_as_if_only(stack, event(1))
    shown = dead_letters.show(stack.services, "projection", partition, odd.seq)
    assert len(shown.dead_letters) == 1


def test_a_system_event_that_nobody_owns_is_a_dead_letter_and_others_are_passed(
    stack: MemoryStack,
) -> None:
    stack.append(
        event(1, event_type="memory.accessed"),
        event(2, event_type="memory.unheard_of"),
        event(3, event_type="memory.gap_recorded"),
        event(4),
    )
    stack.fold()
    (letter,) = stack.letters()
    assert letter["event_id"] == event_id(2)
    assert "memory.unheard_of" in letter["reason"]
    assert stack.event_ids() == [event_id(4)]
    assert_as_if_only(stack, event(4))


# -- what is retried -------------------------------------------------------------------------------


def test_what_may_pass_later_never_counts_as_an_attempt(stack: MemoryStack) -> None:
    faults: list[Exception] = [GraphUnavailable(reason="away") for _ in range(7)]
    stack.graph.before_commit = raising(faults)
    runner = Runner(PROJECTING, stack.graph, target="blue", policy=replace(QUICK, max_attempts=2))
    end = runner.apply(block(event(1), event(2)))
    assert end.seq == 2
    assert faults == []
    assert stack.letters() == []
    assert stack.event_ids() == [event_id(1), event_id(2)]


def test_a_commit_whose_answer_was_lost_is_recognised(stack: MemoryStack) -> None:
    stack.graph.after_commit = raising([GraphUnavailable(reason="the answer was lost")])
    runner = Runner(PROJECTING, stack.graph, target="blue")
    assert runner.apply(block(event(1), event(2))).seq == 2
    assert runner.apply(block(event(3), first_seq=3)).seq == 3
    assert len(stack.event_ids()) == 3


def test_a_rival_that_moved_the_checkpoint_fences(stack: MemoryStack) -> None:
    runner = Runner(PROJECTING, stack.graph, target="blue")
    assert runner.checkpoint(0).seq == 0
    stack.runner.apply(block(event(1), event(2)))
    with pytest.raises(Fenced):
        runner.apply(block(event(1)))
    assert runner.apply(block(event(3), first_seq=3)).seq == 3


def test_a_block_with_a_gap_or_of_before_the_checkpoint_is_refused(stack: MemoryStack) -> None:
    stack.runner.apply(block(event(1), event(2)))
    first, second = block(event(3), event(4), first_seq=3).entries
    for entries in ((second,), (first, block(event(5), first_seq=5).entries[0]), (second, first)):
        with pytest.raises(Fenced):
            stack.runner.apply(Block(0, entries))
    with pytest.raises(Fenced):
        stack.runner.apply(block(event(1), event(2)))
    assert stack.runner.apply(Block(0, (first, second))).seq == 4


def test_a_stopping_worker_gives_up_and_loses_nothing(stack: MemoryStack) -> None:
    stop = threading.Event()
    faults: list[Exception] = [GraphUnavailable(reason="away") for _ in range(10_000)]
    stack.graph.before_commit = raising(faults)
    runner = Runner(PROJECTING, stack.graph, target="blue", stop=stop)
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    with pytest.raises(Stopped):
        runner.apply(block(event(1)))
    timer.join()
    assert stack.event_ids() == []
    faults.clear()
    assert Runner(PROJECTING, stack.graph, target="blue").apply(block(event(1))).seq == 1


def test_other_rules_refuse_to_write(stack: MemoryStack) -> None:
    stack.append(*session("session-1", range(1, 4)))
    stack.fold()
    version = PROJECTION.fold_version
    other = replace(PROJECTION, fold_version=version + 1)
    newer = stack.new_runner(replace(PROJECTING, stage=other))
    partition = event_partition(event(1), PARTITIONS)
    with pytest.raises(FoldVersionMismatch) as caught:
        newer.checkpoint(partition)
    assert (caught.value.found, caught.value.expected) == (version, version + 1)
    entries = next(stack.blocks(partition)).entries
    with pytest.raises(FoldVersionMismatch):
        newer.refold(partition, entries)
    with pytest.raises(FoldVersionMismatch):
        newer.apply(block(event(9), first_seq=4, partition=partition))


def test_rules_that_change_under_a_running_worker_are_noticed(stack: MemoryStack) -> None:
    stack.runner.apply(block(event(1)))
    stack.set_fold_version(PROJECTION.fold_version + 1)
    with pytest.raises(FoldVersionMismatch):
        stack.runner.apply(block(event(2), first_seq=2))
    assert stack.event_ids() == [event_id(1)]


# -- once more -------------------------------------------------------------------------------------


def test_folding_again_changes_nothing(stack: MemoryStack) -> None:
    stack.fill()
    before = stack.dump()
    for partition in range(PARTITIONS):
        for again in stack.blocks(partition, size=3):
            assert stack.runner.refold(partition, again.entries) == []
    assert stack.dump() == before


def test_folding_again_leaves_what_lies_beyond_the_checkpoint(stack: MemoryStack) -> None:
    stack.append(*(event(n) for n in range(1, 5)))
    partition = event_partition(event(1), PARTITIONS)
    (whole,) = stack.blocks(partition)
    stack.runner.apply(Block(partition, whole.entries[:2]))
    assert stack.runner.refold(partition, whole.entries) == []
    assert stack.event_ids() == [event_id(1), event_id(2)]


def test_folding_again_tells_what_cannot_be_folded(stack: MemoryStack) -> None:
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
    assert_as_if_only(stack, *(event(n) for n in range(1, 9)))


def test_errors_know_whether_to_retry() -> None:
    assert GraphUnavailable.retryable
    assert not Stopped.retryable
    assert not RecollectError.retryable
    assert json.dumps(str(Stopped()))
