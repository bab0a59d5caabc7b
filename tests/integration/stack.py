"""A ledger, its graph and a worker's runner, driven by a test block by block."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import neo4j

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Ledger
from pipelines.models.loaded import Models
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from pipelines.proof.report import ProofReport
from pipelines.proof.verify import verify
from pipelines.work.folds import StageFold
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from projections.events import Event, content_digest
from tests.graph_dump import dump
from tests.memory_stack import PARTITIONS as PARTITIONS
from tests.memory_stack import LedgerStack
from tests.memory_stack import Worker as Worker


class ValkeyStack(LedgerStack):
    """Services with few partitions, and what a worker would do on the active target.

    With `neo4j_url` at `memory://NAME` the graph is in this process.
    """

    services: Services
    ledger: Ledger

    def __init__(self, redis_url: str, neo4j_url: str, **options: Any) -> None:
        settings: dict[str, Any] = {
            "redis_url": redis_url,
            "neo4j_url": neo4j_url,
            "partitions": PARTITIONS,
            "id_buckets": 64,
            **options,
        }
        self.services = Services(Settings(**settings))
        self.ledger = self.services.ledger
        self.target = self.services.active()
        self.graph = self.services.graph(self.target)
        self.prepare()

    def close(self) -> None:
        self.services.close()

    def models(self, **chosen: Any) -> Models:
        """Models behind the store of derivations, as those of a worker that has just started."""
        return Models(self.services.settings, **chosen)

    def lose(self, kind: str) -> int:
        """Delete all derivations of a kind; returns how many there were."""
        url = str(self.services.settings.derivations_url)
        db = sqlite3.connect(url.removeprefix("sqlite://"))
        with db:
            gone = db.execute("DELETE FROM derivation WHERE kind = ?", (kind,)).rowcount
        db.close()
        return gone

    def dump(self) -> Any:
        return dump(self.graph)


class Stack(ValkeyStack):
    """The same on a real Neo4j."""

    graph: Neo4jGraph

    @property
    def driver(self) -> neo4j.Driver:
        """Of the graph, for Cypher by hand."""
        return self.graph.client.driver

    def append_raw(self, partition: int, data: bytes) -> Entry:
        """Write bytes into the stream as the append script writes events."""
        redis: Any = self.services.redis
        keys = self.ledger.keys
        seq = redis.incr(keys.seq(partition))
        redis.xadd(keys.stream(partition), {"e": data, "s": seq, "d": content_digest(data)})
        tail = self.ledger.tails()[partition]
        entry = self.ledger.entry_at(partition, tail.position)
        assert entry is not None
        return entry

    def verify(self, **options: Any) -> ProofReport:
        return verify(self.services, **options)

    def cypher(self, text: str, **parameters: Any) -> list[Any]:
        """Run Cypher by hand; of each row its values, or the only one."""
        with self.driver.session() as session:
            rows = [list(record) for record in session.run(text, parameters)]
        if " MERGE " in f" {text}" or any(word in text for word in ("SET ", "DELETE", "CREATE ")):
            Neo4jGraph(self.driver).renew_feed()  # it tells nothing of what is done by hand
        return [row[0] if len(row) == 1 else row for row in rows]

    def dump(self) -> list[Any]:
        """The whole graph but checkpoints and the change feed, in an order of its own."""
        nodes = self.cypher(
            "MATCH (n) WHERE NOT (n:Checkpoint OR n:Feed OR n:Change) "
            "RETURN labels(n), properties(n) AS p"
        )
        edges = self.cypher(
            "MATCH (a)-[r]->(b) RETURN type(r), properties(r), properties(a), properties(b)"
        )
        return sorted(
            map(repr, [(sorted(row[0]), sorted(row[1].items())) for row in nodes])
        ) + sorted(repr([row[0], *(sorted(p.items()) for p in row[1:])]) for row in edges)


class Proven:
    """A stack that many tests damage, one after the other, and each has mended.

    Its ledger stays as it is, so it is folded once for all of their proofs.

    Args:
        stack: with what all of its stages have folded.
        make: of a stage: what folds it.

    Attributes:
        report: of the graph as it was.
    """

    def __init__(
        self,
        stack: Stack,
        make: Callable[..., StageFold] = make_fold,
    ) -> None:
        self.stack = stack
        begun = {checkpoint.stage for checkpoint in stack.graph.checkpoints()}
        stages = [stage for name, stage in STAGES.items() if name in begun]
        rules = [make(stage, stack.services, stack.target) for stage in stages]
        self._fold = LedgerFold(stack.ledger, rules)
        self.report = self.prove()
        assert self.report.ok, self.report.differences
        self._before = stack.dump()

    def prove(self, *, repair: bool = False) -> ProofReport:
        """As `verify` does, without folding the ledger again."""
        return prove(self.stack.graph, self._fold, repair=repair)

    def damage(self, text: str, **parameters: Any) -> ProofReport:
        """Do something by hand; what the proof says of it."""
        self.stack.cypher(text, **parameters)
        assert self.stack.dump() != self._before, "the tampering did nothing"
        return self.prove()

    def mend(self) -> ProofReport:
        """See that repair brings the very same graph back."""
        report = self.prove(repair=True)
        assert report.ok, report.differences
        assert report.repaired
        assert report.stages == self.report.stages
        assert self.stack.dump() == self._before
        return report


class Ingest(Worker):
    """A thread that appends events, a few at a time, until they are used up or it is stopped."""

    def __init__(self, stack: Stack, events: Iterable[Event], *, pause_s: float = 0.0) -> None:
        super().__init__(stack)
        self._events = iter(events)
        self._pause_s = pause_s
        self.appended = 0

    def _work(self) -> None:
        try:
            for event in self._events:
                if self._stop.wait(self._pause_s):
                    return
                self._stack.append(event)
                self.appended += 1
        except BaseException as error:
            self.error = error


def keys_of(report: ProofReport) -> Sequence[tuple[str, str, str, tuple[Any, ...]]]:
    """What a report names: kind, element, type, key."""
    return [(d.kind, d.element, d.type, d.key) for d in report.differences]
