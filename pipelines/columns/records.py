"""What columns are asked of stories, and what they answer with: an array a column.

Hundreds of events and edges a question are too many for objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy
from numpy.typing import NDArray

from enrichment.vocabulary import EDGE_TYPES
from pipelines.graph.rows import StepEdge
from projections.events import EventKind
from projections.schema import EDGES, FOLLOWS, SIMILAR_TO

Array = NDArray[Any]


class Standings(NamedTuple):
    """Events that may be ranked, an array a column; a place each.

    Attributes:
        previous: place of the event before it in its session; -1: it is not among them.
        counts: how often it holds each stem that was asked for, a column a stem.
        stems: how many different ones it holds.
        cosines: with the question's vector; NaN: not known.
        window_cosines: likewise, of its vector summed with those of its neighbours (`windows`).
    """

    ids: list[str]
    authors: list[str]
    occurred_ms: Array
    importance: Array
    accesses: Array
    accessed_ms: Array
    words: Array
    asks: Array
    previous: Array
    counts: Array
    stems: Array
    cosines: Array
    window_cosines: Array


TYPES: Final = tuple(EDGES)
"""Edge types, by the number that stands for each."""
TYPE_NUMBERS: Final = {type_: number for number, type_ in enumerate(TYPES)}
VIEWS: Final = ("", *EDGE_TYPES)
"""Edge types of facts, likewise; the first one is that of all other edges."""
VIEW_NUMBERS: Final = {view: number for number, view in enumerate(VIEWS)}
_QUALITIES: Final = {FOLLOWS.type: "delta_ms", SIMILAR_TO.type: "score"}
_CONFIDENCE: Final = "confidence"


class Steps(NamedTuple):
    """Edges around some nodes, a place each.

    Attributes:
        ids: wire ids of their ends, each once.
        source, target: places in `ids`; as in the graph.
        type: place in TYPES.
        view: of a fact, place in VIEWS.
        forward: the target is what it leads to; otherwise the source is.
        closed: what it leads to is not walked on from.
        quality: what tells its quality: milliseconds of `FOLLOWS`, the cosine of `SIMILAR_TO`, the
            confidence of others; NaN: it says nothing.
        at_ms: since when it is so, milliseconds since the epoch; NaN: not known.
    """

    ids: list[str]
    source: Array
    target: Array
    type: Array
    view: Array
    forward: Array
    closed: Array
    quality: Array
    at_ms: Array

    def edges(self) -> list[StepEdge]:
        """The same, one by one."""
        ids = self.ids
        columns = (column.tolist() for column in self[1:])
        return [
            StepEdge(
                type=TYPES[type_],
                source=ids[source],
                target=ids[target],
                view=VIEWS[view],
                properties=_properties(TYPES[type_], quality),
                reached=ids[target if forward else source],
                closed=closed,
                at_ms=None if at_ms != at_ms else int(at_ms),
            )
            for source, target, type_, view, forward, closed, quality, at_ms in zip(
                *columns, strict=True
            )
        ]


_KINDS: Final = ("i4", "i4", "i1", "i1", "?", "?", "f8", "f8")
StepRow = tuple[int, int, int, int, bool, bool, float, float]
"""An edge: what `Steps` has after `ids`."""


def steps_of(ids: list[str], rows: Sequence[StepRow]) -> Steps:
    """Steps from rows."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(_KINDS)
    return Steps(ids, *map(numpy.array, columns, _KINDS))


def _properties(type_: str, quality: float) -> dict[str, Any]:
    if quality != quality:
        return {}
    name = _QUALITIES.get(type_, _CONFIDENCE)
    return {name: int(quality) if type_ == FOLLOWS.type else quality}


KINDS: Final = tuple(EventKind)
"""By the number that a story tells of an event."""
MESSAGE: Final = KINDS.index(EventKind.MESSAGE)


