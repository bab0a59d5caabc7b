"""Which sessions belong together: they share rare entities, or failed alike.

These links are the material of proactive retrieval: who meets a failure again is shown the event
that resolved it last time. A session's traits are found from its events alone, apart from how many
sessions know each entity; two sessions are then compared by their traits.

- **Rare** is what at most RARE_SESSIONS sessions of the tenant know. Literal values, amounts and
  dates never link, nor do agents, tools and the users whose sessions these are: all sessions of an
  agent share those. Rare entities weigh by Adamic and Adar, 1 / ln(sessions).
- **Alike** are failures of one tool whose signatures are equal, or share ALIKE of their words. A
  failure is resolved by the outcome of the last retry, if that succeeded.
- Only within a tenant, and only to sessions whose users are among the session's own: events of
  other users are never shown to its reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import exp, log
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from consolidation.failures import Failure, failures_of, words_of
from consolidation.pruning_payloads import RUN_FIELDS, is_event_id
from consolidation.sources import SourceEvent
from enrichment.entities import canonical_name
from enrichment.payload_fields import Fields
from projections.errors import InvalidEvent
from projections.events import MAX_NAME_CHARACTERS

KIND: Final = "links"
"""Of the `memory.consolidated` that holds links."""
RARE_SESSIONS: Final = 5
MAX_LINKS: Final = 10
"""Of a session; half of them for each reason, unless the other needs fewer."""
MAX_EVIDENCE: Final = 5
EVIDENCE_CHARACTERS: Final = 240
ALIKE: Final = 0.6
"""Share of words (Jaccard) from which two failures of a tool are alike."""
UNRESOLVED_SHARE: Final = 0.8
"""Of the score of an alike failure that nobody resolved."""

LinkReason = Literal["shared_entities", "similar_failure"]
REASONS: Final[tuple[LinkReason, ...]] = get_args(LinkReason)

_NEVER_TYPES = frozenset(("agent", "tool"))
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
    """

    tenant: str
    session_id: str
    ended_at_ms: int
    user_ids: frozenset[str] = frozenset()
    entities: tuple[RareEntity, ...] = ()
    failures: tuple[Failure, ...] = ()


class SessionLink(NamedTuple):
    """A session that another belongs together with.

    Attributes:
        session_id: of the other.
        reason: why.
        evidence: names of shared entities, the rarest first, or the signature of the failure.
        score: above 0, at most 1, a multiple of 0.0001.
        resolution_event_id: the other's event that resolved the failure.
    """

    session_id: str
    reason: LinkReason
    evidence: tuple[str, ...]
    score: float
    resolution_event_id: str | None = None


class SessionProfile(NamedTuple):
    """What a session is compared by, whatever other sessions there are.

    Attributes:
        session_id: of its events.
        ended_at_ms: when its last event occurred.
        user_ids: of its events; empty: anybody in the tenant may see it.
        entities: names by id of those that may link it to others, if they are rare.
        failures: of different tools or signatures, by tool and signature.
    """

    session_id: str
    ended_at_ms: int
    user_ids: frozenset[str]
    entities: Mapping[str, str]
    failures: tuple[Failure, ...]


def session_profile(events: Sequence[SourceEvent]) -> SessionProfile:
    """What one session is compared by.

    Args:
        events: of the session, at least one, in any order.
    """
    user_ids = frozenset(event.user_id for event in events if event.user_id is not None)
    users = {canonical_name(user_id) for user_id in user_ids}
    return SessionProfile(
        events[0].session_id,
        max(event.occurred_at_ms for event in events),
        user_ids,
        {
            one.entity_id: one.name
            for event in events
            for one in event.entities
            if one.entity_type not in _NEVER_TYPES
            and one.subtype not in _NEVER_SUBTYPES
            and not (one.entity_type == "user" and canonical_name(one.name) in users)
        },
        failures_of(events),
    )


def rare_entities(
    entities: Mapping[str, str], session_counts: Mapping[str, int], rare: int = RARE_SESSIONS
) -> tuple[RareEntity, ...]:
    """The entities of one session that few others know, by id.

    Args:
        entities: `SessionProfile.entities`.
        session_counts: by entity id, how many sessions of the tenant mention it, this one included.
        rare: how many are few.
    """
    return tuple(
        RareEntity(key, entities[key], session_counts[key])
        for key in sorted(entities.keys() & session_counts.keys())
        if 1 <= session_counts[key] <= rare
    )


def session_traits(
    tenant: str,
    profile: SessionProfile,
    session_counts: Mapping[str, int],
    rare: int = RARE_SESSIONS,
) -> SessionTraits:
    """What one session is compared by, among the others; see `rare_entities`."""
    return SessionTraits(
        tenant,
        profile.session_id,
        profile.ended_at_ms,
        profile.user_ids,
        rare_entities(profile.entities, session_counts, rare),
        profile.failures,
    )


class FoundLink(NamedTuple):
    """A link that may be kept; `ended_at_ms`: of the other session, to choose by."""

    link: SessionLink
    ended_at_ms: int


def session_links(
    session: SessionTraits, candidates: Iterable[SessionTraits], most: int = MAX_LINKS
) -> list[SessionLink]:
    """The sessions that a session belongs together with, the best first.

    Args:
        session: whose links they are.
        candidates: sessions that share a rare entity with it or failed with one of its tools, in
            any order; itself, other tenants' and other users' are passed over.
        most: how many links; at most one for each reason to each session.
    """
    return best_links(found_links(session, candidates), most)


