"""Folders and files that nobody but their user can read, whatever the umask of the process is.

What events say is in a data folder, and the passwords and keys that lead to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


def private_folder(path: Path) -> Path:
    """Make sure that the folder exists, and that it is its user's alone; hands it back."""
    path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    path.chmod(_FOLDER_MODE)
    return path


def open_private(path: Path, mode: Literal["ab", "wb"]) -> IO[bytes]:
    """Open a file for writing; a new one is made for its user alone."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, _FILE_MODE))


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file for its user alone that is there once all of it is on the disk.

    Whatever is raised meanwhile leaves what was there before, and no part of the new one.

    Raises:
        OSError: it cannot be written; no space is left.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    try:
        with open_private(new, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def write_private(path: Path, text: str) -> None:
    """Write a file that only its user can read, whole or not at all."""
    with written_whole(path) as out:
        out.write(text.encode())


def write_json(path: Path, document: object) -> None:
    """Write `document` so that a reader sees the old file or the new one, never half of it."""
    write_private(path, json.dumps(document, indent=2) + "\n")


def close_to_others(folder: Path, ours: Iterable[str]) -> None:
    """Take from others what they may read of a folder: what is ours in it was made without care.

    The folder itself is closed unless it holds other things as well, whose readers are not ours
    to choose.

    Args:
        folder: it may be missing.
        ours: patterns of what is ours, directly in it.
    """
    if not folder.exists():
        return
    written = {path for pattern in ours for path in folder.glob(pattern)}
    if written.issuperset(folder.iterdir()):
        folder.chmod(_FOLDER_MODE)
    for top in written:
        _close(top)
        for parent, folders, files in os.walk(top):
            for name in (*folders, *files):
                _close(Path(parent, name))


def _close(path: Path) -> None:
    with suppress(FileNotFoundError):  # a file of a server that runs
        mode = path.lstat().st_mode
        if mode & 0o077 and not path.is_symlink():
            path.chmod(mode & 0o700)
