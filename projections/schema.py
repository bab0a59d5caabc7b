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
    INTEGERS = "LIST<INTEGER>"
    TIMES = "LIST<DATETIME>"
    VECTOR = "LIST<FLOAT>"
    BYTES = "BYTEARRAY"


class View(StrEnum):
    """The orthogonal views of S0, and the two that hold no edge between events."""

    TEMPORAL = "temporal"
    CAUSAL = "causal"
    SEMANTIC = "semantic"
    ENTITY = "entity"
    HIERARCHICAL = "hierarchical"


class Merge(StrEnum):
    """What becomes of a value when a node or an edge is written again."""

    REPLACED = "replaced"
    EARLIEST = "earliest"
    """Stays with the write whose `NodeRow.earliest_by` is the smallest."""
    LATEST = "latest"
    """The largest value stays."""
    KEPT = "kept"
    """The first value stays; None leaves it as it is."""
    DECIDED = "decided"
    """Written by decision events alone; of two the one with the later position stays."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property and the stage that writes it; no other stage ever touches it."""

    name: str
    kind: Kind
    stage: str = "projection"
    certainty: Certainty = Certainty.FOLDED
    merge: Merge = Merge.REPLACED


DECIDED_AT: Final = "_decided_at"
"""Suffix of the property with the position of the decision that set a decided one."""

TENANT_TERM: Final = "tenant_term"
"""Property beside the texts of a full-text index: the tenant as one word that no analyzer changes.

Lucene ranks before a query could filter, so the best of a small tenant would drown in those of a
large one unless the search itself is told the tenant. The tenant as it is would not do: analyzers
split it at a hyphen, take its end for a suffix, and drop it when it is a stop word.
"""


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
    placeholder: str | None = None
    """Second label of a node that was asked for before it came: until then it holds its key (and
    what was decided of it) alone, and no read or count sees it."""
    earliest_by: tuple[str, str] | None = None
    """The properties (a time, a string) by which the `EARLIEST` write is chosen."""
    vector: str | None = None
    """The property that a vector index covers, within the tenant."""
    fulltext: tuple[str, ...] = ()
    """The properties that a full-text index covers, within the tenant."""
    analyzer: str = ""
    """How the full-text index takes text apart, by its name in Neo4j."""
    is_searched: bool = True
    """Whether those two indexes are asked by Recollect; else a setting makes them, for people."""

    def owned(self, stage: str) -> tuple[Property, ...]:
        """The properties that a stage writes: exactly those that its operations carry."""
        return tuple(
            p for p in self.properties if p.stage == stage and p.merge is not Merge.DECIDED
        )

    def property(self, name: str) -> Property:
        """The property of that name."""
        return next(p for p in self.properties if p.name == name)

    def stored(self) -> tuple[Property, ...]:
        """All that a store keeps of a node: the key, the properties, and what follows from them.

        That is where each decided one was decided, and the tenant's term beside searched texts.
        """
        key = (Property(name, Kind.STRING) for name in self.key)
        positions = (
            Property(f"{p.name}{DECIDED_AT}", Kind.INTEGERS, p.stage, Certainty.POSITION)
            for p in self.properties
            if p.merge is Merge.DECIDED
        )
        searched = [p.stage for p in self.properties if p.name in self.fulltext]
        terms = [Property(TENANT_TERM, Kind.STRING, stage) for stage in searched[:1]]
        return (*key, *self.properties, *positions, *terms)


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
    shared_by: tuple[str, dict[str, str]] | None = None
    """A property of the key, and its value for each stage that writes edges of this type."""
    other_target: str | None = None
    """A second label that edges of this type may end at."""
    decided_by: str | None = None
    """The property with the position of the decision; of two the later one stays."""

    def carried(self, stage: str) -> tuple[Property, ...]:
        """The properties that a stage's operations carry: the key's and its own."""
        return tuple(p for p in self.properties if p.stage == stage or p.name in self.key)

    def written_by(self, stage: str) -> bool:
        """Whether the stage makes edges of this type."""
        return stage == self.stage or (self.shared_by is not None and stage in self.shared_by[1])


DIRECT: Final = "direct"
"""`mechanism` of a cause that the producer named."""
INFERRED: Final = "inferred"
"""`mechanism` of a cause that a rule found."""

