"""Stories: what a question may be answered from, each event with those around it in its session.

A story is a stretch of a session without a pause of half an hour: somebody asks, tools are called,
some fail, something helps, it works. What a question names is often said in one event of it and
answered by another, so the best events are told together with the rest of their stories.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Final

import numpy

from enrichment.event_kinds import OUTCOMES, TOOL_USE, EventKind
from enrichment.vocabulary import STOP_WORDS
from pipelines.columns.cross_session import causes_elsewhere, changes_before
from pipelines.columns.entities import Fact
from pipelines.columns.listing import (
    agents_named,
    apart,
    assistants,
    failures,
    holding,
    in_windows,
    numbers_of_kinds,
    who,
)
from pipelines.columns.promises import Promises
from pipelines.columns.records import (
    KINDS,
    MESSAGE,
    Joined,
    Stories,
    StoriesAsked,
    StoryFact,
    with_joined,
)
from pipelines.columns.tables import NOBODY, Array, Bits, Rows, best
from pipelines.columns.view import View

PAUSE_MS: Final = 30 * 60 * 1_000
MOST_BESIDE: Final = 24
"""Events of a story before one of its events, and after it."""
MAX_STORIES: Final = 40
MAX_EVENTS: Final = 800
MAX_IN_SESSION: Final = 200
MAX_IN_WINDOW: Final = 400
MAX_OF_SPEAKER: Final = 30
MAX_FAILED: Final = 200
MAX_PROMISING: Final = 20
"""Messages of agents that may promise something, each with its story."""
_NAME_PART: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")  # noqa: RUF001


def stories_of(view: View, question: StoriesAsked) -> Stories:
    """The stories that a question may be answered from, as one viewer sees them."""
    return _Telling(view, question).told()


class _Telling:
    def __init__(self, view: View, question: StoriesAsked) -> None:
        self._view = view
        self._question = question
        self._events = view.tenant.events
        self._sees: Callable[[int], bool] = view.seen.item
        self._story_of: dict[int, int] = {}
        names = self._events.names
        self._text = apart(question.text)
        self._facts: list[StoryFact] = []
        self._leads_to: dict[int, int] = {}
        self._guessed: dict[int, int] = {}
        self._acting = [*who(view, "agent", TOOL_USE), *assistants(view)]
        self._sessions = {
            number for session in question.sessions if (number := names.find(session)) != NOBODY
        }

    def told(self) -> Stories:
        named = self._named()
        self._choose(named)
        events, firsts = self._events, self._story_of.values()
        # a story by the event that it was told for
        places = {row: place for place, row in enumerate(sorted(set(firsts), key=events.place))}
        rows = numpy.array(list(self._story_of), dtype=numpy.int32)
        story = numpy.array([places[first] for first in firsts], dtype=numpy.int32)
        keys = [events.table["occurred_ms"][rows], story]
        order = numpy.lexsort(keys)
        if numpy.logical_and.reduce([numpy.diff(key[order]) == 0 for key in keys]).any():
            ids = numpy.array([events.ids[row] for row in rows.tolist()])
            order = numpy.lexsort([ids, *keys])
        rows, story = rows[order], story[order]
        return self._columns(rows, story, named)

    # -- whom a question means ---------------------------------------------------------------------

    def _named(self) -> Array:
        """Numbers of the speakers whom the question names: those with most of the words."""
        capitalised = set(self._question.capitalised)
        acts = set(self._acting)
        matched: dict[int, int] = {}
        for number in who(self._view, "author", (EventKind.MESSAGE,)):
            name = (self._events.names.text(number) or "").lower()
            parts = set(_NAME_PART.findall(name))
            shared = 0 if number in acts else len(parts & capitalised)
            if not shared and apart(name) in self._text:
                shared = len(parts)
            if shared:
                matched[number] = shared
        most = max(matched.values(), default=0)
        return numpy.array([one for one, shared in matched.items() if shared == most], "i4")

    # -- which events ------------------------------------------------------------------------------

    def _choose(self, named: Array) -> None:
        question = self._question
        sources: list[Iterable[int]] = [self._in_sessions()]
        if question.by_window:
            sources.append(self._in_windows(named))
        if question.by_fact:
            words = [word for word in self._text.split() if word not in STOP_WORDS]
            self._facts = facts_named(self._view, words)
        if question.by_promise:
            sources.append(self._promising(named))
        sources.append(self._hits())
        if question.by_speaker and len(named):
            sources.append(self._said_by(named))
        if question.by_failure:
            sources.append(self._failed())
        rows = self._events.rows
        sources.append([rows[fact.event_id] for fact in self._facts])
        self._take(chain(*sources))
        if question.by_cause:
            failed = [row for row in self._story_of if self._failures[row]]
            self._leads_to = causes_elsewhere(self._view, failed)
            if question.by_change:
                explained = set(self._leads_to.values())
                unexplained = (row for row in failed if row not in explained)
                self._guessed = changes_before(self._view, unexplained)
                self._leads_to = self._guessed | self._leads_to
            self._take(self._leads_to)

    def _take(self, rows: Iterable[int]) -> None:
        """The story of each of the rows, as long as there is room."""
        stories = 0
        for row in rows:
            if len(self._story_of) >= MAX_EVENTS:
                return
            if row in self._story_of:
                continue
            members = list(self._story(row)) if stories < MAX_STORIES else [row]
            stories += 1
            for member in members:
                self._story_of.setdefault(member, row)

    def _story(self, row: int) -> Iterator[int]:
        """The rows of the story that a row is of, as far as the viewer sees them."""
        yield row
        yield from self._onwards(row, "previous")
        yield from self._onwards(row, "following")

    def _onwards(self, row: int, along: str) -> Iterator[int]:
        column = self._events.table.whole
        occurred, onwards, seen = column("occurred_ms").item, column(along).item, self._sees
        before_ms, other, left = occurred(row), onwards(row), MOST_BESIDE
        while other != NOBODY and left:
            if seen(other):
                at_ms = occurred(other)
                if abs(at_ms - before_ms) > PAUSE_MS:
                    return
                yield other
                before_ms, left = at_ms, left - 1
            other = onwards(other)

    def _hits(self) -> Iterator[int]:
        rows, seen = self._events.rows, self._view.seen
        yield from (rows[hit] for hit in self._question.hits if hit in rows and seen[rows[hit]])

    def _in_sessions(self) -> Iterator[int]:
        for number in sorted(self._sessions, key=self._events.names.texts.__getitem__):
            order = (one for one in self._events.sessions.get(number, ()) if self._view.seen[one])
            yield from islice(order, MAX_IN_SESSION)

    def _in_windows(self, named: Array) -> list[int]:
        """The newest in the windows; where somebody is named, from the sessions that are theirs."""
        table = self._events.table
        within = in_windows(self._view, self._question.windows) & self._view.seen
        if len(named):
            of_named = numpy.isin(table["author"], named) & within
            within &= numpy.isin(table["session"], table["session"][of_named])
        return self._newest(within, MAX_IN_WINDOW)

    def _said_by(self, named: Array) -> list[int]:
        table = self._events.table
        spoken = numpy.isin(table["author"], named) & self._view.seen
        spoken &= numpy.isin(table["kind"], numbers_of_kinds(self._view, (EventKind.MESSAGE,)))
        return self._newest(spoken, MAX_OF_SPEAKER)

    def _spoken(self, rows: Rows | slice = slice(None)) -> Bits:
        """Which of the events are words of agents."""
        table, messages = self._events.table, numbers_of_kinds(self._view, (EventKind.MESSAGE,))
        by_agents = numpy.isin(table["author"][rows], self._acting)
        return numpy.asarray(by_agents & numpy.isin(table["kind"][rows], messages))

    def _promising(self, named: Array) -> list[int]:
        """What agents said with most of the marks, the newest first; to those who are named."""
        table = self._events.table
        spoken = self._spoken() & self._view.seen
        if len(named):
            theirs = numpy.isin(table["author"], named) & self._view.seen
            spoken &= numpy.isin(table["session"], table["session"][theirs])
        rows = numpy.flatnonzero(spoken)
        marks = (self._events.texts.counts(self._question.promising, rows) > 0).sum(axis=1)
        rows, marks = rows[marks > 0], marks[marks > 0]
        promises = ~self._reports(rows)
        rows, marks = rows[promises], marks[promises]
        order = numpy.lexsort((self._events.ranks(rows), -table["occurred_ms"][rows], -marks))
        chosen: list[int] = rows[order][:MAX_PROMISING].tolist()
        return chosen

    def _newest(self, chosen: Bits, most: int) -> list[int]:
        rows = numpy.flatnonzero(chosen)
        order = best(rows, self._events.table["occurred_ms"][rows], most, self._events.ranks)
        newest: list[int] = rows[order].tolist()
        return newest

    def _failed(self) -> list[int]:
        """What failed and says something of it, the best first."""
        failed = self._view.seen & self._failures
        rows, scores = self._events.texts.scored(self._stems, [(failed, MAX_FAILED)])
        rows, scores = rows[failed[rows]], scores[failed[rows]]
        order = best(rows, scores, MAX_FAILED, self._events.ranks)
        chosen: list[int] = rows[order].tolist()
        return chosen

    @cached_property
    def _failures(self) -> Bits:
        return failures(self._view)

    # -- what is told of them ----------------------------------------------------------------------

    def _columns(self, rows: Rows, story: Array, named: Array) -> Stories:
        events, question = self._events, self._question
        table = events.table
        vector = (
            None if question.vector is None else numpy.array(question.vector, dtype=numpy.float32)
        )
        unknown = numpy.full(len(rows), numpy.nan)
        names = {
            name: self._coded(table[name][rows])
            for name in ("author", "agent", "tool", "user", "type")
        }
        kind = self._kinds(table["kind"][rows])
        author = table["author"][rows]
        spoken = numpy.isin(author, named)
        holds = [
            (events.texts.counts(identifier, rows) > 0).all(axis=1)
            for identifier in question.identifiers
        ]
        counts, held = self._counted(rows)
        marks = (events.texts.counts(question.marks, rows) > 0).sum(axis=1)
        if question.by_promise:
            marks[self._spoken(rows) & self._reports(rows)] = 0
        kept_by = self._kept_by(rows)
        return Stories(
            ids=[events.ids[row] for row in rows.tolist()],
            authors=names["author"][0],
            agents=names["agent"][0],
            tools=names["tool"][0],
            users=names["user"][0],
            types=names["type"][0],
            facts=self._facts,
            total=int(self._view.seen.sum()),
            holding=held,
            story=story,
            occurred_ms=table["occurred_ms"][rows],
            author=names["author"][1],
            agent=names["agent"][1],
            tool=names["tool"][1],
            user=names["user"][1],
            type=names["type"][1],
            kind=kind,
            failed=self._failures[rows],
            leads_to=self._leads(rows),
            guessed=numpy.isin(rows, list(self._guessed)),
            person=(kind == MESSAGE) & ~numpy.isin(author, self._acting),
            named=spoken,
            theirs=self._theirs(rows, spoken & ~numpy.isin(author, self._acting)),
            acted=numpy.isin(table["agent"][rows], agents_named(self._view, self._question.text)),
            in_session=numpy.isin(table["session"][rows], list(self._sessions)),
            words=table["words"][rows],
            asks=table["asks"][rows],
            counts=counts,
            labels=holding(self._view, question.stems, rows, ("session", "agent")),
            marks=marks,
            holds=numpy.stack(holds, axis=1) if holds else numpy.zeros((len(rows), 0), bool),
            fulfilled=kept_by != NOBODY,
            kept_by=_places_of(kept_by.tolist(), rows) if question.promising else kept_by,
            cosines=unknown if vector is None else events.vectors.cosines(vector, rows),
        )

    def _counted(self, rows: Rows) -> tuple[Array, Array]:
        """How often each event holds each stem, and how many do; one word may hold two of them."""
        texts, joined = self._events.texts, self._joined
        counts = texts.counts(self._stems, rows)
        holding = texts.holding(self._stems, self._view.seen)
        return with_joined(counts, joined), with_joined(holding, joined)

    @cached_property
    def _stems(self) -> list[str]:
        """Of the question, then those of two words as one, and of verbs for nouns."""
        return [*self._question.stems, *(stem for stem, *_ in self._joined)]

    @cached_property
    def _joined(self) -> list[Joined]:
        """Those of the question, and what it calls by a noun that nobody ever said by its verb."""
        question = self._question
        if not question.verbs:
            return [*question.joined]
        holding = self._events.texts.holding(question.stems, self._view.seen)
        verbs = map(Joined._make, question.verbs)
        return [*question.joined, *(verb for verb in verbs if not holding[verb.first])]

    def _leads(self, rows: Rows) -> Array:
        """The place of the failure that each event is a cause of; -1 of most."""
        if not self._leads_to:
            return numpy.full(len(rows), NOBODY, dtype=numpy.int32)
        return _places_of([self._leads_to.get(row, NOBODY) for row in rows.tolist()], rows)

    def _kept_by(self, rows: Rows) -> Array:
        """The row of the act that keeps what each event says; NOBODY: none, or it is not asked."""
        acts = numpy.full(len(rows), NOBODY, dtype=numpy.int64)
        if self._question.promising:
            promised = numpy.flatnonzero(self._promises(rows))
            promises = Promises(self._view, self._acting, self._onwards)
            acts[promised] = promises.keeping(rows[promised])
        return acts

    def _promises(self, rows: Rows) -> Bits:
        """Which events are words of agents that promise something, as may be."""
        spoken = self._spoken(rows)
        counts = self._events.texts.counts(self._question.promising, rows[spoken])
        spoken[spoken] = (counts > 0).any(axis=1)
        spoken[spoken] = ~self._reports(rows[spoken])
        return spoken

    def _reports(self, rows: Rows) -> Bits:
        """Which words, said right after a record, speak neither of who says them nor to anybody.

        "Friday, 14:30, window 9." tells what was looked up and promises nothing.
        """
        table = self._events.table
        previous = table["previous"][rows]
        tells = numpy.isin(table["kind"][previous], numbers_of_kinds(self._view, OUTCOMES))
        speaks = (self._events.texts.counts(self._question.speaking, rows) > 0).any(axis=1)
        return numpy.asarray((previous != NOBODY) & tells & ~speaks)

    def _theirs(self, rows: Rows, spoken: Bits) -> Bits:
        """Which events are of the users of those who were named."""
        users = self._events.table["user"][rows]
        return numpy.isin(users, users[spoken & (users != NOBODY)])

    def _coded(self, numbers: Array) -> tuple[list[str], Array]:
        """The names of some numbers, sorted, and each number's place among them; -1 of none."""
        different, places = numpy.unique(numbers, return_inverse=True)
        held = [self._events.names.text(one) for one in different.tolist()]
        texts = sorted(text for text in held if text is not None)
        codes = [NOBODY if text is None else bisect_left(texts, text) for text in held]
        return texts, numpy.array(codes, dtype=numpy.int32)[places]

    def _kinds(self, numbers: Array) -> Array:
        codes = {self._events.names.find(kind): code for code, kind in enumerate(KINDS)}
        other = KINDS.index(EventKind.OTHER)
        return numpy.array([codes.get(one, other) for one in numbers.tolist()], dtype=numpy.int8)


