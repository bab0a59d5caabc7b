"""What the rules of sameness leave open is asked, decided once, recorded, and read back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from pipelines.observe import metrics
from pipelines.operations.dead_letters import list_
from pipelines.operations.rebuild import rebuild
from pipelines.work.live import Decisions
from projections.errors import GraphUnavailable
from projections.events import Event
from projections.schema import ENTITY, SAME_AS
from tests.fakes.chat_server import (
    Behaviour,
    ChatServer,
    Handler,
    chat_server,
    hangs,
    nobody_listens,
    says,
    sends,
)
from tests.integration.stack import Stack, ValkeyStack
from tests.memory_stack import Worker
from tests.stages.enriched import EnrichedLedger, embedder, recognizer, said
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

Enriched = EnrichedLedger[Any]

YES = {"same": True, "confidence": 0.9}
NO = {"same": False, "confidence": 0.9}
UNSURE = {"same": True, "confidence": 0.3}


class Case(NamedTuple):
    """Two names that the rules leave open, and the rule that does."""

    one: str
    other: str
    rule: str

    def events(self) -> list[Event]:
        return [said(1, f"We called the {self.one}."), said(2, f"We called the {self.other}.")]


ALIKE = Case("adoption agency", "adoption center", "alike")
OTHER_WORDS = Case("movie theater", "cinema theater", "other_words")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(says(YES)) as running:
        yield running


def encoded_models() -> dict[str, Any]:
    """The real ones, as the caches of a ledger take them."""
    return {"embedder": embedder(), "recognizer": recognizer()}


def language_model(server: ChatServer) -> dict[str, Any]:
    """Settings by which the server is the language model."""
    return {
        "llm_url": server.url,
        "llm_model": "tiny",
        "llm_tasks": ("disambiguation",),
        "llm_max_attempts": 1,
    }


@pytest.fixture
def make(redis_url: str, server: ChatServer) -> Iterator[Callable[..., Enriched]]:
    """Makes ledgers, enriched in memory, whose language model is the server."""
    with ExitStack() as opened:

        def make(**options: Any) -> Enriched:
            settings = language_model(server) | options
            made = ValkeyStack(redis_url, f"memory://{uuid4().hex}", **settings)
            opened.callback(made.close)
            return Enriched(made, encoded_models())

        yield make


@pytest.fixture
def enriched(make: Callable[..., Enriched]) -> Enriched:
    return make()


def fold_live(enriched: Enriched, target: str = "blue") -> None:
    """As live workers of both stages do, until nothing is left, decisions included."""
    stack = enriched.stack
    deciding = enriched.new_runner(decide=Decisions(stack.services, target))
    with Worker(stack):
        for _ in range(2):
            enriched.fold(runner=deciding)


def take_in(enriched: Enriched, *events: Event) -> None:
    enriched.stack.append(*events)
    fold_live(enriched)


def decided(enriched: Enriched) -> list[dict[str, Any]]:
    """Pairs that the ledger holds as the model's decisions."""
    ledger = enriched.stack.ledger
    entries = [e for n in range(ledger.partitions) for block in ledger.scan(n) for e in block]
    pairs = [
        pair
        for entry in entries
        if (body := json.loads(entry.data))["event_type"] == "memory.same_as"
        for pair in body["payload"]["pairs"]
    ]
    return [pair for pair in pairs if pair["method"] == "model"]


def same(enriched: Enriched) -> list[list[str]]:
    """Names of the concepts that the graph has as the same."""
    entities = enriched.stack.nodes(ENTITY.label, "canonical_name", "entity_type")
    names = {
        key: one["canonical_name"]
        for key, one in entities.items()
        if one["entity_type"] == "concept"
    }
    return sorted(
        sorted((names[one], names[other]))
        for one, other, retracted in enriched.stack.edges(SAME_AS.type, "retracted")
        if not retracted and one in names and other in names
    )


def texts(enriched: Enriched) -> int:
    return enriched.texts()


def asked_about(server: ChatServer) -> list[list[str]]:
    questions = [json.loads(body["messages"][1]["content"]) for body in server.asked]
    return [sorted(one["name"] for one in question["entities"]) for question in questions]


@pytest.mark.parametrize("together", [True, False], ids=["one-block", "two-blocks"])
@pytest.mark.parametrize("case", [ALIKE, OTHER_WORDS], ids=lambda case: case.rule)
def test_a_yes_is_recorded_and_applied_when_it_is_read_back(
    enriched: Enriched, server: ChatServer, case: Case, together: bool
) -> None:
    first, second = case.events()
    if together:
        take_in(enriched, first, second)
    else:
        take_in(enriched, first)
        assert server.asked == []
        take_in(enriched, second)
    assert asked_about(server) == [sorted((case.one, case.other))]
    (pair,) = decided(enriched)
    assert (pair["same"], pair["justification"]) == (True, case.rule)
    assert same(enriched) == [sorted((case.one, case.other))]
    before, asked = enriched.stack.dump(), len(server.asked)
    enriched.stack.graph.clear()
    enriched.stack.prepare()
    anew = Enriched(enriched.stack, encoded_models())
    enriched.stack.fold()
    anew.fold()
    assert (enriched.stack.dump(), len(server.asked)) == (before, asked)


