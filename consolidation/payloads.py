"""What a pass decides, as records of the ledger: payloads of `memory.consolidated` by kind.

See `docs/decisions/0010-consolidation.md`. Summaries themselves are in `summary_payloads`, what is
forgotten, recalled and accessed in `forgetting_payloads`. Every payload stays below 128 KiB.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, Strict, model_validator, with_config

from consolidation.forgetting_payloads import MAX_IDS, Decided, RunId, chunks
from consolidation.summary_payloads import (
    AgentSummary,
    EpisodeSummary,
    Hash,
    Name,
    SessionSummary,
    UserIds,
    WordedBy,
)
from projections.records import (
    PART,
    Coded,
    Different,
    EntityId,
    EventId,
    Flag,
    Items,
    Matching,
    Record,
    Text,
    Whole,
    broken,
    parsed,
    parsed_by,
)
from projections.schema import VECTOR_DIMENSIONS

CONSOLIDATED_EVENT: Final = "memory.consolidated"

EPISODE_EVENTS: Final = 500
"""Members of one episode at most, so that one decision can name them all."""
MAX_GONE: Final = 150
"""Summaries that one decision takes away; with the rest below 128 KiB."""
MAX_REQUESTS: Final = 2_000
"""That one pass answers."""
MAX_LINKS: Final = 10
"""Of a session; half of them for each reason, unless the other needs fewer."""
MAX_EVIDENCE: Final = 5
EVIDENCE_CHARACTERS: Final = 240
MAX_BOOST: Final = 3.0
"""What all terms of `centrality` come to at most; shown is min(10, importance + boost)."""
CHUNK_MEMBERS: Final = 2_000
"""Members of a community in one chunk."""
MAX_NAME_CHARACTERS: Final = 120
MAX_SUMMARY_CHARACTERS: Final = 600
MAX_TRAITS: Final = 25
"""Of a user."""
MAX_PROVING: Final = 20
"""Events that a trait names."""
LEAST_SESSIONS: Final = 3
"""Independent ones, before anything is derived of a user."""
VECTOR_BYTES: Final = 4 * VECTOR_DIMENSIONS

MAX_CAUSES: Final = 3
"""Of these, links to sessions that changed what a failure names."""

LinkReason = Literal["shared_entities", "similar_failure", "cause"]
LIKENESSES: Final[tuple[LinkReason, ...]] = ("shared_entities", "similar_failure")
CAUSE: Final[LinkReason] = "cause"
"""The other session changed what a failure of this one names."""


class EpisodeDecided(Decided):
    """An episode's summary, and its members, those that left the graph included.

    Attributes:
        summary: of those of its events that its users may see.
        event_ids: of these.
        unowned_id: it keeps the id that it was given before ids told users, because forgotten
            events are found by that.
    """

    kind: Literal["episode"] = "episode"
    summary: EpisodeSummary
    event_ids: Annotated[Different[EventId], Field(min_length=1, max_length=EPISODE_EVENTS)]
    unowned_id: Literal[True] | None = None


class SessionDecided(Decided):
    """A session's summary.

    Attributes:
        summary: of its episodes.
        seen_events: `Scope.event_count` when it was made.
        seen_importance: `Scope.importance_total` when it was made.
        gone: ids of episodes' summaries that are no more.
    """

    kind: Literal["session"] = "session"
    summary: SessionSummary
    seen_events: Whole
    seen_importance: Whole
    gone: Annotated[Items[Hash], Field(max_length=MAX_GONE)] = ()


class AgentDecided(Decided):
    """An agent's summary."""

    kind: Literal["agent"] = "agent"
    summary: AgentSummary


class SummariesGone(Decided):
    """Summaries, of whatever scope, that are no more."""

    kind: Literal["gone"] = "gone"
    summary_ids: Annotated[Different[Hash], Field(min_length=1, max_length=MAX_IDS)]


@with_config(PART)
@dataclass(frozen=True, slots=True, order=True)
class SessionLink:
    """A session that another belongs together with.

    Attributes:
        session_id: of the other.
        user_ids: whose summary of the other it leads to; None: everybody's.
        reason: why.
        evidence: names of shared entities, the rarest first, or the signature of the failure, or
            what the failure and its cause both name.
        score: above 0, at most 1, a multiple of 0.0001.
        resolution_event_id: the other's event that resolved the failure.
        effect_event_id: of a cause: the failure.
        cause_event_id: of a cause: the other's event that it goes back to.
    """

    session_id: Name
    reason: LinkReason
    evidence: Annotated[
        Items[Annotated[str, Strict(), Field(min_length=1, max_length=EVIDENCE_CHARACTERS)]],
        Field(min_length=1, max_length=MAX_EVIDENCE),
    ]
    score: Annotated[float, Strict(), Field(gt=0, le=1)]
    resolution_event_id: EventId | None = None
    user_ids: UserIds | None = None
    effect_event_id: EventId | None = None
    cause_event_id: EventId | None = None


