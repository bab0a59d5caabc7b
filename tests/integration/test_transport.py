"""Faust over Redis Streams on a real Valkey, with workers as processes of their own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.local.servers import ValkeyServer
from projections.events import content_digest
from tests.integration.transport_support import LEASE_MS, PARTITIONS, Cluster, wait_for
from tests.servers import kill_synced

pytestmark = pytest.mark.integration

PATIENCE_S = 180.0


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "valkey")
    server.start()
    server.wait_ready()
    yield server
    server.stop()


@pytest.fixture
def cluster(
    valkey: ValkeyServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    cluster = Cluster(valkey.url, tmp_path)
    try:
        yield cluster
    finally:
        cluster.stop()
        print(cluster.logs())  # noqa: T201  pytest shows it when the test fails


def wait_done(cluster: Cluster, timeout_s: float = PATIENCE_S) -> None:
    wait_for(cluster.done, timeout_s, "all entries applied")
    cluster.assert_exactly_once_in_order()


def test_entries_of_a_partition_are_applied_once_in_order_and_acknowledged(
    cluster: Cluster,
) -> None:
    cluster.append(350)
    worker = cluster.start()
    wait_done(cluster)
    cluster.append(7)
    wait_done(cluster)
    wait_for(lambda: cluster.pending() == 0, PATIENCE_S, "acknowledged")
    assert worker.poll() is None
    assert (cluster.redis.get("toy:fenced") or b"0") == b"0"
    for partition in range(PARTITIONS):
        (group,) = cluster.redis.xinfo_groups(f"{{rc:{partition}}}:ledger")
        assert {"name": b"toy@blue", "entries-read": 357, "lag": 0}.items() <= group.items()


def test_sigterm_finishes_what_is_in_hand_and_exits_0(cluster: Cluster) -> None:
    cluster.append(2_000)
    first = cluster.start(TOY_DELAY_MS="100")
    wait_for(cluster.appliers, PATIENCE_S, "the first block applied")
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=120) == 0
    assert cluster.owners() == {}
    assert cluster.redis.zrange("rc:members:toy@blue", 0, -1) == []
    assert not cluster.done(), "stopped too late for the test to mean something"
    cluster.start()
    wait_done(cluster)
    assert (cluster.redis.get("toy:fenced") or b"0") == b"0"


def test_workers_share_partitions_within_seconds(cluster: Cluster) -> None:
    first = cluster.start()
    wait_for(lambda: cluster.shared_by(first), PATIENCE_S, "the first worker holds all")
    second = cluster.start()
    wait_for(lambda: second.pid in cluster.owners().values(), PATIENCE_S, "the second worker is up")
    wait_for(lambda: cluster.shared_by(first, second), PATIENCE_S, "two workers share")
    third = cluster.start()
    wait_for(lambda: third.pid in cluster.owners().values(), PATIENCE_S, "the third worker is up")
    wait_for(lambda: cluster.shared_by(first, second, third), PATIENCE_S, "three workers share")
    cluster.append(200)
    wait_done(cluster)
    assert {first.pid, second.pid, third.pid} == cluster.appliers()
    assert not cluster.redis.exists("toy:fenced"), "nobody worked on another's partition"


def test_shares_change_hands_under_load_without_a_conflict(cluster: Cluster) -> None:
    first = cluster.start(TOY_DELAY_MS="50")
    wait_for(lambda: cluster.shared_by(first), PATIENCE_S, "the first worker holds all")
    second = cluster.start(TOY_DELAY_MS="50")

    def takes_part() -> bool:
        if cluster.done():
            cluster.append(1_000)  # there is always work while the partitions change hands
        return second.pid in cluster.appliers()

    wait_for(takes_part, PATIENCE_S, "the second worker takes part")
    cluster.append(500)
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=120) == 0
    wait_done(cluster)
    assert not cluster.redis.exists("toy:fenced"), "a partition was given away too early"


def test_a_killed_worker_is_replaced_within_its_lease(cluster: Cluster) -> None:
    first, second = cluster.start(), cluster.start()
    wait_for(lambda: cluster.shared_by(first, second), PATIENCE_S, "two workers share")
    cluster.append(500)
    wait_for(cluster.appliers, PATIENCE_S, "work has begun")
    first.kill()
    killed_at = time.monotonic()
    wait_for(lambda: cluster.shared_by(second), PATIENCE_S, "the other takes over")
    assert time.monotonic() - killed_at < LEASE_MS / 1000 + 1
    cluster.append(500)
    wait_done(cluster)
    wait_for(
        lambda: cluster.pending() == 0, PATIENCE_S, "what the dead one left pending is cleared"
    )
    stream = "{rc:0}:ledger"
    names = [row["name"].decode() for row in cluster.redis.xinfo_consumers(stream, "toy@blue")]
    assert [str(second.pid)] == [name.split("-")[-2] for name in names]


def test_a_worker_stopped_past_its_lease_neither_doubles_nor_hides_entries(
    cluster: Cluster,
) -> None:
    first = cluster.start(TOY_DELAY_MS="150")
    second = cluster.start(TOY_DELAY_MS="150")
    wait_for(lambda: cluster.shared_by(first, second), PATIENCE_S, "two workers share")
    cluster.append(1_000)
    wait_for(
        lambda: int(cluster.redis.hget("toy:in_hand", str(first.pid)) or 0) > 1,
        PATIENCE_S,
        "in hand",
    )
    first.send_signal(signal.SIGSTOP)
    wait_for(lambda: cluster.shared_by(second), PATIENCE_S, "the other takes over")
    wait_for(
        lambda: all(cluster.redis.llen(f"toy:applied:{n}") > 300 for n in range(PARTITIONS)),
        PATIENCE_S,
        "the other goes on",
    )
    first.send_signal(signal.SIGCONT)
    cluster.append(500)
    wait_done(cluster)
    wait_for(lambda: cluster.shared_by(first, second), PATIENCE_S, "the first is back")
    cluster.append(100)
    wait_done(cluster)


def test_entries_stolen_by_a_late_reader_are_found_without_further_entries(
    cluster: Cluster,
) -> None:
    worker = cluster.start()
    wait_for(lambda: cluster.shared_by(worker), PATIENCE_S, "the worker holds all")
    cluster.append(10)
    wait_done(cluster)
    worker.send_signal(signal.SIGSTOP)
    time.sleep(0.6)  # its read that waits in the server ends by itself
    cluster.append(10)
    for partition in range(PARTITIONS):
        stream = f"{{rc:{partition}}}:ledger"
        assert cluster.redis.xreadgroup("toy@blue", "a-1-late", {stream: ">"}, count=10)
    worker.send_signal(signal.SIGCONT)
    wait_done(cluster, 15)


def test_a_cut_connection_is_made_again(cluster: Cluster) -> None:
    worker = cluster.start(TOY_DELAY_MS="10")
    wait_for(lambda: cluster.shared_by(worker), PATIENCE_S, "the worker holds all")
    for _ in range(5):
        cluster.append(200)
        cluster.redis.client_kill_filter(_type="normal", skipme=True)
        wait_done(cluster)
    assert worker.poll() is None


def test_a_server_restart_is_survived(cluster: Cluster, valkey: ValkeyServer) -> None:
    worker = cluster.start(TOY_DELAY_MS="10")
    wait_for(lambda: cluster.shared_by(worker), PATIENCE_S, "the worker holds all")
    cluster.append(1_000)
    wait_for(cluster.appliers, PATIENCE_S, "work has begun")
    kill_synced(valkey)
    time.sleep(1.5)  # long enough for several failed attempts
    valkey.start()
    valkey.wait_ready()
    wait_for(cluster.redis.ping, PATIENCE_S, "the server is back")
    cluster.append(100)
    wait_done(cluster)
    assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=120) == 0


def test_a_lost_group_or_stream_is_made_again(cluster: Cluster) -> None:
    worker = cluster.start()
    wait_for(lambda: cluster.shared_by(worker), PATIENCE_S, "the worker holds all")
    cluster.append(10)
    wait_done(cluster)
    cluster.redis.xgroup_destroy("{rc:0}:ledger", "toy@blue")
    cluster.append(10)
    wait_done(cluster)
    assert worker.poll() is None


def test_a_gap_in_the_ledger_stops_its_partition_only(cluster: Cluster) -> None:
    worker = cluster.start()
    cluster.append(10)
    wait_done(cluster)
    beyond = {"e": b"0/12", "s": 12, "d": content_digest(b"0/12")}
    last = cluster.redis.xadd("{rc:0}:ledger", beyond)
    cluster.append(10, range(1, PARTITIONS))
    wait_done(cluster)
    wait_for(
        lambda: "does not continue seq 10" in cluster.logs(), PATIENCE_S, "the gap is reported"
    )
    assert worker.poll() is None
    cluster.redis.xdel("{rc:0}:ledger", last)
    cluster.append(10, range(1))
    wait_done(cluster)


def test_reading_stops_when_the_handler_is_slow(cluster: Cluster) -> None:
    cluster.append(5_000, range(1))
    cluster.start(TOY_DELAY_MS="400")
    wait_for(cluster.pending, PATIENCE_S, "reading has begun")
    deadline = time.monotonic() + 4
    most = 0
    while time.monotonic() < deadline:
        most = max(most, cluster.pending())
    # Two blocks in flight, and one settled whose acknowledgement waits for the next commit.
    assert 200 <= most <= 400


def test_a_handler_that_blocks_its_thread_keeps_the_lease(cluster: Cluster) -> None:
    worker = cluster.start(TOY_DELAY_MS=str(3 * LEASE_MS))
    wait_for(lambda: cluster.shared_by(worker), PATIENCE_S, "the worker holds all")
    cluster.append(1)
    began = time.monotonic()
    while not cluster.done():
        assert cluster.shared_by(worker), f"lost after {time.monotonic() - began:.1f} s"
        assert time.monotonic() - began < 30
        time.sleep(0.1)
    cluster.assert_exactly_once_in_order()
    assert not cluster.redis.exists("toy:fenced")
