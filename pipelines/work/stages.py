"""The stages: one name each, which is the CLI word, the metric label and half of the app id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from consolidation import fold_version as folding
from enrichment import derived as enriched
from projections import structural
from projections.events import Event
from projections.operations import Operations
from projections.positions import Position
from projections.structural import Facts

if TYPE_CHECKING:
    from pipelines.graph.writer import GraphTransaction
    from pipelines.ledger.targets import Target
    from pipelines.work.services import Services
    from pipelines.work.settings import Settings

Placed = tuple[Position, Event]
"""An event and where the ledger keeps it."""


def as_they_are(events: Sequence[Placed]) -> Sequence[Any]:
    """Nothing is derived from an event alone."""
    return events


def within_partitions(_: Sequence[Any]) -> None:
    """What an entry says is about its own session."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A pure function from events, and the facts it asks for, to graph operations.

    Attributes:
        name: one word.
        fold_version: rises when the rules change what the graph holds; a graph folded by another
            version is rebuilt, never mixed.
        gather: reads those facts, in the transaction and under the checkpoint's lock.
        fold: what was derived, and the facts → operations.
        derive: what can be said of each event alone, before the transaction; models run here.
            Called again with the same events when a transaction is tried again.
        upstream: name of the stage that must have folded an entry first.
        reach: of what was derived from a batch, the position up to which `upstream` must have
            folded every partition; None: their own entries are enough.
        batch_size: entries a block of live work, at most.
        rebuild_batch_size: entries a transaction of replay and rebuild.
        models: which models the graph depends on, beside the rules; empty: none.
        answer: decides what the rules left open; asked by live workers, after the commit.
        interrupt: ends what `derive` and `answer` wait for; from then on they raise Stopped where
            they would have to wait.
    """

    name: str
    fold_version: int
    gather: Callable[[GraphTransaction, Sequence[Any]], Any]
    fold: Callable[[Sequence[Any], Any], Operations]
    derive: Callable[[Sequence[Placed]], Sequence[Any]] = as_they_are
    upstream: str | None = None
    reach: Callable[[Sequence[Any]], Position | None] = within_partitions
    batch_size: Callable[[Settings], int] = attrgetter("batch_size")
    rebuild_batch_size: Callable[[Settings], int] = attrgetter("rebuild_batch_size")
    models: str = ""
    answer: Callable[[Sequence[Any]], Sequence[Event]] | None = None
    interrupt: Callable[[], None] | None = None


def _gather_neighbours(transaction: GraphTransaction, events: Sequence[Placed]) -> Facts:
    bare = [event for _, event in events]
    return transaction.facts(bare, structural.wanted_facts(bare))


PROJECTION = Stage("projection", structural.FOLD_VERSION, _gather_neighbours, structural.project)


def _without_models(*_: object) -> Any:
    raise AssertionError("`ready` puts the models in")


def _enrich(batch: Sequence[Any], facts: Any) -> Operations:
    from enrichment.stage import enrich  # numpy; `recollect status` and the API do without

    return enrich(batch, facts)


ENRICHMENT = Stage(
    "enrichment",
    enriched.FOLD_VERSION,
    _without_models,
    _enrich,
    _without_models,
    upstream=PROJECTION.name,
    # Blocks as large as models get through within a few seconds.
    batch_size=attrgetter("enrichment_batch_size"),
    rebuild_batch_size=lambda settings: 5 * settings.enrichment_batch_size,
)


def _without_ledger(*_: object) -> Any:
    raise AssertionError("`ready` puts the ledger in")


def _read_decisions(events: Sequence[Placed]) -> Sequence[Any]:
    from consolidation.stage import derive  # numpy, as above

    return derive(events)


def _consolidate(batch: Sequence[Any], facts: Any) -> Operations:
    from consolidation.stage import consolidate

    return consolidate(batch, facts)


def _decisions_reach(batch: Sequence[Any]) -> Position | None:
    from consolidation.stage import reach

    return reach(batch)


CONSOLIDATION = Stage(
    folding.NAME,
    folding.FOLD_VERSION,
    _without_ledger,
    _consolidate,
    _read_decisions,
    upstream=ENRICHMENT.name,
    reach=_decisions_reach,
    # A decision is up to 121 KiB.
    batch_size=attrgetter("consolidation_batch_size"),
    rebuild_batch_size=lambda settings: 5 * settings.consolidation_batch_size,
)

STAGES: dict[str, Stage] = {stage.name: stage for stage in (PROJECTION, ENRICHMENT, CONSOLIDATION)}
"""In the order in which they fold."""


def ready(stage: Stage, services: Services, target: Target) -> Stage:
    """The stage as it runs on a target, with the models or the ledger that it needs.

    Raises:
        GraphUnavailable, ModelUnavailable: see `enriching.with_models`.
    """
    if stage.name == ENRICHMENT.name:
        from pipelines.work.enriching import with_models

        return with_models(stage, services, target)
    if stage.name == CONSOLIDATION.name:
        return with_ledger(stage, services)
    return stage


def with_ledger(stage: Stage, services: Services) -> Stage:
    """Stage 3 as it runs on a ledger: it must know in which partition a session is."""
    from pipelines.graph.consolidation_facts import ConsolidationFacts

    return replace(stage, gather=ConsolidationFacts(services.settings.partitions))


def group_name(stage: str, target: str) -> str:
    """Consumer group of a stage on a target, which is also its Faust app id."""
    return f"{stage}@{target}"
