"""The ledger's newest entries, read as they come by one who neither appends nor acknowledges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import Entry, LedgerKeys, decode_entry
from projections.identity import Position

Result = TypeVar("Result")


class Behind(NamedTuple):
    """What stands behind some places.

    Attributes:
        made: which ledger it is; another one when Redis was emptied or restored.
        partitions: that it has; 0: there is no ledger yet.
        entries: of all partitions; one that is not what was appended has a `fault`.
    """

    made: str
    partitions: int
    entries: Sequence[Entry]


class LedgerTail:
    """Reads what is appended. Each call is tried once: whoever follows tries again anyway.

    Args:
        client: of the ledger's server.
        prefix: of its keys.
    """

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._keys = LedgerKeys(prefix)

    def behind(self, places: Mapping[int, Position], count: int) -> Behind:
        """The first `count` entries of each partition behind its place, in one round trip.

        Raises:
            LedgerUnavailable: Redis is away.
            UndecodableEntry: a stream holds what is no entry.
        """
        numbers = {self._keys.stream(partition).encode(): partition for partition in places}

        def ask() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hmget(self._keys.format, "created_at_ms", "partitions")
                if places:
                    streams = {self._keys.stream(place): str(places[place]) for place in places}
                    pipeline.xread(streams, count=count)
                replies: list[Any] = pipeline.execute()
            return replies

        (created, partitions), *read = _once(ask)
        streams = dict(read[0] or ()) if read else {}
        return Behind(
            made=(created or b"").decode(),
            partitions=int(partitions or 0),
            entries=[
                decode_entry(numbers[stream], *entry)
                for stream, entries in streams.items()
                for entry in entries
            ],
        )

    def wait(self, places: Mapping[int, Position], timeout_ms: int) -> None:
        """Return when an entry stands behind one of the places, or when the time is over.

        It only rings: the entry that ends the waiting may not be the first of all partitions.

        Args:
            places: by partition, at least one.
            timeout_ms: at least 1; less than a command may take.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        streams = {self._keys.stream(one): str(place) for one, place in places.items()}
        _once(lambda: self._redis.xread(streams, count=1, block=timeout_ms))

    def newest(self, partition: int, count: int) -> list[Entry]:
        """The last `count` entries of a partition, the newest first. Raises as `behind` does."""
        replies = _once(lambda: self._redis.xrevrange(self._keys.stream(partition), count=count))
        return [decode_entry(partition, *reply) for reply in replies]


def _once(ask: Callable[[], Result]) -> Result:
    return call_patiently(ask, retry_on=lambda error: False)
