"""One rule for each shape of payload; bounded, clean, never raising."""

from __future__ import annotations

import base64
import time
import unicodedata
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enrichment.event_kinds import EventKind
from enrichment.ports import EventText
from enrichment.text import (
    STORED_CHARACTERS,
    TEXT_CHARACTERS,
    clean_text,
    event_text,
    key_spans,
    language_spans,
    stored_text,
)
from enrichment.vocabulary import cut, word_set
from pipelines.operations.formats.chat import conversation_events
from projections.events import Event
from tests import strategies
from tests.factories import event, trajectory

HOSTILE = "\x00\x07\u202e\u2066\ufeff\u200b\u0085\u2028\u200d\ufe0f\ufffd\x1b[31m"


def text_of(payload: Any, **fields: Any) -> EventText:
    return event_text(event(payload=payload, **{"event_type": "note.taken", **fields}))


@pytest.mark.parametrize("payload", [None, "", {}, []])
def test_an_event_without_content_has_no_text(payload: Any) -> None:
    assert text_of(payload) == EventText(EventKind.OTHER, "", "agent-1")


def test_a_string_is_its_own_text() -> None:
    assert text_of("Disk is full.") == EventText(EventKind.OTHER, "Disk is full.", "agent-1")


def test_a_string_of_a_message_event_is_a_message() -> None:
    actual = text_of("Hello.", event_type="message.user", agent_id="ana")
    assert actual == EventText(EventKind.MESSAGE, "Hello.", "ana")


def test_a_turn_with_its_words_under_text_is_a_message_of_its_agent() -> None:
    actual = text_of({"text": "I drew it!"}, event_type="message.user", agent_id="Caroline")
    assert actual == EventText(EventKind.MESSAGE, "I drew it!", "Caroline")


@pytest.mark.parametrize(
    "payload",
    [
        {"content": '{"order": "O-7", "total": {"amount": 5}}'},
        {"result": {"content": '{"order": "O-7", "total": {"amount": 5}}'}},
        {"content": [{"type": "text", "text": '{"order": "O-7", "total": {"amount": 5}}'}]},
        {"result": [{"type": "text", "text": '{"order": "O-7", "total": {"amount": 5}}'}]},
        {"result": '{"order": "O-7", "total": {"amount": 5}}'},
    ],
)
def test_json_that_a_tool_returned_as_text_is_read(payload: Any) -> None:
    actual = text_of(payload, event_type="tool.result", tool_name="order")
    assert actual.text == "order: O-7\ntotal.amount: 5"


def test_json_that_a_person_wrote_stays_as_written() -> None:
    actual = text_of({"text": '{"order": "O-7"}'}, event_type="message.user")
    assert actual.text == '{"order": "O-7"}'


def test_words_beside_other_fields_come_first() -> None:
    actual = text_of({"text": "The key is new.", "score": 3}, event_type="hypothesis.formed")
    assert actual == EventText(EventKind.OTHER, "The key is new.\nscore: 3", "agent-1")


def test_a_chat_message_keeps_its_role_out_of_the_text() -> None:
    actual = text_of({"role": "user", "content": "Pay 4712, please."}, agent_id="ben")
    assert actual == EventText(EventKind.MESSAGE, "Pay 4712, please.", "ben")


def test_a_chat_message_is_of_the_name_it_carries() -> None:
    assert text_of({"role": "user", "content": "Hi.", "name": "zoë"}).speaker == "zoë"


def test_a_list_of_parts_is_its_words_and_says_that_there_was_an_image() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    actual = text_of({"role": "user", "content": parts})
    assert actual == EventText(EventKind.MESSAGE, "What is this?\n[image_url]", "agent-1")


QUERY = {"query": "cheap flights"}
JSON_QUERY = '{"query": "cheap flights"}'


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_tool_call_is_its_arguments_and_the_tool_is_kept_apart() -> None:
    calls = [call("cancel_reservation", '{"reservation_id":"GV1N64"}')]
    actual = text_of({"role": "assistant", "content": None, "tool_calls": calls})
    assert actual == EventText(EventKind.CALL, "reservation_id: GV1N64", "cancel_reservation")


