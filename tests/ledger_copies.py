"""A ledger that took what another one exported, folded, and compared without where things stand."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import orjson

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph
from pipelines.ledger.entries import Block
from pipelines.operations.export.events import ExportReport, Selection, event_lines
from pipelines.operations.formats.table import event_items
from pipelines.operations.imports import ImportReport, import_events
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from pipelines.work.folds import StageFold
from pipelines.work.recalled import fold_again, returning
from pipelines.work.runner import Runner
from projections.identity import Position
from projections.schema import DEAD_LETTER, EDGES, FACT_HISTORY, NODES, Certainty
from tests.fakes.ledger import FakeLedger, FakeServer
from tests.graph_dump import Dump, dump
from tests.proof_world import IMPATIENT, stage_folds

LATER_MS = 1_900_000_000_000
"""The clock of the other ledger."""


def silent(done: int, total: int | None, what: str) -> None:
    """Progress that nobody looks at."""


def exported(ledger: Any, **selected: Any) -> list[bytes]:
    """The lines of an export that left nothing out."""
    report = ExportReport()
    lines = list(event_lines(ledger, Selection(**selected), report, silent))
    assert report.left_out_count == 0
    assert report.written["events"] == len(lines)
    return lines


def imported(ledger: Any, lines: Iterable[bytes], batch: int = 500) -> ImportReport:
    """What became of exported lines."""
    source = io.BytesIO(b"".join(lines))
    return import_events(
        ledger, event_items(source), decisions=True, batch=batch, clock=lambda: LATER_MS / 1000
    )


def later_ledger(partitions: int) -> FakeLedger:
    """An empty one on another machine, years later."""
    return FakeLedger(FakeServer(now_ms=LATER_MS), partitions=partitions)


def folded(ledger: Any, size: int = 500, rules: list[StageFold] | None = None) -> MemoryGraph:
    """All of a ledger, stage after stage, in blocks of a size."""
    graph = MemoryGraph()
    runners = [
        Runner(row, graph, target="copy", policy=IMPATIENT) for row in rules or stage_folds(ledger)
    ]
    for runner in runners:
        runner.prepare(ledger.partitions)
        for partition in range(ledger.partitions):
            for entries in ledger.scan(partition, count=size):
                runner.apply(Block(partition, tuple(entries)))
    fold_again(ledger, runners[:2], returning(graph, enriched=True))
    return graph


def digests(graph: Graph, ledger: Any) -> dict[str, str]:
    """By stage, as `recollect verify` prints them; the graph must be what its ledger says."""
    report = prove(graph, LedgerFold(ledger, stage_folds(ledger), policy=IMPATIENT))
    assert report.ok, report.differences
    return {name: str(finding.digest) for name, finding in report.stages.items()}


def placeless(graph: Graph, ledger: Any) -> Dump:
    """The whole graph; in the place of a position stands which event of the ledger it is of.

    Of a position's time alone only whether there is one. Dead letters name places of a ledger.
    """
    events = {
        entry.position: entry.event().key
        for partition in range(ledger.partitions)
        for entries in ledger.scan(partition)
        for entry in entries
    }

    def plain(positions: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _event_at(value, events) if name in positions else value
            for name, value in values.items()
        }

    shown = dump(graph)
    stored = {label: row.stored() for label, row in NODES.items()}
    stored |= {type_: row.properties for type_, row in EDGES.items()}
    positions = {
        name: {p.name for p in properties if p.certainty is Certainty.POSITION}
        for name, properties in stored.items()
    }
    nodes = {
        key: (visible, plain(positions[key[0]], values))
        for key, (visible, values) in shown.nodes.items()
        if key[0] != DEAD_LETTER.label
    }
    for (label, _), (_, values) in nodes.items():
        if label == FACT_HISTORY.label:
            values["entries"] = [_entry(entry) for entry in values["entries"]]
    edges = {
        key: [plain(positions[key[0]], values) for values in copies]
        for key, copies in shown.edges.items()
    }
    return Dump(nodes, edges)


def _event_at(value: Any, events: Mapping[Position, Any]) -> Any:
    """The event that stands at a position, in whichever way that is written."""
    if isinstance(value, str):
        return events[Position.parse(value)]
    if isinstance(value, tuple):
        return events.get(Position(*value), value)  # START is no event's
    return "a time"


def _entry(entry: str) -> list[Any]:
    """A row of what was said of a fact, without the time of the position (`histories.entry_of`)."""
    row = cast(list[Any], orjson.loads(entry))
    del row[6]
    return row
