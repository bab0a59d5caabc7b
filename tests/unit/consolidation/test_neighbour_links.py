"""Sessions around one that changed."""

from __future__ import annotations

from consolidation.actions import Failure
from consolidation.links import (
    RareEntity,
    SessionTraits,
    alike_sessions,
    renewed_links,
    sharing_sessions,
    slim,
)
from consolidation.payloads import LinkCandidate, SessionLink
from consolidation.sources import FailedEvent
from tests.factories import START_MS, event_id
from tests.source_factories import mentioned, source_event

SEATS = Failure("book_flight", "error: no seats on <value>", event_id(1))


def failed(session_id: str, said: str, tool: str = "book_flight") -> FailedEvent:
    return FailedEvent(session_id, tool, said)


def traits(session_id: str, *names: str) -> SessionTraits:
    entities = tuple(RareEntity(name, name, 2) for name in names)
    return SessionTraits("default", session_id, START_MS, entities=entities)


def recorded(session_id: str, score: float = 0.5) -> LinkCandidate:
    return LinkCandidate(SessionLink(session_id, "shared_entities", ("x",), score), START_MS)


def test_those_that_share_more_and_rarer_come_first() -> None:
    mentioning = {
        "GV1N64": {"s1", "s2"},
        "HAT136": {"s1", "s2", "s3", "s4"},
        "ORD": {"s1", "s3", "s5"},
    }
    assert sharing_sessions("s1", mentioning) == ["s2", "s3", "s5", "s4"]
    assert sharing_sessions("s1", mentioning, most=1) == ["s2"]


def test_those_that_failed_alike_are_found_by_what_the_tool_said() -> None:
    events = [
        failed("s2", "Error: no seats on HAT136"),
        failed("s3", "Error: payment method not found"),
        failed("s4", "Error: no seats on HAT001", tool="other_tool"),
        failed("s1", "Error: no seats on HAT136"),
        failed("s5", ""),
        failed("s2", "Error: no seats on HAT999"),
        failed("s6", "Error: no seats on HAT123"),
    ]
    assert alike_sessions("s1", [SEATS], events) == ["s2", "s6"]
    assert alike_sessions("s1", [SEATS], events, most=1) == ["s2"]


def test_a_neighbour_is_linked_anew_within_the_circle_and_as_before_without() -> None:
    circle = [traits("s1", "a"), traits("s2", "a"), traits("s3")]
    before = [recorded("s3"), recorded("s9", 0.1)]
    found = renewed_links(circle[1], circle, before)
    assert [link.session_id for link in found] == ["s1", "s9"]


def test_an_event_keeps_what_it_is_connected_by() -> None:
    event = source_event(1, text="long", summary="short", mentions=[mentioned("GV1N64")], after=[2])
    assert slim(event) == event._replace(text="", summary="")
