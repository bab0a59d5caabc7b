"""The cache beside the ledger, on a real Valkey: bounded, shared, and never missed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import redis

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.entries import LedgerKeys
from pipelines.local.processes import free_port
from pipelines.models import derivations
from pipelines.models.cache import ByteCache
from pipelines.observe import metrics
from pipelines.work.settings import Settings


def digest_of(text: str) -> str:
    """As long as the digests of those who use the cache."""
    return derivations.digest_of(text).hex()


pytestmark = pytest.mark.integration

KEYS = LedgerKeys("rc")
TTL_S = 1_600


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def cache(client: redis.Redis) -> Callable[..., ByteCache]:
    def make(name: metrics.Cache = "shown", **options: object) -> ByteCache:
        arguments = {"ttl_s": TTL_S, "max_bytes": 2**20, **options}
        return ByteCache(client, KEYS, name, **arguments)  # type: ignore[arg-type]  # a pass-through

    return make


@pytest.fixture
def lost() -> ByteCache:
    """A cache whose server is away."""
    away = connect_redis(Settings(redis_url=f"redis://127.0.0.1:{free_port()}/0"))
    return ByteCache(away, KEYS, "shown", ttl_s=TTL_S, max_bytes=2**20)


def lookups(outcome: str, name: str = "shown") -> float:
    value: float = metrics.CACHE_LOOKUPS.labels(cache=name, outcome=outcome)._value.get()
    return value


def refused() -> float:
    value: float = metrics.CACHE_REFUSED.labels(cache="shown")._value.get()
    return value


def test_what_was_put_is_got_and_counted(cache: Callable[..., ByteCache]) -> None:
    hits, misses = lookups("hit"), lookups("miss")
    values = {digest_of(str(number)): b"%d" % number for number in range(700)}
    cache().put_many(values)
    wanted = [*values, digest_of("other")]
    assert cache().get_many(wanted) == [*values.values(), None]
    assert (lookups("hit") - hits, lookups("miss") - misses) == (700, 1)


def test_caches_do_not_see_each_other(cache: Callable[..., ByteCache]) -> None:
    cache("shown").put_many({digest_of("a"): b"vector"})
    assert cache("result").get_many([digest_of("a")]) == [None]


def test_every_key_of_the_cache_expires(
    cache: Callable[..., ByteCache], client: redis.Redis
) -> None:
    cache().put_many({digest_of("a"): b"value"})
    lives = {name: client.ttl(name) for name in client.keys("*")}
    assert len(lives) == 2
    assert [name for name, life_s in lives.items() if not 0 < life_s <= 2 * TTL_S] == []


def test_nothing_is_written_beyond_the_cap_until_the_oldest_expired(
    cache: Callable[..., ByteCache],
) -> None:
    clock = Clock()
    bounded = cache(max_bytes=100_000, now=clock)
    before = refused()
    digests = [digest_of(str(number)) for number in range(200)]
    for digest in digests:
        bounded.put_many({digest: bytes(1_000)})
    kept = sum(value is not None for value in bounded.get_many(digests))
    # 1,000 of value, 47 of name and 160 of what a key costs
    assert kept == 100_000 // (1_000 + len(KEYS.cached("shown", digests[0])) + 160)
    assert refused() - before == 200 - kept
    clock.now_s += TTL_S / 2
    bounded.put_many({digest_of("too early"): bytes(1_000)})
    clock.now_s += TTL_S / 2 + TTL_S / 8
    bounded.put_many({digest_of("late enough"): bytes(1_000)})
    found = bounded.get_many([digest_of("too early"), digest_of("late enough")])
    assert found == [None, bytes(1_000)]


def test_all_caches_and_workers_share_one_cap(cache: Callable[..., ByteCache]) -> None:
    cache("shown", max_bytes=10_000).put_many({digest_of("a"): bytes(6_000)})
    cache("result", max_bytes=10_000).put_many({digest_of("b"): bytes(6_000)})
    assert cache("result").get_many([digest_of("b")]) == [None]


@pytest.mark.parametrize("size", [40, 300, 1_536, 5_000])
def test_the_count_is_not_below_what_the_server_uses(
    cache: Callable[..., ByteCache], client: redis.Redis, size: int
) -> None:
    values = {digest_of(str(number)): bytes(size) for number in range(500)}
    before = client.info("memory")["used_memory_dataset"]
    cache(max_bytes=2**30).put_many(values)
    used = client.info("memory")["used_memory_dataset"] - before
    counted = sum(int(value) for value in client.hvals(KEYS.cached_bytes))
    assert used <= counted * 1.1


def test_a_cap_of_zero_switches_the_cache_off(
    cache: Callable[..., ByteCache], client: redis.Redis
) -> None:
    off = cache(max_bytes=0)
    off.put_many({digest_of("a"): b"value"})
    assert off.get_many([digest_of("a")]) == [None]
    assert client.dbsize() == 0


def test_a_cache_that_is_away_finds_nothing_and_is_counted(lost: ByteCache) -> None:
    before, not_kept = lookups("lost"), refused()
    lost.put_many({digest_of("a"): b"value"})
    assert lost.get_many([digest_of("a"), digest_of("b")]) == [None, None]
    assert (lookups("lost") - before, refused() - not_kept) == (2, 1)


def test_a_full_server_refuses_and_nobody_is_stopped(
    cache: Callable[..., ByteCache], client: redis.Redis
) -> None:
    before = refused()
    client.config_set("maxmemory", 1)
    try:
        cache().put_many({digest_of("a"): b"value"})
    finally:
        client.config_set("maxmemory", 0)
    assert refused() - before == 1
    assert cache().get_many([digest_of("a")]) == [None]


def test_the_count_of_writes_ends_with_the_stretches(
    cache: Callable[..., ByteCache], client: redis.Redis
) -> None:
    clock = Clock()
    counted = cache(now=clock)
    for number in range(60):
        counted.put_many({digest_of(str(number)): b"value"})
        clock.now_s += TTL_S / 16
    assert client.hlen(KEYS.cached_bytes) == 17
    assert math.isclose(client.ttl(KEYS.cached_bytes), 2 * TTL_S, abs_tol=5)
