"""Queries to vectors by the model process of the machine, for whoever must not wait.

It never keeps a query waiting for long: what is not there within its time is answered without (by
keywords), and the process is looked for, or started, in the background.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import OrderedDict
from typing import Final

from pipelines.local.python_process import ChildGone, ChildLate
from pipelines.models.model_client import ModelConnection, ModelHost
from pipelines.models.wire import Question
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable

MAX_CHARACTERS: Final = 4_000
PAUSE_S: Final = 30.0
"""After a process that did not get ready, until the next try."""
HANGS_S: Final = 10.0
"""A process that was waited for so long, and answered nothing meanwhile, is ended."""
_TRIES: Final = 2
"""A process that is found dead is started again, and asked once more if there is time."""

_log = logs.get_logger(__name__)


class QueryEmbedder:
    """all-MiniLM-L6-v2 for one text at a time; the last ones are remembered.

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
            text: cut after MAX_CHARACTERS.
            timeout_ms: for waiting and computing together, at least 1.
        """
        text = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
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
            for _ in range(_TRIES):
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
