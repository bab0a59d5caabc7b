"""What agents did for somebody that keeps what they, or other agents, promised them before.

1. Tools that do something are called by its object: that the spare part will be posted is kept by
   `ship_spare_part` that worked. Where one is called by what it does alone, the identifier of what
   it was done to tells: that T-7 will be closed, by `tickets.close`.
2. What was done for them unasked keeps what it is most like: the call, what came of it and what was
   said of it, by the nearer of the promise and of the words that it answered. Where nothing else is
   promised to them, and they are told of it, it keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Literal

import numpy

from enrichment.act_names import first_word, is_reader, objects_of, of_tool
from enrichment.event_kinds import EventKind
from pipelines.columns.listing import failures, identifiers_of, numbers_of_kinds
from pipelines.columns.tables import NOBODY, Array, Rows
from pipelines.columns.view import View

Onwards = Callable[[int, Literal["previous", "following"]], Iterator[int]]
_KEEPS: Final = 0.2
"""Cosine from which on an act may keep a promise."""


class Promises:
    """Which acts keep which promises, as one viewer sees them.

    Args:
        view: what is seen.
        acting: numbers of the agents.
        onwards: the rows of a row's story before it, or after it, the nearest first.
    """

    def __init__(self, view: View, acting: Sequence[int], onwards: Onwards) -> None:
        self._view = view
        self._events = view.tenant.events
        self._acting = set(acting)
        self._onwards = onwards
        self._says = set(numbers_of_kinds(view, (EventKind.MESSAGE,)))

    def keeping(self, rows: Rows) -> Array:
        """The row of the act that keeps each of some promises; NOBODY: none does."""
        table = self._events.table
        users = table["user"][rows]
        worked = numpy.isin(table["kind"], numbers_of_kinds(self._view, (EventKind.RESULT,)))
        worked &= self._view.seen & ~failures(self._view)
        acts = numpy.flatnonzero(worked & numpy.isin(table["user"], users[users != NOBODY]))
        acts_of = self._by_name(rows, acts)
        left = numpy.flatnonzero(acts_of == NOBODY)
        if not len(left):
            return acts_of
        later = table["occurred_ms"][acts] > table["occurred_ms"][rows[left]].min()
        theirs = numpy.isin(table["user"][acts], users[left])
        for act in self._unasked(acts[later & theirs]):
            place = self._most_like(act, rows, left[acts_of[left] == NOBODY])
            if place is not None:
                acts_of[place] = act
        return acts_of

    def _by_name(self, rows: Rows, acts: Rows) -> Array:
        """What of the same user is kept by an act that is called as it says."""
        table, texts = self._events.table, self._events.texts
        acts_of = numpy.full(len(rows), NOBODY, dtype=numpy.int64)
        users, at_ms = table["user"][rows], table["occurred_ms"][rows]
        for tool in numpy.unique(table["tool"][acts]).tolist():
            name = self._events.names.text(tool)
            if name is None or is_reader(name):
                continue
            verbs, words = of_tool(name)
            # `ship_part` makes a promise of a part good, `model.deploy` one that says to deploy it
            by_object = any(word != first_word(name) for word in objects_of(name))
            named = texts.counts(sorted(words - verbs if by_object else words), rows) > 0
            by_tool = numpy.asarray(named.all(axis=1) & named.any(axis=1))
            by_verb = numpy.asarray((texts.counts(sorted(verbs), rows) > 0).all(axis=1))
            done = acts[table["tool"][acts] == tool]
            for place in numpy.flatnonzero((by_tool | by_verb) & (acts_of == NOBODY)).tolist():
                same = done[table["user"][done] == users[place]]
                later = same[table["occurred_ms"][same] > at_ms[place]].tolist()
                if later and (by_tool[place] or self._is_of_same(int(rows[place]), later)):
                    acts_of[place] = later[0]
        return acts_of

    def _unasked(self, acts: Rows) -> Iterator[int]:
        """Of some acts those before which no person said a word.

        Who only looks has done something for somebody where they are told of it.
        """
        names = self._events.names
        kind, author = (
            self._events.table.whole("kind").item,
            self._events.table.whole("author").item,
        )
        looks = {
            tool: is_reader(names.text(tool) or "")
            for tool in numpy.unique(self._events.table["tool"][acts]).tolist()
        }
        tools = self._events.table["tool"][acts].tolist()
        for act, tool in zip(acts.tolist(), tools, strict=True):
            if looks[tool] and not any(kind(row) in self._says for row in self._report(act)):
                continue
            before = self._onwards(act, "previous")
            if not any(
                kind(row) in self._says and author(row) not in self._acting for row in before
            ):
                yield act

    def _report(self, act: int) -> Iterator[int]:
        return islice(self._onwards(act, "following"), 1)

    def _most_like(self, act: int, rows: Rows, promised: Array) -> int | None:
        """The place of what was promised the user of an act before, and is most like it."""
        table, vectors = self._events.table, self._events.vectors
        words = rows[promised]
        theirs = table["user"][words] == table["user"][act]
        places = promised[theirs & (table["occurred_ms"][words] < table["occurred_ms"][act])]
        if not len(places):
            return None
        call = islice(self._onwards(act, "previous"), 1)
        acts = vectors.unit(numpy.array([act, *call, *self._report(act)], dtype=numpy.int32))
        told = rows[places]
        answered = [next(islice(self._onwards(row, "previous"), 1), row) for row in told.tolist()]
        likeness = [
            vectors.cosines(vector, of)
            for vector in acts
            for of in (told, numpy.array(answered, dtype=numpy.int32))
        ]
        alike = numpy.nan_to_num(numpy.max(likeness, axis=0))
        is_alone = len(places) == 1 and any(
            self._events.table["kind"][row] in self._says for row in self._report(act)
        )
        return int(places[alike.argmax()]) if is_alone or alike.max() >= _KEEPS else None

    def _is_of_same(self, row: int, acts: Sequence[int]) -> bool:
        """Whether some acts were done to all that an event names by an identifier.

        For whom they were done names no thing.
        """
        user = self._events.names.text(int(self._events.table["user"][row])) or ""
        named = identifiers_of(self._view, (row,)) - {user.lower()}
        if not named:
            return False
        before = self._events.table.whole("previous").item
        calls = [call for act in acts if (call := before(act)) != NOBODY]
        return named <= identifiers_of(self._view, [*acts, *calls])
