"""The graph as everybody else sees it: a few reads, operations, and transactions behind a fence.

Two stores stand behind it, `neo4j.py` and `memory.py`, and one contract suite runs on both
(`tests/contracts/test_graph_port.py`). Stages gather, passes read, verify compares and rebuild
writes through these protocols, so whatever runs on one store runs on the other.

Beside the properties of its row a node stores, for each decided one, the position of the decision
as `<name>_decided_at`; `NodeRow.stored()` lists all of them, and reads return any that is named.

Values travel as operations carry them: times are milliseconds since the epoch, lists are tuples,
a property that a node does not have is None. Keys are tuples in the order of the schema row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pipelines.graph.feed import MOST_CHANGES
from pipelines.graph.rows import (
    Census,
    Changes,
    Counts,
    End,
    FeedPlace,
    FoundEdge,
    FoundNode,
    Span,
)
from projections.operations import Checkpoint, Key, Operations
from projections.schema import NODES


def scanned(label: str, by: Sequence[str]) -> tuple[str, ...]:
    """The properties of an index of a label, as `Reads.scan` takes them.

    Raises:
        ValueError: its row names no such index.
    """
    row, columns = NODES[label], tuple(by)
    if columns != row.key and columns not in row.indexes:
        raise ValueError(
            f"a scan goes along the key or an index that the row of {label} names; "
            f"({', '.join(columns)}) is none"
        )
    return columns


UNBOUNDED: Mapping[str, Any] = {}
"""No bounds of a scan."""


class Reads(Protocol):
    """What may be asked of a graph. Every question is answered by a key or by an index.

    Raises:
        GraphUnavailable: away, or the question took longer than its limit.
    """

    def nodes(
        self, label: str, keys: Iterable[Key], properties: Sequence[str] = ()
    ) -> dict[Key, FoundNode]:
        """Nodes by key, placeholders too; a key without a node is missing."""
        ...

    def find(
        self,
        label: str,
        by: Sequence[str],
        rows: Iterable[Sequence[Any]],
        properties: Sequence[str] = (),
    ) -> dict[tuple[Any, ...], list[FoundNode]]:
        """Visible nodes by the properties `by`, which begin one of the row's `indexes`.

        The first such index answers, which holds only nodes that have all of its properties.

        Returns:
            By row, those of it sorted by key; a row without any is missing.
        """
        ...

    def scan(
        self,
        label: str,
        by: Sequence[str],
        rows: Iterable[Sequence[Any]],
        properties: Sequence[str] = (),
        *,
        least: Mapping[str, Any] = UNBOUNDED,
        most: Mapping[str, Any] = UNBOUNDED,
        after: Sequence[Any] = (),
        descending: bool = False,
        limit: int,
    ) -> dict[tuple[Any, ...], list[FoundNode]]:
        """Stretches along an index, placeholders too: pages of it, or the first so many.

        Args:
            label: of the nodes.
            by: all properties of the row's key, or of one of its `indexes`; a node that lacks any
                of them is not in it.
            rows: what the stretches begin with: values of the first of these, as many in each.
            properties: to return.
            least: lower bounds of others of these, inclusive.
            most: upper bounds, inclusive.
            after: behind this place: values of those that follow the ones of `rows`, in their
                order, and then of what of the key is not among them. Fewer are behind all that
                begins with them.
            descending: the largest first; of equal ones the smallest key all the same.
            limit: nodes of each row.

        Returns:
            By row, in the order of the index and then of the key; a row without any is missing.

        Raises:
            ValueError: `by` is no index of the label.
        """
        ...

    def edges(
        self,
        type_: str,
        ends: Iterable[Key],
        properties: Sequence[str] = (),
        *,
        by: End = End.SOURCE,
        label: str = "",
    ) -> dict[Key, list[FoundEdge]]:
        """Edges of a type around nodes.

        Args:
            type_: a type of the schema.
            ends: keys of the nodes at the end `by`.
            properties: to return.
            by: at which end those nodes stand.
            label: of the target, where it is not the row's `target`.

        Returns:
            By end, sorted by source, target and the row's key; an end without any is missing.
        """
        ...

    def between(
        self,
        type_: str,
        pairs: Iterable[tuple[Key, Key]],
        properties: Sequence[str] = (),
        *,
        label: str = "",
    ) -> dict[tuple[Key, Key], list[FoundEdge]]:
        """Edges of a type from one node to another, for pairs (source, target)."""
        ...

    def degrees(
        self, type_: str, ends: Iterable[Key], *, by: End = End.SOURCE, label: str = ""
    ) -> dict[Key, int]:
        """How many edges of a type nodes have at the end `by`; a key without a node is missing."""
        ...

    def across(
        self,
        type_: str,
        ends: Iterable[Key],
        name: str,
        *,
        by: End = End.SOURCE,
        label: str = "",
        most: int,
    ) -> dict[Key, tuple[Any, ...]]:
        """What stands across edges of a type: values of a property, each once.

        Args:
            type_: a type of the schema.
            ends: keys of the nodes at the end `by`, which is not either.
            name: a property of the visible nodes at the other end.
            by: at which end those nodes stand.
            label: of the target, where it is not the row's `target`.
            most: values of each; where there are more, any of them.

        Returns:
            By end, sorted; an end without any is missing.
        """
        ...

    def stretch(
        self,
        label: str,
        spans: Sequence[Span],
        *,
        before: int = 0,
        within: int,
        after: int = 0,
        having: str = "",
    ) -> list[list[FoundNode]]:
        """Stretches of the chains of sessions, in the order of (occurred_at, id).

        Args:
            label: one whose first index is (tenant, session_id, occurred_at, event_id).
            spans: where.
            before: members ahead of the low bound, the nearest.
            within: members from the low to the high bound, both included, the first so many.
            after: members behind the high bound, the nearest.
            having: a property that a member must have, to be returned and to be counted.

        Returns:
            One list a span, of nodes with `occurred_at`. Placeholders are no members, for they have
            no place.
        """
        ...

    def nearest(
        self,
        label: str,
        vectors: Mapping[Key, Sequence[float]],
        k: int,
        properties: Sequence[str] = (),
    ) -> dict[Key, list[tuple[FoundNode, float]]]:
        """Visible nodes of the same tenant whose vectors are nearest to each of these.

        Args:
            label: one that Recollect searches (`NodeRow.is_searched`): others need not be indexed.
            vectors: by the key of a node.
            k: at most so many of each.
            properties: to return.

        Returns:
            By key at most `k` others with their plain cosine, the nearest first; never the node
            itself. The order is approximate where an index searches.
        """
        ...

    def stream(
        self,
        label_or_type: str,
        properties: Sequence[str] = (),
        *,
        tenants: Collection[str] | None = None,
    ) -> Iterator[FoundNode] | Iterator[FoundEdge]:
        """Every node of a label, or edge of a type, in the order of keys, in bounded memory.

        Edges are sorted by source, target and the row's key. `tenants` restricts both to theirs.
        """
        ...


def pages(
    graph: Reads,
    label: str,
    by: Sequence[str],
    row: Sequence[Any],
    *,
    properties: Sequence[str] = (),
    after: Sequence[Any] = (),
    size: int,
    **bounds: Any,
) -> Iterator[list[FoundNode]]:
    """What `Reads.scan` finds of one row, so many nodes at once.

    Args:
        graph: that is read.
        label: of the nodes.
        by: all properties of an index.
        row: what the nodes begin with.
        properties: to return; those of the index are among them.
        after: the place behind which they stand.
        size: of a page.
        bounds: `least`, `most` and `descending` of the scan.
    """
    key = NODES[label].key
    following = [*by[len(row) :], *(name for name in key if name not in by)]
    names = tuple(dict.fromkeys((*properties, *following)))
    while page := graph.scan(label, by, [row], names, after=after, limit=size, **bounds).get(
        tuple(row)
    ):
        yield page
        after = [page[-1].values[name] for name in following]


class Transaction(Reads, Protocol):
    """What may happen between begin and commit. Take the checkpoint's lock first.

    Attributes:
        advanced: this transaction moves a checkpoint, so its entries are folded for the first
            time, and what only counts up may count.
        dead_letters: how many the graph holds, known after the lock.
    """

    advanced: bool
    dead_letters: int

    @property
    def graph(self) -> Graph:
        """The graph that it changes: asked through it, what was committed answers."""
        ...

    @property
    def has_tombstones(self) -> bool:
        """Whether events were forgotten, known after the lock."""
        ...

    def hold(self, names: Iterable[str]) -> None:
        """Wait until no other transaction holds any of these names, and hold them until the end.

        What others that held one have committed can be read then.
        """
        ...

    def advance(self, start: Checkpoint, to: Checkpoint) -> None:
        """Lock the checkpoint, test that it is at `start`, and move it to `to`.

        Raises:
            Fenced: it is elsewhere, or of another generation or fold version.
        """
        ...

    def lock(self, stage: str, partition: int) -> Checkpoint | None:
        """Lock a checkpoint without moving it, and read it. None: there is none."""
        ...

    def reset(self, checkpoint: Checkpoint) -> int:
        """Put a checkpoint elsewhere under a new generation, which is returned."""
        ...

    def lock_nodes(
        self, label: str, keys: Iterable[Key], properties: Sequence[str] = (), *, make: bool = False
    ) -> dict[Key, FoundNode]:
        """`nodes`, locked in the order of their keys until the commit.

        Args:
            label: of the nodes.
            keys: of the nodes.
            properties: to return, as they are once the lock is held.
            make: make those that are missing, as placeholders where the row has any.
        """
        ...

    def apply(self, operations: Operations, stage: str) -> None:
        """Write a batch of a stage.

        Raises:
            InvalidOperation: another stage owns what it writes.
        """
        ...

    def dead_letters_of(self, stage: str, partition: int) -> list[Mapping[str, Any]]:
        """What a stage could not fold of a partition, by seq."""
        ...

    def add_dead_letter(self, stage: str, partition: int, seq: int, **fields: Any) -> None:
        """Record an entry that the stage passes, with the other properties of its row."""
        ...

    def drop_dead_letters(self, stage: str, partition: int, seqs: Sequence[int]) -> None:
        """Delete the records of entries that passed after all."""
        ...

    def drop_later_dead_letters(self, stage: str, partition: int, seq: int) -> None:
        """Delete the records of entries behind `seq`: the ledger lost them, their numbers recur."""
        ...

    def restore_nodes(
        self, label: str, nodes: Iterable[FoundNode], *, gone: Iterable[Key] = ()
    ) -> None:
        """Make nodes hold exactly these values, whatever they hold; for repair alone.

        Args:
            label: of the nodes.
            nodes: with `values` by every stored property of the row, None for those to remove;
                what the row does not know is removed too.
            gone: keys of nodes to delete, with their edges.
        """
        ...

    def restore_values(
        self, label: str, names: tuple[str, ...], nodes: Sequence[FoundNode]
    ) -> None:
        """Make nodes that are there hold exactly these values of some properties; for repair alone.

        Args:
            label: of the nodes.
            names: of the properties; what else a node holds stays.
            nodes: with `values` by these names, None for those to remove.
        """
        ...

    def restore_edges(
        self,
        type_: str,
        edges: Iterable[FoundEdge],
        *,
        gone: Iterable[tuple[Key, Key, str]] = (),
    ) -> None:
        """Make pairs of nodes have exactly these edges of a type, whatever they have.

        Args:
            type_: of the edges.
            edges: all that there must be between each of their pairs, with every property.
            gone: (source, target, label of the target) of pairs that must have none.
        """
        ...

    def remove_foreign(self, labels: Collection[str], types: Collection[str]) -> None:
        """Delete nodes and edges of labels and types that the schema does not know, and strays.

        A node that bears a label of ours too, by whose key it is found, loses the other one alone.

        Args:
            labels: the unknown ones; an empty text stands for nodes without any.
            types: the unknown ones.
        """
        ...


class Graph(Reads, Protocol):
    """One target's graph. Threads may share it; each transaction stands alone."""

    def ensure_schema(self) -> None:
        """Create what is missing of constraints and indexes, and wait until they are online."""
        ...

    def ensure_checkpoints(
        self, stage: str, partitions: int, fold_version: int, models: str = ""
    ) -> None:
        """Create a stage's missing checkpoints at the start of the ledger."""
        ...

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """The checkpoints of a stage, or of all, by stage and partition.

        A commit may show its parts one by one, the checkpoint first: see `settle`.
        """
        ...

    def settle(self, stage: str, partitions: Iterable[int]) -> None:
        """Return once all can be read that `checkpoints` has told to be folded.

        It waits for transactions that move these checkpoints, one after the other.
        """
        ...

    def dead_letters(
        self, stage: str | None = None, partition: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Dead letters, by stage, partition and seq."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One transaction: committed when the body ends, rolled back when it raises.

        With it its change is committed, if it may have changed anything (see `changes`).
        """
        ...

    def clear(self, *, keep_checkpoints: bool = False) -> None:
        """Delete everything that Recollect wrote, in small transactions.

        The counters of its change feed alone stay; the feed gets another identity.
        """
        ...

    def renew_feed(self) -> None:
        """Give the change feed another identity: whoever follows loads the graph anew.

        For what was changed without transactions of ours: a backup that was restored, a statement
        by hand.
        """
        ...

    def feed(self) -> FeedPlace:
        """Where the change feed is.

        Whoever loads the graph afterwards and then follows it from this place on misses nothing.

        Raises:
            ChangesLost: there is none yet (`ensure_schema` begins it), or the graph is being
                emptied.
        """
        ...

    def changes(self, place: FeedPlace, most: int = MOST_CHANGES) -> Changes:
        """What transactions have changed since: the changes behind a place.

        What a change tells can be read when it is told. Dead letters are not told.

        Args:
            place: behind the last changes that are known.
            most: changes to return.

        Returns:
            None, where nothing has changed; this costs one small question.

        Raises:
            ChangesLost: the feed is another one, is not there, has not come as far as the place,
                or keeps no longer what is behind it.
        """
        ...

    def store_id(self) -> str:
        """Which store this is, by whatever address it is reached."""
        ...

    def counts(self) -> Counts:
        """How much there is of each kind; the store keeps these numbers."""
        ...

    def census(self) -> Census:
        """What kinds of things it holds, foreign ones too; reads all of it."""
        ...
