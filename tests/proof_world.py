"""A graph in memory in which every label and every edge type occurs, folded as workers fold."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from consolidation.forgetting_payloads import (
    Accessed,
    FactKey,
    FactsExpired,
    PairsDropped,
    accessed_payloads,
)
from consolidation.stage import consolidate, derive, reach
from enrichment.names import entity_id
from enrichment.ports import Analysis
from enrichment.stage import enrich
from enrichment.vectors import pack, unpack
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.rows import FoundEdge
from pipelines.ledger.entries import Block
from pipelines.ledger.ledger import Ledger
from pipelines.work.enriching import Deriver
from pipelines.work.folds import StageFold
from pipelines.work.gather.consolidation import ConsolidationFacts
from pipelines.work.gather.enrichment import EnrichmentFacts, RememberedFeatures
from pipelines.work.poison import PoisonPolicy
from pipelines.work.recalled import fold_again, returning
from pipelines.work.runner import Runner
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT
from projections.events import Event
from projections.schema import RELATES_TO, SIMILAR_TO, VECTOR_DIMENSIONS
from tests.decision_factories import (
    TRAITS,
    agent_made,
    boosted,
    community,
    derived,
    episode,
    forgotten,
    linked,
    pass_ended,
    recalled,
    requested,
    session_made,
    system,
)
from tests.factories import event, event_id
from tests.fakes.ledger import FakeLedger
from tests.fakes.stages import PROJECTING

PARTITIONS: Final = 3
IMPATIENT: Final = PoisonPolicy(wait_s=0.0001, in_a_row=None, a_minute=None)
"""The usual number of attempts, no waits, no brake."""
ANN, BERLIN, PARIS = (entity_id("default", name, "concept") for name in ("ann", "berlin", "paris"))
STRANGER: Final = "f" * 32
"""An entity that nothing mentions."""


class WordEmbedder:
    """Texts with the same words are alike.

    Attributes:
        failing: a word that it cannot stand.
    """

    model = "words"
    revision = "1"
    dimensions = VECTOR_DIMENSIONS

    def __init__(self, failing: str = "") -> None:
        self.failing = failing

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector a text; each word adds to two of its numbers."""
        if self.failing and any(self.failing in text for text in texts):
            raise RuntimeError("out of words")
        return unpack(pack([self._vector(text) for text in texts]))

    def _vector(self, text: str) -> bytes:
        numbers = [0.0] * self.dimensions
        for word in text.lower().split():
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            first, second = struct.unpack("<II", digest)
            numbers[first % self.dimensions] += 1.0
            numbers[second % self.dimensions] -= 0.5
        length = math.hypot(*numbers) or 1.0
        return struct.pack(f"<{self.dimensions}f", *(number / length for number in numbers))


class NoWords:
    """Finds nothing in any text."""

    model = "none"
    revision = "1"

    def analyze(self, texts: Sequence[str]) -> list[Analysis]:
        """An empty analysis for each."""
        return [Analysis() for _ in texts]


def stage_folds(ledger: FakeLedger, embedder: WordEmbedder | None = None) -> list[StageFold]:
    """All three stages on a ledger, their models replaced."""
    remembered = RememberedFeatures(
        cast(Ledger, ledger), withdrawals=lambda: ledger.vault.withdrawals
    )
    facts = EnrichmentFacts(
        remembered, partitions=ledger.partitions, upstream=str(ENRICHMENT.upstream)
    )
    enriching = StageFold(
        ENRICHMENT,
        facts.to_apply,
        enrich,
        Deriver(
            embedder or WordEmbedder(), NoWords(), withdrawals=lambda: ledger.vault.withdrawals
        ),
        models="words none",
    )
    deciding = StageFold(
        CONSOLIDATION, ConsolidationFacts(ledger.partitions), consolidate, derive, reach=reach
    )
    return [PROJECTING, enriching, deciding]


@dataclass
class World:
    """A ledger, and a graph that workers of all stages fold it into, a few entries at a time."""

    ledger: FakeLedger = field(default_factory=lambda: FakeLedger(partitions=PARTITIONS))
    graph: MemoryGraph = field(default_factory=MemoryGraph)
    embedder: WordEmbedder = field(default_factory=WordEmbedder)

    def __post_init__(self) -> None:
        self.rules = stage_folds(self.ledger, self.embedder)
        self.runners = [
            Runner(rules, self.graph, target="blue", policy=IMPATIENT) for rules in self.rules
        ]
        for runner in self.runners:
            runner.prepare(PARTITIONS)

    def take_in(self, *events: Event, size: int = 4) -> None:
        """Append and fold, block by block, each stage as soon as it may."""
        for one in self.ledger.append(list(events)):
            assert not isinstance(one, Exception), one
        while sum(self._step(runner, size) for runner in self.runners):
            pass
        fold_again(self.ledger, self.runners[:2], returning(self.graph, enriched=True))

    def _step(self, runner: Runner, size: int) -> bool:
        moved = False
        for partition in range(PARTITIONS):
            at = runner.checkpoint(partition).position
            if entries := self.ledger.read(partition, at, size):
                runner.apply(Block(partition, tuple(entries)))
                moved = True
        return moved

    def copy(self) -> MemoryGraph:
        """The graph once more; what it holds is never changed in place."""
        other = MemoryGraph()
        for label, nodes in self.graph._tables.nodes.items():
            for key, node in nodes.items():
                other._tables.put_node(label, key, node)
        for type_, pairs in self.graph._tables.pairs.items():
            for pair, copies in pairs.items():
                other._tables.put_pair(type_, pair, copies)
        other._tables.undo.clear()
        return other


