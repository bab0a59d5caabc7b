"""Adapters with the real frameworks, and one agent that is the same memory by five doors."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pipelines.local.servers import Neo4jServer, ValkeyServer
from recollect import Memory
from recollect.answers import Answer
from recollect.models import Node
from tests.five_ways import mcp, otlp, python_client
from tests.five_ways.story import AGENT, QUESTIONS, SESSION, USER, Door
from tests.integration.api_support import ADMIN_KEY, Api, running_api
from tests.integration.workers import OF_CLIENTS, PATIENCE_S, Workers

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "adapters" / "bin" / "python"
DOORS: Final = ("python_client", "mcp", "langgraph", "openai_agents", "otlp")
OF_FRAMEWORKS: Final = ("langgraph", "openai_agents")
MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(:\d\d(\.\d+)?Z?)?|\d{4}-\d\d-\d\d", re.ASCII
)
SOURCE: Final = re.compile(r" ?\[(e\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\]")
EXACT: Final = {"Which tools failed?": ["refund_order"], "How many tools were called?": 3}
OUTCOMES: Final = ("result", "failure")

if not PYTHON.exists():
    pytest.skip("the frameworks are installed by `make test-adapters`", allow_module_level=True)


@pytest.fixture(scope="module")
def api(workers: Workers, valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    with running_api(valkey.url, neo4j.url, **OF_CLIENTS) as running:
        yield running


def with_frameworks(api: Api, *arguments: str, tenant: str = "") -> str:
    """What a process in the environment of the frameworks prints."""
    told = {"URL": api.url, "KEY": ADMIN_KEY, "TENANT": tenant}
    environment = {f"RECOLLECT_TEST_{name}": value for name, value in told.items()}
    path = os.pathsep.join((str(ROOT), str(ROOT / "clients/python/src")))
    done = subprocess.run(
        [str(PYTHON), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_adapters_work_with_the_real_frameworks(api: Api, workers: Workers) -> None:
    folder = "tests/adapters"
    options = ("-c", f"{folder}/pytest.ini", "--rootdir", folder, "--confcutdir", folder)
    with workers.at_work():
        printed = with_frameworks(api, "-m", "pytest", "-q", *options, folder)
    assert re.search(r"\d+ passed", printed)


# -- the same agent, five ways ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def memories(api: Api, workers: Workers) -> Iterator[Mapping[str, Memory]]:
    """One for each door, each with a tenant of its own to which the story was told."""
    doors = {name: Door(api.url, ADMIN_KEY, name.replace("_", "-")) for name in DOORS}
    for name in OF_FRAMEWORKS:
        with_frameworks(api, "-m", f"tests.five_ways.{name}", tenant=doors[name].tenant)
    python_client.run(doors["python_client"])
    asyncio.run(mcp.run(doors["mcp"]))
    otlp.run(doors["otlp"])
    workers.fold()
    opened = {
        name: Memory(door.url, door.key, tenant=door.tenant, agent=AGENT, user=USER)
        for name, door in doors.items()
    }
    yield opened
    for memory in opened.values():
        memory.close()


def session_of(memory: Memory) -> tuple[Answer, list[str]]:
    """What is known of the session, and its events in order."""
    context = memory.context(SESSION, max_nodes=200, timeout_s=PATIENCE_S)
    order = sorted(context.nodes, key=lambda node: (node.provenance.occurred_at, node.node_id))
    return context, [node.node_id for node in order]


def told(node: Node) -> tuple[Any, ...]:
    """What an event is, whichever door it came by."""
    names = ("event_type", "kind", "speaker", "tool_name", "summary", "importance_score")
    attributes = node.attributes
    status = attributes["status"] if attributes["kind"] in OUTCOMES else None
    return (*(attributes[name] for name in names), status, node.provenance.agent_id)


def without_times(text: Any) -> Any:
    """A text without moments and the ids of its sources."""
    return MOMENT.sub("-", SOURCE.sub("", text)) if isinstance(text, str) else text


def test_every_door_tells_the_same_events_with_the_same_causes(
    memories: Mapping[str, Memory],
) -> None:
    events, causes, texts = {}, {}, {}
    for name, memory in memories.items():
        context, order = session_of(memory)
        by_id = {node.node_id: node for node in context.nodes}
        events[name] = [told(by_id[event_id]) for event_id in order]
        causes[name] = {
            (order.index(edge.source), order.index(edge.target))
            for edge in context.edges
            if edge.type == "CAUSED_BY"
        }
        texts[name] = without_times(context.text.partition("Sources:")[0])
    assert [row[0] for row in events["python_client"]] == [
        *("message.user", "tool.call", "tool.result", "tool.call", "tool.result"),
        *("message.assistant", "message.user", "tool.call", "tool.result", "message.assistant"),
    ]
    chain = {(effect, effect - 1) for effect in range(1, 10)}
    assert causes["python_client"] >= chain
    for name in DOORS:
        assert (name, events[name]) == (name, events["python_client"])
        assert (name, causes[name]) == (name, causes["python_client"])
        assert (name, texts[name]) == (name, texts["python_client"])


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_door_answers_the_same(memories: Mapping[str, Memory], question: str) -> None:
    answers = {}
    for name, memory in memories.items():
        _, order = session_of(memory)
        place = {event_id: number for number, event_id in enumerate(order)}
        answer = memory.ask(question, session=SESSION, timeout_s=PATIENCE_S)
        assert answer.value is not None
        why = memory.why(question, session=SESSION, timeout_s=PATIENCE_S)
        answers[name] = (
            answer.value.type,
            without_times(answer.value.value),
            [place[event_id] for event_id in answer.value.evidence],
            (answer.is_answered, answer.count),
            sorted(place[node.node_id] for node in answer.nodes if node.node_id in place),
            without_times(why.text),
        )
    assert answers == dict.fromkeys(DOORS, answers["python_client"])
    assert answers["python_client"][4] == list(range(10))
    if question in EXACT:
        assert answers["python_client"][1] == EXACT[question]
