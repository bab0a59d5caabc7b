"""A graph as all stages would leave it, and questions about it, for tests of retrieval."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import neo4j

from api.schemas import AtlasResponse
from consolidation.summary_payloads import summary_id
from enrichment.names import canonical_name, entity_id
from pipelines.graph.cypher import set_nodes_text
from pipelines.graph.neo4j import Neo4jGraph
from projections.events import timestamp_ms, timestamp_text
from projections.schema import (
    ENTITY,
    EVENT,
    LINKED_TO,
    REFERENCES,
    RELATES_TO,
    SUMMARIZES,
    SUMMARY,
    TENANT_TERM,
    tenant_term,
)
from tests.integration.api_support import Graph, envelope

NOW_MS = timestamp_ms("2026-02-12T00:00:00Z")
MINUTE_MS = 60_000
PATIENT = {"timeout_ms": 30_000}
"""Machines are shared, and the first plan of a question takes long."""


def get(client: httpx.Client, path: str, **params: Any) -> httpx.Response:
    """An answer with status 200, waited for as long as its first plan takes."""
    answer = client.get(path, params={**PATIENT, **params})
    assert answer.status_code == 200, answer.text
    return answer


class Memory(Graph):
    """A graph with what enrichment would have added."""

    def __init__(self, driver: neo4j.Driver) -> None:
        super().__init__(driver)
        Neo4jGraph(driver).ensure_schema()

    def say(self, texts: Mapping[str, str], tenant: str = "acme", **fields: Any) -> None:
        """Events with texts, by id, a minute after each other."""
        events = [
            envelope(
                **{
                    "event_id": own_id,
                    "occurred_at": timestamp_text(NOW_MS + number * MINUTE_MS),
                    **fields,
                }
            )
            for number, own_id in enumerate(texts)
        ]
        self.add(events, tenant)
        names = [prop.name for prop in EVENT.owned("enrichment")]
        rows = [
            [
                tenant,
                own_id,
                *(
                    {
                        "text": text,
                        "importance_score": 5,
                        "embedding": vector(text),
                        **fields,
                    }.get(name)
                    for name in names
                ),
            ]
            for own_id, text in texts.items()
        ]
        self.driver.execute_query(set_nodes_text(EVENT.label, "enrichment"), rows=rows)
        self.settle()

    def mention(
        self, event_ids: Sequence[str], name: str, kind: str = "concept", tenant: str = "acme"
    ) -> str:
        """An entity that the events mention; its wire id."""
        own_id = entity_id(tenant, canonical_name(name), kind)
        self.driver.execute_query(
            f"MERGE (n:{ENTITY.label} {{tenant: $tenant, entity_id: $own_id}}) SET n += $rest "
            "WITH n UNWIND $ids AS id "
            f"MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}}) "
            f"MERGE (e)-[:{REFERENCES.type} {{role: 'object'}}]->(n)",
            tenant=tenant,
            own_id=own_id,
            ids=list(event_ids),
            rest={
                "name": name,
                "canonical_name": canonical_name(name),
                "entity_type": kind,
                TENANT_TERM: tenant_term(tenant),
            },
        )
        self.settle()
        return f"entity:{own_id}"

    def relate(self, source: str, target: str, tenant: str = "acme", **properties: Any) -> None:
        """A fact between two entities, by wire ids."""
        self.driver.execute_query(
            f"MATCH (a:{ENTITY.label} {{tenant: $tenant, entity_id: $a}}) "
            f"MATCH (b:{ENTITY.label} {{tenant: $tenant, entity_id: $b}}) "
            f"CREATE (a)-[r:{RELATES_TO.type} $rest]->(b) "
            "SET r.valid_from = datetime({epochMillis: $at})",
            tenant=tenant,
            a=source.removeprefix("entity:"),
            b=target.removeprefix("entity:"),
            at=0,
            rest={"confidence": 0.9, "edge_type": "causal", "relation": "caused", **properties},
        )

    def summarise(self, level: int, tenant: str = "acme") -> str:
        """A summary of that level, of nobody's events; its own id."""
        own_id = summary_id(tenant, "session", f"level-{level}")
        self.driver.execute_query(
            f"MERGE (s:{SUMMARY.label} {{tenant: $tenant, summary_id: $own_id}}) "
            "SET s.level = $level, s.user_ids = []",
            tenant=tenant,
            own_id=own_id,
            level=level,
        )
        return own_id

    def sum_up(self, summary: str, node_ids: Sequence[str], tenant: str = "acme") -> None:
        """A summary is made from summaries and events, by wire ids."""
        self.driver.execute_query(
            f"MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: $own_id}}) "
            f"MATCH (n:{SUMMARY.label}|{EVENT.label} {{tenant: $tenant}}) "
            "WHERE coalesce(n.event_id, 'summary:' + n.summary_id) IN $node_ids "
            f"MERGE (s)-[:{SUMMARIZES.type}]->(n)",
            tenant=tenant,
            own_id=summary.removeprefix("summary:"),
            node_ids=list(node_ids),
        )

    def relate_sessions(
        self, session: str, other: str, resolution: str, tenant: str = "acme"
    ) -> None:
        """Both failed alike, and the other one's failure was resolved by an event."""
        self.driver.execute_query(
            f"MERGE (a:{SUMMARY.label} {{tenant: $tenant, summary_id: $a}}) "
            f"MERGE (b:{SUMMARY.label} {{tenant: $tenant, summary_id: $b}}) "
            "SET a.user_ids = [], b.user_ids = [] "
            f"CREATE (a)-[:{LINKED_TO.type} {{reason: 'similar_failure', score: 0.9, "
            "resolution_event_id: $resolution}]->(b)",
            tenant=tenant,
            a=summary_id(tenant, "session", session),
            b=summary_id(tenant, "session", other),
            resolution=resolution,
        )

    def settle(self) -> None:
        self.driver.execute_query("CALL db.index.fulltext.awaitEventuallyConsistentIndexRefresh()")


def vector(text: str) -> list[float]:
    """Something of unit length; texts with the same words have the same."""
    values = [0.0] * 384
    for word in text.lower().split():
        values[sum(map(ord, word)) % 384] += 1.0
    length = sum(value * value for value in values) ** 0.5 or 1.0
    return [value / length for value in values]


def ids(count: int) -> list[str]:
    return [str(uuid.UUID(int=number + 1)) for number in range(count)]


def ask(client: httpx.Client, query: str, **fields: Any) -> httpx.Response:
    """A question; machines are shared, so it may take its time."""
    body = {"query": query, "session_id": "s", "agent_id": "a", **PATIENT, **fields}
    return client.post("/v1/query/subgraph", json=body)


def atlas(answer: httpx.Response) -> AtlasResponse:
    """The answer, which has the form."""
    assert answer.status_code == 200, answer.text
    return AtlasResponse.model_validate_json(answer.text, strict=True)


def found_ids(answer: httpx.Response) -> list[str]:
    """Ids of the nodes, the best first."""
    return [node.node_id for node in atlas(answer).nodes]
