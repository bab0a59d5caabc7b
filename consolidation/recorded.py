"""What the graph shows of decided summaries, and what is to be said anew of an episode."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from consolidation.digests import events_digest
from consolidation.payloads import EPISODE_EVENTS, EpisodeDecided
from consolidation.summaries import VERSION, summarize_episode
from consolidation.summary_payloads import EpisodeSummary
from consolidation.windows import Episode, Place, Sealed
from projections.positions import Position


class RecordedEpisode(NamedTuple):
    """An episode's Summary as the graph shows it; `event_ids` of all its members, by time."""

    summary_id: str
    digest: str
    decided_at: Position
    summary: EpisodeSummary
    event_ids: tuple[str, ...]


class RecordedSession(NamedTuple):
    """A session's Summary: where it was decided (None: nowhere), and its episodes."""

    decided_at: Position | None
    episodes: tuple[RecordedEpisode, ...]


def sealed_episodes(recorded: Iterable[RecordedEpisode], retained: Container[str]) -> list[Sealed]:
    """Those of a session's episodes that have members which are not retained (ids) any more."""
    found = []
    for one in recorded:
        if all(event_id in retained for event_id in one.event_ids):
            continue
        summary = one.summary
        first = Place(summary.started_at_ms, one.event_ids[0])
        last = Place(summary.ended_at_ms, one.event_ids[-1])
        found.append(Sealed(summary.trace_id, summary.number, first, last))
    return found


def kept_episodes(
    recorded: Iterable[RecordedEpisode], retained: Container[str]
) -> Iterator[RecordedEpisode]:
    """Episodes all of whose members left the graph: what was said of them stays."""
    return (one for one in recorded if not any(key in retained for key in one.event_ids))


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
        late = [one for one in event_ids if one not in before.event_ids][: max(0, room)]
        if not late:
            return None
        # Its first and last member say how far it goes, so those that came late go between.
        *first, last = before.event_ids
        return EpisodeDecided(summary=before.summary, event_ids=(*first, *late, last))
    if before is not None and before.digest == events_digest(episode.events, VERSION):
        return None
    return EpisodeDecided(summary=summarize_episode(episode, degrees), event_ids=event_ids)
