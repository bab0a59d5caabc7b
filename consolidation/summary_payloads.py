"""Summaries as records: what is known of an episode, a session or an agent, and how it is written.

Bounds on counts and lengths keep the largest one below MAX_SUMMARY_BYTES, and an episode's below
MAX_EPISODE_BYTES, so that its members fit beside it into one event of 128 KiB. Times are whole
milliseconds since the epoch; no field is a float.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, Strict, model_validator, with_config

from enrichment.names import EntityType
from projections.events import MAX_NAME_CHARACTERS, canonical_json
from projections.identity import SEPARATOR
from projections.records import (
    PART,
    Different,
    EntityId,
    Items,
    Matching,
    Milliseconds,
    Record,
    Text,
    Uuid,
    Whole,
    broken,
    parsed_by,
)

SUMMARY_DIGEST_BYTES: Final = 16
MAX_EPISODE_BYTES: Final = 104 * 1024
"""Of an episode's canonical JSON; its members' ids take 20 KiB more."""
MAX_SUMMARY_BYTES: Final = 121 * 1024
"""Of any summary's canonical JSON."""

NAME_CHARACTERS: Final = 200
"""Of the name of a tool or an entity; envelopes allow 512, which would not fit a dozen times."""
EPISODE_CHARACTERS: Final = 1_200
"""Of an episode's content."""
CONTENT_CHARACTERS: Final = 2_000
"""Of a session's and an agent's content."""
HIGHLIGHT_CHARACTERS: Final = 200
MAX_HIGHLIGHTS: Final = 8
"""Of an episode."""
UPPER_HIGHLIGHTS: Final = 12
"""Of a session and of an agent."""
MAX_PROOFS: Final = 20
"""Events that one highlight names."""
MAX_PARTICIPANTS: Final = 12
MAX_TOOLS: Final = 10
MAX_ENTITIES: Final = 16
MAX_USERS: Final = 2
"""That are named of what was made from events of several: that there are two says it all."""

MAX_LESSONS: Final = 6
"""Of a summary, of an agent's those of its most important sessions."""
LESSON_BYTES: Final = 4 * 1024
"""Of all of them as canonical JSON; what does not fit is left out."""
LESSON_CHARACTERS: Final = 300
ERROR_CHARACTERS: Final = 160
MAX_DIFFERENCES: Final = 4
ARGUMENT_CHARACTERS: Final = 60
"""Of the name of an argument."""
VALUE_CHARACTERS: Final = 100
"""Of the value of an argument."""
MAX_HELPING: Final = 4
"""Events between failure and success that a lesson names."""

HighlightKind = Literal["request", "action", "failure", "resolution", "outcome", "said", "happened"]
KINDS: Final[tuple[HighlightKind, ...]] = get_args(HighlightKind)

WORDED_BY_CHARACTERS: Final = 240
"""Of the name of a language model and the version of its prompt."""

Name = Annotated[str, Text(MAX_NAME_CHARACTERS)]
WordedBy = Annotated[str, Text(WORDED_BY_CHARACTERS)]
"""The language model that worded something, and the version of its prompt."""
ShortName = Annotated[str, Text(NAME_CHARACTERS)]
Count = Annotated[Whole, Field(ge=1)]
UserIds = Annotated[Different[Name], Field(max_length=MAX_USERS)]
"""Whose events (or facts) something was made from: sorted; empty: everybody may see it."""
Hash = Annotated[
    str,
    Matching(
        rf"[0-9a-f]{{{2 * SUMMARY_DIGEST_BYTES}}}", f"{2 * SUMMARY_DIGEST_BYTES} hexadecimal digits"
    ),
]
"""A digest, or the id of a summary."""


@with_config(PART)
@dataclass(frozen=True, slots=True)
class Highlight:
    """Something worth telling.

    Attributes:
        kind: what it is.
        text: one line of at most HIGHLIGHT_CHARACTERS that is understood by itself.
        event_ids: that prove it, in their order, at most MAX_PROOFS; of a resolution the first is
            what failed, the last what resolved it.
        importance: of the most important of them, 1 to 10.
        occurred_at_ms: of the first of them.
        agent_id: who did, said or asked it.
        tool: that was used, if one was.
    """

    kind: HighlightKind
    text: Annotated[str, Text(HIGHLIGHT_CHARACTERS)]
    event_ids: Annotated[Items[Uuid], Field(min_length=1, max_length=MAX_PROOFS)]
    importance: Annotated[Whole, Field(ge=1, le=10)]
    occurred_at_ms: Milliseconds
    agent_id: Name
    tool: ShortName | None = None


def by_time(highlights: Iterable[Highlight]) -> list[Highlight]:
    """Highlights in the order in which they are told."""
    return sorted(highlights, key=lambda highlight: (highlight.occurred_at_ms, highlight.event_ids))


