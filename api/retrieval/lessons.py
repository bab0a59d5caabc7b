"""What was learned in episodes, as their summaries tell it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import orjson

from consolidation.summary_payloads import Lesson, parse_summary
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


def lessons_in(gists: Iterable[Gist]) -> Iterator[Learned]:
    """The lessons of episodes; what cannot be read teaches nothing."""
    for gist in gists:
        with suppress(InvalidEvent, orjson.JSONDecodeError):
            summary = parse_summary(orjson.loads(gist.gist))
            for lesson in summary.lessons or ():
                yield Learned(lesson, gist.session_id, gist.summary_id)
