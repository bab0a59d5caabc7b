"""Move the ledger's older entries into the archive, segment by segment.

Of each segment: write, read back and compare, list it in a manifest, read that back, then move the
boundary, which trims the stream in the same step (decision 25). What is not below the lowest
checkpoint stays, and so does the last entry of a partition. The archiver's process looks now and
then, archives what is due, and waits when it cannot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pipelines.ledger.archive import Boundary
from pipelines.ledger.archived_ids import PACKED_AT_ONCE
from pipelines.ledger.connect import tell
from pipelines.ledger.damage import noted_fault
from pipelines.ledger.entries import Entry, LedgerKeys
from pipelines.ledger.epoch import ArchiveLease
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.segments import (
    MAX_BYTES,
    MAX_ENTRIES,
    Manifest,
    Row,
)
from pipelines.ledger.sequence import READ_AT_ONCE, segment_entries
from pipelines.local.processes import StopSignal
from pipelines.observe import logs, metrics, progress
from pipelines.operations.derived_files import Collector
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from projections.errors import (
    ArchiveDamaged,
    ArchiverUnderWay,
    ConfigurationError,
    RecollectError,
)

PRESSURE: Final = 0.6
"""Of Redis' memory: beyond, all that may be archived is, in smaller segments."""


class Fewest(NamedTuple):
    """What makes a segment: so many entries, or bytes of entries."""

    entries: int
    bytes: int


ANY: Final = Fewest(1, 1)
WHOLE: Final = Fewest(MAX_ENTRIES, MAX_BYTES)
PRESSED: Final = Fewest(1_000, 2**20)


@dataclass
class ArchiveReport:
    """What a pass did.

    Attributes:
        archived: entries that left Redis.
        segments: that were written.
        bytes: of them.
        derivations: what models and rules made of these entries, values that were archived, too.
        waits_for: by partition, which stage keeps entries in Redis that would be archived.
    """

    archived: int = 0
    segments: int = 0
    bytes: int = 0
    derivations: int = 0
    waits_for: dict[int, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "archived": self.archived,
            "segments": self.segments,
            "bytes": self.bytes,
            "derivations": self.derivations,
            "waits_for": {str(partition): who for partition, who in self.waits_for.items()},
        }


@dataclass(frozen=True)
class Low:
    """The lowest checkpoint of a partition, and whose it is."""

    seq: int
    whose: str


def archive(
    services: Services,
    *,
    keep: int | None = None,
    fewest: Fewest = ANY,
    turned: Callable[[], None] = lambda: None,
) -> ArchiveReport:
    """Archive what may be archived now.

    Args:
        services: ledger and targets.
        keep: newest entries of a partition that stay in Redis; None: as the settings say.
        fewest: smaller segments are not made.
        turned: called between any two steps.

    Raises:
        ArchiverUnderWay: another process archives.
        ArchiveUnavailable: the place is away, full, or may not be written; nothing was trimmed
            that is not there.
        ArchiveDamaged: it holds what it must not, or not what it must.
        ConfigurationError: no place is set, or another ledger's archive is there.
        LedgerUnavailable, GraphUnavailable: a service is away.
    """
    settings = services.settings
    if settings.archive_url is None:
        raise ConfigurationError(reason="archive_url: where older entries go is not set")
    with ArchiveLease(services.redis, settings.prefix, lease_ms=settings.lease_ms) as lease:
        try:
            report = _Pass(services, lease, keep, fewest, turned=turned).run()
            services.ledger.archive.files.put_fences(services.ledger.vault.fences.copied())
        except ArchiverUnderWay:
            raise
        except RecollectError as error:
            _tell(services, problem=str(error))
            raise
        waits = ", ".join(sorted(set(report.waits_for.values())))
        _tell(services, problem="", waits_for=waits)
    return report


def archive_when_due(services: Services, turned: Callable[[], None]) -> ArchiveReport:
    """Archive whole segments, and more when Redis fills up. See `archive`."""
    used, limit = services.ledger.memory()
    if limit and used > PRESSURE * limit:
        return archive(services, keep=1, fewest=PRESSED, turned=turned)
    return archive(services, fewest=WHOLE, turned=turned)


def lowest(services: Services, partitions: int) -> dict[int, Low]:
    """The lowest checkpoint of each partition, over the stages begun on targets that are served.

    A target without any counts as at the beginning. One that is being built reads archive and
    stream as one, and keeps nothing back.

    Raises:
        GraphUnavailable: a target is away.
    """
    services.active()  # registers the settings' target in a fresh deployment
    low: dict[int, Low] = {}
    for target in services.targets.all():
        if target.state == "building":
            continue
        seqs: dict[str, dict[int, int]] = {}
        for checkpoint in services.graph(target).checkpoints():
            seqs.setdefault(checkpoint.stage, {})[checkpoint.partition] = checkpoint.seq
        for stage, by_partition in (seqs or {"(no stage)": {}}).items():
            for partition in range(partitions):
                here = Low(by_partition.get(partition, 0), f"{stage}@{target.name}")
                if partition not in low or here.seq < low[partition].seq:
                    low[partition] = here
    return low


