"""The entries that have left Redis, read as the streams are; `segments` has the form of the files.

A string in Redis, the *boundary* of a partition, says up to where its entries are archived. It
moves in one step with the trimming of the stream. So whoever misses an entry in the stream and then
asks for the boundary knows which of the two has it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import redis

from pipelines.ledger.archive_files import ANSWER_S, ArchiveFiles, ArchiveStore
from pipelines.ledger.archived_ids import ArchivedIds, Item
from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import LOST, Entry, LedgerKeys, is_at
from pipelines.ledger.sealing import Opener
from pipelines.ledger.segments import (
    Manifest,
    Row,
    Segment,
    manifest_file,
)
from pipelines.work.settings import Settings
from projections.errors import ArchiveDamaged, ArchiveUnavailable, LedgerUnavailable
from projections.identity import START, Position
from projections.operations import Checkpoint

URL_FIELD: Final = "url"
_SEGMENTS_KEPT: Final = 16
"""In memory, unpacked: a merge of all partitions reads one of each. At most 8 MiB each."""

# KEYS: boundary, stream, faults. ARGV: the boundary expected, the new one, its position, the first
# position that stays; then field and value of each entry that is held out. Runs when Redis is full:
# it is what makes room.
_MOVE = """#!lua flags=allow-oom
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if #redis.call('XRANGE', KEYS[2], ARGV[3], ARGV[3]) == 0 then return -1 end
if #redis.call('XRANGE', KEYS[2], ARGV[4], '+', 'COUNT', 1) == 0 then return -1 end
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[4])
return 1
"""


class ArchiveAt(NamedTuple):
    """Where the files are.

    Attributes:
        url: None: where the archiver has written into Redis that they are.
        timeout_s: of one call to that place.
    """

    url: str | None = None
    timeout_s: float = ANSWER_S

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(settings.archive_url, settings.archive_timeout_s)


AS_RECORDED: Final = ArchiveAt()


class Boundary(NamedTuple):
    """Up to where a partition is archived.

    Attributes:
        seq: number of the last archived entry; 0: nothing is archived.
        position: of that entry.
        chain: head of the manifest's digest chain; empty: nothing is archived.
        segments: how many there are.
    """

    seq: int = 0
    position: Position = START
    chain: str = ""
    segments: int = 0

    @classmethod
    def unpacked(cls, value: bytes | None) -> Self:
        """From the string in Redis; `append.lua` reads its first two words, too."""
        if not value:
            return cls()
        seq, position, chain, segments = value.decode().split()
        return cls(int(seq), Position.parse(position), chain, int(segments))

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Where a manifest ends."""
        if not manifest.rows:
            return cls()
        rows = len(manifest.rows)
        return cls(manifest.last_seq, manifest.last_position, manifest.chain, rows)

    def packed(self) -> str:
        """As it stands in Redis."""
        return f"{self.seq} {self.position} {self.chain} {self.segments}" if self.seq else ""


class ArchiveState(NamedTuple):
    """How far archiving is, as the archiver has left it in Redis.

    Attributes:
        boundaries: by partition.
        url: where the files are, without credentials; empty: not told.
        waits_for: which stages keep entries in Redis; empty: none.
        problem: why nothing is archived; empty: none.
    """

    boundaries: list[Boundary]
    url: str
    waits_for: str
    problem: str