def test_what_was_said_beside_a_tool_call_comes_first() -> None:
    calls = [call("get_order", '{"order": 7}')]
    actual = text_of({"role": "assistant", "content": "Let me look.", "tool_calls": calls})
    assert actual.text == "Let me look.\norder: 7"


def test_arguments_of_several_tools_stay_apart() -> None:
    calls = [call("get_order", '{"order": 7}'), call("get_user", '{"user_id": "ana"}')]
    actual = text_of({"role": "assistant", "content": None, "tool_calls": calls})
    assert actual == EventText(
        EventKind.CALL, "get_order.order: 7\nget_user.user_id: ana", "agent-1"
    )


@pytest.mark.parametrize(
    "payload",
    [
        {"name": "search", "arguments": {"query": "cheap flights"}},
        {"name": "search", "arguments": '{"query": "cheap flights"}'},
        {"tool": "search", "input": {"query": "cheap flights"}},
        {"tool_name": "search", "args": {"query": "cheap flights"}},
        {"function": {"name": "search", "parameters": {"query": "cheap flights"}}},
        {"role": "assistant", "function_call": {"name": "search", "arguments": JSON_QUERY}},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "search", "input": QUERY}]},
    ],
)
def test_the_common_shapes_of_a_call_give_one_text(payload: Any) -> None:
    assert text_of(payload) == EventText(EventKind.CALL, "query: cheap flights", "search")


def test_a_call_may_leave_its_tool_to_the_envelope() -> None:
    payload = {"arguments": {"order": "4711"}, "attempt": 2}
    actual = text_of(payload, event_type="tool.call", tool_name="get_cart")
    assert actual == EventText(EventKind.CALL, "attempt: 2\norder: 4711", "get_cart")


def test_arguments_that_are_no_json_are_read_as_words() -> None:
    actual = text_of({"name": "search", "arguments": "{not json"})
    assert actual == EventText(EventKind.CALL, "{not json", "search")


@pytest.mark.parametrize(
    "payload",
    [
        {"role": "tool", "name": "get_cart", "content": '{"items": 3, "total": "84.00"}'},
        {"role": "tool", "content": {"items": 3, "total": "84.00"}},
        '{"items": 3, "total": "84.00"}',
        {"result": {"items": 3, "total": "84.00"}},
        {"output": '{"items": 3, "total": "84.00"}'},
        {"items": 3, "total": "84.00"},
        {"content": [{"type": "text", "text": '{"items": 3, "total": "84.00"}'}], "role": "tool"},
    ],
)
def test_a_result_reads_the_same_as_text_as_json_text_and_as_json(payload: Any) -> None:
    actual = text_of(payload, event_type="tool.result", tool_name="get_cart", status="completed")
    assert actual == EventText(EventKind.RESULT, "items: 3\ntotal: 84.00", "get_cart")


def test_a_result_in_words_is_those_words() -> None:
    actual = text_of("Transfer successful", event_type="tool.result", tool_name="transfer")
    assert actual == EventText(EventKind.RESULT, "Transfer successful", "transfer")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": "gateway is busy"}, "gateway is busy"),
        ({"error": {"message": "not found", "code": 404}}, "not found\ncode: 404"),
        ({"message": "no disk", "code": "E28"}, "no disk\ncode: E28"),
        ({"status": "failed", "reason": "no seats"}, "no seats\nstatus: failed"),
        (
            {"message": "boom", "traceback": "Traceback:\n  File a.py, line 1\nValueError: boom"},
            "boom\nTraceback:\nFile a.py, line 1\nValueError: boom",
        ),
    ],
)
def test_an_error_begins_with_what_went_wrong(payload: Any, expected: str) -> None:
    assert text_of(payload, tool_name="refund") == EventText(EventKind.FAILURE, expected, "refund")


