"""Whatever the OpenAPI allows, and much that it does not: no 5xx, and only documented answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, checks

from api.main import create_app
from api.read_schemas import MAX_TIMEOUT_MS
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.work.settings import Settings
from tests.integration.api_support import ADMIN_KEY, KEYS, Api
from tests.integration.facts_support import TENANT, told
from tests.integration.test_api_tenants import story
from tests.memory_stack import Worker

pytestmark = pytest.mark.integration

DOCUMENT: dict[str, Any] = create_app(Settings(api_keys=KEYS)).openapi()
EVENTS = story(TENANT, 1_000)
KNOWN = (EVENTS[-1].event_id, "entity:Marta", "checkout")
"""An event, an entity, a session: what the ids in paths may name."""
HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}", "X-Tenant": TENANT}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
]
BATCH = "POST /v1/events/batch"
"""Judges each event alone, so a body with events that break rules is no request that is refused."""

MOST_VALID = 25
"""Valid requests of an operation that are sent: each is a whole query, and machines are shared."""

sent: Counter[str] = Counter()
openapi = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def api(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    options = {"channel_timeout_ms": MAX_TIMEOUT_MS, "stream_life_s": 0.2}
    with told(valkey, neo4j, EVENTS, **options) as (stack, running), Worker(stack):
        running.app.state.services.embedder.embed("warm", timeout_ms=60_000)
        yield running


def give_time(case: Case[Any]) -> None:
    """Raise a valid time limit: on healthy services 504 shall not appear for want of patience."""
    body = case.body if case.operation.path.startswith("/v1/query/") else None
    named = any(parameter.name == "timeout_ms" for parameter in case.operation.query)
    for values in (body, case.query if named else None):
        if isinstance(values, dict):
            limit = str(values.get("timeout_ms", MAX_TIMEOUT_MS))
            if limit.isdecimal() and 100 <= int(limit) <= MAX_TIMEOUT_MS:
                values["timeout_ms"] = MAX_TIMEOUT_MS


def assert_documented(case: Case[Any], api: Api) -> None:
    give_time(case)
    answer = case.call(base_url=api.url, headers=HEADERS, timeout=2 * MAX_TIMEOUT_MS / 1000)
    judging = [] if case.operation.label == BATCH else [checks.negative_data_rejection]
    case.validate_response(answer, checks=[*CHECKS, *judging], headers=HEADERS)


@openapi.parametrize()
@settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_a_documented_one(case: Case[Any], api: Api) -> None:
    if case.meta is not None and case.meta.generation.mode.is_positive:
        sent[case.operation.label] += 1
        if sent[case.operation.label] > MOST_VALID:
            return
    assert_documented(case, api)


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("path", [path for path in DOCUMENT["paths"] if "{" in path])
def test_what_is_known_is_told_as_documented(api: Api, path: str, known: str) -> None:
    for method, operation in DOCUMENT["paths"][path].items():
        if method == "get":
            names = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            parameters = {name: "session" if name == "scope" else known for name in names}
            assert_documented(openapi[path][method].Case(path_parameters=parameters), api)
