"""Summaries of what changed: episodes from events, sessions from episodes, agents from sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from consolidation.episodes import ToldEpisodes, told_episodes
from consolidation.forgetting_payloads import MAX_IDS, chunks
from consolidation.hierarchy import LEVELS
from consolidation.payloads import (
    AgentDecided,
    EpisodeDecided,
    SessionDecided,
    SummariesGone,
)
from consolidation.sources import RecordedSession, SourceEvent, Totals
from consolidation.summaries import summarize_agent, summarize_session
from consolidation.summary_payloads import (
    EpisodeSummary,
    SessionSummary,
    summary_id,
)
from consolidation.wording import as_before
from pipelines.graph.port import Reads, pages
from pipelines.graph.rows import End, FoundNode
from pipelines.operations.passes.deciding import (
    NO_DIGEST,
    AgentPart,
    Deciding,
    PassReport,
    UserSession,
)
from pipelines.operations.passes.linking import Linking
from pipelines.operations.passes.scopes import PassScope, parsed_summary, position_of
from pipelines.operations.passes.source_events import (
    degrees,
    recorded_sessions,
    session_members,
    source_events,
)
from pipelines.operations.passes.surroundings import Surroundings, SurroundingsReader
from projections.events import Event
from projections.identity import START, Position
from projections.operations import Key
from projections.schema import SCOPE, SUMMARIZES, SUMMARY

AGENT_SESSIONS = 50
"""The most important sessions of an agent, from which its summary is made."""
SESSIONS_AT_ONCE = 100
"""Changed sessions that are asked for, and read, at once."""
EVENTS_AT_ONCE = 2_000
"""Events of them that are, unless one session has more."""
SUMMARIES_AT_ONCE = 2_000
"""Summaries among which it is looked for what passes before left to be done."""
_STATE = ("event_count", "importance_total", "pending_importance")


class ScopeState(NamedTuple):
    """What a session has come to, and what of it no pass has seen.

    Attributes:
        pending: importance that came since the last pass.
    """

    session_id: str
    event_count: int
    importance_total: int
    pending: int


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


class _Told(NamedTuple):
    """A session that changed, and what its episodes come to.

    Attributes:
        parts: its episodes.
        sessions: its summaries by id, one for each of its users.
    """

    changed: _Changed
    parts: ToldEpisodes
    sessions: Mapping[str, SessionSummary]


class LeftOver(NamedTuple):
    """What passes before left to be done, by the summaries of sessions.

    Attributes:
        session_ids: that were told before it was written down whose events that took.
        agents: of which a session was summarised after they were: a pass that was cut short after
            its sessions left them so.
        told: sessions of users, and the positions of the decisions about them.
    """

    session_ids: Collection[str] = ()
    agents: Collection[AgentPart] = ()
    told: Mapping[UserSession, Position] = {}


def left_over(graph: Reads, tenant: str) -> LeftOver:
    """What nothing else tells that it is to be looked at: it reads the summaries of a tenant."""
    untold: set[str] = set()
    behind: dict[Key, Key] = {}
    told: dict[UserSession, Position] = {}
    names = ("level", "session_id", "user_ids", "decided_at", "time_range")
    for page in pages(
        graph, SUMMARY.label, SUMMARY.key, (tenant,), properties=names, size=SUMMARIES_AT_ONCE
    ):
        sessions = [node for node in page if node.values["level"] == LEVELS["session"]]
        untold |= {
            node.values["session_id"] for node in sessions if node.values["user_ids"] is None
        }
        behind |= _behind(graph, sessions)
        for node in sessions:
            if len(users := list(node.values["user_ids"] or ())) == 1:
                ended_at_ms = node.values["time_range"][1]
                session = UserSession(users[0], ended_at_ms, node.values["session_id"])
                told[session] = position_of(node.values["decided_at"]) or START
    return LeftOver(sorted(untold), _agents_behind(graph, tenant, behind), told)


def decide_sessions(
    deciding: Deciding, scope: PassScope, report: PassReport, before: LeftOver
) -> None:
    """Summarise the sessions of a scope that changed, what changed most before the rest."""
    linking = Linking(deciding, scope.tenant, report)
    surroundings = SurroundingsReader(deciding.graph, scope.tenant, anew=deciding.anew)
    for page in _parts(_states(deciding, scope, before)):
        changed = _read(deciding, scope.tenant, page, surroundings)
        at_once = 1 if deciding.words is None else deciding.words.at_once
        for part in chunks(page, at_once):
            if not deciding.in_time():
                report.complete = False
                return
            report.sessions += len(part)
            told = [_told(deciding, scope.tenant, one) for one in islice(changed, len(part))]
            for session in _worded(deciding, told):
                deciding.append(_decisions(deciding, scope.tenant, session, linking, report=report))


def _parts(states: Iterable[ScopeState]) -> Iterator[list[ScopeState]]:
    """Sessions that are few enough to be read at once."""
    page: list[ScopeState] = []
    event_count = 0
    for state in states:
        event_count += state.event_count
        if page and (len(page) == SESSIONS_AT_ONCE or event_count > EVENTS_AT_ONCE):
            yield page
            page, event_count = [], state.event_count
        page.append(state)
    if page:
        yield page


def _states(deciding: Deciding, scope: PassScope, before: LeftOver) -> Iterator[ScopeState]:
    for page in _changed(deciding, scope, before):
        states = list(map(_state, page))
        if scope.agent_id is None:
            yield from states
            continue
        for part in _parts(states):
            ids = [state.session_id for state in part]
            members = session_members(deciding.graph, scope.tenant, ids, ("agent_id",))
            yield from (
                state
                for state in part
                if any(
                    node.values["agent_id"] == scope.agent_id
                    for node in members.get(state.session_id, ())
                )
            )


def _changed(deciding: Deciding, scope: PassScope, before: LeftOver) -> Iterator[list[FoundNode]]:
    """Sessions that have changed by as much as the scope says, what changed most first."""
    graph, row, size = deciding.graph, (scope.tenant,), SESSIONS_AT_ONCE
    if scope.session_id is not None:
        nodes = graph.nodes(SCOPE.label, [(scope.tenant, scope.session_id)], _STATE)
        yield [node for node in nodes.values() if _state(node).pending >= scope.least]
    elif deciding.anew:  # by id: what is pending changes while the pass is applied
        yield from pages(graph, SCOPE.label, SCOPE.key, row, properties=_STATE, size=size)
    else:
        if scope.is_whole:
            # who changed since is among them, and not looked at again: it is told by then
            for part in chunks([(*row, own_id) for own_id in before.session_ids], SESSIONS_AT_ONCE):
                yield list(graph.nodes(SCOPE.label, part, _STATE).values())
        index, least = SCOPE.indexes[0], {"pending_importance": scope.least}
        yield from pages(
            graph,
            SCOPE.label,
            index,
            row,
            properties=_STATE,
            size=size,
            least=least,
            descending=True,
        )


def _state(node: FoundNode) -> ScopeState:
    return ScopeState(node.key[1], *(node.values[name] or 0 for name in _STATE))


def _read(
    deciding: Deciding,
    tenant: str,
    page: Sequence[ScopeState],
    surroundings: SurroundingsReader,
) -> Iterator[_Changed]:
    """What a pass reads of the sessions of a page; nothing before the first is asked for."""
    graph, ids = deciding.graph, [state.session_id for state in page]
    events = source_events(graph, tenant, ids)
    users = {event.event_id: event.user_id for some in events.values() for event in some}
    recorded = recorded_sessions(graph, tenant, ids, users)
    if deciding.anew:
        recorded = {own_id: _undecided(shown) for own_id, shown in recorded.items()}
    referenced = degrees(
        graph,
        tenant,
        (
            entity.entity_id
            for some in events.values()
            for event in some
            for entity in event.entities
        ),
    )
    around = surroundings.read({one: events[one] for one in ids if one in events})
    for state in page:
        own_id = state.session_id
        yield _Changed(
            state=state,
            events=events.get(own_id, ()),
            recorded=recorded.get(own_id, RecordedSession()),
            degrees=referenced,
            around=next(around) if own_id in events else None,
        )


def _undecided(shown: RecordedSession) -> RecordedSession:
    episodes = (part._replace(digest=NO_DIGEST) for part in shown.episodes)
    return shown._replace(episodes=tuple(episodes))


def _told(deciding: Deciding, tenant: str, changed: _Changed) -> _Told:
    """A session as the rules word it, or as it was worded when they would say the same."""
    recorded = changed.recorded
    parts = told_episodes(tenant, changed.events, recorded.episodes, changed.degrees)
    sessions = dict(_sessions_told(tenant, parts.current.values()))
    if not deciding.anew:
        before = {own_id: summary for own_id, (_, summary) in recorded.summaries.items()}
        sessions = {
            own_id: as_before(summary, before.get(own_id)) for own_id, summary in sessions.items()
        }
    return _Told(changed, parts, sessions)


def _worded(deciding: Deciding, told: Sequence[_Told]) -> Sequence[_Told]:
    """Sessions with the words of a model, if there is one: those that have none of one yet."""
    words = deciding.words
    if words is None:
        return told
    by_rules = {
        own_id: summary
        for session in told
        for own_id, summary in session.sessions.items()
        if summary.worded_by is None
    }
    texts = dict(zip(by_rules, words.summaries(list(by_rules.values())), strict=True))
    return [
        session._replace(
            sessions={own_id: texts.get(own_id, one) for own_id, one in session.sessions.items()}
        )
        for session in told
    ]


def _decisions(
    deciding: Deciding, tenant: str, told: _Told, linking: Linking, *, report: PassReport
) -> list[Event]:
    """Decisions about a session; the last ones tell that it was looked at."""
    changed, parts_told, sessions = told
    recorded = changed.recorded
    decided = [
        _decision(deciding, tenant, change.summary_id, change.decided, before=change.before)
        for change in parts_told.changes
    ]
    report.episodes_written += len(decided)
    parts = [*sessions.values(), *(summary for _, summary in recorded.summaries.values())]
    report.agents |= {part for summary in parts for part in _agent_parts(tenant, summary)}
    gone = [*parts_told.gone, *sorted(recorded.summaries.keys() - sessions.keys())]
    decided += _gone(deciding, tenant, gone, changed.state.event_count)
    if sessions:
        report.sessions_written += 1
    for own_id, summary in sessions.items():
        if len(users := summary.user_ids or ()) == 1:
            report.told.add(UserSession(users[0], summary.ended_at_ms, summary.session_id))
        session = SessionDecided(
            summary=summary,
            seen_events=changed.state.event_count,
            seen_importance=changed.state.importance_total,
        )
        before = recorded.summaries[own_id][0] if own_id in recorded.summaries else None
        decided.append(_decision(deciding, tenant, own_id, session, before=before))
    around = linking.decisions(changed.around) if sessions and changed.around is not None else []
    return [*around, *decided]


def _sessions_told(
    tenant: str, episodes: Iterable[EpisodeSummary]
) -> Iterator[tuple[str, SessionSummary]]:
    """A session as each of its users may see it, by id."""
    by_users: dict[tuple[str, ...], list[EpisodeSummary]] = {}
    for episode in episodes:
        if episode.user_ids is not None:
            by_users.setdefault(episode.user_ids, []).append(episode)
    for user_ids, parts in sorted(by_users.items()):
        summary = summarize_session(parts)
        yield summary_id(tenant, "session", summary.session_id, user_ids), summary


def _agent_parts(tenant: str, summary: SessionSummary) -> Iterator[AgentPart]:
    for participant in summary.participants:
        yield tenant, participant.agent_id, summary.user_ids or ()


def _gone(deciding: Deciding, tenant: str, own_ids: Sequence[str], *about: object) -> list[Event]:
    decided = (SummariesGone(summary_ids=tuple(part)) for part in chunks(own_ids, MAX_IDS))
    return [
        deciding.decision(tenant, one.payload(), "gone", *about, *one.summary_ids)
        for one in decided
    ]


def decide_agents(deciding: Deciding, report: PassReport) -> None:
    """Summarise the agents of the sessions that changed, once those are applied."""
    for part in sorted(report.agents):
        if not deciding.in_time():
            report.complete = False
            return
        report.agents_written += _decide_agent(deciding, *part)


def _decide_agent(
    deciding: Deciding, tenant: str, agent_id: str, user_ids: tuple[str, ...]
) -> bool:
    """Decide about an agent, if a user's sessions of it say something new."""
    own_id = summary_id(tenant, "agent", agent_id, user_ids)
    sessions, totals = _agent_sessions(deciding.graph, (tenant, own_id))
    digest, before = _recorded_agent(deciding, (tenant, own_id))
    if not sessions:
        if before is not None:
            deciding.append(_gone(deciding, tenant, [own_id], before))
        return False
    summary = summarize_agent(agent_id, sessions, totals)
    if summary.digest == digest:
        return False
    if deciding.words is not None:
        (summary,) = deciding.words.summaries([summary])
    deciding.append(
        [_decision(deciding, tenant, own_id, AgentDecided(summary=summary), before=before)]
    )
    return True


