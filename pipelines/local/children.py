"""Recollect's own processes as children: workers and the API, started from the command line.

`ServerProcess` gives them a log, an orderly stop, and that they die with their parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pipelines.local.processes import ServerProcess

COMMAND = (sys.executable, "-m", "pipelines.cli.main")
POLL_S = 1.0


class WorkerProcess(ServerProcess):
    """`recollect worker STAGE` of one machine, its log in `data_dir`.

    Args:
        data_dir: where its log goes.
        stage: which stage.
        options: shared options that lead to the services.
    """

    def __init__(self, data_dir: Path, stage: str, options: Sequence[str]) -> None:
        super().__init__(data_dir, port=0)
        self.name = f"worker-{stage}"
        self._stage = stage
        self._options = options

    @property
    def url(self) -> str:
        """Nobody connects to a worker."""
        return ""

    @property
    def log_path(self) -> Path:
        """Its log, lines of JSON."""
        return self.data_dir / f"{self.name}.log"

    def answers(self) -> bool:
        """A worker waits for its services by itself: running is all there is to ask."""
        return self.pid is not None

    def _prepare(self) -> list[str]:
        return [*COMMAND, "worker", self._stage, *self._options]


class ApiProcess(ServerProcess):
    """`recollect serve` on a port of this machine, its log in `data_dir`."""

    name = "api"

    def __init__(self, data_dir: Path, options: Sequence[str], *, port: int | None = None) -> None:
        super().__init__(data_dir, port=port)
        self._options = options

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """Its log, lines of JSON."""
        return self.data_dir / "api.log"

    def answers(self) -> bool:
        """Whether it takes requests, with ledger and graph behind it."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=2) as answer:  # noqa: S310 - http to 127.0.0.1
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _prepare(self) -> list[str]:
        return [*COMMAND, "serve", "--port", str(self.port), *self._options]


class Companions:
    """One child worker for each target beside the one that this process serves.

    The registry is read every second, so a target that a rebuild has finished is kept in step from
    then on, and one that was dropped is left alone. A child holds the other end of a pipe and ends
    when it closes: none outlives this process, however it dies.

    Args:
        wanted: names of the targets that need a worker of their own now; None when the registry
            cannot be read for the moment.
        command: command line of the worker of a target.
    """

    def __init__(
        self,
        wanted: Callable[[], Iterable[str] | None],
        command: Callable[[str], Sequence[str]],
    ) -> None:
        self._wanted = wanted
        self._command = command
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="companions", daemon=True)

    def start(self) -> None:
        """Watch the registry from now on."""
        self._thread.start()

    def stop(self, timeout_s: float = 25.0) -> None:
        """Stop watching, and let the children end in order."""
        self._stop.set()
        self._thread.join()
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _run(self) -> None:
        while not self._stop.is_set():
            wanted = self._wanted()
            if wanted is not None:
                self._settle(set(wanted))
            self._stop.wait(POLL_S)

    def _settle(self, wanted: set[str]) -> None:
        for name in list(self._children):
            child = self._children[name]
            if child.poll() is not None:
                del self._children[name]  # started again below when it is still wanted
            elif name not in wanted:
                child.terminate()
        for name in wanted - set(self._children):
            self._children[name] = subprocess.Popen(
                self._command(name),
                stdin=subprocess.PIPE,
                # one port cannot serve two: the metrics of a target that stands by are its own
                # worker's, started with --target and a port
                env={**os.environ, "RECOLLECT_METRICS_PORT": "0"},
            )
