"""Rows of any table become events by a mapping of their columns; times as they are written."""

from __future__ import annotations

import gzip
import io
import json
import os
from datetime import UTC
from pathlib import Path
from typing import IO, Any, cast
from zoneinfo import ZoneInfo

import pytest

from pipelines.operations.formats.mapped import Given, moment_ms
from pipelines.operations.formats.rows import read_mapping
from pipelines.operations.formats.table import Format, row_items, sniffed
from pipelines.operations.imports import ImportReport, import_events
from pipelines.operations.sources import Item, document, peekable, records
from projections.errors import InvalidInput
from projections.events import as_envelope, timestamp_text
from tests.fakes.ledger import FakeLedger
from tests.ledger_copies import LATER_MS

BERLIN = ZoneInfo("Europe/Berlin")
GIVEN = Given()

MAPPING = """
[columns]
time = "created"
text = "body"
session = "ticket"
agent = "author"
user = "customer"
kind = "direction"
id = "number"
[constants]
agent = "desk"
[kinds]
in = "message.user"
out = "message.assistant"
[options]
delimiter = ";"
"""
CSV = """number;created;ticket;direction;author;customer;body;subject
1;2026-03-01 10:00;T-1;in;;C-7;"Hello,
my parcel is late.";Parcel
2;2026-03-01 10:05;T-1;out;Eva;C-7;It comes today.;
"""


def mapping_file(folder: Path, text: str = MAPPING, name: str = "mapping.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def imported(ledger: FakeLedger, data: str, file: Path, given: Given = GIVEN) -> ImportReport:
    items = row_items(peekable(io.BytesIO(data.encode())), given, read_mapping(file))
    return import_events(ledger, items, clock=lambda: LATER_MS / 1_000)


def events(ledger: FakeLedger) -> list[dict[str, Any]]:
    entries = [entry for stream in ledger.server.streams.values() for entry in stream]
    return [as_envelope(entry.event()) for entry in sorted(entries, key=lambda e: e.position)]


def test_csv_becomes_events_with_all_that_a_row_holds(tmp_path: Path) -> None:
    ledger, file = FakeLedger(), mapping_file(tmp_path)
    report = imported(ledger, CSV, file, Given(zone=BERLIN))
    assert (report.new, report.refused, report.unmapped) == (2, 0, {})
    first, second = events(ledger)
    assert {name: first[name] for name in ("event_type", "occurred_at", "session_id")} == {
        "event_type": "message.user",
        "occurred_at": "2026-03-01T09:00:00.000Z",
        "session_id": "T-1",
    }
    assert (first["agent_id"], second["agent_id"], first["user_id"]) == ("desk", "Eva", "C-7")
    assert first["payload"] == {
        "role": "user",
        "content": "Hello,\nmy parcel is late.",
        "subject": "Parcel",
    }
    again = imported(ledger, CSV, file, Given(zone=BERLIN))
    assert (again.new, again.duplicates) == (0, 2)


def test_json_rows_are_read_likewise_and_names_may_lead_into_objects(tmp_path: Path) -> None:
    mapping = {
        "columns": {"time": "at", "text": "say.words", "session": "s", "tool": "tool"},
        "constants": {"agent": "bot", "kind": "tool.result", "status": "completed"},
        "options": {"time_format": "%d.%m.%Y %H:%M", "payload": ["code"]},
    }
    file = mapping_file(tmp_path, json.dumps(mapping), "mapping.json")
    row = {
        "at": "05.03.2026 08:30",
        "say": {"words": "ok"},
        "s": 7,
        "code": 0.5,
        "x": 1,
        "tool": "a",
    }
    for data in (json.dumps(row), json.dumps([row], indent=1)):
        ledger = FakeLedger()
        report = imported(ledger, data, file)
        (event,) = events(ledger)
        assert event["payload"] == {"text": "ok", "code": 0.5}
        assert (event["session_id"], event["tool_name"]) == ("7", "a")
        assert event["occurred_at"] == "2026-03-05T08:30:00.000Z"
        assert [field for field, _ in report.unmapped] == ["x"]


def test_rows_that_break_a_rule_are_told_by_line_and_column(tmp_path: Path) -> None:
    data = (
        "number;created;ticket;direction;author;customer;body\n"
        "1;soon;T-1;in;;;words\n"
        "2;2026-03-01;T-1;in;;;\n"
        "3;2026-03-01;;in;;;words\n"
        "4;2026-03-01;T-1;sideways;;;words\n"
        "5;2026-03-01;T-1;in;;;words;more;and more\n"
        "6;2026-03-01;T-1;in;;;words\n"
    )
    report = imported(FakeLedger(), data, mapping_file(tmp_path))
    assert [(p.where["line"], p.field) for p in report.problems] == [
        (2, "created"),
        (3, "body"),
        (4, "ticket"),
        (5, "event_type"),
        (6, "(line)"),
    ]
    assert (report.new, report.invalid) == (1, 5)


def test_a_quotation_without_an_end_ends_the_file_and_is_told(tmp_path: Path) -> None:
    data = CSV + '3;2026-03-01;T-1;in;;;"never ends\n'
    report = imported(FakeLedger(), data, mapping_file(tmp_path))
    assert (report.new, report.invalid) == (2, 1)
    assert report.problems[0].rule.startswith("CSV: ")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[columns]\ntime = 'a'\n", "columns.text"),
        ("[columns]\ntime = 'a'\ntext = 'b'\n", "session: required"),
        ("[columns]\ntime = 'a'\ntext = 'b'\nwords = 'c'\n", "columns.words"),
        ("columns", "mapping.toml"),
        ("[options]\ndelimiter = 'ab'\n[columns]\ntime='a'\ntext='b'\n", "options.delimiter"),
    ],
)
def test_a_mapping_that_breaks_a_rule_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        read_mapping(mapping_file(tmp_path, text))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000Z"),
        ("2026-01-01 01:00:00.123456+01:00", "2026-01-01T00:00:00.123Z"),
        ("2026-01-01", "2026-01-01T00:00:00.000Z"),
        (1_767_225_600, "2026-01-01T00:00:00.000Z"),
        (1_767_225_600.5, "2026-01-01T00:00:00.500Z"),
        (1_767_225_600_123, "2026-01-01T00:00:00.123Z"),
        (1_767_225_600_123_000, "2026-01-01T00:00:00.123Z"),
        (1_767_225_600_123_000_000, "2026-01-01T00:00:00.123Z"),
        ("1767225600", "2026-01-01T00:00:00.000Z"),
    ],
)
def test_a_time_is_read_however_it_is_written(value: Any, text: str) -> None:
    assert timestamp_text(moment_ms(value, UTC)) == text


