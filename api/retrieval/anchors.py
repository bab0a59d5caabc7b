"""What stands beside the events that a question names: causes, neighbours in time, alike events.

Pure. An anchor is an event that says itself what the question asks about: by its own words, not by
those around it. What the intent's edges lead to from there is an answer although it shares few
words with the question ("Yes, please." caused the call).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from api.retrieval.candidate_text import Candidate, Passage
from api.retrieval.intent import Intent
from api.retrieval.query_terms import stem
from api.retrieval.walk import path_scores, ways_of
from pipelines.graph.reads.walk import StepEdge

MAX_ANCHORS: Final = 8
MAX_HOPS: Final = 2
HOP_SHARE: Final = 0.7
_LENGTH_SHARE: Final = 0.02
"""By which each word of a long event takes away from what it covers."""


def coverage(words: Sequence[str], candidates: Sequence[Candidate]) -> dict[str, float]:
    """How much of a question each event says in its own words, the best being 1, by event id.

    Words count by how few of the events have them; of two events that say the same the shorter
    one says it more.
    """
    asked = {stem(word) for word in words}
    stems = {one.event_id: one.passage.stems for one in candidates}
    said = {event_id: own for event_id, own in stems.items() if not own.keys().isdisjoint(asked)}
    known = Counter(word for own in said.values() for word in asked & own.keys())
    weight = {word: math.log1p(len(candidates) / count) for word, count in known.items()}
    scores = {
        event_id: sum(weight[word] for word in sorted(asked & own.keys()))
        / (1 + _LENGTH_SHARE * len(own))
        for event_id, own in said.items()
    }
    best = max(scores.values(), default=0.0)
    return {event_id: score / best for event_id, score in scores.items()}


def holding(identifiers: Sequence[str], candidates: Iterable[Candidate]) -> frozenset[str]:
    """Ids of the events that hold all the identifiers; none without any."""
    return frozenset(
        candidate.event_id
        for candidate in candidates
        if identifiers and all(one in _said(candidate.passage) for one in identifiers)
    )


def anchors(covered: Mapping[str, float], held: Set[str]) -> dict[str, float]:
    """What is covered, of the events that hold the identifiers alone if any of them does."""
    own = {event_id: score for event_id, score in covered.items() if event_id in held}
    best = max(own.values(), default=0.0)
    return {event_id: score / best for event_id, score in own.items()} or dict(covered)


def _said(passage: Passage) -> str:
    return f"{passage.text} {passage.tool_name.lower()}"


def led_to(
    covered: Mapping[str, float], edges: Iterable[StepEdge], intents: Mapping[Intent, float]
) -> dict[str, float]:
    """What the best path from another event that says it is worth, 0 to 1, by event id.

    Args:
        covered: of `anchors`; its square is what an anchor passes on.
        edges: that were met.
        intents: whose edges lead, with their confidences.
    """
    best = sorted(covered, key=lambda event_id: (-covered[event_id], event_id))[:MAX_ANCHORS]
    known = list(edges)
    found: dict[str, float] = {}
    for intent, confidence in intents.items():
        ways = ways_of(known, intent, hop_share=HOP_SHARE)
        for anchor in best:
            paths = path_scores({anchor: covered[anchor] ** 2}, ways, MAX_HOPS)
            for node_id, score in paths.items():
                if node_id != anchor:
                    found[node_id] = max(found.get(node_id, 0.0), confidence * score)
    return found
