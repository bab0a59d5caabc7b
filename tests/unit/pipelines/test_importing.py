"""An import judges each line alone and its counts add up, on the fake ledger."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Outcome
from pipelines.operations.formats.table import chat_items, event_items
from pipelines.operations.imports import Problem, import_events
from pipelines.operations.sources import Item
from projections.errors import ArchiveUnavailable, GraphAhead, RecollectError
from projections.events import Event
from tests.fakes.ledger import FakeLedger

UUID = "00000000-0000-0000-0000-{:012d}"


def envelope(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "event_id": UUID.format(number),
        "event_type": "test.happened",
        "occurred_at": "2026-01-01T00:00:00Z",
        "session_id": f"session-{number % 4}",
        "agent_id": "tester",
        "trace_id": "trace",
        **fields,
    }


def jsonl(*envelopes: dict[str, Any]) -> io.BytesIO:
    return io.BytesIO("\n".join(map(json.dumps, envelopes)).encode())


class Counting:
    """A ledger that notes how many events each append had."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.ledger = ledger
        self.sizes: list[int] = []

    def append(self, events: Sequence[Event]) -> list[Outcome]:
        self.sizes.append(len(events))
        return self.ledger.append(events)

    def find(self, tenant: str, event_id: str) -> Entry | None:
        return self.ledger.find(tenant, event_id)


HALTED = GraphAhead(partition=0, position="1-0", reason="lost")
AWAY = ArchiveUnavailable(url="/archive", reason="it is not mounted")


class Refusing:
    """A ledger that takes no event: all its partitions are halted, say."""

    def __init__(self, error: RecollectError) -> None:
        self.error = error

    def append(self, events: Sequence[Event]) -> list[Outcome]:
        return [self.error for _ in events]

    def find(self, tenant: str, event_id: str) -> Entry | None:
        raise AssertionError


@pytest.fixture
def ledger() -> FakeLedger:
    return FakeLedger()


def test_batches_are_as_long_as_asked_and_none_is_empty(ledger: FakeLedger) -> None:
    counting = Counting(ledger)
    report = import_events(counting, event_items(jsonl(*map(envelope, range(1, 11)))), batch=4)
    assert counting.sizes == [4, 4, 2]
    assert (report.read, report.new) == (10, 10)
    assert counting.append([]) == []


def test_the_last_position_of_each_partition_is_known_for_duplicates_too(
    ledger: FakeLedger,
) -> None:
    source = [envelope(number) for number in range(1, 20)]
    first = import_events(ledger, event_items(jsonl(*source)))
    again = import_events(ledger, event_items(jsonl(*source)))
    tails = {p: tail.position for p, tail in enumerate(ledger.tails()) if tail.seq}
    assert first.last == again.last == tails


def test_a_halted_partition_refuses_and_is_counted() -> None:
    report = import_events(Refusing(HALTED), event_items(jsonl(envelope(1), envelope(2))))
    assert (report.read, report.halted, report.refused) == (2, 2, 2)
    assert report.as_dict()["ok"] is False


def test_an_archive_that_is_away_ends_an_import() -> None:
    with pytest.raises(ArchiveUnavailable, match="it is not mounted"):
        import_events(Refusing(AWAY), event_items(jsonl(envelope(1))))


def test_each_broken_rule_is_told_with_its_line_and_field(ledger: FakeLedger) -> None:
    told: list[Problem] = []
    source = io.BytesIO(b'{"event_id": 7, "tenant": "NO"}\n\n[1]\n')
    report = import_events(ledger, event_items(source), on_problem=told.append)
    assert (report.read, report.invalid) == (2, 2)
    assert {(p.where["line"], p.field) for p in told} >= {
        (1, "event_id"),
        (1, "tenant"),
        (1, "occurred_at"),
        (3, "(event)"),
    }


def test_a_statement_in_a_file_is_judged_as_over_http(ledger: FakeLedger) -> None:
    told: list[Problem] = []
    fact = {"source": {"name": "Ada"}, "relation": "works_at", "target": "Acme"}
    source = jsonl(
        envelope(1, event_type="memory.fact_asserted", payload=fact),
        envelope(2, event_type="memory.fact_asserted", payload={**fact, "edge_type": "Semantic"}),
        envelope(3, event_type="memory.same_as", payload={}),
    )
    report = import_events(ledger, event_items(source), on_problem=told.append)
    assert (report.new, report.invalid) == (1, 2)
    assert [(p.where["line"], p.field) for p in told] == [
        (2, "payload.edge_type"),
        (3, "event_type"),
    ]


def test_a_report_keeps_some_problems_and_counts_all(ledger: FakeLedger) -> None:
    told: list[Problem] = []
    items = (Item({"line": number}, 1) for number in range(1, 1_501))
    report = import_events(ledger, items, on_problem=told.append)
    assert len(told) == report.invalid == 1_500
    assert len(report.problems) + report.problems_left_out == 1_500
    assert len(report.problems) == 1_000


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(
    ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.operations.sources.MAX_LINE_BYTES", 1_000)
    source = jsonl(envelope(1, payload="x" * 5_000), envelope(2))
    told: list[Problem] = []
    report = import_events(ledger, event_items(source), on_problem=told.append)
    assert (report.invalid, report.new) == (1, 1)
    assert [(p.where["line"], p.field) for p in told] == [(1, "(line)")]


def talk(number: int, length: int = 2) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{number} " + "é" * 200} for _ in range(length)]
    return {"id": f"talk-{number}", "messages": messages}


@pytest.mark.parametrize("indent", [None, 2])
def test_conversations_are_read_one_by_one_whatever_the_buffer(
    monkeypatch: pytest.MonkeyPatch, indent: int | None
) -> None:
    monkeypatch.setattr("pipelines.operations.sources._CHUNK_CHARACTERS", 37)
    conversations = [talk(number, 1 + number % 5) for number in range(30)]
    source = json.dumps(conversations, indent=indent, ensure_ascii=False).encode()
    items = list(chat_items(io.BytesIO(b"\xef\xbb\xbf  " + source + b"\n")))
    assert all(item.error is None for item in items)
    assert len(items) == sum(len(c["messages"]) for c in conversations)
    assert items[-1].where == {"conversation": 30, "message": 5}


@pytest.mark.parametrize(
    ("source", "good"),
    [
        (b"[", 0),
        (b"", 0),
        (b'[{"messages": []} {"messages": []}]', 0),
        (json.dumps([talk(1)]).encode()[:-1], 2),
        (json.dumps([talk(1)]).encode()[:-1] + b",", 2),
        (b"\xff\xfe", 0),
    ],
    ids=["unclosed", "empty", "no comma", "no end", "comma at the end", "not UTF-8"],
)
def test_broken_json_is_reported_once_after_what_was_whole(source: bytes, good: int) -> None:
    items = list(chat_items(io.BytesIO(source)))
    assert [item.error is None for item in items] == [True] * good + [False]


def test_one_conversation_or_one_list_of_messages_is_a_file_too() -> None:
    one = json.dumps(talk(1)).encode()
    bare = json.dumps(talk(1)["messages"]).encode()
    assert len(list(chat_items(io.BytesIO(one)))) == 2
    assert len(list(chat_items(io.BytesIO(bare)))) == 2
    packed = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(one)))
    assert len(list(chat_items(packed))) == 2  # type: ignore[arg-type]  # a GzipFile reads bytes
