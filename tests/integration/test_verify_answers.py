"""Verify of a graph that a language model added to: kept answers are read, nobody is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipelines.proof.report import ProofReport
from projections.schema import ENTITY, REFERENCES
from tests.fakes.chat_server import ChatServer, Handler, chat_server, sends
from tests.fakes.chat_server import says as answers
from tests.integration.enrichment_support import Enriched, called, said
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration

PLACE = "the old harbour"
EVENTS = [
    said(1, "Yesterday we walked to the old harbour.", "Ann"),
    said(2, "Did you like the old harbour there?", "Bob"),
    called(3, "find_tickets", {"place": "museum", "ticket": "TCK-4411"}),
    said(4, "It was cold.", "Ann", session_id="session-2"),
]
TOLD = 2
"""Events of which the model says something that the rules do not."""


def knows_the_place(handler: Handler) -> None:
    text = json.loads(handler.chat.asked[-1]["messages"][1]["content"])["text"]
    found = [{"name": PLACE, "type": "location"}] if PLACE in text else []
    answers({"entities": found, "edges": []})(handler)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(knows_the_place) as running:
        yield running


@pytest.fixture
def stack(make_stack: Callable[..., Stack], server: ChatServer) -> Stack:
    return make_stack(
        llm_url=server.url,
        llm_model="tiny",
        llm_tasks=("extraction",),
        llm_max_attempts=1,
        llm_concurrency=1,
    )


@pytest.fixture
def enriched(stack: Stack, server: ChatServer) -> Enriched:
    made = Enriched(stack)
    made.take_in(*EVENTS)
    assert places(stack) == TOLD
    server.does(sends("{}", 500))
    return made


def places(stack: Stack) -> int:
    """Mentions of what only the model knows."""
    (count,) = stack.cypher(
        "MATCH (:Event)-[r:REFERENCES]->(:Entity {canonical_name: $name}) RETURN count(r)",
        name=PLACE,
    )
    return int(count)


def forget_answers(stack: Stack) -> None:
    assert stack.lose("answer")


def verified(stack: Stack, **options: Any) -> ProofReport:
    return stack.verify(**options)


def named(report: ProofReport) -> set[tuple[str, str, str]]:
    return {(one.kind, one.element, one.type) for one in report.differences}


SCOPES: list[dict[str, Any]] = [{}, {"session": "session-1"}]
scoped = pytest.mark.parametrize("scope", SCOPES, ids=["all", "session"])


@scoped
def test_what_was_answered_is_compared_and_nobody_is_asked(
    enriched: Enriched, server: ChatServer, scope: dict[str, Any]
) -> None:
    stack, asked = enriched.stack, len(server.asked)
    report = verified(stack, **scope)
    assert (report.ok, report.unread, report.differences) == (True, 0, [])
    stack.cypher(
        "MATCH (:Event)-[r:REFERENCES]->(:Entity {canonical_name: $name}) SET r.role = 'x'",
        name=PLACE,
    )
    assert ("different", "edge", REFERENCES.type) in named(verified(stack, **scope))
    assert verified(stack, repair=True, **scope).ok
    assert (places(stack), len(server.asked)) == (TOLD, asked)


@scoped
def test_an_event_whose_answer_is_gone_is_unsure_and_no_difference(
    enriched: Enriched, server: ChatServer, scope: dict[str, Any]
) -> None:
    stack, asked = enriched.stack, len(server.asked)
    forget_answers(stack)
    report = verified(stack, **scope)
    assert (report.ok, report.unread, report.differences) == (True, TOLD, [])
    assert len(server.asked) == asked


@scoped
def test_what_the_model_has_no_part_in_is_compared_all_the_same(
    enriched: Enriched, scope: dict[str, Any]
) -> None:
    stack = enriched.stack
    forget_answers(stack)
    stack.cypher("MATCH (e:Event {event_type: 'tool.call.started'}) SET e.keywords = ['x']")
    report = verified(stack, **scope)
    assert [list(one.fields) for one in report.differences] == [["keywords"]]
    assert verified(stack, repair=True, **scope).ok
    assert places(stack) == TOLD


@scoped
def test_a_graph_that_had_to_do_without_an_answer_is_right_when_it_is_there(
    stack: Stack, server: ChatServer, scope: dict[str, Any]
) -> None:
    server.does(answers("I think so."))
    enriched = Enriched(stack)
    enriched.take_in(*EVENTS)
    assert places(stack) == 0
    server.does(knows_the_place)
    enriched.new_stage().derive(list(placed(stack)))
    report = verified(stack, **scope)
    assert (report.ok, report.differences) == (True, [])
    assert places(stack) == 0
    stack.cypher("MATCH (n:Entity {entity_type: 'agent'}) DETACH DELETE n")
    assert ("missing", "node", ENTITY.label) in named(verified(stack))


def placed(stack: Stack) -> Iterator[Any]:
    """The events of the ledger and where it keeps them."""
    for number in range(stack.ledger.partitions):
        for block in stack.blocks(number):
            yield from stack.runner._decode(block.entries)
