"""One row per node label and edge type; everything that must agree about them is derived from here.

MERGE text, constraints and indexes, validation of operations, intent weights, counts, metric
labels, what `verify` covers and the table in `docs/reference/schema.md` come from these rows.
No other module spells the name of an edge type (`tests/architecture` forbids it).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Certainty(StrEnum):
    """What "right" means for a piece of the graph, and so whether the digest covers it."""

    FOLDED = "folded"
    """An exact, order-free function of the events."""
    RECORDED = "recorded"
    """The outcome of a decision event, applied as recorded."""
    APPROXIMATE = "approximate"
    """Depends on floating point or nearest-neighbour search; checked by invariants."""
    POSITION = "position"
    """Where the ledger keeps it; compared apart, so that ledgers with the same events agree."""


class Kind(StrEnum):
    """Type of a property. Times travel as milliseconds since the epoch, stored as DATETIME."""

    STRING = "STRING"
    INTEGER = "INTEGER"
    FLOAT = "FLOAT"
    BOOLEAN = "BOOLEAN"
    TIME = "DATETIME"
    STRINGS = "LIST<STRING>"
    TIMES = "LIST<DATETIME>"
    VECTOR = "LIST<FLOAT>"


class View(StrEnum):
    """The orthogonal views of S0, and the two that hold no edge between events."""

    TEMPORAL = "temporal"
    CAUSAL = "causal"
    SEMANTIC = "semantic"
    ENTITY = "entity"
    HIERARCHICAL = "hierarchical"


@dataclass(frozen=True, slots=True)
class Property:
    """One property and the stage that writes it; no other stage ever touches it."""

    name: str
    kind: Kind
    stage: str = "projection"
    certainty: Certainty = Certainty.FOLDED


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node label. `key` is unique and never changes; `indexes` are composite range indexes."""

    label: str
    key: tuple[str, ...]
    properties: tuple[Property, ...]
    stage: str
    certainty: Certainty
    meaning: str
    indexes: tuple[tuple[str, ...], ...] = ()
    operational: bool = False
    """Bookkeeping of Recollect itself, not memory."""

    def owned(self, stage: str) -> tuple[Property, ...]:
        """The properties that a stage writes, in the order in which operations carry them."""
        return tuple(p for p in self.properties if p.stage == stage)


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """An edge type. `key` are the properties that tell parallel edges of one pair apart."""

    type: str
    source: str
    target: str
    properties: tuple[Property, ...]
    stage: str
    certainty: Certainty
    view: View
    prov: str
    weights: dict[str, float]
    meaning: str
    key: tuple[str, ...] = ()
    cap_per_node: int | None = None
    retention: str = "as its ends"
    origin: str = "S0"


INTENTS: Final = ("why", "when", "what", "related", "general")


def _weights(
    why: float, when: float, what: float, related: float, general: float
) -> dict[str, float]:
    return dict(zip(INTENTS, (why, when, what, related, general), strict=True))


PLACEHOLDER: Final = "Placeholder"
"""Second label of an Event that is only the cause of another so far; no read or count sees it."""