ABOUT_PERSONS: Final = ("who_is", "how_does", "personalize")
"""Intents about a person, which S0 leaves to its extension ADR-0012."""
INTENTS: Final = ("why", "when", "what", "related", "general", *ABOUT_PERSONS)


def _weights(
    why: float,
    when: float,
    what: float,
    related: float,
    general: float,
    *,
    persons: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> dict[str, float]:
    """Weights by intent: the five of S0, then those of ABOUT_PERSONS."""
    return dict(zip(INTENTS, (why, when, what, related, general, *persons), strict=True))


def _decided(name: str, kind: Kind, merge: Merge = Merge.REPLACED) -> Property:
    return Property(
        name=name, kind=kind, stage="consolidation", certainty=Certainty.RECORDED, merge=merge
    )


def _decided_at() -> Property:
    """The position of the decision that wrote the rest."""
    return Property("decided_at", Kind.INTEGERS, "consolidation", Certainty.POSITION)


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
        Property("consent_ref", Kind.STRING),
        Property("schema_version", Kind.INTEGER),
        Property("payload_ref", Kind.STRING),
        Property("importance_hint", Kind.INTEGER),
        Property("global_position", Kind.STRING, certainty=Certainty.POSITION),
        Property("kind", Kind.STRING, "enrichment"),
        Property("text", Kind.STRING, "enrichment"),
        Property("speaker", Kind.STRING, "enrichment"),
        Property("keywords", Kind.STRINGS, "enrichment"),
        Property("summary", Kind.STRING, "enrichment"),
        Property("importance_score", Kind.INTEGER, "enrichment"),
        Property("embedding", Kind.VECTOR, "enrichment", Certainty.APPROXIMATE),
        Property("embedding_model", Kind.STRING, "enrichment", Certainty.APPROXIMATE),
        _decided("importance_boost", Kind.FLOAT, Merge.DECIDED),
        _decided("parted_from", Kind.STRINGS, Merge.DECIDED),
        _decided("access_count", Kind.INTEGER, Merge.DECIDED),
        _decided("last_accessed_at", Kind.TIME, Merge.DECIDED),
    ),
    stage="projection",
    certainty=Certainty.FOLDED,
    meaning="something an agent did",
    indexes=(
        ("tenant", "session_id", "occurred_at", "event_id"),
        ("tenant", "tool_name", "status", "occurred_at"),
        ("tenant", "kind", "occurred_at"),
    ),
    placeholder=PLACEHOLDER,
    vector="embedding",
    fulltext=("text",),
    analyzer="english",
    is_searched=False,  # columns are
)
ENTITY: Final = NodeRow(
    label="Entity",
    key=("tenant", "entity_id"),
    properties=(
        Property("canonical_name", Kind.STRING, "enrichment"),
        Property("entity_type", Kind.STRING, "enrichment"),
        Property("name", Kind.STRING, "enrichment", merge=Merge.EARLIEST),
        Property("subtype", Kind.STRING, "enrichment", merge=Merge.EARLIEST),
        Property("first_seen", Kind.TIME, "enrichment", merge=Merge.EARLIEST),
        Property("first_event_id", Kind.STRING, "enrichment", merge=Merge.EARLIEST),
        Property("first_user_id", Kind.STRING, "enrichment", merge=Merge.EARLIEST),
        Property("last_seen", Kind.TIME, "enrichment", merge=Merge.LATEST),
        Property(
            name="embedding",
            kind=Kind.VECTOR,
            stage="enrichment",
            certainty=Certainty.APPROXIMATE,
            merge=Merge.KEPT,
        ),
        Property(
            "display_name", Kind.STRING, "enrichment", Certainty.RECORDED, merge=Merge.DECIDED
        ),
        Property(
            "corrected_type", Kind.STRING, "enrichment", Certainty.RECORDED, merge=Merge.DECIDED
        ),
        _decided("status", Kind.STRING, Merge.DECIDED),
        _decided("access_count", Kind.INTEGER, Merge.DECIDED),
        _decided("last_accessed_at", Kind.TIME, Merge.DECIDED),
    ),
    stage="enrichment",
    certainty=Certainty.FOLDED,
    meaning="something that events mention, by its own normalised name and type",
    indexes=(("tenant", "canonical_name"),),
    placeholder="Unmentioned",
    earliest_by=("first_seen", "first_event_id"),
    vector="embedding",
    fulltext=("canonical_name", "name", "display_name"),
    # Names have no stems, and accents do not matter. Stop words are left out, so a name that is
    # nothing else ("It") is found as it stands, by the index of canonical names.
    analyzer="standard-folding",
)
FACT_HISTORY: Final = NodeRow(
    label="FactHistory",
    key=("tenant", "history_id"),
    properties=(Property("entries", Kind.STRINGS, "enrichment"),),
    stage="enrichment",
    certainty=Certainty.FOLDED,
    meaning="everything that was ever said about one fact: its intervals are computed from it",
    operational=True,
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
        Property("models", Kind.STRING),
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
    indexes=(("tenant", "event_id"),),
    operational=True,
)
POISON: Final = "poison"
"""`kind` of a dead letter that its own stage cannot fold."""
BLOCKED_BY: Final = "blocked_by"
"""`kind` of one that misses what an earlier stage could not fold."""
HELD_OUT: Final = "held_out"
"""`kind` of one whose entry is not what was appended; folded when it has been put right."""
DROPPED: Final = "dropped"
"""`kind` of one that a person gave up: kept, listed on request, no longer counted."""

