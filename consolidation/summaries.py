"""Summaries of episodes, sessions and agents, each made from the level below and nothing else.

An episode's is made from its events; a session's from its episodes', an agent's from its
sessions'. What a level tells is what the one below found worth telling, so a pass reads the events
of changed episodes only. All of it is extractive: the words are those of the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Final, cast

from consolidation.actions import Action, actions, actor_of, incidents, things_of
from consolidation.highlights import (
    Candidate,
    best,
    content_words,
    episode_highlights,
)
from consolidation.lessons import lessons_of, listed
from consolidation.sources import Episode, SourceEvent, Totals, events_digest, summaries_digest
from consolidation.summary_payloads import (
    CONTENT_CHARACTERS,
    EPISODE_CHARACTERS,
    MAX_ENTITIES,
    MAX_PARTICIPANTS,
    MAX_TOOLS,
    NAME_CHARACTERS,
    UPPER_HIGHLIGHTS,
    AgentSummary,
    EpisodeSummary,
    Highlight,
    HighlightKind,
    KeyEntity,
    Overview,
    Participant,
    SessionSummary,
    ToolUse,
    by_time,
    episode_scope_id,
    fitting_lessons,
    users_named,
)
from enrichment.event_kinds import EventKind
from enrichment.names import EntityType
from enrichment.vocabulary import cut
from projections.times import day_text

VERSION: Final = 2
"""Of the rules by which summaries are made; rises when they say something else."""

_WEIGHTS: Final[Mapping[HighlightKind, int]] = {
    "failure": 4,
    "resolution": 4,
    "outcome": 3,
    "request": 2,
    "action": 1,
    "said": 0,
    "happened": 0,
}
_INCIDENTS: Final[tuple[HighlightKind, ...]] = ("failure", "resolution")
_OWN = 2
"""What an agent did itself, in its own summary."""
_TARGET = 2
"""How much more a thing counts that a tool was used on."""
_TOLD_NAMES = 4
_TOLD_TOOLS = 6
_TOLD_ENTITIES = 6
_TOLD_FAILING = 2
_NAME_CHARACTERS = 60
"""Of a name in a sentence; ids may have hundreds."""


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
    uses = actions(events)
    overview = Overview(
        highlights=episode_highlights(events),
        participants=participants(_participants(events)),
        tools=tool_uses(_tool_uses(uses)),
        entities=key_entities(_entities(events, degrees or {})),
        event_count=len(events),
        importance_total=sum(event.importance for event in events),
        failed_count=sum(action.failed for action in uses),
        started_at_ms=events[0].occurred_at_ms,
        ended_at_ms=events[-1].occurred_at_ms,
        user_ids=users_of(events),
        lessons=lessons_of(events, incidents(events, uses)),
    )
    return EpisodeSummary(
        **overview.overview(),
        session_id=episode.session_id,
        trace_id=episode.trace_id,
        number=episode.number,
        content=content_of(overview, days(overview), EPISODE_CHARACTERS),
        digest=events_digest(events, VERSION),
    )


def users_of(events: Iterable[SourceEvent]) -> tuple[str, ...]:
    """Whose events they are; of several users the first that are named."""
    return users_named(event.user_id for event in events)


def _participants(events: Sequence[SourceEvent]) -> Iterator[Participant]:
    for event in events:
        speaks = event.kind is EventKind.MESSAGE
        yield Participant(
            agent_id=event.agent_id,
            name=actor_of(event) if speaks else event.agent_id,
            events=1,
            messages=int(speaks),
            calls=int(event.kind is EventKind.CALL),
        )


def _tool_uses(uses: Iterable[Action]) -> Iterator[ToolUse]:
    for action in uses:
        if action.tool is not None:
            yield ToolUse(action.tool, 1, int(action.failed))


def _entities(events: Iterable[SourceEvent], degrees: Mapping[str, int]) -> Iterator[KeyEntity]:
    """What the events mention; instructions speak of everything, and say nothing of what was."""
    for event in events:
        if event.kind is EventKind.INSTRUCTION:
            continue
        users = (entity for entity in event.entities if entity.entity_type == "user")
        counted: set[str] = set()
        for mentioned in (*things_of(event), *users):
            if mentioned.entity_id in counted:
                continue
            counted.add(mentioned.entity_id)
            worth = 10 * event.importance * (_TARGET if mentioned.role == "target" else 1)
            yield KeyEntity(
                mentioned.entity_id,
                mentioned.name,
                cast(EntityType, mentioned.entity_type),
                round(worth / log2(2 + degrees.get(mentioned.entity_id, 0))),
            )


# -- from summaries --------------------------------------------------------------------------------


def summarize_session(episodes: Sequence[EpisodeSummary]) -> SessionSummary:
    """What the episodes of one session come to.

    Args:
        episodes: all of them, in any order, at least one.
    """
    ordered = sorted(
        episodes, key=lambda episode: (episode.started_at_ms, episode.trace_id, episode.number)
    )
    overview: Overview = ordered[0]
    content = ordered[0].content
    if len(ordered) > 1:
        overview = _together(ordered)
        opening = f"{days(overview)}, {len(ordered):,} episodes"
        content = content_of(overview, opening, CONTENT_CHARACTERS)
    return SessionSummary(
        **overview.overview(),
        session_id=ordered[0].session_id,
        episode_count=len(ordered),
        content=content,
        digest=session_digest((part.trace_id, part.number, part.digest) for part in ordered),
    )


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
    ordered = sorted(sessions, key=lambda session: (session.started_at_ms, session.session_id))
    overview = _together(ordered, agent_id)
    sums = totals or Totals(
        session_count=len(ordered),
        event_count=overview.event_count,
        importance_total=overview.importance_total,
        failed_count=overview.failed_count,
        started_at_ms=overview.started_at_ms,
        ended_at_ms=overview.ended_at_ms,
    )
    counts = sums._asdict()
    session_count = counts.pop("session_count")
    overview = overview.model_copy(update=counts)
    many = f"{session_count:,} session{'s' if session_count > 1 else ''}"
    opening = f"{agent_id}, {many}, {days(overview)}"
    return AgentSummary(
        **overview.overview(),
        agent_id=agent_id,
        session_count=session_count,
        content=content_of(overview, opening, CONTENT_CHARACTERS),
        digest=agent_digest(((part.session_id, part.digest) for part in ordered), sums),
    )


def agent_digest(sessions: Iterable[tuple[str, str]], totals: Totals) -> str:
    """The digest of an agent's summary, from (session id, digest) of those it is made from."""
    sums = ("", ",".join(str(number) for number in totals))
    return summaries_digest([*sessions, sums], VERSION)


