"""How often nodes were returned: what counts, what is taken back, what goes with an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.access_counts import Access, FactPlace, NodeKey, ShownFact
from consolidation.decay import DAY_MS, Retrievals, retrieval_count
from consolidation.forgetting_payloads import Accessed, FactKey, accessed_payloads, expired_payloads
from consolidation.stage import Facts, consolidate, derive
from consolidation.tombstones import Tombstone
from pipelines.proof.expected_accesses import ExpectedAccesses
from projections.events import Event
from projections.operations import Operations
from projections.positions import START, Position
from projections.schema import ENTITY, EVENT
from tests.decision_factories import ENTITIES, forgotten, recalled, system
from tests.fact_factories import feedback_payload
from tests.factories import START_MS, event_id

ONE: NodeKey = (EVENT.label, "default", event_id(1))
ADA: NodeKey = (ENTITY.label, "default", ENTITIES[0])
FACT = FactKey(ENTITIES[0], "works_at", "semantic", ENTITIES[1], START_MS, event_id(1))
WORKS: FactPlace = ("default", FACT)


def returned(number: int, *events: int, times: int = 1, facts: Sequence[FactKey] = ()) -> Event:
    accessed = Accessed({event_id(one): times for one in events}, {}, dict.fromkeys(facts, times))
    (payload,) = accessed_payloads(accessed)
    return system(number, "memory.accessed", payload)


def judged(number: int, *, useful: Sequence[int] = (), useless: Sequence[int] = ()) -> Event:
    payload = feedback_payload(map(event_id, useful), map(event_id, useless))
    return system(number, "memory.feedback", payload)


def folded(
    *events: Event,
    counting: bool = True,
    accesses: Mapping[NodeKey, Access] | None = None,
    shown_facts: Mapping[FactPlace, ShownFact] | None = None,
    tombstones: Mapping[tuple[str, str], Tombstone] | None = None,
    came: Position | None = START,
) -> Operations:
    batch = derive([(Position(1, n), one) for n, one in enumerate(events)])
    shown = {ONE: Access()} if accesses is None else accesses
    return consolidate(
        batch,
        Facts(
            counting=counting,
            accesses=shown,
            shown_facts=shown_facts or {},
            tombstones=tombstones or {},
            came={} if came is None else {ONE[1:]: came},
        ),
    )


def retrievals(operations: Operations) -> tuple[Any, ...]:
    """(weight, last retrieval, fading) of the one fact that is written."""
    (edge,) = operations.set_edges.values()
    return tuple(edge.values[n] for n in ("retrieval_count", "last_retrieved_at", "faded_at"))


def access(operations: Operations, key: NodeKey = ONE) -> Access | None:
    place = (key[0], key[1:])
    found = operations.decide_nodes
    if (*place, "access_count") not in found:
        return None
    values = [found[*place, name].value for name in ("access_count", "last_accessed_at")]
    return Access(*values)


def test_every_return_counts_and_the_latest_tells_when() -> None:
    made = folded(returned(9, 1, times=2), returned(7, 1), accesses={ONE: Access(3, START_MS)})
    assert access(made) == Access(6, START_MS + 9)


def test_an_entity_is_counted_too() -> None:
    payload = {"entities": {ENTITIES[0]: 2}}
    made = folded(system(9, "memory.accessed", payload), accesses={ADA: Access()})
    assert access(made, ADA) == Access(2, START_MS + 9)


@pytest.mark.parametrize(
    ("before", "useful", "expected"),
    [
        (Access(2, START_MS), True, Access(3, START_MS + 9)),
        (Access(2, START_MS), False, Access(1, START_MS)),
        (Access(0, None), False, Access(0, None)),
    ],
)
def test_useful_counts_once_more_and_useless_is_taken_back(
    before: Access, useful: bool, expected: Access
) -> None:
    said = judged(9, useful=[1]) if useful else judged(9, useless=[1])
    assert access(folded(said, accesses={ONE: before})) == expected


def test_what_is_not_there_is_not_counted() -> None:
    assert access(folded(returned(9, 1), judged(10, useful=[1]), came=None)) is None


def test_what_is_judged_before_it_comes_is_not_counted_either() -> None:
    said = [judged(n, useful=[1]) for n in (7, 8, 9)]
    assert access(folded(*said, came=Position(1, 1))) == Access(2, START_MS + 9)


def test_what_is_said_of_an_entity_waits_for_it() -> None:
    payload = {"useful": [f"entity:{ENTITIES[0]}"]}
    made = folded(system(9, "memory.feedback", payload), accesses={})
    assert access(made, ADA) == Access(1, START_MS + 9)


def test_what_was_forgotten_meanwhile_is_not_counted() -> None:
    gone = {("default", event_id(1)): Tombstone(False, START)}
    assert access(folded(returned(9, 1), accesses={}, tombstones=gone)) is None
    assert access(folded(returned(8, 1), forgotten(9, [1]), returned(10, 1))) is None


def test_a_recall_is_the_first_access() -> None:
    made = folded(returned(8, 1, times=5), forgotten(9, [1]), recalled(10, [1]), returned(11, 1))
    assert access(made) == Access(2, START_MS + 11)
    assert access(folded(recalled(10, [1]), accesses={})) == Access(1, START_MS + 10)


def test_a_recall_that_nobody_asked_for_is_no_access() -> None:
    back = recalled(10, [1], accessed=False)
    assert access(folded(returned(8, 1, times=5), forgotten(9, [1]), back)) is None
    made = folded(returned(8, 1, times=5), forgotten(9, [1]), back, returned(11, 1))
    assert access(made) == Access(1, START_MS + 11)


def test_an_older_recall_is_no_access() -> None:
    newer = {("default", event_id(1)): Tombstone(False, Position(9, 0))}
    assert access(folded(recalled(10, [1]), accesses={}, tombstones=newer)) is None


def test_nothing_is_counted_again() -> None:
    events = [returned(8, 1, facts=[FACT]), judged(9, useful=[1]), recalled(10, [1])]
    made = folded(*events, counting=False, shown_facts={WORKS: ShownFact()})
    assert (access(made), made.set_edges) == (None, {})


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3)), min_size=1, max_size=8))
def test_retrievals_add_up_to_what_each_is_worth(days: list[tuple[int, int]]) -> None:
    events = [
        returned(n, facts=[FACT], times=times)._replace(occurred_at_ms=START_MS + day * DAY_MS)
        for n, (day, times) in enumerate(days)
    ]
    made = folded(*events, shown_facts={WORKS: ShownFact()})
    weight, at_ms, faded_at_ms = retrievals(made)
    expected = sum(
        times * retrieval_count(Retrievals(1.0, START_MS + day * DAY_MS), at_ms)
        for day, times in days
    )
    assert (at_ms, faded_at_ms) == (START_MS + max(day for day, _ in days) * DAY_MS, None)
    assert weight == pytest.approx(expected)


def test_a_fact_that_is_not_there_is_left_out() -> None:
    assert folded(returned(9, facts=[FACT])).set_edges == {}


@pytest.mark.parametrize("counting", [True, False])
def test_a_fact_fades_once_and_keeps_its_retrievals(counting: bool) -> None:
    shown = ShownFact(Retrievals(2.0, START_MS), START_MS + 5)
    (payload,) = expired_payloads([FACT])
    expired = system(9, "memory.forgotten", payload)
    made = folded(expired, counting=counting, shown_facts={WORKS: shown})
    weight, at_ms, faded_at_ms = retrievals(made)
    assert (weight, at_ms, faded_at_ms) == (2.0, START_MS, START_MS + 5)


def test_verify_comes_to_what_the_graph_was_told() -> None:
    events = [
        returned(1, 1, times=3),
        judged(2, useful=[1]),
        forgotten(3, [1]),
        returned(4, 1),
        recalled(5, [1]),
        returned(6, 1),
        judged(7, useless=[1]),
    ]
    expected = ExpectedAccesses()
    for one in derive([(Position(1, n), event) for n, event in enumerate(events)]):
        expected.take(one)
    assert expected.nodes()[ONE] == access(folded(*events)) == Access(1, START_MS + 6)
