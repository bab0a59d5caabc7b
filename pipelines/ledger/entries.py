"""The form of a ledger: the names of its keys, and of its entries.

In the name of a key `{…}` is the hash tag of Redis Cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

import orjson

from pipelines.ledger.sealing import Opener, opened, unsealed_part
from projections.errors import EntryHeldOut, UndecodableEntry
from projections.events import Event, content_digest, decode_event
from projections.identity import KEY_DIGEST_BYTES, START, Position, event_key_digest
from projections.operations import Checkpoint

DATA_FIELD = b"e"
SEQ_FIELD = b"s"
DIGEST_FIELD = b"d"
REQUEST_FIELD = b"r"

Fault = Literal["", "altered", "lost", "unproven"]
"""What is wrong with an entry. unproven: it carries no digest, the id index has to be asked; no
reader outside this package sees that."""
SOUND: Final[Fault] = ""
ALTERED: Final[Fault] = "altered"
LOST: Final[Fault] = "lost"
UNPROVEN: Final[Fault] = "unproven"


class Entry(NamedTuple):
    """An event as Redis delivers it.

    Attributes:
        seq: number of the entry within its partition: 1, 2, 3 … without a gap.
        data: canonical JSON of the event, sealed where its tenant is (`sealing`); nothing, where
            it is not what was appended.
        request_id: of the request that brought it, for the logs; not part of the event.
        fault: why the entry is held out. The position of a lost one stands for its own: it lies
            behind the entry before it, and not behind the true one.
        keys: what opens it if it is sealed, and knows what is withheld.
    """

    partition: int
    position: Position
    seq: int
    data: bytes
    request_id: str | None = None
    fault: Fault = SOUND
    keys: Opener | None = None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same entry, whoever opens it."""
        return isinstance(other, Entry) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        """A tuple's own would compare what opens it, too."""
        return not self == other

    def __hash__(self) -> int:
        """As it is compared."""
        return hash(self[:-1])

    @property
    def digest(self) -> str:
        """Hex of the content's digest, as a checkpoint keeps it; empty when it is held out."""
        return "" if self.fault else content_digest(self.data).hex()

    @property
    def key(self) -> bytes:
        """Under which its event stands in the id index; of what is none, one that is not there."""
        try:
            envelope = orjson.loads(unsealed_part(self.data))
            return event_key_digest(str(envelope["tenant"]), str(envelope["event_id"]))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return bytes(KEY_DIGEST_BYTES)

    @property
    def tenant(self) -> str | None:
        """Whose it is, sealed or not; None: nobody can read that."""
        try:
            return decode_event(unsealed_part(self.data)).tenant
        except UndecodableEntry:
            return None

    def opened_by(self, opener: Opener | None) -> Entry:
        """The same, opened by these keys."""
        return self._replace(keys=opener)

    def event(self) -> Event:
        """The event.

        Raises:
            EntryHeldOut: the entry is not what was appended.
            UndecodableEntry: it is no event.
            KeysUnavailable: it is sealed, and its key is not at hand.
        """
        if self.fault:
            raise EntryHeldOut(
                partition=self.partition, position=str(self.position), reason=self.fault
            )
        return opened(self.data, self.keys, partition=self.partition, position=str(self.position))


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """Every key that Recollect uses, by meaning."""

    prefix: str = "rc"

    def stream(self, partition: int) -> str:
        """The stream of a partition, the only copy of its events."""
        return f"{{{self.prefix}:{partition}}}:ledger"

    def seq(self, partition: int) -> str:
        """Number of the last entry of a partition."""
        return f"{{{self.prefix}:{partition}}}:seq"

    def ids(self, bucket: int) -> str:
        """One bucket of the id index: a hash, kept so small that Redis packs it."""
        return f"{self.prefix}:ids:{bucket}"

    def archived_ids(self, bucket: int) -> str:
        """Where the archived events of a bucket stand: a string of items."""
        return f"{self.prefix}:archived-ids:{bucket}"

    @property
    def archived_ids_upto(self) -> str:
        """By partition, up to which number archived entries have items instead of rows."""
        return f"{self.prefix}:archived-ids"

    @property
    def clock(self) -> str:
        """The last position that was handed out, over all partitions."""
        return f"{self.prefix}:clock"

    @property
    def format(self) -> str:
        """Version and shape of the ledger, fixed when it is created."""
        return f"{self.prefix}:format"

    def archived(self, partition: int) -> str:
        """Up to where a partition is archived and no longer in its stream."""
        return f"{{{self.prefix}:{partition}}}:archived"

    @property
    def archive(self) -> str:
        """Where the archive is, and what its archiver said last."""
        return f"{self.prefix}:archive"

    @property
    def restoring(self) -> str:
        """That a restore has begun, and has not ended."""
        return f"{self.prefix}:restoring"

    def restored(self, partition: int) -> str:
        """Entries of a partition that were put right, by number; they go before its stream's."""
        return f"{{{self.prefix}:{partition}}}:restored"

    @property
    def faults(self) -> str:
        """Entries that readers held out, until they are put right."""
        return f"{self.prefix}:faults"

    @property
    def fences(self) -> str:
        """Tenants that are sealed, and who was erased."""
        return f"{self.prefix}:fences"

    @property
    def receipts(self) -> str:
        """Receipts of erasures, the oldest first."""
        return f"{self.prefix}:receipts"

    @property
    def backups(self) -> str:
        """Backups that were made, by where they are."""
        return f"{self.prefix}:backups"

    @property
    def epoch(self) -> str:
        """Which server process may append, and which partitions may not be appended to."""
        return f"{self.prefix}:epoch"

    @property
    def targets(self) -> str:
        """The registered targets by name."""
        return f"{self.prefix}:targets"

    @property
    def active(self) -> str:
        """Which target answers reads."""
        return f"{self.prefix}:active"

    @property
    def reports(self) -> str:
        """The last results of `verify` and `rebuild`."""
        return f"{self.prefix}:reports"

    @property
    def rebuilds(self) -> str:
        """How far rebuilds are that run now, by target."""
        return f"{self.prefix}:rebuilds"

    @property
    def comparisons(self) -> str:
        """What two targets held differently when they were compared last, by tenant."""
        return f"{self.prefix}:comparisons"

    def hold(self, stage: str, target: str) -> str:
        """That a stage gives no entry up on a target, and why."""
        return f"{self.prefix}:hold:{stage}@{target}"

    def release(self, stage: str, target: str) -> str:
        """That an operator let it go on."""
        return f"{self.prefix}:release:{stage}@{target}"

    def retries(self, target: str) -> str:
        """Dead letters of a target that somebody wants to be tried again."""
        return f"{self.prefix}:retries:{target}"

    def cached(self, cache: str, digest: str) -> str:
        """A value that a model computed, by the digest of what it was computed from."""
        return f"{self.prefix}:cache:{cache}:{digest}"

    @property
    def cached_bytes(self) -> str:
        """Bytes written to the caches, by stretch of time."""
        return f"{self.prefix}:cache-bytes"

    def lease(self, group: str, partition: int) -> str:
        """Who reads a partition for a consumer group."""
        return f"{self.prefix}:lease:{group}:{partition}"

    @property
    def pass_lease(self) -> str:
        """Who runs a pass of consolidation."""
        return f"{self.prefix}:lease:pass"

    @property
    def archive_lease(self) -> str:
        """Who archives."""
        return f"{self.prefix}:lease:archive"

    def copy_lease(self, place: str) -> str:
        """Who brings a backup in a place up to now; who restores, where there is no place."""
        return f"{self.prefix}:lease:copy:{place}"

    def members(self, group: str) -> str:
        """Heartbeats of a consumer group's workers."""
        return f"{self.prefix}:members:{group}"


