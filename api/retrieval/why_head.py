"""Which event a question for causes is about; it asks nobody.

What the question names is looked for first: the best of what was found is put together to stories
(what happened in one trace of one session), and a story is the more likely the better its events
rank, and the more of the question it says. Of each the event is chosen that is to be explained: a
failure before what else happened, that before what was done, and what was only said where there is
nothing else; but the more of the question an event says, the better, and that speaks for its story,
too. So a failure is not explained in place of the thing that was asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final, NamedTuple

from api.retrieval.query_terms import QueryTerms
from consolidation.actions import failure_signature
from enrichment.event_kinds import EventKind, is_failed
from enrichment.stems import said_stems, stem
from enrichment.vocabulary import word_set
from pipelines.graph.reader import GraphNode
from pipelines.graph.reads.walk import StoryEvent

MAX_STORIES: Final = 5
"""Of the best, that are read."""
NEARLY_AS_GOOD: Final = 0.9
"""Share of the best story's score from which another one is a doubt."""
_RANK_SHARES: Final = (1.0, 0.5, 0.25)
"""Of the best events of a story, by rank."""
_SAID_WEIGHT: Final = 1.0
"""Of how much of the question a story says, beside how its events rank."""
_NAMED_WEIGHT: Final = 0.5
"""More for a story that has an identifier of the question."""
_HERE_WEIGHT: Final = 0.5
"""More for a story of the session in which it is asked."""
_ASKED_WEIGHT: Final = 0.6
"""Of how much of the question an event says, beside its kind."""
_RANK_WEIGHT: Final = 0.3
"""Of an event's rank among those of its story."""
_ASKED_FAILURE: Final = 0.3
"""More for a failure, if the question is about one."""
_FAILURE: Final = 0.9
_ONLY_SAID: Final = -1.0
_KIND_WEIGHTS: Final[Mapping[EventKind, float]] = {
    EventKind.DECISION: 0.7,
    EventKind.OTHER: 0.7,
    EventKind.CALL: 0.35,
    EventKind.RESULT: 0.3,
}
"""Of kinds that can be explained; what was only said is, where nothing else happened."""
_FAILING = frozenset(
    map(
        stem,
        word_set(
            "fail failed failing failure error errors wrong broken broke stop stopped crash "
            "crashed rejected refused denied blocked problem trouble timeout kept prevented"
        ),
    )
)


class RankedEvent(NamedTuple):
    """An event that the question found, and its rank, 0 to 1."""

    node: GraphNode
    rank: float


@dataclass
class Story:
    """What happened in one trace of one session, as far as the question found it.

    Attributes:
        ranks: of its events that were found, by id.
        first_ms, last_ms: of these.
        events: all of it, once they were read, by time.
        score: how likely the question is about it.
    """

    session_id: str
    trace_id: str
    first_ms: int
    last_ms: int
    ranks: dict[str, float] = field(default_factory=dict)
    events: Sequence[StoryEvent] = ()
    score: float = 0.0

    @property
    def rank(self) -> float:
        """Of its events together, those that rank best."""
        best = sorted(self.ranks.values(), reverse=True)
        return sum(a * b for a, b in zip(best, _RANK_SHARES, strict=False)) / sum(_RANK_SHARES)


class Head(NamedTuple):
    """The event that is explained.

    Attributes:
        event: that the question is about.
        story: that it belongs to.
        confidence: 0 to 1.
        rival: of another story that is nearly as likely; None: there is none.
        sure: the confidence if the rival is not one.
    """

    event: StoryEvent
    story: Story
    confidence: float
    rival: StoryEvent | None = None
    sure: float = 1.0

    @property
    def doubtful(self) -> bool:
        """Whether something else may have been asked about."""
        return self.rival is not None

    def without_rival(self) -> Head:
        """The same when the rival turned out to be part of what is explained."""
        return self._replace(confidence=self.sure, rival=None)


def stories_of(ranked: Iterable[RankedEvent]) -> list[Story]:
    """The stories that the best events belong to, the best first, MAX_STORIES at most."""
    stories: dict[tuple[str, str], Story] = {}
    for node, rank in ranked:
        session_id = str(node.properties.get("session_id") or "")
        trace_id = str(node.properties.get("trace_id") or "")
        at_ms = int(node.properties.get("occurred_at") or 0)
        story = stories.setdefault(
            (session_id, trace_id), Story(session_id, trace_id, at_ms, at_ms)
        )
        story.first_ms, story.last_ms = min(story.first_ms, at_ms), max(story.last_ms, at_ms)
        story.ranks[node.node_id] = rank
    return sorted(stories.values(), key=lambda story: -story.rank)[:MAX_STORIES]


