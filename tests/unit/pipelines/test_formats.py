"""Files of foreign formats become events with their times, and what has no place is told."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.operations.formats.mapped import Given
from pipelines.operations.formats.table import FORMS, Format, sniffed
from pipelines.operations.imports import ImportReport, import_events
from pipelines.operations.sources import Item, Note, peekable
from projections.errors import InvalidInput
from projections.events import as_envelope
from tests.fakes.ledger import FakeLedger
from tests.format_samples import SAMPLES, TRAJECTORY, Sample, completion, run
from tests.ledger_copies import LATER_MS

GIVEN = Given("default")
each = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.form}")


def jsonl(records: Iterable[Any]) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def items(data: bytes, form: Format | None = None, given: Given = GIVEN) -> list[Item | Note]:
    stream = peekable(io.BytesIO(data))
    return list(FORMS[form or sniffed(stream)].items(stream, given))


def imported(
    ledger: FakeLedger, data: bytes, form: Format | None = None, given: Given = GIVEN
) -> ImportReport:
    return import_events(
        ledger, items(data, form, given), tenant=given.tenant, clock=lambda: LATER_MS / 1_000
    )


def events(ledger: FakeLedger) -> list[dict[str, Any]]:
    entries = [entry for stream in ledger.server.streams.values() for entry in stream]
    entries.sort(key=lambda entry: entry.position)
    return [as_envelope(entry.event()) for entry in entries]


NAMES = ("event_type", "occurred_at", "session_id", "user_id", "tool_name", "status")


@each
def test_a_sample_becomes_these_events(sample: Sample) -> None:
    ledger = FakeLedger()
    report = imported(ledger, jsonl(sample.records))
    assert report.problems == []
    found = [tuple(event.get(name) for name in NAMES) for event in events(ledger)]
    if sample.form is Format.SWE_AGENT:  # whose times and session its content decides
        found = [(row[0], None, None, *row[3:]) for row in found]
    assert found == sample.events
    assert {field for field, _ in report.unmapped} == sample.unmapped


@each
def test_a_file_tells_its_format(sample: Sample) -> None:
    for data in (jsonl(sample.records), json.dumps(sample.records, indent=2).encode()):
        assert sniffed(peekable(io.BytesIO(data))) == sample.form
    page = json.dumps({"data": sample.records}).encode()
    assert sniffed(peekable(io.BytesIO(page))) == sample.form


@each
def test_lines_a_list_and_a_page_hold_the_same(sample: Sample) -> None:
    lines = [item[1:] for item in items(jsonl(sample.records))]
    for indent in (None, 2):
        data = json.dumps(sample.records, indent=indent).encode()
        assert [item[1:] for item in items(data)] == lines
    page = json.dumps({"data": sample.records}).encode()
    assert [item[1:] for item in items(page, sample.form)] == lines


@each
def test_twice_adds_nothing_and_halves_are_the_whole(sample: Sample) -> None:
    whole, halves = FakeLedger(), FakeLedger()
    first = imported(whole, jsonl(sample.records))
    again = imported(whole, jsonl(sample.records))
    assert (again.new, again.refused) == (0, 0)
    assert again.duplicates + again.retold == first.read
    cut = len(sample.records) // 2
    for part in (sample.records[:cut], sample.records[cut:]):
        assert imported(halves, jsonl(part), sample.form).refused == 0
    assert events(halves) == events(whole)


@each
def test_no_record_goes_without_a_word(sample: Sample) -> None:
    for number, record in enumerate(sample.records):
        told = items(jsonl([record]), sample.form)
        assert told, f"record {number}"
        odd = {**deepcopy(record), "unheard_of": "a value"}
        fields = {item.field for item in items(jsonl([odd]), sample.form) if isinstance(item, Note)}
        assert fields & {"unheard_of", "(record)", "fact"}, f"record {number}"


@each
def test_a_broken_record_is_told_with_its_line_and_the_others_go_on(sample: Sample) -> None:
    good = jsonl(sample.records)
    data = b"\n".join((good, b'{"half": ', b"[1, 2]", b'"words"', good))
    ledger = FakeLedger()
    report = imported(ledger, data, sample.form)
    lines = len(sample.records)
    assert [p.where["line"] for p in report.problems] == [lines + 1, lines + 2, lines + 3]
    assert events(ledger) == events_of(sample)


def events_of(sample: Sample) -> list[dict[str, Any]]:
    ledger = FakeLedger()
    imported(ledger, jsonl(sample.records))
    return events(ledger)


@pytest.mark.parametrize(
    ("form", "record", "field"),
    [
        (Format.OPENAI, {"object": "response", "id": "r"}, "created_at"),
        (Format.OPENAI, {"object": "response", "created_at": 1}, "id"),
        (Format.OPENAI, {"object": "response", "id": "r", "created_at": "soon"}, "created_at"),
        (Format.ANTHROPIC, {"id": "m", "type": "message", "content": []}, "created_at"),
        (Format.ANTHROPIC, {"uuid": "c", "chat_messages": [{}]}, "chat_messages[0].sender"),
        (Format.LANGSMITH, run(1, "llm", start_time=None), "start_time"),
        (Format.LANGFUSE, {"id": "o", "startTime": "never"}, "startTime"),
        (Format.SWE_AGENT, {"trajectory": ["step"]}, "trajectory[0]"),
        (Format.GRAPHITI, {"uuid": "u", "group_id": "g", "content": "words"}, "valid_at"),
        (Format.MEM0, {"id": "m", "memory": "words", "created_at": []}, "created_at"),
        (Format.ZEP, {"content": {}, "created_at": "2026-01-01", "source": "text"}, "content"),
    ],
)  # fmt: skip
def test_what_a_record_lacks_is_named(form: Format, record: dict[str, Any], field: str) -> None:
    report = imported(FakeLedger(), jsonl([record]), form)
    assert [problem.field for problem in report.problems] == [field]
    assert (report.read, report.invalid, report.new) == (1, 1, 0)


def second_call() -> dict[str, Any]:
    """A completion that repeats the first one's conversation, with what the tool returned."""
    first, second = completion(1), completion(2)
    second["request"]["messages"] = [
        *first["request"]["messages"],
        first["response"]["choices"][0]["message"],
        {"role": "tool", "tool_call_id": "call_abc123def456", "content": '{"state": "paid"}'},
    ]
    second["response"]["choices"][0]["message"] = {"role": "assistant", "content": "It is paid."}
    return second


