"""Order-free digest of a graph.

Each canonical node and edge gives a 256-bit number, and the digest is their sum modulo 2^256: it
can be built in any order, in parts, by several processes, and a part can be taken away again.
Equal digests mean equal graphs up to a collision of BLAKE2b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from projections.schema import EVENT, Certainty, EdgeRow, NodeRow

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


def digested(row: NodeRow | EdgeRow, stage: str) -> list[str]:
    """Names of what a digest covers of a row: exact values that a stage writes, in their order.

    Bookkeeping is left out, and so is where things stand in the ledger.
    """
    if isinstance(row, NodeRow):
        properties = () if row.operational else row.properties
        return [p.name for p in properties if p.stage == stage and p.certainty in _EXACT]
    if row.certainty is Certainty.APPROXIMATE:
        return []
    return [p.name for p in row.carried(stage) if p.certainty in _EXACT]


def node_number(row: NodeRow, stage: str, key: Sequence[Any], values: Mapping[str, Any]) -> int:
    """Digest of what a stage has written of a node; 0 where that is nothing."""
    written = [values[name] for name in digested(row, stage)]
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
    if row.shared_by is not None and values[row.shared_by[0]] != row.shared_by[1][stage]:
        return 0
    return edge_number(row.type, source, target, [values[name] for name in digested(row, stage)])


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
