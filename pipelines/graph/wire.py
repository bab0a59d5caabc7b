"""The port's values as bytes, for a graph that another process holds; never pickles.

JSON, in which whatever JSON has not is a list that begins with its name: tuples, sets, bytes,
mappings, arrays, and the records that the port takes and returns. Nothing else passes, so that a
frame can make no object that is not listed here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy
import orjson

from pipelines.graph.rows import (
    Advanced,
    Census,
    Change,
    Changes,
    Counts,
    End,
    FeedPlace,
    FoundEdge,
    FoundNode,
    Span,
)
from projections import errors, operations
from projections.identity import Link, Position

_TUPLES: Final = (
    *(FoundNode, FoundEdge, FeedPlace, Advanced, Change, Changes, Counts, Census),
    *(Link, Position),
)
_RECORDS: Final = (
    Span,
    *(
        kind
        for kind in vars(operations).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    ),
)
