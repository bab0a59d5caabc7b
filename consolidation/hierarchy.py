"""Summaries of three levels, what they are made from, and links between sessions, as decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from consolidation.payloads import (
    AgentDecided,
    EpisodeDecided,
    LinksDecided,
    SessionDecided,
    SessionLink,
)
from consolidation.subjects import Subject, Subjects
from consolidation.summary_payloads import (
    AgentSummary,
    Scope,
    Summary,
    episode_scope_id,
    summary_id,
)
from consolidation.tombstones import Departures
from projections.events import Event, canonical_json
from projections.operations import (
    ClearEdges,
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    RemoveEdge,
)
from projections.positions import Position
from projections.schema import LINKED_TO, SUMMARIZES, SUMMARY

SummaryKey = tuple[str, str]
"""(tenant, summary_id)"""

LEVELS: dict[Scope, int] = {"episode": 1, "session": 2, "agent": 3}


class ShownSummary(NamedTuple):
    """What the graph shows of a summary.

    Attributes:
        subject: what was last decided of it.
        linked_at: position of the decision that its links show.
        above: ids of the summaries that are made from it.
    """

    subject: Subject = Subject()
    linked_at: Position | None = None
    above: frozenset[str] = frozenset()


def summary_key(tenant: str, scope: Scope, scope_id: str) -> SummaryKey:
    """The key of a summary."""
    return tenant, summary_id(tenant, scope, scope_id)


def episode_key(tenant: str, decided: EpisodeDecided) -> SummaryKey:
    """The key of an episode's summary."""
    one = decided.summary
    scope_id = episode_scope_id(one.session_id, one.trace_id, one.number)
    return summary_key(tenant, "episode", scope_id)


def session_key(tenant: str, session_id: str) -> SummaryKey:
    """The key of a session's summary."""
    return summary_key(tenant, "session", session_id)


def agent_key(tenant: str, agent_id: str) -> SummaryKey:
    """The key of an agent's summary."""
    return summary_key(tenant, "agent", agent_id)


