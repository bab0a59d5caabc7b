"""Builders of the payloads that `statements` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from enrichment.derived import EntityType
from enrichment.facts import WHOLE_CONFIDENCE
from enrichment.statements import Pair
from projections.events import timestamp_text


def assertion_payload(
    source: Mapping[str, Any], relation: str, target: Any, **stated: Any
) -> dict[str, Any]:
    """A payload of `memory.fact_asserted`; `stated` are its other fields, as on the wire."""
    return {"source": dict(source), "relation": relation, "target": target, **stated}


def retraction_payload(
    source: Mapping[str, Any],
    relation: str,
    target: Any = None,
    *,
    at_ms: int | None = None,
    **stated: Any,
) -> dict[str, Any]:
    """A payload of `memory.fact_retracted`."""
    payload = {"source": dict(source), "relation": relation, **stated}
    if target is not None:
        payload["target"] = target
    if at_ms is not None:
        payload["at"] = timestamp_text(at_ms)
    return payload


def split_payload(corrected: str, apart_from: Iterable[str], **stated: Any) -> dict[str, Any]:
    """A payload of `memory.entity_corrected` that keeps entities apart."""
    return {"entity_id": corrected, "correction": "split", "from": sorted(apart_from), **stated}


def alias_payload(
    corrected: str, name: str, entity_type: EntityType, **stated: Any
) -> dict[str, Any]:
    """A payload of `memory.entity_corrected` that declares another name."""
    return {
        "entity_id": corrected,
        "correction": "alias",
        "name": name,
        "type": entity_type,
        **stated,
    }


def same_as_payload(pairs: Iterable[Pair]) -> dict[str, Any]:
    """A payload of `memory.same_as`, of at most MAX_PAIRS pairs."""
    return {"pairs": [_pair_payload(pair) for pair in pairs]}


def _pair_payload(pair: Pair) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "entity_ids": list(pair.entity_ids),
        "same": pair.same,
        "confidence": pair.confidence / WHOLE_CONFIDENCE,
        "method": pair.method,
    }
    if pair.cosine is not None:
        payload["cosine"] = pair.cosine / WHOLE_CONFIDENCE
    if pair.justification is not None:
        payload["justification"] = pair.justification
    return payload
