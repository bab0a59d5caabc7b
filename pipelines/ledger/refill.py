"""Write a ledger that was kept elsewhere into an empty Redis: streams, id index, counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import redis

from pipelines.ledger.archive import URL_FIELD, Boundary
from pipelines.ledger.archived_ids import PACKED_AT_ONCE, ArchivedIds
from pipelines.ledger.connect import call_patiently
from pipelines.ledger.damage import Place, noted_fault
from pipelines.ledger.entries import (
    DATA_FIELD,
    DIGEST_FIELD,
    LOST,
    REQUEST_FIELD,
    SEQ_FIELD,
    Entry,
    LedgerKeys,
    bucket_of,
)
from pipelines.ledger.epoch import FORMAT_VERSION
from pipelines.ledger.sealing import unsealed_part
from pipelines.ledger.segments import Manifest
from projections.errors import LedgerUnavailable, UndecodableEntry
from projections.events import DIGEST_BYTES, content_digest, decode_event
from projections.identity import event_key_digest


class Refill:
    """Fills a Redis in which no ledger is; it may be killed and begun anew.

    Until `finish`, nobody can open a ledger there. All methods raise LedgerUnavailable: Redis is
    away, or full.

    Args:
        client: of that Redis.
        keys: names of its keys.
        id_buckets: of the ledger's id index.
    """

    def __init__(self, client: redis.Redis, keys: LedgerKeys, *, id_buckets: int) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._keys = keys
        self._ids = ArchivedIds(client, keys, id_buckets=id_buckets)

    def begun(self) -> str | None:
        """Of a restore that was killed, where its archive is, "" for none; None: there was none."""
        value = call_patiently(lambda: self._redis.get(self._keys.restoring))
        return None if value is None else value.decode()

    def begin(self, partitions: int, archive_url: str | None) -> bool:
        """Take away what a restore left that was killed; False: a ledger with entries is there."""
        keys = self._keys
        streams = [keys.stream(partition) for partition in range(partitions)]
        counters = [keys.seq(partition) for partition in range(partitions)]
        is_begun = call_patiently(lambda: self._redis.exists(keys.restoring))
        if not is_begun and call_patiently(lambda: self._redis.exists(*streams, *counters)):
            return False
        call_patiently(lambda: self._redis.set(keys.restoring, archive_url or ""))
        ours = [
            *(*streams, *counters, keys.format, keys.clock, keys.epoch, keys.faults, keys.archive),
            *(keys.fences, keys.archived_ids_upto),
            *(name(one) for name in (keys.archived, keys.restored) for one in range(partitions)),
            *map(keys.ids, range(self._ids.id_buckets)),
            *map(keys.archived_ids, range(self._ids.id_buckets)),
        ]
        self._pipelined(lambda pipeline: [pipeline.unlink(key) for key in ours])
        return True

    def put(self, entries: Sequence[Entry], *, is_archived: bool) -> None:
        """Write entries of a partition, in order: into the stream and the index of ids.

        Args:
            entries: behind those that were put before.
            is_archived: they are in the archive, and stay out of the stream.
        """
        for first in range(0, len(entries), PACKED_AT_ONCE):
            some = entries[first : first + PACKED_AT_ONCE]
            if not is_archived:
                self._pipelined(partial(self._write, some))
                continue
            self._pipelined(partial(self._note, some))
            if not self._ids.pack("", some):
                raise LedgerUnavailable(reason="something else writes into this Redis")

    def _note(self, entries: Sequence[Entry], pipeline: Any) -> None:
        for entry in entries:
            if entry.fault:
                pipeline.hset(self._keys.faults, *noted_fault(entry))

    def _write(self, entries: Sequence[Entry], pipeline: Any) -> None:
        for entry in entries:
            if entry.fault != LOST:
                pipeline.xadd(
                    self._keys.stream(entry.partition), _fields(entry), str(entry.position)
                )
            if entry.fault:
                continue
            try:
                # What is sealed stays so: an index needs neither the user nor the payload.
                event = decode_event(unsealed_part(entry.data))
            except UndecodableEntry:
                continue  # it never was in the index
            key = event_key_digest(event.tenant, event.event_id)
            bucket = bucket_of(key, self._ids.id_buckets)
            place = Place(content_digest(entry.data), *entry[:3])
            pipeline.hset(self._keys.ids(bucket), key, place.packed())

    def finish(
        self,
        identity: str,
        manifests: Sequence[Manifest],
        boundaries: Sequence[Boundary],
        archive_url: str | None,
        *,
        fences: Mapping[str, Any],
    ) -> None:
        """Write what makes a ledger of it, all at once.

        Args:
            identity: of the ledger.
            manifests: of each partition, all its entries.
            boundaries: up to where each is archived.
            archive_url: where; None: nothing is.
            fences: of sealed tenants, and of who was erased.
        """
        keys = self._keys
        shape = {
            "version": FORMAT_VERSION,
            "partitions": len(manifests),
            "id_buckets": self._ids.id_buckets,
            "created_at_ms": identity.rpartition(":")[2],
        }
        last = max(manifest.last_position for manifest in manifests)

        def write(pipeline: Any) -> None:
            pipeline.hset(keys.format, mapping=shape)
            pipeline.set(keys.clock, str(last))
            for manifest, boundary in zip(manifests, boundaries, strict=True):
                pipeline.set(keys.seq(manifest.partition), manifest.last_seq)
                if boundary.seq:
                    pipeline.set(keys.archived(manifest.partition), boundary.packed())
            if archive_url is not None:
                pipeline.hset(keys.archive, URL_FIELD, archive_url)
            for field, told in fences.items():
                pipeline.hset(keys.fences, bytes.fromhex(field), orjson.dumps(told))
            pipeline.delete(keys.restoring)

        self._pipelined(write, transaction=True)

    def _pipelined(self, write: Callable[[Any], object], *, transaction: bool = False) -> None:
        # Not tried again: an entry can be added once, and the whole restore can be begun anew.
        def run() -> None:
            with self._redis.pipeline(transaction=transaction) as pipeline:
                write(pipeline)
                pipeline.execute()

        call_patiently(run, retry_on=lambda error: False)


def _fields(entry: Entry) -> dict[bytes, Any]:
    """Of a stream entry; one that is held out has a digest that its data does not have."""
    digest = bytes(DIGEST_BYTES) if entry.fault else content_digest(entry.data)
    fields: dict[bytes, Any] = {
        DATA_FIELD: entry.data,
        SEQ_FIELD: entry.seq,
        DIGEST_FIELD: digest,
    }
    if entry.request_id is not None:
        fields[REQUEST_FIELD] = entry.request_id
    return fields
