"""Whether a worker gets on: its loops turn, and what it has in hand is applied or waits by name.

That a process answers says little: one whose loop hangs goes on serving its metrics. Loops, blocks
and waits are told here as they happen, and `problem` says what has not moved for too long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

LOOP_S: Final = 60.0
"""For a loop to turn once; each waits a few seconds at most, for a Redis that is away included."""
BLOCK_S: Final = 600.0
"""For a block in hand to be applied or to say why it waits: the models read a hundred texts of a
block at the lowest priority of a machine that is shared."""


class Progress:
    """What moved when; threads may share it.

    Args:
        now: clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._turned_s: dict[str, float] = {}
        self._moved_s: dict[int, float] = {}
        self._reason = ""

    def expect(self, loops: Iterable[str]) -> None:
        """These loops turn from now on."""
        with self._lock:
            self._turned_s = dict.fromkeys(loops, self._now())

    def turned(self, loop: str) -> None:
        """A loop has come round."""
        with self._lock:
            self._turned_s[loop] = self._now()

    def took(self, partitions: Iterable[int]) -> None:
        """Blocks of these partitions are in hand."""
        with self._lock:
            self._moved_s |= dict.fromkeys(partitions, self._now())

    def let_go(self, partitions: Iterable[int]) -> None:
        """They are applied, or given back."""
        with self._lock:
            for partition in partitions:
                self._moved_s.pop(partition, None)
            if not self._moved_s:
                self._reason = ""

    def waits(self, reason: str) -> None:
        """What is in hand waits for something that has a name."""
        with self._lock:
            self._reason = reason
            self._moved_s = dict.fromkeys(self._moved_s, self._now())

    @property
    def reason(self) -> str:
        """What was waited for last, while something is in hand; else empty."""
        return self._reason

    def problem(self) -> str | None:
        """What has not moved for too long; None: the worker gets on."""
        with self._lock:
            now_s = self._now()
            for loop, turned_s in self._turned_s.items():
                if now_s - turned_s > LOOP_S:
                    return f"the loop {loop} has not turned for {now_s - turned_s:.0f} s"
            for partition, moved_s in self._moved_s.items():
                if now_s - moved_s > BLOCK_S:
                    return f"partition {partition} has not moved for {now_s - moved_s:.0f} s"
        return None


WORKER: Final = Progress()
"""Of this process, if it is a worker: it has one stage and one target."""
