"""`POST /v1/query/subgraph` over a real graph: form, channels, scope, bounds, degradation."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from enrichment.event_kinds import EventKind
from pipelines.observe import metrics
from projections.events import timestamp_text
from projections.schema import (
    CAUSED_BY,
    EVENT,
    FOLLOWS,
    REFERENCES,
    RELATES_TO,
    SIMILAR_TO,
    TENANT_TERM,
)
from tests.integration.api_support import OTHER_KEY, Api, assert_problem, running_api
from tests.integration.query_support import (
    MINUTE_MS,
    NOW_MS,
    Memory,
    ask,
    atlas,
    found_ids,
    ids,
)
from tests.integration.test_api_read import NODE, assert_form
from tests.servers import emptied_neo4j
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def api(module_redis_url: str, request: pytest.FixtureRequest) -> Iterator[Api]:
    # Emptied before the API admits the server process: checkpoints of other tests would halt it.
    graph_url = emptied_neo4j(request.getfixturevalue("neo4j"))
    # No answer is given again: the graph of these tests changes behind the ledger's back.
    options = {"channel_timeout_ms": 30_000, "result_cache_s": 0}
    with running_api(module_redis_url, graph_url, **options) as running:
        yield running


# the form

SEED_EXAMPLE = {
    "query": "Why do my customers' payments keep failing?",
    "session_id": "sess-4",
    "agent_id": "paypal-assistant",
    "max_nodes": 100,
    "max_depth": 3,
    "timeout_ms": 30_000,
}


META = {
    "query_ms": 145,
    "nodes_returned": 18,
    "truncated": False,
    "intent": "why",
    "inferred_intents": {"why": 0.7, "when": 0.4, "what": 0.5},
    "seed_nodes": ["entity:card_declined", "entity:marias-bakery"],
    "proactive_nodes_count": 3,
    "scoring_weights": {"recency": 1.0, "importance": 1.0, "relevance": 1.0},
    "capacity": {"max_nodes": 100, "used_nodes": 18, "max_depth": 3},
}
"""The examples of both specifications, joined."""


def payments(memory: Memory) -> tuple[list[str], str]:
    """A card is declined, a payment fails, somebody retries."""
    first, second, third, fourth = ids(4)
    memory.say(
        {
            first: "card declined by the bank",
            second: "payment failed",
            third: "payment retried",
            fourth: "weather is fine",
        },
        tool_name="pay",
    )
    memory.link(CAUSED_BY.type, [(second, first), (third, second)], mechanism="direct")
    memory.link(SIMILAR_TO.type, [(second, third)], score=0.9)
    return [first, second, third, fourth], memory.mention([first, second], "card_declined")


def test_a_query_alone_is_enough_and_says_how_it_was_understood(
    memory: Memory, client: httpx.Client
) -> None:
    (card, failed, retried, _), entity = payments(memory)
    answer = client.post("/v1/query/subgraph", json=SEED_EXAMPLE)
    found = atlas(answer)
    assert {card, failed, retried, entity} <= {node.node_id for node in found.nodes}
    assert found.nodes[0].node_id in {failed, retried}
    assert found.meta.inferred_intents == {"why": 0.7, "what": 0.5, "when": 0.4}
    assert (found.meta.intent, found.meta.intent_override) == ("why", None)
    assert found.meta.scoring_weights.model_dump() == {
        "recency": 0.01,
        "importance": 0.01,
        "relevance": 1.0,
    }
    assert found.meta.capacity.model_dump() == {
        "max_nodes": 100,
        "used_nodes": len(found.nodes),
        "max_depth": 3,
    }
    assert [node.scores.rank_score for node in found.nodes] == sorted(
        (node.scores.rank_score for node in found.nodes), reverse=True
    )
    edges = {(edge.type, edge.source, edge.target) for edge in found.edges}
    assert (CAUSED_BY.type, failed, card) in edges
    assert (REFERENCES.type, card, entity) in edges


def test_an_answer_has_the_form_of_the_specification(memory: Memory, client: httpx.Client) -> None:
    payments(memory)
    body = client.post("/v1/query/subgraph", json=SEED_EXAMPLE).json()
    edge = {"source": "evt-1", "target": "evt-2", "type": "FOLLOWS", "properties": {}}
    events = [node for node in body["nodes"] if node["type"] == EVENT.label]
    assert events
    assert_form({**body, "nodes": events}, {"nodes": [NODE], "edges": [edge], "meta": META})
    assert body["meta"]["intent_override"] is None
    derived = [node for node in body["nodes"] if node["type"] != EVENT.label]
    assert derived
    for node in derived:
        assert NODE.keys() <= node.keys()
        assert node["provenance"].keys() >= NODE["provenance"].keys()  # type: ignore[attr-defined]
        assert_form(node["scores"], NODE["scores"])
    for node in body["nodes"]:
        assert {"embedding", "text", "tenant", TENANT_TERM}.isdisjoint(node["attributes"])


def test_overrides_are_respected_and_echoed(memory: Memory, client: httpx.Client) -> None:
    (card, failed, *_), _ = payments(memory)
    answer = ask(client, "anything", intent="why", seed_nodes=["entity:card_declined"])
    found = atlas(answer)
    assert (found.meta.intent, found.meta.intent_override) == ("why", "why")
    assert found.meta.inferred_intents == {}
    assert found.meta.seed_nodes == ["entity:card_declined"]
    assert [*found.meta.seed_names.values()] == ["card_declined"]
    assert found.meta.unknown_seeds == []
    given = [
        "entity:card_declined",
        "entity:nobody",
        str(uuid.UUID(int=999)),
        "summary:" + "0" * 32,
    ]
    found = atlas(ask(client, "anything", intent="why", seed_nodes=given))
    assert found.meta.unknown_seeds == given[1:]
    assert {card, failed} <= {node.node_id for node in found.nodes}
    weights = {"recency": 1.0, "importance": 1.0, "relevance": 1.0}
    found = atlas(ask(client, "payment", scoring_weights=weights))
    assert found.meta.scoring_weights.model_dump() == weights
    for node in found.nodes:
        if node.type == EVENT.label:
            assert node.scores.rank_score == pytest.approx(node.scores.decay_score, abs=1e-6)


@pytest.mark.parametrize("method", ["intent_weighted", "ppr", "activation"])
def test_every_method_answers(memory: Memory, client: httpx.Client, method: str) -> None:
    (card, failed, *_), _ = payments(memory)
    found = atlas(ask(client, "why did the payment fail", retrieval_method=method))
    assert {card, failed} <= {node.node_id for node in found.nodes}
    if not found.meta.degraded:
        assert found.meta.retrieval_method == method


def test_an_entity_leads_to_what_it_is_connected_with(memory: Memory, client: httpx.Client) -> None:
    named, other = ids(2)
    memory.say({named: "nothing of that name", other: "unlike anything"})
    gateway = memory.mention([named], "Payment Gateway", "service")
    outage = memory.mention([other], "Power Outage")
    memory.relate(gateway, outage)
    found = atlas(ask(client, "why is the Payment Gateway slow"))
    kinds = {node.node_id: node for node in found.nodes}
    assert {named, other, gateway, outage} <= kinds.keys()
    origin = kinds[gateway].provenance
    assert (origin.event_id, origin.supporting_event_ids) == (named, [named])
    assert origin.global_position is not None
    assert origin.session_id == kinds[named].provenance.session_id
    assert kinds[gateway].attributes["name"] == "Payment Gateway"
    assert kinds[outage].depth == 1


# scope


def test_nothing_of_another_tenant_is_found(api: Api, memory: Memory, client: httpx.Client) -> None:
    mine, theirs = ids(2)
    memory.say({mine: "payment failed"})
    memory.say({theirs: "payment failed", mine: "payment failed"}, tenant="other")
    entity = memory.mention([mine], "Payment")
    stranger = memory.mention([theirs], "Payment", tenant="other")
    assert set(found_ids(ask(client, "why did the Payment fail"))) == {mine, entity}
    with api.client(OTHER_KEY) as other:
        assert set(found_ids(ask(other, "why did the Payment fail"))) == {theirs, mine, stranger}
        assert set(found_ids(ask(other, "Payment", seed_nodes=[entity]))) <= {theirs, mine}


def test_no_answer_ever_holds_an_id_of_another_tenant(
    api: Api, memory: Memory, client: httpx.Client
) -> None:
    """Two memories that look alike, and edges that a defect has drawn across them."""
    chosen = random.Random(7)
    words = ["payment", "card", "refund", "bakery", "failed", "declined"]
    owned: dict[str, set[str]] = {}
    for tenant in ("acme", "other"):
        own = [str(uuid.UUID(int=chosen.getrandbits(128))) for _ in range(30)]
        memory.say({one: " ".join(chosen.choices(words, k=4)) for one in own}, tenant=tenant)
        named = {
            memory.mention(chosen.sample(own, 6), word.title(), tenant=tenant) for word in words
        }
        for kind in (CAUSED_BY.type, SIMILAR_TO.type, FOLLOWS.type):
            pairs = [(chosen.choice(own), chosen.choice(own)) for _ in range(20)]
            memory.link(kind, pairs, tenant=tenant, delta_ms=1, score=0.9, confidence=0.9)
        owned[tenant] = {*own, *named}
    memory.driver.execute_query(
        f"MATCH (a:{EVENT.label} {{tenant: 'acme'}}), (b:{EVENT.label} {{tenant: 'other'}}) "
        f"WITH a, b LIMIT 200 CREATE (a)-[:{CAUSED_BY.type} {{mechanism: 'direct'}}]->(b), "
        f"(b)-[:{SIMILAR_TO.type} {{score: 0.99}}]->(a)"
    )
    strange = sorted(owned["other"])
    with api.client(OTHER_KEY) as other:
        for method in ("intent_weighted", "ppr", "activation"):
            for seeds in (None, chosen.sample(strange, 10)):
                for tenant, asking in (("acme", client), ("other", other)):
                    answer = ask(
                        asking,
                        f"why did the {chosen.choice(words)} {chosen.choice(words)}",
                        retrieval_method=method,
                        max_nodes=chosen.choice([5, 500]),
                        **({} if seeds is None else {"seed_nodes": seeds}),
                    )
                    found = atlas(answer)
                    assert {node.node_id for node in found.nodes} <= owned[tenant]
                    ends = {end for edge in found.edges for end in (edge.source, edge.target)}
                    assert ends <= owned[tenant]
    assert len(atlas(ask(client, "payment", max_nodes=500)).nodes) >= 30


def test_events_and_facts_of_other_users_are_never_returned(
    memory: Memory, client: httpx.Client
) -> None:
    shared, ann, bob = ids(3)
    memory.say({shared: "payment of nobody"})
    memory.say({ann: "payment of ann"}, user_id="ann", session_id="ann's")
    memory.say({bob: "payment of bob"}, user_id="bob", session_id="bob's")
    first, second = memory.mention([shared], "Payment"), memory.mention([bob], "Secret")
    memory.relate(first, second, user_id="bob")
    memory.link(SIMILAR_TO.type, [(shared, bob), (shared, ann)], score=0.9)

    def seen(**fields: Any) -> set[str]:
        return {*found_ids(ask(client, "payment", **fields))} & {shared, ann, bob, second}

    assert seen() == {shared}
    assert seen(user_id="ann") == {shared, ann}
    assert seen(session_id="bob's") == {shared, bob, second}


# what nobody asked for


def test_an_earlier_resolution_comes_along_marked_and_can_be_left_out(
    memory: Memory, client: httpx.Client
) -> None:
    failed, resolved, important, private = ids(4)
    memory.say({failed: "card declined at the bakery"}, session_id="s")
    memory.say({resolved: "issuer phoned"}, session_id="earlier")
    memory.say({private: "issuer of bob"}, session_id="bob's", user_id="bob")
    memory.say({important: "quite unlike"}, session_id="other")
    memory.driver.execute_query(
        f"MATCH (e:{EVENT.label} {{event_id: $id}}) SET e.importance_score = 10", id=important
    )
    memory.mention([failed, important], "Bakery")
    memory.relate_sessions("s", "earlier", resolved)
    memory.relate_sessions("s", "bob's", private)
    # so many others that neither is found by itself
    many = {str(uuid.UUID(int=1_000 + n)): f"card declined {n * 7919}" for n in range(250)}
    memory.say(many, session_id="many")

    def added(**fields: Any) -> dict[str, str | None]:
        found = atlas(ask(client, "why was the card declined at the Bakery", **fields))
        marked = [node for node in found.nodes if node.retrieval_reason == "proactive"]
        assert found.meta.proactive_nodes_count == len(marked)
        assert len(marked) <= 0.2 * found.meta.capacity.max_nodes
        return {node.node_id: node.proactive_signal for node in marked}

    assert added(max_nodes=20)[resolved] == "recurring_pattern"
    labels = {"signal": "recurring_pattern", "judgement": "useful"}

    def judged() -> float:
        name = "recollect_proactive_nodes_judged_total"
        return metrics.REGISTRY.get_sample_value(name, labels) or 0.0

    before = judged()
    answer = client.post("/v1/feedback", json={"useful": [resolved]})
    assert answer.status_code == 202
    wait_until(lambda: judged() == before + 1, "the judgement is counted")
    assert private not in added(max_nodes=20)
    assert added(max_nodes=20, proactive=False) == {}
    assert added(max_nodes=4) == {}


# bounds


def test_no_more_nodes_than_allowed(memory: Memory, client: httpx.Client) -> None:
    memory.say(dict.fromkeys(ids(30), "payment failed again"))
    found = atlas(ask(client, "payment", max_nodes=7))
    assert len(found.nodes) == 7
    assert (found.meta.truncated, found.meta.truncated_by) == (True, ["max_nodes"])


def test_an_empty_memory_has_an_empty_answer(memory: Memory, client: httpx.Client) -> None:
    found = atlas(ask(client, "why?"))
    assert (found.nodes, found.edges) == ([], [])


@pytest.mark.parametrize("query", ["the", "?!", "AND OR NOT", "\u200b", "*:*", '"', "x" * 8_192])
def test_any_question_has_an_answer(memory: Memory, client: httpx.Client, query: str) -> None:
    memory.say({ids(1)[0]: "payment failed"})
    atlas(ask(client, query))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", ""),
        ("query", "x" * 8_193),
        ("query", None),
        ("session_id", ""),
        ("agent_id", 7),
        ("max_nodes", 501),
        ("max_depth", 0),
        ("timeout_ms", 99),
        ("intent", "whose"),
        ("retrieval_method", "magic"),
        ("seed_nodes", []),
        ("as_of", "yesterday"),
        ("as_of_position", "soon"),
        ("diversity", 2),
        ("include", ["everything"]),
        ("cursor", "nonsense"),
        ("max_nodes", "100"),
        ("max_nodes", 1.0),
        ("kinds", "failure"),
        ("status", ["lost"]),
        ("since", "yesterday"),
    ],
)
def test_beyond_the_rules_is_a_problem_that_names_the_field(
    client: httpx.Client, field: str, value: Any
) -> None:
    body = assert_problem(ask(client, **{"query": "x", field: value}), 422, "invalid-input")
    assert [item["field"].split(".")[0] for item in body["errors"]] == [field]


@pytest.mark.parametrize(
    "limits",
    [
        {"kinds": ["failure", "decision"]},
        {"status": ["failed", "timeout"]},
        {"session": "checkout"},
        {"since": timestamp_text(NOW_MS + 10 * MINUTE_MS)},
        {"until": timestamp_text(NOW_MS - 10 * MINUTE_MS)},
    ],
)
def test_only_what_the_request_is_limited_to_is_found(
    memory: Memory, client: httpx.Client, limits: dict[str, Any]
) -> None:
    tag = uuid.uuid4().hex
    wanted, other = ids(2)
    fields = {"kind": "failure", "status": "failed", "session_id": "checkout"}
    minutes = -60 if "until" in limits else 60
    at = timestamp_text(NOW_MS + minutes * MINUTE_MS)
    memory.say({wanted: f"payment {tag} failed"}, occurred_at=at, **fields)
    memory.say({other: f"payment {tag} seen"}, kind="call", status="completed")
    assert {wanted, other} <= set(found_ids(ask(client, f"payment {tag}")))
    found = set(found_ids(ask(client, f"payment {tag}", proactive=False, **limits)))
    assert (wanted in found, other in found) == (True, False)


def test_a_kind_that_is_none_is_told_which_there_are(client: httpx.Client) -> None:
    body = assert_problem(ask(client, "x", kinds=["error"]), 422, "invalid-input")
    (error,) = body["errors"]
    assert error["field"] == "kinds.0"
    assert not [kind for kind in EventKind if f"'{kind}'" not in error["rule"]]


@pytest.mark.parametrize("field", ["query", "session_id", "agent_id"])
def test_who_asks_what_is_required_even_with_overrides(client: httpx.Client, field: str) -> None:
    body = {"query": "x", "session_id": "s", "agent_id": "a", "intent": "why", "seed_nodes": ["y"]}
    del body[field]
    answer = client.post("/v1/query/subgraph", json=body)
    assert_problem(answer, 422, "invalid-input")


def test_weights_that_are_all_0_are_a_rule_broken(client: httpx.Client) -> None:
    weights = {"recency": 0, "importance": 0, "relevance": 0}
    assert_problem(ask(client, "x", scoring_weights=weights), 422, "invalid-input")


# pages


def test_pages_are_disjoint_and_complete_while_the_graph_changes(
    memory: Memory, client: httpx.Client
) -> None:
    own_ids = ids(40)
    memory.say({one: f"payment {number} failed" for number, one in enumerate(own_ids)})
    whole = found_ids(ask(client, "payment failed", max_nodes=500))
    page = ask(client, "payment failed", max_nodes=15)
    pages = [found_ids(page)]
    new = str(uuid.uuid4())
    while cursor := atlas(page).meta.next_cursor:
        memory.say({new: "payment failed"})
        page = ask(client, "payment failed", max_nodes=15, cursor=cursor)
        pages.append(found_ids(page))
    assert [len(one) for one in pages] == [15, 15, len(whole) - 30]
    assert [one for found in pages for one in found] == whole
    assert new not in whole
    assert atlas(page).meta.truncated is False


def test_a_cursor_is_of_its_question_alone(memory: Memory, client: httpx.Client) -> None:
    memory.say(dict.fromkeys(ids(5), "payment failed"))
    cursor = atlas(ask(client, "payment", max_nodes=2)).meta.next_cursor
    assert cursor is not None
    other = "B" if cursor[0] == "A" else "A"
    for bad in (cursor[:-3], cursor[::-1], other + cursor[1:], "x", "=", "\u2603"):
        body = assert_problem(ask(client, "payment", cursor=bad), 422, "invalid-input")
        assert [item["field"] for item in body["errors"]] == ["cursor"]
    assert_problem(ask(client, "payments", cursor=cursor), 422, "invalid-input")
    assert_problem(ask(client, "payment", intent="why", cursor=cursor), 422, "invalid-input")


def test_a_cursor_shows_nothing_out_of_scope(
    memory: Memory, client: httpx.Client, api: Api
) -> None:
    mine = ids(4)
    memory.say(dict.fromkeys(mine, "payment failed"), user_id="ann", session_id="ann's")
    page = ask(client, "payment", user_id="ann", max_nodes=1)
    cursor = atlas(page).meta.next_cursor
    rest = found_ids(ask(client, "payment", user_id="ann", cursor=cursor))
    assert set(rest) | set(found_ids(page)) == set(mine)
    assert_problem(ask(client, "payment", user_id="bob", cursor=cursor), 422, "invalid-input")
    with api.client(OTHER_KEY) as other:
        answer = ask(other, "payment", user_id="ann", cursor=cursor)
        assert_problem(answer, 422, "invalid-input")


# time


def test_as_of_a_position_sees_what_was_known_then(memory: Memory, client: httpx.Client) -> None:
    early, late = ids(2)
    memory.say({early: "payment failed", late: "payment failed again"})
    # the positions of Graph.add: 1000-0, 1001-0 …
    assert set(found_ids(ask(client, "payment", as_of_position="1000-0"))) == {early}
    assert set(found_ids(ask(client, "payment", as_of_position="999-5"))) == set()
    assert set(found_ids(ask(client, "payment"))) == {early, late}


def test_as_of_a_moment_sees_the_facts_that_held(memory: Memory, client: httpx.Client) -> None:
    (event,) = ids(1)
    memory.say({event: "nothing"})
    first, second = memory.mention([event], "Gateway"), memory.mention([], "Outage")
    memory.relate(first, second)
    memory.driver.execute_query(
        f"MATCH ()-[r:{RELATES_TO.type}]->() SET r.valid_to = datetime({{epochMillis: 1000}})"
    )
    assert second not in found_ids(ask(client, "Gateway"))
    assert second in found_ids(ask(client, "Gateway", as_of="1970-01-01T00:00:00.500Z"))
