"""What summaries tell: a session as a whole, and what was learned in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import orjson

from api.retrieval.plan import Operator
from api.retrieval.plan_phrases import ASKING_WORDS
from consolidation.summary_payloads import Lesson, parse_summary
from enrichment.stems import same_root, stem_in, stems_of, words_in
from enrichment.vocabulary import STOP_WORDS
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.entities import EntityReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import CauseReads, Gist
from projections.errors import InvalidEvent


class Learned(NamedTuple):
    """A lesson, and where it was learned.

    Attributes:
        lesson: as recorded.
        session_id: of the episode.
        summary_id: of the episode that tells of it.
        same_story: it is of what is explained, not of something similar.
    """

    lesson: Lesson
    session_id: str
    summary_id: str
    same_story: bool = False


def _share_a_root(topic: str, told: str) -> bool:
    """Whether one of the words that tell what a question is about is in a text, in any form."""
    stems = stems_of(told)
    words = (w for w in words_in(topic.lower()) if w not in STOP_WORDS | ASKING_WORDS)
    return any(same_root(stem_in(word), other) for word in words for other in stems)


def lessons_in(gists: Iterable[Gist]) -> Iterator[Learned]:
    """The lessons of episodes; what cannot be read teaches nothing."""
    for gist in gists:
        with suppress(InvalidEvent, orjson.JSONDecodeError):
            summary = parse_summary(orjson.loads(gist.gist))
            for lesson in summary.lessons or ():
                yield Learned(lesson, gist.session_id, gist.summary_id)


class Shown(NamedTuple):
    """The first event of an answer, and what the question is about."""

    session_id: str
    event_id: str
    topic: str


def _summarized(graph: GraphRead, scope: Scope, first: Shown) -> str | None:
    """The summary of its session."""
    told = EntityReads(graph, scope).summaries_told("session", first.session_id)
    return told[0].properties["content"] if told else None


def _learned(graph: GraphRead, scope: Scope, first: Shown) -> str | None:
    """What was learned from the failure that it is of, if that is the one that is asked about."""
    learned = [one.lesson for one in lessons_in(CauseReads(graph, scope).gists([first.session_id]))]
    proved = (
        lesson.text
        for lesson in learned
        if _share_a_root(first.topic, f"{lesson.tool} {lesson.error}")
        and first.event_id
        in (*lesson.failed_event_ids, *lesson.helped_by, *lesson.solved_event_ids)
    )
    return next(proved, None)


SUMMARIES: Final[Mapping[Operator, Callable[[GraphRead, Scope, Shown], str | None]]] = {
    Operator.SUMMARY: _summarized,
    Operator.LESSON: _learned,
}
"""What summaries say, by the operator that asks for it."""
