"""Two workers at once, on a real Neo4j: the fence, and what look-ups alone would miss."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import neo4j
import pytest

from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.ledger.entries import Block, Entry
from pipelines.work.gather.projection import gather
from pipelines.work.runner import Runner
from projections.errors import Fenced, GraphUnavailable
from projections.identity import Position
from projections.operations import Checkpoint, EnsureNode, MergeEdge, Operations
from projections.schema import CAUSED_BY, DIRECT, EVENT, PLACEHOLDER
from projections.structural import FOLD_VERSION, Facts, event_node, project
from tests.factories import block, event, event_id
from tests.fakes.stages import PROJECTING
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
STAGE = "projection"
PATIENCE_S = 120.0


@pytest.fixture
def graph(neo4j_graph: Neo4jGraph) -> Neo4jGraph:
    neo4j_graph.ensure_checkpoints(STAGE, 2, FOLD_VERSION)
    return neo4j_graph


@pytest.fixture
def other_worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def at(seq: int, partition: int = 0) -> Checkpoint:
    position = Position(seq, 0)
    return Checkpoint(
        STAGE, partition, position, seq, digest=str(seq) if seq else "", fold_version=FOLD_VERSION
    )


def is_blocked(driver: neo4j.Driver) -> bool:
    """Whether a transaction waits for a lock that another holds."""
    with driver.session() as session:
        rows = session.run("SHOW TRANSACTIONS YIELD status RETURN status")
        return any("Blocked" in row["status"] for row in rows)


def visible_edges(driver: neo4j.Driver) -> list[tuple[str, ...]]:
    with driver.session() as session:
        rows = session.run(
            "MATCH (a:Event)-[r]->(b:Event) RETURN type(r), a.event_id, b.event_id ORDER BY 1, 2, 3"
        )
        return [tuple(row) for row in rows]


def count(driver: neo4j.Driver, label: str) -> int:
    with driver.session() as session:
        text = f"MATCH (n:{label}) RETURN count(n)"
        return int(session.run(text).single(strict=True)[0])


# -- the fence -------------------------------------------------------------------------------------


def write_event(transaction: Neo4jTransaction, number: int) -> None:
    batch = Operations()
    batch.add(event_node(event(number), Position(number, 0)))
    transaction.apply(batch, STAGE)


def test_the_second_of_two_from_the_same_checkpoint_rolls_back(
    driver: neo4j.Driver, graph: Neo4jGraph, other_worker: ThreadPoolExecutor
) -> None:
    """It began before the first committed, so a test before the lock would have let it pass."""
    begun, go_on = threading.Event(), threading.Event()

    def late() -> None:
        with graph.transaction() as transaction:
            # Its snapshot, if it had one, would be of before the first worker's commit.
            transaction.run("MATCH (c:Checkpoint) RETURN c.position")
            begun.set()
            assert go_on.wait(PATIENCE_S)
            transaction.advance(at(0), at(3))
            write_event(transaction, 2)

    with graph.transaction() as first:
        rival = other_worker.submit(late)
        assert begun.wait(PATIENCE_S)
        first.advance(at(0), at(2))
        go_on.set()
        wait_until(lambda: is_blocked(driver), "the rival waits for the checkpoint's lock")
        write_event(first, 1)
    with pytest.raises(Fenced):
        rival.result(PATIENCE_S)
    assert graph.checkpoints(STAGE)[0] == at(2)
    with driver.session() as session:
        assert session.run("MATCH (e:Event) RETURN e.event_id").value() == [event_id(1)]
        assert session.run("MATCH (c:Checkpoint) WHERE c.lock RETURN count(c)").value() == [0]


def test_the_second_goes_on_when_the_first_rolls_back(
    driver: neo4j.Driver, graph: Neo4jGraph, other_worker: ThreadPoolExecutor
) -> None:
    def second() -> None:
        with graph.transaction() as transaction:
            transaction.advance(at(0), at(3))
            write_event(transaction, 2)

    def first() -> Future[None]:
        with graph.transaction() as transaction:
            transaction.advance(at(0), at(2))
            waiting = other_worker.submit(second)
            wait_until(lambda: is_blocked(driver), "one waits for a lock")
            raise KeyboardInterrupt(waiting)

    with pytest.raises(KeyboardInterrupt) as died:
        first()
    died.value.args[0].result(PATIENCE_S)
    assert graph.checkpoints(STAGE)[0] == at(3)


def test_facts_are_read_behind_the_lock(
    driver: neo4j.Driver, graph: Neo4jGraph, other_worker: ThreadPoolExecutor
) -> None:
    """Who waited for the lock sees what the holder wrote."""

    def second() -> Facts:
        with graph.transaction() as transaction:
            transaction.lock(STAGE, 0)
            asked = [event(5)]
            return gather(transaction, asked)

    with graph.transaction() as first:
        first.advance(at(0), at(2))
        waiting = other_worker.submit(second)
        wait_until(lambda: is_blocked(driver), "one waits for a lock")
        write_event(first, 1)
    (known,) = waiting.result(PATIENCE_S).neighbours.values()
    assert known.before is not None
    assert known.before.event_id == event_id(1)


# -- write skew ------------------------------------------------------------------------------------

CHILD = event(2, session_id="child", parent=1)
PARENT = event(1, session_id="parent")


@pytest.mark.parametrize("first_is_child", [True, False], ids=["child first", "parent first"])
def test_a_child_and_its_parent_at_the_same_moment(
    driver: neo4j.Driver,
    graph: Neo4jGraph,
    other_worker: ThreadPoolExecutor,
    first_is_child: bool,
) -> None:
    """Both transactions are open and neither sees the other's node; both end in one edge."""
    mine, theirs = (CHILD, PARENT) if first_is_child else (PARENT, CHILD)
    ready, go_on = threading.Event(), threading.Event()

    def fold(transaction: Neo4jTransaction, made: object, partition: int) -> None:
        chosen = CHILD if made is CHILD else PARENT
        transaction.advance(at(0, partition), at(5, partition))
        facts = gather(transaction, [chosen])
        if partition:
            ready.set()
            assert go_on.wait(PATIENCE_S)
        transaction.apply(project([(Position(5, 0), chosen)], facts), STAGE)

    def rival() -> None:
        with graph.transaction() as transaction:
            fold(transaction, theirs, 1)

    with graph.transaction() as transaction:
        other = other_worker.submit(rival)
        assert ready.wait(PATIENCE_S)
        fold(transaction, mine, 0)
        go_on.set()
        wait_until(lambda: is_blocked(driver) or other.done(), "one waits for a lock")
    other.result(PATIENCE_S)
    assert visible_edges(driver) == [(CAUSED_BY.type, event_id(2), event_id(1))]
    assert count(driver, PLACEHOLDER) == 0
    assert count(driver, EVENT.label) == 2


