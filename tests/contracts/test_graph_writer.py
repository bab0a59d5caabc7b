"""What the write side of a graph promises, held against the fake and a real Neo4j."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import neo4j
import pytest
from pipelines.graph.writer import GraphTransaction, GraphWriter

from pipelines.graph import cypher
from projections.errors import Fenced, GraphRejected, GraphUnavailable
from projections.events import Event
from projections.operations import (
    Checkpoint,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveEdge,
    RemoveNode,
)
from projections.positions import START, Position
from projections.schema import (
    CAUSED_BY,
    DIRECT,
    EDGES,
    ENTITY,
    EVENT,
    FOLLOWS,
    PLACEHOLDER,
    RELATES_TO,
)
from projections.structural import (
    Facts,
    Link,
    Neighbours,
    event_node,
    follows_edge,
    project,
    wanted_facts,
)
from tests.factories import START_MS, event, event_id
from tests.fakes.graph import FakeGraphWriter

STAGE = "projection"
PARTITIONS = 3
SESSION = ("default", "session-1")
Snapshot = tuple[dict[Any, dict[str, Any]], set[Any], dict[Any, list[dict[str, Any]]]]


class Store(Protocol):
    """A graph: its write side, and what a test puts there and sees of it."""

    writer: GraphWriter

    def snapshot(self) -> Snapshot:
        """Events with properties, keys of placeholders, edges with properties."""

    def set_foreign(self, key: tuple[str, str], name: str, value: Any) -> None: ...

    def forget(self, key: tuple[str, str]) -> None: ...

    def dead_letters(self) -> list[dict[str, Any]]: ...


class FakeStore:
    def __init__(self) -> None:
        self.fake = FakeGraphWriter()
        self.writer = self.fake.as_writer()

    def snapshot(self) -> Snapshot:
        graph = self.fake.graph
        return (
            {key: dict(p) for (label, key), p in graph.nodes.items() if label == EVENT.label},
            {key for _, key in graph.placeholders},
            {edge: [dict(copy) for copy in copies] for edge, copies in graph.edges.items()},
        )

    def set_foreign(self, key: tuple[str, str], name: str, value: Any) -> None:
        node = (EVENT.label, key)
        self.fake.graph.nodes[node] = {**self.fake.graph.nodes[node], name: value}

    def forget(self, key: tuple[str, str]) -> None:
        self.fake.graph.forget(key)

    def dead_letters(self) -> list[dict[str, Any]]:
        return [
            {"stage": stage, "partition": partition, "seq": seq, **fields}
            for (stage, partition, seq), fields in sorted(self.fake.graph.dead_letters.items())
        ]


class Neo4jStore:
    def __init__(self, driver: neo4j.Driver) -> None:
        self.driver = driver
        self.writer = GraphWriter(driver)
        self.writer.ensure_schema()

    def run(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        with self.driver.session() as session:
            return list(session.run(text, parameters))

    def snapshot(self) -> Snapshot:
        nodes, placeholders = {}, set()
        for key, labels, properties in self.run(
            "MATCH (e:Event) RETURN [e.tenant, e.event_id], labels(e), properties(e)"
        ):
            nodes[tuple(key)] = {name: _plain(value) for name, value in properties.items()}
            if PLACEHOLDER in labels:
                placeholders.add(tuple(key))
        edges: dict[Any, list[dict[str, Any]]] = {}
        for type_, source, target, properties in self.run(
            "MATCH (a:Event)-[r]->(b:Event) RETURN type(r), [a.tenant, a.event_id], "
            "[b.tenant, b.event_id], properties(r)"
        ):
            edges.setdefault((type_, tuple(source), tuple(target)), []).append(properties)
        return nodes, placeholders, edges

    def set_foreign(self, key: tuple[str, str], name: str, value: Any) -> None:
        self.run(
            "MATCH (e:Event {tenant: $key[0], event_id: $key[1]}) SET e += $properties",
            key=key,
            properties={name: value},
        )

    def forget(self, key: tuple[str, str]) -> None:
        self.run("CREATE (:Forgotten {tenant: $key[0], event_id: $key[1]})", key=key)
        self.run("MATCH (e:Event {tenant: $key[0], event_id: $key[1]}) DETACH DELETE e", key=key)

    def dead_letters(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.run(cypher.READ_DEAD_LETTERS, stage=None, partition=None)]


def _plain(value: Any) -> Any:
    if isinstance(value, neo4j.time.DateTime):
        return round(value.to_native().timestamp() * 1000)
    return value


@pytest.fixture
def driver(neo4j_url: str) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        yield driver


@pytest.fixture(params=["fake", pytest.param("neo4j", marks=pytest.mark.integration)])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "fake":
        made: Store = FakeStore()
    else:
        made = Neo4jStore(request.getfixturevalue("driver"))
    made.writer.ensure_checkpoints(STAGE, PARTITIONS, 1)
    return made


def applied(store: Store, *operations: Operation) -> Snapshot:
    batch = Operations()
    batch.extend(operations)
    with store.writer.transaction() as transaction:
        transaction.apply(batch, STAGE)
    return store.snapshot()


def fold(store: Store, *events: Event) -> None:
    """What the runner does with a block, without a checkpoint."""
    with store.writer.transaction() as transaction:
        transaction.lock(STAGE, 0)
        facts = transaction.facts(events, wanted_facts(events))
        transaction.apply(project([(Position(9, 0), e) for e in events], facts), STAGE)


def facts_about(store: Store, *events: Event) -> Facts:
    with store.writer.transaction() as transaction:
        transaction.lock(STAGE, 0)
        return transaction.facts(events, wanted_facts(events))


def at(seq: int, **fields: Any) -> Checkpoint:
    made = (
        Checkpoint(STAGE, 1, Position(seq, 0), seq, f"{seq:032x}") if seq else Checkpoint(STAGE, 1)
    )
    return replace(made, **fields)


def checkpoint(store: Store) -> Checkpoint:
    return store.writer.checkpoints(STAGE)[1]


def follows(a: int, b: int, delta_ms: int = 1) -> MergeEdge:
    return follows_edge(
        ("default", "session-1"), Link(0, event(a).event_id), Link(delta_ms, event(b).event_id)
    )


def caused(effect: int, cause: int) -> MergeEdge:
    return MergeEdge(
        type=CAUSED_BY.type,
        source=event(effect).key,
        target=event(cause).key,
        values={"mechanism": DIRECT},
    )


def node(number: int, **fields: Any) -> MergeNode:
    return event_node(event(number, **fields), Position(7, number))


# -- checkpoints -----------------------------------------------------------------------------------


def test_checkpoints_start_before_the_first_entry(store: Store) -> None:
    store.writer.ensure_checkpoints("another", 1, 3)
    assert store.writer.checkpoints(STAGE) == [Checkpoint(STAGE, n) for n in range(PARTITIONS)]
    assert store.writer.checkpoints("another") == [Checkpoint("another", 0, fold_version=3)]
    assert len(store.writer.checkpoints()) == PARTITIONS + 1


def test_missing_checkpoints_are_made_and_the_others_stay(store: Store) -> None:
    with store.writer.transaction() as transaction:
        transaction.advance(at(0), at(4))
    store.writer.ensure_checkpoints(STAGE, PARTITIONS + 1, 2)
    found = store.writer.checkpoints(STAGE)
    assert found[1] == at(4)
    assert found[PARTITIONS] == Checkpoint(STAGE, PARTITIONS, fold_version=2)


def test_a_checkpoint_moves_with_the_commit(store: Store) -> None:
    with store.writer.transaction() as transaction:
        transaction.advance(at(0), at(5))
    assert checkpoint(store) == at(5)
    assert store.writer.checkpoints(STAGE)[0] == Checkpoint(STAGE, 0)


@pytest.mark.parametrize(
    "start",
    [at(0), at(4), at(5, generation=2), at(5, fold_version=2), at(5, partition=7), at(6)],
    ids=["behind", "before", "generation", "fold version", "no such partition", "ahead"],
)
def test_a_checkpoint_elsewhere_fences(store: Store, start: Checkpoint) -> None:
    with store.writer.transaction() as transaction:
        transaction.advance(at(0), at(5))
    before = store.snapshot()
    batch = Operations()
    batch.add(node(1))

    def write() -> None:
        with store.writer.transaction() as transaction:
            transaction.advance(start, at(9))
            transaction.apply(batch, STAGE)

    with pytest.raises(Fenced) as caught:
        write()
    assert caught.value.position == str(start.position)
    assert checkpoint(store) == at(5)
    assert store.snapshot() == before


def test_an_error_in_the_body_rolls_all_back(store: Store) -> None:
    batch = Operations()
    batch.add(node(1))

    def fail() -> None:
        with store.writer.transaction() as transaction:
            transaction.advance(at(0), at(5))
            transaction.apply(batch, STAGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert checkpoint(store) == at(0)
    assert store.snapshot()[0] == {}


def test_lock_reads_and_leaves_the_checkpoint(store: Store) -> None:
    with store.writer.transaction() as transaction:
        transaction.advance(at(0), at(5))
    with store.writer.transaction() as transaction:
        assert transaction.lock(STAGE, 1) == at(5)
        assert transaction.lock(STAGE, 99) is None
    assert checkpoint(store) == at(5)


def test_reset_begins_a_generation_and_fences_those_before_it(store: Store) -> None:
    with store.writer.transaction() as transaction:
        transaction.advance(at(0), at(5))
    with store.writer.transaction() as transaction:
        transaction.lock(STAGE, 1)
        assert transaction.reset(at(5, fold_version=2)) == 2
    assert checkpoint(store) == at(5, generation=2, fold_version=2)
    with pytest.raises(Fenced), store.writer.transaction() as transaction:
        transaction.advance(at(5), at(6))
    with store.writer.transaction() as transaction:
        transaction.advance(
            at(5, generation=2, fold_version=2), at(6, generation=2, fold_version=2)
        )
    assert checkpoint(store) == at(6, generation=2, fold_version=2)


def test_start_is_a_position_like_others() -> None:
    assert at(0).position == START


# -- operations ------------------------------------------------------------------------------------


def test_a_node_carries_what_its_stage_owns(store: Store) -> None:
    made = event(1, tool_name="search", status="failed", ended_at_ms=START_MS + 2, user_id="u")
    nodes, placeholders, edges = applied(store, event_node(made, Position(7, 3)))
    assert nodes == {
        made.key: {
            "tenant": "default",
            "event_id": event_id(1),
            "event_type": "agent.message.sent",
            "occurred_at": START_MS + 1,
            "session_id": "session-1",
            "agent_id": "agent-1",
            "trace_id": "trace-1",
            "tool_name": "search",
            "status": "failed",
            "ended_at": START_MS + 2,
            "user_id": "u",
            "schema_version": 1,
            "global_position": "7-3",
        }
    }
    assert not placeholders
    assert not edges


def test_none_removes_a_property_and_foreign_ones_stay(store: Store) -> None:
    applied(store, node(1, tool_name="search"))
    store.set_foreign(event(1).key, "importance_score", 8)
    nodes, _, _ = applied(store, node(1))
    assert "tool_name" not in nodes[event(1).key]
    assert nodes[event(1).key]["importance_score"] == 8


@pytest.mark.parametrize("far", [-62_135_596_800_000, 253_402_300_799_999, -1, 0])
def test_times_are_kept_to_the_millisecond(store: Store, far: int) -> None:
    nodes, _, _ = applied(store, node(1, occurred_at_ms=far))
    if isinstance(store, FakeStore):
        assert nodes[event(1).key]["occurred_at"] == far
    else:
        assert isinstance(store, Neo4jStore)
        ((found,),) = store.run("MATCH (e:Event) RETURN e.occurred_at.epochMillis")
        assert found == far


def test_a_placeholder_is_its_key_and_its_label(store: Store) -> None:
    key = event(1).key
    nodes, placeholders, _ = applied(store, EnsureNode(EVENT.label, key))
    assert nodes == {key: {"tenant": "default", "event_id": event_id(1)}}
    assert placeholders == {key}


def test_a_placeholder_becomes_an_event_and_keeps_its_edges(store: Store) -> None:
    applied(store, node(2), EnsureNode(EVENT.label, event(1).key), caused(2, 1))
    nodes, placeholders, edges = applied(store, node(1))
    assert not placeholders
    assert nodes[event(1).key]["occurred_at"] == START_MS + 1
    assert edges == {(CAUSED_BY.type, event(2).key, event(1).key): [{"mechanism": DIRECT}]}


def test_an_event_never_becomes_a_placeholder(store: Store) -> None:
    before = applied(store, node(1))
    assert applied(store, EnsureNode(EVENT.label, event(1).key)) == before
    both = (EnsureNode(EVENT.label, event(2).key), node(2))
    assert applied(store, *both)[1] == set()
    assert applied(store, *reversed(both))[1] == set()


def test_an_edge_is_one_and_takes_the_last_values(store: Store) -> None:
    applied(store, node(1), node(2), follows(1, 2, 5))
    _, _, edges = applied(store, follows(1, 2, 7))
    place = (FOLLOWS.type, event(1).key, event(2).key)
    assert edges == {place: [{"session_id": "session-1", "delta_ms": 7}]}


def test_edges_of_both_types_and_directions_stand_beside_each_other(store: Store) -> None:
    _, _, edges = applied(
        store, node(1), node(2), follows(1, 2), follows(2, 1), caused(1, 2), caused(2, 1)
    )
    assert len(edges) == 4


def test_an_edge_without_its_ends_is_not_made(store: Store) -> None:
    nodes, _, edges = applied(store, node(1), follows(1, 2), caused(3, 1))
    assert len(nodes) == 1
    assert not edges


def test_edges_are_removed_by_type_before_new_ones_come(store: Store) -> None:
    applied(store, node(1), node(2), node(3), follows(1, 3), caused(3, 1))
    removed = RemoveEdge(type=FOLLOWS.type, source=event(1).key, target=event(3).key)
    _, _, edges = applied(store, follows(1, 2), follows(2, 3), removed)
    assert set(edges) == {
        (FOLLOWS.type, event(1).key, event(2).key),
        (FOLLOWS.type, event(2).key, event(3).key),
        (CAUSED_BY.type, event(3).key, event(1).key),
    }
    assert applied(store, removed)[2] == edges


def test_a_node_goes_with_its_edges(store: Store) -> None:
    applied(store, node(1), node(2), node(3), follows(1, 2), follows(2, 3), caused(3, 2))
    nodes, _, edges = applied(store, RemoveNode(EVENT.label, event(2).key))
    assert set(nodes) == {event(1).key, event(3).key}
    assert not edges


def test_applying_twice_changes_nothing(store: Store) -> None:
    operations: Sequence[Operation] = (
        node(1),
        node(2, tool_name="x"),
        EnsureNode(EVENT.label, event(3).key),
        follows(1, 2),
        caused(2, 3),
        RemoveEdge(type=FOLLOWS.type, source=event(2).key, target=event(1).key),
    )
    assert applied(store, *operations) == applied(store, *operations)


def test_a_batch_of_nothing_is_nothing(store: Store) -> None:
    assert applied(store) == ({}, set(), {})


# -- facts -----------------------------------------------------------------------------------------


def link(number: int) -> Link:
    made = event(number)
    return Link(made.occurred_at_ms, made.event_id)


def neighbours(*numbers: int | None, present: bool = False) -> Neighbours:
    before, after = (None if n is None else link(n) for n in numbers)
    return Neighbours(before, after, present)


def test_an_empty_graph_knows_nobody(store: Store) -> None:
    found = facts_about(store, event(1), event(2))
    assert found.neighbours == {
        (SESSION, link(1)): neighbours(None, None),
        (SESSION, link(2)): neighbours(None, None),
    }
    assert not found.tombstones


def test_new_events_stand_behind_the_last(store: Store) -> None:
    fold(store, event(1), event(2), event(3, session_id="other"), event(4, tenant="acme"))
    found = facts_about(store, event(5), event(6))
    assert found.neighbours == {
        (SESSION, link(5)): neighbours(2, None),
        (SESSION, link(6)): neighbours(2, None),
    }


@pytest.mark.parametrize("late", [(1, 6, 10), (1, 3, 4, 6, 10), (3, 5, 7, 9)])
def test_late_events_stand_between(store: Store, late: Sequence[int]) -> None:
    """Few of them are looked up one by one, more are found in the stretch that they span."""
    fold(store, *(event(n) for n in (2, 5, 8)))
    around = {
        1: neighbours(None, 2),
        3: neighbours(2, 5),
        4: neighbours(2, 5),
        5: neighbours(2, 8, present=True),
        6: neighbours(5, 8),
        7: neighbours(5, 8),
        9: neighbours(8, None),
        10: neighbours(8, None),
    }
    found = facts_about(store, *(event(n) for n in late))
    assert found.neighbours == {(SESSION, link(n)): around[n] for n in late}


@pytest.mark.parametrize("late", [(1, 2), (1, 2, 3, 4, 5, 7)])
def test_of_equal_times_the_id_decides(store: Store, late: Sequence[int]) -> None:
    fold(store, *(event(n, at=0) for n in (2, 4, 6)))
    found = facts_about(store, *(event(n, at=0) for n in late))

    def tied(number: int | None) -> Link | None:
        return None if number is None else Link(START_MS, event_id(number))

    around = {1: (None, 2), 2: (None, 4), 3: (2, 4), 4: (2, 6), 5: (4, 6), 7: (6, None)}
    assert found.neighbours == {
        (SESSION, Link(START_MS, event_id(n))): Neighbours(
            tied(around[n][0]), tied(around[n][1]), n in (2, 4)
        )
        for n in late
    }


@pytest.mark.parametrize("held", [30, 40, 45])
def test_a_wide_stretch_is_not_read(
    store: Store, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around the limit of 8 times 4 it makes no difference which way the neighbours are found."""
    fold(store, *(event(n, at=10 * n) for n in range(1, held + 1)))
    late = [event(1_000 + n, at=10 * n + 5) for n in (1, 2, 10, held - 1)]
    searches = count_searches(store, monkeypatch)
    found = facts_about(store, *late)
    assert {
        (known.before and known.before.event_id, known.after and known.after.event_id)
        for known in found.neighbours.values()
    } == {(event_id(n), event_id(n + 1)) for n in (1, 2, 10, held - 1)}
    if isinstance(store, Neo4jStore):
        assert searches == ([cypher.WINDOWS] if held == 30 else [cypher.WINDOWS, cypher.NEIGHBOURS])


