"""A pass of consolidation: what changed is read, said anew, and appended as decisions.

Its parts follow each other, each looking at the graph that the decisions of those before have
become. A pass keeps nothing: a digest that the graph shows already costs a comparison, so one that
ran out of time is taken up by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pipelines.adapters.consolidation_reads import ConsolidationReader
from pipelines.passes.deciding import Append, Deciding, PassReport
from pipelines.passes.forgetting import Forgetting, decide_events, decide_others
from pipelines.passes.sessions import decide_agents, decide_sessions


class Pass:
    """Decides about one target's graph.

    Args:
        reader: of the graph.
        append: takes decisions; those that the ledger holds already are the ledger's.
        applied: waits until the stage has applied what was appended.
        now_ms: the clock, which decisions bear.
        run_id: of the pass.
        in_time: whether the pass may go on.
        forgetting: what leaves; None: nothing.
    """

    def __init__(
        self,
        reader: ConsolidationReader,
        append: Append,
        applied: Callable[[], None],
        *,
        now_ms: int,
        run_id: str,
        in_time: Callable[[], bool] = lambda: True,
        forgetting: Forgetting | None = None,
    ) -> None:
        self._deciding = Deciding(reader, append, applied, now_ms, in_time, run_id)
        self._forgetting = forgetting

    def run(self, tenants: Iterable[str] | None = None) -> PassReport:
        """Summarise what changed, of these tenants or of all, and forget what is old."""
        report = PassReport()
        deciding = self._deciding
        chosen = deciding.reader.tenants() if tenants is None else list(tenants)
        for tenant in chosen:
            decide_sessions(deciding, tenant, report)
        deciding.applied()
        decide_agents(deciding, report)
        deciding.applied()
        if self._forgetting is not None:
            self._forget(self._forgetting, chosen, report)
        return report

    def _forget(self, forgetting: Forgetting, tenants: Iterable[str], report: PassReport) -> None:
        deciding = self._deciding
        for decide in (decide_events, decide_others):
            for tenant in tenants:
                decide(deciding, forgetting, tenant, report)
            deciding.applied()
