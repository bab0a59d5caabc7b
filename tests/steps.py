"""Edges as tests write them down, and what a walk over them meets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from api.retrieval.plan import Intent
from pipelines.columns.graph_scores import type_weights
from pipelines.columns.reads import WalkAsked, Walked
from pipelines.columns.records import TYPE_NUMBERS, VIEW_NUMBERS, StepRow, Steps, steps_of
from pipelines.columns.walked import Around, walked
from pipelines.graph.rows import StepEdge
from projections.schema import EDGE_CAPS, INTENT_WEIGHTS


def steps(edges: Sequence[StepEdge]) -> Steps:
    """What columns tell of edges."""
    places: dict[str, int] = {}
    rows = [_row(edge, places) for edge in edges]
    return steps_of(list(places), rows)


def around(edges: Iterable[StepEdge]) -> Around:
    """Edges as a walk meets them, each from the end that does not reach the other."""
    at: dict[str, list[StepEdge]] = {}
    for edge in edges:
        here = edge.source if edge.reached == edge.target else edge.target
        at.setdefault(here, []).append(edge)

    def met(node_ids: Collection[str], places: dict[str, int]) -> list[StepRow]:
        return [_row(edge, places) for node_id in node_ids for edge in at.get(node_id, ())]

    return met


def walk_asked(
    seeds: Mapping[str, float],
    intents: Mapping[Intent, float],
    weights: Mapping[str, Mapping[str, float]] = INTENT_WEIGHTS,
    **more: Any,
) -> WalkAsked:
    """A walk from seeds, three levels unless it says otherwise."""
    return WalkAsked(
        seeds,
        type_weights(intents, weights),
        list(intents.values()),
        others_share=0.2,
        **{"caps": EDGE_CAPS, "max_depth": 3, **more},
    )


def walked_over(edges: Iterable[StepEdge], asked: WalkAsked, now_ms: int = 0) -> Walked:
    """What a walk over these edges meets."""
    return walked(asked, around(edges), now_ms)


def _row(edge: StepEdge, places: dict[str, int]) -> StepRow:
    source, target = (places.setdefault(end, len(places)) for end in (edge.source, edge.target))
    quality = next(iter(edge.properties.values()), float("nan"))
    at_ms = float("nan") if edge.at_ms is None else edge.at_ms
    kind, forward = TYPE_NUMBERS[edge.type], edge.reached == edge.target
    return source, target, kind, VIEW_NUMBERS[edge.view], forward, edge.closed, quality, at_ms