def _tell(services: Services, **told: str) -> None:
    """Leave in Redis what `status` and the metrics show."""
    key = LedgerKeys(services.settings.prefix).archive
    tell(services.redis, key, told)


class _Pass:
    def __init__(
        self,
        services: Services,
        lease: ArchiveLease,
        keep: int | None,
        fewest: Fewest,
        *,
        turned: Callable[[], None],
    ) -> None:
        self._services = services
        self._ledger: Ledger = services.ledger
        self._archive = self._ledger.archive
        self._lease = lease
        settings: Settings = services.settings
        self._keep = settings.archive_keep_entries if keep is None else keep
        self._fewest = fewest
        self._turned = turned
        self._report = ArchiveReport()

    def run(self) -> ArchiveReport:
        """Every partition, as far as it may be archived."""
        low, tails = lowest(self._services, self._ledger.partitions), self._ledger.tails()
        limits = self._limits(low, tails)
        boundaries = self._archive.boundaries(range(len(tails)))
        packed = self._archive.ids.packed_up_to(len(tails))
        fewest = self._fewest.entries if self._fewest == WHOLE else 1
        due = [
            partition
            for partition, limit in enumerate(limits)
            if limit - boundaries[partition].seq >= fewest
            or packed[partition] < boundaries[partition].seq
        ]
        if not due:  # then the place is not even asked
            return self._report
        self._claim(boundaries)
        with Collector(self._services) as collector:
            for partition in due:
                limit = limits[partition]
                boundary = self._adopted(partition, boundaries[partition], limit)
                last = self._packed(partition, boundary, packed[partition])
                while self._lease.held and (entries := self._next(partition, boundary, limit)):
                    boundary = self._archived(boundary, entries, collector)
                    last = self._packed(partition, boundary, last)
                if boundary.seq:
                    self._archive.files.tidy(self._manifest(partition, boundary))
        return self._report

    def _limits(self, low: Mapping[int, Low], tails: list[Tail]) -> list[int]:
        """The last number that may be archived, of each partition."""
        limits = []
        for partition, tail in enumerate(tails):
            # The last entry stays, whatever is asked for: the tail is read from it.
            wanted = tail.seq - max(1, self._keep)
            if low[partition].seq < wanted:
                self._report.waits_for[partition] = low[partition].whose
            limits.append(min(wanted, low[partition].seq))
        return limits

    def _claim(self, boundaries: Sequence[Boundary]) -> None:
        """See that the place holds the archive of this ledger, or none yet, and tell where it is.

        Who reads may have no such setting, and reads from the first trimming on.
        """
        ledger, files = self._ledger, self._archive.files
        is_begun = any(boundary.seq for boundary in boundaries)
        files.claim(ledger.identity, ledger.partitions, ledger.id_buckets, is_begun=is_begun)
        for partition, boundary in enumerate(boundaries):
            self._manifest(partition, boundary)
        _tell(self._services, url=files.store.url)

    # one segment

    def _next(self, partition: int, boundary: Boundary, limit: int) -> list[Entry]:
        """Entries of the next segment; nothing: there are too few.

        It ends with an entry that stands in the stream.
        """
        entries, size = segment_entries(self._ledger, boundary, partition, limit)
        full = size > MAX_BYTES or len(entries) == MAX_ENTRIES
        while entries and entries[-1].fault:
            entries.pop()
        enough = len(entries) >= self._fewest.entries or size >= self._fewest.bytes
        return entries if full or enough else []

    def _archived(self, boundary: Boundary, entries: list[Entry], collector: Collector) -> Boundary:
        """Write these entries, compare, and move the boundary behind them."""
        before = self._manifest(entries[0].partition, boundary)
        collected = collector.of(entries)
        manifest, packed = self._archive.files.add(before, entries, self._turned, collected.data)
        moved = self._move(manifest, boundary, entries)
        self._report.archived += len(entries)
        self._report.segments += 1
        self._report.bytes += len(packed.data) + len(packed.derivations)
        self._report.derivations += collected.values
        return moved

    def _packed(self, partition: int, boundary: Boundary, last: int) -> int:
        """Put items in place of the rows of what is archived behind a number; up to where.

        Raises:
            ArchiverUnderWay: another archiver was faster.
        """
        while last < boundary.seq and self._lease.held:
            entries = self._archive.behind(partition, boundary, last, PACKED_AT_ONCE)
            if not self._archive.ids.pack(boundary.packed(), entries):
                raise ArchiverUnderWay(holder=f"it packed the ids of {partition}")
            last = entries[-1].seq
            self._turned()
        return last

    def _manifest(self, partition: int, boundary: Boundary) -> Manifest:
        if boundary.seq:
            return self._archive.manifest(partition, boundary)
        return Manifest(self._ledger.identity, partition)

    def _move(self, manifest: Manifest, boundary: Boundary, entries: list[Entry]) -> Boundary:
        """Move the boundary to the end of a manifest.

        Raises:
            ArchiverUnderWay: another archiver was faster.
            ArchiveDamaged: the stream has not the last of these entries, or none behind it.
        """
        after = Boundary.of(manifest)
        faults = [noted_fault(entry) for entry in entries if entry.fault]
        outcome = self._archive.move(manifest.partition, boundary, after, faults)
        if outcome == 1:
            return after
        if outcome == 0:
            raise ArchiverUnderWay(holder=f"it moved the boundary of {manifest.partition}")
        rule = "its last entry stands in the stream, and another one behind it"
        raise ArchiveDamaged(name=self._archive.files.path(str(manifest.partition)), rule=rule)

    # what an archiver that was killed left

    def _adopted(self, partition: int, boundary: Boundary, limit: int) -> Boundary:
        """The boundary, moved over segments that were listed, and no more.

        Raises:
            ArchiveDamaged: they hold what the ledger does not.
        """
        listed = self._archive.listed_beyond(partition, boundary)
        if listed is None:
            return boundary
        for row in listed.rows[boundary.segments :]:
            entries = self._streamed(partition, boundary, row)
            if self._is_mended(partition, row, entries):
                break  # written anew
            self._archive.files.require_same(partition, row, entries)
            if row.last_seq > limit:
                break
            part = listed.first(boundary.segments + 1)
            boundary = self._move(part, boundary, entries)
            self._report.archived += len(entries)
        return boundary

    def _is_mended(self, partition: int, row: Row, entries: list[Entry]) -> bool:
        """Whether all in which a segment differs was held out then, and was put right since."""
        segment = self._archive.files.segment(partition, row)
        pairs = zip(segment.entries(row.first_seq, row.last_seq), entries, strict=True)
        differing = [written for written, streamed in pairs if written != streamed]
        return bool(differing) and all(written.fault for written in differing)

    def _streamed(self, partition: int, boundary: Boundary, row: Row) -> list[Entry]:
        """The stream's entries of a segment.

        Raises:
            ArchiveDamaged: the stream ends before it.
        """
        entries: list[Entry] = []
        seq, position = boundary.seq, boundary.position
        while seq < row.last_seq:
            count = min(READ_AT_ONCE, row.last_seq - seq)
            block = self._ledger.read(partition, position, count, after_seq=seq)
            if not block:
                raise ArchiveDamaged(
                    name=self._archive.files.path(f"{partition}/{row.file}"),
                    rule=f"the ledger has what it holds; it ends at {seq}: `recollect restore`",
                )
            entries += block
            seq, position = entries[-1].seq, entries[-1].position
        return entries


