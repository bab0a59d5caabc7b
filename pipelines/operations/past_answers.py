"""Which past answers showed what forgetting would take: the dry run's word on past questions.

The ledger keeps what reads returned as `memory.accessed`: of a tenant, and of up to a second of one
process' reads together. It keeps neither questions nor who asked, so neither can be told here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from consolidation.forgetting_payloads import ACCESSED_EVENT, parse_accessed
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Ledger
from projections.errors import InvalidEvent, UndecodableEntry
from projections.events import PARTITION_KEY, timestamp_text
from projections.identity import Position, partition_of

MAX_ANSWERS: Final = 1_000
"""Records of answers that are sampled, the newest ones."""
MAX_SHOWN: Final = 200_000
"""Events that these showed, together; the sample ends with the answer that exceeds it."""
MAX_ENTRIES: Final = 50_000
"""Of the tenant's partition that are looked at for them; other sessions' events lie between."""
ENTRIES_AT_ONCE: Final = 500
NEWEST: Final = 5
"""Answers that would change of which more is told."""
EVENTS_NAMED: Final = 10
"""Of each of these."""

_ACCESSED: Final = ACCESSED_EVENT.encode()


class ChangedAnswer(NamedTuple):
    """A record of answers that showed events that would leave.

    Attributes:
        at: when it was recorded, up to a second after the answers.
        shown: events that the answers showed.
        leaving: how many of these would leave.
        event_ids: at most EVENTS_NAMED of those that would leave, by id.
    """

    at: str
    shown: int
    leaving: int
    event_ids: tuple[str, ...]


class PastAnswers(NamedTuple):
    """What a sample of past answers showed that would leave.

    Attributes:
        sampled: records of answers that were looked at; each is of up to a second.
        changed: those of them that showed an event that would leave.
        since: time of the oldest one; None: there was none.
        until: answers from this time on were not looked at; see `planned_forgetting`.
        whole: there is no older one; False: there may be.
        newest: of those that changed, at most NEWEST, the newest first.
    """

    sampled: int
    changed: int
    since: str | None
    until: str
    whole: bool
    newest: tuple[ChangedAnswer, ...]


class _Answer(NamedTuple):
    at_ms: int
    shown: frozenset[str]


class AnswerSample:
    """The newest answers of a tenant before a moment, read backwards from the ledger.

    Args:
        ledger: that holds their records.
        tenant: whose answers.
        until_ms: exclusive.

    Raises:
        LedgerUnavailable: Redis is away.
        UndecodableEntry: the stream holds what is no entry.
    """

    def __init__(self, ledger: Ledger, tenant: str, until_ms: int) -> None:
        self._tenant = tenant
        self._until_ms = max(1, until_ms)
        self._answers: list[_Answer] = []
        self._whole = self._read(ledger)
        self._shown = {one for answer in self._answers for one in answer.shown}
        self._leaving: set[str] = set()

    def _read(self, ledger: Ledger) -> bool:
        """Whether the partition was read to its beginning."""
        partition = partition_of(self._tenant, PARTITION_KEY, ledger.partitions)
        before, shown = Position(self._until_ms, 0), 0
        for _ in range(MAX_ENTRIES // ENTRIES_AT_ONCE):
            entries = ledger.newest(partition, before, ENTRIES_AT_ONCE)
            for entry in entries:
                if len(self._answers) == MAX_ANSWERS or shown > MAX_SHOWN:
                    return False
                if answer := _answer(entry, self._tenant):
                    self._answers.append(answer)
                    shown += len(answer.shown)
            if len(entries) < ENTRIES_AT_ONCE:
                return True
            before = entries[-1].position
        return False

    def leaves(self, event_id: str) -> None:
        """Take note that an event would leave."""
        if event_id in self._shown:
            self._leaving.add(event_id)

    def told(self) -> PastAnswers:
        """What becomes of the answers when what would leave has left."""
        changed = []
        for answer in self._answers:
            if gone := sorted(answer.shown & self._leaving):
                named = tuple(gone[:EVENTS_NAMED])
                at = timestamp_text(answer.at_ms)
                changed.append(ChangedAnswer(at, len(answer.shown), len(gone), named))
        oldest = self._answers[-1:]
        return PastAnswers(
            sampled=len(self._answers),
            changed=len(changed),
            since=timestamp_text(oldest[0].at_ms) if oldest else None,
            until=timestamp_text(self._until_ms),
            whole=self._whole,
            newest=tuple(changed[:NEWEST]),
        )


def _answer(entry: Entry, tenant: str) -> _Answer | None:
    """What an entry says of answers that showed events; None: nothing."""
    if entry.fault or _ACCESSED not in entry.data:
        return None
    try:
        event = entry.event()
        if (event.tenant, event.event_type) != (tenant, ACCESSED_EVENT):
            return None
        shown = parse_accessed(event.payload).events
    except (UndecodableEntry, InvalidEvent):
        return None
    return _Answer(entry.position.ms, frozenset(shown)) if shown else None
