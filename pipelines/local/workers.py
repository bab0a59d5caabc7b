"""`up --all`: one worker of each stage and the API beside the embedded services.

They are children of whoever holds them, which is the foreground process, or with `--detach` a
holder of their own; either way they end with it, and an ended child is started again.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from pipelines.local.data_folder import (
    api_key_path,
    exclusive_lock,
    holder_lock,
    holder_state,
    is_locked,
    read_holder,
    run_dir,
    write_json,
)
from pipelines.local.processes import (
    POLL_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    RestartLimit,
    ServerProcess,
    StopSignal,
    free_port,
    start_detached,
    wait_until,
)
from pipelines.local.python_process import python_command, python_environment
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from projections.errors import OperationFailed

RECOLLECT = python_command("pipelines.cli.main")
"""The command line of `recollect` as a child process."""


class RecollectProcess(ServerProcess):
    """A `recollect` command as a child: it has a log, and dies with its parent."""

    def _environment(self) -> Mapping[str, str]:
        return python_environment()


class WorkerProcess(RecollectProcess):
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
        return [*RECOLLECT, "worker", self._stage, *self._options]


class ApiProcess(RecollectProcess):
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
        return [*RECOLLECT, "serve", "--port", str(self.port), *self._options]


class Processes:
    """Workers and API on a data folder whose services run; a context manager.

    Entering returns once the API answers, which needs ledger and graph.
    """

    def __init__(self, settings: Settings) -> None:
        data_dir = settings.data_dir.absolute()
        options = ["--data", str(data_dir)]
        logs = data_dir / "log"
        self.key_path: Path | None = None
        serving = list(options)
        if not settings.api_keys and not settings.insecure_dev:
            self.key_path = api_key_path(data_dir)
            serving += ["--api-key-file", str(self.key_path)]
        self.api = ApiProcess(logs, serving, port=free_port(settings.api_port or None))
        self.children: list[ServerProcess] = [
            *(WorkerProcess(logs, stage, options) for stage in STAGES),
            self.api,
        ]
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._restart_ended, name="children", daemon=True)

    def as_dict(self) -> dict[str, Any]:
        """Where things are, for a machine."""
        return {
            "api_url": self.api.url,
            "api_key_file": str(self.key_path) if self.key_path else None,
            "processes": {
                child.name: {"pid": child.pid, "log": str(child.log_path)}
                for child in self.children
            },
        }

    def __enter__(self) -> Self:
        try:
            for child in self.children:
                child.start()
            for child in self.children:
                child.wait_ready(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop them in order, the API first: what it took in is in the ledger."""
        self._stop.set()
        if self._watch.is_alive():
            self._watch.join()
        for child in reversed(self.children):
            child.stop()

    def _restart_ended(self) -> None:
        """Start again what ended; beyond the limit it waits, for the services may come back."""
        limit = RestartLimit()
        while not self._stop.wait(POLL_S):
            for child in self.children:
                if child.pid is None and not self._stop.is_set() and limit.allows():
                    with suppress(OperationFailed):
                        child.start()


def stop_before_services(stop: Callable[[], None]) -> None:
    """On a signal, call `stop` before the handler in place, which stops the services.

    A worker that finds its ledger gone ends as safely, but later and with errors in its log.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        before = signal.getsignal(number)

        def handle(
            number: int,
            frame: FrameType | None,
            before: Any = before,
        ) -> None:
            stop()
            if callable(before):
                before(number, frame)

        signal.signal(number, handle)


def hold(settings: Settings) -> None:
    """Hold workers and API until a signal; what the detached holder runs.

    Raises:
        OperationFailed: another holder runs, or a child did not start.
    """
    stop = StopSignal()
    run_dir(settings.data_dir)
    lock, refusal = holder_lock(settings.data_dir), f"workers and API run on {settings.data_dir}"
    with stop, exclusive_lock(lock, refusal), Processes(settings) as processes:
        state = holder_state(settings.data_dir)
        write_json(state, {"pid": os.getpid(), **processes.as_dict()})
        try:
            while not stop.received:
                time.sleep(POLL_S)
        finally:
            state.unlink(missing_ok=True)


def start_holder(data_dir: Path) -> dict[str, Any]:
    """Start a detached holder, unless one runs, and return what it holds once all is healthy.

    Raises:
        OperationFailed: it ended, or was not ready in time; with the end of its log.
    """
    running = read_holder(data_dir)
    if running is not None:
        return running
    folder = data_dir.absolute()
    start_detached(
        [*RECOLLECT, "hold-processes", "--data", str(folder)],
        logs=[folder / "log" / "processes.log", folder / "log" / "api.log"],
        is_ready=lambda: read_holder(data_dir) is not None,
        timeout_s=2 * START_TIMEOUT_S,
        what="workers and API",
    )
    state = read_holder(data_dir)
    if state is None:
        raise OperationFailed(reason="workers and API were stopped while they started")
    return state


def stop_holder(data_dir: Path) -> bool:
    """Stop the detached holder and its children; whether there was one.

    Raises:
        OperationFailed: it did not end in time.
    """
    if not (data_dir / "run").exists():
        return False
    state = read_holder(data_dir)
    if state is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(state["pid"], signal.SIGTERM)
    if not wait_until(lambda: not is_locked(holder_lock(data_dir)), STOP_TIMEOUT_S):
        raise OperationFailed(reason=f"process {state['pid']} did not end")
    return True
