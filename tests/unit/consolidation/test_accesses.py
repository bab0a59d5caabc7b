"""What reads returned, and what readers say of it, as the ledger holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.forgetting_payloads import (
    MAX_NODES,
    MAX_TIMES,
    MAX_TRAVERSED,
    Accessed,
    FactKey,
    accessed_payloads,
    parse_accessed,
)
from enrichment.payloads import parse_feedback
from projections.errors import InvalidEvent
from projections.events import canonical_json
from tests.decision_factories import ENTITIES
from tests.fact_factories import feedback_payload
from tests.factories import START_MS, event_id

LARGEST = 128 * 1024


def fact(number: int = 1, relation: str = "works_at") -> FactKey:
    return FactKey("f" * 32, relation, "semantic", "e" * 32, START_MS + number, event_id(number))


COUNTS = st.integers(1, MAX_TIMES)
ACCESSED = st.builds(
    Accessed,
    st.dictionaries(st.integers(1, 3_000).map(event_id), COUNTS, max_size=30),
    st.dictionaries(st.sampled_from(ENTITIES), COUNTS),
    st.dictionaries(st.integers(1, 3_000).map(fact), COUNTS, max_size=10),
)


@given(ACCESSED)
def test_what_was_returned_is_read_back_from_its_chunks(accessed: Accessed) -> None:
    events: dict[str, int] = {}
    entities: dict[str, int] = {}
    facts: dict[FactKey, int] = {}
    for payload in accessed_payloads(accessed):
        chunk = parse_accessed(payload)
        events.update(chunk.events)
        entities.update(chunk.entities)
        facts.update(chunk.facts)
    assert Accessed(events, entities, facts) == accessed


def test_a_chunk_that_is_full_stays_below_its_limit() -> None:
    accessed = Accessed(
        {event_id(n): MAX_TIMES for n in range(1_500)},
        {f"{n:064x}": MAX_TIMES for n in range(1_000)},
        {
            replace(fact(n, "r" * 64), source_id="a" * 64, target_id="b" * 64): MAX_TIMES
            for n in range(450)
        },
    )
    payloads = accessed_payloads(accessed)
    assert [
        (len(p.get("events", ())) + len(p.get("entities", ())), len(p.get("facts", ())))
        for p in payloads
    ] == [(MAX_NODES, MAX_TRAVERSED), (MAX_NODES, MAX_TRAVERSED), (500, 150)]
    assert max(len(canonical_json(payload)) for payload in payloads) < LARGEST


def test_nothing_returned_is_no_payload() -> None:
    assert accessed_payloads(Accessed()) == []


def test_more_than_can_be_counted_counts_for_as_many_as_can() -> None:
    (payload,) = accessed_payloads(Accessed(events={event_id(1): MAX_TIMES + 1}))
    assert payload == {"events": {event_id(1): MAX_TIMES}}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, "payload"),
        ({}, "payload"),
        ({"events": [event_id(1)]}, "payload.events"),
        ({"events": {"x": 1}}, "payload.events.x"),
        ({"events": {event_id(1): 0}}, f"payload.events.{event_id(1)}"),
        ({"events": {event_id(1): True}}, f"payload.events.{event_id(1)}"),
        ({"entities": {"entity:" + "a" * 32: 1}}, "payload.entities.entity:" + "a" * 32),
        ({"facts": [{}]}, "payload.facts[0].times"),
        ({"nodes": {}}, "payload.nodes"),
        (
            {
                "events": {event_id(n): 1 for n in range(600)},
                "entities": {f"{n:032x}": 1 for n in range(600)},
            },
            "payload",
        ),
    ],
)
def test_what_breaks_a_rule_is_named(payload: Any, field: str) -> None:
    with pytest.raises(InvalidEvent) as raised:
        parse_accessed(payload)
    assert field in dict(raised.value.errors)


def test_feedback_is_read_as_it_was_given() -> None:
    payload = feedback_payload(
        [event_id(1), f"entity:{ENTITIES[0]}", f"summary:{'a' * 32}"], [event_id(2)], "thanks"
    )
    feedback = parse_feedback(payload)
    assert feedback.events == {event_id(1): True, event_id(2): False}
    assert feedback.entities == {ENTITIES[0]: True}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ([], "payload"),
        ({}, "payload"),
        ({"useful": event_id(1)}, "payload.useful"),
        ({"useful": ["x"]}, "payload.useful[0]"),
        ({"useful": [1]}, "payload.useful[0]"),
        ({"useful": [event_id(1)], "not_useful": [event_id(1)]}, "payload"),
        ({"useful": [event_id(n) for n in range(101)]}, "payload.useful"),
        (
            {
                "useful": [event_id(n) for n in range(60)],
                "not_useful": [event_id(n) for n in range(60, 120)],
            },
            "payload",
        ),
        ({"useful": [event_id(1)], "comment": "x" * 1_001}, "payload.comment"),
        ({"useful": [event_id(1)], "score": 1}, "payload.score"),
    ],
)
def test_feedback_that_breaks_a_rule_is_named(payload: Any, field: str) -> None:
    with pytest.raises(InvalidEvent) as raised:
        parse_feedback(payload)
    assert field in dict(raised.value.errors)
