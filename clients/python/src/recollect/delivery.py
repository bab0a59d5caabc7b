"""Events on their way to the ledger: a bounded queue, and a thread that sends what is in it.

`put` never waits and never fails. What cannot be delivered is counted, called back and warned of.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import random
import threading
import time
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from recollect.calls import pause_before
from recollect.errors import (
    ApiError,
    InvalidInput,
    RecollectError,
    UndeliveredWarning,
    UnexpectedAnswer,
    api_error,
)
from recollect.events import Made
from recollect.models import BatchResult

MAX_BATCH_EVENTS: Final = 500
MAX_BATCH_BYTES: Final = 4 * 2**20
"""Half of the body that the API takes by default."""
LINGER_S: Final = 0.01
"""What is logged so shortly after one another goes in one batch."""
GIVE_UP_S: Final = 300.0
REQUEST_TIMEOUT: Final = 408
SESSIONS_REMEMBERED: Final = 1_000

_log = logging.getLogger("recollect")


@dataclass(frozen=True)
class Undelivered:
    """An event that is not in the ledger.

    Attributes:
        event_id: of the event.
        reason: why, with field and rule where one was broken.
        was_refused: the API refused it; else it was dropped here: the queue was full, or nobody
            answered for too long.
        error: what the API said, or what came of the last attempt.
    """

    event_id: str
    reason: str
    was_refused: bool
    event_json: bytes = field(repr=False, default=b"")
    error: RecollectError | None = None

    @property
    def event(self) -> dict[str, Any]:
        """The event as it was to be sent."""
        read: dict[str, Any] = json.loads(self.event_json)
        return read


@dataclass(frozen=True)
class Counts:
    """What became of the events that were logged; each is counted once.

    Attributes:
        waiting: not decided yet.
        accepted: in the ledger.
        refused: the API said no for good.
        dropped: the queue was full, or the API was away for too long.
    """

    waiting: int = 0
    accepted: int = 0
    refused: int = 0
    dropped: int = 0


class _Waiting:
    """An event in the queue."""

    __slots__ = ("event", "number", "since_s")

    def __init__(self, number: int, event: Made) -> None:
        self.number = number
        self.event = event
        self.since_s = 0.0


Send = Callable[[bytes], Sequence[BatchResult]]
"""Sends the body of a batch once; raises RecollectError."""
Told = Callable[[Undelivered], None]


class Outbox:
    """The queue and its thread, which starts with the first event.

    Args:
        send: of a batch.
        most: events that may wait; one more is dropped.
        told: called from the thread for each event that is not delivered.
        give_up_s: since the first attempt to send an event.
    """

    def __init__(
        self, send: Send, *, most: int, told: Told | None = None, give_up_s: float = GIVE_UP_S
    ) -> None:
        self._send = send
        self._most = most
        self._told = told
        self._give_up_s = give_up_s
        self._positions: OrderedDict[str, str] = OrderedDict()
        self._read: dict[str, str] = {}
        self._counts = Counts()
        self._has_warned = False
        self._closed = False
        self._begin()
        atexit.register(_close_at_exit, weakref.ref(self))

    def _begin(self) -> None:
        """An empty queue without a thread; also in the child of a fork, whose parent sends all."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._hurry = threading.Event()
        self._queue: deque[_Waiting] = deque()
        self._undecided: OrderedDict[int, None] = OrderedDict()
        self._number = 0
        self._is_idle = False
        self._thread: threading.Thread | None = None

    # -- called by whoever logs --------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """What became of all events until now."""
        return replace(self._counts, waiting=len(self._undecided))

    def put(self, event: Made) -> None:
        """Take an event; it goes out by itself."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            is_taken = not self._closed and len(self._undecided) < self._most
            if is_taken:
                self._number += 1
                self._undecided[self._number] = None
                self._queue.append(_Waiting(self._number, event))
                if self._is_idle:
                    self._is_idle = False
                    self._changed.notify_all()
        if not is_taken:
            state = "the client is closed" if self._closed else "the queue is full"
            self._give_up([event], f"dropped: {state}")
        elif self._thread is None:
            self._start()

    def send_now(self, event: Made) -> None:
        """Send an event at once.

        Raises:
            RecollectError: it is not in the ledger.
        """
        (result,) = self._send(_body([event]))
        if result.error is not None:
            raise api_error(result.error)
        self._accepted(event, result)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was taken is decided; whether it is."""
        deadline_s = time.monotonic() + timeout_s
        if self._pid != os.getpid():
            return True
        with self._lock:
            last = self._number
            while self._undecided and next(iter(self._undecided)) <= last:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._hurry.set()
                self._changed.wait(left_s)
        return True

    def position(self, session_id: str) -> str | None:
        """Of the newest event of the session that was accepted, else of any; None: of none."""
        with self._lock:
            newest = next(reversed(self._positions.values()), None)
            return self._positions.get(session_id, newest)

    def unread(self) -> dict[str, str]:
        """The same by session, but for those that are known to be in the graph."""
        with self._lock:
            rows = self._positions.items()
            return {name: place for name, place in rows if self._read.get(name) != place}

    def note_accepted(self, session_id: str, position: str | None) -> None:
        """An event of the session is in the ledger, whether or not it went through this queue."""
        with self._lock:
            self._counts = replace(self._counts, accepted=self._counts.accepted + 1)
            if position is not None:
                self._positions[session_id] = position
                self._positions.move_to_end(session_id)
                while len(self._positions) > SESSIONS_REMEMBERED:
                    self._read.pop(self._positions.popitem(last=False)[0], None)

    def note_read(self, session_id: str, position: str) -> None:
        """The graph has the session until there."""
        with self._lock:
            if session_id in self._positions:
                self._read[session_id] = position

    def close(self, timeout_s: float) -> None:
        """Send what waits, and take nothing more; what is left then is dropped, and told."""
        if self._pid != os.getpid():  # a child of a fork that has logged nothing
            self._closed = True
            return
        self.flush(timeout_s)
        with self._lock:
            self._closed = True
            left = [*self._queue]
            self._queue.clear()
            self._hurry.set()
            self._changed.notify_all()
        if left:
            reason = f"dropped: not delivered within {timeout_s:g} s of the end"
            self._give_up([waiting.event for waiting in left], reason)
            self._decide(left)
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(timeout_s)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                name = "recollect-delivery"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                with suppress(RuntimeError):  # the interpreter ends: `close` tells what is left
                    thread.start()
                    self._thread = thread

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        attempt = 0
        while batch := self._next_batch():
            failure = self._deliver(batch)
            if failure is None:
                attempt = 0
                continue
            attempt += 1
            with self._lock:
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, pause_before(failure, attempt))

    def _next_batch(self) -> list[_Waiting]:
        """What is sent together; empty: that was all."""
        with self._lock:
            while not self._queue:
                if self._closed:
                    return []
                self._is_idle = True
                self._hurry.clear()
                self._changed.wait()
            self._is_idle = False
        self._hurry.wait(LINGER_S * random.uniform(0.5, 1.0))
        with self._lock:
            batch: list[_Waiting] = []
            size = 0
            while self._queue and len(batch) < MAX_BATCH_EVENTS:
                size += len(self._queue[0].event.json)
                if batch and size > MAX_BATCH_BYTES:
                    break
                batch.append(self._queue.popleft())
        now_s = time.monotonic()
        for waiting in batch:
            waiting.since_s = waiting.since_s or now_s
        # Between the two looks the queue may have been emptied by `close`.
        return batch or self._next_batch()

    def _deliver(self, batch: list[_Waiting]) -> RecollectError | None:
        """Send a batch; returns why all of it is to be sent again, later."""
        try:
            results = self._send(_body([waiting.event for waiting in batch]))
            if len(results) != len(batch):
                raise UnexpectedAnswer(f"{len(batch)} events sent, {len(results)} answered")
        except RecollectError as error:
            if _may_succeed(error):
                self._wait_again(batch, error, at_the_front=True)
                return error
            if isinstance(error, InvalidInput) and len(batch) > 1:
                # One event that is too large, or more events than this API takes: which?
                middle = len(batch) // 2
                failures = [self._deliver(half) for half in (batch[:middle], batch[middle:])]
                return next((failure for failure in failures if failure is not None), None)
            self._refuse(batch, error)
            return None
        return self._settle(batch, results)

    def _settle(
        self, batch: list[_Waiting], results: Sequence[BatchResult]
    ) -> RecollectError | None:
        again: dict[int, _Waiting] = {}
        failure: RecollectError | None = None
        for waiting, result in zip(batch, results, strict=True):
            if result.error is None:
                self._accepted(waiting.event, result)
                continue
            error = api_error(result.error)
            if _may_succeed(error):
                again[waiting.number] = waiting
                failure = error
            else:
                self._refuse([waiting], error)
        if failure is not None:
            # Behind what waits: that may be of partitions which take events.
            self._wait_again([*again.values()], failure, at_the_front=False)
        self._decide([waiting for waiting in batch if waiting.number not in again])
        return failure if len(again) == len(batch) else None

    def _wait_again(
        self, batch: list[_Waiting], error: RecollectError, *, at_the_front: bool
    ) -> None:
        oldest_s = time.monotonic() - self._give_up_s
        with self._lock:
            late = [waiting for waiting in batch if self._closed or waiting.since_s < oldest_s]
            young = [] if self._closed else [w for w in batch if w.since_s >= oldest_s]
            if at_the_front:
                self._queue.extendleft(reversed(young))
            else:
                self._queue.extend(young)
        if late:
            reason = f"dropped: not delivered for {self._give_up_s:g} s ({error})"
            self._give_up([waiting.event for waiting in late], reason, error)
            self._decide(late)

    def _accepted(self, event: Made, result: BatchResult) -> None:
        self.note_accepted(event.session_id, result.global_position)

    def _decide(self, batch: Sequence[_Waiting]) -> None:
        with self._lock:
            for waiting in batch:
                self._undecided.pop(waiting.number, None)
            self._changed.notify_all()

    def _refuse(self, batch: list[_Waiting], error: RecollectError) -> None:
        self._give_up([waiting.event for waiting in batch], f"refused: {error}", error)
        self._decide(batch)

    def _give_up(
        self, events: Sequence[Made], reason: str, error: RecollectError | None = None
    ) -> None:
        """Count, call back and, the first time, warn."""
        was_refused = reason.startswith("refused")
        with self._lock:
            name = "refused" if was_refused else "dropped"
            now = getattr(self._counts, name) + len(events)
            self._counts = replace(self._counts, **{name: now})
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            text = f"events are not delivered, first {events[0].event_id} {reason}"
            _log.warning(text)
            with suppress(UndeliveredWarning):  # where warnings are errors
                warnings.warn(text, UndeliveredWarning, stacklevel=2)
        if self._told is not None:
            for event in events:
                undelivered = Undelivered(
                    event.event_id, reason, was_refused, event_json=event.json, error=error
                )
                try:
                    self._told(undelivered)
                except Exception:  # noqa: BLE001  # the caller's; it must not end the delivery
                    _log.exception("what is called for undelivered events failed")


def _may_succeed(error: RecollectError) -> bool:
    """Whether the same events may be accepted later; to send them again harms nothing."""
    status = error.status if isinstance(error, ApiError) else 0
    return error.retryable or status >= 500 or status == REQUEST_TIMEOUT


def _body(events: Sequence[Made]) -> bytes:
    return b'{"events":[' + b",".join(event.json for event in events) + b"]}"


def _close_at_exit(reference: weakref.ref[Outbox]) -> None:
    outbox = reference()
    if outbox is not None:
        outbox.close(AT_EXIT_S)


AT_EXIT_S: Final = 10.0
"""At the end of the process, for what waits."""
