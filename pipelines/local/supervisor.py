"""Services that stay after the command ends: supervisors, and the state file they keep.

A supervisor is a process that holds some servers as its children: `up` makes one for Valkey and
the targets, `ensure_target` one for a further target. Each holds a lock for as long as it lives,
so a state file left by a killed supervisor is known to be stale whoever has its process ids now.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pipelines.local.jars import fetch_neo4j
from pipelines.local.neo4j_server import USER
from pipelines.local.processes import ServerProcess, is_alive, log_tail
from pipelines.local.services import (
    DEFAULT_TARGETS,
    VALKEY,
    LocalServices,
    forget_target,
    known_targets,
    locked,
    make_password,
    neo4j_password,
    run_dir,
    target_dir,
    write_json,
)
from projections.errors import OperationFailed

_MAIN = "main"
# Starting takes a few seconds, but on a machine ten times overcommitted over a minute.
_START_S = 300.0
_STOP_S = 60.0
_POLL_S = 0.1
# A server that ends this often within a minute does so for a reason a restart does not mend.
_RESTARTS_A_MINUTE = 5


@dataclass(frozen=True, slots=True)
class ServerState:
    """One running server.

    Attributes:
        url: where clients connect.
        pid: its process.
        log: file of what it prints.
        supervisor: name of the supervisor that holds it.
        supervisor_pid: process of that supervisor.
    """

    url: str
    pid: int
    log: str
    supervisor: str
    supervisor_pid: int


@dataclass(frozen=True, slots=True)
class LocalState:
    """What runs on a data folder.

    Attributes:
        data_dir: the folder.
        valkey: the ledger's server.
        targets: the Neo4j of each target.
    """

    data_dir: Path
    valkey: ServerState
    targets: dict[str, ServerState]

    @property
    def redis_url(self) -> str:
        """Where the ledger is."""
        return self.valkey.url

    @property
    def neo4j_urls(self) -> dict[str, str]:
        """Where each target is."""
        return {name: server.url for name, server in self.targets.items()}

    def as_json(self) -> dict[str, Any]:
        """The state as a JSON document; of a password only the file that holds it."""
        login = {
            "neo4j_user": USER,
            "neo4j_password_file": str(run_dir(self.data_dir) / "neo4j-password"),
        }
        return {
            "data_dir": str(self.data_dir),
            "redis_url": self.redis_url,
            "neo4j_urls": self.neo4j_urls,
            **(login if neo4j_password(self.data_dir) is not None else {}),
            "valkey": asdict(self.valkey),
            "targets": {name: asdict(server) for name, server in self.targets.items()},
        }


def read_state(data_dir: Path) -> LocalState | None:
    """What runs on `data_dir`, or None; what a dead supervisor left behind does not count."""
    if not _state_path(data_dir).exists():
        return None
    servers = _live_servers(data_dir)
    valkey = servers.pop(VALKEY, None)
    if valkey is None:
        return None
    return LocalState(data_dir=Path(data_dir).absolute(), valkey=valkey, targets=servers)


def connection_settings(data_dir: Path) -> dict[str, str]:
    """Settings that lead to what runs on `data_dir`, by their names in `Settings`; else empty.

    `neo4j_url` is the first target's by name: blue, unless it was dropped.
    """
    state = read_state(data_dir)
    if state is None:
        return {}
    settings = {"redis_url": state.redis_url}
    password = neo4j_password(data_dir)
    if password is not None:
        settings |= {"neo4j_user": USER, "neo4j_password": password}
    for name in sorted(state.targets)[:1]:
        settings["neo4j_url"] = state.targets[name].url
    return settings


def up(
    data_dir: Path,
    detach: bool,
    targets: Sequence[str] | None = None,
    *,
    auth: bool = False,
    on_ready: Callable[[LocalState], None] | None = None,
    progress: bool = False,
) -> LocalState:
    """Run the services on `data_dir`; when they run already, report them.

    Args:
        data_dir: folder of everything.
        detach: leave them running under a supervisor of their own and return once all answer;
            else hold them here until SIGINT, SIGTERM or SIGHUP, stop them, and return.
        targets: targets to run; None: those that ran here before, blue on a new folder.
        auth: Neo4j asks for a password, kept in the folder; chosen before the first start.
        on_ready: called once all answer, before waiting or returning.
        progress: show a bar while the jars are fetched.

    Raises:
        OperationFailed: a server did not start; with the end of its log.
    """
    names = list(targets) if targets is not None else known_targets(data_dir)
    names = names or list(DEFAULT_TARGETS)
    for name in names:
        target_dir(data_dir, name)
    if auth:
        make_password(data_dir)
    fetch_neo4j(progress)
    with locked(run_dir(data_dir) / "up.lock"):
        running = read_state(data_dir)
        if running is None and detach:
            _start_supervisor(data_dir, _MAIN, names)
    if running is None and not detach:
        # The lock is free again: `ensure_target` and `down` must work while this runs.
        return _hold(data_dir, names, on_ready)
    for name in names:
        ensure_target(data_dir, name)
    state = read_state(data_dir)
    if state is None:
        raise OperationFailed(reason="the services were stopped while they started")
    if on_ready is not None:
        on_ready(state)
    return state


def down(data_dir: Path) -> None:
    """Stop all that runs on `data_dir`; data, ports and logs stay.

    Raises:
        OperationFailed: a supervisor did not end in time.
    """
    if not (Path(data_dir) / "run").exists():
        return
    with locked(run_dir(data_dir) / "up.lock"):
        # The ledger's clients are on the main supervisor: the targets beside it end first.
        supervisors = {s.supervisor: s.supervisor_pid for s in _live_servers(data_dir).values()}
        for _, pid in sorted(supervisors.items(), key=lambda item: item[0] == _MAIN):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for name, pid in supervisors.items():
            while _is_held(data_dir, name) or is_alive(pid):
                if time.monotonic() > deadline:
                    raise OperationFailed(reason=f"supervisor {name} (process {pid}) did not end")
                time.sleep(_POLL_S)
        _state_path(data_dir).unlink(missing_ok=True)


def ensure_target(data_dir: Path, name: str) -> str:
    """Make sure that a Neo4j for target `name` runs, and return its Bolt URL.

    A new one gets a supervisor of its own, so that it stays when the caller ends.

    Raises:
        OperationFailed: it did not start.
    """
    target_dir(data_dir, name)
    with locked(run_dir(data_dir) / "up.lock"):
        server = _live_servers(data_dir).get(name)
        if server is None:
            _start_supervisor(data_dir, f"target-{name}", [name])
            server = _live_servers(data_dir)[name]
    return server.url


def drop_target(data_dir: Path, name: str) -> None:
    """Stop the target's Neo4j and delete its data.

    Raises:
        OperationFailed: it did not end in time.
    """
    home = target_dir(data_dir, name)
    with locked(run_dir(data_dir) / "up.lock"):
        request = _drop_request(data_dir, name)
        deadline = time.monotonic() + _STOP_S
        try:
            while name in _live_servers(data_dir):
                request.touch()
                if time.monotonic() > deadline:
                    raise OperationFailed(reason=f"the Neo4j of target {name} did not end")
                time.sleep(_POLL_S)
        finally:
            request.unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)
        forget_target(data_dir, name)


def supervise(
    data_dir: Path,
    targets: Sequence[str],
    *,
    supervisor: str = _MAIN,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Hold the servers until a signal asks to stop; start again what ends unasked.

    Args:
        data_dir: folder of everything.
        targets: targets to run.
        supervisor: `main` runs Valkey too.
        on_ready: called once all answer and the state file says so.

    Raises:
        OperationFailed: another supervisor of that name runs, or a server will not stay up.
    """
    stop = _StopSignal()
    with _hold_name(data_dir, supervisor), stop:
        services = LocalServices(data_dir, targets, with_valkey=supervisor == _MAIN)
        held = services.servers
        restarts: list[float] = []
        try:
            services.start()
            _record(data_dir, supervisor, held)
            if on_ready is not None:
                on_ready()
            while not stop.asked and held:
                time.sleep(_POLL_S)
                _drop_requested(data_dir, held)
                ended = [server for server in held.values() if server.pid is None]
                for server in ended:
                    _restart(server, restarts)
                if ended:
                    _record(data_dir, supervisor, held)
        finally:
            _record(data_dir, supervisor, {})
            services.stop()


