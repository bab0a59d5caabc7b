"""Questions to the columns of one graph, which one process of the machine holds for all.

Whoever asks first starts it (`service`, found as `pipelines.local.shared_process` says); one that
was killed is started again by the next question.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pipelines.columns.reads import (
    Beside,
    ColumnReads,
    Mentions,
    SessionAsked,
    SessionList,
    SessionPage,
    SessionsAsked,
    Wanted,
)
from pipelines.columns.records import (
    Array,
    Finding,
    ListAsked,
    Listed,
    OpenAsked,
    OpenThings,
    Standings,
    Steps,
    Stories,
    StoriesAsked,
)
from pipelines.columns.wire import (
    ANSWERS,
    FINDING,
    LOADING,
    STATE,
    VERIFY,
    LedgerLogin,
    Login,
    Question,
    decoded,
)
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import (
    EntityName,
    EntitySurroundings,
    Hits,
    Least,
    SessionCandidates,
    Signalled,
)
from pipelines.local.data_folder import columns_copy
from pipelines.local.python_process import ChildGone, ChildLate, python_command
from pipelines.local.shared_process import (
    Connection,
    ProcessUnavailable,
    SharedProcess,
    folder_key,
    socket_folder,
)
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable, QueryTimeout

COLUMNS_LINGER_S: Final = 10.0
"""The process lives on after its last client: to load it again takes long."""
COLUMNS_START_TIMEOUT_S: Final = 60.0
"""A process that has not said hello by then is given up."""
COLUMNS_HANG_S: Final = 10.0
STATE_TIMEOUT_MS: Final = 1_000
_LOOK_MS: Final = 4_000
"""Whether a comparison has ended is asked for anew so often: who is silent for longer hangs."""
_NEXT_START_S: Final = 5.0
"""After a process that cannot be started, until the next try."""
_ATTEMPTS_EACH: Final = 3
_MOST_IDLE: Final = 16
"""Connections that are kept while nobody uses them."""
_LATE: Final = "the columns did not answer"
_IS_LOADING: Final = "the columns are being read from the graph"
_GONE: Final = "the columns cannot be asked"
_NOBODY: Final = "no process holds them now"
_PROGRAM: Final = python_command("pipelines.columns.service")
_SOURCES: Final = tuple(
    (package, "*.py")
    for package in (
        *("pipelines.columns", "pipelines.graph", "pipelines.ledger"),
        *("projections", "enrichment"),
    )
)

_log = logs.get_logger(__name__)


class ColumnsState(NamedTuple):
    """How the columns of a graph are.

    Attributes:
        is_loaded: they hold a whole graph; False: they are being loaded, or nobody holds them.
        events: that they hold, of all tenants.
        memory_bytes: of the process.
        behind_s: since the last look at the graph that succeeded; since the start before one did.
        reason: why the last look did not, or why there is no process; empty when all is well.
        pending: events beside those, which were accepted and are not in the graph yet.
        tail_reason: why the last look at the ledger's tail did not succeed; empty when it did.
    """

    is_loaded: bool
    events: int
    memory_bytes: int
    behind_s: float = 0.0
    reason: str = ""
    pending: int = 0
    tail_reason: str = ""


class _ColumnsConnection(Connection):
    """A connection that may not have been greeted yet."""

    opened_s = 0.0
    has_login = False


class ColumnsClient:
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

    def reads(self, scope: Scope, timeout_ms: int, *, fresh: bool = False) -> RemoteReads:
        """The questions of a viewer.

        Args:
            scope: who looks, and as of when.
            timeout_ms: of all of them, from now on.
            fresh: they know what was committed before the first of them was asked, unless that
                takes longer than half of its time.
        """
        return RemoteReads(self, scope, timeout_ms, fresh=fresh)

    def ask(self, question: Question) -> Any:
        """The answer to a question.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: there is no such process, or it has not read the graph yet.
        """
        answer, arrays, error = self._asked(question)
        _refuse(error)
        return ANSWERS[question.name].unpack(answer, arrays)

    def verify(self, timeout_ms: int, *, mend: bool = False) -> Finding:
        """Compare the columns with their graph; the process is started if none runs.

        Args:
            timeout_ms: of all of it, which reads the whole graph.
            mend: put what differs right.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: there is no such process, or the graph is away.
        """
        until_s, ticket = time.monotonic() + timeout_ms / 1_000, secrets.token_hex(8)
        while (left_ms := math.ceil(1_000 * (until_s - time.monotonic()))) > 0:
            look_ms = min(_LOOK_MS, left_ms)
            try:
                answer, arrays, error = self._asked(
                    Question(False, look_ms, None, VERIFY, arguments=(ticket, mend))
                )
            except QueryTimeout:  # it is busy, or starting, or will be ended
                continue
            _refuse(error)
            finding: Finding | None = FINDING.unpack(answer, arrays)
            if finding is not None:
                return finding
        raise QueryTimeout(timeout_ms=timeout_ms, reason=_LATE)

    def state(self, timeout_ms: int = STATE_TIMEOUT_MS, *, start: bool = True) -> ColumnsState:
        """How the columns are.

        Args:
            timeout_ms: of the question.
            start: the process if none runs.
        """
        try:
            answer, _, _ = self._asked(Question(False, timeout_ms, None, STATE), start=start)
        except (GraphUnavailable, QueryTimeout) as error:
            state = ColumnsState(is_loaded=False, events=0, memory_bytes=0, reason=error.reason)
        else:
            state = ColumnsState(**answer)
        metrics.COLUMNS_EVENTS.set(state.events)
        metrics.COLUMNS_MEMORY.set(state.memory_bytes)
        metrics.COLUMNS_BEHIND.set(state.behind_s)
        return state

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
        raise QueryTimeout(timeout_ms=timeout_ms, reason=_LATE)

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


def _refuse(error: str | None) -> None:
    """Raise what the process could not answer for.

    Raises:
        GraphUnavailable: there is something.
    """
    if error is not None:
        raise GraphUnavailable(reason=_IS_LOADING if error == LOADING else error)


def ledger_login(settings: Settings) -> LedgerLogin:
    """The way into the ledger of the settings."""
    secret = settings.redis_password
    password = None if secret is None else secret.get_secret_value()
    return LedgerLogin(settings.redis_url, password, settings.prefix)


class RemoteReads(ColumnReads):
    """The questions, asked of the process.

    Args:
        client: asks it.
        scope: who looks, and as of when.
        timeout_ms: of all of them, from now on.
        fresh: see `ColumnsClient.reads`.
    """

    def __init__(
        self, client: ColumnsClient, scope: Scope, timeout_ms: int, *, fresh: bool = False
    ) -> None:
        self._client = client
        self._scope = scope
        self._timeout_ms = timeout_ms
        self._until_s = time.monotonic() + timeout_ms / 1_000
        self._fresh = fresh

    def session(self, session_id: str, names: Sequence[str]) -> SessionAsked:
        """The last events of a session, and which of canonical names somebody acts under."""
        answer: SessionAsked = self._ask("session", session_id, names)
        return answer

    def session_user(self, session_id: str) -> str | None:
        """The user of a session, by its last events, whoever looks; None: they are of nobody."""
        answer: str | None = self._ask("session_user", session_id)
        return answer

    def sessions(self, wanted: SessionsAsked) -> SessionList:
        """The sessions in which the viewer sees something, the newest first."""
        answer: SessionList = self._ask("sessions", wanted)
        return answer

    def session_page(
        self, session_id: str, behind: tuple[int, str] | None, limit: int
    ) -> SessionPage:
        """The events of a session in order, behind (time, event id)."""
        answer: SessionPage = self._ask("session_page", session_id, behind, limit)
        return answer

    def session_candidates(self, session_id: str, limit: int) -> SessionCandidates:
        """What of a session may be in its context."""
        answer: SessionCandidates = self._ask("session_candidates", session_id, limit)
        return answer

    def text_hits(self, stems: Sequence[str], limit: int) -> Hits:
        """Events whose text holds the stems, the best first, and those kept from the viewer."""
        answer: Hits = self._ask("text_hits", stems, limit)
        return answer

    def vector_hits(self, vector: Sequence[float], limit: int) -> Hits:
        """The nearest events by plain cosine, the nearest first; see `text_hits`."""
        answer: Hits = self._ask("vector_hits", vector, limit)
        return answer

    def standings(self, wanted: Wanted) -> Standings:
        """Events that the viewer sees."""
        answer: Standings = self._ask("standings", wanted)
        return answer

    def last_ms(self, until_ms: int) -> int | None:
        """When the newest event before a moment occurred."""
        answer: int | None = self._ask("last_ms", until_ms)
        return answer

    def listed(self, question: ListAsked) -> Listed:
        """See `ColumnReads`."""
        answer: Listed = self._ask("listed", question)
        return answer

    def open_things(self, question: OpenAsked) -> OpenThings:
        """What was opened and is not known to be closed."""
        answer: OpenThings = self._ask("open_things", question)
        return answer

    def stories(self, question: StoriesAsked) -> Stories:
        """The stories that a question may be answered from."""
        answer: Stories = self._ask("stories", question)
        return answer

    def pending(self, event_ids: Sequence[str]) -> list[str]:
        """Those of some events that are not in the graph yet."""
        answer: list[str] = self._ask("pending", event_ids)
        return answer

    def vectors(self, event_ids: Sequence[str]) -> Array:
        """Vectors of unit length, a row an event; zeros of one that has none or is not seen."""
        answer: Array = self._ask("vectors", event_ids)
        return answer

    def steps(self, node_ids: Iterable[str], caps: Mapping[str, int]) -> Steps:
        """The edges around some nodes, at most `caps` of each type at each, the best of them."""
        answer: Steps = self._ask("steps", list(node_ids), dict(caps))
        return answer

    def beside(self, start: Beside, least: Least) -> list[Signalled]:
        """Events nobody asked for, the most telling first."""
        answer: list[Signalled] = self._ask("beside", start, least)
        return answer

    def found(self, words: Sequence[str], names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities by the words of their names, then by a canonical name; each once."""
        answer: list[EntityName] = self._ask("found", words, names, limit)
        return answer

    def found_by_name(self, names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities with one of the canonical names."""
        answer: list[EntityName] = self._ask("found_by_name", names, limit) if names else []
        return answer

    def found_by_id(self, ids: Sequence[str]) -> list[EntityName]:
        """Entities of the ids."""
        answer: list[EntityName] = self._ask("found_by_id", ids) if ids else []
        return answer

    def found_near(self, vector: Sequence[float], limit: int) -> list[tuple[EntityName, float]]:
        """Entities with the nearest names, and the plain cosine, the nearest first."""
        answer: list[tuple[EntityName, float]] = self._ask("found_near", vector, limit)
        return answer

    def same_as(self, ids: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs that were found to be the same, from the ids on as far as five steps lead."""
        starts = list(ids)
        answer: list[tuple[str, str]] = self._ask("same_as", starts) if starts else []
        return answer

    def mentioned(self, ids: Iterable[str]) -> dict[str, int]:
        """How many events that the viewer sees mention an entity that it knows, by id."""
        answer: dict[str, int] = self._ask("mentioned", list(ids))
        return answer

    def mentions(self, ids: Iterable[str], before: tuple[int, str], limit: int) -> Mentions:
        """The newest events that mention any of the entities, behind (time, event id)."""
        answer: Mentions = self._ask("mentions", list(ids), before, limit)
        return answer

    def newest_mentions(self, ids: Iterable[str], limit: int) -> dict[str, list[str]]:
        """Ids of the newest events that mention an entity, by its id."""
        answer: dict[str, list[str]] = self._ask("newest_mentions", list(ids), limit)
        return answer

    def surroundings(self, ids: Iterable[str]) -> dict[str, EntitySurroundings]:
        """How an entity stands in the graph of facts, by id."""
        answer: dict[str, EntitySurroundings] = self._ask("surroundings", list(ids))
        return answer

    def _ask(self, name: str, *arguments: Any) -> Any:
        left_ms = math.ceil(1_000 * (self._until_s - time.monotonic()))
        if left_ms <= 0:
            raise QueryTimeout(timeout_ms=self._timeout_ms, reason=_LATE)
        question = Question(self._fresh, left_ms, scope=self._scope, name=name, arguments=arguments)
        with metrics.COLUMNS_QUESTION_DURATION.labels(name).time():
            answer = self._client.ask(question)
        self._fresh = False  # what comes after knows as much
        return answer
