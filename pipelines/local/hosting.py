"""`up --all`: one worker of each stage and the API beside the embedded services.

They are children of whoever holds them, which is the foreground process, or with `--detach` a
holder of their own; either way they end with it, and an ended child is started again.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from pipelines.local.children import COMMAND, ApiProcess, WorkerProcess
from pipelines.local.processes import ServerProcess, free_port, is_alive, log_tail
from pipelines.local.services import locked, run_dir, write_json
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from projections.errors import OperationFailed

_START_S = 60.0
_STOP_S = 60.0
_POLL_S = 0.2
_RESTARTS_A_MINUTE = 5


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
            self.key_path = api_key(data_dir)
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
                child.wait_ready(_START_S)
        except BaseException:
            self.stop()
            raise
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop them in order, the API first: what it took in is in the ledger."""
        self._stop.set()
        if self._watch.is_alive():
            self._watch.join()
        for child in reversed(self.children):
            child.stop()

    def _restart_ended(self) -> None:
        restarts: list[float] = []
        while not self._stop.wait(_POLL_S):
            for child in self.children:
                if child.pid is None and not self._stop.is_set():
                    now = time.monotonic()
                    restarts = [moment for moment in restarts if now - moment < 60.0]
                    if len(restarts) < _RESTARTS_A_MINUTE:
                        restarts.append(now)
                        with suppress(OperationFailed):
                            child.start()


def api_key(data_dir: Path) -> Path:
    """File of an admin key for the API on this data folder, readable by the user only."""
    path = run_dir(data_dir) / "api-key"
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(24))
        new.replace(path)
    return path


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
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    run = run_dir(settings.data_dir)
    try:
        with locked(run / "processes.lock", blocking=False), Processes(settings) as processes:
            write_json(_state(settings.data_dir), {"pid": os.getpid(), **processes.as_dict()})
            try:
                while not stop.wait(1.0):
                    pass
            finally:
                _state(settings.data_dir).unlink(missing_ok=True)
    except BlockingIOError:
        raise OperationFailed(reason=f"workers and API run on {settings.data_dir}") from None


def start_holder(data_dir: Path) -> dict[str, Any]:
    """Start a detached holder, unless one runs, and return what it holds once all is healthy.

    Raises:
        OperationFailed: it ended, or was not ready in time; with the end of its log.
    """
    running = read_holder(data_dir)
    if running is not None:
        return running
    log_path = data_dir.absolute() / "log" / "processes.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [*COMMAND, "hold-processes", "--data", str(data_dir.absolute())]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + _START_S * 2
    while (state := read_holder(data_dir)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            process.wait()
            raise OperationFailed(
                reason=f"workers and API did not start:\n{log_tail(log_path)}\n"
                f"{log_tail(log_path.parent / 'api.log')}"
            )
        time.sleep(_POLL_S)
    process.returncode = 0  # it outlives this process by intent; Popen would warn
    return state


def read_holder(data_dir: Path) -> dict[str, Any] | None:
    """What the running holder holds; None when none does."""
    try:
        state: dict[str, Any] = json.loads(_state(data_dir).read_text())
    except FileNotFoundError:
        return None
    return state if is_alive(state["pid"]) and _is_held(data_dir) else None


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
    deadline = time.monotonic() + _STOP_S
    while _is_held(data_dir):
        if time.monotonic() > deadline:
            raise OperationFailed(reason=f"process {state['pid']} did not end")
        time.sleep(_POLL_S)
    return True


def _state(data_dir: Path) -> Path:
    return data_dir.absolute() / "run" / "processes.json"


def _is_held(data_dir: Path) -> bool:
    """Whether a holder has the lock, which the system gives back however it ends."""
    try:
        with locked(run_dir(data_dir) / "processes.lock", blocking=False):
            return False
    except BlockingIOError:
        return True
