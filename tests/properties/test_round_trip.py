"""What a ledger exports, another one takes in, and both fold to the same graph.

Equal are all digests that `recollect verify` prints, and beyond them every stored property of every
node and edge, where a position is compared as the event that stands there.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_dump import Dump
from tests.ledger_copies import digests, exported, folded, imported, later_ledger, placeless
from tests.proof_world import populated
from tests.simulation.doubles import Clock
from tests.simulation.steps import draw
from tests.simulation.world import World as SimulatedWorld
from tests.simulation.world import no_luck

UNHEARD_OF = 1
"""Events of `populated` that no import takes: of a type that no stage owns."""


class Source(NamedTuple):
    """A ledger that every label and every edge type comes from, consolidation's too."""

    lines: list[bytes]
    digests: dict[str, str]
    graph: Dump


@pytest.fixture(scope="module")
def source() -> Source:
    world = populated()
    return Source(
        exported(world.ledger),
        digests(world.graph, world.ledger),
        placeless(world.graph, world.ledger),
    )


@settings(max_examples=25)
@given(partitions=st.integers(1, 7), batch=st.integers(1, 40), size=st.integers(1, 60))
def test_an_export_folds_to_the_same_graph_in_another_ledger(
    source: Source, partitions: int, batch: int, size: int
) -> None:
    copy = later_ledger(partitions)
    report = imported(copy, source.lines, batch)
    assert (report.new, report.invalid) == (len(source.lines) - UNHEARD_OF, UNHEARD_OF)
    graph = folded(copy, size)
    assert digests(graph, copy) == source.digests
    assert placeless(graph, copy) == source.graph


@settings(max_examples=25)
@given(cut=st.integers(0, 60))
def test_an_import_that_was_cut_off_is_taken_up_by_the_next(source: Source, cut: int) -> None:
    copy = later_ledger(3)
    imported(copy, source.lines[:cut])
    again = imported(copy, source.lines)
    assert again.new + again.duplicates == len(source.lines) - UNHEARD_OF
    assert exported(copy) == [line for line in source.lines if b"memory.unheard_of" not in line]


def test_another_order_is_another_graph(source: Source) -> None:
    copy = later_ledger(3)
    imported(copy, reversed(source.lines))
    assert digests(folded(copy), copy) != source.digests


@pytest.mark.parametrize("seed", range(1, 16))
def test_so_does_what_became_of_any_history(seed: int) -> None:
    """With late, repeated and lost deliveries, passes, forgetting, recalls and several users."""
    clock = Clock()
    with no_luck(seed, clock):
        world = SimulatedWorld(clock, lambda line: None)
        for step in draw(seed):
            world.carry_out(step)
        world.settle()
        lines = exported(world.ledger)
        copy = later_ledger(world.ledger.partitions)
        assert imported(copy, lines).new == len(lines)
        before = placeless(world.fresh(), world.ledger)
        world.ledger = world.services.ledger = copy
        assert placeless(world.fresh(), copy) == before
