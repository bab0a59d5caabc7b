"""A further stage is a row and a pure fold: everything else goes by the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from pipelines.graph.memory import MemoryGraph
from pipelines.ledger.registry import Target
from pipelines.observe import metrics as telemetry
from pipelines.operations.rebuild import REDECIDABLE
from pipelines.work import app
from pipelines.work.folds import Placed, StageFold
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import CONSOLIDATION, STAGES, Stage, later_stages, stages_before
from projections.operations import Operations
from tests.factories import block, event

NAME = "lessons"
TARGET = Target("blue", "bolt://nowhere", "neo4j", "active")


def lessons_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    """Takes in everything, and makes nothing of it."""

    def fold(events: Sequence[Placed], facts: Any) -> Operations:
        seen.extend(one.event_id for _, one in events)
        return Operations()

    return StageFold(stage, lambda transaction, events: None, fold)


seen: list[str] = []


@pytest.fixture
def lessons(monkeypatch: pytest.MonkeyPatch) -> Stage:
    row = Stage(
        name=NAME,
        fold_version=1,
        package="projections",
        make=lessons_fold,
        upstream=CONSOLIDATION.name,
        batch_size=lambda settings: 7,
    )
    monkeypatch.setitem(STAGES, NAME, row)
    seen.clear()
    return row


@pytest.fixture
def services() -> Iterator[Services]:
    """They connect when first asked, which nobody does here."""
    with Services(Settings()) as unconnected:
        yield unconnected


def test_it_is_folded_behind_the_stage_that_it_stands_on(
    lessons: Stage, services: Services
) -> None:
    graph = MemoryGraph()
    runner = Runner(make_fold(lessons, services, TARGET), graph, target="blue")
    runner.prepare(1)
    graph.ensure_checkpoints(CONSOLIDATION.name, 1, 1)
    (before,) = graph.checkpoints(CONSOLIDATION.name)
    entries = block(event(1), event(2))
    last = entries.entries[-1]
    with graph.transaction() as transaction:
        transaction.advance(before, replace(before, position=last.position, seq=last.seq))
    assert runner.apply(entries).seq == 2
    assert len(seen) == 2


def test_it_is_in_every_list_that_follows_the_table(lessons: Stage) -> None:
    assert stages_before(lessons) == list(STAGES.values())[:-1]
    assert later_stages()[-1] is lessons
    assert later_stages({NAME}) == [lessons]
    assert later_stages({"enrichment"}) == [STAGES["enrichment"]]
    assert (CONSOLIDATION.name,) == REDECIDABLE
    telemetry.prepare_stage(lessons.name, "blue", lessons.metrics)


def test_it_has_an_app_of_its_own(lessons: Stage, services: Services) -> None:
    made = app.make_app(lessons, services, "blue")
    assert made.conf.id == "lessons@blue"
    assert cast(Any, made).settings.batch_size == 7


def test_it_runs_no_models_and_steps_back_for_nobody(lessons: Stage) -> None:
    settings = Settings()
    assert (lessons.runs_models, lessons.models_here(settings)) == (False, None)
    assert lessons.nice(settings) == 0
