"""Which edition serves a ledger: the usual one on Neo4j, or the small one, all in memory."""

from __future__ import annotations

from typing import Final

from pipelines.graph.memory_graphs import SMALL_URI, is_in_memory
from pipelines.ledger.registry import Target, Targets
from projections.errors import OperationFailed

SMALL_TARGET: Final = "small"
"""Name of the target whose graph is in memory."""


def require_edition(targets: Targets, *, small: bool) -> None:
    """See that a ledger may be served by an edition; the first one that asks makes it its own.

    Raises:
        OperationFailed: its active target is of the other one.
    """
    active = targets.active()
    if active is None:
        if small:
            targets.register(Target(SMALL_TARGET, SMALL_URI, "", "active"))
            targets.activate(SMALL_TARGET)
        return
    target = targets.get(active[0])
    if small and not is_in_memory(target.uri):
        raise OperationFailed(
            reason=f"this memory is answered from {target.name}, a Neo4j: `recollect up --all`"
        )
    if not small and is_in_memory(target.uri):
        raise OperationFailed(
            reason="this memory is of the small edition: `recollect up --small`. To move it to a "
            "Neo4j, run `recollect rebuild --into NAME --switch` while that runs"
        )
