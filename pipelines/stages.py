"""The stages: one name each, which is the CLI word, the metric label and half of the app id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from projections import structural
from projections.events import Event
from projections.operations import Operations
from projections.positions import Position
from projections.structural import Facts, Wanted


@dataclass(frozen=True, slots=True)
class Stage:
    """A pure function from events, and the facts it asks for, to graph operations.

    Attributes:
        name: one word.
        fold_version: rises when the rules change what the graph holds; a graph folded by another
            version is rebuilt, never mixed.
        wanted: which facts the events need from the graph.
        fold: events and facts → operations.
    """

    name: str
    fold_version: int
    wanted: Callable[[Sequence[Event]], Wanted]
    fold: Callable[[Sequence[tuple[Position, Event]], Facts], Operations]


PROJECTION = Stage(
    "projection", structural.FOLD_VERSION, structural.wanted_facts, structural.project
)

STAGES: dict[str, Stage] = {stage.name: stage for stage in (PROJECTION,)}


def group_name(stage: str, target: str) -> str:
    """Consumer group of a stage on a target, which is also its Faust app id."""
    return f"{stage}@{target}"
