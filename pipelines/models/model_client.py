"""The embedder of the machine, from outside: found or started, asked, and started again.

One process holds the model for all processes of a user that want the same model (`model_process`,
`pipelines.local.shared_process`). `SharedEmbedder` is for texts that nobody waits for;
`QueryEmbedder` for queries, which never wait for long: what is not there within its time is
answered without (by keywords), and the process is looked for, or started, in the background.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Self

import orjson

from enrichment.ports import Embedder
from pipelines.local.python_process import ChildGone, ChildLate, python_command
from pipelines.local.shared_process import Connection, ProcessUnavailable, SharedProcess
from pipelines.models.installed import (
    DIMENSIONS,
    EMBEDDER_REVISION,
    MODEL_START_TIMEOUT_S,
    EmbedderChoice,
)
from pipelines.models.wire import (
    BEGUN,
    MAX_TEXTS,
    Question,
    bounded,
    raise_refusal,
    read_vector,
)
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable

LINGER_S: Final = 3.0
"""The process lives on after its last client, seconds."""
PROGRESS_TIMEOUT_S: Final = 60.0
"""For one text of a batch, at the lowest priority of a busy machine; then the process hangs."""
_TRIES: Final = 3
"""A text at which the process ended so often is given up."""
_MOST_LOSSES: Final = 20
"""Of the process in a row, at whatever text, until whoever asks is told to wait."""
_PROGRAM = python_command("pipelines.models.model_process")
_SOURCES: Final = tuple(
    ("pipelines.models", name)
    for name in ("embedder.py", "minilm.onnx", "minilm-int8.onnx", "model_process.py", "wire.py")
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

    def wait_until_begun(self, timeout_s: float) -> None:
        """Wait until a text that was asked for again is being computed.

        Raises:
            ModelFailed, ModelUnavailable: it was refused.
            ChildLate: it was not in time; the connection is of no more use.
            ChildGone: it will not be.
        """
        frame = self.receive(timeout_s)
        raise_refusal(frame)
        if frame != BEGUN:
            raise ChildGone

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
        model: its name.
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
        self.model = settings.embedding_model
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
                model=self.model,
                reason=str(error),
                fix="look at its log, or name a folder of your own (RECOLLECT_MODEL_PROCESS_DIR); "
                f"log: {self.log}",
            ) from error


class _Batch:
    """Texts whose vectors are computed.

    Attributes:
        vectors: of the first texts, as far as they came.
        losses: of the process since the last vector.
        ends: those of them after the text was begun.
        is_begun: the next text is known to be computed.
    """

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.vectors: list[bytes] = []
        self.losses = self.ends = 0
        self.is_begun = False

    def add(self, vector: bytes) -> None:
        self.vectors.append(vector)
        self.losses = self.ends = 0
        self.is_begun = False


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
        self.model: str = settings.embedding_model
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
                cannot be started, or ends again and again at texts of others.
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
        batch = _Batch(texts)
        while len(batch.vectors) < len(texts):
            try:
                self._ask(batch)
            except ChildGone as error:
                if isinstance(error, ChildLate) and self._connection is not None:
                    self._connection.kill_process()
                self._hang_up()
                self._count_loss(batch, error)
            except (ModelFailed, ModelUnavailable):
                raise
            except BaseException:
                self._hang_up()  # its answers would be taken for those to the next question
                raise
        return batch.vectors

    def _ask(self, batch: _Batch) -> None:
        """Add the vectors of the texts, as far as they come."""
        connection = self._connected()
        is_again = batch.losses > 0
        first = len(batch.vectors)
        texts = batch.texts[first : first + 1 if is_again else None]
        # Of this thread, on Linux: that of the worker, or of the command.
        nice = max(0, os.getpriority(os.PRIO_PROCESS, 0))
        connection.ask(Question(texts, nice, is_again=is_again), self._timeout_s)
        if is_again:
            connection.wait_until_begun(self._timeout_s)
            batch.is_begun = True
        for _ in texts:
            vector, seconds = connection.vector(self._timeout_s)
            batch.add(vector)
            metrics.MODEL_SECONDS.labels(model="embedding").inc(seconds)
            metrics.MODEL_TEXTS.labels(model="embedding").inc()

    def _count_loss(self, batch: _Batch, error: ChildGone) -> None:
        """The process is away; it is asked again for what is missing, if not too often.

        The texts of all clients are computed in turn, so it may have ended at somebody else's:
        a text is blamed only for what happened after it was begun.
        """
        batch.losses += 1
        batch.ends += batch.is_begun
        batch.is_begun = False
        if batch.ends == _TRIES:
            reason = f"its process ended {_TRIES} times at a text"
            raise ModelFailed(model=self.model, reason=reason) from error
        if batch.losses == _MOST_LOSSES:
            raise ModelUnavailable(
                model=self.model,
                reason=f"its process ended {_MOST_LOSSES} times in a row at texts of others",
                fix=f"look at its log: {self._host.log}",
            ) from error

    def _connected(self) -> ModelConnection:
        if self._connection is None:
            self._connection = self._host.connect()
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


MAX_QUERY_CHARACTERS: Final = 4_000
"""Of a query are read."""
PAUSE_S: Final = 30.0
"""After a process that did not get ready, until the next try."""
HANGS_S: Final = 10.0
"""A process that was waited for so long, and answered nothing meanwhile, is ended."""
_QUERY_TRIES: Final = 2
"""A process that is found dead is started again, and asked once more if there is time."""

_log = logs.get_logger(__name__)


class QueryEmbedder:
    """The embedder for one text at a time; the last ones are remembered.

    Safe for use by several threads, which take turns.

    Args:
        settings: which model, and how many vectors are remembered.
        host: where it is; None: as the settings say.
    """

    def __init__(self, settings: Settings, *, host: ModelHost | None = None) -> None:
        self._host = host or ModelHost(settings)
        self._most = settings.query_embedding_cache
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._guard = threading.RLock()
        self._turn = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._connection: ModelConnection | None = None
        self._connecting: threading.Thread | None = None
        self._not_before_s = 0.0
        self._closed = False
        self._waited_s = 0.0

    @property
    def pid(self) -> int | None:
        """Of the process, if it takes queries as far as is known."""
        connection = self._connection
        return None if connection is None else connection.pid

    def warm_up(self) -> None:
        """Have the process looked for, or started, without waiting for it."""
        with self._guard:
            if self._closed or self._connecting is not None or self._connection is not None:
                return
            if time.monotonic() < self._not_before_s:
                return
            self._connecting = threading.Thread(
                target=self._connect, name="find-model-process", daemon=True
            )
            self._connecting.start()

    def embed(self, text: str, *, timeout_ms: int) -> list[float] | None:
        """The vector of a text, of unit length, 384 long; None: not within the time.

        Args:
            text: cut after MAX_QUERY_CHARACTERS.
            timeout_ms: for waiting and computing together, at least 1.
        """
        text = text[:MAX_QUERY_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
        vector = self._remembered(text)
        if vector is None:
            vector = self._asked(text, time.monotonic() + timeout_ms / 1000)
            if vector is None:
                metrics.DEGRADED.labels(kind="query_embedding").inc()
                return None
            self._remember(text, vector)
        return array("f", vector).tolist()

    def close(self) -> None:
        """Hang up, waiting for nothing; the process ends when nobody else needs it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._hang_up()

    def _remembered(self, text: str) -> bytes | None:
        with self._guard:
            vector = self._known.get(text)
            if vector is not None:
                self._known.move_to_end(text)
        outcome = "miss" if vector is None else "hit"
        metrics.CACHE_LOOKUPS.labels(cache="query_embedding", outcome=outcome).inc()
        return vector

    def _remember(self, text: str, vector: bytes) -> None:
        with self._guard:
            self._known[text] = vector
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def _asked(self, text: str, deadline_s: float) -> bytes | None:
        if not self._turn.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            return None
        try:
            for _ in range(_QUERY_TRIES):
                connection = self._ready(deadline_s)
                if connection is None:
                    return None
                try:
                    return self._answer(connection, text, deadline_s)
                except ChildLate:
                    self._end_one_that_hangs(connection)
                    return None
                except ChildGone:
                    self._hang_up()
                except (ModelFailed, ModelUnavailable):
                    return None
            return None
        finally:
            self._turn.release()

    def _ready(self, deadline_s: float) -> ModelConnection | None:
        """A connection to the process; waits for one that is being made, and no longer."""
        self.warm_up()
        with self._changed:
            while self._connection is None:
                left_s = deadline_s - time.monotonic()
                if self._connecting is None or self._closed or left_s <= 0:
                    return None
                self._changed.wait(left_s)
            return self._connection

    def _answer(self, connection: ModelConnection, text: str, deadline_s: float) -> bytes:
        begun_s = time.monotonic()
        connection.ask(Question([text], is_urgent=True), max(deadline_s - begun_s, 1e-3))
        try:
            vector, _ = connection.vector(max(0.0, deadline_s - time.monotonic()))
        except ChildLate:
            self._waited_s += time.monotonic() - begun_s
            raise
        self._waited_s = 0.0
        return vector

    def _end_one_that_hangs(self, connection: ModelConnection) -> None:
        if self._waited_s > HANGS_S:
            connection.kill_process()
            self._waited_s = 0.0
        # What comes too late must not be taken for the next answer.
        self._hang_up()
        self.warm_up()

    def _connect(self) -> None:
        connection: ModelConnection | None = None
        reason = ""
        try:
            connection = self._host.connect()
        except ModelUnavailable as error:
            reason = str(error)
        with self._changed:
            self._connecting = None
            if connection is None:
                self._not_before_s = time.monotonic() + PAUSE_S
            elif not self._closed:
                self._connection, connection = connection, None
            self._changed.notify_all()
        if connection is not None:  # closed meanwhile
            connection.close()
        elif reason and not self._closed:
            _log.warning("queries go without embeddings", reason=reason)

    def _hang_up(self) -> None:
        with self._guard:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
