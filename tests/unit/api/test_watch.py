"""Overload, lag, and when a position counts as read."""

from __future__ import annotations

import pytest

from api.seen import Sample
from api.services import have_passed
from api.watcher import by_stage, is_stale, lag_entries
from pipelines.ledger.ledger import Tail
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT
from projections.identity import START, Position
from projections.operations import Checkpoint
from projections.structural import FOLD_VERSION

SETTINGS = Settings(overload_lag_entries=100, overload_lag_seconds=30, overload_memory_ratio=0.9)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (Sample(), None),
        (Sample(lag_entries=100, lag_seconds=30.0, memory_ratio=0.9), None),
        (Sample(lag_entries=1_001), "1,001 events wait to be projected"),
        (Sample(lag_seconds=31.2), "an event has waited 31 s to be projected"),
        (Sample(memory_ratio=0.95), "Redis uses 95% of its memory"),
    ],
)
def test_overload_names_its_reason(sample: Sample, expected: str | None) -> None:
    assert sample.overloaded(SETTINGS) == expected


def test_lag_counts_from_the_checkpoint_and_from_nothing_without_one() -> None:
    tails = [Tail(Position(9, 0), 9), Tail(Position(5, 0), 5), Tail(START, 0)]
    checkpoints = {0: Checkpoint("projection", 0, Position(7, 0), 7)}
    assert lag_entries(tails, checkpoints) == {0: 2, 1: 5, 2: 0}


def test_a_graph_ahead_of_its_ledger_is_no_negative_lag() -> None:
    checkpoints = {0: Checkpoint("projection", 0, Position(9, 0), 9)}
    assert lag_entries([Tail(Position(3, 0), 3)], checkpoints) == {0: 0}


def test_a_stage_that_nobody_started_is_not_behind_but_the_projection_is() -> None:
    assert by_stage([]) == {"projection": {}}
    begun = Checkpoint("enrichment", 3)
    assert by_stage([begun]) == {"projection": {}, "enrichment": {3: begun}}


ENRICHED = Checkpoint("enrichment", 0, fold_version=ENRICHMENT.fold_version, models="a@1 b@1")


@pytest.mark.parametrize(
    ("stage", "held", "installed", "expected"),
    [
        ("enrichment", ENRICHED, "a@1 b@1", False),
        ("enrichment", ENRICHED, "a@2 b@1", True),
        ("enrichment", ENRICHED, None, False),
        ("enrichment", Checkpoint("enrichment", 0, fold_version=99, models="a"), "a", True),
        ("projection", Checkpoint("projection", 0, fold_version=FOLD_VERSION), "a@1 b@1", False),
        ("projection", Checkpoint("projection", 0, fold_version=99), None, True),
    ],
)
def test_a_graph_of_other_rules_or_models_is_stale(
    stage: str, held: Checkpoint, installed: str | None, expected: bool
) -> None:
    assert is_stale(stage, [held], installed) is expected


@pytest.mark.parametrize(
    ("reached", "tails", "expected"),
    [
        ({0: Position(5, 0), 1: Position(6, 0)}, [Position(5, 0), Position(6, 0)], True),
        ({0: Position(3, 0), 1: Position(6, 0)}, [Position(3, 0), Position(6, 0)], True),
        ({0: Position(2, 0), 1: Position(6, 0)}, [Position(3, 0), Position(6, 0)], False),
        ({1: Position(6, 0)}, [START, Position(6, 0)], True),
        ({}, [Position(5, 0)], False),
        # nothing stands at or behind the position: it was never given out
        ({0: Position(4, 0)}, [Position(4, 0)], False),
        ({}, [], False),
    ],
)
def test_a_position_has_passed_when_all_before_it_is_projected(
    reached: dict[int, Position], tails: list[Position], expected: bool
) -> None:
    assert have_passed(reached, tails, Position(5, 0)) is expected
