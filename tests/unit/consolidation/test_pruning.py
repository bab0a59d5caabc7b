"""Pairs, entities and facts that leave, and decisions that come back from the ledger as made."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from consolidation.decay import DAY_MS, Retrievals
from consolidation.forgetting import (
    RetainedEntity,
    RetainedFact,
    SimilarEdge,
    archived_entities,
    expiring_facts,
    returning_entities,
    similar_departures,
)
from consolidation.forgetting_payloads import (
    FORGOTTEN_EVENT,
    RECALLED_EVENT,
    EntitiesArchived,
    EntitiesRecalled,
    EventsRecalled,
    FactKey,
    FactsExpired,
    PairsDropped,
    archived_payloads,
    dropped_payloads,
    expired_payloads,
    forgotten_payloads,
    parse_departure,
    recalled_payloads,
)
from consolidation.retention import DEFAULT_POLICY, Departure, RetentionPolicy, Tier
from projections.errors import InvalidEvent
from tests.factories import START_MS, event_id

OFF = RetentionPolicy(enabled=False)
SUMMARY = "5a" * 16
OTHER = "0b" * 16


def star(*scores: float, hot: bool = False) -> list[SimilarEdge]:
    """Event 1 and others, each of which has three better pairs of its own."""
    edges = [SimilarEdge(event_id(1), event_id(n), s, hot) for n, s in enumerate(scores, 2)]
    for n in range(2, len(scores) + 2):
        for better in range(3):
            edges.append(SimilarEdge(event_id(n), event_id(100 * n + better), 0.99))
    return edges


# -- similar pairs ---------------------------------------------------------------------------------


def test_an_event_keeps_its_three_best() -> None:
    assert similar_departures(star(0.95, 0.88, 0.94, 0.9, 0.87), DEFAULT_POLICY) == [
        (event_id(1), event_id(3)),
        (event_id(1), event_id(6)),
    ]


def test_of_equal_scores_the_smaller_other_end_stays() -> None:
    assert similar_departures(star(0.9, 0.9, 0.9, 0.9), DEFAULT_POLICY) == [
        (event_id(1), event_id(5))
    ]


def test_the_best_that_a_neighbour_has_stays_with_a_popular_event() -> None:
    edges = [SimilarEdge(event_id(1), event_id(n), 0.9) for n in range(2, 9)]
    assert similar_departures(edges, DEFAULT_POLICY) == []


def test_a_hot_end_keeps_all() -> None:
    assert similar_departures(star(0.9, 0.9, 0.9, 0.9, hot=True), DEFAULT_POLICY) == []


def test_what_scores_below_the_setting_goes_whatever_its_rank() -> None:
    edges = [
        SimilarEdge(event_id(1), event_id(2), 0.86),
        SimilarEdge(event_id(1), event_id(3), 0.9),
    ]
    policy = RetentionPolicy(similar_score=0.9)
    assert similar_departures(edges, policy) == [(event_id(1), event_id(2))]


def test_how_many_stay_is_a_setting() -> None:
    found = similar_departures(star(0.95, 0.94, 0.93), RetentionPolicy(similar_keep=1))
    assert (event_id(1), event_id(2)) not in found
    assert {(event_id(1), event_id(3)), (event_id(1), event_id(4))} <= set(found)


# -- entities --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "expected"),
    [
        (RetainedEntity("a", 0), ["a"]),
        (RetainedEntity("a", 1), []),
        (RetainedEntity("a", 0, 2), ["a"]),
        (RetainedEntity("a", 0, 3), []),
        (RetainedEntity("a", 0, archived=True), []),
    ],
)
def test_entities_without_edges_are_archived_unless_asked_for(
    entity: RetainedEntity, expected: list[str]
) -> None:
    assert archived_entities([entity], DEFAULT_POLICY) == expected


def test_archived_entities_that_are_mentioned_again_return() -> None:
    entities = [
        RetainedEntity("c", 2, archived=True),
        RetainedEntity("a", 1, archived=True),
        RetainedEntity("b", 0, archived=True),
        RetainedEntity("d", 4),
    ]
    assert returning_entities(entities) == ["a", "c"]


# -- facts -----------------------------------------------------------------------------------------


def fact(confidence: float = 0.05, ends: int | None = 1, **fields: Any) -> RetainedFact:
    key = FactKey(SUMMARY, "lives_in", "semantic", OTHER, START_MS, event_id(1))
    until = None if ends is None else START_MS + ends
    return RetainedFact(key, confidence, until)._replace(**fields)


@pytest.mark.parametrize(
    ("made", "expires"),
    [
        (fact(0.0999), True),
        (fact(0.1), False),
        (fact(ends=None), False),
        (fact(ends=2), False),  # still valid
        (fact(ends=1), True),  # the end is exclusive
        (fact(expired=True), False),
        (fact(0.09, retrievals=Retrievals(1.0, START_MS)), False),
        (fact(0.09, retrievals=Retrievals(1.0, START_MS - 400 * DAY_MS)), True),
    ],
)
def test_facts_that_ended_and_that_nothing_speaks_for_expire(
    made: RetainedFact, expires: bool
) -> None:
    assert expiring_facts([made], DEFAULT_POLICY, START_MS + 1) == [made.key] * expires


def test_switched_off_nothing_leaves() -> None:
    assert (
        similar_departures(star(0.9, 0.9, 0.9, 0.9), OFF),
        archived_entities([RetainedEntity("a", 0)], OFF),
        expiring_facts([fact()], OFF, START_MS + 1),
    ) == ([], [], [])


# -- payloads --------------------------------------------------------------------------------------


def read(event_type: str, payloads: list[dict[str, Any]]) -> list[Any]:
    found = []
    for payload in payloads:
        data = orjson.dumps(payload)
        assert len(data) <= 128 * 1024
        found.append(parse_departure(event_type, orjson.loads(data)))
    return found


def test_forgotten_events_come_back_by_summary() -> None:
    leaving = [
        Departure(event_id(n), tier, "why", summary)
        for n, tier, summary in (
            (4, Tier.ARCHIVE, SUMMARY),
            (3, Tier.COLD, SUMMARY),
            (2, Tier.COLD, OTHER),
            (1, Tier.COLD, SUMMARY),
        )
    ]
    read_again = read(FORGOTTEN_EVENT, forgotten_payloads(leaving))
    assert [(decided.summary_id, decided.events) for decided in read_again] == [
        (OTHER, ((event_id(2), Tier.COLD),)),
        (
            SUMMARY,
            (
                (event_id(1), Tier.COLD),
                (event_id(3), Tier.COLD),
                (event_id(4), Tier.ARCHIVE),
            ),
        ),
    ]


def test_large_decisions_are_cut_to_chunks_below_128_kib() -> None:
    ids = [event_id(2**100 + n) for n in range(2_001)]
    hashes = [f"{n:032x}" for n in range(2_001)]
    pairs = [(event_id(n), event_id(2**100 + n)) for n in range(1_001)]
    keys = [
        FactKey("f" * 32, "r" * 64, "semantic", "f" * 32, START_MS, event_id(n)) for n in range(301)
    ]
    events = [Departure(one, Tier.COLD, "why", SUMMARY) for one in ids]
    assert [
        [
            sum(len(part) for _, part in decided if isinstance(part, tuple))
            for decided in read(event_type, payloads)
        ]
        for event_type, payloads in (
            (FORGOTTEN_EVENT, dropped_payloads(pairs)),
            (FORGOTTEN_EVENT, archived_payloads(hashes)),
            (FORGOTTEN_EVENT, expired_payloads(keys)),
            (RECALLED_EVENT, recalled_payloads(ids)),
        )
    ] == [[1_000, 1], [2_000, 1], [300, 1], [2_000, 1]]
    forgotten = read(FORGOTTEN_EVENT, forgotten_payloads(events))
    assert [len(decided.events) for decided in forgotten] == [2_000, 1]


def test_pairs_entities_and_facts_come_back() -> None:
    pair = (event_id(1), event_id(2))
    assert read(FORGOTTEN_EVENT, dropped_payloads([pair])) == [PairsDropped(pairs=(pair,))]
    assert read(FORGOTTEN_EVENT, archived_payloads([OTHER])) == [
        EntitiesArchived(entity_ids=(OTHER,))
    ]
    assert read(FORGOTTEN_EVENT, expired_payloads([fact().key])) == [
        FactsExpired(facts=(fact().key,))
    ]


def test_what_is_recalled_comes_back() -> None:
    assert read(RECALLED_EVENT, recalled_payloads([event_id(2), event_id(1)], [OTHER])) == [
        EventsRecalled(event_ids=(event_id(1), event_id(2))),
        EntitiesRecalled(entity_ids=(OTHER,)),
    ]
    assert read(RECALLED_EVENT, recalled_payloads([event_id(1)], accessed=False)) == [
        EventsRecalled(event_ids=(event_id(1),), accessed=False)
    ]


def test_nothing_needs_no_payload() -> None:
    made = [
        forgotten_payloads([]),
        dropped_payloads([]),
        archived_payloads([]),
        expired_payloads([]),
        recalled_payloads(),
    ]
    assert made == [[], [], [], [], []]


EVENTS = {"kind": "events", "summary_id": SUMMARY, "event_ids": {"cold": [event_id(1)]}}
FACT = expired_payloads([fact().key])[0]["facts"][0]


def without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ([], [("payload", "a JSON object")]),
        ({}, [("payload.kind", "required: one of events, similar, entities, facts")]),
        ({**EVENTS, "kind": "all"}, [("payload.kind", "one of events, similar, entities, facts")]),
        ({**EVENTS, "why": ""}, [("payload.why", "unknown field")]),
        (
            {**EVENTS, "summary_id": "x"},
            [("payload.summary_id", "an id of 16 to 64 hexadecimal digits")],
        ),
        (
            {**EVENTS, "event_ids": {"hot": [event_id(1)]}},
            [("payload.event_ids.hot", "unknown field")],
        ),
        (
            {**EVENTS, "event_ids": {"cold": [event_id(1)], "archive": [event_id(1)]}},
            [("payload.event_ids", "1 to 2,000 different event ids in all")],
        ),
        (
            {**EVENTS, "event_ids": {"cold": [event_id(1), "Ab", event_id(1)]}},
            [("payload.event_ids.cold[1]", "an event id: a UUID in lower case")],
        ),
        (
            {**EVENTS, "event_ids": {"cold": [event_id(1), event_id(1)]}},
            [("payload.event_ids.cold", "different items")],
        ),
        (
            {**EVENTS, "event_ids": {}},
            [("payload.event_ids", "1 to 2,000 different event ids in all")],
        ),
        (
            {
                **EVENTS,
                "event_ids": {
                    "cold": [event_id(n) for n in range(1_500)],
                    "archive": [event_id(n) for n in range(1_500, 3_000)],
                },
            },
            [("payload.event_ids", "1 to 2,000 different event ids in all")],
        ),
        ({"kind": "similar", "pairs": []}, [("payload.pairs", "at least 1 items")]),
        (
            {"kind": "similar", "pairs": [[event_id(2), event_id(1)], [event_id(1)], 3]},
            [
                ("payload.pairs[0]", "two different event ids, the smaller first"),
                ("payload.pairs[1][1]", "required"),
                ("payload.pairs[2]", "a list"),
            ],
        ),
        (
            {"kind": "entities", "entity_ids": ["Ada"]},
            [("payload.entity_ids[0]", "an entity id, entity:<hash>")],
        ),
        (
            {"kind": "facts", "facts": [without(FACT, "valid_from"), {**FACT, "edge_type": "x"}]},
            [
                ("payload.facts[0].valid_from", "required"),
                (
                    "payload.facts[1].edge_type",
                    "one of 'semantic', 'temporal', 'causal' or 'entity'",
                ),
            ],
        ),
    ],
)
def test_broken_decisions_are_named_with_their_rule(
    payload: Any, expected: list[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_departure(FORGOTTEN_EVENT, payload)
    assert list(caught.value.errors) == expected


def test_similar_pairs_are_not_recalled() -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_departure(RECALLED_EVENT, {"kind": "similar", "pairs": []})
    assert caught.value.errors == (("payload.kind", "one of events, entities"),)