FORGOTTEN: Final = NodeRow(
    label="Forgotten",
    key=("tenant", "event_id"),
    properties=(
        _decided("session_id", Kind.STRING, Merge.KEPT),
        _decided("user_id", Kind.STRING, Merge.KEPT),
        _decided("occurred_at", Kind.TIME, Merge.KEPT),
        _decided("importance_score", Kind.INTEGER, Merge.KEPT),
        _decided("summary_id", Kind.STRING, Merge.KEPT),
        # its vector's whole numbers in base64: later events are compared with it as before
        Property(
            name="vector",
            kind=Kind.STRING,
            stage="consolidation",
            certainty=Certainty.APPROXIMATE,
            merge=Merge.KEPT,
        ),
        _decided("tier", Kind.STRING, Merge.DECIDED),
        _decided("recalled", Kind.BOOLEAN, Merge.DECIDED),
        _decided("parted_from", Kind.STRINGS, Merge.DECIDED),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="tombstone of a forgotten event: the projection does not bring it back, "
    "unless it was recalled",
    indexes=(
        ("tenant", "session_id", "occurred_at", "event_id"),
        ("recalled", "tenant", "event_id"),
    ),
    operational=True,
)
SUMMARY: Final = NodeRow(
    label="Summary",
    key=("tenant", "summary_id"),
    properties=(
        _decided("scope", Kind.STRING),
        _decided("scope_id", Kind.STRING),
        _decided("session_id", Kind.STRING),
        _decided("user_ids", Kind.STRINGS),
        _decided("content", Kind.STRING),
        _decided("worded_by", Kind.STRING),
        _decided("level", Kind.INTEGER),
        _decided("event_count", Kind.INTEGER),
        _decided("importance_total", Kind.INTEGER),
        _decided("failed_count", Kind.INTEGER),
        _decided("time_range", Kind.TIMES),
        _decided("source_digest", Kind.STRING),
        _decided("source_event_ids", Kind.STRINGS),
        _decided("gist", Kind.STRING),
        _decided("created_at", Kind.TIME),
        _decided("event_id", Kind.STRING),
        _decided_at(),
        _decided("gone", Kind.BOOLEAN, Merge.DECIDED),
        _decided("link_count", Kind.INTEGER, Merge.DECIDED),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="what an episode (level 1), a session (2) or an agent (3) comes to, for each user",
    indexes=(("tenant", "session_id", "summary_id"),),
    placeholder="Unwritten",
)
COMMUNITY: Final = NodeRow(
    label="Community",
    key=("tenant", "community_id"),
    properties=(
        _decided("name", Kind.STRING),
        _decided("summary", Kind.STRING),
        _decided("worded_by", Kind.STRING),
        _decided("fingerprint", Kind.STRING),
        _decided("member_count", Kind.INTEGER),
        _decided("user_id", Kind.STRING),
        _decided("user_ids", Kind.STRINGS),
        _decided("created_at", Kind.TIME, Merge.KEPT),
        _decided("updated_at", Kind.TIME),
        Property("centroid", Kind.VECTOR, "consolidation", Certainty.APPROXIMATE),
        _decided("run_id", Kind.STRING),
        _decided("event_id", Kind.STRING),
        _decided_at(),
        _decided("gone", Kind.BOOLEAN, Merge.DECIDED),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="entities that belong together more than with others",
    placeholder="Unnamed",
)
TRAIT: Final = NodeRow(
    label="Trait",
    key=("tenant", "trait_id"),
    properties=(
        _decided("kind", Kind.STRING),
        _decided("name", Kind.STRING),
        _decided("user_id", Kind.STRING),
        _decided("user_ids", Kind.STRINGS),
        _decided("strength", Kind.FLOAT),
        _decided("session_count", Kind.INTEGER),
        _decided("first_seen", Kind.TIME),
        _decided("last_seen", Kind.TIME),
        _decided("holds_until", Kind.TIME),
        # beside the edges to them: what proves it may be forgotten, and is named all the same
        _decided("event_ids", Kind.STRINGS),
        _decided("parent_id", Kind.STRING),
        _decided("event_id", Kind.STRING),
        _decided_at(),
        _decided("gone", Kind.BOOLEAN, Merge.DECIDED),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="what several sessions of a user have in common: a habit (`pattern`), a `skill`, "
    "an `interest`; until when it holds unless it is seen again",
    indexes=(("tenant", "user_id"),),
    placeholder="Underived",
)
SCOPE: Final = NodeRow(
    label="Scope",
    key=("tenant", "session_id"),
    properties=(
        _decided("event_count", Kind.INTEGER),
        _decided("importance_total", Kind.INTEGER),
        _decided("seen_events", Kind.INTEGER),
        _decided("seen_importance", Kind.INTEGER),
        _decided("pending_events", Kind.INTEGER),
        _decided("pending_importance", Kind.INTEGER),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="how much happened in a session, and how much of it no summary has seen",
    indexes=(("tenant", "pending_importance"),),
    operational=True,
)
PASS: Final = NodeRow(
    label="Pass",
    key=("tenant",),
    properties=(
        _decided("run_id", Kind.STRING),
        _decided("started_at", Kind.TIME),
        _decided("ended_at", Kind.TIME),
        _decided("complete", Kind.BOOLEAN),
        _decided("communities_at", Kind.TIME),
        Property("answered_until", Kind.INTEGERS, "consolidation", Certainty.POSITION),
        Property("traits_until", Kind.INTEGERS, "consolidation", Certainty.POSITION),
        _decided("event_id", Kind.STRING),
        _decided_at(),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="the last pass of consolidation, and until where requests for one were answered",
    operational=True,
)
CONSOLIDATION_REQUEST: Final = NodeRow(
    label="ConsolidationRequest",
    key=("tenant", "event_id"),
    properties=(
        _decided("requested_at", Kind.TIME),
        _decided("request", Kind.STRING),
        Property("position", Kind.INTEGERS, "consolidation", Certainty.POSITION),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    meaning="a pass was asked for, and none has answered yet",
    operational=True,
)
NODES: Final[dict[str, NodeRow]] = {
    row.label: row
    for row in (
        EVENT,
        ENTITY,
        SUMMARY,
        COMMUNITY,
        TRAIT,
        CHECKPOINT,
        DEAD_LETTER,
        FORGOTTEN,
        FACT_HISTORY,
        SCOPE,
        PASS,
        CONSOLIDATION_REQUEST,
    )
}

FEED: Final = NodeRow(
    label="Feed",
    key=("name",),
    properties=(
        Property("identity", Kind.STRING),
        Property("number", Kind.INTEGER),
        Property("bytes", Kind.INTEGER),
    ),
    stage="every",
    certainty=Certainty.POSITION,
    meaning="the counter of a chain of the change feed; one more holds the feed's identity, which "
    "is another one once the graph was emptied",
    operational=True,
)
CHANGE: Final = NodeRow(
    label="Change",
    key=("chain", "number"),
    properties=(
        Property("payload", Kind.BYTES),
        # of all changes of the chain up to this one
        Property("bytes", Kind.INTEGER),
    ),
    stage="every",
    certainty=Certainty.POSITION,
    meaning="the keys that a transaction may have changed, told by itself; the last ones are kept",
    operational=True,
)
FEED_NODES: Final = (FEED, CHANGE)
"""Beside the graph, not of it: no read, count, census, digest or comparison knows them."""

FOLLOWS: Final = EdgeRow(
    type="FOLLOWS",
    source="Event",
    target="Event",
    properties=(Property("session_id", Kind.STRING), Property("delta_ms", Kind.INTEGER)),
    stage="projection",
    certainty=Certainty.FOLDED,
    view=View.TEMPORAL,
    prov="(none; qualifiedStart, qualifiedEnd)",
    weights=_weights(
        why=1.0, when=5.0, what=1.0, related=0.5, general=2.0, persons=(0.5, 4.0, 0.5)
    ),
    meaning="the next retained event of the session, sorted by (occurred_at, event_id)",
)
CAUSED_BY: Final = EdgeRow(
    type="CAUSED_BY",
    source="Event",
    target="Event",
    properties=(
        Property("mechanism", Kind.STRING),
        Property("rule", Kind.STRING, "enrichment"),
        Property("confidence", Kind.FLOAT, "enrichment"),
        Property("evidence", Kind.STRING, "enrichment"),
    ),
    stage="projection",
    certainty=Certainty.FOLDED,
    view=View.CAUSAL,
    prov="wasGeneratedBy, wasInformedBy",
    weights=_weights(
        why=5.0, when=1.0, what=2.0, related=1.5, general=2.0, persons=(0.5, 3.0, 1.0)
    ),
    meaning="effect to cause; direct from parent_event_id, inferred by a named rule",
    key=("mechanism",),
    shared_by=("mechanism", {"projection": DIRECT, "enrichment": INFERRED}),
)
SIMILAR_TO: Final = EdgeRow(
    type="SIMILAR_TO",
    source="Event",
    target="Event",
    properties=(Property("score", Kind.FLOAT, "enrichment"),),
    stage="enrichment",
    certainty=Certainty.FOLDED,
    view=View.SEMANTIC,
    prov="wasDerivedFrom (loose)",
    weights=_weights(
        why=1.5, when=0.5, what=2.0, related=5.0, general=2.0, persons=(1.0, 2.0, 2.0)
    ),
    meaning="plain cosine of the two texts above the threshold, to those before an event that are "
    "most like it; one edge a pair, smaller event_id first, read as undirected",
    cap_per_node=10,
    retention="warm: the top 3 of an event",
)
REFERENCES: Final = EdgeRow(
    type="REFERENCES",
    source="Event",
    target="Entity",
    properties=(
        Property("role", Kind.STRING, "enrichment"),
        # as this event spells it; None: as the entity's canonical name
        Property("name", Kind.STRING, "enrichment"),
    ),
    stage="enrichment",
    certainty=Certainty.FOLDED,
    view=View.ENTITY,
    prov="wasAssociatedWith, used",
    weights=_weights(
        why=2.0, when=1.0, what=5.0, related=2.0, general=2.0, persons=(4.0, 3.0, 3.0)
    ),
    meaning="the event mentions the entity; never redirected",
    key=("role",),
    cap_per_node=10,
)
RELATES_TO: Final = EdgeRow(
    type="RELATES_TO",
    source="Entity",
    target="Entity",
    properties=(
        Property("relation", Kind.STRING, "enrichment"),
        Property("edge_type", Kind.STRING, "enrichment"),
        Property("valid_from", Kind.TIME, "enrichment"),
        Property("event_id", Kind.STRING, "enrichment"),
        Property("fact", Kind.STRING, "enrichment"),
        Property("confidence", Kind.FLOAT, "enrichment"),
        Property("valid_to", Kind.TIME, "enrichment"),
        Property("expired_at", Kind.TIME, "enrichment", Certainty.POSITION),
        Property("source", Kind.STRING, "enrichment"),
        Property("status", Kind.STRING, "enrichment"),
        Property("user_id", Kind.STRING, "enrichment"),
        Property("supporting_event_ids", Kind.STRINGS, "enrichment"),
        Property("support_count", Kind.INTEGER, "enrichment"),
        # a sum of retrievals, each by its age at the last one: see consolidation/decay.py
        Property("retrieval_count", Kind.FLOAT, "consolidation", Certainty.APPROXIMATE),
        _decided("last_retrieved_at", Kind.TIME),
        _decided("faded_at", Kind.TIME),
    ),
    stage="enrichment",
    certainty=Certainty.FOLDED,
    view=View.ENTITY,
    prov="wasInfluencedBy",
    # by its own edge_type: causal as CAUSED_BY, temporal as FOLLOWS, semantic as SIMILAR_TO,
    # entity as REFERENCES; this is the entity one
    weights=_weights(
        why=2.0, when=1.0, what=5.0, related=2.0, general=2.0, persons=(5.0, 2.0, 5.0)
    ),
    meaning="a fact: what one entity is to another, and when it was true",
    key=("relation", "edge_type", "valid_from", "event_id"),
    origin="S2",
)
SAME_AS: Final = EdgeRow(
    type="SAME_AS",
    source="Entity",
    target="Entity",
    properties=(
        Property("confidence", Kind.FLOAT, "enrichment", Certainty.RECORDED),
        Property("justification", Kind.STRING, "enrichment", Certainty.RECORDED),
        Property("retracted", Kind.BOOLEAN, "enrichment", Certainty.RECORDED),
        Property("event_id", Kind.STRING, "enrichment", Certainty.RECORDED),
        Property("decided_at", Kind.INTEGERS, "enrichment", Certainty.POSITION),
    ),
    stage="enrichment",
    certainty=Certainty.RECORDED,
    view=View.ENTITY,
    prov="alternateOf",
    weights=_weights(
        why=5.0, when=5.0, what=5.0, related=5.0, general=5.0, persons=(5.0, 5.0, 5.0)
    ),
    meaning="two entities were found to be the same; smaller entity_id first",
    origin="S2",
    decided_by="decided_at",
)
SUMMARIZES: Final = EdgeRow(
    type="SUMMARIZES",
    source="Summary",
    target="Event",
    properties=(),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    view=View.HIERARCHICAL,
    prov="alternateOf, specializationOf",
    weights=_weights(
        why=1.0, when=0.5, what=2.0, related=1.5, general=2.0, persons=(1.0, 2.0, 0.5)
    ),
    meaning="what a summary is made from: events of an episode, episodes of a session, "
    "sessions of an agent",
    other_target="Summary",
)
MEMBER_OF: Final = EdgeRow(
    type="MEMBER_OF",
    source="Entity",
    target="Community",
    properties=(
        _decided("run_id", Kind.STRING),
        _decided_at(),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    view=View.ENTITY,
    prov="(none; the inverse of hadMember)",
    weights=_weights(
        why=0.5, when=0.5, what=0.5, related=0.5, general=0.5, persons=(0.5, 0.5, 0.5)
    ),
    meaning="the community of an entity; at most one",
    cap_per_node=1,
    origin="S2",
)
LINKED_TO: Final = EdgeRow(
    type="LINKED_TO",
    source="Summary",
    target="Summary",
    properties=(
        _decided("reason", Kind.STRING),
        _decided("score", Kind.FLOAT),
        _decided("evidence", Kind.STRINGS),
        _decided("resolution_event_id", Kind.STRING),
        _decided("effect_event_id", Kind.STRING),
        _decided("cause_event_id", Kind.STRING),
        _decided("event_id", Kind.STRING),
    ),
    stage="consolidation",
    certainty=Certainty.RECORDED,
    view=View.HIERARCHICAL,
    prov="wasInfluencedBy",
    weights=_weights(why=0.0, when=0.0, what=0.0, related=0.0, general=0.0),
    meaning="two sessions share rare entities, or failed alike, with the event that resolved it; "
    "or the other changed what a failure of this one names: effect and cause",
    key=("reason",),
    cap_per_node=10,
)


def _of_user(type_: str, persons: tuple[float, float, float], meaning: str) -> EdgeRow:
    return EdgeRow(
        type=type_,
        source="Entity",
        target="Trait",
        properties=(),
        stage="consolidation",
        certainty=Certainty.RECORDED,
        view=View.ENTITY,
        prov="wasInfluencedBy",
        # of a question about events a habit is no answer
        weights=_weights(why=0.0, when=0.0, what=0.0, related=0.0, general=0.0, persons=persons),
        meaning=meaning,
        origin="ADR-0012",
    )


EXHIBITS_PATTERN: Final = _of_user("EXHIBITS_PATTERN", (3.0, 5.0, 4.0), "a habit of the user")
HAS_SKILL: Final = _of_user("HAS_SKILL", (0.0, 5.0, 0.0), "what sessions of the user carry through")
INTERESTED_IN: Final = _of_user(
    "INTERESTED_IN", (3.0, 1.0, 3.0), "what the user speaks of again and again"
)
TRAIT_EDGES: Final = {
    "pattern": EXHIBITS_PATTERN,
    "skill": HAS_SKILL,
    "interest": INTERESTED_IN,
}
"""From a user to what is derived of them, by its kind."""


def _of_trait(
    type_: str,
    target: str,
    meaning: str,
    *,
    cap_per_node: int,
    persons: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> EdgeRow:
    return EdgeRow(
        type=type_,
        source="Trait",
        target=target,
        properties=(),
        stage="consolidation",
        certainty=Certainty.RECORDED,
        view=View.HIERARCHICAL,
        prov="wasDerivedFrom",
        weights=_weights(why=0.0, when=0.0, what=0.0, related=0.0, general=0.0, persons=persons),
        meaning=meaning,
        cap_per_node=cap_per_node,
        origin="ADR-0012",
    )


ABSTRACTED_FROM: Final = _of_trait(
    "ABSTRACTED_FROM",
    "Summary",
    "the newest sessions that show it, as the user is told of them",
    cap_per_node=20,
)
DERIVED_FROM: Final = _of_trait(
    "DERIVED_FROM",
    "Event",
    "the events that prove it, of the newest sessions, as long as they are retained",
    cap_per_node=20,
)
PARENT_SKILL: Final = _of_trait(
    "PARENT_SKILL",
    "Trait",
    "the skill that this one is a part of: of what its tool and others are called after, or of all "
    "that are used together",
    cap_per_node=1,
    persons=(0.0, 5.0, 0.0),
)

EDGES: Final[dict[str, EdgeRow]] = {
    row.type: row
    for row in (
        FOLLOWS,
        CAUSED_BY,
        SIMILAR_TO,
        REFERENCES,
        RELATES_TO,
        SAME_AS,
        SUMMARIZES,
        MEMBER_OF,
        LINKED_TO,
        *TRAIT_EDGES.values(),
        ABSTRACTED_FROM,
        DERIVED_FROM,
        PARENT_SKILL,
    )
}

MAX_SUPPORTING: Final = 20
"""Events that a fact names as its support: the newest ones."""
MAX_WEIGHT: Final = 5.0
"""The largest intent weight; path scores multiply weight / MAX_WEIGHT."""

INTENT_WEIGHTS: Final[dict[str, dict[str, float]]] = {
    intent: {row.type: row.weights[intent] for row in EDGES.values()} for intent in INTENTS
}
EDGE_CAPS: Final[dict[str, int]] = dict.fromkeys(EDGES, 10)
"""Edges of a type at one node that a walk follows, the best of them."""


def schema_statements() -> dict[str, str]:
    """By name Cypher that creates each constraint and index; again, it changes nothing."""
    statements = {}
    for row in (*NODES.values(), *FEED_NODES):
        keys = ", ".join(f"n.{name}" for name in row.key)
        statements[f"{row.label.lower()}_key"] = (
            f"CREATE CONSTRAINT {row.label.lower()}_key IF NOT EXISTS "
            f"FOR (n:{row.label}) REQUIRE ({keys}) IS UNIQUE"
        )
        for number, columns in enumerate(row.indexes):
            listed = ", ".join(f"n.{name}" for name in columns)
            statements[f"{row.label.lower()}_index_{number}"] = (
                f"CREATE INDEX {row.label.lower()}_index_{number} IF NOT EXISTS "
                f"FOR (n:{row.label}) ON ({listed})"
            )
    return statements


def stored_names() -> tuple[list[str], list[str], list[str]]:
    """Every label, type and property that a store may keep, each sorted."""
    rows = (*NODES.values(), *FEED_NODES)
    labels = {row.label for row in rows} | {row.placeholder for row in rows if row.placeholder}
    of_nodes = {p.name for row in rows for p in row.stored()}
    of_edges = {p.name for row in EDGES.values() for p in row.properties}
    return sorted(labels), sorted(EDGES), sorted(of_nodes | of_edges)


def index_definitions() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Label and properties of every index that there must be, by its name.

    Those of constraints bear their names.
    """
    indexes: dict[str, tuple[str, tuple[str, ...]]] = {}
    for row in (*NODES.values(), *FEED_NODES):
        indexes[f"{row.label.lower()}_key"] = row.label, row.key
        for number, columns in enumerate(row.indexes):
            indexes[f"{row.label.lower()}_index_{number}"] = row.label, columns
        if row.vector is not None and row.is_searched:
            indexes[vector_index(row)] = row.label, (row.vector,)
        if row.fulltext and row.is_searched:
            indexes[fulltext_index(row)] = row.label, (*row.fulltext, TENANT_TERM)
    return indexes


def constraint_names() -> frozenset[str]:
    """Names of the constraints, one for each label."""
    return frozenset(f"{row.label.lower()}_key" for row in (*NODES.values(), *FEED_NODES))


VECTOR_DIMENSIONS: Final = 384


def vector_index(row: NodeRow) -> str:
    """Name of the vector index of a label."""
    return f"{row.label.lower()}_vector"


CYPHER_25: Final = "CYPHER 25 "
"""Begins a text in the version of the language that can keep tenants apart in a vector index."""


def vector_statements(*, filtered: bool, browsed: bool) -> dict[str, str]:
    """By name Cypher that creates each vector index.

    Args:
        filtered: the server can keep the tenant in the index and search within it (Neo4j 2026);
            else the search asks for more and filters what it gets (5.26).
        browsed: people search there, so that also indexes are made which Recollect does not ask.
    """
    language, tenant = (CYPHER_25, "WITH [n.tenant] ") if filtered else ("", "")
    return {
        vector_index(row): f"{language}CREATE VECTOR INDEX {vector_index(row)} IF NOT EXISTS "
        f"FOR (n:{row.label}) ON n.{row.vector} {tenant}"
        f"OPTIONS {{indexConfig: {{`vector.dimensions`: {VECTOR_DIMENSIONS}, "
        "`vector.similarity_function`: 'cosine'}}"
        for row in NODES.values()
        if row.vector is not None and (row.is_searched or browsed)
    }


def fulltext_index(row: NodeRow) -> str:
    """Name of the full-text index of a label."""
    return f"{row.label.lower()}_fulltext"


def fulltext_statements(*, browsed: bool) -> dict[str, str]:
    """By name Cypher that creates each full-text index, which covers the tenant's term too.

    Args:
        browsed: see `vector_statements`.
    """
    return {
        fulltext_index(row): f"CREATE FULLTEXT INDEX {fulltext_index(row)} IF NOT EXISTS "
        f"FOR (n:{row.label}) "
        f"ON EACH [{', '.join(f'n.{name}' for name in (*row.fulltext, TENANT_TERM))}] "
        f"OPTIONS {{indexConfig: {{`fulltext.analyzer`: '{row.analyzer}'}}}}"
        for row in NODES.values()
        if row.fulltext and (row.is_searched or browsed)
    }


def tenant_term(tenant: str) -> str:
    """The word that stands for a tenant in full-text indexes, another one for each tenant.

    Letters and digits alone make it one word; a digit last makes it no English word, so that it
    has no stem and is no stop word. Digits tell `-` and `_` from what is written out.
    """
    for sign, code in _TENANT_CODES:
        tenant = tenant.replace(sign, code)
    return f"{tenant}{_TENANT_END}"


def tenant_term_text(expression: str) -> str:
    """Cypher of `tenant_term`, of a Cypher expression."""
    for sign, code in _TENANT_CODES:
        expression = f"replace({expression}, '{sign}', '{code}')"
    return f"{expression} + '{_TENANT_END}'"


_TENANT_CODES: Final = (("0", "00"), ("-", "01"), ("_", "02"))
_TENANT_END: Final = "03"
