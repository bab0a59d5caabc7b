"""What every store promises about its change feed: each commit is told once, in order, by keys."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from typing import Any, cast, get_args

import neo4j
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.graph import feed, memory
from pipelines.graph import neo4j as neo4j_store
from pipelines.graph.client import ClientTransaction
from pipelines.graph.feed import FOLLOWED, Touched, decode, encode
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.graph.port import Graph
from pipelines.graph.rows import Advanced, Change, Changes, FeedPlace, FoundEdge, FoundNode
from projections.errors import ChangesLost, GraphUnavailable
from projections.identity import Position
from projections.operations import (
    Checkpoint,
    ClearEdges,
    DecideNode,
    EnsureNode,
    Key,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveEdge,
    RemoveNode,
    SetEdge,
    SetNode,
)
from projections.schema import (
    CAUSED_BY,
    DIRECT,
    EDGES,
    ENTITY,
    EVENT,
    FEED_NODES,
    FOLLOWS,
    NODES,
    SAME_AS,
    SUMMARIZES,
    SUMMARY,
    EdgeRow,
    Kind,
    Merge,
    Property,
)
from projections.structural import event_node
from tests.factories import event
from tests.feed_follower import Follower, targets
from tests.graph_dump import dump

STAGE, LAST = "projection", "consolidation"
A, B, C = ("t", "a"), ("t", "b"), ("u", "c")


def apply(
    graph: Graph, *operations: Operation, stage: str = STAGE, partition: int | None = None
) -> None:
    """Write operations, under the lock of a partition's checkpoint or under none."""
    batch = Operations()
    batch.extend(operations)
    with graph.transaction() as transaction:
        if partition is not None:
            transaction.lock(STAGE, partition)
        transaction.apply(batch, stage)


def occurred(key: Key, at_ms: int = 1) -> MergeNode:
    return event_node(event(1, tenant=key[0], event_id=key[1], at=at_ms), Position(7, 1))


def number_of(graph: Graph, chain: str = "") -> int:
    """Of the newest change of a chain."""
    return graph.feed().numbers.get(chain, 0)


def behind(graph: Graph, number: int, chain: str = "") -> FeedPlace:
    """The present place, but in one chain."""
    identity, numbers = graph.feed()
    return FeedPlace(identity, {**numbers, chain: number})


def last(graph: Graph, chain: str = "") -> Change:
    """The newest change of a chain."""
    (change,) = graph.changes(behind(graph, number_of(graph, chain) - 1, chain)).changes
    return change


# -- values of any row -----------------------------------------------------------------------------

_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.STRING: st.sampled_from("xy"),
    Kind.INTEGER: st.integers(1, 3),
    Kind.FLOAT: st.sampled_from([0.25, 0.5]),
    Kind.BOOLEAN: st.booleans(),
    Kind.TIME: st.integers(1, 3),
    Kind.STRINGS: st.lists(st.sampled_from("xy"), max_size=2).map(tuple),
    Kind.INTEGERS: st.tuples(st.integers(1, 3), st.integers(0, 2)),
    Kind.TIMES: st.lists(st.integers(1, 3), max_size=2).map(tuple),
    Kind.VECTOR: st.none(),
}


def values(properties: tuple[Property, ...], **given_: Any) -> st.SearchStrategy[dict[str, Any]]:
    drawn = {p.name: _VALUES[p.kind] for p in properties}
    return st.fixed_dictionaries(drawn | {name: st.just(value) for name, value in given_.items()})


def keys(label: str) -> st.SearchStrategy[Key]:
    width = len(NODES[label].key)
    return st.sampled_from([key[:width] for key in (A, B, C)])


def of_nodes() -> Iterator[st.SearchStrategy[Operation]]:
    for label in sorted(FOLLOWED):
        row = NODES[label]
        at = {"label": st.just(label), "key": keys(label)}
        yield st.builds(MergeNode, **at, values=values(row.owned(row.stage)))
        yield st.builds(RemoveNode, **at)
        if row.placeholder:
            yield st.builds(EnsureNode, **at)
        for stage in {p.stage for p in row.properties} - {row.stage}:
            if owned := row.owned(stage):
                yield st.builds(SetNode, **at, values=values(owned))
        for p in row.properties:
            if p.merge is Merge.DECIDED:
                positions = st.builds(Position, st.integers(1, 3), st.integers(0, 2))
                decided = {"name": st.just(p.name), "value": _VALUES[p.kind]}
                yield st.builds(DecideNode, **at, **decided, position=positions)


