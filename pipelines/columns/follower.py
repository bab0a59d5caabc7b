"""Columns kept up to date on threads of their own, and the questions that they are asked."""

from __future__ import annotations

import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipelines.columns.background import IDLE_AFTER_S, Rounds, wait_for_rounds
from pipelines.columns.follow import Columns
from pipelines.columns.records import Finding
from pipelines.columns.tail import Tail
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
from pipelines.local.python_process import collect_rarely
from pipelines.observe import logs
from projections.errors import GraphError

_LOAD_PATIENCE_S: Final = 2.0
"""A load that takes longer is not waited for: who asks is told at once."""
_VERIFIES_KEPT: Final = 16
"""Whose answers wait to be asked for."""
SWITCH_S: Final = 0.0005
"""That a thread computes while another one wants to: by it, p95 of a question beside changes that
are taken in was 1.0 ms instead of 5.5."""

_log = logs.get_logger(__name__)


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
