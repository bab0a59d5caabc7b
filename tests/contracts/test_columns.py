"""Columns answer as the graph does, whoever asks and as of when."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, product
from typing import Any, TypeVar

import numpy
import pytest

from enrichment.stems import stem
from pipelines.columns.beside import beside
from pipelines.columns.loading import columns_of
from pipelines.columns.names import ColumnNames
from pipelines.columns.reads import Beside, SessionsAsked, Walked
from pipelines.columns.sessions import session_page, sessions_of
from pipelines.columns.view import View
from pipelines.columns.walk import Walker
from pipelines.columns.walked import walked
from pipelines.graph.client import Neo4jReader
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import FoundEdge, FoundNode, Least, wire_id
from projections.events import LAST_MS
from projections.identity import Position
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    EDGE_CAPS,
    EDGES,
    ENTITY,
    EVENT,
    FOLLOWS,
    LINKED_TO,
    MEMBER_OF,
    NODES,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
    TENANT_TERM,
    tenant_term,
)
from tests.contracts import graph_questions as asked
from tests.steps import walk_asked, walked_over

pytestmark = pytest.mark.integration
T = TypeVar("T")
NOW_MS = 2_000_000
WORDS = ("lamp", "order", "refund", "bank", "declined", "walks", "walked", "Oslo", "ticket")
USERS = (None, None, "ann", "bob")
NAMES = ("Ann Lee", "Oslo", "order-17", "Bank of Oslo", "desk_agent", "Ticket 9", "Lamp", "Ann")


class World:
    """A memory of one tenant, drawn at random: nodes and edges by label and type.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.tenant = uuid.uuid4().hex
        self.draw = random.Random(seed)
        self.nodes: dict[str, list[FoundNode]] = {label: [] for label in NODES}
        self.edges: dict[str, list[FoundEdge]] = {type_: [] for type_ in EDGES}
        self.events = [f"e{n:02}" for n in range(60)]
        self.entities = [f"n{n}" for n in range(14)]
        self.summaries = [f"s{n}" for n in range(6)]
        self.communities = ["c0", "c1"]
        self._draw_events()
        self._draw_entities()
        self._draw_made()

    def key(self, own_id: str) -> Key:
        return self.tenant, own_id

    def _node(self, label: str, own_id: str, visible: bool = True, **values: Any) -> None:
        row = NODES[label]
        every: dict[str, Any] = dict.fromkeys(p.name for p in row.stored() if p.name not in row.key)
        if row.fulltext:
            every[TENANT_TERM] = tenant_term(self.tenant)
        held = every | values if visible else every
        self.nodes[label].append(FoundNode(self.key(own_id), visible, held, False))

    def _edge(self, type_: str, source: str, target: str, label: str = "", **values: Any) -> None:
        row = EDGES[type_]
        every = dict.fromkeys(p.name for p in row.properties)
        ends = self.key(source), self.key(target), label or row.target
        self.edges[type_].append(FoundEdge(*ends, every | values))

    def _draw_events(self) -> None:
        draw, orders = self.draw, dict[str, list[tuple[int, str]]]()
        for number, event_id in enumerate(self.events):
            session, at_ms = f"s-{draw.randrange(5)}", draw.randrange(1, 400) * 1_000
            visible = draw.random() > 0.1
            enriched = draw.random() > 0.2
            if visible:
                orders.setdefault(session, []).append((at_ms, event_id))
            text = " ".join(draw.choices(WORDS, k=draw.randint(1, 6)))
            self._node(
                EVENT.label,
                event_id,
                visible,
                session_id=session,
                occurred_at=at_ms,
                agent_id=draw.choice(("desk_agent", "Ann")),
                user_id=draw.choice(USERS),
                tool_name=draw.choice((None, "pay_order")),
                event_type="ticket.opened" if number % 2 else "note",
                kind=(None, "other", "message", "other")[number % 4],
                status=draw.choice(("completed", "failed", "timeout")),
                global_position=f"{number // 2}-{number % 2}",
                importance_hint=draw.choice((None, 3, 9)),
                importance_score=draw.choice((2, 8)) if enriched else None,
                importance_boost=draw.choice((None, 1.5)),
                access_count=draw.choice((None, 2, 7)),
                last_accessed_at=draw.choice((None, 500_000)),
                text=text if enriched else None,
                speaker=draw.choice((None, "Ann")) if enriched else None,
                embedding=self._vector() if enriched else None,
            )
        for session, order in orders.items():
            order.sort()
            for before, after in pairwise(order):
                delta_ms = after[0] - before[0]
                ends = before[1], after[1]
                self._edge(FOLLOWS.type, *ends, session_id=session, delta_ms=delta_ms)
        seen = [own_id for order in orders.values() for _, own_id in order]
        for _ in range(50):
            effect, cause = draw.sample(seen, 2)
            how = draw.choice(("direct", "inferred"))
            sure = None if how == "direct" else draw.choice((0.4, 0.9))
            rule = None if how == "direct" else draw.choice(("retry", "reply"))
            self._edge(CAUSED_BY.type, effect, cause, mechanism=how, confidence=sure, rule=rule)
        for one, other in sorted({tuple(sorted(draw.sample(seen, 2))) for _ in range(50)}):
            self._edge(SIMILAR_TO.type, one, other, score=draw.choice((0.86, 0.95)))
        for _ in range(120):
            roles = ("subject", "object", "target")
            ends = draw.choice(seen), draw.choice(self.entities)
            self._edge(REFERENCES.type, *ends, role=draw.choice(roles))

    def _vector(self) -> tuple[float, ...]:
        vector = numpy.array([self.draw.gauss(0, 1) for _ in range(384)])
        return tuple((vector / numpy.linalg.norm(vector)).tolist())

    def _draw_entities(self) -> None:
        draw = self.draw
        for own_id in self.entities:
            name = draw.choice(NAMES)
            self._node(
                ENTITY.label,
                own_id,
                draw.random() > 0.1,
                canonical_name=name.lower(),
                entity_type=draw.choice(("agent", "user", "concept")),
                name=draw.choice((name, None)),
                subtype=draw.choice((None, "value", "city")),
                first_user_id=draw.choice(USERS),
                display_name=draw.choice((None, None, "Called Otherwise")),
                corrected_type=draw.choice((None, None, "user")),
                embedding=draw.choice((None, self._vector())),
            )
        for _ in range(25):
            held = draw.choice((None, 1_000, NOW_MS + 1))
            self._edge(
                RELATES_TO.type,
                draw.choice(self.entities),
                draw.choice(self.entities),
                relation=draw.choice(("uses", "lives_in")),
                edge_type=draw.choice(("semantic", "causal")),
                valid_from=draw.choice((0, 500, NOW_MS + 5)),
                event_id=draw.choice(self.events),
                confidence=draw.random(),  # no two alike, or either may be cut off
                valid_to=held,
                expired_at=draw.choice((None, 900)),
                user_id=draw.choice(USERS),
            )
        for one, other in sorted({tuple(sorted(draw.sample(self.entities, 2))) for _ in range(6)}):
            sure, retracted = draw.choice((None, 0.9)), draw.random() < 0.3
            self._edge(SAME_AS.type, one, other, confidence=sure, retracted=retracted)

    def _draw_made(self) -> None:
        draw = self.draw
        for label, ids in ((SUMMARY.label, self.summaries), (COMMUNITY.label, self.communities)):
            for own_id in ids:
                values: dict[str, Any] = {"level": draw.randint(1, 3)} if ids[0] == "s0" else {}
                users = draw.choice(((), ("ann",), ("ann", "bob"), None))
                at = (draw.randrange(30), 0)
                gone = draw.choice((None, False, True))
                self._node(label, own_id, user_ids=users, decided_at=at, gone=gone, **values)
        for summary_id in self.summaries:
            scored = [one.key[1] for one in self.nodes[EVENT.label] if one.values["text"]]
            for event_id in draw.sample(scored, 12):
                self._edge(SUMMARIZES.type, summary_id, event_id)
            resolved = draw.choice((None, draw.choice(self.events)))
            values = {"reason": "shared", "score": 0.7, "resolution_event_id": resolved}
            self._edge(LINKED_TO.type, summary_id, draw.choice(self.summaries), **values)
        for one, other in sorted({tuple(sorted(draw.sample(self.summaries, 2))) for _ in range(4)}):
            self._edge(SUMMARIZES.type, other, one, SUMMARY.label)
        for own_id in self.entities:
            if draw.random() < 0.7:
                self._edge(MEMBER_OF.type, own_id, draw.choice(self.communities))

    def write(self, graph: Graph) -> None:
        """Put it into a graph."""
        with graph.transaction() as transaction:
            for label, nodes in self.nodes.items():
                transaction.restore_nodes(label, nodes)
            for type_ in self.edges:
                transaction.restore_edges(type_, self.different(type_))

    def different(self, type_: str) -> list[FoundEdge]:
        """The edges of a type, each once."""
        names = EDGES[type_].key
        keyed = {
            (*edge[:3], *(edge.values[name] for name in names)): edge for edge in self.edges[type_]
        }
        return list(keyed.values())

    @property
    def node_ids(self) -> list[str]:
        return [
            *self.events,
            *(wire_id(ENTITY.label, one) for one in self.entities),
            *(wire_id(SUMMARY.label, one) for one in self.summaries),
            *(wire_id(COMMUNITY.label, one) for one in self.communities),
        ]

    def scopes(self) -> Iterator[Scope]:
        """Nobody, two users, somebody unknown and an operator, now and as of two positions."""
        for until in (None, Position(20, 0), Position(8, 1)):
            for user_id in (None, "ann", "bob", "carl"):
                yield Scope(self.tenant, user_id, NOW_MS, until)
            yield Scope(self.tenant, None, NOW_MS, until, everyone=True)


