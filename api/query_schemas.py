"""What goes over the wire of reads from the graph: their parameters, and how far they go."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from api.retrieval.intent import Intent
from api.retrieval.traverse import Direction
from api.schemas import Moment, Name, PositionText, RetrievalMethod, Wire

MAX_NODES: Final = 500
MAX_DEPTH: Final = 10
MIN_TIMEOUT_MS: Final = 100
MAX_TIMEOUT_MS: Final = 30_000
MAX_QUERY_CHARACTERS: Final = 8_192
MAX_SEED_NODES: Final = 50
MAX_CURSOR_CHARACTERS: Final = 40_000


class LedgerReadQuery(Wire):
    """Parameters of a read from the ledger, which always has what it has accepted."""

    min_position: PositionText | None = Field(
        default=None, description="Accepted for symmetry: the ledger is never behind itself."
    )


class GraphReadQuery(Wire):
    """Parameters of every read from the graph."""

    max_nodes: int = Field(default=100, ge=1, le=MAX_NODES)
    max_depth: int = Field(default=3, ge=1, le=MAX_DEPTH)
    timeout_ms: int = Field(
        default=5_000, ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS, description="Enforced in the database."
    )
    min_position: PositionText | None = Field(
        default=None,
        description="Read your writes: wait until the graph has this position. 504 if it does not "
        "get there within `timeout_ms`.",
    )
    as_of: Moment | None = Field(default=None, description="The clock for recency; default now.")
    as_of_position: PositionText | None = Field(
        default=None, description="What the memory knew then: events behind it are not seen."
    )


class AskedWeights(Wire):
    """How the rank of a query shall weigh; at least one above 0."""

    recency: float = Field(default=0.0, ge=0, le=100)
    importance: float = Field(default=0.0, ge=0, le=100)
    relevance: float = Field(default=1.0, ge=0, le=100)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.recency + self.importance + self.relevance <= 0:
            raise ValueError("at least one weight must be above 0")
        return self


SeedReference = Annotated[str, Field(min_length=1, max_length=600)]


class SubgraphQuery(GraphReadQuery):
    """A question, who asks it, and optionally how it shall be answered."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        description="The user's message or question, as it is.",
        examples=["Why do my customers' payments keep failing?"],
    )
    session_id: Name = Field(description="The session in which it is asked.")
    agent_id: Name = Field(description="The agent that asks.")
    user_id: Name | None = Field(
        default=None,
        description="For whom; default: the user of the session's events. What is of other users "
        "is never returned, what is of nobody is shared.",
    )
    intent: Intent | None = Field(default=None, description="Override; default: inferred.")
    seed_nodes: list[SeedReference] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SEED_NODES,
        description="Override: where to begin. Node ids, or `entity:<name>` where `_` and `-` read "
        "as space. Default: chosen from the query.",
    )
    retrieval_method: RetrievalMethod = "intent_weighted"
    scoring_weights: AskedWeights | None = Field(
        default=None, description="Default: the deployment's, echoed in `meta`."
    )
    diversity: float = Field(
        default=0.0, ge=0, le=1, description="How far nodes that say the same step back (MMR)."
    )
    proactive: bool = Field(
        default=True, description="Add nodes nobody asked for that the graph finds relevant."
    )
    include: list[Literal["content"]] = Field(
        default_factory=list, max_length=4, description="`content`: the events' payloads."
    )
    record_access: bool = Field(
        default=True, description="Count the nodes as read. Reads `as_of` never do."
    )
    max_tokens: int = Field(
        default=2_000,
        ge=50,
        le=32_000,
        description="Of the evidence that `Accept: text/markdown` gives; estimated.",
    )
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CURSOR_CHARACTERS,
        description="`next_cursor` of the page before, with the same query.",
    )


class ContextQuery(GraphReadQuery):
    """Parameters of a session's context. `max_depth` is echoed: a session has no depth."""


class LineageQuery(GraphReadQuery):
    """Parameters of a lineage."""

    intent: Intent | None = Field(
        default=None, description="Default why. `when` follows the session's order, others causes."
    )
    direction: Direction = Field(default=Direction.CAUSES)
