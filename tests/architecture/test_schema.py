"""The schema is said once: nobody spells an edge type, every row is used, the page is current."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.cli import reference
from pipelines.graph import cypher
from pipelines.graph.reads import chains
from projections.schema import EDGES, EVENT, INTENTS, MAX_WEIGHT, NODES, schema_statements

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "projections" / "schema.py"
SOURCES = [
    path
    for folder in ("api", "pipelines", "consolidation", "enrichment", "projections")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != SCHEMA
]
EDGE_TYPE = re.compile(rf"\b({'|'.join(EDGES)})\b")


def docstrings(tree: ast.AST) -> set[ast.AST]:
    """Strings that stand alone as a statement: of modules, classes, functions and attributes."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def spelled(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    said = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            for found in EDGE_TYPE.findall(node.value):
                yield node.lineno, found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_edge_type_is_spelled_outside_the_schema(path: Path) -> None:
    assert list(spelled(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('x = "MATCH (a)-[:FOLLOWS]->(b)"', ["FOLLOWS"]),
        ('x = f"MATCH (a)-[:CAUSED_BY]->({b})"', ["CAUSED_BY"]),
        ('"""FOLLOWS."""\ndef f():\n    """CAUSED_BY."""\n', []),
        ('x = 1\n"""FOLLOWS of an attribute."""', []),
        ("FOLLOWS = row.type", []),
        ('x = "FOLLOWSHIP"', []),
    ],
)
def test_the_search_finds_what_it_looks_for(source: str, expected: list[str]) -> None:
    assert [found for _, found in spelled(source)] == expected


def test_every_node_row_has_a_constraint_and_its_indexes() -> None:
    text = "\n".join(schema_statements().values())
    for row in NODES.values():
        keys = ", ".join(f"n.{name}" for name in row.key)
        assert f"(n:{row.label}) REQUIRE ({keys}) IS UNIQUE" in text
        for columns in row.indexes:
            assert f"(n:{row.label}) ON ({', '.join(f'n.{name}' for name in columns)})" in text
    assert text.count("IF NOT EXISTS") == len(schema_statements())


@pytest.mark.parametrize("row", EDGES.values(), ids=lambda row: row.type)
def test_every_edge_row_is_written_removed_and_compared(row: object) -> None:
    from projections.schema import EdgeRow

    assert isinstance(row, EdgeRow)
    assert f":{row.type}" in cypher.merge_edges_text(row.type, row.stage)
    assert f":{row.type}" in cypher.remove_edges_text(row.type, row.stage)
    if row.stage == "projection":
        assert f":{row.type}]" in chains.STREAM_EVENTS
    assert {row.source, row.target} <= set(NODES)
    assert set(row.key) <= {p.name for p in row.properties}
    assert set(row.weights) == set(INTENTS)
    assert all(0 <= weight <= MAX_WEIGHT for weight in row.weights.values())


@pytest.mark.parametrize("label", NODES)
def test_every_node_row_is_read_or_written_somewhere(label: str) -> None:
    name = re.compile(rf"\b{label}\b|\b{re.sub('(?<=[a-z])(?=[A-Z])', '_', label).upper()}\b")
    assert [path for path in SOURCES if name.search(path.read_text("utf-8"))]


def test_names_and_keys_are_unique() -> None:
    for row in NODES.values():
        names = [*row.key, *(p.name for p in row.properties)]
        assert len(names) == len(set(names)), row.label
    assert {NODES[row.label] is row for row in NODES.values()} == {True}
    assert {EDGES[row.type] is row for row in EDGES.values()} == {True}


def test_the_chain_has_an_index_that_ends_with_the_tie_break() -> None:
    assert EVENT.indexes[0] == ("tenant", "session_id", "occurred_at", "event_id")


def test_the_page_shows_every_row_and_property() -> None:
    page = reference.PAGES["docs/reference/schema.md"]()
    for row in NODES.values():
        assert f"`{row.label}`" in page
    for edge in EDGES.values():
        assert f"`{edge.type}`" in page
        assert edge.prov in page
    for properties in [
        *(n.properties for n in NODES.values()),
        *(e.properties for e in EDGES.values()),
    ]:
        assert all(f"`{p.name}`" in page for p in properties)
    assert "docs/reference/schema.md" not in reference.stale_pages()
