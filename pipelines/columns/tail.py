"""The ledger's tail beside the graph: what was accepted is found at once, by its words.

A thread of its own looks whether something was appended: at once when a question waits that is to
know it, else now and then. It does not sleep in Redis (XREAD BLOCK), for a question must
also learn, and soon, that there is nothing new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from pydantic import SecretStr

from pipelines.columns.background import Rounds
from pipelines.columns.follow import CHANGES, Columns
from pipelines.columns.pending import MOST_PENDING, Accepted, accepted
from pipelines.columns.wire import LedgerLogin
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.entries import Entry, before
from pipelines.ledger.sequence import LedgerTail
from pipelines.observe import logs
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, LedgerError, UndecodableEntry
from projections.identity import Position

READ_AT_ONCE: Final = 50
"""Entries of each partition in one look."""

_log = logs.get_logger(__name__)


class Tail:
    """Puts what the ledger's newest entries say into columns.

    Args:
        columns: of the graph that is folded from it.
        login: which ledger.
        is_idle: whether nobody asks anything.

    Attributes:
        rounds: of looking; after one everything is in that was appended before it.
        reason: why the last look did not succeed; empty when it did.
    """

    def __init__(self, columns: Columns, login: LedgerLogin, is_idle: Callable[[], bool]) -> None:
        self._columns = columns
        password = None if login.password is None else SecretStr(login.password)
        settings = Settings(redis_url=login.url, redis_password=password)
        self._ledger = LedgerTail(connect_redis(settings), login.prefix)
        self._places: dict[int, Position] = {}
        self._of = 0, ""
        """Which load of the columns, and which ledger, the places are of."""
        self.reason = ""
        self.rounds = Rounds(self._round, is_idle, "follow-ledger")
        self.rounds.start()

    @property
    def has_begun(self) -> bool:
        """Whether the columns that are there now have anything of the ledger."""
        return self._of[0] == self._columns.loads

    def _round(self) -> bool:
        """Catch up with the ledger; whether there was anything new."""
        if self._columns.place is None:
            return True  # nobody is answered yet, and soon they will be
        before = dict(self._places)
        try:
            while self._look():
                pass
        except (LedgerError, ConfigurationError) as error:
            if not self.reason:
                _log.warning("columns cannot follow the ledger", reason=str(error))
            self.reason = str(error)
        else:
            self.reason = ""
        return bool(self.reason) or self._places != before

    def _look(self) -> bool:
        """Take in what was appended; whether more may wait."""
        load = self._columns.loads
        behind = self._ledger.behind(self._places, READ_AT_ONCE)
        if (load, behind.made) != self._of:
            self._begin(behind.partitions, is_other=behind.made != self._of[1])
            self._of = load, behind.made
            return behind.partitions > 0
        self._take(behind.entries)
        for entry in behind.entries:
            self._places[entry.partition] = entry.position
        counts = Counter(entry.partition for entry in behind.entries)
        return max(counts.values(), default=0) >= READ_AT_ONCE

    def _begin(self, partitions: int, *, is_other: bool) -> None:
        """Go back to where the graph is, or to the newest entries."""
        columns = self._columns
        with columns.tail_lock, columns.changing():
            if is_other:
                columns.pending.clear(columns.tenants)
            places = [columns.pending.read_to(partition) for partition in range(partitions)]
        self._places = {}
        for partition, place in enumerate(places):
            self._places[partition] = place.position
            last = self._ledger.newest(partition, 1)
            if last and last[0].seq - place.seq > MOST_PENDING:
                oldest = self._ledger.newest(partition, MOST_PENDING)[-1]
                self._places[partition] = before(oldest.position)

    def _take(self, entries: Sequence[Entry]) -> None:
        columns = self._columns
        for first in range(0, len(entries), CHANGES):
            events = list(filter(None, map(_accepted, entries[first : first + CHANGES])))
            with columns.tail_lock, columns.changing():
                if columns.loads != self._of[0]:
                    return  # the next look begins anew
                columns.pending.put(columns.tenants, events)


def _accepted(entry: Entry) -> Accepted | None:
    try:
        return accepted(entry)
    except UndecodableEntry:
        return None  # the stages give it up, too
