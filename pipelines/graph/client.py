"""The one client of Neo4j: sessions, time limits, errors, reads, and parameters that do not print.

Time limits follow one rule. A question has its limit (the client's, or what is left of a read's
deadline), which the server enforces; a transaction has one for all of its statements; a stream,
which lasts as long as its reader takes, has that of a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import neo4j
import structlog
from neo4j.exceptions import ClientError, DatabaseError, DriverError, Neo4jError

from pipelines.graph.questions import COUNTS, HOLD_CHECKPOINTS, READ_CHECKPOINTS, counts_of
from pipelines.graph.reader import (
    DeadLetter,
    Deadline,
    GraphRead,
    GraphReader,
    LettersAsked,
    node_columns,
)
from pipelines.graph.rows import Counts
from pipelines.work.settings import Settings
from projections.errors import (
    ConfigurationError,
    GraphError,
    GraphRejected,
    GraphUnavailable,
    QueryTimeout,
    TransactionTimeout,
    was_interrupted,
)
from projections.identity import Position
from projections.operations import Checkpoint
from projections.schema import DEAD_LETTER, DROPPED

DRIVER_ERRORS = (Neo4jError, DriverError, OSError)
"""Everything that the driver raises."""

_TIMED_OUT = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.TransientError.Transaction.TransactionTimedOut",
)
_STOPPED_WAITING = (
    "Neo.ClientError.Transaction.LockClientStopped",
    "Neo.TransientError.Transaction.LockClientStopped",
)
"""For a lock, at the limit."""
_CLIENT_ERRORS_OF_THE_SERVER = (
    "Neo.ClientError.Security.",
    "Neo.ClientError.Database.",
    "Neo.ClientError.Cluster.",
    "Neo.ClientError.Transaction.",
    "Neo.ClientError.Statement.EntityNotFound",  # deleted between being found and being written
    "Neo.ClientError.General.ForbiddenOnReadOnlyDatabase",
    "Neo.ClientError.General.ReadOnly",
    "Neo.ClientError.General.TransactionOutOfMemory",
    "Neo.ClientError.General.UpgradeRequired",
)
"""They are about the state of the server, whatever their class is called."""
_DATABASE_ERRORS_OF_THE_CALLER = ("Property value is too large to index",)
"""By their text: Neo4j has no code for them but Statement.ExecutionFailed, which is anything."""


def graph_error(error: Exception, timeout_ms: int | None = None) -> GraphError:
    """The error of our tree for one of `DRIVER_ERRORS`; the original should stay its cause.

    Args:
        error: what the driver raised.
        timeout_ms: limit of the question that failed; None: it was a transaction that writes.

    Returns:
        TransactionTimeout or QueryTimeout: the database ended it at its limit.
        GraphRejected: the database refuses what was sent, now and later.
        GraphUnavailable: anything else; every DatabaseError that is not known to be the caller's.
    """
    code = getattr(error, "code", None) or type(error).__name__
    message = (getattr(error, "message", None) or str(error)).partition("\n")[0][:300]
    reason = f"{code}: {message}"
    if timeout_ms is not None and code.startswith((*_TIMED_OUT, *_STOPPED_WAITING)):
        return QueryTimeout(timeout_ms=timeout_ms, reason=code)
    if code.startswith(_TIMED_OUT):
        return TransactionTimeout(reason=reason)
    if _is_of_the_caller(error, code, message):
        return GraphRejected(reason=reason)
    # Why a question could not be answered is shown to clients: no address, nothing of the inside.
    return GraphUnavailable(reason=reason if timeout_ms is None else code)


def _is_of_the_caller(error: Exception, code: str, message: str) -> bool:
    if isinstance(error, DatabaseError):
        return message.startswith(_DATABASE_ERRORS_OF_THE_CALLER)
    return isinstance(error, ClientError) and not code.startswith(_CLIENT_ERRORS_OF_THE_SERVER)


@contextmanager
def driver_errors(timeout_ms: int | None = None) -> Iterator[None]:
    """Turn what the driver raises into errors of ours.

    Args:
        timeout_ms: see `graph_error`.

    Raises:
        GraphUnavailable, TransactionTimeout, QueryTimeout, GraphRejected: see `graph_error`.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        if was_interrupted(error):  # nobody may take it for a fault that passes
            raise KeyboardInterrupt from error
        raise graph_error(error, timeout_ms) from error


