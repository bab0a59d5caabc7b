"""The bench's own Valkey and two Neo4j: `blue` is live, `green` for rebuilds and limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import neo4j

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.ledger.registry import Target
from pipelines.local.data_folder import derivations_url
from pipelines.local.processes import free_port
from pipelines.local.services import LocalServices
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION, STAGES, group_name
from projections.events import Event
from tests.waiting import wait_until

HEAP_MB = 1_024
PAGE_CACHE_MB = 512
PATIENCE_S = 900.0
_APPENDED_AT_ONCE = 500
_COLUMNS = b"pipelines.columns.service"
_MODEL_PROCESS = b"pipelines.models.model_process"


@dataclass
class Stack:
    """What a measurement needs of the services."""

    local: LocalServices
    folder: Path

    @cached_property
    def settings(self) -> Settings:
        assert self.local.valkey is not None
        return Settings(
            redis_url=self.local.valkey.url,
            neo4j_url=self.local.neo4j["blue"].url,
            derivations_url=derivations_url(self.local.data_dir),
            data_dir=self.folder,
            log_level="warning",
        )

    @cached_property
    def services(self) -> Services:
        return Services(self.settings)

    @cached_property
    def _metrics_ports(self) -> dict[str, int]:
        return {name: free_port() for name in STAGES}

    def metrics(self, stage: str = PROJECTION.name) -> str:
        """What the stage's worker says of itself, in Prometheus' text form."""
        url = f"http://127.0.0.1:{self._metrics_ports[stage]}/metrics"
        with urllib.request.urlopen(url, timeout=30) as reply:
            return str(reply.read().decode())

    @cached_property
    def blue(self) -> neo4j.Driver:
        return self._driver("blue")

    @cached_property
    def green(self) -> neo4j.Driver:
        return self._driver("green")

    @property
    def green_target(self) -> Target:
        return Target("green", self.local.neo4j["green"].url, "neo4j", "building")

    def _driver(self, name: str) -> neo4j.Driver:
        url = self.local.neo4j[name].url
        return neo4j.GraphDatabase.driver(url, notifications_min_severity="OFF")

    @property
    def redis(self) -> Any:
        return self.services.redis

    @property
    def streams(self) -> list[str]:
        keys = self.services.ledger.keys
        return [keys.stream(partition) for partition in range(self.settings.partitions)]

    @property
    def ledger(self) -> Ledger:
        return self.services.ledger

    def clear(self) -> None:
        """Empty everything: an empty ledger, empty graphs, JVMs that stay warm."""
        for path in self.local.data_dir.glob("derivations.sqlite*"):
            path.unlink()
        for driver in (self.blue, self.green):
            Neo4jGraph(driver).clear()
        self.redis.flushall()
        self.redis.config_resetstat()
        self.__dict__.pop("services").close()
        self.services.active()
        self.ledger.admit()

    def append(self, events: Iterator[Event], count: int) -> None:
        """Append the next `count` events."""
        done = 0
        while done < count:
            part = list(islice(events, min(_APPENDED_AT_ONCE, count - done)))
            outcomes = self.ledger.append(part)
            assert all(isinstance(one, Appended) and not one.duplicate for one in outcomes)
            done += len(part)

    def wait_projected(self) -> None:
        """Wait until the live graph's checkpoints stand at the ledger's tails."""
        self.wait_passed(PROJECTION.name)

    def wait_passed(self, stage: str, *, every_s: float = 0.02) -> None:
        """Wait until a stage has passed what the ledger holds now.

        Passed, not reached: the enrichment appends what it decides while somebody waits.
        """
        tails = [tail.seq for tail in self.ledger.tails()]

        def passed() -> bool:
            seqs = self.seqs(stage)
            return all(seqs.get(n, 0) >= seq for n, seq in enumerate(tails))

        wait_until(passed, f"{stage} has passed it", PATIENCE_S, every_s=every_s)

    def seqs(self, stage: str, target: str = "blue") -> dict[int, int]:
        """How many entries of each partition a stage has folded; nothing before its first start."""
        writer = Neo4jGraph(self.blue if target == "blue" else self.green)
        return {found.partition: found.seq for found in writer.checkpoints(stage)}

    def child(
        self,
        *arguments: str,
        program: Sequence[str] = ("pipelines.cli.main",),
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start `recollect ARGUMENTS`, or another module's command line, on these services."""
        variables = {
            **os.environ,
            "RECOLLECT_REDIS_URL": self.settings.redis_url,
            "RECOLLECT_NEO4J_URL": self.settings.neo4j_url,
            "RECOLLECT_DERIVATIONS_URL": str(self.settings.derivations_url),
            "RECOLLECT_DATA_DIR": str(self.folder),
            "RECOLLECT_LOG_LEVEL": "warning",
            **(environment or {}),
        }
        command = [sys.executable, "-m", *program, *arguments]
        return subprocess.Popen(command, env=variables, **options)

    @contextmanager
    def worker(self, stage: str = PROJECTION.name) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of a stage that holds all partitions."""
        file = self.folder / f"{stage}.log"
        log = file.open("ab")
        process = self.child(
            *("worker", stage, "--target", "blue"),
            environment={"RECOLLECT_METRICS_PORT": str(self._metrics_ports[stage])},
            stdout=log,
            stderr=log,
        )
        group = group_name(stage, "blue")
        leases = [self.ledger.keys.lease(group, n) for n in range(self.settings.partitions)]
        try:
            wait_until(
                lambda: self.redis.exists(*leases) == len(leases) or process.poll() is not None,
                "the worker has its leases",
                PATIENCE_S,
            )
            if process.poll() is not None:
                raise RuntimeError(f"the worker ended: {file.read_text()[-2_000:]}")
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(60)
            log.close()


@contextmanager
def running_stack(folder: Path) -> Iterator[Stack]:
    """Start everything in a folder; stopped by process id at the end."""
    local = LocalServices(
        folder / "data",
        targets=("blue", "green"),
        heap_mb=HEAP_MB,
        page_cache_mb=PAGE_CACHE_MB,
        auth=False,
    )
    with local:
        stack = Stack(local, folder)
        stack.services.active()
        stack.ledger.admit()
        try:
            yield stack
        finally:
            stack.blue.close()
            stack.green.close()
            stack.services.close()


def resident_mb(pid: int) -> float:
    """Memory of a running process, MB; 0 where the system does not tell."""
    return _status_mb(pid, "VmRSS")


def peak_mb(pid: int) -> float:
    """The most memory a running process has had since it became its program, MB; 0 likewise."""
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, name: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)


def command_line(pid: int) -> bytes:
    """What a process was started as, a zero byte behind each word; empty where nobody tells."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def child_pids(pid: int) -> list[int]:
    """Running children of a process; none where the system does not tell.

    Without one that has only been forked: all its memory is still the parent's. Without the model
    process, which is everybody's, whoever started it.
    """
    try:
        texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    pids = [int(number) for text in texts for number in text.split()]
    others = [child for child in pids if command_line(child) not in (b"", command_line(pid))]
    return [child for child in others if child not in model_process_pids()]


