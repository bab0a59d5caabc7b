"""Payloads of the system events of Stage 2: what they must be, and what they mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from enrichment.facts import Assertion
from enrichment.histories import group_of, groups_of
from enrichment.names import VALUE, canonical_name, entity_id
from enrichment.payloads import (
    ENTITY_CORRECTED,
    FACT_ASSERTED,
    FACT_RETRACTED,
    MAX_PAIRS,
    SAME_AS_FOUND,
    EntityCorrected,
    FactAsserted,
    FactRetracted,
    SameAsFound,
    SameAsPair,
    parse_statement,
    stated_fact,
    stated_pairs,
    stated_retraction,
)
from projections.errors import InvalidEvent
from projections.events import SYSTEM_EVENTS, canonical_json
from tests.factories import START_MS, event, event_id
from tests.strategies import json_values

FACT = {"source": {"name": "Caroline"}, "relation": "works_at", "target": {"name": "Acme"}}
ONE, OTHER = "a" * 32, "b" * 32


def asserted(**fields: Any) -> FactAsserted:
    made = parse_statement(FACT_ASSERTED, {**FACT, **fields})
    assert isinstance(made, FactAsserted)
    return made


def retracted(**fields: Any) -> FactRetracted:
    made = parse_statement(FACT_RETRACTED, {**FACT, **fields})
    assert isinstance(made, FactRetracted)
    return made


def corrected(**fields: Any) -> EntityCorrected:
    made = parse_statement(ENTITY_CORRECTED, {"entity_id": ONE, **fields})
    assert isinstance(made, EntityCorrected)
    return made


def fact(**fields: Any) -> Assertion:
    return stated_fact(event(1), asserted(**fields), position_ms=1)


def refused(event_type: str, payload: Any) -> dict[str, str]:
    with pytest.raises(InvalidEvent) as caught:
        parse_statement(event_type, payload)
    return dict(caught.value.errors)


def test_a_fact_has_defaults() -> None:
    made = fact()
    assert (made.edge_type, made.confidence, made.source_kind, made.status, made.functional) == (
        "semantic",
        10_000,
        "system",
        "staged",
        True,
    )
    assert made.fact == "Caroline works at Acme"


@pytest.mark.parametrize("written", ["works_at", "Works At", "works-at", "worksAt", " works at "])
def test_a_relation_is_read_in_its_normal_form(written: str) -> None:
    assert asserted(relation=written).relation == "works_at"


@pytest.mark.parametrize(
    ("relation", "edge_type"),
    [
        ("uses", "semantic"),
        ("preceded_by", "temporal"),
        ("led_to", "causal"),
        ("part_of", "entity"),
        ("has_colour", "semantic"),
    ],
)
def test_a_relation_brings_its_edge_type(relation: str, edge_type: str) -> None:
    assert fact(relation=relation).edge_type == edge_type


def test_a_stated_edge_type_stands_beside_the_relations_own() -> None:
    assert fact(relation="uses", edge_type="causal").edge_type == "causal"


def test_an_edge_type_is_lower_case() -> None:
    assert refused(FACT_ASSERTED, {**FACT, "edge_type": "Semantic"}) == {
        "payload.edge_type": "one of 'semantic', 'temporal', 'causal' or 'entity'"
    }


@pytest.mark.parametrize(
    ("value", "name"), [("dark mode", "dark mode"), (3, "3"), (2.5, "2.5"), (True, "true")]
)
def test_a_literal_is_a_concept_that_is_never_resolved(value: Any, name: str) -> None:
    target = asserted(relation="prefers", target=value).target
    assert (target.name, target.entity_type, target.subtype, target.exact) == (
        name,
        "concept",
        VALUE,
        True,
    )


def test_a_users_own_edit_is_confirmed() -> None:
    assert fact(source_kind="user_edit").status == "confirmed"


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"source": {"name": ""}}, "source.name"),
        ({"source": {}}, "source.name"),
        ({"source": "Caroline"}, "source"),
        ({"source": None}, "source"),
        ({"source": {"name": "x" * 513}}, "source.name"),
        ({"source": {"name": "\u200b"}}, "source.name"),
        ({"source": {"name": "a", "type": "Person"}}, "source.type"),
        ({"source": {"name": "a", "subtype": "A b"}}, "source.subtype"),
        ({"source": {"name": "a", "kind": "x"}}, "source.kind"),
        ({"relation": "9 lives"}, "relation"),
        ({"relation": "\u043b\u044e\u0431\u0438\u0442"}, "relation"),
        ({"relation": "r" * 65}, "relation"),
        ({"relation": 5}, "relation"),
        ({"target": None}, "target"),
        ({"target": ""}, "target"),
        ({"target": "\u202e"}, "target"),
        ({"target": []}, "target"),
        ({"fact": "x" * 501}, "fact"),
        ({"fact": "a\x00b"}, "fact"),
        ({"confidence": 1.1}, "confidence"),
        ({"confidence": -0.1}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"valid_from": "yesterday"}, "valid_from"),
        ({"valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-02T00:00:00Z"}, "valid_to"),
        ({"source_kind": "rumour"}, "source_kind"),
        ({"status": "Confirmed"}, "status"),
        ({"functional": "yes"}, "functional"),
        ({"weight": 1}, "weight"),
    ],
)
def test_a_broken_rule_is_named_by_its_field(broken: dict[str, Any], field: str) -> None:
    assert list(refused(FACT_ASSERTED, {**FACT, **broken})) == [f"payload.{field}"]


def test_all_broken_rules_are_named_at_once() -> None:
    errors = refused(FACT_ASSERTED, {"confidence": 2, "colour": "red"})
    assert sorted(errors) == [
        "payload.colour",
        "payload.confidence",
        "payload.relation",
        "payload.source",
        "payload.target",
    ]


@given(json_values)
def test_whatever_is_sent_is_read_or_refused(payload: Any) -> None:
    fields: set[str] = set()
    for event_type in (FACT_ASSERTED, FACT_RETRACTED, ENTITY_CORRECTED, SAME_AS_FOUND):
        for sent in (payload, {**FACT, "target": payload}, {"entity_id": ONE, "from": payload}):
            try:
                parse_statement(event_type, sent)
            except InvalidEvent as error:
                fields.update(field for field, _ in error.errors)
    assert all(field.startswith("payload") for field in fields)


def test_every_type_read_here_is_one_that_enrichment_owns() -> None:
    owned = {name for name, row in SYSTEM_EVENTS.items() if row.owner == "enrichment"}
    assert owned == {FACT_ASSERTED, FACT_RETRACTED, ENTITY_CORRECTED, SAME_AS_FOUND}


def test_a_stated_fact_begins_when_its_event_occurred() -> None:
    made = stated_fact(event(7, user_id="mia"), asserted(), position_ms=99)
    assert (made.valid_from_ms, made.event_id, made.user_id, made.position_ms) == (
        START_MS + 7,
        event_id(7),
        "mia",
        99,
    )


def test_a_fact_that_ends_before_its_event_needs_a_beginning() -> None:
    said = asserted(valid_to="2020-01-01T00:00:00Z")
    with pytest.raises(InvalidEvent):
        stated_fact(event(7), said, position_ms=99)


def test_the_table_says_what_is_functional_and_the_flag_says_the_rest() -> None:
    assert fact(functional=False).functional is True
    assert fact(relation="likes", functional=True).functional is False
    assert fact(relation="has_colour", functional=True).functional is True


def test_a_retraction_goes_where_the_fact_is() -> None:
    withdrawn = stated_retraction(event(2), retracted(target=None), position_ms=2)
    assert groups_of(withdrawn) == [group_of(fact())]
    assert withdrawn.at_ms == START_MS + 2


def test_the_retraction_of_an_event_without_a_moment_is_for_all_time() -> None:
    said = retracted(event_id=event_id(1).upper())
    made = stated_retraction(event(2), said, position_ms=2)
    assert (made.asserted_by, made.at_ms) == (event_id(1), None)


def test_a_relation_of_many_targets_needs_the_target() -> None:
    payload = {"source": {"name": "Caroline"}, "relation": "likes"}
    assert list(refused(FACT_RETRACTED, payload)) == ["payload.target"]


@pytest.mark.parametrize(
    ("fields", "broken"),
    [
        ({}, ["correction"]),
        ({"correction": "merge"}, ["correction"]),
        ({"correction": "rename"}, ["name"]),
        ({"correction": "rename", "name": "A", "type": "user"}, ["type"]),
        ({"correction": "retype"}, ["type"]),
        ({"correction": "alias", "name": "A"}, ["type"]),
        ({"correction": "split"}, ["from"]),
        ({"correction": "split", "from": [ONE]}, ["from"]),
        ({"correction": "split", "from": ["x"]}, ["from[0]"]),
        ({"correction": "split", "from": [OTHER, f"entity:{OTHER}"]}, ["from"]),
    ],
)
def test_a_correction_has_what_its_kind_needs(fields: dict[str, Any], broken: list[str]) -> None:
    errors = refused(ENTITY_CORRECTED, {"entity_id": ONE, **fields})
    assert list(errors) == [f"payload.{field}" for field in broken]


def test_a_declared_alias_makes_its_entity_the_same() -> None:
    said = corrected(correction="alias", name="Big Blue", type="concept")
    alias = entity_id("acme", canonical_name("Big Blue"), "concept")
    (pair,) = stated_pairs("acme", said)
    assert (set(pair.entity_ids), pair.same, pair.method) == ({ONE, alias}, True, "person")


def test_a_split_keeps_pairs_apart() -> None:
    said = corrected(correction="split", **{"from": [f"entity:{OTHER}"]})
    assert [(pair.entity_ids, pair.same) for pair in stated_pairs("acme", said)] == [
        ((ONE, OTHER), False)
    ]


def test_a_rename_says_nothing_of_pairs() -> None:
    assert stated_pairs("acme", corrected(correction="rename", name="Acme")) == ()


def test_decisions_survive_the_ledger() -> None:
    sure = SameAsPair(
        entity_ids=(ONE, OTHER),
        confidence=9_500,
        cosine=8_712,
        method="cosine",
        justification="same_words",
    )
    found = SameAsFound(pairs=(sure, SameAsPair(entity_ids=(ONE, "c" * 32), same=False)))
    assert parse_statement(SAME_AS_FOUND, found.payload()) == found
    assert canonical_json(found.payload()) == (
        b'{"pairs":[{"confidence":0.95,"cosine":0.8712,"entity_ids":["%b","%b"],'
        b'"justification":"same_words","method":"cosine","same":true},'
        b'{"confidence":1,"entity_ids":["%b","%b"],"method":"exact","same":false}]}'
        % (ONE.encode(), OTHER.encode(), ONE.encode(), b"c" * 32)
    )


def test_the_largest_payload_of_decisions_is_a_chunk() -> None:
    pairs = tuple(
        SameAsPair(
            entity_ids=(f"{n:064x}", "f" * 64),
            confidence=9_999,
            cosine=9_999,
            method="cosine",
            justification="é" * 200,
        )
        for n in range(MAX_PAIRS)
    )
    assert len(canonical_json(SameAsFound(pairs=pairs).payload())) <= 128 * 1024


def test_the_ids_of_a_pair_are_sorted() -> None:
    found = parse_statement(SAME_AS_FOUND, {"pairs": [{"entity_ids": [OTHER, ONE]}]})
    assert found == SameAsFound(pairs=(SameAsPair(entity_ids=(ONE, OTHER)),))


@pytest.mark.parametrize(
    ("pairs", "field"),
    [
        ([], "pairs"),
        ([1], "pairs[0]"),
        ([{"entity_ids": [ONE]}], "pairs[0].entity_ids[1]"),
        ([{"entity_ids": [ONE, ONE]}], "pairs[0].entity_ids"),
        ([{"entity_ids": [ONE, OTHER], "cosine": 2}], "pairs[0].cosine"),
        ([{"entity_ids": [ONE, OTHER], "method": "guess"}], "pairs[0].method"),
        ([{"entity_ids": [ONE, OTHER]}] * (MAX_PAIRS + 1), "pairs"),
    ],
)
def test_a_broken_decision_is_named(pairs: list[Any], field: str) -> None:
    assert list(refused(SAME_AS_FOUND, {"pairs": pairs})) == [f"payload.{field}"]
