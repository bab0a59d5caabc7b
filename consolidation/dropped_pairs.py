"""Similar pairs that were dropped: remembered at their first end, so that they are not made again.

An event that is folded once more (it was recalled) looks for its neighbours once more. Its list
goes with it: to the tombstone when it is forgotten, and back when it is recalled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from consolidation.bridging import EventKey
from projections.operations import DecideNode
from projections.positions import Position
from projections.schema import EVENT, FORGOTTEN

MAX_PARTED: Final = 500
"""Ids that an event keeps, the largest: those of version 7 are the latest."""


class Partings:
    """What events were parted from, while decisions are applied in their order.

    Args:
        shown: by event, as node or tombstone has it.
        present: whether an event has a node, be it a placeholder, or is about to have one.
        away: whether an event is forgotten, and was not recalled.
    """

    def __init__(
        self,
        shown: Mapping[EventKey, Iterable[str]],
        present: Callable[[EventKey], bool],
        away: Callable[[EventKey], bool],
    ) -> None:
        self._parted = {key: set(ids) for key, ids in shown.items()}
        self._present = present
        self._away = away
        self._changed: dict[EventKey, Position] = {}

    def part(self, position: Position, tenant: str, pairs: Iterable[tuple[str, str]]) -> None:
        """Pairs are dropped."""
        for first, second in pairs:
            self._parted.setdefault((tenant, first), set()).add(second)
            self._changed[tenant, first] = position

    def move(self, position: Position, tenant: str, event_ids: Iterable[str]) -> None:
        """Events leave, or come back."""
        for one in event_ids:
            if self._parted.get((tenant, one)):
                self._changed[tenant, one] = position

    def operations(self) -> Iterator[DecideNode]:
        """The lists, where they belong now."""
        for key, position in self._changed.items():
            ids = sorted(self._parted[key])[-MAX_PARTED:]
            away = self._away(key)
            if away or self._present(key):
                label = FORGOTTEN.label if away else EVENT.label
                yield DecideNode(
                    label=label, key=key, name="parted_from", value=ids, position=position
                )
