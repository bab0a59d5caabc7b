"""Prove that the columns in memory hold what the graph holds: the last part of a verify."""

from __future__ import annotations

import time
from typing import Final, Literal

from pipelines.columns.client import ColumnsClient
from pipelines.columns.records import Differing
from pipelines.ledger.registry import verified
from pipelines.proof.compare import Difference
from pipelines.proof.report import LISTED, ProofReport, StageFinding
from pipelines.work.services import MEMORY_SCHEME, Services

COLUMNS: Final = "columns"
"""Of a report, beside the stages."""
_TIMEOUT_MS: Final = 1_800_000
"""Of one look, which reads the whole graph."""


def prove_columns(services: Services, report: ProofReport, *, repair: bool) -> None:
    """Compare the columns with their graph, and add what differs to a report of all stages.

    They are those of the active target: of another one, or of a graph that no worker has started
    on, there are none, and nothing is said.

    Args:
        services: with the target, and the way in to its process, which is started if none runs.
        report: of the target.
        repair: mend what differs, then look again.

    Raises:
        GraphUnavailable, QueryTimeout: the columns cannot be asked, or the graph is away.
    """
    target = services.active()
    if target.name != report.target or target.uri.startswith(MEMORY_SCHEME):
        return
    if not services.graph(target).checkpoints():
        return
    begun = time.perf_counter()
    client = ColumnsClient(target.uri, target.database, services.settings)
    try:
        before = left = client.verify(_TIMEOUT_MS, mend=repair)
        if repair and before.difference_count:
            left = client.verify(_TIMEOUT_MS)
    finally:
        client.close()
    duration_s = time.perf_counter() - begun
    count = left.difference_count
    report.stages[COLUMNS] = StageFinding(entries=left.events, difference_count=count)
    report.difference_count += count
    report.differences += map(_difference, left.first[: LISTED - len(report.differences)])
    report.found_count += before.difference_count
    report.repaired += before.difference_count if repair else 0
    report.duration_s += duration_s
    services.reports.put(verified(COLUMNS, target.name, differences=count, duration_s=duration_s))


def _difference(item: Differing) -> Difference:
    kind: Literal["missing", "extra", "different"] = "different"
    if not item.is_held:
        kind = "missing"
    elif not item.is_expected:
        kind = "extra"
    key = (item.tenant, item.key) if item.key else (item.tenant,)
    return Difference(kind, "column", item.kind, key, fields=item.fields)
