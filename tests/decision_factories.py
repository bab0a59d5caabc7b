"""Builders of decisions of a pass, as the ledger holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from consolidation.communities import Community, Member, community_chunks, fingerprint
from consolidation.payloads import (
    AgentDecided,
    CommunityGone,
    CommunityText,
    EpisodeDecided,
    LinksDecided,
    PassDecided,
    SessionDecided,
    SessionLink,
    Trait,
    TraitKind,
    TraitsDecided,
)
from consolidation.summary_payloads import (
    AgentSummary,
    EpisodeSummary,
    Overview,
    Participant,
    SessionSummary,
    episode_scope_id,
    summary_id,
)
from projections.events import Event
from tests.factories import START_MS, event, event_id

DIGEST = "d" * 32
ENTITIES = [f"{n:032x}" for n in range(1, 9)]
TRAITS = ["4" * 32, "5" * 32, "6" * 32, "7" * 32]
COMMUNITIES = ["a" * 32, "b" * 32, "c" * 32]


def system(number: int, event_type: str, payload: Any, **fields: Any) -> Event:
    """A system event, in the partition of its tenant's decisions."""
    return event(number, event_type=event_type, session_id="memory", payload=payload, **fields)


def consolidated(number: int, payload: Any, **fields: Any) -> Event:
    """A decision of kind `payload["kind"]`."""
    return system(number, "memory.consolidated", payload, **fields)


def said_of(content: str = "It was said.", agents: Sequence[str] = ("agent-1",)) -> dict[str, Any]:
    """What a summary of two events of some agents says."""
    overview = Overview(
        highlights=(),
        participants=tuple(Participant(agent, agent, 1, 1, 0) for agent in agents),
        tools=(),
        entities=(),
        event_count=2,
        importance_total=10,
        failed_count=0,
        started_at_ms=START_MS,
        ended_at_ms=START_MS + 1,
    )
    return {**overview.overview(), "content": content, "digest": DIGEST}


def episode_id(session_id: str = "session-1", number: int = 0) -> str:
    """The id of an episode's summary."""
    scope_id = episode_scope_id(session_id, "trace-1", number)
    return summary_id("default", "episode", scope_id)


def session_summary_id(session_id: str = "session-1") -> str:
    """The id of a session's summary."""
    return summary_id("default", "session", session_id)


def episode_decided(
    members: Iterable[int], session_id: str = "session-1", number: int = 0, **said: Any
) -> EpisodeDecided:
    """An episode of the events of those numbers."""
    summary = EpisodeSummary(
        session_id=session_id, trace_id="trace-1", number=number, **said_of(**said)
    )
    return EpisodeDecided(summary=summary, event_ids=tuple(map(event_id, members)))


def session_decided(
    session_id: str = "session-1",
    *,
    seen: tuple[int, int] = (0, 0),
    gone: Sequence[str] = (),
    **said: Any,
) -> SessionDecided:
    """A session of one episode."""
    return SessionDecided(
        summary=SessionSummary(session_id=session_id, episode_count=1, **said_of(**said)),
        seen_events=seen[0],
        seen_importance=seen[1],
        gone=tuple(gone),
    )


def episode(number: int, members: Iterable[int], session_id: str = "session-1") -> Event:
    """The decision of an episode."""
    return consolidated(number, episode_decided(members, session_id).payload())


def session_made(number: int, session_id: str = "session-1", **more: Any) -> Event:
    """The decision of a session."""
    return consolidated(number, session_decided(session_id, **more).payload())


def agent_made(number: int, agent_id: str = "agent-1") -> Event:
    """The decision of an agent."""
    summary = AgentSummary(agent_id=agent_id, session_count=1, **said_of())
    return consolidated(number, AgentDecided(summary=summary).payload())


def linked(number: int, session_id: str, *others: str) -> Event:
    """The decision of a session's links."""
    links = tuple(SessionLink(one, "shared_entities", ("ZFA04Y",), 0.5) for one in others)
    return consolidated(number, LinksDecided(session_id=session_id, links=links).payload())


def community(number: int, community_id: str, members: Sequence[str], run_id: str) -> Event:
    """The decision of a community that fits into one chunk."""
    made = Community(tuple(Member(one, one, 1.0) for one in members), fingerprint(members, []))
    text = CommunityText("Caroline and Acme", f"{len(members)} of them.")
    (chunk,) = community_chunks(community_id, made, text, b"\0\0\x80?" * 384, run_id=run_id)
    return consolidated(number, chunk.payload())


def community_gone(number: int, community_id: str, run_id: str) -> Event:
    """The decision that a community is no more."""
    return consolidated(number, CommunityGone(community_id=community_id, run_id=run_id).payload())


def derived(
    number: int,
    *traits: str,
    user: str = "ann",
    name: str = "",
    gone: Sequence[str] = (),
    proofs: Sequence[str] = (),
    sessions: Sequence[str] = ("session-1", "session-2"),
) -> Event:
    """The decision of what is derived of a user: traits of each kind, by id.

    By some decisions, those of even numbers, the last skill is above the first.
    """
    kinds: tuple[TraitKind, ...] = ("pattern", "skill", "interest", "skill")
    made = tuple(
        Trait(
            trait_id=own_id,
            kind=kinds[TRAITS.index(own_id)],
            name=name or f"what {number} says",
            strength=0.5,
            session_count=3,
            first_seen_ms=START_MS,
            last_seen_ms=START_MS + number,
            holds_until_ms=START_MS + 1_000 * number,
            event_ids=tuple(proofs) or (event_id(1), event_id(2)),
            summary_ids=tuple(map(session_summary_id, sessions)),
            parent_id=TRAITS[3] if own_id == TRAITS[1] and number % 2 == 0 else None,
        )
        for own_id in traits
    )
    decided = TraitsDecided(user_ids=(user,), traits=made, gone=tuple(gone))
    return consolidated(number, decided.payload())


def boosted(number: int, boosts: dict[int, float]) -> Event:
    """The decision of boosts, by number of event."""
    named = {event_id(one): boost for one, boost in boosts.items()}
    return consolidated(number, {"kind": "boosts", "boosts": named})


def forgotten(number: int, events: Iterable[int], summary: str | None = None) -> Event:
    """The decision that members of a Summary leave."""
    named = {"archive": [event_id(one) for one in events]}
    payload = {"kind": "events", "summary_id": summary or episode_id(), "event_ids": named}
    return system(number, "memory.forgotten", payload)


def recalled(number: int, events: Iterable[int], **more: Any) -> Event:
    """The decision that events come back."""
    payload = {"kind": "events", "event_ids": [event_id(one) for one in events], **more}
    return system(number, "memory.recalled", payload)


def requested(number: int) -> Event:
    """A pass is asked for."""
    return system(number, "memory.consolidation_requested", {"reason": "now"})


def pass_decided(
    requests: Iterable[int] = (), *, complete: bool = True, traits: bool = False
) -> PassDecided:
    """A pass that answered requests."""
    return PassDecided(
        run_id="run",
        started_at_ms=1,
        ended_at_ms=2,
        complete=complete,
        request_ids=tuple(map(event_id, requests)),
        traits=traits or None,
    )


def pass_ended(number: int, requests: Iterable[int] = (), *, traits: bool = False) -> Event:
    """A pass ended, and answered requests."""
    return consolidated(number, pass_decided(requests, traits=traits).payload())
