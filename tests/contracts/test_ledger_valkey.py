"""What only a real server can do to a ledger: restart, fill up, cut, change its role."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Appended, Ledger, LedgerKeys
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, LedgerError, LedgerUnavailable, UndecodableEntry
from projections.events import content_digest, encode_event
from projections.identity import event_key_digest
from tests.fakes.events import numbered_event
from tests.fakes.proxy import CuttingProxy
from tests.servers import kill_synced
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
PARTITIONS = 4
EVENTS = [numbered_event(number) for number in range(600)]
StartValkey = Callable[..., ValkeyServer]


def connect(port: int, **settings: Any) -> Any:
    return connect_redis(Settings(redis_url=f"redis://127.0.0.1:{port}/0", **settings))


def ledger_at(port: int, *, patience_s: float = 60.0, **settings: Any) -> Ledger:
    return Ledger(
        connect(port, **settings),
        partitions=PARTITIONS,
        id_buckets=64,
        checkpoints=dict,
        patience_s=patience_s,
    )


def assert_holds_all(ledger: Ledger, count: int) -> None:
    data = set()
    for partition in range(PARTITIONS):
        found = [entry for block in ledger.scan(partition) for entry in block]
        assert [entry.seq for entry in found] == list(range(1, len(found) + 1))
        data |= {entry.data for entry in found}
    assert sum(tail.seq for tail in ledger.tails()) == count
    assert len(data) == count


def append_in_a_process(port: int, start: int, count: int) -> int:
    """New events that this process brought in, of numbers that others append too."""
    ledger = ledger_at(port)
    new = 0
    for first in range(start, start + count, 20):
        outcomes = ledger.append([numbered_event(number) for number in range(first, first + 20)])
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
        new += sum(isinstance(one, Appended) and not one.duplicate for one in outcomes)
    return new


def test_processes_that_append_overlapping_events(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        jobs = [(valkey.port, start, 400) for start in (0, 200, 400)]
        new = pool.starmap_async(append_in_a_process, jobs).get(60)
    assert sum(new) == 800
    assert_holds_all(ledger, 800)


def test_the_server_restarts_between_appends(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port)
    ledger.append(EVENTS[:100])
    kill_synced(server)
    server.start()
    outcomes = ledger.append(EVENTS[:200])
    assert [outcome.duplicate for outcome in outcomes if isinstance(outcome, Appended)] == (
        [True] * 100 + [False] * 100
    )
    assert_holds_all(ledger, 200)


def test_a_server_that_stays_away_is_unavailable_within_the_patience(
    start_valkey: StartValkey,
) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port, patience_s=0.5)
    ledger.append(EVENTS[:10])
    kill_synced(server)
    before = time.monotonic()
    with pytest.raises(LedgerUnavailable):
        ledger.append(EVENTS[10:20])
    with pytest.raises(LedgerUnavailable):
        ledger.tails()
    assert time.monotonic() - before < 5
    server.start()
    server.wait_ready()
    ledger.append(EVENTS[10:20])
    assert_holds_all(ledger, 20)


# A connection's first bytes are its handshake (about 200 each way).
@pytest.mark.parametrize("after_bytes", [600, 30_000, 90_000, 140_000])
def test_a_request_cut_in_the_middle_is_sent_again(
    redis_url: str, valkey: ValkeyServer, after_bytes: int
) -> None:
    ledger_at(valkey.port).append([])
    with CuttingProxy(valkey.port, cut_request_after=(after_bytes,)) as proxy:
        ledger = ledger_at(proxy.port)
        outcomes = ledger.append(EVENTS)
        assert proxy.cuts == 1
    assert all(isinstance(outcome, Appended) for outcome in outcomes)
    assert_holds_all(ledger_at(valkey.port), 600)


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_reply_gives_the_first_positions_back(
    redis_url: str, valkey: ValkeyServer, times: int
) -> None:
    direct = ledger_at(valkey.port)
    with CuttingProxy(valkey.port, lose_replies_to=b"EVALSHA", times=times) as proxy:
        outcomes = ledger_at(proxy.port).append(EVENTS)
        assert proxy.cuts == times
    places = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    assert len(places) == 600
    assert places[0].duplicate  # executed, reply lost, sent again
    assert not places[-1].duplicate
    again = direct.append(EVENTS)
    assert again == [place._replace(duplicate=True) for place in places]
    assert [place.position for place in places] == sorted(place.position for place in places)
    assert_holds_all(direct, 600)


def test_scripts_that_were_flushed_are_loaded_again(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    ledger.append(EVENTS[:10])
    connect(valkey.port).script_flush()
    ledger.append(EVENTS[10:20])
    assert_holds_all(ledger, 20)
    assert connect(valkey.port).hget("rc:epoch", "number") == b"1"


def test_the_script_is_loaded_by_admission_alone(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    ledger.append(EVENTS[:10])
    client = connect(valkey.port)
    client.config_resetstat()
    for event in EVENTS[10:20]:
        ledger.append([event])
    calls = client.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] == 10
    assert not {"cmdstat_eval", "cmdstat_script|load"} & set(calls)


def test_a_server_that_was_replica_for_a_while_is_admitted_anew(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port)
    ledger.append(EVENTS[:10])
    client = connect(server.port)
    # Same process, same scripts: only its replication id tells that it followed another server.
    client.replicaof("127.0.0.1", 1)
    client.replicaof("NO", "ONE")
    ledger.append(EVENTS[10:20])
    assert client.hget("rc:epoch", "number") == b"2"
    assert_holds_all(ledger, 20)


def test_a_replica_is_not_appended_to(start_valkey: StartValkey) -> None:
    primary = start_valkey()
    replica = start_valkey(replicaof=("127.0.0.1", primary.port))
    with pytest.raises(LedgerError):
        ledger_at(replica.port, patience_s=0.3).append(EVENTS[:10])
    assert_holds_all(ledger_at(primary.port), 0)


def test_a_full_server_says_so_and_loses_nothing(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port)
    ledger.append(EVENTS[:10])
    client = connect(server.port)
    client.config_set("maxmemory", "1mb")
    with pytest.raises(LedgerUnavailable, match="maxmemory"):
        ledger.append(EVENTS[:20])
    used, limit = ledger.memory()
    assert used > limit == 1024 * 1024
    client.config_set("maxmemory", "0")
    ledger.append(EVENTS[:20])
    assert_holds_all(ledger, 20)


def test_a_full_server_is_opened_and_read_by_a_new_process(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger_at(server.port).append(EVENTS[:10])
    client = connect(server.port)
    client.delete("rc:epoch")  # as if it had been started anew
    client.config_set("maxmemory", "1mb")
    ledger = ledger_at(server.port)
    assert_holds_all(ledger, 10)
    ledger.admit()
    assert ledger.epoch() == 1


def test_a_server_that_evicts_is_refused(start_valkey: StartValkey) -> None:
    server = start_valkey(extra_args=["--maxmemory-policy", "allkeys-lru"])
    with pytest.raises(ConfigurationError, match="noeviction"):
        ledger_at(server.port)


def test_a_failure_inside_a_batch_leaves_no_gap(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    ledger.append(EVENTS[:20])
    client = connect(valkey.port)
    # The bucket of an event in the middle is spoiled: those before it are in, none behind it.
    spoiled = event_key_digest("default", EVENTS[30].event_id)
    bucket = int.from_bytes(spoiled[:4], "big") % 64
    held = client.hgetall(f"rc:ids:{bucket}")
    client.delete(f"rc:ids:{bucket}")
    client.set(f"rc:ids:{bucket}", "no hash")
    with pytest.raises(LedgerError, match="WRONGTYPE"):
        ledger.append(EVENTS[20:40])
    client.delete(f"rc:ids:{bucket}")
    if held:
        client.hset(f"rc:ids:{bucket}", mapping=held)
    ledger.append(EVENTS[20:40])
    assert_holds_all(ledger, 40)


def test_a_foreign_entry_is_an_error(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    connect(valkey.port).xadd(LedgerKeys().stream(0), {"other": "x"})
    with pytest.raises(UndecodableEntry):
        ledger.read(0, ledger.tails()[1].position, 10)


def test_the_id_index_stays_packed(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    ledger.append(EVENTS)
    client = connect(valkey.port)
    assert {client.object("encoding", key) for key in client.keys("rc:ids:*")} == {b"listpack"}
    assert client.hlen("rc:ids:1") > 0


def test_the_stream_holds_the_canonical_form(redis_url: str, valkey: ValkeyServer) -> None:
    ledger = ledger_at(valkey.port)
    (place,) = ledger.append(EVENTS[:1])
    assert isinstance(place, Appended)
    raw = redis.Redis.from_url(redis_url).xrange(LedgerKeys().stream(place.partition))
    data = encode_event(EVENTS[0])
    expected = {b"e": data, b"s": b"1", b"d": content_digest(data)}
    assert raw == [(str(place.position).encode(), expected)]


def test_a_bit_that_flips_on_the_disk_is_never_served(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port)
    ledger.append(EVENTS[:100])
    server.stop()
    flipped = 0
    for path in (server.data_dir / "appendonlydir").glob("*.aof"):
        data = path.read_bytes()
        flipped += data.count(b'"message 42"')
        path.write_bytes(data.replace(b'"message 42"', b'"message 43"'))
    assert flipped == 1
    server.start()
    server.wait_ready()
    ledger = ledger_at(server.port)

    faults = [e.fault for p in range(PARTITIONS) for block in ledger.scan(p) for e in block]

    assert (faults.count("altered"), faults.count("")) == (1, 99)
    entry = ledger.find("default", EVENTS[42].event_id)
    assert entry is not None
    assert entry.fault == "altered"
    ledger.append(EVENTS[:100])
    assert_holds_all(ledger, 100)
    kill_synced(server)
    server.start()
    server.wait_ready()
    assert_holds_all(ledger_at(server.port), 100)


@pytest.mark.parametrize(
    ("name", "risky", "safe"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "yes")],
)
def test_a_setting_that_loses_events_is_noticed_while_running(
    start_valkey: StartValkey, name: str, risky: str, safe: str
) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port)
    assert ledger.risk() == ""
    connect(server.port).config_set(name, risky)
    assert f"set {safe}" in ledger.risk() or f"set {name} {safe}" in ledger.risk()
    connect(server.port).config_set(name, safe)
    assert ledger.risk() == ""


def test_a_server_that_reads_its_file_is_no_risk(start_valkey: StartValkey) -> None:
    """It answers now and then while it does, and then says that it keeps no file."""
    server = start_valkey(extra_args=["--key-load-delay", "300"])
    client = connect(server.port)
    ledger = Ledger(client, partitions=PARTITIONS, id_buckets=64, checkpoints=dict)
    for first in range(0, 6_000, 500):
        ledger.append([numbered_event(number) for number in range(first, first + 500)])
    server.kill()
    server.start()
    seen: list[tuple[int, int, str]] = []

    def has_read() -> bool:
        try:
            state = client.info("persistence")
            seen.append((state["loading"], state["aof_enabled"], ledger.risk()))
        except (LedgerUnavailable, redis.ConnectionError):
            return False
        return not state["loading"]

    wait_until(has_read, "it has read its file")
    assert (1, 0) in {(loading, keeps) for loading, keeps, _ in seen}, "it was asked too late"
    assert {risk for _, _, risk in seen} == {""}


def test_a_stream_that_is_trimmed_is_counted_and_put_right(start_valkey: StartValkey) -> None:
    server = start_valkey()
    ledger = ledger_at(server.port)
    ledger.append(EVENTS[:60])
    for partition in range(PARTITIONS):
        connect(server.port).xtrim(LedgerKeys().stream(partition), maxlen=3, approximate=False)
    assert ledger.held_out().lost == 60 - 3 * PARTITIONS
    ledger.append(EVENTS[:60])
    assert ledger.held_out().lost == 0
    assert_holds_all(ledger, 60)
