"""Context and lineage over HTTP, from a real Neo4j: form, order, bounds, tenants, time limits."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import neo4j
import pytest

from api.schemas import AtlasResponse
from consolidation.decay import decay_score
from pipelines.graph.client import Neo4jReader
from pipelines.graph.reader import STATUS_TIMEOUT_MS, GraphNode, LettersAsked
from pipelines.graph.reads import events as event_reads
from pipelines.graph.reads.events import EventReads
from projections.errors import GraphUnavailable, QueryTimeout
from projections.events import timestamp_ms, timestamp_text
from projections.identity import Position, partition_of
from projections.schema import EdgeRow
from tests.integration.api_support import (
    OTHER_KEY,
    Api,
    Graph,
    assert_problem,
    envelope,
)

pytestmark = pytest.mark.integration

NOW = "2026-02-12T00:00:00Z"
NOW_MS = timestamp_ms(NOW)
MINUTE_MS = 60_000


@pytest.fixture
def driver(neo4j_url: str) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(neo4j_url) as opened:
        yield opened


@pytest.fixture
def graph(driver: neo4j.Driver) -> Graph:
    return Graph(driver)


def event_at(minutes_ago: float, **fields: Any) -> dict[str, Any]:
    return envelope(
        occurred_at=timestamp_text(NOW_MS - round(minutes_ago * MINUTE_MS)),
        **fields,
    )


def chain(graph: Graph, length: int) -> list[str]:
    """Ids of events, each caused by the next."""
    events = [event_at(number) for number in range(length)]
    ids = [event["event_id"] for event in events]
    graph.add(events)
    for effect, cause in itertools.pairwise(ids):
        graph.cause(effect, cause)
    return ids


def atlas(answer: httpx.Response) -> AtlasResponse:
    assert answer.status_code == 200, answer.text
    return AtlasResponse.model_validate_json(answer.text, strict=True)


def ids_of(answer: httpx.Response) -> list[str]:
    return [node.node_id for node in atlas(answer).nodes]


# the form


def assert_form(found: Any, example: Any) -> None:
    """`found` has every field of `example`, of the same type."""
    if isinstance(example, dict):
        assert isinstance(found, dict)
        assert example.keys() <= found.keys()
        for name, value in example.items():
            assert_form(found[name], value)
    elif isinstance(example, list):
        assert isinstance(found, list)
        for item in found:
            assert_form(item, example[0])
    elif isinstance(example, float):
        assert isinstance(found, float | int)
    else:
        assert type(found) is type(example)


# The examples of ADR-0009 and ADR-0006, joined.
NODE = {
    "node_id": "...",
    "type": "Event",
    "attributes": {"event_type": "...", "tool_name": "..."},
    "provenance": {
        "event_id": "uuid",
        "global_position": "1707644400000-0",
        "source": "redis",
        "occurred_at": "2026-02-11T10:30:00Z",
        "session_id": "...",
        "agent_id": "...",
        "trace_id": "...",
    },
    "scores": {"decay_score": 0.87, "relevance_score": 0.92, "importance_score": 7},
    "retrieval_reason": "direct",
}
META = {
    "query_ms": 120,
    "nodes_returned": 12,
    "truncated": False,
    "intent": "why",
    "inferred_intents": {},
    "seed_nodes": ["entity:card_declined"],
    "proactive_nodes_count": 3,
    "scoring_weights": {"recency": 1.0, "importance": 1.0, "relevance": 1.0},
    "capacity": {"max_nodes": 100, "used_nodes": 12, "max_depth": 3},
}


@pytest.mark.parametrize("path", ["/v1/context/s", "/v1/nodes/{effect}/lineage"])
def test_answers_have_the_form_of_the_seeds(graph: Graph, client: httpx.Client, path: str) -> None:
    patient = {"timeout_ms": 30_000}  # these questions come first, and are yet to be planned
    cause, effect = event_at(2, tool_name="pay"), event_at(1, tool_name="retry", status="failed")
    graph.add([cause, effect])
    graph.cause(effect["event_id"], cause["event_id"])
    graph.follow(cause["event_id"], effect["event_id"], delta_ms=1200)
    answer = client.get(path.format(effect=effect["event_id"]), params=patient)
    atlas(answer)
    body = answer.json()
    assert_form(
        body,
        {
            "nodes": [NODE],
            "edges": [{"source": "evt-1", "target": "evt-2", "type": "FOLLOWS", "properties": {}}],
            "meta": META,
        },
    )
    assert len(body["nodes"]) == 2
    edges = {(e["type"], e["source"], e["target"]): e["properties"] for e in body["edges"]}
    causal = ("CAUSED_BY", effect["event_id"], cause["event_id"])
    assert edges.pop(causal) == {"mechanism": "direct"}
    if "context" in path:
        temporal = ("FOLLOWS", cause["event_id"], effect["event_id"])
        assert edges.pop(temporal) == {"session_id": "s", "delta_ms": 1200}
    assert edges == {}
    assert body["meta"]["intent_override"] is None
    assert body["meta"]["nodes_returned"] == body["meta"]["capacity"]["used_nodes"] == 2


def test_attributes_are_the_events_and_provenance_leads_back(
    graph: Graph, client: httpx.Client
) -> None:
    event = event_at(5, status="failed", ended_at=None, importance_hint=8, user_id="u")
    graph.add([event])
    node = client.get("/v1/context/s").json()["nodes"][0]
    assert node["attributes"]["status"] == "failed"
    assert node["attributes"]["importance_hint"] == 8
    assert node["attributes"]["ended_at"] is None
    assert node["provenance"]["event_id"] == node["node_id"] == event["event_id"]
    assert node["provenance"]["occurred_at"] == event["occurred_at"]
    assert {"embedding", "text", "tenant"}.isdisjoint(node["attributes"])


# context


def test_context_is_ranked_by_decay_score(graph: Graph, client: httpx.Client) -> None:
    old_important = event_at(60 * 24, importance_hint=10)
    new_trivial = event_at(1, importance_hint=1)
    new_plain = event_at(2)
    ancient = event_at(60 * 24 * 365, importance_hint=5)
    graph.add([old_important, new_trivial, new_plain, ancient, event_at(0, session_id="other")])
    answer = client.get("/v1/context/s", params={"as_of": NOW})
    expected = [old_important, new_plain, new_trivial, ancient]
    assert ids_of(answer) == [event["event_id"] for event in expected]
    node = atlas(answer).nodes[0]
    assert node.scores.decay_score == pytest.approx(
        decay_score(NOW_MS, NOW_MS - 24 * 60 * MINUTE_MS, importance=10)
    )
    assert node.scores.rank_score == node.scores.decay_score
    assert node.scores.relevance_score == 0.5
    assert [n.scores.importance_score for n in atlas(answer).nodes] == [10, 5, 1, 5]


def test_the_best_of_many_are_the_best_of_all(graph: Graph, client: httpx.Client) -> None:
    events = [
        event_at(minutes_ago=number * 37 % 5_000, importance_hint=number % 10 + 1)
        for number in range(300)
    ]
    graph.add(events)

    def order(event: dict[str, Any]) -> tuple[float, int, str]:
        at_ms = timestamp_ms(event["occurred_at"])
        score = decay_score(NOW_MS, at_ms, importance=event["importance_hint"])
        return -score, -at_ms, event["event_id"]

    expected = [event["event_id"] for event in sorted(events, key=order)[:20]]
    answer = client.get("/v1/context/s", params={"as_of": NOW, "max_nodes": 20})
    assert ids_of(answer) == expected
    meta = atlas(answer).meta
    assert (meta.truncated, meta.truncated_by, meta.nodes_returned) == (True, ["max_nodes"], 20)


def test_bounds_are_echoed_and_a_whole_session_is_not_truncated(
    graph: Graph, client: httpx.Client
) -> None:
    graph.add([event_at(1), event_at(2)])
    meta = atlas(client.get("/v1/context/s", params={"max_nodes": 2, "max_depth": 7})).meta
    assert not meta.truncated
    assert meta.capacity.model_dump() == {"max_nodes": 2, "used_nodes": 2, "max_depth": 7}


def test_edges_stay_between_the_returned_nodes(graph: Graph, client: httpx.Client) -> None:
    first, second, elsewhere = event_at(2), event_at(1), event_at(3, session_id="other")
    graph.add([first, second, elsewhere])
    graph.cause(second["event_id"], elsewhere["event_id"])
    graph.follow(first["event_id"], second["event_id"])
    edges = atlas(client.get("/v1/context/s")).edges
    assert [(edge.source, edge.target) for edge in edges] == [
        (first["event_id"], second["event_id"])
    ]


def test_a_session_that_nobody_knows_is_404(client: httpx.Client) -> None:
    assert_problem(client.get("/v1/context/unknown"), 404, "not-found")


def test_a_session_may_have_any_name(graph: Graph, client: httpx.Client) -> None:
    name = "a/b c?d#e%2F☃"
    graph.add([event_at(1, session_id=name)])
    path = "".join(f"%{byte:02X}" for byte in name.encode())
    assert len(ids_of(client.get(f"/v1/context/{path}"))) == 1


# lineage


def test_lineage_finds_the_causes_and_ranks_the_near_first(
    graph: Graph, client: httpx.Client
) -> None:
    ids = chain(graph, 4)
    answer = client.get(f"/v1/nodes/{ids[0]}/lineage")
    assert ids_of(answer) == ids
    found = atlas(answer)
    assert [node.depth for node in found.nodes] == [0, 1, 2, 3]
    # CAUSED_BY weighs 5 of 5 for `why`
    assert [node.scores.relevance_score for node in found.nodes] == [1.0] * 4
    assert not found.meta.truncated
    assert found.meta.seed_nodes == [ids[0]]
    assert (found.meta.intent, found.meta.inferred_intents) == ("why", {"why": 1.0})


def test_intent_weighs_the_path(graph: Graph, client: httpx.Client) -> None:
    ids = chain(graph, 3)
    answer = client.get(f"/v1/nodes/{ids[0]}/lineage", params={"intent": "what"})
    scores = [node.scores.relevance_score for node in atlas(answer).nodes]
    assert scores == pytest.approx([1.0, 0.4, 0.16])
    meta = atlas(answer).meta
    assert (meta.intent, meta.intent_override, meta.inferred_intents) == ("what", "what", {})


def test_when_follows_the_order_of_the_session(graph: Graph, client: httpx.Client) -> None:
    events = [event_at(30), event_at(20), event_at(10)]
    ids = [event["event_id"] for event in events]
    graph.add(events)
    graph.follow(ids[0], ids[1], delta_ms=10 * MINUTE_MS)
    graph.follow(ids[1], ids[2], delta_ms=10 * MINUTE_MS)
    path = f"/v1/nodes/{ids[1]}/lineage"
    assert ids_of(client.get(path, params={"intent": "when"})) == [ids[1], ids[0]]
    after = client.get(path, params={"intent": "when", "direction": "effects"})
    assert ids_of(after) == [ids[1], ids[2]]
    assert atlas(after).nodes[1].scores.relevance_score == pytest.approx(0.846, abs=0.001)


def test_a_lineage_that_nobody_names_is_what_the_node_says(
    graph: Graph, client: httpx.Client
) -> None:
    first, plain, failed, cause, effect = (
        event_at(50),
        event_at(40),
        event_at(30, status="failed"),
        event_at(20),
        event_at(10),
    )
    ids = [event["event_id"] for event in (first, plain, failed, cause, effect)]
    graph.add([first, plain, failed, cause, effect, event_at(0, session_id="alone")])
    for earlier, later in itertools.pairwise(ids):
        graph.follow(earlier, later)
    graph.cause(ids[4], ids[3])

    def inferred(node_id: str) -> tuple[dict[str, float], list[str]]:
        answer = client.get(f"/v1/nodes/{node_id}/lineage")
        intents = atlas(answer).meta.inferred_intents
        return {str(name): value for name, value in intents.items()}, ids_of(answer)

    assert inferred(ids[1]) == ({"when": 1.0}, [ids[1], ids[0]])
    assert inferred(ids[2]) == ({"why": 1.0}, [ids[2]])
    assert inferred(ids[3]) == ({"why": 1.0}, [ids[3]])
    assert inferred(ids[4]) == ({"why": 1.0}, [ids[4], ids[3]])


def test_effects_and_both(graph: Graph, client: httpx.Client) -> None:
    ids = chain(graph, 3)
    path = f"/v1/nodes/{ids[1]}/lineage"
    assert ids_of(client.get(path, params={"direction": "effects"})) == [ids[1], ids[0]]
    both = client.get(path, params={"direction": "both"})
    assert set(ids_of(both)) == set(ids)
    assert len(atlas(both).edges) == 2


def test_depth_and_nodes_bound_a_lineage(graph: Graph, client: httpx.Client) -> None:
    ids = chain(graph, 8)
    answer = client.get(f"/v1/nodes/{ids[0]}/lineage", params={"max_depth": 2})
    assert ids_of(answer) == ids[:3]
    assert atlas(answer).meta.truncated_by == ["max_depth"]
    answer = client.get(f"/v1/nodes/{ids[0]}/lineage", params={"max_nodes": 2, "max_depth": 10})
    assert ids_of(answer) == ids[:2]
    assert atlas(answer).meta.truncated_by == ["max_nodes"]
    answer = client.get(f"/v1/nodes/{ids[0]}/lineage", params={"max_depth": 10})
    assert ids_of(answer) == ids
    assert not atlas(answer).meta.truncated


def test_a_cycle_is_walked_once(graph: Graph, client: httpx.Client) -> None:
    ids = chain(graph, 3)
    graph.cause(ids[2], ids[0])
    answer = client.get(f"/v1/nodes/{ids[0]}/lineage", params={"max_depth": 10})
    assert ids_of(answer) == ids
    assert len(atlas(answer).edges) == 3


def test_a_cause_that_has_not_come_is_invisible(graph: Graph, client: httpx.Client) -> None:
    event, missing = event_at(1, parent_event_id=str(uuid.uuid4())), str(uuid.uuid4())
    graph.add([event])
    graph.add_placeholder(missing)
    graph.cause(event["event_id"], missing)
    found = atlas(client.get(f"/v1/nodes/{event['event_id']}/lineage"))
    assert [node.node_id for node in found.nodes] == [event["event_id"]]
    assert found.edges == []
    assert_problem(client.get(f"/v1/nodes/{missing}/lineage"), 404, "not-found")


def test_a_node_that_is_not_there_is_404(client: httpx.Client) -> None:
    for node_id in (str(uuid.uuid4()), "entity:card_declined", "no uuid"):
        assert_problem(client.get(f"/v1/nodes/{node_id}/lineage"), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("/v1/context/s", "max_nodes", "501"),
        ("/v1/context/s", "max_nodes", "0"),
        ("/v1/context/s", "max_depth", "11"),
        ("/v1/context/s", "timeout_ms", "99"),
        ("/v1/context/s", "timeout_ms", "30001"),
        ("/v1/context/s", "min_position", "soon"),
        ("/v1/context/s", "as_of", "yesterday"),
        ("/v1/context/s", "intent", "why"),
        ("/v1/nodes/x/lineage", "max_nodes", "many"),
        ("/v1/nodes/x/lineage", "max_depth", "0"),
        ("/v1/nodes/x/lineage", "intent", "whose"),
        ("/v1/nodes/x/lineage", "direction", "sideways"),
    ],
)
def test_beyond_the_bounds_is_a_rule_broken(
    client: httpx.Client, path: str, name: str, value: str
) -> None:
    body = assert_problem(client.get(path, params={name: value}), 422, "invalid-input")
    assert [item["field"] for item in body["errors"]] == [name]


# tenants


def test_the_graph_of_another_tenant_does_not_exist(
    api: Api, graph: Graph, client: httpx.Client
) -> None:
    """Same session, same event ids, and an edge that a defect has drawn across."""
    shared, mine = event_at(2), event_at(1)
    graph.add([shared, mine], tenant="acme")
    graph.cause(mine["event_id"], shared["event_id"], tenant="acme")
    graph.add([{**shared, "status": "failed"}], tenant="other")
    graph.driver.execute_query(
        "MATCH (a:Event {tenant: 'acme', event_id: $id}), (b:Event {tenant: 'other'}) "
        "CREATE (b)-[:CAUSED_BY {mechanism: 'direct'}]->(a), "
        "(a)-[:CAUSED_BY {mechanism: 'direct'}]->(b)",
        id=mine["event_id"],
    )
    with api.client(OTHER_KEY) as stranger:
        context = atlas(stranger.get("/v1/context/s"))
        lineage = atlas(
            stranger.get(f"/v1/nodes/{shared['event_id']}/lineage", params={"direction": "both"})
        )
        answer = stranger.get(f"/v1/nodes/{mine['event_id']}/lineage")
        assert_problem(answer, 404, "not-found")
    for found in (context, lineage):
        assert [node.attributes["status"] for node in found.nodes] == ["failed"]
        assert found.edges == []
    path = f"/v1/nodes/{mine['event_id']}/lineage"
    ours = atlas(client.get(path, params={"direction": "both"}))
    assert {node.attributes["status"] for node in ours.nodes} == {None}
    assert len(ours.nodes) == 2


# time


def test_the_database_ends_a_question_at_its_limit(driver: neo4j.Driver) -> None:
    reader = Neo4jReader(driver, "neo4j")
    endless = "UNWIND range(1, 100000000000) AS x RETURN sum(x * 0.5) AS number"
    began_s = time.monotonic()
    with pytest.raises(QueryTimeout):
        reader.read(lambda graph: graph.rows(endless), timeout_ms=200)
    # As configured by default, Neo4j looks for expired transactions every 2 s.
    assert time.monotonic() - began_s < 10


def test_a_question_that_takes_too_long_is_504(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database itself ends it: the API's own patience is longer."""
    monkeypatch.setattr(
        event_reads, "SURROUNDINGS", "UNWIND range(1, 100000000000) AS x RETURN sum(x * 0.5) AS x"
    )
    answer = client.get(f"/v1/nodes/{uuid.uuid4()}/lineage", params={"timeout_ms": 150})
    assert_problem(answer, 504, "time-limit")


