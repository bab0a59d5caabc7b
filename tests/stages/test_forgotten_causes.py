"""What enrichment finds does not depend on when events were forgotten, or came back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enrichment.causality import WINDOW
from enrichment.names import canonical_name, entity_id
from enrichment.similarity import CAP
from pipelines.operations.dead_letters import retry
from pipelines.work.recalled import fold_again
from pipelines.work.services import make_fold
from pipelines.work.stages import CONSOLIDATION
from projections.events import Event
from projections.schema import CAUSED_BY, ENTITY, FORGOTTEN, INFERRED, SIMILAR_TO
from tests.decision_factories import forgotten, recalled, system
from tests.factories import event, event_id
from tests.memory_stack import MemoryStack
from tests.stages.enriched import EnrichedLedger, called, returned, said

TOLD = said(1, "My reservation is ZFA04Y.", "Mia")
REPEATED = returned(3, "lookup", {"reservation_id": "ZFA04Y"})
WAITING = event(4, at=4, parent=1)
USED = called(5, "cancel_reservation", {"reservation_id": "ZFA04Y"})


class Thinned(EnrichedLedger[MemoryStack]):
    """All three stages, with real models."""

    def __init__(self, stack: MemoryStack) -> None:
        super().__init__(stack)
        self.applying = stack.new_runner(make_fold(CONSOLIDATION, stack.services, stack.target))
        self.applying.prepare(stack.ledger.partitions)

    def take_in(self, *events: Event, size: int = 500) -> None:
        super().take_in(*events, size=size)
        self.stack.fold(size, self.applying)

    def bring_back(self, number: int, *events: int) -> None:
        """What was forgotten is recalled, and folded again through the first two stages."""
        self.take_in(recalled(number, events))
        keys = [("default", event_id(one)) for one in events]
        _, failed = fold_again(self.stack.ledger, [self.stack.runner, self.runner], keys)
        assert failed == []

    def anew(self) -> Thinned:
        """The graph of the whole ledger, folded stage by stage."""
        fresh = Thinned(self.stack.again())
        fresh.stack.fold()
        fresh.fold()
        fresh.stack.fold(runner=fresh.applying)
        return fresh

    def inferred(self) -> list[Any]:
        """Effect, cause and rule of each inferred cause."""
        edges = self.stack.edges(CAUSED_BY.type, "rule", "mechanism")
        return [edge[:3] for edge in edges if edge[3] == INFERRED]


@pytest.fixture
def thinned() -> Thinned:
    return Thinned(MemoryStack())


def test_what_is_out_of_reach_stays_so_when_what_lies_between_is_forgotten(
    thinned: Thinned,
) -> None:
    between = range(100, 100 + WINDOW)
    thinned.take_in(TOLD, *(event(n, at=n) for n in between), forgotten(900, between))
    assert thinned.stack.event_ids() == [TOLD.event_id]
    used = USED._replace(occurred_at_ms=USED.occurred_at_ms + 1_000)
    near = TOLD._replace(event_id=event_id(2), occurred_at_ms=used.occurred_at_ms - 1)
    thinned.take_in(used)
    assert thinned.causes(used) == {}
    thinned.take_in(near)
    live = thinned.inferred()
    assert [row[:2] for row in live] == [[used.event_id, near.event_id]]
    assert thinned.anew().inferred() == live


def test_a_forgotten_cause_is_no_cause_and_one_that_comes_back_is(thinned: Thinned) -> None:
    thinned.take_in(TOLD, REPEATED, WAITING, forgotten(900, [1]))
    thinned.take_in(USED)
    live = thinned.inferred()
    assert TOLD.event_id not in thinned.causes(USED)
    assert thinned.anew().inferred() == live
    thinned.bring_back(902, 1)
    assert TOLD.event_id in thinned.causes(USED)


def test_a_pair_that_was_dropped_is_not_made_again(thinned: Thinned) -> None:
    alike = [said(n, "The gateway timed out again.", "Mia") for n in (1, 2, 3)]
    pairs = [[event_id(1), event_id(2)]]
    thinned.take_in(*alike)
    dropped = system(900, "memory.forgotten", {"kind": "similar", "pairs": pairs})
    thinned.take_in(dropped, forgotten(901, [1]))
    thinned.bring_back(902, 1)
    made = thinned.stack.edges(SIMILAR_TO.type)
    assert made == [[event_id(1), event_id(3)], [event_id(2), event_id(3)]]


def test_what_a_worker_knows_of_the_forgotten_is_not_joined_to_what_comes(
    thinned: Thinned,
) -> None:
    alike = [said(n, "The gateway timed out again.", "Mia") for n in (1, 2, 3)]
    child = said(4, "Why?", "Ann", parent=1)  # so that a placeholder stays
    thinned.take_in(*alike[:2], child, forgotten(900, [1]))
    thinned.take_in(alike[2])
    assert thinned.stack.edges(SIMILAR_TO.type) == [[event_id(2), event_id(3)]]


def test_what_is_forgotten_keeps_its_place_among_the_nearest(thinned: Thinned) -> None:
    """The latest of equals come first; nobody takes the place of one that left."""
    alike = [said(n, "The gateway timed out again.", "Mia", at=n) for n in range(1, CAP + 3)]
    last = alike.pop()
    thinned.take_in(*alike, forgotten(900, [CAP + 1]))
    thinned.take_in(last)

    def before_last() -> list[str]:
        return [
            one for one, other in thinned.stack.edges(SIMILAR_TO.type) if other == last.event_id
        ]

    assert before_last() == [event_id(n) for n in range(2, CAP + 1)]
    assert thinned.anew().stack.dump() == thinned.stack.dump()
    thinned.bring_back(902, CAP + 1)
    assert before_last() == [event_id(n) for n in range(2, CAP + 2)]


def test_a_dead_letter_leaves_what_it_would_have_left_though_its_event_was_forgotten(
    thinned: Thinned,
) -> None:
    """Entities, causes around it, and what its tombstone tells."""
    rules = thinned.stage

    def refusing(derived: Any, facts: Any) -> Any:
        if any(one.event.event_id == REPEATED.event_id for one in derived):
            raise ValueError("not yet")
        return rules.fold(derived, facts)

    healthy, thinned.runner = (
        thinned.runner,
        thinned.new_runner(stage=replace(rules, fold=refusing)),
    )
    thinned.take_in(TOLD, REPEATED, USED, forgotten(900, [3]))
    assert [letter["stage"] for letter in thinned.stack.letters()] == ["enrichment"]
    thinned.runner = healthy
    assert retry(thinned.stack.services).done == 1
    anew = thinned.anew()
    assert thinned.stack.nodes(FORGOTTEN.label, "importance_score") == anew.stack.nodes(
        FORGOTTEN.label, "importance_score"
    )
    looked_up = entity_id("default", canonical_name("lookup"), "tool")
    assert looked_up in thinned.stack.nodes(ENTITY.label)
    assert thinned.stack.dump() == anew.stack.dump()
