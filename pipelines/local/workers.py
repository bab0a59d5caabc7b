"""`up --all`: one worker of each stage and the API beside the embedded services.

They are children of whoever holds them, which is the foreground process, or with `--detach` a
holder of their own; either way they end with it, and a child that ended or hangs is started again.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self
from urllib.parse import urlsplit

from pipelines.local import companions
from pipelines.local.data_folder import (
    api_key_path,
    exclusive_lock,
    holder_lock,
    holder_state,
    is_locked,
    lock_holder,
    read_holder,
    run_dir,
)
from pipelines.local.private_files import write_json
from pipelines.local.processes import (
    POLL_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ServerProcess,
    StopSignal,
    free_port,
    log_tail,
    spawn_detached,
    wait_detached,
    wait_until,
)
from pipelines.local.python_process import python_command, python_environment
from pipelines.local.supervision import Supervision
from pipelines.observe.metrics import HEALTH_PATH
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from projections.errors import OperationFailed

RECOLLECT = python_command("pipelines.cli.main")
"""The command line of `recollect` as a child process."""
API_PROCESSES = 1
"""That serve the API beside everything else of a machine, unless the settings say otherwise."""
ARCHIVE = "archive"
"""The worker that has no stage: `recollect worker archive`."""
HOLDER = "processes"
"""The detached holder of workers and API, among its companions."""
_HEALTH_TIMEOUT_S = 5.0
_PORT_PATIENCE_S = 30.0
"""For the port of an API whose holder was killed: its clients look for it where it was, and on a
busy machine it takes many seconds to end."""


def holder_log(data_dir: Path) -> Path:
    """What the detached holder prints."""
    return data_dir.absolute() / "log" / "processes.log"


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
        super().__init__(data_dir)
        self.name = f"worker-{stage}"
        self._stage = stage
        self._options = options

    @property
    def url(self) -> str:
        """Where it shows its metrics and its health."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """Its log, lines of JSON."""
        return self.data_dir / f"{self.name}.log"

    def answers(self) -> bool:
        """Whether its loops turn, and what it has in hand moves or waits by name."""
        return is_healthy(f"{self.url}{HEALTH_PATH}")

    def _environment(self) -> Mapping[str, str]:
        changes = {"RECOLLECT_METRICS_HOST": "127.0.0.1", "RECOLLECT_METRICS_PORT": str(self.port)}
        return python_environment(changes)

    def _prepare(self) -> list[str]:
        return [*RECOLLECT, "worker", self._stage, *self._options]


class ApiProcess(RecollectProcess):
    """`recollect serve` on a port of this machine, its log in `data_dir`.

    Args:
        data_dir: where its log goes.
        options: shared options that lead to the services.
        port: to listen on; a free one when None.
        processes: that take connections from it.
    """

    name = "api"

    def __init__(
        self,
        data_dir: Path,
        options: Sequence[str],
        *,
        port: int | None = None,
        processes: int = 1,
    ) -> None:
        super().__init__(data_dir, port=port)
        self._options = options
        self._processes = processes

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """Its log, lines of JSON."""
        return self.data_dir / "api.log"

    def answers(self) -> bool:
        """Whether it takes requests, whatever is behind it."""
        return is_healthy(f"{self.url}/health/live")

    def is_ready(self) -> bool:
        """Whether ledger and graph are behind it, and it is warm."""
        return is_healthy(f"{self.url}/health/ready")

    def _prepare(self) -> list[str]:
        place = ["--port", str(self.port), "--processes", str(self._processes)]
        return [*RECOLLECT, "serve", *place, *self._options]


class SmallProcess(ApiProcess):
    """`recollect hold-graph`: the API, and behind it the graph and its stages, in one process."""

    def _prepare(self) -> list[str]:
        return [*RECOLLECT, "hold-graph", "--port", str(self.port), *self._options]


def last_api_port(data_dir: Path) -> int | None:
    """Where the API of a holder was that did not end in order; None: there was none."""
    try:
        state: dict[str, str] = json.loads(holder_state(data_dir).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return urlsplit(state["api_url"]).port


def is_healthy(url: str) -> bool:
    """Whether a process of this machine says that it is well."""
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_TIMEOUT_S) as answer:  # noqa: S310 - http to 127.0.0.1
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


class Processes:
    """Workers and API on a data folder whose ledger runs; a context manager.

    Entering starts them, and returns at once; `wait_ready` returns when they can be used.

    Args:
        settings: that lead to the ledger.
        small: one process does all of it, and holds the graph, too.
    """

    def __init__(self, settings: Settings, *, small: bool = False) -> None:
        data_dir = settings.data_dir.absolute()
        options = ["--data", str(data_dir)]
        logs = data_dir / "log"
        self.key_path: Path | None = None
        serving = list(options)
        if not settings.api_keys and not settings.insecure_dev:
            self.key_path = api_key_path(data_dir)
            serving += ["--api-key-file", str(self.key_path)]
        port = settings.api_port or last_api_port(data_dir)
        patience_s = 0.0 if settings.api_port else _PORT_PATIENCE_S
        kind = SmallProcess if small else ApiProcess
        self.api = kind(
            logs,
            serving,
            port=free_port(port, patience_s=patience_s),
            processes=settings.api_processes or API_PROCESSES,
        )
        named = [] if small else [*STAGES]
        named += [ARCHIVE] if settings.archive_url else []
        self.children: list[ServerProcess] = [
            *(WorkerProcess(logs, name, options) for name in named),
            self.api,
        ]
        self._supervision = Supervision((child.name, child) for child in self.children)
        self._stopped = False

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
        self._supervision.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Whether all run, with ledger and graph behind them; False when nobody waits any more.

        Raises:
            OperationFailed: one fails again and again, or time is up; with the end of its log.
        """
        if not self._supervision.wait_up(self._supervision.children, is_over=is_over):
            return False
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self.api.is_ready():
            if is_over() or self._stopped:
                return False
            if time.monotonic() > deadline_s:
                reason = f"the API was not ready within {START_TIMEOUT_S:.0f} s"
                raise OperationFailed(reason=f"{reason}:\n{log_tail(self.api.log_path)}")
            time.sleep(3 * POLL_S)
        return True

    def stop(self) -> None:
        """Stop them in order, the API first: what it took in is in the ledger."""
        self._stopped = True
        self._supervision.stop()


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