class _StopSignal:
    """Whether a signal asked to stop; puts the earlier handlers back at the end."""

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._ask) for number in self._SIGNALS}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _hold(
    data_dir: Path, names: Sequence[str], on_ready: Callable[[LocalState], None] | None
) -> LocalState:
    seen: list[LocalState] = []

    def ready() -> None:
        state = read_state(data_dir)
        if state is not None:
            seen.append(state)
            if on_ready is not None:
                on_ready(state)

    supervise(data_dir, names, on_ready=ready)
    if not seen:
        raise OperationFailed(reason="stopped before the services were ready")
    return seen[0]


def _start_supervisor(data_dir: Path, supervisor: str, targets: Sequence[str]) -> None:
    """Start a detached supervisor and return once it has recorded its servers."""
    log_path = Path(data_dir).absolute() / "log" / f"supervisor-{supervisor}.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pipelines.local", "supervise"]
    command += ["--data", str(Path(data_dir).absolute()), "--name", supervisor]
    for name in targets:
        command += ["--target", name]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + _START_S
    try:
        while not set(targets) <= _live_servers(data_dir).keys():
            if process.poll() is not None:
                raise OperationFailed(reason=f"the services did not start:\n{log_tail(log_path)}")
            if time.monotonic() > deadline:
                raise OperationFailed(
                    reason=f"not ready within {_START_S:.0f} s:\n{log_tail(log_path)}"
                )
            time.sleep(_POLL_S)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    # It outlives this process by intent; if it ends first, it must not stay as a zombie.
    threading.Thread(target=process.wait, name="reaper", daemon=True).start()