def of_edges() -> Iterator[st.SearchStrategy[Operation]]:
    for row in EDGES.values():
        yield st.builds(ClearEdges, st.just(row.type), keys(row.source))
        for label in targets(row):
            at = {
                "type": st.just(row.type),
                "source": keys(row.source),
                "target": keys(label),
                "label": st.just(label if label == row.other_target else ""),
            }
            if row is SAME_AS:  # it begins at the smaller id
                at |= {"source": st.just(A), "target": st.just(B)}
            yield st.builds(RemoveEdge, **at)
            for stage, shared in stages_of(row):
                carried = row.carried(stage)
                yield st.builds(MergeEdge, **at, values=values(carried, **shared))
                named = tuple(p for p in carried if p.name in row.key)
                if named:
                    yield st.builds(RemoveEdge, **at, values=values(named, **shared))
        for stage in {p.stage for p in row.properties if not row.written_by(p.stage)}:
            set_at = {key: drawn for key, drawn in at.items() if key != "label"}
            yield st.builds(SetEdge, **set_at, values=values(row.carried(stage)))


def stages_of(row: EdgeRow) -> list[tuple[str, dict[str, str]]]:
    """The stages that make edges of a type, and what tells whose they are."""
    if row.shared_by is None:
        return [(row.stage, {})]
    name, by_stage = row.shared_by
    return [(stage, {name: value}) for stage, value in by_stage.items()]


ANY = st.one_of(*of_nodes(), *of_edges())
Step = Callable[[Graph], None]


def batches() -> st.SearchStrategy[Step]:
    def step(operations: list[Operation], partition: int | None) -> Step:
        def write(graph: Graph) -> None:
            graph.ensure_checkpoints(STAGE, 2, 1)
            with graph.transaction() as transaction:
                if partition is not None:
                    transaction.lock(STAGE, partition)
                for stage in (STAGE, "enrichment", LAST):
                    batch = Operations(stage)
                    batch.extend(one for one in operations if (one.stage or STAGE) == stage)
                    transaction.apply(batch, stage)

        return write

    operations = st.lists(ANY, min_size=1, max_size=8)
    return st.builds(step, operations, st.sampled_from([None, 0, 1]))


def locks() -> st.SearchStrategy[Step]:
    def step(label: str, key: Key) -> Step:
        def lock(graph: Graph) -> None:
            with graph.transaction() as transaction:
                transaction.lock_nodes(label, [key], make=True)

        return lock

    return st.builds(step, st.sampled_from([EVENT.label, ENTITY.label]), keys(EVENT.label))


def repairs() -> st.SearchStrategy[Step]:
    def step(one: Key, other: Key, wide: bool) -> Step:
        def repair(graph: Graph) -> None:
            with graph.transaction() as transaction:
                node = FoundNode(one, True, {"session_id": "s"}, False)
                transaction.restore_nodes(EVENT.label, [node], gone=[other])
                edge = FoundEdge(one, one, EVENT.label, {"session_id": "s"})
                gone = [(other, one, EVENT.label)]
                transaction.restore_edges(FOLLOWS.type, [edge], gone=gone)
                if wide:
                    transaction.remove_foreign([], [])

        return repair

    return st.builds(step, keys(EVENT.label), keys(EVENT.label), st.booleans())


def clears() -> st.SearchStrategy[Step]:
    return st.booleans().map(lambda keep: lambda graph: graph.clear(keep_checkpoints=keep))


