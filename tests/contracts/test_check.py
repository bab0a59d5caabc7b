"""`check` on a real server: each damage is told as what it is, and mended where that can be."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipelines.ledger.check import TOLD, CheckReport, Finding, check
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.damage import Place
from pipelines.ledger.ledger import Appended, Ledger, LedgerKeys
from pipelines.local.python_process import python_command, python_environment
from pipelines.work.settings import Settings
from projections.identity import Position, event_key_digest
from tests.damage import flipped, write_stream_anew
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration
PARTITIONS = 4
BUCKETS = 64
EVENTS = [numbered_event(number) for number in range(200)]
KEYS = LedgerKeys()
Damaging = Callable[["World"], None]


class World:
    """A ledger with all events in it, and the places they have."""

    def __init__(self, url: str) -> None:
        self.client: Any = connect_redis(Settings(redis_url=url))
        self.ledger = Ledger(
            self.client, partitions=PARTITIONS, id_buckets=BUCKETS, checkpoints=dict
        )
        outcomes = self.ledger.append(EVENTS)
        self.places = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        assert len(self.places) == len(EVENTS)

    def row(self, number: int) -> tuple[str, bytes]:
        """Bucket and field of an event in the id index."""
        event = EVENTS[number]
        key = event_key_digest(event.tenant, event.event_id)
        return KEYS.ids(int.from_bytes(key[:4], "big") % BUCKETS), key

    def content(self) -> dict[bytes, Any]:
        """Every key of the server with what it holds."""
        readers = {
            b"string": self.client.get,
            b"hash": self.client.hgetall,
            b"stream": self.client.xrange,
        }
        return {key: readers[self.client.type(key)](key) for key in self.client.keys("*")}

    def check(self, *, repair: bool = False) -> CheckReport:
        return check(self.ledger, repair=repair)

    def last(self, partition: int) -> int:
        """The number of the event that is last in a partition."""
        return max(n for n, place in enumerate(self.places) if place.partition == partition)


@pytest.fixture
def world(redis_url: str) -> Iterator[World]:
    made = World(redis_url)
    yield made
    made.client.close()


def drop_row(world: World) -> None:
    world.client.hdel(*world.row(7))


def flip_row(world: World) -> None:
    value = world.client.hget(*world.row(7))
    world.client.hset(*world.row(7), flipped(value))


def cut_row(world: World) -> None:
    world.client.hset(*world.row(7), b"short")


def lead_elsewhere(world: World) -> None:
    world.client.hset(*world.row(7), world.client.hget(*world.row(8)))


def lower_counter(world: World) -> None:
    world.client.decrby(KEYS.seq(world.places[7].partition), 3)


def raise_counter(world: World) -> None:
    world.client.incrby(KEYS.seq(world.places[7].partition), 3)


def drop_counter(world: World) -> None:
    world.client.delete(KEYS.seq(world.places[7].partition))


def lower_clock(world: World) -> None:
    world.client.set(KEYS.clock, "5-0")


def drop_clock(world: World) -> None:
    world.client.delete(KEYS.clock)


def ghost_row(world: World) -> None:
    key = event_key_digest("default", "nobody")
    bucket = KEYS.ids(int.from_bytes(key[:4], "big") % BUCKETS)
    world.client.hset(bucket, key, world.client.hget(*world.row(7)))


def note_a_fault(world: World) -> None:
    place = world.places[7]
    entry = world.ledger.entry_at(place.partition, place.position)
    assert entry is not None
    world.client.hset(KEYS.faults, f"{place.partition}:{entry.seq}", "{}")


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (drop_row, "index missing"),
        (flip_row, "index wrong"),
        (cut_row, "index wrong"),
        (lead_elsewhere, "index wrong"),
        (ghost_row, "index stale"),
        (lower_counter, "counter behind"),
        (drop_counter, "counter behind"),
        (raise_counter, "counter ahead"),
        (lower_clock, "clock behind"),
        (drop_clock, "clock behind"),
        (note_a_fault, "fault over"),
    ],
)
def test_what_follows_from_what_is_whole_is_mended(
    world: World, damage: Damaging, kind: str
) -> None:
    before = world.content()
    assert world.check().as_dict()["found"] == {}
    damage(world)
    told = world.check()
    assert (told.ok, told.found) == (False, Counter({kind: 1}))
    mended = world.check(repair=True)
    assert (mended.ok, mended.found, mended.mended) == (True, told.found, told.found)
    assert world.check().as_dict()["found"] == {}
    assert world.content() == before


def test_a_number_that_would_be_given_twice_is_not(world: World) -> None:
    """What a counter that went back costs without the repair: numbers that stand twice."""
    lower_counter(world)
    world.check(repair=True)
    assert not [one for one in world.ledger.append([numbered_event(900)]) if not one]
    assert world.check().ok


def remove_entry(world: World) -> None:
    place = world.places[7]
    assert world.client.xdel(KEYS.stream(place.partition), str(place.position)) == 1


def flip_entry(world: World) -> None:
    place = world.places[7]
    change = {place.position: lambda fields: {**fields, b"e": flipped(fields[b"e"])}}
    write_stream_anew(world.client, place.partition, change)


def remove_the_last(world: World) -> None:
    place = world.places[world.last(0)]
    assert world.client.xdel(KEYS.stream(0), str(place.position)) == 1


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (remove_entry, {"lost": 1, "entry gone": 1}),
        (flip_entry, {"altered": 1}),
        (remove_the_last, {"numbers lost": 1}),
    ],
)
def test_what_an_entry_said_is_put_right_by_its_event_alone(
    world: World, damage: Damaging, kinds: dict[str, int]
) -> None:
    damage(world)
    told = world.check(repair=True)
    assert (told.ok, dict(told.found), told.mended.total()) == (False, kinds, 0)
    assert all(finding.partition is not None for finding in told.told)
    world.ledger.append(EVENTS)
    assert world.check().as_dict()["found"] == {}


def test_a_stream_that_was_renamed_is_named(world: World) -> None:
    world.client.rename(KEYS.stream(0), "backup-of-monday")
    told = world.check(repair=True)
    count = sum(place.partition == 0 for place in world.places)
    [stray] = [finding for finding in told.told if finding.kind == "stray stream"]
    assert f"{count} entries in backup-of-monday" in stray.detail
    assert told.found["numbers lost"] == 1, "its numbers must not be given out again"
    world.client.rename("backup-of-monday", KEYS.stream(0))
    assert world.check().as_dict()["found"] == {}


def test_a_stream_in_the_place_of_another_is_told(world: World) -> None:
    for source, goal in ((0, "spare"), (1, KEYS.stream(0)), ("spare", KEYS.stream(1))):
        name = source if isinstance(source, str) else KEYS.stream(source)
        world.client.rename(name, goal)
    told = world.check()
    assert told.found["misplaced"] == sum(place.partition < 2 for place in world.places)
    assert len(told.told) == TOLD < told.found.total()


def test_an_entry_by_another_hand_is_told_and_what_is_behind_it_compared(world: World) -> None:
    world.client.xadd(
        KEYS.stream(0), {"hello": "world"}, id=f"{world.places[-1].position.ms + 1}-1"
    )
    clock = Position(world.places[-1].position.ms + 2, 0)
    world.client.set(KEYS.clock, str(clock))
    world.ledger.append([numbered_event(number) for number in range(900, 940)])
    told = world.check()
    assert told.entries == len(EVENTS) + 40
    assert dict(told.found) == {"foreign": 1}


def test_an_event_that_stands_twice_is_told(world: World) -> None:
    drop_row(world)
    world.ledger.append(EVENTS[7:8])
    told = world.check(repair=True)
    assert dict(told.found) == {"doubled": 1}
    assert told.told[0].position == str(world.places[7].position)


def test_a_clock_far_ahead_is_told(world: World) -> None:
    world.client.set(KEYS.clock, f"{world.ledger.now_ms() + 3_600_000}-0")
    told = world.check(repair=True)
    assert dict(told.found) == {"clock ahead": 1}


def test_rows_of_older_ledgers_agree(world: World) -> None:
    for number in range(len(EVENTS)):
        place = Place.unpacked(world.client.hget(*world.row(number)))
        world.client.hset(*world.row(number), place._replace(seq=None).packed())
    assert world.check().as_dict()["found"] == {}


def test_events_may_come_in_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = world.ledger.scan
    sent = iter(range(1_000, 2_000))

    def scan_and_append(*arguments: Any) -> Any:
        for entries in scan(*arguments):
            world.ledger.append([numbered_event(next(sent)) for _ in range(20)])
            yield entries

    monkeypatch.setattr(world.ledger, "scan", scan_and_append)
    assert world.check(repair=True).as_dict()["found"] == {}


def test_the_command_tells_it_and_mends(world: World, redis_url: str) -> None:
    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            python_command("pipelines.cli.main", "check", "--json", *arguments),
            env=python_environment(
                {
                    "RECOLLECT_REDIS_URL": redis_url,
                    "RECOLLECT_PARTITIONS": str(PARTITIONS),
                    "RECOLLECT_ID_BUCKETS": str(BUCKETS),
                }
            ),
            capture_output=True,
            timeout=120,
            check=False,
        )
        return done.returncode, json.loads(done.stdout)

    drop_row(world)
    code, told = run()
    place = world.places[7]
    assert (code, told["ok"], told["entries"]) == (1, False, len(EVENTS))
    assert Finding(**told["findings"][0])[:5] == (
        "index missing",
        "the id index does not lead to it",
        False,
        place.partition,
        str(place.position),
    )
    assert run("--repair")[0] == 0
    assert run()[0] == 0
