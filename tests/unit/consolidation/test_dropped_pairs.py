"""Similar pairs that were dropped are remembered, wherever their second end goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from consolidation.forgetting import MAX_DROPPED, Tombstone
from consolidation.forgetting_payloads import dropped_payloads
from consolidation.stage import Facts, consolidate, derive
from projections.events import Event
from projections.identity import START, Position
from projections.schema import EVENT, FORGOTTEN
from tests.decision_factories import forgotten, recalled, system
from tests.factories import event_id

LAST = 9_000
"""The event whose pairs are dropped."""
ONE = ("default", event_id(LAST))


def dropped(number: int, *pairs: tuple[int, int]) -> Event:
    (payload,) = dropped_payloads((event_id(one), event_id(other)) for one, other in pairs)
    return system(number, "memory.forgotten", payload)


def parted(
    *events: Event,
    present: bool = True,
    shown: Sequence[int] = (),
    tombstones: Mapping[tuple[str, str], Tombstone] | None = None,
) -> dict[str, Any]:
    """What node and tombstone of the event list afterwards."""
    made = consolidate(
        derive([(Position(1, n), one) for n, one in enumerate(events)]),
        Facts(
            came={ONE: START} if present else {},
            parted={ONE: [*map(event_id, shown)]} if shown else {},
            tombstones=tombstones or {},
        ),
    )
    return {
        label: [*op.value]
        for (label, key, name), op in made.decide_nodes.items()
        if (key, name) == (ONE, "parted_from")
    }


def ids(*numbers: int) -> list[str]:
    return [*map(event_id, numbers)]


def test_a_pair_is_remembered_at_its_second_end() -> None:
    made = parted(dropped(9, (3, LAST), (2, 4)), dropped(10, (2, LAST)), shown=[5])
    assert made == {EVENT.label: ids(2, 3, 5)}


def test_what_is_remembered_goes_with_the_event_and_comes_back_with_it() -> None:
    assert parted(forgotten(9, [LAST]), shown=[5]) == {FORGOTTEN.label: ids(5)}
    gone = {ONE: Tombstone(False, Position(0, 0))}
    back = parted(recalled(9, [LAST]), present=False, shown=[5], tombstones=gone)
    assert back == {EVENT.label: ids(5)}


def test_each_keeps_what_it_was_told_however_the_decisions_were_cut_into_batches() -> None:
    both = parted(
        dropped(8, (2, LAST)), forgotten(9, [LAST]), dropped(9, (3, LAST)), recalled(10, [LAST])
    )
    assert both == {FORGOTTEN.label: ids(2, 3), EVENT.label: ids(2, 3)}
    assert parted(recalled(8, [LAST]), dropped(9, (2, LAST)), forgotten(10, [LAST])) == {
        FORGOTTEN.label: ids(2)
    }


def test_of_a_forgotten_event_the_tombstone_remembers() -> None:
    gone = {ONE: Tombstone(False, Position(0, 0))}
    assert parted(dropped(9, (2, LAST)), present=False, tombstones=gone) == {
        FORGOTTEN.label: ids(2)
    }


def test_what_is_nowhere_remembers_nothing() -> None:
    assert parted(dropped(9, (2, LAST)), present=False) == {}
    assert parted(forgotten(9, [LAST])) == {}


@pytest.mark.parametrize("more", [1, 40])
def test_the_latest_are_remembered(more: int) -> None:
    events = [dropped(9, *((n, LAST) for n in range(2, 2 + MAX_DROPPED + more)))]
    assert parted(*events) == {EVENT.label: ids(*range(2 + more, 2 + MAX_DROPPED + more))}
