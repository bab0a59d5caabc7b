"""Stages at work for tests, which change a part of them with `dataclasses.replace`."""

from __future__ import annotations

from pipelines.work.folds import StageFold, gather_neighbours
from pipelines.work.poison import PoisonPolicy
from pipelines.work.stages import PROJECTION
from projections import structural

PROJECTING = StageFold(PROJECTION, gather_neighbours, structural.project)
"""Stage 1, which needs no services."""

QUICK = PoisonPolicy(wait_s=0.001, held_wait_s=0.05, patience_s=5.0)
"""The usual limits, without the waits."""