def test_many_children_and_parents_from_two_runners(graph: Neo4jGraph) -> None:
    """Parents of each partition are caused by events of the other, block by block."""
    pairs = 60
    sides = [
        [
            event(2 * n + side, session_id=f"side-{side}", parent=2 * n + 1 - side)
            for n in range(pairs)
        ]
        for side in (0, 1)
    ]
    start = threading.Barrier(2)

    def work(side: int) -> None:
        runner = Runner(PROJECTING, graph, target="blue")
        start.wait(PATIENCE_S)
        for first in range(0, pairs, 5):
            made = sides[side][first : first + 5]
            runner.apply(block(*made, first_seq=first + 1, partition=side))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, side) for side in (0, 1)]:
            done.result(120)
    edges = visible_edges(graph.client.driver)
    assert len([edge for edge in edges if edge[0] == CAUSED_BY.type]) == 2 * pairs
    assert len(set(edges)) == len(edges)
    assert count(graph.client.driver, PLACEHOLDER) == 0
    assert [c.seq for c in graph.checkpoints(STAGE)] == [pairs, pairs]


# -- deadlocks -------------------------------------------------------------------------------------


def test_a_deadlock_is_an_error_to_retry(
    graph: Neo4jGraph, other_worker: ThreadPoolExecutor
) -> None:
    """Two transactions that touch two keys in opposite orders: one of them is told to go."""
    both_hold_one = threading.Barrier(2)

    def touch(first: int, second: int) -> None:
        with graph.transaction() as transaction:
            ensure(transaction, first)
            both_hold_one.wait(PATIENCE_S)
            ensure(transaction, second)

    with ThreadPoolExecutor(1) as third:
        both = [other_worker.submit(touch, 2, 1), third.submit(touch, 1, 2)]
        (victim,) = [error for one in both if (error := one.exception(PATIENCE_S)) is not None]
    assert isinstance(victim, GraphUnavailable)
    assert "Deadlock" in str(victim)


