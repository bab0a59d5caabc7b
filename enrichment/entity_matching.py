"""From new entities to decisions: which names to compare, and the event that says who is the same.

A decision is taken once, when an entity is new to the graph. It changes nothing by itself: it is
appended to the ledger as `memory.same_as`, and applied when it is read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from enrichment.payloads import MAX_PAIRS, SAME_AS_FOUND, SameAsFound, SameAsPair
from enrichment.ports import EntityType, Mention
from enrichment.resolution import ASK_COSINE, Candidate, KnownEntity, judge, same_as
from projections.events import Event, derived_event_id
from projections.positions import Position
from projections.system_events import PARTITION_KEY

DECIDER = "recollect"
"""`agent_id` of what Recollect itself decides."""

MODEL = "model-"
"""Tells a language model's decisions about a newcomer from those of the rules."""

_COMPARED: frozenset[EntityType] = frozenset(("concept", "service"))

EntityKey = tuple[str, str]


class Newcomer(NamedTuple):
    """An entity that the graph did not have before this transaction.

    Attributes:
        vector: of its name; None when the name is not compared by similarity.
        event, position: of its first mention in the batch, which triggers the decision.
    """

    entity: KnownEntity
    vector: bytes | None
    event: Event
    position: Position


class Comparison(NamedTuple):
    """A newcomer and what it may be the same as."""

    newcomer: Newcomer
    candidates: list[Candidate]


def is_comparable(mention: Mention) -> bool:
    """Whether another name may be found to be the same by similarity."""
    return not mention.exact and mention.entity_type in _COMPARED


def comparisons(
    newcomers: Mapping[EntityKey, Newcomer],
    near: Mapping[EntityKey, Sequence[tuple[KnownEntity, float]]],
) -> list[Comparison]:
    """What each entity that is new has to be compared with.

    Args:
        newcomers: by (tenant, entity id).
        near: entities of the graph that each may be the same as, with the cosine of the names.
    """
    candidates: dict[EntityKey, list[Candidate]] = {}
    for key, others in near.items():
        entity = newcomers[key].entity
        candidates[key] = [Candidate(entity, other, cosine) for other, cosine in others]
    for key, candidate in _among(newcomers):
        candidates.setdefault(key, []).append(candidate)
    return [Comparison(newcomers[key], candidates[key]) for key in sorted(candidates)]


def decisions(compared: Iterable[Comparison]) -> list[Event]:
    """The `memory.same_as` events that the rules come to, one for each newcomer."""
    return [event for one in compared for event in _events(one.newcomer, same_as(one.candidates))]


def open_cases(compared: Iterable[Comparison]) -> list[Comparison]:
    """What is left for a language model."""
    cases = [
        one._replace(candidates=[c for c in one.candidates if judge(c).verdict == "ask"])
        for one in compared
    ]
    return [one for one in cases if one.candidates]


def answered(cases: Iterable[Comparison], answers: Mapping[tuple[str, str], bool]) -> list[Event]:
    """The `memory.same_as` events that a language model's answers come to."""
    return [
        event
        for one in cases
        for event in _events(one.newcomer, same_as(one.candidates, answers), MODEL)
    ]


def _among(newcomers: Mapping[EntityKey, Newcomer]) -> Iterable[tuple[EntityKey, Candidate]]:
    """Pairs of newcomers of one tenant: alike by their vectors, or of one name."""
    tenants: dict[str, list[EntityKey]] = {}
    for key in sorted(newcomers):
        tenants.setdefault(key[0], []).append(key)
    for keys in tenants.values():
        cosines = _cosines([newcomers[key].vector for key in keys])
        names: dict[str, list[EntityKey]] = {}
        for key in keys:
            names.setdefault(newcomers[key].entity.canonical_name, []).append(key)
        pairs = {
            (keys[i], keys[j]): cosines[i, j]
            for i, j in zip(*np.nonzero(np.triu(cosines, k=1) >= ASK_COSINE), strict=True)
        }
        for same in names.values():
            for n, first in enumerate(same):
                pairs.update({(first, second): 1.0 for second in same[n + 1 :]})
        for (first, second), cosine in sorted(pairs.items()):
            yield first, Candidate(newcomers[first].entity, newcomers[second].entity, float(cosine))


def _cosines(vectors: Sequence[bytes | None]) -> np.ndarray:
    """Cosines of all pairs; -1 where a vector is missing."""
    given = [n for n, vector in enumerate(vectors) if vector is not None]
    cosines = np.full((len(vectors), len(vectors)), -1.0)
    if given:
        rows = np.stack([np.frombuffer(vectors[n] or b"", dtype="<f4") for n in given])
        cosines[np.ix_(given, given)] = rows @ rows.T
    return cosines


def _events(newcomer: Newcomer, pairs: Sequence[SameAsPair], by: str = "") -> list[Event]:
    return [
        _event(newcomer, pairs[first : first + MAX_PAIRS], f"{by}{first // MAX_PAIRS}")
        for first in range(0, len(pairs), MAX_PAIRS)
    ]


def _event(newcomer: Newcomer, pairs: Sequence[SameAsPair], chunk: str) -> Event:
    """The decision; every field follows from its trigger, so deciding twice is deciding once."""
    tenant, own_id = newcomer.event.tenant, newcomer.entity.entity_id
    identity = (SAME_AS_FOUND, tenant, str(newcomer.position), own_id, chunk)
    return Event(
        tenant=tenant,
        event_id=derived_event_id(*identity),
        event_type=SAME_AS_FOUND,
        occurred_at_ms=newcomer.event.occurred_at_ms,
        session_id=PARTITION_KEY,
        agent_id=DECIDER,
        trace_id=newcomer.event.trace_id,
        payload=SameAsFound(pairs=tuple(pairs)).payload(),
    )
