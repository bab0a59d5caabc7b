"""Where the archive's files are: a folder, or a bucket, by any URL of fsspec.

A file system may hang, and not every one has a time limit of its own, so each call has one here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from pipelines.local.private_files import private_folder, written_whole
from projections.errors import ArchiveUnavailable

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
