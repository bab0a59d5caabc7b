"""What the schema's rows say of operations, and that the order of their properties says nothing."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from consolidation.stage import Facts as ConsolidationFacts
from consolidation.stage import consolidate, derive
from enrichment.names import entity_id
from enrichment.ports import Analysis
from enrichment.stage import Facts as EnrichmentFacts
from enrichment.stage import derive_event, derive_statement, enrich
from enrichment.text import event_text
from pipelines.graph import cypher
from projections import operation_rules
from projections.errors import InvalidOperation
from projections.identity import START, Position
from projections.operations import (
    ClearEdges,
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
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
    FOLLOWS,
    INFERRED,
    NODES,
    RELATES_TO,
    SAME_AS,
    SUMMARIZES,
    EdgeRow,
    Kind,
    Merge,
    NodeRow,
    Property,
)
from projections.structural import Facts, event_node, project
from tests.decision_factories import (
    COMMUNITIES,
    ENTITIES,
    agent_made,
    boosted,
    community,
    episode,
    episode_id,
    forgotten,
    linked,
    pass_ended,
    requested,
    session_made,
)
from tests.factories import event, sessions

ONE, OTHER = ("t", "1"), ("t", "2")
EXAMPLES: Mapping[Kind, Any] = {
    Kind.STRING: "text",
    Kind.INTEGER: 7,
    Kind.FLOAT: 0.5,
    Kind.BOOLEAN: True,
    Kind.TIME: 1_000,
    Kind.STRINGS: ["a", "b"],
    Kind.INTEGERS: (1, 2),
    Kind.TIMES: (1_000, 2_000),
    Kind.VECTOR: [0.5, 1.0],
}
WRONG: Mapping[Kind, list[Any]] = {
    Kind.STRING: [1, b"text", ["a"]],
    Kind.INTEGER: [1.0, True, "1"],
    Kind.FLOAT: [1, True, "0.5"],
    Kind.BOOLEAN: [1, "true"],
    Kind.TIME: [1.0, "2026-02-02", True],
    Kind.STRINGS: ["ab", [1], {"a"}, ["a", None]],
    Kind.INTEGERS: [7, [1, True], ["1"]],
    Kind.TIMES: [7, [1.0]],
    Kind.VECTOR: [0.5, [1], [0.5, "1"]],
}


def example_key(row: NodeRow, number: int = 1) -> tuple[Any, ...]:
    return tuple(f"{name}-{number}" for name in row.key)


def examples(properties: tuple[Property, ...]) -> dict[str, Any]:
    return {p.name: EXAMPLES[p.kind] for p in properties}


# -- every row, every stage ------------------------------------------------------------------------

Make = Callable[[dict[str, Any]], MergeNode | SetNode | MergeEdge | SetEdge]


def node_maker(row: NodeRow, stage: str) -> Make:
    kind = MergeNode if stage == row.stage else SetNode
    return lambda values: kind(label=row.label, key=example_key(row), values=values)


def edge_maker(row: EdgeRow, stage: str) -> Make:
    kind = MergeEdge if row.written_by(stage) else SetEdge
    source, target = example_key(NODES[row.source]), example_key(NODES[row.target], 2)
    return lambda values: kind(type=row.type, source=source, target=target, values=values)


def edge_examples(row: EdgeRow, stage: str) -> dict[str, Any]:
    values = examples(row.carried(stage))
    if row.shared_by is not None:
        name, of_stage = row.shared_by
        values[name] = of_stage[stage]
    return values


def stages_of(row: NodeRow | EdgeRow) -> list[str]:
    return sorted({row.stage, *(p.stage for p in row.properties)} - {"every"})


NODE_CASES = [
    pytest.param(node_maker(row, stage), examples(owned), owned, (), id=f"{row.label}-{stage}")
    for row in NODES.values()
    if row.stage != "every"
    for stage in stages_of(row)
    if (owned := row.owned(stage))
]
EDGE_CASES = [
    pytest.param(
        edge_maker(row, stage),
        edge_examples(row, stage),
        row.carried(stage),
        row.key,
        id=f"{row.type}-{stage}",
    )
    for row in EDGES.values()
    for stage in stages_of(row)
]
CASES = pytest.mark.parametrize(("make", "values", "properties", "key"), NODE_CASES + EDGE_CASES)


@CASES
def test_all_that_a_stage_owns_is_taken_and_nothing_less(
    make: Make, values: dict[str, Any], properties: tuple[Property, ...], key: tuple[str, ...]
) -> None:
    stage = make(values).stage
    assert {p.stage for p in properties if p.name not in key} <= {stage}
    for p in properties:
        with pytest.raises(InvalidOperation, match=rf"{p.name} "):
            make({name: value for name, value in values.items() if name != p.name})
    with pytest.raises(InvalidOperation, match="colour is no property of the row"):
        make({**values, "colour": "red"})


@CASES
def test_values_have_the_types_of_their_properties_or_are_none(
    make: Make, values: dict[str, Any], properties: tuple[Property, ...], key: tuple[str, ...]
) -> None:
    for p in properties:
        for wrong in WRONG[p.kind]:
            with pytest.raises(InvalidOperation, match=f"{p.name} must be {re.escape(p.kind)}"):
                make({**values, p.name: wrong})
        if p.name in key:
            with pytest.raises(InvalidOperation, match=f"{p.name} must be .*, is NoneType"):
                make({**values, p.name: None})
        else:
            assert make({**values, p.name: None}).values[p.name] is None


@pytest.mark.parametrize("row", [row for row in NODES.values() if row.stage != "every"])
def test_decided_properties_are_written_by_decisions_alone(row: NodeRow) -> None:
    def decide(name: str, value: Any) -> DecideNode:
        return DecideNode(
            label=row.label, key=example_key(row), name=name, value=value, position=START
        )

    for p in row.properties:
        if p.merge is Merge.DECIDED:
            assert decide(p.name, EXAMPLES[p.kind]).stage == p.stage
            with pytest.raises(InvalidOperation, match=f"{p.name} must be"):
                decide(p.name, WRONG[p.kind][0])
        else:
            with pytest.raises(InvalidOperation, match=f"{p.name} is not decided"):
                decide(p.name, EXAMPLES[p.kind])


# -- single rules ----------------------------------------------------------------------------------


def event_values(**values: Any) -> dict[str, Any]:
    return {**event_node(event(1), START).values, **values}


def caused_by(**values: Any) -> MergeEdge:
    return MergeEdge(type=CAUSED_BY.type, source=ONE, target=OTHER, values=values)


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("Happening: label is no row", lambda: RemoveNode("Happening", ONE)),
    ("BEFORE: type is no row", lambda: ClearEdges("BEFORE", ONE)),
    (
        "BEFORE: type is no row",
        lambda: MergeEdge(type="BEFORE", source=ONE, target=OTHER, values={}),
    ),
    (
        r"Event: key of Event is \(tenant, event_id\), has 1 parts",
        lambda: MergeNode(label=EVENT.label, key=("t",), values=event_values()),
    ),
    (r"Event: key .* has 3 parts", lambda: EnsureNode(EVENT.label, ("t", "1", "2"))),
    (r"Event: key .* has \(str, NoneType\)", lambda: RemoveNode(EVENT.label, ("t", None))),
    (
        r"FOLLOWS: key of Event .* has 1 parts",
        lambda: RemoveEdge(type=FOLLOWS.type, source=ONE, target=("t",)),
    ),
    ("FOLLOWS: key of Event", lambda: ClearEdges(FOLLOWS.type, ("t",))),
    (
        "Event: text belongs to enrichment, others to projection",
        lambda: MergeNode(label=EVENT.label, key=ONE, values=event_values(text="said")),
    ),
    (
        "Event: .* belongs to enrichment, nodes are made by projection",
        lambda: MergeNode(label=EVENT.label, key=ONE, values=examples(EVENT.owned("enrichment"))),
    ),
    (
        "Event: access_count is decided",
        lambda: SetNode(label=EVENT.label, key=ONE, values={"access_count": 1}),
    ),
    (
        "RELATES_TO: .* belongs to consolidation, edges are made by enrichment",
        lambda: MergeEdge(
            type=RELATES_TO.type,
            source=ONE,
            target=OTHER,
            values=edge_examples(RELATES_TO, "consolidation"),
        ),
    ),
    ("Checkpoint: label has no placeholders", lambda: EnsureNode("Checkpoint", ("s", 1))),
    (
        "SUMMARIZES: label ends at no Entity",
        lambda: MergeEdge(
            type=SUMMARIZES.type, source=ONE, target=OTHER, values={}, label=ENTITY.label
        ),
    ),
    (
        "CAUSED_BY: mechanism is 'inferred', which projection does not write",
        lambda: caused_by(mechanism=INFERRED),
    ),
    (
        "CAUSED_BY: mechanism is 'direct', which enrichment does not write",
        lambda: caused_by(mechanism=DIRECT, rule="r", confidence=0.5, evidence="e"),
    ),
    (
        "CAUSED_BY: mechanism is 'guessed', which no stage writes",
        lambda: RemoveEdge(
            type=CAUSED_BY.type, source=ONE, target=OTHER, values={"mechanism": "guessed"}
        ),
    ),
    (
        "RELATES_TO: relation is missing",
        lambda: RemoveEdge(
            type=RELATES_TO.type, source=ONE, target=OTHER, values={"event_id": "e"}
        ),
    ),
    (
        "RELATES_TO: fact is not of the key",
        lambda: RemoveEdge(
            type=RELATES_TO.type,
            source=ONE,
            target=OTHER,
            values=edge_examples(RELATES_TO, "enrichment"),
        ),
    ),
]


@pytest.mark.parametrize(("message", "make"), REFUSED)
def test_what_the_rows_do_not_say_is_refused_where_it_is_made(
    message: str, make: Callable[[], object]
) -> None:
    for _ in range(2):  # a refusal is not remembered as an acceptance
        with pytest.raises(InvalidOperation, match=message) as caught:
            make()
        assert not caught.value.retryable
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("operation", "stage"),
    [
        (RemoveEdge(type=CAUSED_BY.type, source=ONE, target=OTHER), ""),
        (
            RemoveEdge(
                type=CAUSED_BY.type, source=ONE, target=OTHER, values={"mechanism": INFERRED}
            ),
            "enrichment",
        ),
        (ClearEdges(CAUSED_BY.type, ONE), ""),
        (ClearEdges(FOLLOWS.type, ONE), "projection"),
        (RemoveEdge(type=FOLLOWS.type, source=ONE, target=OTHER), "projection"),
        (EnsureNode(EVENT.label, ONE), ""),
        (RemoveNode(EVENT.label, ONE), ""),
        (caused_by(mechanism=DIRECT), "projection"),
    ],
)
def test_an_operation_says_whose_it_is(operation: Any, stage: str) -> None:
    assert operation.stage == stage


def test_a_batch_writes_what_one_stage_owns() -> None:
    batch = Operations()
    batch.add(EnsureNode(ENTITY.label, ONE))
    batch.add(caused_by(mechanism=DIRECT))
    foreign = SetNode(label=EVENT.label, key=ONE, values=examples(EVENT.owned("enrichment")))
    with pytest.raises(InvalidOperation, match="Event: stage is enrichment, the batch is of"):
        batch.add(foreign)
    batch.on_behalf_of("enrichment").add(foreign)
    with pytest.raises(InvalidOperation, match="CAUSED_BY: stage is projection"):
        batch.on_behalf_of("enrichment").add(caused_by(mechanism=DIRECT))
    assert len(cypher.statements(batch, "projection")) == 3
    with pytest.raises(InvalidOperation, match="stage is projection, consolidation applies"):
        cypher.statements(batch, "consolidation")


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_decisions_about_an_edge_the_later_one_stays(order: tuple[int, int]) -> None:
    batch = Operations()
    for ms in order:
        values = {**edge_examples(SAME_AS, "enrichment"), "decided_at": (ms, 0)}
        batch.add(MergeEdge(type=SAME_AS.type, source=ONE, target=OTHER, values=values))
    (edge,) = batch.merge_edges.values()
    assert edge.values["decided_at"] == (2, 0)


# -- the order of a row's properties ---------------------------------------------------------------


def projected() -> Operations:
    placed = [(Position(n, 0), one) for n, one in enumerate(sessions(2, 5))]
    return project([*placed, (Position(99, 0), event(99, parent=1))], Facts())


def enriched() -> Operations:
    said = event(1, payload="Ann met Bob in Berlin.", tool_name="search")
    fact = event(
        2,
        event_type="memory.fact_asserted",
        payload={"source": {"name": "Ann"}, "relation": "lives_in", "target": {"name": "Berlin"}},
    )
    pair = [entity_id("default", name, "concept") for name in ("ann", "berlin")]
    same = event(
        3, event_type="memory.same_as", payload={"pairs": [{"entity_ids": pair, "same": True}]}
    )
    batch = [
        derive_event(Position(1, 0), said, event_text(said), Analysis()),
        derive_statement(Position(2, 0), fact),
        derive_statement(Position(3, 0), same),
    ]
    return enrich(batch, EnrichmentFacts(present=frozenset([said.key])))


def consolidated() -> Operations:
    decided = [
        episode(9, [1]),
        session_made(10),
        agent_made(11),
        linked(12, "session-0", "session-1", "session-2"),
        boosted(13, {1: 1.5}),
        community(14, COMMUNITIES[0], ENTITIES[:2], "run-1"),
        forgotten(15, [2], episode_id()),
        pass_ended(16, []),
        requested(17),
    ]
    placed = [(Position(n, 0), one) for n, one in enumerate(decided, 1)]
    return consolidate(derive(placed), ConsolidationFacts())


def whole_schema(stage: str) -> Operations:
    """An operation of the stage for every row of which it writes anything."""
    batch = Operations(stage)
    for row in NODES.values():
        if row.stage != "every" and row.owned(stage):
            batch.add(node_maker(row, stage)(examples(row.owned(stage))))
    for edge in EDGES.values():
        if stage in stages_of(edge):
            batch.add(edge_maker(edge, stage)(edge_examples(edge, stage)))
            if edge.key:
                keyed = edge_examples(edge, stage)
                batch.on_behalf_of(edge.stage if edge.shared_by is None else stage).add(
                    RemoveEdge(
                        type=edge.type,
                        source=example_key(NODES[edge.source]),
                        target=example_key(NODES[edge.target], 2),
                        values={name: keyed[name] for name in edge.key},
                    )
                )
    return batch


BATCHES: dict[str, tuple[str, Callable[[], Operations]]] = {
    "projected": ("projection", projected),
    "enriched": ("enrichment", enriched),
    "consolidated": ("consolidation", consolidated),
    **{
        f"every row of {stage}": (stage, partial(whole_schema, stage))
        for stage in ("projection", "enrichment", "consolidation")
    },
}


def written(batch: Operations, stage: str) -> list[tuple[str, dict[str, Any]]]:
    """What the statements write, by property: as the texts say where in a row each one stands."""
    found = []
    for text, parameters in cypher.statements(batch, stage):
        (element,) = re.findall(r"(?:\[e:|UNWIND.*\(n:)(\w+)", text)
        row: NodeRow | EdgeRow = EDGES[element] if element in EDGES else NODES[element]
        places = {
            p.name: int(place.group(1))
            for p in row.properties
            if (place := re.search(rf"(?<!\w){p.name}(?:: | = )[^=]*?row\[(\d+)\]", text))
        }
        first = min(places.values(), default=None)
        for values in parameters["rows"]:
            by_name = {name: values[place] for name, place in sorted(places.items())}
            found.append((element, {"key": values[:first], **by_name}))
    return found


def clear_caches() -> None:
    for module in (operation_rules, cypher):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture
def fresh_caches() -> Iterator[None]:
    clear_caches()
    yield
    clear_caches()


@pytest.mark.usefixtures("fresh_caches")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", BATCHES)
def test_the_order_of_properties_in_the_schema_changes_nothing(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, fold = BATCHES[name]
    before, rows_before = written(fold(), stage), cypher.statements(fold(), stage)
    for row in NODES.values():
        mixed = shuffled(row.properties, seed)
        monkeypatch.setitem(NODES, row.label, replace(row, properties=mixed))
    for edge in EDGES.values():
        mixed = shuffled(edge.properties, seed)
        monkeypatch.setitem(EDGES, edge.type, replace(edge, properties=mixed))
    clear_caches()
    assert written(fold(), stage) == before
    assert any(len(values) > 5 for _, values in before)
    assert cypher.statements(fold(), stage) != rows_before  # the rows themselves are others


def shuffled(properties: tuple[Property, ...], seed: int) -> tuple[Property, ...]:
    if seed == 0:
        return properties[::-1]
    return tuple(random.Random(seed).sample(properties, len(properties)))


@pytest.mark.parametrize("stage", ["projection", "enrichment", "consolidation"])
def test_statements_write_every_property_of_the_stage(stage: str) -> None:
    found = written(whole_schema(stage), stage)
    for row in NODES.values():
        owned = examples(row.owned(stage))
        if owned and row.stage != "every":
            assert (row.label, {"key": [*example_key(row)], **owned}) in found
    for edge in EDGES.values():
        if stage in stages_of(edge):
            key = [*example_key(NODES[edge.source]), *example_key(NODES[edge.target], 2)]
            assert (edge.type, {"key": key, **edge_examples(edge, stage)}) in found
