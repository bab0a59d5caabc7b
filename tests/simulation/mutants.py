"""Mistakes that somebody could make in the fold, the fence and the merge rules, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from consolidation import episodes
from consolidation.sources import Episode
from enrichment.similarity import EmbeddedEvents
from pipelines.graph import memory
from pipelines.graph.memory import MemoryTransaction
from pipelines.graph.tables import StoredNode
from pipelines.operations.passes import entity_names
from pipelines.work.gather import consolidation
from pipelines.work.live import LiveRunner
from projections import structural
from projections.identity import Link
from projections.operations import Checkpoint, Key, MergeEdge
from projections.schema import DECIDED_AT

Mutant = Callable[[pytest.MonkeyPatch], None]

_advance = MemoryTransaction.advance
_lock = MemoryTransaction.lock
_merge_node = MemoryTransaction._merge_node
_decide = MemoryTransaction._decide
_retained = structural.retained


def no_fence(patched: pytest.MonkeyPatch) -> None:
    """Whoever wants to move a checkpoint may, wherever it stands."""

    def advance(self: MemoryTransaction, start: Checkpoint, to: Checkpoint) -> None:
        held = self.lock(start.stage, start.partition)
        assert held is not None
        _advance(self, held, replace(to, generation=held.generation))

    patched.setattr(MemoryTransaction, "advance", advance)


def earliest_is_last(patched: pytest.MonkeyPatch) -> None:
    """What the earliest mention says is replaced by whichever comes last."""
    patched.setattr(memory, "_is_earlier", lambda by, new, held: True)


def late_events_not_spliced(patched: pytest.MonkeyPatch) -> None:
    """A late event is joined to its neighbours, and they stay joined to each other."""

    def splice(session: Any, links: Any, neighbours: Any) -> list[Any]:
        return [
            operation
            for operation in follows_splice(session, links, neighbours)
            if isinstance(operation, MergeEdge)
        ]

    follows_splice = structural.follows_splice
    patched.setattr(structural, "follows_splice", splice)


def ties_by_arrival(patched: pytest.MonkeyPatch) -> None:
    """Events of one millisecond stand in the order in which they came."""

    def splice(session: Any, links: list[Link], neighbours: Any) -> list[Any]:
        if len({link.occurred_at_ms for link in links}) == len(links):
            return follows_splice(session, links, neighbours)
        chain = sorted(links, key=lambda link: link.occurred_at_ms)
        return [structural.follows_edge(session, a, b) for a, b in pairwise(chain)]

    follows_splice = structural.follows_splice
    patched.setattr(structural, "follows_splice", splice)


def checkpoint_first(patched: pytest.MonkeyPatch) -> None:
    """The checkpoint moves for good before the operations are written."""

    def advance(self: MemoryTransaction, start: Checkpoint, to: Checkpoint) -> None:
        _advance(self, start, to)
        self._tables.undo.clear()

    patched.setattr(MemoryTransaction, "advance", advance)


def counted_on_replay(patched: pytest.MonkeyPatch) -> None:
    """A replay counts what was counted already."""

    def lock(self: MemoryTransaction, stage: str, partition: int) -> Checkpoint | None:
        self.advanced = True
        return _lock(self, stage, partition)

    patched.setattr(MemoryTransaction, "lock", lock)


def placeholder_stays(patched: pytest.MonkeyPatch) -> None:
    """An event that was named before it came is not shown when it comes."""

    def merge(self: MemoryTransaction, label: str, key: Key, values: Mapping[str, Any]) -> None:
        before = self._tables.nodes[label].get(key)
        _merge_node(self, label, key, values)
        if before is not None and not before.visible:
            hidden = StoredNode(self._tables.nodes[label][key].values, visible=False)
            self._tables.put_node(label, key, hidden)

    patched.setattr(MemoryTransaction, "_merge_node", merge)


def any_stage_clears(patched: pytest.MonkeyPatch) -> None:
    """A stage that clears its own causes takes those of the others too."""
    patched.setattr(memory, "_is_own", lambda row, stage, values: True)


def tombstones_ignored(patched: pytest.MonkeyPatch) -> None:
    """What was forgotten comes back when its entry is folded again."""
    patched.setattr(structural, "retained", lambda events, tombstones=(): _retained(events))


def decided_by_arrival(patched: pytest.MonkeyPatch) -> None:
    """Of two decisions the one that is written last stays."""

    def decide(
        self: MemoryTransaction, label: str, key: Key, name: str, value: Any, position: Any
    ) -> None:
        self._ensure(label, key)
        node = self._tables.nodes[label][key]
        values = {k: v for k, v in node.values.items() if k != name + DECIDED_AT}
        self._tables.put_node(label, key, StoredNode(values, node.visible))
        _decide(self, label, key, name, value, position)

    patched.setattr(MemoryTransaction, "_decide", decide)


def reach_ignored(patched: pytest.MonkeyPatch) -> None:
    """A decision is applied before what it was made of is there."""
    patched.setattr(LiveRunner, "_has_passed", lambda self, stage, until: True)


def names_as_others_write_them(patched: pytest.MonkeyPatch) -> None:
    """An entity is called as it was first, whoever wrote it so."""
    patched.setattr(entity_names, "is_named", lambda node, user_id: True)


def told_to_all_alike(patched: pytest.MonkeyPatch) -> None:
    """An episode of several users is told once, from what all of them said."""

    def episode_parts(episode: Episode, user_ids: Iterable[str] = ()) -> Iterator[Episode]:
        users = sorted({event.user_id for event in episode.events if event.user_id is not None})
        yield episode._replace(user_ids=tuple(users[:1]))

    patched.setattr(episodes, "episode_parts", episode_parts)


def late_events_like_nobody(patched: pytest.MonkeyPatch) -> None:
    """A late event finds what it is like before it, and those behind it do not find it."""
    patched.setattr(EmbeddedEvents, "_later", lambda self, event, cosines, anew: [])


def forgotten_give_way(patched: pytest.MonkeyPatch) -> None:
    """What was forgotten loses its place among the nearest."""
    patched.setattr(consolidation, "kept_text", lambda vector: None)


MUTANTS: tuple[Mutant, ...] = (
    no_fence,
    earliest_is_last,
    late_events_not_spliced,
    ties_by_arrival,
    checkpoint_first,
    counted_on_replay,
    placeholder_stays,
    any_stage_clears,
    tombstones_ignored,
    decided_by_arrival,
    reach_ignored,
    names_as_others_write_them,
    told_to_all_alike,
    late_events_like_nobody,
    forgotten_give_way,
)
