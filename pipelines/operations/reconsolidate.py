"""Rebuild and decide anew: first what is recorded, then consolidation asked again, all behind it.

Decisions are asked for on the active graph alone, as ever, so a fresh target becomes that first.
The earlier decisions stay in the ledger and are applied before the later ones wherever it is
folded; a plain rebuild therefore comes to the same graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.ledger.registry import Target
from pipelines.operations.consolidate import ConsolidationReport, redecide
from pipelines.operations.rebuild import RebuildReport, rebuild
from pipelines.proof.report import ProofReport
from pipelines.proof.verify import verify
from pipelines.work.services import Progress, Services
from pipelines.work.stages import STAGES
from projections.errors import OperationFailed

REDECIDABLE = tuple(stage.name for stage in STAGES.values() if stage.decides)
"""Stages whose decisions can be asked for again."""


@dataclass(frozen=True)
class RedecideReport:
    """A rebuild, what was decided anew after it, and how the graph compares then."""

    rebuilt: RebuildReport
    decided: ConsolidationReport
    verified: ProofReport

    @property
    def ok(self) -> bool:
        """Whether the graph is what the ledger holds, and all was decided anew."""
        return self.rebuilt.ok and self.decided.complete and self.verified.ok

    def as_dict(self) -> dict[str, Any]:
        """For JSON: that of the rebuild, `redecided`, and the graph as it is after that."""
        decided, verified = self.decided.as_dict(), self.verified.as_dict()
        same = {name: verified[name] for name in ("digest", "differences", "scope", "stages")}
        return {**self.rebuilt.as_dict(), **same, "ok": self.ok, "redecided": decided}


def rebuild_and_redecide(
    services: Services,
    *,
    into: Target | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> RedecideReport:
    """Fold the whole ledger again, then ask consolidation anew about everything.

    Args:
        services: ledger and targets.
        into: a fresh target, which answers reads from then on; None: the active one, in place.
        now_ms: the clock that the decisions bear; None: the ledger's.
        progress: called with done, total and what is being done.

    Raises:
        OperationFailed: the rebuilt graph differs from the ledger, and nothing was decided; or as
            `rebuild` and `redecide`.
        PassUnderWay: another process runs a pass; the graph is rebuilt and nothing was decided.
    """
    rebuilt = rebuild(services, into=into, switch=into is not None, progress=progress)
    if not rebuilt.ok:
        raise OperationFailed(
            reason=f"{rebuilt.target} differs from the ledger in "
            f"{rebuilt.verified.difference_count} places, nothing was decided anew; "
            "`recollect verify --repair`, and try again"
        )
    if progress:
        progress(0, None, "deciding anew")
    decided = redecide(services, now_ms=now_ms)
    return RedecideReport(rebuilt, decided, verify(services, progress=progress))
