"""How much happened in a session, and how much of it a summary has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from projections.operations import MergeNode, Operation
from projections.schema import SCOPE
from projections.structural import SessionKey


class Sums(NamedTuple):
    """Of a session.

    Attributes:
        event_count: of all its events, whether they are retained or not.
        importance_total: of their importance.
        seen_events, seen_importance: the same two when its summary was made.
    """

    event_count: int = 0
    importance_total: int = 0
    seen_events: int = 0
    seen_importance: int = 0


class Scopes:
    """The sums of sessions, while a batch is added to them.

    Args:
        shown: as they stand, under their locks.
    """

    def __init__(self, shown: Mapping[SessionKey, Sums]) -> None:
        self._shown = shown
        self._now: dict[SessionKey, Sums] = {}

    def _of(self, key: SessionKey) -> Sums:
        return self._now.get(key) or self._shown.get(key, Sums())

    def count(self, key: SessionKey, importance: int) -> None:
        """An event more."""
        sums = self._of(key)
        self._now[key] = sums._replace(
            event_count=sums.event_count + 1,
            importance_total=sums.importance_total + importance,
        )

    def see(self, key: SessionKey, events: int, importance: int) -> None:
        """A summary was made when the sums were these."""
        self._now[key] = self._of(key)._replace(seen_events=events, seen_importance=importance)

    def operations(self) -> Iterator[Operation]:
        """The new sums."""
        for key, sums in self._now.items():
            yield MergeNode(
                label=SCOPE.label,
                key=key,
                values={
                    **sums._asdict(),
                    "pending_events": max(0, sums.event_count - sums.seen_events),
                    "pending_importance": max(0, sums.importance_total - sums.seen_importance),
                },
            )
