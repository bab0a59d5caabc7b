"""Questions to the columns of one graph, whoever holds them: another process, or this one."""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
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
    Question,
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
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable, QueryTimeout

STATE_TIMEOUT_MS: Final = 1_000
LATE: Final = "the columns did not answer"
_LOOK_MS: Final = 4_000
"""Whether a comparison has ended is asked for anew so often: who is silent for longer hangs."""
_IS_LOADING: Final = "the columns are being read from the graph"


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


class ColumnsDoor(ABC):
    """The columns of a graph, as threads may ask them side by side."""

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
        raise QueryTimeout(timeout_ms=timeout_ms, reason=LATE)

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

    @abstractmethod
    def close(self) -> None:
        """Ask no more."""

    @abstractmethod
    def _asked(
        self, question: Question, *, start: bool = True
    ) -> tuple[Any, list[Array], str | None]:
        """Answer, arrays and error; `start` whoever holds the columns, if nobody does."""


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
        fresh: see `ColumnsDoor.reads`.
    """

    def __init__(
        self, client: ColumnsDoor, scope: Scope, timeout_ms: int, *, fresh: bool = False
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
            raise QueryTimeout(timeout_ms=self._timeout_ms, reason=LATE)
        question = Question(self._fresh, left_ms, scope=self._scope, name=name, arguments=arguments)
        with metrics.COLUMNS_QUESTION_DURATION.labels(name).time():
            answer = self._client.ask(question)
        self._fresh = False  # what comes after knows as much
        return answer
