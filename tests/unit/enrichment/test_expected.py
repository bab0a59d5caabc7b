"""What events together must have made does not depend on their order; what breaks it is named."""

from __future__ import annotations

import random
from typing import Any

import pytest

from enrichment.names import entity_id
from enrichment.ports import Analysis
from enrichment.stage import derive_event, derive_statement
from enrichment.text import event_text
from pipelines.proof.comparison import Difference
from pipelines.proof.enriched_differences import (
    FoundEntity,
    FoundEvent,
    FoundHistory,
    contained_differences,
    entity_differences,
    history_differences,
    similar_differences,
    vector_differences,
)
from pipelines.proof.expected_enrichment import ENTITY_NAMES, ExpectedGraph, Made, made_by
from projections.identity import Position
from projections.schema import SIMILAR_TO
from tests.factories import event, event_id

ANN, BERLIN = (entity_id("default", name, "concept") for name in ("ann", "berlin"))
AGENT = ("default", entity_id("default", "agent-1", "agent"))


def lives_in(number: int, city: str, **fields: Any) -> Made:
    payload = {"source": {"name": "Ann"}, "relation": "lives_in", "target": {"name": city}}
    made = event(number, event_type="memory.fact_asserted", payload=payload, **fields)
    return made_by(derive_statement(Position(number, 0), made))


def renamed(number: int, name: str, position: int) -> Made:
    payload = {"entity_id": ANN, "correction": "rename", "name": name}
    made = event(number, event_type="memory.entity_corrected", payload=payload)
    return made_by(derive_statement(Position(position, 0), made))


def same(number: int, position: int, *, is_same: bool = True) -> Made:
    payload = {"pairs": [{"entity_ids": [ANN, BERLIN], "same": is_same}]}
    made = event(number, event_type="memory.same_as", payload=payload)
    return made_by(derive_statement(Position(position, 0), made))


def said(number: int, text: str = "Hello there.", **fields: Any) -> Made:
    made = event(number, payload=text, **fields)
    return made_by(derive_event(Position(number, 0), made, event_text(made), Analysis()))


def all_made() -> list[Made]:
    return [
        *(lives_in(n, city) for n, city in ((1, "Berlin"), (2, "Paris"), (3, "Berlin"))),
        *(renamed(4, "A.", 90), renamed(5, "Ann!", 80)),
        *(same(6, 70), same(7, 71, is_same=False)),
        *(said(n) for n in (11, 12, 10)),
    ]


def expected(*mades: Made) -> ExpectedGraph:
    graph = ExpectedGraph()
    for made in mades:
        graph.add(made)
    return graph


