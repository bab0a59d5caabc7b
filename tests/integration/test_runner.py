"""The runner on a real Neo4j, as far as that is another one; the rest is in `tests/stages`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.operations import dead_letters
from pipelines.work.runner import Runner
from projections.errors import (
    FoldVersionMismatch,
    GraphUnavailable,
)
from projections.events import Event, encode_event, event_partition
from tests.factories import block, event, event_id
from tests.fakes.stages import PROJECTING
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS

pytestmark = pytest.mark.integration


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"stage": "projection", "target": "blue", **labels}) or 0


def event_ids(stack: Stack) -> list[str]:
    found: list[str] = stack.cypher("MATCH (e:Event) RETURN e.event_id ORDER BY e.event_id")
    return found


def letters(stack: Stack) -> list[dict[str, Any]]:
    return dead_letters.list_(stack.services).dead_letters


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


@pytest.mark.parametrize(
    "data",
    [b"not json", encode_event(event(5)).replace(f'"{event_id(5)}"'.encode(), b"[1,[2]]")],
    ids=["no json", "an id of lists"],
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


def test_a_commit_whose_answer_was_lost_is_recognised(stack: Stack, flaky: Flaky) -> None:
    flaky.after = [GraphUnavailable(reason="the answer was lost")]
    runner = Runner(PROJECTING, flaky, target="blue")
    assert runner.apply(block(event(1), event(2))).seq == 2
    assert runner.apply(block(event(3), first_seq=3)).seq == 3
    assert len(event_ids(stack)) == 3


def test_rules_that_change_under_a_running_worker_are_noticed(stack: Stack) -> None:
    stack.runner.apply(block(event(1)))
    stack.cypher("MATCH (c:Checkpoint) SET c.fold_version = 2")
    with pytest.raises(FoldVersionMismatch):
        stack.runner.apply(block(event(2), first_seq=2))
    assert event_ids(stack) == [event_id(1)]