def head_of(terms: QueryTerms, stories: Sequence[Story], session_id: str) -> Head | None:
    """The event that a question is about; None: nothing was found.

    Args:
        terms: of the question.
        stories: with their events.
        session_id: in which it is asked.
    """
    told = [story for story in stories if story.events]
    if not told:
        return None
    stems_of = [frozenset(one for event in story.events for one in _stems(event)) for story in told]
    wanted = _weights(terms, stems_of)
    for story, stems in zip(told, stems_of, strict=True):
        named = any(stem(identifier) in stems for identifier in terms.identifiers)
        story.score = story.rank + _SAID_WEIGHT * _share(wanted, stems) + _NAMED_WEIGHT * named
        story.score += _HERE_WEIGHT * (story.session_id == session_id)
    heads = [_explained(terms, story) for story in told]
    order = sorted(range(len(told)), key=lambda place: -(told[place].score + heads[place].score))
    best, event = told[order[0]], heads[order[0]].event
    total = best.score + heads[order[0]].score
    rivals = [
        ((told[place].score + heads[place].score) / total, heads[place].event)
        for place in order[1:]
        if total > 0 and not _are_alike(event, heads[place].event)
    ]
    share, rival = rivals[0] if rivals else (0.0, None)
    sure = min(1.0, max(best.ranks.values(), default=0.0))
    return Head(
        event,
        best,
        confidence=round(sure * (1 - 0.5 * max(0.0, 2 * share - 1)), 4),
        rival=rival if share >= NEARLY_AS_GOOD else None,
        sure=round(sure, 4),
    )


def _weights(terms: QueryTerms, texts: Sequence[frozenset[str]]) -> dict[str, float]:
    """How much each stem of the question tells: the fewer say it, the more; what none says, 0."""
    weights = {}
    for word in terms.stems:
        count = sum(word in stems for stems in texts)
        weights[word] = log(1 + len(texts) / count) if count else 0.0
    return weights


def _share(wanted: Mapping[str, float], stems: Iterable[str]) -> float:
    """How much of what is wanted is said, 0 to 1."""
    total = sum(wanted.values())
    return sum(wanted.get(one, 0.0) for one in frozenset(stems)) / total if total else 0.0


class _Explained(NamedTuple):
    """What is to be explained of a story, and how much speaks for it."""

    event: StoryEvent
    score: float


def _explained(terms: QueryTerms, story: Story) -> _Explained:
    """The event of a story that is to be explained: of equal ones the first.

    An identifier tells which story is meant, and not what in it.
    """
    asks_failure = not _FAILING.isdisjoint(terms.stems)
    identifiers = frozenset(map(stem, terms.identifiers))
    stems_of = [frozenset(_stems(event)) - identifiers for event in story.events]
    wanted = _weights(terms, stems_of)
    calls: dict[str, StoryEvent] = {}
    scored = []
    for place, event in enumerate(story.events):
        kind, tool = kind_of(event), event.node.properties.get("tool_name")
        stems = set(stems_of[place])
        if tool and kind is EventKind.CALL:
            calls[tool] = event
        elif tool in calls:
            stems.update(frozenset(_stems(calls[tool])) - identifiers)
        weight = _KIND_WEIGHTS.get(kind, _ONLY_SAID)
        if is_failure_event(event):
            weight = _FAILURE + asks_failure * _ASKED_FAILURE
        rank = story.ranks.get(event.node.node_id, 0.0)
        share = _ASKED_WEIGHT * _share(wanted, stems)
        scored.append((-(weight + share + _RANK_WEIGHT * rank), place))
    worst, place = min(scored)
    return _Explained(story.events[place], -worst)


def _are_alike(event: StoryEvent, other: StoryEvent) -> bool:
    """Whether two failures are of one kind, so that either explains the other."""
    same_tool = event.node.properties.get("tool_name") == other.node.properties.get("tool_name")
    if not (same_tool and is_failure_event(event) and is_failure_event(other)):
        return False
    return failure_signature(event.text) == failure_signature(other.text)


def kind_of(event: StoryEvent) -> EventKind:
    """The kind of an event; OTHER of what enrichment has not read."""
    return EventKind(event.node.properties.get("kind") or EventKind.OTHER)


def is_failure_event(event: StoryEvent) -> bool:
    """Whether an event tells of a failure."""
    return is_failed(kind_of(event), event.node.properties.get("status"))


def _stems(event: StoryEvent) -> Iterable[str]:
    properties = event.node.properties
    author, tool = properties.get("speaker") or "", properties.get("tool_name") or ""
    text = event.text or properties.get("summary") or ""
    about = f"{text} {properties.get('event_type') or ''}".replace("_", " ").replace(".", " ")
    return said_stems(author, tool.replace("_", " "), about)
