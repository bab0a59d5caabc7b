"""What the files of a data folder say: ports, the password, and which processes run on it.

Whoever only wants to know where the services are loads this, and nothing that runs them. Each
holder of processes keeps a lock for as long as it lives, so a state file that a killed one left
behind is known to be stale, whoever has its process ids now.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pipelines.local.processes import is_alive, wait_until
from projections.errors import OperationFailed

NEO4J_USER = "neo4j"
VALKEY = "valkey"
# One who only looks whether a lock is held holds it for an instant.
_LOOK_S = 2.0
_LOGIN_FILE = "neo4j-password"
_API_KEY_FILE = "api-key"
_TARGET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def run_dir(data_dir: Path) -> Path:
    """Folder of locks, ports, state and the password; readable by the user only."""
    folder = Path(data_dir).absolute() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def target_dir(data_dir: Path, name: str) -> Path:
    """Home folder of the target's Neo4j.

    Raises:
        OperationFailed: `name` cannot be part of a path.
    """
    if not _TARGET_NAME.fullmatch(name):
        raise OperationFailed(
            reason=f"a target's name is made of a-z, 0-9 and '-', at most 31 of them: {name!r}"
        )
    return Path(data_dir).absolute() / f"neo4j-{name}"


def known_targets(data_dir: Path) -> list[str]:
    """Targets that have run on this data folder and were not dropped."""
    return sorted(name for name in read_ports(data_dir) if name != VALKEY)


def forget_target(data_dir: Path, name: str) -> None:
    """Forget that the target ever ran."""
    with locked(run_dir(data_dir) / "ports.lock"):
        ports = read_ports(data_dir)
        ports.pop(name, None)
        write_json(run_dir(data_dir) / "ports.json", ports)


def neo4j_password(data_dir: Path) -> str | None:
    """Password of the embedded Neo4j servers on this data folder; None: they ask for none."""
    path = run_dir(data_dir) / _LOGIN_FILE
    return path.read_text(encoding="ascii").strip() if path.exists() else None


def make_password(data_dir: Path) -> str:
    """Let the embedded Neo4j servers ask for a password, made when there is none yet.

    Raises:
        OperationFailed: one has run without: a store takes its password at its first start.
    """
    path = run_dir(data_dir) / _LOGIN_FILE
    if not path.exists() and known_targets(data_dir):
        raise OperationFailed(
            reason="a password is chosen before the first start: use a new folder"
        )
    with locked(run_dir(data_dir) / "ports.lock"):
        if not path.exists():
            write_secret(path, secrets.token_hex(20))
    return path.read_text(encoding="ascii").strip()


@contextmanager
def locked(path: Path, *, blocking: bool = True) -> Iterator[IO[bytes]]:
    """Hold the lock at `path`, which the system gives back when this process ends.

    Raises:
        BlockingIOError: another process holds it, and `blocking` is false.
    """
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        yield lock


@contextmanager
def exclusive_lock(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock at `path` alone, which says that its holder lives.

    Raises:
        OperationFailed: another process holds it; `refusal` says what that means.
    """
    with ExitStack() as stack:

        def take() -> bool:
            try:
                stack.enter_context(locked(path, blocking=False))
            except BlockingIOError:
                return False
            return True

        if not wait_until(take, _LOOK_S):
            raise OperationFailed(reason=refusal)
        yield


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock at `path`."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write_secret(path: Path, secret: str) -> None:
    """Write a file that only the user can read, whole or not at all."""
    new = path.with_suffix(f".{os.getpid()}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(secret)
    new.replace(path)


def write_json(path: Path, document: object) -> None:
    """Write `document` so that a reader sees the old file or the new one, never half of it."""
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    new.replace(path)


def read_ports(data_dir: Path) -> dict[str, int]:
    """The port of each server that has run on this data folder, by name."""
    try:
        ports: dict[str, int] = json.loads((run_dir(data_dir) / "ports.json").read_text())
    except FileNotFoundError:
        return {}
    return ports


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
            "neo4j_user": NEO4J_USER,
            "neo4j_password_file": str(run_dir(self.data_dir) / _LOGIN_FILE),
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
    if not services_state(data_dir).exists():
        return None
    servers = live_servers(data_dir)
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
        settings |= {"neo4j_user": NEO4J_USER, "neo4j_password": password}
    for name in sorted(state.targets)[:1]:
        settings["neo4j_url"] = state.targets[name].url
    return settings


def live_servers(data_dir: Path) -> dict[str, ServerState]:
    """The recorded servers whose supervisor lives, by name; a killed server is being restarted."""
    rows = _read_servers(data_dir)
    supervisors = {row["supervisor"] for row in rows.values()}
    live = {name: is_locked(supervisor_lock(data_dir, name)) for name in supervisors}
    servers = {name: ServerState(**row) for name, row in rows.items() if live[row["supervisor"]]}
    return {name: row for name, row in servers.items() if is_alive(row.supervisor_pid)}


def services_state(data_dir: Path) -> Path:
    """The file that says which servers are held, and by whom."""
    return Path(data_dir).absolute() / "run" / "services.json"


def supervisor_lock(data_dir: Path, supervisor: str) -> Path:
    """The lock that a supervisor holds for as long as it lives."""
    return run_dir(data_dir) / f"supervisor-{supervisor}.lock"


def _read_servers(data_dir: Path) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(services_state(data_dir).read_text())
    except FileNotFoundError:
        return {}
    rows: dict[str, dict[str, Any]] = document["servers"]
    return rows


@contextmanager
def servers_file(data_dir: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """The rows of the state file, to be changed in place."""
    with locked(run_dir(data_dir) / "services.lock"):
        rows = _read_servers(data_dir)
        yield rows
        write_json(services_state(data_dir), {"servers": rows})


def read_holder(data_dir: Path) -> dict[str, Any] | None:
    """What the running holder holds; None when none does."""
    try:
        state: dict[str, Any] = json.loads(holder_state(data_dir).read_text())
    except FileNotFoundError:
        return None
    return state if is_alive(state["pid"]) and is_locked(holder_lock(data_dir)) else None


def holder_state(data_dir: Path) -> Path:
    """The file that says which workers are held, and where the API is."""
    return data_dir.absolute() / "run" / "processes.json"


def holder_lock(data_dir: Path) -> Path:
    """The lock that the detached holder of workers and API holds for as long as it lives."""
    return data_dir.absolute() / "run" / "processes.lock"


def api_key_path(data_dir: Path) -> Path:
    """File of an admin key for the API on this data folder, made when there is none yet."""
    path = run_dir(data_dir) / _API_KEY_FILE
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(24))
    return path
