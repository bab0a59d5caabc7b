"""How columns compare with their graph: what the process tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Differing(NamedTuple):
    """An item in which columns differ from the graph.

    Attributes:
        tenant: whose it is.
        kind: label, edge type, or a word (`pipelines.columns.contents.KINDS`).
        key: of the item.
        fields: that differ, as the graph has them and as they were held; None: not at all. The
            first of them, and long values cut.
        is_held, is_expected: whether there is anything under the key.
    """

    tenant: str
    kind: str
    key: str
    fields: Mapping[str, tuple[Any, Any]]
    is_held: bool
    is_expected: bool


class Finding(NamedTuple):
    """How columns compare with their graph.

    Attributes:
        events: that the graph holds, of all tenants.
        counts: items that differ, by tenant and kind; tenants and kinds without any are missing.
        first: of each kind the first of them.
    """

    events: int
    counts: Mapping[str, Mapping[str, int]]
    first: list[Differing]

    @property
    def difference_count(self) -> int:
        """Items that differ."""
        return sum(sum(kinds.values()) for kinds in self.counts.values())
