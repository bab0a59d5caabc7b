"""The embedder of the machine, from outside: found or started, asked, and started again.

One process holds the model for all processes of a user that want the same model (`model_process`).
Whoever finds none makes the socket and starts one, under a lock, so that two never start two. A
socket that nobody listens on was left by a process that was killed; it is replaced.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

import orjson

from enrichment.ports import Embedder
from pipelines.local.data_folder import locked
from pipelines.local.processes import log_tail, reap, spawn_detached
from pipelines.local.python_process import (
    ChildGone,
    ChildLate,
    at_first_priority,
    framed,
    python_command,
    python_environment,
    take_frame,
)
from pipelines.local.rotation import keep_small
from pipelines.models.installed import (
    DIMENSIONS,
    EMBEDDER,
    EMBEDDER_REVISION,
    MODEL_START_TIMEOUT_S,
    EmbedderChoice,
)
from pipelines.models.wire import (
    MAX_TEXTS,
    Question,
    bounded,
    lock_of,
    pid_of,
    raise_refusal,
    read_vector,
)
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable

LINGER_S: Final = 3.0
"""The process lives on after its last client, seconds."""
PROGRESS_TIMEOUT_S: Final = 60.0
"""For one text of a batch, at the lowest priority of a busy machine; then the process hangs."""
_TRIES: Final = 3
_BACKLOG: Final = 128
_BUSY_S: Final = 0.05
_LOG_LINES: Final = 5
_MAX_PATH_BYTES: Final = 100
"""Of a Unix socket; systems allow 104 to 108."""
_PROGRAM = python_command("pipelines.models.model_process")
_PROGRAM_FILES = ("embedder.py", "minilm.onnx", "model_process.py", "wire.py")


class ModelConnection:
    """One client's connection to the model process.

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
        """Wait for the process to say hello and to have loaded the model.

        Raises:
            ModelUnavailable: it is not installed, or its files are damaged.
            ChildLate: it did not in time.
            ChildGone: it ended, or is something else.
        """
        try:
            self.pid = pid_of(self.receive(timeout_s))
        except ValueError as error:
            raise ChildGone from error
        self.send(Question([]), timeout_s)
        raise_refusal(self.receive(timeout_s))

    def send(self, question: Question, timeout_s: float) -> None:
        """Ask; answers to what was asked before must have been read.

        Raises:
            ChildGone: the process does not read any more.
        """
        try:
            self._client.settimeout(timeout_s)
            self._client.sendall(framed(question.encode()))
        except OSError as error:
            raise ChildGone from error

    def receive(self, timeout_s: float) -> bytes:
        """The next answer.

        Raises:
            ChildLate: it did not come in time; the connection is of no more use.
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

    def vector(self, timeout_s: float) -> tuple[bytes, float]:
        """The next answer: a vector, and the seconds that it took to compute.

        Raises:
            ModelFailed, ModelUnavailable: it was refused, and what was asked with it.
            ChildLate: it did not come in time; the connection is of no more use.
            ChildGone: it will not come.
        """
        try:
            return read_vector(self.receive(timeout_s))
        except ValueError as error:
            raise ChildGone from error

    def kill_process(self) -> None:
        """End a process that hangs; all its clients start another one."""
        # While it has this connection its number is no other process'.
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Hang up; who waits on another thread for an answer hears that it will not come."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()


class ModelHost:
    """Where the model process of one choice of model is, and how it is started.

    Args:
        settings: which model, and the folder of sockets.
        program: its command line, to which descriptor, path, seconds and choice are added.
        linger_s: it lives on after its last client.

    Attributes:
        path: of its socket.
        log: what it prints: among the logs of `recollect up`, else beside the socket.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        program: Sequence[str] = _PROGRAM,
        linger_s: float = LINGER_S,
    ) -> None:
        choice = orjson.dumps(EmbedderChoice.from_settings(settings)).decode()
        name = f"{_digest((*program, str(linger_s), choice))}.sock"
        self._folder = (settings.model_process_dir or _own_folder(name)).absolute()
        self.path = self._folder / name
        logs = settings.data_dir.absolute() / "log"
        self.log = (logs if logs.is_dir() else self._folder) / "models.log"
        self._program = program
        self._arguments = (str(self.path), str(linger_s), choice)

    def connect(self) -> ModelConnection:
        """A connection to the process, which is started if none runs; its model is loaded.

        Raises:
            ModelUnavailable: it is not installed, its files are damaged, or the process cannot be
                started.
        """
        self._make_folder()
        for _ in range(_TRIES):
            try:
                client = self._connected() or self._started()
            except OSError as error:
                raise self._unavailable(f"its process cannot be started ({error})") from error
            connection = ModelConnection(client)
            try:
                connection.greet(MODEL_START_TIMEOUT_S)
            except ChildGone as error:  # it ended just now, or while it was starting
                connection.close()
                if isinstance(error, ChildLate):
                    self._abandon()
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        tail = " / ".join(log_tail(self.log, _LOG_LINES).splitlines())
        raise self._unavailable(f"its process ended {_TRIES} times while it was starting: {tail}")

    def _connected(self) -> socket.socket | None:
        """A connection; None: nobody listens."""
        deadline_s = time.monotonic() + MODEL_START_TIMEOUT_S
        while True:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                client.settimeout(MODEL_START_TIMEOUT_S)
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

    def _started(self) -> socket.socket:
        with locked(lock_of(self.path)):
            client = self._connected()  # another one may have started it meanwhile
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
        # Passwords and keys are nothing to it.
        environment = {
            name: value
            for name, value in python_environment().items()
            if not name.startswith("RECOLLECT_")
        }

        def start() -> None:
            reap(spawn_detached(command, self.log, environment, descriptors=(descriptor,)))

        # Questions are computed at its priority, which must not be a worker's.
        at_first_priority(start)

    def _abandon(self) -> None:
        """Leave a process alone that does not say hello; without clients it ends, if it can."""
        with locked(lock_of(self.path)):
            self.path.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        """Make sure that the folder of sockets is there, and that it is nobody else's.

        Raises:
            ModelUnavailable: it is somebody else's, or its path is too long for a socket.
        """
        if not _fits(self.path):
            raise self._unavailable(f"the path {self._folder} is too long for a socket")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = self._folder.lstat()
            if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid():
                raise self._unavailable(f"{self._folder} is not a folder of this user")
            self._folder.chmod(0o700)
        except OSError as error:
            raise self._unavailable(f"{self._folder}: {error.strerror}") from error

    def _unavailable(self, reason: str) -> ModelUnavailable:
        return ModelUnavailable(
            model=EMBEDDER,
            reason=reason,
            fix="look at its log, or name a folder of your own (RECOLLECT_MODEL_PROCESS_DIR); "
            f"log: {self.log}",
        )