def content(graph: ExpectedGraph) -> Any:
    return (
        {key: (node.values, node.decided()) for key, node in graph.entities.items()},
        {key: graph.history(key) for key in graph.entries},
        {key: (graph.facts(key), graph.same(key)) for key in graph.entities},
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_order_and_repetition_do_not_matter(seed: int) -> None:
    mades = all_made()
    shuffled = random.Random(seed).sample(mades * 2, 2 * len(mades))
    assert content(expected(*shuffled)) == content(expected(*mades))


def test_the_earliest_mention_names_and_the_latest_dates() -> None:
    values = expected(*all_made()).entities[AGENT].values
    assert values is not None
    found = dict(zip(ENTITY_NAMES, values, strict=True))
    assert found["first_event_id"] == event_id(10)
    assert found["last_seen"] - found["first_seen"] == 2


def test_of_two_decisions_the_later_position_stays() -> None:
    graph = expected(*all_made())
    assert graph.entities["default", ANN].decided()[:2] == ("A.", (90, 0))
    source = ("default", min(ANN, BERLIN))
    ((_, target, *_, retracted, event_of, decided_at),) = graph.same(source)
    assert target == max(ANN, BERLIN)
    assert (retracted, event_of, decided_at) == (True, event_id(7), (71, 0))


def test_facts_follow_from_all_that_was_said() -> None:
    edges = expected(*all_made()).facts(("default", ANN))
    assert [(edge[1] == BERLIN, edge[8] is None) for edge in edges] == [
        (True, False),
        (False, False),
        (True, True),
    ]


def found_entity(key: tuple[str, str], graph: ExpectedGraph) -> FoundEntity:
    node = graph.entities[key]
    return FoundEntity(
        key,
        "4:x:1",
        node.values is not None,
        node.values or (None,) * len(ENTITY_NAMES),
        node.decided(),
        tuple((*edge, "5:x:1") for edge in graph.facts(key)),
        tuple((*edge, "5:x:2") for edge in graph.same(key)),
    )


def test_what_is_as_expected_is_no_difference() -> None:
    graph = expected(*all_made())
    for key in graph.entities:
        assert list(entity_differences(key, graph, found_entity(key, graph))) == []
    for key in graph.entries:
        found = FoundHistory(key, "4:x:2", graph.history(key))
        assert list(history_differences(key, graph, found)) == []
    stranger = ("default", "x")
    assert list(history_differences(stranger, graph, FoundHistory(stranger, "", []))) == []


def test_an_entity_may_know_more_than_one_event_says() -> None:
    graph, made = expected(*all_made()), said(11)
    entities = {key: found_entity(key, graph) for key in graph.entities}
    assert list(contained_differences(made, entities, {})) == []
    early = expected(said(9))
    entities = {key: found_entity(key, early) for key in early.entities}
    assert list(contained_differences(made, entities, {})) == [
        Difference(
            "different",
            "node",
            "Entity",
            AGENT,
            {
                "last_seen": (
                    made.entities[AGENT][-1],  # type: ignore[index]  # it is mentioned
                    entities[AGENT].values[-1],
                )
            },
        )
    ]


def found_event(**fields: Any) -> FoundEvent:
    bare = FoundEvent(("default", "b"), ("default", "s"), 1, "1-0", (), None, None, (), (), (), 0)
    return bare._replace(**fields)


@pytest.mark.parametrize(
    ("edge", "kind"),
    [
        (("default", "c", 0.9, 0.9004, "e"), None),
        (("default", "c", 0.8495, 0.8495, "e"), None),
        (("default", "c", 0.9, 0.902, "e"), "different"),
        (("default", "c", None, 0.9, "e"), "different"),
        (("default", "c", float("nan"), 0.9, "e"), "different"),
        (("default", "c", 0.9, 0.848, "e"), "extra"),
        (("default", "c", 0.9, None, "e"), "extra"),
        (("default", "a", 0.9, 0.9, "e"), "extra"),
        (("default", "b", 1.0, 1.0, "e"), "extra"),
        (("acme", "c", 0.9, 0.9, "e"), "extra"),
    ],
)
def test_a_likeness_must_keep_the_rules(edge: tuple[Any, ...], kind: str | None) -> None:
    found = found_event(similar=(edge,), similar_count=1)
    assert [d.kind for d, _ in similar_differences(found)] == ([kind] if kind else [])


def test_an_event_has_ten_likenesses_at_most() -> None:
    ((difference, edge),) = similar_differences(found_event(similar_count=11))
    assert (difference.fields, edge) == ({SIMILAR_TO.type: (10, 11)}, None)


@pytest.mark.parametrize(
    ("length", "model", "fields"),
    [
        (None, None, set()),
        (1.0004, "m@1", set()),
        (1.01, "m@1", {"embedding"}),
        (-1.0, "m@1", {"embedding"}),
        (1.0, "m@2", {"embedding_model"}),
        (None, "m@1", {"embedding_model"}),
    ],
)
def test_an_embedding_is_of_unit_length_and_of_the_model(
    length: float | None, model: str | None, fields: set[str]
) -> None:
    found = list(vector_differences(found_event(length=length, model=model), "m@1"))
    assert {name for difference in found for name in difference.fields} == fields
