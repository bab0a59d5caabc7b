"""The ledger read as one sequence: in order, complete, from any place on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.ledger.sequence import MAX_STRETCH_BYTES, LedgerSequence
from projections.errors import LedgerError
from projections.events import Event
from projections.identity import START, Position
from tests.damage import flipped, write_stream_anew
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration

PARTITIONS = 4


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    opened = redis.Redis.from_url(redis_url)
    yield opened
    opened.close()


@pytest.fixture
def ledger(client: Any) -> Ledger:
    return Ledger(client, partitions=PARTITIONS, id_buckets=64, checkpoints=dict)


def append(ledger: Ledger, events: Sequence[Event]) -> list[Appended]:
    outcomes = ledger.append(events)
    return [outcome for outcome in outcomes if isinstance(outcome, Appended)]


def numbered(first: int, count: int, **fields: Any) -> list[Event]:
    return [numbered_event(number, **fields) for number in range(first, first + count)]


def all_of(sequence: LedgerSequence) -> list[Entry]:
    """Until its end."""
    entries: list[Entry] = []
    while True:
        stretch = sequence.read()
        entries += stretch.entries
        assert all(entry.position <= stretch.until for entry in stretch.entries)
        if stretch.is_end:
            return entries


def ids(entries: Sequence[Entry]) -> list[str]:
    return [entry.event().event_id for entry in entries]


def test_all_partitions_are_read_in_one_order_while_they_grow(ledger: Ledger) -> None:
    def grow(writer: int) -> None:
        for first in range(0, 300, 7):
            append(ledger, numbered(writer * 1_000 + first, 7, session_id=f"s-{writer}-{first}"))

    writers = [threading.Thread(target=grow, args=(number,)) for number in range(3)]
    sequence = LedgerSequence(ledger, START)
    entries: list[Entry] = []
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        entries += sequence.read().entries
    entries += all_of(sequence)

    every = [entry for number in range(PARTITIONS) for e in ledger.scan(number) for entry in e]
    expected = sorted(every, key=lambda entry: entry.position)
    assert len(expected) == 3 * 43 * 7
    assert entries == expected


def test_it_goes_on_from_any_place(ledger: Ledger) -> None:
    places = append(ledger, numbered(0, 25))
    for number, place in enumerate(places):
        rest = all_of(LedgerSequence(ledger, place.position))
        assert [entry.position for entry in rest] == [p.position for p in places[number + 1 :]]
    between = Position(places[10].position.ms - 1, 2**64 - 1)
    assert len(all_of(LedgerSequence(ledger, between))) == 25  # one append, one millisecond


def test_some_partitions_are_read_up_to_the_same_end(ledger: Ledger) -> None:
    places = append(ledger, numbered(0, 40))
    sequence = LedgerSequence(ledger, START, [2])
    stretch = sequence.read()
    while not stretch.is_end:
        stretch = sequence.read()
    assert stretch.until == places[-1].position
    expected = [place.position for place in places if place.partition == 2]
    assert [e.position for e in all_of(LedgerSequence(ledger, START, [2]))] == expected


def test_a_stretch_is_small_however_large_its_events_are(ledger: Ledger) -> None:
    text = "x" * 200_000
    append(ledger, numbered(0, 30, payload={"text": text}))
    sequence = LedgerSequence(ledger, START)
    sizes: list[int] = []
    entries: list[Entry] = []
    while not (stretch := sequence.read()).is_end:
        sizes.append(sum(len(entry.data) for entry in stretch.entries))
        entries += stretch.entries
    entries += stretch.entries
    assert len(sizes) >= 5
    assert max(sizes) <= MAX_STRETCH_BYTES
    assert ids(entries) == [event.event_id for event in numbered(0, 30)]


def test_what_is_held_out_is_passed_and_what_was_put_right_is_there(
    ledger: Ledger, client: Any
) -> None:
    """From every place on: one that was lost and sent again has its own place in the order."""
    events = numbered(0, 20, session_id="one")
    places = append(ledger, events)
    partition = places[0].partition
    altered = {
        places[n].position: lambda fields: {**fields, b"e": flipped(fields[b"e"])} for n in (3, 9)
    }
    write_stream_anew(client, partition, altered)
    for number in (5, 6, 12):
        client.xdel(ledger.keys.stream(partition), str(places[number].position))
    assert [outcome.duplicate for outcome in append(ledger, [events[9], events[6]])] == [True, True]

    present = [n for n in range(20) if n not in (3, 5, 12)]
    for start in range(-1, 20):
        after = START if start < 0 else places[start].position
        expected = [events[n].event_id for n in present if n > start]
        assert ids(all_of(LedgerSequence(ledger, after))) == expected, start


def test_a_ledger_that_begins_anew_is_noticed(ledger: Ledger, client: Any) -> None:
    places = append(ledger, numbered(0, 20))
    sequence = LedgerSequence(ledger, START)
    all_of(sequence)
    client.flushall()
    with pytest.raises(LedgerError, match="ends before what was read"):
        sequence.read()
    ledger.admit()
    new = append(ledger, numbered(100, 3))
    with pytest.raises(LedgerError, match="ends before what was read"):
        sequence.read()
    entries = all_of(LedgerSequence(ledger, places[-1].position))
    assert [entry.position for entry in entries] == [place.position for place in new]


def test_waiting_ends_with_the_next_event(ledger: Ledger) -> None:
    append(ledger, numbered(0, 10))
    sequence = LedgerSequence.at_tail(ledger)
    sequence.wait(20)
    assert not sequence.read().entries
    later = threading.Timer(0.1, append, (ledger, numbered(10, 1)))
    later.start()
    sequence.wait(20_000)
    assert ids(sequence.read().entries) == [numbered_event(10).event_id]
    later.join()
