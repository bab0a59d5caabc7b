"""From new entities to decisions: which names to compare, and the event that says who is the same.

A decision is taken once, when an entity is new to the graph. It changes nothing by itself: it is
appended to the ledger as `memory.same_as`, and applied when it is read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from enrichment.enriched import EntityType, Mention
from enrichment.resolution import ASK_COSINE, Candidate, Known, same_as
from enrichment.statement_payloads import same_as_payload
from enrichment.statements import MAX_PAIRS, SAME_AS_FOUND, Pair
from projections.events import Event, derived_event_id
from projections.positions import Position
from projections.system_events import PARTITION_KEY

DECIDER = "recollect"
"""`agent_id` of what Recollect itself decides."""

_COMPARED: frozenset[EntityType] = frozenset(("concept", "service"))

EntityKey = tuple[str, str]


class Newcomer(NamedTuple):
    """An entity that the graph did not have before this transaction.

    Attributes:
        vector: of its name; None when the name is not compared by similarity.
        event, position: of its first mention in the batch, which triggers the decision.
    """

    known: Known
    vector: bytes | None
    event: Event
    position: Position


def is_comparable(mention: Mention) -> bool:
    """Whether another name may be found to be the same by similarity."""
    return not mention.exact and mention.entity_type in _COMPARED


def decisions(
    newcomers: Mapping[EntityKey, Newcomer],
    near: Mapping[EntityKey, Sequence[tuple[Known, float]]],
) -> list[Event]:
    """The `memory.same_as` events about entities that are new, one for each that triggers any.

    Args:
        newcomers: by (tenant, entity id).
        near: entities of the graph that each may be the same as, with the cosine of the names.
    """
    candidates: dict[EntityKey, list[Candidate]] = {}
    for key, others in near.items():
        newcomer = newcomers[key]
        candidates[key] = [Candidate(newcomer.known, other, cosine) for other, cosine in others]
    for key, candidate in _among(newcomers):
        candidates.setdefault(key, []).append(candidate)
    made = []
    for key in sorted(candidates):
        newcomer = newcomers[key]
        pairs = same_as(candidates[key])
        for chunk in range(0, len(pairs), MAX_PAIRS):
            made.append(_event(newcomer, pairs[chunk : chunk + MAX_PAIRS], chunk // MAX_PAIRS))
    return made


def _among(newcomers: Mapping[EntityKey, Newcomer]) -> Iterable[tuple[EntityKey, Candidate]]:
    """Pairs of newcomers of one tenant: alike by their vectors, or of one name."""
    tenants: dict[str, list[EntityKey]] = {}
    for key in sorted(newcomers):
        tenants.setdefault(key[0], []).append(key)
    for keys in tenants.values():
        cosines = _cosines([newcomers[key].vector for key in keys])
        names: dict[str, list[EntityKey]] = {}
        for key in keys:
            names.setdefault(newcomers[key].known.canonical_name, []).append(key)
        pairs = {
            (keys[i], keys[j]): cosines[i, j]
            for i, j in zip(*np.nonzero(np.triu(cosines, k=1) >= ASK_COSINE), strict=True)
        }
        for same in names.values():
            for n, one in enumerate(same):
                pairs.update({(one, other): 1.0 for other in same[n + 1 :]})
        for (one, other), cosine in sorted(pairs.items()):
            yield one, Candidate(newcomers[one].known, newcomers[other].known, float(cosine))


def _cosines(vectors: Sequence[bytes | None]) -> np.ndarray:
    """Cosines of all pairs; -1 where a vector is missing."""
    given = [n for n, vector in enumerate(vectors) if vector is not None]
    cosines = np.full((len(vectors), len(vectors)), -1.0)
    if given:
        rows = np.stack([np.frombuffer(vectors[n] or b"", dtype="<f4") for n in given])
        cosines[np.ix_(given, given)] = rows @ rows.T
    return cosines


def _event(newcomer: Newcomer, pairs: Sequence[Pair], chunk: int) -> Event:
    """The decision; every field follows from its trigger, so deciding twice is deciding once."""
    tenant, own_id = newcomer.event.tenant, newcomer.known.entity_id
    return Event(
        tenant=tenant,
        event_id=derived_event_id(
            SAME_AS_FOUND, tenant, str(newcomer.position), own_id, str(chunk)
        ),
        event_type=SAME_AS_FOUND,
        occurred_at_ms=newcomer.event.occurred_at_ms,
        session_id=PARTITION_KEY,
        agent_id=DECIDER,
        trace_id=newcomer.event.trace_id,
        payload=same_as_payload(pairs),
    )
