"""Connections say nothing of passwords, and find the master through Sentinels."""

from __future__ import annotations

import pytest
import redis

from pipelines.graph.client import connect_neo4j
from pipelines.ledger.connect import connect_redis
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(redis_url="redis://127.0.0.1:1/3", redis_password=SECRET),
        Settings(redis_url=f"redis://user:{SECRET}@127.0.0.1:1/3"),
        Settings(redis_url=f"redis+sentinel://:{SECRET}@127.0.0.1:1,localhost/main/3"),
    ],
)
def test_the_password_is_sent_and_never_shown(settings: Settings) -> None:
    client = connect_redis(settings)
    provider = client.connection_pool.connection_kwargs["credential_provider"]
    assert SECRET in provider.get_credentials()
    assert client.connection_pool.connection_kwargs["db"] == 3
    assert SECRET not in repr(client)
    with pytest.raises(redis.RedisError) as raised:
        client.ping()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{SECRET}@127.0.0.1",
        f"redis+sentinel://:{SECRET}@127.0.0.1:1",
        f"redis+sentinel://:{SECRET}@127.0.0.1:x/main",
    ],
)
def test_a_url_that_cannot_be_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        connect_redis(Settings(redis_url=url))
    assert SECRET not in str(raised.value)


def test_commands_are_not_repeated_by_the_client() -> None:
    client = connect_redis(Settings())
    assert client.get_retry().get_retries() == 0  # type: ignore[union-attr]


def test_a_graph_uri_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        connect_neo4j("http://127.0.0.1", Settings())
