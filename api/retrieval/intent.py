"""What a question wants to know, and where it begins: intents, and seeds (S0, S2).

Pure. Rules, not a model: each marker is a pattern, what it speaks for, and how strongly. Markers
of one intent confirm each other, 1 - Π(1 - strength), so a confidence grows and stays below 1. The
question of S0, "Why do my customers' payments keep failing?", has `why` 0.7 by its first word,
`when` 0.4 because something recurs, and `what` 0.5 because it is about somebody's something.

What the channels of a query found is joined by reciprocal ranks and not by scores, because a
BM25 score, a cosine and a match of a name have no common scale; the final order is not made here.
Of entities a match alone is never the score: the structure around the entity is blended in, a
community gives at most a few seeds, and that cap never leaves none (S2, hybrid seed selection,
SA-INV-10).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from api.retrieval.plan import Intent, Operator
from api.retrieval.plan_phrases import sure_ways
from api.retrieval.policy import DEFAULT_POLICY
from api.retrieval.query_terms import MAX_SEARCHED_CHARACTERS, MIN_PREFIX, is_plural, name_parts
from enrichment.vocabulary import EDGE_TYPES, EdgeType
from pipelines.graph.rows import SessionEvent

STRONG: Final = 0.7
"""The question asks for it in so many words."""
CLEAR: Final = 0.5
WEAK: Final = 0.4

_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
)
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
# "What caused", "what happened", "what is similar to" ask for causes, order and likeness.
_OTHER_WHAT = (
    r"(?!\s+(?:was\s+|were\s+|has\s+|had\s+|is\s+|are\s+)?(?:the\s+)?(?:root\s+)?"
    r"(?:caus\w+|reasons?|led|leads|made|makes|triggered|triggers|went\s+wrong|happen\w*|"
    r"came|comes|occurred|took\s+place|time|date|day|month|year|if\b|else\b|similar|like\b))"
)


PERSONAL: Final[Mapping[Operator, Intent]] = {
    Operator.PROFILE: "who_is",
    Operator.HOW_DOES: "how_does",
    Operator.PERSONALIZE: "personalize",
}
"""Intents about a person, by the operator that answers them: they are asked in the same words."""


class Marker(NamedTuple):
    """A pattern, the intent it speaks for, and its strength (0 to 1)."""

    intent: Intent
    strength: float
    pattern: re.Pattern[str]


def _marker(intent: Intent, strength: float, pattern: str) -> Marker:
    return Marker(intent, strength, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE))


MARKERS: Final = (
    _marker(
        "why",
        STRONG,
        r"why|how\s+come|what\s+(?:has\s+|had\s+)?(?:caus\w+|led|leads|made|makes|triggered|"
        r"triggers)|what\s+went\s+wrong|what\s+(?:is|are|was|were)\s+the\s+(?:root\s+)?"
        r"(?:causes?|reasons?)|for\s+what\s+reason|(?:root\s+)?causes?\s+of|reasons?\s+(?:for|why|"
        r"behind|that)|(?:because|due)\s+(?:of|to)\s+what",
    ),
    _marker(
        "why",
        CLEAR,
        r"because|root\s+causes?|reasons?|caus(?:e|es|ed|ing)|explain\w*|led\s+to|leads?\s+to|"
        r"result(?:s|ed)?\s+(?:in|from)|due\s+to|responsible\s+for|motivat\w+|inspired|purpose",
    ),
    _marker(
        "when",
        STRONG,
        r"when|what\s+(?:time|date|day|month|year)|which\s+(?:day|date|month|week|year)|"
        r"how\s+long(?:\s+ago)?|since\s+when|until\s+when|how\s+(?:often|recently)|in\s+what\s+"
        r"(?:order|sequence)|time\s?line",
    ),
    _marker(
        "when",
        CLEAR,
        r"before|after(?:wards)?|since|until|during|earlier|later|previous(?:ly)?|next|then|"
        r"meanwhile|first|last|latest|recent(?:ly)?|ago|yesterday|today|tonight|tomorrow|"
        r"(?:what|which\s+\w+)\s+(?:has\s+|had\s+)?(?:happen\w*|came|comes|occurred|took\s+"
        rf"place)|{_DAYS}|(?:in|of|by|since|until)\s+(?:{_MONTHS})|(?:{_MONTHS})\s+\d{{1,4}}|"
        rf"\d{{1,2}}\s+(?:{_MONTHS})|\d{{4}}-\d{{2}}-\d{{2}}|(?:19|20)\d\d|"
        r"sequence|chronolog\w+",
    ),
    _marker(
        "when",
        WEAK,
        r"keep|keeps|kept|always|again|every\s+time|repeated(?:ly)?|recur\w*|often|usually|"
        r"constantly|frequently|still|any\s?more",
    ),
    _marker(
        "what",
        STRONG,
        rf"what(?:'s|\u2019s)?{_OTHER_WHAT}|which|who(?:m|se|'s|\u2019s)?|where|how\s+(?:many|much|old)|"
        r"list|name\s+(?:the|all|some|of)|define|describe|identify|show\s+(?:me\s+)?(?:all|the)",
    ),
    _marker(
        "what",
        CLEAR,
        r"(?:my|our|your|his|her|its|their)\s+\w[\w-]*|\w+(?:'s|\u2019s|s'|s\u2019)\s+\w[\w-]*",
    ),
    _marker("what", WEAK, r"^\s*(?:do|does|did|has|have|is|are|was|were|can|could|will|would)"),
    _marker(
        "related",
        STRONG,
        r"similar(?:\s+to)?|related(?:\s+to)?|(?:anything|something|everything|more|others?)\s+"
        r"(?:like|about)|like\s+(?:this|that|these|those)|look\s+like|alike|resembl\w+|"
        r"associated\s+with|connect(?:ed|ion|ions)\s+(?:to|with|between)|in\s+common|remind\w*|"
        r"what\s+else|same\s+(?:kind|sort|type|thing|problem|error|issue)",
    ),
    _marker("related", WEAK, r"related|about|regarding|concerning|compar\w+|else|both|too|also"),
    *(_marker(PERSONAL[name], STRONG, "|".join(sure_ways(name))) for name in PERSONAL),
)
"""What questions are recognised by; `classify_graph_subgraph` reads the same ones."""

_EDGE_TYPES: Final[Mapping[Intent, EdgeType]] = {
    "why": "causal",
    "when": "temporal",
    "what": "entity",
    "related": "semantic",
}


_SEQUENCE: Final = re.compile(
    r"(?<!\w)(?:(?:right|just|immediately|directly|shortly)\s+(?:before|after)|before|after|"
    r"next|previous|preced\w+|follow\w+|then|prior\s+to|leading\s+up\s+to)(?!\w)",
    re.IGNORECASE,
)
"""Asks for what stands beside something in time; "when did" asks for its date."""


def path_intents(query: str, intents: Mapping[Intent, float]) -> dict[Intent, float]:
    """The intents whose answer stands beside what the question names, at the end of an edge.

    A cause shares few words with its effect, and neither does the event before it: for these the
    paths from what the question names add to what an event says itself.

    Args:
        query: the question.
        intents: that are traversed, with their confidences.
    """
    least: dict[Intent, float] = {"why": STRONG, "related": STRONG}
    if _SEQUENCE.search(query[:MAX_SEARCHED_CHARACTERS]):
        least["when"] = CLEAR
    return {
        intent: value for intent, value in intents.items() if value >= least.get(intent, math.inf)
    }


@lru_cache(maxsize=1_024)
def _inferred(query: str) -> tuple[tuple[Intent, float], ...]:
    missing: dict[Intent, float] = {}
    for marker in MARKERS:
        if marker.pattern.search(query):
            missing[marker.intent] = missing.get(marker.intent, 1.0) * (1 - marker.strength)
    confidences = {intent: round(1 - left, 2) for intent, left in missing.items()}
    return tuple(sorted(confidences.items(), key=lambda item: -item[1]))


def inferred_intents(query: str) -> dict[Intent, float]:
    """The intents of a question with their confidences (0 to 1), the strongest first.

    A question that nothing is known about is `general`, with confidence 1.
    """
    return dict(_inferred(query[:MAX_SEARCHED_CHARACTERS])) or {"general": 1.0}


def traversed_intents(
    inferred: Mapping[Intent, float],
    override: Intent | None = None,
    *,
    threshold: float = DEFAULT_POLICY.intent_threshold,
) -> dict[Intent, float]:
    """The intents that are traversed, and how much each counts.

    Args:
        inferred: see `inferred_intents`.
        override: what the caller says it is; then nothing else counts.
        threshold: confidence from which on an intent has a traversal of its own.
    """
    if override is not None:
        return {override: 1.0}
    clear = {intent: value for intent, value in inferred.items() if value >= threshold}
    return clear or {"general": 1.0}


def strongest_intent(intents: Mapping[Intent, float]) -> Intent:
    """The one with the highest confidence; of equal ones the first."""
    return max(intents, key=lambda intent: intents[intent])


def classify_graph_subgraph(query: str) -> frozenset[EdgeType]:
    """The views of facts that a question is about (S2): `semantic`, and those it has markers of.

    Pure; by the markers of the intents, so that the two cannot drift apart.
    """
    intents = inferred_intents(query)
    return frozenset(
        {"semantic", *(_EDGE_TYPES[intent] for intent in intents if intent in _EDGE_TYPES)}
    )


RANK_OFFSET: Final = 60
"""k of the reciprocal ranks: the larger, the more it counts to be found by several channels."""
MAX_EVENT_SEEDS: Final = 24
MAX_ENTITY_SEEDS: Final = 8
CONTEXT_SCORE: Final = 0.3
"""Of the session's own entity and of the most important of its last events."""
CONTEXT_EVENTS: Final = 5