def _places_of(others: Iterable[int], rows: Rows) -> Array:
    """The places of some rows among others; NOBODY of those that are not there."""
    places = {row: place for place, row in enumerate(rows.tolist())}
    return numpy.array([places.get(row, NOBODY) for row in others], dtype=numpy.int32)


MAX_NAMED: Final = 24
"""Entities whose facts are told, those first that the question names best."""
MAX_OF_ONE: Final = 100
"""Facts of an entity, the newest first."""


def facts_named(view: View, words: Sequence[str]) -> list[StoryFact]:
    """Facts about the entities that have one of the words in their names, as a viewer sees them.

    What was found to be the same as a named entity is named, too.
    """
    entities = view.tenant.entities
    scored = entities.with_words(words)
    named = sorted(scored, key=lambda row: (-scored[row], entities.all[row].entity_id))
    told: dict[StoryFact, None] = {}
    for row in islice(filter(view.sees_entity, named), MAX_NAMED):
        name = entities.all[row].display_name or entities.all[row].canonical_name
        for same in _same(view, row):
            told |= dict.fromkeys(_facts(view, same, name))
    return list(told)


def _same(view: View, row: int) -> Iterable[int]:
    others = view.tenant.entities.all[row].same
    seen = [other for other in others if view.sees_entity(other)]
    return [row, *sorted(seen, key=lambda other: view.tenant.entities.all[other].entity_id)]


def _facts(view: View, row: int, name: str) -> Iterator[StoryFact]:
    entities, rows = view.tenant.entities.all, view.tenant.events.rows

    def _newest_first(fact: Fact) -> tuple[int, str, str, str]:
        target_id = entities[fact.target].entity_id
        return -fact.valid_from, fact.relation, target_id, fact.event_id

    facts = [fact for fact in entities[row].facts if fact.source == row and view.sees_fact(fact)]
    for fact in sorted(facts, key=_newest_first)[:MAX_OF_ONE]:
        event, target = rows.get(fact.event_id), entities[fact.target]
        if event is not None and view.seen[event] and target.stands:
            yield StoryFact(
                fact.event_id,
                source=name,
                relation=fact.relation,
                value=view.name_of(target),
                from_ms=fact.valid_from,
                until_ms=fact.until_ms,
            )
