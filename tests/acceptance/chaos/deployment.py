"""Valkey, Neo4j and workers as child processes that a test may kill one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from pipelines.ledger.ledger import Ledger, LedgerKeys
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION, group_name
from projections.errors import RecollectError
from projections.operations import Checkpoint

TARGET = "blue"
GROUP = group_name(PROJECTION.name, TARGET)
LEASE_MS = 1_500
_COMMAND = [sys.executable, "-m", "pipelines.cli.main"]


class Worker:
    """A `recollect worker projection`; it ends with whoever holds its standard input."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.number = number
        self.process = process
        self.log = log
        self.seen_reading = False
        self.stopped = False

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def __str__(self) -> str:
        return f"worker {self.number}"

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait_end(self, timeout_s: float = 60.0) -> int:
        """Wait for its end; its exit code. One that does not end is killed."""
        try:
            return self.process.wait(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Deployment:
    """Services on one folder, and as many workers as are started.

    Args:
        folder: of data and logs.
        valkey: a server that runs already, else one of its own is started.
        neo4j: likewise.
        options: settings, for the workers too.
    """

    def __init__(
        self,
        folder: Path,
        *,
        valkey: ValkeyServer | None = None,
        neo4j: Neo4jServer | None = None,
        **options: Any,
    ) -> None:
        self.folder = folder
        self._own: list[ValkeyServer | Neo4jServer] = []
        self.valkey = valkey or self._started(ValkeyServer(folder / "valkey"))
        self.neo4j = neo4j or self._started(Neo4jServer(folder / "neo4j"))
        for server in self._own:
            server.wait_ready()
        kept = f"sqlite://{folder.absolute()}/derivations.sqlite"
        self._options = {
            "lease_ms": LEASE_MS,
            "batch_size": 64,
            "derivations_url": kept,
            **options,
        }
        self.settings = Settings(
            redis_url=self.valkey.url,
            neo4j_url=self.neo4j.url,
            data_dir=folder / "data",
            redis_timeout_s=5.0,
            **self._options,
        )
        self.services = Services(self.settings)
        self.keys = LedgerKeys(self.settings.prefix)
        self.workers: list[Worker] = []
        self.started = 0

    def _started(self, server: Any) -> Any:
        server.start()
        self._own.append(server)
        return server

    def close(self) -> None:
        """Kill what was started; what it wrote stays until the folder goes."""
        for worker in self.workers:
            worker.kill()
        self.services.close()
        for server in self._own:
            server.kill()

    def ledger(self, services: Services, patience_s: float = 1.0) -> Ledger:
        """A ledger of its own, which gives up soon."""
        return Ledger(
            services.redis,
            prefix=self.settings.prefix,
            partitions=self.settings.partitions,
            id_buckets=self.settings.id_buckets,
            checkpoints=services.checkpoints,
            patience_s=patience_s,
        )

    # -- workers and commands --------------------------------------------------------------------

    def start_worker(self) -> Worker:
        """One more."""
        self.started += 1
        log = self.folder / f"worker-{self.started}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*_COMMAND, "worker", "projection", "--end-with-parent", *self._where()],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment(),
            )
        worker = Worker(self.started, process, log)
        self.workers.append(worker)
        return worker

    def remove(self, worker: Worker) -> None:
        """Forget a worker that ended."""
        self.workers.remove(worker)

    def readers(self) -> dict[int, int]:
        """Process id of the reader of each partition that has one."""
        client: Any = redis.Redis(port=self.valkey.port, socket_timeout=5)
        with client:
            names = client.mget(
                [self.keys.lease(GROUP, n) for n in range(self.settings.partitions)]
            )
        found = {n: int(name.decode().split("-")[-2]) for n, name in enumerate(names) if name}
        for worker in self.workers:
            worker.seen_reading |= worker.pid in found.values()
        return found

    def recollect(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run a command with `--json`: its exit code and its document."""
        done = subprocess.run(
            [*_COMMAND, *arguments, "--json", *self._where()],
            capture_output=True,
            timeout=600,
            env=self._environment(),
            check=False,
            text=True,
        )
        try:
            document: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"{arguments}: {done.stdout}{done.stderr}") from None
        return done.returncode, document

    def _where(self) -> list[str]:
        data = str(self.settings.data_dir)
        return ["--redis", self.valkey.url, "--neo4j", self.neo4j.url, "--data", data]

    def _environment(self) -> dict[str, str]:
        inherited = {n: v for n, v in os.environ.items() if not n.startswith("RECOLLECT_")}
        own = {f"RECOLLECT_{name.upper()}": str(value) for name, value in self._options.items()}
        return {**inherited, **own}

    # -- looking ---------------------------------------------------------------------------------

    def checkpoints(self) -> dict[int, Checkpoint]:
        """The projection's checkpoints by partition."""
        writer = self.services.graph(self.services.active())
        return {c.partition: c for c in writer.checkpoints(PROJECTION.name)}

    def lag(self) -> int:
        """Entries that are not folded; negative where the graph is ahead."""
        checkpoints = self.checkpoints()
        tails = self.services.ledger.tails()
        return sum(
            tail.seq - (checkpoints[n].seq if n in checkpoints else 0)
            for n, tail in enumerate(tails)
        )

    def caught_up(self) -> bool:
        """Whether every checkpoint stands at its partition's tail, position and number."""
        checkpoints = self.checkpoints()
        tails = self.services.ledger.tails()
        return len(checkpoints) == len(tails) and all(
            (checkpoints[n].position, checkpoints[n].seq) == (tail.position, tail.seq)
            for n, tail in enumerate(tails)
        )

    def pending(self) -> int:
        """Entries that the group delivered and nobody acknowledged."""
        client: Any = redis.Redis(port=self.valkey.port, socket_timeout=5)
        with client:
            return sum(
                client.xpending(self.keys.stream(n), GROUP)["pending"]
                for n in range(self.settings.partitions)
            )

    def wait(self, condition: Callable[[], object], what: str, patience_s: float = 600.0) -> float:
        """Wait for a condition while no worker ends by itself; a passing error means: not yet.

        Returns:
            How long it took, seconds.
        """
        begun = time.monotonic()
        trouble: Exception | None = None
        while True:
            try:
                if condition():
                    return time.monotonic() - begun
                trouble = None
            except (RecollectError, redis.RedisError) as error:
                trouble = error
            self.test_workers()
            if time.monotonic() - begun > patience_s:
                raise AssertionError(f"not within {patience_s:.0f} s: {what} ({trouble})")
            time.sleep(0.02)

    def test_workers(self) -> None:
        """No worker ended by itself."""
        for worker in self.workers:
            code = worker.process.poll()
            if code is not None:
                raise AssertionError(f"{worker} ended by itself with {code}")
