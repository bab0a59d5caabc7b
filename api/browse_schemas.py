"""What goes over the wire of looking around: sessions, neighbours, facts over time, changes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from api.read_schemas import (
    MAX_PAGE,
    AtlasPage,
    Fact,
    GraphReadQuery,
    MaxTokens,
    PageMeta,
    PageQuery,
    Until,
)
from api.schemas import NOW, Moment, Name, PositionText, ShownMoment, StoredEvent, Wire
from enrichment.event_kinds import EventKind
from pipelines.ledger.erasing import STEPS
from projections.identity import Position
from projections.schema import EDGES

MAX_LETTERS_PASSED = 100_000
MOST_RETRIED = 500


class PastPageQuery(PageQuery):
    """Parameters of a list that can be read as it was."""

    as_of_position: PositionText | None = Field(
        default=None, description="What the memory knew then: events behind it are not seen."
    )


class SessionsQuery(PastPageQuery):
    """Parameters of the list of sessions."""

    query: Name | None = Field(
        default=None,
        description="In the session's id, or in the name of an agent, a user, a tool or a status "
        "of one of its events.",
    )
    since: Moment | None = Field(
        default=None, description="Only sessions with an event that occurred then or later."
    )
    until: Until = Field(default=None, description="And before it.")
    failed: bool = Field(default=False, description="Only sessions in which something failed.")


class SessionItem(Wire):
    """A session of a list, by those of its events that the viewer sees."""

    session_id: str
    first_at: ShownMoment
    last_at: ShownMoment
    event_count: int
    failed_count: int
    agents: list[str] = Field(description="The first five.")
    user_ids: list[str] = Field(description="The first five.")
    begins: str | None = Field(description="What the first event says.")
    failure: str | None = Field(description="What the last event says that failed.")
    failed_event_id: str | None


class SessionsPage(Wire):
    """A page of sessions, the one with the newest event first."""

    sessions: list[SessionItem]
    next_cursor: str | None
    meta: PageMeta


class SessionEventsQuery(PastPageQuery):
    """Parameters of a session's events; pages are of events, in order."""


class SessionEvents(AtlasPage):
    """A page of a session's events in the order of time, and the edges between them."""

    event_count: int = Field(description="That the viewer sees, on all pages.")


EdgeName = Annotated[str, Field(json_schema_extra={"enum": list(EDGES)})]


class NeighboursQuery(GraphReadQuery):
    """What is beside a node. `max_depth` is echoed: it is one step."""

    edge_types: list[EdgeName] = Field(
        default_factory=list, max_length=16, description="Of these types; empty: of all."
    )

    @field_validator("edge_types")
    @classmethod
    def _known_types(cls, edge_types: list[str]) -> list[str]:
        if not EDGES.keys() >= set(edge_types):
            raise ValueError(f"each one of {', '.join(EDGES)}")
        return edge_types


class FactHistoryQuery(PastPageQuery):
    """Parameters of the facts of an entity; pages are of facts, what began last first."""


class FactHistory(Wire):
    """A page of what was ever said of an entity, whether it holds or not."""

    facts: list[Fact]
    next_cursor: str | None
    meta: PageMeta


class PersonQuery(PastPageQuery):
    """Parameters of what is known of a user; `limit` is of facts, read from the newest on.

    Without `user_id` it is what that user may see.
    """

    max_tokens: MaxTokens = 500


class TraitItem(Wire):
    """What several sessions of a user have in common."""

    name: str
    strength: float = Field(
        description="The share of the sessions that could show it and do: above 0, at most 1."
    )
    session_count: int = Field(description="That show it.")
    first_seen: str
    last_seen: str
    holds_until: str = Field(description="Unless it is seen again.")
    event_ids: list[str] = Field(description="That prove it, of the newest sessions first.")
    part_of: str | None = Field(
        default=None,
        description="Of a skill: the name of the one that it is a part of, among the skills: what "
        "its tool and others are called after, or all that are used together.",
    )


