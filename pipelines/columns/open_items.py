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
4. What is asked for and decided in the same breath was never open: a request whose own result says
   that it is approved, granted or refused.
5. Which of several: the one with an identifier that the closing call acts on, then the one that
   shares most with it, rare ones first; where it shares none, the newest of the same session.
   Identifiers of a call and of its result are one's own. One event closes one thing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy

from enrichment.event_kinds import EventKind
from enrichment.stems import stem, stem_in, stems_of, words_in
from enrichment.vocabulary import READ_VERBS, word_set
from pipelines.columns.listing import (
    different,
    failures,
    identifiers_of,
    in_windows,
    numbers_of_kinds,
)
from pipelines.columns.records import OpenAsked, OpenThings
from pipelines.columns.tables import NOBODY, Array, Bits
from pipelines.columns.view import View

MAX_OPEN: Final = 100
OPENED: Final = word_set(
    "opened requested raised escalated asked promised assigned proposed reported flagged fired "
    "triggered detected"
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
    "deliver settle withdraw solve fix end merge accept confirm dismiss conclude stop abort"
)
THINGS: Final = word_set(
    "ticket task issue case incident request todo reminder followup approval complaint claim alert "
    "problem question action job review order application dispute inquiry enquiry escalation"
)
_SAYS_CLOSED: Final = tuple(sorted({stem(word) for word in CLOSED - word_set("given failed")}))
_ASKS: Final = word_set("request propose ask")
_SAYS_DECIDED: Final = tuple(
    sorted(
        map(stem, word_set("approved granted accepted confirmed rejected denied declined refused"))
    )
)
_NO_THING: Final = word_set("session conversation chat run trace connection app page file")
_APART: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CONSIDERED: Final = (EventKind.OTHER, EventKind.DECISION, EventKind.RESULT, EventKind.CALL)


class _Doing(NamedTuple):
    """What the name of a tool or of a type says of a thing; as in `_Step`."""

    nouns: frozenset[str]
    phase: int
    word: str


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


class _Left:
    """What is open: places of steps, and who holds which identifier, or is of which session."""

    def __init__(self) -> None:
        self.places: set[int] = set()
        self._by_key: dict[str, set[int]] = {}
        self._by_session: dict[int, set[int]] = {}

    def put(self, place: int, keys: frozenset[str], session: int) -> None:
        """Something is open."""
        self.places.add(place)
        for of_one in self._of(keys, session):
            of_one.add(place)

    def take(self, place: int, keys: frozenset[str], session: int) -> None:
        """It is not any more."""
        self.places.remove(place)
        for of_one in self._of(keys, session):
            of_one.remove(place)

    def sharing(self, keys: frozenset[str]) -> set[int]:
        """The places of what holds one of some identifiers."""
        return set().union(*(self._by_key.get(key, ()) for key in keys))

    def of_session(self, session: int) -> set[int]:
        """The places of what was opened in a session."""
        return self._by_session.get(session, set())

    def _of(self, keys: frozenset[str], session: int) -> Iterator[set[int]]:
        yield self._by_session.setdefault(session, set())
        for key in keys:
            yield self._by_key.setdefault(key, set())


