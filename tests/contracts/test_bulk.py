"""What is written as files and loaded is what was there, whatever the schema's rows may hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

import neo4j
import pytest

from pipelines.graph.bulk import BETWEEN_ELEMENTS, BulkFiles, write_files
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.local.servers import Neo4jServer
from pipelines.proof.sums import MODULUS, StoredSums
from projections.errors import OperationFailed
from projections.operations import Key
from projections.schema import CHECKPOINT, EDGES, NODES, Kind, NodeRow, Property
from tests.servers import running

TEXTS = [
    "plain",
    "",
    'quotes " and ""',
    "a\nline\r\nand, a comma\tand a tab",
    " blanks at both ends ",
    '\\ \\n \\"',
    "\u001f \u0007 ünïcödé 日本語 🙂",
    "null",
    "-12",
    "a'b;c|d",
    "true",
]
LISTS: list[tuple[str, ...]] = [
    ("one",),
    (),
    ("one", "two\nlines", 'quote "'),
    ("",),
    ("a", "", "b"),
    (f"holds{BETWEEN_ELEMENTS}the sign",),
]
VALUES: dict[Kind, list[Any]] = {
    Kind.STRING: TEXTS,
    Kind.INTEGER: [0, -1, 2**63 - 1, -(2**63)],
    Kind.FLOAT: [0.1, -0.0, 1e-300, 123456789.12345678, 1.0],
    Kind.BOOLEAN: [True, False],
    Kind.TIME: [0, -1, 1_700_000_000_123, 253_402_300_799_999],
    Kind.STRINGS: LISTS,
    Kind.INTEGERS: [(1, 2), (), (-(2**62),)],
    Kind.TIMES: [(0, 1_700_000_000_123), (), (-1,)],
    Kind.VECTOR: [(0.5, -0.25, 0.1000000014901161, 3.0000000e-30)],
}
"""By kind; None is put between them."""
PLAIN: dict[Kind, Any] = {
    Kind.STRINGS: ("one", 'two\n"lines"', "null", "x,y"),
    Kind.INTEGERS: (-(2**63), 0, 2**63 - 1),
    Kind.TIMES: (-1, 1_700_000_000_123),
}


def properties_of(row: NodeRow | Any) -> list[Property]:
    stored = row.stored() if isinstance(row, NodeRow) else row.properties
    return list(stored)


def some(kind: Kind, shift: int) -> Iterator[Any]:
    """Values of a kind without end, beginning elsewhere for each property."""
    values = [*VALUES[kind], None]
    return islice(cycle(values), shift, None)


def keys_of(row: NodeRow) -> list[Key]:
    if "partition" in row.key:
        return [("projection", n, *((7,) if len(row.key) == 3 else ())) for n in range(3)]
    return [tuple(f'{name} {n} "' for name in row.key) for n in range(len(TEXTS))]


def nodes_of(row: NodeRow) -> list[FoundNode]:
    keys = keys_of(row)
    columns = {
        p.name: some(p.kind, shift)
        for shift, p in enumerate(properties_of(row))
        if p.name not in row.key
    }
    nodes = []
    for number, key in enumerate(keys):
        values = dict(zip(row.key, key, strict=True))
        values |= {name: next(column) for name, column in columns.items()}
        if number % 4:  # the files can say it
            values |= {p.name: PLAIN.get(p.kind, values[p.name]) for p in properties_of(row)}
        hidden = row.placeholder is not None and number % 3 == 0
        nodes.append(FoundNode(key, not hidden, values, bare=False))
    return nodes


def edges_of(row: Any) -> list[FoundEdge]:
    """Between each source and two targets, two edges where a row's key tells them apart."""
    columns = {p.name: some(p.kind, shift) for shift, p in enumerate(row.properties)}
    sources, edges = keys_of(NODES[row.source]), []
    for label in filter(None, {row.target, row.other_target}):
        targets = keys_of(NODES[label])
        for number, source in enumerate(sources):
            for step in (1, 2):
                target = targets[(number + step) % len(targets)]
                for copy in range(2 if row.key else 1):
                    values = {name: next(column) for name, column in columns.items()}
                    values |= {name: f"{name} {copy}" for name in row.key if name != "valid_from"}
                    edges.append(FoundEdge(source, target, label, values))
    return edges


