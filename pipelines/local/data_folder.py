"""What the files of a data folder say: ports, passwords, and which processes run on it.

Whoever only wants to know where the services are loads this, and nothing that runs them. Each
holder of processes keeps a lock for as long as it lives, so a state file that a killed one left
behind is known to be stale, whoever has its process ids now.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from pipelines.local.private_files import (
    close_to_others,
    open_private,
    private_folder,
    write_json,
    write_private,
)
from pipelines.local.processes import is_alive, wait_until
from projections.errors import ConfigurationError, OperationFailed

NEO4J = "neo4j"
"""Every Neo4j of a data folder: they have one password. The name of its user, too."""
VALKEY = "valkey"
# One who only looks whether a lock is held holds it for an instant.
_LOOK_S = 2.0
_API_KEY_FILE = "api-key"
_NEO4J_FOLDER = "neo4j-"
_DERIVATIONS_FILE = "derivations.sqlite"
_COLUMNS_FOLDER = "columns"
_OURS = (
    *("run", "log", VALKEY, f"{_NEO4J_FOLDER}*", "faust", _COLUMNS_FOLDER),
    f"{_DERIVATIONS_FILE}*",
)
"""What Recollect writes directly in a data folder."""
_TARGET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def run_dir(data_dir: Path) -> Path:
    """Folder of locks, ports, state and passwords; readable by the user only.

    Raises:
        ConfigurationError: there cannot be such a folder.
    """
    folder = Path(data_dir).absolute()
    try:
        if not folder.exists():
            private_folder(folder)
        return private_folder(folder / "run")
    except OSError as error:
        raise ConfigurationError(reason=f"data_dir: {folder}: {error.strerror}") from None


def close_data_folder(data_dir: Path) -> None:
    """Leave nothing readable to others that was written before files were made private."""
    close_to_others(Path(data_dir).absolute(), _OURS)


def target_dir(data_dir: Path, name: str) -> Path:
    """Home folder of the target's Neo4j.

    Raises:
        OperationFailed: `name` cannot be part of a path.
    """
    if not _TARGET_NAME.fullmatch(name):
        raise OperationFailed(
            reason=f"a target's name is made of a-z, 0-9 and '-', at most 31 of them: {name!r}"
        )
    return Path(data_dir).absolute() / f"{_NEO4J_FOLDER}{name}"


def known_targets(data_dir: Path) -> list[str]:
    """Targets that have run on this data folder and were not dropped."""
    return sorted(name for name in read_ports(data_dir) if name != VALKEY)


def forget_target(data_dir: Path, name: str) -> None:
    """Forget that the target ever ran."""
    with locked(run_dir(data_dir) / "ports.lock"):
        ports = read_ports(data_dir)
        ports.pop(name, None)
        write_json(run_dir(data_dir) / "ports.json", ports)


def password_of(data_dir: Path, server: str) -> str | None:
    """Password of a server on this data folder, `NEO4J` or `VALKEY`; None: it asks for none."""
    try:
        return _password_file(data_dir, server).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def make_password(data_dir: Path, server: str) -> str:
    """The password of a server that does not run now, made when there is none yet."""
    with locked(run_dir(data_dir) / "ports.lock"):
        path = _password_file(data_dir, server)
        if not path.exists():
            write_private(path, secrets.token_hex(20))
    return path.read_text(encoding="ascii").strip()


def _password_file(data_dir: Path, server: str) -> Path:
    return Path(data_dir).absolute() / "run" / f"{server}-password"


@contextmanager
def locked(path: Path, *, blocking: bool = True) -> Iterator[IO[bytes]]:
    """Hold the lock at `path`, which the system gives back when this process ends.

    Raises:
        BlockingIOError: another process holds it, and `blocking` is false.
    """
    with open_private(path, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        yield lock


@contextmanager
def exclusive_lock(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock at `path` alone, which says that its holder lives, and who that is.

    Raises:
        OperationFailed: another process holds it; `refusal` says what that means.
    """
    with ExitStack() as stack:

        def take() -> bool:
            try:
                lock = stack.enter_context(locked(path, blocking=False))
            except BlockingIOError:
                return False
            lock.truncate(0)
            lock.write(b"%d" % os.getpid())
            lock.flush()
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