def found_links(session: SessionTraits, candidates: Iterable[SessionTraits]) -> Iterator[FoundLink]:
    """All links of a session to candidates; see `session_links`."""
    for other in {one.session_id: one for one in candidates if _may_see(session, one)}.values():
        for link in (_by_entities(session, other), _by_failures(session, other)):
            if link is not None:
                yield FoundLink(link, other.ended_at_ms)


def best_links(found: Iterable[FoundLink], most: int = MAX_LINKS) -> list[SessionLink]:
    """Those that are kept, the best first.

    Of equal scores those with a resolution come first, then those that ended last, then by id.
    """
    ranked: dict[LinkReason, list[tuple[tuple[Any, ...], SessionLink]]] = {
        reason: [] for reason in REASONS
    }
    for link, ended_at_ms in found:
        unresolved = link.resolution_event_id is None
        rank = (-link.score, unresolved, -ended_at_ms, link.session_id)
        ranked[link.reason].append((rank, link))
    first, second = (sorted(ranked[reason]) for reason in REASONS)
    of_first = max(most - most // 2, most - len(second))
    kept = first[:of_first]
    kept += second[: most - len(kept)]
    return [link for _, link in sorted(kept)]


def are_alike(one: Failure, other: Failure) -> bool:
    """Whether two sessions that failed so are linked."""
    return _likeness(one, other) > 0


def _may_see(session: SessionTraits, other: SessionTraits) -> bool:
    return (
        other.tenant == session.tenant
        and other.session_id != session.session_id
        and other.user_ids <= session.user_ids
    )


def _by_entities(session: SessionTraits, other: SessionTraits) -> SessionLink | None:
    known = {one.entity_id for one in other.entities}
    shared = [one for one in session.entities if one.entity_id in known]
    if not shared:
        return None
    # two sessions share it, whatever count was read before the other one came
    weight = sum(1 / log(max(2, one.sessions)) for one in shared)
    shared.sort(key=lambda one: (one.sessions, one.name, one.entity_id))
    names = tuple(dict.fromkeys(one.name[:EVIDENCE_CHARACTERS] for one in shared))
    return SessionLink(
        other.session_id,
        "shared_entities",
        names[:MAX_EVIDENCE],
        round(1 - exp(-weight / 2), 4),
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
        other.session_id,
        "similar_failure",
        (evidence[:EVIDENCE_CHARACTERS],),
        round(score, 4),
        resolution,
    )


def _likeness(one: Failure, other: Failure) -> float:
    """1 of equal failures, the share of common words of alike ones, else 0."""
    if one.tool != other.tool:
        return 0.0
    if one.signature == other.signature:
        return 1.0
    words = words_of(one.signature), words_of(other.signature)
    together = len(words[0] | words[1])
    share = len(words[0] & words[1]) / together if together else 0.0
    return share if share >= ALIKE else 0.0


# -- payloads --------------------------------------------------------------------------------------


def links_payload(session_id: str, links: Collection[SessionLink]) -> dict[str, Any]:
    """A payload of `memory.consolidated`: all links of a session; none: it has no more."""
    return {
        "kind": KIND,
        "session_id": session_id,
        "links": [_link_payload(link) for link in links],
    }


def _link_payload(link: SessionLink) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "session_id": link.session_id,
        "reason": link.reason,
        "evidence": list(link.evidence),
        "score": link.score,
    }
    if link.resolution_event_id is not None:
        payload["resolution_event_id"] = link.resolution_event_id
    return payload


def parse_links(payload: Any) -> tuple[str, list[SessionLink]]:
    """The session of a payload, and its links.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.links[0].reason`).
    """
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    session_id, links = "", []
    if fields is not None:
        fields.choice("kind", (KIND,), required=True)
        fields.refuse_others(f"kind {RUN_FIELDS} session_id links")
        session_id = fields.text("session_id", MAX_NAME_CHARACTERS, required=True) or ""
        links = [_parsed(one, session_id) for one in fields.objects("links", 0, MAX_LINKS)]
    if errors:
        raise InvalidEvent(tuple(errors))
    return session_id, links


def _parsed(fields: Fields, session_id: str) -> SessionLink:
    fields.refuse_others("session_id reason evidence score resolution_event_id")
    other = fields.text("session_id", MAX_NAME_CHARACTERS, required=True) or ""
    if other and other == session_id:
        fields.refuse("session_id", "another session")
    reason = fields.choice("reason", REASONS, required=True) or REASONS[0]
    evidence = fields.raw.get("evidence")
    if (
        not isinstance(evidence, list)
        or not 1 <= len(evidence) <= MAX_EVIDENCE
        or not all(
            isinstance(one, str) and 1 <= len(one) <= EVIDENCE_CHARACTERS for one in evidence
        )
    ):
        rule = f"a list of 1 to {MAX_EVIDENCE} strings of 1 to {EVIDENCE_CHARACTERS} characters"
        fields.refuse("evidence", rule)
        evidence = []
    score = fields.raw.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 < score <= 1:
        fields.refuse("score", "a number above 0, at most 1")
        score = 1.0
    resolution = fields.raw.get("resolution_event_id")
    if resolution is not None and not is_event_id(resolution):
        fields.refuse("resolution_event_id", "an event id: a UUID in lower case")
    return SessionLink(other, cast(LinkReason, reason), tuple(evidence), float(score), resolution)
