"""What was learned in episodes, as their summaries tell it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import orjson

from api.retrieval.plan_phrases import ASKING_WORDS
from consolidation.summary_payloads import Lesson, parse_summary
from enrichment.stems import same_root, stem_in, stems_of, words_in
from enrichment.vocabulary import STOP_WORDS
from pipelines.graph.reads.walk import Gist
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


def share_a_root(topic: str, told: str) -> bool:
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
