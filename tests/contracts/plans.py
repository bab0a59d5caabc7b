"""Plans of Cypher, looked at for scans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import neo4j

SCANS = {"AllNodesScan", "NodeByLabelScan", "PartitionedAllNodesScan"}
SORTS = {"Sort", "PartialSort", "Top", "PartialTop"}


def operators(
    driver: neo4j.Driver, text: str, parameters: dict[str, Any], *, version: int | None = None
) -> list[tuple[str, str]]:
    """Kind and details of each operator of a plan."""
    language = "" if version is None else f"CYPHER {version} "
    with driver.session() as session:
        plan = session.run(f"{language}EXPLAIN {text}", parameters).consume().plan
    assert plan is not None
    return list(walk(plan))


def walk(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and details of an operator and of all below it."""
    yield plan["operatorType"].split("@")[0], plan.get("args", {}).get("Details", "")
    for child in plan.get("children", ()):
        yield from walk(child)