STEPS = st.lists(
    st.tuples(
        st.one_of(batches(), batches(), batches(), batches(), locks(), repairs(), clears()),
        st.sampled_from([0, 0, 1, 3]),
    ),
    max_size=8,
)
_SHARED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def followed(graph: Graph, steps: list[tuple[Step, int]]) -> None:
    """Follow a graph now and then, so many changes at a time, and see that nothing was missed."""
    with graph.transaction() as transaction:  # so that edges find their ends
        for label in sorted(
            {label for row in EDGES.values() for label in (row.source, row.target)}
        ):
            transaction.lock_nodes(label, (A, B, C), make=True)
    follower = Follower(graph)
    for step, most in steps:
        step(graph)
        if most:
            follower.follow(most)
            assert follower.held == dump(graph)
    follower.follow(2)
    assert follower.held == dump(graph)


@settings(_SHARED, max_examples=400)
@given(STEPS)
def test_whoever_follows_holds_what_the_graph_holds(steps: list[tuple[Step, int]]) -> None:
    followed(MemoryGraph(), steps)


@pytest.mark.integration
@settings(_SHARED, max_examples=15)
@given(STEPS)
def test_whoever_follows_neo4j_holds_what_it_holds(
    neo4j_graph: Neo4jGraph, steps: list[tuple[Step, int]]
) -> None:
    neo4j_graph.clear()
    followed(neo4j_graph, steps)


# -- each kind -------------------------------------------------------------------------------------

_CAUSE = {"mechanism": DIRECT}
KINDS: dict[type, tuple[str, Operation, dict[str, Any]]] = {
    MergeNode: (STAGE, occurred(A), {"nodes": {EVENT.label: (A,)}}),
    SetNode: (
        "enrichment",
        SetNode(
            label=EVENT.label,
            key=A,
            values=dict.fromkeys(p.name for p in EVENT.owned("enrichment")),
        ),
        {"nodes": {EVENT.label: (A,)}},
    ),
    DecideNode: (
        LAST,
        DecideNode(label=SUMMARY.label, key=A, name="gone", value=True, position=Position(1, 0)),
        {"nodes": {SUMMARY.label: (A,)}},
    ),
    EnsureNode: (STAGE, EnsureNode(ENTITY.label, A), {"nodes": {ENTITY.label: (A,)}}),
    RemoveNode: (STAGE, RemoveNode(ENTITY.label, A), {"removed": {ENTITY.label: (A,)}}),
    MergeEdge: (
        STAGE,
        MergeEdge(type=CAUSED_BY.type, source=A, target=B, values=_CAUSE),
        {"edges": {CAUSED_BY.type: ((A, B, EVENT.label),)}},
    ),
    SetEdge: (
        "enrichment",
        SetEdge(
            type=CAUSED_BY.type,
            source=A,
            target=B,
            values={**dict.fromkeys(p.name for p in CAUSED_BY.properties), "mechanism": "inferred"},
        ),
        {"edges": {CAUSED_BY.type: ((A, B, EVENT.label),)}},
    ),
    RemoveEdge: (
        LAST,
        RemoveEdge(type=SUMMARIZES.type, source=A, target=B, label=SUMMARY.label),
        {"edges": {SUMMARIZES.type: ((A, B, SUMMARY.label),)}},
    ),
    ClearEdges: (STAGE, ClearEdges(FOLLOWS.type, A), {"cleared": {FOLLOWS.type: (A,)}}),
}


def keyed(change: Change) -> dict[str, Any]:
    """What a change tells, without what is empty."""
    place = {"chain", "number"}
    return {name: told for name, told in change._asdict().items() if told and name not in place}


@pytest.mark.parametrize("kind", get_args(Operation), ids=lambda kind: kind.__name__)
def test_every_kind_of_operation_is_told_with_its_keys(graph: Graph, kind: type) -> None:
    stage, operation, expected = KINDS[kind]
    apply(graph, operation, stage=stage)
    assert keyed(last(graph)) == expected
    before = graph.feed()
    batch = Operations()
    batch.on_behalf_of(stage).add(operation)
    with graph.transaction() as transaction:
        transaction.apply(batch, LAST if stage != LAST else STAGE)
    assert [keyed(change) for change in graph.changes(before).changes] == [expected]