Result = TypeVar("Result")

STREAM_TIMEOUT_S = 24 * 3_600.0
FETCH_ROWS = 5_000
"""Rows of a stream in memory at once."""

SERVER_VERSION = (
    "CALL dbms.components() YIELD name, versions WITH name, versions WHERE name = 'Neo4j Kernel' "
    "RETURN versions[0] AS version"
)

_ATTEMPTS = 2
"""A pooled connection to a server that has restarted fails once; the second try is a new one."""
_LOGGED = 200
"""Characters of a question that are logged; values are parameters."""

logger = structlog.get_logger(__name__)


def planned_once(text: str) -> str:
    """The text with its first plan for good, until the schema changes.

    A graph that grows from nothing makes Neo4j plan everything anew again and again, 50 to 200 ms
    a text and seconds the longest; where every step goes through a named index, or all is read
    anyway, no plan gets better. The text may say by itself of which version of Cypher it is.
    """
    return f"CYPHER replan=skip {text}"


class ClientTransaction:
    """One open transaction; made by `GraphClient.transaction`."""

    def __init__(self, transaction: neo4j.Transaction) -> None:
        self._transaction = transaction

    def run(self, text: str, parameters: Mapping[str, Any]) -> neo4j.Result:
        """Run a statement, planned once."""
        return self._transaction.run(planned_once(text), log_safe(parameters))

    def rollback(self) -> None:
        """End it; nothing of it stays."""
        self._transaction.rollback()