class Hierarchy:
    """Summaries and links, while decisions are applied in their order."""

    def __init__(self, shown: Mapping[SummaryKey, ShownSummary]) -> None:
        self._shown = shown
        self._subjects = Subjects(SUMMARY.label, {key: one.subject for key, one in shown.items()})
        self._members: dict[SummaryKey, tuple[SummaryKey, tuple[str, ...]]] = {}
        self._agents: dict[SummaryKey, set[str]] = {}
        self._links: dict[SummaryKey, tuple[Position, Event, tuple[SessionLink, ...]]] = {}
        self._ends: set[SummaryKey] = set()
        """Where edges began or ended, also those that a later decision of the batch took away: the
        graph must not depend on how decisions were cut into batches."""

    def take_episode(self, position: Position, event: Event, decided: EpisodeDecided) -> None:
        """An episode's summary and its members."""
        key, one = episode_key(event.tenant, decided), decided.summary
        scope_id = episode_scope_id(one.session_id, one.trace_id, one.number)
        node = _node(key, "episode", scope_id, one, position, event, decided.event_ids)
        if self._subjects.write(position, node):
            above = session_key(event.tenant, one.session_id)
            self._members[key] = above, decided.event_ids
            self._ends.add(above)

    def take_session(self, position: Position, event: Event, decided: SessionDecided) -> bool:
        """A session's summary; False: the one shown is newer."""
        one = decided.summary
        key = session_key(event.tenant, one.session_id)
        if not self._subjects.write(
            position, _node(key, "session", one.session_id, one, position, event)
        ):
            return False
        agents = {agent_key(event.tenant, who.agent_id) for who in one.participants}
        self._agents[key] = {agent for _, agent in agents}
        self._ends.update(agents)
        for gone in decided.gone:
            self._subjects.remove(position, (event.tenant, gone))
        return True

    def take_agent(self, position: Position, event: Event, decided: AgentDecided) -> None:
        """An agent's summary."""
        agent_id = decided.summary.agent_id
        key = agent_key(event.tenant, agent_id)
        node = _node(key, "agent", agent_id, decided.summary, position, event)
        self._subjects.write(position, node)

    def take_links(self, position: Position, event: Event, decided: LinksDecided) -> None:
        """All links of a session."""
        key = session_key(event.tenant, decided.session_id)
        shown = self._shown.get(key, ShownSummary()).linked_at
        known = self._links[key][0] if key in self._links else shown
        if known is None or known <= position:
            self._links[key] = position, event, decided.links
            self._ends.add(key)
            self._ends.update(session_key(event.tenant, one.session_id) for one in decided.links)

    def written(self, key: SummaryKey) -> bool:
        """Whether this batch says what the summary is made from, or that it is no more."""
        return key in self._subjects.nodes or self._subjects.of(key).gone

    def operations(self, departures: Departures) -> Iterator[Operation]:
        """The summaries, their edges and their links as decided."""
        yield from self._subjects.operations()
        for key in self._ends:
            if not self._subjects.of(key).gone:
                yield EnsureNode(SUMMARY.label, key)
        for key, (above, event_ids) in self._members.items():
            if key in self._subjects.nodes:
                yield ClearEdges(SUMMARIZES.type, key)
                yield from self._summarizes(above, key)
                for event_id in event_ids:
                    yield from departures.listed_by(key, (key[0], event_id))
        for key, agents in self._agents.items():
            if self._subjects.of(key).gone:
                continue
            for agent in sorted(self._shown.get(key, ShownSummary()).above - agents):
                yield RemoveEdge(
                    type=SUMMARIZES.type, source=(key[0], agent), target=key, label=SUMMARY.label
                )
            for agent in sorted(agents):
                yield from self._summarizes((key[0], agent), key)
        for key, (position, event, links) in self._links.items():
            if not self._subjects.of(key).gone:
                yield ClearEdges(LINKED_TO.type, key)
                yield DecideNode(
                    label=SUMMARY.label,
                    key=key,
                    name="link_count",
                    value=len(links),
                    position=position,
                )
                for link in links:
                    yield from self._link(key, event, link)

    def _summarizes(self, above: SummaryKey, key: SummaryKey) -> Iterator[Operation]:
        if not self._subjects.of(above).gone:
            yield MergeEdge(
                type=SUMMARIZES.type, source=above, target=key, values={}, label=SUMMARY.label
            )

    def _link(self, key: SummaryKey, event: Event, link: SessionLink) -> Iterator[Operation]:
        other = session_key(key[0], link.session_id)
        if not self._subjects.of(other).gone:
            yield MergeEdge(
                type=LINKED_TO.type,
                source=key,
                target=other,
                values={
                    "reason": link.reason,
                    "score": link.score,
                    "evidence": link.evidence,
                    "resolution_event_id": link.resolution_event_id,
                    "event_id": event.event_id,
                },
            )


def _node(
    key: SummaryKey,
    scope: Scope,
    scope_id: str,
    summary: Summary,
    position: Position,
    event: Event,
    event_ids: tuple[str, ...] | None = None,
) -> MergeNode:
    return MergeNode(
        label=SUMMARY.label,
        key=key,
        values={
            "scope": scope,
            "scope_id": scope_id,
            "session_id": None if isinstance(summary, AgentSummary) else summary.session_id,
            "content": summary.content,
            "level": LEVELS[scope],
            "event_count": summary.event_count,
            "importance_total": summary.importance_total,
            "failed_count": summary.failed_count,
            "time_range": (summary.started_at_ms, summary.ended_at_ms),
            "source_digest": summary.digest,
            "source_event_ids": event_ids,
            "gist": canonical_json(summary.payload()).decode(),
            "created_at": event.occurred_at_ms,
            "event_id": event.event_id,
            "decided_at": tuple(position),
        },
    )
