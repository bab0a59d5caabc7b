"""Decisions on a real Neo4j are what they are in memory; how they mean, see `tests/stages`."""

from __future__ import annotations

import pytest

from tests.decision_factories import episode_id, forgotten, recalled, system
from tests.fact_factories import feedback_payload
from tests.factories import event_id
from tests.graph_dump import dump
from tests.integration.consolidation_support import Consolidated
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS, MemoryStack
from tests.stages.consolidated import ConsolidatedLedger, story

pytestmark = pytest.mark.integration

WHAT_CAME_OF_IT = [
    system(200, "memory.accessed", {"events": {event_id(1): 2, event_id(13): 1}}),
    system(201, "memory.feedback", feedback_payload([event_id(1), event_id(500)], [event_id(13)])),
    recalled(202, [7, 10]),
    forgotten(203, [13], episode_id("session-0")),
    system(204, "memory.accessed", {"events": {event_id(13): 1, event_id(7): 1}}),
]


def test_the_story_is_the_same_on_both_stores_whatever_comes_again(stack: Stack) -> None:
    live = Consolidated(stack)
    for part in (*story(), WHAT_CAME_OF_IT):
        live.take_in(*part, size=3)
    in_memory = ConsolidatedLedger(MemoryStack(ledger=stack.ledger))
    in_memory.fold()
    expected = in_memory.stack.dump()
    assert dump(stack.graph) == expected
    for partition in range(PARTITIONS):
        live.refold(partition, 0, 100)
    assert dump(stack.graph) == expected
    live.empty()
    live.fold()
    assert dump(stack.graph) == expected
