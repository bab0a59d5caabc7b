"""Where one episode ends and the next begins, and what is to be said anew of an episode.

An episode is a stretch of one trace in one session, cut at gaps of more than EPISODE_GAP_MS and
at EPISODE_EVENTS. Traces that run at the same time are cut apart from each other: each is work of
its own. Episodes are numbered within (session, trace) by time, and that number is part of their
id: what comes at the end of a trace never renames what lies before it.

An episode in which several users took part has a part for each of them: the user's events and those
that are nobody's. What is said of a part is said from these alone.

When members of an episode are forgotten, the events that are left would be cut elsewhere; so the
place of such an episode is given (`Sealed`), and only the rest is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from consolidation.payloads import EPISODE_EVENTS, EpisodeDecided
from consolidation.sources import (
    Episode,
    Place,
    RecordedEpisode,
    SourceEvent,
    events_digest,
    place_of,
)
from consolidation.summaries import VERSION, summarize_episode, users_of
from consolidation.summary_payloads import EpisodeSummary, episode_scope_id, summary_id
from projections.identity import Position

EPISODE_GAP_MS: Final = 30 * 60_000
"""A longer pause within a trace ends an episode (S0)."""


class Sealed(NamedTuple):
    """An episode whose extent is settled, because some of its members are forgotten.

    Attributes:
        trace_id: of its events.
        number: within its session and trace.
        first: of its members, forgotten ones included.
        last: likewise; events between the two are its own, whenever they came.
    """

    trace_id: str
    number: int
    first: Place
    last: Place


def episodes(events: Iterable[SourceEvent], sealed: Sequence[Sealed] = ()) -> list[Episode]:
    """The events of one session cut to episodes, each event in exactly one.

    Args:
        events: all retained events of the session, in any order.
        sealed: episodes of the session that have forgotten members, in any order.

    Returns:
        By first event; a sealed episode that has no event left is not among them.
    """
    traces: dict[str, list[SourceEvent]] = {}
    for event in sorted(events, key=place_of):
        traces.setdefault(event.trace_id, []).append(event)
    stretches: list[Episode] = []
    for trace_id, members in traces.items():
        fixed = sorted(
            (episode for episode in sealed if episode.trace_id == trace_id),
            key=lambda episode: episode.first,
        )
        stretches.extend(_trace_episodes(members, fixed))
    return sorted(stretches, key=lambda stretch: (place_of(stretch.events[0]), stretch.trace_id))


def _trace_episodes(events: Sequence[SourceEvent], fixed: Sequence[Sealed]) -> Iterator[Episode]:
    """Episodes of one trace; numbers that sealed ones have are left out by the others."""
    taken = {episode.number for episode in fixed}
    free = (number for number in count() if number not in taken)
    firsts = [episode.first for episode in fixed]
    left: dict[int, list[SourceEvent]] = {}
    stretch: list[SourceEvent] = []
    parted_by = -1  # the last sealed episode that begins before the stretch
    for event in events:
        before = bisect_right(firsts, place_of(event)) - 1
        if before >= 0 and place_of(event) <= fixed[before].last:
            left.setdefault(before, []).append(event)
            continue
        if stretch and (before != parted_by or _ends(stretch, event)):
            yield _episode(stretch, next(free))
            stretch = []
        stretch.append(event)
        parted_by = before
    if stretch:
        yield _episode(stretch, next(free))
    for place, members in left.items():
        yield _episode(members, fixed[place].number)._replace(sealed=True)


def _ends(stretch: Sequence[SourceEvent], following: SourceEvent) -> bool:
    gap_ms = following.occurred_at_ms - stretch[-1].occurred_at_ms
    return gap_ms > EPISODE_GAP_MS or len(stretch) == EPISODE_EVENTS


def _episode(events: Sequence[SourceEvent], number: int) -> Episode:
    return Episode(events[0].session_id, events[0].trace_id, number, tuple(events))


def sealed_episodes(recorded: Iterable[RecordedEpisode], retained: Container[str]) -> list[Sealed]:
    """Those of a session's episodes that have members which are not retained (ids) any more."""
    places: dict[tuple[str, int], list[RecordedEpisode]] = {}
    for episode in recorded:
        places.setdefault(episode.place, []).append(episode)
    sealed = []
    for (trace_id, number), parts in places.items():
        if not any(_is_sealed(part, retained) for part in parts):
            continue
        first = min(Place(part.summary.started_at_ms, part.event_ids[0]) for part in parts)
        last = max(Place(part.summary.ended_at_ms, part.event_ids[-1]) for part in parts)
        sealed.append(Sealed(trace_id, number, first, last))
    return sealed


def _is_sealed(recorded: RecordedEpisode, retained: Container[str]) -> bool:
    return not all(event_id in retained for event_id in recorded.event_ids)


