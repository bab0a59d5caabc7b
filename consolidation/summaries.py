"""Summaries of episodes, sessions and agents, each made from the level below and nothing else.

An episode's is made from its events; a session's from its episodes', an agent's from its
sessions'. What a level tells is what the one below found worth telling, so a pass reads the events
of changed episodes only. All of it is extractive: the words are those of the events.

A language model may word a summary anew: `with_content` puts its text in place of ours. Nothing
else of a summary, and no digest, depends on who wrote the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import Final, NamedTuple, TypeVar

from consolidation.digests import episode_scope_id, events_digest, summaries_digest
from consolidation.episode_acts import Act, actor_of, acts, kind_of, things_of
from consolidation.highlight_rules import episode_highlights
from consolidation.highlights import Candidate, Highlight, HighlightKind, best, content_words
from consolidation.sources import SourceEvent
from consolidation.summary_content import (
    Gist,
    KeyEntity,
    Participant,
    ToolUse,
    days,
    key_entities,
    participants,
    tool_uses,
    worded,
)
from consolidation.windows import Episode
from enrichment.text import clean_text, cut

VERSION: Final = 1
"""Of the rules by which summaries are made; rises when they say something else."""

EPISODE_CHARACTERS: Final = 1_200
"""Of an episode's content."""
CONTENT_CHARACTERS: Final = 2_000
"""Of a session's and an agent's content."""
UPPER_HIGHLIGHTS: Final = 12
"""Of a session and of an agent."""

_WEIGHTS: Final[Mapping[HighlightKind, int]] = {
    "failure": 4,
    "resolution": 4,
    "outcome": 3,
    "request": 2,
    "action": 1,
    "said": 0,
    "happened": 0,
}
_TROUBLES: Final[tuple[HighlightKind, ...]] = ("failure", "resolution")
_OWN = 2
"""What an agent did itself, in its own summary."""
_TARGET = 2
"""How much more a thing counts that a tool was used on."""


class EpisodeSummary(NamedTuple):
    """What an episode comes to.

    Attributes:
        session_id: of the episode.
        trace_id: of the episode.
        number: of the episode within its session and trace.
        gist: content of at most EPISODE_CHARACTERS, at most `highlights.MAX_HIGHLIGHTS`.
        digest: of the events it is made from.
    """

    session_id: str
    trace_id: str
    number: int
    gist: Gist
    digest: str


class SessionSummary(NamedTuple):
    """What the episodes of a session come to.

    Attributes:
        session_id: of the episodes.
        episode_count: at least 1.
        gist: content of at most CONTENT_CHARACTERS, at most UPPER_HIGHLIGHTS.
        digest: of the episodes' digests.
    """

    session_id: str
    episode_count: int
    gist: Gist
    digest: str


class AgentSummary(NamedTuple):
    """What the sessions of an agent come to.

    Attributes:
        agent_id: that took part in them.
        session_count: of all its sessions, at least 1.
        gist: content of at most CONTENT_CHARACTERS, at most UPPER_HIGHLIGHTS; its counts and times
            are of all its sessions, the rest of those it was made from.
        digest: of the digests of those, and of the totals.
    """

    agent_id: str
    session_count: int
    gist: Gist
    digest: str


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


# -- from events -----------------------------------------------------------------------------------


def summarize_episode(episode: Episode, degrees: Mapping[str, int] | None = None) -> EpisodeSummary:
    """What an episode comes to.

    Args:
        episode: with all its events; a sealed one keeps the summary it has.
        degrees: how many events of the tenant mention an entity, by entity id; what is mentioned
            everywhere tells less about this episode. Without it all count alike. Not part of the
            digest: it changes with every event.
    """
    events = episode.events
    done = acts(events)
    gist = Gist(
        "",
        episode_highlights(events),
        participants(_participants(events)),
        tool_uses(_tool_uses(done)),
        key_entities(_entities(events, degrees or {})),
        len(events),
        sum(event.importance for event in events),
        sum(act.failed for act in done),
        events[0].occurred_at_ms,
        events[-1].occurred_at_ms,
    )
    return EpisodeSummary(
        episode.session_id,
        episode.trace_id,
        episode.number,
        worded(gist, days(gist), EPISODE_CHARACTERS),
        events_digest(events, VERSION),
    )


def _participants(events: Sequence[SourceEvent]) -> Iterator[Participant]:
    for event in events:
        kind = kind_of(event)
        name = actor_of(event) if kind == "said" else event.agent_id
        yield Participant(event.agent_id, name, 1, kind == "said", kind == "call")


def _tool_uses(done: Iterable[Act]) -> Iterator[ToolUse]:
    for act in done:
        if act.tool is not None:
            yield ToolUse(act.tool, 1, act.failed)


def _entities(events: Iterable[SourceEvent], degrees: Mapping[str, int]) -> Iterator[KeyEntity]:
    """What the events mention; instructions speak of everything, and say nothing of what was."""
    for event in events:
        if kind_of(event) == "instruction":
            continue
        users = (one for one in event.entities if one.entity_type == "user")
        counted: set[str] = set()
        for one in (*things_of(event), *users):
            if one.entity_id in counted:
                continue
            counted.add(one.entity_id)
            worth = 10 * event.importance * (_TARGET if one.role == "target" else 1)
            weight = round(worth / log2(2 + degrees.get(one.entity_id, 0)))
            yield KeyEntity(one.entity_id, one.name, one.entity_type, weight)


