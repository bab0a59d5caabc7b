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
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Self

from pipelines.local import companions
from pipelines.local.data_folder import (
    NEO4J,
    VALKEY,
    LocalState,
    ServerState,
    close_data_folder,
    derivations_url,
    exclusive_lock,
    forget_target,
    is_locked,
    known_targets,
    live_servers,
    locked,
    login_settings,
    make_password,
    password_of,
    read_ports,
    read_state,
    run_dir,
    servers_file,
    services_state,
    supervisor_lock,
    target_dir,
)
from pipelines.local.private_files import write_json
from pipelines.local.processes import (
    POLL_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ServerProcess,
    StopSignal,
    free_port,
    is_alive,
    spawn_detached,
    wait_detached,
    wait_until,
)
from pipelines.local.python_process import python_command
from pipelines.local.servers import Neo4jServer, ValkeyServer, fetch_neo4j
from pipelines.local.supervision import Supervision
from projections.errors import OperationFailed

DEFAULT_TARGETS = ("blue",)
_PORT_PATIENCE_S = 15.0


def _ports(data_dir: Path, names: Sequence[str]) -> dict[str, int]:
    """A port for each name: the one it had before if that is free."""
    with locked(run_dir(data_dir) / "ports.lock"):
        ports = read_ports(data_dir)
        taken: set[int] = set()
        for name in names:
            # A killed server's threads hold its port longer than the process is seen, and its
            # clients look for it where it was.
            port = free_port(ports.get(name), patience_s=_PORT_PATIENCE_S)
            while port in taken:  # nobody listens on it yet, but it is given away
                port = free_port()
            taken.add(port)
            ports[name] = port
        write_json(run_dir(data_dir) / "ports.json", ports)
    return ports


