"""What the system events of this stage say; see `docs/decisions/0010-consolidation.md`.

`memory.consolidated` holds one of seven kinds. Those of links, boosts and communities are read by
`links`, `centrality` and `community_payloads`, `memory.forgotten` and `memory.recalled` by
`departure_payloads`; the others are:

- episode: summary (`summary_payloads`), and event_ids, its 1 to 500 members.
- session: summary, seen_events and seen_importance (the sums of its Scope that it was made at),
  and gone, ids of episodes' summaries that are no more.
- agent: summary.
- pass: run_id, started_at_ms, ended_at_ms, complete, communities (whether it looked at them), and
  request_ids, the requests it answered.

Each may carry run_id, chunk and chunks besides. `memory.consolidation_requested` is read by
`enrichment.payloads`, `memory.accessed` by `accesses`, `memory.feedback` by `enrichment.payloads`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from consolidation import centrality, community_payloads, links
from consolidation.accesses import ACCESSED_EVENT, Accessed, parse_accessed
from consolidation.community_payloads import CommunityChunk, CommunityGone, parse_community
from consolidation.digests import DIGEST_BYTES
from consolidation.links import SessionLink
from consolidation.pruning_payloads import (
    FORGOTTEN_EVENT,
    RECALLED_EVENT,
    RUN_FIELDS,
    Decided,
    event_ids,
    is_event_id,
    parse_departure,
)
from consolidation.summaries import AgentSummary, EpisodeSummary, SessionSummary
from consolidation.summary_payloads import Summary, as_payload, from_payload
from consolidation.windows import EPISODE_EVENTS
from enrichment.entity_matching import DECIDER
from enrichment.payload_fields import Fields
from enrichment.payloads import (
    FEEDBACK_EVENT,
    REQUESTED_EVENT,
    Feedback,
    parse_feedback,
    parse_request,
)
from projections.errors import InvalidEvent
from projections.events import Event, canonical_json, derived_event_id
from projections.positions import START, Position
from projections.system_events import PARTITION_KEY

CONSOLIDATED_EVENT: Final = "memory.consolidated"

MAX_GONE: Final = 150
"""Summaries that one decision takes away; with the rest below 128 KiB."""
MAX_REQUESTS: Final = 2_000
"""That one pass answers."""

_HASH = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


class EpisodeDecided(NamedTuple):
    """An episode's summary, and its members, those that left the graph included."""

    summary: EpisodeSummary
    event_ids: tuple[str, ...]


class SessionDecided(NamedTuple):
    """A session's summary.

    Attributes:
        summary: of its episodes.
        seen_events: `Scope.event_count` when it was made.
        seen_importance: `Scope.importance_total` when it was made.
        gone: ids of episodes' summaries that are no more.
    """

    summary: SessionSummary
    seen_events: int
    seen_importance: int
    gone: tuple[str, ...] = ()


class AgentDecided(NamedTuple):
    """An agent's summary."""

    summary: AgentSummary


class LinksDecided(NamedTuple):
    """All links of a session."""

    session_id: str
    links: tuple[SessionLink, ...]


class BoostsDecided(NamedTuple):
    """Boosts by event id."""

    boosts: Mapping[str, float]


class PassDecided(NamedTuple):
    """A pass ended.

    Attributes:
        run_id: of the pass.
        started_at_ms, ended_at_ms: since the epoch.
        complete: whether it had time for all that there was to do.
        request_ids: event ids of the requests that it answered.
        communities: whether it looked at them.
    """

    run_id: str
    started_at_ms: int
    ended_at_ms: int
    complete: bool
    request_ids: tuple[str, ...] = ()
    communities: bool = False


class Requested(NamedTuple):
    """A pass is asked for; `request` is canonical JSON, None without a payload."""

    request: str | None


Decision = (
    EpisodeDecided
    | SessionDecided
    | AgentDecided
    | LinksDecided
    | BoostsDecided
    | CommunityChunk
    | CommunityGone
    | PassDecided
    | Requested
    | Accessed
    | Feedback
    | Decided
)


# -- events ----------------------------------------------------------------------------------------


def decision_event(
    event_type: str, tenant: str, payload: Mapping[str, Any], now_ms: int, *about: object
) -> Event:
    """A decision as an event; its id is what it is about, so a crash never decides twice.

    Args:
        event_type: of the event.
        tenant: that it is about.
        payload: what is decided.
        now_ms: the clock, which the decision bears.
        about: what is decided on what grounds: the subject, a digest of what is said of it
            and the position of the decision that the graph shows (None: there is none).
            Without that position, what is decided a second time, after something else was,
            would be taken for the first.
    """
    grounds = ("" if one is None else str(one) for one in about)
    return Event(
        tenant=tenant,
        event_id=derived_event_id(event_type, tenant, *grounds),
        event_type=event_type,
        occurred_at_ms=now_ms,
        session_id=PARTITION_KEY,
        agent_id=DECIDER,
        trace_id=PARTITION_KEY,
        payload=payload,
    )


def recall_events(
    tenant: str,
    payloads: Iterable[Mapping[str, Any]],
    decided_at: Iterable[Position | None],
    now_ms: int,
) -> list[Event]:
    """Decisions that what is away comes back; the same again after a crash.

    Args:
        tenant: whose memory.
        payloads: of `recalled_payloads`.
        decided_at: positions of the decisions by which it went, None where nobody knows.
        now_ms: the clock.
    """
    newest = max((at for at in decided_at if at is not None), default=START)
    return [
        decision_event(
            RECALLED_EVENT, tenant, payload, now_ms, canonical_json(payload).decode(), newest
        )
        for payload in payloads
    ]