def _restart(server: ServerProcess, restarts: list[float]) -> None:
    now = time.monotonic()
    restarts[:] = [moment for moment in restarts if now - moment < 60.0] + [now]
    if len(restarts) > _RESTARTS_A_MINUTE:
        raise OperationFailed(reason=f"{server.name} keeps ending:\n{log_tail(server.log_path)}")
    sys.stderr.write(f"{server.name} ended unasked; starting it again\n")
    sys.stderr.flush()
    server.start()
    server.wait_ready(_START_S)


def _drop_requested(data_dir: Path, held: dict[str, ServerProcess]) -> None:
    for name in [name for name in held if _drop_request(data_dir, name).exists()]:
        held.pop(name).stop()
        with _servers_file(data_dir) as servers:
            servers.pop(name, None)


def _drop_request(data_dir: Path, name: str) -> Path:
    return run_dir(data_dir) / f"drop-{name}"


def _record(data_dir: Path, supervisor: str, held: dict[str, ServerProcess]) -> None:
    """Make the state file say that `supervisor` holds these servers and no others."""
    with _servers_file(data_dir) as servers:
        for name in [name for name, row in servers.items() if row["supervisor"] == supervisor]:
            del servers[name]
        for name, server in held.items():
            if server.pid is not None:
                state = ServerState(
                    url=server.url,
                    pid=server.pid,
                    log=str(server.log_path),
                    supervisor=supervisor,
                    supervisor_pid=os.getpid(),
                )
                servers[name] = asdict(state)


def _live_servers(data_dir: Path) -> dict[str, ServerState]:
    """The recorded servers whose supervisor lives, by name; a killed server is being restarted."""
    rows = _read_servers(data_dir)
    live = {name: _is_held(data_dir, name) for name in {row["supervisor"] for row in rows.values()}}
    servers = {name: ServerState(**row) for name, row in rows.items() if live[row["supervisor"]]}
    return {name: row for name, row in servers.items() if is_alive(row.supervisor_pid)}


def _state_path(data_dir: Path) -> Path:
    return Path(data_dir).absolute() / "run" / "services.json"


def _read_servers(data_dir: Path) -> dict[str, dict[str, Any]]:
    try:
        rows: dict[str, dict[str, Any]] = json.loads(_state_path(data_dir).read_text())["servers"]
    except FileNotFoundError:
        return {}
    return rows


@contextlib.contextmanager
def _servers_file(data_dir: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """The rows of the state file, to be changed in place."""
    with locked(run_dir(data_dir) / "services.lock"):
        rows = _read_servers(data_dir)
        yield rows
        write_json(_state_path(data_dir), {"servers": rows})


@contextlib.contextmanager
def _hold_name(data_dir: Path, supervisor: str) -> Iterator[None]:
    """Hold the lock that says this supervisor lives."""
    path = run_dir(data_dir) / f"supervisor-{supervisor}.lock"
    deadline = time.monotonic() + 2.0  # one who only looks holds it for an instant
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path, blocking=False))
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OperationFailed(
                        reason=f"a supervisor {supervisor} runs on {data_dir} already"
                    ) from None
                time.sleep(_POLL_S)
        yield


def _is_held(data_dir: Path, supervisor: str) -> bool:
    try:
        with (run_dir(data_dir) / f"supervisor-{supervisor}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
