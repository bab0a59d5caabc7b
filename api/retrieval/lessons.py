"""What was learned from failures like the one that is explained; it asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import orjson

from api.retrieval.heads import Head, is_failure_event
from consolidation.actions import Failure, failure_signature
from consolidation.links import are_alike
from consolidation.summary_payloads import Lesson, parse_summary
from pipelines.graph.reads.walk import Gist
from projections.errors import InvalidEvent

MAX_HELPED: Final = 4


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


def helped(head: Head, in_tree: Iterable[str], learned: Sequence[Learned]) -> list[Learned]:
    """What helped against what is explained, at most MAX_HELPED: of its own story first.

    Args:
        head: that is explained.
        in_tree: ids of its causes, and itself.
        learned: of its session and of similar ones.
    """
    story = {event.node.node_id for event in head.story.events}
    ids = set(in_tree) | {head.event.node.node_id}
    same, alike = [], []
    for learning in learned:
        lesson = learning.lesson
        proofs = {*lesson.failed_event_ids, *lesson.solved_event_ids, *lesson.helped_by}
        if proofs & ids or (proofs & story and _is_like(head, lesson)):
            same.append(learning._replace(same_story=True))
        elif not proofs & story and _is_like(head, lesson):
            alike.append(learning)
    same.sort(key=lambda learning: not _is_like(head, learning.lesson))
    return [*same, *alike][:MAX_HELPED]


def _is_like(head: Head, lesson: Lesson) -> bool:
    """Whether a lesson is of a failure like the head."""
    properties, event = head.event.node.properties, head.event
    tool = properties.get("tool_name")
    if tool != lesson.tool or not is_failure_event(event):
        return False
    mine = Failure(lesson.tool, failure_signature(event.text), event.node.node_id)
    return are_alike(mine, mine._replace(signature=failure_signature(lesson.error)))