def test_what_is_written_without_operations_is_told(graph: Graph) -> None:
    with graph.transaction() as transaction:
        transaction.lock_nodes(ENTITY.label, [A], make=True)
    assert keyed(last(graph)) == {"nodes": {ENTITY.label: (A,)}}
    with graph.transaction() as transaction:
        transaction.restore_nodes(EVENT.label, [FoundNode(A, True, {}, False)], gone=[B])
    assert keyed(last(graph)) == {"nodes": {EVENT.label: (A,)}, "removed": {EVENT.label: (B,)}}
    with graph.transaction() as transaction:
        node = FoundNode(A, True, {"status": "failed"}, False)
        transaction.restore_values(EVENT.label, ("status",), [node])
    assert keyed(last(graph)) == {"nodes": {EVENT.label: (A,)}}
    with graph.transaction() as transaction:
        edge = FoundEdge(A, A, EVENT.label, {})
        transaction.restore_edges(FOLLOWS.type, [edge], gone=[(A, B, EVENT.label)])
    (pairs,) = last(graph).edges.values()
    assert set(pairs) == {(A, A, EVENT.label), (A, B, EVENT.label)}
    with graph.transaction() as transaction:
        transaction.remove_foreign([], [])
    assert keyed(last(graph)) == {"everything": True}


def test_checkpoints_are_told_where_they_were_moved_to(graph: Graph) -> None:
    graph.ensure_checkpoints(STAGE, 2, 1)
    with graph.transaction() as transaction:
        transaction.advance(Checkpoint(STAGE, 1), Checkpoint(STAGE, 1, Position(5, 2), 9, "d"))
        transaction.apply(Operations(), STAGE)
    told = last(graph, f"{STAGE}/1")
    assert keyed(told) == {"advanced": (Advanced(STAGE, 1, Position(5, 2), 9),)}
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 1)
        transaction.reset(Checkpoint(STAGE, 1))
    assert keyed(last(graph, f"{STAGE}/1")) == {
        "advanced": (Advanced(STAGE, 1, Checkpoint(STAGE, 1).position, 0),)
    }


def test_what_changes_nothing_and_what_is_no_memory_is_not_told(graph: Graph) -> None:
    graph.ensure_checkpoints(STAGE, 1, 1)
    before = graph.feed()
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 0)
        transaction.lock_nodes(ENTITY.label, [A])
        transaction.lock_nodes(ENTITY.label, [], make=True)
        transaction.apply(Operations(), STAGE)
        transaction.restore_nodes(EVENT.label, [])
        transaction.restore_edges(FOLLOWS.type, [])
        letter = {"position": "1-0", "tenant": None, "event_id": None, "reason": "x", "attempts": 1}
        transaction.add_dead_letter(STAGE, 0, 1, kind="poison", **letter)
    assert graph.feed() == before
    assert graph.changes(before) == (before, (), False)


