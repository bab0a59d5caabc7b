"""What a ledger promises, held against the fake and against a real Valkey."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

import pytest
import redis

from pipelines.ledger.damage import HeldOut
from pipelines.ledger.entries import Entry
from pipelines.ledger.epoch import ReadCheckpoints
from pipelines.ledger.ledger import Appended, Ledger, Outcome
from projections.errors import (
    ClockAhead,
    EntryHeldOut,
    EventConflict,
    GraphAhead,
    GraphUnavailable,
    InvalidEvent,
    LedgerFormatMismatch,
    LedgerUnavailable,
)
from projections.events import content_digest, decode_event, encode_event, event_partition
from projections.identity import START, Position, event_key_digest, partition_of
from projections.operations import Checkpoint
from tests.damage import flipped, write_stream_anew
from tests.fakes.events import numbered_event
from tests.fakes.ledger import FakeLedger, FakeServer

PARTITIONS = 4
ID_BUCKETS = 64

AnyLedger = Ledger | FakeLedger


class Backend(Protocol):
    """A server, and what can happen to it."""

    def ledger(self, checkpoints: ReadCheckpoints = dict, partitions: int = ...) -> AnyLedger: ...

    def ledger_of_a_slow_clock(self, behind_ms: int) -> AnyLedger: ...

    def alter(self, entry: Entry) -> None: ...

    def delete(self, entry: Entry) -> None: ...

    def turn_clock_back(self, by_ms: int) -> None: ...

    def change_process(self) -> None: ...

    def lose(self, partition: int, count: int) -> None: ...


class FakeBackend:
    def __init__(self) -> None:
        self.server = FakeServer()

    def ledger(
        self, checkpoints: ReadCheckpoints = dict, partitions: int = PARTITIONS
    ) -> AnyLedger:
        return FakeLedger(
            self.server, partitions=partitions, id_buckets=ID_BUCKETS, checkpoints=checkpoints
        )

    def ledger_of_a_slow_clock(self, behind_ms: int) -> AnyLedger:
        return FakeLedger(
            self.server, partitions=PARTITIONS, id_buckets=ID_BUCKETS, behind_ms=behind_ms
        )

    def alter(self, entry: Entry) -> None:
        self.server.alter(entry)

    def delete(self, entry: Entry) -> None:
        self.server.delete(entry)

    def turn_clock_back(self, by_ms: int) -> None:
        self.server.now_ms -= by_ms

    def change_process(self) -> None:
        self.server.process += 1

    def lose(self, partition: int, count: int) -> None:
        self.server.lose(partition, count)


class ValkeyBackend:
    def __init__(self, url: str) -> None:
        self.redis: Any = redis.Redis.from_url(url)

    def ledger(
        self, checkpoints: ReadCheckpoints = dict, partitions: int = PARTITIONS
    ) -> AnyLedger:
        return Ledger(
            self.redis, partitions=partitions, id_buckets=ID_BUCKETS, checkpoints=checkpoints
        )

    def ledger_of_a_slow_clock(self, behind_ms: int) -> AnyLedger:
        return Ledger(
            self.redis,
            partitions=PARTITIONS,
            id_buckets=ID_BUCKETS,
            checkpoints=dict,
            clock=lambda: time.time() - behind_ms / 1000,
        )

    def alter(self, entry: Entry) -> None:
        write_stream_anew(
            self.redis,
            entry.partition,
            {entry.position: lambda fields: {**fields, b"e": flipped(fields[b"e"])}},
        )

    def delete(self, entry: Entry) -> None:
        assert self.redis.xdel(f"{{rc:{entry.partition}}}:ledger", str(entry.position)) == 1

    def turn_clock_back(self, by_ms: int) -> None:
        # The server's own clock cannot be turned; what it handed out can be made later than it.
        seconds, _ = self.redis.time()
        self.redis.set("rc:clock", f"{seconds * 1000 + by_ms}-5")

    def change_process(self) -> None:
        self.redis.hset("rc:epoch", mapping={"run_id": "another", "replication_id": "another"})

    def lose(self, partition: int, count: int) -> None:
        stream = f"{{rc:{partition}}}:ledger"
        for entry_id, fields in self.redis.xrevrange(stream, count=count):
            event = decode_event(fields[b"e"])
            key = event_key_digest(event.tenant, event.event_id)
            self.redis.hdel(f"rc:ids:{int.from_bytes(key[:4], 'big') % ID_BUCKETS}", key)
            self.redis.xdel(stream, entry_id)
            self.redis.decr(f"{{rc:{partition}}}:seq")
        self.change_process()


@pytest.fixture(params=["fake", pytest.param("valkey", marks=pytest.mark.integration)])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "fake":
        return FakeBackend()
    return ValkeyBackend(request.getfixturevalue("redis_url"))


@pytest.fixture
def ledger(backend: Backend) -> AnyLedger:
    return backend.ledger()


def appended(outcomes: Sequence[Outcome]) -> list[Appended]:
    found = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    assert len(found) == len(outcomes), outcomes
    return found


def entries(ledger: AnyLedger) -> list[Entry]:
    return [
        entry
        for partition in range(PARTITIONS)
        for entry in chain.from_iterable(ledger.scan(partition, count=37))
    ]


def assert_gapless(ledger: AnyLedger, count: int) -> None:
    found = entries(ledger)
    assert len(found) == count
    for partition in range(PARTITIONS):
        seqs = [entry.seq for entry in found if entry.partition == partition]
        assert seqs == list(range(1, len(seqs) + 1))
    assert len({entry.position for entry in found}) == count


def checkpoint_at(entry: Entry, stage: str = "projection") -> Checkpoint:
    digest = content_digest(entry.data).hex()
    return Checkpoint(stage, entry.partition, entry.position, entry.seq, digest)


def last_checkpoints(ledger: AnyLedger) -> dict[str, list[Checkpoint]]:
    last = {entry.partition: entry for entry in entries(ledger)}
    return {"blue": [checkpoint_at(entry) for entry in last.values()]}


def test_an_event_is_found_where_it_was_put(ledger: AnyLedger) -> None:
    event = numbered_event(1)
    (place,) = appended(ledger.append([event]))
    found = ledger.find("default", event.event_id)
    assert found == Entry(place.partition, place.position, 1, encode_event(event))
    assert ledger.entry_at(place.partition, place.position) == found
    assert ledger.find_many([("default", "none"), event.key]) == {event.key: found}
    assert not place.duplicate


def test_nothing_is_found_where_nothing_was_put(ledger: AnyLedger) -> None:
    appended(ledger.append([numbered_event(1)]))
    assert ledger.find("default", numbered_event(2).event_id) is None
    assert ledger.find("acme", numbered_event(1).event_id) is None
    assert ledger.entry_at(0, Position(1, 1)) is None


def test_the_session_decides_the_partition(ledger: AnyLedger) -> None:
    events = [numbered_event(number, session_id=f"s{number}") for number in range(50)]
    places = appended(ledger.append(events))
    expected = [partition_of("default", event.session_id, PARTITIONS) for event in events]
    assert [place.partition for place in places] == expected
    assert set(expected) == set(range(PARTITIONS))


def test_system_events_of_a_tenant_share_a_partition(ledger: AnyLedger) -> None:
    events = [numbered_event(n, event_type="memory.accessed", session_id=f"s{n}") for n in range(9)]
    places = appended(ledger.append(events))
    expected = partition_of("default", "memory", PARTITIONS)
    assert {place.partition for place in places} == {expected}


def test_the_same_event_again_gets_its_first_place(ledger: AnyLedger) -> None:
    events = [numbered_event(number) for number in range(300)]
    first = appended(ledger.append(events))
    again = appended(ledger.append(events[::-1]))[::-1]
    assert again == [place._replace(duplicate=True) for place in first]
    assert_gapless(ledger, 300)


def test_an_event_twice_in_one_batch_is_one(ledger: AnyLedger) -> None:
    event = numbered_event(1)
    first, second = appended(ledger.append([event, event]))
    assert second == first._replace(duplicate=True)
    assert_gapless(ledger, 1)


def test_same_id_and_other_content_is_a_conflict(ledger: AnyLedger) -> None:
    event = numbered_event(1)
    appended(ledger.append([event]))
    (outcome,) = ledger.append([event._replace(agent_id="other")])
    assert isinstance(outcome, EventConflict)
    assert outcome.event_id == event.event_id
    assert_gapless(ledger, 1)


def test_a_conflict_is_seen_across_partitions(ledger: AnyLedger) -> None:
    sessions = {partition_of("default", f"s{n}", PARTITIONS): f"s{n}" for n in range(50)}
    event = numbered_event(1, session_id=sessions[0])
    appended(ledger.append([event]))
    (outcome,) = ledger.append([event._replace(session_id=sessions[1])])
    assert isinstance(outcome, EventConflict)
    assert ledger.tails()[1].seq == 0


def test_tenants_do_not_share_ids(ledger: AnyLedger) -> None:
    event = numbered_event(1)
    places = appended(ledger.append([event, event._replace(tenant="acme")]))
    assert [place.duplicate for place in places] == [False, False]


def test_each_event_of_a_batch_is_judged_alone(ledger: AnyLedger) -> None:
    appended(ledger.append([numbered_event(1)]))
    outcomes = ledger.append(
        [
            numbered_event(2),
            numbered_event(1, agent_id="other"),
            numbered_event(3, payload={"number": 2**60}),
            numbered_event(4, payload="x" * 400_000),
            numbered_event(1),
            numbered_event(5),
        ]
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Appended, EventConflict, InvalidEvent, InvalidEvent, Appended, Appended]
    assert_gapless(ledger, 3)


def test_a_batch_of_many_large_events(ledger: AnyLedger) -> None:
    events = [numbered_event(number, payload="x" * 100_000) for number in range(30)]
    appended(ledger.append(events))
    assert {entry.data for entry in entries(ledger)} == {encode_event(event) for event in events}


def test_positions_rise_with_the_order_of_appending(ledger: AnyLedger) -> None:
    places = [
        place
        for start in range(0, 600, 150)
        for place in appended(ledger.append([numbered_event(start + n) for n in range(150)]))
    ]
    positions = [place.position for place in places]
    assert positions == sorted(set(positions))
    assert_gapless(ledger, 600)


def test_a_session_keeps_its_order(ledger: AnyLedger) -> None:
    events = [numbered_event(number) for number in range(700)]
    appended(ledger.append(events))
    read = [decode_event(entry.data) for entry in entries(ledger)]
    for session in {event.session_id for event in events}:
        expected = [event.event_id for event in events if event.session_id == session]
        assert [event.event_id for event in read if event.session_id == session] == expected


def test_positions_rise_when_the_clock_goes_back(backend: Backend, ledger: AnyLedger) -> None:
    before = appended(ledger.append([numbered_event(n) for n in range(20)]))
    backend.turn_clock_back(by_ms=3_600_000)
    after = appended(ledger.append([numbered_event(n) for n in range(20, 40)]))
    positions = [place.position for place in before + after]
    assert positions == sorted(set(positions))


def test_reading_is_behind_after_up_to_until(ledger: AnyLedger) -> None:
    events = [numbered_event(number, session_id="one") for number in range(10)]
    places = appended(ledger.append(events))
    partition = places[0].partition

    def seqs(after: Position, count: int, until: Position | None = None) -> list[int]:
        return [entry.seq for entry in ledger.read(partition, after, count, until)]

    assert seqs(START, 100) == list(range(1, 11))
    assert seqs(START, 3) == [1, 2, 3]
    assert seqs(places[2].position, 100) == list(range(4, 11))
    assert seqs(places[2].position, 100, places[5].position) == [4, 5, 6]
    assert seqs(places[9].position, 100) == []
    assert [len(block) for block in ledger.scan(partition, count=4)] == [4, 4, 2]


def test_the_newest_are_those_before_a_position(ledger: AnyLedger) -> None:
    places = appended(ledger.append([numbered_event(n, session_id="one") for n in range(10)]))
    partition = places[0].partition

    def seqs(before: Position, count: int) -> list[int]:
        return [entry.seq for entry in ledger.newest(partition, before, count)]

    behind_all = Position(places[9].position.ms + 1, 0)
    assert seqs(behind_all, 100) == list(range(10, 0, -1))
    assert seqs(behind_all, 3) == [10, 9, 8]
    assert seqs(places[7].position, 2) == [7, 6]
    assert seqs(places[0].position, 100) == seqs(Position(1, 0), 100) == []


def test_tails_are_the_last_entries(ledger: AnyLedger) -> None:
    assert ledger.tails() == [(START, 0)] * PARTITIONS
    events = [numbered_event(number) for number in range(60)]
    appended(ledger.append(events))
    last = {entry.partition: (entry.position, entry.seq) for entry in entries(ledger)}
    assert ledger.tails() == [last.get(p, (START, 0)) for p in range(PARTITIONS)]


def test_threads_that_append_the_same_events(backend: Backend) -> None:
    ledger = backend.ledger()
    events = [numbered_event(number) for number in range(400)]
    places: list[list[Appended]] = []
    start = threading.Barrier(4)

    def append_all(order: int) -> None:
        start.wait(10)
        mine = events[order * 100 :] + events[: order * 100]
        found = [
            place
            for index in range(0, len(mine), 25)
            for place in appended(ledger.append(mine[index : index + 25]))
        ]
        places.append(found)

    threads = [threading.Thread(target=append_all, args=(order,)) for order in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(places) == 4
    new = [place for found in places for place in found if not place.duplicate]
    assert len(new) == 400
    assert len({place.position for found in places for place in found}) == 400
    assert_gapless(ledger, 400)


def test_another_number_of_partitions_is_refused(backend: Backend) -> None:
    backend.ledger()
    with pytest.raises(LedgerFormatMismatch):
        backend.ledger(partitions=PARTITIONS * 2)


def test_checkpoints_that_hold_and_that_do_not(ledger: AnyLedger) -> None:
    appended(ledger.append([numbered_event(number, session_id="one") for number in range(5)]))
    entry = entries(ledger)[2]
    good = checkpoint_at(entry)
    fresh = Checkpoint("projection", entry.partition)
    later = Position(good.position.ms + 5, 0)
    wrong = [
        Checkpoint("projection", good.partition, later, good.seq, good.digest),
        Checkpoint("projection", good.partition, good.position, good.seq + 1, good.digest),
        Checkpoint("projection", good.partition, good.position, good.seq, "00" * 16),
        Checkpoint("projection", (good.partition + 1) % PARTITIONS, good.position, 3, good.digest),
    ]
    assert ledger.missing_checkpoints([fresh, good, *wrong]) == wrong
    assert ledger.missing_checkpoints([]) == []


def test_a_new_process_with_everything_in_place_goes_on(backend: Backend) -> None:
    first = backend.ledger()
    appended(first.append([numbered_event(number) for number in range(50)]))
    held = last_checkpoints(first)
    backend.change_process()
    ledger = backend.ledger(checkpoints=lambda: held)
    appended(ledger.append([numbered_event(number) for number in range(50, 90)]))
    appended(first.append([numbered_event(99)]))
    assert ledger.halted() == {}
    assert_gapless(ledger, 91)


def test_a_partition_whose_checkpoint_is_lost_halts_alone(backend: Backend) -> None:
    first = backend.ledger()
    events = [numbered_event(number) for number in range(200)]
    appended(first.append(events))
    held = last_checkpoints(first)
    lost = held["blue"][0].partition
    backend.lose(lost, 3)
    ledger = backend.ledger(checkpoints=lambda: held)
    more = [numbered_event(number) for number in range(200, 260)]
    for event, outcome in zip(more, ledger.append(more), strict=True):
        if event_partition(event, PARTITIONS) == lost:
            assert isinstance(outcome, GraphAhead)
            assert outcome.partition == lost
            assert outcome.position == str(held["blue"][0].position)
        else:
            assert isinstance(outcome, Appended)
    assert list(ledger.halted()) == [lost]
    assert str(held["blue"][0].position) in ledger.halted()[lost]


def test_a_checkpoint_read_while_it_is_written_halts_nothing(backend: Backend) -> None:
    """One property of it may be read new, and another old."""
    first = backend.ledger()
    appended(first.append([numbered_event(number) for number in range(50)]))
    (at, *others) = last_checkpoints(first)["blue"]
    looks = [[replace(at, seq=at.seq + 1), *others], [at, *others]]
    backend.change_process()
    ledger = backend.ledger(checkpoints=lambda: {"blue": looks.pop(0) if looks else [at, *others]})
    appended(ledger.append([numbered_event(number) for number in range(50, 90)]))
    assert ledger.halted() == {}
    assert looks == []


def test_events_known_to_a_halted_partition_are_still_duplicates(backend: Backend) -> None:
    first = backend.ledger()
    (place,) = appended(first.append([numbered_event(1)]))
    ghost = Checkpoint("projection", place.partition, Position(2**41, 0), 9, "00" * 16)
    backend.change_process()
    ledger = backend.ledger(checkpoints=lambda: {"blue": [ghost]})
    assert ledger.append([numbered_event(1)]) == [place._replace(duplicate=True)]
    assert isinstance(ledger.append([numbered_event(1, agent_id="other")])[0], EventConflict)


def test_a_released_partition_accepts_above_every_checkpoint(backend: Backend) -> None:
    future = Position(2**41, 7)
    partition = event_partition(numbered_event(1), PARTITIONS)
    ghosts = [Checkpoint("projection", partition, future, 9, "00" * 16)]
    ledger = backend.ledger(checkpoints=lambda: {"blue": [], "green": ghosts})
    (refused,) = ledger.append([numbered_event(1)])
    assert isinstance(refused, GraphAhead)
    ledger.release(partition)
    (place,) = appended(ledger.append([numbered_event(1)]))
    assert place.position > future
    assert ledger.halted() == {}


def test_a_partition_is_halted_by_who_finds_its_checkpoint_gone(backend: Backend) -> None:
    ledger = backend.ledger()
    (place,) = appended(ledger.append([numbered_event(1)]))
    ledger.halt("blue", Checkpoint("projection", place.partition, Position(2**41, 0), 9, "00"))
    (refused,) = ledger.append([numbered_event(8, session_id=numbered_event(1).session_id)])
    assert isinstance(refused, GraphAhead)


def test_nothing_is_appended_while_checkpoints_cannot_be_read(backend: Backend) -> None:
    answers: list[Callable[[], Mapping[str, Sequence[Checkpoint]]]] = []

    def checkpoints() -> Mapping[str, Sequence[Checkpoint]]:
        return answers[-1]()

    def away() -> Mapping[str, Sequence[Checkpoint]]:
        raise GraphUnavailable(reason="starting")

    answers.append(away)
    ledger = backend.ledger(checkpoints=checkpoints)
    with pytest.raises(LedgerUnavailable, match="starting"):
        ledger.append([numbered_event(1)])
    with pytest.raises(GraphUnavailable):
        ledger.admit()
    answers.append(dict)
    appended(ledger.append([numbered_event(1)]))
    answers.append(away)  # an admitted process asks no more
    appended(ledger.append([numbered_event(2)]))


def test_memory_and_time_are_known(ledger: AnyLedger) -> None:
    appended(ledger.append([numbered_event(1)]))
    used, limit = ledger.memory()
    assert used > 0
    assert limit == 0
    assert ledger.now_ms() > 1_700_000_000_000


def test_the_request_id_travels_beside_the_event_and_is_not_part_of_it(ledger: Any) -> None:
    first, second = numbered_event(1), numbered_event(2)

    ledger.append([first], request_id="req-100%-ä")
    ledger.append([second])

    found = [ledger.find(event.tenant, event.event_id) for event in (first, second)]
    assert [entry.request_id for entry in found] == ["req-100%-ä", None]
    assert [decode_event(entry.data) for entry in found] == [first, second]


# damage

LINE = [numbered_event(number, session_id="one") for number in range(8)]


def damaged(backend: Backend, damage: str, *numbers: int) -> tuple[AnyLedger, list[Entry]]:
    """A ledger some of whose entries are damaged, and all its entries as they were before."""
    ledger = backend.ledger()
    appended(ledger.append(LINE))
    before = entries(ledger)
    for number in numbers:
        backend.alter(before[number]) if damage == "altered" else backend.delete(before[number])
    return ledger, before


@pytest.mark.parametrize("damage", ["altered", "lost"])
def test_an_entry_that_is_not_what_was_appended_is_held_out(backend: Backend, damage: str) -> None:
    ledger, before = damaged(backend, damage, 3)

    read = entries(ledger)

    assert [(entry.seq, entry.fault) for entry in read if entry.fault] == [(4, damage)]
    assert read[3].data == b""
    assert read[:3] + read[4:] == before[:3] + before[4:]
    with pytest.raises(EntryHeldOut, match=damage):
        read[3].event()
    found = ledger.find(*LINE[3].key)
    assert found is not None
    assert (found.data, found.fault) == (b"", damage)
    assert ledger.held_out() == (HeldOut(altered=1) if damage == "altered" else HeldOut(lost=1))


@pytest.mark.parametrize("damage", ["altered", "lost"])
@pytest.mark.parametrize("numbers", [(3,), (0,), (7,), (2, 3, 4)])
def test_the_same_event_again_puts_its_entry_right(
    backend: Backend, damage: str, numbers: tuple[int, ...]
) -> None:
    ledger, before = damaged(backend, damage, *numbers)
    entries(ledger)

    again = appended(ledger.append(LINE))

    assert again == [Appended(entry.position, entry.partition, True) for entry in before]
    assert ledger.find_many([event.key for event in LINE]) == dict(
        zip([event.key for event in LINE], before, strict=True)
    )
    assert ledger.held_out() == HeldOut()
    more = appended(ledger.append([numbered_event(9, session_id="one")]))
    assert entries(ledger)[:8] == before
    assert entries(ledger)[8].position == more[0].position


def test_other_content_does_not_put_an_entry_right(backend: Backend) -> None:
    ledger, _ = damaged(backend, "altered", 3)
    assert isinstance(ledger.append([LINE[3]._replace(agent_id="other")])[0], EventConflict)
    assert [entry.fault for entry in entries(ledger)].count("altered") == 1


def test_lost_entries_are_missed_behind_a_number_that_is_known(backend: Backend) -> None:
    ledger, before = damaged(backend, "lost", 2, 3)
    at = before[1]
    read = ledger.read(at.partition, at.position, 3, after_seq=at.seq)
    assert [(entry.seq, entry.fault) for entry in read] == [(3, "lost"), (4, "lost"), (5, "")]
    assert at.position < read[0].position <= before[2].position < read[2].position
    first = ledger.read(at.partition, at.position, 1, after_seq=at.seq)
    assert first == read[:1]
    assert ledger.read(at.partition, first[0].position, 2, after_seq=first[0].seq) == read[1:]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("altered", [(5, ""), (4, "altered"), (3, "altered"), (2, "")]),
        ("lost", [(5, ""), (2, ""), (1, "")]),
    ],
)
def test_the_newest_are_held_out_or_passed_over(
    backend: Backend, damage: str, expected: list[tuple[int, str]]
) -> None:
    ledger, before = damaged(backend, damage, 2, 3)
    newest = ledger.newest(before[0].partition, before[5].position, len(expected))
    assert [(entry.seq, entry.fault) for entry in newest] == expected


@pytest.mark.parametrize("damage", ["altered", "lost"])
def test_damage_is_no_reason_to_take_a_graph_back(backend: Backend, damage: str) -> None:
    ledger, before = damaged(backend, damage, 3)
    assert ledger.missing_checkpoints([checkpoint_at(entry) for entry in before]) == []
    held_out = entries(ledger)[3]
    stands_there = Checkpoint("projection", held_out.partition, held_out.position, held_out.seq, "")
    assert ledger.missing_checkpoints([stands_there]) == []


def test_a_time_far_ahead_is_refused_and_one_not_so_far_is_not(backend: Backend) -> None:
    appended(backend.ledger_of_a_slow_clock(behind_ms=30_000).append(LINE[:1]))
    ahead = backend.ledger_of_a_slow_clock(behind_ms=3_600_000)
    with pytest.raises(ClockAhead):
        ahead.append(LINE[1:])
    assert sum(tail.seq for tail in ahead.tails()) == 1
    appended(backend.ledger().append(LINE[1:]))
    assert_gapless(ahead, 8)
