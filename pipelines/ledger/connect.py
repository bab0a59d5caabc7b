"""Redis: connections, and what a failure means.

Passwords stay out of URLs and of `repr`. A call is tried again only where it may safely be done
twice: reads, and the append script, which knows events it has seen. The client itself never repeats
a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import redis
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.retry import Retry
from redis.sentinel import Sentinel
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential,
    wait_random,
)

from pipelines.work.settings import Settings
from projections.errors import (
    ClockAhead,
    ConfigurationError,
    LedgerError,
    LedgerUnavailable,
)

RedisClient = redis.Redis
"""For modules that hold a connection and never speak its protocol."""

SENTINEL_SCHEME = "redis+sentinel"
_SENTINEL_PORT = 26_379
_HEALTH_CHECK_S = 15


def connect_redis(settings: Settings) -> redis.Redis:
    """A connection pool of the ledger's server; connects when first used.

    `redis://`, `rediss://` and `unix://` name a server, `redis+sentinel://h:p,h:p/MASTER/DB`
    asks the Sentinels on every new connection which one is master.

    redis-py 8 repeats commands after a time-out by default. That is switched off: only who knows
    that a command may be done twice repeats it (`call_patiently`).

    Raises:
        ConfigurationError: the URL is none of these.
    """
    parts = urlsplit(settings.redis_url)
    password = settings.redis_password.get_secret_value() if settings.redis_password else None
    username = parts.username
    if password is None:
        password = parts.password
    credentials = (
        UsernamePasswordCredentialProvider(username, password) if password is not None else None
    )
    options: dict[str, Any] = {
        "credential_provider": credentials,
        "socket_timeout": settings.redis_timeout_s,
        "socket_connect_timeout": settings.redis_timeout_s,
        "socket_keepalive": True,
        "health_check_interval": _HEALTH_CHECK_S,
        "retry": Retry(NoBackoff(), 0),
    }
    try:
        if parts.scheme != SENTINEL_SCHEME:
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            return redis.Redis.from_url(bare, **options)
        hosts = sentinel_hosts(parts.netloc)
        master, _, database = parts.path.strip("/").partition("/")
        if not master:
            raise ValueError("the name of the master is missing")
        asking = {name: value for name, value in options.items() if name != "credential_provider"}
        sentinel: Any = Sentinel(hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]  # redis-py
        client: redis.Redis = sentinel.master_for(master, db=int(database or 0), **options)
        return client
    except ValueError as error:
        # Never the URL itself: it may hold a password.
        raise ConfigurationError(reason=f"redis_url: {error}") from None


def sentinel_hosts(netloc: str) -> list[tuple[str, int]]:
    """Address and port of each Sentinel that the middle of a URL names.

    Raises:
        ValueError: a port is no number.
    """
    parts = [text.rpartition(":") for text in netloc.rpartition("@")[2].split(",")]
    return [(host or port, int(port) if host else _SENTINEL_PORT) for host, _, port in parts]


PATIENCE_S = 5.0
"""How long a call goes on trying. A restart of Valkey takes about a second, a failover by
Sentinel tens of seconds: that long no request should hang, its sender tries again."""

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 0.5
# Replies of a server that is not ready to serve, or not the master any more.
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "BUSY")
_CLOCK_AHEAD = "CLOCKAHEAD "
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
    if text.startswith(_CLOCK_AHEAD):
        seconds = int(text.removeprefix(_CLOCK_AHEAD)) / 1000
        return ClockAhead(seconds=seconds, reason="the clocks differ")
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


_TELL: Final = """#!lua flags=allow-oom
for i = 1, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
"""


def tell(client: RedisClient, key: str, told: Mapping[str, str | bytes]) -> None:
    """Set fields of a hash, when Redis is full, too: few bytes, which no command may fail for.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    caller: Any = client  # its types say bytes or str; undecoded replies are bytes
    words = [word for pair in told.items() for word in pair]
    call_patiently(lambda: caller.eval(_TELL, 1, key, *words))


def require_answer(settings: Settings, within_s: float = 0.8) -> None:
    """Ask whether the server is there: a person should hear within seconds that it is not.

    Raises:
        LedgerUnavailable: it is not.
    """
    limit_s = min(within_s, settings.redis_timeout_s)
    client = connect_redis(settings.model_copy(update={"redis_timeout_s": limit_s}))
    try:
        call_patiently(client.ping, patience_s=within_s)
    finally:
        client.close()
