"""How many streams each key has open, counted over all processes of an API.

A stream holds a slot of its key: a byte of a shared file, which its process has locked. The kernel
takes the locks of a process back that was killed, so no slot is lost, and none has to be renewed.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

_KEY_BYTES: Final = 5
MAX_SLOTS: Final = 2**16
"""Of a key; with its digest, the place of a byte is a number of 56 bits."""


class StreamSlots:
    """Slots of one process; called by its event loop alone.

    Args:
        most: of a key.
        path: of the file, made by whoever comes first; None: the process is alone.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, most: int, path: Path | None = None) -> None:
        self._most = most
        self._taken: set[int] = set()
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        """Slots that this process has taken."""
        return len(self._taken)

    def take(self, key: str) -> int | None:
        """A slot of the key, to be given back; None: all are taken."""
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()
        first = int.from_bytes(digest, "big") * MAX_SLOTS
        for slot in range(first, first + self._most):
            # Locks are of the process: what it holds itself looks free to it.
            if slot not in self._taken and self._lock(slot):
                self._taken.add(slot)
                return slot
        return None

    def give_back(self, slot: int) -> None:
        """The stream is over."""
        self._taken.discard(slot)
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)

    def _lock(self, slot: int) -> bool:
        if self._file is not None:
            with suppress(BlockingIOError, PermissionError):
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
                return True
            return False
        return True
