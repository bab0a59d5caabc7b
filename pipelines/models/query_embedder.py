"""Queries to vectors by a model in a process beside this one, for whoever must load no model.

It never keeps a query waiting for long: what is not there within its time is answered without (by
keywords), and the process is started, or started again, in the background.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import orjson

from pipelines.local.python_process import ChildGone, ChildLate, FramedChild, python_command
from pipelines.models.installed import MODEL_START_TIMEOUT_S
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings

MAX_CHARACTERS: Final = 4_000
PAUSE_S: Final = 30.0
"""After a process that did not get ready, until the next try."""
HANGS_S: Final = 10.0
"""A process that has not answered for so long is ended."""
MAX_OWED: Final = 8
"""Answers that were given up and are still to come; from then on nothing more is asked."""

_PROGRAM = python_command("pipelines.models.embedder")

_log = logs.get_logger(__name__)


class QueryEmbedder:
    """all-MiniLM-L6-v2 for one text at a time; the last ones are remembered.

    Safe for use by several threads, which take turns.

    Args:
        settings: which model, and how many vectors are remembered.
        program: command line of the process, to which the model's settings are added.
    """

    def __init__(self, settings: Settings, *, program: Sequence[str] = _PROGRAM) -> None:
        folder = settings.embedding_folder
        chosen = {
            "embedding_backend": settings.embedding_backend,
            "embedding_folder": None if folder is None else str(folder),
            "embedding_threads": settings.embedding_threads,
        }
        self._command = (*program, orjson.dumps(chosen).decode())
        self._most = settings.query_embedding_cache
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._guard = threading.RLock()
        self._turn = threading.Lock()
        self._child: FramedChild | None = None
        self._starting: threading.Thread | None = None
        self._ready = False
        self._changed = threading.Condition(self._guard)
        self._not_before_s = 0.0
        self._closed = False
        self._number = 0
        self._owed = 0
        self._answered_at_s = 0.0

    @property
    def pid(self) -> int | None:
        """Of the process, if one runs."""
        child = self._child
        return None if child is None else child.pid

    def warm_up(self) -> None:
        """Have the process started, without waiting for it."""
        with self._guard:
            if self._closed or self._starting is not None or self._ready:
                return
            if time.monotonic() < self._not_before_s:
                return
            self._starting = threading.Thread(
                target=self._start, name="start-query-encoder", daemon=True
            )
            self._starting.start()

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
        """End the process."""
        with self._guard:
            self._closed = True
            starting = self._starting
        if starting is not None:
            self._end()  # whoever waits for it to get ready hears that it is gone
            starting.join()
        self._end()

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
        self.warm_up()
        if not self._is_ready(deadline_s):
            return None
        if not self._turn.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            return None
        try:
            return self._answer(text, deadline_s)
        except ChildLate:
            if time.monotonic() - self._answered_at_s > HANGS_S:
                self._restart()
            return None
        except ChildGone:
            self._restart()
            return None
        finally:
            self._turn.release()

    def _is_ready(self, deadline_s: float) -> bool:
        """Whether the process takes texts; waits for one that is being started, and no longer."""
        with self._changed:
            while not self._ready:
                left_s = deadline_s - time.monotonic()
                if self._starting is None or left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def _answer(self, text: str, deadline_s: float) -> bytes | None:
        child = self._child
        if child is None:
            return None
        if not self._owed:
            self._answered_at_s = time.monotonic()
        sent = self._owed < MAX_OWED
        if sent:
            self._number = (self._number + 1) % 2**32
            child.send(self._number.to_bytes(4, "little") + text.encode())
            self._owed += 1
        # Answers that came too late for their own query come first.
        while self._owed:
            frame = child.receive(max(0.0, deadline_s - time.monotonic()))
            self._owed -= 1
            self._answered_at_s = time.monotonic()
            if sent and frame[:4] == self._number.to_bytes(4, "little"):
                return frame[4:] or None
        return None

    def _restart(self) -> None:
        self._end()
        self.warm_up()

    def _start(self) -> None:
        child = FramedChild(self._command)
        with self._guard:
            self._child = child
            closed = self._closed
        reason = "closed"
        if not closed:
            try:
                reason = child.wait_ready(MODEL_START_TIMEOUT_S)
            except ChildGone:
                reason = "its process ended, or did not get ready"
        with self._changed:
            self._starting = None
            self._ready = not reason and not self._closed
            self._changed.notify_all()
            if self._ready:
                return
            self._not_before_s = time.monotonic() + PAUSE_S
        self._end()
        if not self._closed:
            _log.warning("queries go without embeddings", reason=reason)

    def _end(self) -> None:
        with self._guard:
            child, self._child = self._child, None
            self._ready = False
            self._owed = 0
        if child is not None:
            child.end()
