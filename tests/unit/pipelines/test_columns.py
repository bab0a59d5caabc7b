"""Columns of one tenant: what is set, dropped and forgotten, words, vectors, and edges."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.columns.contents import whole
from pipelines.columns.events import PROPERTIES
from pipelines.columns.tables import NOBODY, best
from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.columns.texts import COMMON, Texts, Vectors
from pipelines.columns.view import View
from pipelines.columns.windows import neighbour_weight, neighbours
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.operations import Key
from projections.schema import EDGES, ENTITY, EVENT, NODES, RELATES_TO, SAME_AS, SIMILAR_TO, Kind

IDS = ("a", "b", "c")

# -- a tenant that was changed holds what one holds that was made anew -----------------------------

_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.STRING: st.sampled_from(("x", "y y", None)),
    Kind.INTEGER: st.sampled_from((None, 1, 2)),
    Kind.FLOAT: st.sampled_from((0.25, 0.5)),
    Kind.BOOLEAN: st.booleans(),
    Kind.TIME: st.integers(1, 3),
    Kind.STRINGS: st.sampled_from(((), ("x",))),
    Kind.INTEGERS: st.just((1, 0)),
    Kind.VECTOR: st.none(),
}
_KINDS = {(row.label, p.name): p.kind for row in NODES.values() for p in row.properties}
_KINDS |= {(row.type, p.name): p.kind for row in EDGES.values() for p in row.properties}


def values(of: str, names: Iterable[str]) -> st.SearchStrategy[dict[str, Any]]:
    drawn = {name: _VALUES[_KINDS[of, name]] for name in names}
    if of == EVENT.label:
        drawn |= {"session_id": st.sampled_from(("s", "t")), "agent_id": st.just("agent")}
        drawn["global_position"] = st.sampled_from(("1-0", "2-1"))
    return st.fixed_dictionaries(drawn)


def key(own_id: str) -> Key:
    return "acme", own_id


def around(type_: str) -> st.SearchStrategy[list[Any]]:
    """Steps with edges of one type, and the nodes at their ends."""
    row = EDGES[type_]
    targets = [one for one in (row.target, row.other_target) if one]
    ends = st.sampled_from(IDS), st.sampled_from(IDS), st.sampled_from(targets)
    if type_ in (SIMILAR_TO.type, SAME_AS.type):  # the smaller id first
        ends = st.sampled_from("ab"), st.just("c"), st.sampled_from(targets)
    of_type = st.just(type_)
    labels = sorted({row.source, *targets})
    left = st.tuples(st.just("left"), st.sampled_from(labels), st.sampled_from(IDS))
    edge = st.tuples(st.just("edge"), of_type, *ends, values(type_, EDGE_PROPERTIES[type_]))
    pair = st.tuples(st.just("pair"), of_type, *ends)
    source = st.tuples(st.just("source"), of_type, ends[0])
    node = st.one_of(
        *(
            st.tuples(
                st.just("node"),
                st.just(label),
                st.sampled_from(IDS),
                values(label, NODE_PROPERTIES[label]),
            )
            for label in labels
        )
    )
    making = st.lists(st.one_of(edge, edge, edge, node), min_size=1, max_size=8)
    ending = st.lists(st.one_of(left, left, pair, source), min_size=1, max_size=3)
    return st.tuples(making, ending, making).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


class Model:
    """The same nodes and edges in dictionaries; of a pair of nodes one edge a type."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[str, str], dict[str, Any]] = {}
        self.edges: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def tenant(self) -> Tenant:
        made = Tenant()
        for (label, own_id), given_ in self.nodes.items():
            made.set_node(label, own_id, FoundNode(key(own_id), True, given_, False))
        for (type_, source, target, label), given_ in self.edges.items():
            made.add_edge(type_, FoundEdge(key(source), key(target), label, given_))
        return made

    def left(self, label: str, own_id: str) -> None:
        self.nodes.pop((label, own_id), None)
        self.edges = {
            one: given_
            for one, given_ in self.edges.items()
            if (label, own_id) not in ((EDGES[one[0]].source, one[1]), (one[3], one[2]))
        }