def episode_parts(episode: Episode, user_ids: Iterable[str] = ()) -> Iterator[Episode]:
    """An episode as each of its users may see it; all of it, if there are not several.

    Args:
        episode: of all its retained events.
        user_ids: who took part besides those whose events these are.
    """
    users = {event.user_id for event in episode.events} | set(user_ids)
    for user_id in sorted(user_id for user_id in users if user_id is not None):
        events = tuple(event for event in episode.events if event.user_id in (None, user_id))
        if events:
            yield episode._replace(events=events, user_ids=(user_id,))
    if users <= {None}:
        yield episode


class EpisodeChange(NamedTuple):
    """What is to be said anew of a part of an episode, and where it was decided before."""

    summary_id: str
    decided: EpisodeDecided
    before: Position | None


class ToldEpisodes(NamedTuple):
    """What the episodes of a session come to.

    Attributes:
        changes: what is to be decided.
        current: the summaries that there are then, by id.
        gone: ids of those that are no more.
    """

    changes: list[EpisodeChange]
    current: dict[str, EpisodeSummary]
    gone: list[str]


def told_episodes(
    tenant: str,
    events: Collection[SourceEvent],
    recorded: Sequence[RecordedEpisode],
    degrees: Mapping[str, int],
) -> ToldEpisodes:
    """What is to be said of the episodes of a session.

    Args:
        tenant: of the session.
        events: all that it retains.
        recorded: what the graph shows of its episodes.
        degrees: as `summarize_episode` takes them.
    """
    retained = {event.event_id for event in events}
    sealed = {one.summary_id: one for one in recorded if _is_sealed(one, retained)}
    took_part: dict[tuple[str, int], set[str]] = {}
    for part_before in sealed.values():
        if part_before.user_ids is not None and len(part_before.user_ids) == 1:
            took_part.setdefault(part_before.place, set()).update(part_before.user_ids)
    by_users = {(one.place, one.user_ids): one for one in sealed.values()}
    by_id = {one.summary_id: one for one in recorded}
    outcome = ToldEpisodes([], {}, [])
    late: dict[str, Episode] = {}
    for episode in episodes(events, sealed_episodes(recorded, retained)):
        place = episode.trace_id, episode.number
        for part in episode_parts(episode, took_part.get(place, ())):
            before = by_users.get((place, part.user_ids))
            if before is not None:
                late[before.summary_id] = part
            else:
                own_id = _own_id(tenant, part)
                _tell(outcome, own_id, _told_part(part, by_id.get(own_id), degrees), by_id)
    for own_id, before in sealed.items():
        _tell(outcome, own_id, _kept_part(tenant, before, late.get(own_id)), by_id)
    outcome.gone.extend(sorted(by_id.keys() - outcome.current.keys() - sealed.keys()))
    return outcome


def _own_id(tenant: str, part: Episode) -> str:
    scope_id = episode_scope_id(part.session_id, part.trace_id, part.number)
    return summary_id(tenant, "episode", scope_id, users_of(part.events))


def _tell(
    outcome: ToldEpisodes,
    own_id: str,
    decided: EpisodeDecided | None,
    by_id: Mapping[str, RecordedEpisode],
) -> None:
    before = by_id.get(own_id)
    if decided is not None:
        outcome.current[own_id] = decided.summary
        outcome.changes.append(EpisodeChange(own_id, decided, before and before.decided_at))
    elif before is not None and before.summary.user_ids is not None:
        outcome.current[own_id] = before.summary


def _told_part(
    part: Episode, before: RecordedEpisode | None, degrees: Mapping[str, int]
) -> EpisodeDecided | None:
    """What is to be said anew of a part all of whose members are retained; None: nothing."""
    digest = before.digest if before and before.summary.user_ids is not None else None
    if digest == events_digest(part.events, VERSION):
        return None
    event_ids = tuple(event.event_id for event in part.events)
    return EpisodeDecided(summary=summarize_episode(part, degrees), event_ids=event_ids)


def _kept_part(tenant: str, before: RecordedEpisode, part: Episode | None) -> EpisodeDecided | None:
    """What is to be said of a part that has forgotten members: who came late, or whose it is."""
    room = EPISODE_EVENTS - len(before.event_ids)
    came = [event.event_id for event in part.events] if part is not None else []
    late = [event_id for event_id in came if event_id not in before.event_ids][: max(0, room)]
    if not late and before.summary.user_ids == before.user_ids:
        return None
    # Its first and last member say how far it goes, so those that came late go between.
    first, last = before.event_ids[:-1], before.event_ids[-1:]
    summary = before.summary.model_copy(update={"user_ids": before.user_ids})
    owned_id = summary_id(tenant, "episode", summary.scope_id, before.user_ids)
    return EpisodeDecided(
        summary=summary,
        event_ids=(*first, *late, *last),
        unowned_id=True if owned_id != before.summary_id else None,
    )