class LocalServices:
    """The services on one data folder, as children of this process; a context manager.

    Ports and passwords stay the same from one use of the folder to the next. Passwords are made
    with the ledger's server: while it runs without one, as before there were any, so do targets.

    Args:
        data_dir: folder of all data, logs and run files.
        targets: names of the targets, one Neo4j each.
        with_valkey: whether to run the ledger's server too.
        auth: whether the servers ask for passwords; only tests go without.
        heap_mb: Java heap of each Neo4j.
        page_cache_mb: page cache of each Neo4j.

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
        auth: bool = True,
        heap_mb: int = 512,
        page_cache_mb: int = 256,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        homes = {name: target_dir(self.data_dir, name) for name in targets}
        close_data_folder(self.data_dir)
        password = make_password if with_valkey else password_of
        self._neo4j_password = password(self.data_dir, NEO4J) if auth else None
        self._valkey_password = password(self.data_dir, VALKEY) if auth else None
        ports = _ports(self.data_dir, [*([VALKEY] if with_valkey else []), *targets])
        self.valkey: ValkeyServer | None = None
        if with_valkey:
            self.valkey = ValkeyServer(
                self.data_dir / VALKEY, port=ports[VALKEY], password=self._valkey_password
            )
        self.neo4j = {
            name: Neo4jServer(
                home,
                port=ports[name],
                password=self._neo4j_password,
                heap_mb=heap_mb,
                page_cache_mb=page_cache_mb,
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
            settings["derivations_url"] = derivations_url(self.data_dir)
        for server in list(self.neo4j.values())[:1]:
            settings["neo4j_url"] = server.url
        return settings | login_settings(self._valkey_password, self._neo4j_password)

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
    on_ledger: Callable[[LocalState], None] | None = None,
    on_ready: Callable[[LocalState], None] | None = None,
    progress: bool = False,
) -> LocalState:
    """Run the services on `data_dir`; when they run already, report them.

    Args:
        data_dir: folder of everything.
        detach: leave them running under a supervisor of their own and return once all answer;
            else hold them here until SIGINT, SIGTERM or SIGHUP, stop them, and return.
        targets: targets to run; None: those that ran here before, blue on a new folder; none:
            Valkey alone.
        on_ledger: called once the ledger's server answers, while the graphs still start.
        on_ready: called once all answer, before waiting or returning.
        progress: show a bar while the jars are fetched.

    Raises:
        OperationFailed: a server did not start; with the end of its log.
        KeyboardInterrupt: Ctrl-C, after all that was held here has stopped.
    """
    default = known_targets(data_dir) or DEFAULT_TARGETS
    names = list(default if targets is None else targets)
    for name in names:
        target_dir(data_dir, name)
    if names:
        fetch_neo4j(progress)
    tell = _Once(data_dir, on_ledger or (lambda _: None))
    with locked(run_dir(data_dir) / "up.lock"):
        running = read_state(data_dir)
        if running is None:
            companions.forget_all(data_dir)
        if running is None and detach:
            _start_supervisor(data_dir, _MAIN, names, tell)
    if running is None and not detach:
        # The lock is free again: `ensure_target` and `down` must work while this runs.
        return _hold(data_dir, names, tell, on_ready)
    for name in names:
        ensure_target(data_dir, name)
    tell()
    state = _running_state(data_dir)
    if on_ready is not None:
        on_ready(state)
    return state


def _running_state(data_dir: Path) -> LocalState:
    state = read_state(data_dir)
    if state is None:
        raise OperationFailed(reason="the services were stopped while they started")
    return state


class _Once:
    """Calls `tell` with the state of the services, the first time that it is called."""

    def __init__(self, data_dir: Path, tell: Callable[[LocalState], None]) -> None:
        self._data_dir = data_dir
        self._tell = tell
        self._told = False

    def __call__(self) -> None:
        if not self._told:
            self._told = True
            self._tell(_running_state(self._data_dir))


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
        if name not in live_servers(data_dir):
            _start_supervisor(data_dir, f"target-{name}", [name])

    def server() -> ServerState | None:
        return live_servers(data_dir).get(name)

    # One that another `up` has begun, or that is being started again, is waited for.
    wait_until(lambda: (row := server()) is None or row.answers, START_TIMEOUT_S)
    if (row := server()) is None or not row.answers:
        raise OperationFailed(reason=f"the Neo4j of target {name} does not answer")
    return row.url


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
    detached: bool = False,
    on_ledger: Callable[[], None] = lambda: None,
    on_ready: Callable[[], None] = lambda: None,
) -> int | None:
    """Keep the servers up until a signal asks to stop; its number, None when none is left.

    Args:
        data_dir: folder of everything.
        targets: targets to run.
        supervisor: `main` runs Valkey too.
        detached: this process is there for nothing else: whoever else is detached starts it again
            when it is killed.
        on_ledger: called once Valkey answers.
        on_ready: called once all answer and the state file says so.

    Raises:
        OperationFailed: another supervisor of that name runs, or a server did not start at first.
            What happens to it later is never the end: it is started again.
    """
    stop = StopSignal()
    refusal = f"a supervisor {supervisor} runs on {data_dir} already"
    with exclusive_lock(supervisor_lock(data_dir, supervisor), refusal), stop:
        if targets:
            fetch_neo4j()
        services = LocalServices(data_dir, targets, with_valkey=supervisor == _MAIN)
        held = Supervision(
            services.servers.items(), changed=lambda: _record(data_dir, supervisor, held)
        )
        _record(data_dir, supervisor, held)
        try:
            with held:
                is_over = partial(getattr, stop, "received")
                if services.valkey is not None and held.wait_up([VALKEY], is_over=is_over):
                    on_ledger()
                if held.wait_up(held.children, is_over=is_over):
                    on_ready()
                    with ExitStack() as stack:
                        log = supervisor_log(data_dir, supervisor) if detached else None
                        stack.enter_context(companions.watched(data_dir, supervisor, log))
                        if detached:
                            stack.enter_context(_noted(data_dir, supervisor))
                        while not stop.received and held:
                            time.sleep(POLL_S)
                            _drop_requested(data_dir, held)
        finally:
            _record(data_dir, supervisor, None)
        return stop.number


def _noted(data_dir: Path, supervisor: str) -> AbstractContextManager[None]:
    return companions.noted(
        data_dir,
        supervisor,
        lock=supervisor_lock(data_dir, supervisor),
        log=supervisor_log(data_dir, supervisor),
    )


def _hold(
    data_dir: Path,
    names: Sequence[str],
    on_ledger: Callable[[], None],
    on_ready: Callable[[LocalState], None] | None,
) -> LocalState:
    seen: list[LocalState] = []

    def ready() -> None:
        seen.append(_running_state(data_dir))
        if on_ready is not None:
            on_ready(seen[0])

    number = supervise(data_dir, names, on_ledger=on_ledger, on_ready=ready)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if not seen:
        raise OperationFailed(reason="stopped before the services were ready")
    return seen[0]


def _start_supervisor(
    data_dir: Path,
    supervisor: str,
    targets: Sequence[str],
    on_ledger: Callable[[], None] = lambda: None,
) -> None:
    """Start a detached supervisor and return once all its servers answer."""
    folder = Path(data_dir).absolute()
    options = ["--data", str(folder), "--name", supervisor]
    for name in targets:
        options += ["--target", name]

    awaited = {*targets, *([VALKEY] if supervisor == _MAIN else [])}

    def is_ready() -> bool:
        up = {name for name, server in live_servers(data_dir).items() if server.answers}
        if VALKEY in up:
            on_ledger()
        return awaited <= up

    log = supervisor_log(folder, supervisor)
    wait_detached(
        spawn_detached(python_command("pipelines.local", "supervise", *options), log),
        logs=[log],
        is_ready=is_ready,
        timeout_s=START_TIMEOUT_S,
        what="the services",
    )


def _record(data_dir: Path, supervisor: str, held: Supervision | None) -> None:
    """Make the state file say that `supervisor` holds these servers and no others."""
    with servers_file(data_dir) as servers:
        before = {name: row for name, row in servers.items() if row["supervisor"] == supervisor}
        for name in before:
            del servers[name]
        if held is None:
            return
        for name, server in held.children.items():
            assert isinstance(server, ServerProcess)  # the only kind that `supervise` holds
            state = ServerState(
                url=server.url,
                pid=server.pid or before.get(name, {}).get("pid", 0),
                log=str(server.log_path),
                supervisor=supervisor,
                supervisor_pid=os.getpid(),
                answers=held.is_up(name),
            )
            servers[name] = asdict(state)


def _drop_requested(data_dir: Path, held: Supervision) -> None:
    for name in [name for name in held.children if _drop_request(data_dir, name).exists()]:
        held.drop(name)
        with servers_file(data_dir) as servers:
            servers.pop(name, None)


def supervisor_log(data_dir: Path, supervisor: str) -> Path:
    """What a detached supervisor prints."""
    return Path(data_dir).absolute() / "log" / f"supervisor-{supervisor}.log"


def _drop_request(data_dir: Path, name: str) -> Path:
    return run_dir(data_dir) / f"drop-{name}"


def _has_ended(data_dir: Path, supervisor: str, pid: int) -> bool:
    return not (is_locked(supervisor_lock(data_dir, supervisor)) or is_alive(pid))