def _recorded_agent(deciding: Deciding, key: Key) -> tuple[str | None, Position | None]:
    """Digest and position of what was decided about an agent last, if it is there."""
    names = ("source_digest", "decided_at", "user_ids")
    for node in deciding.graph.nodes(SUMMARY.label, [key], names).values():
        digest, decided_at, user_ids = (node.values[name] for name in names)
        unknown = deciding.anew or user_ids is None
        return None if unknown else digest, position_of(decided_at)
    return None, None


def _agent_sessions(graph: Reads, key: Key) -> tuple[list[SessionSummary], Totals]:
    """The most important sessions of an agent, and sums over all of them."""
    edges = graph.edges(SUMMARIZES.type, [key], label=SUMMARY.label).get(key, [])
    names = ("event_count", "importance_total", "failed_count", "time_range")
    nodes = graph.nodes(SUMMARY.label, [edge.target for edge in edges], names)
    sessions = [node for node in nodes.values() if node.visible]
    events, importance, failed = (sum(node.values[name] for node in sessions) for name in names[:3])
    times = [node.values["time_range"] for node in sessions]
    totals = Totals(
        session_count=len(sessions),
        event_count=events,
        importance_total=importance,
        failed_count=failed,
        started_at_ms=min((first for first, _ in times), default=0),
        ended_at_ms=max((last for _, last in times), default=0),
    )
    best = nsmallest(
        AGENT_SESSIONS, sessions, key=lambda node: (-node.values["importance_total"], node.key)
    )
    gists = graph.nodes(SUMMARY.label, [node.key for node in best], ("gist",))
    summaries = (
        parsed_summary(gists[node.key].values["gist"]) for node in best if node.key in gists
    )
    return [summary for summary in summaries if isinstance(summary, SessionSummary)], totals