@pytest.mark.parametrize("type_", EDGE_PROPERTIES)
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_tenant_that_was_changed_holds_what_one_holds_that_is_new(
    type_: str, data: st.DataObject
) -> None:
    tenant, model = Tenant(), Model()
    steps = data.draw(around(type_))
    for verb, name, *rest in steps:
        if verb == "node":
            own_id, given_ = rest
            tenant.set_node(name, own_id, FoundNode(key(own_id), True, given_, False))
            model.nodes[name, own_id] = given_
        elif verb == "left":
            tenant.forget_edges(name, rest[0])
            tenant.set_node(name, rest[0], None)
            model.left(name, rest[0])
        elif verb == "edge":
            source, target, label, given_ = rest
            tenant.drop_edges(name, key(source), key(target), label)
            tenant.add_edge(name, FoundEdge(key(source), key(target), label, given_))
            model.edges[name, source, target, label] = given_
        elif verb == "pair":
            source, target, label = rest
            tenant.drop_edges(name, key(source), key(target), label)
            model.edges.pop((name, source, target, label), None)
        else:
            tenant.drop_edges(name, key(rest[0]), None)
            model.edges = {
                one: given_ for one, given_ in model.edges.items() if one[:2] != (name, rest[0])
            }
    assert whole(tenant) == whole(model.tenant())


def test_a_fact_stands_at_both_ends_and_at_one_end_once() -> None:
    tenant = Tenant()
    given_ = dict.fromkeys(EDGE_PROPERTIES[RELATES_TO.type]) | {"confidence": 0.5, "valid_from": 1}
    for target in ("a", "b"):
        tenant.add_edge(RELATES_TO.type, FoundEdge(key("a"), key(target), ENTITY.label, given_))
    assert [len(entity.facts) for entity in tenant.entities.all] == [2, 1]


# -- parts -----------------------------------------------------------------------------------------


def holding(texts: Texts, *stems: str) -> dict[int, float]:
    """Scores by row of all that hold one of the stems."""
    rows, scores = texts.scored(stems, [(numpy.ones(2**16, dtype=bool), 2**16)])
    return dict(zip(rows.tolist(), scores.tolist(), strict=True))


def test_a_text_counts_for_its_row_until_the_row_says_something_else() -> None:
    texts = Texts()
    texts.put(0, Counter({"lamp": 2, "order": 1}))
    texts.put(1, Counter({"order": 1}))
    assert set(holding(texts, "lamp")) == {0}
    rows = numpy.array([0, 1])
    assert texts.counts(["order", "lamp", "none"], rows).tolist() == [[1, 2, 0], [1, 0, 0]]
    assert texts.distinct(rows).tolist() == [2, 1]
    texts.put(0, Counter({"order": 3}))
    texts.drop(1)
    assert holding(texts, "lamp") == {}
    assert set(holding(texts, "order")) == {0}
    assert texts.counts(["order"], rows).tolist() == [[3], [0]]


def test_rare_words_and_short_texts_count_more() -> None:
    texts = Texts()
    for row in range(20):
        texts.put(row, Counter({"the": 1, f"word{row}": 1}))
    texts.put(20, Counter({"word3": 1}) + Counter({f"filler{n}": 1 for n in range(30)}))
    scores = holding(texts, "the", "word3")
    assert scores[3] > scores[20] > scores[4] > 0


@pytest.mark.parametrize("most", [1, 90, 2_000])
def test_common_words_are_looked_up_where_rare_ones_stand_and_nobody_sees_it(most: int) -> None:
    chance = random.Random(most)
    texts = Texts()
    for row in range(2 * COMMON):
        words = [f"w{int(chance.paretovariate(0.4))}" for _ in range(6)]
        texts.put(row, Counter(["the", "of" if row % 3 else "by", *words]))
    seen = numpy.array([chance.random() < 0.8 for _ in range(2 * COMMON)])
    stems = ["the", "of", *(f"w{number}" for number in (7, 30, 80, 200))]
    rows, scores = texts.scored(stems, [(seen, most)])
    exact = holding(texts, *stems)
    assert (len(rows) < len(exact)) == (most < 2_000)
    assert {row: exact[row] for row in rows.tolist()} == dict(
        zip(rows.tolist(), scores.tolist(), strict=True)
    )
    best_rows = sorted((row for row in exact if seen[row]), key=exact.__getitem__)[-most:]
    assert {*best_rows} <= {*rows.tolist()}