def fact_keys(graph: MemoryGraph) -> list[FactKey]:
    """All facts."""
    edges = cast(Iterator[FoundEdge], graph.stream(RELATES_TO.type, RELATES_TO.key))
    return [
        FactKey(
            edge.source[1],
            edge.values["relation"],
            edge.values["edge_type"],
            edge.target[1],
            edge.values["valid_from"],
            edge.values["event_id"],
        )
        for edge in edges
    ]


def similar_pairs(graph: MemoryGraph) -> list[tuple[str, str]]:
    """All events that are alike."""
    edges = cast(Iterator[FoundEdge], graph.stream(SIMILAR_TO.type))
    return [(edge.source[1], edge.target[1]) for edge in edges]


def said(number: int, text: str, **fields: Any) -> Event:
    """A message."""
    return event(number, payload={"role": "user", "content": text}, **fields)


def stated(number: int, city: str) -> Event:
    """Ann lives in a city."""
    fact = {"source": {"name": "Ann"}, "relation": "lives_in", "target": {"name": city}}
    return system(number, "memory.fact_asserted", fact)


def events_of_first_half() -> list[Event]:
    """What happened before anything was decided."""
    outage = "the payment service of Berlin answers with a timeout"
    order = "ORD-48151623"
    return [
        *(said(n, outage, parent=n - 1 if n > 1 else None) for n in range(1, 7)),
        said(7, "lunch at noon in the canteen", parent=900, user_id="user-1"),
        event(
            8,
            event_type="tool.result",
            tool_name="find_order",
            payload={"result": {"order_id": order}},
            importance_hint=7,
            ended_at_ms=1_770_000_000_900,
            status="completed",
        ),
        event(
            9,
            event_type="tool.call",
            tool_name="refund",
            payload={"arguments": {"order_id": order}},
            payload_ref=None,
        ),
        *(said(n, "the invoice of July is wrong", session_id="session-2") for n in (10, 11)),
        said(12, "another tenant speaks", tenant="acme"),
        event(13, event_type="memory.unheard_of", session_id="memory", payload={"what": 1}),
        stated(20, "Berlin"),
        stated(21, "Paris"),
        stated(22, "Berlin"),
        system(
            23,
            "memory.entity_corrected",
            {"entity_id": ANN, "correction": "rename", "name": "Ann B."},
        ),
        system(
            24,
            "memory.entity_corrected",
            {"entity_id": BERLIN, "correction": "retype", "type": "resource", "subtype": "city"},
        ),
        system(
            25,
            "memory.same_as",
            {"pairs": [{"entity_ids": sorted([ANN, PARIS]), "same": True}]},
        ),
        system(
            26,
            "memory.same_as",
            {"pairs": [{"entity_ids": sorted([BERLIN, STRANGER]), "same": True}]},
        ),
    ]


def decisions(graph: MemoryGraph) -> list[Event]:
    """What a pass might decide of it, and what readers did."""
    facts = fact_keys(graph)
    accessed = Accessed({event_id(4): 2, event_id(5): 1}, {ANN: 3}, dict.fromkeys(facts[:2], 2))
    dropped = PairsDropped(pairs=tuple(sorted(similar_pairs(graph))[-1:]))
    return [
        episode(30, [1, 2, 3, 4]),
        episode(31, [10, 11], "session-2"),
        session_made(32, "session-1", seen=(4, 20)),
        session_made(33, "session-2", seen=(2, 10)),
        agent_made(34),
        linked(35, "session-1", "session-2"),
        community(36, "a" * 32, [ANN, BERLIN], "run-1"),
        boosted(37, {4: 1.5}),
        derived(38, *TRAITS, user="user-1", proofs=[event_id(7)]),
        *(system(40 + n, "memory.accessed", p) for n, p in enumerate(accessed_payloads(accessed))),
        system(45, "memory.forgotten", dropped.payload()),
        system(46, "memory.forgotten", FactsExpired(facts=tuple(facts[-1:])).payload()),
        forgotten(47, [1, 2]),
        recalled(48, [2]),
        pass_ended(49, traits=True),
        requested(50),
    ]


def populated() -> World:
    """The whole of it."""
    world = World()
    world.take_in(*events_of_first_half())
    world.take_in(*decisions(world.graph))
    world.take_in(said(60, "the payment service of Berlin answers again", parent=4))
    return world
