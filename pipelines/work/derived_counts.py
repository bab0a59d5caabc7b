"""How much enrichment derives and consolidation takes away, for the metrics."""

from __future__ import annotations

from collections import Counter

from pipelines.observe import metrics as telemetry
from projections.operations import Operations
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    FORGOTTEN,
    INFERRED,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
)

_STAGE, _PRUNING = "enrichment", "consolidation"
_OF_EDGES = {
    REFERENCES.type: "mention",
    RELATES_TO.type: "fact",
    SIMILAR_TO.type: "similar",
    SAME_AS.type: "same_as",
}


def derived_counts(operations: Operations) -> Counter[str]:
    """Items of a batch of enrichment by `telemetry.Derivation`; those without any are missing."""
    found: Counter[str] = Counter()
    for edge in operations.merge_edges.values():
        if edge.type in _OF_EDGES:
            found[_OF_EDGES[edge.type]] += 1
        elif edge.type == CAUSED_BY.type and edge.values["mechanism"] == INFERRED:
            found[f"cause_{edge.values['rule']}"] += 1
    for node in operations.set_nodes.values():
        if node.label == EVENT.label:
            found["text"] += node.values["text"] is not None
            found["embedding"] += node.values["embedding"] is not None
            found["keyword"] += len(node.values["keywords"] or ())
    found["entity"] += sum(label == ENTITY.label for label, _ in operations.merge_nodes)
    return +found


def pruned_counts(operations: Operations) -> Counter[str]:
    """Events that a batch of consolidation takes away, by tier."""
    return Counter(
        str(one.value)
        for one in operations.decide_nodes.values()
        if (one.label, one.name) == (FORGOTTEN.label, "tier")
    )


def count_derived(stage: str, target: str, operations: Operations) -> None:
    """Count what enrichment has written, or what consolidation has taken away."""
    if stage == _PRUNING:
        for tier, number in pruned_counts(operations).items():
            telemetry.PRUNED.labels(target=target, tier=tier).inc(number)
    if stage == _STAGE:
        for kind, number in derived_counts(operations).items():
            telemetry.DERIVED.labels(target=target, kind=kind).inc(number)
