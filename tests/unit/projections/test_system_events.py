"""The table of what Recollect itself decides."""

from __future__ import annotations

import pytest

from pipelines.work.stages import STAGES
from projections.events import (
    NAMESPACE,
    SYSTEM_EVENTS,
    event_partition,
    is_system_event,
    parse_event,
)
from projections.identity import partition_of
from tests.factories import NOW_MS, envelope, event

NAMED_IN_THE_MODEL = {
    *("accessed", "feedback", "fact_asserted", "fact_retracted", "entity_corrected", "same_as"),
    *("consolidation_requested", "consolidated", "forgotten", "recalled", "erased"),
}


def test_every_type_lies_in_the_namespace_and_has_an_owner() -> None:
    for event_type, row in SYSTEM_EVENTS.items():
        assert is_system_event(event_type)
        assert row.owner in STAGES
        assert row.meaning


def test_the_types_of_later_stages_are_listed() -> None:
    assert {NAMESPACE + name for name in NAMED_IN_THE_MODEL} <= set(SYSTEM_EVENTS)


def test_producers_may_send_facts_feedback_corrections_and_requests() -> None:
    assert {name for name, row in SYSTEM_EVENTS.items() if row.public} == {
        "memory.feedback",
        "memory.fact_asserted",
        "memory.fact_retracted",
        "memory.entity_corrected",
        "memory.consolidation_requested",
    }


@pytest.mark.parametrize("event_type", ["memories.accessed", "agent.memory.accessed", "a.memory"])
def test_other_namespaces_are_not_ours(event_type: str) -> None:
    assert not is_system_event(event_type)


@pytest.mark.parametrize("event_type", sorted(SYSTEM_EVENTS))
def test_they_are_events_as_all_others_and_live_with_the_tenant(event_type: str) -> None:
    parse_event(envelope(event_type=event_type), now_ms=NOW_MS)
    made = event(1, event_type=event_type, session_id="anything")
    assert event_partition(made, 8) == partition_of("default", "memory", 8)