class GraphClient:
    """Asks one database of one Neo4j, and writes to it; threads may share it.

    Args:
        driver: stays open when the client is done with.
        database: name of the database.
        timeout_s: of one question, and of one transaction.
    """

    def __init__(
        self, driver: neo4j.Driver, database: str = "neo4j", *, timeout_s: float = 60.0
    ) -> None:
        self.driver = driver
        self.database = database
        self.timeout_s = timeout_s
        self._searches_within_tenants: bool | None = None

    # -- reading -----------------------------------------------------------------------------------

    def ask(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        """All rows of an answer.

        Raises:
            GraphUnavailable: Neo4j is away, or the question took longer than its limit.
            GraphRejected: Neo4j refuses the question.
        """

        def rows(session: neo4j.Session, remaining_s: float) -> list[neo4j.Record]:
            return limited_rows(session, text, parameters, remaining_s)

        return self.attempt(rows, time.monotonic() + self.timeout_s)

    def attempt(
        self,
        work: Callable[[neo4j.Session, float], Result],
        deadline_s: float,
        *,
        timeout_ms: int | None = None,
    ) -> Result:
        """Run a read, once more if its connection was stale and there is time.

        Args:
            work: gets a session for reading, and how many seconds are left.
            deadline_s: on the monotonic clock.
            timeout_ms: what errors tell a client who has set the deadline; None: nobody has.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            remaining_s = deadline_s - time.monotonic()
            if timeout_ms is not None and remaining_s <= 0:
                raise QueryTimeout(timeout_ms=timeout_ms, reason="no time left")
            try:
                with self._session(neo4j.READ_ACCESS, timeout_ms) as session:
                    return work(session, remaining_s)
            except TransactionTimeout:
                raise
            except GraphError as error:
                if attempt == _ATTEMPTS or not error.retryable:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def stream(
        self, text: str, fetch_size: int = FETCH_ROWS, **parameters: Any
    ) -> Iterator[neo4j.Record]:
        """The rows of an answer, so many of them in memory at once."""
        query = neo4j.Query(planned_once(text), timeout=STREAM_TIMEOUT_S)
        try:
            with self._session(neo4j.READ_ACCESS, fetch_size=fetch_size) as session:
                yield from session.run(query, log_safe(parameters))
        except GraphUnavailable:
            logger.warning("a stream broke off", question=" ".join(text.split())[:_LOGGED])
            raise

    def searches_within_tenants(self) -> bool:
        """Whether the vector index can be searched within a tenant (Neo4j 2026, not 5.26)."""
        if self._searches_within_tenants is None:
            (row,) = self.ask(SERVER_VERSION)
            self._searches_within_tenants = not str(row["version"]).startswith("5.")
        return self._searches_within_tenants

    # -- writing -----------------------------------------------------------------------------------

    def write(
        self, text: str, timeout_s: float | None = None, /, **parameters: Any
    ) -> list[neo4j.Record]:
        """Run a statement that commits by itself, without a limit of its own: schema, clearing."""
        with self._session(neo4j.WRITE_ACCESS) as session:
            query = neo4j.Query(planned_once(text), timeout=timeout_s)
            return list(session.run(query, log_safe(parameters)))

    def settle(
        self, stage: str, partitions: Iterable[int], *, timeout_ms: int | None = None
    ) -> None:
        """Return once all can be read that these checkpoints have told; see `Graph.settle`.

        Args:
            stage: of the checkpoints.
            partitions: likewise.
            timeout_ms: its limit, which errors tell; None: the client's.
        """
        limit_s = self.timeout_s if timeout_ms is None else timeout_ms / 1000
        query = neo4j.Query(planned_once(HOLD_CHECKPOINTS), timeout=limit_s)
        held = {"stage": stage, "partitions": sorted(set(partitions))}
        with self._session(neo4j.WRITE_ACCESS, timeout_ms) as session:
            session.run(query, log_safe(held)).consume()

    @contextmanager
    def transaction(self, timeout_s: float | None = None) -> Iterator[ClientTransaction]:
        """One transaction: committed when the body ends, rolled back when it raises or says so.

        Args:
            timeout_s: its limit; None: the client's.
        """
        with (
            self._session(neo4j.WRITE_ACCESS) as session,
            session.begin_transaction(timeout=timeout_s or self.timeout_s) as transaction,
        ):
            yield ClientTransaction(transaction)
            if not transaction.closed():
                transaction.commit()

    @contextmanager
    def _session(
        self, access: str, timeout_ms: int | None = None, **options: Any
    ) -> Iterator[neo4j.Session]:
        with (
            driver_errors(timeout_ms),
            self.driver.session(
                database=self.database,
                default_access_mode=access,
                # a label that no node has yet is no news
                notifications_min_severity=neo4j.NotificationMinimumSeverity.OFF,
                **options,
            ) as session,
        ):
            yield session


def limited_rows(
    session: neo4j.Session, text: str, parameters: Mapping[str, Any], remaining_s: float
) -> list[neo4j.Record]:
    """All rows of an answer, planned once, which the server ends after so many seconds."""
    # 0 would mean no limit at all
    query = neo4j.Query(planned_once(text), timeout=max(0.001, remaining_s))
    return list(session.run(query, log_safe(parameters)))


# -- parameters ------------------------------------------------------------------------------------


_DEAD_LETTERS = f"""
MATCH (d:{DEAD_LETTER.label})
WHERE ($stage IS NULL OR d.stage = $stage) AND ($tenant IS NULL OR d.tenant = $tenant)
  AND ($partition IS NULL OR d.partition = $partition) AND ($seq IS NULL OR d.seq = $seq)
RETURN {node_columns("d", DEAD_LETTER)} AS node
ORDER BY d.stage, d.partition, d.seq SKIP $skip LIMIT $limit
"""
_DEAD_LETTER_COUNTS = f"""
MATCH (d:{DEAD_LETTER.label}) WHERE d.kind <> '{DROPPED}'
RETURN d.stage AS stage, count(d) AS number
"""


def checkpoint_of(row: Mapping[str, Any] | neo4j.Record) -> Checkpoint:
    """A checkpoint, from a row of `READ_CHECKPOINTS`, or of what else tells of one alike."""
    return Checkpoint(
        stage=row["stage"],
        partition=row["partition"],
        position=Position.parse(row["position"]),
        seq=row["seq"],
        digest=row["digest"],
        generation=row["generation"],
        fold_version=row["fold_version"],
        models=row["models"],
    )


class Neo4jRead(GraphRead):
    """Questions that Neo4j answers.

    Each is a transaction of its own: Neo4j reads what is committed when it looks, so that one
    around several would see no more of a whole, and would cost two round trips more.
    """

    def __init__(self, session: neo4j.Session, deadline: Deadline) -> None:
        self._session = session
        self._deadline = deadline

    def rows(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        """See `GraphRead`."""
        # The server ends a query at its limit, but looks only now and then: no new one is begun.
        return limited_rows(self._session, text, parameters, self._deadline.remaining_s())

    def counts(self) -> Counts:
        """See `GraphRead`."""
        return counts_of(self.rows(COUNTS))

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """See `GraphRead`."""
        return [checkpoint_of(row) for row in self.rows(READ_CHECKPOINTS, stage=stage)]

    def dead_letters(self, wanted: LettersAsked) -> list[DeadLetter]:
        """See `GraphRead`."""
        rows = self.rows(_DEAD_LETTERS, **wanted._asdict())
        return [DeadLetter(*(row["node"][name] for name in DeadLetter._fields)) for row in rows]

    def dead_letter_counts(self) -> dict[str, int]:
        """See `GraphRead`."""
        return {row["stage"]: row["number"] for row in self.rows(_DEAD_LETTER_COUNTS)}


class Neo4jReader(GraphClient, GraphReader):
    """Reads one database of one Neo4j, which ends what takes longer than its limit."""

    def read(self, work: Callable[[GraphRead], Result], *, timeout_ms: int) -> Result:
        """See `GraphReader`."""
        deadline = Deadline(timeout_ms)
        return self.attempt(
            lambda session, _: work(Neo4jRead(session, deadline)),
            deadline.until_s,
            timeout_ms=timeout_ms,
        )


class _List(list[Any]):
    def __repr__(self) -> str:
        return f"[{len(self)} items]"


class _Map(dict[str, Any]):
    def __repr__(self) -> str:
        return f"{{{len(self)} items}}"


def log_safe(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The same parameters; lists and maps print how many items they hold.

    The driver prints all parameters of a statement for a log message, whether anybody reads it or
    not; of vectors and rows that takes longer than sending them.
    """
    return {name: _log_safe(value) for name, value in parameters.items()}


def _log_safe(value: Any) -> Any:
    if isinstance(value, list):
        return _List(value)
    return _Map(value) if isinstance(value, dict) else value


GraphDriver = neo4j.Driver
"""For modules that hold a connection and never speak its protocol."""

_GRAPH_SCHEMES = ("bolt://", "bolt+s", "neo4j://", "neo4j+s")


def connect_neo4j(uri: str, settings: Settings) -> neo4j.Driver:
    """A driver of a target's server; connects when first used.

    Raises:
        ConfigurationError: the URI is none that the driver knows.
    """
    if not uri.startswith(_GRAPH_SCHEMES):
        raise ConfigurationError(reason="neo4j_url: begins with bolt or neo4j")
    secret = settings.neo4j_password
    auth = None if secret is None else (settings.neo4j_user, secret.get_secret_value())
    try:
        return neo4j.GraphDatabase.driver(
            uri,
            auth=auth,
            connection_timeout=5.0,
            connection_acquisition_timeout=30.0,
            user_agent="recollect",
            # Neo4j warns of every property that no node has yet, with the whole query
            notifications_min_severity="OFF",
        )
    except (ValueError, neo4j.exceptions.ConfigurationError) as error:
        raise ConfigurationError(reason=f"neo4j_url: {type(error).__name__}") from None