def test_a_decision_is_an_entry_and_nothing_until_it_is_read(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.append(*ALIKE.events())
    stack.fold()
    deciding = enriched.new_runner(decide=Decisions(stack.services, "blue"))
    (block,) = (block for n in range(stack.ledger.partitions) for block in stack.blocks(n))
    deciding.apply(block)
    assert (len(decided(enriched)), same(enriched)) == (1, [])


@pytest.mark.parametrize("answer", [NO, UNSURE], ids=["no", "unsure"])
def test_anything_but_a_sure_yes_leaves_them_apart(
    enriched: Enriched, server: ChatServer, answer: dict[str, object]
) -> None:
    server.does(says(answer))
    take_in(enriched, *ALIKE.events())
    assert len(server.asked) == 1
    assert (decided(enriched), same(enriched), texts(enriched)) == ([], [], 2)


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (says("I think so."), "malformed"),
        (sends("{}", 500), "server_error"),
        (hangs, "timeout"),
        (None, "unreachable"),
    ],
    ids=["malformed", "broken", "slow", "away"],
)
def test_without_an_answer_they_stay_apart_and_the_events_are_enriched_all_the_same(
    make: Callable[..., Enriched],
    server: ChatServer,
    behaviour: Behaviour | None,
    outcome: metrics.LlmOutcome,
) -> None:
    where = {"llm_url": nobody_listens()} if behaviour is None else {}
    enriched = make(llm_timeout_s=0.5, **where)
    server.does(behaviour or says(YES))
    counters = (
        metrics.LLM_QUESTIONS.labels(outcome=outcome),
        metrics.DEGRADED.labels(kind="llm"),
    )
    before = [counter._value.get() for counter in counters]
    take_in(enriched, *ALIKE.events())
    assert [counter._value.get() for counter in counters] == [n + 1 for n in before]
    assert (decided(enriched), same(enriched), texts(enriched)) == ([], [], 2)
    assert list_(enriched.stack.services).dead_letters == []


def test_a_stand_by_target_records_nothing(enriched: Enriched) -> None:
    enriched.stack.append(*ALIKE.events())
    before = [tail.seq for tail in enriched.stack.ledger.tails()]
    fold_live(enriched, target="green")
    assert [tail.seq for tail in enriched.stack.ledger.tails()] == before
    assert (same(enriched), texts(enriched)) == ([], 2)


def test_a_ledger_that_is_away_leaves_the_question_open_and_the_events_in_the_graph(
    enriched: Enriched, server: ChatServer
) -> None:
    def away(events: object) -> None:
        raise GraphUnavailable(reason="away")

    enriched.stack.append(*ALIKE.events())
    enriched.stack.fold()
    enriched.fold(runner=enriched.new_runner(decide=away))
    assert len(server.asked) == 1
    assert (decided(enriched), texts(enriched)) == ([], 2)


def test_a_worker_that_ends_while_it_asks_records_nothing(
    enriched: Enriched, server: ChatServer
) -> None:
    def thinks(handler: Handler) -> None:
        handler.chat.over.wait(120)

    server.does(thinks)
    stack = enriched.stack
    stack.append(*ALIKE.events())
    stack.fold()
    runner = enriched.new_runner(decide=Decisions(stack.services, "blue"), stop=threading.Event())
    with ThreadPoolExecutor(1) as folding:
        done = folding.submit(enriched.fold, runner=runner)
        wait_until(lambda: server.asked, "the model is asked")
        runner.interrupt()
        assert done.result(45) is None
    assert (decided(enriched), texts(enriched)) == ([], 2)


def test_a_rebuild_asks_nobody_and_gives_the_same_graph(
    make_stack: Callable[..., Stack], server: ChatServer
) -> None:
    """On a real Neo4j."""
    enriched = EnrichedLedger(make_stack(**language_model(server)), encoded_models())
    take_in(enriched, *ALIKE.events(), said(3, "We called the movie theater."))
    stack = enriched.stack
    before = enriched.folded()
    assert same(enriched) == [sorted((ALIKE.one, ALIKE.other))]
    assert stack.lose("answer")
    questions, tails = len(server.asked), stack.ledger.tails()
    server.does(says(NO))
    stack.cypher("MATCH (n:Entity) DETACH DELETE n")
    report = rebuild(stack.services)
    assert report.ok
    assert report.verified.repaired == 0
    assert (len(server.asked), stack.ledger.tails()) == (questions, tails)
    assert enriched.folded() == before
    assert same(enriched) == [sorted((ALIKE.one, ALIKE.other))]