def _own_folder(name: str) -> Path:
    """The user's folder among the temporary files; in /tmp where theirs has too long a path."""
    folders = [Path(base, f"recollect-{os.geteuid()}") for base in (tempfile.gettempdir(), "/tmp")]  # noqa: S108  # 0700, its owner checked
    return next((one for one in folders if _fits(one / name)), folders[0])


def _fits(path: Path) -> bool:
    return len(os.fsencode(path.absolute())) <= _MAX_PATH_BYTES


@cache
def _program_digest() -> bytes:
    """Of what the process would run: one that an older installation started is another one."""
    digest = hashlib.blake2b(sys.prefix.encode(), digest_size=16)
    for name in _PROGRAM_FILES:
        digest.update(files("pipelines.models").joinpath(name).read_bytes())
    return digest.digest()


def _digest(parts: Sequence[str]) -> str:
    digest = hashlib.blake2b(_program_digest(), digest_size=8)
    digest.update(orjson.dumps(parts))
    return digest.hexdigest()


class SharedEmbedder(Embedder):
    """The embedder of the machine, for texts that nobody waits for; a context manager.

    Safe for use by several threads, which take turns. The process is started when first used, and
    again after it ended; what was asked is then asked again.

    Args:
        settings: which model.
        host: where it is; None: as the settings say.
        timeout_s: for one text; a process that takes longer hangs, and is ended.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        host: ModelHost | None = None,
        timeout_s: float = PROGRESS_TIMEOUT_S,
    ) -> None:
        self.model: str = EMBEDDER
        self.revision: str = EMBEDDER_REVISION
        self.dimensions: int = DIMENSIONS
        self._host = host or ModelHost(settings)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: ModelConnection | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, as far as is known; None: it was not needed yet."""
        connection = self._connection
        return None if connection is None else connection.pid

    def load(self) -> None:
        """Have the process started and the model loaded.

        Raises:
            ModelUnavailable: it is not installed, its files are damaged, or it cannot be started.
        """
        with self._lock:
            self._connected()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text: little-endian float32, 384 long.

        A text is cut after 256 tokens; an empty one has a vector too. A vector depends on its text
        alone.

        Raises:
            ModelUnavailable: the model is not installed, its files are damaged, or its process
                cannot be started.
            ModelFailed: the runtime gave up, or the process ended at one of the texts three times.
        """
        vectors: list[bytes] = []
        wanted = [bounded(text) for text in texts]
        with self._lock:
            for first in range(0, len(wanted), MAX_TEXTS):
                vectors += self._computed(wanted[first : first + MAX_TEXTS])
        return vectors

    def close(self) -> None:
        """Hang up; the process ends when nobody else needs it."""
        with self._lock:
            self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _computed(self, texts: list[str]) -> list[bytes]:
        vectors: list[bytes] = []
        losses = 0
        while len(vectors) < len(texts):
            before = len(vectors)
            try:
                self._ask(texts[before:], vectors)
            except ChildGone as error:
                if isinstance(error, ChildLate) and self._connection is not None:
                    self._connection.kill_process()
                self._hang_up()
                losses = losses + 1 if len(vectors) == before else 1
                if losses == _TRIES:
                    reason = f"its process ended {_TRIES} times at a text"
                    raise ModelFailed(model=self.model, reason=reason) from error
            except (ModelFailed, ModelUnavailable):
                raise
            except BaseException:
                self._hang_up()  # its answers would be taken for those to the next question
                raise
        return vectors

    def _ask(self, texts: list[str], vectors: list[bytes]) -> None:
        """Add the vectors of the texts, as far as they come."""
        connection = self._connected()
        # Of this thread, on Linux: that of the worker, or of the command.
        nice = max(0, os.getpriority(os.PRIO_PROCESS, 0))
        connection.send(Question(texts, nice), self._timeout_s)
        for _ in texts:
            vector, seconds = connection.vector(self._timeout_s)
            vectors.append(vector)
            metrics.MODEL_SECONDS.labels(model="embedding").inc(seconds)
            metrics.MODEL_TEXTS.labels(model="embedding").inc()

    def _connected(self) -> ModelConnection:
        if self._connection is None:
            self._connection = self._host.connect()
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