def ensure(transaction: Neo4jTransaction, number: int) -> None:
    batch = Operations()
    key = ("default", event_id(number))
    batch.add(EnsureNode(EVENT.label, key))
    batch.add(MergeEdge(type=CAUSED_BY.type, source=key, target=key, values={"mechanism": DIRECT}))
    transaction.apply(batch, STAGE)


def test_the_runner_goes_on_after_a_deadlock(
    driver: neo4j.Driver, graph: Neo4jGraph, other_worker: ThreadPoolExecutor
) -> None:
    """The rival holds key 2 and wants the checkpoint; the runner holds it and wants key 2."""
    tries: list[int] = []
    holds, may_want = threading.Event(), threading.Event()

    class Watched(Runner):
        def _advance(
            self,
            start: Checkpoint,
            entries: Sequence[Entry],
            poison: tuple[str, str] | None = None,
        ) -> Checkpoint:
            tries.append(start.seq)
            may_want.set()
            return super()._advance(start, entries, poison)

    def rival() -> None:
        try:
            with graph.transaction() as transaction:
                ensure(transaction, 2)
                holds.set()
                assert may_want.wait(PATIENCE_S)
                wait_until(lambda: is_blocked(driver), "one waits for a lock")
                transaction.lock(STAGE, 0)
        except GraphUnavailable:
            pass  # either of the two may be the victim

    other = other_worker.submit(rival)
    assert holds.wait(PATIENCE_S)
    runner = Watched(PROJECTING, graph, target="blue")
    end = runner.apply(Block(0, block(event(1), event(2)).entries))
    other.result(PATIENCE_S)
    assert end.seq == 2
    assert count(driver, "DeadLetter") == 0
    assert len(tries) in (1, 2)


# -- names -----------------------------------------------------------------------------------------


def test_a_name_is_held_by_one_transaction_at_a_time(
    driver: neo4j.Driver, graph: Neo4jGraph, other_worker: ThreadPoolExecutor
) -> None:
    """Whoever comes second reads what the first has committed; other names are free."""
    begun = threading.Event()

    def second() -> list[str]:
        with graph.transaction() as transaction:
            transaction.lock(STAGE, 1)
            transaction.hold(["other"])
            begun.set()
            transaction.hold(["b", "other"])
            rows = transaction.run("MATCH (e:Event) RETURN e.event_id AS event_id")
            told = transaction.graph.changes(place)
            assert [key for change in told.changes for key in change.nodes[EVENT.label]] == [
                ("default", event_id(1))
            ]
            return [row["event_id"] for row in rows]

    place = graph.feed()
    with graph.transaction() as first:
        first.advance(at(0), at(1))
        first.hold(["a", "b"])
        waiting = other_worker.submit(second)
        assert begun.wait(PATIENCE_S)
        wait_until(lambda: is_blocked(driver), "the second waits for the name")
        write_event(first, 1)
    assert waiting.result(PATIENCE_S) == [event_id(1)]
    assert graph.feed().numbers.keys() == {f"{STAGE}/0"}
