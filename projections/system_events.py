"""System events: what Recollect itself decided, and which stage turns it into graph.

They live under `memory.`, never become Event nodes, and stay out of FOLLOWS and enrichment.
A type in this table is applied by its owner and passed by every other stage; a type that is not
here is dead-lettered once, by the projection.
"""

from __future__ import annotations

from typing import NamedTuple

NAMESPACE = "memory."
PARTITION_KEY = "memory"
"""System events of a tenant go to the partition of (tenant, this)."""


class SystemEvent(NamedTuple):
    """One row: `owner` is the stage that applies it, `public` that producers may send it."""

    owner: str
    public: bool
    meaning: str


SYSTEM_EVENTS: dict[str, SystemEvent] = {
    "memory.accessed": SystemEvent("consolidation", False, "nodes were returned by a read"),
    "memory.feedback": SystemEvent("consolidation", True, "a reader judged an answer"),
    "memory.fact_asserted": SystemEvent("enrichment", True, "a producer states a fact"),
    "memory.fact_retracted": SystemEvent("enrichment", True, "a producer withdraws a fact"),
    "memory.entity_corrected": SystemEvent("enrichment", True, "a person corrected an entity"),
    "memory.same_as": SystemEvent("enrichment", False, "two entities were found to be the same"),
    "memory.consolidation_requested": SystemEvent("consolidation", True, "a pass is asked for"),
    "memory.consolidated": SystemEvent("consolidation", False, "a summary was written"),
    "memory.forgotten": SystemEvent("consolidation", False, "nodes left the graph"),
    "memory.recalled": SystemEvent("consolidation", False, "forgotten nodes came back"),
    "memory.erased": SystemEvent("consolidation", False, "a person's data was erased"),
    "memory.gap_recorded": SystemEvent("projection", False, "entries that Redis lost"),
    "memory.graph_cleared": SystemEvent("projection", False, "a graph was emptied"),
}


def is_system_event(event_type: str) -> bool:
    """Whether the type lies in Recollect's own namespace."""
    return event_type.startswith(NAMESPACE)