class LinksDecided(Decided):
    """All links of a session's summary; none: it has no more.

    Attributes:
        session_id: of the session.
        user_ids: whose summary of it is linked; None: everybody's.
        links: to others, the best first.
    """

    kind: Literal["links"] = "links"
    session_id: Name
    user_ids: UserIds | None = None
    links: Annotated[Items[SessionLink], Field(max_length=MAX_LINKS)]

    @model_validator(mode="after")
    def _to_others(self) -> LinksDecided:
        for place, link in enumerate(self.links):
            if link.session_id == self.session_id:
                raise broken(f"links[{place}].session_id", "another session")
            for name in ("effect_event_id", "cause_event_id"):
                if (getattr(link, name) is None) == (link.reason == CAUSE):
                    raise broken(f"links[{place}].{name}", f"of reason {CAUSE}, and of no other")
        return self


class BoostsDecided(Decided):
    """Boosts by event id."""

    kind: Literal["boosts"] = "boosts"
    boosts: Annotated[
        dict[EventId, Annotated[float, Field(ge=0, le=MAX_BOOST)]],
        Field(min_length=1, max_length=MAX_IDS),
    ]


def boost_payloads(changed: Mapping[str, float]) -> list[dict[str, Any]]:
    """Payloads of boosts by event id, at most MAX_IDS in each."""
    return [
        BoostsDecided(boosts=dict(chunk)).payload()
        for chunk in chunks(sorted(changed.items()), MAX_IDS)
    ]


class PassDecided(Decided):
    """A pass ended.

    Attributes:
        run_id: of the pass.
        started_at_ms, ended_at_ms: since the epoch.
        complete: whether it had time for all that there was to do.
        request_ids: event ids of the requests that it answered.
        communities: whether it looked at them.
        traits: it looked at all users of whom something changed.
    """

    kind: Literal["pass"] = "pass"
    run_id: RunId
    started_at_ms: Whole
    ended_at_ms: Whole
    complete: Flag
    request_ids: Annotated[Items[EventId], Field(max_length=MAX_REQUESTS)] = ()
    communities: Flag = False
    traits: Literal[True] | None = None


TraitKind = Literal["pattern", "skill", "interest"]


@with_config(PART)
@dataclass(frozen=True, slots=True, order=True)
class Trait:
    """What several sessions of a user have in common.

    Attributes:
        trait_id: of user, kind and what it is, whatever it is called.
        kind: a habit, what is carried through, what is spoken of.
        name: in words.
        strength: the share of the sessions that could show it and do; above 0, at most 1, a
            multiple of 0.0001.
        session_count: that show it.
        first_seen_ms, last_seen_ms: since the epoch.
        holds_until_ms: unless it is seen again.
        event_ids: that prove it, of the newest sessions first.
        summary_ids: of the user's summaries of the newest sessions that show it, likewise;
            None: nobody wrote them down.
        parent_id: of the skill that this one is a part of.
    """

    trait_id: Hash
    kind: TraitKind
    name: Annotated[str, Text(MAX_NAME_CHARACTERS)]
    strength: Annotated[float, Strict(), Field(gt=0, le=1)]
    session_count: Annotated[Whole, Field(ge=LEAST_SESSIONS)]
    first_seen_ms: Whole
    last_seen_ms: Whole
    holds_until_ms: Whole
    event_ids: Annotated[Different[EventId], Field(min_length=1, max_length=MAX_PROVING)]
    summary_ids: Annotated[Different[Hash], Field(max_length=MAX_PROVING)] | None = None
    parent_id: Hash | None = None


class TraitsDecided(Decided):
    """What is new of a user's traits.

    Attributes:
        user_ids: the user.
        traits: that are new, or say something else.
        gone: ids of those that are no more.
    """

    kind: Literal["traits"] = "traits"
    user_ids: Annotated[UserIds, Field(min_length=1, max_length=1)]
    traits: Annotated[Items[Trait], Field(max_length=MAX_TRAITS)] = ()
    gone: Annotated[Items[Hash], Field(max_length=MAX_GONE)] = ()

    @property
    def user_id(self) -> str:
        """The user."""
        return self.user_ids[0]


class Requested(NamedTuple):
    """A pass is asked for; `request` is canonical JSON, None without a payload."""

    request: str | None


# -- communities -----------------------------------------------------------------------------------

_Small = Annotated[int, Field(le=2**31 - 1)]
_CommunityId = Annotated[
    str, Matching(r"(?:community:)?([0-9a-f]{32})", "a community id, community:<hash>")
]


def _vector(value: Any) -> bytes:
    try:
        vector = b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        vector = b""
    if len(vector) != VECTOR_BYTES or not np.isfinite(np.frombuffer(vector, dtype="<f4")).all():
        raise ValueError(f"{VECTOR_DIMENSIONS} finite little-endian float32 in base64")
    return vector