def fused_ranks(channels: Iterable[Iterable[str]]) -> dict[str, float]:
    """Sum of 1 / (k + rank) over the channels, by id, the best first and scaled to be 1.

    Args:
        channels: ids, best first.
    """
    scores: dict[str, float] = {}
    for ids in channels:
        for rank, own_id in enumerate(dict.fromkeys(ids), 1):
            scores[own_id] = scores.get(own_id, 0.0) + 1.0 / (RANK_OFFSET + rank)
    best = max(scores.values(), default=1.0)
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return {own_id: score / best for own_id, score in ordered}


def most_important(events: Iterable[SessionEvent]) -> list[str]:
    """Ids of the most important events, of equal ones the newest first."""

    def order(event: SessionEvent) -> tuple[int, int, str]:
        return -event.importance, -event.occurred_at_ms, event.event_id

    return [event.event_id for event in sorted(events, key=order)[:CONTEXT_EVENTS]]


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
    total, by_first = _parts_of(tuple(words))
    best = 0.0
    for name in names:
        pieces = name_parts(name.lower())
        if not pieces or not total:
            continue
        shares = {piece: _share(piece, by_first.get(piece[0], ())) for piece in pieces}
        covered = sum(len(piece) * shares[piece][0] for piece in pieces) / sum(map(len, pieces))
        taken = sum(len(word) for word in {word for _, word in shares.values() if word}) / total
        best = max(best, covered * (_COVERED + _TAKEN * min(1.0, taken)))
    return min(1.0, best)


