"""The files of a data folder: private whatever the umask, logs that stay bounded, SQLite files.

What events say is in a data folder, and the passwords and keys that lead to it.

A child prints to a file, not to a pipe: so a supervisor that hangs holds up no child, and its end
loses nothing that was printed. Hence a log is not renamed under its writers, but copied and then
cut; they append, and go on at its new end.

SQLite files may be lost: they are in WAL mode, so of a killed process only what it was writing is
lost, and it is told when they are damaged.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Final, Literal

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
def written_whole(path: Path, *, is_large: bool = False) -> Iterator[IO[bytes]]:
    """A file for its user alone that is there once all of it is on the disk.

    Whatever is raised meanwhile leaves what was there before, and no part of the new one; of a
    process that is killed a part stays.

    Args:
        path: of the file.
        is_large: such parts of it are removed first, once they are a minute old.

    Raises:
        OSError: it cannot be written; no space is left.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    if is_large:
        _remove_unfinished(path)
    try:
        with open_private(new, "wb") as out:
            if is_large:
                with suppress(OSError):  # some network file systems lock nothing
                    fcntl.flock(out, fcntl.LOCK_EX)
            yield out
            out.flush()
            os.fsync(out.fileno())
            new.replace(path)  # while it is locked
    except BaseException:
        new.unlink(missing_ok=True)
        raise


_UNFINISHED_S: Final = 60.0
"""Age of a part that nobody has locked, from which on it is nobody's: not just about to be."""


def _remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of a large file; what one is writing stays."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.\d+\.new")
    for new in path.parent.glob(".*.new"):
        if ours.fullmatch(new.name) is None:
            continue
        with suppress(OSError), new.open("r+b") as left:  # locked, or gone
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - new.stat().st_mtime > _UNFINISHED_S:
                new.unlink()


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


LOG_BYTES: Final = 10 * 1024 * 1024
"""Of a log, after which it is put aside."""
LOGS_KEPT: Final = 3
"""Put aside beside each log: `.1` is the youngest."""


def keep_small(log: Path) -> None:
    """Put the log aside and begin it anew if it has grown beyond its limit.

    On a full disk nothing can be put aside: then the log is only begun anew, and nobody is told by
    an error, because whoever looks after a child must go on with it.

    Args:
        log: opened for appending by whoever writes to it; it may be missing.
    """
    # FileNotFoundError, too: a target that is dropped takes its log with it.
    with suppress(OSError):
        if log.stat().st_size >= LOG_BYTES:
            turned = RotatingFileHandler(log, backupCount=LOGS_KEPT, delay=True)
            turned.rotator = _copy_and_cut
            turned.doRollover()
            turned.close()


def _copy_and_cut(log: str, copy: str) -> None:
    try:
        with Path(log).open("rb") as source, open_private(Path(copy), "wb") as target:
            shutil.copyfileobj(source, target)
            # What came meanwhile, so that as good as nothing comes between this and the cut.
            shutil.copyfileobj(source, target)
    finally:
        os.truncate(log, 0)


BUSY_S: Final = 5.0
"""How long to wait for another writer, unless somebody says so."""
_DAMAGED: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


def make_file(path: Path) -> None:
    """Make an empty file, unless there is one."""
    if not path.exists():
        delete_beside(path)  # of a file that was deleted without them
        open_private(path, "ab").close()


def connect(path: Path, *, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open a file that is there; each statement stands alone, outside of `writing`.

    Args:
        path: of the file.
        busy_s: how long to wait for another writer, seconds.
    """
    return sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)


def prepare(db: sqlite3.Connection, schema: str) -> None:
    """Set how it is written, and make what is missing of its tables.

    Raises:
        sqlite3.DatabaseError: it is damaged, or no such file (see `is_damage`).
    """
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA secure_delete = ON")  # what is deleted is gone from the file, too
    db.executescript(schema)


def empty_log(db: sqlite3.Connection) -> None:
    """Write the log into the file and cut it off: it may still hold what was deleted.

    Where others read meanwhile it stays as it is, until the next time.
    """
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction: all of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is damaged or is none of SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)  # absent where Python itself refuses
    return code is not None and code & 0xFF in _DAMAGED


def delete_beside(path: Path) -> None:
    """Delete what SQLite keeps beside a file."""
    for end in ("wal", "shm"):
        path.with_name(f"{path.name}-{end}").unlink(missing_ok=True)


def delete_database(path: Path) -> None:
    """Delete a file of SQLite, and what it keeps beside it; nothing is there: that is well."""
    path.unlink(missing_ok=True)
    delete_beside(path)
