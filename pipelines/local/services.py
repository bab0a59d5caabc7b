"""Valkey and one Neo4j per target, inside this process or so that they stay after it ends.

`LocalServices` holds them here. What stays is held by supervisors: processes that have some servers
as their children. `up` makes one for Valkey and the targets, `ensure_target` one for a further
target; each holds a lock for as long as it lives.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Self

from pipelines.local.data_folder import (
    NEO4J_USER,
    VALKEY,
    LocalState,
    ServerState,
    exclusive_lock,
    forget_target,
    is_locked,
    known_targets,
    live_servers,
    locked,
    make_password,
    neo4j_password,
    read_ports,
    read_state,
    run_dir,
    servers_file,
    services_state,
    supervisor_lock,
    target_dir,
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
    is_alive,
    log_tail,
    start_detached,
    wait_until,
)
from pipelines.local.python_process import python_command
from pipelines.local.servers import Neo4jServer, ValkeyServer, fetch_neo4j
from projections.errors import OperationFailed

DEFAULT_TARGETS = ("blue",)
_PORT_PATIENCE_S = 3.0


def _ports(data_dir: Path, names: Sequence[str]) -> dict[str, int]:
    """A port for each name: the one it had before if that is free."""
    with locked(run_dir(data_dir) / "ports.lock"):
        ports = read_ports(data_dir)
        taken: set[int] = set()
        for name in names:
            # A killed server's threads hold its port a moment longer than the process is seen.
            port = free_port(ports.get(name), patience_s=_PORT_PATIENCE_S)
            while port in taken:  # nobody listens on it yet, but it is given away
                port = free_port()
            taken.add(port)
            ports[name] = port
        write_json(run_dir(data_dir) / "ports.json", ports)
    return ports


class LocalServices:
    """The services on one data folder, as children of this process; a context manager.

    Ports and the password stay the same from one use of the folder to the next.

    Args:
        data_dir: folder of all data, logs and run files.
        targets: names of the targets, one Neo4j each.
        with_valkey: whether to run the ledger's server too.
        auth: whether Neo4j asks for the password.
        heap_mb: Java heap of each Neo4j.
        page_cache_mb: page cache of each Neo4j.
        quick: let Neo4j compile for a fast start, for tests.

    Attributes:
        valkey: the ledger's server, None without one.
        neo4j: one server per target.
    """

    def __init__(
        self,
        data_dir: Path,
        targets: Sequence[str] = DEFAULT_TARGETS,
        *,
        with_valkey: bool = True,
        auth: bool = False,
        heap_mb: int = 512,
        page_cache_mb: int = 256,
        quick: bool = False,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        homes = {name: target_dir(self.data_dir, name) for name in targets}
        self.password = make_password(data_dir) if auth else neo4j_password(data_dir)
        ports = _ports(self.data_dir, [*([VALKEY] if with_valkey else []), *targets])
        self.valkey: ValkeyServer | None = None
        if with_valkey:
            self.valkey = ValkeyServer(self.data_dir / VALKEY, port=ports[VALKEY])
        self.neo4j = {
            name: Neo4jServer(
                home,
                port=ports[name],
                password=self.password,
                heap_mb=heap_mb,
                page_cache_mb=page_cache_mb,
                quick=quick,
            )
            for name, home in homes.items()
        }

    @property
    def servers(self) -> dict[str, ServerProcess]:
        """Every server: `valkey`, and the targets by name."""
        return {**({VALKEY: self.valkey} if self.valkey else {}), **self.neo4j}

    @property
    def settings(self) -> dict[str, str]:
        """Settings that lead clients here, by the names they have in `Settings`."""
        settings: dict[str, str] = {}
        if self.valkey is not None:
            settings["redis_url"] = self.valkey.url
        for server in list(self.neo4j.values())[:1]:
            settings["neo4j_url"] = server.url
        if self.password is not None:
            settings |= {"neo4j_user": NEO4J_USER, "neo4j_password": self.password}
        return settings

    def start(self, timeout_s: float = 240.0) -> None:
        """Start all and return once all answer.

        Raises:
            OperationFailed: one did not; the others are stopped again.
        """
        if self.neo4j:
            fetch_neo4j()

        def start(server: ServerProcess) -> None:
            server.start()
            server.wait_ready(timeout_s)

        try:
            self._on_each(start)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop all in order; what has not ended after `timeout_s` is killed."""
        self._on_each(lambda server: server.stop(timeout_s))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _on_each(self, action: Callable[[ServerProcess], None]) -> None:
        servers = list(self.servers.values())
        if not servers:
            return
        with ThreadPoolExecutor(len(servers)) as pool:
            futures = [pool.submit(action, server) for server in servers]
        for future in futures:
            future.result()


