"""Summaries of what changed: episodes from events, sessions from episodes, agents from sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from consolidation.episodes import episode_decision, episodes, kept_episodes, sealed_episodes
from consolidation.payloads import (
    MAX_GONE,
    AgentDecided,
    EpisodeDecided,
    SessionDecided,
)
from consolidation.sources import Episode, RecordedSession, SourceEvent
from consolidation.summaries import summarize_agent, summarize_session
from consolidation.summary_payloads import episode_scope_id, summary_id
from pipelines.graph.reads.consolidation import ScopeState
from pipelines.operations.passes.deciding import Deciding, PassReport
from pipelines.operations.passes.linking import Linking
from pipelines.operations.passes.scopes import PassScope
from pipelines.operations.passes.surroundings import Surroundings, SurroundingsReader
from projections.events import Event
from projections.identity import Position

AGENT_SESSIONS = 50
"""The most important sessions of an agent, from which its summary is made."""
SESSIONS_AT_ONCE = 100
"""Changed sessions that are asked for, and read, at once."""
EVENTS_AT_ONCE = 2_000
"""Events of them that are, unless one session has more."""


class _Changed(NamedTuple):
    """A session that changed, and what a pass reads of it.

    Attributes:
        events: that it retains.
        recorded: what was decided about it so far.
        degrees: how many references each entity has that its events mention.
        around: None when it retains nothing.
    """

    state: ScopeState
    events: Sequence[SourceEvent]
    recorded: RecordedSession
    degrees: Mapping[str, int]
    around: Surroundings | None


def decide_sessions(deciding: Deciding, scope: PassScope, report: PassReport) -> None:
    """Summarise the sessions of a scope that changed, what changed most before the rest."""
    linking = Linking(deciding, scope.tenant, report)
    surroundings = SurroundingsReader(deciding.reader, scope.tenant)
    for page in _pages(deciding, scope):
        changed = _read(deciding, scope.tenant, page, surroundings)
        for _ in page:
            if not deciding.in_time():
                report.complete = False
                return
            report.sessions += 1
            deciding.append(
                _decisions(deciding, scope.tenant, next(changed), linking, report=report)
            )


def _pages(deciding: Deciding, scope: PassScope) -> Iterator[list[ScopeState]]:
    """Sessions that are few enough to be read at once."""
    page: list[ScopeState] = []
    event_count = 0
    for state in _states(deciding, scope):
        event_count += state.event_count
        if page and (len(page) == SESSIONS_AT_ONCE or event_count > EVENTS_AT_ONCE):
            yield page
            page, event_count = [], state.event_count
        page.append(state)
    if page:
        yield page


def _states(deciding: Deciding, scope: PassScope) -> Iterator[ScopeState]:
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


def _read(
    deciding: Deciding,
    tenant: str,
    page: Sequence[ScopeState],
    surroundings: SurroundingsReader,
) -> Iterator[_Changed]:
    """What a pass reads of the sessions of a page; nothing before the first is asked for."""
    reader, ids = deciding.reader.sessions, [state.session_id for state in page]
    events = reader.events(tenant, ids)
    recorded = reader.recorded(tenant, ids)
    degrees = reader.degrees(
        tenant,
        (one.entity_id for some in events.values() for event in some for one in event.entities),
    )
    around = surroundings.read({one: events[one] for one in ids if one in events})
    for state in page:
        own_id = state.session_id
        yield _Changed(
            state=state,
            events=events.get(own_id, ()),
            recorded=recorded.get(own_id, RecordedSession(None, ())),
            degrees=degrees,
            around=next(around) if own_id in events else None,
        )


def _decisions(
    deciding: Deciding, tenant: str, changed: _Changed, linking: Linking, *, report: PassReport
) -> list[Event]:
    """Decisions about a session; the last one tells that it was looked at."""
    events, recorded = changed.events, changed.recorded
    retained = {event.event_id for event in events}
    sealed = sealed_episodes(recorded.episodes, retained)
    recorded_by_id = {one.summary_id: one for one in recorded.episodes}
    decided: list[Event] = []
    current = {one.summary_id: one.summary for one in kept_episodes(recorded.episodes, retained)}
    for episode in episodes(events, sealed):
        own_id = summary_id(tenant, "episode", _scope_id(episode))
        change = episode_decision(episode, recorded_by_id.get(own_id), changed.degrees)
        if change is None:
            current[own_id] = recorded_by_id[own_id].summary
            continue
        current[own_id] = change.summary
        before = recorded_by_id[own_id].decided_at if own_id in recorded_by_id else None
        decided.append(_decision(deciding, tenant, own_id, change, before=before))
    report.episodes_written += len(decided)
    if not current:
        return []
    report.sessions_written += 1
    report.agents |= {(tenant, event.agent_id) for event in events}
    session = SessionDecided(
        summary=summarize_session(list(current.values())),
        seen_events=changed.state.event_count,
        seen_importance=changed.state.importance_total,
        gone=tuple(sorted(recorded_by_id.keys() - current.keys()))[:MAX_GONE],
    )
    own_id = summary_id(tenant, "session", changed.state.session_id)
    around = linking.decisions(changed.around) if changed.around is not None else []
    last = _decision(deciding, tenant, own_id, session, before=recorded.decided_at)
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
    deciding.append(
        [_decision(deciding, tenant, own_id, AgentDecided(summary=summary), before=before)]
    )
    return True


def _decision(
    deciding: Deciding,
    tenant: str,
    subject: str,
    decided: EpisodeDecided | SessionDecided | AgentDecided,
    *,
    before: Position | None,
) -> Event:
    seen = decided.seen_events if isinstance(decided, SessionDecided) else None
    about = (subject, decided.summary.digest, before, seen)
    return deciding.decision(tenant, decided.payload(), *about)


def _scope_id(episode: Episode) -> str:
    return episode_scope_id(episode.session_id, episode.trace_id, episode.number)
