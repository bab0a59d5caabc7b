"""The change feed: which keys a transaction may have changed, told within the transaction itself.

A change names keys and no values: whoever follows reads the present values of these keys, so the
same change twice, or one that a later one has overtaken, does no harm. Both stores collect the
keys here, keep them as the same bytes, and keep as many of them.

Changes are numbered in chains, one for each checkpoint: two transactions that do not wait for each
other's checkpoint do not wait for each other's number either.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import orjson

from pipelines.graph.rows import Advanced, Change, Changes, FeedPlace
from projections.errors import ChangesLost
from projections.identity import Position
from projections.operations import Checkpoint, Key, Operations
from projections.schema import CHECKPOINT, DEAD_LETTER, EDGES, NODES

FOLLOWED: Final = frozenset(NODES) - {CHECKPOINT.label, DEAD_LETTER.label}
"""Labels whose nodes the feed tells; of checkpoints it tells where they were moved."""
FEED_KEPT: Final = 2_000
"""Changes of a chain that are kept."""
FEED_BYTES: Final = 16 * 2**20
"""Bytes of them that are kept; the newest is, however large."""
MOST_CHANGES: Final = 100
"""Changes of one answer."""
FeedRow = tuple[str, int, Any]
"""A change as it is kept: chain, number, payload."""
_SMALL: Final = 512
"""Bytes that are kept as they are."""
_PACKED: Final = 0x78
"""First byte of what zlib packed; of JSON here it is a bracket."""


class Touched:
    """The keys that a transaction may have changed; sets that remember the order.

    Attributes:
        nodes: keys by label.
        removed: keys by label of nodes that were deleted with all of their edges.
        edges: (source, target, label of the target) by type.
        cleared: by type keys of sources, any of whose edges of the type may be gone.
        advanced: where checkpoints were moved to, by stage and partition.
        everything: more may have changed than keys can tell.
        chain: in which it is numbered: that of the first checkpoint that was locked; whoever
            numbers in it holds that lock anyway, so that nobody waits for the number.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[Key, None]] = {}
        self.removed: dict[str, dict[Key, None]] = {}
        self.edges: dict[str, dict[tuple[Key, Key, str], None]] = {}
        self.cleared: dict[str, dict[Key, None]] = {}
        self.advanced: dict[tuple[str, int], Checkpoint] = {}
        self.everything = False
        self.chain = ""

    def __bool__(self) -> bool:
        keyed = (self.nodes, self.removed, self.edges, self.cleared, self.advanced)
        return self.everything or any(keyed)

    def note_operations(self, batch: Operations) -> None:
        """Take in what a batch may change."""
        for label, key in (*batch.merge_nodes, *batch.ensure_nodes, *batch.set_nodes):
            self.nodes.setdefault(label, {})[key] = None
        for label, key, _ in batch.decide_nodes:
            self.nodes.setdefault(label, {})[key] = None
        for label, key in batch.remove_nodes:
            self.removed.setdefault(label, {})[key] = None
        for group in (batch.merge_edges, batch.set_edges, batch.remove_edges):
            for type_, source, target, _, label in group:
                pair = source, target, label or EDGES[type_].target
                self.edges.setdefault(type_, {})[pair] = None
        for type_, source in batch.clear_edges:
            self.cleared.setdefault(type_, {})[source] = None
        for other in batch.others.values():
            self.note_operations(other)

    def note_nodes(self, label: str, keys: Iterable[Key], *, gone: Iterable[Key] = ()) -> None:
        """Take in nodes that are written, and such as are deleted with their edges."""
        if label in FOLLOWED:
            for noted, some in ((self.nodes, keys), (self.removed, gone)):
                if fresh := dict.fromkeys(some):
                    noted.setdefault(label, {}).update(fresh)

    def note_edges(self, type_: str, pairs: Iterable[tuple[Key, Key, str]]) -> None:
        """Take in pairs (source, target, label of the target) whose edges are written."""
        if fresh := dict.fromkeys(pairs):
            self.edges.setdefault(type_, {}).update(fresh)

    def note_lock(self, stage: str, partition: int) -> None:
        """Take in that a checkpoint was locked."""
        self.chain = self.chain or f"{stage}/{partition}"

    def note_checkpoint(self, to: Checkpoint) -> None:
        """Take in where a checkpoint was moved to, which locked it."""
        self.note_lock(to.stage, to.partition)
        self.advanced[to.stage, to.partition] = to


