"""What is Neo4j's alone: every text finds its rows by an index, errors, what others stored."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import neo4j
import pytest

from pipelines.graph import cypher, questions
from pipelines.graph.client import GraphClient, Neo4jReader
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reads import chains
from pipelines.graph.rows import End
from projections.errors import GraphRejected, GraphUnavailable, QueryTimeout, TransactionTimeout
from projections.identity import Position
from projections.operations import Checkpoint, Operations
from projections.schema import (
    COMMUNITY,
    EDGES,
    ENTITY,
    EVENT,
    FORGOTTEN,
    NODES,
    RELATES_TO,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
    VECTOR_DIMENSIONS,
    constraint_names,
    fulltext_index,
    index_definitions,
    vector_index,
)
from tests.contracts.plans import SCANS, SORTS, operators
from tests.contracts.test_graph_port import node, written
from tests.factories import event

pytestmark = pytest.mark.integration
STAGE = "projection"
STAGES = (STAGE, "enrichment", "consolidation")


def test_clear_leaves_the_nodes_of_others(neo4j_graph: Neo4jGraph) -> None:
    client = neo4j_graph.client
    client.write("CREATE (:Person {name: 'Ada'})-[:KNOWS]->(:Person {name: 'Bob'})")
    written(neo4j_graph, node(1))
    neo4j_graph.clear()
    rows = client.ask("MATCH (n) WHERE NOT n:Feed RETURN n.name ORDER BY n.name")
    assert [row[0] for row in rows] == ["Ada", "Bob"]


def test_what_others_wrote_on_a_node_of_ours_stays(neo4j_graph: Neo4jGraph) -> None:
    written(neo4j_graph, node(1))
    neo4j_graph.client.write("MATCH (e:Event) SET e.colour = 'red'")
    written(neo4j_graph, node(1, tool_name="x"))
    (found,) = neo4j_graph.nodes(EVENT.label, [event(1).key], ("colour",)).values()
    assert found.values == {"colour": "red"}


def test_workers_that_start_at_once_create_one_schema(driver: neo4j.Driver) -> None:
    constraints = constraint_names()
    for _ in range(3):
        for name in sorted(index_definitions()):  # a constraint takes its index with it
            kind = "CONSTRAINT" if name in constraints else "INDEX"
            driver.execute_query(f"DROP {kind} {name} IF EXISTS")
        with ThreadPoolExecutor(8) as workers:
            for done in [workers.submit(Neo4jGraph(driver).ensure_schema) for _ in range(8)]:
                done.result(600)
        census = Neo4jGraph(driver).census()
        assert census.constraints == constraints
        assert census.indexes >= index_definitions().keys() - constraints


def test_an_index_left_of_a_constraint_that_was_never_made_is_dropped(
    driver: neo4j.Driver,
) -> None:
    Neo4jGraph(driver).ensure_schema()
    driver.execute_query("DROP CONSTRAINT scope_key")
    driver.execute_query("CREATE INDEX scope_key FOR (n:Scope) ON (n.tenant)")
    driver.execute_query("CALL db.awaitIndexes(300)")
    Neo4jGraph(driver).ensure_schema()
    assert Neo4jGraph(driver).census().constraints == constraint_names()


def test_a_schema_that_is_there_is_left_alone(
    driver: neo4j.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    Neo4jGraph(driver).ensure_schema()
    monkeypatch.setattr(GraphClient, "transaction", lambda *_: pytest.fail("nothing is missing"))
    Neo4jGraph(driver).ensure_schema()


def test_indexes_of_events_are_made_for_people_who_ask_them(neo4j_graph: Neo4jGraph) -> None:
    """Recollect asks its columns, and they would cost each event that is written."""
    names = {vector_index(EVENT), fulltext_index(EVENT)}
    assert not neo4j_graph.census().indexes & names
    driver = neo4j_graph.client.driver
    for _ in range(2):
        Neo4jGraph(driver, browsed=True).ensure_schema()
        assert neo4j_graph.census().indexes >= names
    for name in names:
        driver.execute_query(f"DROP INDEX {name}")


def test_it_waits_for_the_commit_that_moves_a_checkpoint(neo4j_graph: Neo4jGraph) -> None:
    """The server shows the parts of a commit one by one, and holds its locks to the end."""
    neo4j_graph.ensure_checkpoints(STAGE, 2, 1)
    moved = Checkpoint(STAGE, 1, Position(1, 0), 1, "")
    with ThreadPoolExecutor(1) as others:
        with neo4j_graph.transaction() as transaction:
            transaction.advance(Checkpoint(STAGE, 1), moved)
            neo4j_graph.settle(STAGE, [0])  # of another partition
            waiting = others.submit(neo4j_graph.settle, STAGE, [0, 1])
            with pytest.raises(QueryTimeout):
                Neo4jReader(neo4j_graph.client.driver).settle(STAGE, [1], timeout_ms=500)
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
        waiting.result(60)
    assert neo4j_graph.checkpoints(STAGE)[1] == moved


def test_times_are_stored_as_times(neo4j_graph: Neo4jGraph) -> None:
    written(neo4j_graph, node(1))
    rows = neo4j_graph.client.ask(
        "MATCH (e:Event) RETURN e.occurred_at IS :: ZONED DATETIME, 'lock' IN keys(e)"
    )
    assert [list(row) for row in rows] == [[True, False]]


def test_what_the_database_refuses_and_what_is_away_are_two_errors(
    neo4j_graph: Neo4jGraph,
) -> None:
    with pytest.raises(GraphRejected), neo4j_graph.transaction() as transaction:
        transaction.run("RETURN 1 +")
    with (
        neo4j.GraphDatabase.driver("bolt://127.0.0.1:1", connection_timeout=1) as away,
        pytest.raises(GraphUnavailable) as caught,
    ):
        Neo4jGraph(away).checkpoints()
    assert caught.value.retryable


SLOW = "UNWIND range(1, 100000000) AS x RETURN count(x)"


def test_transactions_and_questions_have_a_limit(driver: neo4j.Driver) -> None:
    graph = Neo4jGraph(driver, timeout_s=0.05)
    with pytest.raises(TransactionTimeout), graph.transaction() as transaction:
        transaction.run(SLOW)
    with pytest.raises(TransactionTimeout):
        graph.client.ask(SLOW)


def test_every_answer_is_asked_within_a_transaction_or_a_limit(neo4j_graph: Neo4jGraph) -> None:
    batch = Operations()
    batch.add(node(1))
    with neo4j_graph.transaction() as transaction:
        transaction.apply(batch, STAGE)
        assert neo4j_graph.nodes(EVENT.label, [event(1).key]) == {}


# -- plans -----------------------------------------------------------------------------------------

CHAINS = {"before": True, "within": True, "after": True}
_NAMED = ("importance_score", "occurred_at")
_CALLED = ("canonical_name", "entity_type", "subtype")
BY_CHAIN = {
    f"stretch of {label}{', ' + having if having else ''}": questions.stretch_text(
        label, having=having, **CHAINS
    )
    for label in (EVENT.label, FORGOTTEN.label)
    for having in ("", "importance_score")
} | {
    "end of a chain": questions.stretch_text(
        EVENT.label, before=True, within=False, after=False, having=""
    ),
    "stream events": chains.STREAM_EVENTS,
    "page of a chain": questions.scan_text(
        EVENT.label, EVENT.indexes[0], _NAMED, depth=1, after=3, most=_NAMED[1:]
    ),
    f"page of a chain of {FORGOTTEN.label}": questions.scan_text(
        FORGOTTEN.label,
        FORGOTTEN.indexes[0],
        (),
        depth=2,
        after=2,
        least=_NAMED[1:],
        most=_NAMED[1:],
    ),
}
BY_INDEX = {
    f"scan of {label} by {', '.join(index)} from {depth}{' down' if down else ''}": (
        questions.scan_text(
            label, index, (), depth=depth, after=0 if down else len(index) - depth, descending=down
        )
    )
    for label, row in NODES.items()
    for index in (row.key, *row.indexes)
    for depth in {0, len(index) - 1}
    for down in (False, True)
} | {"events of sessions": chains.EVENTS_OF}
BY_KEY: dict[str, str] = {
    "advance": cypher.ADVANCE,
    "lock": cypher.LOCK,
    "hold checkpoints": questions.HOLD_CHECKPOINTS,
    "hold chains": cypher.HOLD_CHAINS,
    "close feed": cypher.CLOSE_FEED,
    "delete letters": cypher.DELETE_DEAD_LETTERS,
    "delete later letters": cypher.DELETE_LATER_DEAD_LETTERS,
    **{f"nodes {label}": questions.nodes_text(label, ()) for label in NODES},
    **{
        f"lock {label}{' making' if make else ''}": questions.lock_nodes_text(label, (), make=make)
        for label in NODES
        for make in (False, True)
    },
    "namesakes": questions.find_text(ENTITY.label, ("tenant", "canonical_name"), _CALLED),
    "failures": questions.find_text(EVENT.label, ("tenant", "tool_name"), ()),
    "all of an index": questions.find_text(EVENT.label, EVENT.indexes[1], ()),
    **{
        f"{type_} by {by}": questions.edges_text(type_, row.key, by, "")
        for type_, row in EDGES.items()
        for by in End
        if by is not End.EITHER or row.source == row.target
    },
    **{
        f"degrees of {type_} by {by}": questions.degrees_text(type_, by, "")
        for type_, row in EDGES.items()
        for by in End
        if by is not End.EITHER or row.source == row.target
    },
    **{
        f"across {type_} by {by}": questions.across_text(type_, "tenant", by, "")
        for type_, row in EDGES.items()
        for by in (End.SOURCE, End.TARGET)
    },
    "summaries above": questions.edges_text(SUMMARIZES.type, (), End.TARGET, SUMMARY.label),
    **{f"between {type_}": questions.between_text(type_, (), "") for type_ in EDGES},
    "between summaries": questions.between_text(SUMMARIZES.type, (), SUMMARY.label),
    **{
        f"merge {label} {stage}{' waiting' if waiting else ''}": cypher.merge_nodes_text(
            label, stage, with_placeholders=waiting
        )
        for label, row in NODES.items()
        for stage in STAGES
        for waiting in (False, True)
        if row.owned(stage)
    },
    "set events": cypher.set_nodes_text(EVENT.label, "enrichment"),
    **{
        f"decide {label}.{name}": cypher.decide_nodes_text(label, name)
        for label, name in (
            (ENTITY.label, "display_name"),
            (EVENT.label, "access_count"),
            (EVENT.label, "importance_boost"),
            (FORGOTTEN.label, "recalled"),
            (COMMUNITY.label, "gone"),
        )
    },
    **{f"remove {label}": cypher.remove_nodes_text(label) for label in NODES},
    **{
        f"{text.__name__} {row.type} {stage}": text(row.type, stage)
        for row in EDGES.values()
        for stage in STAGES
        if row.written_by(stage)
        for text in (cypher.merge_edges_text, cypher.remove_edges_text, cypher.clear_edges_text)
    },
    "remove one of several": cypher.remove_edges_text(RELATES_TO.type, "enrichment", keyed=True),
    "retrievals": cypher.set_edges_text(RELATES_TO.type, "consolidation"),
    "levels": cypher.merge_edges_text(SUMMARIZES.type, "consolidation", label=SUMMARY.label),
    "levels removed": cypher.remove_edges_text(
        SUMMARIZES.type, "consolidation", label=SUMMARY.label
    ),
    "dropped pairs": cypher.remove_edges_text(SIMILAR_TO.type, "consolidation"),
    **{
        f"restore {label} {visible}": cypher.restore_nodes_text(label, visible=visible)
        for label in NODES
        for visible in (True, False)
    },
    **{
        f"restore values of {label}": cypher.restore_values_text(
            label, tuple(p.name for p in row.stored() if p.name not in row.key)
        )
        for label, row in NODES.items()
    },
    **{f"clear pairs of {type_}": cypher.clear_pairs_text(type_) for type_ in EDGES},
    **{f"restore {type_}": cypher.restore_edges_text(type_) for type_ in EDGES},
}
STREAMS = {
    **{
        f"{label}{' of one' if one else ''}": questions.stream_nodes_text(label, (), one_tenant=one)
        for label, row in NODES.items()
        for one in (False, True)
        if not one or "tenant" in row.key
    },
    **{
        f"{type_}{' of one' if one else ''}": questions.stream_edges_text(type_, (), one_tenant=one)
        for type_ in EDGES
        for one in (False, True)
    },
}
PARAMETERS: dict[str, Any] = {
    "rows": [["t", "e", "x", "y", 0, "v", 0, []] + ["x"] * 40],
    "sessions": [["t", "s"]],
    "keys": [["t", "e"]],
    "chains": ["x"],
    "partitions": [0],
    "seqs": [0],
    "seq": 0,
    "place": ["x"] * 4,
    "lower": {"occurred_at": 0},
    "upper": {"occurred_at": 0},
    "most": 10,
    "limit": 10,
    "enriched": True,
    "event_id": "e",
    "tenant": "t",
    **dict.fromkeys(("before", "within", "after"), 10),
    **dict.fromkeys(("stage", "position", "to_position", "to_digest"), ""),
    **dict.fromkeys(("partition", "generation", "fold_version", "to_seq"), 0),
}


def plans(graph: Neo4jGraph, texts: dict[str, str]) -> Iterator[tuple[str, list[Any]]]:
    """The operators of each plan, each text once."""
    for text, name in {text: name for name, text in texts.items()}.items():
        yield name, operators(graph.client.driver, text, PARAMETERS)


def _mention(graph: Neo4jGraph, events: int) -> None:
    """One entity that as many events mention, and that facts lead to from as many others."""
    graph.client.write(
        "CREATE (hub:Entity {tenant: 'h', entity_id: 'hub'}) WITH hub "
        "UNWIND range(1, $events) AS n "
        "CREATE (:Event {tenant: 'h', event_id: 'e' + n})-[:REFERENCES {role: 'o'}]->(hub) "
        "CREATE (:Entity {tenant: 'h', entity_id: 'n' + n})-[:RELATES_TO]->(hub)",
        events=events,
    )


@pytest.fixture(params=["empty", "filled"])
def planned(request: pytest.FixtureRequest, neo4j_graph: Neo4jGraph) -> Neo4jGraph:
    """Plans are made on an empty graph and kept while it grows, or made anew on a full one."""
    neo4j_graph.ensure_checkpoints(STAGE, 3, 1)
    if request.param == "filled":
        written(neo4j_graph, *(node(n, session_id=f"s-{n % 5}") for n in range(1, 300)))
        _mention(neo4j_graph, 3_000)
    neo4j_graph.client.write("CALL db.prepareForReplanning(60)")
    return neo4j_graph


def test_every_statement_finds_its_rows_by_an_index(planned: Neo4jGraph) -> None:
    of_both = 0
    for name, found in plans(planned, BY_KEY | BY_CHAIN):
        kinds = {kind for kind, _ in found}
        assert not {kind for kind in kinds if "RelationshipTypeScan" in kind}, (name, kinds)
        assert not kinds & SCANS, (name, kinds)
        assert "NodeIndexScan" not in kinds or name not in BY_KEY, (name, found)
        begins = [details for kind, details in found if "Index" in kind]
        if "MATCH (b:" in BY_KEY.get(name, ""):
            # The edges of the end with fewer are read: never all of an entity that many mention.
            of_both += 1
            assert [kind for kind, _ in found if kind.startswith("NodeUniqueIndexSeek")][1:], name
            assert "Expand(All)" not in kinds, (name, found)
        elif name.startswith(("degrees", "across", "clear_edges", *EDGES)):
            assert len(begins) == 1, (name, found)
            assert begins[0].startswith(("UNIQUE x:", "UNIQUE a:")), (name, begins)
    assert of_both > 4 * len(EDGES)


def test_chains_are_read_in_the_order_of_their_index(planned: Neo4jGraph) -> None:
    for name, found in plans(planned, BY_CHAIN):
        label = FORGOTTEN if FORGOTTEN.label in name else EVENT
        chain = ", ".join(label.indexes[0])
        assert [details for kind, details in found if "Index" in kind and chain in details], name
        assert not {kind for kind, _ in found} & SORTS, name


def test_scans_and_streams_are_sorted_by_an_index(planned: Neo4jGraph) -> None:
    """What of the key is not in the index is sorted among equals alone; of edges, the second half
    of the order within what starts at one node."""
    for name, found in plans(planned, BY_INDEX | STREAMS):
        kinds = {kind for kind, _ in found}
        assert not kinds & SCANS, (name, kinds)
        assert not kinds & {"Sort", "Top"}, (name, kinds)


@pytest.mark.parametrize("filtered", [True, False])
def test_the_nearest_are_searched_in_the_vector_index(
    neo4j_graph: Neo4jGraph, filtered: bool
) -> None:
    text = questions.nearest_text(ENTITY.label, _CALLED, 24, filtered=filtered)
    rows = {"rows": [["t", "e", [0.05] * VECTOR_DIMENSIONS]]}
    found = operators(neo4j_graph.client.driver, text, rows)
    assert not {kind for kind, _ in found} & SCANS
