"""All stages on a ledger, and a story; a rule stands in for enrichment's models."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from pipelines.graph.rows import FoundEdge
from pipelines.ledger.registry import Target
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, Stage
from projections.events import Event
from projections.schema import FOLLOWS
from tests.decision_factories import (
    COMMUNITIES,
    ENTITIES,
    TRAITS,
    agent_made,
    boosted,
    community,
    community_gone,
    derived,
    episode,
    episode_id,
    forgotten,
    linked,
    pass_ended,
    requested,
    session_made,
    system,
)
from tests.factories import event, event_id, sessions
from tests.fakes.stages import SCORED as SCORED
from tests.memory_stack import LedgerStack

MINE = [1, 4, 7, 10, 13, 16]
"""Numbers of the events of session-0, in its order."""


def without_models(stage: Stage, services: Services, target: Target) -> StageFold:
    """`folds.make_fold`, where a rule stands in for the models."""
    return SCORED if stage.name == ENRICHMENT.name else make_fold(stage, services, target)


def story() -> list[list[Event]]:
    """Three sessions and what passes decided about them, part by part as it came."""
    return [
        sessions(3, 6),
        [
            requested(100),
            episode(101, MINE, "session-0"),
            episode(102, [2, 5, 8], "session-1"),
            session_made(103, "session-0", seen=(6, 20)),
            session_made(104, "session-1", seen=(4, 30), agents=("agent-1", "agent-2")),
            agent_made(105),
            linked(106, "session-0", "session-1", "session-2"),
            boosted(107, {1: 1.5, 4: 0.5, 5: 0.5}),
            community(108, COMMUNITIES[0], ENTITIES[:4], "run-1"),
            community(109, COMMUNITIES[1], ENTITIES[4:], "run-1"),
            derived(112, *TRAITS),
            pass_ended(110, [100], traits=True),
        ],
        [requested(111), event(30, at=95, session_id="session-1")],
        [
            forgotten(120, [4, 7], episode_id("session-0")),
            forgotten(121, [10, 16], episode_id("session-0")),
            system(122, "memory.forgotten", {"kind": "entities", "entity_ids": ENTITIES[:1]}),
            system(
                123,
                "memory.forgotten",
                {"kind": "similar", "pairs": [[event_id(2), event_id(5)]]},
            ),
        ],
        [event(31, at=75, session_id="session-0"), event(32, at=400, session_id="session-0")],
        [
            episode(130, [2, 5, 8, 30], "session-1"),
            session_made(131, "session-1", seen=(7, 50), gone=[episode_id("session-1", 1)]),
            forgotten(132, [2, 5], episode_id("session-1")),
            community(133, COMMUNITIES[0], ENTITIES[2:5], "run-2"),
            community_gone(134, COMMUNITIES[1], "run-2"),
            linked(135, "session-0", "session-1"),
            boosted(136, {13: 1.0}),
            derived(138, TRAITS[0], TRAITS[2], gone=TRAITS[1:2]),
            derived(139, TRAITS[1], gone=TRAITS[2:]),
            derived(140, TRAITS[0], gone=TRAITS[1:2]),
            pass_ended(137, []),
        ],
    ]


S = TypeVar("S", bound=LedgerStack)


class ConsolidatedLedger(Generic[S]):
    """All three stages on one target."""

    def __init__(self, stack: S) -> None:
        self.stack = stack
        self.prepare()

    def new_runner(self, **options: Any) -> Runner:
        stack = self.stack
        return stack.new_runner(make_fold(CONSOLIDATION, stack.services, stack.target), **options)

    def prepare(self) -> None:
        """Begin on an empty graph, as workers that have just started."""
        self.projection = self.stack.new_runner()
        self.enrichment = self.stack.new_runner(SCORED)
        self.runner = self.new_runner()
        for runner in (self.projection, self.enrichment, self.runner):
            runner.prepare(self.stack.ledger.partitions)

    def fold(self, size: int = 500) -> None:
        """Fold what the ledger has, stage by stage."""
        for runner in (self.projection, self.enrichment, self.runner):
            self.stack.fold(size, runner)

    def take_in(self, *events: Event, size: int = 500) -> None:
        self.stack.append(*events)
        self.fold(size)

    def live(self, size: int = 500) -> Any:
        """The graph of the story, folded as it came."""
        for part in story():
            self.take_in(*part, size=size)
        return self.stack.dump()

    def empty(self) -> None:
        """An empty graph."""
        self.stack.graph.clear()
        self.prepare()

    def refold(self, partition: int, first: int, last: int) -> None:
        """Fold entries of a partition once more, by their numbers."""
        entries = [e for block in self.stack.blocks(partition) for e in block.entries]
        assert self.runner.refold(partition, entries[first:last]) == []

    def chain(self, session_id: str = "session-0") -> list[tuple[str, str, int]]:
        """The edges of a session's chain: ids of both ends, and the time between."""
        names = ("session_id", "delta_ms")
        edges = cast(Iterator[FoundEdge], self.stack.graph.stream(FOLLOWS.type, names))
        return sorted(
            (edge.source[1], edge.target[1], edge.values["delta_ms"])
            for edge in edges
            if edge.values["session_id"] == session_id
        )


def ranges(count: int, how_many: int, seed: int = 1) -> list[tuple[int, int]]:
    """Some stretches of that many entries, single ones among them."""
    chosen = random.Random(seed)
    found = [(n, n + 1) for n in range(count)]
    while len(found) < count + how_many:
        first, last = sorted(chosen.sample(range(count + 1), 2))
        found.append((first, last))
    return found
