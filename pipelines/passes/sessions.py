"""Summaries of what changed: episodes from events, sessions from episodes, agents from sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consolidation.decisions import (
    MAX_GONE,
    AgentDecided,
    EpisodeDecided,
    SessionDecided,
    summary_payload,
)
from consolidation.digests import episode_scope_id, summary_id
from consolidation.recorded import episode_decision, kept_episodes, sealed_episodes
from consolidation.sources import SourceEvent
from consolidation.summaries import summarize_agent, summarize_session
from consolidation.windows import Episode, episodes
from pipelines.adapters.consolidation_reads import ScopeState
from pipelines.passes.deciding import Deciding, PassReport
from pipelines.passes.linking import Linking
from pipelines.passes.scopes import PassScope
from projections.events import Event
from projections.positions import Position

AGENT_SESSIONS = 50
"""The most important sessions of an agent, from which its summary is made."""
SESSIONS_AT_ONCE = 100
"""Changed sessions that are asked for at once."""


def decide_sessions(deciding: Deciding, scope: PassScope, report: PassReport) -> None:
    """Summarise the sessions of a scope that changed, what changed most before the rest."""
    linking = Linking(deciding, scope.tenant, report)
    for state in _changed(deciding, scope):
        if not deciding.in_time():
            report.complete = False
            return
        report.sessions += 1
        deciding.append(_session(deciding, scope.tenant, state, linking, report))


def _changed(deciding: Deciding, scope: PassScope) -> Iterator[ScopeState]:
    reader, tenant = deciding.reader, scope.tenant
    if scope.session_id is not None:
        yield from reader.changed_session(tenant, scope.session_id, least=scope.least)
        return
    last: ScopeState | None = None
    while page := reader.changed_sessions(
        tenant, after=last, least=scope.least, limit=SESSIONS_AT_ONCE
    ):
        last = page[-1]
        wanted = {state.session_id for state in page}
        if scope.agent_id is not None:
            wanted = reader.requests.of_agent(tenant, scope.agent_id, wanted)
        yield from (state for state in page if state.session_id in wanted)


def _session(
    deciding: Deciding, tenant: str, state: ScopeState, linking: Linking, report: PassReport
) -> list[Event]:
    """Decisions about a session; the last one tells that it was looked at."""
    events = deciding.reader.session_events(tenant, state.session_id)
    recorded = deciding.reader.recorded_session(tenant, state.session_id)
    retained = {event.event_id for event in events}
    sealed = sealed_episodes(recorded.episodes, retained)
    known = {one.summary_id: one for one in recorded.episodes}
    degrees = _degrees(deciding, tenant, events)
    decided: list[Event] = []
    current = {one.summary_id: one.summary for one in kept_episodes(recorded.episodes, retained)}
    for episode in episodes(events, sealed):
        own_id = summary_id(tenant, "episode", _scope_id(episode))
        change = episode_decision(episode, known.get(own_id), degrees)
        if change is None:
            current[own_id] = known[own_id].summary
            continue
        current[own_id] = change.summary
        before = known[own_id].decided_at if own_id in known else None
        decided.append(_decision(deciding, tenant, own_id, before, change))
    report.episodes_written += len(decided)
    if not current:
        return []
    report.sessions_written += 1
    report.agents |= {(tenant, event.agent_id) for event in events}
    session = SessionDecided(
        summarize_session(list(current.values())),
        state.event_count,
        state.importance_total,
        tuple(sorted(known.keys() - current.keys()))[:MAX_GONE],
    )
    own_id = summary_id(tenant, "session", state.session_id)
    around = linking.decisions(state.session_id, events)
    last = _decision(deciding, tenant, own_id, recorded.decided_at, session)
    return [*around, *decided, last]


def decide_agents(deciding: Deciding, report: PassReport) -> None:
    """Summarise the agents of the sessions that changed, once those are applied."""
    for tenant, agent_id in sorted(report.agents):
        if not deciding.in_time():
            report.complete = False
            return
        report.agents_written += _decide_agent(deciding, tenant, agent_id)


def _decide_agent(deciding: Deciding, tenant: str, agent_id: str) -> bool:
    """Decide about an agent, if its sessions say something new of it."""
    sessions, totals = deciding.reader.agent_sessions(tenant, agent_id, AGENT_SESSIONS)
    if not sessions:
        return False
    digest, before = deciding.reader.recorded_agent(tenant, agent_id)
    summary = summarize_agent(agent_id, sessions, totals)
    if summary.digest == digest:
        return False
    own_id = summary_id(tenant, "agent", agent_id)
    deciding.append([_decision(deciding, tenant, own_id, before, AgentDecided(summary))])
    return True


def _degrees(deciding: Deciding, tenant: str, events: Sequence[SourceEvent]) -> dict[str, int]:
    mentioned = {one.entity_id for event in events for one in event.entities}
    return deciding.reader.degrees(tenant, mentioned)


def _decision(
    deciding: Deciding,
    tenant: str,
    subject: str,
    before: Position | None,
    decided: EpisodeDecided | SessionDecided | AgentDecided,
) -> Event:
    seen = decided.seen_events if isinstance(decided, SessionDecided) else None
    about = (subject, decided.summary.digest, before, seen)
    return deciding.decision(tenant, summary_payload(decided), *about)


def _scope_id(episode: Episode) -> str:
    return episode_scope_id(episode.session_id, episode.trace_id, episode.number)
