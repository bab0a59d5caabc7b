"""A ledger that lost its last entries never hands out a position that the graph has passed.

The ledger's part: the checkpoints of the graph are given by hand. In each case the lost entries
carry positions of an hour ahead, as if the server that was lost had had a fast clock (or its
successor a slow one): nothing but the checkpoints tells the successor about them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import redis

from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.local.servers import ValkeyServer
from projections.errors import GraphAhead
from projections.events import content_digest, event_partition
from projections.identity import Position
from projections.operations import Checkpoint
from tests.fakes.events import numbered_event
from tests.fakes.proxy import CuttingProxy
from tests.servers import kill_synced
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
PARTITIONS = 4
HOUR_MS = 3_600_000
Checkpoints = Mapping[str, Sequence[Checkpoint]]
StartValkey = Callable[..., ValkeyServer]


def ledger_at(server: ValkeyServer, checkpoints: Callable[[], Checkpoints] = dict) -> Ledger:
    client = redis.Redis(port=server.port)
    return Ledger(client, partitions=PARTITIONS, id_buckets=64, checkpoints=checkpoints)


def append(ledger: Ledger, start: int, count: int, batch: int) -> None:
    for first in range(start, start + count, batch):
        numbers = range(first, min(first + batch, start + count))
        outcomes = ledger.append([numbered_event(number) for number in numbers])
        assert all(isinstance(outcome, Appended) for outcome in outcomes)


def streams(ledger: Ledger) -> list[list[Entry]]:
    return [
        [entry for block in ledger.scan(partition) for entry in block]
        for partition in range(PARTITIONS)
    ]


def hasten_clock(server: ValkeyServer) -> None:
    client: Any = redis.Redis(port=server.port)
    client.set("rc:clock", f"{client.time()[0] * 1000 + HOUR_MS}-0")


def checkpoint_at(entry: Entry) -> Checkpoint:
    digest = content_digest(entry.data).hex()
    return Checkpoint("projection", entry.partition, entry.position, entry.seq, digest)


def some_checkpoints(before: list[list[Entry]], rng: random.Random) -> Checkpoints:
    """Of two graphs: one follows closely, the other is behind; either may be at the start."""
    blue = [checkpoint_at(stream[-1 - rng.randrange(2)]) for stream in before]
    green = [
        checkpoint_at(rng.choice(stream))
        if rng.random() < 0.8
        else Checkpoint("projection", partition)
        for partition, stream in enumerate(before)
    ]
    return {"blue": blue, "green": green}


def cut_entries(server: ValkeyServer, count: int, extra_bytes: int) -> None:
    """Cut an append-only file in front of its `count`-th last entry, `extra_bytes` further on.

    A script's writes are one transaction in the file; loading drops one that was cut in two.
    """
    (path,) = (server.data_dir / "appendonlydir").glob("*.incr.aof")
    data = path.read_bytes()
    offsets = [match.start() for match in re.finditer(rb"\*\d+\r\n\$4\r\nXADD\r\n", data)]
    path.write_bytes(data[: offsets[-count] + extra_bytes])


def assert_recovers_its_order(
    server: ValkeyServer, before: list[list[Entry]], held: Checkpoints
) -> int:
    """Append to a server that lost entries; returns how many it had lost."""
    ledger = ledger_at(server, lambda: held)
    after = streams(ledger)
    for partition, stream in enumerate(after):
        assert stream == before[partition][: len(stream)]  # a prefix: nothing from the middle
    lost = {entry for stream in before for entry in stream} - {
        entry for stream in after for entry in stream
    }
    ahead = {
        partition
        for partition in range(PARTITIONS)
        for checkpoints in held.values()
        if checkpoints[partition].position in {entry.position for entry in lost}
    }
    positions = [one.position for checkpoints in held.values() for one in checkpoints]

    events = [numbered_event(number) for number in range(100_000, 100_200)]
    outcomes = ledger.append(events)
    for event, outcome in zip(events, outcomes, strict=True):
        partition = event_partition(event, PARTITIONS)
        if partition in ahead:
            assert isinstance(outcome, GraphAhead)
            assert outcome.partition == partition
        else:
            assert isinstance(outcome, Appended)
            assert outcome.position > max(positions)
    assert set(ledger.halted()) == ahead
    missing = [one for found in held.values() for one in ledger.missing_checkpoints(found)]
    assert {checkpoint.partition for checkpoint in missing} == ahead

    for partition in ahead:
        ledger.release(partition)
    places = [place for place in ledger.append(events) if isinstance(place, Appended)]
    assert len(places) == len(events)
    assert min(place.position for place in places) > max(positions)
    for stream in streams(ledger):
        assert [entry.seq for entry in stream] == list(range(1, len(stream) + 1))
        assert [entry.position for entry in stream] == sorted(entry.position for entry in stream)
    return len(lost)


@pytest.mark.parametrize(
    ("count", "batch", "extra_bytes", "seed"),
    [(1, 1, 0, 1), (7, 1, 30, 2), (40, 25, 11, 3), (300, 1, 0, 4), (1_000, 100, 500, 5)],
)
def test_entries_cut_off_the_append_only_file(
    start_valkey: StartValkey, count: int, batch: int, extra_bytes: int, seed: int
) -> None:
    server = start_valkey()
    ledger = ledger_at(server)
    append(ledger, 0, 200, batch=50)
    hasten_clock(server)
    append(ledger, 200, count, batch)
    before = streams(ledger)
    held = some_checkpoints(before, random.Random(seed))
    kill_synced(server)
    cut_entries(server, count, extra_bytes)
    server.start()
    server.wait_ready()
    lost = assert_recovers_its_order(server, before, held)
    assert lost >= count


def test_a_lagging_replica_with_a_slow_clock_is_promoted(start_valkey: StartValkey) -> None:
    primary = start_valkey()
    ledger = ledger_at(primary)
    with CuttingProxy(primary.port) as link:
        replica = start_valkey(replicaof=("127.0.0.1", link.port))
        append(ledger, 0, 200, batch=50)
        wait_until(lambda: streams_of(replica) == streams(ledger), "the replica has all")
    # The link is down: what follows is acknowledged and never reaches the replica.
    hasten_clock(primary)
    append(ledger, 200, 90, batch=10)
    before = streams(ledger)
    held = some_checkpoints(before, random.Random(6))
    primary.kill()
    redis.Redis(port=replica.port).replicaof("NO", "ONE")
    assert assert_recovers_its_order(replica, before, held) == 90


def test_an_empty_server_beside_a_full_graph_accepts_nothing(start_valkey: StartValkey) -> None:
    full = start_valkey()
    ledger = ledger_at(full)
    append(ledger, 0, 100, batch=50)
    held = {"blue": [checkpoint_at(stream[-1]) for stream in streams(ledger)]}
    empty = ledger_at(start_valkey(), lambda: held)
    outcomes = empty.append([numbered_event(number) for number in range(20)])
    assert all(isinstance(outcome, GraphAhead) for outcome in outcomes)
    assert set(empty.halted()) == set(range(PARTITIONS))


def test_nothing_is_halted_when_nothing_was_lost(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger = ledger_at(server)
    append(ledger, 0, 200, batch=50)
    before = streams(ledger)
    held = some_checkpoints(before, random.Random(7))
    kill_synced(server)
    server.start()
    server.wait_ready()
    assert assert_recovers_its_order(server, before, held) == 0


def streams_of(server: ValkeyServer) -> list[list[Entry]]:
    """What a replica holds, read without a ledger: it may not be written to."""
    client: Any = redis.Redis(port=server.port)
    return [
        [
            Entry(partition, Position.parse(entry_id), int(fields[b"s"]), fields[b"e"])
            for entry_id, fields in client.xrange(f"{{rc:{partition}}}:ledger")
        ]
        for partition in range(PARTITIONS)
    ]
