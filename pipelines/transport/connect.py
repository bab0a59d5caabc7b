"""Asyncio connections to the ledger's Redis, standalone or through Sentinel."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from pipelines.settings import Settings

_SENTINEL = "redis+sentinel"
_SENTINEL_PORT = 26379


def connect(settings: Settings, *, blocking: bool = False) -> Redis:
    """A client; connects when first used.

    It never repeats a command by itself: the callers' loops do, and know what may be repeated.

    Args:
        settings: which server.
        blocking: for reads that wait in the server: one connection, and no time-out on its
            socket (redis-py's default of 5 s would cut off a read that is merely waiting).
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": settings.redis_timeout_s,
        "socket_timeout": None if blocking else settings.redis_timeout_s,
    }
    if blocking:
        options["max_connections"] = 1
    if settings.redis_password is not None:
        options["password"] = settings.redis_password.get_secret_value()
    parts = urlsplit(settings.redis_url)
    if parts.scheme != _SENTINEL:
        return Redis.from_url(settings.redis_url, **options)
    hosts = [host.rpartition(":") for host in parts.netloc.rpartition("@")[2].split(",")]
    master, _, database = parts.path.strip("/").partition("/")
    sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]  # redis-py
        [(host or port, int(port) if host else _SENTINEL_PORT) for host, _, port in hosts],
        sentinel_kwargs={
            "socket_timeout": settings.redis_timeout_s,
            "socket_connect_timeout": settings.redis_timeout_s,
        },
    )
    client: Redis = sentinel.master_for(master, db=int(database or 0), **options)
    return client