class Person(Wire):
    """What is known of a user; every fact names the events that say so."""

    user_id: str
    entity_id: str
    names: list[str] = Field(description="That the user is known by.")
    facts: list[Fact] = Field(description="That hold, the newest first.")
    wishes: list[Fact] = Field(description="What the user prefers and avoids, the newest first.")
    former: list[Fact] = Field(
        description="That ended. One that was contradicted has `expired_at`, too."
    )
    patterns: list[TraitItem] = Field(
        description="Habits: tools that are used one after the other, when sessions begin."
    )
    skills: list[TraitItem] = Field(
        description="Tools whose use the user's sessions carry through."
    )
    interests: list[TraitItem] = Field(description="What the user's own words name again.")
    next_cursor: str | None
    sessions: list[SessionItem] = Field(description="The newest five that the viewer sees.")
    meta: PageMeta


class DeadLettersQuery(Wire):
    """Which dead letters."""

    limit: int = Field(default=100, ge=1, le=500)
    skip: int = Field(default=0, ge=0, le=MAX_LETTERS_PASSED)


class DeadLetterItem(Wire):
    """An entry that a stage could not fold and has passed."""

    stage: str
    partition: int
    seq: int
    position: str
    event_id: str | None
    kind: str | None
    reason: str | None
    attempts: int | None
    retry_asked: bool = Field(description="It is to be tried again, and was not yet.")


class DeadLettersRetried(Wire):
    """Which dead letters of the tenant are to be tried again; none named: all, 500 at once."""

    stage: Literal["projection", "enrichment", "consolidation"] | None = None
    partition: int | None = Field(default=None, ge=0)
    seq: int | None = Field(default=None, ge=0)


class RetriesAsked(Wire):
    """What became of asking for it."""

    asked: int = Field(description="Dead letters that a worker will try again.")


class DeadLetterList(Wire):
    """Dead letters of a tenant, by stage, partition and number."""

    dead_letters: list[DeadLetterItem]
    more: bool = Field(description="There are others behind them.")


class ProofItem(Wire):
    """What `verify` said of a stage of a target last."""

    stage: str
    differences: int = Field(description="Of the whole graph, all tenants; 0: it is proved.")
    ended_at: str


class TargetItem(Wire):
    """A graph that is folded from this ledger."""

    name: str
    state: Literal["building", "standby", "active"] = Field(
        description="Active: questions are answered from it."
    )
    proofs: list[ProofItem] = Field(description="By stage; none: nobody ran `recollect verify`.")


class RebuildItem(Wire):
    """A rebuild that runs now, as it tells it."""

    target: str
    doing: str = Field(description="What it is at, as the command shows it.")
    done: int = Field(description="Entries of that, of all tenants.")
    total: int | None = Field(description="None: not known.")
    begun_at: str
    heard_at: str = Field(description="When it told this; once a second while it can.")


class ArchivedPartition(Wire):
    """Up to where the entries of a partition have left Redis."""

    partition: int
    archived: int = Field(description="Entries in segments: the boundary.")
    position: str = Field(description="Of the last of them; 0-0: none is archived.")
    segments: int
    streamed: int = Field(description="Entries that are in Redis.")


class ArchiveItem(Wire):
    """How far archiving is, of all tenants; where the files are, `recollect status` tells."""

    partitions: list[ArchivedPartition]
    waits_for: str | None = Field(description="Stages that keep entries in Redis.")
    has_problem: bool = Field(
        description="Nothing is archived at the moment; `recollect status` says why."
    )


class ErasureItem(Wire):
    """Somebody or something of the tenant that is or was erased, by the id of the key."""

    subject: str = Field(description="Id of the key; whose it was, nothing tells any more.")
    kind: str
    step: str = Field(description="The last one that is done: " + ", ".join(STEPS) + ".")
    is_done: bool
    requested_at: str
    finished_at: str | None
    entries: int | None = Field(description="That are unreadable; None: not counted yet.")


