"""The labelled names put through the resolver, with the cosines of the real embedder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from enrichment.names import EntityType, canonical_name, components, entity_id
from enrichment.patterns import identifiers
from enrichment.resolution import SAME_COSINE, Candidate, KnownEntity, same_as
from tests.acceptance.resolver.bcubed import BCubed, b_cubed

HERE = Path(__file__).parent
Vectors = Mapping[str, Sequence[float]]


class Labelled(NamedTuple):
    """A name with the thing it stands for."""

    name: str
    type: EntityType
    subtype: str | None
    cluster: str


def labelled(name: str = "aliases") -> list[Labelled]:
    """A set of names: `aliases`, by which the rules were made, or `unseen`, written afterwards."""
    lines = (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Labelled(**json.loads(line)) for line in lines]


def known(one: Labelled) -> KnownEntity:
    """The entity of a name, as `entities.mentions` makes it."""
    name = canonical_name(one.name)
    exact = bool(identifiers(one.name)) or any(map(str.isdigit, name))
    return KnownEntity(entity_id("test", name, one.type), name, one.type, one.subtype, exact)


def candidates(mentions: Sequence[Labelled], vectors: Vectors) -> list[Candidate]:
    """Every pair: what a nearest-neighbour search finds is a part of it."""
    entities = sorted({known(one) for one in mentions})
    matrix = np.array([vectors[entity.canonical_name] for entity in entities])
    cosines = matrix @ matrix.T
    return [
        Candidate(entities[one], entities[other], float(cosines[one, other]))
        for one, other in combinations(range(len(entities)), 2)
    ]


def by_rules(pairs: Sequence[Candidate]) -> list[tuple[str, str]]:
    return [pair.entity_ids for pair in same_as(pairs)]


def by_cosine(pairs: Sequence[Candidate]) -> list[tuple[str, str]]:
    """What S2 prints, for comparison: cosine alone."""
    return [pair.entity_ids for pair in pairs if pair.cosine >= SAME_COSINE]


def by_name(pairs: Sequence[Candidate]) -> list[tuple[str, str]]:
    """Equal canonical names alone, for comparison."""
    return []


def score(
    mentions: Sequence[Labelled],
    pairs: Sequence[Candidate],
    decide: Callable[[Sequence[Candidate]], list[tuple[str, str]]],
) -> BCubed:
    canonical = components(decide(pairs))
    gold = {number: one.cluster for number, one in enumerate(mentions)}
    ids = {number: known(one).entity_id for number, one in enumerate(mentions)}
    return b_cubed(gold, {number: canonical.get(i, i) for number, i in ids.items()})


def wrong_pairs(mentions: Sequence[Labelled], pairs: Sequence[Candidate]) -> list[str]:
    """What the rules joined wrongly, and what they missed, one line each."""
    clusters: dict[str, set[str]] = {}
    for one in mentions:
        clusters.setdefault(known(one).entity_id, set()).add(one.cluster)
    canonical = components(by_rules(pairs))
    lines = []
    for pair in pairs:
        ids = pair.entity_ids
        joined = canonical.get(ids[0], ids[0]) == canonical.get(ids[1], ids[1])
        same = bool(clusters[ids[0]] & clusters[ids[1]])
        if joined != same:
            names = f"{pair.first.canonical_name} | {pair.second.canonical_name}"
            lines.append(f"{'wrong ' if joined else 'missed'} {pair.cosine:6.3f} {names}")
    return sorted(lines)
