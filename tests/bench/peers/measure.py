"""All sides in turns, with the same questions."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from pipelines.operations.load_generator import Latency, measured
from tests.bench.machine import say
from tests.bench.peers.memory import EmbeddedMemory
from tests.bench.peers.peer import LANCEDB
from tests.bench.peers.process import PeerProcess, write_source
from tests.bench.peers.sides import Embedder, PeerSide, RecollectSide, Side, embedding
from tests.bench.query.__main__ import deployed
from tests.bench.query.graph import Memory
from tests.bench.query.newest import Wait

Figures = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """How much is asked.

    Attributes:
        count: questions of a turn.
        turns: of each side.
        rate: questions a second.
        warm: questions before, which do not count.
        new: events that are sent and then asked for.
    """

    count: int = 50
    turns: int = 3
    rate: float = 5.0
    warm: int = 100
    new: int = 20


TINY = Extent(count=10, turns=2, warm=10, new=3)


class Turn(NamedTuple):
    """Of one side: when its answers came, and its processor time, ms a question."""

    latency: Latency
    alone_ms: float
    embedder_ms: float

    @property
    def cpu_ms(self) -> float:
        return self.alone_ms + self.embedder_ms


@contextmanager
def filled_peers(
    python: Path, names: Sequence[str], memory: EmbeddedMemory, embedder: Embedder
) -> Iterator[list[PeerSide]]:
    """Peers that hold a memory, each in a process that did not fill it.

    Raises:
        PeerFailed: one cannot be filled.
    """
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        source = Path(place)
        write_source(source, memory.records(), memory.vectors)
        sides = []
        for number, name in enumerate(names):
            folder = source / f"peer-{number}"
            folder.mkdir()
            process = PeerProcess(python, name, folder)
            say(f"filling {name}")
            process.fill(source)
            sides.append(PeerSide(stack.enter_context(process), folder, embedder))
        yield sides


def measure(memory: EmbeddedMemory, python: Path, names: Sequence[str], extent: Extent) -> Figures:
    """The figures of one size, by side.

    Args:
        memory: of every side.
        python: of the environment that has the peers.
        names: of peers.
        extent: how much is asked.

    Raises:
        PeerFailed: one ended.
    """
    say(f"filling Recollect with {memory.size:,} events")
    with (
        deployed(memory) as served,
        embedding() as embedder,
        filled_peers(python, names, memory, embedder) as peers,
    ):
        sides: list[Side] = [RecollectSide(served), *peers]
        turns = taken_in_turns(sides, memory, extent)
        return {side.name: figures(side, turns, extent) | version_of(side) for side in sides}


def version_of(side: Side) -> Figures:
    """A peer's package, and which version of it."""
    return {"version": side.version()} if isinstance(side, PeerSide) else {}


def taken_in_turns(sides: Sequence[Side], memory: Memory, extent: Extent) -> dict[str, list[Turn]]:
    """Each side's turns by its name; what a busy machine slows is slowed for all."""
    for side in sides:
        ask = side.asks(memory.questions(extent.warm, 1))
        for number in range(extent.warm):
            ask(number)
    turns: dict[str, list[Turn]] = {side.name: [] for side in sides}
    for turn in range(extent.turns):
        questions = memory.questions(extent.count, 2 + turn)
        for side in sides:
            say(f"turn {turn + 1} of {extent.turns}: {side.name}")
            turns[side.name].append(one_turn(side, questions, extent))
    return turns


def one_turn(side: Side, questions: Sequence[str], extent: Extent) -> Turn:
    """Ask one side."""
    before = side.cost()
    latency = measured(
        side.name,
        side.asks(questions),
        rate=extent.rate,
        count=extent.count,
        unanswered=(httpx.HTTPError,),
    )
    after = side.cost()
    each = 1_000 / extent.count
    return Turn(
        latency, each * (after.alone - before.alone), each * (after.embedder - before.embedder)
    )


def figures(side: Side, turns: Mapping[str, Sequence[Turn]], extent: Extent) -> Figures:
    """What a report has of a side: medians over its turns."""
    of_side = turns[side.name]
    say(f"new events: {side.name}")
    disk_mb, memory_mb = side.disk_mb(), side.memory_mb()
    return {
        "cpu_alone_ms": median(turn.alone_ms for turn in of_side),
        "cpu_embedder_ms": median(turn.embedder_ms for turn in of_side),
        "cpu_ms": median(turn.cpu_ms for turn in of_side),
        "p50_ms": median(turn.latency.p50 for turn in of_side),
        "p95_ms": median(turn.latency.p95 for turn in of_side),
        "asked": sum(turn.latency.asked for turn in of_side),
        "failed": sum(turn.latency.failed for turn in of_side),
        "disk_mb": round(disk_mb, 1),
        "memory_mb": round(memory_mb, 1),
        **ratios(of_side, turns.get(LANCEDB)),
        **of_waits(side.waits(extent.new)),
    }


def ratios(turns: Sequence[Turn], beside: Sequence[Turn] | None) -> Figures:
    """To LanceDB's in the same turn, where that was asked."""
    if beside is None:
        return {}
    pairs = list(zip(turns, beside, strict=True))
    return {
        "cpu_ratio": median(mine.cpu_ms / its.cpu_ms for mine, its in pairs),
        "p95_ratio": median(mine.latency.p95 / its.latency.p95 for mine, its in pairs),
    }


def of_waits(waits: Sequence[Wait]) -> Figures:
    """Medians, and how many were never found; those do not count for how long it took."""
    seen = [wait.found for wait in waits if math.isfinite(wait.found)]
    return {
        "accepted_ms": median(wait.accepted for wait in waits),
        "found_ms": median(iter(seen)) if seen else None,
        "new": len(waits),
        "lost": len(waits) - len(seen),
    }


def median(values: Iterator[float]) -> float:
    """To two digits after the point."""
    return round(statistics.median(values), 2)