class StoryFact(NamedTuple):
    """A fact about something that a question names.

    Attributes:
        event_id: of the event that says so.
        source: what it is about, as the question may name it.
        value: what it leads to.
        from_ms: since when it holds, milliseconds since the epoch.
        until_ms: up to when it held; None: it holds.
    """

    event_id: str
    source: str
    relation: str
    value: str
    from_ms: int
    until_ms: int | None

    def holds(self, at_ms: int) -> bool:
        """Whether it is so at a moment."""
        return self.from_ms <= at_ms and (self.until_ms is None or self.until_ms > at_ms)


Grouped = Literal["tool", "session", "agent", "user"]
"""By what events of a list are told apart: a column of theirs."""


class ListAsked(NamedTuple):
    """All events of a sort.

    Attributes:
        session: in which it is asked.
        only_session: nothing else is meant.
        kinds: of these; empty: of any.
        tools: by one of these; empty: by any, or none.
        only_tools: by some tool.
        failed: what did not do what it was to do.
        stems: that say one of these, or have it as their status; empty: whatever they say.
        by_person: told by people, or by agents; None: by anybody.
        windows: stretches of time, from and up to, in milliseconds; empty: ever.
        newest_first: order of the list; else the oldest.
        text: the question in lower case, by which agents are named; empty: it does not matter.
        words: stems that have to be accounted for, by an agent's name or by an act.
        verbs: stems by which an act may be named: what succeeded, of a tool or of a type that is
            called so, and that says all of the words, or is of whom they name; empty: no act.
        grouped: the column by which they are told apart.
        saying: that say all of these stems.
    """

    session: str
    only_session: bool = False
    kinds: Sequence[EventKind] = ()
    tools: Sequence[str] = ()
    only_tools: bool = False
    failed: bool = False
    stems: Sequence[str] = ()
    by_person: bool | None = None
    windows: Sequence[tuple[int, int]] = ()
    newest_first: bool = False
    text: str = ""
    words: Sequence[str] = ()
    verbs: Sequence[str] = ()
    grouped: Grouped = "tool"
    saying: Sequence[str] = ()


class Listed(NamedTuple):
    """What there is of a sort.

    Attributes:
        ids: of the first events; by another column than the tool the first of each group in front.
        total: how many events there are.
        groups: the tools of all of them, or what they are grouped by, each with how often, by its
            first event.
        first_ms: when the first of all of them occurred.
        last_ms: when the last one did.
    """

    ids: list[str]
    total: int
    groups: list[tuple[str, int]]
    first_ms: int = 0
    last_ms: int = 0


class OpenAsked(NamedTuple):
    """What is asked for of what is not closed.

    Attributes:
        stems: of the words that each holds, in its text, its kind or whose it is; empty: any.
        windows: stretches of time in which it was opened; empty: ever.
    """

    stems: Sequence[str] = ()
    windows: Sequence[tuple[int, int]] = ()


class OpenThings(NamedTuple):
    """What was opened.

    Attributes:
        ids: of the events that opened what is not closed, in order of time.
        closed: of those that closed the rest.
    """

    ids: list[str]
    closed: list[str]


class Joined(NamedTuple):
    """A stem of two words that are written as one, and the places of the two among the stems."""

    stem: str
    first: int
    second: int


def with_joined(counts: Array, joined: Sequence[Joined]) -> Array:
    """How often each stem is held, where what holds two words as one holds both.

    Args:
        counts: the stems along the last axis, those of two words as one behind all others.
        joined: the words.
    """
    told = counts.shape[-1] - len(joined)
    held = counts[..., :told].copy()
    for place, (_, *pair) in enumerate(joined, told):
        held[..., pair] = numpy.maximum(held[..., pair], counts[..., [place]])
    return held