SAID = [
    *("message.system", "message.user", "message.assistant", "tool.call"),
    *("tool.result", "message.assistant"),
]


def test_what_every_call_repeats_is_one_event() -> None:
    ledger = FakeLedger()
    imported(ledger, jsonl([completion(1), second_call()]))
    assert [event["event_type"] for event in events(ledger)] == SAID
    call, result = events(ledger)[3], events(ledger)[4]
    assert result["parent_event_id"] == call["event_id"]
    times = [event["occurred_at"] for event in events(ledger)]
    assert times == sorted(times), "each at the time of its own call"


def test_a_call_alone_tells_its_past_and_the_events_are_the_same() -> None:
    both, backwards, last = FakeLedger(), FakeLedger(), FakeLedger()
    imported(both, jsonl([completion(1), second_call()]))
    imported(backwards, jsonl([second_call(), completion(1)]))
    imported(last, jsonl([second_call()]))
    ids = {event["event_id"] for event in events(both)}
    assert {event["event_id"] for event in events(backwards)} == ids
    assert {event["event_id"] for event in events(last)} == ids
    assert [event["event_type"] for event in events(last)] == SAID


def test_of_two_accounts_of_an_event_the_first_stays_and_none_is_refused() -> None:
    call_id = "call_0123456789"
    message = {"role": "tool", "tool_call_id": call_id, "content": "rain"}
    asked = {"role": "user", "content": "Rain?"}
    records = [
        run(2, "llm", inputs={"messages": [asked, message]}, outputs={}),
        run(3, "tool", outputs={"output": {"content": "rain", "tool_call_id": call_id}}),
    ]
    ledger = FakeLedger()
    report = imported(ledger, jsonl(records))
    assert (report.retold, report.refused) == (1, 0)
    assert [e["event_type"] for e in events(ledger)].count("tool.result") == 1


def test_a_call_that_ends_twice_in_different_ways_has_two_results() -> None:
    call_id = "call_0123456789"
    ends = {
        "outputs": {"output": {"content": "rain", "tool_call_id": call_id}},
        "inputs": {},
    }
    records = [run(3, "tool", **ends), run(4, "tool", **ends, error="ValueError('no sky')")]
    ledger = FakeLedger()
    for told_again in (False, True):
        report = imported(ledger, jsonl(records))
        results = [e["status"] for e in events(ledger) if e["event_type"] == "tool.result"]
        assert (results, report.refused) == (["completed", "failed"], 0)
        assert bool(report.new) != told_again


