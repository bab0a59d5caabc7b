"""A pass of consolidation: what changed is read, said anew, and appended as decisions.

Sessions first, what changed most before the rest: episodes from events, the session from its
episodes. Then, once the stage has applied those, the agents that took part. A pass keeps nothing:
a digest that the graph shows already costs a comparison, so one that ran out of time is taken up
by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from consolidation.decisions import (
    CONSOLIDATED_EVENT,
    MAX_GONE,
    AgentDecided,
    EpisodeDecided,
    SessionDecided,
    summary_payload,
)
from consolidation.digests import episode_scope_id, events_digest, summary_id
from consolidation.sources import SourceEvent
from consolidation.summaries import (
    VERSION,
    summarize_agent,
    summarize_episode,
    summarize_session,
)
from consolidation.windows import EPISODE_EVENTS, Episode, episodes
from enrichment.sameness import DECIDER
from pipelines.adapters.consolidation_reads import (
    ConsolidationReader,
    RecordedEpisode,
    ScopeState,
    sealed_episodes,
)
from projections.events import Event, derived_event_id
from projections.positions import Position
from projections.system_events import PARTITION_KEY

AGENT_SESSIONS = 50
"""The most important sessions of an agent, from which its summary is made."""
SESSIONS_AT_ONCE = 100
"""Changed sessions that are asked for at once."""

Append = Callable[[Sequence[Event]], None]


@dataclass
class PassReport:
    """What a pass did. `complete`: it had time for all that there was to do."""

    sessions: int = 0
    episodes_written: int = 0
    sessions_written: int = 0
    agents_written: int = 0
    complete: bool = True
    agents: set[tuple[str, str]] = field(default_factory=set)


class Pass:
    """Decides about one target's graph.

    Args:
        reader: of the graph.
        append: takes decisions; those that the ledger holds already are the ledger's.
        applied: waits until the stage has applied what was appended.
        now_ms: the clock, which decisions bear.
        in_time: whether the pass may go on.
    """

    def __init__(
        self,
        reader: ConsolidationReader,
        append: Append,
        applied: Callable[[], None],
        *,
        now_ms: int,
        in_time: Callable[[], bool] = lambda: True,
    ) -> None:
        self._reader = reader
        self._append = append
        self._applied = applied
        self._now_ms = now_ms
        self._in_time = in_time

    def run(self, tenants: Iterable[str] | None = None) -> PassReport:
        """Summarise what changed, of these tenants or of all."""
        report = PassReport()
        for tenant in self._reader.tenants() if tenants is None else tenants:
            self._sessions(tenant, report)
        self._applied()
        for tenant, agent_id in sorted(report.agents):
            if not self._in_time():
                report.complete = False
                break
            report.agents_written += self._agent(tenant, agent_id)
        self._applied()
        return report

    def _sessions(self, tenant: str, report: PassReport) -> None:
        last: ScopeState | None = None
        while changed := self._reader.changed_sessions(tenant, after=last, limit=SESSIONS_AT_ONCE):
            for state in changed:
                if not self._in_time():
                    report.complete = False
                    return
                report.sessions += 1
                self._append(self._session(tenant, state, report))
            last = changed[-1]

    def _session(self, tenant: str, state: ScopeState, report: PassReport) -> list[Event]:
        """Decisions about a session, its episodes before it."""
        events = self._reader.session_events(tenant, state.session_id)
        recorded = self._reader.recorded_session(tenant, state.session_id)
        retained = {event.event_id for event in events}
        sealed = sealed_episodes(recorded.episodes, retained)
        known = {one.summary_id: one for one in recorded.episodes}
        degrees = self._degrees(tenant, events)
        decided: list[Event] = []
        current = {one.summary_id: one.summary for one in _kept(recorded.episodes, retained)}
        for episode in episodes(events, sealed):
            own_id = summary_id(tenant, "episode", _scope_id(episode))
            change = _decision_about(episode, known.get(own_id), degrees)
            if change is None:
                current[own_id] = known[own_id].summary
                continue
            current[own_id] = change.summary
            before = known[own_id].decided_at if own_id in known else None
            decided.append(self._decision(tenant, own_id, before, change))
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
        return [*decided, self._decision(tenant, own_id, recorded.decided_at, session)]

    def _degrees(self, tenant: str, events: Sequence[SourceEvent]) -> dict[str, int]:
        mentioned = {one.entity_id for event in events for one in event.entities}
        return self._reader.degrees(tenant, mentioned)

    def _agent(self, tenant: str, agent_id: str) -> bool:
        """Decide about an agent, if its sessions say something new of it."""
        sessions, totals = self._reader.agent_sessions(tenant, agent_id, AGENT_SESSIONS)
        if not sessions:
            return False
        digest, before = self._reader.recorded_agent(tenant, agent_id)
        summary = summarize_agent(agent_id, sessions, totals)
        if summary.digest == digest:
            return False
        own_id = summary_id(tenant, "agent", agent_id)
        self._append([self._decision(tenant, own_id, before, AgentDecided(summary))])
        return True

    def _decision(
        self,
        tenant: str,
        subject: str,
        before: Position | None,
        decided: EpisodeDecided | SessionDecided | AgentDecided,
    ) -> Event:
        """The event; its id is what it is about, so that a crash never decides twice."""
        digest = decided.summary.digest
        sums = str(decided.seen_events) if isinstance(decided, SessionDecided) else ""
        about = (CONSOLIDATED_EVENT, tenant, subject, digest, str(before or ""), sums)
        return Event(
            tenant=tenant,
            event_id=derived_event_id(*about),
            event_type=CONSOLIDATED_EVENT,
            occurred_at_ms=self._now_ms,
            session_id=PARTITION_KEY,
            agent_id=DECIDER,
            trace_id=PARTITION_KEY,
            payload=summary_payload(decided),
        )


def _decision_about(
    episode: Episode, before: RecordedEpisode | None, degrees: dict[str, int]
) -> EpisodeDecided | None:
    """What is to be said anew of an episode; None: nothing."""
    event_ids = tuple(event.event_id for event in episode.events)
    if episode.sealed and before is not None:
        room = EPISODE_EVENTS - len(before.event_ids)
        late = [one for one in event_ids if one not in before.event_ids][: max(0, room)]
        if not late:
            return None
        # Its first and last member say how far it goes, so those that came late go between.
        return EpisodeDecided(before.summary, (*before.event_ids[:-1], *late, before.event_ids[-1]))
    if before is not None and before.digest == events_digest(episode.events, VERSION):
        return None
    return EpisodeDecided(summarize_episode(episode, degrees), event_ids)


def _kept(
    recorded: Iterable[RecordedEpisode], retained: Container[str]
) -> Iterator[RecordedEpisode]:
    """Episodes all of whose members left the graph: what was said of them stays."""
    return (one for one in recorded if not any(key in retained for key in one.event_ids))


def _scope_id(episode: Episode) -> str:
    return episode_scope_id(episode.session_id, episode.trace_id, episode.number)