class OperationsAnswer(Wire):
    """What is under way, and how far."""

    rebuilds: list[RebuildItem]
    archive: ArchiveItem | None = Field(description="None: nothing was ever archived.")
    erasures: list[ErasureItem] = Field(
        description="Of the tenant: those under way first, then the newest."
    )
    more_erasures: bool = Field(description="`recollect receipts list` lists the rest.")


class TypeDifferenceItem(Wire):
    """How far nodes of a label, or edges of a type, differ between two graphs."""

    type: str
    only_first: int = Field(description="That the first graph alone has.")
    only_second: int
    different: int = Field(description="That both have with other values.")
    properties: dict[str, int] = Field(description="How many times each differs among these.")


class DifferenceExample(Wire):
    """One thing that differs: what it is, and not how; `recollect targets diff` prints values."""

    kind: Literal["missing", "extra", "different"] = Field(
        description="Missing: only in the first graph; extra: only in the second."
    )
    element: Literal["node", "edge", "schema", "column"]
    type: str
    key: list[str | int] = Field(description="Of a node; of an edge its ends. The tenant is first.")
    fields: list[str] = Field(description="Properties with other values.")


class ComparisonItem(Wire):
    """What two graphs held differently of the tenant, when they were compared last."""

    first: str
    second: str
    ended_at: str
    same: bool
    behind: dict[str, int] = Field(
        description="Entries that a stage had folded in one of them alone, of all tenants."
    )
    types: list[TypeDifferenceItem]
    examples: list[DifferenceExample] = Field(description="Three of each sort at most.")


class TargetList(Wire):
    """The graphs of the ledger, by name."""

    targets: list[TargetItem]
    comparison: ComparisonItem | None = Field(
        description="Of the last week; none: `recollect targets diff` was not run."
    )


DEFAULT_PAGE: Final = 100


def _place(text: str) -> str:
    try:
        return text if text == NOW else str(Position.parse(text))
    except ValueError:
        raise ValueError(
            "`now`, `0` for the beginning, or a position as a change or a write gave it"
        ) from None


Place = Annotated[str, Field(max_length=50), AfterValidator(_place)]
"""Where to begin, of a request."""


class ChangesQuery(Wire):
    """Which changes, and from where on."""

    from_: Place = Field(
        default=NOW,
        alias="from",
        description="Behind which the changes begin: `now`, `0` (the beginning), or a position: a "
        "`global_position`, the `id` of the last change that came. The header `Last-Event-ID` "
        "goes before it.",
        examples=["now", "0", "1707644400000-0"],
    )
    session: Name | None = Field(default=None, description="Only events of this session.")
    kinds: list[EventKind] = Field(
        default_factory=list,
        max_length=8,
        description="Only events of these kinds; empty: all, those about the memory itself, too.",
    )
    user_id: Name | None = Field(
        default=None,
        description="In whose view: this user's events, and nobody's. `*` is the view over all "
        "users, for keys that may. Default: the key's user, else nobody.",
    )
    wait: bool = Field(
        default=True,
        description="Send what comes, as server-sent events; false: a page of what is there.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PAGE,
        description=f"Changes of a page, with `wait=false`; default {DEFAULT_PAGE}.",
    )

    @field_validator("limit")
    @classmethod
    def _of_a_page(cls, limit: int | None, info: ValidationInfo) -> int | None:
        if limit is not None and info.data.get("wait", True):
            raise ValueError("goes with wait=false")
        return limit


class Change(StoredEvent):
    """An event that the ledger has taken."""

    kind: EventKind | None = Field(
        description="What it is; null: a statement about the memory itself (`memory.*`)."
    )


class ChangeList(Wire):
    """A page of changes."""

    changes: list[Change] = Field(description="In the order of the ledger.")
    position: PositionText = Field(
        description="`from` of the next page. It moves on where there was nothing to be seen, too."
    )
    is_end: bool = Field(description="Nothing was behind this page.")