def count_searches(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the two searches for late neighbours are made from now on."""
    made: list[str] = []
    if isinstance(store, FakeStore):
        return made
    init = GraphTransaction.__init__

    def listening(self: GraphTransaction, transaction: neo4j.Transaction) -> None:
        init(self, transaction)

        def run(text: Any, *args: Any, **kwargs: Any) -> neo4j.Result:
            if text in (cypher.WINDOWS, cypher.NEIGHBOURS):
                made.append(text)
            return transaction.run(text, *args, **kwargs)

        monkeypatch.setattr(self, "_run", run)

    monkeypatch.setattr(graph_writer.GraphTransaction, "__init__", listening)
    return made


def test_sessions_and_tenants_do_not_see_each_other(store: Store) -> None:
    fold(store, event(1), event(9, session_id="other"), event(9, tenant="acme"))
    found = facts_about(
        store, *(event(n, session_id="other") for n in (1, 2, 3, 4)), event(5, tenant="acme")
    )
    for (session, _), known in found.neighbours.items():
        assert known.before is None
        assert known.after == link(9)
        assert session in {("default", "other"), ("acme", "session-1")}


def test_placeholders_are_nobodys_neighbours(store: Store) -> None:
    fold(store, event(5, parent=3))
    assert facts_about(store, event(1)).neighbours == {(SESSION, link(1)): neighbours(None, 5)}


def test_tombstones_are_told_of_those_asked_for(store: Store) -> None:
    store.forget(event(1).key)
    store.forget(event(2).key)
    found = facts_about(store, event(1), event(3), event(2, tenant="acme"))
    assert found.tombstones == {event(1).key}


# -- dead letters ----------------------------------------------------------------------------------


def add_dead_letters(store: Store, *seqs: int, partition: int = 1) -> None:
    with store.writer.transaction() as transaction:
        for seq in seqs:
            transaction.add_dead_letter(
                *(STAGE, partition, seq),
                position=f"{seq}-0",
                tenant=None,
                event_id=None,
                kind="poison",
                reason="because",
                attempts=5,
            )


def dead_seqs(store: Store, partition: int = 1) -> set[int]:
    with store.writer.transaction() as transaction:
        transaction.lock(STAGE, partition)
        return transaction.dead_letter_seqs(STAGE, partition)


def test_dead_letters_are_kept_by_partition(store: Store) -> None:
    add_dead_letters(store, 3, 5)
    add_dead_letters(store, 3, 4, partition=2)
    assert (dead_seqs(store), dead_seqs(store, 2), dead_seqs(store, 0)) == ({3, 5}, {3, 4}, set())
    first = store.dead_letters()[0]
    assert (first["seq"], first["position"], first["kind"]) == (3, "3-0", "poison")
    assert (first["reason"], first["attempts"], first["event_id"]) == ("because", 5, None)


def test_dead_letters_go_one_by_one_or_behind_a_number(store: Store) -> None:
    add_dead_letters(store, 3, 5, 7, 9)
    add_dead_letters(store, 7, partition=2)
    with store.writer.transaction() as transaction:
        transaction.lock(STAGE, 1)
        transaction.drop_dead_letters(STAGE, 1, [3, 4])
        transaction.drop_later_dead_letters(STAGE, 1, 5)
    assert (dead_seqs(store), dead_seqs(store, 2)) == ({5}, {7})


def test_clear_takes_everything_of_ours(store: Store) -> None:
    fold(store, event(1), event(2, parent=3))
    store.forget(event(8).key)
    add_dead_letters(store, 1)
    store.writer.clear()
    assert store.snapshot() == ({}, set(), {})
    assert store.writer.checkpoints() == []
    assert store.dead_letters() == []


# -- the real one ----------------------------------------------------------------------------------


@pytest.mark.integration
def test_clear_leaves_the_nodes_of_others(driver: neo4j.Driver) -> None:
    store = Neo4jStore(driver)
    store.run("CREATE (:Person {name: 'Ada'})-[:KNOWS]->(:Person {name: 'Bob'})")
    fold(store, event(1))
    store.writer.clear()
    assert [tuple(row) for row in store.run("MATCH (n) RETURN n.name ORDER BY n.name")] == [
        ("Ada",),
        ("Bob",),
    ]


@pytest.mark.integration
def test_what_the_database_refuses_and_what_is_away_are_two_errors(driver: neo4j.Driver) -> None:
    store = Neo4jStore(driver)
    with pytest.raises(GraphRejected), store.writer.transaction() as transaction:
        transaction.ask("RETURN {a: 1} / 0", {})
    with (
        neo4j.GraphDatabase.driver("bolt://127.0.0.1:1", connection_timeout=1) as away,
        pytest.raises(GraphUnavailable) as caught,
    ):
        GraphWriter(away).checkpoints()
    assert caught.value.retryable


@pytest.mark.integration
def test_an_impatient_database_is_away(driver: neo4j.Driver) -> None:
    writer = GraphWriter(driver, timeout_s=0.05)
    with pytest.raises(GraphUnavailable), writer.transaction() as transaction:
        transaction._run("UNWIND range(1, 100000000) AS x RETURN count(x)").consume()


TEXTS = {
    "advance": cypher.ADVANCE,
    "lock": cypher.LOCK,
    "session tails": cypher.SESSION_TAILS,
    "neighbours": cypher.NEIGHBOURS,
    "windows": cypher.WINDOWS,
    "tombstones": cypher.TOMBSTONES,
    "stream events": cypher.STREAM_EVENTS,
    "read sessions": cypher.READ_SESSIONS,
    "read events": cypher.READ_EVENTS,
    "remove nodes": cypher.remove_nodes_text(EVENT.label),
    "merge nodes": cypher.merge_nodes_text(EVENT.label, STAGE, with_placeholders=False),
    "merge placeholders": cypher.merge_nodes_text(EVENT.label, STAGE, with_placeholders=True),
    **{
        f"{text.__name__} {row.type} {stage}": text(row.type, stage)
        for row in EDGES.values()
        for stage in (STAGE, "enrichment")
        if row.written_by(stage)
        for text in (cypher.merge_edges_text, cypher.remove_edges_text, cypher.clear_edges_text)
    },
    "remove one of several": cypher.remove_edges_text(RELATES_TO.type, "enrichment", keyed=True),
    "set nodes": cypher.set_nodes_text(EVENT.label, "enrichment"),
    "merge entities": cypher.merge_nodes_text(ENTITY.label, "enrichment", with_placeholders=True),
    "decide": cypher.decide_nodes_text(ENTITY.label, "display_name"),
}
PARAMETERS = {
    "sessions": [["t", "s"]],
    "links": [["t", "s", 0, "e"]],
    "windows": [["t", "s", 0, 1]],
    "keys": [["t", "e"]],
    "limit": 10,
    "rows": [],
    **dict.fromkeys(("stage", "position", "to_position", "to_digest"), ""),
    **dict.fromkeys(("partition", "generation", "fold_version", "to_seq"), 0),
}
BY_CHAIN = {"session tails", "neighbours", "windows", "stream events", "read sessions"}


@pytest.fixture(params=["empty", "filled"])
def planned(request: pytest.FixtureRequest, driver: neo4j.Driver) -> Neo4jStore:
    """Plans are made on an empty graph and kept while it grows, or made anew on a full one."""
    store = Neo4jStore(driver)
    store.writer.ensure_checkpoints(STAGE, PARTITIONS, 1)
    if request.param == "filled":
        fold(store, *(event(n, session_id=f"s-{n % 5}") for n in range(1, 300)))
        store.run("CALL db.resampleOutdatedIndexes()")
    store.run("CALL db.clearQueryCaches()")
    return store


@pytest.mark.integration
@pytest.mark.parametrize("name", TEXTS)
def test_every_statement_finds_its_rows_by_an_index(planned: Neo4jStore, name: str) -> None:
    with planned.driver.session() as session:
        plan = session.run(f"EXPLAIN {TEXTS[name]}", PARAMETERS).consume().plan
    assert plan is not None
    operators = list(walk(plan))
    kinds = {kind for kind, _ in operators}
    assert not kinds & {"AllNodesScan", "NodeByLabelScan", "PartitionedAllNodesScan"}, kinds
    assert not {kind for kind in kinds if "RelationshipTypeScan" in kind}
    if name in BY_CHAIN:
        chain = ", ".join(EVENT.indexes[0])
        searched = [details for kind, details in operators if "Index" in kind and chain in details]
        assert searched
        assert not kinds & {"Sort", "PartialSort", "Top", "PartialTop"}, kinds


def walk(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield plan["operatorType"].split("@")[0], plan.get("args", {}).get("Details", "")
    for child in plan.get("children", ()):
        yield from walk(child)
