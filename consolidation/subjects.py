"""Subjects of decisions: nodes that a later decision writes anew, or takes away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from projections.operations import DecideNode, Key, MergeNode, Operation, RemoveNode
from projections.positions import Position


class Subject(NamedTuple):
    """What was last decided of a node.

    Attributes:
        decided_at: position of that decision; None: there was none.
        gone: whether it said that the node is no more. What is left of it then is a placeholder
            that remembers this, so that an older decision does not bring it back.
    """

    decided_at: Position | None = None
    gone: bool = False

    def outranks(self, position: Position) -> bool:
        """Whether what was decided is newer than a decision at that position."""
        return self.decided_at is not None and self.decided_at > position


class Subjects:
    """The subjects of one label, while decisions are applied in their order."""

    def __init__(self, label: str, shown: Mapping[Key, Subject]) -> None:
        self._label = label
        self._shown = shown
        self._now: dict[Key, Subject] = {}
        self._went: set[Key] = set()
        self.nodes: dict[Key, MergeNode] = {}
        """What was decided of those that are there."""

    def of(self, key: Key) -> Subject:
        """What was last decided."""
        return self._now.get(key) or self._shown.get(key, Subject())

    def write(self, position: Position, node: MergeNode) -> bool:
        """Decide what a node holds; False: what it shows is newer."""
        if self.of(node.key).outranks(position):
            return False
        self._now[node.key] = Subject(position)
        self.nodes[node.key] = node
        return True

    def remove(self, position: Position, key: Key) -> bool:
        """Decide that a node is no more; False: what it shows is newer."""
        if self.of(key).outranks(position):
            return False
        self._now[key] = Subject(position, True)
        self._went.add(key)
        self.nodes.pop(key, None)
        return True

    def operations(self) -> Iterator[Operation]:
        """The nodes as decided."""
        for key, (decided_at, gone) in self._now.items():
            if key in self._went:
                yield RemoveNode(self._label, key)
            if not gone:
                yield self.nodes[key]
            if decided_at and (key in self._went or self._shown.get(key, Subject()).gone):
                yield DecideNode(
                    label=self._label, key=key, name="gone", value=gone, position=decided_at
                )
