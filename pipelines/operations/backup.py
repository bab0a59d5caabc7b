"""`recollect backup` and `restore`: the ledger in another place, and back from it.

A backup has the form of an archive: segments and manifests of each partition, `ledger.json`, and
`backup.json`, which names the manifests of one moment and holds what is recorded of erasures: their
receipts, and the backups that they do not reach. What is there already is not written again. An
archive can be restored from as well; what was still in Redis is missing then.

What models and rules made of the entries is beside them (`derived_files`). The graph is no part of
it: it is folded again. Nor are the id index, the counters and the clock: they follow from the
entries.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from pipelines.ledger.archive import URL_FIELD, Boundary
from pipelines.ledger.archive_files import FENCES_FILE, LEDGER_FILE, ArchiveFiles, ArchiveStore
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import Entry, LedgerKeys
from pipelines.ledger.epoch import CopyLease
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.refill import Refill
from pipelines.ledger.sealing import sealed_by, unsealed_part
from pipelines.ledger.segments import Manifest
from pipelines.ledger.sequence import segment_entries
from pipelines.ledger.vault import tenant_fence
from pipelines.operations.derived_files import Collector, put_back
from pipelines.operations.receipts import erasure_records, note_backup, put_erasure_records
from pipelines.work.services import Services
from pipelines.work.settings import Settings, place_of_files
from projections.errors import ArchiveDamaged, ConfigurationError, OperationFailed
from projections.events import decode_event

BACKUP_FILE: Final = "backup.json"
BACKING_UP: Final = "writing entries"
RESTORING: Final = "reading entries"


@dataclass
class BackupReport:
    """What a backup holds, or what was restored.

    Attributes:
        entries: of the ledger, in all.
        written: of them this time.
        segments: that were written this time, or read.
        derivations: what models and rules made of these entries, values written or put back.
        closed: pages of them that were not put back: a key is not at hand or was destroyed, or a
            consent was withdrawn.
        damaged: files of them that were not, since they are not as they were written.
        seconds: that it took.
    """

    entries: int = 0
    written: int = 0
    segments: int = 0
    derivations: int = 0
    closed: int = 0
    damaged: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def files_at(settings: Settings, url: str) -> ArchiveFiles:
    """Files below a URL.

    Raises:
        ConfigurationError: it is none that an archive may have.
    """
    try:
        place = place_of_files(url)
    except ValueError as error:
        raise ConfigurationError(reason=f"URL: {error}") from None
    return ArchiveFiles(ArchiveStore(place, timeout_s=settings.archive_timeout_s))


def _told(files: ArchiveFiles) -> dict[str, Any]:
    """What a backup says of itself; an archive says nothing."""
    told = files.document(BACKUP_FILE)
    partitions = len(told.get("manifests") or ())
    if told and partitions != files.of_ledger().get("partitions"):
        rule = f"it names a manifest of each partition of {LEDGER_FILE}"
        raise ArchiveDamaged(name=files.path(BACKUP_FILE), rule=rule)
    return told


def backup(
    services: Services,
    url: str,
    *,
    keep_days: float | None = None,
    progress: Progress = lambda done, total, what: None,
) -> BackupReport:
    """Bring a backup up to the ledger as it is now; events may come in meanwhile.

    Args:
        services: ledger.
        url: an absolute path or a URL of fsspec; not the archive's.
        keep_days: after how many days somebody takes it away; None: nobody says. It is noted for
            the receipts of erasures, and nothing is deleted here.
        progress: called with done, total and what is being done.

    Raises:
        OperationFailed: another backup into the same place is under way.
        ConfigurationError: another ledger's backup is there, or the archive.
        ArchiveDamaged: what is there is damaged, or the ledger went back behind it.
        ArchiveUnavailable: the place is away, full, or may not be written.
        LedgerUnavailable: Redis is away.
    """
    begun, ledger, settings = time.monotonic(), services.ledger, services.settings
    files = files_at(settings, url)
    archive_url = settings.archive_url or ledger.archive.told().get(URL_FIELD, "")
    if url.rstrip("/") == archive_url.rstrip("/"):
        raise ConfigurationError(reason="URL: the archive is there; a backup needs another place")
    files.claim(ledger.identity, ledger.partitions, ledger.id_buckets, is_begun=False)
    place = hashlib.blake2b(files.store.url.encode(), digest_size=8).hexdigest()
    lease_ms = settings.lease_ms
    with CopyLease(services.redis, settings.prefix, lease_ms=lease_ms, place=place) as lease:
        report = _backed_up(services, files, lease, keep_days=keep_days, progress=progress)
    report.seconds = time.monotonic() - begun
    return report


def _backed_up(
    services: Services,
    files: ArchiveFiles,
    lease: CopyLease,
    *,
    keep_days: float | None,
    progress: Progress,
) -> BackupReport:
    ledger = services.ledger
    report, tails = BackupReport(), ledger.tails()
    report.entries = sum(tail.seq for tail in tails)
    manifests = []
    with Collector(services) as collector:
        for partition, tail in enumerate(tails):
            manifest = _longest(files, Manifest(ledger.identity, partition))
            _require_same_history(files, ledger, manifest)
            while entries := segment_entries(ledger, Boundary.of(manifest), partition, tail.seq)[0]:
                collected = collector.of(entries)
                manifest, _ = files.add(manifest, entries, lambda: None, collected.data)
                report.written += len(entries)
                report.segments += 1
                report.derivations += collected.values
                progress(report.written, None, BACKING_UP)
            manifests.append(manifest)
    note_backup(services, files.store.url, keep_days)
    told = {
        "at_ms": ledger.now_ms(),
        "manifests": [manifest.file for manifest in manifests],
        **erasure_records(services),
    }
    files.put_fences(ledger.vault.fences.copied())
    lease.require()
    files.store.put(BACKUP_FILE, orjson.dumps(told, option=orjson.OPT_INDENT_2))
    for manifest in manifests:
        files.tidy(manifest)
    return report


def restore(
    services: Services, url: str, *, progress: Progress = lambda done, total, what: None
) -> BackupReport:
    """Make the ledger of a backup, or of an archive, in an empty Redis.

    With `archive_url` set, all but the last segment of each partition goes there, else all into
    Redis. A restore that was killed begins anew; while it puts derivations back the ledger is
    whole, and those that are missing are made again. Nothing else may use that Redis meanwhile.

    Args:
        services: settings and Redis; its ledger must not have been opened yet.
        url: of the backup.
        progress: called with done, total and what is being done.

    Raises:
        OperationFailed: Redis holds a ledger, or another restore is under way.
        ConfigurationError: nothing is there, or the settings make another ledger.
        ArchiveDamaged: a file is not what was written; nothing of Redis was changed.
        ArchiveUnavailable, LedgerUnavailable: a place is away.
    """
    settings = services.settings
    with CopyLease(services.redis, settings.prefix, lease_ms=settings.lease_ms) as lease:
        return _restored(services, files_at(settings, url), lease, progress)


def _restored(
    services: Services, files: ArchiveFiles, lease: CopyLease, progress: Progress
) -> BackupReport:
    begun, settings = time.monotonic(), services.settings
    identity = _identity(files, settings)
    told = _told(files)
    manifests = _manifests(files, identity, settings.partitions, told.get("manifests"))
    report = BackupReport(entries=sum(manifest.last_seq for manifest in manifests))
    sealed: set[str] = set()
    for manifest in manifests:  # all is read before anything is written
        for row in manifest.rows:
            segment = files.segment(manifest.partition, row)
            sealed.update(_sealed_tenants(segment.entries(row.first_seq, row.last_seq)))
            report.segments += 1
    fences = files.fences()
    if missing := sorted(one for one in sealed if tenant_fence(one).hex() not in fences):
        rule = f"it has the fence of tenant {missing[0]}, which is sealed"
        raise ArchiveDamaged(name=files.path(FENCES_FILE), rule=rule)
    refill = Refill(services.redis, LedgerKeys(settings.prefix), id_buckets=settings.id_buckets)
    goal = _archive_of(settings, files, refill.begun())
    archive_url = None if goal is None else goal.store.url
    if not refill.begin(settings.partitions, archive_url):
        raise OperationFailed(reason="Redis holds a ledger: restore into an empty one")
    for manifest in manifests:
        archived = manifest.first(0 if goal is None else len(manifest.rows) - 1)
        for row in manifest.rows:
            segment = files.segment(manifest.partition, row)
            entries = segment.entries(row.first_seq, row.last_seq)
            is_archived = row.last_seq <= archived.last_seq
            refill.put(entries, is_archived=is_archived)
            if goal is not None and is_archived:
                files.copy(goal, manifest.partition, row)
            report.written += len(entries)
            progress(report.written, report.entries, RESTORING)
        if goal is not None and archived.rows:
            goal.store.put(f"{archived.partition}/{archived.file}", archived.packed())
    put_erasure_records(services, told)
    boundaries = [
        Boundary.of(manifest.first(0 if goal is None else len(manifest.rows) - 1))
        for manifest in manifests
    ]
    if goal is not None:  # last: of what is there before, nobody could restore all
        goal.claim(identity, settings.partitions, settings.id_buckets, is_begun=False)
    lease.require()
    refill.finish(identity, manifests, boundaries, archive_url, fences=fences)
    back = put_back(services, files, manifests, progress)
    report.derivations, report.closed, report.damaged = back
    report.seconds = time.monotonic() - begun
    return report


def _sealed_tenants(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        if sealed_by(entry.data) is not None:
            yield decode_event(unsealed_part(entry.data)).tenant


def _identity(files: ArchiveFiles, settings: Settings) -> str:
    """Of the ledger that is there.

    Raises:
        ConfigurationError: nothing is there, or the settings make another one.
    """
    document = files.of_ledger()
    if not document:
        raise ConfigurationError(reason=f"there is no {files.path(LEDGER_FILE)}")
    ours = {"partitions": settings.partitions, "id_buckets": settings.id_buckets}
    theirs = {name: document.get(name) for name in ours}
    identity = str(document.get("ledger"))
    prefix = identity.rpartition(":")[0]
    if theirs != ours or prefix != settings.prefix:
        told = ", ".join(f"{name} {value}" for name, value in theirs.items())
        raise ConfigurationError(reason=f"the ledger there has {told}, prefix {prefix}: set these")
    return identity


def _manifests(
    files: ArchiveFiles, identity: str, partitions: int, names: Sequence[str] | None
) -> list[Manifest]:
    """Those of the last moment that a backup names; of an archive (None) the longest."""
    manifests = []
    for partition in range(partitions):
        start = Manifest(identity, partition)
        if names is None or names[partition] == start.file:
            manifests.append(start if names else _longest(files, start))
            continue
        manifest = files.manifest(partition, names[partition])
        if manifest is None:
            name = files.path(f"{partition}/{names[partition]}")
            raise ArchiveDamaged(name=name, rule=f"the manifest that {BACKUP_FILE} names is there")
        manifests.append(manifest)
    return manifests


def _longest(files: ArchiveFiles, start: Manifest) -> Manifest:
    """The longest manifest of a ledger's partition; `start`: there is none."""
    listed = files.manifests_beyond(start.partition, 0)
    return next((one for one in listed if one.ledger == start.ledger), start)