@lru_cache(maxsize=64)  # asked again for each thing that a query may name
def _parts_of(words: tuple[str, ...]) -> tuple[int, Mapping[str, Sequence[str]]]:
    """The characters of all parts of some words, and the parts by their first character."""
    parts = list(dict.fromkeys(part for word in words for part in name_parts(word)))
    by_first: dict[str, list[str]] = {}
    for part in parts:
        by_first.setdefault(part[0], []).append(part)
    return sum(map(len, parts)), by_first


def _share(piece: str, words: Sequence[str]) -> tuple[float, str]:
    """How much of a word of a name the query has, and the query's word for it.

    Args:
        piece: of the name.
        words: of the query, those that begin as the piece does: no other one is like it.
    """
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
    largest = math.log1p(max((structure.degree for structure in structures.values()), default=0))
    return {
        entity_id: (
            (math.log1p(structure.degree) / largest if largest else 0.0)
            + min(structure.edge_types, len(EDGE_TYPES)) / len(EDGE_TYPES)
        )
        / 2
        for entity_id, structure in structures.items()
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


def capped_by_community(seeds: Sequence[Seed], cap: int) -> list[Seed]:
    """At most `cap` seeds of one community and MAX_RECALL_SEEDS in all, in order (SA-INV-10).

    Entities without a community are not capped; when the cap leaves none, the first ones stand.
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
    return (chosen or list(seeds))[:MAX_RECALL_SEEDS]
