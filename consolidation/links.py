"""What joins sessions, and what gives events weight: rare entities, failures alike, causes.

These links are the material of proactive retrieval: who meets a failure again is shown the event
that resolved it last time. A session's traits are found from its events alone, apart from how many
sessions know each entity; two sessions are then compared by their traits.

- **Rare** is what at most RARE_SESSIONS sessions of the tenant know. Literal values, amounts and
  dates never link, nor do agents, tools and the users whose sessions these are: all sessions of an
  agent share those. Rare entities weigh by Adamic and Adar, 1 / ln(sessions).
- **Alike** are failures of one tool whose signatures are equal, or share ALIKE of their words. A
  failure is resolved by the outcome of the last retry, if that succeeded.
- **Caused** is a failure that names, or whose call was given, what a session changed before it
  (`causes`).
- Only within a tenant, and only to sessions whose users are among the session's own: events of
  other users are never shown to its reader.

A pass over changed sessions reads their neighbours besides: the sessions that share most of what is
rare with one, and those that failed alike. The links of a neighbour to sessions that were not read
stay as recorded.

An event gains in importance by what hangs on it: `TERMS` is the whole of that; the documentation's
table is made from it. Every term is measured on CAUSED_BY or REFERENCES: who summarises, follows or
resembles an event adds nothing, so no summary makes its sources immortal. All measures are local
(the event's own edges, and who else mentions its rare entities), so a pass over changed sessions
finds the boosts of their events, and those of their causes, without looking at the rest of the
graph. Of an unchanged session that shares a rare entity with a changed one the boosts are found
when it is looked at together with it; a rare entity is known in few sessions, so those are few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import exp, log, log2
from typing import Any, Final, NamedTuple

from consolidation.actions import Failure, failure_signature, failures_of, words_of
from consolidation.causes import (
    Change,
    Failing,
    cause_of,
    changes_of,
    failing_of,
    rarities,
)
from consolidation.payloads import (
    CAUSE,
    EVIDENCE_CHARACTERS,
    LIKENESSES,
    MAX_CAUSES,
    MAX_EVIDENCE,
    MAX_LINKS,
    LinkCandidate,
    LinkReason,
    SessionLink,
)
from consolidation.sources import FailedEvent, SourceEvent
from enrichment.names import canonical_name
from projections.schema import CAUSED_BY, REFERENCES, EdgeRow

RARE_SESSIONS: Final = 5
ALIKE: Final = 0.6
"""Share of words (Jaccard) from which two failures of a tool are alike."""
UNRESOLVED_SHARE: Final = 0.8
"""Of the score of an alike failure that nobody resolved."""

_NEVER_TYPES = frozenset(("agent", "tool"))
_ACTOR_TYPES = _NEVER_TYPES | {"user"}
_NEVER_SUBTYPES = frozenset(("value", "amount", "date"))


class RareEntity(NamedTuple):
    """An entity that few sessions know; `sessions` says how many, this one included."""

    entity_id: str
    name: str
    sessions: int


class SessionTraits(NamedTuple):
    """What a session is compared by.

    Attributes:
        ended_at_ms: when its last event occurred.
        user_ids: of its events; empty: anybody in the tenant may see it.
        entities: rare ones, by id.
        failures: of different tools or signatures, by tool and signature.
        failing: events that tell of failures.
        changes: that it made.
        rarity: how much what it mentions counts as a name; see `causes.rarities`.
    """

    tenant: str
    session_id: str
    ended_at_ms: int
    user_ids: frozenset[str] = frozenset()
    entities: tuple[RareEntity, ...] = ()
    failures: tuple[Failure, ...] = ()
    failing: tuple[Failing, ...] = ()
    changes: tuple[Change, ...] = ()
    rarity: Mapping[str, float] = {}


class SessionProfile(NamedTuple):
    """What a session is compared by, whatever other sessions there are.

    Attributes:
        session_id: of its events.
        ended_at_ms: when its last event occurred.
        user_ids: of its events; empty: anybody in the tenant may see it.
        entities: names by id of those that may link it to others, if they are rare.
        failures: of different tools or signatures, by tool and signature.
        failing: events that tell of failures.
        changes: that it made.
        actors: names of users, agents and tools that it mentions.
    """

    session_id: str
    ended_at_ms: int
    user_ids: frozenset[str]
    entities: Mapping[str, str]
    failures: tuple[Failure, ...]
    failing: tuple[Failing, ...] = ()
    changes: tuple[Change, ...] = ()
    actors: frozenset[str] = frozenset()


def session_profile(events: Sequence[SourceEvent]) -> SessionProfile:
    """What one session is compared by.

    Args:
        events: of the session, at least one, in any order.
    """
    user_ids = frozenset(event.user_id for event in events if event.user_id is not None)
    users = {canonical_name(user_id) for user_id in user_ids}
    return SessionProfile(
        session_id=events[0].session_id,
        ended_at_ms=max(event.occurred_at_ms for event in events),
        user_ids=user_ids,
        entities={
            entity.entity_id: entity.name
            for event in events
            for entity in event.entities
            if entity.entity_type not in _NEVER_TYPES
            and entity.subtype not in _NEVER_SUBTYPES
            and not (entity.entity_type == "user" and canonical_name(entity.name) in users)
        },
        failures=failures_of(events),
        failing=failing_of(events),
        changes=changes_of(events),
        actors=user_ids.union(
            entity.name
            for event in events
            for entity in event.entities
            if entity.entity_type in _ACTOR_TYPES
        ),
    )


def rare_entities(
    entities: Mapping[str, str], session_counts: Mapping[str, int]
) -> tuple[RareEntity, ...]:
    """The entities of one session that few others know, by id.

    Args:
        entities: `SessionProfile.entities`.
        session_counts: by entity id, how many sessions of the tenant mention it, this one included.
    """
    return tuple(
        RareEntity(key, entities[key], session_counts[key])
        for key in sorted(entities.keys() & session_counts.keys())
        if 1 <= session_counts[key] <= RARE_SESSIONS
    )


def session_traits(
    tenant: str,
    profile: SessionProfile,
    session_counts: Mapping[str, int],
) -> SessionTraits:
    """What one session is compared by, among the others; see `rare_entities`."""
    return SessionTraits(
        tenant=tenant,
        session_id=profile.session_id,
        ended_at_ms=profile.ended_at_ms,
        user_ids=profile.user_ids,
        entities=rare_entities(profile.entities, session_counts),
        failures=profile.failures,
        failing=profile.failing,
        changes=profile.changes,
        rarity=rarities(profile.entities, session_counts, profile.actors)
        if profile.failing
        else {},
    )


def session_links(session: SessionTraits, candidates: Iterable[SessionTraits]) -> list[SessionLink]:
    """The sessions that a session belongs together with, the best first.

    Args:
        session: whose links they are.
        candidates: sessions that share a rare entity with it or failed with one of its tools, in
            any order; itself, other tenants' and other users' are passed over.

    Returns:
        At most MAX_LINKS; at most one for each reason to each session, and one cause of each
        failure.
    """
    return best_links(link_candidates(session, candidates))


def link_candidates(
    session: SessionTraits, candidates: Iterable[SessionTraits]
) -> Iterator[LinkCandidate]:
    """All links of a session to candidates; see `session_links`."""
    for other in {
        candidate.session_id: candidate for candidate in candidates if _may_see(session, candidate)
    }.values():
        shared = _by_entities(session, other), _by_failures(session, other)
        for link in (*shared, _by_cause(session, other)):
            if link is not None:
                yield LinkCandidate(link, other.ended_at_ms)


def best_links(candidates: Iterable[LinkCandidate]) -> list[SessionLink]:
    """Those that are kept, the best first, at most MAX_LINKS.

    Of equal scores those with a resolution come first, then those that ended last, then by id.
    """
    ranked: dict[LinkReason, list[tuple[tuple[Any, ...], SessionLink]]] = {
        reason: [] for reason in (*LIKENESSES, CAUSE)
    }
    for link, ended_at_ms in candidates:
        unresolved = link.resolution_event_id is None
        rank = (-link.score, unresolved, -ended_at_ms, link.session_id)
        ranked[link.reason].append((rank, link))
    causes = _of_each_failure(sorted(ranked[CAUSE]))[:MAX_CAUSES]
    most = MAX_LINKS - len(causes)
    first, second = (sorted(ranked[reason]) for reason in LIKENESSES)
    of_first = max(most - most // 2, most - len(second))
    best = first[:of_first]
    best += second[: most - len(best)]
    return [link for _, link in sorted([*causes, *best])]


_Ranked = tuple[tuple[Any, ...], SessionLink]


def _of_each_failure(causes: Iterable[_Ranked]) -> list[_Ranked]:
    """The first cause of each failure."""
    first: dict[str | None, _Ranked] = {}
    for cause in causes:
        first.setdefault(cause[1].effect_event_id, cause)
    return list(first.values())


def are_alike(failure: Failure, other: Failure) -> bool:
    """Whether two sessions that failed so are linked."""
    return _likeness(failure, other) > 0


def _may_see(session: SessionTraits, other: SessionTraits) -> bool:
    return (
        other.tenant == session.tenant
        and other.session_id != session.session_id
        and other.user_ids <= session.user_ids
    )


def _by_entities(session: SessionTraits, other: SessionTraits) -> SessionLink | None:
    others = {entity.entity_id for entity in other.entities}
    shared = [entity for entity in session.entities if entity.entity_id in others]
    if not shared:
        return None
    # two sessions share it, whatever count was read before the other one came
    weight = sum(1 / log(max(2, entity.sessions)) for entity in shared)
    shared.sort(key=lambda entity: (entity.sessions, entity.name, entity.entity_id))
    names = tuple(dict.fromkeys(entity.name[:EVIDENCE_CHARACTERS] for entity in shared))
    return SessionLink(
        session_id=other.session_id,
        reason="shared_entities",
        evidence=names[:MAX_EVIDENCE],
        score=round(1 - exp(-weight / 2), 4),
        user_ids=_users(other),
    )


def _by_failures(session: SessionTraits, other: SessionTraits) -> SessionLink | None:
    best: tuple[float, str, str | None] | None = None
    for mine in session.failures:
        for theirs in other.failures:
            score = _likeness(mine, theirs)
            if theirs.resolution_event_id is None:
                score *= UNRESOLVED_SHARE
            if score and (best is None or score > best[0]):
                evidence = f"{theirs.tool}: {theirs.signature}"
                best = (score, evidence, theirs.resolution_event_id)
    if best is None:
        return None
    score, evidence, resolution = best
    return SessionLink(
        session_id=other.session_id,
        reason="similar_failure",
        evidence=(evidence[:EVIDENCE_CHARACTERS],),
        score=round(score, 4),
        resolution_event_id=resolution,
        user_ids=_users(other),
    )


def _by_cause(session: SessionTraits, other: SessionTraits) -> SessionLink | None:
    cause = cause_of(session.failing, other.changes, session.rarity)
    if cause is None:
        return None
    names = tuple(dict.fromkeys(name[:EVIDENCE_CHARACTERS] for name in cause.names))
    return SessionLink(
        session_id=other.session_id,
        reason=CAUSE,
        evidence=names[:MAX_EVIDENCE],
        score=cause.confidence,
        user_ids=_users(other),
        effect_event_id=cause.effect_event_id,
        cause_event_id=cause.cause_event_id,
    )


def _users(session: SessionTraits) -> tuple[str, ...] | None:
    """Whose summary of it a link leads to."""
    return tuple(sorted(session.user_ids)) or None


def _likeness(mine: Failure, other: Failure) -> float:
    """1 of equal failures, the share of common words of alike ones, else 0."""
    if mine.tool != other.tool:
        return 0.0
    if mine.signature == other.signature:
        return 1.0
    words = words_of(mine.signature), words_of(other.signature)
    together = len(words[0] | words[1])
    share = len(words[0] & words[1]) / together if together else 0.0
    return share if share >= ALIKE else 0.0


NEARLY_RARE: Final = 2 * RARE_SESSIONS
"""What so many sessions mention may have been rare a moment ago."""
MAX_NEIGHBOURS: Final = 40
"""Of one session by shared entities; the rarest and the most count."""
MAX_ALIKE: Final = 10
"""Sessions that failed alike, of each failure, those that failed last."""


def sharing_sessions(
    session_id: str, mentioning: Mapping[str, Collection[str]], most: int = MAX_NEIGHBOURS
) -> list[str]:
    """The sessions that share most of what is rare, those that share more first.

    Args:
        session_id: of the session that changed.
        mentioning: by id of each of its rare or nearly rare entities, the sessions that mention it.
        most: how many.
    """
    weights: dict[str, float] = {}
    for sessions in mentioning.values():
        for other in sessions:
            weights[other] = weights.get(other, 0.0) + 1 / log(max(2, len(sessions)))
    weights.pop(session_id, None)
    return sorted(weights, key=lambda other: (-round(weights[other], 6), other))[:most]


def alike_sessions(
    session_id: str,
    failures: Iterable[Failure],
    failed: Sequence[FailedEvent],
    most: int = MAX_ALIKE,
) -> list[str]:
    """The sessions that failed alike, those that failed last first.

    Args:
        session_id: of the session that changed.
        failures: of it.
        failed: events of the same tools that failed, the latest first.
        most: how many of each failure.
    """
    sessions: dict[str, None] = {}
    for mine in failures:
        alike: dict[str, None] = {}
        for event in failed:
            if len(alike) == most:  # what failed earlier need not be compared
                break
            signature = failure_signature(event.message)
            if (
                signature
                and event.session_id != session_id
                and are_alike(mine, Failure(event.tool, signature, ""))
            ):
                alike[event.session_id] = None
        sessions |= alike
    return list(sessions)


def renewed_links(
    session: SessionTraits, circle: Sequence[SessionTraits], recorded: Iterable[LinkCandidate]
) -> list[SessionLink]:
    """The links of a neighbour, those to sessions out of the circle as recorded.

    So are causes: how rare a name is was looked up in the neighbour's own turn.
    """
    within = {traits.session_id for traits in circle}
    outside = (
        candidate
        for candidate in recorded
        if candidate.link.session_id not in within or candidate.link.reason == CAUSE
    )
    return best_links([*link_candidates(session, circle), *outside])


def slim(event: SourceEvent) -> SourceEvent:
    """The event without its words: what it is connected by."""
    return event._replace(text="", summary="", keywords=())


class Connections(NamedTuple):
    """What the boost of an event is made from, each at least 0.

    Attributes:
        effects: different retained events that go back to it.
        causes: different retained events that it goes back to.
        sessions: other sessions that mention one of its rare entities.
    """

    effects: int = 0
    causes: int = 0
    sessions: int = 0


class Term(NamedTuple):
    """A row of the table.

    Attributes:
        name: of the term.
        row: the edges that it is measured on.
        measure: at least 0; a power of two in it is a step.
        points: for each doubling of the measure, from 1 on.
        most: points that the term gives.
        meaning: what is measured, for the documentation.
    """

    name: str
    row: EdgeRow
    measure: Callable[[Connections], int]
    points: float
    most: float
    meaning: str


TERMS: Final = (
    Term(
        name="in-degree",
        row=CAUSED_BY,
        measure=lambda event: event.effects,
        points=0.5,
        most=1.5,
        meaning="events that go back to it; one is what every step of a chain has",
    ),
    Term(
        name="paths",
        row=CAUSED_BY,
        measure=lambda event: event.effects * event.causes,
        points=0.25,
        most=0.5,
        meaning="causal paths of two steps that lead through it",
    ),
    Term(
        name="shared entities",
        row=REFERENCES,
        measure=lambda entity: 1 + entity.sessions,
        points=0.25,
        most=1.0,
        meaning="its own session and the others that mention one of its rare entities",
    ),
)


def importance_boost(connections: Connections) -> float:
    """The boost of an event's importance, 0 to `payloads.MAX_BOOST`, a multiple of 0.1.

    0 without connections; never less with more of them.
    """
    points = sum(
        min(term.most, term.points * log2(max(1, term.measure(connections)))) for term in TERMS
    )
    return round(points, 1)


def boosts(
    events: Iterable[SourceEvent],
    effects: Mapping[str, int],
    sessions_of: Mapping[str, Collection[str]],
) -> dict[str, float]:
    """Boosts by event id, those that are 0 left out.

    Args:
        events: whose boosts are asked for.
        effects: by event id, how many different retained events have a CAUSED_BY to it; none: 0.
        sessions_of: by id of a rare entity (`links.rare_entities`), the sessions that mention it.
    """
    positive = {}
    for event in events:
        others = {
            session
            for entity in event.entities
            for session in sessions_of.get(entity.entity_id, ())
            if session != event.session_id
        }
        causes = {cause.event_id for cause in event.causes}
        boost = importance_boost(
            Connections(effects.get(event.event_id, 0), len(causes), len(others))
        )
        if boost:
            positive[event.event_id] = boost
    return positive


def changed_boosts(
    current: Mapping[str, float], recorded: Mapping[str, float], looked_at: Iterable[str]
) -> dict[str, float]:
    """Boosts to record: those that are others than recorded, 0 where one is lost.

    Args:
        current: of the events that were looked at.
        recorded: what the graph shows; an event without one has 0.
        looked_at: ids of the events; what is recorded of others stays.
    """
    return {
        key: current.get(key, 0.0)
        for key in sorted(set(looked_at))
        if current.get(key, 0.0) != recorded.get(key, 0.0)
    }
