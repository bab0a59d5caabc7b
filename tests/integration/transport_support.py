"""What the transport's tests share: a ledger written by hand, toy workers, waiting with a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import redis

from projections.events import content_digest
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
LEASE_MS = 2_000


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """As `wait_until`; the server may be away meanwhile."""
    return wait_until(condition, what, timeout_s, passing=(redis.RedisError,))


class Cluster:
    """A server's ledger, the toy workers on it, and what they applied."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.redis: Any = redis.Redis.from_url(url)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.sent = dict.fromkeys(range(PARTITIONS), 0)

    def append(self, count: int, partitions: range = range(PARTITIONS)) -> None:
        """`count` entries to each of the partitions, in the ledger's form."""
        pipe = self.redis.pipeline(transaction=False)
        for partition in partitions:
            for seq in range(self.sent[partition] + 1, self.sent[partition] + count + 1):
                data = f"{partition}/{seq}".encode()
                fields = {"e": data, "s": seq, "d": content_digest(data)}
                pipe.xadd(f"{{rc:{partition}}}:ledger", fields)
            self.sent[partition] += count
            pipe.set(f"{{rc:{partition}}}:seq", self.sent[partition])
        pipe.execute()

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        """A worker process of its own; its log is `worker-<n>.log`."""
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = self._spawn(log, environment)
        self.workers.append(worker)
        return worker

    def _spawn(self, log: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "faust",
                "-A",
                "tests.integration.toy_stage",
                "worker",
                "--loglevel",
                "info",
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "RECOLLECT_REDIS_URL": self.url,
                "RECOLLECT_PARTITIONS": str(PARTITIONS),
                "RECOLLECT_LEASE_MS": str(LEASE_MS),
                "RECOLLECT_BATCH_SIZE": "100",
                "RECOLLECT_DATA_DIR": str(self.folder),
                **environment,
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def owners(self) -> dict[int, int]:
        """Which process holds which partition, from the leases."""
        found = {}
        for partition in range(PARTITIONS):
            name = self.redis.get(f"rc:lease:toy@blue:{partition}")
            if name is not None:
                found[partition] = int(name.decode().split("-")[-2])
        return found

    def shared_by(self, *workers: subprocess.Popen[bytes]) -> bool:
        """All partitions are held, evenly, by these workers and no other."""
        pids = list(self.owners().values())
        fair = {PARTITIONS // len(workers), -(-PARTITIONS // len(workers))}
        return len(pids) == PARTITIONS and all(pids.count(w.pid) in fair for w in workers)

    def applied(self, partition: int) -> list[str]:
        """Data of the entries applied, in the order of their effect."""
        lines = self.redis.lrange(f"toy:applied:{partition}", 0, -1)
        return [line.decode().split(" ")[1] for line in lines]

    def appliers(self) -> set[int]:
        """Processes that have applied anything."""
        found = set()
        for partition in range(PARTITIONS):
            for line in self.redis.lrange(f"toy:applied:{partition}", 0, -1):
                found.add(int(line.split(b" ")[0]))
        return found

    def done(self) -> bool:
        """As many entries were applied as were appended."""
        return all(
            self.redis.llen(f"toy:applied:{partition}") >= sent
            for partition, sent in self.sent.items()
        )

    def assert_exactly_once_in_order(self) -> None:
        for partition, sent in self.sent.items():
            expected = [f"{partition}/{seq}" for seq in range(1, sent + 1)]
            assert expected == self.applied(partition)

    def pending(self) -> int:
        return sum(
            int(self.redis.xpending(f"{{rc:{partition}}}:ledger", "toy@blue")["pending"])
            for partition in range(PARTITIONS)
        )

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log"))
        )

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
        self.redis.close()
