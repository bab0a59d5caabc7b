"""A ranking by what is said, with the events of stories in their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from api.retrieval.plan import StoryAnswer
from api.retrieval.ranking import Ranked
from consolidation.decay import DecayWeights
from pipelines.graph.rows import is_event

FIRST_EVENTS: Final = 5
"""Before which no entity or summary stands in an answer about events."""


def merged(ranked: Sequence[Ranked], answer: StoryAnswer, weights: DecayWeights) -> list[Ranked]:
    """A ranking in which the events of stories stand in their order, before all other events.

    What is no event keeps its worth, and stands behind the first FIRST_EVENTS events.

    Args:
        ranked: by what is said and by paths, the best first.
        answer: that decides.
        weights: of the ranking.
    """
    share = weights.relevance / weights.total
    by_id = {node.node_id: node for node in ranked}
    events = [_as_told(by_id.get(one), one, answer.relevance[one], share) for one in answer.order]
    least = events[-1].rank if events else 1.0
    told = set(answer.order)
    others = [
        node._replace(rank=min(node.rank, 1.0) * least)
        for node in ranked
        if is_event(node.node_id) and node.node_id not in told
    ]
    ceiling = events[:FIRST_EVENTS][-1].rank if events else 1.0
    derived = [
        node._replace(rank=min(node.rank, ceiling)) for node in ranked if not is_event(node.node_id)
    ]
    return _woven([*events, *others], derived)


def _as_told(node: Ranked | None, event_id: str, relevance: float, share: float) -> Ranked:
    if node is None:
        return Ranked(event_id, relevance * share, relevance, found_by=("story",))
    found_by = node.found_by if "story" in node.found_by else (*node.found_by, "story")
    return node._replace(rank=relevance * share, relevance=relevance, found_by=found_by)


def _woven(events: Iterable[Ranked], derived: Sequence[Ranked]) -> list[Ranked]:
    """Both by rank; of equal ones events come first."""
    return sorted([*events, *derived], key=lambda node: -node.rank)