def _together(parts: Sequence[Overview], agent_id: str | None = None) -> Overview:
    """What several stretches of events come to."""
    candidates = [
        _candidate(highlight, agent_id) for part in parts for highlight in part.highlights
    ]
    return Overview(
        highlights=_best_of_all_kinds(candidates),
        participants=participants(
            participant for part in parts for participant in part.participants
        ),
        tools=tool_uses(tool for part in parts for tool in part.tools),
        entities=key_entities(entity for part in parts for entity in part.entities),
        event_count=sum(part.event_count for part in parts),
        importance_total=sum(part.importance_total for part in parts),
        failed_count=sum(part.failed_count for part in parts),
        started_at_ms=min(part.started_at_ms for part in parts),
        ended_at_ms=max(part.ended_at_ms for part in parts),
        user_ids=users_named(user_id for part in parts for user_id in part.user_ids or ()),
        lessons=fitting_lessons(lesson for part in parts for lesson in part.lessons or ()),
    )


def _best_of_all_kinds(candidates: Sequence[Candidate]) -> tuple[Highlight, ...]:
    """The best, of which at most half tell of incidents: other things were done too."""
    incidents = [candidate for candidate in candidates if candidate.highlight.kind in _INCIDENTS]
    told = {incident.event_ids for incident in best(incidents, UPPER_HIGHLIGHTS // 2)}
    left = [
        candidate
        for candidate in candidates
        if candidate.highlight.kind not in _INCIDENTS or candidate.highlight.event_ids in told
    ]
    return best(left, UPPER_HIGHLIGHTS)


def _candidate(highlight: Highlight, agent_id: str | None) -> Candidate:
    weight = highlight.importance + _WEIGHTS[highlight.kind]
    if highlight.agent_id == agent_id:
        weight += _OWN
    return Candidate(highlight, weight, content_words(highlight.text))


# -- counts that add up ----------------------------------------------------------------------------


def participants(parts: Iterable[Participant]) -> tuple[Participant, ...]:
    """One for each agent, their counts added up, under the name that it has most often."""
    merged: dict[str, Participant] = {}
    names: dict[str, dict[str, int]] = {}
    for part in parts:
        sums = merged.get(
            part.agent_id, Participant(part.agent_id, part.name, events=0, messages=0, calls=0)
        )
        merged[part.agent_id] = replace(
            sums,
            events=sums.events + part.events,
            messages=sums.messages + part.messages,
            calls=sums.calls + part.calls,
        )
        counts = names.setdefault(part.agent_id, {})
        counts[part.name] = counts.get(part.name, 0) + part.events
    named = [
        replace(participant, name=_short(min(counts, key=lambda name: (-counts[name], name))))
        for agent_id, participant in merged.items()
        if (counts := names[agent_id])
    ]
    named.sort(
        key=lambda participant: (
            -(participant.messages + participant.calls),
            -participant.events,
            participant.agent_id,
        )
    )
    return tuple(named[:MAX_PARTICIPANTS])


def tool_uses(uses: Iterable[ToolUse]) -> tuple[ToolUse, ...]:
    """One for each tool, the counts added up; of equals the one that was used first."""
    merged: dict[str, ToolUse] = {}
    for use in uses:
        sums = merged.get(use.name, ToolUse(use.name, 0, 0))
        merged[use.name] = ToolUse(use.name, sums.calls + use.calls, sums.failed + use.failed)
    return tuple(sorted(merged.values(), key=lambda tool: -tool.calls)[:MAX_TOOLS])


def key_entities(entities: Iterable[KeyEntity]) -> tuple[KeyEntity, ...]:
    """One for each entity, the weights added up; of two with one name only the heavier."""
    merged: dict[str, KeyEntity] = {}
    for entity in entities:
        first = merged.get(entity.entity_id)
        merged[entity.entity_id] = (
            replace(first, weight=first.weight + entity.weight) if first else entity
        )
    ranked = sorted(
        merged.values(), key=lambda entity: (-entity.weight, entity.name, entity.entity_id)
    )
    named: dict[str, KeyEntity] = {}
    for entity in ranked:
        short = replace(entity, name=cut(entity.name, NAME_CHARACTERS))
        named.setdefault(entity.name.casefold(), short)
    return tuple(named.values())[:MAX_ENTITIES]


# -- in words --------------------------------------------------------------------------------------


def content_of(overview: Overview, opening: str, characters: int) -> str:
    """The text of a summary: the opening, who and what it is about, the highlights by time.

    As many as there is room for, the best before the others.
    """
    lines = [_who_and_what(overview, opening)]
    dated = day_text(overview.started_at_ms) != day_text(overview.ended_at_ms)
    left = characters - len(lines[0])
    fitting: dict[Highlight, str] = {}
    for highlight in overview.highlights:
        line = highlight.text
        if dated:
            line = f"{day_text(highlight.occurred_at_ms)} {line}"
        if len(line) < left:
            fitting[highlight] = line
            left -= len(line) + 1
    lines += [fitting[candidate] for candidate in by_time(fitting)]
    return cut("\n".join(lines), characters)


def days(overview: Overview) -> str:
    """The day of the events, or the first and the last."""
    first, last = day_text(overview.started_at_ms), day_text(overview.ended_at_ms)
    return first if first == last else f"{first} to {last}"


def _who_and_what(overview: Overview, opening: str) -> str:
    acting = [participant.name for participant in overview.participants if participant.calls]
    speaking = [
        participant.name
        for participant in overview.participants
        if participant.messages and not participant.calls
    ]
    users = [entity.name for entity in overview.entities if entity.entity_type == "user"]
    tools = [tool.name for tool in overview.tools]
    if acting:
        served = users or speaking
        whom = f", for {_some(served, _TOLD_NAMES)}," if served else ""
        line = f"{_some(acting, _TOLD_NAMES)}{whom} used {_some(tools, _TOLD_TOOLS, 'tools')}"
    elif len(speaking) > 1:
        line = f"{_some(speaking, _TOLD_NAMES)} talked"
    elif speaking:
        line = f"{speaking[0]} spoke"
    else:
        names = [participant.name for participant in overview.participants]
        many = f"{overview.event_count:,} event{'s' if overview.event_count > 1 else ''}"
        line = f"{_some(names, _TOLD_NAMES)}, {many}"
        if tools:
            line += f", with {_some(tools, _TOLD_TOOLS, 'tools')}"
    people = [_plain(person) for person in (*acting, *speaking, *users)]
    things = [
        entity.name
        for entity in overview.entities
        if not any(person.startswith(_plain(entity.name)) for person in people)
    ]
    if things:
        line += f"; about {listed([_short(name) for name in things[:_TOLD_ENTITIES]])}"
    worst = sorted(overview.tools, key=lambda tool: -tool.failed)[:_TOLD_FAILING]
    failing = [
        f"{_short(tool.name)} {tool.failed:,} of {tool.calls:,} times"
        for tool in worst
        if tool.failed > 1
    ]
    if failing:
        line += f"; failed: {listed(failing)}"
    return f"{opening}: {line}."


def _plain(name: str) -> str:
    """A name as it is compared: `Mel` begins `Melanie`, `Omar Davis` begins `omar_davis_3817`."""
    return name.casefold().replace("_", " ")


def _some(names: Sequence[str], count: int, what: str = "") -> str:
    """As many names as are told, and how many others there are."""
    if len(names) <= count:
        return listed([_short(name) for name in names])
    left = len(names) - count + 1
    others = f"{left} other {what}" if what else f"{left} others"
    return listed([*(_short(name) for name in names[: count - 1]), others])


def _short(name: str) -> str:
    return cut(" ".join(name.split()), _NAME_CHARACTERS)