def _agents_behind(graph: Reads, tenant: str, behind: Mapping[Key, Key]) -> set[AgentPart]:
    """Agents by the keys of their summaries, and of that of one of their sessions."""
    gists = graph.nodes(SUMMARY.label, set(behind.values()), ("gist",))
    return {
        part
        for agent, session in behind.items()
        if session in gists
        for part in _agent_parts(tenant, _session_of(gists[session]))
        if summary_id(tenant, "agent", *part[1:]) == agent[1]
    }


def _session_of(node: FoundNode) -> SessionSummary:
    summary = parsed_summary(node.values["gist"])
    assert isinstance(summary, SessionSummary)
    return summary


def _behind(graph: Reads, sessions: Iterable[FoundNode]) -> dict[Key, Key]:
    """By the summary of each agent that was decided earlier than one of its sessions, that one."""
    decided_at = {node.key: node.values["decided_at"] for node in sessions}
    above = graph.edges(SUMMARIZES.type, decided_at, by=End.TARGET, label=SUMMARY.label)
    agent_keys = {edge.source for edges in above.values() for edge in edges}
    agents = graph.nodes(SUMMARY.label, agent_keys, ("decided_at",))
    return {
        edge.source: edge.target
        for edges in above.values()
        for edge in edges
        if edge.source in agents
        and (agents[edge.source].values["decided_at"] or START) < decided_at[edge.target]
    }


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
