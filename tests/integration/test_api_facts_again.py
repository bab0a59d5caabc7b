"""`POST /v1/query/facts` page by page, and the same recall again."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.read_schemas import FactsResponse
from enrichment.names import canonical_name, entity_id
from pipelines.observe import metrics
from projections.schema import ENTITY, RELATES_TO, TENANT_TERM, tenant_term
from tests.integration.api_support import OTHER_KEY, Api, assert_problem, running_api
from tests.integration.query_support import PATIENT, Memory, ids
from tests.integration.test_api_query_services import FAR, projected_until, send

pytestmark = pytest.mark.integration


def recall(client: httpx.Client, query: str = "JACQ", **fields: Any) -> httpx.Response:
    return client.post("/v1/query/facts", json={"query": query, **PATIENT, **fields})


def found(answer: httpx.Response) -> FactsResponse:
    assert answer.status_code == 200, answer.text
    return FactsResponse.model_validate_json(answer.text, strict=True)


def targets(answer: httpx.Response) -> list[str]:
    return [fact.target.name for fact in found(answer).facts]


def know(memory: Memory, *names: str, tenant: str = "acme", **fields: Any) -> None:
    """JACQ uses things; each fact is said by an event of its own unless `event_id` names one."""
    ends = []
    for name in ("JACQ", *names):
        own_id = entity_id(tenant, canonical_name(name), "concept")
        known = {"name": name, "canonical_name": canonical_name(name), "entity_type": "concept"}
        ends.append([own_id, {**known, TENANT_TERM: tenant_term(tenant)}])
    facts = [
        {
            "relation": "uses",
            "edge_type": "semantic",
            "event_id": str(uuid.uuid4()),
            "fact": f"JACQ uses {name}",
            "source": "conversation",
            "status": "confirmed",
            "confidence": 0.9 - number / 1_000,
            **fields,
        }
        for number, name in enumerate(names)
    ]
    memory.driver.execute_query(
        f"UNWIND $ends AS one MERGE (n:{ENTITY.label} {{tenant: $tenant, entity_id: one[0]}}) "
        "SET n += one[1] "
        "WITH collect(n) AS found UNWIND range(0, size($facts) - 1) AS place "
        "WITH found[0] AS a, found[place + 1] AS b, $facts[place] AS fact "
        f"CREATE (a)-[r:{RELATES_TO.type}]->(b) "
        "SET r = fact, r.valid_from = datetime({epochMillis: 0})",
        tenant=tenant,
        ends=ends,
        facts=facts,
    )
    memory.settle()


# pages


def test_pages_are_disjoint_and_complete_while_the_graph_changes(
    memory: Memory, client: httpx.Client
) -> None:
    know(memory, *(f"thing {number}" for number in range(40)))
    whole = targets(recall(client, max_facts=500))
    assert len(whole) == 40
    page = recall(client, max_facts=15)
    pages = [targets(page)]
    assert found(page).meta.truncated_by == ["max_facts"]
    while cursor := found(page).meta.next_cursor:
        know(memory, f"news {len(pages)}", confidence=1.0)
        memory.driver.execute_query(
            f"MATCH ()-[r:{RELATES_TO.type}]->() WHERE r.fact ENDS WITH '7' SET r.confidence = 0.99"
        )
        page = recall(client, max_facts=15, cursor=cursor)
        pages.append(targets(page))
    assert [len(one) for one in pages] == [15, 15, 10]
    assert [one for names in pages for one in names] == whole
    assert found(page).meta.truncated is False


def test_a_later_page_has_facts_as_the_first_would_have(
    memory: Memory, client: httpx.Client
) -> None:
    know(memory, "DuckDB", "TypeScript", "Rust")
    whole = found(recall(client)).facts
    cursor = found(recall(client, max_facts=1)).meta.next_cursor
    rest = found(recall(client, cursor=cursor)).facts
    for shown, expected in zip(rest, whole[1:], strict=True):
        assert shown.model_copy(update={"scores": expected.scores}) == expected
        assert shown.scores.model_dump() == pytest.approx(expected.scores.model_dump(), abs=1e-4)


def test_a_cursor_is_of_its_question_alone_and_shows_nothing_out_of_scope(
    memory: Memory, client: httpx.Client, api: Api
) -> None:
    know(memory, "DuckDB", "Rust", user_id="ann")
    know(memory, "secret one", "secret two", tenant="other")
    cursor = found(recall(client, user_id="ann", max_facts=1)).meta.next_cursor
    assert cursor is not None
    assert targets(recall(client, user_id="ann", cursor=cursor)) == ["Rust"]
    for bad in (cursor[:-3], cursor[::-1], "x", "\u2603"):
        body = assert_problem(recall(client, user_id="ann", cursor=bad), 422, "invalid-input")
        assert [item["field"] for item in body["errors"]] == ["cursor"]
    for fields in ({"user_id": "bob"}, {}, {"user_id": "ann", "query": "JAC"}):
        assert_problem(recall(client, cursor=cursor, **fields), 422, "invalid-input")
    with api.client(OTHER_KEY) as other:
        assert_problem(recall(other, user_id="ann", cursor=cursor), 422, "invalid-input")
    with api.client(Accept="text/markdown") as reader:
        assert_problem(recall(reader, user_id="ann", cursor=cursor), 422, "invalid-input")


# the same recall again


def test_a_recall_is_given_again_until_a_session_that_said_a_fact_goes_on(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    (said,) = ids(1)
    memory.say({said: "JACQ uses DuckDB"}, session_id="said")
    know(memory, "DuckDB", event_id=said)
    position = send(client, session_id="elsewhere")["position"]
    projected_until(api, memory, position)
    hits = metrics.CACHE_LOOKUPS.labels(cache="result", outcome="hit")

    def cached(**fields: Any) -> bool:
        before = hits._value.get()
        again = found(recall(client, session_id="asked", **fields))
        assert [fact.target.name for fact in again.facts] == ["DuckDB"]
        assert hits._value.get() - before == again.meta.cached
        return again.meta.cached

    assert not cached()
    assert cached()
    assert not cached(max_facts=7)
    assert not cached(user_id="ann")
    assert not cached(max_depth=1)
    assert not cached(min_position=position)
    send(client, session_id="elsewhere")
    assert cached()
    send(client, session_id="said")
    assert not cached()
    send(client, session_id="asked")
    assert not cached()


def test_nobody_is_given_what_another_user_or_tenant_was_answered(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    projected_until(api, memory, FAR)
    know(memory, "DuckDB", user_id="ann")
    know(memory, "Rust", user_id="bob")
    know(memory, "a secret", tenant="other", user_id="ann")
    with api.client(OTHER_KEY) as other:
        for _ in range(2):
            assert targets(recall(client, user_id="ann")) == ["DuckDB"]
            assert targets(recall(client, user_id="bob")) == ["Rust"]
            assert targets(recall(other, user_id="ann")) == ["a secret"]
            assert targets(recall(other)) == []


def test_what_may_be_incomplete_is_not_given_again(
    redis_url: str, neo4j_url: str, memory: Memory, tmp_path: Path
) -> None:
    know(memory, "DuckDB")
    with (
        running_api(redis_url, neo4j_url, embedding_folder=tmp_path) as api,
        api.client() as client,
    ):
        projected_until(api, memory, FAR)
        # the embedder is away, and the text names nothing
        answers = [found(recall(client, "who ate my sandwich")) for _ in range(2)]
        assert [one.meta.cached for one in answers] == [False, False]
        assert [found(recall(client)).meta.cached for _ in range(2)] == [False, True]