class Both:
    """One world, in the graph and in columns."""

    def __init__(self, graph: Neo4jGraph, seed: int) -> None:
        self.world = World(seed)
        self.world.write(graph)
        self.columns = columns_of(graph)
        self._reader = Neo4jReader(graph.client.driver, "neo4j")

    def view(self, scope: Scope) -> View:
        return View(self.columns[self.world.tenant], scope)

    def ask(self, question: Callable[[GraphRead], T]) -> T:
        return self._reader.read(question, timeout_ms=60_000)


@pytest.fixture(params=range(3))
def both(event_search: None, neo4j_graph: Neo4jGraph, request: pytest.FixtureRequest) -> Both:
    return Both(neo4j_graph, request.param)


def test_steps_of_a_walk(both: Both) -> None:
    met = 0
    for scope in both.world.scopes():
        for caps in (EDGE_CAPS, dict.fromkeys(EDGES, 2)):
            ids = both.world.node_ids
            theirs = both.ask(lambda graph: asked.steps(graph, scope, ids, caps))  # noqa: B023
            ours = Walker(both.view(scope), caps).steps(ids).edges()
            only = set(map(str, ours)) ^ set(map(str, theirs))
            assert not only, (scope, only)
            met += len(ours)
    assert met > 1_000


def test_a_walk_over_columns_is_that_over_the_graph(both: Both) -> None:
    met = 0
    for scope in both.world.scopes():
        seeds = dict.fromkeys(both.world.node_ids[::9], 0.5)
        walk = walk_asked(seeds, {"why": 0.8, "related": 0.4}, beside=True)
        ours = walked(walk, Walker(both.view(scope)).rows, NOW_MS)
        edges = both.ask(lambda graph: asked.steps(graph, scope, both.world.node_ids))  # noqa: B023
        theirs = walked_over(edges, walk, NOW_MS)
        assert worth_of(ours) == pytest.approx(worth_of(theirs))
        assert ours.edges is not None
        assert theirs.edges is not None
        assert len(ours.edges.source) == len(theirs.edges.source)
        met += len(ours.edges.source)
    assert met > 1_000


