"""Asyncio connections to the ledger's Redis, standalone or through Sentinel."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from pipelines.ledger.connect import SENTINEL_SCHEME, sentinel_hosts
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError


def connect(settings: Settings, *, blocking: bool = False) -> Redis:
    """A client; connects when first used.

    It never repeats a command by itself: the callers' loops do, and know what may be repeated.

    Args:
        settings: which server.
        blocking: for reads that wait in the server: one connection, and no time-out on its
            socket (redis-py's default of 5 s would cut off a read that is merely waiting).

    Raises:
        ConfigurationError: the URL names no server.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": settings.redis_timeout_s,
        "socket_timeout": None if blocking else settings.redis_timeout_s,
    }
    if blocking:
        options["max_connections"] = 1
    parts = urlsplit(settings.redis_url)
    secret = settings.redis_password
    password = secret.get_secret_value() if secret is not None else parts.password
    if password is not None:
        options |= {"username": parts.username, "password": password}
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    try:
        if parts.scheme != SENTINEL_SCHEME:
            return Redis.from_url(bare.geturl(), **options)
        master, _, database = parts.path.strip("/").partition("/")
        sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]  # redis-py
            sentinel_hosts(bare.netloc),
            sentinel_kwargs={
                "socket_timeout": settings.redis_timeout_s,
                "socket_connect_timeout": settings.redis_timeout_s,
            },
        )
        client: Redis = sentinel.master_for(master, db=int(database or 0), **options)
        return client
    except ValueError as error:
        # Never the URL itself: it may hold a password.
        raise ConfigurationError(reason=f"redis_url: {error}") from None
