"""The stages, one row each: all that anybody but the stage itself needs to know of it.

A row is the CLI's word, the label of its metrics and half of its app's id. Nobody else compares a
stage's name: what differs between stages is a field here. What takes a driver or a model is named
as `module:attribute` and loaded when it is used, so that `recollect status` and the API can read
the table without either. Another stage is a row more, and the pure fold that `make` leads to.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Container
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import consolidation
import enrichment
from pipelines.work.settings import Settings
from projections import structural
from projections.events import SYSTEM_EVENTS

Entry = str | Callable[..., Any]
"""`module:attribute`, or the thing itself."""


def load(entry: Entry) -> Any:
    """What an entry of a row names."""
    return pkgutil.resolve_name(entry) if isinstance(entry, str) else entry


def _as_others(_: Settings) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row.

    Attributes:
        name: one word.
        fold_version: rises when the rules change what the graph holds; a graph folded by another
            version is rebuilt, never mixed.
        package: the folder of its pure rules.
        make: (stage, services, target) → its `folds.StageFold`: what runs on that target.
        upstream: name of the stage that must have folded an entry first; None: the first stage,
            which every target has, and which ingest is held against.
        decides: whether passes decide what it then applies: on the active target only, recorded in
            the ledger, asked again by `rebuild --redecide`.
        batch_size: entries a block of live work, at most.
        rebuild_batch_size: entries a transaction of replay and rebuild.
        nice: how far its workers step back for the others.
        installed_models: (settings) → which models this installation has, as its checkpoints name
            them, None when some are missing; without the entry it runs none.
        check: (settings) → raises what keeps a worker from ever folding a block.
        beside: (app, settings, target) → adds to a worker's app what runs beside its blocks.
        metrics: counters that only this stage sets; a worker shows all their series from the start.
        lag_metric: a gauge that shows the lag in seconds of this stage alone.
    """

    name: str
    fold_version: int
    package: str
    make: Entry
    upstream: str | None = None
    decides: bool = False
    batch_size: Callable[[Settings], int] = attrgetter("batch_size")
    rebuild_batch_size: Callable[[Settings], int] = attrgetter("rebuild_batch_size")
    nice: Callable[[Settings], int] = _as_others
    installed_models: Entry | None = None
    check: Entry | None = None
    beside: Entry | None = None
    metrics: tuple[str, ...] = ()
    lag_metric: str | None = None

    @property
    def owns(self) -> tuple[str, ...]:
        """Types of the system events that it applies; the other stages pass them."""
        return tuple(kind for kind, row in SYSTEM_EVENTS.items() if row.owner == self.name)

    @property
    def runs_models(self) -> bool:
        """Whether its graph depends on models."""
        return self.installed_models is not None

    def models_here(self, settings: Settings) -> str | None:
        """Which models this installation has for it; None: none are needed, or some are missing."""
        if self.installed_models is None:
            return None
        names: str | None = load(self.installed_models)(settings)
        return names


PROJECTION: Final = Stage(
    name="projection",
    fold_version=structural.FOLD_VERSION,
    package="projections",
    make="pipelines.work.gather.projection:projection_fold",
)

ENRICHMENT: Final = Stage(
    name="enrichment",
    fold_version=enrichment.FOLD_VERSION,
    package="enrichment",
    make="pipelines.work.enriching:enrichment_fold",
    upstream=PROJECTION.name,
    # Blocks as large as models get through within a few seconds.
    batch_size=attrgetter("enrichment_batch_size"),
    rebuild_batch_size=lambda settings: 5 * settings.enrichment_batch_size // 2,
    nice=attrgetter("enrichment_nice"),
    installed_models="pipelines.models.installed:installed_models",
    check="pipelines.models.loaded:require_models",
    metrics=("derived_total",),
    lag_metric="enrichment_lag_seconds",
)

CONSOLIDATION: Final = Stage(
    name=consolidation.NAME,
    fold_version=consolidation.FOLD_VERSION,
    package="consolidation",
    make="pipelines.work.gather.consolidation:consolidation_fold",
    upstream=ENRICHMENT.name,
    decides=True,
    # A decision is up to 121 KiB.
    batch_size=attrgetter("consolidation_batch_size"),
    rebuild_batch_size=lambda settings: 5 * settings.consolidation_batch_size,
    beside="pipelines.operations.decider:attach_decider",
    metrics=(
        "reflection_triggers_total",
        "reconsolidation_runs_total",
        "reconsolidation_triggers_total",
        "graph_nodes_pruned_total",
    ),
    lag_metric="consolidation_lag_seconds",
)

STAGES: dict[str, Stage] = {stage.name: stage for stage in (PROJECTION, ENRICHMENT, CONSOLIDATION)}
"""In the order in which they fold; the first one is always there, a later one where it began."""


def later_stages(begun: Container[str] | None = None) -> list[Stage]:
    """The stages after the first one; with `begun`, those of them whose names are in it."""
    later = [stage for stage in STAGES.values() if stage.upstream is not None]
    return [stage for stage in later if begun is None or stage.name in begun]


def stages_before(stage: Stage) -> list[Stage]:
    """The stages that must have folded an entry before this one, in their order."""
    if stage.upstream is None:
        return []
    before = STAGES[stage.upstream]
    return [*stages_before(before), before]


def group_name(stage: str, target: str) -> str:
    """Consumer group of a stage on a target, which is also its Faust app id."""
    return f"{stage}@{target}"