def filled() -> MemoryGraph:
    graph = MemoryGraph()
    with graph.transaction() as transaction:
        for label, row in NODES.items():
            transaction.restore_nodes(label, nodes_of(row))
        for type_, edge_row in EDGES.items():
            transaction.restore_edges(type_, edges_of(edge_row))
    return graph


def contents(graph: Graph) -> dict[str, list[Any]]:
    held: dict[str, list[Any]] = {}
    for name, row in {**NODES, **EDGES}.items():
        names = [p.name for p in properties_of(row)]
        items = cast(Iterator[FoundNode | FoundEdge], graph.stream(name, names))
        held[name] = [
            (*item[:3], typed(item.values))
            if isinstance(item, FoundEdge)
            else (item.key, item.visible, typed(item.values))
            for item in items
        ]
    return held


def typed(values: Any) -> list[tuple[str, str, Any]]:
    return [(name, type(value).__name__, value) for name, value in values.items()]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BulkFiles, Neo4jGraph]]:
    """A Neo4j that was filled with two graphs, of which the second holds one node."""
    home = tmp_path_factory.mktemp("loaded")
    server = Neo4jServer(home)
    files = BulkFiles()
    for share, written in enumerate((filled(), other())):
        folder = tmp_path_factory.mktemp(f"files{share}")
        files.add(write_files(written, folder, share=share))
    server.load(files.arguments())
    with running(server), neo4j.GraphDatabase.driver(server.url) as driver:
        graph = Neo4jGraph(driver)
        graph.ensure_schema()
        files.restore(graph)
        yield files, graph


def other() -> MemoryGraph:
    graph = MemoryGraph()
    with graph.transaction() as transaction:
        node = nodes_of(NODES["Entity"])[1]
        key = ("another", "one")
        values = {**node.values, "tenant": key[0], "entity_id": key[1]}
        transaction.restore_nodes("Entity", [node._replace(key=key, values=values)])
    return graph


def test_all_that_the_schema_can_hold_is_loaded_as_it_was(
    loaded: tuple[BulkFiles, Neo4jGraph],
) -> None:
    expected, held = contents(filled()), contents(loaded[1])
    expected["Entity"] = sorted(
        expected["Entity"] + contents(other())["Entity"], key=lambda n: n[0]
    )
    for name, items in expected.items():
        assert held[name] == items, name


def held(graph: MemoryGraph | Neo4jGraph) -> Iterator[tuple[str, FoundNode | FoundEdge]]:
    names = (*NODES, *EDGES)
    if isinstance(graph, Neo4jGraph):
        yield from graph.held(names)
    else:
        yield from ((name, item) for name in names for item in graph.held(name))


def sums(*graphs: MemoryGraph | Neo4jGraph) -> dict[str | None, int]:
    stored = StoredSums()
    for graph in graphs:
        for name, item in held(graph):
            stored.add(name, item)
    return {name: number % MODULUS for name, number in stored.sums.items()}


def test_what_was_loaded_adds_up_to_what_was_written(
    loaded: tuple[BulkFiles, Neo4jGraph],
) -> None:
    expected = sums(filled(), other())
    assert expected.keys() == {*NODES, *EDGES}
    assert sums(loaded[1]) == expected


