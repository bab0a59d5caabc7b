"""A process that several of a user's processes share, from outside: found or started, and asked.

Whoever finds none makes the socket and starts one, under a lock, so that two never start two. A
socket that nobody listens on was left by a process that was killed; it is replaced. What such a
process does itself is in `shared_server`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

import orjson

from pipelines.local.data_folder import locked
from pipelines.local.private_files import keep_small, write_private
from pipelines.local.processes import log_tail, reap, spawn_detached
from pipelines.local.python_process import (
    ChildGone,
    ChildLate,
    at_first_priority,
    framed,
    python_environment,
    take_frame,
)
from pipelines.local.shared_server import lock_of, pid_of

_LAUNCHES: Final = 3
_BACKLOG: Final = 128
_BUSY_S: Final = 0.05
_LOG_LINES: Final = 5
_KEY_BYTES: Final = 32
_MAX_PATH_BYTES: Final = 100
"""Of a Unix socket; systems allow 104 to 108."""
_SHARED: Final = ("pipelines.local", "shared_server.py")

Source = tuple[str, str]
"""A file that a process runs: its package, and its name or a pattern of several."""


class ProcessUnavailable(Exception):
    """The process cannot be had; the message says why."""


class Connection:
    """One client's connection to a shared process.

    Args:
        client: connected.

    Attributes:
        pid: of the process, once greeted; else 0.
    """

    def __init__(self, client: socket.socket) -> None:
        self.pid = 0
        self._client = client
        self._received = bytearray()

    def greet(self, timeout_s: float) -> None:
        """Wait for the process to say hello.

        Raises:
            ChildLate: it did not in time.
            ChildGone: it ended, or is something else.
        """
        try:
            self.pid = pid_of(self.receive(timeout_s))
        except ValueError as error:
            raise ChildGone from error

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send one frame; answers to what was asked before must have been read.

        Raises:
            ChildGone: the process does not read any more.
        """
        try:
            self._client.settimeout(timeout_s)
            self._client.sendall(framed(data))
        except OSError as error:
            raise ChildGone from error

    def receive(self, timeout_s: float) -> bytes:
        """The next frame.

        Raises:
            ChildLate: it did not come in time; when it comes it must not be taken for the answer to
                the next question.
            ChildGone: it will not come.
        """
        deadline_s = time.monotonic() + timeout_s
        while (frame := take_frame(self._received)) is None:
            try:
                # Zero would mean not to wait at all, and to be told so in another way.
                self._client.settimeout(max(deadline_s - time.monotonic(), 1e-4))
                data = self._client.recv(1 << 18)
            except TimeoutError as error:
                raise ChildLate from error
            except OSError as error:
                raise ChildGone from error
            if not data:
                raise ChildGone
            self._received += data
        return frame

    def kill_process(self) -> None:
        """End a process that hangs; all its clients start another one."""
        # While it has this connection its number is no other process'.
        if self.pid and not self._is_ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _is_ended(self) -> bool:
        try:
            self._client.setblocking(False)
            return not self._client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up; who waits on another thread for an answer hears that it will not come."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()


Connected = TypeVar("Connected", bound=Connection)