def hold(settings: Settings, *, small: bool = False) -> None:
    """Hold workers and API until a signal; what the detached holder runs.

    Args:
        settings: that lead to the ledger.
        small: as one process.

    Raises:
        OperationFailed: another holder runs, or a child did not start.
    """
    stop = StopSignal()
    run_dir(settings.data_dir)
    data_dir = settings.data_dir
    lock, refusal = holder_lock(data_dir), f"workers and API run on {data_dir}"
    is_over = partial(getattr, stop, "received")
    with stop, exclusive_lock(lock, refusal), Processes(settings, small=small) as processes:
        if not processes.wait_ready(is_over):
            return
        state = holder_state(settings.data_dir)
        told = {"pid": os.getpid(), **processes.as_dict()}
        write_json(state, told)
        try:
            with (
                companions.watched(data_dir, HOLDER, holder_log(data_dir)),
                companions.noted(data_dir, HOLDER, lock=lock, log=holder_log(data_dir)),
            ):
                while not stop.received:
                    time.sleep(POLL_S)
                    if (now := told | processes.as_dict()) != told:  # a child was started again
                        write_json(state, told := now)
        finally:
            state.unlink(missing_ok=True)


class HolderStart:
    """The start of a detached holder, unless one runs: begun now, waited for later.

    Args:
        data_dir: folder of everything.
        small: whether it holds one process that does all.
    """

    def __init__(self, data_dir: Path, *, small: bool = False) -> None:
        self._data_dir = data_dir.absolute()
        self._process: subprocess.Popen[bytes] | None = None
        command = ["hold-processes", *(["--small"] if small else [])]
        if read_holder(data_dir) is None:
            self._process = spawn_detached(
                [*RECOLLECT, *command, "--data", str(self._data_dir)],
                self._logs[0],
            )

    @property
    def _logs(self) -> list[Path]:
        return [holder_log(self._data_dir), self._data_dir / "log" / "api.log"]

    def wait(self) -> dict[str, Any]:
        """What it holds, once all is healthy.

        Raises:
            OperationFailed: it ended, or was not ready in time; with the end of its log.
        """
        if (process := self._process) is not None:
            wait_detached(
                process,
                logs=self._logs,
                is_ready=lambda: self._is_ready(process),
                timeout_s=2 * START_TIMEOUT_S,
                what="workers and API",
            )
        state = read_holder(self._data_dir)
        if state is None:
            raise OperationFailed(reason="workers and API were stopped while they started")
        return state

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether all is healthy. Ours ends where another was begun before it: that is awaited."""
        if process.poll() is not None:
            lock = holder_lock(self._data_dir)
            wait_until(
                lambda: read_holder(self._data_dir) is not None or not is_locked(lock),
                START_TIMEOUT_S,
            )
        return read_holder(self._data_dir) is not None

    def cancel(self) -> None:
        """End it again, if it was begun here."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def stop_holder(data_dir: Path) -> bool:
    """Stop the detached holder and its children, also one that starts; whether there was one.

    Raises:
        OperationFailed: it did not end in time.
    """
    pid = lock_holder(lock := holder_lock(data_dir))
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: not is_locked(lock), STOP_TIMEOUT_S):
        raise OperationFailed(reason=f"process {pid} did not end")
    return True
