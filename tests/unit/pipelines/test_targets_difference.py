"""Two graphs of one ledger side by side: what one has alone, and what has other values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pipelines.graph.rows import FoundNode
from pipelines.proof.report import EVERYTHING, Scope
from pipelines.proof.targets import EXAMPLES_OF_EACH, difference_of
from projections.schema import EVENT, FOLLOWS
from tests.factories import event
from tests.memory_stack import MemoryStack


def folded_twice(count: int = 3, length: int = 4) -> tuple[MemoryStack, MemoryStack]:
    first = MemoryStack()
    first.fill(count, length)
    second = first.again()
    second.fold()
    return first, second


def test_the_same_fold_twice_is_the_same() -> None:
    first, second = folded_twice()
    found = difference_of(first.graph, second.graph, EVERYTHING)
    assert (found.types, found.examples, found.behind) == ((), (), {})
    assert found.compared > 12
    assert found.as_dict()["same"]


def test_what_differs_is_counted_by_type_way_and_property_with_examples() -> None:
    first, second = folded_twice(2, 8)
    names = [p.name for p in EVENT.stored()]
    nodes = list(cast(Iterator[FoundNode], second.graph.stream(EVENT.label, names)))
    changed = [node._replace(values={**node.values, "agent_id": "other"}) for node in nodes[:5]]
    with second.graph.transaction() as transaction:
        transaction.restore_nodes(EVENT.label, changed, gone=[nodes[-1].key])
    found = difference_of(first.graph, second.graph, EVERYTHING)
    by_type = {one.type: one for one in found.types}
    events = by_type[EVENT.label]
    assert (events.first, events.only_first, events.only_second, events.different) == (16, 1, 0, 5)
    assert events.properties == {"agent_id": 5}
    assert by_type[FOLLOWS.type].only_first == 1
    told = [one for one in found.examples if one.kind == "different"]
    assert len(told) == EXAMPLES_OF_EACH
    assert told[0].fields["agent_id"][1] == "other"
    back = difference_of(second.graph, first.graph, EVERYTHING)
    assert {one.type: one.only_second for one in back.types}[EVENT.label] == 1


def test_another_tenant_is_left_out_and_one_that_is_behind_is_told() -> None:
    first, second = folded_twice()
    first.append(event(900, tenant="acme"), event(901, tenant="acme"))
    first.fold()
    found = difference_of(first.graph, second.graph, EVERYTHING)
    assert found.behind == {"projection": 2}
    assert {one.type: one.only_first for one in found.types}[EVENT.label] == 2
    assert not difference_of(first.graph, second.graph, Scope(tenant="default")).types


def test_what_differs_is_told_of_each_tenant_without_values() -> None:
    first, second = folded_twice()
    first.append(event(900, tenant="acme", agent_id="of acme"))
    first.fold()
    found = difference_of(first.graph, second.graph, EVERYTHING)
    assert found.tenants.keys() == {"acme"}
    told = found.tenants["acme"]
    events = next(one for one in told["types"] if one["type"] == EVENT.label)
    assert (events["only_first"], events["first"]) == (1, None)
    assert {tuple(one["key"][:1]) for one in told["examples"]} == {("acme",)}
    assert all(isinstance(one["fields"], list) for one in told["examples"])
    assert "of acme" not in repr(told)
    with second.graph.transaction() as transaction:
        transaction.restore_nodes(EVENT.label, [], gone=[("default", event(1).event_id)])
    both = difference_of(first.graph, second.graph, EVERYTHING)
    assert both.tenants.keys() == {"acme", "default"}
    assert both.tenants["acme"] == told