def test_a_long_chain_is_cut_where_time_runs_out(
    graph: Graph, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found before the limit is the answer; it says that it is not all."""
    ids = chain(graph, 6)
    real = EventReads.neighbours

    def slow_from_the_third_level(
        self: EventReads, event_ids: Sequence[str], row: EdgeRow, **options: Any
    ) -> list[GraphNode]:
        if ids[2] in event_ids:
            self._rows("UNWIND range(1, 100000000000) AS x RETURN sum(x * 0.5) AS x")
        return real(self, event_ids, row, **options)

    monkeypatch.setattr(EventReads, "neighbours", slow_from_the_third_level)
    answer = client.get(
        f"/v1/nodes/{ids[0]}/lineage", params={"timeout_ms": 2_500, "max_depth": 10}
    )
    assert ids_of(answer) == ids[:3]
    assert atlas(answer).meta.truncated_by == ["timeout_ms"]


def test_a_graph_that_is_away_is_said_to_be() -> None:
    with (
        neo4j.GraphDatabase.driver("bolt://127.0.0.1:1", connection_timeout=1) as nowhere,
        pytest.raises(GraphUnavailable),
    ):
        Neo4jReader(nowhere, "neo4j").counts()


# read your writes


def test_a_read_waits_until_the_graph_has_the_position(graph: Graph, client: httpx.Client) -> None:
    event = event_at(1)
    position = client.post("/v1/events", json=event).json()["global_position"]
    partition = partition_of("acme", "s", 8)
    waiting: dict[str, str | int] = {"min_position": position, "timeout_ms": 300}
    began_s = time.monotonic()
    for path in ("/v1/context/s", f"/v1/nodes/{event['event_id']}/lineage"):
        assert_problem(client.get(path, params=waiting), 504, "time-limit")
    assert time.monotonic() - began_s > 0.4
    # The checkpoints of other partitions do not matter.
    graph.add([event])
    graph.checkpoint(partition, position, 1)
    assert ids_of(client.get("/v1/context/s", params={**waiting, "timeout_ms": 5000})) == [
        event["event_id"]
    ]


def test_a_position_that_was_never_given_out_is_waited_for_in_vain(
    graph: Graph, client: httpx.Client
) -> None:
    later = Position((time.time_ns() // 1_000_000) + 3_600_000, 0)
    params: dict[str, str | int] = {"min_position": str(later), "timeout_ms": 200}
    assert_problem(client.get("/v1/context/s", params=params), 504, "time-limit")


def test_a_position_between_entries_waits_for_every_partition(
    graph: Graph, client: httpx.Client
) -> None:
    answer = client.post("/v1/events/batch", json=[envelope(session_id=f"s{n}") for n in range(40)])
    positions = sorted(Position.parse(r["global_position"]) for r in answer.json()["results"])
    params: dict[str, str | int] = {
        "min_position": str(Position(positions[-1].ms - 1, 999_999)),
        "timeout_ms": 5_000,
    }
    assert_problem(
        client.get("/v1/context/s", params={**params, "timeout_ms": 200}), 504, "time-limit"
    )
    for partition in range(8):
        graph.checkpoint(partition, str(positions[-1]), 99)
    assert client.get("/v1/context/s", params=params).status_code == 404  # it looked


# bookkeeping


def test_counts_leave_placeholders_out(graph: Graph, driver: neo4j.Driver) -> None:
    first, second = event_at(2), event_at(1)
    graph.add([first, second])
    graph.follow(first["event_id"], second["event_id"])
    graph.add_placeholder("missing")
    graph.cause(first["event_id"], "missing")
    graph.cause(second["event_id"], first["event_id"])
    graph.checkpoint(0, "5-0", 1)
    counts = Neo4jReader(driver, "neo4j").counts()
    assert (counts.nodes["Event"], counts.nodes["Checkpoint"], counts.placeholders) == (2, 1, 1)
    assert {kind: n for kind, n in counts.edges.items() if n} == {"FOLLOWS": 1, "CAUSED_BY": 1}


def test_dead_letters_and_checkpoints_are_listed_in_order(
    graph: Graph, driver: neo4j.Driver
) -> None:
    graph.checkpoint(1, "7-1", 4)
    graph.checkpoint(0, "5-0", 1)
    driver.execute_query(
        "UNWIND [3, 1, 2] AS seq CREATE (:DeadLetter {stage: 'projection', partition: 0, "
        "seq: seq, position: toString(seq) + '-0', tenant: 't', event_id: 'e', kind: 'k', "
        "reason: 'r', attempts: 5})"
    )
    reader = Neo4jReader(driver, "neo4j")
    assert [(c.partition, c.position) for c in reader.checkpoints("projection")] == [
        (0, Position(5, 0)),
        (1, Position(7, 1)),
    ]
    assert reader.checkpoints("enrichment") == []

    def seqs(wanted: LettersAsked) -> list[int]:
        letters = reader.read(lambda read: read.dead_letters(wanted), timeout_ms=STATUS_TIMEOUT_MS)
        return [letter.seq for letter in letters]

    assert seqs(LettersAsked()) == [1, 2, 3]
    assert seqs(LettersAsked("projection", skip=1, limit=1)) == [2]
    assert seqs(LettersAsked("enrichment")) == []
    assert reader.dead_letter_counts() == {"projection": 3}
