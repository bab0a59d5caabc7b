"""A pass of consolidation over growing graphs, and over one of which 1 % of the sessions changed.

Events are the bench's sample events. Stage 1 projects them as ever; in place of Stage 2, whose
models would take hours, a rule writes through the same runner what they would have found: text,
line, importance, three mentions an event (its tool or agent, a reference number that three sessions
share, a word that all share) and a fact in five events. Then the pass reads, decides, appends, and
the stage applies, all in this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from enrichment.importance import importance_score
from enrichment.names import canonical_name, entity_id
from enrichment.text import event_text
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.observe.logs import configure_logging
from pipelines.operations.passes.deciding import PassReport
from pipelines.operations.passes.run import CommunitySettings, Pass
from pipelines.work.catch_up import fold_partition
from pipelines.work.folds import Placed, StageFold
from pipelines.work.runner import Runner
from pipelines.work.services import make_fold
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT
from projections.errors import EventConflict, RecollectError
from projections.events import Event, derived_event_id, is_system_event
from projections.operations import MergeEdge, MergeNode, Operations, SetNode
from projections.schema import DEAD_LETTER, ENTITY, EVENT, REFERENCES, RELATES_TO
from tests.bench.sample import sample_events
from tests.bench.stack import Stack, cpu_seconds, peak_mb
from tests.fakes.stages import PROJECTING

CHANGED = 0.01
"""Share of the sessions that change before the incremental pass."""
SHARING = 3
"""Sessions that have a reference number in common."""
FACTS = 5
"""One event in so many states a fact."""
FAILED = 40
"""One use of a tool in so many fails."""
FILLED_AT_ONCE = 50_000
BLOCK = 1_000
"""Entries that are applied at once."""


def measure(stack: Stack, size: int) -> dict[str, Any]:
    """Figures of so many events.

    Args:
        stack: the services, which are emptied first.
        size: events.
    """
    configure_logging(stack.settings)  # or each block is told
    stack.clear()
    bench = _Bench(stack)
    events = map(_failing, sample_events(size))
    last: dict[str, Event] = {}
    begun = time.perf_counter()
    while part := list(islice(events, FILLED_AT_ONCE)):
        last.update((event.session_id, event) for event in part)
        stack.append(iter(part), len(part))
        bench.fold()
    filled_s = time.perf_counter() - begun
    assert bench.dead_letters() == 0
    sessions = sorted(last)
    full = bench.timed_pass()
    again = bench.timed_pass()
    assert again["decisions"] == 0, again
    step = round(1 / CHANGED)
    changed = [last[name] for name in sessions[:: min(step, len(sessions))]]
    stack.append(map(_following, changed), len(changed))
    bench.fold()
    incremental = bench.timed_pass()
    return {
        "events": size,
        "sessions": len(sessions),
        "filled_s": round(filled_s, 1),
        "changed_sessions": len(changed),
        "full": full,
        "nothing": again,
        "incremental": incremental,
        "communities": bench.timed_pass(CommunitySettings(every_ms=0)),
    }


class _Bench:
    """The three stages of the live graph, in this process."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        services = stack.services
        target = services.active()
        self._writer = services.graph(target)
        stages = (PROJECTING, SYNTHETIC, make_fold(CONSOLIDATION, services, target))
        self._runners = [Runner(stage, self._writer, target=target.name) for stage in stages]
        for runner in self._runners:
            runner.prepare(stack.ledger.partitions)
        self._folded: dict[tuple[str, int], int] = {}
        self._decisions = 0
        self._applying_s = 0.0

    def fold(self) -> None:
        """Apply what the ledger holds, stage by stage."""
        begun = time.perf_counter()
        ledger = self._stack.ledger
        for runner in self._runners:
            for partition, tail in enumerate(ledger.tails()):
                place = runner.stage.name, partition
                if self._folded.get(place) == tail.seq:  # as live workers, which wait for entries
                    continue
                self._folded[place] = tail.seq
                for _ in fold_partition(ledger, runner, partition, tail, BLOCK):
                    pass
        self._applying_s += time.perf_counter() - begun

    def dead_letters(self) -> int:
        """Entries that no figure would tell of."""
        with self._stack.blue.session() as session:
            rows = session.run(f"MATCH (d:{DEAD_LETTER.label}) RETURN count(d) AS number")
            return int(rows.single(strict=True)["number"])

    def timed_pass(self, communities: CommunitySettings | None = None) -> dict[str, Any]:
        """A pass, and what it took."""
        self._decisions, self._applying_s = 0, 0.0
        _forget_peak()
        begun, own_s, graph_s = time.perf_counter(), time.process_time(), self._graph_cpu_s()
        report = self._run(communities)
        seconds = time.perf_counter() - begun
        own_s, graph_s = time.process_time() - own_s, self._graph_cpu_s() - graph_s
        return {
            "seconds": round(seconds, 2),
            "own_cpu_s": round(own_s, 2),
            "graph_cpu_s": round(graph_s, 2),
            "applying_s": round(self._applying_s, 2),
            "decisions": self._decisions,
            "sessions": report.sessions,
            "links": report.links_written,
            "boosts": report.boosts_written,
            "communities": report.communities_written,
            "peak_mb": round(peak_mb(_own_pid()), 1),
        }

    def _graph_cpu_s(self) -> float:
        """Processor time of Neo4j so far: on a busy machine the figure that holds."""
        return cpu_seconds(self._stack.local.neo4j["blue"].pid or 0)

    def _run(self, communities: CommunitySettings | None) -> PassReport:
        made = Pass(
            Neo4jGraph(self._stack.blue, timeout_s=600.0),
            self._append,
            self.fold,
            now_ms=self._stack.ledger.now_ms(),
            run_id=str(self._decisions),
            communities=communities,
        )
        return made.run()

    def _append(self, events: Sequence[Event]) -> None:
        self._decisions += len(events)
        for outcome in self._stack.ledger.append(events):
            assert not isinstance(outcome, RecollectError) or isinstance(outcome, EventConflict)