def test_an_example_of_a_run_is_told_as_none_of_what_happened() -> None:
    example = {"role": "user", "content": "Here is how it was done before.", "is_demo": True}
    record = {**TRAJECTORY, "history": [example, *TRAJECTORY["history"]]}
    ledger, without = FakeLedger(), FakeLedger()
    report = imported(ledger, jsonl([record]))
    imported(without, jsonl([TRAJECTORY]))
    assert [e["payload"] for e in events(ledger)] == [e["payload"] for e in events(without)]
    assert ("history[].is_demo", "an example, which did not happen") in report.unmapped


def test_an_imported_call_looks_as_a_traced_one() -> None:
    ledger = FakeLedger()
    imported(ledger, jsonl([completion()]))
    answer, call = events(ledger)[2:]
    assert answer["payload"] == {
        "role": "assistant",
        "content": "I look.",
        "model": "gpt-5-2026",
        "input_tokens": 12,
        "output_tokens": 7,
    }
    assert call["payload"] == {"arguments": {"id": 4711}, "call_id": "call_abc123def456"}
    assert call["parent_event_id"] == answer["event_id"]


def test_who_is_named_nowhere_is_who_the_command_says() -> None:
    ledger = FakeLedger()
    record = {"id": "m", "memory": "Likes tea", "created_at": "2026-01-01T00:00:00Z"}
    imported(
        ledger, jsonl([record, {**record, "id": "n", "user_id": "bo"}]), given=Given(user_id="al")
    )
    assert [event["user_id"] for event in events(ledger)] == ["al", "bo"]


def test_an_outcome_is_appended_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large for an event is cut, and says so; what is too large for a line is told."""
    monkeypatch.setattr("pipelines.operations.sources.MAX_LINE_BYTES", 700_000)
    long = {"id": "m", "memory": "x" * 600_000, "created_at": "2026-01-01T00:00:00Z"}
    ledger = FakeLedger()
    report = imported(ledger, jsonl([long, {**long, "memory": "y" * 800_000}]), Format.MEM0)
    assert (report.new, report.invalid) == (1, 1)
    assert report.problems[0].rule.startswith("at most")
    (event,) = events(ledger)
    assert event["payload"]["content"].endswith("… [cut: 600,000 characters]")


# -- whatever stands in a record -------------------------------------------------------------------

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1e300,
    "",
    "x",
    "2026-13-45",
    "9999-12-31T23:59:59.999Z",
]
ODD += [[], {}, [1], [None], {"a": 1}, [["x"]], {"role": 5}, {"type": []}, "\ud800", "\x00"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a record."""
    if not isinstance(value, dict | list):
        return [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(p for key, item in inside for p in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    other = dict(value) if isinstance(value, dict) else list(value)
    other[path[0]] = replaced(value[path[0]], path[1:], new)
    return other


@given(st.data())
@settings(max_examples=400)
def test_whatever_a_record_holds_it_is_mapped_or_told(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    record = data.draw(st.sampled_from(sample.records))
    for _ in range(data.draw(st.integers(1, 3))):
        odd = data.draw(st.sampled_from(ODD))
        record = replaced(record, data.draw(st.sampled_from(places(record))), odd)
    ledger = FakeLedger()
    told = list(
        FORMS[sample.form].items(peekable(io.BytesIO(json.dumps([record]).encode())), GIVEN)
    )
    assert told
    report = import_events(ledger, told, tenant="default", clock=lambda: LATER_MS / 1_000)
    assert report.read == report.new + report.duplicates + report.retold + report.refused
    assert report.halted == report.conflicts == 0


def test_a_record_that_is_nested_too_deep_is_told() -> None:
    deep: Any = "x"
    for _ in range(150):
        deep = [deep]
    report = imported(FakeLedger(), jsonl([{**completion(), "deep": deep}]), Format.OPENAI)
    assert [problem.rule for problem in report.problems] == ["nested at most 100 levels deep"]


def test_a_first_record_that_cannot_be_looked_at_asks_for_the_format() -> None:
    for indent in (None, 2):
        record = {"long": ["x"] * 1_000_000}
        with pytest.raises(InvalidInput, match="--format: required"):
            sniffed(peekable(io.BytesIO(json.dumps(record, indent=indent).encode())))