def worth_of(walk: Walked) -> dict[str, float]:
    """By wire id, of what a path leads to."""
    worth = zip(walk.ids, walk.worth.tolist(), strict=True)
    return {node_id: score for node_id, score in worth if score == score}


def test_what_ranking_must_know_of_events(both: Both) -> None:
    for scope in both.world.scopes():
        around, ids = both.world.events[:20], both.world.events[40:]
        theirs = both.ask(
            lambda graph: asked.standings(graph, scope, around=around, ids=ids)  # noqa: B023
        )
        view = both.view(scope)
        told = view.standings(view.chosen(around, ids))
        places = range(len(told.ids))
        ours = {
            told.ids[n]: (
                float(told.importance[n]),
                int(told.accesses[n]),
                int(told.accessed_ms[n]),
            )
            for n in places
        }
        graphs = {
            one.event_id: (one.importance, one.access_count, one.accessed_at_ms) for one in theirs
        }
        assert graphs.items() <= ours.items()
        if scope.until is None:  # as of a position the graph does not step over what came later
            assert graphs == ours
            before = {told.ids[n]: told.ids[p] for n in places if (p := int(told.previous[n])) >= 0}
            assert before == {
                one.event_id: one.previous_id for one in theirs if one.previous_id in ours
            }


def test_where_a_question_is_asked(both: Both) -> None:
    names = [name.lower() for name in NAMES]
    for scope in both.world.scopes():
        for session in range(5):
            events, speaking = both.ask(
                lambda graph: asked.session_and_agents(graph, scope, f"s-{session}", names)  # noqa: B023
            )
            view = both.view(scope)
            assert view.session_events(f"s-{session}") == events
            assert view.speaking(names) == speaking


def test_the_user_of_a_session(both: Both) -> None:
    scope = next(both.world.scopes())
    for session in range(6):
        theirs = both.ask(lambda graph: asked.session_user(graph, scope.tenant, f"s-{session}"))  # noqa: B023
        assert both.view(scope).session_user(f"s-{session}") == theirs


def test_the_best_of_a_session(both: Both) -> None:
    for scope in both.world.scopes():
        for session, limit in product(range(5), (1, 100)):
            theirs = both.ask(
                lambda graph: asked.session_candidates(graph, scope, f"s-{session}", limit)  # noqa: B023
            )
            ours = both.view(scope).session_candidates(f"s-{session}", limit)
            assert ours[1:] == theirs[1:]
            if limit > 1:  # of equal ones either graph or columns may take any
                assert set(ours.best) == set(theirs.best)
            assert len(ours.best) == len(theirs.best)


