"""Questions to the columns of one graph, whoever holds them: another process, or this one."""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Set, ValuesView
from typing import Any, Final, NamedTuple

from pipelines.columns.reads import ColumnReads
from pipelines.columns.records import Array, Finding
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


class ColumnsAccess(ABC):
    """The columns of a graph, as threads may ask them side by side."""

    def reads(self, scope: Scope, timeout_ms: int, *, fresh: bool = False) -> RemoteReads:
        """The questions of a viewer.

        Args:
            scope: who looks, and as of when.
            timeout_ms: of all of them, from now on.
            fresh: they know what was committed before the first of them was asked, unless that
                takes longer than half of its time.
        """
        return RemoteReads(self, scope, timeout_ms, fresh=fresh)  # type: ignore[abstract]  # below

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
    """The questions of `ColumnReads`, each asked of whoever holds the columns by its name.

    Args:
        client: asks it.
        scope: who looks, and as of when.
        timeout_ms: of all of them, from now on.
        fresh: see `ColumnsAccess.reads`.
    """

    def __init__(
        self, client: ColumnsAccess, scope: Scope, timeout_ms: int, *, fresh: bool = False
    ) -> None:
        self._client = client
        self._scope = scope
        self._timeout_ms = timeout_ms
        self._until_s = time.monotonic() + timeout_ms / 1_000
        self._fresh = fresh

    def _ask(self, name: str, *arguments: Any) -> Any:
        if name in _NONE_OF_NONE and not arguments[0]:
            return []
        left_ms = math.ceil(1_000 * (self._until_s - time.monotonic()))
        if left_ms <= 0:
            raise QueryTimeout(timeout_ms=self._timeout_ms, reason=LATE)
        question = Question(self._fresh, left_ms, scope=self._scope, name=name, arguments=arguments)
        with metrics.COLUMNS_QUESTION_DURATION.labels(name).time():
            answer = self._client.ask(question)
        self._fresh = False  # what comes after knows as much
        return answer


_NONE_OF_NONE: Final = frozenset(("found_by_name", "found_by_id", "same_as"))
"""Questions about some of a kind: of none there is nothing to ask."""


def _asking(name: str) -> Callable[..., Any]:
    def ask(reads: RemoteReads, *arguments: Any) -> Any:
        return reads._ask(name, *map(_whole, arguments))

    return ask


def _whole(argument: Any) -> Any:
    """What can be sent: a list of what is only run through, a dict of any mapping."""
    if isinstance(argument, Mapping):
        return dict(argument)
    return list(argument) if isinstance(argument, (Iterator, Set, ValuesView)) else argument


for _name in ANSWERS:
    setattr(RemoteReads, _name, _asking(_name))
