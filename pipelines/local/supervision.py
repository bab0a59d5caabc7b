"""Children that stay up: each is watched by itself, and started again without an end.

`Supervised` is the state machine of one child; it decides with a clock and a child that tests
bring along. `Supervision` gives each one a thread, so that a start of minutes holds up nobody
else. What goes wrong is an event: it is told, and the child's turn comes again a little later.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final, Protocol, Self

from pipelines.local.private_files import keep_small
from pipelines.local.processes import POLL_S, START_TIMEOUT_S, log_tail
from projections.errors import OperationFailed

ASK_EVERY_S: Final = 2.0
"""Between two questions to a child that answers."""
QUESTIONS: Final = 3
"""Without an answer, at least, before a child counts as hung."""
FIRST_DELAY_S: Final = 0.5
"""Before the second start in a row; the first follows at once. It doubles from start to start."""
LONGEST_DELAY_S: Final = 5.0
ANSWERS: Final = "answers"
"""What is told of a child that is up."""
FORGIVEN_S: Final = 10.0
"""Who stayed up for so long begins with no delay again."""
FIRST_STARTS: Final = 3
"""Of a child that has never answered, while somebody waits for it; then they are told why."""


class Child(Protocol):
    """What is kept up. But for `pid` every method may block, `answers` not for ever.

    Attributes:
        name: for people.
        silence_s: without an answer, after which it counts as hung: what a loaded machine takes,
            and more.
    """

    name: str
    silence_s: float

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""

    @property
    def log_path(self) -> Path | None:
        """File whose end tells why it ended; None: it prints where its parent does."""

    def start(self) -> None:
        """Start it; raises OperationFailed."""

    def answers(self) -> bool:
        """Whether it does its work now."""

    def kill(self) -> None:
        """End it at once."""

    def stop(self) -> None:
        """End it in order."""


class Backoff:
    """How long to wait before a start: nothing at first, then longer and longer, up to a bound."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def next_s(self) -> float:
        """The pause before the next start, seconds; each call makes the one after it longer."""
        delay_s = 0.0 if not self._in_a_row else FIRST_DELAY_S * 2.0 ** (self._in_a_row - 1)
        self._in_a_row = min(self._in_a_row + 1, 32)
        return min(LONGEST_DELAY_S, delay_s)

    def stayed_up(self, seconds: float) -> None:
        """What was started ran for so long: if that was long, what was before is forgiven."""
        if seconds >= FORGIVEN_S:
            self._in_a_row = 0


class Phase(Enum):
    """Where a child is in its life."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"


@dataclass(slots=True)
class Silence:
    """Questions that were not answered, one after the other.

    Both their number and the time count: after this process itself was stopped for a while the
    clock alone would condemn a child that was never asked.
    """

    since_s: float
    questions: int = 0


class Supervised:
    """One child and its state; `step` does what is due.

    Args:
        child: that is kept up.
        now: clock, seconds.
        tell: gets what happened, in words.
        start_timeout_s: for a started child to answer.
    """

    def __init__(
        self,
        child: Child,
        *,
        now: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = lambda _: None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.child = child
        self.phase = Phase.DOWN
        self.starts = 0
        self.has_answered = False
        self.last_failure = ""
        self._now = now
        self._tell = tell
        self._start_timeout_s = start_timeout_s
        self._backoff = Backoff()
        self._due_s = now()
        self._since_s = now()
        self._asked_s = now()
        self._silence: Silence | None = None

    def step(self) -> float:
        """Look once, and act; returns how long the next look can wait, seconds."""
        if self.phase is Phase.DOWN:
            return self._start_when_due()
        if self.child.pid is None:
            self._went_down("ended while starting" if self._is_starting() else "ended unasked")
        elif self._is_starting():
            self._look_at_start()
        elif self._now() - self._asked_s >= ASK_EVERY_S:
            self._ask()
        return POLL_S

    def _is_starting(self) -> bool:
        return self.phase is Phase.STARTING

    def _start_when_due(self) -> float:
        left_s = self._due_s - self._now()
        if left_s > 0:
            return min(left_s, POLL_S)
        self.starts += 1
        self._enter(Phase.STARTING)
        try:
            self.child.start()
        except (OperationFailed, OSError) as error:
            self._went_down(f"did not start: {error}")
        return 0.0

    def _look_at_start(self) -> None:
        if self.child.answers():
            self.has_answered = True
            self._enter(Phase.UP)
            self._tell(ANSWERS)
        elif self._now() - self._since_s > self._start_timeout_s:
            self._end(f"did not answer within {self._start_timeout_s:.0f} s of its start")

    def _ask(self) -> None:
        asked_s = self._now()
        if self.child.answers():
            self._silence = None
        elif self.child.pid is not None:
            silence = self._silence = self._silence or Silence(asked_s)
            silence.questions += 1
            silent_s = self._now() - silence.since_s
            if silence.questions >= QUESTIONS and silent_s >= self.child.silence_s:
                self._end(f"has not answered for {silent_s:.0f} s")
        self._asked_s = self._now()

    def _end(self, reason: str) -> None:
        self.child.kill()
        self._went_down(f"{reason}: killed")

    def _went_down(self, reason: str) -> None:
        if self.phase is Phase.UP:
            self._backoff.stayed_up(self._now() - self._since_s)
        pause_s = self._backoff.next_s()
        self.last_failure = reason
        self._enter(Phase.DOWN)
        self._due_s = self._now() + pause_s
        again = "at once" if not pause_s else f"in {pause_s:g} s"
        self._tell(f"{reason}; started again {again}")

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since_s = self._asked_s = self._now()
        self._silence = None


def tell_stderr(name: str, what: str) -> None:
    """One line of the log of whoever holds children, who go on with them on a full disk, too."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    with suppress(OSError):
        sys.stderr.write(f"{moment} {name}: {' '.join(what.split())}\n")
        sys.stderr.flush()


