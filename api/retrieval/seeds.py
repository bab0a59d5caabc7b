"""Where a query or a recall of facts begins: seeds, and how they score.

Pure. What the channels of a query found is joined by reciprocal ranks and not by scores, because a
BM25 score, a cosine and a match of a name have no common scale; the final order is not made here.
Of entities a match alone is never the score: the structure around the entity is blended in, a
community gives at most a few seeds, and that cap never leaves none (S2, hybrid seed selection,
SA-INV-10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from api.retrieval.query_terms import MIN_PREFIX, is_plural, name_parts
from enrichment.vocabulary import EDGE_TYPES
from pipelines.graph.rows import SessionEvent

RANK_OFFSET: Final = 60
"""k of the reciprocal ranks: 1 / (k + rank)."""
MAX_EVENT_SEEDS: Final = 24
MAX_ENTITY_SEEDS: Final = 8
CONTEXT_SCORE: Final = 0.3
"""Of the session's own entity and of the most important of its last events."""
CONTEXT_EVENTS: Final = 5


def fused_ranks(channels: Iterable[Iterable[str]], offset: int = RANK_OFFSET) -> dict[str, float]:
    """Sum of 1 / (offset + rank) over the channels, by id, the best first and scaled to be 1.

    Args:
        channels: ids, best first.
        offset: the larger, the more it counts to be found by several channels.
    """
    scores: dict[str, float] = {}
    for ids in channels:
        for rank, own_id in enumerate(dict.fromkeys(ids), 1):
            scores[own_id] = scores.get(own_id, 0.0) + 1.0 / (offset + rank)
    best = max(scores.values(), default=1.0)
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return {own_id: score / best for own_id, score in ordered}


def most_important(events: Iterable[SessionEvent], most: int = CONTEXT_EVENTS) -> list[str]:
    """Ids of the most important events, of equal ones the newest first."""

    def order(event: SessionEvent) -> tuple[int, int, str]:
        return -event.importance, -event.occurred_at_ms, event.event_id

    return [event.event_id for event in sorted(events, key=order)[:most]]


def joined_seeds(*parts: Mapping[str, float]) -> dict[str, float]:
    """All of them, each with its best score, the best first."""
    best: dict[str, float] = {}
    for part in parts:
        for own_id, score in part.items():
            best[own_id] = max(score, best.get(own_id, 0.0))
    return dict(sorted(best.items(), key=lambda item: (-item[1], item[0])))


MAX_RECALL_SEEDS: Final = 10
"""Of a recall of facts."""
_PLURAL_MATCH = 0.9
_COVERED, _TAKEN = 0.6, 0.4


class SeedRules(NamedTuple):
    """S2's settings of the selection of seeds."""

    structural_weight: float = 0.3
    community_cap: int = 3


class Structure(NamedTuple):
    """What surrounds an entity: facts at either end, their edge types, its community."""

    degree: int = 0
    edge_types: int = 0
    community_id: str | None = None


class Seed(NamedTuple):
    """An entity that a recall begins at.

    Attributes:
        entity_id: the canonical one of its SAME_AS component.
        name: for display.
        match: how well the query names it, 0 to 1.
        structural: degree and diversity of edge types, 0 to 1.
        score: of both, 0 to 1.
        community_id: None: it has none.
    """

    entity_id: str
    name: str
    match: float
    structural: float = 0.0
    score: float = 0.0
    community_id: str | None = None


def match_score(words: Sequence[str], names: Iterable[str]) -> float:
    """How well the words of a query name something, 0 to 1: its best name counts.

    How much of the name the words cover, and a little how many of the words it takes up; a word
    counts by its length, the beginning of one by the share that it covers.

    Args:
        words: of `name_terms`.
        names: of the entity, in any spelling.
    """
    parts = tuple(dict.fromkeys(part for word in words for part in name_parts(word)))
    total = sum(map(len, parts))
    best = 0.0
    for name in names:
        pieces = name_parts(name.lower())
        if not pieces or not total:
            continue
        shares = {piece: _share(piece, parts) for piece in pieces}
        covered = sum(len(piece) * shares[piece][0] for piece in pieces) / sum(map(len, pieces))
        taken = sum(len(word) for word in {word for _, word in shares.values() if word}) / total
        best = max(best, covered * (_COVERED + _TAKEN * min(1.0, taken)))
    return min(1.0, best)


def _share(piece: str, words: Sequence[str]) -> tuple[float, str]:
    """How much of a word of a name the query has, and the query's word for it."""
    best = (0.0, "")
    for word in words:
        if word == piece:
            return 1.0, word
        if is_plural(word) and word[:-1] == piece:
            best = max(best, (_PLURAL_MATCH, word))
        elif len(word) >= MIN_PREFIX and piece.startswith(word):
            best = max(best, (len(word) / len(piece), word))
    return best


def structural_scores(structures: Mapping[str, Structure]) -> dict[str, float]:
    """Mean of degree (logarithmic, the largest being 1) and of the share of edge types, by id."""
    largest = math.log1p(max((one.degree for one in structures.values()), default=0))
    return {
        entity_id: (
            (math.log1p(one.degree) / largest if largest else 0.0)
            + min(one.edge_types, len(EDGE_TYPES)) / len(EDGE_TYPES)
        )
        / 2
        for entity_id, one in structures.items()
    }


def scored_seeds(
    matched: Iterable[Seed], structures: Mapping[str, Structure], *, structural_weight: float
) -> list[Seed]:
    """Seeds with score = match·(1 - w) + structural·w, the best first (S2).

    Args:
        matched: with their match alone.
        structures: by entity id; without one it counts 0.
        structural_weight: w, 0 to 1.
    """
    structural = structural_scores(structures)
    scored = []
    for seed in matched:
        around = structural.get(seed.entity_id, 0.0)
        score = seed.match * (1 - structural_weight) + around * structural_weight
        community_id = structures.get(seed.entity_id, Structure()).community_id
        scored.append(seed._replace(structural=around, score=score, community_id=community_id))
    return sorted(scored, key=lambda seed: (-seed.score, -seed.match, seed.entity_id))


def capped_by_community(
    seeds: Sequence[Seed], cap: int, most: int = MAX_RECALL_SEEDS
) -> list[Seed]:
    """At most `cap` seeds of one community and `most` in all, in order (SA-INV-10).

    Entities without a community are not capped; when the cap leaves none, the first `most` stand.
    """
    taken: dict[str, int] = {}
    chosen = []
    for seed in seeds:
        if seed.community_id is not None:
            count = taken.get(seed.community_id, 0)
            if count >= cap:
                continue
            taken[seed.community_id] = count + 1
        chosen.append(seed)
    return (chosen or list(seeds))[:most]
