"""Plans of Cypher, looked at for scans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import neo4j

from pipelines.graph.reads import entities, events, facts, walk

SCANS = {"AllNodesScan", "NodeByLabelScan", "PartitionedAllNodesScan"}
SORTS = {"Sort", "PartialSort", "Top", "PartialTop"}


def operators(
    driver: neo4j.Driver, text: str, parameters: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Kind and details of each operator of a plan."""
    with driver.session() as session:
        plan = session.run(f"EXPLAIN {text}", dict(parameters)).consume().plan
    assert plan is not None
    return list(walk_plan(plan))


def walk_plan(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and details of an operator and of all below it."""
    yield plan["operatorType"].split("@")[0], plan.get("args", {}).get("Details", "")
    for child in plan.get("children", ()):
        yield from walk_plan(child)


_CLAUSES = ("MATCH", "UNWIND", "CALL")
"""A text that begins otherwise is a part of others."""


def _reads() -> Iterator[tuple[str, str]]:
    for module in (events, walk, facts, entities):
        for name, text in vars(module).items():
            texts = text if isinstance(text, dict) else {None: text}
            for kind, one in texts.items():
                asks = isinstance(one, str) and one.strip().startswith(_CLAUSES)
                if name[0] != "_" and asks and "$tenant" in one:
                    yield (name if kind is None else f"{name} {kind}"), one


READS: Final = dict(sorted(_reads()))
"""What readers ask of a tenant, by name."""
ASKED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("tenant", "session_id", "user_id", "id", "name", "type", "after"), "x"),
    **dict.fromkeys(("kind", "scope_id", "place", "last"), "x"),
    **dict.fromkeys(("fetched", "limit", "most", "now", "began", "per_entity"), 1),
    **dict.fromkeys(("first_ms", "last_ms", "since"), 1),
    **{key: ["x"] for key in ("ids", "seen", "names", "session_ids")},
    **{key: ["x"] for key in ("event_ids", "entity_ids", "summary_ids", "community_ids")},
    "everyone": False,
    "all_entities": False,
    "until": [1, 0],
    "words": "+tenant_term:x",
    "supporting": {"x": ["x"]},
    "ends": [["x", "x", ["x"]]],
    "edge_types": [],
    "vector": [0.05] * 384,
    "among": {"x": True},
    "told": {"x": True},
}
"""Of each parameter one that there may be."""