@pytest.mark.parametrize(
    ("name", "changed", "back"),
    [
        (
            "Event",
            "MATCH (n:Event) WITH n ORDER BY n.event_id LIMIT 1 SET n.old = n.kind, n.kind = 'x'",
            "MATCH (n:Event {kind: 'x'}) SET n.kind = n.old REMOVE n.old",
        ),
        (
            "Event",
            "MATCH (n:Event&!Placeholder) WITH n LIMIT 1 SET n:Placeholder, n.old = 1",
            "MATCH (n:Event {old: 1}) REMOVE n:Placeholder, n.old",
        ),
        (
            "REFERENCES",
            "MATCH ()-[e:REFERENCES]->() WITH e LIMIT 1 SET e.old = e.role, e.role = 'x'",
            "MATCH ()-[e:REFERENCES {role: 'x'}]->() SET e.role = e.old REMOVE e.old",
        ),
        (
            "FOLLOWS",
            "MATCH (a)-[e:FOLLOWS]->(b) WITH a, e, b LIMIT 1 "
            "CREATE (a)-[old:OLD]->(b) SET old = e DELETE e",
            "MATCH (a)-[old:OLD]->(b) CREATE (a)-[e:FOLLOWS]->(b) SET e = old DELETE old",
        ),
        (
            "CAUSED_BY",
            "MATCH (a)-[e:CAUSED_BY]->(b), (c:Event) WHERE c <> b WITH a, e, b, c LIMIT 1 "
            "CREATE (a)-[old:OLD]->(b), (a)-[f:CAUSED_BY {old: true}]->(c) "
            "SET old = e, f += e DELETE e",
            "MATCH ()-[f:CAUSED_BY {old: true}]->() MATCH (a)-[old:OLD]->(b) "
            "CREATE (a)-[e:CAUSED_BY]->(b) SET e = old DELETE old, f",
        ),
        (
            "RELATES_TO",
            "MATCH (a)-[e:RELATES_TO]->(b) WITH a, e, b LIMIT 1 "
            "CREATE (a)-[f:RELATES_TO {old: true}]->(b) SET f += e",
            "MATCH ()-[f:RELATES_TO {old: true}]->() DELETE f",
        ),
    ],
)
def test_what_is_changed_in_the_store_changes_the_sum_of_its_name_alone(
    loaded: tuple[BulkFiles, Neo4jGraph], name: str, changed: str, back: str
) -> None:
    graph = loaded[1]
    expected = sums(graph)
    graph.client.write(changed)
    tampered = sums(graph)
    graph.client.write(back)
    assert {one for one in expected if tampered[one] != expected[one]} == {name}
    assert sums(graph) == expected


def test_a_single_value_that_is_another_changes_the_sum_of_its_label_alone() -> None:
    expected = sums(filled())
    key = nodes_of(NODES["Event"])[1].key
    names = [p.name for p in properties_of(NODES["Event"])]
    for name, value in (
        ("embedding", (0.5, -0.25, 0.10000000894069672, 3.0000000e-30)),  # the next float32
        ("importance_score", 1.0),
        ("global_position", "7-7"),
    ):
        graph = filled()
        node = graph.nodes("Event", [key], names)[key]
        with graph.transaction() as transaction:
            values = {**node.values, name: value}
            transaction.restore_nodes("Event", [node._replace(values=values)])
        changed = sums(graph)
        assert {one for one, number in expected.items() if changed[one] != number} == {"Event"}


def test_what_the_files_cannot_say_is_few_and_told_of(
    loaded: tuple[BulkFiles, Neo4jGraph],
) -> None:
    files, graph = loaded
    assert files.left_nodes["Event"]
    assert files.left_edges["LINKED_TO"]
    assert len(files.left_nodes["Event"]) < graph.census().labels["Event"] / 2
    assert "FOLLOWS" not in files.left_edges


def test_checkpoints_can_be_left_for_later(tmp_path: Path) -> None:
    seen: set[str] = set()
    files = write_files(
        filled(), tmp_path, without=(CHECKPOINT.label,), see=lambda name, _: seen.add(name)
    )
    assert "Event" in seen
    assert CHECKPOINT.label not in seen
    assert not [labels for labels, _ in files.nodes if labels == CHECKPOINT.label]


def test_files_that_do_not_fit_are_refused_with_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    files = write_files(other(), folder)
    path = files.nodes[0][1]
    path.write_text(path.read_text() + '"no number","x"\n')
    # Neither value is a number, and the importer may meet either first.
    reason = r"(?s)the files were not loaded: .*(no number|`x`)"
    with pytest.raises(OperationFailed, match=reason):
        Neo4jServer(tmp_path / "home").load(files.arguments())