def test_a_failed_event_is_an_error_whatever_it_carries() -> None:
    payload = {"role": "tool", "name": "book", "content": "Error: no seats"}
    actual = text_of(payload, event_type="tool.result", status="failed")
    assert actual == EventText(EventKind.FAILURE, "Error: no seats", "book")


@pytest.mark.parametrize(("wrong", "kind"), [(False, EventKind.RESULT), (True, EventKind.FAILURE)])
def test_a_user_message_of_nothing_but_results_is_a_result(wrong: bool, kind: EventKind) -> None:
    part = {"type": "tool_result", "tool_use_id": "t", "content": "no seats", "is_error": wrong}
    actual = text_of({"role": "user", "content": [part]}, tool_name="book")
    assert actual == EventText(kind, "no seats", "book")


def test_a_message_with_a_code_is_no_error_when_all_went_well() -> None:
    payload = {"message": "Your table is booked.", "code": "A1B2"}
    assert text_of(payload, status="completed").text == "Your table is booked.\ncode: A1B2"
    assert text_of(payload, status="completed").kind is EventKind.OTHER


def test_an_error_that_is_null_is_none() -> None:
    actual = text_of({"error": None, "result": "ok"}, tool_name="book")
    assert actual.kind == "result"


def test_any_other_json_is_lines_in_the_order_of_keys() -> None:
    payload = {"to": 3, "from": {"b": True, "a": None}, "tags": ["x", "y"]}
    payload["rows"] = [{"id": 1}, {"id": 2}]
    expected = "from.a: none\nfrom.b: yes\nrows.id: 1\nrows.id: 2\ntags: x, y\nto: 3"
    assert text_of(payload) == EventText(EventKind.OTHER, expected, "agent-1", only_fields=True)


def test_content_from_elsewhere_takes_the_place_of_the_payload() -> None:
    assert event_text(event(payload={"a": 1}), "from the store").text == "from the store"


def test_imported_chat_has_text_for_every_message_but_keeps_speakers_apart() -> None:
    kinds = []
    for mapped in conversation_events(trajectory()):
        assert mapped.envelope is not None
        payload, tool = mapped.envelope["payload"], mapped.envelope.get("tool_name")
        made = event(payload=payload, tool_name=tool, event_type=mapped.envelope["event_type"])
        kinds.append(event_text(made).kind)
    turn = ["message", "call", "result", "message"]
    assert kinds == ["instruction", *turn, *turn]


@pytest.mark.parametrize("character", list("\x00\x1b\x9f\u202e\u2066\ufeff\ud800\u200b"))
def test_a_character_that_cannot_be_seen_is_not_in_the_text(character: str) -> None:
    assert clean_text(f"invoice{character} of the month of May") == "invoice of the month of May"


def test_whitespace_runs_and_empty_lines_become_one() -> None:
    assert clean_text("a \t b\r\n\r\n \n\n c\u2028d ") == "a b\n\nc\nd"


def test_base64_is_named_and_left_out() -> None:
    data = base64.b64encode(bytes(range(256)) * 700).decode()
    actual = text_of({"image": data, "title": "scan"})
    assert actual.text == f"image: [data, {len(data):,} characters]\ntitle: scan"


def test_binary_is_named_and_left_out() -> None:
    assert clean_text("\x00\x01\x02PNG\ufffd" * 1_000) == "[binary, 7,000 characters]"


