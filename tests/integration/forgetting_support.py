"""Passes that forget, over a stack whose ledger is consolidated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from consolidation.decay import DAY_MS
from consolidation.retention import RetentionPolicy
from pipelines.graph.reads.consolidation import ConsolidationReader
from pipelines.graph.reads.forgetting import ForgettingReader
from pipelines.ledger.ledger import Appended
from pipelines.operations.passes.deciding import PassReport
from pipelines.operations.passes.forgetting import Forgetting
from pipelines.operations.passes.run import Pass
from projections.errors import EventConflict
from projections.events import Event
from projections.schema import CAUSED_BY, SIMILAR_TO
from tests.factories import START_MS, event_id
from tests.integration.consolidation_support import Consolidated

HOUR_MS = DAY_MS // 24
LONG_AFTER = START_MS + 40 * DAY_MS
"""A clock at which all that happened at START_MS is archived; the ledger took it in later."""


class Forgetful(Consolidated):
    """Passes with a clock and a policy."""

    policy = RetentionPolicy()

    def reader(self) -> ForgettingReader:
        return ForgettingReader(self.stack.driver)

    def append(self, events: Sequence[Event]) -> None:
        for outcome in self.stack.ledger.append(events):
            assert isinstance(outcome, Appended | EventConflict), outcome

    def run(
        self,
        now_ms: int = LONG_AFTER,
        *,
        applied: Callable[[], None] | None = None,
        in_time: Callable[[], bool] = lambda: True,
    ) -> PassReport:
        """A pass of everything."""
        return Pass(
            ConsolidationReader(self.stack.driver),
            self.append,
            applied or self.fold,
            now_ms=now_ms,
            run_id="run-1",
            in_time=in_time,
            forgetting=Forgetting(self.reader(), lambda tenant: self.policy),
        ).run()

    def retained(self) -> list[str]:
        return sorted(
            self.stack.cypher("MATCH (e:Event) WHERE NOT e:Placeholder RETURN e.event_id")
        )

    def seqs(self) -> list[int]:
        return [tail.seq for tail in self.stack.ledger.tails()]

    def make_alike(self, one: int, other: int, score: float) -> None:
        """A SIMILAR_TO edge, as enrichment would make it."""
        self._edge(min(one, other), max(one, other), f"{SIMILAR_TO.type} {{score: {score}}}")

    def make_cause(self, effect: int, cause: int) -> None:
        """An inferred cause."""
        self._edge(effect, cause, f"{CAUSED_BY.type} {{mechanism: 'inferred', rule: 'retry'}}")

    def _edge(self, source: int, target: int, edge: str) -> None:
        self.stack.cypher(
            "MATCH (a:Event {event_id: $a}), (b:Event {event_id: $b}) "
            f"CREATE (a)-[:{edge}]->(b)",
            a=event_id(source),
            b=event_id(target),
        )

    def pairs(self) -> list[Any]:
        text = f"MATCH (a)-[s:{SIMILAR_TO.type}]->(b) RETURN a.event_id, b.event_id"
        return sorted(map(tuple, self.stack.cypher(text)))
