"""Values that are kept in the ledger's Redis for a while, by a digest of what they are of.

Redis holds the ledger, which must never run out of memory for a cache. Each value has a TTL, and
what all caches wrote within the last TTL is counted: when that reaches the cap, nothing more is
written until the oldest has expired. The count is of writes, so it is never below what is held;
it lives in Redis beside the values, so that all processes share it and a flush empties both.

A cache may be lost at any moment: whatever goes wrong is counted, and the caller goes without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import redis

from pipelines.ledger.entries import LedgerKeys
from pipelines.observe import metrics
from pipelines.work.settings import Settings

TTL_S: Final = 30 * 86_400
"""Of what the settings make."""
# The TTL is cut into so many stretches; the count covers one more than the TTL.
_STRETCHES = 16
# What a key costs Redis beside its name and value: measured 72 to 230 bytes, by rounding.
_OVERHEAD = 160
# Of one round trip: the server also takes the appends.
_AT_ONCE = 256

Item = TypeVar("Item")


class ByteCache:
    """One cache: bytes by digest.

    Args:
        client: connection of the ledger's Redis, without `decode_responses`.
        keys: names of the keys.
        cache: which one, part of the keys and label of the metrics.
        ttl_s: a value lives so long, seconds.
        max_bytes: of all caches together; 0: nothing is written or looked up.
        now: clock, seconds.
    """

    def __init__(
        self,
        client: redis.Redis,
        keys: LedgerKeys,
        cache: metrics.Cache,
        *,
        ttl_s: int,
        max_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._keys = keys
        self._cache = cache
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._now = now

    @classmethod
    def from_settings(
        cls, client: redis.Redis, settings: Settings, cache: metrics.Cache
    ) -> ByteCache:
        """A cache with the cap and the prefix of the settings."""
        return cls(
            client,
            LedgerKeys(settings.prefix),
            cache,
            ttl_s=TTL_S,
            max_bytes=settings.shown_cache_bytes,
        )

    def get_many(self, digests: Sequence[str]) -> list[bytes | None]:
        """The value of each digest; None where there is none, or where Redis does not answer."""
        if self._max_bytes == 0:
            return [None] * len(digests)
        values: list[bytes | None] = []
        try:
            for chunk in _chunks(digests):
                names = [self._keys.cached(self._cache, digest) for digest in chunk]
                values.extend(self._client.mget(names))  # type: ignore[arg-type]  # annotated for both kinds of client
        except redis.RedisError:
            self._count("lost", len(digests))
            return [None] * len(digests)
        missing = values.count(None)
        self._count("miss", missing)
        self._count("hit", len(values) - missing)
        return values

    def put_many(self, values: Mapping[str, bytes]) -> None:
        """Keep values by digest, as far as the cap allows."""
        if self._max_bytes == 0:
            return
        for chunk in _chunks(list(values.items())):
            items = [(self._keys.cached(self._cache, digest), value) for digest, value in chunk]
            try:
                self._put(items)
            except redis.RedisError:
                self._refuse(len(items))

    def damaged(self, count: int) -> None:
        """Count values that were found and could not be used."""
        self._count("lost", count)

    def _put(self, items: list[tuple[str, bytes]]) -> None:
        size = sum(len(name) + len(value) + _OVERHEAD for name, value in items)
        length_s = self._ttl_s / _STRETCHES
        stretch = int(self._now() / length_s)
        counter = self._keys.cached_bytes
        # Added before it is read: workers that write at the same moment see each other.
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hincrby(counter, str(stretch), size)
            pipe.expire(counter, 2 * self._ttl_s)
            pipe.hgetall(counter)
            *_, written = pipe.execute()
        past = [name for name in written if int(name) < stretch - _STRETCHES]
        held = sum(int(written[name]) for name in written.keys() - past)
        with self._client.pipeline(transaction=False) as pipe:
            if past:
                pipe.hdel(counter, *past)
            if held > self._max_bytes:
                pipe.hincrby(counter, str(stretch), -size)
                self._refuse(len(items))
            else:
                for name, value in items:
                    pipe.set(name, value, ex=self._ttl_s)
            pipe.execute()

    def _count(self, outcome: metrics.CacheOutcome, count: int) -> None:
        if count:
            metrics.CACHE_LOOKUPS.labels(cache=self._cache, outcome=outcome).inc(count)

    def _refuse(self, count: int) -> None:
        metrics.CACHE_REFUSED.labels(cache=self._cache).inc(count)


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, _AT_ONCE)):
        yield chunk
