"""The ledger's side of the fast look: numbers of its events, added up by bucket.

Reading and hashing the ledger is as much work as half of the graph's side, and Python uses one
core a process. So for a large ledger a child does it meanwhile: it connects by itself, sends how
far it is, and at last its sums. They are the same wherever they are made. A child that fails is
no error: the work is then done here, and what was wrong shows here, if it still is.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import BesideRedis, Ledger
from pipelines.local.python_process import ChildTask, take
from pipelines.proof.sums import POSITION, READING, edge_number, element_digest, placed
from projections.errors import RecollectError, UndecodableEntry
from projections.events import is_system_event
from projections.identity import Position, SessionKey
from projections.schema import EVENT
from projections.structural import direct_cause, event_node, stage_values

if TYPE_CHECKING:
    from types import TracebackType

    from pipelines.ledger.command_notes import Progress
    from pipelines.work.settings import Settings

Group = int | SessionKey
"""What is added up together: a bucket of sessions; of a sample, a session."""
BUCKETS = 4_096
CHILD_FROM_ENTRIES = 20_000
"""A child's start costs as much as reading some 20,000 entries."""
_POLL_S = 0.2


@dataclass(frozen=True)
class Draw:
    """Sessions drawn at random, the same in every process.

    Attributes:
        share: of all sessions, above 0 up to 1.
        salt: with another one others are drawn.
    """

    share: float
    salt: int

    def has(self, session: SessionKey) -> bool:
        """Whether a session is drawn."""
        return _checksum(session, self.salt) < self.share * (1 << 32)


@dataclass(frozen=True)
class Task:
    """What to add up.

    Attributes:
        until: by partition the position of the checkpoint, up to and including which is read.
        entries: how many those are.
        dead: by partition the numbers of entries that dead letters stand for.
        tombstones: keys of forgotten events.
        draw: the sessions that are added up, each by itself; None: all, in buckets.
    """

    until: Mapping[int, Position]
    entries: int
    dead: Mapping[int, Set[int]]
    tombstones: Set[tuple[str, str]]
    draw: Draw | None = None

    def group(self, session: SessionKey) -> Group | None:
        """What a session's numbers are added to; None: it is not drawn."""
        if self.draw is None:
            return _checksum(session, 0) % BUCKETS
        return session if self.draw.has(session) else None


@dataclass
class LedgerSums:
    """What the ledger supports.

    Attributes:
        numbers: sums.
        events: how many were added up, or are forgotten; without system events.
        unreadable: partition and seq of entries that are no events.
    """

    numbers: Counter[Group] = field(default_factory=Counter)
    events: int = 0
    system_events: int = 0
    unreadable: list[tuple[int, int]] = field(default_factory=list)

    def sessions(self) -> list[SessionKey]:
        """Those that were drawn, in order."""
        return sorted(group for group in self.numbers if not isinstance(group, int))


def _checksum(session: SessionKey, salt: int) -> int:
    # Text of whatever stands there: a graph that was tampered with holds any type.
    tenant, session_id = session
    return crc32(f"{tenant}\x1f{session_id}".encode("utf-8", "replace"), salt)


def add_up(ledger: Ledger, task: Task, progress: Progress) -> LedgerSums:
    """Read the ledger up to the checkpoints, with bounded memory. Raises as `Ledger.read` does."""
    sums = LedgerSums()
    numbers, tombstones = sums.numbers, task.tombstones
    label = EVENT.label
    done = 0
    for partition in range(ledger.partitions):
        dead = task.dead.get(partition, frozenset())
        for entries in ledger.scan(partition, until=task.until[partition]):
            for entry in entries:
                if entry.seq in dead:
                    continue
                try:
                    event = entry.event()
                except UndecodableEntry:
                    sums.unreadable.append((partition, entry.seq))
                    continue
                if is_system_event(event.event_type):
                    sums.system_events += 1
                    continue
                group = task.group((event.tenant, event.session_id))
                if group is None:
                    continue
                sums.events += 1
                if event.key in tombstones:
                    continue
                values = stage_values(event_node(event, entry.position))
                node = element_digest(label, *event.key, *values[:POSITION])
                number = placed(node, values[POSITION])
                cause = direct_cause(event)
                if cause is not None:
                    number += edge_number(
                        cause.type, cause.source, cause.target, stage_values(cause)
                    )
                numbers[group] += number
            done += len(entries)
            progress(done, task.entries, READING)
    return sums


class LedgerSide:
    """Adds up the ledger's side: in a child when that pays, else when the sums are asked for.

    A context manager; its end is the child's end. A child that this process cannot end any more,
    because it was killed, ends by itself: its standard input closes.

    Args:
        ledger: what is read here.
        task: what to add up.
        progress: called with done, total and what is being done.
        settings: what a child connects to; None: no child.
    """

    def __init__(
        self, ledger: Ledger, task: Task, progress: Progress, settings: Settings | None
    ) -> None:
        self._ledger = ledger
        self._task = task
        self._progress = progress
        self._settings = settings if task.entries >= CHILD_FROM_ENTRIES else None
        self._child: ChildTask | None = None
        self._listener: threading.Thread | None = None
        self._done = 0
        self._sums: LedgerSums | None = None

    def __enter__(self) -> LedgerSide:
        if self._settings is not None:
            try:
                self._child = ChildTask(__name__, (self._settings, self._task))
            except OSError as error:
                self._fall_back(str(error))
            else:
                self._listener = threading.Thread(target=self._listen, name="sums", daemon=True)
                self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self._child.end()

    @property
    def apart(self) -> bool:
        """Whether a child adds up, so that this process can do something else meanwhile."""
        return self._listener is not None

    def sums(self) -> LedgerSums:
        """The sums, once they are there. Raises as `Ledger.read` does."""
        if self._listener is not None:
            while self._listener.is_alive():
                self._listener.join(_POLL_S)
                if self._listener.is_alive():
                    self._progress(self._done, self._task.entries, READING)
            if self._sums is not None:
                return self._sums
            self._fall_back("it ended without a result")
        return add_up(self._ledger, self._task, self._progress)

    def _listen(self) -> None:
        """Take what the child sends, so that it never waits for this process."""
        assert self._child is not None
        for message in self._child.messages():
            if isinstance(message, LedgerSums):
                self._sums = message
            else:
                self._done = message

    def _fall_back(self, reason: str) -> None:
        import structlog  # a tenth of a second that a child's start does not need

        structlog.get_logger(__name__).warning("the ledger is read in this process", reason=reason)


def main() -> None:
    """The child: a task from standard input, progress and sums to standard output."""
    (settings, task), send = take()
    client = connect_redis(settings)
    try:
        ledger = Ledger(
            client,
            prefix=settings.prefix,
            partitions=settings.partitions,
            id_buckets=settings.id_buckets,
            checkpoints=dict,  # asked before an append only
            beside=BesideRedis.of(settings, client),
        )
        send(add_up(ledger, task, lambda done, total, what: send(done)))
    except RecollectError as error:
        sys.exit(str(error))  # a line is enough: the parent meets the same, if it is still there
    finally:
        client.close()
