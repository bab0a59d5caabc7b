"""Why, over HTTP: the event that is asked about, its causes over sessions, and what helped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from api.main import warm_up
from api.why_schemas import WhyResponse
from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.events import Event
from tests.factories import START_MS, event, event_id
from tests.fakes.stages import consolidating
from tests.integration.api_support import WRITE_KEY, Api, assert_problem, running_api
from tests.integration.consolidation_support import PassingStack
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

pytestmark = pytest.mark.integration

DAY_MS = 86_400_000
CHANGED, REFUSED, LATER, HANDED_OVER, FAILED, SOLVED, ALIKE = 4, 12, 22, 32, 42, 48, 52
ANA, BEN = "ana", "ben"


def told(first: int, session_id: str, day: int, user_id: str | None, *rows: Any) -> list[Event]:
    """The events of a session, one for each (type, tool, payload), a few seconds apart."""
    return [
        event(
            first + place,
            session_id=session_id,
            trace_id=session_id,
            agent_id="helper",
            user_id=user_id,
            occurred_at_ms=START_MS + day * DAY_MS + place * 5_000,
            event_type=event_type,
            tool_name=tool,
            status=_status(event_type, payload),
            payload=payload,
        )
        for place, (event_type, tool, payload) in enumerate(rows)
    ]


def _status(event_type: str, payload: Any) -> str | None:
    if event_type not in ("tool.result", "lamp.switched"):
        return None
    return "failed" if "error" in payload else "completed"


def _said(text: str) -> tuple[str, None, dict[str, str]]:
    return "message.user", None, {"role": "user", "content": text}


def _use(tool: str, arguments: Any, answer: Any) -> Iterator[tuple[str, str, Any]]:
    yield "tool.call", tool, {"arguments": arguments}
    yield "tool.result", tool, answer


STORY: Sequence[Event] = (
    *told(
        *(1, "house", 0, None),
        _said("Please take relay rl-77 out of the greenhouse, use rl-80."),
        *_use("swap_relay", {"out": "rl-77", "into": "rl-80"}, {"result": {"state": "swapped"}}),
        ("lamp.switched", None, {"setting": "greenhouse.relay", "from": "rl-77", "to": "rl-80"}),
    ),
    *told(
        *(10, "ana-1", 2, ANA),
        _said("The greenhouse lamps stay dark tonight."),
        *_use("light_lamps", {"room": "greenhouse"}, {"error": "no answer from relay rl-77"}),
    ),
    *told(
        *(20, "ben-1", 3, BEN),
        _said("The pump of the pond makes a strange noise."),
        *_use("run_pump", {"pond": "pond-12"}, {"error": "pressure too high in pond-12"}),
    ),
    *told(
        *(30, "ana-2", 4, ANA),
        _said("Can you order the seeds SD-4711 for me?"),
        *_use("check_seeds", {"seeds": "SD-4711"}, {"result": {"state": "rare"}}),
        ("agent.handover", None, {"to": "buyer", "reason": "rare seeds SD-4711 need a licence"}),
    ),
    *told(
        *(40, "ana-3", 5, ANA),
        _said("Water the lawn please."),
        *_use("water_lawn", {"lawn": "north-2"}, {"error": "valve closed, a gardener must agree"}),
        *_use("ask_gardener", {"about": "north-2"}, {"result": {"permit": "GP-31", "by": "vera"}}),
        *_use("water_lawn", {"lawn": "north-2", "permit": "GP-31"}, {"result": {"litres": 40}}),
    ),
    *told(
        *(50, "ana-4", 6, ANA),
        _said("And now the south lawn."),
        *_use("water_lawn", {"lawn": "south-9"}, {"error": "valve closed, a gardener must agree"}),
    ),
)


class AllStages(PassingStack):
    """Enriched by models, consolidated by a pass."""

    def prepare(self) -> None:
        self.enriched = Enriched(self.stack)
        self.runner = self.stack.new_runner(consolidating(PARTITIONS))
        self.runner.prepare(PARTITIONS)

    def fold(self, size: int = 500) -> None:
        self.stack.fold(size)
        self.enriched.fold(size)
        self.stack.fold(size, self.runner)


@pytest.fixture(scope="module")
def api(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    """A story, enriched and consolidated."""
    redis_url, neo4j_url = emptied_valkey(valkey), emptied_neo4j(neo4j)
    stack = Stack(redis_url, neo4j_url)
    try:
        stages = AllStages(stack)
        stages.take_in(*STORY)
        stages.run()
        key = {"name": "all", "key": WRITE_KEY, "tenant": "*", "role": "admin"}
        options = {"partitions": PARTITIONS, "id_buckets": 64, "api_keys": (key,)}
        with running_api(redis_url, neo4j_url, **options) as running:
            assert warm_up(running.app.state.services)
            yield running
    finally:
        stack.close()


def asked(query: str, user_id: str | None, **fields: Any) -> dict[str, Any]:
    body = {"query": query, "session_id": "asking", "agent_id": "asker", "timeout_ms": 30_000}
    return body | {"record_access": False} | ({"user_id": user_id} if user_id else {}) | fields


def why(client: httpx.Client, query: str, user_id: str | None, **fields: Any) -> WhyResponse:
    answer = client.post("/v1/query/why", json=asked(query, user_id, **fields))
    assert answer.status_code == 200, answer.text
    return WhyResponse.model_validate_json(answer.text)


def ids(*numbers: int) -> list[str]:
    return [event_id(number) for number in numbers]


def test_a_failure_goes_back_to_a_change_in_another_session(client: httpx.Client) -> None:
    found = why(client, "Why do the greenhouse lamps stay dark?", ANA)
    assert found.answer.head == event_id(REFUSED)
    assert found.meta.seed_nodes == ids(REFUSED)
    tree = {step.node_id: step for step in found.answer.tree}
    linked = tree[event_id(CHANGED)]
    assert (linked.cause_of, linked.mechanism, linked.rule) == (
        event_id(REFUSED),
        "inferred",
        "shared_name",
    )
    assert linked.evidence == ["rl-77"]
    assert 0.6 <= linked.confidence < 1
    assert linked.decided_by is not None
    assert event_id(1) in tree, "who asked for the change"
    assert {node.node_id for node in found.nodes} >= tree.keys()
    steps = {(edge.source, edge.target) for edge in found.edges}
    assert all(
        (step.cause_of, step.node_id) in steps for step in found.answer.tree if step.cause_of
    )


def test_what_happened_is_explained_where_nothing_failed(client: httpx.Client) -> None:
    found = why(client, "For what reason did the order of the seeds SD-4711 change hands?", ANA)
    assert found.answer.head == event_id(33)
    assert "licence" in found.answer.tree[0].line


def test_what_went_wrong_on_a_day_is_a_failure_of_that_day(client: httpx.Client) -> None:
    """Whatever else says the words of the question."""
    for day, failure in ((2, REFUSED), (5, FAILED), (6, ALIKE)):
        at = datetime.fromtimestamp(START_MS / 1_000, UTC) + timedelta(days=day)
        found = why(client, f"What went wrong on {at:%Y-%m-%d}?", ANA)
        assert found.answer.head == event_id(failure), day


def test_what_helped_is_told_with_what_was_different(client: httpx.Client) -> None:
    found = why(client, "Why did the watering of lawn north-2 fail?", ANA)
    assert found.answer.head == event_id(42)
    own = found.answer.helped[0]
    assert own.same_story
    assert [(one.name, one.before, one.after) for one in own.differences] == [
        ("permit", None, "GP-31")
    ]
    assert own.differences[0].source_event_id == event_id(44)
    assert (own.failed_event_ids, own.solved_event_ids) == (ids(41, 42), ids(45, 46))
    assert own.text in found.answer.text
    assert {*own.solved_event_ids, *own.helped_by} <= {node.node_id for node in found.nodes}


def test_what_helped_against_a_similar_failure_is_told_as_such(client: httpx.Client) -> None:
    found = why(client, "Why did the watering of lawn south-9 fail?", ANA)
    assert found.answer.head == event_id(ALIKE)
    (lesson,) = found.answer.helped
    assert (lesson.same_story, lesson.session_id) == (False, "ana-3")


def test_a_model_asks_for_what_helped(client: httpx.Client) -> None:
    arguments = {"problem": "the watering of lawn north-2", "user_id": ANA}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "lessons", "arguments": arguments},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
    }
    answer = client.post("/mcp", json=message, headers=headers)
    told_so = next(line for line in answer.text.splitlines() if "jsonrpc" in line)
    result = json.loads(told_so.removeprefix("data:"))["result"]
    lesson = result["structuredContent"]["lessons"][0]
    assert lesson["solved_event_ids"] == ids(45, 46)
    assert result["content"][0]["text"].startswith(f"- {lesson['text']} [{event_id(41)}")


def test_another_user_is_told_nothing_of_it(client: httpx.Client) -> None:
    found = why(client, "Why did the watering of lawn north-2 fail?", BEN)
    shown = {node.node_id for node in found.nodes}
    of_ana = {one.event_id for one in STORY if one.user_id == ANA}
    assert not shown & of_ana
    assert "GP-31" not in found.model_dump_json()
    assert found.answer.helped == []


def test_the_head_may_be_given(client: httpx.Client) -> None:
    found = why(client, "Why?", ANA, head=event_id(REFUSED))
    assert (found.answer.head, found.answer.doubtful) == (event_id(REFUSED), False)
    assert event_id(CHANGED) in {step.node_id for step in found.answer.tree}
    hidden = why(client, "Why?", BEN, head=event_id(REFUSED))
    assert (hidden.answer.head, hidden.answer.tree, hidden.nodes) == (None, [], [])


def test_bounds_are_kept_and_told(client: httpx.Client) -> None:
    few = why(client, "Why do the greenhouse lamps stay dark?", ANA, max_nodes=2)
    assert len(few.answer.tree) == 2
    assert few.meta.truncated_by == ["max_nodes"]
    flat = why(client, "Why do the greenhouse lamps stay dark?", ANA, max_depth=1)
    assert "max_depth" in flat.meta.truncated_by


def test_the_tree_comes_as_text(client: httpx.Client) -> None:
    accept = {"accept": "text/markdown"}
    body = asked("Why do the greenhouse lamps stay dark?", ANA)
    answer = client.post("/v1/query/why", json=body, headers=accept)
    assert answer.headers["content-type"].startswith("text/markdown")
    lines = answer.text.splitlines()
    assert event_id(REFUSED) in lines[0]
    assert any("because" in line and "both name rl-77" in line for line in lines)


def test_a_memory_without_anything_says_so(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/query/why", json=asked("Why did it fail?", None), headers={"x-tenant": "empty"}
    )
    found = WhyResponse.model_validate_json(answer.text)
    assert (found.answer.head, found.answer.confidence, found.answer.doubtful) == (None, 0, True)
    assert "Nothing is known" in found.answer.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"query": ""}, "query"), ({"max_depth": 0}, "max_depth"), ({"intent": "why"}, "intent")],
)
def test_a_broken_question_names_the_field(
    client: httpx.Client, fields: dict[str, Any], field: str
) -> None:
    answer = client.post("/v1/query/why", json=asked("Why?", ANA) | fields)
    document = assert_problem(answer, 422, "invalid-input")
    assert [error["field"] for error in document["errors"]] == [field]
