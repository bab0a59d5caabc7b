"""Recall of facts over HTTP: seeds, hops, types, time, users, tenants, modes, narrative, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.browse_schemas import FactHistory
from api.read_schemas import Fact, FactsResponse
from api.retrieval.intent import classify_graph_subgraph
from consolidation.forgetting_payloads import ACCESSED_EVENT
from enrichment.names import canonical_name, entity_id
from pipelines.graph.reads import facts as fact_reads
from pipelines.graph.reads.facts import FactReads
from pipelines.graph.reads.scope import QUESTION, Scope
from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.errors import QueryTimeout
from projections.events import decode_event, timestamp_text
from projections.schema import RELATES_TO
from tests.factories import START_MS, event, event_id
from tests.integration.api_support import OTHER_KEY, Api, assert_problem
from tests.integration.facts_support import DAY_MS, OTHER, TENANT, Facts, party, told
from tests.integration.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

NOW = timestamp_text(START_MS + 100 * DAY_MS)


def story() -> Facts:
    facts = Facts()
    facts.say("JACQ Project", "uses", "DuckDB")
    facts.say("JACQ Project", "uses", "TypeScript", confidence=0.5, day=90)
    facts.say("DuckDB", "is_a", "embedded OLAP database")
    facts.say("embedded OLAP database", "part_of", "analytics stack")
    facts.say("analytics stack", "led_to", "cost report", edge_type="causal", confidence=0.8)
    facts.say("schema change", "caused", "broken dashboard")
    facts.say("broken dashboard", "has_status", "open", literal=True)
    facts.say("login form", "has_status", "open", literal=True)
    facts.say("Marta", "works_at", "Acme Corp", day=1)
    facts.say("Marta", "works_at", "Globex", day=50)
    zoe, ben = party("cust-zoe", "user"), party("cust-ben", "user")
    facts.say(zoe, "prefers", "dark mode", user_id="cust-zoe", source_kind="user_edit")
    facts.say(ben, "prefers", "light mode", user_id="cust-ben")
    facts.say("JACQ Project", "uses", "a secret", tenant=OTHER)
    facts.say(party("PGW", "service"), "runs_in", "Frankfurt")
    facts.say(party("Payment Gateway", "service"), "owned_by", "payments team")
    own_id = entity_id(TENANT, canonical_name("Payment Gateway"), "service")
    facts.correct(
        {
            "entity_id": f"entity:{own_id}",
            "correction": "alias",
            "name": "PGW",
            "type": "service",
            "reason": "short form",
        }
    )
    facts.say(party("north hub", "resource"), "located_in", "Oslo")
    facts.events += [  # an agent by the same name, met more often, of which nothing is known
        event(n, tenant=TENANT, session_id="hub", agent_id="north hub", payload={"text": "hi"})
        for n in (901, 902, 903)
    ]
    facts.events.append(
        event(900, tenant=TENANT, session_id="zoe-1", user_id="cust-zoe", payload={"text": "hi"})
    )
    return facts


@pytest.fixture(scope="module")
def services(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[tuple[Stack, Api]]:
    # No recall is given again: what these tests change is not new in a session.
    with told(valkey, neo4j, story().events, result_cache_s=0) as both:
        yield both


@pytest.fixture
def api(services: tuple[Stack, Api]) -> Api:
    return services[1]


def recall(client: httpx.Client, query: str, **body: Any) -> FactsResponse:
    answer = client.post("/v1/query/facts", json={"query": query, "as_of": NOW, **body})
    assert answer.status_code == 200, answer.text
    return FactsResponse.model_validate_json(answer.text, strict=True)


def said(fact: Fact) -> tuple[str, str, str]:
    return fact.source.name, fact.relation, fact.target.name


def triples(found: FactsResponse) -> list[tuple[str, str, str]]:
    return [said(fact) for fact in found.facts]


# what is found


def test_facts_are_found_from_the_entity_that_is_named(client: httpx.Client) -> None:
    found = recall(client, "What does the JACQ project use?", max_depth=1)
    assert triples(found) == [
        ("JACQ Project", "uses", "DuckDB"),
        ("JACQ Project", "uses", "TypeScript"),
    ]
    assert [seed.name for seed in found.seeds] == ["JACQ Project"]
    assert (found.meta.seed_channel, found.meta.mode) == ("text", "bfs")
    assert found.meta.facts_returned == 2


def test_a_name_is_found_by_how_it_begins(client: httpx.Client) -> None:
    assert ("JACQ Project", "uses", "DuckDB") in triples(recall(client, "duck", max_depth=1))


def test_hops_go_both_ways_and_scores_fall_with_them(client: httpx.Client) -> None:
    found = recall(client, "DuckDB", max_depth=3)
    hops = {said(fact): fact.hop_distance for fact in found.facts}
    assert hops == {
        ("JACQ Project", "uses", "DuckDB"): 0,
        ("DuckDB", "is_a", "embedded OLAP database"): 0,
        ("JACQ Project", "uses", "TypeScript"): 1,
        ("embedded OLAP database", "part_of", "analytics stack"): 1,
        ("analytics stack", "led_to", "cost report"): 2,
    }
    for fact in found.facts:
        scores = fact.scores
        assert scores.composite_score == pytest.approx(
            scores.entity_match_score / (1 + fact.hop_distance) * scores.effective_confidence
        )
        assert scores.composite_score <= scores.rank_score <= 2 * scores.composite_score
    ranks = [fact.scores.rank_score for fact in found.facts]
    assert ranks == sorted(ranks, reverse=True)
    assert found.meta.truncated_by == []


def test_depth_and_number_bound_a_recall(client: httpx.Client) -> None:
    found = recall(client, "DuckDB", max_depth=1)
    assert (len(found.facts), found.meta.truncated_by) == (2, ["max_depth"])
    found = recall(client, "DuckDB", max_facts=1)
    assert (len(found.facts), found.meta.truncated_by) == (1, ["max_facts"])


def test_a_value_that_two_things_share_does_not_connect_them(client: httpx.Client) -> None:
    found = triples(recall(client, "broken dashboard"))
    assert ("broken dashboard", "has_status", "open") in found
    assert ("login form", "has_status", "open") not in found
    assert {name for name, *_ in triples(recall(client, "open"))} == {
        "broken dashboard",
        "login form",
        "schema change",
    }


def test_types_choose_the_edges_that_are_walked(client: httpx.Client) -> None:
    assert triples(recall(client, "DuckDB", edge_types=["entity"])) == [
        ("DuckDB", "is_a", "embedded OLAP database"),
        ("embedded OLAP database", "part_of", "analytics stack"),
    ]
    assert triples(recall(client, "schema change", edge_types=["causal"])) == [
        ("schema change", "caused", "broken dashboard")
    ]
    everything = recall(client, "DuckDB", edge_types=[])
    # "what is" has the marker of entities, and semantic facts are always asked for
    asked = "What is DuckDB?"
    assert triples(recall(client, asked, edge_types="auto")) == triples(
        recall(client, asked, edge_types=sorted(classify_graph_subgraph(asked)))
    )
    assert triples(everything) == triples(recall(client, "DuckDB"))


def test_facts_hold_at_a_moment(client: httpx.Client) -> None:
    def at(day: int) -> list[tuple[str, str, str]]:
        moment = timestamp_text(START_MS + day * DAY_MS)
        return triples(recall(client, "Marta", at_timestamp=moment))

    assert at(0) == []
    assert at(1) == [("Marta", "works_at", "Acme Corp")]
    assert at(49) == [("Marta", "works_at", "Acme Corp")]
    assert at(50) == [("Marta", "works_at", "Globex")]
    assert triples(recall(client, "Marta")) == [("Marta", "works_at", "Globex")]


@pytest.mark.parametrize(("day", "employer"), [(49, "Acme Corp"), (50, "Globex")])
def test_facts_hold_at_the_day_that_a_question_names(
    client: httpx.Client, day: int, employer: str
) -> None:
    named = timestamp_text(START_MS + day * DAY_MS)[:10]
    asked = f"As of {named}, what was the employer of Marta?"
    assert triples(recall(client, asked))[:1] == [("Marta", "works_at", employer)]


def test_of_what_was_before_what_is_now_is_no_answer(client: httpx.Client) -> None:
    before = recall(client, "What was the previous employer of Marta?", max_depth=1)
    assert triples(before)[0] == ("Marta", "works_at", "Acme Corp")
    of_any = recall(client, "Marta, what was the one before?", max_depth=1)
    assert triples(of_any)[0] == ("Marta", "works_at", "Acme Corp")
    unknown = recall(client, "What was the previous location of the north hub?", max_depth=1)
    assert ("north hub", "located_in", "Oslo") not in triples(unknown)
    assert ("north hub", "located_in", "Oslo") in triples(recall(client, "north hub", max_depth=1))


def test_what_is_the_same_is_one_entity(client: httpx.Client) -> None:
    found = recall(client, "PGW")
    assert {said(fact)[1:] for fact in found.facts} == {
        ("runs_in", "Frankfurt"),
        ("owned_by", "payments team"),
    }
    assert len({fact.source.entity_id for fact in found.facts}) == 1
    assert len(found.seeds) == 1


def test_of_two_by_one_name_the_one_that_something_is_known_of(client: httpx.Client) -> None:
    unseen = {"record_access": False}
    answer = client.get("/v1/facts/entity:north hub", params=unseen)
    assert answer.status_code == 200, answer.text
    facts = FactHistory.model_validate_json(answer.text, strict=True).facts
    assert list(map(said, facts)) == [("north hub", "located_in", "Oslo")]


def test_facts_say_which_event_says_so(client: httpx.Client) -> None:
    (fact,) = recall(client, "Marta").facts
    stored = client.get(f"/v1/events/{fact.provenance.event_id}").json()
    assert stored["payload"]["target"]["name"] == "Globex"
    assert fact.provenance.supporting_event_ids == [fact.provenance.event_id]


def test_a_caller_may_name_where_to_begin(client: httpx.Client) -> None:
    found = recall(client, "anything", seed_nodes=["entity:jacq-project"], max_depth=1)
    assert (found.meta.seed_channel, len(found.facts)) == ("given", 2)
    own_id = found.seeds[0].entity_id
    assert triples(recall(client, "anything", seed_nodes=[own_id], max_depth=1)) == triples(found)
    unknown = recall(client, "anything", seed_nodes=["entity:nobody", own_id])
    assert triples(unknown) == triples(recall(client, "anything", seed_nodes=[own_id]))
    assert unknown.meta.unknown_seeds == ["entity:nobody"]
    assert recall(client, "anything", seed_nodes=["entity:nobody"]).facts == []


def test_nothing_that_is_named_is_nothing_found(client: httpx.Client) -> None:
    found = recall(client, "xylophone")
    assert (found.facts, found.seeds, found.meta.seed_channel) == ([], [], "none")


def test_a_query_of_signs_is_no_error(client: httpx.Client) -> None:
    for query in ('"', "\\", "+tenant_term:other03", "*:*", "a AND (b OR", "\u0000", "☃ ☃"):
        recall(client, query)


# users and tenants


def test_facts_of_other_users_are_never_returned(client: httpx.Client) -> None:
    modes = {"cust-zoe": {"dark mode"}, "cust-ben": {"light mode"}, None: set()}
    for user, expected in modes.items():
        body = {} if user is None else {"user_id": user}
        found = recall(client, "cust zoe ben dark light mode", **body)
        assert {fact.target.name for fact in found.facts} == expected
        assert found.meta.user_id == user


def test_the_session_names_the_user(client: httpx.Client) -> None:
    found = recall(client, "cust-zoe", session_id="zoe-1")
    assert (found.meta.user_id, len(found.facts)) == ("cust-zoe", 1)


def test_another_tenant_has_facts_of_its_own(api: Api, client: httpx.Client) -> None:
    with api.client(OTHER_KEY) as stranger:
        assert triples(recall(stranger, "JACQ project")) == [("JACQ Project", "uses", "a secret")]
        ours = recall(client, "JACQ project").facts
        given = {fact.source.entity_id for fact in ours} | {fact.target.entity_id for fact in ours}
        assert recall(stranger, "x", seed_nodes=sorted(given)).facts == []
        assert recall(stranger, "Marta").facts == []


# modes


def test_an_activation_spreads_from_the_seeds(client: httpx.Client) -> None:
    found = recall(client, "DuckDB", mode="activation")
    assert {("JACQ Project", "uses", "DuckDB"), ("DuckDB", "is_a", "embedded OLAP database")} <= (
        set(triples(found))
    )
    assert found.meta.mode == "activation"
    assert all(0 < fact.scores.rank_score <= 1 for fact in found.facts)
    causal = recall(client, "DuckDB", mode="activation", edge_types=["causal"])
    assert causal.facts == []


def test_an_activation_that_is_late_is_empty(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SA-INV-07: the database itself ends it, long before the request's own limit."""
    endless = "UNWIND range(1, 100000000000) AS x RETURN sum(x * 0.5) AS x"
    monkeypatch.setattr(fact_reads, "FACTS_OF", endless)
    found = recall(client, "DuckDB", mode="activation", timeout_ms=20_000)
    assert (found.facts, found.meta.timed_out, found.meta.truncated) == ([], True, True)
    answer = client.post("/v1/query/facts", json={"query": "DuckDB", "timeout_ms": 200})
    assert_problem(answer, 504, "time-limit")


