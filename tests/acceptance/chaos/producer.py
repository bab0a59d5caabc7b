"""The ingesting side: appends a story and keeps a book of what the ledger acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from pipelines.ledger.ledger import Appended, Ledger, Outcome
from pipelines.proof.sums import MODULUS, digest_text
from projections.errors import EventConflict, GraphAhead, LedgerUnavailable
from projections.events import Event, event_partition
from projections.identity import START, Position
from tests.acceptance.chaos.story import Story
from tests.reference_fold import session_graph

_PATIENCE_S = 300.0
_BRISK_EVENTS = 400


class Accepted(NamedTuple):
    """An event that the ledger acknowledged, and the place it gave it."""

    event: Event
    partition: int
    position: Position


class Expected(NamedTuple):
    """What the graph of the accepted events counts."""

    nodes: int
    follows: int
    caused_by: int
    placeholders: int


class Producer(threading.Thread):
    """Appends in a thread of its own while it may, and judges each outcome at once.

    It goes on with the same events until they are acknowledged, as a producer must that wants
    nothing lost; so when it is paused, everything it ever sent has its outcome.

    Attributes:
        accepted: by key, what was acknowledged, with the content that was first.
        refused: events that a halted partition did not take.
        reborn: events that were acknowledged once, then gone, then taken anew.
    """

    def __init__(self, ledger: Ledger, seed: int | str) -> None:
        super().__init__(name="producer", daemon=True)
        self.ledger = ledger
        self.story = Story(seed)
        self.accepted: dict[tuple[str, str], Accepted] = {}
        self.refused: list[Event] = []
        self.reborn: list[Accepted] = []
        self.duplicates = self.conflicts = self.unavailable = 0
        self.error: BaseException | None = None
        self._rng = random.Random(f"producer/{seed}")
        self._last = START
        self._queue: list[Event] = []
        self._brisk = 0
        self._go, self._end = threading.Event(), threading.Event()
        self._at_work = threading.Lock()

    # -- called by the test ----------------------------------------------------------------------

    def resume(self) -> None:
        """Append until paused: briskly at first, then only now and then."""
        self._brisk = _BRISK_EVENTS
        self._go.set()

    def pause(self) -> None:
        """Return when nothing is under way, and what was enqueued has been sent."""
        self._go.clear()
        if not self._at_work.acquire(timeout=_PATIENCE_S + 30):
            raise AssertionError("the producer hangs in an append")
        try:
            queued, self._queue = self._queue, []
            if queued and self.error is None:
                self.send(queued)
        finally:
            self._at_work.release()
        self.test()

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._go.clear()
        self.join(_PATIENCE_S + 30)

    def test(self) -> None:
        """Raise what the thread ended with."""
        if self.error is not None:
            raise AssertionError(f"the producer: {self.error!r}") from self.error

    def enqueue(self, events: Sequence[Event]) -> None:
        """Events to be sent with the next batch."""
        self._queue += events

    def send(self, events: Sequence[Event]) -> list[Outcome]:
        """Append events until they have their outcome, and write it into the book."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                outcomes = self.ledger.append(events)
                break
            except LedgerUnavailable as error:
                self.unavailable += 1
                if time.monotonic() > deadline:
                    raise AssertionError(f"the ledger takes nothing: {error}") from error
                time.sleep(0.05)
        for event, outcome in zip(events, outcomes, strict=True):
            self._judge(event, outcome)
        return outcomes

    # -- the book --------------------------------------------------------------------------------

    def forget(self, lost: Sequence[Accepted]) -> None:
        """Strike out what the ledger lost."""
        for one in lost:
            if self.accepted.get(one.event.key) == one:
                del self.accepted[one.event.key]

    def expect_older_places(self) -> None:
        """The ledger lost its end: places of it that no graph knows are handed out again."""
        self._last = START

    def expected(self) -> Expected:
        """Counts of the graph that these events fold into."""
        sessions, missing, causes = set(), set(), 0
        for key, one in self.accepted.items():
            sessions.add((key[0], one.event.session_id))
            if one.event.parent_event_id is not None:
                parent = (key[0], one.event.parent_event_id)
                if parent in self.accepted:
                    causes += 1
                else:
                    missing.add(parent)
        return Expected(
            len(self.accepted), len(self.accepted) - len(sessions), causes, len(missing)
        )

    def digest(self) -> str:
        """Digest of an undisturbed fold of these events, in memory, without any service."""
        from tests.reference_fold import graph_number

        folded = session_graph((one.position, one.event) for one in self.accepted.values())
        return digest_text(graph_number(folded) % MODULUS)

    def _judge(self, event: Event, outcome: Outcome) -> None:
        known = self.accepted.get(event.key)
        if isinstance(outcome, GraphAhead):
            self.refused.append(event)
            return
        if isinstance(outcome, EventConflict):
            if known is None or known.event == event:
                raise AssertionError(f"a conflict with nothing: {event.key}")
            self.conflicts += 1
            return
        if not isinstance(outcome, Appended):
            raise AssertionError(f"{event.key}: {outcome!r}")
        place = (outcome.partition, outcome.position)
        if outcome.partition != event_partition(event, self.ledger.partitions):
            raise AssertionError(f"{event.key} went to partition {outcome.partition}")
        if known is not None and outcome.duplicate:
            if known.event != event or (known.partition, known.position) != place:
                raise AssertionError(f"{event.key}: accepted as {known}, now at {place}")
            self.duplicates += 1
            return
        if known is not None:
            self.reborn.append(known)
        # Also a duplicate may be news: the answer to an earlier try was lost.
        if outcome.position <= self._last:
            raise AssertionError(f"{event.key} at {outcome.position}, behind {self._last}")
        self._last = outcome.position
        self.accepted[event.key] = Accepted(event, *place)

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Append while it may."""
        try:
            while not self._end.is_set():
                if not self._go.wait(0.1):
                    continue
                with self._at_work:
                    if self._go.is_set():
                        self.send(self._next_batch())
                self._end.wait(self._rng.uniform(0, 0.03 if self._brisk > 0 else 0.5))
        except BaseException as error:
            self.error = error

    def _next_batch(self) -> list[Event]:
        chance = self._rng.random()
        if chance < 0.9:
            size = self._rng.randrange(1, 8)
        elif chance < 0.98:
            size = self._rng.randrange(8, 50)
        else:
            size = self._rng.randrange(100, 300)
        if self._brisk <= 0:
            size = min(size, 3)
        self._brisk -= size
        queued, self._queue = self._queue, []
        return [*queued, *self.story.batch(size)]