EVENT: Final = NodeRow(
    label="Event",
    key=("tenant", "event_id"),
    properties=(
        Property("event_type", Kind.STRING),
        Property("occurred_at", Kind.TIME),
        Property("session_id", Kind.STRING),
        Property("agent_id", Kind.STRING),
        Property("trace_id", Kind.STRING),
        Property("tool_name", Kind.STRING),
        Property("status", Kind.STRING),
        Property("ended_at", Kind.TIME),
        Property("parent_event_id", Kind.STRING),
        Property("user_id", Kind.STRING),
        Property("schema_version", Kind.INTEGER),
        Property("payload_ref", Kind.STRING),
        Property("importance_hint", Kind.INTEGER),
        Property("global_position", Kind.STRING, certainty=Certainty.POSITION),
    ),
    stage="projection",
    certainty=Certainty.FOLDED,
    meaning="something an agent did",
    indexes=(("tenant", "session_id", "occurred_at", "event_id"),),
)
CHECKPOINT: Final = NodeRow(
    label="Checkpoint",
    key=("stage", "partition"),
    properties=(
        Property("position", Kind.STRING),
        Property("seq", Kind.INTEGER),
        Property("digest", Kind.STRING),
        Property("generation", Kind.INTEGER),
        Property("fold_version", Kind.INTEGER),
    ),
    stage="every",
    certainty=Certainty.RECORDED,
    meaning="how far a stage has folded a partition; moves in the transaction that folds",
    operational=True,
)
DEAD_LETTER: Final = NodeRow(
    label="DeadLetter",
    key=("stage", "partition", "seq"),
    properties=(
        Property("position", Kind.STRING),
        Property("tenant", Kind.STRING),
        Property("event_id", Kind.STRING),
        Property("kind", Kind.STRING),
        Property("reason", Kind.STRING),
        Property("attempts", Kind.INTEGER),
    ),
    stage="every",
    certainty=Certainty.RECORDED,
    meaning="an entry that a stage could not fold and has passed",
    operational=True,
)
POISON: Final = "poison"
"""`kind` of a dead letter that its own stage cannot fold."""
DROPPED: Final = "dropped"
"""`kind` of one that a person gave up: kept, listed on request, no longer counted."""

FORGOTTEN: Final = NodeRow(
    label="Forgotten",
    key=("tenant", "event_id"),
    properties=(),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="tombstone of a forgotten event: the projection does not bring it back",
    operational=True,
)
NODES: Final[dict[str, NodeRow]] = {
    row.label: row for row in (EVENT, CHECKPOINT, DEAD_LETTER, FORGOTTEN)
}

FOLLOWS: Final = EdgeRow(
    type="FOLLOWS",
    source="Event",
    target="Event",
    properties=(Property("session_id", Kind.STRING), Property("delta_ms", Kind.INTEGER)),
    stage="projection",
    certainty=Certainty.FOLDED,
    view=View.TEMPORAL,
    prov="(none; qualifiedStart, qualifiedEnd)",
    weights=_weights(1.0, 5.0, 1.0, 0.5, 2.0),
    meaning="the next retained event of the session, sorted by (occurred_at, event_id)",
)
CAUSED_BY: Final = EdgeRow(
    type="CAUSED_BY",
    source="Event",
    target="Event",
    properties=(Property("mechanism", Kind.STRING),),
    stage="projection",
    certainty=Certainty.FOLDED,
    view=View.CAUSAL,
    prov="wasGeneratedBy, wasInformedBy",
    weights=_weights(5.0, 1.0, 2.0, 1.5, 2.0),
    meaning="effect to cause; direct from parent_event_id",
    key=("mechanism",),
)
EDGES: Final[dict[str, EdgeRow]] = {row.type: row for row in (FOLLOWS, CAUSED_BY)}

DIRECT: Final = "direct"
"""`mechanism` of a cause that the producer named."""

MAX_WEIGHT: Final = 5.0
"""The largest intent weight; path scores multiply weight / MAX_WEIGHT."""

INTENT_WEIGHTS: Final[dict[str, dict[str, float]]] = {
    intent: {row.type: row.weights[intent] for row in EDGES.values()} for intent in INTENTS
}


def schema_statements() -> list[str]:
    """Cypher that creates every constraint and index; running it twice changes nothing."""
    statements = []
    for row in NODES.values():
        keys = ", ".join(f"n.{name}" for name in row.key)
        statements.append(
            f"CREATE CONSTRAINT {row.label.lower()}_key IF NOT EXISTS "
            f"FOR (n:{row.label}) REQUIRE ({keys}) IS UNIQUE"
        )
        for number, columns in enumerate(row.indexes):
            listed = ", ".join(f"n.{name}" for name in columns)
            statements.append(
                f"CREATE INDEX {row.label.lower()}_index_{number} IF NOT EXISTS "
                f"FOR (n:{row.label}) ON ({listed})"
            )
    return statements
