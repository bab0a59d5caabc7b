"""`recollect ask`: in this process and through an API that runs, for people and for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from api.main import warm_up
from api.retrieval.narrative import NOTICE, estimated_tokens
from pipelines.cli.main import app
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.api import MARKDOWN, SUBGRAPH, RunningApi
from pipelines.operations.demo import CHANGE, FAILURE, QUESTIONS, ROOT, scenario_path
from pipelines.operations.formats.table import event_items
from pipelines.operations.imports import import_events
from pipelines.operations.sources import Source
from projections.errors import InvalidInput, OperationFailed
from tests.integration.api_support import ADMIN_KEY, Api, running_api
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

pytestmark = pytest.mark.integration

OPTIONS = {"partitions": PARTITIONS, "id_buckets": 64}
WHY, WHAT, _ = QUESTIONS
EVIDENCE = re.compile(r"- \d\d:\d\d:\d\d .+ \[e\d+\]")


@pytest.fixture(scope="module")
def stack(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Stack]:
    """The demonstration, enriched."""
    made = Stack(emptied_valkey(valkey), emptied_neo4j(neo4j))
    source = Source(scenario_path())
    try:
        with source.stream:
            import_events(made.ledger, event_items(source.stream))
        made.fold()
        Enriched(made).fold()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def api(stack: Stack) -> Iterator[Api]:
    settings = stack.services.settings
    with running_api(settings.redis_url, settings.neo4j_url, **OPTIONS) as running:
        # its first question would be answered without what takes long to plan
        assert warm_up(running.app.state.services)
        yield running


def ask(stack: Stack, *arguments: str, code: int = 0) -> str:
    settings = stack.services.settings
    environment = {"RECOLLECT_PARTITIONS": str(PARTITIONS), "RECOLLECT_ID_BUCKETS": "64"}
    services = ["--redis", settings.redis_url, "--neo4j", settings.neo4j_url]
    done = CliRunner(env=environment).invoke(app, ["ask", *arguments, *services])
    assert done.exit_code == code, done.output
    return done.stdout


def test_why_is_answered_by_causes_with_their_sources(stack: Stack) -> None:
    text = ask(stack, WHY.text, "--session", WHY.session_id)
    assert text.startswith(WHY.text)
    assert "why 0." in text
    tree = text[: text.index("what else was found")]
    for word in ("order.charged_twice", "because", "config.changed", "deploy-88"):
        assert word in tree
    assert tree.index(FAILURE) < tree.index(CHANGE) < tree.index(ROOT)


def test_what_is_answered_by_events_with_their_sources(stack: Stack) -> None:
    document: dict[str, Any] = json.loads(
        ask(stack, WHAT.text, "--session", WHAT.session_id, "--json")
    )
    assert "what" in document["meta"]["inferred_intents"]
    text = ask(stack, WHAT.text, "--session", WHAT.session_id, "--limit", "3")
    assert text.count("support-301") + text.count("incident-12") >= 1
    assert "found in" in text


def test_an_intent_may_be_named_and_must_be_one(stack: Stack) -> None:
    options = ("--session", WHY.session_id, "--intent")
    document = json.loads(ask(stack, "order 4711", *options, "when", "--json"))
    assert document["meta"]["intent_override"] == "when"
    ask(stack, "order 4711", *options, "whose", code=2)


def test_another_tenant_remembers_nothing_of_it(stack: Stack) -> None:
    text = ask(stack, WHY.text, "--session", WHY.session_id, "--tenant", "other", code=1)
    assert "nothing was found" in text
    assert FAILURE not in text


def test_a_running_api_answers_alike(stack: Stack, api: Api) -> None:
    running = RunningApi(api.url, ADMIN_KEY)
    body = {"query": WHY.text, "session_id": WHY.session_id, "agent_id": "ask"}
    document = running.ask("/v1/query/subgraph", {**body, "record_access": False}, "default")
    assert FAILURE in [node["node_id"] for node in document.document["nodes"]]
    why = running.why(body, document.document, "default")
    assert why is not None
    assert {FAILURE, CHANGE, ROOT} <= {step["node_id"] for step in why["answer"]["tree"]}
    assert why["answer"]["head"] == why["answer"]["tree"][0]["node_id"]


def test_what_an_api_refuses_is_said_as_it_is(api: Api) -> None:
    running = RunningApi(api.url, ADMIN_KEY)
    with pytest.raises(InvalidInput) as raised:
        running.ask("/v1/query/subgraph", {"query": "x"}, "default")
    assert {field for field, _ in raised.value.errors} == {"session_id", "agent_id"}
    with pytest.raises(OperationFailed, match="API key"):
        RunningApi(api.url, None).ask(SUBGRAPH, {}, "default")
    with pytest.raises(OperationFailed, match="no API at"):
        RunningApi("http://127.0.0.1:1", None).ask(SUBGRAPH, {}, "default")


def test_evidence_for_a_language_model_fits_and_can_be_proved(stack: Stack, api: Api) -> None:
    text = ask(stack, WHY.text, "--session", WHY.session_id, "--max-tokens", "300")
    budgeted, _, sources = text.partition("\nSources: ")
    assert estimated_tokens(budgeted) <= 300
    assert text.startswith(f"{NOTICE} **Answer:** ")
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(lines) >= 3
    assert all(EVIDENCE.fullmatch(line) for line in lines), lines
    assert sources.count("=") == len(lines)
    body = {"query": WHY.text, "session_id": WHY.session_id, "agent_id": "ask", "max_tokens": 2_000}
    whole = RunningApi(api.url, ADMIN_KEY).ask(SUBGRAPH, body, "default", accept=MARKDOWN).text
    assert FAILURE in whole
    assert whole.count("\n- ") > len(lines)
