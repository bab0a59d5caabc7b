"""What a failure of Redis means to a caller, and how long to try again.

Only for what may safely be done twice: reads, and the append script, which knows events it has
seen. The client itself never repeats a command (`connect.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis import exceptions as redis_errors
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential,
    wait_random,
)

from projections.errors import LedgerError, LedgerUnavailable

PATIENCE_S = 5.0
"""How long a call goes on trying. A restart of Valkey takes about a second, a failover by
Sentinel tens of seconds: that long no request should hang, its sender tries again."""

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 0.5
# Replies of a server that is not ready to serve, or not the master any more.
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "BUSY")
_FULL = "Redis has reached maxmemory; see the runbook on ledger memory"

Result = TypeVar("Result")


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed in a moment."""
    if isinstance(error, redis_errors.AuthenticationError):
        return False
    if isinstance(error, redis_errors.BusyLoadingError | redis_errors.ReadOnlyError):
        return True
    if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError):
        return True
    return isinstance(error, redis_errors.ResponseError) and str(error).startswith(_PASSING)


def is_not_admitted(error: BaseException) -> bool:
    """Whether the server process is not the one that was admitted last."""
    return isinstance(error, redis_errors.NoScriptError) or (
        isinstance(error, redis_errors.ResponseError) and str(error).startswith("NOTADMITTED")
    )


def ledger_error(error: redis_errors.RedisError) -> LedgerError:
    """The error of the tree that tells a caller what to do; names no password and no payload."""
    text = str(error)
    if isinstance(error, redis_errors.OutOfMemoryError) or text.startswith("OOM"):
        return LedgerUnavailable(reason=_FULL)
    if text.startswith("MISCONF"):
        return LedgerUnavailable(reason="Redis cannot persist and refuses writes (MISCONF)")
    if is_not_admitted(error):
        return LedgerUnavailable(reason="the server process changes faster than it is admitted")
    if is_passing(error) or isinstance(error, redis_errors.ConnectionError):
        return LedgerUnavailable(reason=f"{type(error).__name__}: {text[:200]}")
    return LedgerError(reason=f"{type(error).__name__}: {text[:200]}")


def call_patiently(
    function: Callable[[], Result],
    *,
    patience_s: float = PATIENCE_S,
    retry_on: Callable[[BaseException], bool] = is_passing,
) -> Result:
    """Call, and again with growing pauses while the failure is a passing one.

    Raises:
        LedgerUnavailable: Redis is still away after `patience_s` seconds.
        LedgerError: Redis refuses the command.
    """
    try:
        return function()  # the common case pays nothing for the retrying
    except redis_errors.RedisError as error:
        if not retry_on(error):
            raise ledger_error(error) from error
    try:
        return Retrying(
            retry=retry_if_exception(retry_on),
            stop=stop_after_delay(patience_s),
            wait=wait_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S) + wait_random(0, _FIRST_WAIT_S),
            reraise=True,
        )(function)
    except redis_errors.RedisError as error:
        raise ledger_error(error) from error