# -- as bytes --------------------------------------------------------------------------------------


def encode(touched: Touched) -> bytes:
    """What a transaction touched, as it is kept: each key once, the rest names its number."""
    numbers: dict[Key, int] = {}

    def number(key: Key) -> int:
        return numbers.setdefault(key, len(numbers))

    nodes, removed, cleared = (
        {name: [number(key) for key in keys] for name, keys in noted.items()}
        for noted in (touched.nodes, touched.removed, touched.cleared)
    )
    edges: dict[str, dict[str, list[int]]] = {}
    for type_, pairs in touched.edges.items():
        by_label = edges.setdefault(type_, {})
        for source, target, label in pairs:
            by_label.setdefault(label, []).extend((number(source), number(target)))
    advanced = [[c.stage, c.partition, str(c.position), c.seq] for c in touched.advanced.values()]
    told = [list(numbers), nodes, removed, edges, cleared, advanced, touched.everything]
    payload = orjson.dumps(told)
    return payload if len(payload) <= _SMALL else zlib.compress(payload, 1)


def decode(chain: str, number: int, payload: bytes) -> Change:
    """The change of that number in a chain."""
    plain = zlib.decompress(payload) if payload[0] == _PACKED else payload
    listed, nodes, removed, edges, cleared, advanced, everything = orjson.loads(plain)
    keys: list[Key] = [tuple(key) for key in listed]

    def by_name(noted: dict[str, list[int]]) -> dict[str, tuple[Key, ...]]:
        return {name: tuple(keys[n] for n in numbers) for name, numbers in noted.items()}

    return Change(
        chain=chain,
        number=number,
        nodes=by_name(nodes),
        removed=by_name(removed),
        edges={
            type_: tuple(
                (keys[source], keys[target], label)
                for label, ends in by_label.items()
                for source, target in zip(ends[::2], ends[1::2], strict=True)
            )
            for type_, by_label in edges.items()
        },
        cleared=by_name(cleared),
        advanced=tuple(
            Advanced(stage, partition, Position.parse(position), seq)
            for stage, partition, position, seq in advanced
        ),
        everything=everything,
    )


def changes_of(
    place: FeedPlace, newest: Mapping[str, int], rows: Sequence[FeedRow], most: int
) -> Changes:
    """The changes behind a place, from what a store has of them.

    Args:
        place: the last changes that are known.
        newest: numbers of the newest changes of the chains that are elsewhere, read before the
            rows.
        rows: so many as there are of those between the two, of each chain the first.
        most: changes that were asked for.

    Raises:
        ChangesLost: there are none behind that place, or not all.
    """
    numbers = dict(place.numbers)
    for chain, number in newest.items():
        if number < numbers.setdefault(chain, 0):
            raise ChangesLost(reason=f"the newest change of {chain!r} is {number}")
    for chain, number, _ in sorted(rows, key=itemgetter(0, 1)):
        if number != numbers[chain] + 1:
            raise ChangesLost(reason=f"change {numbers[chain] + 1} of {chain!r} is missing")
        numbers[chain] = number
    if len(rows) < expected(place, newest, most):
        ends = {chain: number for chain, number in newest.items() if numbers[chain] < number}
        raise ChangesLost(reason=f"changes up to {ends} are missing")
    more = any(numbers[chain] < number for chain, number in newest.items())
    changes = tuple(decode(chain, number, bytes(payload)) for chain, number, payload in rows)
    return Changes(FeedPlace(place.identity, numbers), changes, more)


def expected(place: FeedPlace, newest: Mapping[str, int], most: int) -> int:
    """How many changes an answer must have, if all of them are there."""
    behind = (number - place.numbers.get(chain, 0) for chain, number in newest.items())
    return min(most, sum(behind))
