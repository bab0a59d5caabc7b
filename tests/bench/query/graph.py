"""A synthetic memory, always the same: conversations about topics, as the stages leave it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import neo4j
import numpy

from enrichment.names import canonical_name, entity_id
from pipelines.graph.neo4j import Neo4jGraph
from projections.schema import (
    CAUSED_BY,
    DIRECT,
    ENTITY,
    EVENT,
    FOLLOWS,
    REFERENCES,
    RELATES_TO,
    SIMILAR_TO,
    TENANT_TERM,
    VECTOR_DIMENSIONS,
    tenant_term,
)

TENANT = "bench"
SESSION = 40
TOPICS = 200
WORDS = 20_000
ENTITIES_A_TOPIC = 20
START_MS = 1_767_225_600_000
_BATCH = 1_000


@dataclass(frozen=True)
class Memory:
    """What the graph is made of.

    Attributes:
        size: events.
        seed: of everything.
    """

    size: int
    seed: int = 7

    @cached_property
    def vocabulary(self) -> list[str]:
        chosen = random.Random(self.seed)
        syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
        return ["".join(chosen.choices(syllables, k=chosen.randint(2, 4))) for _ in range(WORDS)]

    @cached_property
    def topics(self) -> Any:
        found = numpy.random.default_rng(self.seed).normal(size=(TOPICS, VECTOR_DIMENSIONS))
        return found / numpy.linalg.norm(found, axis=1, keepdims=True)

    def text(self, topic: int, chosen: random.Random, words: int = 14) -> str:
        """Frequent words, and some of the topic."""
        frequent = [self.vocabulary[int(chosen.paretovariate(1.1)) % WORDS] for _ in range(words)]
        own = [self.vocabulary[(topic * 37 + chosen.randrange(30)) % WORDS] for _ in range(4)]
        names = [self.name(topic, chosen.randrange(ENTITIES_A_TOPIC))]
        return " ".join([*frequent, *own, *names])

    def name(self, topic: int, number: int) -> str:
        """Of an entity."""
        place = (topic * ENTITIES_A_TOPIC + number) % WORDS
        return f"{self.vocabulary[place].title()} {self.vocabulary[place - 1].title()}"

    def incoming(self, number: int) -> dict[str, Any]:
        """An event that comes in while questions are asked."""
        chosen = random.Random(f"incoming {number}")
        return {
            "event_id": str(uuid.uuid4()),
            "event_type": "agent.message",
            "occurred_at": datetime.now(UTC).isoformat(),
            "session_id": f"incoming-{number // SESSION}",
            "agent_id": f"agent-{number % 7}",
            "trace_id": f"incoming-{number // SESSION}",
            "payload": {"text": self.text(chosen.randrange(TOPICS), chosen)},
        }

    def questions(self, count: int, seed: int) -> list[str]:
        """All different, about what is there."""
        chosen = random.Random(seed)
        starts = ("Why did", "When was", "What is", "What else is like", "Tell me about")
        return [
            f"{chosen.choice(starts)} {self.text(chosen.randrange(TOPICS), chosen, 2)} {number}?"
            for number in range(count)
        ]

    def event_id(self, number: int) -> str:
        return str(uuid.UUID(int=number + 1))

    def events(self) -> Iterator[dict[str, Any]]:
        chosen = random.Random(self.seed)
        noise = numpy.random.default_rng(self.seed + 1)
        for number in range(self.size):
            topic = (number // SESSION * 13) % TOPICS
            vector = self.topics[topic] + 0.06 * noise.normal(size=VECTOR_DIMENSIONS)
            entities = [chosen.randrange(ENTITIES_A_TOPIC) for _ in range(2)]
            yield {
                "id": self.event_id(number),
                "session": f"session-{number // SESSION}",
                "agent": f"agent-{topic % 7}",
                "at": START_MS + number * 10_000,
                "position": f"{START_MS + number}-0",
                "text": self.text(topic, chosen),
                "importance": chosen.randint(1, 10),
                "vector": (vector / numpy.linalg.norm(vector)).tolist(),
                "before": self.event_id(number - 1) if number % SESSION else None,
                "cause": self.event_id(number - 1) if number % SESSION and number % 3 else None,
                "like": self.event_id(number - 5) if number % SESSION > 5 else None,
                "entities": [self._id(topic, one) for one in set(entities)],
                "agent_entity": entity_id(TENANT, f"agent-{topic % 7}", "agent"),
            }

    def entities(self) -> Iterator[dict[str, Any]]:
        for topic in range(TOPICS):
            for number in range(ENTITIES_A_TOPIC):
                yield {
                    "id": self._id(topic, number),
                    "name": self.name(topic, number),
                    "canonical": canonical_name(self.name(topic, number)),
                    "type": "concept",
                    "other": self._id(topic, (number + 1) % ENTITIES_A_TOPIC),
                }
        for number in range(7):
            name = f"agent-{number}"
            own = entity_id(TENANT, name, "agent")
            yield {"id": own, "name": name, "canonical": name, "type": "agent", "other": own}

    def _id(self, topic: int, number: int) -> str:
        return entity_id(TENANT, canonical_name(self.name(topic, number)), "concept")


_ENTITIES = (
    f"UNWIND $rows AS r MERGE (n:{ENTITY.label} {{tenant: $tenant, entity_id: r.id}}) "
    f"SET n.name = r.name, n.canonical_name = r.canonical, n.entity_type = r.type, "
    f"n.{TENANT_TERM} = $term"
)
_FACTS = (
    f"UNWIND $rows AS r MATCH (a:{ENTITY.label} {{tenant: $tenant, entity_id: r.id}}) "
    f"MATCH (b:{ENTITY.label} {{tenant: $tenant, entity_id: r.other}}) WHERE a <> b "
    f"CREATE (a)-[:{RELATES_TO.type} {{relation: 'uses', edge_type: 'semantic', confidence: 0.8, "
    "valid_from: datetime({epochMillis: 0}), event_id: $first, fact: 'uses', source: 'system', "
    "status: 'staged', support_count: 1}]->(b)"
)
_EVENTS = (
    f"UNWIND $rows AS r CREATE (e:{EVENT.label} {{tenant: $tenant, event_id: r.id, "
    "session_id: r.session, agent_id: r.agent, trace_id: r.session, event_type: 'message.user', "
    "occurred_at: datetime({epochMillis: r.at}), global_position: r.position, schema_version: 1, "
    "text: r.text, summary: r.text, importance_score: r.importance, embedding: r.vector, "
    f"{TENANT_TERM}: $term}})"
)
_EDGES = (
    f"UNWIND $rows AS r MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: r.id}}) "
    f"CALL (e, r) {{ MATCH (b:{EVENT.label} {{tenant: $tenant, event_id: r.before}}) "
    f"CREATE (b)-[:{FOLLOWS.type} {{session_id: r.session, delta_ms: 10000}}]->(e) }} "
    f"CALL (e, r) {{ MATCH (b:{EVENT.label} {{tenant: $tenant, event_id: r.cause}}) "
    f"CREATE (e)-[:{CAUSED_BY.type} {{mechanism: '{DIRECT}'}}]->(b) }} "
    f"CALL (e, r) {{ MATCH (b:{EVENT.label} {{tenant: $tenant, event_id: r.like}}) "
    f"CREATE (e)-[:{SIMILAR_TO.type} {{score: 0.9}}]->(b) }} "
    "CALL (e, r) { UNWIND r.entities + [r.agent_entity] AS id "
    f"MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    f"CREATE (e)-[:{REFERENCES.type} {{role: 'object'}}]->(n) }}"
)


def fill(driver: neo4j.Driver, memory: Memory) -> None:
    """Write the memory to an empty graph, and wait for its indexes."""
    Neo4jGraph(driver).ensure_schema()
    common = {"tenant": TENANT, "term": tenant_term(TENANT), "first": memory.event_id(0)}
    entities = list(memory.entities())
    for text in (_ENTITIES, _FACTS):
        driver.execute_query(text, {"rows": entities, **common})
    batch: list[dict[str, Any]] = []
    for event in memory.events():
        batch.append(event)
        if len(batch) == _BATCH:
            _write(driver, batch, common)
            batch = []
    if batch:
        _write(driver, batch, common)
    driver.execute_query("CALL db.index.fulltext.awaitEventuallyConsistentIndexRefresh()")
    driver.execute_query("CALL db.awaitIndexes(300)")


def _write(driver: neo4j.Driver, rows: Sequence[dict[str, Any]], common: dict[str, Any]) -> None:
    driver.execute_query(_EVENTS, {"rows": rows, **common})
    edges = [{name: value for name, value in row.items() if name != "vector"} for row in rows]
    driver.execute_query(_EDGES, {"rows": edges, **common})