class StoriesAsked(NamedTuple):
    """What a question looks for.

    Attributes:
        hits: ids of events that were found, the best first.
        stems: of what it is about.
        identifiers: that it names, as the stems of each.
        vector: of the question, of unit length; None: it has none.
        capitalised: its words with a capital letter, in lower case: names, perhaps.
        text: the question in lower case, its words apart by one space, with one at both ends.
        sessions: ids that it may name, and that of the session that it is asked about.
        marks: stems of words by which what is asked for is said.
        windows: stretches of time that limit it, from and up to, in milliseconds.
        by_window, by_speaker, by_failure: also whatever happened in the windows; what somebody
            said whom it names; what failed and holds one of the stems.
        by_fact: also what says a fact about something that it names.
        by_cause: also what stands behind a failure, in another session.
        by_change: which change is behind a failure is asked for, though none be known to be.
        by_promise: also what agents may have promised.
        promising: stems of words by which something is promised, where what was promised or when it
            was done is asked for.
        speaking: stems of words by which who promises speaks of themselves, or to somebody.
        joined: what holds one of these, holds both of its words.
        verbs: the same of words that are nouns of these, where nothing holds the noun itself.
    """

    hits: Sequence[str]
    stems: Sequence[str]
    identifiers: Sequence[Sequence[str]]
    vector: Sequence[float] | None
    capitalised: Sequence[str]
    text: str
    sessions: Sequence[str]
    windows: Sequence[tuple[int, int]]
    marks: Sequence[str] = ()
    by_window: bool = False
    by_speaker: bool = False
    by_failure: bool = False
    by_fact: bool = False
    by_cause: bool = False
    by_change: bool = False
    by_promise: bool = False
    promising: Sequence[str] = ()
    speaking: Sequence[str] = ()
    joined: Sequence[Joined] = ()
    verbs: Sequence[Joined] = ()


class Stories(NamedTuple):
    """Events by story and time, an array a column; a place each.

    Attributes:
        authors, agents, tools, users, types: names by the numbers in the columns.
        facts: about what the question names.
        total: events that the viewer sees.
        holding: how many of those hold each stem.
        story: number of the story.
        author, agent, tool, user, type: numbers; -1: none.
        kind: number of KINDS.
        failed: it did not do what it was to do.
        leads_to: place of a failure of another session that it is a cause of; -1: none.
        guessed: that it is, by no more than what both mean.
        person: somebody said it who never calls a tool.
        named: by whoever said it, the question means this one.
        theirs: it is of a user whom the question means.
        acted: by the agent that did it, the question means this one.
        in_session: it is of a session that the question names.
        counts: how often it holds each stem, a column a stem.
        labels: whether the name of its session or of its agent holds each stem.
        marks: how many of the marks it holds.
        holds: whether it holds each identifier, a column an identifier.
        fulfilled: what it names was done for the same user, later; only where that is asked for.
        kept_by: place of what did it; -1: nothing, or it is not told.
        cosines: with the question's vector; NaN: not known.
    """

    ids: list[str]
    authors: list[str]
    agents: list[str]
    tools: list[str]
    users: list[str]
    types: list[str]
    facts: list[StoryFact]
    total: int
    holding: Array
    story: Array
    occurred_ms: Array
    author: Array
    agent: Array
    tool: Array
    user: Array
    type: Array
    kind: Array
    failed: Array
    leads_to: Array
    guessed: Array
    person: Array
    named: Array
    theirs: Array
    acted: Array
    in_session: Array
    words: Array
    asks: Array
    counts: Array
    labels: Array
    marks: Array
    holds: Array
    fulfilled: Array
    kept_by: Array
    cosines: Array


class Differing(NamedTuple):
    """An item in which columns differ from the graph.

    Attributes:
        tenant: whose it is.
        kind: label, edge type, or a word (`pipelines.columns.contents.KINDS`).
        key: of the item.
        fields: that differ, as the graph has them and as they were held; None: not at all. The
            first of them, and long values cut.
        is_held, is_expected: whether there is anything under the key.
    """

    tenant: str
    kind: str
    key: str
    fields: Mapping[str, tuple[Any, Any]]
    is_held: bool
    is_expected: bool


class Finding(NamedTuple):
    """How columns compare with their graph.

    Attributes:
        events: that the graph holds, of all tenants.
        counts: items that differ, by tenant and kind; tenants and kinds without any are missing.
        first: of each kind the first of them.
    """

    events: int
    counts: Mapping[str, Mapping[str, int]]
    first: list[Differing]

    @property
    def difference_count(self) -> int:
        """Items that differ."""
        return sum(sum(kinds.values()) for kinds in self.counts.values())
