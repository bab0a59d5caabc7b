"""What is new in the ledger, for those who wait for it.

One task of a process reads the ledger's tail, while anybody follows it, and leaves what is of their
tenants in a ring for each tenant: it is read and put into words once, however many follow. Who is
behind the ring, because it began earlier or its client is slow, reads the ledger itself, a stretch
at a time and a few at once, until it is where the ring is. Both are the ledger in the order of its
positions, so a place is one position, of the last change or of where nothing was to be seen, and
whoever goes on from it gets each event behind it once, in whichever process of the API.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple, Self

import anyio
import anyio.to_thread
import orjson
from anyio import CapacityLimiter

from api.schemas import NOW
from api.stored_events import sees, stored
from enrichment.event_kinds import EventKind, event_kind
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import CLOCK_AHEAD_S, Ledger
from pipelines.ledger.sealing import unsealed_part
from pipelines.ledger.sequence import LedgerSequence, Stretch, last_position
from pipelines.observe import logs
from projections.errors import InvalidInput, LedgerError, UndecodableEntry
from projections.events import PARTITION_KEY, Event, is_system_event
from projections.identity import START, Position, partition_of

RING_BYTES: Final = 32 * 2**20
"""Of the newest changes, in equal parts of the tenants that are followed; who is further behind
reads the ledger."""
BATCH_BYTES: Final = 2**20
"""That a stream takes at once, and holds until its client has taken them."""
_EVENT_BYTES: Final = 1_024
"""What a change takes beside its JSON, roughly."""
CATCHING_UP: Final = 4
"""Streams that read the ledger at once: so many threads, and connections to Redis."""
LONGEST_BELL_MS: Final = 1_000
GATHERED_S: Final = 0.01
"""What is appended so shortly after one another is read at once."""
RETRY_S: Final = 0.5
PAGE_BYTES: Final = 4 * 2**20
PAGE_S: Final = 1.0
"""After which a page ends where it is: most of the ledger may be of others."""
_TENANT_FIELD: Final = b'"tenant":"'

_log = logs.get_logger(__name__)


class Change(NamedTuple):
    """An event of the ledger.

    Attributes:
        event: without its payload.
        kind: None: it is about the memory itself.
        json: as the wire shows it.
    """

    position: Position
    event: Event
    kind: EventKind | None
    json: bytes


class Wanted(NamedTuple):
    """Whose changes, and which.

    Attributes:
        scope: who looks.
        session_id: of this session; None: of any.
        kinds: of these; empty: of any.
    """

    scope: Scope
    session_id: str | None = None
    kinds: frozenset[EventKind] = frozenset()

    def has(self, change: Change) -> bool:
        """Whether it is wanted, and may be seen."""
        event = change.event
        return (
            event.tenant == self.scope.tenant
            and (self.session_id is None or event.session_id == self.session_id)
            and (not self.kinds or change.kind in self.kinds)
            and sees(self.scope, event)
        )

    def partitions(self, number: int) -> Iterable[int]:
        """Of a ledger of so many, those that may hold any."""
        if self.session_id is None:
            return range(number)
        names = (self.session_id, PARTITION_KEY)
        return {partition_of(self.scope.tenant, name, number) for name in names}


class Batch(NamedTuple):
    """Changes behind a place.

    Attributes:
        until: the place behind them.
        is_end: there were no more.
    """

    changes: Sequence[Change]
    until: Position
    is_end: bool


def changes_of(entries: Iterable[Entry], tenants: Collection[str]) -> dict[str, list[Change]]:
    """The events of some tenants, by tenant; what is no event is left away."""
    changes: dict[str, list[Change]] = {tenant: [] for tenant in tenants}
    for entry in entries:
        # Canonical JSON: behind this field stand only texts, in which no quote is bare.
        field = unsealed_part(entry.data).rpartition(_TENANT_FIELD)[2]
        tenant = field.partition(b'"')[0].decode("ascii", "replace")
        if tenant in changes and (change := _change(entry)) is not None:
            changes[change.event.tenant].append(change)
    return changes


def _change(entry: Entry) -> Change | None:
    try:
        event = entry.event()
    except UndecodableEntry:
        return None  # the stages give it up, too
    kind = None if is_system_event(event.event_type) else event_kind(event)
    json = orjson.dumps({**stored(entry, event), "kind": kind})
    return Change(entry.position, event._replace(payload=None), kind, json)


def read_behind(
    ledger: Callable[[], Ledger],
    sequence: LedgerSequence | None,
    wanted: Wanted,
    place: Position,
) -> tuple[LedgerSequence, Batch]:
    """The next stretch of the ledger behind a place, and what reads on from there.

    Args:
        ledger: when it can be used.
        sequence: that was returned with the stretch before; None: this is the first one.
        wanted: of the events.
        place: behind which the first stretch begins.

    Raises:
        LedgerError: it cannot be read now.
    """
    held = ledger()
    if sequence is None:
        sequence = LedgerSequence(held, place, wanted.partitions(held.partitions))
    stretch = sequence.read()
    tenant = wanted.scope.tenant
    changes = filter(wanted.has, changes_of(stretch.entries, (tenant,))[tenant])
    return sequence, Batch(list(changes), stretch.until, stretch.is_end)


class _Ring:
    """A tenant's newest changes: all between two places.

    Attributes:
        start: None: it has not begun.
        news: set, and replaced, when there is more.
        readings: that follow it.
    """

    def __init__(self) -> None:
        self.start: Position | None = None
        self.until = START
        self.news = asyncio.Event()
        self.readings = 0
        self._changes: deque[Change] = deque()
        self._size = 0

    def restart(self, at: Position) -> None:
        """It holds nothing, and what comes behind a place from now on."""
        self._changes.clear()
        self._size = 0
        self.start = self.until = at
        self.ring()

    def extend(self, changes: Sequence[Change], until: Position, *, most_bytes: int) -> None:
        """Take in what stands up to a place."""
        self.until = until
        for change in changes:
            self._changes.append(change)
            self._size += _EVENT_BYTES + len(change.json)
        while self._size > most_bytes and len(self._changes) > 1:
            oldest = self._changes.popleft()
            self._size -= _EVENT_BYTES + len(oldest.json)
            self.start = oldest.position
        if changes:
            self.ring()

    def behind(self, place: Position) -> Batch:
        """The first changes behind a place that is not before the start."""
        changes = list(takewhile(lambda change: change.position > place, reversed(self._changes)))
        changes.reverse()
        size = 0
        for number, change in enumerate(changes, 1):
            size += len(change.json)
            if size > BATCH_BYTES and number < len(changes):
                return Batch(changes[:number], change.position, False)
        return Batch(changes, max(place, self.until), True)

    def ring(self) -> None:
        """Wake all who wait."""
        self.news.set()
        self.news = asyncio.Event()


class Changes:
    """The tail of the ledger for all streams of a process; belongs to its event loop.

    Args:
        ledger: when it can be used.
        bell_ms: that one wait in Redis may take.

    Attributes:
        is_stopping: nobody is to wait any more.
    """

    def __init__(self, ledger: Callable[[], Ledger], *, bell_ms: int = LONGEST_BELL_MS) -> None:
        self.ledger = ledger
        self.catching_up = CapacityLimiter(CATCHING_UP)
        self.is_stopping = False
        self._bell_ms = bell_ms
        self._tail_thread = CapacityLimiter(1)
        self._rings: dict[str, _Ring] = {}
        self._following: asyncio.Task[None] | None = None

    def join(self, tenant: str) -> _Ring:
        """The ring of a tenant, to be left again."""
        ring = self._rings.setdefault(tenant, _Ring())
        ring.readings += 1
        self.keep_following()
        return ring

    def leave(self, tenant: str) -> None:
        """One of those who joined is gone."""
        ring = self._rings[tenant]
        ring.readings -= 1
        if not ring.readings:
            del self._rings[tenant]

    def keep_following(self) -> None:
        """See to it that somebody reads the tail."""
        if (self._following is None or self._following.done()) and not self.is_stopping:
            self._following = asyncio.create_task(self._follow())

    def stop(self) -> None:
        """End all waiting."""
        self.is_stopping = True
        if self._following is not None:
            self._following.cancel()
        for ring in self._rings.values():
            ring.ring()

    async def _follow(self) -> None:
        tail: LedgerSequence | None = None
        is_end = is_away = False
        while self._rings:
            look = partial(self._look, tail, frozenset(self._rings), waits=is_end)
            try:
                read_on, stretch, changes = await anyio.to_thread.run_sync(
                    look, abandon_on_cancel=True, limiter=self._tail_thread
                )
            except LedgerError as error:
                if not is_away:
                    _log.warning("changes are not followed", reason=str(error))
                tail, is_end, is_away = None, False, True
                await anyio.sleep(RETRY_S)
                continue
            most_bytes = RING_BYTES // max(1, len(self._rings))
            for tenant, ring in self._rings.items():
                if tail is None or ring.start is None:
                    ring.restart(stretch.until)
                else:
                    ring.extend(changes[tenant], stretch.until, most_bytes=most_bytes)
            tail, is_end, is_away = read_on, stretch.is_end, False
            await anyio.sleep(GATHERED_S if is_end else 0)

    def _look(
        self, tail: LedgerSequence | None, tenants: Collection[str], *, waits: bool
    ) -> tuple[LedgerSequence, Stretch, dict[str, list[Change]]]:
        """On a thread: what is new; from None, only where that begins."""
        if tail is None:
            tail = LedgerSequence.at_tail(self.ledger())
            return tail, Stretch((), tail.until, True), {}
        if waits:
            tail.wait(self._bell_ms)
        stretch = tail.read()
        return tail, stretch, changes_of(stretch.entries, tenants)


class Reading:
    """The place of one stream; used in a `with`.

    Args:
        changes: of the process.
        wanted: of the events.
        after: where it begins.

    Attributes:
        place: until where all has been given out.
    """

    def __init__(self, changes: Changes, wanted: Wanted, after: Position) -> None:
        self.place = after
        self._changes = changes
        self._wanted = wanted
        self._sequence: LedgerSequence | None = None

    def __enter__(self) -> Self:
        """Begin."""
        self._ring = self._changes.join(self._wanted.scope.tenant)
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._changes.leave(self._wanted.scope.tenant)

    async def next(self, patience_s: float) -> list[Change]:
        """The next changes; nothing: there were none in so many seconds, or the API stops."""
        clock = asyncio.get_running_loop().time
        end_s = clock() + patience_s
        while True:
            self._changes.keep_following()
            news = self._ring.news  # of what comes from now on
            batch = await self._read()
            self.place = batch.until
            left_s = end_s - clock()
            if batch.changes or left_s <= 0 or self._changes.is_stopping:
                return list(batch.changes)
            if batch.is_end:
                with anyio.move_on_after(left_s):
                    await news.wait()

    async def _read(self) -> Batch:
        ring = self._ring
        if ring.start is not None and self.place >= ring.start:
            self._sequence = None
            batch = ring.behind(self.place)
            return batch._replace(changes=list(filter(self._wanted.has, batch.changes)))
        read = partial(
            read_behind,
            self._changes.ledger,
            self._sequence,
            wanted=self._wanted,
            place=self.place,
        )
        try:
            self._sequence, batch = await anyio.to_thread.run_sync(
                read, abandon_on_cancel=True, limiter=self._changes.catching_up
            )
        except LedgerError:  # whoever follows the tail says so
            self._sequence = None
            await anyio.sleep(RETRY_S)
            return Batch((), self.place, False)
        return batch


def page_behind(
    ledger: Callable[[], Ledger], wanted: Wanted, place: Position, *, limit: int
) -> Batch:
    """A page of the ledger, within a second or so; on a thread.

    Raises:
        LedgerError: it cannot be read now.
    """
    end_s = time.monotonic() + PAGE_S
    sequence: LedgerSequence | None = None
    changes: list[Change] = []
    size, is_end = 0, False
    while not is_end and len(changes) < limit and size < PAGE_BYTES and time.monotonic() < end_s:
        sequence, batch = read_behind(ledger, sequence, wanted, place)
        changes += batch.changes
        size += sum(len(change.json) for change in batch.changes)
        place, is_end = batch.until, batch.is_end
    if len(changes) > limit:
        return Batch(changes[:limit], changes[limit - 1].position, False)
    return Batch(changes, place, is_end)


def starting_place(ledger: Ledger, text: str, field: str) -> Position:
    """The place that a request names; on a thread.

    Raises:
        InvalidInput: the ledger cannot have given it out: it lies in the future.
        LedgerError: the ledger cannot be read now.
    """
    end = last_position(ledger.tails())
    if text == NOW:
        return end
    place = Position.parse(text)
    if place > end and place.ms > ledger.now_ms() + CLOCK_AHEAD_S * 1_000:
        raise InvalidInput(((field, "a position that the ledger has given out; not of a future"),))
    return place
