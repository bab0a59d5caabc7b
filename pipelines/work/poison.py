"""What a worker does when an entry, or what it needs, fails: wait, give up, or hold the stage.

What passes by itself (a service that is away, a stage that has to go first) is waited for.

An entry that fails alone is tried again, with growing waits, and is then given up: it becomes a
dead letter, and its neighbours flow. But poison is rare. When many different entries would be
given up one after the other, or within a minute, the fault is not theirs (a release of ours with
a mistake, a server that answers wrongly), and giving up would empty the ledger into dead letters.
Then the stage holds: it gives nothing up, says so, and tries the held entries now and then. It
goes on by itself when one of them passes, or when an operator says that it is poison after all.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from pipelines.ledger.entries import Entry
from pipelines.ledger.registry import Hold
from pipelines.observe import metrics, progress
from pipelines.work.settings import Settings
from projections.errors import (
    EntryHeldOut,
    Fenced,
    FoldVersionMismatch,
    GraphError,
    LedgerError,
    ModelsMismatch,
    ModelUnavailable,
    RecollectError,
    StageHeld,
    Stopped,
    TransactionTimeout,
    UpstreamDeadLetter,
)

Result = TypeVar("Result")
_DEADLOCK = "Neo.TransientError.Transaction.DeadlockDetected"
logger = structlog.get_logger(__name__)


class Retries:
    """Calls again, with backoff, until an event says stop.

    Args:
        stop: ends all waiting.
        labels: of the stage and the target, for metrics and logs.
    """

    def __init__(self, stop: threading.Event, labels: Mapping[str, str]) -> None:
        self._stop = stop
        self._labels = labels
        self._log = logger.bind(**labels)

    def call(self, call: Callable[[], Result], *, may_halve: bool = False) -> Result:
        """Call until it succeeds or fails with something that a retry cannot mend.

        With `may_halve` a transaction that ran into its limit is such a thing: halves are faster.

        Raises:
            Stopped: `stop` was set while it waited.
        """

        def again(error: BaseException) -> bool:
            if may_halve and isinstance(error, TransactionTimeout):
                return False
            return isinstance(error, RecollectError) and error.retryable

        retrying = Retrying(
            retry=retry_if_exception(again),
            wait=wait_random_exponential(multiplier=0.05, max=5),
            sleep=sleep_using_event(self._stop),
            stop=stop_when_event_set(self._stop),
            before_sleep=self._note,
            reraise=True,
        )
        try:
            return retrying(call)
        except RecollectError as error:
            if again(error):  # only `stop` ends the tries of such a one
                raise Stopped() from error
            raise

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it holds; `what` says what is waited for.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        wait_s = 0.02
        while not condition():
            progress.WORKER.waits(what)
            self.pause(wait_s)
            wait_s = min(1.0, wait_s * 1.5)

    def pause(self, seconds: float) -> None:
        """Wait so long.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        if self._stop.wait(seconds):
            raise Stopped()

    def _note(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is None:
            return
        metrics.RETRIES.labels(**self._labels, reason=metrics.error_reason(error)).inc()
        progress.WORKER.waits(str(error))
        attempt = state.attempt_number
        if attempt in (1, 10) or attempt % 100 == 0:
            # Two transactions that met once (a deadlock) are ordinary; what lasts is not.
            tell = self._log.info if attempt == 1 and _is_passing(error) else self._log.warning
            tell("retrying", attempt=attempt, reason=str(error))


def _is_passing(error: BaseException) -> bool:
    """Whether the database asks for another try of the same, which is a part of its work."""
    return isinstance(error, GraphError) and _DEADLOCK in str(error)


REFUSALS = (FoldVersionMismatch, ModelsMismatch, ModelUnavailable)
"""This worker cannot fold this graph at all."""
NEVER_POISON = (Stopped, Fenced, StageHeld, *REFUSALS)
"""No entry is at fault, none is given up: the caller has to see to it."""

MINUTE_S = 60.0
LONGEST_WAIT_S = 5.0
"""Between two attempts of an entry that is not held."""
LOOK_EVERY_S = 2.0
"""Between two looks whether a held stage was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonPolicy:
    """When to give an entry up.

    Attributes:
        max_attempts: of an entry alone.
        wait_s: between the first two of them; it doubles, with jitter, up to LONGEST_WAIT_S.
        in_a_row: so many different entries may be given up without one that passes; None: any.
        a_minute: so many within a minute; None: any.
        held_wait_s: longest wait between two attempts of a held entry.
        patience_s: how long to hold before StageHeld is raised; None: until something changes.
    """

    max_attempts: int = 5
    wait_s: float = 0.1
    in_a_row: int | None = 5
    a_minute: int | None = 20
    held_wait_s: float = 30.0
    patience_s: float | None = 60.0

    @classmethod
    def of_live_work(cls, settings: Settings) -> PoisonPolicy:
        """Of a worker, which holds as long as it takes."""
        return cls(
            max_attempts=settings.max_attempts,
            wait_s=settings.attempt_wait_s,
            in_a_row=settings.poison_in_a_row,
            a_minute=settings.poison_a_minute,
            patience_s=None,
        )

    @classmethod
    def of_command(cls, settings: Settings) -> PoisonPolicy:
        """Of replay and rebuild, which end with an error when it takes too long."""
        return cls(
            max_attempts=settings.max_attempts,
            wait_s=settings.attempt_wait_s,
            in_a_row=settings.poison_in_a_row,
            a_minute=settings.poison_a_minute,
            patience_s=settings.hold_patience_s,
        )

    def waits(self) -> Iterator[float]:
        """How long to wait before each attempt after the first."""
        for number in range(self.max_attempts - 1):
            yield _jittered(min(LONGEST_WAIT_S, self.wait_s * 2**number))


UNBRAKED = PoisonPolicy(in_a_row=None, a_minute=None)
"""For entries that are known to fail, such as dead letters that are tried again."""


class GivenUp(Exception):
    """An entry is poison; `error` is what it failed with at last."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Board(Protocol):
    """Where a hold is shown and released: `ledger.holds.Holds`. Its methods raise LedgerError."""

    def show(self, stage: str, target: str, hold: Hold) -> None:
        """Say that the stage holds."""

    def clear(self, stage: str, target: str) -> None:
        """Say that it goes on."""

    def is_released(self, stage: str, target: str) -> bool:
        """Whether entries may be given up without a brake now."""


class NoBoard:
    """Nobody is told, and nobody can release it."""

    def show(self, stage: str, target: str, hold: Hold) -> None:
        """Nothing."""

    def clear(self, stage: str, target: str) -> None:
        """Nothing."""

    def is_released(self, stage: str, target: str) -> bool:
        """Never."""
        return False


class Brake:
    """Counts what one runner gives up, and holds it. Its threads share it.

    Args:
        policy: how much is too much.
        stage, target: names, for metrics, logs and errors.
        retries: waits, until the runner is stopped.
        board: where a hold is shown.
    """

    def __init__(
        self,
        policy: PoisonPolicy,
        *,
        stage: str,
        target: str,
        retries: Retries,
        board: Board | None = None,
    ) -> None:
        self.policy = policy
        self._stage, self._target = stage, target
        self._gauge = metrics.STAGE_HELD.labels(stage=stage, target=target)
        self._retries = retries
        self._board = board or NoBoard()
        self._log = logger.bind(stage=stage, target=target)
        self._lock = threading.Lock()
        self._row: set[tuple[int, int]] = set()
        self._minute: deque[tuple[float, tuple[int, int]]] = deque()
        self._released_until_s = 0.0
        self._holding: dict[tuple[int, int], Hold] = {}

    # -- what the runner calls -------------------------------------------------------------------

    def passed(self) -> None:
        """Entries were folded: what comes now is not in a row with what was given up before."""
        if self._row:
            with self._lock:
                self._row.clear()

    def try_alone(self, entry: Entry, attempt: Callable[[], Result], error: Exception) -> Result:
        """Try an entry until it passes or has to be given up.

        Args:
            entry: that failed alone.
            attempt: folds it; raises one of NEVER_POISON, or why it failed again.
            error: why it failed the first time.

        Raises:
            GivenUp: it is poison.
            StageHeld: too many are, and `patience_s` is over.
            Stopped: the runner was stopped meanwhile.
        """
        while True:
            if isinstance(error, UpstreamDeadLetter):  # decided already, by the earlier stage
                raise GivenUp(error)
            # What the ledger does not hold is not there a second later either.
            waits = () if isinstance(error, EntryHeldOut) else self.policy.waits()
            for wait_s in waits:
                if time.monotonic() >= self._released_until_s:
                    self._retries.pause(wait_s)
                try:
                    return attempt()
                except NEVER_POISON:
                    raise
                except Exception as again:  # noqa: BLE001  unknown means: the entry's own fault
                    error = again
            held = self.give_up_or_hold(entry, attempt, error)
            if held is not None:
                return held[0]

    def give_up_or_hold(
        self, entry: Entry, attempt: Callable[[], Result], error: Exception
    ) -> tuple[Result] | None:
        """What to do with an entry whose attempts are used up.

        Returns:
            What the attempt returned by which the hold ended; None: another entry ended it, and
            this one may have its attempts again.

        Raises:
            GivenUp, StageHeld, Stopped: as `try_alone`.
        """
        place = (entry.partition, entry.seq)
        if self._may_give_up(place):
            raise GivenUp(error)
        hold = Hold(
            partition=entry.partition,
            seq=entry.seq,
            position=str(entry.position),
            reason=describe(error)[:300],
            since_s=time.time(),
        )
        self._begin(place, hold)
        try:
            return self._hold(place, hold, attempt, error)
        finally:
            self._leave(place)

    # -- counting --------------------------------------------------------------------------------

    def _may_give_up(self, place: tuple[int, int]) -> bool:
        """Count the entry, unless that is one too many."""
        with self._lock:
            if not self._holding and self._is_within_limits(place):
                self._count(place)
                return True
        if not self._is_released():
            return False
        with self._lock:
            self._count(place)
        return True

    def _is_within_limits(self, place: tuple[int, int]) -> bool:
        now_s = time.monotonic()
        while self._minute and now_s - self._minute[0][0] > MINUTE_S:
            self._minute.popleft()
        row = len(self._row | {place})
        minute = len({entry for _, entry in self._minute} | {place})
        policy = self.policy
        return row <= (policy.in_a_row or row) and minute <= (policy.a_minute or minute)

    def _count(self, place: tuple[int, int]) -> None:
        self._row.add(place)
        self._minute.append((time.monotonic(), place))

    # -- holding ---------------------------------------------------------------------------------

    def _hold(
        self,
        place: tuple[int, int],
        hold: Hold,
        attempt: Callable[[], Result],
        error: Exception,
    ) -> tuple[Result] | None:
        begun_s = time.monotonic()
        next_s, wait_s = begun_s, self.policy.wait_s
        while True:
            now_s = time.monotonic()
            patience_s = self.policy.patience_s
            if patience_s is not None and now_s - begun_s > patience_s:
                raise StageHeld(
                    stage=self._stage,
                    partition=hold.partition,
                    position=hold.position,
                    reason=describe(error),
                ) from error
            if place not in self._holding:  # another entry passed
                return None
            if self._is_released():
                self._end("released")
                self._count(place)
                raise GivenUp(error)
            if now_s >= next_s:
                try:
                    result = attempt()
                except NEVER_POISON:
                    raise
                except Exception as again:  # noqa: BLE001  as above
                    error = again
                else:
                    self._end("an entry passed")
                    return (result,)
                wait_s = min(self.policy.held_wait_s, wait_s * 2)
                next_s = time.monotonic() + _jittered(wait_s)
            self._show(hold)
            progress.WORKER.waits("the stage holds")
            self._retries.pause(max(0.0, min(LOOK_EVERY_S, next_s - time.monotonic())))

    def _begin(self, place: tuple[int, int], hold: Hold) -> None:
        with self._lock:
            first = not self._holding
            self._holding[place] = hold
        if first:
            self._gauge.set(1)
            self._log.error(
                "holds: too many different entries fail, none is given up",
                partition=hold.partition,
                position=hold.position,
                reason=hold.reason,
            )

    def _end(self, why: str) -> None:
        """Go on: all that hold have their attempts again, and the counting starts anew."""
        with self._lock:
            was_held = bool(self._holding)
            self._holding.clear()
            self._row.clear()
            self._minute.clear()
        if was_held:
            self._gone_on(why)

    def _leave(self, place: tuple[int, int]) -> None:
        """This entry holds no more; the counts stay, if it did not pass."""
        with self._lock:
            last = self._holding.pop(place, None) is not None and not self._holding
        if last:
            self._gone_on("nobody waits any more")

    def _gone_on(self, why: str) -> None:
        self._gauge.set(0)
        self._log.warning("goes on", reason=why)
        try:
            self._board.clear(self._stage, self._target)
        except LedgerError as error:  # it is shown for a minute more
            self._log.debug("still shown as held", reason=str(error))

    def _show(self, hold: Hold) -> None:
        with self._lock:
            first = next(iter(self._holding.values()), hold)
        try:
            self._board.show(self._stage, self._target, first)
        except LedgerError as error:
            self._log.debug("not shown as held", reason=str(error))

    def _is_released(self) -> bool:
        if time.monotonic() < self._released_until_s:
            return True
        try:
            released = self._board.is_released(self._stage, self._target)
        except LedgerError:
            released = False
        if released:
            self._released_until_s = time.monotonic() + LOOK_EVERY_S
        return released


def describe(error: Exception) -> str:
    """What a dead letter says; an error that is not ours may have no words but its name."""
    if isinstance(error, RecollectError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _jittered(seconds: float) -> float:
    """Up to a quarter less, so that workers do not try in step."""
    return seconds * random.uniform(0.75, 1.0)