@with_config(PART)
@dataclass(frozen=True, slots=True)
class Difference:
    """An argument that was different when it went through.

    Attributes:
        name: of the argument.
        before: what it was; None: it was added.
        after: what it became; None: it was left out.
        source_event_id: of the event between the two calls that said the new value first.
    """

    name: Annotated[str, Text(ARGUMENT_CHARACTERS)]
    before: Annotated[str, Text(VALUE_CHARACTERS)] | None = None
    after: Annotated[str, Text(VALUE_CHARACTERS)] | None = None
    source_event_id: Uuid | None = None


@with_config(PART)
@dataclass(frozen=True, slots=True)
class Lesson:
    """A failure, and what was different when the same went through.

    Attributes:
        tool: that failed, or the type of the event that tells of the failure.
        text: the whole in one line.
        error: what the last attempt that failed said; empty: nothing.
        attempts: how many failed, at least 1.
        failed_event_ids: the last call that failed, and what came of it.
        solved_event_ids: the call that went through, and what came of it.
        differences: between the two calls.
        helped_by: events between the two that brought a new value, or did something else.
    """

    tool: ShortName
    text: Annotated[str, Text(LESSON_CHARACTERS)]
    error: Annotated[str, Strict(), Field(max_length=ERROR_CHARACTERS)]
    attempts: Count
    failed_event_ids: Annotated[Items[Uuid], Field(min_length=1, max_length=2)]
    solved_event_ids: Annotated[Items[Uuid], Field(min_length=1, max_length=2)]
    differences: Annotated[Items[Difference], Field(max_length=MAX_DIFFERENCES)] = ()
    helped_by: Annotated[Items[Uuid], Field(max_length=MAX_HELPING)] = ()


def fitting_lessons(lessons: Iterable[Lesson]) -> tuple[Lesson, ...] | None:
    """The first lessons that one summary has room for; None: there is none."""
    chosen: list[Lesson] = []
    left = LESSON_BYTES
    for lesson in lessons:
        left -= _lesson_bytes(lesson)
        if left < 0 or len(chosen) == MAX_LESSONS:
            break
        chosen.append(lesson)
    return tuple(chosen) or None


def _lesson_bytes(lesson: Lesson) -> int:
    return len(canonical_json(asdict(lesson)))


@with_config(PART)
@dataclass(frozen=True, slots=True)
class Participant:
    """An agent that takes part.

    Attributes:
        agent_id: as events carry it.
        name: by which it is known: of the user who speaks through it, else the agent's own; short,
            for display.
        events: of it, all of them.
        messages: that it said.
        calls: of tools that it made.
    """

    agent_id: Name
    name: ShortName
    events: Whole
    messages: Whole
    calls: Whole


@with_config(PART)
@dataclass(frozen=True, slots=True)
class ToolUse:
    """How often a tool was used, and how often that failed."""

    name: ShortName
    calls: Whole
    failed: Whole


@with_config(PART)
@dataclass(frozen=True, slots=True)
class KeyEntity:
    """Something that the events are about, or a user.

    Attributes:
        entity_id: of the canonical one of its sameness component.
        name: for display.
        entity_type: user, service, resource or concept.
        weight: ten times the importance of the events that mention it, less when it is mentioned
            everywhere.
    """

    entity_id: EntityId
    name: ShortName
    entity_type: Annotated[EntityType, Field(alias="type")]
    weight: Whole


class Overview(Record):
    """What is known of a stretch of events, before it is put into words.

    Attributes:
        highlights: best first.
        participants: most active first.
        tools: most used first.
        entities: heaviest first.
        event_count: of its events.
        importance_total: of their importance.
        failed_count: of failures: uses of tools, and other events that tell of one.
        started_at_ms: of the first event.
        ended_at_ms: of the last event.
        user_ids: of its events; None: nobody wrote down whose they are, as it was before.
        lessons: what was learned from failures, in their order; None: nothing.
    """

    highlights: Annotated[Items[Highlight], Field(max_length=UPPER_HIGHLIGHTS)]
    participants: Annotated[Items[Participant], Field(max_length=MAX_PARTICIPANTS)]
    tools: Annotated[Items[ToolUse], Field(max_length=MAX_TOOLS)]
    entities: Annotated[Items[KeyEntity], Field(max_length=MAX_ENTITIES)]
    event_count: Count
    importance_total: Whole
    failed_count: Whole
    started_at_ms: Milliseconds
    ended_at_ms: Milliseconds
    user_ids: UserIds | None = None
    lessons: Annotated[Items[Lesson], Field(min_length=1, max_length=MAX_LESSONS)] | None = None

    @model_validator(mode="after")
    def _lessons_fit(self) -> Overview:
        if sum(map(_lesson_bytes, self.lessons or ())) > LESSON_BYTES:
            raise broken("lessons", f"at most {LESSON_BYTES:,} bytes of JSON")
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Overview:
        if self.ended_at_ms < self.started_at_ms:
            raise broken("ended_at_ms", "not before started_at_ms")
        return self

    def overview(self) -> dict[str, Any]:
        """The fields that every summary has, by name."""
        return {name: getattr(self, name) for name in Overview.model_fields}


