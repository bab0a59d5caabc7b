"""Exact lists: all events of a kind, of people or agents, that failed, of a time or a session."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy

from enrichment.act_names import base, of_tool, of_type, says_verb
from enrichment.event_kinds import FAILED, TOOL_USE, EventKind, type_words
from enrichment.stems import stem_in, stems_of, words_in
from enrichment.vocabulary import VOICELESS
from pipelines.columns.records import ListAsked, Listed
from pipelines.columns.tables import NOBODY, Array, Bits, Rows
from pipelines.columns.view import View
from projections.events import LAST_MS

MAX_LISTED: Final = 100
"""Events of a list; all are counted."""
_ASSISTANT: Final = "assistant"
_ACTING: Final = r" (?:did|does|do|has|have|had|by|from|of) (?:the |our )?{name} "
"""How an agent is asked for whose name is a word that may mean something else, too."""


def listed(view: View, question: ListAsked) -> Listed:
    """What a viewer sees of all that is asked for, in the order of time.

    Where the session that it is asked in has some, they are its own, unless a tool or a time is
    named or it is asked for sessions, agents or users.
    """
    table = view.tenant.events.table
    chosen = view.seen & table["stands"]
    if question.kinds:
        chosen &= numpy.isin(table["kind"], numbers_of_kinds(view, question.kinds))
    if question.tools:
        names = [view.tenant.events.names.find(tool) for tool in question.tools]
        chosen &= numpy.isin(table["tool"], [name for name in names if name != NOBODY])
    if question.only_tools:
        chosen &= table["tool"] != NOBODY
    if question.failed:
        chosen &= failures(view)
    if question.stems or question.saying:
        chosen &= _saying(view, numpy.flatnonzero(chosen), question)
    if question.by_person is not None:
        is_agent = numpy.isin(table["author"], who(view, "agent", TOOL_USE))
        is_agent |= numpy.isin(table["kind"], numbers_of_kinds(view, TOOL_USE))
        chosen &= ~is_agent if question.by_person else is_agent
    if question.windows:
        chosen &= in_windows(view, question.windows)
    if question.words or question.verbs:
        chosen &= _accounted(view, question, chosen)
    session = view.tenant.events.names.find(question.session)
    in_session = chosen & (table["session"] == session)
    is_wider = question.windows or question.tools or question.grouped != "tool"
    if question.only_session or (in_session.any() and not is_wider):
        chosen = in_session
    return _told(view, numpy.flatnonzero(chosen), question)


def _accounted(view: View, question: ListAsked, chosen: Bits) -> Bits:
    """What is of the agent that the question names, and is the act that its other words name.

    Nothing, where words are left over: something else is asked for.
    """
    table, names = view.tenant.events.table, view.tenant.events.names
    agents = agents_named(view, question.text)
    of_agents = {
        stem_in(word) for number in agents for word in words_in((names.text(number) or "").lower())
    }
    words = [one for one in question.words if one not in of_agents]
    of_them = chosen & numpy.isin(table["agent"], agents)
    if not question.verbs:
        return of_them if not words else numpy.zeros(table.size, dtype=bool)
    acts = _acts(view, question, words, of_them)
    # what is called as an agent is may be what something was done to
    return acts if acts.any() else _acts(view, question, question.words, chosen)


def _acts(view: View, question: ListAsked, words: Sequence[str], chosen: Bits) -> Bits:
    """The calls that succeeded, or the events, that say all of the words, one of them as a verb.

    Those of tools and types whose names say most of them; what failed, where that is asked for.
    """
    table, names = view.tenant.events.table, view.tenant.events.names
    is_of_tool = table["tool"] != NOBODY
    fitting: dict[tuple[bool, int], list[int]] = {}
    for column, mask in (("tool", is_of_tool), ("type", ~is_of_tool)):
        for number in different(table[column][chosen & mask]):
            name = names.text(number) or ""
            meaning = of_tool(name) if column == "tool" else of_type(name)[:2]
            meant = [verb for verb in question.verbs if says_verb(base(verb), meaning[0])]
            if named := [verb for verb in meant if base(verb) in meaning[0]]:
                meant = named  # what was sent by email says so
            if question.failed:  # `run_tests` failed where tests did
                meant = meant or [verb for verb in question.verbs if verb in meaning[1]]
            left = [word for word in words if word not in meant and word not in meaning[1]]
            if meant and (
                rows := _saying_all(
                    view, chosen & mask & (table[column] == number), left, failed=question.failed
                )
            ):
                fitting.setdefault((column == "tool", -len(left)), []).extend(rows)
    acts = numpy.zeros(table.size, dtype=bool)
    if fitting:
        acts[fitting[max(fitting)]] = True
    return acts


def _saying_all(view: View, chosen: Bits, words: Sequence[str], *, failed: bool) -> list[int]:
    """Of one tool or type calls that worked, or failures: what says all words, with its call."""
    events, table = view.tenant.events, view.tenant.events.table
    rows = numpy.flatnonzero(chosen)
    rows = events.in_time(rows)
    rows = rows[numpy.argsort(table["session"][rows], kind="stable")]
    is_call = numpy.isin(table["kind"][rows], numbers_of_kinds(view, (EventKind.CALL,)))
    has_outcomes = bool(is_call.any() and not is_call.all())
    before = numpy.maximum.accumulate(numpy.where(is_call, numpy.arange(len(rows)), -1))
    called = (before >= 0) & (table["session"][rows[before]] == table["session"][rows])
    calls = numpy.where(called, rows[before], rows)
    saying = events.texts.counts(words, rows) > 0
    saying |= events.texts.counts(words, calls) > 0
    saying |= holding(view, words, rows)
    done = saying.all(axis=1) & (failures(view)[rows] == failed)
    if has_outcomes:
        done &= ~is_call
    told: list[int] = numpy.unique((rows if failed else calls)[done]).tolist()
    return told


def agents_named(view: View, text: str) -> list[int]:
    """Numbers of the agents whom a question names as doing something."""
    agents = different(view.tenant.events.table["agent"][view.seen])
    question = apart(text)
    return [
        agent for agent in agents if _is_named(view.tenant.events.names.text(agent) or "", question)
    ]


def _is_named(agent: str, text: str) -> bool:
    name = apart(agent.lower()).strip()
    if " " in name:
        return f" {name} " in text
    return bool(name) and re.search(_ACTING.format(name=re.escape(name)), text) is not None


def apart(text: str) -> str:
    """Words apart by one space: `support-agent` is asked for as "the support agent"."""
    return f" {' '.join(words_in(text))} "


def holding(
    view: View,
    stems: Sequence[str],
    rows: Rows,
    columns: Iterable[str] = ("session", "agent", "user"),
) -> Bits:
    """Whether the name of each event's session, agent or user holds each stem."""
    table, names = view.tenant.events.table, view.tenant.events.names
    held = numpy.zeros((len(rows), len(stems)), dtype=bool)
    for column in columns:
        numbers, places = numpy.unique(table[column][rows], return_inverse=True)
        texts = (names.text(one) or "" for one in numbers.tolist())
        parts = [stems_of(text) for text in texts]
        by_name = [[stem in of_name for stem in stems] for of_name in parts]
        if by_name:
            held |= numpy.array(by_name, dtype=bool).reshape(len(parts), len(stems))[places]
    return held


