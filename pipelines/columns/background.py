"""Work in rounds on a thread of its own, and questions that wait for one that began after them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

POLL_S: Final = 0.1
"""Between two rounds when nobody waits for one, as long as each finds something new."""
QUIET_POLL_S: Final = 0.5
"""Likewise, when the last one found nothing."""
IDLE_POLL_S: Final = 1.0
"""Likewise, when nobody has asked anything for so long as IDLE_AFTER_S."""
IDLE_AFTER_S: Final = 5.0


class Rounds:
    """Rounds of some work: one at once for whoever waits, shared by all who do, else now and then.

    Args:
        work: a round; whether it found anything new.
        is_idle: whether nobody asks anything.
        name: of the thread.

    Attributes:
        waiting: questions that wait for a round.
    """

    def __init__(self, work: Callable[[], bool], is_idle: Callable[[], bool], name: str) -> None:
        self._work = work
        self._found_new = True
        self._is_idle = is_idle
        self._changed = threading.Condition()
        self._wanted = 0
        self._done = 0
        self._beside: deque[Callable[[], None]] = deque()
        self.waiting = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with the first one."""
        self._thread.start()

    def ask(self) -> int:
        """Ask for a round that begins now or later; its number, which is to be waited for."""
        with self._changed:
            # Served by the round that begins next, as are all others who wait by then.
            self._wanted += 1
            self.waiting += 1
            self._changed.notify_all()
            return self._wanted

    def wait(self, number: int, timeout_s: float) -> None:
        """Wait until a round that was asked for is done, and no longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: self._done >= number, timeout_s)
            self.waiting -= 1

    def run_beside(self, job: Callable[[], None]) -> None:
        """Have the thread do something longer, which is to call `round` now and then."""
        with self._changed:
            self._beside.append(job)
            self._changed.notify_all()

    def round(self) -> None:
        """A round, and word of it to all who waited when it began; on this thread alone."""
        with self._changed:
            wanted = self._wanted
        self._found_new = self._work()
        with self._changed:
            self._done = wanted
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._wanted == self._done and not self._beside:
                    self._changed.wait(self._pause_s())
                job = self._beside.popleft() if self._beside else None
            self.round()
            if job is not None:
                job()

    def _pause_s(self) -> float:
        if self._is_idle():
            return IDLE_POLL_S
        return POLL_S if self._found_new else QUIET_POLL_S


def wait_for_rounds(kinds: Sequence[Rounds], timeout_s: float) -> None:
    """Wait for a round of each, side by side, that begins now or later; no longer than that."""
    until_s = time.monotonic() + timeout_s
    numbers = [(rounds, rounds.ask()) for rounds in kinds]
    for rounds, number in numbers:
        rounds.wait(number, max(0.0, until_s - time.monotonic()))