class EpisodeSummary(Overview):
    """What an episode comes to.

    Attributes:
        session_id, trace_id: of the episode.
        number: of the episode within its session and trace.
        content: a line on who, with what and about what, then a line for each highlight.
        digest: of the events it is made from.
    """

    scope: Literal["episode"] = "episode"
    session_id: Name
    trace_id: Name
    number: Whole
    content: Annotated[str, Text(EPISODE_CHARACTERS)]
    highlights: Annotated[Items[Highlight], Field(max_length=MAX_HIGHLIGHTS)]
    digest: Hash

    @property
    def scope_id(self) -> str:
        """What tells it from every other of its scope."""
        return episode_scope_id(self.session_id, self.trace_id, self.number)


class SessionSummary(Overview):
    """What the episodes of a session come to.

    Attributes:
        session_id: of the episodes.
        episode_count: at least 1.
        content: likewise; or behind the first line what a language model made of the rest.
        digest: of the episodes' digests.
        worded_by: that model; None: the words are those of the rules.
    """

    scope: Literal["session"] = "session"
    session_id: Name
    episode_count: Count
    content: Annotated[str, Text(CONTENT_CHARACTERS)]
    digest: Hash
    worded_by: WordedBy | None = None

    @property
    def scope_id(self) -> str:
        """What tells it from every other of its scope."""
        return self.session_id


class AgentSummary(Overview):
    """What the sessions of an agent come to.

    Attributes:
        agent_id: that took part in them.
        session_count: of all its sessions, at least 1. The other counts and the times are of all of
            them, too, the rest of those it was made from.
        content, worded_by: likewise.
        digest: of the digests of those, and of the totals.
    """

    scope: Literal["agent"] = "agent"
    agent_id: Name
    session_count: Count
    content: Annotated[str, Text(CONTENT_CHARACTERS)]
    digest: Hash
    worded_by: WordedBy | None = None

    @property
    def scope_id(self) -> str:
        """What tells it from every other of its scope."""
        return self.agent_id


Summary = EpisodeSummary | SessionSummary | AgentSummary
_SCOPES: Final[Mapping[str, type[Summary]]] = {
    "episode": EpisodeSummary,
    "session": SessionSummary,
    "agent": AgentSummary,
}


def parse_summary(payload: Any) -> Summary:
    """The summary that an object holds.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.highlights[0].kind`).
    """
    return parsed_by("scope", _SCOPES, payload)


Scope = Literal["episode", "session", "agent"]


def episode_scope_id(session_id: str, trace_id: str, number: int) -> str:
    """What tells an episode from every other of its tenant.

    None of the parts can hold the separator (names have no control characters), so no two
    episodes are joined to the same text.
    """
    return SEPARATOR.join((session_id, trace_id, str(number)))


def summary_id(
    tenant: str, scope: Scope, scope_id: str, user_ids: Collection[str] | None = ()
) -> str:
    """BLAKE2b-128 of (tenant, scope, scope id, users), 32 hexadecimal digits.

    Part of the stored format: it never changes.

    Args:
        tenant: of the events.
        scope: of the summary.
        scope_id: of `episode_scope_id`, a session's or an agent's id.
        user_ids: whose events it is made from, sorted; a scope has one summary for each user, and
            one of what belongs to nobody.
    """
    users = (f"+{user_id}" for user_id in user_ids or ())
    text = SEPARATOR.join(("summary", tenant, scope, scope_id, *users))
    return blake2b(text.encode(), digest_size=SUMMARY_DIGEST_BYTES).hexdigest()


def summary_ids_seen(
    tenant: str, scope: Scope, scope_id: str, user_id: str | None
) -> tuple[str, ...]:
    """Ids of what may be told of a scope to a user: the user's own, then the shared one.

    Args:
        tenant: of the events.
        scope: of the summaries.
        scope_id: as of `summary_id`.
        user_id: who looks; None: nobody, who sees the shared one alone.
    """
    users: tuple[tuple[str, ...], ...] = ((),) if user_id is None else ((user_id,), ())
    return tuple(summary_id(tenant, scope, scope_id, user_ids) for user_ids in users)


def users_named(user_ids: Iterable[str | None]) -> tuple[str, ...]:
    """Users, sorted, as far as a summary names them."""
    return tuple(sorted({user_id for user_id in user_ids if user_id is not None})[:MAX_USERS])
