"""Columns kept up to date on threads of their own, and the questions that they are asked.

One thread follows the graph. Another one looks whether something was appended to the ledger, so
that what was accepted is found at once, by its words: at once when a question waits that is to know
it, else now and then. It does not sleep in Redis (XREAD BLOCK), for a question must also learn, and
soon, that there is nothing new.
"""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from pipelines.columns.follow import CHANGES, Columns
from pipelines.columns.pending import MOST_PENDING, Accepted, accepted
from pipelines.columns.records import Finding
from pipelines.columns.view_reads import ViewReads
from pipelines.columns.wire import (
    ANSWERS,
    FINDING,
    LOADING,
    STATE,
    VERIFY,
    LedgerLogin,
    Question,
    encoded,
)
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.entries import Entry, before
from pipelines.ledger.sequence import LedgerTail
from pipelines.local.python_process import collect_rarely
from pipelines.observe import logs
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, GraphError, LedgerError, UndecodableEntry
from projections.identity import Position

POLL_S: Final = 0.1
"""Between two rounds when nobody waits for one, as long as each finds something new."""
QUIET_POLL_S: Final = 0.5
"""Likewise, when the last one found nothing."""
IDLE_POLL_S: Final = 1.0
"""Likewise, when nobody has asked anything for so long as IDLE_AFTER_S."""
IDLE_AFTER_S: Final = 5.0
READ_AT_ONCE: Final = 50
"""Entries of each partition in one look."""
_LOAD_PATIENCE_S: Final = 2.0
"""A load that takes longer is not waited for: who asks is told at once."""
_VERIFIES_KEPT: Final = 16
"""Whose answers wait to be asked for."""
SWITCH_S: Final = 0.0005
"""That a thread computes while another one wants to: by it, p95 of a question beside changes that
are taken in was 1.0 ms instead of 5.5."""

_log = logs.get_logger(__name__)


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


class _Verify:
    """A comparison of columns and graph that somebody waits for."""

    def __init__(self, *, mend: bool) -> None:
        self.mend = mend
        self.done = threading.Event()
        self.finding: Finding | None = None
        self.error: str | None = None


class Follower:
    """Keeps columns up to date on a thread of its own.

    Args:
        columns: that nobody else changes.
        ledger: whose tail they are to hold beside the graph; None: none.
    """

    def __init__(self, columns: Columns, ledger: LedgerLogin | None = None) -> None:
        self._columns = columns
        self._verifies: OrderedDict[str, _Verify] = OrderedDict()
        self._asking = threading.Lock()
        self._begun_s = time.monotonic()
        self._caught_up_s = self._begun_s
        self._asked_s = self._begun_s
        self._reason = ""
        self._rounds = Rounds(self._round, self._is_idle, "follow-graph")
        self._tail = None if ledger is None else Tail(columns, ledger, self._is_idle)
        self._rounds.start()

    @property
    def waiting(self) -> int:
        """Questions that wait for a round."""
        return self._rounds.waiting

    def answer(self, question: Question) -> bytes:
        """The frame that answers a question."""
        columns = self._columns
        if question.name == STATE:
            return encoded(self._state())
        if question.name == VERIFY:
            ticket, mend = question.arguments
            return self._verified(ticket, mend=mend, timeout_s=question.timeout_ms / 2_000)
        self._asked_s = time.monotonic()
        if question.fresh or (columns.place is None and self._loads_for_s() < _LOAD_PATIENCE_S):
            # Half of its time; the other half is for the answer.
            self._wait_for_rounds(question.timeout_ms / 2_000)
        if not columns.is_loaded:
            return encoded(None, error=LOADING)
        assert question.scope is not None
        with columns.lock:
            reads = ViewReads(columns.view(question.scope))
            ask: Callable[..., Any] = getattr(reads, question.name)
            answer = ask(*question.arguments)
        return encoded(*ANSWERS[question.name].pack(answer))

    def _wait_for_rounds(self, timeout_s: float) -> None:
        """Wait until everything is in that was committed or accepted by now."""
        until_s = time.monotonic() + timeout_s
        tail = self._tail
        if tail is None or tail.reason:
            wait_for_rounds([self._rounds], timeout_s)
            return
        wait_for_rounds([self._rounds, tail.rounds], timeout_s)
        if not tail.has_begun:  # for the columns were being loaded
            wait_for_rounds([tail.rounds], max(0.0, until_s - time.monotonic()))

    def _is_idle(self) -> bool:
        silent_s = time.monotonic() - self._asked_s
        return silent_s > IDLE_AFTER_S and self._columns.place is not None

    def _verified(self, ticket: str, *, mend: bool, timeout_s: float) -> bytes:
        """What came of a comparison, which begins when it is first asked for."""
        with self._asking:
            verify = self._verifies.get(ticket)
            if verify is None:
                verify = self._verifies[ticket] = _Verify(mend=mend)
                self._rounds.run_beside(partial(self._verify, verify))
            if len(self._verifies) > _VERIFIES_KEPT:
                self._verifies.popitem(last=False)
        if verify.done.wait(timeout_s):
            with self._asking:
                self._verifies.pop(ticket, None)
        return encoded(*FINDING.pack(verify.finding), error=verify.error)

    def _verify(self, verify: _Verify) -> None:
        """Compare columns and graph; rounds go on meanwhile."""
        try:
            if self._columns.place is None:
                verify.error = self._reason or LOADING
            else:
                verify.finding = self._columns.verify(
                    mend=verify.mend, meanwhile=self._rounds.round
                )
        except GraphError as error:
            verify.error = str(error)
        if verify.finding is not None and verify.finding.difference_count:
            count = verify.finding.difference_count
            _log.warning("columns differ from the graph", mended=verify.mend, items=count)
        verify.done.set()

    def _round(self) -> bool:
        """Catch up with the graph; whether there was anything new."""
        begun_s = time.monotonic()
        before = self._columns.place
        is_first = before is None
        try:
            if is_first:
                self._columns.load()
            else:
                self._columns.catch_up()
        except GraphError as error:
            if not self._reason:
                _log.warning("columns cannot follow the graph", reason=str(error))
            self._reason = str(error)
            return True  # soon again
        if is_first:
            collect_rarely()  # what was loaded stays
        if is_first or self._reason:
            _log.info("columns follow the graph", seconds=round(time.monotonic() - begun_s, 3))
        self._reason = ""
        self._caught_up_s = begun_s
        return self._columns.place != before

    def _loads_for_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _state(self) -> dict[str, Any]:
        columns = self._columns
        with columns.lock:
            events = sum(tenant.events.count() for tenant in columns.tenants.values())
            tables = [tenant.events.table for tenant in columns.tenants.values()]
            pending = sum(int((table["stands"] & table["pending"]).sum()) for table in tables)
        return {
            "is_loaded": columns.is_loaded,
            "events": events - pending,
            "pending": pending,
            "memory_bytes": _resident_bytes(),
            "behind_s": time.monotonic() - self._caught_up_s,
            "reason": self._reason,
            "tail_reason": "" if self._tail is None else self._tail.reason,
        }


def _resident_bytes() -> int:
    """Memory of this process; where the system does not tell, the most that it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()