class Archive:
    """Reads what is archived of a ledger, and moves its boundaries. Safe for threads.

    All methods raise LedgerUnavailable: Redis is away; those that read files ArchiveUnavailable:
    their place is; and ArchiveDamaged: they are not what was written.

    Args:
        client: of the ledger's Redis.
        keys: names of its keys.
        place: where the files are.
        id_buckets: of the ledger's id index.
        opener: of entries that are sealed.
    """

    def __init__(
        self,
        client: redis.Redis,
        keys: LedgerKeys,
        place: ArchiveAt,
        *,
        id_buckets: int,
        opener: Opener | None = None,
    ) -> None:
        self.ids = ArchivedIds(client, keys, id_buckets=id_buckets)
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._keys = keys
        self._place = place
        self._opener = opener
        self._lock = threading.Lock()
        self._files: ArchiveFiles | None = None
        self._manifests: dict[int, Manifest] = {}
        self._segments: OrderedDict[str, Segment] = OrderedDict()

    # boundaries

    def boundary(self, partition: int) -> Boundary:
        """Up to where a partition is archived."""
        return self.boundaries([partition])[0]

    def boundaries(self, partitions: Sequence[int]) -> list[Boundary]:
        """The same of several, all of one moment."""
        keys = [self._keys.archived(partition) for partition in partitions]
        values = call_patiently(lambda: self._redis.mget(keys))
        return [Boundary.unpacked(value) for value in values]

    def move(
        self,
        partition: int,
        before: Boundary,
        after: Boundary,
        held_out: Sequence[tuple[str, str]],
    ) -> int:
        """Archive up to `after`, and trim, if the boundary is `before`.

        Args:
            partition: whose boundary it is.
            before: as the caller knows it.
            after: its entry stands in the stream, and another one behind it.
            held_out: field and value for the list of faults of archived entries.

        Returns:
            1: moved; 0: the boundary is elsewhere; -1: the stream has not that entry, or none
            behind it.
        """
        first_kept = after.position._replace(seq=after.position.seq + 1)
        arguments = (
            *(before.packed(), after.packed(), str(after.position), str(first_kept)),
            *(text for fault in held_out for text in fault),
        )
        names = (self._keys.archived(partition), self._keys.stream(partition), self._keys.faults)
        return int(call_patiently(lambda: self._redis.eval(_MOVE, 3, *names, *arguments)))

    # files

    @property
    def files(self) -> ArchiveFiles:
        """Segments and manifests.

        Raises:
            ArchiveUnavailable: nobody has said where they are.
        """
        with self._lock:
            if self._files is None:
                url = self._place.url or self.told().get(URL_FIELD)
                if url is None:
                    raise ArchiveUnavailable(url="?", reason="set RECOLLECT_ARCHIVE_URL")
                self._files = ArchiveFiles(ArchiveStore(url, timeout_s=self._place.timeout_s))
            return self._files

    def told(self) -> dict[str, str]:
        """What the archiver has left in Redis: `url`, `problem` (empty: none), `waits_for`."""
        values = call_patiently(lambda: self._redis.hgetall(self._keys.archive))
        return {name.decode(): value.decode() for name, value in values.items()}

    def state(self, partitions: int) -> ArchiveState | None:
        """How far it is; None: nothing was ever archived."""
        told = self.told()
        if not told:
            return None
        boundaries = self.boundaries(range(partitions))
        return ArchiveState(
            boundaries, *(told.get(name, "") for name in (URL_FIELD, "waits_for", "problem"))
        )

    def manifest(self, partition: int, boundary: Boundary) -> Manifest:
        """The manifest that a boundary ends, and no segment behind it.

        A caller whose boundary is no longer the newest has read the stream as it was then.
        """
        held = self._manifests.get(partition)
        if held is not None and (held.last_seq, held.chain) == (boundary.seq, boundary.chain):
            return held
        files, file = self.files, manifest_file(boundary.seq, boundary.chain)
        manifest = files.manifest(partition, file)
        if manifest is None:
            # It is taken away when the next one stands, which begins with the same segments.
            now = self.boundary(partition)
            manifest = (
                self.manifest(partition, now)
                if now.seq > boundary.seq
                else self.listed_beyond(partition, boundary)
            )
        if manifest is None:
            files.require_place()
            name = files.path(f"{partition}/{file}")
            raise ArchiveDamaged(name=name, rule="the manifest of its boundary is there")
        manifest = manifest.first(boundary.segments)
        if Boundary.of(manifest) != boundary:
            rule = f"it ends at {boundary.seq} with the chain that Redis has"
            raise ArchiveDamaged(name=files.path(f"{partition}/{file}"), rule=rule)
        self._manifests[partition] = manifest
        return manifest

    def listed_beyond(self, partition: int, boundary: Boundary) -> Manifest | None:
        """The longest manifest that goes on from a boundary; None: there is none.

        Its archiver was killed before the move, or Redis has forgotten it.
        """
        for manifest in self.files.manifests_beyond(partition, boundary.seq):
            if Boundary.of(manifest.first(boundary.segments)) == boundary:
                return manifest
        return None

    def segment(self, partition: int, row: Row) -> Segment:
        """A segment, from memory where it was read a moment ago."""
        name = f"{partition}/{row.file}"
        with self._lock:
            held = self._segments.get(name)
            if held is not None:
                self._segments.move_to_end(name)
                return held
        segment = self.files.segment(partition, row)
        with self._lock:
            self._segments[name] = segment
            while len(self._segments) > _SEGMENTS_KEPT:
                self._segments.popitem(last=False)
        return segment

    # entries

    def behind(
        self, partition: int, boundary: Boundary, seq: int | Position, count: int
    ) -> list[Entry]:
        """The first `count` archived entries behind a number, or behind a position.

        Fewer: the archive ends there.
        """
        manifest = self.manifest(partition, boundary)
        if isinstance(seq, Position):
            seq = self._seq_from(manifest, seq, behind=True) - 1
        last = min(seq + count, manifest.last_seq)
        return self._between(manifest, seq + 1, last)

    def before(
        self, partition: int, boundary: Boundary, position: Position, count: int
    ) -> list[Entry]:
        """The last `count` archived entries before a position, the newest first; none is lost."""
        manifest = self.manifest(partition, boundary)
        last, entries = self._seq_from(manifest, position) - 1, list[Entry]()
        while last > 0 and (left := count - len(entries)) > 0:
            block = self._between(manifest, max(1, last - left + 1), last)
            entries += [entry for entry in reversed(block) if entry.fault != LOST]
            last -= len(block)
        return entries

    def at(
        self, partition: int, boundary: Boundary, position: Position, seq: int | None
    ) -> Entry | None:
        """The archived entry of a number; without one, the one at a position.

        The position of a lost one is nobody's.
        """
        manifest = self.manifest(partition, boundary)
        wanted = self._seq_from(manifest, position) if seq is None else seq
        entry = next(iter(self._between(manifest, wanted, wanted)), None)
        if entry is None or seq is not None:
            return entry
        return entry if entry.position == position and entry.fault != LOST else None

    def has_entry_of(self, checkpoint: Checkpoint) -> bool | None:
        """Whether it has the entry that a checkpoint names; None: that one is not archived."""
        boundary = self.boundary(checkpoint.partition)
        if checkpoint.seq > boundary.seq:
            return None
        entry = self.at(checkpoint.partition, boundary, checkpoint.position, checkpoint.seq)
        if entry is None or entry.fault:
            return entry is not None
        return entry.position == checkpoint.position and is_at(checkpoint, entry)

    def of_event(
        self, key: bytes, items: Iterable[Item], boundaries: Mapping[int, Boundary]
    ) -> Entry | None:
        """The archived entry of an event; None: none of the places where it may stand is its own.

        Args:
            key: digest of tenant and id.
            items: where it may stand.
            boundaries: of these partitions, asked for after the items.
        """
        for item in items:
            boundary = boundaries[item.partition]
            if item.seq > boundary.seq:
                reason = f"the archive of partition {item.partition} ends before {item.seq}"
                raise LedgerUnavailable(reason=reason)
            entry = self.at(item.partition, boundary, START, item.seq)
            if entry is not None and not entry.fault and entry.key == key:
                return entry
        return None

    def _between(self, manifest: Manifest, seq: int, last_seq: int) -> list[Entry]:
        entries: list[Entry] = []
        for row in manifest.rows_between(seq, last_seq):
            entries += self.segment(manifest.partition, row).entries(seq, last_seq)
        return [entry.opened_by(self._opener) for entry in entries]

    def _seq_from(self, manifest: Manifest, position: Position, *, behind: bool = False) -> int:
        """Number of the first entry that is not before a position, or is behind it."""
        row = manifest.row_at(position)
        if row is None:
            return manifest.last_seq + 1
        return self.segment(manifest.partition, row).seq_at(position, behind=behind)