def last_ms(view: View, until_ms: int) -> int | None:
    """When the newest event that a viewer sees occurred, of those before a moment; None: none."""
    at_ms = view.tenant.events.table["occurred_ms"]
    before = at_ms[view.seen & (at_ms < until_ms)]
    return int(before.max()) if len(before) else None


def _saying(view: View, rows: Array, question: ListAsked) -> Bits:
    """Which of the rows say one of the stems, or have it as their status, and all that is named."""
    events, stems = view.tenant.events, question.stems
    saying: Bits = numpy.ones(len(rows), dtype=bool)
    if stems:
        statuses = [number for stem in stems if (number := events.names.find(stem)) != NOBODY]
        saying = numpy.asarray((events.texts.counts(stems, rows) > 0).any(axis=1))
        saying = saying | numpy.isin(events.table["status"][rows], statuses)
    if question.saying:
        says_all = (events.texts.counts(question.saying, rows) > 0).all(axis=1)
        saying &= numpy.asarray(says_all)
    chosen = numpy.zeros(events.table.size, dtype=bool)
    chosen[rows[saying]] = True
    return chosen


def _told(view: View, rows: Array, question: ListAsked) -> Listed:
    events = view.tenant.events
    in_order = events.in_time(rows)[:: -1 if question.newest_first else 1]
    numbers = events.table[question.grouped][in_order]
    groups = Counter(numbers.tolist())
    groups.pop(NOBODY, None)
    if question.grouped != "tool":
        in_order = in_order[numbers != NOBODY]
        _, first = numpy.unique(numbers[numbers != NOBODY], return_index=True)
        first.sort()
        in_order = numpy.concatenate([in_order[first], numpy.delete(in_order, first)])
    at_ms = events.table["occurred_ms"][in_order]
    return Listed(
        ids=[events.ids[row] for row in in_order[:MAX_LISTED].tolist()],
        total=len(in_order),
        groups=[(events.names.text(one) or "", count) for one, count in groups.items()],
        first_ms=int(at_ms.min(initial=LAST_MS)),
        last_ms=int(at_ms.max(initial=0)),
    )


