"""Order-free digests: numbers of nodes and edges, and their sums.

Each canonical node and edge gives a 256-bit number, and the digest is their sum modulo 2^256: it
can be built in any order, in parts, by several processes, and a part can be taken away again.
Equal digests mean equal graphs up to a collision of BLAKE2b.

`StoredSums` are over everything that a store holds, by label and type, whichever store it is: there
vectors, positions and bookkeeping count, too, since they are about what one store must have taken
over from another.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import numpy
import orjson

from pipelines.graph.rows import FoundEdge, FoundNode
from projections.schema import DEAD_LETTER, EDGES, EVENT, NODES, Certainty, EdgeRow, NodeRow

if TYPE_CHECKING:
    from pipelines.ledger.command_notes import Progress

READING = "reading the ledger"
_ITEMS_A_STEP = 5_000
"""Of progress."""

MODULUS = 1 << 256
_EXACT = (Certainty.FOLDED, Certainty.RECORDED)

_PROPERTIES = EVENT.owned("projection")
NAMES = [p.name for p in _PROPERTIES]
"""Properties of an Event that Stage 1 writes, in the order in which values stand."""
POSITION = len(NAMES) - 1
"""Place of the one that no digest covers."""
if _PROPERTIES[POSITION].certainty is not Certainty.POSITION:
    raise AssertionError("the position stands last in the row, so that a digest can leave it out")


def element_digest(label_or_type: str, *values: Any) -> int:
    """Number of one node or edge.

    Taken over its label or type, its keys and its folded properties in the order of the schema,
    as JSON. Times are milliseconds, real numbers are integers (times 10,000).
    """
    if float in map(type, values):  # never a value of ours; JSON would make null of NaN
        values = tuple(repr(value) if type(value) is float else value for value in values)
    data = orjson.dumps([label_or_type, *values], default=repr)
    return int.from_bytes(blake2b(data, digest_size=32).digest(), "big")


def edge_number(
    type_: str, source: Sequence[Any], target: Sequence[Any], values: Sequence[Any]
) -> int:
    """Digest of one edge."""
    return element_digest(type_, *source, *target, *values)


def digested(row: NodeRow | EdgeRow, stage: str) -> tuple[str, ...]:
    """Names of what a digest covers of a row: exact values that a stage writes, in their order.

    Bookkeeping is left out, and so is where things stand in the ledger.
    """
    name = row.label if isinstance(row, NodeRow) else row.type
    return _digested(name, stage)


@cache
def _digested(name: str, stage: str) -> tuple[str, ...]:
    if name in NODES:
        properties = () if NODES[name].operational else NODES[name].properties
        return tuple(p.name for p in properties if p.stage == stage and p.certainty in _EXACT)
    row = EDGES[name]
    if row.certainty is Certainty.APPROXIMATE:
        return ()
    return tuple(p.name for p in row.carried(stage) if p.certainty in _EXACT)


def node_number(row: NodeRow, stage: str, key: Sequence[Any], values: Mapping[str, Any]) -> int:
    """Digest of what a stage has written of a node; 0 where that is nothing."""
    written = [values.get(name) for name in digested(row, stage)]
    if row.stage != stage and not any(value is not None for value in written):
        return 0
    return element_digest(row.label, *key, *written)


def edge_number_of(
    row: EdgeRow,
    stage: str,
    source: Sequence[Any],
    target: Sequence[Any],
    *,
    values: Mapping[str, Any],
) -> int:
    """Digest of an edge that a stage has made; 0 of another's, and of an approximate one."""
    if row.certainty is Certainty.APPROXIMATE:
        return 0
    if row.shared_by is not None and values.get(row.shared_by[0]) != row.shared_by[1][stage]:
        return 0
    written = [values.get(name) for name in digested(row, stage)]
    return edge_number(row.type, source, target, written)


def placed(number: int, position: Any) -> int:
    """Number of a node at its place in the ledger, to compare ledger and graph; in no digest.

    A product, because a sum would be the same after two nodes changed places. Of the text itself:
    the same in every process, unlike `hash`, and different for a number that is written otherwise.
    """
    text = position if type(position) is str else f"~{position!r}"
    return number * int.from_bytes(b"\x01" + text.encode("utf-8", "replace"), "big")


def digest_text(digest: int) -> str:
    """64 hexadecimal digits."""
    return f"{digest % MODULUS:064x}"


