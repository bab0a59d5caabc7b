"""What enrichment finds does not depend on when events were forgotten, or came back."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.causality import WINDOW
from pipelines.ledger.registry import Target
from pipelines.operations.restore import Selection, recall_forgotten
from pipelines.work.folds import StageFold, make_fold
from pipelines.work.services import Services
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, Stage
from projections.events import Event
from projections.schema import SIMILAR_TO
from tests.decided import forgotten, system
from tests.factories import event, event_id
from tests.integration.enrichment_support import Enriched, called, returned, said
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration

TOLD = said(1, "My reservation is ZFA04Y.", "Mia")
REPEATED = returned(3, "lookup", {"reservation_id": "ZFA04Y"})
WAITING = event(4, at=4, parent=1)
USED = called(5, "cancel_reservation", {"reservation_id": "ZFA04Y"})


class Thinned(Enriched):
    """All three stages, with real models."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.applying = stack.new_runner(make_fold(CONSOLIDATION, stack.services, stack.target))
        self.applying.prepare(stack.ledger.partitions)

    def take_in(self, *events: Event, size: int = 500) -> None:
        super().take_in(*events, size=size)
        self.stack.fold(size, self.applying)

    def prepare(self, stage: Stage, services: Services, target: Target) -> StageFold:
        return self.stage if stage.name == ENRICHMENT.name else make_fold(stage, services, target)

    def anew(self) -> Thinned:
        """The graph of the whole ledger, folded stage by stage."""
        self.stack.cypher("MATCH (n) DETACH DELETE n")
        for runner in (self.stack.runner, self.runner, self.applying):
            runner.prepare(self.stack.ledger.partitions)
        fresh = Thinned(self.stack)
        self.stack.fold(runner=self.stack.new_runner())
        fresh.fold()
        self.stack.fold(runner=fresh.applying)
        return fresh


def inferred(stack: Stack) -> list[Any]:
    text = (
        "MATCH (a:Event)-[r]->(b:Event) WHERE r.mechanism = 'inferred' "
        "RETURN a.event_id, b.event_id, r.rule"
    )
    return sorted(stack.cypher(text))


@pytest.fixture
def thinned(stack: Stack) -> Thinned:
    return Thinned(stack)


def test_what_is_out_of_reach_stays_so_when_what_lies_between_is_forgotten(
    thinned: Thinned,
) -> None:
    between = range(100, 100 + WINDOW)
    thinned.take_in(TOLD, *(event(n, at=n) for n in between), forgotten(900, between))
    assert thinned.stack.cypher("MATCH (e:Event) RETURN e.event_id") == [TOLD.event_id]
    used = USED._replace(occurred_at_ms=USED.occurred_at_ms + 1_000)
    near = TOLD._replace(event_id=event_id(2), occurred_at_ms=used.occurred_at_ms - 1)
    thinned.take_in(used)
    assert thinned.causes(used) == {}
    thinned.take_in(near)
    live = inferred(thinned.stack)
    assert [row[:2] for row in live] == [[used.event_id, near.event_id]]
    assert inferred(thinned.anew().stack) == live


def test_a_forgotten_cause_is_no_cause_and_one_that_comes_back_is(thinned: Thinned) -> None:
    thinned.take_in(TOLD, REPEATED, WAITING, forgotten(900, [1]))
    thinned.take_in(USED)
    live = inferred(thinned.stack)
    assert TOLD.event_id not in thinned.causes(USED)
    fresh = thinned.anew()
    assert inferred(fresh.stack) == live
    selection = Selection("default", event_ids=(TOLD.event_id,))
    report = recall_forgotten(thinned.stack.services, selection, prepare=fresh.prepare)
    assert (report.recalled, report.failed) == (1, [])
    assert TOLD.event_id in fresh.causes(USED)
    assert thinned.stack.verify().ok


def test_a_pair_that_was_dropped_is_not_made_again(thinned: Thinned) -> None:
    alike = [said(n, "The gateway timed out again.", "Mia") for n in (1, 2, 3)]
    pairs = [[event_id(1), event_id(2)]]
    thinned.take_in(*alike)
    dropped = system(900, "memory.forgotten", {"kind": "similar", "pairs": pairs})
    thinned.take_in(dropped, forgotten(901, [1]))
    selection = Selection("default", event_ids=(event_id(1),))
    report = recall_forgotten(thinned.stack.services, selection, prepare=thinned.prepare)
    assert report.failed == []
    text = f"MATCH (a)-[:{SIMILAR_TO.type}]->(b) RETURN a.event_id, b.event_id"
    made = sorted(map(tuple, thinned.stack.cypher(text)))
    assert made == [(event_id(1), event_id(3)), (event_id(2), event_id(3))]
