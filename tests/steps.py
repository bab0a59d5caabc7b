"""Edges as tests write them down, and what a walk that met them holds."""

from __future__ import annotations

from collections.abc import Sequence

from api.retrieval.walk_result import Met, met_at_first

from pipelines.columns.records import TYPE_NUMBERS, VIEW_NUMBERS, Steps, steps_of
from pipelines.graph.rows import StepEdge


def steps(edges: Sequence[StepEdge]) -> Steps:
    """What columns tell of edges."""
    ids = list(dict.fromkeys(end for edge in edges for end in (edge.source, edge.target)))
    rows = [
        (
            ids.index(edge.source),
            ids.index(edge.target),
            TYPE_NUMBERS[edge.type],
            VIEW_NUMBERS[edge.view],
            edge.reached == edge.target,
            edge.closed,
            next(iter(edge.properties.values()), float("nan")),
            float("nan") if edge.at_ms is None else edge.at_ms,
        )
        for edge in edges
    ]
    return steps_of(ids, rows)


def met(edges: Sequence[StepEdge]) -> Met:
    """What a walk holds that met them one step from where it began."""
    return met_at_first(()).joined(steps(edges), 1)