def test_sessions_and_their_events_in_order(both: Both) -> None:
    for scope in both.world.scopes():
        theirs = both.ask(lambda graph: asked.session_lines(graph, scope))  # noqa: B023
        view = both.view(scope)
        ours = sessions_of(view, SessionsAsked(None, None, None, False, before=None, limit=100))
        assert [line[:5] for line in ours.sessions] == [line[:5] for line in theirs]
        for line, (session_id, *_, ids) in zip(ours.sessions, theirs, strict=True):
            assert line.first_event_id == ids[0]
            paged: list[tuple[int, str]] = []
            while True:
                page = session_page(view, session_id, paged[-1] if paged else None, 4)
                paged += page.events
                if not page.events:
                    break
            assert [event_id for _, event_id in paged] == ids
            assert page.total == len(ids)


def test_the_nearest_events(both: Both) -> None:
    vector = both.world._vector()
    for scope in both.world.scopes():
        theirs = both.ask(
            lambda graph: asked.vector_hits(graph, scope, vector, 60, filtered=True)  # noqa: B023
        )
        ours = both.view(scope).vector_hits(numpy.array(vector, dtype="f4"), 60)
        assert {hit.event_id for hit in ours.shown} == {hit.event_id for hit in theirs.shown}
        assert set(ours.withheld) == set(theirs.withheld)
        scores = {hit.event_id: hit.score for hit in theirs.shown}
        for hit in ours.shown:
            assert hit.score == pytest.approx(scores[hit.event_id], abs=0.01)


def test_the_events_that_hold_words(both: Both) -> None:
    """All that hold one of them; the graph's index knows other stems, and not who speaks."""
    for scope in both.world.scopes():
        theirs = both.ask(lambda graph: asked.text_hits(graph, scope, ["refund"], 60))  # noqa: B023
        ours = both.view(scope).text_hits([stem("refund")], 60)
        assert {hit.event_id for hit in ours.shown} == {hit.event_id for hit in theirs.shown}
        assert set(ours.withheld) == set(theirs.withheld)


def test_entities_by_name_and_who_is_the_same(both: Both) -> None:
    ids = both.world.entities
    questions: Mapping[str, Callable[[Any], Any]] = {
        "by id": lambda reads: sorted(reads.found_by_id(ids)),
        "by name": lambda reads: reads.found_by_name([name.lower() for name in NAMES], 50),
        "by words": lambda reads: sorted(reads.found(["oslo", "tick"], ["ann lee"], 50)),
        "same": lambda reads: sorted(reads.same_as(ids)),
        "surroundings": lambda reads: reads.surroundings(ids),
        "mentioned": lambda reads: reads.mentioned(ids),
        "newest mentions": lambda reads: reads.newest_mentions([*ids, "unknown"], 3),
        "near": lambda reads: {
            one.entity_id for one, _ in reads.found_near(both.world._vector(), 50)
        },
    }
    for scope in both.world.scopes():
        for name, question in questions.items():
            theirs = both.ask(lambda graph: question(asked.GraphNames(graph, scope)))  # noqa: B023
            assert question(ColumnNames(both.view(scope))) == theirs, (name, scope)


def test_the_events_that_mention_an_entity(both: Both) -> None:
    groups = [[entity] for entity in both.world.entities] + [both.world.entities, ["unknown"]]
    met = 0
    for scope, ids in product(both.world.scopes(), groups):
        pages = [(LAST_MS, "")]
        for limit in (3, 5, 100):
            theirs = both.ask(
                lambda graph: asked.GraphNames(graph, scope).mentions(ids, pages[-1], limit)  # noqa: B023
            )
            assert both.view(scope).mentions(ids, pages[-1], limit) == theirs, (scope, ids)
            pages += theirs.events[-1:]
            met += len(theirs.events)
    assert met > 100


def test_what_nobody_asked_for(both: Both) -> None:
    world, met = both.world, 0
    start = Beside(world.summaries, world.events, world.entities, world.events[:30])
    for scope in world.scopes():
        for least in (Least(most=50), Least(score=0.1, importance=3, accesses=1, most=50)):
            theirs = both.ask(lambda graph: asked.proactive(graph, scope, start, least))  # noqa: B023
            ours = beside(both.view(scope), start, least)
            assert _rounded(ours) == _rounded(theirs), scope
            met += len(ours)
    assert met > 100


def _rounded(found: list[Any]) -> set[tuple[str, str, float]]:
    return {(one.signal, one.event_id, round(one.score, 6)) for one in found}
