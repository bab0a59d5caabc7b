"""A synthetic memory, always the same: conversations about topics, as the stages leave it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any

import numpy

from enrichment.names import canonical_name, entity_id
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.events import EventKind
from projections.operations import Key
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
    EdgeRow,
    NodeRow,
    tenant_term,
)

TENANT = "bench"
SESSION = 40
TOPICS = 200
WORDS = 20_000
ENTITIES_A_TOPIC = 20
AGENTS = 7
"""Each of them is mentioned by as many of the events as the others."""
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
            "agent_id": f"agent-{number % AGENTS}",
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
                "agent": f"agent-{topic % AGENTS}",
                "at": START_MS + number * 10_000,
                "position": f"{START_MS + number}-0",
                "text": self.text(topic, chosen),
                "importance": chosen.randint(1, 10),
                "vector": (vector / numpy.linalg.norm(vector)).tolist(),
                "before": self.event_id(number - 1) if number % SESSION else None,
                "cause": self.event_id(number - 1) if number % SESSION and number % 3 else None,
                "like": self.event_id(number - 5) if number % SESSION > 5 else None,
                "entities": [self._id(topic, one) for one in set(entities)],
                "agent_entity": entity_id(TENANT, f"agent-{topic % AGENTS}", "agent"),
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
        for number in range(AGENTS):
            name = f"agent-{number}"
            own = entity_id(TENANT, name, "agent")
            yield {"id": own, "name": name, "canonical": name, "type": "agent", "other": own}

    def _id(self, topic: int, number: int) -> str:
        return entity_id(TENANT, canonical_name(self.name(topic, number)), "concept")


def fill(graph: Neo4jGraph, memory: Memory) -> None:
    """Write the memory to an empty graph, and wait for its indexes."""
    graph.ensure_schema()
    entities = list(memory.entities())
    for some in _batches(entities):
        with graph.transaction() as transaction:
            transaction.restore_nodes(ENTITY.label, map(_entity, some))
    for some in _batches(one for one in entities if one["id"] != one["other"]):
        with graph.transaction() as transaction:
            facts = (_fact(one, memory.event_id(0)) for one in some)
            transaction.restore_edges(RELATES_TO.type, facts)
    for some in _batches(memory.events()):
        with graph.transaction() as transaction:
            transaction.restore_nodes(EVENT.label, map(_event, some))
            for type_, edges in _edges(some).items():
                transaction.restore_edges(type_, edges)
    graph.client.write("CALL db.index.fulltext.awaitEventuallyConsistentIndexRefresh()")
    graph.client.write("CALL db.awaitIndexes(300)")


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    left = iter(rows)
    while some := list(islice(left, _BATCH)):
        yield some


def _key(own_id: str) -> Key:
    return TENANT, own_id


def _node(row: NodeRow, own_id: str, **values: Any) -> FoundNode:
    held = dict.fromkeys(p.name for p in row.stored() if p.name not in row.key)
    return FoundNode(_key(own_id), True, held | {TENANT_TERM: tenant_term(TENANT)} | values, False)


def _edge(row: EdgeRow, ends: tuple[str, str], **values: Any) -> FoundEdge:
    held: dict[str, Any] = dict.fromkeys(p.name for p in row.properties)
    source, target = map(_key, ends)
    return FoundEdge(source, target, row.target, held | values)


def _entity(row: dict[str, Any]) -> FoundNode:
    names = {"name": row["name"], "canonical_name": row["canonical"], "entity_type": row["type"]}
    return _node(ENTITY, row["id"], **names)


def _fact(row: dict[str, Any], event_id: str) -> FoundEdge:
    return _edge(
        RELATES_TO,
        (row["id"], row["other"]),
        relation="uses",
        edge_type="semantic",
        confidence=0.8,
        valid_from=0,
        event_id=event_id,
        fact="uses",
        source="system",
        status="staged",
        support_count=1,
    )


def _event(row: dict[str, Any]) -> FoundNode:
    return _node(
        EVENT,
        row["id"],
        session_id=row["session"],
        agent_id=row["agent"],
        trace_id=row["session"],
        event_type="message.user",
        kind=EventKind.MESSAGE,
        occurred_at=row["at"],
        global_position=row["position"],
        schema_version=1,
        text=row["text"],
        summary=row["text"],
        importance_score=row["importance"],
        embedding=tuple(row["vector"]),
    )


def _edges(rows: Iterable[dict[str, Any]]) -> dict[str, list[FoundEdge]]:
    edges: dict[str, list[FoundEdge]] = {}

    def add(row: EdgeRow, source: str | None, target: str | None, **values: Any) -> None:
        if source is not None and target is not None:
            edges.setdefault(row.type, []).append(_edge(row, (source, target), **values))

    for event in rows:
        own_id = event["id"]
        add(FOLLOWS, event["before"], own_id, session_id=event["session"], delta_ms=10_000)
        add(CAUSED_BY, own_id, event["cause"], mechanism=DIRECT)
        add(SIMILAR_TO, own_id, event["like"], score=0.9)
        for entity in (*event["entities"], event["agent_entity"]):
            add(REFERENCES, own_id, entity, role="object")
    return edges
