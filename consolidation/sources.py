"""What a pass reads of the graph, as plain values: no driver, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from consolidation.summary_payloads import (
    SUMMARY_DIGEST_BYTES,
    EpisodeSummary,
    SessionSummary,
)
from enrichment.event_kinds import EventKind
from projections.events import canonical_json
from projections.identity import Position


class Mentioned(NamedTuple):
    """An entity that an event mentions, as a REFERENCES edge tells.

    Attributes:
        entity_id: of the canonical one of its sameness component.
        name: for display.
        entity_type: agent, tool, user, service, resource or concept.
        subtype: finer, if known; `value` for a literal.
        role: subject, object, tool, target or participant.
    """

    entity_id: str
    name: str
    entity_type: str
    subtype: str | None
    role: str


class Cause(NamedTuple):
    """A CAUSED_BY edge that starts at the event.

    Attributes:
        event_id: of the cause.
        rule: that found it (`tool_result`, `value_flow`, `retry` or `reply`); None: the producer
            named it.
        confidence: 0 to 1; 1 when the producer named it.
    """

    event_id: str
    rule: str | None
    confidence: float


class SourceEvent(NamedTuple):
    """A retained event, with what enrichment derived from it.

    Attributes:
        importance: 1 to 10, without the boost.
        text: at most 2,000 characters; empty when there is none, or texts are switched off.
        summary: one line, at most 200 characters; it names who spoke or acted.
        speaker: who said it, apart from the text.
        entities: by role and name.
        causes: nearest first.
        kind: as enrichment decided it; OTHER of what it has not read.
    """

    event_id: str
    event_type: str
    occurred_at_ms: int
    session_id: str
    agent_id: str
    trace_id: str
    tool_name: str | None = None
    status: str | None = None
    user_id: str | None = None
    importance: int = 5
    text: str = ""
    summary: str = ""
    speaker: str | None = None
    keywords: tuple[str, ...] = ()
    entities: tuple[Mentioned, ...] = ()
    causes: tuple[Cause, ...] = ()
    kind: EventKind = EventKind.OTHER


class Place(NamedTuple):
    """Where an event stands among those of its session; places sort as the events do."""

    occurred_at_ms: int
    event_id: str


class Episode(NamedTuple):
    """A stretch of one trace in one session.

    Attributes:
        session_id: of all its events.
        trace_id: of all its events.
        number: within its session and trace, from 0.
        events: sorted by (occurred_at_ms, event_id), at least one; at most EPISODE_EVENTS unless
            sealed.
        sealed: some members are forgotten, `events` are those that are left.
        user_ids: whose part of the episode it is, if several users took part.
    """

    session_id: str
    trace_id: str
    number: int
    events: tuple[SourceEvent, ...]
    sealed: bool = False
    user_ids: tuple[str, ...] = ()


def place_of(event: SourceEvent) -> Place:
    """Where an event stands in its session."""
    return Place(event.occurred_at_ms, event.event_id)


def events_digest(events: Iterable[SourceEvent], version: int) -> str:
    """A digest of everything an episode's summary is made from, whatever the order of the events.

    Args:
        events: of one episode.
        version: of the rules that make the summary; other rules have something else to say.

    Returns:
        32 hexadecimal digits.
    """
    rows = [_source(event) for event in sorted(events, key=lambda event: event.event_id)]
    return _digest(["events", version, rows])


def summaries_digest(below: Iterable[tuple[str, str]], version: int) -> str:
    """A digest of what a summary of summaries is made from: pairs of (id, digest), any order."""
    return _digest(["summaries", version, sorted(map(list, below))])


def _source(event: SourceEvent) -> dict[str, object]:
    """An event as a JSON value without floats, whose canonical form is the slow one to write."""
    entities = sorted(
        [entity.entity_id, entity.role, entity.name, entity.entity_type, entity.subtype or ""]
        for entity in event.entities
    )
    causes = sorted(
        [cause.event_id, cause.rule or "", round(cause.confidence * 10_000)]
        for cause in event.causes
    )
    values = {**event._asdict(), "entities": entities, "causes": causes}
    del values["kind"]  # follows from what else there is
    return values


def _digest(value: object) -> str:
    return blake2b(canonical_json(value), digest_size=SUMMARY_DIGEST_BYTES).hexdigest()


class RecordedEpisode(NamedTuple):
    """A Summary of an episode as the graph shows it.

    Attributes:
        event_ids: of all its members, by time.
        user_ids: whose events these are; None: that is not known of all of them.
    """

    summary_id: str
    digest: str
    decided_at: Position
    summary: EpisodeSummary
    event_ids: tuple[str, ...]
    user_ids: tuple[str, ...] | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Which episode of its session it is."""
        return self.summary.trace_id, self.summary.number


class RecordedSession(NamedTuple):
    """What was decided of a session: its own Summaries by id, with where, and its episodes'."""

    summaries: Mapping[str, tuple[Position, SessionSummary]] = {}
    episodes: tuple[RecordedEpisode, ...] = ()


class FailedEvent(NamedTuple):
    """An event of a tool that failed: `message` is its text, or the line made of it."""

    session_id: str
    tool: str
    message: str


class Totals(NamedTuple):
    """Sums over all sessions of an agent, of which a pass reads only the most important.

    Attributes:
        session_count: at least 1.
        event_count: of their events.
        importance_total: of their importance.
        failed_count: of failures.
        started_at_ms: of the first event.
        ended_at_ms: of the last event.
    """

    session_count: int
    event_count: int
    importance_total: int
    failed_count: int
    started_at_ms: int
    ended_at_ms: int


SHARED = ""
"""The owner of what facts without a user, or of several users, name. No user id is empty."""


class NamedEntity(NamedTuple):
    """An entity, and whose facts name it.

    Attributes:
        entity_id: its hash.
        users: of facts that name it, SHARED for those without a user; two are enough.
        same: entities that are the same.
    """

    entity_id: str
    users: Collection[str]
    same: Collection[str] = ()


class LinkingFact(NamedTuple):
    """A fact that holds, as far as it joins entities.

    Attributes:
        source_id: of the entity it is about.
        target_id: of the other.
        literal: whether that is no entity of its own.
        user: whose fact it is, or SHARED.
        confidence: 0 to 1.
        key: what tells it from others of the same two entities.
    """

    source_id: str
    target_id: str
    literal: bool
    user: str
    confidence: float
    key: tuple[str, ...]


READ_FACTS = 40
"""How many of the strongest facts are worth reading for a text."""


class Described(NamedTuple):
    """How a member is shown: its name, its type and the finer one, if known."""

    name: str
    entity_type: str
    subtype: str | None = None


class InnerFact(NamedTuple):
    """A fact whose ends are members, and which holds.

    Attributes:
        source_id: of the entity it is about.
        target_id: of the other; None: a literal.
        fact: in words.
        confidence: 0 to 1.
        support_count: how many events say so.
    """

    source_id: str
    target_id: str | None
    fact: str
    confidence: float
    support_count: int = 1
