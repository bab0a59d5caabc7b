"""Order-free digest of a graph.

Each canonical node and edge gives a 256-bit number, and the digest is their sum modulo 2^256: it
can be built in any order, in parts, by several processes, and a part can be taken away again.
Equal digests mean equal graphs up to a collision of BLAKE2b.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import orjson

MODULUS = 1 << 256


def element_digest(label_or_type: str, *values: Any) -> int:
    """Number of one node or edge: its label or type, its keys and its folded properties in the
    order of the schema, as JSON. Times are milliseconds, real numbers integers ×10⁴.
    """
    data = orjson.dumps([label_or_type, *values])
    return int.from_bytes(blake2b(data, digest_size=32).digest(), "big")


def combine(digests: Sequence[int] | Any) -> int:
    """Digest of a whole from those of its parts."""
    return sum(digests) % MODULUS


def digest_text(digest: int) -> str:
    """64 hexadecimal digits."""
    return f"{digest % MODULUS:064x}"