_MAIN = "main"


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
        supervisors = {s.supervisor: s.supervisor_pid for s in live_servers(data_dir).values()}
        for _, pid in sorted(supervisors.items(), key=lambda item: item[0] == _MAIN):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for name, pid in supervisors.items():
            if not wait_until(partial(_has_ended, data_dir, name, pid), STOP_TIMEOUT_S):
                raise OperationFailed(reason=f"supervisor {name} (process {pid}) did not end")
        services_state(data_dir).unlink(missing_ok=True)


def ensure_target(data_dir: Path, name: str) -> str:
    """Make sure that a Neo4j for target `name` runs, and return its Bolt URL.

    A new one gets a supervisor of its own, so that it stays when the caller ends.

    Raises:
        OperationFailed: it did not start.
    """
    target_dir(data_dir, name)
    with locked(run_dir(data_dir) / "up.lock"):
        server = live_servers(data_dir).get(name)
        if server is None:
            _start_supervisor(data_dir, f"target-{name}", [name])
            server = live_servers(data_dir)[name]
    return server.url


def drop_target(data_dir: Path, name: str) -> None:
    """Stop the target's Neo4j and delete its data.

    Raises:
        OperationFailed: it did not end in time.
    """
    home = target_dir(data_dir, name)
    with locked(run_dir(data_dir) / "up.lock"):
        request = _drop_request(data_dir, name)

        def has_ended() -> bool:
            request.touch()
            return name not in live_servers(data_dir)

        try:
            if not wait_until(has_ended, STOP_TIMEOUT_S):
                raise OperationFailed(reason=f"the Neo4j of target {name} did not end")
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
    stop = StopSignal()
    refusal = f"a supervisor {supervisor} runs on {data_dir} already"
    with exclusive_lock(supervisor_lock(data_dir, supervisor), refusal), stop:
        services = LocalServices(data_dir, targets, with_valkey=supervisor == _MAIN)
        held = services.servers
        restarts = RestartLimit()
        try:
            services.start()
            _record(data_dir, supervisor, held)
            if on_ready is not None:
                on_ready()
            while not stop.received and held:
                time.sleep(POLL_S)
                _drop_requested(data_dir, held)
                ended = [server for server in held.values() if server.pid is None]
                for server in ended:
                    _restart(server, restarts)
                if ended:
                    _record(data_dir, supervisor, held)
        finally:
            _record(data_dir, supervisor, {})
            services.stop()


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
    folder = Path(data_dir).absolute()
    options = ["--data", str(folder), "--name", supervisor]
    for name in targets:
        options += ["--target", name]
    start_detached(
        python_command("pipelines.local", "supervise", *options),
        logs=[folder / "log" / f"supervisor-{supervisor}.log"],
        is_ready=lambda: set(targets) <= live_servers(data_dir).keys(),
        timeout_s=START_TIMEOUT_S,
        what="the services",
    )


def _restart(server: ServerProcess, limit: RestartLimit) -> None:
    if not limit.allows():
        raise OperationFailed(reason=f"{server.name} keeps ending:\n{log_tail(server.log_path)}")
    sys.stderr.write(f"{server.name} ended unasked; starting it again\n")
    sys.stderr.flush()
    server.start()
    server.wait_ready(START_TIMEOUT_S)


def _record(data_dir: Path, supervisor: str, held: dict[str, ServerProcess]) -> None:
    """Make the state file say that `supervisor` holds these servers and no others."""
    with servers_file(data_dir) as servers:
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


def _drop_requested(data_dir: Path, held: dict[str, ServerProcess]) -> None:
    for name in [name for name in held if _drop_request(data_dir, name).exists()]:
        held.pop(name).stop()
        with servers_file(data_dir) as servers:
            servers.pop(name, None)


def _drop_request(data_dir: Path, name: str) -> Path:
    return run_dir(data_dir) / f"drop-{name}"


def _has_ended(data_dir: Path, supervisor: str, pid: int) -> bool:
    return not (is_locked(supervisor_lock(data_dir, supervisor)) or is_alive(pid))
