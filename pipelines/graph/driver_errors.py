"""The one map from what the driver raises to errors of ours, for whoever reads or writes.

What matters is whose fault it is. The server's (away, overloaded, broken, still starting) passes:
the same call may succeed later, and no entry is ever blamed for it. The caller's does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from neo4j.exceptions import ClientError, DatabaseError, DriverError, Neo4jError

from projections.errors import (
    GraphError,
    GraphRejected,
    GraphUnavailable,
    QueryTimeout,
    TransactionTimeout,
)

DRIVER_ERRORS = (Neo4jError, DriverError, OSError)
"""Everything that the driver raises."""

_TIMED_OUT = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.TransientError.Transaction.TransactionTimedOut",
)
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
    if code.startswith(_TIMED_OUT):
        if timeout_ms is None:
            return TransactionTimeout(reason=reason)
        return QueryTimeout(timeout_ms=timeout_ms, reason=code)
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
        raise graph_error(error, timeout_ms) from error
