"""What every store behind the port promises about writing: the fence, merging, dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from projections.errors import Fenced, InvalidOperation
from projections.identity import START, Link, Position
from projections.operations import (
    Checkpoint,
    ClearEdges,
    DecideNode,
    EnsureNode,
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
    COMMUNITY,
    DIRECT,
    EDGES,
    ENTITY,
    EVENT,
    FOLLOWS,
    FORGOTTEN,
    INFERRED,
    MEMBER_OF,
    NODES,
    RELATES_TO,
    SAME_AS,
    SUMMARIZES,
    SUMMARY,
    TENANT_TERM,
    tenant_term,
)
from projections.structural import event_node, follows_edge
from tests.factories import START_MS, event, event_id
from tests.graph_dump import Dump, dump

STAGE = "projection"
PARTITIONS = 3
ANN, BOB = ("t", "ann"), ("t", "bob")


def written(graph: Graph, *operations: Operation, stage: str = STAGE) -> Dump:
    """The graph after a batch."""
    batch = Operations()
    batch.extend(operations)
    with graph.transaction() as transaction:
        transaction.apply(batch, stage)
    return dump(graph)


def at(seq: int, **fields: Any) -> Checkpoint:
    made = (
        Checkpoint(STAGE, 1, Position(seq, 0), seq, f"{seq:032x}") if seq else Checkpoint(STAGE, 1)
    )
    return replace(made, **fields)


def checkpoint(graph: Graph) -> Checkpoint:
    return graph.checkpoints(STAGE)[1]


def node(number: int, **fields: Any) -> MergeNode:
    return event_node(event(number, **fields), Position(7, number))


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


def values_of(graph: Graph, label: str, key: tuple[Any, ...]) -> dict[str, Any]:
    return dump(graph).nodes[label, key][1]


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.fixture
def started(graph: Graph) -> Graph:
    graph.ensure_checkpoints(STAGE, PARTITIONS, 1)
    return graph


def test_checkpoints_start_before_the_first_entry(started: Graph) -> None:
    started.ensure_checkpoints("another", 1, 3, "model@1")
    assert started.checkpoints(STAGE) == [Checkpoint(STAGE, n) for n in range(PARTITIONS)]
    assert started.checkpoints("another") == [
        Checkpoint("another", 0, fold_version=3, models="model@1")
    ]
    assert len(started.checkpoints()) == PARTITIONS + 1


def test_nobody_waits_for_what_nobody_moves(started: Graph) -> None:
    before = started.checkpoints()
    started.settle(STAGE, range(PARTITIONS + 1))
    started.settle("another", [0])
    assert started.checkpoints() == before


def test_missing_checkpoints_are_made_and_the_others_stay(started: Graph) -> None:
    with started.transaction() as transaction:
        transaction.advance(at(0), at(4))
    started.ensure_checkpoints(STAGE, PARTITIONS + 1, 2)
    found = started.checkpoints(STAGE)
    assert found[1] == at(4)
    assert found[PARTITIONS] == Checkpoint(STAGE, PARTITIONS, fold_version=2)


def test_a_checkpoint_moves_with_the_commit(started: Graph) -> None:
    with started.transaction() as transaction:
        before = transaction.advanced
        transaction.advance(at(0), at(5))
        assert (before, transaction.advanced) == (False, True)
    assert checkpoint(started) == at(5)
    assert started.checkpoints(STAGE)[0] == Checkpoint(STAGE, 0)


@pytest.mark.parametrize(
    "start",
    [at(0), at(4), at(5, generation=2), at(5, fold_version=2), at(5, partition=7), at(6)],
    ids=["behind", "before", "generation", "fold version", "no such partition", "ahead"],
)
def test_a_checkpoint_elsewhere_fences(started: Graph, start: Checkpoint) -> None:
    with started.transaction() as transaction:
        transaction.advance(at(0), at(5))
    before = dump(started)
    batch = Operations()
    batch.add(node(1))

    def write() -> None:
        with started.transaction() as transaction:
            transaction.advance(start, at(9))
            transaction.apply(batch, STAGE)

    with pytest.raises(Fenced) as caught:
        write()
    assert caught.value.position == str(start.position)
    assert checkpoint(started) == at(5)
    assert dump(started) == before


def test_an_error_in_the_body_rolls_all_back(started: Graph) -> None:
    written(started, node(1), node(2), follows(1, 2))
    before = dump(started)
    batch = Operations()
    batch.extend([RemoveNode(EVENT.label, event(1).key), node(3), follows(2, 3), node(2, at=90)])

    def fail() -> None:
        with started.transaction() as transaction:
            transaction.advance(at(0), at(5))
            transaction.apply(batch, STAGE)
            transaction.add_dead_letter(STAGE, 1, 3, kind="poison", **_LETTER)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert checkpoint(started) == at(0)
    assert dump(started) == before
    assert started.dead_letters() == []


def test_lock_reads_and_leaves_the_checkpoint(started: Graph) -> None:
    with started.transaction() as transaction:
        transaction.advance(at(0), at(5))
    with started.transaction() as transaction:
        assert transaction.lock(STAGE, 1) == at(5)
        assert transaction.lock(STAGE, 99) is None
        assert not transaction.advanced
    assert checkpoint(started) == at(5)


def test_reset_begins_a_generation_and_fences_those_before_it(started: Graph) -> None:
    with started.transaction() as transaction:
        transaction.advance(at(0), at(5))
    with started.transaction() as transaction:
        transaction.lock(STAGE, 1)
        assert transaction.reset(at(5, fold_version=2, models="m")) == 2
    assert checkpoint(started) == at(5, generation=2, fold_version=2, models="m")
    with pytest.raises(Fenced), started.transaction() as transaction:
        transaction.advance(at(5), at(6))
    later: dict[str, Any] = {"generation": 2, "fold_version": 2, "models": "m"}
    with started.transaction() as transaction:
        transaction.advance(at(5, **later), at(6, **later))
    assert checkpoint(started) == at(6, **later)


def test_start_is_a_position_like_others() -> None:
    assert at(0).position == START


# -- nodes -----------------------------------------------------------------------------------------


def test_a_node_carries_what_its_stage_owns(graph: Graph) -> None:
    made = event(1, tool_name="search", status="failed", ended_at_ms=START_MS + 2, user_id="u")
    nodes, edges = written(graph, event_node(made, Position(7, 3)))
    assert nodes == {
        (EVENT.label, made.key): (
            True,
            {
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
            },
        )
    }
    assert not edges


def test_none_removes_a_property_and_those_of_other_stages_stay(graph: Graph) -> None:
    written(graph, node(1, tool_name="search"))
    written(graph, enriched(event(1).key), stage="enrichment")
    written(graph, node(1))
    values = values_of(graph, EVENT.label, event(1).key)
    assert "tool_name" not in values
    assert (values["importance_score"], values["keywords"]) == (5, ("word",))


@pytest.mark.parametrize("far", [-62_135_596_800_000, 253_402_300_799_999, -1, 0])
def test_times_are_kept_to_the_millisecond(graph: Graph, far: int) -> None:
    written(graph, node(1, occurred_at_ms=far))
    assert values_of(graph, EVENT.label, event(1).key)["occurred_at"] == far


def test_a_placeholder_is_its_key_and_is_not_visible(graph: Graph) -> None:
    key = event(1).key
    nodes, _ = written(graph, EnsureNode(EVENT.label, key))
    assert nodes == {(EVENT.label, key): (False, {"tenant": "default", "event_id": event_id(1)})}
    assert graph.nodes(EVENT.label, [key])[key].bare


def test_a_placeholder_becomes_an_event_and_keeps_its_edges(graph: Graph) -> None:
    written(graph, node(2), EnsureNode(EVENT.label, event(1).key), caused(2, 1))
    nodes, edges = written(graph, node(1))
    assert all(visible for visible, _ in nodes.values())
    assert nodes[EVENT.label, event(1).key][1]["occurred_at"] == START_MS + 1
    place = (CAUSED_BY.type, event(2).key, event(1).key, EVENT.label)
    assert edges == {place: [{"mechanism": DIRECT}]}


def test_an_event_never_becomes_a_placeholder(graph: Graph) -> None:
    before = written(graph, node(1))
    assert written(graph, EnsureNode(EVENT.label, event(1).key)) == before
    both = (EnsureNode(EVENT.label, event(2).key), node(2))
    for operations in (both, tuple(reversed(both))):
        nodes, _ = written(graph, *operations)
        assert all(visible for visible, _ in nodes.values())


def test_a_node_goes_with_its_edges(graph: Graph) -> None:
    written(graph, node(1), node(2), node(3), follows(1, 2), follows(2, 3), caused(3, 2))
    nodes, edges = written(graph, RemoveNode(EVENT.label, event(2).key))
    assert {key for _, key in nodes} == {event(1).key, event(3).key}
    assert not edges


def enriched(key: tuple[str, str], **fields: Any) -> SetNode:
    nothing = dict.fromkeys(p.name for p in EVENT.owned("enrichment"))
    shown = {"text": "text", "keywords": ["word"], "importance_score": 5}
    values = {**nothing, **shown, **fields}
    return SetNode(label=EVENT.label, key=key, values=values)


def test_set_makes_no_event_visible_or_new(graph: Graph) -> None:
    hidden = ("t", "hidden")
    before = written(graph, EnsureNode(EVENT.label, hidden))
    operations = (enriched(hidden), enriched(("t", "none")))
    assert written(graph, *operations, stage="enrichment") == before


def test_a_tenants_term_comes_with_what_is_searched(graph: Graph) -> None:
    made = node(1, tenant="a-b")
    key = ("a-b", event_id(1))
    written(graph, made, EnsureNode(EVENT.label, ("a-b", "other")))
    assert TENANT_TERM not in values_of(graph, EVENT.label, key)
    written(graph, enriched(key, text=None), stage="enrichment")
    assert values_of(graph, EVENT.label, key)[TENANT_TERM] == tenant_term("a-b")
    assert TENANT_TERM not in values_of(graph, EVENT.label, ("a-b", "other"))


# -- nodes that several write ----------------------------------------------------------------------


def met(
    name: str, first_ms: int, first_id: str, last_ms: int, vector: list[float] | None = None
) -> MergeNode:
    return MergeNode(
        label=ENTITY.label,
        key=ANN,
        values={
            "canonical_name": "ann",
            "entity_type": "concept",
            "name": name,
            "subtype": None,
            "first_seen": first_ms,
            "first_event_id": first_id,
            "first_user_id": f"user-{first_id}",
            "last_seen": last_ms,
            "embedding": vector,
        },
    )


def called(name: str | None, position: Position) -> DecideNode:
    return DecideNode(
        label=ENTITY.label, key=ANN, name="display_name", value=name, position=position
    )


MENTIONS = [met("Ann", 20, "b", 20), met("ANN", 10, "z", 30), met("ann", 10, "c", 10)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_an_entity_keeps_its_earliest_name_whatever_the_order(
    graph: Graph, order: tuple[int, ...]
) -> None:
    for n in order:
        written(graph, MENTIONS[n], stage="enrichment")
    found = values_of(graph, ENTITY.label, ANN)
    first = (found["name"], found["first_event_id"], found["first_user_id"])
    assert first == ("ann", "c", "user-c")
    assert (found["first_seen"], found["last_seen"]) == (10, 30)


def test_the_first_vector_stays(graph: Graph) -> None:
    written(graph, met("Ann", 20, "b", 20), stage="enrichment")
    assert "embedding" not in values_of(graph, ENTITY.label, ANN)
    written(graph, met("Ann", 30, "d", 30, [1.0, 0.0]), stage="enrichment")
    written(graph, met("Ann", 10, "a", 10, [0.0, 1.0]), stage="enrichment")
    assert values_of(graph, ENTITY.label, ANN)["embedding"] == (1.0, 0.0)


def test_what_was_decided_of_an_entity_that_was_not_met_yet_waits_for_it(graph: Graph) -> None:
    nodes, _ = written(graph, called("Ann B.", Position(5, 1)), stage="enrichment")
    visible, values = nodes[ENTITY.label, ANN]
    assert not visible
    assert (values["display_name"], values["display_name_decided_at"]) == ("Ann B.", (5, 1))
    assert not graph.nodes(ENTITY.label, [ANN])[ANN].bare
    visible, values = written(graph, met("Ann", 20, "b", 20), stage="enrichment").nodes[
        ENTITY.label, ANN
    ]
    assert visible
    assert (values["display_name"], values["name"]) == ("Ann B.", "Ann")


def test_of_two_decisions_the_later_position_stays(graph: Graph) -> None:
    later, earlier = called("later", Position(5, 2)), called("earlier", Position(5, 1))
    for operations in ((later, earlier), (later,), (earlier,)):
        written(graph, *operations, stage="enrichment")
        assert values_of(graph, ENTITY.label, ANN)["display_name"] == "later"
    written(graph, called(None, Position(6, 0)), called("late", Position(5, 9)), stage="enrichment")
    values = values_of(graph, ENTITY.label, ANN)
    assert "display_name" not in values
    assert values["display_name_decided_at"] == (6, 0)


def test_kept_values_come_once(graph: Graph) -> None:
    def tombstone(session_id: str | None, importance: int | None) -> MergeNode:
        values = {
            "session_id": session_id,
            "user_id": session_id and "ann",
            "occurred_at": 7,
            "importance_score": importance,
            "summary_id": None,
            "vector": None,
        }
        return MergeNode(label=FORGOTTEN.label, key=("t", "e"), values=values)

    for made in (tombstone(None, 3), tombstone("s", 9), tombstone("other", None)):
        written(graph, made, stage="consolidation")
    values = values_of(graph, FORGOTTEN.label, ("t", "e"))
    assert (values["session_id"], values["user_id"]) == ("s", "ann")
    assert values["importance_score"] == 3


# -- edges -----------------------------------------------------------------------------------------


def test_an_edge_is_one_and_takes_the_last_values(graph: Graph) -> None:
    written(graph, node(1), node(2), follows(1, 2, 5))
    _, edges = written(graph, follows(1, 2, 7))
    place = (FOLLOWS.type, event(1).key, event(2).key, EVENT.label)
    assert edges == {place: [{"session_id": "session-1", "delta_ms": 7}]}


def test_edges_of_both_types_and_directions_stand_beside_each_other(graph: Graph) -> None:
    _, edges = written(
        graph, node(1), node(2), follows(1, 2), follows(2, 1), caused(1, 2), caused(2, 1)
    )
    assert len(edges) == 4


def test_an_edge_without_its_ends_is_not_made(graph: Graph) -> None:
    nodes, edges = written(graph, node(1), follows(1, 2), caused(3, 1))
    assert len(nodes) == 1
    assert not edges


def test_edges_are_removed_by_type_before_new_ones_come(graph: Graph) -> None:
    written(graph, node(1), node(2), node(3), follows(1, 3), caused(3, 1))
    removed = RemoveEdge(type=FOLLOWS.type, source=event(1).key, target=event(3).key)
    _, edges = written(graph, follows(1, 2), follows(2, 3), removed)
    assert set(edges) == {
        (FOLLOWS.type, event(1).key, event(2).key, EVENT.label),
        (FOLLOWS.type, event(2).key, event(3).key, EVENT.label),
        (CAUSED_BY.type, event(3).key, event(1).key, EVENT.label),
    }
    assert written(graph, removed).edges == edges


def ends_of_entities() -> list[Operation]:
    return [EnsureNode(ENTITY.label, ANN), EnsureNode(ENTITY.label, BOB)]


def same_as(position: Position, *, retracted: bool) -> MergeEdge:
    values = {
        "confidence": 0.9,
        "justification": "same_form",
        "retracted": retracted,
        "event_id": "e",
        "decided_at": tuple(position),
    }
    return MergeEdge(type=SAME_AS.type, source=ANN, target=BOB, values=values)


def test_a_retraction_outlives_the_finding_it_follows(graph: Graph) -> None:
    def retracted() -> list[Any]:
        (copies,) = dump(graph).edges.values()
        return [copy["retracted"] for copy in copies]

    written(graph, *ends_of_entities(), same_as(Position(7, 0), retracted=True), stage="enrichment")
    written(graph, same_as(Position(6, 9), retracted=False), stage="enrichment")
    assert retracted() == [True]
    written(graph, same_as(Position(8, 0), retracted=False), stage="enrichment")
    assert retracted() == [False]


def cause(mechanism: str, target: str = "b") -> MergeEdge:
    values: dict[str, Any] = {"mechanism": mechanism}
    if mechanism == INFERRED:
        values |= {"rule": "value_flow", "confidence": 0.95, "evidence": "x"}
    return MergeEdge(type=CAUSED_BY.type, source=("t", "a"), target=("t", target), values=values)


def test_each_stage_clears_its_own_causes(graph: Graph) -> None:
    def causes() -> list[tuple[str, str]]:
        return sorted(
            (copy["mechanism"], target[1])
            for (_, _, target, _), copies in dump(graph).edges.items()
            for copy in copies
        )

    written(graph, *(EnsureNode(EVENT.label, ("t", name)) for name in "abc"), cause(DIRECT))
    written(graph, cause(INFERRED), cause(INFERRED, "c"), stage="enrichment")
    assert causes() == [("direct", "b"), ("inferred", "b"), ("inferred", "c")]
    cleared = ClearEdges(CAUSED_BY.type, ("t", "a"))
    written(graph, cleared, cause(INFERRED, "c"), stage="enrichment")
    assert causes() == [("direct", "b"), ("inferred", "c")]
    removed = RemoveEdge(type=CAUSED_BY.type, source=("t", "a"), target=("t", "b"))
    written(graph, removed)
    assert causes() == [("inferred", "c")]
    written(graph, cleared)
    assert causes() == [("inferred", "c")]


def fact_key(at_ms: int) -> dict[str, Any]:
    return {"relation": "knows", "edge_type": "semantic", "valid_from": at_ms, "event_id": "e"}


def fact(at_ms: int, **fields: Any) -> MergeEdge:
    values = {
        **fact_key(at_ms),
        "fact": "fact",
        "confidence": 0.7,
        "valid_to": None,
        "expired_at": None,
        "source": "system",
        "status": "staged",
        "user_id": None,
        "supporting_event_ids": (),
        "support_count": 1,
        **fields,
    }
    return MergeEdge(type=RELATES_TO.type, source=ANN, target=BOB, values=values)


def shown_facts(graph: Graph) -> dict[int, dict[str, Any]]:
    return {
        copy["valid_from"]: copy
        for (type_, *_), copies in dump(graph).edges.items()
        if type_ == RELATES_TO.type
        for copy in copies
    }


def test_one_of_several_facts_goes(graph: Graph) -> None:
    written(graph, *ends_of_entities(), fact(10), fact(20), stage="enrichment")
    assert set(shown_facts(graph)) == {10, 20}
    removed = RemoveEdge(type=RELATES_TO.type, source=ANN, target=BOB, values=fact_key(10))
    written(graph, removed, stage="enrichment")
    assert set(shown_facts(graph)) == {20}


def test_what_a_later_stage_says_of_an_edge_stays_when_it_is_merged_again(graph: Graph) -> None:
    def retrieved(at_ms: int) -> SetEdge:
        values = {"retrieval_count": 2.5, "last_retrieved_at": 99, "faded_at": None}
        values = {**fact_key(at_ms), **values}
        return SetEdge(type=RELATES_TO.type, source=ANN, target=BOB, values=values)

    written(graph, *ends_of_entities(), fact(10), fact(20), stage="enrichment")
    written(graph, retrieved(10), retrieved(30), stage="consolidation")
    written(graph, fact(10, valid_to=50), stage="enrichment")
    shown = shown_facts(graph)
    assert set(shown) == {10, 20}
    assert (shown[10]["valid_to"], shown[10]["retrieval_count"]) == (50, 2.5)
    assert "retrieval_count" not in shown[20]


def test_edges_of_one_type_end_at_two_labels(graph: Graph) -> None:
    ends = [EnsureNode(SUMMARY.label, ("t", name)) for name in ("x", "y")]
    made = [
        MergeEdge(type=SUMMARIZES.type, source=("t", "x"), target=("t", "y"), values={}),
        MergeEdge(
            type=SUMMARIZES.type,
            source=("t", "x"),
            target=("t", "y"),
            values={},
            label=SUMMARY.label,
        ),
    ]
    operations: list[Operation] = [*ends, EnsureNode(EVENT.label, ("t", "y")), *made]
    _, edges = written(graph, *operations, stage="consolidation")
    assert [place[3] for place in edges] == [EVENT.label, SUMMARY.label]
    removed = RemoveEdge(
        type=SUMMARIZES.type, source=("t", "x"), target=("t", "y"), label=SUMMARY.label
    )
    _, edges = written(graph, removed, stage="consolidation")
    assert [place[3] for place in edges] == [EVENT.label]


def test_clearing_takes_the_edges_of_one_start_alone(graph: Graph) -> None:
    def joined(entity: tuple[str, str], community: str) -> MergeEdge:
        values = {"run_id": "r", "decided_at": (1, 0)}
        return MergeEdge(type=MEMBER_OF.type, source=entity, target=("t", community), values=values)

    operations: list[Operation] = [
        *ends_of_entities(),
        *(EnsureNode(COMMUNITY.label, ("t", name)) for name in "xy"),
        *(joined(ANN, name) for name in "xy"),
        joined(BOB, "x"),
    ]
    written(graph, *operations, stage="consolidation")
    cleared = ClearEdges(MEMBER_OF.type, ANN)
    _, edges = written(graph, cleared, joined(ANN, "y"), stage="consolidation")
    assert [(source, target) for _, source, target, _ in edges] == [
        (ANN, ("t", "y")),
        (BOB, ("t", "x")),
    ]


def test_what_another_stage_owns_is_written_last(graph: Graph) -> None:
    written(graph, *(node(n) for n in (1, 2, 3)), follows(1, 2), follows(2, 3))
    batch = Operations()
    batch.add(RemoveNode(EVENT.label, event(2).key))
    batch.on_behalf_of(STAGE).add(follows(1, 3, 2))
    with graph.transaction() as transaction:
        transaction.apply(batch, "consolidation")
    (place,) = dump(graph).edges
    assert place[1:3] == (event(1).key, event(3).key)


def test_no_stage_writes_what_another_owns(graph: Graph) -> None:
    with pytest.raises(InvalidOperation):
        written(graph, node(1), stage="enrichment")
    assert written(graph) == Dump({}, {})


def test_applying_twice_changes_nothing(graph: Graph) -> None:
    operations: Sequence[Operation] = (
        node(1),
        node(2, tool_name="x"),
        EnsureNode(EVENT.label, event(3).key),
        follows(1, 2),
        caused(2, 3),
        RemoveEdge(type=FOLLOWS.type, source=event(2).key, target=event(1).key),
    )
    assert written(graph, *operations) == written(graph, *operations)


def test_a_batch_of_nothing_is_nothing(graph: Graph) -> None:
    assert written(graph) == Dump({}, {})


def test_nothing_is_left_of_locks(graph: Graph) -> None:
    graph.ensure_checkpoints(STAGE, 1, 1)
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 0)
        transaction.lock_nodes(ENTITY.label, [ANN], make=True)
    written(graph, met("Ann", 1, "a", 1), called("A", Position(1, 0)), stage="enrichment")
    written(
        graph,
        EnsureNode(ENTITY.label, BOB),
        same_as(Position(1, 0), retracted=True),
        stage="enrichment",
    )
    census = graph.census()
    for label, names in census.node_properties.items():
        assert names <= {p.name for p in NODES[label].stored()}, label
    for type_, names in census.edge_properties.items():
        assert names <= {p.name for p in EDGES[type_].properties}, type_


# -- dead letters ----------------------------------------------------------------------------------

_LETTER: dict[str, Any] = {
    "position": "3-0",
    "tenant": None,
    "event_id": None,
    "reason": "because",
    "attempts": 5,
}


def add_dead_letters(graph: Graph, *seqs: int, partition: int = 1) -> None:
    with graph.transaction() as transaction:
        for seq in seqs:
            transaction.add_dead_letter(STAGE, partition, seq, kind="poison", **_LETTER)


def dead_seqs(graph: Graph, partition: int = 1) -> list[int]:
    with graph.transaction() as transaction:
        transaction.lock(STAGE, partition)
        return [letter["seq"] for letter in transaction.dead_letters_of(STAGE, partition)]


def test_dead_letters_are_kept_by_partition(started: Graph) -> None:
    add_dead_letters(started, 5, 3)
    add_dead_letters(started, 4, 3, partition=2)
    assert [dead_seqs(started, n) for n in range(PARTITIONS)] == [[], [3, 5], [3, 4]]
    assert started.dead_letters()[0] == {
        "stage": STAGE,
        "partition": 1,
        "seq": 3,
        "kind": "poison",
        **_LETTER,
    }
    assert [letter["seq"] for letter in started.dead_letters(STAGE, 2)] == [3, 4]
    assert started.dead_letters("another") == []
    with started.transaction() as transaction:
        assert transaction.dead_letters == 0
        transaction.lock(STAGE, 0)
        assert transaction.dead_letters == 4


def test_dead_letters_go_one_by_one_or_behind_a_number(started: Graph) -> None:
    add_dead_letters(started, 3, 5, 7, 9)
    add_dead_letters(started, 7, partition=2)
    with started.transaction() as transaction:
        transaction.lock(STAGE, 1)
        transaction.drop_dead_letters(STAGE, 1, [3, 4])
        transaction.drop_later_dead_letters(STAGE, 1, 5)
    assert (dead_seqs(started), dead_seqs(started, 2)) == ([5], [7])


# -- clearing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_checkpoints", [False, True])
def test_clear_takes_everything_of_ours(started: Graph, keep_checkpoints: bool) -> None:
    written(started, node(1), node(2), follows(1, 2), EnsureNode(EVENT.label, event(3).key))
    add_dead_letters(started, 1)
    started.clear(keep_checkpoints=keep_checkpoints)
    assert dump(started) == Dump({}, {})
    assert len(started.checkpoints()) == (PARTITIONS if keep_checkpoints else 0)
    assert started.dead_letters() == []


def test_a_graph_is_emptied_while_its_checkpoints_are_held(started: Graph) -> None:
    written(started, node(1))
    with started.transaction() as transaction:
        transaction.advance(at(0), at(5))
    with started.transaction() as transaction:
        held = transaction.lock(STAGE, 1)
        assert held is not None
        started.clear(keep_checkpoints=True)
        transaction.reset(Checkpoint(STAGE, 1))
    assert dump(started).nodes == {}
    assert checkpoint(started) == Checkpoint(STAGE, 1, generation=2)


def test_a_clear_counts_at_once_whatever_becomes_of_the_transaction_around_it(
    started: Graph,
) -> None:
    written(started, node(1))
    batch = Operations()
    batch.add(node(2))
    with started.transaction() as transaction:
        transaction.lock(STAGE, 1)
        started.clear(keep_checkpoints=True)
        transaction.apply(batch, STAGE)
    assert [key for _, key in dump(started).nodes] == [event(2).key]
    with suppress(ZeroDivisionError), started.transaction() as transaction:
        transaction.lock(STAGE, 1)
        started.clear(keep_checkpoints=True)
        raise ZeroDivisionError
    assert dump(started).nodes == {}


def test_a_store_knows_itself(graph: Graph) -> None:
    assert graph.store_id() == graph.store_id() != ""


# -- both ------------------------------------------------------------------------------------------

_KEYS = st.sampled_from([("t", "1"), ("t", "2"), ("u", "1")])
_POSITIONS = st.builds(Position, st.integers(1, 3), st.integers(0, 2))


def _operations() -> st.SearchStrategy[tuple[str, Operation]]:
    """Operations of all stages on few nodes, so that they meet."""

    def knows(source: Any, target: Any, at_ms: int) -> MergeEdge:
        made = fact(at_ms, confidence=at_ms / 100)
        return MergeEdge(type=made.type, source=source, target=target, values=made.values)

    def same(source: Any, target: Any, position: Position, retracted: bool) -> MergeEdge:
        values = {**same_as(position, retracted=retracted).values}
        return MergeEdge(type=SAME_AS.type, source=source, target=target, values=values)

    def mechanism(source: Any, target: Any, kind: str) -> MergeEdge:
        values = cause(kind).values
        return MergeEdge(type=CAUSED_BY.type, source=source, target=target, values=values)

    def entity(key: Any, first_ms: int, first_id: str, last_ms: int) -> MergeNode:
        made = met(f"name-{first_ms}", first_ms, first_id, last_ms)
        return MergeNode(label=ENTITY.label, key=key, values=made.values)

    def decided(key: Any, value: Any, position: Position) -> DecideNode:
        made = called(value, position)
        return DecideNode(label=made.label, key=key, name=made.name, value=value, position=position)

    def occurred(key: Any, at_ms: int) -> MergeNode:
        made = event(1, tenant=key[0], event_id=key[1], at=at_ms)
        return event_node(made, Position(at_ms, 0))

    small = st.integers(1, 4)
    first, second, third = STAGE, "enrichment", "consolidation"
    return st.one_of(
        st.tuples(st.just(first), st.builds(occurred, _KEYS, small)),
        st.tuples(
            st.sampled_from([first, third]), st.builds(EnsureNode, st.just(EVENT.label), _KEYS)
        ),
        st.tuples(
            st.sampled_from([second, third]), st.builds(EnsureNode, st.just(ENTITY.label), _KEYS)
        ),
        st.tuples(st.just(third), st.builds(RemoveNode, st.just(EVENT.label), _KEYS)),
        st.tuples(st.just(first), st.builds(mechanism, _KEYS, _KEYS, st.just(DIRECT))),
        st.tuples(st.just(second), st.builds(mechanism, _KEYS, _KEYS, st.just(INFERRED))),
        st.tuples(
            st.sampled_from([first, second]),
            st.builds(ClearEdges, st.just(CAUSED_BY.type), _KEYS),
        ),
        st.tuples(st.just(second), st.builds(entity, _KEYS, small, st.sampled_from("ab"), small)),
        st.tuples(
            st.just(second), st.builds(decided, _KEYS, st.sampled_from(["A", None]), _POSITIONS)
        ),
        st.tuples(st.just(second), st.builds(knows, _KEYS, _KEYS, small)),
        st.tuples(st.just(second), st.builds(same, _KEYS, _KEYS, _POSITIONS, st.booleans())),
        st.tuples(st.just(second), st.builds(enriched, _KEYS, importance_score=small)),
    )


@pytest.mark.integration
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(_operations(), max_size=8), max_size=4))
def test_both_stores_hold_the_same_after_any_batches(
    neo4j_graph: Neo4jGraph, batches: list[list[tuple[str, Operation]]]
) -> None:
    neo4j_graph.clear()
    memory = MemoryGraph()
    for batch in batches:
        for stage in (STAGE, "enrichment", "consolidation"):
            operations = [operation for owner, operation in batch if owner == stage]
            for graph in (memory, neo4j_graph):
                written_by(graph, operations, stage)
    assert dump(memory) == dump(neo4j_graph)


def written_by(graph: Graph, operations: Sequence[Operation], stage: str) -> None:
    batch = Operations()
    batch.extend(operations)
    with graph.transaction() as transaction:
        transaction.apply(batch, stage)
