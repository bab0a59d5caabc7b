"""What a pass makes of the values of nodes that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from consolidation.summary_payloads import Summary, parse_summary
from pipelines.graph.rows import DEFAULT_IMPORTANCE, FoundNode
from projections.identity import Position

WHOLE = 2**31 - 1
"""More events than a session has."""


def said_of(node: FoundNode) -> str:
    """The text of an event, or its line."""
    return node.values["text"] or node.values["summary"] or ""


def importance_of(values: Mapping[str, Any]) -> int:
    """Of an event, without its boost."""
    for name in ("importance_score", "importance_hint"):
        if values[name] is not None:
            return int(values[name])
    return DEFAULT_IMPORTANCE


def parsed_summary(gist: str) -> Summary:
    """A summary as the graph keeps it."""
    return parse_summary(orjson.loads(gist))


def position_of(parts: Iterable[int] | None) -> Position | None:
    """A position as the graph keeps it."""
    return None if parts is None else Position(*parts)
