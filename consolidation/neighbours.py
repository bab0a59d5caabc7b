"""Which sessions are looked at again because another one changed, and what of them is new.

A changed session is compared with its neighbours: those that share a rare entity with it, failed
alike, or are linked already. A neighbour that did not change itself keeps the links to sessions out
of this circle, for nothing about those is new. What is a little too common to be rare is looked at
too: the session that changed may be the one that made it so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log
from typing import Final, NamedTuple

from consolidation.failures import Failure, failure_signature
from consolidation.links import (
    RARE_SESSIONS,
    FoundLink,
    SessionTraits,
    are_alike,
    best_links,
    found_links,
)
from consolidation.payloads import SessionLink
from consolidation.sources import SourceEvent

NEARLY_RARE: Final = 2 * RARE_SESSIONS
"""What so many sessions mention may have been rare a moment ago."""
MAX_NEIGHBOURS: Final = 40
"""Of one session by shared entities; the rarest and the most count."""
MAX_ALIKE: Final = 10
"""Sessions that failed alike, of each failure, those that failed last."""


class FailedEvent(NamedTuple):
    """An event of a tool that failed: `said` is its text, or the line made of it."""

    session_id: str
    tool: str
    said: str


def sharing_sessions(
    session_id: str, mentioning: Mapping[str, Collection[str]], most: int = MAX_NEIGHBOURS
) -> list[str]:
    """The sessions that share most of what is rare, those that share more first.

    Args:
        session_id: of the session that changed.
        mentioning: by id of each of its rare or nearly rare entities, the sessions that mention it.
        most: how many.
    """
    weights: dict[str, float] = {}
    for sessions in mentioning.values():
        for other in sessions:
            weights[other] = weights.get(other, 0.0) + 1 / log(max(2, len(sessions)))
    weights.pop(session_id, None)
    return sorted(weights, key=lambda other: (-round(weights[other], 6), other))[:most]


def alike_sessions(
    session_id: str,
    failures: Iterable[Failure],
    failed: Sequence[FailedEvent],
    most: int = MAX_ALIKE,
) -> list[str]:
    """The sessions that failed alike, those that failed last first.

    Args:
        session_id: of the session that changed.
        failures: of it.
        failed: events of the same tools that failed, the latest first.
        most: how many of each failure.
    """
    signed = [
        (one.session_id, Failure(one.tool, failure_signature(one.said), "")) for one in failed
    ]
    found: dict[str, None] = {}
    for mine in failures:
        alike = dict.fromkeys(
            other
            for other, theirs in signed
            if other != session_id and theirs.signature and are_alike(mine, theirs)
        )
        found.update(dict.fromkeys(list(alike)[:most]))
    return list(found)


def renewed_links(
    session: SessionTraits, circle: Sequence[SessionTraits], recorded: Iterable[FoundLink]
) -> list[SessionLink]:
    """The links of a neighbour, those to sessions out of the circle as recorded."""
    within = {one.session_id for one in circle}
    kept = (one for one in recorded if one.link.session_id not in within)
    return best_links([*found_links(session, circle), *kept])


def slim(event: SourceEvent) -> SourceEvent:
    """The event without its words: what it is connected by."""
    return event._replace(text="", summary="", keywords=())
