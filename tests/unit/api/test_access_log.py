"""What reads returned is counted in bounded memory and appended when the ledger takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from api.access_log import MAX_WAITING, AccessLog
from consolidation.forgetting_payloads import Accessed, parse_accessed
from pipelines.ledger.ledger import Ledger
from projections.errors import LedgerUnavailable
from projections.events import Event
from tests.factories import event_id


class Book:
    """Takes events, unless it is away."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.away = False

    def append(self, events: Sequence[Event]) -> list[Any]:
        if self.away:
            raise LedgerUnavailable(reason="away")
        self.events += events
        return []

    def accessed(self) -> list[Accessed]:
        return [parse_accessed(event.payload) for event in self.events]


def log_of(book: Book, overloaded: str | None = None) -> AccessLog:
    return AccessLog(lambda: cast(Ledger, book), lambda: overloaded)


ENTITY = "0f" * 16


def test_reads_of_a_second_are_one_event_of_each_tenant() -> None:
    book = Book()
    log = log_of(book)
    log.record("a", [event_id(1), event_id(2), f"entity:{ENTITY}", "summary:00"])
    log.record("a", [event_id(1)])
    log.record("b", [event_id(1)])
    log.append_waiting()
    assert [event.tenant for event in book.events] == ["a", "b"]
    assert book.accessed() == [
        Accessed({event_id(1): 2, event_id(2): 1}, {ENTITY: 1}),
        Accessed({event_id(1): 1}),
    ]
    log.append_waiting()
    assert len(book.events) == 2


def test_a_thousand_nodes_go_into_an_event_and_the_rest_into_the_next() -> None:
    book = Book()
    log = log_of(book)
    log.record("a", map(event_id, range(1, 2_501)))
    log.append_waiting()
    assert [len(one.events) for one in book.accessed()] == [1_000, 1_000, 500]


def test_what_the_ledger_does_not_take_waits_and_is_not_forgotten() -> None:
    book = Book()
    log = log_of(book)
    book.away = True
    log.record("a", [event_id(1)])
    log.append_waiting()
    assert log.waiting("a") == 1
    log.record("a", [event_id(1), event_id(2)])
    book.away = False
    log.append_waiting()
    assert book.accessed() == [Accessed({event_id(1): 2, event_id(2): 1})]
    assert log.waiting("a") == 0


def test_memory_is_bounded_and_what_is_known_goes_on_counting() -> None:
    book = Book()
    log = log_of(book)
    log.record("a", map(event_id, range(1, MAX_WAITING + 100)))
    assert log.waiting("a") == MAX_WAITING
    log.record("b", [event_id(1)])
    assert log.waiting("b") == 0
    log.record("a", [event_id(1)])
    log.append_waiting()
    assert sum(one.events.get(event_id(1), 0) for one in book.accessed()) == 2
    log.record("b", [event_id(1)])
    assert log.waiting("b") == 1


def test_while_ingest_is_overloaded_reads_are_not_counted() -> None:
    book = Book()
    log = log_of(book, overloaded="too many events wait")
    log.record("a", [event_id(1)])
    log.append_waiting()
    assert book.events == []
    assert log.waiting("a") == 0
