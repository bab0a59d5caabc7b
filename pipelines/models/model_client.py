"""The embedder of the machine, from outside: found or started, asked, and started again.

One process holds the model for all processes of a user that want the same model (`model_process`,
`pipelines.local.shared_process`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final, Self

import orjson

from enrichment.ports import Embedder
from pipelines.local.python_process import ChildGone, ChildLate, python_command
from pipelines.local.shared_process import Connection, ProcessUnavailable, SharedProcess
from pipelines.models.installed import (
    DIMENSIONS,
    EMBEDDER,
    EMBEDDER_REVISION,
    MODEL_START_TIMEOUT_S,
    EmbedderChoice,
)
from pipelines.models.wire import MAX_TEXTS, Question, bounded, raise_refusal, read_vector
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable

LINGER_S: Final = 3.0
"""The process lives on after its last client, seconds."""
PROGRESS_TIMEOUT_S: Final = 60.0
"""For one text of a batch, at the lowest priority of a busy machine; then the process hangs."""
_TRIES: Final = 3
_PROGRAM = python_command("pipelines.models.model_process")
_SOURCES: Final = tuple(
    ("pipelines.models", name)
    for name in ("embedder.py", "minilm.onnx", "model_process.py", "wire.py")
)


class ModelConnection(Connection):
    """One client's connection to the model process."""

    def greet(self, timeout_s: float) -> None:
        """Wait for the process to say hello and to have loaded the model.

        Raises:
            ModelUnavailable: it is not installed, or its files are damaged.
            ChildLate: it did not in time.
            ChildGone: it ended, or is something else.
        """
        super().greet(timeout_s)
        self.ask(Question([]), timeout_s)
        raise_refusal(self.receive(timeout_s))

    def ask(self, question: Question, timeout_s: float) -> None:
        """Ask; answers to what was asked before must have been read.

        Raises:
            ChildGone: the process does not read any more.
        """
        self.send(question.encode(), timeout_s)

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
        self._process = SharedProcess(
            program,
            (str(linger_s), choice),
            sources=_SOURCES,
            folder=settings.model_process_dir,
            data_dir=settings.data_dir,
            log="models.log",
        )
        self.path = self._process.path
        self.log = self._process.log

    def connect(self) -> ModelConnection:
        """A connection to the process, which is started if none runs; its model is loaded.

        Raises:
            ModelUnavailable: it is not installed, its files are damaged, or the process cannot be
                started.
        """
        try:
            return self._process.connect(ModelConnection, MODEL_START_TIMEOUT_S)
        except ProcessUnavailable as error:
            raise ModelUnavailable(
                model=EMBEDDER,
                reason=str(error),
                fix="look at its log, or name a folder of your own (RECOLLECT_MODEL_PROCESS_DIR); "
                f"log: {self.log}",
            ) from error


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
        connection.ask(Question(texts, nice), self._timeout_s)
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