class CommunityText(NamedTuple):
    """What a community says of itself: at most MAX_NAME_CHARACTERS, MAX_SUMMARY_CHARACTERS.

    `worded_by`: the language model that worded the summary; None: the rules did.
    """

    name: str
    summary: str
    worded_by: str | None = None


def _true(gone: bool) -> bool:
    if not gone:
        raise broken("", "true or absent")
    return gone


class CommunityGone(Record):
    """A community that is no more; `run_id` of the decision."""

    kind: Literal["community"] = "community"
    community_id: _CommunityId
    run_id: RunId
    gone: Annotated[Flag, AfterValidator(_true)] = True


class CommunityChunk(Record):
    """A chunk of a community as decided.

    Attributes:
        community_id: its hash.
        run_id: the same in all chunks of a decision, and in no other.
        chunk, chunks: which one, from 0, of how many.
        fingerprint: of members and links.
        member_count: of all chunks together.
        entity_ids: the members of this chunk, as many as fit but in the last.
        name, summary: in chunk 0 alone.
        centroid: in chunk 0, if there is one: VECTOR_BYTES.
        user_id: in chunk 0: whose facts made it; None: facts without a user.
        user_ids: in chunk 0: whose facts it tells and whose entities it names; None: nobody wrote
            it down, as it was before.
        worded_by: in chunk 0: the language model that worded the summary; None: the rules did.
    """

    kind: Literal["community"] = "community"
    community_id: _CommunityId
    run_id: RunId
    chunk: Annotated[_Small, Field(ge=0)]
    chunks: Annotated[_Small, Field(ge=1)]
    fingerprint: Annotated[str, Matching(r"[0-9a-f]{64}", "64 hexadecimal digits")]
    member_count: Annotated[_Small, Field(ge=1)]
    entity_ids: Annotated[Different[EntityId], Field(min_length=1, max_length=CHUNK_MEMBERS)]
    name: Annotated[str, Text(MAX_NAME_CHARACTERS)] | None = None
    summary: Annotated[str, Text(MAX_SUMMARY_CHARACTERS)] | None = None
    centroid: Annotated[bytes, Coded(_vector, lambda vector: b64encode(vector).decode())] | None = (
        None
    )
    user_id: Name | None = None
    user_ids: UserIds | None = None
    worded_by: WordedBy | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> CommunityChunk:
        """The chunks can add up to the members that are announced."""
        whole = CHUNK_MEMBERS
        if self.chunk >= self.chunks:
            raise broken("chunk", f"a whole number from 0 to {self.chunks - 1}")
        if self.chunks != -(-self.member_count // whole):
            raise broken("chunks", f"one for every {whole:,} members")
        if len(self.entity_ids) != min(whole, self.member_count - self.chunk * whole):
            raise broken("entity_ids", f"{whole:,} members, in the last chunk what is left")
        return self

    @model_validator(mode="after")
    def _said_once(self) -> CommunityChunk:
        for field in ("name", "summary", "centroid", "user_id", "user_ids", "worded_by"):
            if self.chunk and getattr(self, field) is not None:
                raise broken(field, "in chunk 0 alone")
        for field in ("name", "summary"):
            if not self.chunk and getattr(self, field) is None:
                raise broken(field, "required")
        return self

    @property
    def text(self) -> CommunityText | None:
        """Name and summary; None in other chunks than the first."""
        if self.name is None or self.summary is None:
            return None
        return CommunityText(self.name, self.summary, self.worded_by)


def parse_community(payload: Any) -> CommunityChunk | CommunityGone:
    """The decision that a payload of kind community holds.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.chunk`).
    """
    gone = isinstance(payload, Mapping) and payload.get("gone") is not None
    return parsed(CommunityGone, payload) if gone else parsed(CommunityChunk, payload)


Consolidated = (
    EpisodeDecided
    | SessionDecided
    | AgentDecided
    | SummariesGone
    | LinksDecided
    | BoostsDecided
    | CommunityChunk
    | CommunityGone
    | TraitsDecided
    | PassDecided
)
_KINDS: Final[Mapping[str, type[Consolidated]]] = {
    "episode": EpisodeDecided,
    "session": SessionDecided,
    "agent": AgentDecided,
    "gone": SummariesGone,
    "links": LinksDecided,
    "boosts": BoostsDecided,
    "community": CommunityChunk,
    "traits": TraitsDecided,
    "pass": PassDecided,
}


def parse_consolidated(payload: Any) -> Consolidated:
    """What a `memory.consolidated` decided.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.links[0].reason`).
    """
    if isinstance(payload, Mapping) and payload.get("kind") == "community":
        return parse_community(payload)
    return parsed_by("kind", _KINDS, payload)


class LinkCandidate(NamedTuple):
    """A link that may be kept; `ended_at_ms`: of the other session, to choose by."""

    link: SessionLink
    ended_at_ms: int
