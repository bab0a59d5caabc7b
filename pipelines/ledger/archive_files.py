"""Segments and manifests below a URL: an archive's, or a backup's, which has the same form.

The URL is a folder, or a bucket, by anything that fsspec knows. A file system may hang, and not
every one has a time limit of its own, so each call has one here.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from pipelines.ledger.entries import Entry
from pipelines.ledger.segments import (
    FORMAT,
    MANIFEST,
    NO_NUMBER,
    Manifest,
    Packed,
    Row,
    Segment,
    last_seq_of,
    packed_segment,
)
from pipelines.local.private_files import private_folder, written_whole
from projections.errors import ArchiveDamaged, ArchiveUnavailable, ConfigurationError

Result = TypeVar("Result")
ANSWER_S: Final = 30.0


class ArchiveStore:
    """Files by name, below a URL. Safe for threads; connects when first used.

    Its methods raise ArchiveUnavailable: the place is away, full, may not be written, or did not
    answer in time.

    Args:
        url: an absolute path, or of fsspec (`s3://bucket/prefix`).
        timeout_s: of one call.
    """

    def __init__(self, url: str, *, timeout_s: float = ANSWER_S) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._opened: tuple[Any, str] | None = None

    def get(self, name: str) -> bytes | None:
        """What a file holds; None: there is none of that name."""

        def read(files: Any, path: str) -> bytes | None:
            files.invalidate_cache()
            try:
                return bytes(files.cat_file(path))
            except FileNotFoundError:
                return None

        return self._call(read, name)

    def put(self, name: str, data: bytes) -> None:
        """Write a file whole; when this returns it is where it stays."""

        def write(files: Any, path: str) -> None:
            if not _is_local(files):
                files.pipe_file(path, data)
                return
            place = Path(path)
            if not place.parent.is_dir():  # one that is there was made for whom its owner chose
                private_folder(place.parent)
            with written_whole(place) as out:
                out.write(data)
            _sync_folder(place.parent)

        self._call(write, name)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; nothing where there is no such folder."""

        def listed(files: Any, path: str) -> list[str]:
            files.invalidate_cache()
            try:
                return sorted(found.rpartition("/")[2] for found in files.ls(path, detail=False))
            except FileNotFoundError:
                return []

        return self._call(listed, folder)

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""

        def remove(files: Any, path: str) -> None:
            try:
                files.rm_file(path)
            except FileNotFoundError:
                return

        self._call(remove, name)

    def _call(self, function: Callable[[Any, str], Result], name: str) -> Result:
        """What a function of file system and path returns, within the time limit."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                files, root = self._files()
                results.append(function(files, f"{root}/{name}"))
            except Exception as error:  # noqa: BLE001 - each file system raises what its client does
                errors.append(error)

        # A daemon: one that hangs must not keep the process from ending.
        thread = threading.Thread(target=run, name="archive", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if results:
            return results[0]
        if not errors:
            raise ArchiveUnavailable(
                url=self.url, reason=f"no answer within {self._timeout_s:g} s about {name}"
            )
        error = errors[0]
        reason = f"{type(error).__name__}: {str(error)[:200]} ({name})"
        raise ArchiveUnavailable(url=self.url, reason=reason) from error

    def _files(self) -> tuple[Any, str]:
        if self._opened is None:
            from fsspec.core import url_to_fs

            files, root = url_to_fs(self.url)
            self._opened = files, str(root).rstrip("/")
        return self._opened


def _is_local(files: Any) -> bool:
    return "file" in ((files.protocol,) if isinstance(files.protocol, str) else files.protocol)


def _sync_folder(folder: Path) -> None:
    """The name of a new file is on the disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FENCES_FILE: Final = "fences.json"
"""Which tenants are sealed, and who was erased: rewritten, as nothing else is."""
LEDGER_FILE: Final = "ledger.json"
_NOT_HEXADECIMAL: Final = re.compile(r"[^0-9a-f]")


