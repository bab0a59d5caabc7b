"""What is shown of a graph is the same whichever store holds it, whoever asks and as of when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import pytest

from consolidation.payloads import CAUSE
from pipelines.graph.answers.reader import ANSWERS, PortReader
from pipelines.graph.client import Neo4jReader
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.entities import EntityReads
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import ALIKE_REASON, CauseReads, edges_between, nodes, shown
from projections.schema import CAUSED_BY, FOLLOWS, LINKED_TO, SUMMARY, TRAIT, TRAIT_EDGES
from tests.contracts.plans import READS
from tests.contracts.test_columns import NAMES, NOW_MS, World
from tests.servers import shared_driver

Ask = Callable[[GraphRead, Scope, World], Any]


class Asked(NamedTuple):
    """A question; `ordered`: what it returns has one order."""

    ask: Ask
    ordered: bool = True


def on(kind: Callable[[GraphRead, Scope], Any], name: str, *given: Any, **named: Any) -> Asked:
    """A method of some reads; arguments may depend on the world."""

    def ask(graph: GraphRead, scope: Scope, world: World) -> Any:
        values = [one(world) if callable(one) else one for one in given]
        by_name = {key: one(world) if callable(one) else one for key, one in named.items()}
        return getattr(kind(graph, scope), name)(*values, **by_name)

    return Asked(ask)


def events(world: World) -> list[str]:
    return [*world.events, "nobody"]


def entities(world: World) -> list[str]:
    return [*world.entities, "nobody"]


def summaries(world: World) -> list[str]:
    return [*world.summaries, "nobody"]


def supporting(world: World) -> Mapping[str, list[str]]:
    return dict.fromkeys(world.entities, world.events[::3])


def told_by_turns(world: World) -> Mapping[str, bool]:
    """Two events of three: one whoever says it, one unless it is a message."""
    return {one: place % 3 == 1 for place, one in enumerate(world.events) if place % 3}


def each(
    kind: Callable[[GraphRead, Scope], Any], name: str, over: Callable[[World], Any], *given: Any
) -> Asked:
    """A method that takes one id, of many."""

    def ask(graph: GraphRead, scope: Scope, world: World) -> Any:
        reads = kind(graph, scope)
        return {str(one): getattr(reads, name)(one, *given) for one in over(world)}

    return Asked(ask)


def sessions(_: World) -> list[str]:
    return [f"s-{number}" for number in range(6)]


def fact_ends(world: World) -> list[tuple[str, str, str]]:
    return [
        (source, target, event)
        for source in world.entities[:6]
        for target in world.entities[:6]
        for event in world.events[::4]
    ]


def _page(graph: GraphRead, scope: Scope, world: World) -> Any:
    """A history of facts, page by page."""
    reads, behind, found = FactReads(graph, scope), None, []
    while page := reads.history(world.entities, behind, 7):
        found += page
        behind = page[-1][0]
    return found


def _listed(graph: GraphRead, scope: Scope, _: World) -> Any:
    reads, after, found = EntityReads(graph, scope), ("", ""), []
    while page := reads.listed(after, None, 4):
        found += page
        after = page[-1][0], page[-1][1].entity_id
    return found


def _communities(graph: GraphRead, scope: Scope, _: World) -> Any:
    reads, after, found = EntityReads(graph, scope), "", []
    while page := reads.communities(after, 2):
        found += page
        after = page[-1].node_id
    return found


QUESTIONS: Mapping[str, Asked] = {
    "events": on(EventReads, "events", events),
    "edges of events": on(EventReads, "edges_between", events)._replace(ordered=False),
    "causes among events": on(EventReads, "edges_between", events, (CAUSED_BY,))._replace(
        ordered=False
    ),
    "order among events": on(EventReads, "edges_between", events, (FOLLOWS,)),
    "texts": on(EventReads, "texts", events),
    "surroundings": each(EventReads, "surroundings", events),
    **{
        f"neighbours by {row.type}, {forward}": on(
            *(EventReads, "neighbours", lambda w: w.events[:9], row),
            forward=forward,
            seen=lambda w: w.events[5:7],
            limit=20,
        )
        for row in (CAUSED_BY, FOLLOWS)
        for forward in (True, False)
    },
    **{
        f"withheld beside by {row.type}": on(
            EventReads, "withheld_beside", lambda w: w.events[:9], row
        )
        for row in (CAUSED_BY, FOLLOWS)
    },
    "nodes": Asked(
        lambda graph, scope, world: nodes(graph, scope, world.node_ids, supporting(world))
    ),
    "edges": Asked(lambda graph, scope, world: edges_between(graph, scope, world.node_ids), False),
    "edges of nodes that are named twice": Asked(
        lambda graph, scope, world: edges_between(graph, scope, 2 * list(world.node_ids)), False
    ),
    "what some of them say": Asked(
        lambda graph, scope, world: (
            shown(graph, scope, world.node_ids, {}, told=told_by_turns(world)).texts
        )
    ),
    "story": each(CauseReads, "story", sessions, 0, NOW_MS, 15),
    "causes": on(CauseReads, "causes", events, 500)._replace(ordered=False),
    "linked causes": on(CauseReads, "linked_causes", events, 500, "rule"),
    "gists": on(CauseReads, "gists", sessions),
    "alike": each(CauseReads, "alike", sessions),
    "entities by name": on(FactReads, "found_by_name", [one.lower() for one in NAMES], 50),
    "entities by id": on(FactReads, "found_by_id", entities)._replace(ordered=False),
    "same": on(FactReads, "same_as", entities)._replace(ordered=False),
    "mentioned": on(FactReads, "mentioned", entities),
    "newest mentions": on(FactReads, "newest_mentions", entities, 3),
    "facts": on(FactReads, "facts_of", entities, FactFilter(NOW_MS))._replace(ordered=False),
    "some facts": on(
        FactReads, "facts_of", entities, FactFilter(NOW_MS, ("semantic", "causal"))
    )._replace(ordered=False),
    "history": Asked(_page),
    "facts between": on(FactReads, "facts_between", fact_ends)._replace(ordered=False),
    "withheld facts": each(FactReads, "withheld", lambda w: [[one] for one in w.entities]),
    "sessions": on(FactReads, "sessions", events),
    "listed": Asked(_listed),
    "prefixed": each(EntityReads, "prefixed", lambda _: ["o", "ann", "bank"]),
    "whole entities": on(EntityReads, "entities", entities, supporting),
    "summaries": on(EntityReads, "summaries", summaries),
    "summaries in a session": each(EntityReads, "summaries_in", sessions, "session", "s-1"),
    "below": on(EntityReads, "below", summaries, (0, ""), 50),
    "links": each(EntityReads, "links", summaries),
    "communities": Asked(_communities),
    "traits": on(EntityReads, "traits", entities),
    "community": each(EntityReads, "community", lambda w: w.communities),
    "members": each(EntityReads, "members", lambda w: w.communities, "", 50),
    "withheld entities": on(EntityReads, "withheld_entities", ("", ""), None, None),
    "withheld entities of a stretch": on(EntityReads, "withheld_entities", ("", ""), "oslo", None),
    "withheld below": on(EntityReads, "withheld_below", summaries),
    "withheld members": each(EntityReads, "withheld_members", lambda w: w.communities),
    "withheld communities": on(EntityReads, "withheld_communities", ""),
}


def test_every_question_has_an_answer() -> None:
    """A question that is added must be answered by every store."""
    assert set(READS.values()) - ANSWERS.keys() == set()


class Told(World):
    """A world whose summaries are told, and linked to each other for every reason."""

    def _draw_made(self) -> None:
        super()._draw_made()
        draw = self.draw
        for number, node in enumerate(self.nodes[SUMMARY.label]):
            session = f"s-{number % 3}"
            values = {
                "session_id": session,
                "scope": draw.choice(("episode", "session")),
                "scope_id": draw.choice(("s-0", "s-1")),
                "gist": draw.choice((None, '{"lessons":[1]}', "{}")),
                "time_range": draw.choice((None, (500, 900), (700, 900))),
            }
            cast(dict[str, Any], node.values).update(values)
        for number in range(24):
            users = draw.choice((("ann",), ("bob",)))
            kind, whose = draw.choice(tuple(TRAIT_EDGES)), draw.sample(self.entities, 2)
            for entity in whose:  # of two who are one, both may have it
                self._edge(TRAIT_EDGES[kind].type, entity, f"t{number}")
            self._node(
                TRAIT.label,
                f"t{number}",
                kind=kind,
                name=f"trait {number}",
                user_id=users[0],
                user_ids=users,
                strength=draw.choice((0.5, 0.75)),
                session_count=draw.randint(3, 4),
                holds_until=NOW_MS + draw.randint(-5, 5),
                event_ids=tuple(draw.sample(self.events, 2)),
                decided_at=(draw.randrange(30), 0),
                gone=draw.choice((None, False, True)),
            )
        for _ in range(40):
            ends = draw.choice(self.summaries), draw.choice(self.summaries)
            told: dict[str, Any] = {
                "reason": draw.choice((CAUSE, ALIKE_REASON)),
                "score": draw.random(),
                "evidence": ("order-17",),
                "effect_event_id": draw.choice(self.events),
                "cause_event_id": draw.choice(self.events),
                "event_id": draw.choice(self.events),
            }
            self._edge(LINKED_TO.type, *ends, **told)


class Both:
    """Some worlds in both stores, each of a tenant of its own."""

    def __init__(self, neo4j_graph: Neo4jGraph) -> None:
        self.worlds = [Told(seed) for seed in range(3)]
        memory = MemoryGraph()
        for world in self.worlds:
            world.write(neo4j_graph)
            world.write(memory)
        self.readers: list[GraphReader] = [
            Neo4jReader(neo4j_graph.client.driver, "neo4j"),
            PortReader(memory),
        ]

    def ask(self, question: Asked, scope: Scope, world: World) -> list[Any]:
        answers = [
            reader.read(lambda graph: question.ask(graph, scope, world), timeout_ms=60_000)
            for reader in self.readers
        ]
        return answers if question.ordered else [sorted(map(comparable, one)) for one in answers]


def comparable(value: Any) -> Any:
    """A record as a text that does not depend on the order of its properties."""
    if isinstance(value, Mapping):
        return repr(sorted((name, comparable(one)) for name, one in value.items()))
    return repr([comparable(one) for one in value]) if isinstance(value, tuple) else repr(value)


@pytest.fixture(scope="module")
def both(neo4j: Any) -> Both:
    graph = Neo4jGraph(shared_driver(neo4j.url))
    graph.ensure_schema()
    graph.clear()
    return Both(graph)


@pytest.mark.integration
@pytest.mark.parametrize("name", QUESTIONS)
def test_both_stores_answer_alike(both: Both, name: str) -> None:
    met = 0
    for world in both.worlds:
        for scope in world.scopes():
            theirs, ours = both.ask(QUESTIONS[name], scope, world)
            assert ours == theirs, scope
            met += any(ours.values()) if isinstance(ours, dict) else bool(ours)
    assert met
