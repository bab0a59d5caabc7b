"""Passes over a ledger and a graph of either store, with a clock and a policy of their own.

Rules stand in for the models: what an event is worth is computed, and what enrichment would have
found besides is written as a test wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from consolidation.decay import DAY_MS
from consolidation.retention import RetentionPolicy
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.entries import Block
from pipelines.ledger.ledger import Appended
from pipelines.operations.passes.deciding import PassReport, Words
from pipelines.operations.passes.run import CommunitySettings, Pass
from pipelines.operations.passes.scopes import PassScope
from pipelines.work.runner import Runner
from projections.errors import EventConflict
from projections.events import Event
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    EDGES,
    ENTITY,
    EVENT,
    LINKED_TO,
    MEMBER_OF,
    NODES,
    REFERENCES,
    RELATES_TO,
)
from tests.factories import NOW_MS, START_MS, event_id
from tests.fakes.ledger import FakeLedger, FakeServer
from tests.fakes.stages import PROJECTING, QUICK, SCORED, consolidating

TENANT = "default"
PARTITIONS = 2
LONG_AFTER = START_MS + 40 * DAY_MS
"""A clock at which all that happened at START_MS is archived; the ledger took it in later."""
ARRIVED_MS = START_MS + 400 * DAY_MS


class Passing:
    """A ledger that is folded into a graph, and passes over it.

    Args:
        ledger: where decisions go; None: one in memory.
        graph: empty; None: one in memory.
    """

    settings = CommunitySettings()
    policy: RetentionPolicy | None = None
    words: Words | None = None

    def __init__(self, ledger: Any = None, graph: Graph | None = None) -> None:
        in_memory = FakeLedger(FakeServer(now_ms=ARRIVED_MS), partitions=PARTITIONS)
        self.ledger = in_memory if ledger is None else ledger
        self.graph: Graph = MemoryGraph() if graph is None else graph
        self.prepare()

    def prepare(self) -> None:
        """Begin on an empty graph, as workers that have just started."""
        folds = (PROJECTING, SCORED, consolidating(self.ledger.partitions))
        self.runners = [Runner(fold, self.graph, target="blue", policy=QUICK) for fold in folds]
        for runner in self.runners:
            runner.prepare(self.ledger.partitions)

    def empty(self) -> None:
        """An empty graph."""
        self.graph.clear()
        self.prepare()

    def fold(self, size: int = 500) -> None:
        """Fold what the ledger has, stage by stage."""
        for runner in self.runners:
            for partition in range(self.ledger.partitions):
                while entries := self.ledger.read(
                    partition, runner.checkpoint(partition).position, size
                ):
                    runner.apply(Block(partition, tuple(entries)))

    def append(self, events: Sequence[Event]) -> list[Appended]:
        """Those that are there already are the ledger's."""
        outcomes = self.ledger.append(list(events))
        assert all(isinstance(one, Appended | EventConflict) for one in outcomes), outcomes
        return [one for one in outcomes if isinstance(one, Appended)]

    def decide(self, events: Sequence[Event]) -> None:
        """What a pass decides goes into the ledger."""
        self.append(events)

    def take_in(self, *events: Event, size: int = 500) -> None:
        """Append and fold."""
        assert len(self.append(events)) == len(events)
        self.fold(size)

    def run(
        self,
        *scopes: PassScope,
        now_ms: int | None = None,
        applied: Callable[[], None] | None = None,
        in_time: Callable[[], bool] = lambda: True,
        anew: bool = False,
    ) -> PassReport:
        """A pass of these scopes, or of everything; forgets if there is a policy."""
        policy = self.policy
        made = Pass(
            self.graph,
            self.decide,
            applied or self.fold,
            now_ms=self.now_ms if now_ms is None else now_ms,
            run_id="run-1",
            in_time=in_time,
            policy_of=None if policy is None else lambda tenant: policy,
            communities=self.settings,
            anew=anew,
        )
        made.words = self.words
        return made.run_scopes(scopes) if scopes else made.run()

    @property
    def now_ms(self) -> int:
        """The clock of passes that are given none."""
        return NOW_MS if self.policy is None else LONG_AFTER

    def seqs(self) -> list[int]:
        """How many entries each partition has."""
        return [tail.seq for tail in self.ledger.tails()]

    # -- what enrichment would have found ----------------------------------------------------------

    def put(self, label: str, own_id: str, tenant: str = TENANT, **values: Any) -> Key:
        """Make a node have these values, beside those that it has."""
        row, key = NODES[label], (tenant, own_id)
        names = [p.name for p in row.stored()]
        node = self.graph.nodes(label, [key], names).get(key)
        held = dict(zip(row.key, key, strict=True)) if node is None else node.values
        with self.graph.transaction() as transaction:
            made = FoundNode(key, True, {**held, **values}, False)
            transaction.restore_nodes(label, [made])
        return key

    def join(self, type_: str, source: Key, target: Key, **values: Any) -> None:
        """One edge more."""
        row = EDGES[type_]
        names = [p.name for p in row.properties]
        edges = self.graph.between(type_, [(source, target)], names).get((source, target), [])
        made = FoundEdge(source, target, row.target, {**dict.fromkeys(names), **values})
        with self.graph.transaction() as transaction:
            transaction.restore_edges(type_, [*edges, made])

    def part(self, type_: str, source: Key, target: Key) -> None:
        """No edges of a type any more."""
        with self.graph.transaction() as transaction:
            transaction.restore_edges(type_, [], gone=[(source, target, EDGES[type_].target)])

    def entity(self, name: str, /, entity_type: str = "concept", **values: Any) -> Key:
        """An entity; its id follows from its name."""
        own_id = entity_id(name)
        told = {"canonical_name": name, "name": name, "entity_type": entity_type}
        return self.put(ENTITY.label, own_id, **{**told, **values})

    def forget_entities(self) -> None:
        """No entities any more, and no edges of theirs."""
        keys = [node.key for node in self.shown(ENTITY.label)]
        with self.graph.transaction() as transaction:
            transaction.restore_nodes(ENTITY.label, [], gone=keys)

    def mention(self, number: int, *names: str) -> None:
        """An event mentions entities."""
        for name in names:
            key = self.entity(name, "resource")
            self.join(REFERENCES.type, (TENANT, event_id(number)), key, role="object")

    def say(self, number: int, text: str) -> None:
        """An event has a text."""
        self.put(EVENT.label, event_id(number), text=text)

    def cause(self, effect: int, cause: int, rule: str) -> None:
        """An inferred cause."""
        self.join(
            CAUSED_BY.type,
            (TENANT, event_id(effect)),
            (TENANT, event_id(cause)),
            mechanism="inferred",
            rule=rule,
            confidence=0.9,
        )

    def relate(
        self, source: str, target: str, *, user: str | None = None, literal: bool = False
    ) -> None:
        """A fact about entities."""
        self.join(
            RELATES_TO.type,
            self.entity(source),
            self.entity(target, subtype="value" if literal else None),
            relation="knows",
            edge_type="semantic",
            valid_from=START_MS,
            event_id=user or "e",
            confidence=0.9,
            fact=f"{source} knows {target}",
            user_id=user,
            support_count=1,
        )

    # -- what there is -----------------------------------------------------------------------------

    def shown(self, label: str, *names: str) -> list[FoundNode]:
        """The visible nodes of a label."""
        nodes = cast(Iterator[FoundNode], self.graph.stream(label, names))
        return [node for node in nodes if node.visible]

    def drawn(self, type_: str, *names: str) -> list[FoundEdge]:
        """The edges of a type."""
        return list(cast(Iterator[FoundEdge], self.graph.stream(type_, names)))

    def retained(self) -> list[str]:
        """Ids of the events."""
        return sorted(node.key[1] for node in self.shown(EVENT.label))

    def links(self) -> dict[tuple[str, str], Any]:
        """Evidence and resolution by the two sessions."""
        sessions = {
            node.key: node.values["session_id"] for node in self.shown("Summary", "session_id")
        }
        return {
            (sessions[edge.source], sessions[edge.target]): (
                list(edge.values["evidence"]),
                edge.values["resolution_event_id"],
            )
            for edge in self.drawn(LINKED_TO.type, "evidence", "resolution_event_id")
        }

    def boosts(self) -> dict[str, float]:
        """Boosts by event id."""
        name = "importance_boost"
        return {
            node.key[1]: node.values[name]
            for node in self.shown(EVENT.label, name)
            if node.values[name]
        }

    def communities(self) -> dict[frozenset[str], str | None]:
        """Users by the names of the members."""
        names = {node.key: node.values["name"] for node in self.shown(ENTITY.label, "name")}
        members: dict[Key, set[str]] = {}
        for edge in self.drawn(MEMBER_OF.type):
            members.setdefault(edge.target, set()).add(names[edge.source])
        return {
            frozenset(members[node.key]): node.values["user_id"]
            for node in self.shown("Community", "user_id", "fingerprint")
            if node.values["fingerprint"] is not None
        }


def entity_id(name: str) -> str:
    """An id for a name."""
    return name.encode().hex().ljust(32, "0")[:32]
