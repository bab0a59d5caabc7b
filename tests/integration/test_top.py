"""`recollect top` beside a running API: what came in, what was folded, what was asked."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import orjson
import pytest

from pipelines.local.processes import free_port
from pipelines.operations.api import RunningApi
from pipelines.operations.rates import look, rates
from tests.factories import event
from tests.integration.api_support import READ_KEY, Api
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS

pytestmark = pytest.mark.integration


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