def lock_holder(path: Path) -> int | None:
    """The process that holds the lock of `exclusive_lock` at `path`; None: none does."""
    return int(path.read_bytes() or 0) or None if is_locked(path) else None


def read_ports(data_dir: Path) -> dict[str, int]:
    """The port of each server that has run on this data folder, by name."""
    try:
        ports: dict[str, int] = json.loads((run_dir(data_dir) / "ports.json").read_text())
    except FileNotFoundError:
        return {}
    return ports


@dataclass(frozen=True, slots=True)
class ServerState:
    """One server that is kept up.

    Attributes:
        url: where clients connect.
        pid: its process, or its last one; 0 before the first start.
        log: file of what it prints.
        supervisor: name of the supervisor that holds it.
        supervisor_pid: process of that supervisor.
        answers: whether it did when it was asked last; False while it starts.
    """

    url: str
    pid: int
    log: str
    supervisor: str
    supervisor_pid: int
    answers: bool = True


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
        """The state as a JSON document; of passwords only the files that hold them."""
        files: dict[str, str] = {}
        if password_of(self.data_dir, VALKEY) is not None:
            files["redis_password_file"] = str(_password_file(self.data_dir, VALKEY))
        if password_of(self.data_dir, NEO4J) is not None:
            files["neo4j_user"] = NEO4J
            files["neo4j_password_file"] = str(_password_file(self.data_dir, NEO4J))
        return {
            "data_dir": str(self.data_dir),
            "redis_url": self.redis_url,
            "neo4j_urls": self.neo4j_urls,
            **files,
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


def connection_settings(data_dir: Path, neo4j_url: str | None = None) -> dict[str, str]:
    """Settings that lead to what runs on `data_dir`, by their names in `Settings`; else empty.

    Args:
        data_dir: folder of everything.
        neo4j_url: the graph that was chosen already: the password is for the embedded ones only.
            None: the first target's by name, which is blue, unless it was dropped.
    """
    state = read_state(data_dir)
    if state is None:
        return {}
    settings = {"redis_url": state.redis_url, "derivations_url": derivations_url(data_dir)}
    urls = [state.neo4j_urls[name] for name in sorted(state.targets)]
    if urls and neo4j_url is None:
        settings["neo4j_url"] = urls[0]
    return settings | login_settings(
        redis_password=password_of(data_dir, VALKEY),
        neo4j_password=password_of(data_dir, NEO4J) if neo4j_url in (None, *urls) else None,
    )


def derivations_url(data_dir: Path) -> str:
    """Where the embedded services keep what models and rules made of events."""
    return f"sqlite://{quote(str(Path(data_dir).absolute() / _DERIVATIONS_FILE))}"


def columns_copy(data_dir: Path, uri: str, database: str) -> Path | None:
    """The file of the copy that columns keep of a graph; None: there is no such data folder."""
    folder = Path(data_dir).absolute()
    if not folder.is_dir():
        return None
    name = hashlib.blake2b(f"{uri} {database}".encode(), digest_size=8).hexdigest()
    return folder / _COLUMNS_FOLDER / f"{name}.sqlite"


def login_settings(redis_password: str | None, neo4j_password: str | None) -> dict[str, str]:
    """The settings of these passwords, by their names in `Settings`; None: there is none."""
    settings: dict[str, str] = {}
    if redis_password is not None:
        settings["redis_password"] = redis_password
    if neo4j_password is not None:
        settings |= {"neo4j_user": NEO4J, "neo4j_password": neo4j_password}
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


def companions_file(data_dir: Path) -> Path:
    """The file in which detached holders note how they are started again."""
    return run_dir(data_dir) / "companions.json"


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
        write_private(path, secrets.token_urlsafe(24))
    return path