# -- what Stage 2 would have found -----------------------------------------------------------------


def _enriched(batch: Sequence[Placed], _: object) -> Operations:
    operations = Operations()
    for _, event in batch:
        if is_system_event(event.event_type):
            continue
        text = event_text(event)
        line = f"{event.tool_name or event.agent_id}: {text.text}"[:200]
        score = importance_score(event, text)
        values: dict[str, Any] = {
            "kind": text.kind.value,
            "text": text.text,
            "speaker": event.tool_name or event.agent_id,
            "keywords": [],
            "summary": line,
            "importance_score": score,
            "embedding": None,
            "embedding_model": None,
        }
        operations.add(SetNode(label=EVENT.label, key=event.key, values=values))
        operations.extend(_mentions(event))
    return operations


SYNTHETIC = StageFold(
    replace(ENRICHMENT, upstream=None), lambda transaction, batch: None, _enriched
)


def _mentions(event: Event) -> Iterator[MergeNode | MergeEdge]:
    number = int(event.session_id.rpartition("-")[2])
    drawn = int(event.event_id[:8], 16)
    reference = f"REF{number // SHARING:06}"
    actor = (
        (event.tool_name, "tool", "tool")
        if event.tool_name
        else (event.agent_id, "agent", "subject")
    )
    for name, entity_type, role in (
        actor,
        (reference, "resource", "object"),
        (f"word-{drawn % 500}", "concept", "object"),
    ):
        yield _entity(event, name, entity_type)
        yield MergeEdge(
            type=REFERENCES.type,
            source=event.key,
            target=_key(event, name, entity_type),
            values={"role": role, "name": None},
        )
    if drawn % FACTS == 0:
        other = f"REF{drawn % (number // SHARING + 1):06}"
        yield _entity(event, other, "resource")
        yield MergeEdge(
            type=RELATES_TO.type,
            source=_key(event, reference, "resource"),
            target=_key(event, other, "resource"),
            values={
                "relation": "refers_to",
                "edge_type": "semantic",
                "valid_from": event.occurred_at_ms,
                "event_id": event.event_id,
                "fact": f"{reference} refers to {other}",
                "confidence": 0.8,
                "valid_to": None,
                "expired_at": None,
                "source": "conversation",
                "status": "confirmed",
                "user_id": None,
                "supporting_event_ids": (event.event_id,),
                "support_count": 1,
            },
        )


def _entity(event: Event, name: str, entity_type: str) -> MergeNode:
    values = {
        "canonical_name": canonical_name(name),
        "entity_type": entity_type,
        "name": name,
        "subtype": None,
        "first_seen": event.occurred_at_ms,
        "first_event_id": event.event_id,
        "first_user_id": event.user_id,
        "last_seen": event.occurred_at_ms,
        "embedding": None,
    }
    return MergeNode(label=ENTITY.label, key=_key(event, name, entity_type), values=values)


def _key(event: Event, name: str, entity_type: str) -> tuple[str, str]:
    return event.tenant, entity_id(event.tenant, canonical_name(name), entity_type)


def _failing(event: Event) -> Event:
    if event.tool_name and int(event.event_id[:8], 16) % FAILED == 0:
        return event._replace(status="failed")
    return event


def _following(event: Event) -> Event:
    """Another event at the end of a session."""
    return event._replace(
        event_id=derived_event_id("following", event.event_id),
        occurred_at_ms=event.occurred_at_ms + 1_000,
        ended_at_ms=None,
        parent_event_id=event.event_id,
    )


# -- memory ----------------------------------------------------------------------------------------


def _own_pid() -> int:
    return int(Path("/proc/self").resolve().name) if Path("/proc/self").exists() else 0


def _forget_peak() -> None:
    """From now on the peak is that of what follows (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return
