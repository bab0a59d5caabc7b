"""Whose memory is read, what of it may be seen, and how nodes are called on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.as_of import known, until_parameter
from pipelines.graph.rows import ids_by_label
from projections.identity import Position
from projections.schema import EVENT, NodeRow

MAX_SCANNED: Final = 400
"""Edges of one type at one node that are looked at: a hub costs no more than that."""


class Scope(NamedTuple):
    """Whose memory is read, and as of when.

    Attributes:
        user_id: events and facts of this user or of nobody; None: of nobody.
        now_ms: the clock, for facts that hold or not.
        until: events behind this position are not seen.
    """

    tenant: str
    user_id: str | None
    now_ms: int
    until: Position | None = None

    def parameters(self) -> dict[str, Any]:
        """As the questions take them."""
        return {
            "tenant": self.tenant,
            "user_id": self.user_id,
            "now": self.now_ms,
            "until": None if self.until is None else until_parameter(self.until),
        }


def visible(row: NodeRow, variable: str) -> str:
    """Cypher that is true of a node that a reader in scope may see."""
    tests = [f"NOT {variable}:{row.placeholder}"]
    if row is EVENT:
        tests += [
            f"CASE WHEN {variable}.user_id IS NULL THEN true "
            f"ELSE coalesce({variable}.user_id = $user_id, false) END",
            f"CASE WHEN $until IS NULL THEN true ELSE {known(variable)} END",
        ]
    if any(prop.name == "gone" for prop in row.properties):
        tests.append(f"NOT coalesce({variable}.gone, false)")
    return " AND ".join(tests)


def ids_by_parameter(node_ids: Iterable[str]) -> dict[str, list[str]]:
    """Own ids by the name of the parameter: `event_ids`, `entity_ids` and so on."""
    return {f"{label.lower()}_ids": ids for label, ids in ids_by_label(node_ids).items()}


def collected(graph: GraphRead, text: str, **parameters: Any) -> list[Any]:
    """All rows of a question in one record: a record costs the driver as much as a hundred rows."""
    (record,) = graph.rows(text, **parameters)
    return list(record["rows"])
