"""Connections to Redis, made from settings. Passwords stay out of URLs and of `repr`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.retry import Retry
from redis.sentinel import Sentinel

from pipelines.work.settings import Settings
from projections.errors import ConfigurationError

RedisClient = redis.Redis
"""For modules that hold a connection and never speak its protocol."""

_SENTINEL_SCHEME = "redis+sentinel"
_SENTINEL_PORT = 26_379
_HEALTH_CHECK_S = 15


def connect_redis(settings: Settings) -> redis.Redis:
    """A connection pool of the ledger's server; connects when first used.

    `redis://`, `rediss://` and `unix://` name a server, `redis+sentinel://h:p,h:p/MASTER/DB`
    asks the Sentinels on every new connection which one is master.

    redis-py 8 repeats commands after a time-out by default. That is switched off: only who knows
    that a command may be done twice repeats it (`retry`).

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
        if parts.scheme != _SENTINEL_SCHEME:
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            return redis.Redis.from_url(bare, **options)
        hosts = [_host_and_port(text) for text in parts.netloc.rpartition("@")[2].split(",")]
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


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon else (port, _SENTINEL_PORT)
