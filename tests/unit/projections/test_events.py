"""The envelope: each rule, the canonical form, upcasting."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import InvalidEvent, UndecodableEntry
from projections.events import (
    FIELDS,
    MAX_PAYLOAD_BYTES,
    MAX_PAYLOAD_DEPTH,
    Event,
    as_envelope,
    canonical_json,
    content_digest,
    decode_event,
    derived_event_id,
    encode_event,
    parse_event,
    timestamp_ms,
    timestamp_text,
    upcast,
)
from tests.factories import NOW_MS, START_MS, envelope, event, event_id, full_event
from tests.strategies import events, json_values


def parsed(tenant: str | None = None, /, **fields: Any) -> Event:
    return parse_event(envelope(**fields), now_ms=NOW_MS, tenant=tenant)


def broken_fields(raw: Any, tenant: str | None = None) -> list[str]:
    with pytest.raises(InvalidEvent) as caught:
        parse_event(raw, now_ms=NOW_MS, tenant=tenant)
    assert all(rule for _, rule in caught.value.errors)
    return [field for field, _ in caught.value.errors]


def nested(levels: int) -> Any:
    """A value `levels` deep, the innermost a number."""
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_bare_envelope_is_accepted() -> None:
    assert parsed() == event(1)


def test_null_is_the_same_as_absent() -> None:
    nothing = dict.fromkeys(
        FIELDS - {"event_id", "event_type", "occurred_at", "session_id", "agent_id", "trace_id"}
    )
    assert parsed(**nothing) == event(1)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (
            "event_id",
            "018F0000-0000-7000-8000-00000000000A",
            "018f0000-0000-7000-8000-00000000000a",
        ),
        ("event_type", "a.b_2.c", "a.b_2.c"),
        ("event_type", "never.seen.before", "never.seen.before"),
        ("session_id", "ü" * 512, "ü" * 512),
        ("agent_id", " a ", " a "),
        ("trace_id", "😀", "😀"),
        ("schema_version", 2, 2),
        ("schema_version", 2**31 - 1, 2**31 - 1),
        ("tool_name", "x", "x"),
        ("status", "timeout", "timeout"),
        ("importance_hint", 1, 1),
        ("importance_hint", 10, 10),
        ("payload_ref", "x" * 2_048, "x" * 2_048),
        ("payload", False, False),
        ("payload", 0, 0),
        ("payload", "", ""),
        ("payload", {"ключ": [1.5, None]}, {"ключ": [1.5, None]}),
        ("tenant", "a" + "b" * 62, "a" + "b" * 62),
    ],
)
def test_a_field_is_accepted(field: str, value: Any, expected: Any) -> None:
    assert getattr(parsed(**{field: value}), field) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, ...) for name in ("event_id", "event_type", "occurred_at")),
        *((name, ...) for name in ("session_id", "agent_id", "trace_id")),
        *((name, None) for name in ("event_id", "occurred_at", "session_id")),
        *((name, 7) for name in ("event_id", "event_type", "occurred_at", "session_id", "tenant")),
        *((name, []) for name in ("tool_name", "status", "user_id", "payload_ref", "ended_at")),
        ("event_id", "not-a-uuid"),
        ("event_id", "018f0000000070008000000000000001"),
        ("event_id", "{018f0000-0000-7000-8000-000000000001}"),
        ("event_id", "018f0000-0000-7000-8000-000000000001\n"),
        ("event_id", "\uff1018f0000-0000-7000-8000-000000000001"),
        ("event_type", "plain"),
        ("event_type", "Agent.message"),
        ("event_type", "agent..message"),
        ("event_type", "agent.1st"),
        ("event_type", "agent.message\n"),
        ("event_type", "agent." + "x" * 512),
        ("occurred_at", "2026-02-02T02:40:00"),
        ("occurred_at", "2026-02-02"),
        ("occurred_at", "2026-02-02 02:40:00Z"),
        ("occurred_at", "2026-02-30T02:40:00Z"),
        ("occurred_at", "2026-02-02T25:40:00Z"),
        ("occurred_at", "2026-02-02T02:40:60Z"),
        ("occurred_at", "2026-02-02T02:40:00+25:00"),
        ("occurred_at", "\uff12026-02-02T02:40:00Z"),
        ("occurred_at", "20260202T024000Z"),
        ("occurred_at", timestamp_text(NOW_MS + 300_001)),
        ("session_id", ""),
        ("session_id", "x" * 513),
        ("session_id", "a\tb"),
        ("agent_id", "a\x7f"),
        ("trace_id", "a\x85"),
        ("trace_id", "\ud800"),
        ("tool_name", ""),
        ("user_id", "x" * 513),
        ("user_id", "*"),
        ("payload_ref", "x" * 2_049),
        ("payload_ref", ""),
        ("consent_ref", "\n"),
        ("schema_version", 0),
        ("schema_version", 1.0),
        ("schema_version", True),
        ("schema_version", "1"),
        ("schema_version", 2**31),
        ("importance_hint", 0),
        ("importance_hint", 11),
        ("importance_hint", 5.0),
        ("status", "done"),
        ("status", ["failed"]),
        ("parent_event_id", "nothing"),
        ("parent_event_id", event_id(1)),
        ("ended_at", "2026-02-02T02:40:00.000Z"),
        ("ended_at", "tomorrow"),
        ("tenant", ""),
        ("tenant", "Acme"),
        ("tenant", "-acme"),
        ("tenant", "a" * 64),
        ("tenant", "acme\n"),
        ("payload", 2**53),
        ("payload", -(2**53)),
        ("payload", {"a": [2**64]}),
        ("payload", 1e300),
        ("payload", float("nan")),
        ("payload", [float("inf")]),
        ("payload", "\ud800"),
        ("payload", {"\udfff": 1}),
        ("payload", {"ü": "\ud800"}),
        ("payload", {"ü": 2**53}),
        ("payload", {"x": 1.5, "y": 2**70}),
        ("payload", nested(MAX_PAYLOAD_DEPTH + 1)),
        ("payload", "x" * (MAX_PAYLOAD_BYTES - 1)),
        ("global_position", "1-1"),
        ("Session_id", "x"),
        ("occurred_at_ms", 1),
    ],
)
def test_a_broken_rule_is_named_by_its_field(field: str, value: Any) -> None:
    assert set(broken_fields(envelope(**{field: value}))) == {field}


@pytest.mark.parametrize("raw", [None, [], "x", 1, [envelope()]])
def test_only_an_object_is_an_event(raw: Any) -> None:
    assert broken_fields(raw) == ["(event)"]


def test_all_broken_rules_are_named_at_once() -> None:
    raw = envelope(
        event_id=..., event_type="x", occurred_at="now", session_id="", status="?", payload=2**60
    )
    raw["colour"] = "red"
    assert broken_fields(raw) == [
        "colour",
        "event_id",
        "event_type",
        "occurred_at",
        "session_id",
        "status",
        "payload",
    ]


def test_the_limits_themselves_are_accepted() -> None:
    text = "x" * (MAX_PAYLOAD_BYTES - 2)
    assert parsed(payload=text).payload == text
    assert parsed(occurred_at=timestamp_text(NOW_MS + 300_000))
    assert parsed(ended_at="2026-02-02T02:40:00.001Z").ended_at_ms == START_MS + 1


def test_an_event_at_every_limit_can_be_written() -> None:
    """What validation accepts, the ledger takes: the envelope adds a level of its own."""
    deepest = parsed(payload=nested(MAX_PAYLOAD_DEPTH))
    assert decode_event(encode_event(deepest)) == deepest


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00Z",
        "0999-12-31T23:59:59.001Z",
        "1969-12-31T23:59:59.999Z",
    ],
)
@pytest.mark.parametrize("field", ["occurred_at", "ended_at"])
def test_a_time_at_the_ends_of_the_calendar_is_written_or_refused(field: str, text: str) -> None:
    raw = envelope(**{field: text})
    try:
        made = parse_event(raw, now_ms=10**15)
    except InvalidEvent:
        assert broken_fields(raw) == [field]
    else:
        assert decode_event(encode_event(made)) == made


def test_the_tenant_is_the_callers() -> None:
    assert parsed("acme").tenant == "acme"
    assert parsed("acme", tenant="acme").tenant == "acme"
    assert broken_fields(envelope(tenant="globex"), tenant="acme") == ["tenant"]
    assert parsed(tenant="globex").tenant == "globex"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("2024-02-29T12:00:00-05:30", 1_709_227_800_000),
    ],
)
def test_times_are_milliseconds_since_the_epoch(text: str, ms: int) -> None:
    assert timestamp_ms(text) == ms
    assert timestamp_ms(timestamp_text(ms)) == ms


# -- canonical form --------------------------------------------------------------------------------


@given(json_values)
def test_canonical_json_is_that_of_the_rfc8785_library(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(st.characters(max_codepoint=127)), st.integers(0, 9) | st.text()))
def test_the_fast_path_is_that_of_the_rfc8785_library(value: dict[str, Any]) -> None:
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        with pytest.raises(ValueError, match="Unicode"):
            canonical_json(value)
    else:
        assert canonical_json(value) == expected


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (2**53, "2\\^53"),
        (-(2**53), "2\\^53"),
        (2**64, "2\\^53"),
        ({"ü": 2**53}, "2\\^53"),
        (float("nan"), "2\\^53"),
        (float("-inf"), "2\\^53"),
        (1e16, "2\\^53"),
        ("\ud800", "Unicode"),
        (["ü", {"ü": "\udfff"}], "Unicode"),
        ({"\ud800": 1}, "Unicode"),
        ({"x": 1.5, "y": "\ud800"}, "Unicode"),
        ({1: 2}, "strings"),
        (nested(MAX_PAYLOAD_DEPTH + 1), "deep"),
        (nested(5_000), "deep"),
        (object(), "JSON"),
        ({"ü": object()}, "JSON"),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        canonical_json(value)


@given(events())
def test_an_event_survives_the_ledger(made: Event) -> None:
    data = encode_event(made)
    assert decode_event(data) == made
    assert encode_event(decode_event(data)) == data
    assert parse_event(orjson.loads(data), now_ms=10**15) == made


def test_every_field_survives_the_ledger() -> None:
    made = full_event()
    assert all(value is not None for value in made)
    assert set(as_envelope(made)) == FIELDS
    assert decode_event(encode_event(made)) == made


def test_equal_content_has_equal_bytes() -> None:
    a = parsed(payload={"a": 1, "b": 2.0}, occurred_at="2026-02-02T03:40:00.001999+01:00")
    b = parsed(payload={"b": 2, "a": 1}, status=None)
    assert encode_event(a) == encode_event(b)
    assert content_digest(encode_event(a)) == content_digest(encode_event(b))
    assert encode_event(parsed(payload={"a": 1, "b": 3})) != encode_event(b)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"\xff",
        encode_event(event()).replace(b"occurred_at", b"happened_at"),
        encode_event(event()).replace(b"2026-02-02T", b"yesterday T"),
        encode_event(event()).replace(b'"2026-02-02T02:40:00.001Z"', b"17"),
        encode_event(event()).replace(b"02:40:00.001Z", b"02:40:00.001"),
    ],
)
def test_an_entry_that_is_no_event_is_told_so(data: bytes) -> None:
    with pytest.raises(UndecodableEntry) as caught:
        decode_event(data, partition=3, position="7-1")
    assert (caught.value.partition, caught.value.position) == (3, "7-1")
    assert "7-1" in str(caught.value)


# -- versions --------------------------------------------------------------------------------------


def split_name(old: dict[str, Any]) -> dict[str, Any]:
    """An invented version 2 of `tool.call`: `payload.tool` became the field `tool_name`."""
    payload = dict(old["payload"])
    return {**old, "tool_name": payload.pop("tool"), "payload": payload}


def test_an_event_of_version_1_is_read_as_version_2() -> None:
    old = event(
        1, event_type="tool.call", payload={"tool": "search", "query": "x"}, schema_version=1
    )
    read = decode_event(encode_event(old), {("tool.call", 1): split_name})
    assert read == old._replace(schema_version=2, tool_name="search", payload={"query": "x"})


def test_upcasting_goes_on_to_the_newest_version_and_leaves_others_alone() -> None:
    steps = {
        ("tool.call", 1): split_name,
        ("tool.call", 2): lambda old: {**old, "status": "failed"},
    }
    old = as_envelope(event(1, event_type="tool.call", payload={"tool": "search"}))
    new = upcast(old, steps)
    assert (new["schema_version"], new["tool_name"], new["status"]) == (3, "search", "failed")
    assert old["payload"] == {"tool": "search"}
    other = as_envelope(event(1))
    assert upcast(other, steps) == other


def test_a_broken_upcaster_makes_the_entry_undecodable() -> None:
    old = encode_event(event(1, event_type="tool.call", payload={}))
    with pytest.raises(UndecodableEntry, match="missing 'tool'"):
        decode_event(old, {("tool.call", 1): split_name})


def test_a_derived_id_depends_on_each_part() -> None:
    made = {derived_event_id(*parts) for parts in [("a", "b"), ("b", "a"), ("ab",), ("a", "b", "")]}
    assert len(made) == 4
    assert derived_event_id("a", "b") == derived_event_id("a", "b")


@pytest.mark.parametrize(
    ("event_type", "payload", "tool"),
    [
        ("tool.call", {"tool": "page", "arguments": {}}, "page"),
        ("tool.result", {"tool_name": "page", "result": {"name": "Ann"}}, "page"),
        ("agent.function_call", {"name": "page", "arguments": "{}"}, "page"),
        ("tool.result", {"name": "page", "output": 3}, "page"),
        ("tool.result", {"name": "Ann", "email": "ann@isle.example"}, None),
        ("tool.result", {"tool": "", "result": 3}, None),
        ("tool.result", {"tool": "a\nb", "result": 3}, None),
        ("tool.result", [1, 2], None),
        ("order.shipped", {"tool": "hammer"}, None),
        ("retool.used", {"tool": "hammer"}, None),
    ],
)
def test_a_tool_that_only_the_payload_names(
    event_type: str, payload: Any, tool: str | None
) -> None:
    assert event(1, event_type=event_type, payload=payload).tool == tool
    assert event(1, event_type=event_type, payload=payload, tool_name="own").tool == "own"
    assert as_envelope(event(1, event_type=event_type, payload=payload)).get("tool_name") is None