def model_process_pids(sockets: Path | None = None) -> list[int]:
    """Of the process that holds the embedder; more than one where several installations run.

    Args:
        sockets: their folder; None: of any.
    """
    return _pids_of(_MODEL_PROCESS, sockets)


def columns_pids(sockets: Path | None = None) -> list[int]:
    """Of the processes that hold columns, one for each graph; as above."""
    return _pids_of(_COLUMNS, sockets)


def _pids_of(module: bytes, sockets: Path | None) -> list[int]:
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            folders = {Path(os.fsdecode(word)).parent for word in words}
            if module in words and (sockets is None or sockets in folders):
                pids.append(int(file.parent.name))
    return pids


def cpu_seconds(pid: int) -> float:
    """Processor time of a running process and its ended children; 0 where nobody tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def phase_seconds(text: str) -> Mapping[str, float]:
    """Sum of each phase of `block_duration_seconds` in a worker's metrics."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("recollect_block_duration_seconds_sum{"):
            labels, _, value = line.rpartition(" ")
            phase = labels.split('phase="')[1].split('"')[0]
            found[phase] = found.get(phase, 0.0) + float(value)
    return found


def metric(text: str, series: str) -> float:
    """Sum of the series whose line starts like this, in a worker's metrics."""
    lines = (line for line in text.splitlines() if line.startswith(series))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def finished(process: subprocess.Popen[bytes]) -> tuple[bytes, float, float]:
    """Wait for a child that writes to a pipe: its output, peak memory in MB and CPU seconds.

    Both with the children it starts.
    """
    peak_mb = cpu_s = 0.0

    def watch() -> None:
        # Not ru_maxrss: that starts with what this process held when it forked.
        nonlocal peak_mb, cpu_s
        while process.returncode is None:
            peak_mb = max(peak_mb, sum(map(resident_mb, (process.pid, *child_pids(process.pid)))))
            cpu_s = max(cpu_s, cpu_seconds(process.pid))
            time.sleep(0.05)

    watching = threading.Thread(target=watch, name="watch")
    watching.start()
    output, _ = process.communicate()
    watching.join()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"a child ended with {process.returncode}")
    return output, peak_mb, cpu_s


def per_second(counts: Sequence[int], seconds: Sequence[float]) -> int:
    """Events a second over several rounds."""
    return round(sum(counts) / sum(seconds))
