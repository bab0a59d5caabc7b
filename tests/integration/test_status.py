"""`recollect status` where it speaks of stages that did not start and of other models."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from consolidation.payloads import PassDecided
from enrichment import FOLD_VERSION
from enrichment.payloads import REQUESTED_EVENT
from pipelines.cli.graph import picture
from pipelines.ledger.command_notes import Rebuilding
from pipelines.local.servers import ValkeyServer
from pipelines.models.installed import installed_models
from pipelines.operations import status as operation
from pipelines.operations.status import status
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from tests.decision_factories import consolidated, pass_ended, requested, system
from tests.factories import event
from tests.fakes.proxy import CuttingProxy
from tests.integration.consolidation_support import Consolidated
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration


@pytest.fixture
def stack(redis_url: str, neo4j_url: str) -> Iterator[Stack]:
    found = Stack(redis_url, neo4j_url)
    yield found
    found.close()


def printed(document: dict[str, Any]) -> str:
    console = Console(width=300)
    with console.capture() as captured:
        console.print(picture(document))
    return captured.get()


def derived_with(stack: Stack, models: str) -> dict[str, Any]:
    """Status when the graph was derived with these models."""
    stack.graph.ensure_checkpoints("enrichment", stack.ledger.partitions, FOLD_VERSION, models)
    return status(stack.services)


def test_a_stage_that_nobody_started_is_told_apart_from_one_that_lags(stack: Stack) -> None:
    stack.append(event())
    document = status(stack.services)
    stages = document["stages"]
    assert {name: stage["started"] for name, stage in stages.items()} == {
        name: name == "projection" for name in STAGES
    }
    assert stages["enrichment"]["lag_entries"] == 1  # true: nothing of the ledger is enriched
    assert stages["enrichment"]["models"]["graph"] is None
    assert document["ok"] is True
    assert "never started: recollect worker enrichment" in printed(document)


def test_a_redis_that_may_lose_events_is_told(
    start_valkey: Callable[..., ValkeyServer], neo4j_url: str
) -> None:
    server = start_valkey()
    stack = Stack(server.url, neo4j_url)
    assert status(stack.services)["ledger"]["at_risk"] is None
    stack.services.redis.config_set("appendonly", "no")
    document = status(stack.services)
    stack.close()
    assert (document["ok"], "append-only" in document["ledger"]["at_risk"]) == (False, True)
    assert "events may get lost: Redis keeps no append-only file" in printed(document)


def status_with(redis_url: str, graph_port: int) -> dict[str, Any]:
    """Status by a process that has not asked the graph before."""
    neo4j_url = f"bolt://127.0.0.1:{graph_port}"
    with Services(Settings(redis_url=redis_url, neo4j_url=neo4j_url)) as services:
        return status(services)


def test_a_graph_that_takes_its_time_for_a_first_answer_is_waited_for(
    redis_url: str, neo4j_url: str
) -> None:
    with CuttingProxy(urlsplit(neo4j_url).port or 0, first_reply_after_s=3.0) as slow:
        document = status_with(redis_url, slow.port)
    assert (document["errors"], document["ok"]) == ([], True)


def test_a_graph_that_says_nothing_is_told_to_be_away(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "PATIENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        document = status_with(redis_url, silent.getsockname()[1])
    (error,) = document["errors"]
    assert (document["ok"], error["kind"], error["retryable"]) == (False, "GraphUnavailable", True)
    assert "does not answer within 0.5 s" in error["message"]


def test_a_rebuild_that_runs_is_told_with_how_far_it_is(stack: Stack) -> None:
    now_s = time.time()
    stack.services.rebuilds.tell(
        Rebuilding("green", "enrichment of green", 1_500, 6_000, now_s, now_s)
    )
    document = status(stack.services)
    assert [(one["target"], one["done"]) for one in document["rebuilds"]] == [("green", 1_500)]
    assert "green is rebuilt enrichment of green: 1,500 of 6,000 since" in printed(document)
    assert document["ok"], "it is nothing that needs attention"


def test_the_last_pass_of_each_tenant_is_told_and_who_waits(stack: Stack) -> None:
    live = Consolidated(stack)
    assert status(stack.services)["passes"] == []
    assert "last pass" not in printed(status(stack.services))
    cut_short = PassDecided(
        run_id="run", started_at_ms=1, ended_at_ms=1_000, complete=False
    ).payload()
    live.take_in(
        requested(1),
        pass_ended(2, [1]),
        consolidated(3, cut_short, tenant="acme"),
        system(4, REQUESTED_EVENT, {"reason": "now"}, tenant="acme"),
        system(5, REQUESTED_EVENT, {"reason": "now"}, tenant="beta"),
    )
    never = {"ended_at": None, "complete": None, "communities_at": None}
    ended = {"ended_at": "1970-01-01T00:00:01.000Z", "complete": False, "communities_at": None}
    document = status(stack.services)
    assert document["passes"] == [
        {"tenant": "beta", **never, "requests_waiting": 1},
        {"tenant": "acme", **ended, "requests_waiting": 1},
        {
            "tenant": "default",
            "ended_at": "1970-01-01T00:00:00.002Z",
            "complete": True,
            "communities_at": None,
            "requests_waiting": 0,
        },
    ]
    shown = printed(document)
    assert ("cut short" in shown, "1 waiting" in shown, "never" in shown) == (True, True, True)


def test_a_graph_of_the_installed_models_needs_no_rebuild(stack: Stack) -> None:
    installed = installed_models(stack.services.settings)
    assert installed is not None
    document = derived_with(stack, installed)
    assert document["stages"]["enrichment"]["models"] == {
        "graph": installed,
        "installed": installed,
    }
    assert document["rebuild_needed"] is False
    assert "derived with" not in printed(document)


def test_a_graph_of_other_models_needs_a_rebuild_and_both_are_named(stack: Stack) -> None:
    installed = installed_models(stack.services.settings)
    document = derived_with(stack, "other@1 model@2")
    assert document["stages"]["enrichment"]["models"] == {
        "graph": "other@1 model@2",
        "installed": installed,
    }
    assert (document["rebuild_needed"], document["ok"]) == (True, False)
    assert "rebuild needed" in printed(document)
    assert f"derived with other@1 model@2; installed: {installed}" in printed(document)