class StoredSums:
    """Adds up nodes and edges, of checkpoints apart.

    Args:
        stages: of which the digests are added up, too.
        by_tenant: whether sums are by tenant, not by label and type.

    Attributes:
        sums: of all that is stored; what has no text for a tenant is None's.
        counts: of nodes and edges, by label and type.
        events: that are more than the cause of another, by what their sums are by.
        digests: of what each stage wrote, by its name.
    """

    def __init__(self, stages: tuple[str, ...] = (), *, by_tenant: bool = False) -> None:
        self.sums: Counter[str | None] = Counter()
        self.counts: Counter[str] = Counter()
        self.events: Counter[str | None] = Counter()
        self.digests: Counter[str] = Counter(dict.fromkeys(stages, 0))
        self._stages = stages
        self.by_tenant = by_tenant

    def add(self, name: str, item: FoundNode | FoundEdge) -> None:
        """Take in a node or an edge; what it has not may be missing or None."""
        held, number = item.values, 0
        part = _tenant_of(name, item) if self.by_tenant else name
        values = [_exactly(held.get(one)) for one in _names(name)]
        if isinstance(item, FoundNode):
            node, vector = NODES[name], NODES[name].vector
            if vector is not None:
                values.append(_numbers(held.get(vector)))
            number = element_digest(name, *item.key, item.visible, *values)
            for stage in _written(name, self._stages) if item.visible else ():
                self.digests[stage] += node_number(node, stage, item.key, held)
            if node is EVENT and item.visible:
                self.events[part] += 1
        else:
            edge = EDGES[name]
            number = element_digest(name, item.source, item.target, item.label, *values)
            for stage in _written(name, self._stages):
                self.digests[stage] += edge_number_of(
                    edge, stage, item.source, item.target, values=held
                )
        self.sums[part] = (self.sums[part] + number) % MODULUS
        self.counts[name] += 1

    def add_all(
        self,
        items: Iterable[tuple[str, FoundNode | FoundEdge]],
        *,
        total: int,
        progress: Progress,
        what: str,
    ) -> None:
        """Take in all that a store holds, and tell how far that is, of so many items."""
        for done, (name, item) in enumerate(items):
            self.add(name, item)
            if done % _ITEMS_A_STEP == 0:
                progress(min(done, total), total, what)

    def update(self, other: StoredSums) -> None:
        """Take in what was added up elsewhere, of the same kind."""
        for mine, theirs in (
            (self.counts, other.counts),
            (self.events, other.events),
            (self.digests, other.digests),
        ):
            cast(Counter[str | None], mine).update(theirs)
        for part, number in other.sums.items():
            self.sums[part] = (self.sums[part] + number) % MODULUS

    def differing(self, other: StoredSums) -> set[str | None]:
        """Of what the sums are not the same."""
        return {part for part in self.sums | other.sums if self.sums[part] != other.sums[part]}


def _tenant_of(name: str, item: FoundNode | FoundEdge) -> str | None:
    """Whose a node is, or where an edge begins; None: that is no text, or nobody's."""
    if isinstance(item, FoundEdge):
        tenant = item.source[0]
    elif name == DEAD_LETTER.label:
        tenant = item.values.get("tenant")
    else:
        tenant = item.key[0]
    return tenant if type(tenant) is str else None


def _exactly(value: Any) -> Any:
    """A real number unlike the text that says the same; in a dictionary, which no property is."""
    return {"": repr(value)} if type(value) is float else value


@cache
def _names(name: str) -> tuple[str, ...]:
    """All properties of a label or type but for the key and the vector of an index."""
    if name in EDGES:
        return tuple(p.name for p in EDGES[name].properties)
    row = NODES[name]
    return tuple(p.name for p in row.stored() if p.name not in (*row.key, row.vector))


@cache
def _written(name: str, stages: tuple[str, ...]) -> tuple[str, ...]:
    """The stages whose digests cover something of a label or type."""
    if name in EDGES:
        return tuple(stage for stage in stages if EDGES[name].written_by(stage))
    return tuple(stage for stage in stages if digested(NODES[name], stage))


def _numbers(vector: Any) -> Any:
    """A vector by its bytes, an array or a tuple alike; anything else as it is.

    In a dictionary, which no property is.
    """
    if isinstance(vector, numpy.ndarray):
        data = vector.astype("<f8").tobytes()
    elif isinstance(vector, tuple) and type(vector[0]) is float:  # a list has one type in Neo4j
        data = array("d", vector).tobytes()
    else:
        return vector
    return {"": blake2b(data, digest_size=32).hexdigest()}