class ArchiveFiles:
    """Reads and writes them. Safe for threads.

    All methods raise ArchiveUnavailable: their place is away, full, or may not be written; those
    that read raise ArchiveDamaged: a file is not what was written, naming it and the rule.

    Args:
        store: where they are.
    """

    def __init__(self, store: ArchiveStore) -> None:
        self.store = store

    def path(self, name: str) -> str:
        """Of a file, for people."""
        return f"{self.store.url.rstrip('/')}/{name}"

    # whose they are

    def of_ledger(self) -> dict[str, Any]:
        """What stands in `ledger.json`: identity, partitions, buckets; nothing: there is none."""
        return self.document(LEDGER_FILE)

    def document(self, name: str) -> dict[str, Any]:
        """What a file of JSON says; nothing: there is none."""
        data = self.store.get(name)
        if data is None:
            return {}
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ArchiveDamaged(name=self.path(name), rule="it is JSON") from None
        if not isinstance(document, dict):
            raise ArchiveDamaged(name=self.path(name), rule="it is an object")
        return document

    def put_fences(self, fences: Mapping[str, Any]) -> None:
        """Write the fences of a ledger; one that is there and that it has lost stays."""
        there = self.document(FENCES_FILE) if fences else {}
        if {**there, **fences} != there:
            told = orjson.dumps({**there, **fences}, option=orjson.OPT_INDENT_2)
            self.store.put(FENCES_FILE, told)

    def fences(self) -> dict[str, Any]:
        """What `put_fences` has written."""
        told = self.document(FENCES_FILE)
        if any(_NOT_HEXADECIMAL.search(name) for name in told):
            raise ArchiveDamaged(name=self.path(FENCES_FILE), rule="its names are hexadecimal")
        return told

    def claim(self, identity: str, partitions: int, id_buckets: int, *, is_begun: bool) -> None:
        """See that the place is of this ledger, or of none yet; then it is from now on.

        Args:
            identity: of the ledger.
            partitions: of it.
            id_buckets: of it.
            is_begun: whether there must be files.

        Raises:
            ConfigurationError: it is of another ledger.
        """
        ours = {
            "format": FORMAT,
            "ledger": identity,
            "partitions": partitions,
            "id_buckets": id_buckets,
        }
        theirs = self.of_ledger()
        if not theirs:
            if is_begun:
                self.require_place()
            self.store.put(LEDGER_FILE, orjson.dumps(ours, option=orjson.OPT_INDENT_2))
        elif theirs != ours:
            raise ConfigurationError(reason=f"{self.path(LEDGER_FILE)} is of another ledger")

    def require_place(self) -> None:
        """Tell a file that is gone from a place that is: a disk that is not mounted.

        Raises:
            ArchiveUnavailable: there is no archive.
        """
        if self.store.get(LEDGER_FILE) is None:
            raise ArchiveUnavailable(url=self.store.url, reason=f"no {LEDGER_FILE} is there")

    # manifests

    def manifest(self, partition: int, file: str) -> Manifest | None:
        """The manifest of that name; None: there is none."""
        name = f"{partition}/{file}"
        data = self.store.get(name)
        if data is None:
            return None
        manifest = Manifest.unpacked(data, self.path(name))
        if manifest.partition != partition:
            raise ArchiveDamaged(name=self.path(name), rule=f"it is of partition {partition}")
        return manifest

    def manifests_beyond(self, partition: int, seq: int) -> Iterator[Manifest]:
        """Those of a partition that end behind a number, the longest first."""
        for name in reversed(self.store.names(str(partition))):
            if name.startswith(MANIFEST) and seq < last_seq_of(name) < NO_NUMBER:
                manifest = self.manifest(partition, name)
                if manifest is not None:
                    yield manifest

    # segments

    def segment(self, partition: int, row: Row) -> Segment:
        """A segment as its file has it now."""
        name = f"{partition}/{row.file}"
        data = self.store.get(name)
        if data is None:
            self.require_place()
            raise ArchiveDamaged(name=self.path(name), rule="a segment of the manifest is there")
        return Segment(partition, row, data, self.path(name))

    def derivations(self, partition: int, row: Row) -> bytes:
        """What was derived of a segment's entries, as its file has it; empty: there is none."""
        if not row.derivations:
            return b""
        name = f"{partition}/{row.derivations_file}"
        data = self.store.get(name)
        if data is None:
            self.require_place()
            raise ArchiveDamaged(name=self.path(name), rule="a file of the manifest is there")
        if hashlib.sha256(data).hexdigest() != row.derivations:
            raise ArchiveDamaged(name=self.path(name), rule="its SHA-256 is the manifest's")
        return data

    def add(
        self,
        before: Manifest,
        entries: Sequence[Entry],
        turned: Callable[[], None],
        derivations: bytes = b"",
    ) -> tuple[Manifest, Packed]:
        """Write a segment and the manifest that lists it, and read both back.

        Args:
            before: what is written of their partition.
            entries: that go on there.
            turned: called between any two steps.
            derivations: what was derived of these entries, as a file.
        """
        packed = packed_segment(before, entries, derivations)
        partition = before.partition
        turned()
        if derivations:
            self.store.put(f"{partition}/{packed.row.derivations_file}", derivations)
            turned()
            self.derivations(partition, packed.row)
        self.store.put(f"{partition}/{packed.row.file}", packed.data)
        turned()
        self.require_same(partition, packed.row, entries)
        manifest = before.with_segment(packed)
        name = f"{partition}/{manifest.file}"
        turned()
        self.store.put(name, manifest.packed())
        turned()
        if self.manifest(partition, manifest.file) != manifest:
            raise ArchiveDamaged(name=self.path(name), rule="it reads as it was written")
        return manifest, packed

    def copy(self, goal: ArchiveFiles, partition: int, row: Row) -> None:
        """Write a segment elsewhere, as it is; nothing where that is the same place."""
        if goal.store.url == self.store.url:
            return
        for file in filter(None, (row.derivations_file, row.file)):
            name = f"{partition}/{file}"
            if (data := self.store.get(name)) is not None:
                goal.store.put(name, data)
        goal.segment(partition, row)

    def require_same(self, partition: int, row: Row, entries: Sequence[Entry]) -> None:
        """Compare a segment with entries.

        Raises:
            ArchiveDamaged: they differ.
        """
        written = [entry._replace(keys=None) for entry in entries]
        if self.segment(partition, row).entries(row.first_seq, row.last_seq) != written:
            name = self.path(f"{partition}/{row.file}")
            raise ArchiveDamaged(name=name, rule="it holds what the stream holds")

    def tidy(self, manifest: Manifest) -> None:
        """Take away what ends where a manifest does, or before, and is not in it."""
        partition = manifest.partition
        listed = {manifest.file}
        listed.update(file for row in manifest.rows for file in (row.file, row.derivations_file))
        for name in self.store.names(str(partition)):
            if name not in listed and last_seq_of(name) <= manifest.last_seq:
                self.store.remove(f"{partition}/{name}")
