"""SQLite files that may be lost: made private, in WAL mode, and known when they are damaged.

Of a killed process only what it was writing is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipelines.local.private_files import open_private

BUSY_S: Final = 5.0
"""How long to wait for another writer, unless somebody says so."""
_DAMAGED: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


def make_file(path: Path) -> None:
    """Make an empty file, unless there is one."""
    if not path.exists():
        for left in beside(path):  # of a file that was deleted without them
            left.unlink(missing_ok=True)
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


def beside(path: Path) -> list[Path]:
    """What SQLite keeps beside a file."""
    return [path.with_name(f"{path.name}-{end}") for end in ("wal", "shm")]
