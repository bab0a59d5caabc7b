"""Where a recall of facts begins: the entities that the words of a query name.

Pure. A match alone is never the score of a seed: the structure around the entity is blended in, a
community gives at most a few seeds, and that cap never leaves none (S2, hybrid seed selection,
SA-INV-10).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from enrichment.entities import canonical_name
from enrichment.relations import EDGE_TYPES
from enrichment.words import STOP_WORDS

MAX_QUERY_CHARACTERS: Final = 512
"""Of a query, S2: what stands behind them names nothing."""
MAX_TERMS: Final = 64
"""Of one search: a query of 512 characters has room for 250 words of one letter."""
MAX_NAME_WORDS: Final = 4
"""Of a name that is looked up as it stands."""
MIN_PREFIX: Final = 3
"""Letters of a word that may be the beginning of another: two begin half the dictionary."""
MAX_SEEDS: Final = 10

_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W_]+")
_EDGE = re.compile(r"^[^\w]+|[^\w]+$")
_POSSESSIVE = re.compile(r"['\u2019]s$", re.IGNORECASE)
_PLURAL_MATCH = 0.9
_COVERED, _ASKED = 0.6, 0.4


class Terms(NamedTuple):
    """What a query is searched by.

    Attributes:
        words: lower case, without words that say little; as they stand when no other is left.
        names: canonical names that the query may hold, for a look-up.
    """

    words: tuple[str, ...]
    names: tuple[str, ...]


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


def name_terms(query: str) -> Terms:
    """The words and the possible names of a query's first 512 characters."""
    asked = query[:MAX_QUERY_CHARACTERS]
    words = list(dict.fromkeys(_WORD.findall(asked.lower())))
    telling = [word for word in words if word not in STOP_WORDS] or words
    singular = [word[:-1] for word in telling if _is_plural(word)]
    return Terms(tuple(dict.fromkeys([*telling, *singular]))[:MAX_TERMS], _names(asked))


def _names(asked: str) -> tuple[str, ...]:
    """Runs of up to four words as canonical names, joined as ids join them, too.

    A run that ends in a possessive counts with it and without: "McDonald's" has one in its name,
    and "Ann's sister" is about Ann.
    """
    raw = [word for part in asked.split() if (word := _EDGE.sub("", part))][:MAX_TERMS]
    found: dict[str, None] = {}
    for length in range(1, MAX_NAME_WORDS + 1):
        for first in range(len(raw) - length + 1):
            run = raw[first : first + length]
            if length == 1 and run[0].lower() in STOP_WORDS:
                continue
            for joint in " " if length == 1 else " _-":
                written = joint.join(run)
                for form in (written, _POSSESSIVE.sub("", written)):
                    if name := canonical_name(form):
                        found[name] = None
    return tuple(found)


def name_forms(name: str) -> tuple[str, ...]:
    """Canonical names that a name given by a caller may stand for: `_` and `-` read as space."""
    whole = canonical_name(name)
    spaced = canonical_name(re.sub(r"[_-]+", " ", whole))
    joined = (spaced.replace(" ", "_"), spaced.replace(" ", "-"))
    return tuple(dict.fromkeys(form for form in (whole, spaced, *joined) if form))


def match_score(words: Sequence[str], names: Iterable[str]) -> float:
    """How well the words of a query name something, 0 to 1: its best name counts.

    How much of the name the words cover, and a little how many of the words it takes up; a word
    counts by its length, the beginning of one by the share that it covers.

    Args:
        words: of `name_terms`.
        names: of the entity, in any spelling.
    """
    parts = _parts(words)
    total = sum(map(len, parts))
    best = 0.0
    for name in names:
        pieces = _LETTERS.findall(name.lower())
        if not pieces or not total:
            continue
        shares = {piece: _share(piece, parts) for piece in pieces}
        covered = sum(len(piece) * shares[piece][0] for piece in pieces) / sum(map(len, pieces))
        asked = sum(len(word) for word in {word for _, word in shares.values() if word}) / total
        best = max(best, covered * (_COVERED + _ASKED * min(1.0, asked)))
    return min(1.0, best)


def _parts(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for word in words for part in _LETTERS.findall(word)))


def _share(piece: str, words: Sequence[str]) -> tuple[float, str]:
    """How much of a word of a name the query has, and the query's word for it."""
    best = (0.0, "")
    for word in words:
        if word == piece:
            return 1.0, word
        if _is_plural(word) and word[:-1] == piece:
            best = max(best, (_PLURAL_MATCH, word))
        elif len(word) >= MIN_PREFIX and piece.startswith(word):
            best = max(best, (len(word) / len(piece), word))
    return best


def _is_plural(word: str) -> bool:
    return len(word) > MIN_PREFIX + 1 and word.endswith("s") and not word.endswith("ss")


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
    found = []
    for seed in matched:
        own = structural.get(seed.entity_id, 0.0)
        score = seed.match * (1 - structural_weight) + own * structural_weight
        community_id = structures.get(seed.entity_id, Structure()).community_id
        found.append(seed._replace(structural=own, score=score, community_id=community_id))
    return sorted(found, key=lambda seed: (-seed.score, -seed.match, seed.entity_id))


def capped_by_community(seeds: Sequence[Seed], cap: int, most: int = MAX_SEEDS) -> list[Seed]:
    """At most `cap` seeds of one community and `most` in all, in order (SA-INV-10).

    Entities without a community are not capped; when the cap leaves none, the first `most` stand.
    """
    taken: dict[str, int] = {}
    kept = []
    for seed in seeds:
        if seed.community_id is not None:
            count = taken.get(seed.community_id, 0)
            if count >= cap:
                continue
            taken[seed.community_id] = count + 1
        kept.append(seed)
    return (kept or list(seeds))[:most]