def test_a_rollback_leaves_nothing(graph: Graph) -> None:
    apply(graph, occurred(A))
    before = graph.feed()

    def fail() -> None:
        with graph.transaction() as transaction:
            batch = Operations()
            batch.add(occurred(B))
            transaction.apply(batch, STAGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert graph.feed() == before
    apply(graph, occurred(C))
    told = graph.changes(before)
    assert [(one.number, keyed(one)) for one in told.changes] == [
        (before.numbers[""] + 1, {"nodes": {EVENT.label: (C,)}})
    ]


def test_changes_come_in_order_and_so_many_at_once(graph: Graph) -> None:
    before = graph.feed()
    start = number_of(graph)
    for n in range(5):
        apply(graph, occurred(("t", str(n))))
    told = graph.changes(before, 3)
    assert [one.number - start for one in told.changes] == [1, 2, 3]
    assert [one.nodes[EVENT.label][0][1] for one in told.changes] == ["0", "1", "2"]
    assert told.place == FeedPlace(before.identity, {**before.numbers, "": start + 3})
    assert told.more
    told = graph.changes(told.place, 3)
    assert [one.number - start for one in told.changes] == [4, 5]
    assert (told.place, told.more) == (graph.feed(), False)
    assert graph.changes(told.place, 3).changes == ()
    for known in (behind(graph, start + 6), behind(graph, 1, "unknown")):
        with pytest.raises(ChangesLost):
            graph.changes(known)


def test_each_checkpoint_that_comes_first_has_a_chain_and_each_chain_its_turn(graph: Graph) -> None:
    graph.ensure_checkpoints(STAGE, 2, 1)
    graph.ensure_checkpoints(LAST, 1, 1)
    before = graph.feed()
    for n in range(3):
        apply(graph, occurred(("t", str(n))), partition=0)
    apply(graph, occurred(A), partition=1)
    with graph.transaction() as transaction:
        transaction.advance(Checkpoint(LAST, 0), Checkpoint(LAST, 0, Position(5, 2), 9, "d"))
        transaction.lock(STAGE, 1)
    apply(graph, occurred(B))
    chains = {f"{STAGE}/0": 3, f"{STAGE}/1": 1, f"{LAST}/0": 1, "": 1}
    new = {chain: number_of(graph, chain) - before.numbers.get(chain, 0) for chain in chains}
    assert new == chains
    told = graph.changes(before, 4)
    assert [one.chain for one in told.changes] == sorted(chains)
    assert told.more
    told = graph.changes(told.place, 4)
    assert {one.chain for one in told.changes} == {f"{STAGE}/0"}
    assert [one.nodes[EVENT.label] for one in told.changes] == [(("t", "1"),), (("t", "2"),)]
    assert (told.place, told.more) == (graph.feed(), False)


# -- what is kept ----------------------------------------------------------------------------------


def limited(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    for module in (feed, memory, neo4j_store):
        monkeypatch.setattr(module, name, value)


def oldest(graph: Graph) -> int:
    """The number of the oldest change that can be had."""
    newest = number_of(graph)
    for number in range(newest + 1):
        try:
            told = graph.changes(behind(graph, number))
        except ChangesLost:
            continue
        assert [one.number for one in told.changes] == list(range(number + 1, newest + 1))
        return number + 1
    raise AssertionError("not even the newest")


def test_the_last_changes_are_kept(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "FEED_KEPT", 3)
    graph.ensure_checkpoints(STAGE, 1, 1)
    start, before = number_of(graph), graph.feed()
    apply(graph, occurred(A), partition=0)
    for n in range(6):
        apply(graph, occurred(("t", str(n))))
    with pytest.raises(ChangesLost) as caught:
        graph.changes(before)
    assert not caught.value.retryable
    assert oldest(graph) == start + 4
    assert last(graph, f"{STAGE}/0").nodes == {EVENT.label: (A,)}, "each chain has its own"


def test_no_more_bytes_are_kept(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    touched = Touched()
    touched.note_nodes(EVENT.label, [("t", "0")])
    limited(monkeypatch, "FEED_BYTES", 3 * len(encode(touched)))
    start = number_of(graph)
    for n in range(7):
        apply(graph, occurred(("t", str(n))))
    assert oldest(graph) == start + 5
    apply(graph, *(occurred(("t", f"{n}")) for n in range(200)))
    assert oldest(graph) == start + 8, "the newest is kept, however large"


@pytest.mark.parametrize("keep_checkpoints", [False, True])
def test_an_emptied_graph_has_another_feed(graph: Graph, keep_checkpoints: bool) -> None:
    graph.ensure_checkpoints(STAGE, 1, 1)
    apply(graph, occurred(A))
    apply(graph, occurred(B), partition=0)
    before = graph.feed()
    graph.clear(keep_checkpoints=keep_checkpoints)
    after = graph.feed()
    assert after.identity != before.identity != ""
    assert after.numbers == before.numbers
    for lost in (before, behind(graph, before.numbers[""] - 1)):
        with pytest.raises(ChangesLost):
            graph.changes(lost)
    apply(graph, occurred(B))
    told = graph.changes(after)
    assert told.place.identity == after.identity
    assert [keyed(one) for one in told.changes] == [{"nodes": {EVENT.label: (B,)}}]


def test_another_identity_is_told_and_changes_go_on(graph: Graph) -> None:
    apply(graph, occurred(A))
    before = graph.feed()
    graph.renew_feed()
    with pytest.raises(ChangesLost):
        graph.changes(before)
    after = graph.feed()
    assert after.numbers == before.numbers
    apply(graph, occurred(B))
    assert [keyed(one) for one in graph.changes(after).changes] == [{"nodes": {EVENT.label: (B,)}}]


def test_nothing_else_shows_the_feed(graph: Graph) -> None:
    apply(graph, occurred(A))
    hidden = {row.label for row in FEED_NODES}
    census = graph.census()
    assert not hidden & {*census.labels, *census.node_properties, *graph.counts().nodes, *NODES}
    assert set(dump(graph).nodes) == {(EVENT.label, A)}


# -- bytes -----------------------------------------------------------------------------------------


def test_a_block_of_4000_events_takes_no_more_than_150_bytes_an_event() -> None:
    ids = [("default", str(uuid.uuid5(uuid.NAMESPACE_OID, str(n)))) for n in range(4000)]
    touched = Touched()
    touched.note_nodes(EVENT.label, ids)
    touched.note_edges(FOLLOWS.type, ((a, b, EVENT.label) for a, b in pairwise(ids)))
    payload = encode(touched)
    assert len(payload) <= 150 * len(ids)
    change = decode("", 7, payload)
    assert (change.number, change.nodes[EVENT.label]) == (7, tuple(ids))
    assert len(change.edges[FOLLOWS.type]) == len(ids) - 1


# -- several writers -------------------------------------------------------------------------------

WRITERS, ROUNDS, NODES_OF_ONE = 4, 25, 40


class Writer(threading.Thread):
    """Writes its own nodes again and again, each time with a node that is named after the round.

    Attributes:
        told: by round the tick before its transaction began, and the one after its commit.
    """

    def __init__(
        self, driver: neo4j.Driver, name: str, ticks: Iterator[int], partition: int | None
    ) -> None:
        super().__init__()
        self.name, self.ticks, self.partition = name, ticks, partition
        self.graph = Neo4jGraph(driver)
        self.told: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        for n in range(ROUNDS):
            begun = next(self.ticks)
            with suppress(ZeroDivisionError), self.graph.transaction() as transaction:
                if self.partition is not None:
                    transaction.lock(STAGE, self.partition)
                transaction.apply(round_of(self.name, n), STAGE)
                if n % 5 == 2:
                    raise ZeroDivisionError
            if n % 5 != 2:
                self.told[n] = begun, next(self.ticks)


def round_of(name: str, n: int) -> Operations:
    """A round's own node, and those that all rounds write, at the time of this one."""
    batch = Operations()
    batch.add(EnsureNode(EVENT.label, (name, f"round {n}")))
    batch.extend(occurred((name, f"{i}"), 1 + n) for i in range(NODES_OF_ONE))
    return batch


def rounds_told(graph: Graph, place: FeedPlace) -> dict[tuple[str, int], tuple[str, int]]:
    """By writer and round chain and number of its change; all of them, without a gap."""
    told: dict[tuple[str, int], tuple[str, int]] = {}
    numbers, newest = dict(place.numbers), graph.feed().numbers
    while place.numbers != newest:
        (change,) = (answer := graph.changes(place, 1)).changes
        place = answer.place
        assert change.number == numbers.get(change.chain, 0) + 1
        assert round_told(change) not in told, "no round is told twice"
        numbers[change.chain] = change.number
        told[round_told(change)] = change.chain, change.number
    return told


def round_told(change: Change) -> tuple[str, int]:
    (key,) = [key for key in change.nodes[EVENT.label] if key[1].startswith("round")]
    return key[0], int(key[1].split()[1])


@pytest.mark.integration
def test_several_writers_are_told_in_the_order_of_their_commits(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver
) -> None:
    neo4j_graph.ensure_checkpoints(STAGE, 2, 1)
    start = place = neo4j_graph.feed()
    ticks = count()
    partitions = [None, None, 0, 1]
    writers = [Writer(driver, f"w{n}", ticks, at) for n, at in enumerate(partitions)]
    for writer in writers:
        writer.start()
    reads, expected = 0, WRITERS * sum(n % 5 != 2 for n in range(ROUNDS))
    while any(writer.is_alive() for writer in writers) or reads < expected:
        told = neo4j_graph.changes(place)
        place = told.place
        for change in told.changes:  # what it names is there as soon as it is told
            _, n = round_told(change)
            keys = [key for key in change.nodes[EVENT.label] if key[1].isdigit()]
            found = neo4j_graph.nodes(EVENT.label, keys, ["occurred_at"])
            assert len(found) == NODES_OF_ONE
            assert min(node.values["occurred_at"] for node in found.values()) >= 1 + n
            reads += 1
    for writer in writers:
        writer.join()
    numbers = rounds_told(neo4j_graph, start)
    spans = {(w.name, n): span for w in writers for n, span in w.told.items()}
    assert numbers.keys() == spans.keys()
    assert reads == len(spans) == expected
    assert {chain for chain, _ in numbers.values()} == {"", f"{STAGE}/0", f"{STAGE}/1"}
    for one, (_, ended) in spans.items():
        for other, (begun, _) in spans.items():
            if ended < begun and numbers[one][0] == numbers[other][0]:
                assert numbers[one] < numbers[other]


@pytest.mark.integration
def test_two_chains_wait_neither_for_each_other_nor_for_the_identity(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver
) -> None:
    neo4j_graph.ensure_checkpoints(STAGE, 2, 1)
    for partition in (0, 1):
        apply(neo4j_graph, occurred(A), partition=partition)
    before = neo4j_graph.feed()
    hurried = Neo4jGraph(driver, timeout_s=2.0)
    with driver.session() as session, session.begin_transaction() as holding:
        # as a process that is stopped in that moment: it has told its change, and does not commit
        stopped = Neo4jTransaction(ClientTransaction(holding), neo4j_graph)
        stopped.lock(STAGE, 0)
        stopped.apply(round_of("stopped", 0), STAGE)
        stopped.tell()
        apply(hurried, occurred(B), partition=1)
        told = hurried.changes(before)
        assert [(one.chain, one.nodes) for one in told.changes] == [
            (f"{STAGE}/1", {EVENT.label: (B,)})
        ]
        hurried.renew_feed()
        with pytest.raises(GraphUnavailable):
            apply(hurried, occurred(B), partition=0)
        holding.rollback()
    apply(hurried, occurred(B), partition=0)
    assert neo4j_graph.feed().numbers == {
        **before.numbers,
        f"{STAGE}/0": before.numbers[f"{STAGE}/0"] + 1,
        f"{STAGE}/1": before.numbers[f"{STAGE}/1"] + 1,
    }


_KILLED = """
import sys
from neo4j import GraphDatabase
from pipelines.graph.neo4j import Neo4jGraph
from tests.contracts.test_graph_feed import STAGE, round_of
with GraphDatabase.driver(sys.argv[1], notifications_min_severity="OFF") as driver:
    graph, n = Neo4jGraph(driver), 0
    while True:
        with graph.transaction() as transaction:
            transaction.apply(round_of("killed", n), STAGE)
        print(n, flush=True)
        n += 1
"""


@pytest.mark.integration
def test_who_follows_waits_until_a_commit_is_over_and_holds_up_no_other_chain(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver
) -> None:
    neo4j_graph.ensure_checkpoints(STAGE, 2, 1)
    before = neo4j_graph.feed()
    for partition in (0, 1):
        apply(neo4j_graph, occurred(A), partition=partition)
    hurried = Neo4jGraph(driver, timeout_s=2.0)
    told: list[Changes] = []
    follower = threading.Thread(target=lambda: told.append(neo4j_graph.changes(before)))
    with driver.session() as session, session.begin_transaction() as committing:
        # as a commit whose parts show one by one: the counter is there, the lock is not given back
        lock = f"MATCH (f:{FEED_NODES[0].label} {{name: $chain}}) SET f.lock = true"
        committing.run(lock, chain=f"{STAGE}/0").consume()
        for wait in (hurried.feed, lambda: hurried.changes(before)):
            with pytest.raises(GraphUnavailable):
                wait()
        follower.start()
        for _ in range(5):
            apply(hurried, occurred(B), partition=1)
        assert told == []
        committing.rollback()
    follower.join()
    assert {one.chain for one in told[0].changes} >= {f"{STAGE}/0", f"{STAGE}/1"}


@pytest.mark.integration
@pytest.mark.parametrize("rounds", [3, 8, 13])
def test_a_killed_writer_leaves_no_gap_and_nothing_untold(
    neo4j_graph: Neo4jGraph, neo4j_url: str, driver: neo4j.Driver, rounds: int
) -> None:
    start = neo4j_graph.feed()
    writer = Writer(driver, "w", count(), None)
    writer.start()
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, neo4j_url], stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        for _ in range(rounds):
            assert killed.stdout.readline()
        killed.kill()
    writer.join()
    apply(neo4j_graph, EnsureNode(EVENT.label, ("after", "round 0")))  # the lock is free again
    told = rounds_told(neo4j_graph, start)
    written = {
        (node.key[0], int(node.key[1].split()[1]))
        for node in cast(Iterator[FoundNode], neo4j_graph.stream(EVENT.label))
        if node.key[1].startswith("round")
    }
    assert told.keys() == written
    assert len([name for name, _ in told if name == "killed"]) >= rounds


@pytest.mark.integration
def test_who_waits_too_long_for_the_counter_may_try_again(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver
) -> None:
    apply(neo4j_graph, occurred(B))
    before = neo4j_graph.feed()
    hurried = Neo4jGraph(driver, timeout_s=1.0)
    with driver.session() as session, session.begin_transaction() as holding:
        text = f"MERGE (f:{FEED_NODES[0].label} {{name: ''}}) SET f.lock = true"
        holding.run(text).consume()
        with pytest.raises(GraphUnavailable) as caught:
            apply(hurried, occurred(A))
        holding.rollback()
    assert caught.value.retryable
    assert neo4j_graph.feed() == before
    assert not neo4j_graph.nodes(EVENT.label, [A])
    apply(hurried, occurred(A))
    assert number_of(neo4j_graph) == before.numbers[""] + 1


@pytest.mark.integration
def test_a_graph_of_before_has_a_feed_as_soon_as_its_schema_is_ensured(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver
) -> None:
    labels = "|".join(row.label for row in FEED_NODES)
    place = neo4j_graph.feed()
    driver.execute_query(f"MATCH (n:{labels}) DELETE n")
    apply(neo4j_graph, occurred(A))
    for read in (neo4j_graph.feed, lambda: neo4j_graph.changes(place)):
        with pytest.raises(ChangesLost, match="no feed"):
            read()
    neo4j_graph.ensure_schema()
    begun = neo4j_graph.feed()
    assert begun.identity not in ("", place.identity)
    assert begun.numbers == {"": 1}
    neo4j_graph.ensure_schema()
    assert neo4j_graph.feed() == begun


@pytest.mark.integration
def test_a_change_that_is_missing_is_noticed(neo4j_graph: Neo4jGraph, driver: neo4j.Driver) -> None:
    start = number_of(neo4j_graph)
    for n in range(4):
        apply(neo4j_graph, occurred(("t", str(n))))
    delete = f"MATCH (c:{FEED_NODES[1].label} {{chain: '', number: $number}}) DELETE c"
    driver.execute_query(delete, number=start + 2)
    for after in (start, start + 1):
        with pytest.raises(ChangesLost):
            neo4j_graph.changes(behind(neo4j_graph, after))
    assert len(neo4j_graph.changes(behind(neo4j_graph, start + 2)).changes) == 2
    driver.execute_query(delete, number=start + 4)
    with pytest.raises(ChangesLost):
        neo4j_graph.changes(behind(neo4j_graph, start + 2))
    assert len(neo4j_graph.changes(behind(neo4j_graph, start + 2), 1).changes) == 1


@pytest.mark.integration
def test_old_changes_leave_the_graph(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, "FEED_KEPT", 3)
    count_all = f"MATCH (c:{FEED_NODES[1].label}) RETURN count(c)"
    for n in range(10):
        apply(neo4j_graph, occurred(("t", str(n))))
    assert driver.execute_query(count_all).records[0][0] == 3
    neo4j_graph.clear()
    assert driver.execute_query(count_all).records[0][0] == 0
    for n in range(10):  # also behind a hole
        apply(neo4j_graph, occurred(("t", str(n))))
    assert driver.execute_query(count_all).records[0][0] == 3
