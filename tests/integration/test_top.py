"""`recollect load` and `recollect top` from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app as cli
from pipelines.local.processes import free_port
from pipelines.observe import metrics
from pipelines.operations import load_generator
from pipelines.operations.api import Place, RunningApi
from pipelines.operations.load_generator import Load, Outcome
from pipelines.operations.rates import look, rates
from projections.errors import OperationFailed
from projections.events import Event
from projections.identity import Position
from tests.factories import event
from tests.integration.api_support import ADMIN_KEY, READ_KEY, Api
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
SHORT = Load(rate=40, questions=2, for_s=2, agents=4, users=3, tenant="load", patience_s=0)


def load(api: Api, key: str, wanted: Load) -> Outcome:
    return load_generator.run(Place(api.url, key), wanted, lambda done, total, what: None)


def logged(stack: Stack) -> list[Event]:
    entries = [
        entry
        for partition in range(stack.ledger.partitions)
        for entry in stack.ledger.read(partition, Position(0, 0), 1_000)
    ]
    events = [entry.event() for entry in entries]
    return [event for event in events if not event.event_type.startswith("memory.")]


def test_agents_log_for_their_users_and_questions_are_answered(
    stack: Stack, stack_api: Api
) -> None:
    outcome = load(stack_api, ADMIN_KEY, SHORT)
    assert outcome.errors == {}
    assert (outcome.events.asked, outcome.events.failed) == (80, 0)
    assert (outcome.questions.asked, outcome.questions.failed) == (4, 0)
    assert 0 < outcome.events.p50 <= outcome.events.p95 <= outcome.events.p99
    events = logged(stack)
    assert len(events) == 81  # and the first, which finds out whether anybody answers
    assert {event.tenant for event in events} == {"load"}
    by_agents = [event for event in events if event.session_id != "load"]
    assert len({event.session_id for event in by_agents}) == outcome.sessions
    assert len({event.user_id for event in by_agents}) == 3
    calls = {event.event_id: event for event in events if event.event_type == "tool.call"}
    results = [event for event in events if event.event_type == "tool.result"]
    assert results
    assert all(calls[str(one.parent_event_id)].tool_name == one.tool_name for one in results)
    assert "projection" in outcome.behind
    running = RunningApi(stack_api.url, ADMIN_KEY)
    former = ("projection", "read from before")
    metrics.LAG_ENTRIES.labels(*former).set(0)
    try:
        wait_until(
            lambda: load_generator.behind_of(running)["projection"] >= 81,
            "the API has seen all that came",
        )
    finally:
        metrics.LAG_ENTRIES.remove(*former)
    assert outcome.caught_up_s["projection"] is None, "nobody folds here, and nobody waited"


def test_what_is_refused_is_counted_by_what_it_is(stack_api: Api) -> None:
    with pytest.raises(OperationFailed, match="role write"):
        load(stack_api, READ_KEY, SHORT._replace(tenant="acme"))


def test_it_is_told_where_nobody_answers_and_where_the_client_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = CliRunner().invoke(cli, ["load", "--api", f"http://127.0.0.1:{free_port()}"])
    assert nobody.exit_code == 1, nobody.output
    assert "127.0.0.1" in nobody.stderr
    monkeypatch.setattr(load_generator, "CLIENT", "a_client_that_nobody_installed")
    missing = CliRunner().invoke(cli, ["load", "--api", "http://127.0.0.1:1"])
    assert missing.exit_code == 1
    assert "pip install recollect-client" in missing.stderr


def test_rates_are_those_of_what_was_done_between_two_looks(stack: Stack, stack_api: Api) -> None:
    asked = RunningApi(stack_api.url, None)
    before = look(stack.services, asked)
    stack.append(*(event(number, tenant="acme") for number in range(1, 9)))
    stack.fold()
    with stack_api.client(READ_KEY) as client:
        body: dict[str, Any] = {"query": "what was said?", "session_id": "x", "agent_id": "a"}
        body |= {"timeout_ms": 30_000, "record_access": False}
        for _ in range(3):
            answer = client.post("/v1/query/subgraph", json=body)
            assert answer.status_code == 200, answer.text
    told = rates(before, look(stack.services, asked))
    second = told["interval_s"]
    assert told["appended_per_s"] * second == pytest.approx(8, abs=0.1)
    assert told["stages"]["projection"]["folded_per_s"] * second == pytest.approx(8, abs=0.1)
    assert told["api"]["queries_per_s"] * second == pytest.approx(3, abs=0.1)
    assert told["api"]["query_ms"]["p50"] > 0
    assert told["memory"]["redis_bytes"] > 0


def test_one_interval_is_printed_for_people_and_for_machines(stack: Stack, stack_api: Api) -> None:
    settings = stack.services.settings
    where = ["--redis", settings.redis_url, "--neo4j", settings.neo4j_url]
    once = ["top", "--once", "--interval", "0.2", *where]

    def run(*more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.cli.main", *once, *more],
            capture_output=True,
            check=True,
            text=True,
            env={
                **os.environ,
                "RECOLLECT_PARTITIONS": str(PARTITIONS),
                "RECOLLECT_ID_BUCKETS": "64",
            },
        )
        return done.stdout

    document = orjson.loads(run("--api", stack_api.url, "--json"))
    assert document["target"] == "blue"
    assert document["api"]["queries_per_s"] == 0
    shown = run("--api", f"http://127.0.0.1:{free_port()}")
    assert "no API at http://127.0.0.1" in shown
    assert "projection" in shown
