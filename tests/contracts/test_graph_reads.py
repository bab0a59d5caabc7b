"""What every store behind the port promises about reading, and about repair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from pipelines.graph.rows import LAST, End, FoundEdge, FoundNode, Span
from projections.identity import Link, Position
from projections.operations import (
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveEdge,
)
from projections.schema import (
    CAUSED_BY,
    DIRECT,
    EDGES,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    FOLLOWS,
    FORGOTTEN,
    INFERRED,
    NODES,
    RELATES_TO,
    SCOPE,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
    TENANT_TERM,
    VECTOR_DIMENSIONS,
    constraint_names,
    index_definitions,
)
from tests.contracts.test_graph_port import (
    ANN,
    BOB,
    STAGE,
    called,
    cause,
    ends_of_entities,
    enriched,
    fact,
    fact_key,
    follows,
    met,
    node,
    same_as,
)
from tests.factories import START_MS, event, event_id
from tests.graph_dump import dump

SESSION = ("default", "session-1")


def put(graph: Graph, *operations: Operation, stage: str = STAGE) -> None:
    batch = Operations()
    batch.extend(operations)
    with graph.transaction() as transaction:
        transaction.apply(batch, stage)


def ids(nodes: Iterable[FoundNode]) -> list[int]:
    """Numbers of the events."""
    return [int(node.key[1].replace("-", ""), 16) for node in nodes]


# -- by key ----------------------------------------------------------------------------------------


def test_nodes_by_key_show_what_is_asked_for(graph: Graph) -> None:
    put(graph, node(1, tool_name="x"), EnsureNode(EVENT.label, event(2).key))
    keys = [event(n).key for n in (1, 2, 3)]
    found = graph.nodes(EVENT.label, keys, ("occurred_at", "status", "tool_name", "event_id"))
    assert list(found) == keys[:2]
    first, second = found.values()
    assert first == FoundNode(
        keys[0],
        True,
        {
            "occurred_at": START_MS + 1,
            "status": None,
            "tool_name": "x",
            "event_id": event_id(1),
        },
        False,
    )
    assert (second.visible, second.bare, second.values["occurred_at"]) == (False, True, None)
    assert graph.nodes(EVENT.label, keys)[keys[0]].values == {}
    assert graph.nodes(EVENT.label, []) == {}


def test_lists_are_tuples_and_vectors_come_whole(graph: Graph) -> None:
    vector = [round(math.sin(n), 3) for n in range(VECTOR_DIMENSIONS)]
    put(graph, node(1))
    made = enriched(event(1).key, keywords=["a", "b"], embedding=vector)
    put(graph, made, stage="enrichment")
    (found,) = graph.nodes(EVENT.label, [event(1).key], ("keywords", "embedding")).values()
    assert found.values["keywords"] == ("a", "b")
    assert [round(x, 3) for x in found.values["embedding"]] == vector


def test_a_transaction_reads_what_it_wrote_and_others_do_not(graph: Graph) -> None:
    batch = Operations()
    batch.add(node(1))
    key = event(1).key

    def write() -> None:
        with graph.transaction() as transaction:
            transaction.apply(batch, STAGE)
            assert list(transaction.nodes(EVENT.label, [key])) == [key]
            assert len(list(transaction.stream(EVENT.label))) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert graph.nodes(EVENT.label, [key]) == {}


def test_locked_nodes_are_read_and_left_as_they_are(graph: Graph) -> None:
    put(graph, node(1), EnsureNode(EVENT.label, event(2).key))
    before = dump(graph)
    with graph.transaction() as transaction:
        keys = [event(n).key for n in (3, 2, 1)]
        found = transaction.lock_nodes(EVENT.label, keys, ("occurred_at",))
        assert {key: one.visible for key, one in found.items()} == {keys[2]: True, keys[1]: False}
        assert found[keys[2]].values == {"occurred_at": START_MS + 1}
    assert dump(graph) == before


def test_locking_makes_what_is_missing(graph: Graph) -> None:
    with graph.transaction() as transaction:
        made = transaction.lock_nodes(FACT_HISTORY.label, [("t", "h")], ("entries",), make=True)
        assert made == {("t", "h"): FoundNode(("t", "h"), True, {"entries": None}, True)}
        transaction.lock_nodes(SCOPE.label, [("t", "b"), ("t", "a")], make=True)
        (hidden,) = transaction.lock_nodes(ENTITY.label, [ANN], make=True).values()
        assert not hidden.visible
        again = transaction.lock_nodes(ENTITY.label, [ANN], make=True)
        assert list(again.values()) == [hidden]
    assert {key for _, key in dump(graph).nodes} == {("t", "h"), ("t", "a"), ("t", "b"), ANN}


# -- by an index -----------------------------------------------------------------------------------


def named(own_id: str, name: str, tenant: str = "t") -> MergeNode:
    values = {**met(name, 1, "e", 1).values, "canonical_name": name}
    return MergeNode(label=ENTITY.label, key=(tenant, own_id), values=values)


def test_nodes_are_found_by_the_properties_of_an_index(graph: Graph) -> None:
    put(
        graph,
        named("2", "ann"),
        named("1", "ann"),
        named("3", "bob"),
        named("4", "ann", "other"),
        EnsureNode(ENTITY.label, ("t", "5")),
        stage="enrichment",
    )
    rows = [("t", "ann"), ("t", "bob"), ("t", "carl")]
    found = graph.find(ENTITY.label, ("tenant", "canonical_name"), rows, ("entity_type",))
    assert {row: [one.key for one in nodes] for row, nodes in found.items()} == {
        ("t", "ann"): [("t", "1"), ("t", "2")],
        ("t", "bob"): [("t", "3")],
    }
    assert found["t", "bob"][0].values == {"entity_type": "concept"}
    assert graph.find(ENTITY.label, ("tenant", "canonical_name"), []) == {}


def test_an_index_holds_what_has_all_of_its_properties(graph: Graph) -> None:
    put(
        graph,
        node(1, tool_name="x", status="failed"),
        node(2, tool_name="x"),
        node(3, tool_name="y", status="failed"),
    )
    found = graph.find(EVENT.label, ("tenant", "tool_name"), [("default", "x"), ("default", "z")])
    assert {row: ids(nodes) for row, nodes in found.items()} == {("default", "x"): [1]}
    at_ms = START_MS + 3
    found = graph.find(
        EVENT.label,
        EVENT.indexes[1],
        [("default", "y", "failed", at_ms), ("default", "y", "failed", at_ms + 1)],
    )
    assert [ids(nodes) for nodes in found.values()] == [[3]]


# -- along an index --------------------------------------------------------------------------------


def scope(session_id: str, pending: int, tenant: str = "t") -> MergeNode:
    values = {p.name: pending for p in SCOPE.owned("consolidation")}
    return MergeNode(label=SCOPE.label, key=(tenant, session_id), values=values)


SCOPES = [
    *(scope(name, at) for name, at in (("d", 5), ("a", 5), ("c", 9), ("b", 0), ("e", 7))),
    scope("x", 8, "u"),
]


def pending(graph: Graph, *row: Any, **options: Any) -> str:
    """Sessions along the index of what is pending, in their order."""
    chosen: dict[str, Any] = {"limit": 9, **options}
    nodes = graph.scan(SCOPE.label, SCOPE.indexes[0], [row], ("pending_importance",), **chosen)
    assert nodes.keys() <= {row}
    return "".join(one.key[1] for one in nodes.get(row, ()))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "badec"),
        ({"descending": True}, "ceadb"),
        ({"descending": True, "limit": 3}, "cea"),
        ({"least": {"pending_importance": 5}}, "adec"),
        ({"least": {"pending_importance": 5}, "most": {"pending_importance": 7}}, "ade"),
        ({"after": (5,)}, "ec"),
        ({"after": (5, "a")}, "dec"),
        ({"after": (5, "d")}, "ec"),
        ({"after": (5,), "descending": True}, "b"),
        ({"after": (5, "a"), "descending": True}, "db"),
        ({"after": (6, "a"), "descending": True}, "adb"),
        ({"after": (9, "c"), "descending": True, "least": {"pending_importance": 7}}, "e"),
    ],
)
def test_a_scan_goes_along_an_index(graph: Graph, options: dict[str, Any], expected: str) -> None:
    put(graph, *SCOPES, stage="consolidation")
    assert pending(graph, "t", **options) == expected


def test_a_scan_of_a_whole_index_goes_from_one_beginning_to_the_next(graph: Graph) -> None:
    put(graph, *SCOPES, stage="consolidation")
    with graph.transaction() as transaction:  # has no place in the index
        transaction.lock_nodes(SCOPE.label, [("t", "z")], make=True)
    assert pending(graph) == "badecx"
    assert pending(graph, after=("t",)) == "x"
    assert pending(graph, after=("t", 9)) == "x"
    assert pending(graph, after=("u",)) == ""
    assert pending(graph, descending=True, limit=2) == "xc"
    assert pending(graph, "t", 5) == "ad"
    assert pending(graph, "t", 5, after=("a",)) == "d"


def test_a_scan_answers_many_rows_at_once(graph: Graph) -> None:
    put(graph, *SCOPES, stage="consolidation")
    rows = [("t",), ("u",), ("none",)]
    nodes = graph.scan(
        SCOPE.label,
        SCOPE.indexes[0],
        rows,
        ("pending_importance",),
        least={"pending_importance": 1},
        descending=True,
        limit=1,
    )
    assert {
        row: [one.values["pending_importance"] for one in some] for row, some in nodes.items()
    } == {
        ("t",): [9],
        ("u",): [8],
    }
    assert graph.scan(SCOPE.label, SCOPE.indexes[0], [], limit=1) == {}


def test_a_scan_by_key_shows_placeholders_too(graph: Graph) -> None:
    put(
        graph,
        named("2", "ann"),
        named("1", "bob"),
        named("9", "ann", "other"),
        EnsureNode(ENTITY.label, ("t", "3")),
        stage="enrichment",
    )

    def page(**options: Any) -> list[tuple[str, bool]]:
        nodes = graph.scan(ENTITY.label, ENTITY.key, [("t",)], ("name",), **options)
        return [(one.key[1], one.visible) for one in nodes.get(("t",), ())]

    assert page(limit=2) == [("1", True), ("2", True)]
    assert page(limit=2, after=("2",)) == [("3", False)]
    assert page(limit=2, after=("3",)) == []


def test_a_scan_of_a_chain_is_bounded_by_time(graph: Graph) -> None:
    put(
        graph,
        *(node(number) for number in (1, 2, 3, 4)),
        node(7, at=2),
        node(9, session_id="session-2", at=3),
        EnsureNode(EVENT.label, event(8).key),
    )
    by = EVENT.indexes[0]

    def chain_of(*row: str, **options: Any) -> list[int]:
        nodes = graph.scan(EVENT.label, by, [row], ("occurred_at",), **{"limit": 9, **options})
        return ids(nodes.get(row, ()))

    assert chain_of(*SESSION) == [1, 2, 7, 3, 4]
    assert chain_of("default", most={"occurred_at": START_MS + 3}) == [1, 2, 7, 3, 9]
    place = ("session-1", START_MS + 2, event_id(2))
    assert chain_of("default", after=place) == [7, 3, 4, 9]
    assert chain_of("default", after=place[:2]) == [3, 4, 9]
    bounds = {"least": {"occurred_at": START_MS + 2}, "most": {"occurred_at": START_MS + 3}}
    assert chain_of("default", after=place, **bounds) == [7, 3, 9]
    assert chain_of(*SESSION, after=place[1:], limit=1) == [7]
    assert chain_of(*SESSION, descending=True, limit=2) == [4, 3]
    assert chain_of(*SESSION, descending=True, after=place[1:]) == [1]


def test_a_scan_sees_what_a_transaction_took_back(graph: Graph) -> None:
    put(graph, node(1))
    graph.scan(EVENT.label, EVENT.indexes[0], [SESSION], limit=9)
    batch = Operations()
    batch.add(node(2))

    def write() -> None:
        with graph.transaction() as transaction:
            transaction.apply(batch, STAGE)
            inside = transaction.scan(EVENT.label, EVENT.indexes[0], [SESSION], limit=9)
            assert ids(inside[SESSION]) == [1, 2]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert ids(graph.scan(EVENT.label, EVENT.indexes[0], [SESSION], limit=9)[SESSION]) == [1]


def test_only_an_index_can_be_scanned(graph: Graph) -> None:
    with pytest.raises(ValueError, match="an index that the row of Scope names"):
        graph.scan(SCOPE.label, ("tenant", "event_count"), [("t",)], limit=1)


# -- edges -----------------------------------------------------------------------------------------


def similar(first: str, second: str, score: float) -> MergeEdge:
    return MergeEdge(
        type=SIMILAR_TO.type, source=("t", first), target=("t", second), values={"score": score}
    )


def test_edges_by_either_end(graph: Graph) -> None:
    put(graph, *(EnsureNode(EVENT.label, ("t", name)) for name in "abcd"), cause(DIRECT))
    put(
        graph,
        cause(INFERRED),
        cause(INFERRED, "c"),
        similar("a", "b", 0.9),
        similar("b", "c", 0.8),
        similar("d", "d", 0.7),
        stage="enrichment",
    )
    a, b, c, d = (("t", name) for name in "abcd")
    causes = graph.edges(CAUSED_BY.type, [a, b, d], ("mechanism",))
    assert list(causes) == [a]
    assert [(one.target, one.values["mechanism"]) for one in causes[a]] == [
        (b, DIRECT),
        (b, INFERRED),
        (c, INFERRED),
    ]
    effects = graph.edges(CAUSED_BY.type, [a, b, c], by=End.TARGET)
    assert {end: [(one.source, one.values) for one in some] for end, some in effects.items()} == {
        b: [(a, {}), (a, {})],
        c: [(a, {})],
    }
    alike = graph.edges(SIMILAR_TO.type, [a, b, d], ("score",), by=End.EITHER)
    assert {end: [one.values["score"] for one in some] for end, some in alike.items()} == {
        a: [0.9],
        b: [0.9, 0.8],
        d: [0.7],
    }
    assert alike[b][0] == FoundEdge(a, b, EVENT.label, {"score": 0.9})


def test_edges_between_pairs(graph: Graph) -> None:
    put(graph, *ends_of_entities(), fact(20), fact(10), stage="enrichment")
    names = (*RELATES_TO.key, "support_count", "valid_to")
    found = graph.between(RELATES_TO.type, [(ANN, BOB), (BOB, ANN)], names)
    assert list(found) == [(ANN, BOB)]
    assert [one.values for one in found[ANN, BOB]] == [
        {**fact_key(at_ms), "support_count": 1, "valid_to": None} for at_ms in (10, 20)
    ]
    assert graph.between(RELATES_TO.type, []) == {}


def test_degrees_count_edges(graph: Graph) -> None:
    put(graph, *(EnsureNode(EVENT.label, ("t", name)) for name in "abcd"), cause(DIRECT))
    put(
        graph,
        cause(INFERRED),
        cause(INFERRED, "c"),
        similar("a", "b", 0.9),
        similar("b", "c", 0.8),
        similar("d", "d", 0.7),
        stage="enrichment",
    )
    a, b, c, d = (("t", name) for name in "abcd")
    wanted = [a, b, c, d, ("t", "none")]
    assert graph.degrees(CAUSED_BY.type, wanted) == {a: 3, b: 0, c: 0, d: 0}
    assert graph.degrees(CAUSED_BY.type, wanted, by=End.TARGET) == {a: 0, b: 2, c: 1, d: 0}
    assert graph.degrees(SIMILAR_TO.type, wanted, by=End.EITHER) == {a: 1, b: 2, c: 1, d: 1}
    put(graph, RemoveEdge(type=CAUSED_BY.type, source=a, target=b))  # the one that is direct
    assert graph.degrees(CAUSED_BY.type, wanted) == {a: 2, b: 0, c: 0, d: 0}
    assert graph.degrees(CAUSED_BY.type, wanted, by=End.TARGET) == {a: 0, b: 1, c: 1, d: 0}


def test_what_stands_across_edges_is_told_once(graph: Graph) -> None:
    put(graph, *(event_named(name) for name in "abc"), EnsureNode(EVENT.label, ("other", "d")))
    a, b, c, d = (("other", name) for name in "abcd")
    causes = [(a, b, DIRECT), (a, b, INFERRED), (c, b, INFERRED), (d, b, INFERRED), (a, d, DIRECT)]
    for stage, mechanism in ((STAGE, DIRECT), ("enrichment", INFERRED)):
        put(
            graph,
            *(
                replace(cause(mechanism), source=source, target=target)
                for source, target, one in causes
                if one == mechanism
            ),
            stage=stage,
        )
    ends = [a, b, ("t", "none")]
    across = graph.across(CAUSED_BY.type, ends, "event_id", by=End.TARGET, most=9)
    assert across == {b: ("a", "c")}
    assert graph.across(CAUSED_BY.type, ends, "occurred_at", most=9) == {a: (START_MS + 1,)}
    few = graph.across(CAUSED_BY.type, ends, "event_id", by=End.TARGET, most=1)
    assert len(few[b]) == 1
    assert graph.across(CAUSED_BY.type, ends, "tool_name", by=End.TARGET, most=9) == {}


def test_across_ends_of_a_second_label(graph: Graph) -> None:
    put(graph, EnsureNode(SUMMARY.label, ("t", "one")), summary("two"), stage="consolidation")
    link = MergeEdge(
        type=SUMMARIZES.type,
        source=("t", "two"),
        target=("t", "one"),
        values={},
        label=SUMMARY.label,
    )
    put(graph, link, stage="consolidation")
    options: dict[str, Any] = {"by": End.TARGET, "label": SUMMARY.label}
    key = ("t", "one")
    above = graph.across(SUMMARIZES.type, [key], "summary_id", most=2, **options)
    assert above == {key: ("two",)}
    assert graph.degrees(SUMMARIZES.type, [key], **options) == {key: 1}
    assert graph.degrees(SUMMARIZES.type, [key], by=End.TARGET) == {}


def summary(own_id: str) -> MergeNode:
    nothing = dict.fromkeys(p.name for p in SUMMARY.owned("consolidation"))
    return MergeNode(label=SUMMARY.label, key=("t", own_id), values=nothing)


# -- chains ----------------------------------------------------------------------------------------


def link(number: int) -> Link:
    return Link(START_MS + number, event_id(number))


def chain(graph: Graph, *numbers: int) -> None:
    put(graph, *(node(number) for number in numbers))


def stretch(graph: Graph, low: int, high: int, **options: Any) -> list[int]:
    chosen: dict[str, Any] = {"within": 9, **options}
    (members,) = graph.stretch(EVENT.label, [Span(SESSION, link(low), link(high))], **chosen)
    return ids(members)


@pytest.mark.parametrize(
    ("low", "high", "before", "within", "after", "expected"),
    [
        (4, 6, 0, 9, 0, [4, 6]),
        (4, 6, 1, 9, 1, [2, 4, 6, 8]),
        (4, 6, 9, 9, 9, [2, 4, 6, 8, 10]),
        (5, 5, 1, 1, 1, [4, 6]),
        (5, 5, 2, 0, 0, [2, 4]),
        (2, 10, 0, 2, 0, [2, 4]),
        (2, 10, 1, 2, 1, [2, 4]),
        (4, 4, 0, 1, 0, [4]),
        (20, 30, 2, 9, 2, [8, 10]),
        (0, 1, 2, 9, 2, [2, 4]),
        (4, 6, 0, 0, 0, []),
    ],
)
def test_a_stretch_has_three_parts(
    graph: Graph,
    low: int,
    high: int,
    before: int,
    within: int,
    after: int,
    expected: Sequence[int],
) -> None:
    chain(graph, 8, 2, 4, 10, 6)
    found = stretch(graph, low, high, before=before, within=within, after=after)
    assert found == list(expected)


def test_of_equal_times_the_id_decides(graph: Graph) -> None:
    put(graph, *(node(number, at=0) for number in (1, 2, 3, 4)))
    place = Link(START_MS, event_id(2))
    (found,) = graph.stretch(
        EVENT.label, [Span(SESSION, place, place)], before=9, within=9, after=1
    )
    assert ids(found) == [1, 2, 3]
    between = Link(START_MS, event_id(2) + "x")
    (found,) = graph.stretch(
        EVENT.label, [Span(SESSION, between, between)], before=1, within=9, after=1
    )
    assert ids(found) == [2, 3]


def test_the_end_of_a_chain(graph: Graph) -> None:
    chain(graph, 1, 2)
    put(graph, node(3, occurred_at_ms=LAST.occurred_at_ms - 1, session_id="far"))
    spans = [Span((SESSION[0], name), LAST, LAST) for name in ("session-1", "none", "far")]
    found = graph.stretch(EVENT.label, spans, before=1, within=0)
    assert [ids(members) for members in found] == [[2], [], [3]]


def test_stretches_of_many_spans_keep_their_order(graph: Graph) -> None:
    chain(graph, 1, 2, 3)
    put(graph, node(9, session_id="other"), node(8, tenant="acme"))
    spans = [
        Span(SESSION, link(2), link(2)),
        Span(("default", "none"), link(2), link(2)),
        Span(("default", "other"), link(1), link(9)),
        Span(SESSION, link(2), link(2)),
        Span(("acme", "session-1"), link(1), link(9)),
    ]
    found = graph.stretch(EVENT.label, spans, within=9, after=1)
    assert [ids(members) for members in found] == [[2, 3], [], [9], [2, 3], [8]]
    assert found[0][0].values == {"occurred_at": START_MS + 2}
    assert graph.stretch(EVENT.label, [], within=1) == []


def test_placeholders_are_no_members(graph: Graph) -> None:
    put(graph, node(1), EnsureNode(EVENT.label, event(2).key), node(3))
    assert stretch(graph, 1, 3) == [1, 3]


def test_members_may_be_asked_to_have_a_property(graph: Graph) -> None:
    chain(graph, *range(1, 10))
    put(graph, *(enriched(event(n).key) for n in (2, 3, 5, 8, 9)), stage="enrichment")
    having = {"having": "importance_score"}
    assert stretch(graph, 4, 6, before=1, after=1, **having) == [3, 5, 8]
    span = Span(SESSION, link(4), link(6), frozenset({event_id(4), event_id(7)}))
    (found,) = graph.stretch(EVENT.label, [span], before=1, within=9, after=1, **having)
    assert ids(found) == [3, 4, 5, 7]
    (found,) = graph.stretch(EVENT.label, [span], before=1, within=1, after=1, **having)
    assert ids(found) == [3, 4, 7]


def test_tombstones_have_chains_too(graph: Graph) -> None:
    values = {
        "session_id": "session-1",
        "user_id": None,
        "importance_score": 3,
        "summary_id": None,
        "vector": None,
    }
    made = [
        MergeNode(
            label=FORGOTTEN.label,
            key=event(n).key,
            values={**values, "occurred_at": START_MS + n},
        )
        for n in (1, 2, 4)
    ]
    put(graph, *made, stage="consolidation")
    span = Span(SESSION, link(2), link(3))
    (found,) = graph.stretch(
        FORGOTTEN.label, [span], before=1, within=5, after=1, having="importance_score"
    )
    assert ids(found) == [1, 2, 4]


# -- nearest ---------------------------------------------------------------------------------------


def turned(degrees: float) -> list[float]:
    """A unit vector so far from the first axis."""
    radians = math.radians(degrees)
    return [math.cos(radians), math.sin(radians)] + [0.0] * (VECTOR_DIMENSIONS - 2)


def placed(own_id: str, degrees: float, tenant: str = "t") -> MergeNode:
    values = {**met(own_id, 1, "e", 1).values, "canonical_name": own_id}
    values["embedding"] = turned(degrees)
    return MergeNode(label=ENTITY.label, key=(tenant, own_id), values=values)


def test_the_nearest_are_others_of_the_same_tenant(graph: Graph) -> None:
    degrees = {"a": 0, "b": 10, "c": 20, "d": 90}
    nodes = [placed(name, at) for name, at in degrees.items()]
    others = [placed(f"o{n}", n, "other") for n in range(9)]
    put(graph, *nodes, *others, called("Ann", Position(1, 0)), stage="enrichment")
    vectors = {("t", "a"): turned(0), ("t", "new"): turned(12), ("none", "x"): turned(0)}
    found = graph.nearest(ENTITY.label, vectors, 2, ("canonical_name",))
    shown = {
        key: [(node.key[1], round(cosine, 4)) for node, cosine in near]
        for key, near in found.items()
    }

    def cosine(angle: float) -> float:
        return round(math.cos(math.radians(angle)), 4)

    assert shown == {
        ("t", "a"): [("b", cosine(10)), ("c", cosine(20))],
        ("t", "new"): [("b", cosine(2)), ("c", cosine(8))],
        ("none", "x"): [],
    }
    assert found["t", "a"][0][0].values == {"canonical_name": "b"}
    assert graph.nearest(ENTITY.label, {}, 2) == {}


# -- streams ---------------------------------------------------------------------------------------


def test_nodes_are_streamed_in_the_order_of_their_keys(graph: Graph) -> None:
    put(
        graph,
        node(2),
        node(1),
        node(1, tenant="acme"),
        EnsureNode(EVENT.label, event(3).key),
        *(event_named(name) for name in ("z", "Z", "é", "_", "😀", "\uffee")),
    )
    found = list(cast(Iterator[FoundNode], graph.stream(EVENT.label, ("occurred_at",))))
    keys = [one.key for one in found]
    assert keys == sorted(keys)
    assert len(keys) == 10
    assert [one.visible for one in found].count(False) == 1
    some = graph.stream(EVENT.label, tenants={"acme", "none", "other"})
    assert {one.key[0] for one in cast(Iterator[FoundNode], some)} == {"acme", "other"}
    assert list(graph.stream(EVENT.label, tenants=())) == []


def event_named(name: str) -> MergeNode:
    values = node(1).values
    return MergeNode(label=EVENT.label, key=("other", name), values=values)


def test_edges_are_streamed_by_source_then_target(graph: Graph) -> None:
    put(graph, *(EnsureNode(EVENT.label, ("t", name)) for name in "abc"), cause(DIRECT))
    put(graph, cause(INFERRED, "c"), cause(INFERRED), stage="enrichment")
    put(graph, node(1), node(2), follows(2, 1), follows(1, 2))
    found = list(cast(Iterator[FoundEdge], graph.stream(CAUSED_BY.type, ("mechanism",))))
    assert [(one.source[1], one.target[1], one.values["mechanism"]) for one in found] == [
        ("a", "b", DIRECT),
        ("a", "b", INFERRED),
        ("a", "c", INFERRED),
    ]
    assert {one.label for one in found} == {EVENT.label}
    some = cast(Iterator[FoundEdge], graph.stream(FOLLOWS.type, tenants=["default"]))
    assert [one.source for one in some] == [event(1).key, event(2).key]
    assert list(graph.stream(FOLLOWS.type, tenants=["t"])) == []


# -- how much there is -----------------------------------------------------------------------------


def test_counts_leave_placeholders_out(graph: Graph) -> None:
    put(graph, node(1), node(2), follows(1, 2), EnsureNode(EVENT.label, ("t", "b")))
    put(graph, EnsureNode(EVENT.label, ("t", "a")), cause(DIRECT))
    put(graph, EnsureNode(ENTITY.label, ("t", "1")), named("2", "x"), stage="enrichment")
    counts = graph.counts()
    assert counts.nodes.keys() == NODES.keys()
    assert counts.edges.keys() == EDGES.keys()
    assert {name: number for name, number in counts.nodes.items() if number} == {
        EVENT.label: 2,
        ENTITY.label: 1,
    }
    assert {name: number for name, number in counts.edges.items() if number} == {FOLLOWS.type: 1}
    assert counts.placeholders == 2


# -- the census ------------------------------------------------------------------------------------


def test_a_census_counts_what_there_is(graph: Graph) -> None:
    graph.ensure_schema()
    put(graph, node(1), node(2), follows(1, 2), EnsureNode(EVENT.label, event(3).key))
    put(graph, *ends_of_entities(), same_as(Position(1, 0), retracted=False), stage="enrichment")
    census = graph.census()
    assert {name: census.labels[name] for name in (EVENT.label, ENTITY.label)} == {
        EVENT.label: 3,
        ENTITY.label: 2,
    }
    assert dict(census.types) == {FOLLOWS.type: 1, "SAME_AS": 1}
    assert census.edge_properties[FOLLOWS.type] == {"session_id", "delta_ms"}
    assert census.node_properties[ENTITY.label] == {"tenant", "entity_id"}
    assert "occurred_at" in census.node_properties[EVENT.label]
    assert census.constraints == constraint_names()
    assert census.indexes == index_definitions().keys() - constraint_names()
    assert not census.stray


# -- repair ----------------------------------------------------------------------------------------


def restored(number: int, *, visible: bool = True, **values: Any) -> FoundNode:
    return FoundNode(event(number).key, visible, values, False)


def test_a_restored_node_holds_exactly_these_values(graph: Graph) -> None:
    put(graph, node(1, tool_name="x"), node(2), follows(1, 2), EnsureNode(EVENT.label, ("t", "p")))
    put(graph, enriched(event(1).key), stage="enrichment")
    values: dict[str, Any] = {
        "occurred_at": 5,
        "session_id": "s",
        "keywords": ("a", "b"),
        "access_count": 3,
        "access_count_decided_at": (4, 2),
        TENANT_TERM: "default03",
        "tool_name": None,
    }
    with graph.transaction() as transaction:
        transaction.restore_nodes(
            EVENT.label,
            [restored(1, **values), restored(3), FoundNode(("t", "p"), False, {}, True)],
            gone=[event(2).key, ("t", "none")],
        )
    nodes, edges = dump(graph)
    kept = {name: value for name, value in values.items() if value is not None}
    assert nodes == {
        (EVENT.label, event(1).key): (
            True,
            {"tenant": "default", "event_id": event_id(1), **kept},
        ),
        (EVENT.label, event(3).key): (True, {"tenant": "default", "event_id": event_id(3)}),
        (EVENT.label, ("t", "p")): (False, {"tenant": "t", "event_id": "p"}),
    }
    assert edges == {}
    assert stretch(graph, 1, 1) == []
    place = Link(5, event_id(1))
    (found,) = graph.stretch(EVENT.label, [Span(("default", "s"), place, place)], within=1)
    assert ids(found) == [1]


def test_restored_values_leave_the_others(graph: Graph) -> None:
    put(graph, node(1, tool_name="x"), EnsureNode(EVENT.label, ("t", "p")))
    before = dump(graph)
    with graph.transaction() as transaction:
        given = [restored(1, keywords=(), ended_at=7, tool_name=None), restored(9, tool_name="y")]
        transaction.restore_values(EVENT.label, ("keywords", "ended_at", "tool_name"), given[:1])
        transaction.restore_values(EVENT.label, ("tool_name",), given[1:])  # is not there
    shown, values = before[0].pop((EVENT.label, event(1).key))
    changed = {**values, "keywords": (), "ended_at": 7}
    del changed["tool_name"]
    nodes, edges = dump(graph)
    assert nodes.pop((EVENT.label, event(1).key)) == (shown, changed)
    assert (nodes, edges) == before


def test_a_node_is_shown_and_hidden_again(graph: Graph) -> None:
    put(graph, node(1))
    for visible in (False, True):
        with graph.transaction() as transaction:
            transaction.restore_nodes(EVENT.label, [restored(1, visible=visible, status="x")])
        (found,) = graph.nodes(EVENT.label, [event(1).key], ("status",)).values()
        assert (found.visible, found.values["status"]) == (visible, "x")


def test_what_was_streamed_can_be_restored(graph: Graph) -> None:
    put(graph, node(1), node(2), follows(1, 2), EnsureNode(EVENT.label, event(3).key))
    put(graph, enriched(event(1).key, embedding=turned(30)), stage="enrichment")
    put(graph, *ends_of_entities(), fact(10), fact(20), stage="enrichment")
    put(graph, met("Ann", 1, "a", 1, turned(5)), called("A", Position(2, 1)), stage="enrichment")
    before = dump(graph)
    nodes = {
        label: list(cast(Iterator[FoundNode], graph.stream(label, [p.name for p in row.stored()])))
        for label, row in NODES.items()
    }
    edges = {
        type_: list(
            cast(Iterator[FoundEdge], graph.stream(type_, [p.name for p in row.properties]))
        )
        for type_, row in EDGES.items()
    }
    graph.clear()
    for _ in range(2):  # into an empty graph, and over itself
        with graph.transaction() as transaction:
            for label, some in nodes.items():
                transaction.restore_nodes(label, some)
            for type_, parallel in edges.items():
                transaction.restore_edges(type_, parallel)
        assert dump(graph) == before


def test_restored_edges_are_all_of_their_pair(graph: Graph) -> None:
    put(graph, *(EnsureNode(EVENT.label, ("t", name)) for name in "abc"), cause(DIRECT))
    put(graph, cause(INFERRED), cause(INFERRED, "c"), stage="enrichment")
    a, b, c = (("t", name) for name in "abc")
    values = {"mechanism": INFERRED, "rule": "r", "confidence": 0.5, "evidence": None}
    with graph.transaction() as transaction:
        transaction.restore_edges(
            CAUSED_BY.type,
            [
                FoundEdge(a, b, EVENT.label, values),
                FoundEdge(b, c, EVENT.label, {"mechanism": DIRECT}),
                FoundEdge(a, ("t", "none"), EVENT.label, values),
            ],
            gone=[(a, c, EVENT.label), (c, a, EVENT.label)],
        )
    assert dump(graph).edges == {
        (CAUSED_BY.type, a, b, EVENT.label): [
            {"mechanism": INFERRED, "rule": "r", "confidence": 0.5}
        ],
        (CAUSED_BY.type, b, c, EVENT.label): [{"mechanism": DIRECT}],
    }


# -- what others did to a Neo4j --------------------------------------------------------------------


def by_hand(graph: Neo4jGraph, *texts: str) -> None:
    for text in texts:
        graph.client.write(text)


@pytest.mark.integration
def test_foreign_things_are_counted_and_go(neo4j_graph: Neo4jGraph) -> None:
    graph = neo4j_graph
    put(graph, node(1), node(2), follows(1, 2))
    before = dump(graph)
    by_hand(
        graph,
        "CREATE (:Person {name: 'Ada'})-[:KNOWS {since: 1833}]->(:`odd ``label` {x: 1}), ({y: 2})",
        "MATCH (a:Event), (b:Event) WHERE a <> b CREATE (a)-[:`odd type`]->(b)",
        "MATCH (e:Event) SET e:Marked",
        # without a whole key, hidden by a label that is not theirs, between other labels
        "CREATE (:Event {tenant: 't', status: 'x'}), (:Summary:Unmentioned {tenant: 't'})",
        "MATCH (e:Event) WITH e LIMIT 1 SET e:Unmentioned",
        f"MATCH (p:Person), (e:Event) CREATE (p)-[:{FOLLOWS.type} {{delta_ms: 1}}]->(e)",
    )
    census = graph.census()
    assert census.labels["Person"] == census.labels["odd `label"] == census.labels[""] == 1
    assert census.labels["Marked"] == 2
    assert (census.types["KNOWS"], census.types["odd type"]) == (1, 2)
    assert census.node_properties["Person"] == {"name"}
    assert census.edge_properties["KNOWS"] == {"since"}
    assert dict(census.stray) == {
        EVENT.label: 1,
        "Summary": 1,
        "Unmentioned": 2,
        FOLLOWS.type: 3,
    }
    assert dump(graph) == before
    labels = census.labels.keys() - NODES.keys()
    with graph.transaction() as transaction:
        transaction.remove_foreign(labels, census.types.keys() - EDGES.keys())
    assert dump(graph) == before
    census = graph.census()
    assert dict(census.labels) == {EVENT.label: 2}
    assert dict(census.types) == {FOLLOWS.type: 1}
    assert not census.stray


@pytest.mark.integration
def test_an_index_that_is_gone_or_is_another_is_told(neo4j_graph: Neo4jGraph) -> None:
    graph = neo4j_graph
    by_hand(
        graph,
        "DROP INDEX event_index_0",
        "DROP CONSTRAINT pass_key",
        "DROP INDEX forgotten_index_0",
        "CREATE INDEX forgotten_index_0 FOR (n:Forgotten) ON (n.tier)",
        "CREATE INDEX of_others FOR (n:Person) ON (n.name)",
        "CALL db.awaitIndexes(60)",
    )
    try:
        census = graph.census()
        expected = index_definitions().keys()
        assert expected - census.indexes - census.constraints == {
            "event_index_0",
            "forgotten_index_0",
            "pass_key",
        }
        assert len(census.indexes - expected) == 2
        assert "of_others" in census.indexes
    finally:
        by_hand(graph, "DROP INDEX forgotten_index_0", "DROP INDEX of_others")
        graph.ensure_schema()
    census = graph.census()
    assert census.indexes | census.constraints == expected


@pytest.mark.integration
def test_values_that_are_none_of_ours_are_shown_and_mended(neo4j_graph: Neo4jGraph) -> None:
    graph = neo4j_graph
    put(graph, node(1), node(2), follows(1, 2))
    before = dump(graph)
    by_hand(
        graph,
        "MATCH (e:Event) SET e.occurred_at = 'noon', e.ended_at = date(), e.status = ['x'], "
        "e.own = 1, e.tool_name = datetime()",
        f"MATCH ()-[e:{FOLLOWS.type}]->() SET e.delta_ms = 'long', e.own = 2",
        f"MATCH (a)-[e:{FOLLOWS.type}]->(b) CREATE (a)-[f:{FOLLOWS.type}]->(b)",
    )
    names = ("occurred_at", "ended_at", "status")
    (found, *_) = graph.nodes(EVENT.label, [event(1).key], names).values()
    assert str(found.values["occurred_at"]).startswith("not a time in milliseconds: noon")
    assert found.values["status"] == ("x",)
    assert len(dump(graph).edges[FOLLOWS.type, event(1).key, event(2).key, EVENT.label]) == 2
    with graph.transaction() as transaction:
        for (label, key), (visible, values) in before.nodes.items():
            transaction.restore_nodes(label, [FoundNode(key, visible, values, False)])
        for (type_, source, target, label), copies in before.edges.items():
            edges = [FoundEdge(source, target, label, values) for values in copies]
            transaction.restore_edges(type_, edges)
    assert dump(graph) == before
    census = graph.census()
    assert "own" not in census.node_properties[EVENT.label]
    assert "own" not in census.edge_properties[FOLLOWS.type]