class _Opening:
    def __init__(self, view: View, question: OpenAsked) -> None:
        self._view = view
        self._question = question
        self._events = view.tenant.events
        self._session: Callable[[int], int] = self._events.table["session"].item
        self._steps = list(self._all_steps())
        self._keys = [self._keys_of(step) for step in self._steps]
        self._holding = Counter(key for held in self._keys for key in held)
        self._left = _Left()

    def things(self) -> OpenThings:
        steps, left = self._steps, self._left
        closable = {noun for step in steps if step.phase < 0 for noun in step.nouns}
        things = closable | set(map(stem, THINGS))
        closed: dict[int, int] = {}
        for place, step in enumerate(steps):
            if step.phase < 0:
                best = self._closes(place)
                if best is not None:
                    closed[best] = place
                    left.take(best, self._keys[best], self._session(steps[best].row))
            elif (step.phase == 1 or step.nouns & things) and not self._goes_on(place):
                left.put(place, self._keys[place], self._session(step.row))
        meant = self._meant()
        still = [place for place in meant if place in left.places]
        ids = self._events.ids
        return OpenThings(
            ids=[ids[self._telling(steps[place])] for place in still][:MAX_OPEN],
            closed=[ids[steps[closed[place]].row] for place in meant if place in closed][:MAX_OPEN],
        )

    # -- what events do ----------------------------------------------------------------------------

    def _all_steps(self) -> Iterator[_Step]:
        """Of all events of the viewer, in order of time."""
        table, events = self._events.table, self._events
        chosen = self._view.seen & table["stands"] & ~failures(self._view)
        chosen &= numpy.isin(table["kind"], numbers_of_kinds(self._view, _CONSIDERED))
        chosen &= self._of_things(numpy.flatnonzero(chosen))
        rows = events.in_time(numpy.flatnonzero(chosen))
        says_closed, says_decided = (
            numpy.asarray((events.texts.counts(stems, rows) > 0).any(axis=1))
            for stems in (_SAYS_CLOSED, _SAYS_DECIDED)
        )
        is_call = numpy.isin(table["kind"], numbers_of_kinds(self._view, (EventKind.CALL,)))
        columns = (table["tool"], table["session"], table["type"], is_call)
        told = (rows, says_closed, says_decided, *(column[rows] for column in columns))
        last: dict[tuple[int, int], int] = {}
        by_name: dict[tuple[str, int, bool], _Doing | None] = {}
        for row, says, decided, tool, session, type_, calls in zip(
            *(column.tolist() for column in told), strict=True
        ):
            if calls:
                last[session, tool] = row
                continue
            of_tool = tool != NOBODY
            name = ("tool", tool, says) if of_tool else ("type", type_, says)
            if name not in by_name:
                text = events.names.text(name[1]) or ""
                by_name[name] = (_by_tool if of_tool else _by_type)(_words(text), says=says)
            doing = by_name[name]
            if doing is None or (of_tool and decided and doing.word in _ASKS):
                continue
            call = last.get((session, tool), row) if of_tool else row
            yield _Step(call, (row, call) if of_tool else (row,), *doing)

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

    def _telling(self, step: _Step) -> int:
        """The row that says which thing it is: the outcome of a call, where that alone says it."""
        outcome, *call = step.rows
        told, asked_for = (identifiers_of(self._view, rows) for rows in ((outcome,), call))
        return outcome if call and told - asked_for else step.row

    # -- which thing -------------------------------------------------------------------------------

    def _keys_of(self, step: _Step, least: float = 0.0) -> frozenset[str]:
        """The identifiers that the events of a step mention; with 1 those that its call acts on."""
        return identifiers_of(self._view, step.rows, least)

    def _closes(self, place: int) -> int | None:
        """The place of what a step closes."""
        step, held = self._steps[place], self._keys[place]
        best: tuple[bool, float, int] | None = None
        acted_on = self._keys_of(step, least=1.0)
        session = self._session(step.row)
        for other in self._left.sharing(held) | self._left.of_session(session):
            opened, of_other = self._steps[other], self._keys[other]
            if opened.nouns.isdisjoint(step.nouns):
                continue
            shared = sum(1 / self._holding[key] for key in sorted(held & of_other))
            same = self._session(opened.row) == session
            if shared or (same and not (held and of_other and self._tells_apart(of_other))):
                is_meant = not acted_on.isdisjoint(of_other)
                best = max(best or (False, 0.0, -1), (is_meant, shared, other))
        return None if best is None else best[-1]

    def _goes_on(self, place: int) -> bool:
        """Whether it is told of a thing that is open: a ticket that is opened is assigned later."""
        step = self._steps[place]
        sharing = (self._steps[other] for other in self._left.sharing(self._keys[place]))
        return any(
            opened.word != step.word and not opened.nouns.isdisjoint(step.nouns)
            for opened in sharing
        )

    def _tells_apart(self, held: frozenset[str]) -> bool:
        """Whether a thing has an identifier that others have as well: it is called by it."""
        return any(self._holding[key] > 1 for key in held)

    def _meant(self) -> list[int]:
        """Places of the things that hold all words of the question, and are of its time."""
        question, table, names = self._question, self._events.table, self._events.names
        places = [place for place, step in enumerate(self._steps) if step.phase > 0]
        if question.windows:
            within = in_windows(self._view, question.windows)
            places = [place for place in places if within[self._steps[place].row]]
        if not question.stems or not places:
            return places
        stems = question.stems
        first, last = ([self._steps[place].rows[end] for place in places] for end in (0, -1))
        holds = self._events.texts.counts(stems, numpy.array(first, dtype=numpy.int32)) > 0
        holds |= self._events.texts.counts(stems, numpy.array(last, dtype=numpy.int32)) > 0
        named: dict[int, frozenset[str]] = {}

        def words_of(number: int) -> frozenset[str]:
            if number not in named:
                text = names.text(number) or ""
                named[number] = stems_of(text)
            return named[number]

        def is_meant(step: _Step, holding: Sequence[bool]) -> bool:
            lacking = {one for one, held in zip(stems, holding, strict=True) if not held}
            for column in ("user", "agent"):
                lacking -= words_of(table[column].item(step.row))
            return lacking <= step.nouns

        told = zip(places, holds.tolist(), strict=True)
        meant = [place for place, holding in told if is_meant(self._steps[place], holding)]
        called = {place: len(self._steps[place].nouns.intersection(stems)) for place in meant}
        # what only speaks of an approval is none, where other things are called so
        return [place for place in meant if called[place] == max(called.values())]


def _by_tool(words: Sequence[str], *, says: bool) -> _Doing | None:
    """What a tool does whose name has some words; `says`: with a word that it is closed."""
    if len(words) < 2:
        return None
    verb, nouns = words[0], frozenset(map(stem_in, words[1:]))
    if verb in _OPENS or verb in _MAYBE_OPENS:
        return _Doing(nouns, phase=1 if verb in _OPENS else 2, word=verb)
    closes = verb in _CLOSES or (says and verb not in READ_VERBS)
    return _Doing(nouns, phase=-1, word=verb) if closes or says else None


def _by_type(words: Sequence[str], *, says: bool) -> _Doing | None:
    """Likewise what a type says."""
    if len(words) < 2 or words[0] in _NO_THING:
        return None
    nouns = frozenset(map(stem_in, words[:-1]))
    if words[-1] in OPENED:
        return _Doing(nouns, phase=1, word=words[-1])
    if words[-1] in MAYBE_OPENED:
        return _Doing(nouns, phase=2, word=words[-1])
    return _Doing(nouns, phase=-1, word=words[-1]) if words[-1] in CLOSED or says else None


def _words(name: str) -> list[str]:
    return words_in(_APART.sub("_", name.replace(".", "_")).lower())