# -- from summaries --------------------------------------------------------------------------------


def summarize_session(episodes: Sequence[EpisodeSummary]) -> SessionSummary:
    """What the episodes of one session come to.

    Args:
        episodes: all of them, in any order, at least one.
    """
    ordered = sorted(episodes, key=lambda one: (one.gist.started_at_ms, one.trace_id, one.number))
    session_id = ordered[0].session_id
    gist = ordered[0].gist
    if len(ordered) > 1:
        gist = _together([one.gist for one in ordered])
        opening = f"{days(gist)}, {len(ordered):,} episodes"
        gist = worded(gist, opening, CONTENT_CHARACTERS)
    digest = session_digest((one.trace_id, one.number, one.digest) for one in ordered)
    return SessionSummary(session_id, len(ordered), gist, digest)


def session_digest(episodes: Iterable[tuple[str, int, str]]) -> str:
    """The digest of a session's summary, from (trace id, number, digest) of its episodes."""
    below = ((episode_scope_id("", trace, number), digest) for trace, number, digest in episodes)
    return summaries_digest(below, VERSION)


def summarize_agent(
    agent_id: str, sessions: Sequence[SessionSummary], totals: Totals | None = None
) -> AgentSummary:
    """What the sessions of an agent come to.

    Args:
        agent_id: that took part in each of them.
        sessions: the most important ones, in any order, at least one.
        totals: over all its sessions; default: over those.
    """
    ordered = sorted(sessions, key=lambda one: (one.gist.started_at_ms, one.session_id))
    gist = _together([one.gist for one in ordered], agent_id)
    sums = totals or Totals(
        len(ordered),
        gist.event_count,
        gist.importance_total,
        gist.failed_count,
        gist.started_at_ms,
        gist.ended_at_ms,
    )
    gist = gist._replace(
        event_count=sums.event_count,
        importance_total=sums.importance_total,
        failed_count=sums.failed_count,
        started_at_ms=sums.started_at_ms,
        ended_at_ms=sums.ended_at_ms,
    )
    many = f"{sums.session_count:,} session{'s' if sums.session_count > 1 else ''}"
    gist = worded(gist, f"{agent_id}, {many}, {days(gist)}", CONTENT_CHARACTERS)
    digest = agent_digest(((one.session_id, one.digest) for one in ordered), sums)
    return AgentSummary(agent_id, sums.session_count, gist, digest)


def agent_digest(sessions: Iterable[tuple[str, str]], totals: Totals) -> str:
    """The digest of an agent's summary, from (session id, digest) of those it is made from."""
    sums = ("", ",".join(str(number) for number in totals))
    return summaries_digest([*sessions, sums], VERSION)


def _together(gists: Sequence[Gist], agent_id: str | None = None) -> Gist:
    """Several gists as one, whose content is still to be written."""
    candidates = [_candidate(one, agent_id) for gist in gists for one in gist.highlights]
    return Gist(
        "",
        _best_of_all_kinds(candidates),
        participants(one for gist in gists for one in gist.participants),
        tool_uses(one for gist in gists for one in gist.tools),
        key_entities(one for gist in gists for one in gist.entities),
        sum(gist.event_count for gist in gists),
        sum(gist.importance_total for gist in gists),
        sum(gist.failed_count for gist in gists),
        min(gist.started_at_ms for gist in gists),
        max(gist.ended_at_ms for gist in gists),
    )


def _best_of_all_kinds(candidates: Sequence[Candidate]) -> tuple[Highlight, ...]:
    """The best, of which at most half tell of troubles: other things were done too."""
    troubles = [one for one in candidates if one.highlight.kind in _TROUBLES]
    kept = {one.event_ids for one in best(troubles, UPPER_HIGHLIGHTS // 2)}
    left = [
        one
        for one in candidates
        if one.highlight.kind not in _TROUBLES or one.highlight.event_ids in kept
    ]
    return best(left, UPPER_HIGHLIGHTS)


def _candidate(one: Highlight, agent_id: str | None) -> Candidate:
    own = _OWN if one.agent_id == agent_id else 0
    return Candidate(one, one.importance + _WEIGHTS[one.kind] + own, content_words(one.text))


# -- a language model's words ----------------------------------------------------------------------

_CHARACTERS: Final[Mapping[type, int]] = {
    EpisodeSummary: EPISODE_CHARACTERS,
    SessionSummary: CONTENT_CHARACTERS,
    AgentSummary: CONTENT_CHARACTERS,
}
_Summary = TypeVar("_Summary", EpisodeSummary, SessionSummary, AgentSummary)


def with_content(summary: _Summary, text: str | None) -> _Summary:
    """The summary with another text, within the same bounds.

    Args:
        summary: whose content and highlights the model was shown.
        text: what it made of them; None or blank: degraded, ours stays.
    """
    characters = _CHARACTERS[type(summary)]
    content = cut(clean_text(text or ""), characters)
    if not content:
        return summary
    return summary._replace(gist=summary.gist._replace(content=content))