class SharedProcess:
    """Where one shared process is, and how it is started.

    Args:
        program: its command line, to which descriptor, path and arguments are added.
        arguments: what it is told; with other arguments it is another process. Anybody on the
            machine can read them.
        sources: what it runs: one that an older installation started is another process.
        folder: of sockets; None: a private one among the temporary files.
        data_dir: the log is among those of `recollect up`, if it runs there, else beside the
            socket.
        log: its name.

    Attributes:
        path: of its socket.
        log: the file of what it prints.
    """

    def __init__(
        self,
        program: Sequence[str],
        arguments: Sequence[str],
        *,
        sources: tuple[Source, ...],
        folder: Path | None,
        data_dir: Path,
        log: str,
    ) -> None:
        digest = hashlib.blake2b(_program_digest(sources), digest_size=8)
        digest.update(orjson.dumps([*program, *arguments]))
        self._folder = socket_folder(folder)
        self.path = self._folder / f"{digest.hexdigest()}.sock"
        logs = data_dir.absolute() / "log"
        self.log = (logs if logs.is_dir() else self._folder) / log
        self._program = program
        self._arguments = (str(self.path), *arguments)

    def connect(self, kind: type[Connected], timeout_s: float) -> Connected:
        """A connection to the process, greeted; it is started if none runs.

        Args:
            kind: of the connection.
            timeout_s: for the process to get ready.

        Raises:
            ProcessUnavailable: it cannot be started.
        """
        for _ in range(_LAUNCHES):
            connection = kind(self.opened(timeout_s))
            try:
                connection.greet(timeout_s)
            except ChildGone as error:  # it ended just now, or while it was starting
                connection.close()
                if isinstance(error, ChildLate):
                    self.abandon()
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        reason = f"its process ended {_LAUNCHES} times while it was starting"
        raise ProcessUnavailable(f"{reason}: {self.last_words()}")

    def running(self, timeout_s: float) -> socket.socket | None:
        """A connection to the process; None: none runs.

        Args:
            timeout_s: for it to take those who came before.

        Raises:
            ProcessUnavailable: it cannot be reached.
        """
        make_socket_folder(self._folder)
        try:
            return self._connected(timeout_s)
        except OSError as error:
            raise ProcessUnavailable(f"its process cannot be reached ({error})") from error

    def opened(self, timeout_s: float) -> socket.socket:
        """A connection to the process, which may be starting.

        Args:
            timeout_s: for it to take those who came before.

        Raises:
            ProcessUnavailable: it cannot be started.
        """
        make_socket_folder(self._folder)
        try:
            return self._connected(timeout_s) or self._started(timeout_s)
        except OSError as error:
            raise ProcessUnavailable(f"its process cannot be started ({error})") from error

    def abandon(self) -> None:
        """Leave a process alone that does not say hello; without clients it ends, if it can."""
        with locked(lock_of(self.path)):
            self.path.unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of its log, on one line."""
        return " / ".join(log_tail(self.log, _LOG_LINES).splitlines())

    def _connected(self, timeout_s: float) -> socket.socket | None:
        """A connection; None: nobody listens."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                client.settimeout(timeout_s)
                client.connect(str(self.path))
            except BlockingIOError:  # others are before us; it takes one after the other
                client.close()
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_BUSY_S)
            except (FileNotFoundError, ConnectionRefusedError):
                client.close()
                return None
            except OSError:
                client.close()
                raise
            else:
                return client

    def _started(self, timeout_s: float) -> socket.socket:
        with locked(lock_of(self.path)):
            client = self._connected(timeout_s)  # another one may have started it meanwhile
            if client is not None:
                return client
            self.path.unlink(missing_ok=True)
            keep_small(self.log)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(self.path))
                listener.listen(_BACKLOG)
                # Before the process begins, so that it cannot have ended already.
                client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    client.connect(str(self.path))
                    self._start(listener.fileno())
                except BaseException:
                    client.close()
                    raise
            return client

    def _start(self, descriptor: int) -> None:
        command = [*self._program, str(descriptor), *self._arguments]
        # What it needs it is told; passwords and keys of others are nothing to it.
        environment = {
            name: value
            for name, value in python_environment().items()
            if not name.startswith("RECOLLECT_")
        }

        def start() -> None:
            reap(spawn_detached(command, self.log, environment, descriptors=(descriptor,)))

        # Questions are computed at its priority, which must not be a worker's.
        at_first_priority(start)


def socket_folder(given: Path | None) -> Path:
    """The folder of sockets: the one that is given, else a private one of the user.

    That is among the temporary files, or in /tmp where theirs has too long a path.
    """
    if given is not None:
        return given.absolute()
    folders = [Path(base, f"recollect-{os.geteuid()}") for base in (tempfile.gettempdir(), "/tmp")]  # noqa: S108  # 0700, its owner checked
    return next((folder.absolute() for folder in folders if _fits(folder)), folders[0])


def make_socket_folder(folder: Path) -> None:
    """Make sure that the folder of sockets is there, and that it is nobody else's.

    Raises:
        ProcessUnavailable: it is somebody else's, or its path is too long for a socket.
    """
    if not _fits(folder):
        raise ProcessUnavailable(f"the path {folder} is too long for a socket")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise ProcessUnavailable(f"{folder} is not a folder of this user")
        folder.chmod(0o700)
    except OSError as error:
        raise ProcessUnavailable(f"{folder}: {error.strerror}") from error


def folder_key(folder: Path) -> bytes:
    """A secret of the folder of sockets, made once: names that hold it tell nothing to others.

    Raises:
        ProcessUnavailable: see `make_socket_folder`.
    """
    make_socket_folder(folder)
    path = folder / "key"
    try:
        with locked(lock_of(path)):
            if not path.exists():
                write_private(path, secrets.token_hex(_KEY_BYTES))
            return bytes.fromhex(path.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise ProcessUnavailable(f"{path}: {error}") from error


def _fits(folder: Path) -> bool:
    socket_path = folder.absolute() / f"{'0' * 16}.sock"
    return len(os.fsencode(socket_path)) <= _MAX_PATH_BYTES


@cache
def _program_digest(sources: tuple[Source, ...]) -> bytes:
    """Of what a process would run."""
    digest = hashlib.blake2b(sys.prefix.encode(), digest_size=16)
    for package, pattern in (*sources, _SHARED):
        folder = Path(str(files(package)))
        for path in sorted(folder.rglob(pattern)):
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    return digest.digest()
