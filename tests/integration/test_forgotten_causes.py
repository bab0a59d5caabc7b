"""What enrichment finds, on a real Neo4j, when events were forgotten, or came back.

More of it in `tests/stages`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelines.ledger.registry import Target
from pipelines.operations.restore import Selection, recall_forgotten
from pipelines.work.folds import StageFold
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, Stage
from projections.events import Event
from tests.decision_factories import forgotten
from tests.factories import event
from tests.graph_dump import dump, rounded
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


def test_a_dead_letter_leaves_what_it_would_have_left_though_its_event_was_forgotten(
    thinned: Thinned,
) -> None:
    rules = thinned.stage

    def refusing(derived: Any, facts: Any) -> Any:
        if any(one.event.event_id == REPEATED.event_id for one in derived):
            raise ValueError("not yet")
        return rules.fold(derived, facts)

    healthy = thinned.runner
    thinned.runner = thinned.new_runner(stage=replace(rules, fold=refusing))
    thinned.take_in(TOLD, REPEATED, USED, forgotten(900, [3]))
    (entry,) = thinned.stack.ledger.find_many([("default", REPEATED.event_id)]).values()
    assert healthy.refold(entry.partition, [entry]) == []
    assert thinned.stack.letters() == []
    shown = rounded(dump(thinned.stack.graph))
    assert rounded(dump(thinned.anew().stack.graph)) == shown
