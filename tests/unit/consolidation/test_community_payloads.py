"""Payloads of decisions, of communities and others, as the ledger holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.communities import Community, Member, community_chunks, fingerprint
from consolidation.decisions import parse_decision
from consolidation.forgetting_payloads import Accessed, accessed_payloads
from consolidation.payloads import (
    CHUNK_MEMBERS,
    MAX_NAME_CHARACTERS,
    MAX_SUMMARY_CHARACTERS,
    CommunityChunk,
    CommunityGone,
    CommunityText,
    parse_community,
)
from projections.errors import InvalidEvent
from projections.events import canonical_json
from projections.records import Record
from tests.decision_factories import system

MOST_BYTES = 128 * 1024
TEXT = CommunityText("Caroline and Acme", "Caroline works at Acme.")
CENTROID = b"\0\0\x80?" * 384


def chunks(count: int, text: CommunityText = TEXT) -> list[CommunityChunk]:
    members = tuple(Member(f"{n:032x}", f"{n:032x}", 1.0) for n in reversed(range(count)))
    made = Community(members, fingerprint([member.entity_id for member in members], []))
    return community_chunks("c" * 32, made, text, CENTROID, run_id="run-1")


def payload(**fields: Any) -> dict[str, Any]:
    """A valid payload of three members; a field given as `...` is left out."""
    made = {**chunks(3)[0].payload(), **fields}
    return {name: value for name, value in made.items() if value is not ...}


def errors(**fields: Any) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidEvent) as raised:
        parse_community(payload(**fields))
    return raised.value.errors


@pytest.mark.parametrize("count", [3, CHUNK_MEMBERS, CHUNK_MEMBERS + 1, 3 * CHUNK_MEMBERS])
def test_a_community_is_read_as_it_was_written(count: int) -> None:
    made = chunks(count)
    assert [parse_community(orjson.loads(orjson.dumps(one.payload()))) for one in made] == made


@pytest.mark.parametrize("count", [3, CHUNK_MEMBERS, CHUNK_MEMBERS + 1, 3 * CHUNK_MEMBERS])
def test_every_member_is_in_one_chunk(count: int) -> None:
    listed = [entity_id for one in chunks(count) for entity_id in one.entity_ids]
    assert listed == [f"{n:032x}" for n in range(count)]


def test_the_first_chunk_alone_has_text_and_centroid() -> None:
    made = [(one.text, one.centroid) for one in chunks(CHUNK_MEMBERS + 1)]
    assert made == [(TEXT, CENTROID), (None, None)]


def test_the_largest_payload_stays_below_its_bound() -> None:
    longest = CommunityText("😀" * MAX_NAME_CHARACTERS, "😀" * MAX_SUMMARY_CHARACTERS)
    largest = chunks(CHUNK_MEMBERS, longest)[0].payload()
    assert len(orjson.dumps(largest)) <= MOST_BYTES


def test_the_end_of_a_community_is_read_as_it_was_written() -> None:
    gone = CommunityGone(community_id="c" * 32, run_id="run-1")
    assert parse_community(gone.payload()) == gone


def test_ids_are_read_with_and_without_their_kind() -> None:
    with_kind = payload(
        community_id=f"community:{'c' * 32}", entity_ids=[f"entity:{n:032x}" for n in range(3)]
    )
    assert parse_community(with_kind) == parse_community(payload())


@pytest.mark.parametrize("raw", [None, [], "community", 1])
def test_a_payload_that_is_no_object_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidEvent) as raised:
        parse_community(raw)
    assert raised.value.errors == (("payload", "a JSON object"),)


ENTITY = "0" * 32
NOT_IN_FIRST = "in chunk 0 alone"
A_VECTOR = "384 finite little-endian float32 in base64"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("kind", "episode", "one of 'community'"),
        ("kind", ..., "one of 'community'"),
        ("community_id", "c", "a community id, community:<hash>"),
        ("community_id", ["c" * 32], "a community id, community:<hash>"),
        ("run_id", ..., "required"),
        ("run_id", "r" * 65, "at most 64 characters"),
        ("chunk", ..., "required"),
        ("chunk", -1, "a number from 0 on"),
        ("chunk", 1, "a whole number from 0 to 0"),
        ("chunk", True, "a whole number"),
        ("chunks", 0, "a number from 1 on"),
        ("chunks", 2**31, "a number up to 2147483647"),
        ("chunks", 2, "one for every 2,000 members"),
        ("fingerprint", "f" * 63, "64 hexadecimal digits"),
        ("member_count", 0, "a number from 1 on"),
        ("member_count", 3.0, "a whole number"),
        ("entity_ids", [], "at least 1 items"),
        ("entity_ids", [ENTITY, ENTITY, "1" * 32], "different items"),
        ("entity_ids", [ENTITY], "2,000 members, in the last chunk what is left"),
        ("name", ..., "required"),
        ("name", "n" * 121, "at most 120 characters"),
        ("summary", "", "at least 1 characters"),
        ("centroid", "AAAA", A_VECTOR),
        ("centroid", "é", A_VECTOR),
        ("centroid", 7, A_VECTOR),
        ("centroid", "AADAfwAA" * 256, A_VECTOR),
        ("members", [], "unknown field"),
    ],
)
def test_a_broken_rule_is_named_by_its_field(field: str, value: Any, rule: str) -> None:
    assert (f"payload.{field}", rule) in errors(**{field: value})


@pytest.mark.parametrize("field", ["name", "summary", "centroid"])
def test_what_is_of_the_first_chunk_is_refused_in_others(field: str) -> None:
    second = chunks(CHUNK_MEMBERS + 1)[1].payload()
    second[field] = payload()[field]
    with pytest.raises(InvalidEvent) as raised:
        parse_community(second)
    assert raised.value.errors == ((f"payload.{field}", NOT_IN_FIRST),)


def test_a_community_that_is_gone_has_no_members() -> None:
    assert ("payload.entity_ids", "unknown field") in errors(gone=True)


def test_a_community_is_gone_or_the_field_is_absent() -> None:
    raw = {"kind": "community", "community_id": "c" * 32, "run_id": "run-1", "gone": False}
    with pytest.raises(InvalidEvent) as raised:
        parse_community(raw)
    assert raised.value.errors == (("payload.gone", "true or absent"),)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def refusal(raw: Any) -> tuple[tuple[str, str], ...] | None:
    try:
        parse_community(raw)
    except InvalidEvent as refused:
        return refused.errors
    return None


@given(st.dictionaries(st.sampled_from(sorted(payload())) | st.just("gone"), json_values))
def test_whatever_comes_is_read_or_refused_with_reasons(fields: dict[str, Any]) -> None:
    assert refusal({**payload(), **fields}) != ()


RECORDED = Path(__file__).with_name("decisions.jsonl")
"""A line each: event type, and the canonical JSON of a payload; of every kind some."""
LINES = [line.split(" ", 1) for line in RECORDED.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize(("event_type", "recorded"), LINES)
def test_what_was_recorded_is_written_again_byte_by_byte(event_type: str, recorded: str) -> None:
    decision = parse_decision(system(9, event_type, orjson.loads(recorded)))
    if isinstance(decision, Accessed):
        (payload,) = accessed_payloads(decision)
    else:
        assert isinstance(decision, Record)
        payload = decision.payload()
    assert canonical_json(payload).decode() == recorded