def is_at(checkpoint: Checkpoint, entry: Entry) -> bool:
    """Whether an entry with a checkpoint's position is the one that the checkpoint was made at."""
    if entry.fault == ALTERED:
        return entry.seq in (0, checkpoint.seq)
    # A checkpoint behind an entry that was held out has no digest.
    digests = ("", content_digest(entry.data).hex())
    return entry.seq == checkpoint.seq and checkpoint.digest in digests


def bucket_of(key: bytes, buckets: int) -> int:
    """The bucket of the id index that an event's key is in; `append.lua` says the same."""
    return int.from_bytes(key[:4], "big") % buckets


def decode_position(text: bytes) -> Position:
    """A position as Redis writes it; trusted, so three times as fast as `Position.parse`."""
    ms, _, seq = text.partition(b"-")
    return Position(int(ms), int(seq))


def before(first: Position) -> Position:
    """The position right before, for ranges that exclude their start."""
    if first.seq:
        return Position(first.ms, first.seq - 1)
    return Position(first.ms - 1, 2**64 - 1) if first.ms else START


def decode_entry(
    partition: int,
    entry_id: bytes,
    fields: Mapping[bytes, bytes],
    keys: Opener | None = None,
) -> Entry:
    """An entry from the id and the fields of a stream entry, compared with the digest in it.

    Args:
        partition: that it is of.
        entry_id: as Redis writes it.
        fields: of the stream entry.
        keys: what opens the entry when its event is asked for.

    Raises:
        UndecodableEntry: the stream holds something that the append script did not write.
    """
    try:
        request_id = fields.get(REQUEST_FIELD)
        data, digest = fields[DATA_FIELD], fields.get(DIGEST_FIELD)
        fault = UNPROVEN if digest is None else SOUND
        if digest is not None and content_digest(data) != digest:
            data, fault = b"", ALTERED
        return Entry(
            partition,
            decode_position(entry_id),
            seq=int(fields[SEQ_FIELD]),
            data=data,
            request_id=None if request_id is None else request_id.decode("utf-8", "replace"),
            fault=fault,
            keys=keys,
        )
    except (KeyError, ValueError, TypeError) as error:
        if fields.keys().isdisjoint((DATA_FIELD, SEQ_FIELD, DIGEST_FIELD)):
            position = entry_id.decode("ascii", "replace")
            reason = f"not written by Recollect ({type(error).__name__})"
            raise UndecodableEntry(partition=partition, position=position, reason=reason) from error
    # A name or the number is damaged: those around it tell which number it has.
    return Entry(partition, decode_position(entry_id), 0, b"", fault=ALTERED)


class Start(Protocol):
    """Where a partition starts: after this entry. A Checkpoint is one."""

    @property
    def position(self) -> Position:
        """Of the last entry applied."""

    @property
    def seq(self) -> int:
        """Its number in the partition."""


class Block(NamedTuple):
    """Entries of one partition without a gap: their seqs are n, n + 1, … and never empty."""

    partition: int
    entries: tuple[Entry, ...]