@pytest.mark.parametrize("unit", ["A", "ab ", "\x00", "{", "[", "\u202e", "é", "a\n", '"', "😀"])
def test_a_quarter_of_a_mebibyte_takes_no_time(unit: str) -> None:
    payload = unit * (256 * 1024 // len(unit))
    start = time.process_time()
    text = text_of(payload).text
    assert (len(text) <= TEXT_CHARACTERS, time.process_time() - start < 1) == (True, True)


def test_many_fields_stop_at_the_bound() -> None:
    text = text_of({f"key_{n}": "word " * 50 for n in range(5_000)}).text
    assert len(text) <= TEXT_CHARACTERS


def test_deep_json_stops_at_the_bound() -> None:
    payload: Any = "x"
    for _ in range(99):
        payload = {"a": [payload]}
    assert text_of(payload).text == "a.a.a: …"


def test_parts_within_parts_stop_at_the_bound() -> None:
    parts: Any = "x"
    for _ in range(500):
        parts = [{"type": "text", "content": parts}]
    assert text_of({"role": "user", "content": parts}).text == "[text]"
    text = '[{"type":"text","content":' * 500 + '"x"' + "}]" * 500
    assert text_of(text, event_type="tool.result", tool_name="t").kind == "result"


def test_a_cut_falls_between_words() -> None:
    assert cut("one two three four", 12) == "one two…"


def test_a_cut_does_not_separate_a_letter_from_its_accent() -> None:
    assert cut("e\u0301" * 30, 20) == "e\u0301" * 9 + "…"


def test_the_graph_keeps_the_beginning() -> None:
    kept = stored_text("word " * 1_000)
    assert (len(kept) <= STORED_CHARACTERS, kept[-6:]) == (True, " word…")


def test_keys_are_told_from_language() -> None:
    text = EventText(EventKind.CALL, "thought: I need to look at it\norigin: JFK\nids: A, B, C, D")
    said = [text.text[a:b] for a, b in language_spans(text)]
    keys = [text.text[a:b] for a, b in key_spans(text)]
    assert (said, keys) == (["I need to look at it"], ["thought: ", "origin: ", "ids: "])


def test_all_of_a_message_is_language() -> None:
    assert language_spans(EventText(EventKind.MESSAGE, "Note: yes")) == [(0, 9)]


hostile_text = st.text(max_size=300) | st.text(
    st.sampled_from(HOSTILE + 'a \n{}[]":,'), max_size=50
)
KEYS = sorted(
    word_set(
        "role content tool_calls function_call name arguments tool input function error message"
        " code status result output text body traceback"
    )
)
shapes = st.dictionaries(st.sampled_from(KEYS), hostile_text | strategies.json_values)


@settings(deadline=None)  # machines that run tests are shared
@given(
    payload=strategies.json_values | hostile_text | shapes,
    event_type=st.sampled_from(["tool.call", "tool.result", "message.user", "a.b"]),
    status=st.sampled_from([None, "failed", "completed"]),
    tool=st.sampled_from([None, "search"]),
)
def test_any_json_gives_a_bounded_clean_text(
    payload: Any, event_type: str, status: str | None, tool: str | None
) -> None:
    text = text_of(payload, event_type=event_type, status=status, tool_name=tool)
    unseen = [c for c in text.text if c != "\n" and unicodedata.category(c) in ("Cc", "Cs")]
    assert (len(text.text) <= TEXT_CHARACTERS, unseen) == (True, [])


@settings(deadline=None)  # machines that run tests are shared
@given(strategies.events())
def test_text_does_not_depend_on_how_the_json_was_written(made: Event) -> None:
    written = orjson.loads(orjson.dumps(made.payload, option=orjson.OPT_SORT_KEYS))
    assert event_text(made._replace(payload=written)) == event_text(made)


@pytest.mark.parametrize("outcome", [{"result": {"level": 2}}, {"error": "nobody answers"}])
def test_a_result_that_names_its_tool_is_told_by_it(outcome: Any) -> None:
    payload = {"tool": "page", **outcome}
    named = text_of(outcome, event_type="tool.result", tool_name="page")
    assert text_of(payload, event_type="tool.result") == named


def test_a_result_of_no_known_tool_keeps_a_name_that_is_nothing() -> None:
    assert "name" in text_of({"name": None, "level": 2}, event_type="tool.result").text