def _archive_of(settings: Settings, source: ArchiveFiles, begun: str | None) -> ArchiveFiles | None:
    """Where the restored ledger's archive is; None: all goes into Redis.

    Args:
        settings: that name it.
        source: what is restored from.
        begun: where that of a restore is that was killed; None: none was.

    Raises:
        OperationFailed: another archive is there than the one that is restored from.
    """
    if settings.archive_url is None:
        return None
    files = files_at(settings, settings.archive_url)
    is_ours = files.store.url.rstrip("/") == source.store.url.rstrip("/")
    if not is_ours and begun != files.store.url and files.of_ledger():
        raise OperationFailed(
            reason=f"{files.path(LEDGER_FILE)} is there: restore from it (it lacks what was still "
            "in Redis), or set another archive_url"
        )
    return files


def _require_same_history(files: ArchiveFiles, ledger: Ledger, manifest: Manifest) -> None:
    """See that the ledger still has what was written last.

    Raises:
        ArchiveDamaged: it went back, or is another one.
    """
    if not manifest.rows:
        return
    row = manifest.rows[-1]
    (last,) = files.segment(manifest.partition, row).entries(row.last_seq, row.last_seq)
    entry = ledger.entry_at(manifest.partition, last.position, last.seq)
    if entry is None or (entry.data != last.data and not last.fault):
        name = files.path(f"{manifest.partition}/{row.file}")
        raise ArchiveDamaged(name=name, rule="the ledger has its last entry, too")