def test_a_time_without_a_zone_is_of_the_zone_that_is_given() -> None:
    assert timestamp_text(moment_ms("2026-07-01T12:00:00", BERLIN)) == "2026-07-01T10:00:00.000Z"
    assert timestamp_text(moment_ms("2026-07-01T12:00:00Z", BERLIN)) == "2026-07-01T12:00:00.000Z"


@pytest.mark.parametrize(
    "value", ["", "soon", True, None, -1, [], "nan", "inf", 1e30, "0000-01-01"]
)
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a time"):
        moment_ms(value)


# -- what a file holds -----------------------------------------------------------------------------


def read(data: bytes, *lists: str) -> list[Any]:
    return [value for _, value in records(peekable(io.BytesIO(data)), lists)]


def test_records_are_lines_elements_or_one_object() -> None:
    one, two = {"a": 1}, {"b": [2]}
    for data in (
        b'{"a": 1}\n\n{"b": [2]}',
        b'\xef\xbb\xbf[{"a": 1}, {"b": [2]}]',
        b'  {"data": [{"a": 1}, {"b": [2]}]}',
        b'{"data": [{"a": 1}]}\n{"data": [{"b": [2]}]}\n',
        b'{\n "data": [{"a": 1}, {"b": [2]}]\n}\n',
    ):
        assert read(data, "data") == [one, two]
    assert read(b'{\n "a": 1\n}') == [one]
    assert read(b"") == []


def test_a_packed_file_that_ends_too_early_is_told_after_what_could_be_read() -> None:
    lines = b"".join(b'{"a": "%s"}\n' % os.urandom(300).hex().encode() for _ in range(500))
    packed = gzip.compress(lines)
    for kept_bytes, least in ((5, 0), (len(packed) // 2, 100)):
        stream = gzip.GzipFile(fileobj=io.BytesIO(packed[:kept_bytes]))
        opened = peekable(cast(IO[bytes], stream))
        assert sniffed(opened) is Format.EVENTS
        *values, last = (value for _, value in records(opened))
        assert len(values) >= least
        assert isinstance(last, InvalidInput)
        assert last.errors[0][1].startswith("gzip: ")


def test_the_first_line_may_be_the_broken_one() -> None:
    broken, good = read(b'{"a": \n{"a": 1}\n')
    assert isinstance(broken, InvalidInput)
    assert good == {"a": 1}


def test_an_object_that_is_too_large_to_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.operations.sources.MAX_DOCUMENT_BYTES", 10)
    assert isinstance(document(io.BytesIO(b'{"a": "0123456789"}')), InvalidInput)


def test_a_packed_table_that_ends_too_early_is_told_after_its_rows(tmp_path: Path) -> None:
    rows = "".join(
        f"{n};2026-03-01 10:00;T-1;in;;C-7;{os.urandom(99).hex()};\n" for n in range(999)
    )
    packed = gzip.compress((CSV.splitlines()[0] + "\n" + rows).encode())
    stream = gzip.GzipFile(fileobj=io.BytesIO(packed[: len(packed) // 2]))
    opened = peekable(cast(IO[bytes], stream))
    *told, last = row_items(opened, GIVEN, read_mapping(mapping_file(tmp_path)))
    assert len(told) > 100
    assert isinstance(last, Item)
    assert last.error is not None
    assert last.error.errors[0][1].startswith("gzip: ")


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert read(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]


def test_what_stands_beside_a_field_inside_a_column_is_kept(tmp_path: Path) -> None:
    ledger = FakeLedger()
    file = mapping_file(tmp_path, MAPPING.replace('user = "customer"', 'user = "customer.id"'))
    row = {"created": "2026-03-01 10:00", "body": "Hi", "ticket": "T", "author": "a"}
    row |= {"direction": "in", "number": "1"}
    imported(ledger, json.dumps({**row, "customer": {"id": "C-7", "name": "Ann"}}), file)
    (event,) = events(ledger)
    assert event["user_id"] == "C-7"
    assert event["payload"]["customer"] == {"id": "C-7", "name": "Ann"}


def test_another_list_of_a_page_is_told() -> None:
    page = json.dumps({"relations": [1], "results": [{"id": "m"}], "next": None}).encode()
    record, note = (value for _, value in records(peekable(io.BytesIO(page)), ("results",)))
    assert record == {"id": "m"}
    assert note.field == "relations"
