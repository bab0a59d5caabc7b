"""A fault of the server on the real Neo4j is no poison; a stage that holds says so and goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from neo4j.exceptions import DatabaseError, Neo4jError

from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.ledger.registry import Hold
from pipelines.operations import dead_letters
from pipelines.operations.rebuild import replay
from pipelines.operations.status import status
from pipelines.work.live import LiveRunner
from pipelines.work.poison import PoisonPolicy
from pipelines.work.stages import PROJECTION
from projections.errors import StageHeld
from projections.events import Event, event_partition
from projections.identity import Position
from projections.operations import Operations
from projections.structural import Facts
from tests.factories import event, event_id, sessions
from tests.fakes.stages import PROJECTING, QUICK
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

EVENTS = 1_000
FAULT_S = 1.0
FAULTS = 4
UNKNOWN = "Neo.DatabaseError.General.UnknownError"
TOO_LARGE = "x" * 40_000


class Broken(Neo4jGraph):
    """The real graph, whose writes fail as a broken server fails: for a while after the first, and
    so many at least, because a slow machine tries few times in that while."""

    def __init__(self, graph: Neo4jGraph, code: str) -> None:
        super().__init__(graph.client.driver, graph.client.database)
        self.code = code
        self.failed = 0
        self._until_s: float | None = None

    @contextmanager
    def transaction(self) -> Iterator[Neo4jTransaction]:
        with super().transaction() as transaction:
            apply = transaction.apply

            def broken(operations: Operations, stage: str) -> None:
                if self._until_s is None:
                    self._until_s = time.monotonic() + FAULT_S
                if time.monotonic() < self._until_s or self.failed < FAULTS:
                    self.failed += 1
                    error = Neo4jError._hydrate_neo4j(code=self.code, message="an internal error")
                    assert isinstance(error, DatabaseError)
                    raise error
                apply(operations, stage)

            transaction.apply = broken  # type: ignore[method-assign]  # of this transaction
            yield transaction


def letters(stack: Stack) -> list[dict[str, Any]]:
    return dead_letters.list_(stack.services).dead_letters


def live_runner(stack: Stack, **options: Any) -> LiveRunner:
    rules = options.pop("rules", PROJECTING)
    graph = options.pop("graph", stack.graph)
    chosen = {
        "policy": replace(QUICK, patience_s=None),
        "stop": threading.Event(),
        "board": stack.services.holds,
        **options,
    }
    return LiveRunner(rules, graph, stack.ledger, target=stack.target.name, **chosen)


@pytest.mark.parametrize("code", [UNKNOWN, "Neo.DatabaseError.Statement.ExecutionFailed"])
@pytest.mark.parametrize("size", [10, 500])
def test_a_second_of_database_errors_dead_letters_nothing(
    stack: Stack, code: str, size: int
) -> None:
    stack.append(*sessions(40, EVENTS // 40))
    graph = Broken(stack.graph, code)
    policy = PoisonPolicy.of_live_work(stack.services.settings)
    runner = live_runner(stack, graph=graph, policy=policy)
    flow(stack, runner, size)
    assert graph.failed > 3
    assert letters(stack) == []
    assert stack.cypher("MATCH (e:Event) RETURN count(e)") == [EVENTS]
    assert stack.verify().ok


def flow(stack: Stack, runner: LiveRunner, size: int) -> None:
    """Hand the ledger's blocks to the runner as a worker does: of all partitions together."""
    waiting = {n: iter(stack.blocks(n, size)) for n in range(stack.ledger.partitions)}
    while blocks := [b for b in (next(entries, None) for entries in waiting.values()) if b]:
        assert set(runner.apply_together(blocks).values()) == {None}