@pytest.mark.parametrize("size", [5, 500])
def test_the_nearest_vectors_are_those_of_brute_force(size: int) -> None:
    noise = numpy.random.default_rng(size)
    matrix = noise.normal(size=(size, 384))
    matrix /= numpy.linalg.norm(matrix, axis=1, keepdims=True)
    vectors = Vectors(384)
    for row, vector in enumerate(matrix):
        vectors.put(row, vector.tolist() if row != 3 else None)
    question = matrix[1].astype("f4")
    for among in (numpy.ones(size, dtype=bool), numpy.arange(size) % 7 != 1):
        exact = matrix @ matrix[1]
        exact[3], exact[~among] = -2, -2
        rows, cosines = vectors.nearest(question, among, 4, numpy.negative)
        assert rows.tolist() == numpy.argsort(-exact)[: min(4, int((exact > -2).sum()))].tolist()
        assert cosines == pytest.approx(exact[rows], abs=0.01)
    cosines = vectors.cosines(question, numpy.array([1, 3, size + 5]))
    assert cosines[0] == pytest.approx(1, abs=0.001)
    assert numpy.isnan(cosines[1:]).all()


def test_a_window_is_the_sum_of_an_event_and_its_neighbours_by_weight() -> None:
    matrix = numpy.random.default_rng(7).normal(size=(5, 384))
    matrix /= numpy.linalg.norm(matrix, axis=1, keepdims=True)
    vectors = Vectors(384)
    for row, vector in enumerate(matrix):
        vectors.put(row, vector.tolist() if row < 4 else None)
    question = matrix[1].astype("f4")

    def told(rows: list[int]) -> dict[int, float]:
        """Of rows 0, 1 and 2, which follow each other, and of those that stand alone."""
        before = [rows.index(row - 1) if row in (1, 2) else NOBODY for row in rows]
        around = neighbours(numpy.array(before))
        cosines = vectors.window_cosines(question, numpy.array(rows), around)
        return dict(zip(rows, cosines.tolist(), strict=True))

    found = told([0, 1, 2, 3, 4])
    for row in (0, 1, 2):
        whole = sum(neighbour_weight(other - row) * matrix[other] for other in (0, 1, 2))
        assert found[row] == pytest.approx(whole @ question / numpy.linalg.norm(whole), abs=0.01)
    assert found[3] == pytest.approx(matrix[3] @ question, abs=0.01)
    assert numpy.isnan(found.pop(4))
    moved = told([2, 4, 3, 0, 1])
    assert numpy.isnan(moved.pop(4))
    assert moved == found, "to the last bit, wherever a row stands"


def test_the_best_are_sorted_and_of_equal_ones_the_ranking_says_which_is_first() -> None:
    scores = numpy.array([0.5, 1.0, 0.5, 1.0, 0.5, 0.1])
    rows = numpy.array([10, 20, 30, 40, 50, 60])
    assert best(rows, scores, 4, numpy.negative).tolist() == [3, 1, 4, 2]
    assert best(rows, scores, 9, numpy.negative).tolist() == [3, 1, 4, 2, 0, 5]
    assert best(rows, scores, 3, numpy.positive).tolist() == [1, 3, 0]


def test_who_sees_few_events_finds_the_best_of_these() -> None:
    """Visibility is a filter before the best are chosen: nobody gets fewer than there are."""
    tenant = Tenant()
    for number in range(200):
        given_ = dict.fromkeys(PROPERTIES) | {
            "occurred_at": number,
            "session_id": "s",
            "agent_id": "agent",
            "global_position": f"{number}-0",
            "user_id": "ann" if number == 150 else "bob",
            "text": "the lamp" if number != 150 else "of a lamp among many other words",
            "embedding": [1.0, *[0.0] * 383] if number != 150 else [0.1, 1.0, *[0.0] * 382],
        }
        tenant.set_node(
            EVENT.label, f"e{number}", FoundNode(key(f"e{number}"), True, given_, False)
        )
    view = View(tenant, Scope("acme", "ann", now_ms=1_000))
    question = numpy.array([1.0, *[0.0] * 383], dtype="f4")
    for hits in (view.text_hits(["lamp"], 10), view.vector_hits(question, 10)):
        assert [hit.event_id for hit in hits.shown] == ["e150"]
        assert len(hits.withheld) == 20
