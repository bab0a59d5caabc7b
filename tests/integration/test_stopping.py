"""A worker of the enrichment that is told to end while it waits for a language model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.ledger.entries import Block
from pipelines.operations.dead_letters import list_
from pipelines.work.live import LiveRunner
from projections.errors import Stopped
from projections.events import Event
from tests.fakes.chat_server import ChatServer, Handler, chat_server, says
from tests.integration.enrichment_support import Enriched, said
from tests.integration.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LONG_S = 120.0
"""For an answer, and for blocks in hand: who waits for either is seen."""
SOON_S = 45.0
ANSWER = {"entities": [{"name": "the old harbour", "type": "location"}], "edges": []}


def thinks(handler: Handler) -> None:
    """Answers when the test is over."""
    handler.chat.over.wait(2 * LONG_S)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(thinks) as running:
        yield running


@pytest.fixture
def stack(make_stack: Callable[..., Stack], server: ChatServer) -> Stack:
    """A projected ledger whose settings name the server."""
    made = make_stack(
        llm_url=server.url, llm_model="tiny", llm_tasks=("extraction",), llm_timeout_s=LONG_S
    )
    made.append(*spoken())
    made.fold()
    return made


def spoken() -> list[Event]:
    return [
        said(n, f"Walk number {n} took us to the old harbour.", session_id=f"session-{n}")
        for n in range(1, 7)
    ]


@pytest.fixture
def worker(stack: Stack, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = stack.services.settings
    names = (
        "redis_url",
        "neo4j_url",
        "partitions",
        "id_buckets",
        "derivations_url",
        "llm_url",
        "llm_model",
    )
    environment = {f"RECOLLECT_{name.upper()}": str(getattr(settings, name)) for name in names}
    process = subprocess.Popen(
        [*(sys.executable, "-m", "pipelines.cli.main", "worker"), "enrichment", "--target", "blue"],
        stderr=subprocess.DEVNULL,
        env={
            **{name: value for name, value in os.environ.items() if "RECOLLECT_" not in name},
            **environment,
            "RECOLLECT_LLM_TASKS": '["extraction"]',
            "RECOLLECT_LLM_TIMEOUT_S": str(LONG_S),
            "RECOLLECT_STOP_TIMEOUT_S": str(LONG_S),
            "RECOLLECT_DATA_DIR": str(tmp_path),
        },
    )
    yield process
    process.kill()
    process.wait()


def enriched_events(stack: Stack) -> int:
    (count,) = stack.cypher("MATCH (e:Event) WHERE e.text IS NOT NULL RETURN count(e)")
    return int(count)


def test_it_ends_at_once_and_the_next_one_goes_on_where_it_was(
    stack: Stack, server: ChatServer, worker: subprocess.Popen[bytes]
) -> None:
    wait_until(lambda: server.asked, "the worker asks", LONG_S)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SOON_S) == 0
    assert stack.services.redis.keys("*lease*") == [], "nobody waits for the next to take over"
    assert enriched_events(stack) == 0
    assert {one.seq for one in stack.graph.checkpoints("enrichment")} == {0}

    server.does(says(ANSWER))
    Enriched(stack).fold()
    assert enriched_events(stack) == len(spoken())
    assert list_(stack.services).dead_letters == []
    assert stack.cypher(
        "MATCH (n:Entity {canonical_name: 'the old harbour'}) RETURN COUNT { (n)<--(:Event) }"
    ) == [len(spoken())]


def test_a_block_that_waits_for_an_answer_is_not_applied(stack: Stack, server: ChatServer) -> None:
    enriched = Enriched(stack)
    runner = LiveRunner(
        enriched.stage,
        stack.graph,
        stack.ledger,
        target=stack.target.name,
        stop=threading.Event(),
    )
    blocks = [
        Block(partition, tuple(entries))
        for partition in range(stack.ledger.partitions)
        if (entries := stack.ledger.read(partition, runner.checkpoint(partition).position, 10))
    ]
    with ThreadPoolExecutor(1) as applying:
        outcomes = applying.submit(runner.apply_together, blocks)
        wait_until(lambda: server.asked, "the model is asked")
        runner.interrupt()
        errors = outcomes.result(SOON_S)
    assert {type(error) for error in errors.values()} == {Stopped}
    assert enriched_events(stack) == 0
    assert list_(stack.services).dead_letters == []
