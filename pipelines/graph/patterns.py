"""Patterns of Cypher that questions, statements and reads have in common. No driver, no socket."""

from __future__ import annotations

from collections.abc import Sequence

from projections.schema import NodeRow


def key_pattern(names: Sequence[str], rows: str, first: int = 0) -> str:
    """The key of a node in a pattern, from consecutive places of a row."""
    return ", ".join(f"{name}: {rows}[{first + n}]" for n, name in enumerate(names))


def index_seek(variable: str, row: NodeRow, index: Sequence[str] = ()) -> str:
    """Cypher that has a node sought by an index, its key's by default.

    Its conditions must ask for every property of the index, if only that it exists.

    Else Neo4j may read all nodes of the label, which costs nothing by the statistics of one that
    has just grown from none and were last taken before, or begin at the other end of an edge: of an
    entity that half of the events mention, a thousand times as much. A plan that is made once is
    kept for good.
    """
    return f"USING INDEX SEEK {variable}:{row.label}({', '.join(index or row.key)})"


def node_with_key(variable: str, row: NodeRow, key: str) -> str:
    """Cypher for the node with a key, as the inside of a pattern's braces; see `index_seek`."""
    return f"MATCH ({variable}:{row.label} {{{key}}}) {index_seek(variable, row)}"


def node_by_key(variable: str, row: NodeRow, rows: str, first: int = 0) -> str:
    """Cypher for the node whose key stands in consecutive places of a row; see `index_seek`."""
    return node_with_key(variable, row, key_pattern(row.key, rows, first))


def edges_at(variable: str, type_: str, end: str, *, leaves: bool) -> str:
    """Cypher for the edges `r` that leave a node found before, or lead to it, and their other ends.

    A question of its own, behind which the other end is tested: tested in the pattern, as its key
    is told or sorted by, all nodes of its label may be read in that order, and each looked at for
    the one that was found.
    """
    edge = f"-[r:{type_}]->" if leaves else f"<-[r:{type_}]-"
    return f"CALL ({variable}) {{ MATCH ({variable}){edge}({end}) RETURN r, {end} }}"


def edges_of_pair(type_: str, row: str, where: str = "") -> str:
    """Cypher for the edges `e` of a type from `a` to `b`, both found before, of each `row`.

    A question of its own, for then the edges of the end that has fewer are read. Planned with the
    rest, those of one end would be, whichever has few by the statistics, and compared with the
    other end.
    """
    return f"CALL ({row}, a, b) {{ MATCH (a)-[e:{type_}]->(b){where} RETURN e }}"