def test_a_recall_that_runs_out_of_time_has_what_it_found(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FactReads.facts_of
    asked: list[int] = []

    def late_at_the_second_level(self: FactReads, *given: Any) -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise QueryTimeout(timeout_ms=1, reason="no time left")
        return real(self, *given)

    monkeypatch.setattr(FactReads, "facts_of", late_at_the_second_level)
    found = recall(client, "DuckDB")
    assert (len(found.facts), found.meta.truncated_by) == (2, ["timeout_ms"])


def test_a_cost_by_the_query_changes_the_order_alone(client: httpx.Client) -> None:
    plain = recall(client, "DuckDB")
    prism = recall(client, "DuckDB", query_sensitive_cost=True, timeout_ms=20_000)
    assert {said(fact) for fact in prism.facts} == {said(fact) for fact in plain.facts}


def test_ids_are_asked_490_at_a_time(
    services: tuple[Stack, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SA-INV-09."""
    sizes: list[int] = []

    class Asked:
        def rows(self, text: str, **parameters: Any) -> list[Any]:
            sizes.append(len(parameters[QUESTION]["ids"]))
            return []

    reads = FactReads(Asked(), Scope(TENANT, None, 0))
    assert reads.facts_of([str(n) for n in range(1_000)], fact_reads.FactFilter(0)) == []
    assert sizes == [490, 490, 20]


def test_retrieved_facts_count_more(services: tuple[Stack, Api], client: httpx.Client) -> None:
    stack, _ = services
    before = recall(client, "cost report", max_depth=1).facts[-1].scores
    stack.cypher(
        f"MATCH ()-[r:{RELATES_TO.type} {{confidence: 0.8}}]->() "
        "SET r.retrieval_count = 1.0, r.last_retrieved_at = datetime({epochMillis: $at})",
        at=START_MS + 100 * DAY_MS,
    )
    after = recall(client, "cost report", max_depth=1).facts[-1].scores
    assert before.effective_confidence == 0.8
    # 0.8 * (1 + 0.2 ln 2), and never more than 1
    assert after.effective_confidence == pytest.approx(0.910904, abs=1e-6)


def accessed(stack: Stack) -> list[dict[str, Any]]:
    """Payloads of the accesses in the ledger."""
    events = [
        decode_event(entry.data)
        for partition in range(stack.ledger.partitions)
        for block in stack.blocks(partition)
        for entry in block.entries
    ]
    return [e.payload for e in events if e.event_type == ACCESSED_EVENT]


def test_facts_that_are_returned_count_as_retrieved(
    services: tuple[Stack, Api], client: httpx.Client
) -> None:
    """A-MEM; a read of another time, or one that says so, changes nothing."""
    stack, _ = services
    for body in ({"as_of": NOW}, {"at_timestamp": NOW}, {"record_access": False}):
        client.post("/v1/query/facts", json={"query": "Marta", **body})
    client.post("/v1/query/facts", json={"query": "schema change", "max_depth": 1})
    wait_until(lambda: accessed(stack), "the accesses are in the ledger")
    (payload,) = accessed(stack)
    (fact,) = payload["facts"]
    assert (fact["relation"], fact["event_id"], fact["times"]) == ("caused", event_id(6), 1)
    assert list(payload["entities"].values()) == [1]


# text


def narrative(client: httpx.Client, query: str, **body: Any) -> str:
    answer = client.post(
        "/v1/query/facts",
        json={"query": query, "as_of": NOW, **body},
        headers={"Accept": "text/markdown"},
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    return answer.text


def test_the_narrative_has_sections_and_sources(client: httpx.Client) -> None:
    text = narrative(client, "JACQ project")
    head, _, sources = text.rpartition("\n\n")
    assert head == (
        "### 💡 CONTEXT: JACQ Project\n- uses: DuckDB\n- uses: TypeScript\n\n"
        "### 💡 CONTEXT: DuckDB\n- is_a: embedded OLAP database"
    )
    assert sources == f"Sources: {event_id(1)}, {event_id(2)}, {event_id(3)}\n"


def test_the_user_is_the_user(client: httpx.Client) -> None:
    text = narrative(client, "cust-zoe", user_id="cust-zoe")
    assert text.startswith("### 👤 USER CONTEXT\n- prefers: dark mode\n")


def test_a_narrative_keeps_within_its_tokens(client: httpx.Client) -> None:
    assert narrative(client, "JACQ project", max_tokens=50).count("- ") == 1
    assert narrative(client, "xylophone") == "No facts are known about this.\n"


# rules


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", ""),
        ("query", None),
        ("edge_types", ["Semantic"]),
        ("edge_types", "semantic"),
        ("mode", "dfs"),
        ("max_depth", 0),
        ("max_depth", 11),
        ("max_facts", 501),
        ("timeout_ms", 99),
        ("at_timestamp", "yesterday"),
        ("min_position", "soon"),
        ("session_id", ""),
        ("max_tokens", 49),
        ("intent", "why"),
    ],
)
def test_a_broken_rule_is_named(client: httpx.Client, field: str, value: Any) -> None:
    answer = client.post("/v1/query/facts", json={"query": "x", field: value})
    body = assert_problem(answer, 422, "invalid-input")
    assert body["errors"][0]["field"].split(".")[0] == field


def test_what_is_no_json_is_malformed(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/query/facts", content=b"{", headers=headers)
    assert_problem(answer, 400, "malformed-json")
    answer = client.post("/v1/query/facts", content=b"x", headers={"Content-Type": "text/plain"})
    assert_problem(answer, 415, "unsupported-media-type")
    assert_problem(client.post("/v1/query/facts", json=[]), 422, "invalid-input")
    answer = client.post("/v1/query/facts", params={"query": "x"}, json={"query": "x"})
    assert_problem(answer, 422, "invalid-input")