# -- which events, and who ------------------------------------------------------------------


def numbers_of_kinds(view: View, kinds: Iterable[EventKind]) -> list[int]:
    """The numbers of the names of kinds."""
    names = view.tenant.events.names
    return [number for kind in kinds if (number := names.find(kind)) != NOBODY]


def who(view: View, column: str, kinds: Iterable[EventKind]) -> list[int]:
    """Numbers of a column in the events of some kinds that the viewer sees."""
    table = view.tenant.events.table
    chosen = numpy.isin(table["kind"], numbers_of_kinds(view, kinds)) & view.seen
    return different(table[column][chosen])


def assistants(view: View) -> list[int]:
    """Numbers of the authors who speak as an assistant: by their name or by their event's type.

    One that uses tools is known by that; one that only talks is a person no more.
    """
    table, names = view.tenant.events.table, view.tenant.events.names
    types = [
        number
        for number in who(view, "type", (EventKind.MESSAGE,))
        if _ASSISTANT in type_words(names.text(number) or "")
    ]
    of_type = table["author"][numpy.isin(table["type"], types) & view.seen]
    authors = who(view, "author", (EventKind.MESSAGE,))
    called = [author for author in authors if (names.text(author) or "").lower() in VOICELESS]
    return [*called, *different(of_type)]


def failures(view: View) -> Bits:
    """Of each event whether it did not do what it was to do."""
    table, names = view.tenant.events.table, view.tenant.events.names
    statuses = [number for one in FAILED if (number := names.find(one)) != NOBODY]
    of_kind = numpy.isin(table["kind"], numbers_of_kinds(view, (EventKind.FAILURE,)))
    return numpy.asarray(of_kind | numpy.isin(table["status"], statuses))


def identifiers_of(view: View, rows: Iterable[int], least: float = 0.0) -> frozenset[str]:
    """Names with a digit that events mention; with 1 what a call acts on."""
    entities, mentions = view.tenant.entities.all, view.tenant.mentions
    mentioned = (one for row in rows for one in mentions.targets(row))
    targets = {target for target, score in mentioned if score >= least}
    names = (entities[target].canonical_name or "" for target in targets)
    return frozenset(name for name in names if any(map(str.isdigit, name)))


def in_windows(view: View, windows: Iterable[tuple[int, int]]) -> Bits:
    """Of each event whether it occurred in one of some stretches of time."""
    at_ms = view.tenant.events.table["occurred_ms"]
    inside = numpy.zeros(len(at_ms), dtype=bool)
    for first_ms, end_ms in windows:
        inside |= (at_ms >= first_ms) & (at_ms < end_ms)
    return inside


def different(numbers: Array) -> list[int]:
    """The different ones of some numbers of names, without sorting them."""
    counts = numpy.bincount(numbers[numbers != NOBODY])
    return [int(number) for number in numpy.flatnonzero(counts)]