def test_what_neo4j_cannot_index_is_poison_though_it_blames_itself(stack: Stack) -> None:
    """An id of 40 KB is no event that ingest takes; whatever is, must not stop the stage."""

    def fold(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        renamed = [
            (place, one._replace(session_id=TOO_LARGE) if one.agent_id == "bad" else one)
            for place, one in events
        ]
        return PROJECTING.fold(renamed, facts)

    stack.append(event(1), event(2, agent_id="bad"), event(3))
    stack.fold(runner=stack.new_runner(replace(PROJECTING, fold=fold)))
    (letter,) = letters(stack)
    assert (letter["seq"], "too large to index" in letter["reason"]) == (2, True)
    assert stack.cypher("MATCH (e:Event) RETURN count(e)") == [2]


class Refusing:
    """Stage 1, which refuses what a bad agent says while it is `broken`."""

    def __init__(self) -> None:
        self.broken = True
        self.rules = replace(PROJECTING, fold=self._fold)

    def _fold(self, events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
        if self.broken and any(one.agent_id == "bad" for _, one in events):
            raise ValueError("a bad agent")
        return PROJECTING.fold(events, facts)


@pytest.fixture
def refusing(stack: Stack) -> Refusing:
    """Thirty events in a row that will be refused, and ten that will not, in one session."""
    stack.append(*(event(n, agent_id="bad" if n <= 30 else "good") for n in range(1, 41)))
    return Refusing()


@contextmanager
def holding(stack: Stack, refusing: Refusing) -> Iterator[Callable[[], None]]:
    """A worker that holds; what is yielded waits for its end."""
    runner = live_runner(stack, rules=refusing.rules)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(stack.fold, 500, runner)
        try:
            wait_until(lambda: projection(stack)["held"], "status shows that it holds", 120)
            yield lambda: done.result(30)
        finally:
            runner.stop.set()


def projection(stack: Stack) -> dict[str, Any]:
    document: dict[str, Any] = status(stack.services)["stages"][PROJECTION.name]
    return document


def test_a_stage_that_holds_says_so_and_goes_on_when_an_entry_passes(
    stack: Stack, refusing: Refusing
) -> None:
    with holding(stack, refusing) as ended:
        document = status(stack.services)
        held = document["stages"][PROJECTION.name]["held"]
        assert (held["seq"], held["reason"]) == (6, "ValueError: a bad agent")
        assert document["ok"] is False
        assert len(letters(stack)) == 5
        refusing.broken = False
        ended()
    assert projection(stack)["held"] is None
    assert len(letters(stack)) == 5
    assert dead_letters.retry(stack.services).done == 5
    assert stack.verify().ok


def test_it_goes_on_by_command(stack: Stack, refusing: Refusing) -> None:
    with holding(stack, refusing) as ended:
        dead_letters.release(stack.services, PROJECTION.name, target=None, for_s=60)
        ended()
    assert projection(stack)["held"] is None
    assert [letter["seq"] for letter in letters(stack)] == list(range(1, 31))
    assert stack.cypher("MATCH (e:Event) RETURN count(e)") == [10]
    # it is recorded for a while: the next worker asks, too
    assert stack.services.holds.is_released(PROJECTION.name, "blue")


def test_a_replay_ends_with_an_error(
    make_stack: Callable[..., Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = make_stack(hold_patience_s=0.5, attempt_wait_s=0.001)
    stack.append(*(event(n, agent_id="bad") for n in range(1, 31)))
    stack.fold()
    refused = Refusing().rules
    monkeypatch.setattr("pipelines.operations.rebuild.make_fold", lambda *_: refused)
    with pytest.raises(StageHeld, match="a bad agent"):
        replay(stack.services, PROJECTION)
    assert letters(stack) == []


def test_a_hold_is_shown_cleared_and_released_by_stage_and_target(stack: Stack) -> None:
    holds, hold = stack.services.holds, Hold(3, 7, "5-1", "why", 12.5)
    assert holds.of_target("blue", ["projection", "enrichment"]) == {}
    holds.show("projection", "blue", hold)
    holds.show("projection", "green", hold._replace(seq=8))
    assert holds.of_target("blue", ["projection", "enrichment"]) == {"projection": hold}
    holds.clear("projection", "blue")
    assert holds.of_target("blue", ["projection"]) == {}
    assert holds.of_target("green", ["projection"])["projection"].seq == 8
    holds.release("projection", "blue", 60)
    assert holds.is_released("projection", "blue")
    assert not holds.is_released("projection", "green")
    assert not holds.is_released("enrichment", "blue")
    holds.release("projection", "blue", 1)
    wait_until(lambda: not holds.is_released("projection", "blue"), "it is over", 120)


# -- an entry that the database refuses, among others ----------------------------------------------


def event_ids(stack: Stack) -> list[str]:
    found: list[str] = stack.cypher("MATCH (e:Event) RETURN e.event_id ORDER BY e.event_id")
    return found


@contextmanager
def unique_tool_names(stack: Stack) -> Iterator[None]:
    """A cause of poison that is real, and goes away: the database refuses a second tool_name."""
    stack.cypher("CREATE CONSTRAINT poison FOR (e:Event) REQUIRE e.tool_name IS UNIQUE")
    try:
        yield
    finally:
        stack.cypher("DROP CONSTRAINT poison IF EXISTS")


def test_a_poison_entry_is_passed_and_its_neighbours_flow(stack: Stack) -> None:
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
