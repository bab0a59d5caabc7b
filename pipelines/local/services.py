"""Valkey and one Neo4j per target, started and stopped together inside this process."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pipelines.local.jars import fetch_neo4j
from pipelines.local.neo4j_server import USER, Neo4jServer
from pipelines.local.processes import ServerProcess, free_port
from pipelines.local.valkey_server import ValkeyServer
from projections.errors import OperationFailed

VALKEY = "valkey"
DEFAULT_TARGETS = ("blue",)
_PORT_PATIENCE_S = 3.0
_LOGIN_FILE = "neo4j-password"
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
    return sorted(name for name in _read_ports(data_dir) if name != VALKEY)


def forget_target(data_dir: Path, name: str) -> None:
    """Forget that the target ever ran."""
    with locked(run_dir(data_dir) / "ports.lock"):
        ports = _read_ports(data_dir)
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
            new = path.with_suffix(".new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
                out.write(secrets.token_hex(20))
            new.replace(path)
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


def write_json(path: Path, document: object) -> None:
    """Write `document` so that a reader sees the old file or the new one, never half of it."""
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    new.replace(path)


def _read_ports(data_dir: Path) -> dict[str, int]:
    try:
        ports: dict[str, int] = json.loads((run_dir(data_dir) / "ports.json").read_text())
    except FileNotFoundError:
        return {}
    return ports


def _ports(data_dir: Path, names: Sequence[str]) -> dict[str, int]:
    """A port for each name: the one it had before if that is free."""
    with locked(run_dir(data_dir) / "ports.lock"):
        ports = _read_ports(data_dir)
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
            settings |= {"neo4j_user": USER, "neo4j_password": self.password}
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _on_each(self, action: Callable[[ServerProcess], None]) -> None:
        servers = list(self.servers.values())
        if not servers:
            return
        with ThreadPoolExecutor(len(servers)) as pool:
            futures = [pool.submit(action, server) for server in servers]
        for future in futures:
            future.result()
