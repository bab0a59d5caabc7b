"""Where one episode ends and the next begins, and what is to be said anew of an episode.

An episode is a stretch of one trace in one session, cut at gaps of more than EPISODE_GAP_MS and
at EPISODE_EVENTS. Traces that run at the same time are cut apart from each other: each is work of
its own. Episodes are numbered within (session, trace) by time, and that number is part of their
id: what comes at the end of a trace never renames what lies before it.

When members of an episode are forgotten, the events that are left would be cut elsewhere; so the
place of such an episode is given (`Sealed`), and only the rest is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
from consolidation.summaries import VERSION, summarize_episode

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
    sealed = []
    for episode in recorded:
        if all(event_id in retained for event_id in episode.event_ids):
            continue
        summary = episode.summary
        first = Place(summary.started_at_ms, episode.event_ids[0])
        last = Place(summary.ended_at_ms, episode.event_ids[-1])
        sealed.append(Sealed(summary.trace_id, summary.number, first, last))
    return sealed


def kept_episodes(
    recorded: Iterable[RecordedEpisode], retained: Container[str]
) -> Iterator[RecordedEpisode]:
    """Episodes all of whose members left the graph: what was said of them stays."""
    return (
        episode for episode in recorded if not any(key in retained for key in episode.event_ids)
    )


def episode_decision(
    episode: Episode, before: RecordedEpisode | None, degrees: Mapping[str, int]
) -> EpisodeDecided | None:
    """What is to be said anew of an episode; None: nothing.

    Args:
        episode: as it is cut now.
        before: what the graph shows of it.
        degrees: as `summarize_episode` takes them.
    """
    event_ids = tuple(event.event_id for event in episode.events)
    if episode.sealed and before is not None:
        room = EPISODE_EVENTS - len(before.event_ids)
        late = [event_id for event_id in event_ids if event_id not in before.event_ids][
            : max(0, room)
        ]
        if not late:
            return None
        # Its first and last member say how far it goes, so those that came late go between.
        *first, last = before.event_ids
        return EpisodeDecided(summary=before.summary, event_ids=(*first, *late, last))
    if before is not None and before.digest == events_digest(episode.events, VERSION):
        return None
    return EpisodeDecided(summary=summarize_episode(episode, degrees), event_ids=event_ids)
