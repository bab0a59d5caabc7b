"""Questions to the columns of one graph, which one process of the machine holds for all.

Whoever asks first starts it (`service`, found as `pipelines.local.shared_process` says); one that
was killed is started again by the next question.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from pipelines.columns.access import LATE, ColumnsAccess, ledger_login
from pipelines.columns.records import Array
from pipelines.columns.wire import Login, Question, decoded
from pipelines.local.data_folder import columns_copy
from pipelines.local.python_process import ChildGone, ChildLate, python_command
from pipelines.local.shared_process import (
    Connection,
    ProcessUnavailable,
    SharedProcess,
    folder_key,
    socket_folder,
)
from pipelines.observe import logs
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable, QueryTimeout

COLUMNS_LINGER_S: Final = 10.0
"""The process lives on after its last client: to load it again takes long."""
COLUMNS_START_TIMEOUT_S: Final = 60.0
"""A process that has not said hello by then is given up."""
COLUMNS_HANG_S: Final = 10.0
_NEXT_START_S: Final = 5.0
"""After a process that cannot be started, until the next try."""
_ATTEMPTS_EACH: Final = 3
_MOST_IDLE: Final = 16
"""Connections that are kept while nobody uses them."""
_GONE: Final = "the columns cannot be asked"
_NOBODY: Final = "no process holds them now"
_PROGRAM: Final = python_command("pipelines.columns.service")
_SOURCES: Final = tuple(
    (package, "*.py")
    for package in (
        *("pipelines.columns", "pipelines.graph", "pipelines.ledger"),
        *("projections", "enrichment", "consolidation"),
    )
)

_log = logs.get_logger(__name__)


class _ColumnsConnection(Connection):
    """A connection that may not have been greeted yet."""

    opened_s = 0.0
    has_login = False


class ColumnsClient(ColumnsAccess):
    """The process that holds the columns of a graph, as threads may ask it side by side.

    Args:
        uri, database: of the graph.
        settings: with the name and the password for it, and the folder of sockets.
        program: its command line, to which descriptor, path and arguments are added.
        linger_s: it lives on after its last client.
        hang_s: it is ended when it was asked and answered nobody for so long.
    """

    def __init__(
        self,
        uri: str,
        database: str,
        settings: Settings,
        *,
        program: Sequence[str] = _PROGRAM,
        linger_s: float = COLUMNS_LINGER_S,
        hang_s: float = COLUMNS_HANG_S,
    ) -> None:
        secret = settings.neo4j_password
        password = None if secret is None else secret.get_secret_value()
        ledger = ledger_login(settings)
        self._login = Login(uri, database, settings.neo4j_user, password, ledger=ledger)
        self._settings = settings
        self._program = program
        self._linger_s = linger_s
        self._hang_s = hang_s
        self._guard = threading.Lock()
        self._process: SharedProcess | None = None
        self._idle: list[_ColumnsConnection] = []
        self._busy: set[_ColumnsConnection] = set()
        self._not_before_s = 0.0
        self._waited_s = 0.0
        self._noted_s = 0.0
        self._late: _ColumnsConnection | None = None
        """One that was not answered in time, by which a process that hangs is known."""
        self._closed = False
        self.pid: int | None = None
        """Of the process that was greeted last."""

    def close(self) -> None:
        """Hang up; the process ends when nobody else needs it."""
        with self._guard:
            self._closed = True
            left = [*self._idle, *self._busy, *filter(None, [self._late])]
            self._idle.clear()
        for connection in left:
            connection.close()

    def _asked(
        self, question: Question, *, start: bool = True
    ) -> tuple[Any, list[Array], str | None]:
        timeout_ms = question.timeout_ms
        until_s = time.monotonic() + timeout_ms / 1_000
        for _ in range(_ATTEMPTS_EACH):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            connection = self._taken(left_s, start=start)
            try:
                self._greet(connection, until_s)
                return decoded(self._answered(connection, question, until_s))
            except ChildLate:
                break
            except ChildGone:  # killed, most likely; so the others are gone, too
                self._hang_up_idle()
            finally:
                with self._guard:
                    self._busy.discard(connection)
        else:
            self._note_gone(connection)
            raise GraphUnavailable(reason=_GONE)
        raise QueryTimeout(timeout_ms=timeout_ms, reason=LATE)

    def _greet(self, connection: _ColumnsConnection, until_s: float) -> None:
        """Wait for hello, for what is left; one that comes later is of use to the next question."""
        if connection.pid:
            return
        begun_s = time.monotonic()
        try:
            connection.greet(max(0.0, until_s - begun_s))
        except ChildLate:
            self._note_silence(begun_s)
            if time.monotonic() - connection.opened_s < COLUMNS_START_TIMEOUT_S:
                self._give_back(connection)
            else:
                connection.close()
                self._found().abandon()
            raise
        except BaseException:
            connection.close()
            raise
        self.pid = connection.pid

    def _answered(
        self, connection: _ColumnsConnection, question: Question, until_s: float
    ) -> bytes:
        begun_s = time.monotonic()
        left_s = max(1e-3, until_s - begun_s)
        try:
            if not connection.has_login:
                copy = columns_copy(self._settings.data_dir, self._login.uri, self._login.database)
                login = self._login._replace(copy=None if copy is None else str(copy))
                connection.send(login.encode(), left_s)
                connection.has_login = True
            asked_ms = math.ceil(1_000 * left_s)
            connection.send(question._replace(timeout_ms=asked_ms).encode(), left_s)
            frame = connection.receive(max(0.0, until_s - time.monotonic()))
        except ChildLate:
            # What comes too late must not be taken for the next answer.
            self._put_aside(connection)
            self._note_silence(begun_s)
            raise
        except BaseException:
            connection.close()
            raise
        if self._late is not None:
            self._put_aside(None)
        self._waited_s = 0.0
        self._give_back(connection)
        return frame

    def _put_aside(self, connection: _ColumnsConnection | None) -> None:
        with self._guard:
            before, self._late = self._late, connection
        if before is not None:
            before.close()

    def _note_silence(self, begun_s: float) -> None:
        """A question was not answered in time: a process that answers nobody for long is ended."""
        with self._guard:
            now_s = time.monotonic()
            # Questions that wait side by side wait for the same.
            self._waited_s += now_s - max(begun_s, self._noted_s)
            self._noted_s = now_s
            late = self._late if self._waited_s > self._hang_s else None
            if late is not None:
                self._waited_s = 0.0
        if late is not None:
            _log.warning("columns hang and are ended", pid=late.pid)
            late.kill_process()
            self._hang_up_idle()

    def _taken(self, timeout_s: float, *, start: bool) -> _ColumnsConnection:
        """A connection that nobody uses, or a new one.

        Raises:
            GraphUnavailable: the process cannot be started, or must not.
        """
        with self._guard:
            if self._closed or time.monotonic() < self._not_before_s:
                raise GraphUnavailable(reason=_GONE)
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._opened(timeout_s, start=start)
        with self._guard:
            self._busy.add(connection)
        return connection

    def _opened(self, timeout_s: float, *, start: bool) -> _ColumnsConnection:
        try:
            process = self._found()
            client = process.opened(timeout_s) if start else process.running(timeout_s)
        except ProcessUnavailable as error:
            self._pause(str(error))
            raise GraphUnavailable(reason=_GONE) from error
        if client is None:
            raise GraphUnavailable(reason=_NOBODY)
        connection = _ColumnsConnection(client)
        connection.opened_s = time.monotonic()
        return connection

    def _found(self) -> SharedProcess:
        """Where the process is. Its path tells graph and login, and tells neither to anybody."""
        with self._guard:
            if self._process is None:
                folder = socket_folder(self._settings.model_process_dir)
                key = folder_key(folder)
                name = hashlib.blake2b(self._login.encode(), key=key, digest_size=16).hexdigest()
                self._process = SharedProcess(
                    self._program,
                    (str(self._linger_s), name),
                    sources=_SOURCES,
                    folder=folder,
                    data_dir=self._settings.data_dir,
                    log="columns.log",
                )
            return self._process

    def _note_gone(self, connection: _ColumnsConnection) -> None:
        """After the last try: a process that ends before it says hello is not tried at once."""
        if not connection.pid and self._process is not None and not self._closed:
            self._pause(f"its process ended while it was starting: {self._process.last_words()}")

    def _pause(self, reason: str) -> None:
        _log.warning("columns cannot be asked", reason=reason)
        self._not_before_s = time.monotonic() + _NEXT_START_S

    def _give_back(self, connection: _ColumnsConnection) -> None:
        with self._guard:
            if not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _hang_up_idle(self) -> None:
        with self._guard:
            left, self._idle = self._idle, []
        for connection in left:
            connection.close()
