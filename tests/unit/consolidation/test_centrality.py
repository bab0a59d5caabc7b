"""Boosts of importance by local centrality."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.links import TERMS, Connections, boosts, changed_boosts, importance_boost
from consolidation.payloads import MAX_BOOST, BoostsDecided, boost_payloads, parse_consolidated
from projections.errors import InvalidEvent
from projections.schema import CAUSED_BY, REFERENCES
from tests.factories import event_id
from tests.source_factories import mentioned, source_event

counts = st.integers(0, 10_000)
connected = st.builds(Connections, counts, counts, counts)


def test_an_unconnected_event_gains_nothing() -> None:
    assert importance_boost(Connections()) == 0


@pytest.mark.parametrize(
    ("connections", "expected"),
    [
        (Connections(effects=1, causes=1), 0.0),  # a step of a chain
        (Connections(effects=2), 0.5),
        (Connections(effects=4), 1.0),
        (Connections(effects=500), 1.5),
        (Connections(effects=2, causes=2), 1.0),
        (Connections(causes=8), 0.0),
        (Connections(sessions=1), 0.2),
        (Connections(sessions=3), 0.5),
        (Connections(sessions=100), 1.0),
        (Connections(500, 500, 500), MAX_BOOST),
    ],
)
def test_what_is_gone_back_to_gains_most(connections: Connections, expected: float) -> None:
    assert importance_boost(connections) == expected


@given(connected, counts)
def test_more_effects_never_lower_a_boost(one: Connections, more: int) -> None:
    boost = importance_boost(one._replace(effects=one.effects + more))
    assert importance_boost(one) <= boost


@given(connected)
def test_a_boost_is_a_multiple_of_a_tenth_within_bounds(one: Connections) -> None:
    boost = importance_boost(one)
    assert 0 <= boost <= MAX_BOOST
    assert boost == round(boost * 10) / 10


def test_only_causes_and_references_count() -> None:
    """A summary, a likeness or a neighbour in time makes nothing more important."""
    assert {term.row.type for term in TERMS} == {CAUSED_BY.type, REFERENCES.type}


def test_the_terms_add_up_to_the_highest_boost() -> None:
    assert sum(term.most for term in TERMS) == MAX_BOOST


def test_every_term_is_documented() -> None:
    assert [term.name for term in TERMS if not term.meaning] == []


def test_boosts_are_of_effects_causes_and_sessions_that_share_rare_entities() -> None:
    rare, common = mentioned("GV1N64"), mentioned("Seattle")
    events = [
        source_event(1, mentions=[rare, common]),
        source_event(2, after=[1]),
        source_event(3, after=[1, 2]),
        source_event(4),
    ]
    effects = {event_id(1): 2, event_id(2): 1}
    sessions_of = {rare.entity_id: ["session-1", "session-2", "session-3", "session-4"]}
    assert boosts(events, effects, sessions_of) == {event_id(1): 1.0}


def test_an_entity_that_only_its_own_session_knows_adds_nothing() -> None:
    rare = mentioned("GV1N64")
    found = boosts([source_event(1, mentions=[rare])], {}, {rare.entity_id: ["session-1"]})
    assert found == {}


def test_a_cause_named_twice_is_one() -> None:
    twice = source_event(3, after=[1, 1])
    assert boosts([twice], {event_id(3): 1}, {}) == {}


def test_what_is_recorded_already_is_not_said_again() -> None:
    found = {event_id(1): 0.5, event_id(2): 1.0}
    recorded = {event_id(1): 0.5, event_id(3): 1.5, event_id(4): 2.0}
    looked_at = [event_id(n) for n in (3, 2, 1)]
    assert changed_boosts(found, recorded, looked_at) == {event_id(2): 1.0, event_id(3): 0.0}


def test_what_was_recorded_leaves_nothing_to_record() -> None:
    found = {event_id(1): 0.5}
    changed = changed_boosts(found, {}, [event_id(1), event_id(2)])
    assert changed_boosts(found, changed, [event_id(1), event_id(2)]) == {}


# -- payloads --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how_many", "chunks"), [(0, 0), (1, 1), (2_000, 1), (2_001, 2)])
def test_boosts_come_back_from_chunks_below_128_kib(how_many: int, chunks: int) -> None:
    changed = {event_id(2**100 + n): n % 31 / 10 for n in range(how_many)}
    payloads = boost_payloads(changed)
    read: dict[str, float] = {}
    for payload in payloads:
        data = orjson.dumps(payload)
        assert len(data) <= 128 * 1024
        decided = parse_consolidated(orjson.loads(data))
        assert isinstance(decided, BoostsDecided)
        read.update(decided.boosts)
    assert (len(payloads), read) == (chunks, changed)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, [("payload", "a JSON object")]),
        ({"kind": "boosts"}, [("payload.boosts", "required")]),
        (
            {"kind": "boosts", "boosts": {}},
            [("payload.boosts", "at least 1 items")],
        ),
        (
            {"kind": "boosts", "boosts": {"x": 1}},
            [("payload.boosts.x", "an event id: a UUID in lower case")],
        ),
        (
            {"kind": "boosts", "boosts": {event_id(1): 3.1}, "more": 1},
            [
                (f"payload.boosts.{event_id(1)}", "a number up to 3.0"),
                ("payload.more", "unknown field"),
            ],
        ),
        (
            {"kind": "boosts", "boosts": {event_id(1): True}},
            [(f"payload.boosts.{event_id(1)}", "a number")],
        ),
        (
            {"kind": "boosts", "boosts": {event_id(1): float("nan")}},
            [(f"payload.boosts.{event_id(1)}", "a finite number")],
        ),
    ],
)
def test_broken_boosts_are_named_with_their_rule(
    payload: Any, expected: list[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_consolidated(payload)
    assert list(caught.value.errors) == expected


def test_a_decision_tells_its_run() -> None:
    payload = {"kind": "boosts", "boosts": {event_id(1): 1}, "run_id": "r", "chunk": 0, "chunks": 1}
    decided = parse_consolidated(payload)
    assert isinstance(decided, BoostsDecided)
    assert (decided.boosts, decided.run_id) == ({event_id(1): 1.0}, "r")
