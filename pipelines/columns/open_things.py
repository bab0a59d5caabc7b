"""What was opened and is not known to be closed: tickets, tasks, approvals, whatever is asked for.

1. *Opened* is what an event's type says (`task.created`, `approval.requested`), and what a tool
   that opens things has made (`open_ticket`), once it succeeded. What only some things need
   (`created`, `started`) counts for things that are there to be finished (`THINGS`), and for such
   as are ever closed here.
2. *Closed* is a thing of the same noun by a later event: one whose type or tool says so
   (`task.completed`, `close_ticket`), or that says a word of it (`update_ticket` with
   `state: resolved`).
3. A thing that is opened and shares an identifier with an open one of its noun goes on by another
   word: a ticket is opened, then assigned.
4. Which of several: the one that shares most identifiers with what closed it, rare ones first;
   where it shares none, the newest of the same session. Identifiers of a call and of its result are
   one's own. One event closes one thing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy

from enrichment.event_kinds import EventKind
from enrichment.stems import stem, stem_in, words_in
from enrichment.vocabulary import READ_VERBS, word_set
from pipelines.columns.listing import different, failures, in_windows, numbers_of_kinds
from pipelines.columns.records import OpenAsked, OpenThings
from pipelines.columns.tables import NOBODY, Array, Bits
from pipelines.columns.view import View

MAX_OPEN: Final = 100
OPENED: Final = word_set(
    "opened requested raised escalated asked promised assigned proposed reported flagged"
)
MAYBE_OPENED: Final = word_set(
    "created started filed scheduled submitted logged queued added planned begun registered booked "
    "ordered placed issued"
)
_OPENS: Final = word_set("open request raise escalate report flag propose")
_MAYBE_OPENS: Final = word_set(
    "create start file schedule submit log queue add plan begin register book order place issue"
)
CLOSED: Final = word_set(
    "closed resolved completed done finished cancelled canceled rejected denied declined granted "
    "given approved answered fulfilled delivered settled withdrawn expired solved fixed ended "
    "merged accepted confirmed received succeeded failed dropped dismissed arrived returned "
    "refused stopped shipped paid"
)
_CLOSES: Final = word_set(
    "close resolve complete finish cancel reject deny decline grant approve answer fulfil fulfill "
    "deliver settle withdraw solve fix end merge accept confirm dismiss conclude"
)
THINGS: Final = word_set(
    "ticket task issue case incident request todo reminder followup approval complaint claim alert "
    "problem question action job review order application dispute inquiry enquiry escalation"
)
_SAYS_CLOSED: Final = tuple(sorted({stem(word) for word in CLOSED - word_set("given failed")}))
_NO_THING: Final = word_set("session conversation chat run trace connection app page file")
_APART: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CONSIDERED: Final = (EventKind.OTHER, EventKind.DECISION, EventKind.RESULT, EventKind.CALL)


class _Step(NamedTuple):
    """What an event does to a thing.

    Attributes:
        row: of the event that tells of it: of a tool's the call.
        rows: of the event, and of its call.
        nouns: stems of what the thing is called.
        phase: 1: it opens; 2: it opens, if such things do; -1: it closes.
        word: that says so.
    """

    row: int
    rows: tuple[int, ...]
    nouns: frozenset[str]
    phase: int
    word: str


def open_things(view: View, question: OpenAsked) -> OpenThings:
    """What a viewer sees of what was opened, and is about what the question names."""
    return _Opening(view, question).things()


class _Opening:
    def __init__(self, view: View, question: OpenAsked) -> None:
        self._view = view
        self._question = question
        self._events = view.tenant.events
        self._keys: Counter[str] = Counter()

    def things(self) -> OpenThings:
        steps = list(self._steps())
        keys = [self._keys_of(step) for step in steps]
        for held in keys:
            self._keys.update(held)
        closable = {noun for step in steps if step.phase < 0 for noun in step.nouns}
        things = closable | set(map(stem, THINGS))
        left: dict[int, _Step] = {}
        closed: dict[int, int] = {}
        for place, step in enumerate(steps):
            if step.phase < 0:
                best = self._closes(step, keys[place], left, keys)
                if best is not None:
                    closed[best] = place
                    del left[best]
            elif (step.phase == 1 or step.nouns & things) and not self._goes_on(
                place, steps, keys, left
            ):
                left[place] = step
        meant = [place for place, step in enumerate(steps) if self._is_meant(step)]
        still = [place for place in meant if place in left]
        ids = self._events.ids
        return OpenThings(
            ids=[ids[steps[place].row] for place in still][:MAX_OPEN],
            closed=[ids[steps[closed[place]].row] for place in meant if place in closed][:MAX_OPEN],
        )

    # -- what events do ----------------------------------------------------------------------------

    def _steps(self) -> Iterator[_Step]:
        """Of all events of the viewer, in order of time."""
        table, events = self._events.table, self._events
        chosen = self._view.seen & table["stands"] & ~failures(self._view)
        chosen &= numpy.isin(table["kind"], numbers_of_kinds(self._view, _CONSIDERED))
        chosen &= self._of_things(numpy.flatnonzero(chosen))
        rows = numpy.flatnonzero(chosen)
        rows = rows[numpy.argsort(table["occurred_ms"][rows], kind="stable")]
        says_closed = numpy.asarray((events.texts.counts(_SAYS_CLOSED, rows) > 0).any(axis=1))
        calls = set(numbers_of_kinds(self._view, (EventKind.CALL,)))
        last: dict[tuple[int, int], int] = {}
        for row, says in zip(rows.tolist(), says_closed.tolist(), strict=True):
            tool, session = int(table["tool"][row]), int(table["session"][row])
            if table["kind"][row] in calls:
                last[session, tool] = row
            elif tool != NOBODY:
                call = last.get((session, tool), row)
                step = self._by_tool(row, call, says=says)
                if step is not None:
                    yield step
            elif (step := self._by_type(row, says=says)) is not None:
                yield step

    def _of_things(self, rows: Array) -> Bits:
        """Of each event whether its tool or type is about what some tool or type opens."""
        table, names = self._events.table, self._events.names
        of_tool = table["tool"][rows] != NOBODY
        words = {
            column: {
                number: _words(names.text(number) or "")
                for number in different(table[column][rows[chosen]])
            }
            for column, chosen in (("tool", of_tool), ("type", ~of_tool))
        }
        opening = {"tool": _OPENS | _MAYBE_OPENS, "type": OPENED | MAYBE_OPENED}
        place = {"tool": 0, "type": -1}
        nouns = {
            stem_in(noun)
            for column, of_number in words.items()
            for of_one in of_number.values()
            if of_one and of_one[place[column]] in opening[column]
            for noun in of_one
        }
        chosen = numpy.zeros(table.size, dtype=bool)
        for column, of_number in words.items():
            meant = [one for one, of_one in of_number.items() if nouns & {*map(stem_in, of_one)}]
            of_column = of_tool if column == "tool" else ~of_tool
            chosen[rows[of_column & numpy.isin(table[column][rows], meant)]] = True
        return chosen

    def _by_tool(self, row: int, call: int, *, says: bool) -> _Step | None:
        words = _words(self._events.names.text(int(self._events.table["tool"][row])) or "")
        if len(words) < 2:
            return None
        verb, nouns = words[0], frozenset(map(stem_in, words[1:]))
        if verb in _OPENS or verb in _MAYBE_OPENS:
            return _Step(call, (row, call), nouns, phase=1 if verb in _OPENS else 2, word=verb)
        closes = verb in _CLOSES or (says and verb not in READ_VERBS)
        return _Step(call, (row, call), nouns, phase=-1, word=verb) if closes or says else None

    def _by_type(self, row: int, *, says: bool) -> _Step | None:
        words = _words(self._events.names.text(int(self._events.table["type"][row])) or "")
        if len(words) < 2 or words[0] in _NO_THING:
            return None
        nouns = frozenset(map(stem_in, words[:-1]))
        if words[-1] in OPENED:
            return _Step(row, (row,), nouns, phase=1, word=words[-1])
        if words[-1] in MAYBE_OPENED:
            return _Step(row, (row,), nouns, phase=2, word=words[-1])
        return (
            _Step(row, (row,), nouns, phase=-1, word=words[-1])
            if words[-1] in CLOSED or says
            else None
        )

    # -- which thing -------------------------------------------------------------------------------

    def _keys_of(self, step: _Step) -> frozenset[str]:
        """Names with a digit that the events of a step mention."""
        tenant = self._view.tenant
        names = (
            tenant.entities.all[edge.target].canonical_name or ""
            for row in step.rows
            for edge in tenant.mentions.out(row)
        )
        return frozenset(name for name in names if any(map(str.isdigit, name)))

    def _closes(
        self,
        step: _Step,
        held: frozenset[str],
        left: dict[int, _Step],
        keys: Sequence[frozenset[str]],
    ) -> int | None:
        """The place of what a step closes."""
        best: tuple[float, int] | None = None
        sessions = self._events.table["session"]
        for place, opened in left.items():
            if not opened.nouns & step.nouns:
                continue
            shared = sum(1 / self._keys[key] for key in held & keys[place])
            same = sessions[opened.row] == sessions[step.row]
            if shared or (same and not (held and keys[place] and self._tells_apart(place, keys))):
                best = max(best or (0.0, -1), (shared, place))
        return None if best is None else best[1]

    @staticmethod
    def _goes_on(
        place: int,
        steps: Sequence[_Step],
        keys: Sequence[frozenset[str]],
        left: dict[int, _Step],
    ) -> bool:
        """Whether it is told of a thing that is open: a ticket that is opened is assigned later."""
        step = steps[place]
        return any(
            opened.word != step.word and opened.nouns & step.nouns and keys[other] & keys[place]
            for other, opened in left.items()
        )

    def _tells_apart(self, place: int, keys: Sequence[frozenset[str]]) -> bool:
        """Whether a thing has an identifier that others have as well: it is called by it."""
        return any(self._keys[key] > 1 for key in keys[place])

    def _is_meant(self, step: _Step) -> bool:
        """Whether a thing holds all words of the question, and is of its time."""
        if step.phase < 0:
            return False
        question, table, names = self._question, self._events.table, self._events.names
        if question.windows:
            within = in_windows(self._view, question.windows)
            if not within[step.row]:
                return False
        if not question.stems:
            return True
        rows = numpy.array(step.rows, dtype=numpy.int32)
        saying = numpy.asarray((self._events.texts.counts(question.stems, rows) > 0).any(axis=0))
        called = set(step.nouns)
        for column in ("user", "agent"):
            text = names.text(int(table[column][step.row])) or ""
            called |= {stem_in(word) for word in words_in(text.lower())}
        return all(
            bool(holds) or one in called for holds, one in zip(saying, question.stems, strict=True)
        )


def _words(name: str) -> list[str]:
    return words_in(_APART.sub("_", name.replace(".", "_")).lower())