_LOOP: Final = "archive"
_STOP_LOOK_S: Final = 0.2
_log = logs.get_logger(__name__)


def run_archiver(settings: Settings) -> int:
    """Archive until a signal asks it to stop; the exit code.

    Whatever is away, full or damaged is told once, and waited for: nothing is trimmed meanwhile.

    Raises:
        ConfigurationError: no place is set.
    """
    if settings.archive_url is None:
        raise ConfigurationError(reason="archive_url: where older entries go is not set")
    logs.configure_logging(settings)
    progress.WORKER.expect([_LOOP])
    stop, told = StopSignal(), ""
    with ExitStack() as opened:
        opened.enter_context(stop)
        services = opened.enter_context(Services(settings))
        if settings.metrics_port:
            metrics.MetricsServer(
                settings.metrics_host, settings.metrics_port, problem=progress.WORKER.problem
            )
        while not stop.received:
            problem = _look(services)
            if problem != told:
                if problem:
                    _log.warning("nothing is archived", reason=problem)
                else:
                    _log.info("archives again")
            told = problem
            _pause(stop, settings.archive_every_s)
    return 0


def _look(services: Services) -> str:
    """Archive what is due; why that could not be, empty: it could."""
    try:
        report = archive_when_due(services, lambda: progress.WORKER.turned(_LOOP))
    except ArchiverUnderWay:
        return ""  # another one does the work
    except RecollectError as error:
        return str(error)
    if report.archived:
        metrics.ARCHIVED.inc(report.archived)
        _log.info("archived", entries=report.archived, segments=report.segments)
    return ""


def _pause(stop: StopSignal, seconds: float) -> None:
    """Wait for the next look, or for the end."""
    pause, left_s = threading.Event(), seconds
    while left_s > 0 and not stop.received:
        pause.wait(min(_STOP_LOOK_S, left_s))
        left_s -= _STOP_LOOK_S
        progress.WORKER.turned(_LOOP)