class Supervision:
    """Keeps children up and their logs small, each by a thread of its own, from `start` to `stop`.

    Args:
        children: by the names that they are asked for by.
        changed: called, on any thread, after a child has started, answered or ended; again, if it
            raises OSError.
        tell: gets the name of a child and what happened, in words.
    """

    def __init__(
        self,
        children: Iterable[tuple[str, Child]],
        changed: Callable[[], None] = lambda: None,
        tell: Callable[[str, str], None] = tell_stderr,
    ) -> None:
        self._changed = changed
        self._tell = tell
        self._stop = threading.Event()
        self._supervised: dict[str, Supervised] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._ended: dict[str, threading.Event] = {}
        for name, child in children:
            self._add(name, child)

    def __contains__(self, name: object) -> bool:
        return name in self._supervised

    def __len__(self) -> int:
        return len(self._supervised)

    @property
    def children(self) -> dict[str, Child]:
        """Those that are kept up, by name."""
        return {name: held.child for name, held in self._supervised.items()}

    def is_up(self, name: str) -> bool:
        """Whether a child answered when it was asked last."""
        held = self._supervised.get(name)
        return held is not None and held.phase is Phase.UP

    def start(self) -> None:
        """Begin; returns at once."""
        for thread in self._threads.values():
            thread.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_up(
        self,
        names: Iterable[str],
        *,
        is_over: Callable[[], bool] = lambda: False,
        timeout_s: float = START_TIMEOUT_S,
    ) -> bool:
        """Whether all of them have answered; False when `is_over` said that nobody waits any more.

        Raises:
            OperationFailed: one fails again and again, or time is up; with the end of its log.
        """
        deadline_s = time.monotonic() + timeout_s
        waiting = [self._supervised[name] for name in names]
        while waiting := [held for held in waiting if not held.has_answered]:
            if is_over() or self._stop.is_set():
                return False
            late = time.monotonic() > deadline_s
            for held in waiting:
                # Between two starts, not in one that may be about to succeed.
                if late or (held.starts >= FIRST_STARTS and held.phase is Phase.DOWN):
                    reason = held.last_failure or f"did not answer within {timeout_s:.0f} s"
                    log = held.child.log_path
                    end = "" if log is None else f"\n{log_tail(log)}"
                    raise OperationFailed(reason=f"{held.child.name}: {reason}{end}")
            time.sleep(POLL_S / 2)
        return True

    def drop(self, name: str) -> None:
        """Stop a child in order, and let go of it."""
        self._ended[name].set()
        self._threads[name].join()
        held = self._supervised.pop(name)
        held.child.stop()

    def stop(self, *, together: bool = False) -> None:
        """Stop them all in order, the last one first, those that start included.

        Args:
            together: none waits for another to end.
        """
        self._stop.set()
        for ended in self._ended.values():
            ended.set()
        names = list(reversed(list(self._supervised)))
        if together:
            with ThreadPoolExecutor(max(1, len(names))) as pool:
                list(pool.map(self._stop_child, names))
            return
        for name in names:
            self._stop_child(name)

    def _stop_child(self, name: str) -> None:
        if self._threads[name].is_alive():
            self._threads[name].join()
        self._supervised[name].child.stop()

    def _add(self, name: str, child: Child) -> None:
        held = Supervised(child, tell=lambda what: self._tell(child.name, what))
        self._supervised[name] = held
        self._ended[name] = threading.Event()
        self._threads[name] = threading.Thread(
            target=self._keep_up, args=(held, self._ended[name]), name=f"keep-{name}", daemon=True
        )

    def _keep_up(self, held: Supervised, ended: threading.Event) -> None:
        before: tuple[Phase, int | None] | None = None
        while not ended.is_set():
            pause_s = held.step()
            if held.child.log_path is not None:
                keep_small(held.child.log_path)
            if (now := (held.phase, held.child.pid)) != before:
                with suppress(OSError):  # noted as soon as there is room
                    self._changed()
                    before = now
            ended.wait(pause_s)