# -- payloads --------------------------------------------------------------------------------------


def summary_payload(decided: EpisodeDecided | SessionDecided | AgentDecided) -> dict[str, Any]:
    """The payload of `memory.consolidated` for a summary."""
    payload: dict[str, Any] = {"summary": as_payload(decided.summary)}
    match decided:
        case EpisodeDecided():
            return {"kind": "episode", **payload, "event_ids": list(decided.event_ids)}
        case SessionDecided():
            return {
                "kind": "session",
                **payload,
                "seen_events": decided.seen_events,
                "seen_importance": decided.seen_importance,
                "gone": list(decided.gone),
            }
        case AgentDecided():
            return {"kind": "agent", **payload}


def pass_payload(decided: PassDecided) -> dict[str, Any]:
    """The payload of `memory.consolidated` for the end of a pass."""
    return {"kind": "pass", **decided._asdict(), "request_ids": list(decided.request_ids)}


# -- and back --------------------------------------------------------------------------------------


def parse_decision(event: Event) -> Decision | None:
    """What a system event of this stage says; None: nothing that is applied.

    Raises:
        InvalidEvent: with every broken rule of the payload, each by field.
    """
    if event.event_type == CONSOLIDATED_EVENT:
        return _consolidated(event.payload)
    if event.event_type in (FORGOTTEN_EVENT, RECALLED_EVENT):
        return parse_departure(event.event_type, event.payload)
    if event.event_type == REQUESTED_EVENT:
        return _requested(event.payload)
    if event.event_type == ACCESSED_EVENT:
        return parse_accessed(event.payload)
    if event.event_type == FEEDBACK_EVENT:
        return parse_feedback(event.payload)
    return None


def _consolidated(payload: Any) -> Decision:
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    kind = fields.choice("kind", _READERS, required=True) if fields is not None else None
    if kind is None:
        raise InvalidEvent(tuple(errors))
    return _READERS[kind](payload)


def _requested(payload: Any) -> Requested:
    if payload is None:
        return Requested(None)
    parse_request(payload)
    return Requested(canonical_json(payload).decode())


def _episode(payload: Any) -> EpisodeDecided:
    fields = _fields(payload, "summary event_ids")
    members = event_ids(fields, "event_ids")
    if len(members) > EPISODE_EVENTS:
        fields.refuse("event_ids", f"at most {EPISODE_EVENTS} event ids")
    return EpisodeDecided(_summary(fields, EpisodeSummary), members)


def _session(payload: Any) -> SessionDecided:
    fields = _fields(payload, "summary seen_events seen_importance gone")
    gone: Any = fields.raw.get("gone", [])
    if not isinstance(gone, list) or len(gone) > MAX_GONE or not all(map(_is_hash, gone)):
        fields.refuse("gone", f"a list of at most {MAX_GONE} ids of 32 hexadecimal digits")
        gone = []
    seen = fields.whole("seen_events"), fields.whole("seen_importance")
    return SessionDecided(_summary(fields, SessionSummary), *seen, tuple(gone))


def _agent(payload: Any) -> AgentDecided:
    return AgentDecided(_summary(_fields(payload, "summary"), AgentSummary))


def _links(payload: Any) -> LinksDecided:
    session_id, found = links.parse_links(payload)
    return LinksDecided(session_id, tuple(found))


def _boosts(payload: Any) -> BoostsDecided:
    return BoostsDecided(centrality.parse_boosts(payload))


def _pass(payload: Any) -> PassDecided:
    fields = _fields(payload, "started_at_ms ended_at_ms complete communities request_ids")
    run_id = fields.text("run_id", community_payloads.MAX_RUN_ID_CHARACTERS, required=True) or ""
    times = fields.whole("started_at_ms"), fields.whole("ended_at_ms")
    complete = fields.flag("complete")
    if complete is None:
        fields.refuse("complete", "true or false")
    requests: Any = fields.raw.get("request_ids", [])
    if not isinstance(requests, list) or len(requests) > MAX_REQUESTS:
        fields.refuse("request_ids", f"a list of at most {MAX_REQUESTS:,} event ids")
    elif not all(map(is_event_id, requests)):
        fields.refuse("request_ids", "event ids: UUIDs in lower case")
    communities = bool(fields.flag("communities"))
    _raise_any(fields)
    return PassDecided(run_id, *times, bool(complete), tuple(requests), communities)


_READERS: Final[Mapping[str, Callable[[Any], Decision]]] = {
    "episode": _episode,
    "session": _session,
    "agent": _agent,
    links.KIND: _links,
    centrality.KIND: _boosts,
    community_payloads.KIND: parse_community,
    "pass": _pass,
}
_Summary = TypeVar("_Summary", EpisodeSummary, SessionSummary, AgentSummary)


def _fields(payload: Any, known: str) -> Fields:
    fields = Fields(payload, "payload", [])
    fields.refuse_others(f"kind {RUN_FIELDS} {known}")
    return fields


def _summary(fields: Fields, of: type[_Summary]) -> _Summary:
    """The summary within, of that scope.

    Raises:
        InvalidEvent: with every broken rule of the whole payload.
    """
    path = f"{fields.path}.summary"
    summary: Summary | None = None
    try:
        summary = from_payload(fields.raw.get("summary"), path)
    except InvalidEvent as error:
        fields.errors.extend(error.errors)
    if isinstance(summary, of):
        _raise_any(fields)
        return summary
    if summary is not None:
        fields.refuse("summary", "of the scope that kind names")
    raise InvalidEvent(tuple(fields.errors))


def _raise_any(fields: Fields) -> None:
    if fields.errors:
        raise InvalidEvent(tuple(fields.errors))


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
