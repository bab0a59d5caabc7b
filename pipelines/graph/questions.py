"""The questions of the graph's port as Cypher, made from schema rows. No driver, no socket.

Each text is made once for its label or type and properties, and then always the same, so that the
database plans it once; every value travels as a parameter. Answers are lists, not maps: names of
properties are not sent. What begins with `$rows` returns lists of the rows that its docstring
tells, however many records they come in. Every question starts at a unique key or at a named index.

The index is named, for a plan made while the graph was empty thinks that the key's index, searched
by tenant alone, is as good, and is kept while the graph grows. For the same reason ties are decided
by CASE: an OR is planned as the union of two searches, sorted, which reads all of a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pipelines.graph.patterns import (
    edges_of_pair,
    index_seek,
    key_pattern,
    node_by_key,
    node_with_key,
)
from pipelines.graph.rows import Counts, End
from projections.schema import (
    CHECKPOINT,
    CYPHER_25,
    EDGES,
    EVENT,
    NODES,
    PLACEHOLDER,
    EdgeRow,
    Kind,
    NodeRow,
    Property,
    vector_index,
)

Names = tuple[str, ...]


def comparable(property_: Property, value: str) -> str:
    """A stored value as operations carry it; a time that is none of ours is shown as text."""
    if property_.kind is Kind.TIME:
        return (
            f"CASE WHEN {value} IS NULL THEN NULL WHEN {value} IS :: ZONED DATETIME AND "
            f"{value}.nanosecond % 1000000 = 0 THEN {value}.epochMillis "
            f"ELSE 'not a time in milliseconds: ' + coalesce(toStringOrNull({value}), '?') END"
        )
    if property_.kind is Kind.TIMES:
        return (
            f"CASE WHEN {value} IS NULL THEN NULL WHEN {value} IS :: LIST<ZONED DATETIME NOT NULL> "
            f"THEN [t IN {value} | t.epochMillis] ELSE ['not times'] END"
        )
    return value


def _key(row: NodeRow, variable: str) -> list[str]:
    return [f"{variable}.{name}" for name in row.key]


def _node_values(row: NodeRow, variable: str, names: Iterable[str]) -> list[str]:
    stored = {p.name: p for p in row.stored()}
    return [
        comparable(stored[name], f"{variable}.{name}") if name in stored else f"{variable}.{name}"
        for name in names
    ]


def _edge_values(row: EdgeRow, variable: str, names: Iterable[str]) -> list[str]:
    stored = {p.name: p for p in row.properties}
    return [
        comparable(stored[name], f"{variable}.{name}") if name in stored else f"{variable}.{name}"
        for name in names
    ]


def _returned(columns: Iterable[str]) -> str:
    """One list a row; the driver hands out a list five times faster than a record of many."""
    return f"RETURN [{', '.join(columns)}]"


def _together(columns: Iterable[str]) -> str:
    """All rows of an answer as one list: a record of its own takes longer than what is in it."""
    return f"WITH [{', '.join(columns)}] AS row RETURN collect(row)"


def _node(row: NodeRow, names: Names) -> list[str]:
    """What is returned of a node: [key…, visible, bare, value…]."""
    bare = f"size(keys(n)) = {len(row.key)}"
    return [*_key(row, "n"), _visible(row), bare, *_node_values(row, "n", names)]


def _visible(row: NodeRow) -> str:
    return f"NOT n:{row.placeholder}" if row.placeholder else "true"


# -- nodes -----------------------------------------------------------------------------------------


@cache
def nodes_text(label: str, names: Names) -> str:
    """Rows of keys → [key…, visible, bare, value…]."""
    row = NODES[label]
    return f"UNWIND $rows AS k {node_by_key('n', row, 'k')} {_together(_node(row, names))}"


@cache
def lock_nodes_text(label: str, names: Names, *, make: bool) -> str:
    """The same, each locked before it is read; with `make` those that are missing are made.

    Whoever holds the lock has read what others wrote before.
    """
    row = NODES[label]
    matched = node_by_key("n", row, "k")
    if make:
        hidden = f" ON CREATE SET n:{row.placeholder}" if row.placeholder else ""
        matched = f"MERGE (n:{label} {{{key_pattern(row.key, 'k')}}}){hidden}"
    together = _together(_node(row, names))
    return f"UNWIND $rows AS k {matched} SET n.lock = true REMOVE n.lock {together}"


@cache
def find_text(label: str, by: Names, names: Names) -> str:
    """Rows [number, value…] → [number, key…, visible, bare, value…] of visible nodes.

    An index holds only the nodes that have all of its properties, and answers only when each of
    them is asked for, if only to exist.
    """
    row = NODES[label]
    index = next(columns for columns in row.indexes if columns[: len(by)] == by)
    stored = {p.name: p for p in row.stored()}
    tests = [
        f"n.{name} = {_parameter(stored[name], f'r[{1 + n}]')}" for n, name in enumerate(by)
    ] + [f"n.{name} IS NOT NULL" for name in index[len(by) :]]
    if row.placeholder:
        tests.append(f"NOT n:{row.placeholder}")
    return (
        f"UNWIND $rows AS r MATCH (n:{label}) {index_seek('n', row, index)} "
        f"WHERE {' AND '.join(tests)} {_together(['r[0]', *_node(row, names)])}"
    )


@cache
def scan_text(
    label: str,
    index: Names,
    names: Names,
    *,
    depth: int,
    least: Names = (),
    most: Names = (),
    after: int = 0,
    descending: bool = False,
) -> str:
    """Rows [number, value…] of the first properties of an index → [number, nodes] in its order.

    Nodes are as of `nodes_text`; `$lower` and `$upper` are bounds by name, `$place` is `after`.

    Args:
        label: of the nodes.
        index: the row's key, or one of its indexes.
        names: of properties to return.
        depth: how many values a row has.
        least: properties that have a lower bound.
        most: properties that have an upper bound.
        after: values of the place behind which nodes stand.
        descending: the largest first.
    """
    row = NODES[label]
    stored = {p.name: p for p in row.stored()}
    following = index[depth:]
    tests = [
        f"n.{name} = {_parameter(stored[name], f'r[{1 + n}]')}"
        for n, name in enumerate(index[:depth])
    ]
    tests += [f"n.{name} IS NOT NULL" for name in following]
    tests += [f"n.{name} >= {_parameter(stored[name], f'$lower.{name}')}" for name in least]
    tests += [f"n.{name} <= {_parameter(stored[name], f'$upper.{name}')}" for name in most]
    places = [(name, "<" if descending else ">") for name in following]
    places += [(name, ">") for name in row.key if name not in index]
    if after:
        tests += _behind([(stored[name], sign) for name, sign in places[:after]])
    order = [f"n.{name}{' DESC' if descending and name in following else ''}" for name, _ in places]
    ordered = [*(f"n.{name}{' DESC' if descending else ''}" for name in index[:depth]), *order]
    return (
        f"UNWIND $rows AS r RETURN [[r[0], COLLECT {{ MATCH (n:{label}) "
        f"{index_seek('n', row, index)} WHERE {' AND '.join(tests)} "
        f"WITH n ORDER BY {', '.join(ordered)} LIMIT $limit {_returned(_node(row, names))} }}]]"
    )


def _behind(places: Sequence[tuple[Property, str]]) -> list[str]:
    """Tests of a node that stands behind `$place`: by the first place that differs."""
    values = [_parameter(property_, f"$place[{n}]") for n, (property_, _) in enumerate(places)]
    compared = [
        (f"n.{property_.name}", sign, value)
        for (property_, sign), value in zip(places, values, strict=True)
    ]
    name, sign, value = compared[0]
    if len(compared) == 1:
        return [f"{name} {sign} {value}"]
    cases = " ".join(
        f"WHEN {name} <> {value} THEN {name} {sign} {value}" for name, sign, value in compared[:-1]
    )
    last, last_sign, last_value = compared[-1]
    return [f"{name} {sign}= {value}", f"CASE {cases} ELSE {last} {last_sign} {last_value} END"]


def _parameter(property_: Property, value: str) -> str:
    return f"datetime({{epochMillis: {value}}})" if property_.kind is Kind.TIME else value


# -- edges -----------------------------------------------------------------------------------------


def _edge(source: NodeRow, target: NodeRow, row: EdgeRow, names: Names) -> list[str]:
    return [*_key(source, "a"), *_key(target, "b"), *_edge_values(row, "e", names)]


@cache
def edges_text(type_: str, names: Names, by: End, label: str) -> str:
    """Rows of keys of ends → [end…, edges], each edge [source…, target…, value…].

    Of source and target the one that the end is, is left out, unless it may be either. A row for
    each edge would take five times as long to be made, sent and read.
    """
    row = EDGES[type_]
    near, far, (left, right) = _ends(type_, by, label)
    start = f"UNWIND $rows AS k {node_by_key('x', near, 'k')} MATCH (x)"
    ends, both = _key(far, "o"), ""
    if by is End.EITHER:
        both = "WITH x, e, startNode(e) AS a, endNode(e) AS b "
        ends = [*_key(near, "a"), *_key(far, "b")]
    edge = ", ".join([*ends, *_edge_values(row, "e", names)])
    return (
        f"{start}{left}[e:{type_}]{right}(o:{far.label}) {both}"
        f"WITH x, collect([{edge}]) AS edges {_together([*_key(near, 'x'), 'edges'])}"
    )


@cache
def between_text(type_: str, names: Names, label: str) -> str:
    """Rows [source…, target…] → [source…, target…, value…]."""
    row = EDGES[type_]
    source, target = NODES[row.source], NODES[label or row.target]
    return (
        f"UNWIND $rows AS k {node_by_key('a', source, 'k')} "
        f"{node_by_key('b', target, 'k', len(source.key))} "
        f"{edges_of_pair(type_, 'k')} {_together(_edge(source, target, row, names))}"
    )


@cache
def degrees_text(type_: str, by: End, label: str) -> str:
    """Rows of keys of ends → [end…, number of edges]."""
    near, _, (left, right) = _ends(type_, by, label)
    return (
        f"UNWIND $rows AS k {node_by_key('x', near, 'k')} "
        f"{_together([*_key(near, 'x'), f'COUNT {{ (x){left}[:{type_}]{right}() }}'])}"
    )


@cache
def across_text(type_: str, name: str, by: End, label: str) -> str:
    """Rows of keys of ends → [end…, values], each value once, `$most` of them."""
    near, far, (left, right) = _ends(type_, by, label)
    (value,) = _node_values(far, "o", [name])
    visible = f" AND NOT o:{far.placeholder}" if far.placeholder else ""
    values = (
        f"COLLECT {{ MATCH (x){left}[:{type_}]{right}(o:{far.label}) "
        f"WHERE o.{name} IS NOT NULL{visible} RETURN DISTINCT {value} LIMIT $most }}"
    )
    return (
        f"UNWIND $rows AS k {node_by_key('x', near, 'k')} {_together([*_key(near, 'x'), values])}"
    )


def _ends(type_: str, by: End, label: str) -> tuple[NodeRow, NodeRow, tuple[str, str]]:
    """Rows of the nodes at the end `by` and at the other, and how the edge is drawn between."""
    row = EDGES[type_]
    source, target = NODES[row.source], NODES[label or row.target]
    if by is End.TARGET:
        return target, source, ("<-", "-")
    return source, target, ("-", "-" if by is End.EITHER else "->")


# -- chains ----------------------------------------------------------------------------------------


@cache
def stretch_text(label: str, *, before: bool, within: bool, after: bool, having: str) -> str:
    """Rows [number, tenant, session, low ms, low id, high ms, high id, anyway] → [number, members].

    Each member is [ms, own id]; they are in no order.

    `$before`, `$within` and `$after` are how many there may be of each part.
    """
    tenant, session, time, own_id = columns = NODES[label].indexes[0]
    tests = [f"e.{tenant} = w[1]", f"e.{session} = w[2]", f"e.{own_id} IS NOT NULL"]
    if having:
        tests.append(f"CASE WHEN e.{having} IS NULL THEN e.{own_id} IN w[7] ELSE true END")
    low = f"CASE WHEN e.{time} = low THEN e.{own_id} {{}} w[4] ELSE true END"
    high = f"CASE WHEN e.{time} = high THEN e.{own_id} {{}} w[6] ELSE true END"
    order = ", ".join(f"e.{name}" for name in columns)
    order_back = ", ".join(f"e.{name} DESC" for name in columns)
    parts = (
        (before, (f"e.{time} <= low", low.format("<")), order_back, "$before"),
        (
            within,
            (f"low <= e.{time} <= high", low.format(">="), high.format("<=")),
            order,
            "$within",
        ),
        (after, (f"e.{time} >= high", high.format(">")), order, "$after"),
    )
    chain = f"MATCH (e:{label}) {index_seek('e', NODES[label], columns)}"
    searches = " UNION ALL ".join(
        f"{chain} WHERE {' AND '.join((*tests, *places))} RETURN e ORDER BY {ordered} LIMIT {most}"
        for wanted, places, ordered, most in parts
        if wanted
    )
    return (
        "UNWIND $rows AS w WITH w, datetime({epochMillis: w[3]}) AS low, "
        f"datetime({{epochMillis: w[5]}}) AS high CALL (w, low, high) {{ {searches} }} "
        f"WITH w[0] AS number, collect([e.{time}.epochMillis, e.{own_id}]) AS members "
        "RETURN [[number, members]]"
    )


# -- nearest ---------------------------------------------------------------------------------------


@cache
def nearest_text(label: str, names: Names, k: int, *, filtered: bool) -> str:
    """Rows [key…, vector] → [key…, near], near [score, key…, visible, bare, value…].

    The score is Neo4j's, (1 + cosine) / 2. The index of Neo4j 2026 computes it from the vectors as
    they were given (by measurement within 3e-7 of the cosine); reading those of all candidates to
    compute it again would double the cost of the question. 5.26 ranks by vectors that it has
    compressed, and does not say what it scores by, so there it is computed again.

    Args:
        label: with a vector index, and a key of (tenant, own id).
        names: of properties.
        k: neighbours of each, itself left out.
        filtered: the index searches within the tenant (Neo4j 2026); else more is asked for and
            other tenants' are left out afterwards (5.26).
    """
    row = NODES[label]
    tenant, own_id = row.key
    language = ""
    if filtered:
        language = CYPHER_25
        search = (
            f"MATCH (n:{label}) SEARCH n IN (VECTOR INDEX {vector_index(row)} FOR r[2] "
            f"WHERE n.{tenant} = r[0] LIMIT {k + 1}) SCORE AS found "
        )
        score = "found"
    else:
        search = (
            f"CALL db.index.vector.queryNodes('{vector_index(row)}', {10 * (k + 1)}, r[2]) "
            f"YIELD node AS n, score AS found WITH n, found, r WHERE n.{tenant} = r[0] "
            f"ORDER BY found DESC LIMIT {k + 1} "
        )
        score = f"vector.similarity.cosine(n.{row.vector}, r[2])"
    hidden = f" AND NOT n:{row.placeholder}" if row.placeholder else ""
    return (
        f"{language}UNWIND $rows AS r CALL (r) {{ {search}"
        f"WITH n, r, found WHERE n.{own_id} <> r[1]{hidden} "
        f"RETURN collect([{', '.join([score, *_node(row, names)])}]) AS near }} "
        "RETURN [[r[0], r[1], near]]"
    )


# -- streams ---------------------------------------------------------------------------------------


def _ordered(row: NodeRow, variable: str, *, one_tenant: bool) -> str:
    """All nodes of a label that have a key, in its order, which the key's index delivers."""
    tests = [f"{name} IS NOT NULL" for name in _key(row, variable)]
    index = f"USING INDEX {variable}:{row.label}({', '.join(row.key)})"
    if one_tenant:
        tests[0] = f"{variable}.tenant = $tenant"
        index = index_seek(variable, row)
    return f"MATCH ({variable}:{row.label}) {index} WHERE {' AND '.join(tests)}"


@cache
def stream_nodes_text(label: str, names: Names, *, one_tenant: bool = False) -> str:
    """Every node as [key…, visible, bare, value…], in the order of keys; of `$tenant`."""
    row = NODES[label]
    return (
        f"{_ordered(row, 'n', one_tenant=one_tenant)} WITH n ORDER BY {', '.join(_key(row, 'n'))} "
        f"{_returned(_node(row, names))}"
    )


@cache
def stream_edges_text(type_: str, names: Names, *, one_tenant: bool = False) -> str:
    """Every edge as [label of the target, source…, target…, value…], by source, then target.

    The source's index delivers the first half of the order, so that the rest is sorted node by
    node.
    """
    source = NODES[EDGES[type_].source]
    ends, end, columns = _edge_parts(EDGES[type_], names)
    return (
        f"{_ordered(source, 'a', one_tenant=one_tenant)} MATCH (a)-[e:{type_}]->(b) {ends} "
        f"WITH a, e, end ORDER BY {', '.join([*_key(source, 'a'), *end, 'end[0]'])} "
        f"{_returned(columns)}"
    )


def _edge_parts(row: EdgeRow, names: Names) -> tuple[str, list[str], list[str]]:
    """What finds `end` of (a)-[e]->(b), the parts of its key, and the columns of a stream."""
    end = [f"end[{1 + n}]" for n in range(len(NODES[row.target].key))]
    columns = ["end[0]", *_key(NODES[row.source], "a"), *end, *_edge_values(row, "e", names)]
    return f"WITH a, e, {_end_of(row)} AS end WHERE end IS NOT NULL", end, columns


def _end_of(row: EdgeRow) -> str:
    """Label and key of the node `b`; null where no edge of the row ends."""
    targets = [NODES[label] for label in (row.target, row.other_target) if label is not None]
    cases = " ".join(
        f"WHEN b:{target.label} THEN ['{target.label}', {', '.join(_key(target, 'b'))}]"
        for target in targets
    )
    return f"CASE {cases} END"


@cache
def held_nodes_text(label: str, types: Names = ()) -> str:
    """Every node as `stream_nodes_text` has it, with all that is stored, in no order, no index.

    A node's properties are read once: each by itself would walk through those before it.

    Args:
        label: of the nodes.
        types: of the edges that begin there and come along, in a list for each type:
            [[label of the target, key…], value…], without the first where it ends elsewhere.
    """
    row = NODES[label]
    names = tuple(p.name for p in row.stored())
    values = [*_key(row, "p"), _visible(row), "false", *_node_values(row, "p", names)]
    for type_ in types:
        edge_row = EDGES[type_]
        stored = _edge_values(edge_row, "e", [p.name for p in edge_row.properties])
        columns = ", ".join([_end_of(edge_row), *stored])
        values.append(f"[(n)-[e:{type_}]->(b) | [{columns}]]")
    return f"MATCH (n:{label}) WITH n, properties(n) AS p {_returned(values)}"


@cache
def held_edges_text(type_: str) -> str:
    """Every edge as `stream_edges_text` has it, with all that is stored, in no order, no index."""
    row = EDGES[type_]
    ends, _, columns = _edge_parts(row, tuple(p.name for p in row.properties))
    return f"MATCH (a:{row.source})-[e:{type_}]->(b) {ends} {_returned(columns)}"


# -- how much there is ----------------------------------------------------------------------------

_PLACEHOLDERS = {row.label: row.placeholder for row in NODES.values() if row.placeholder}


def _counts() -> str:
    """One count per label and type, each answered by Neo4j's count store without a scan."""
    patterns = [("node", label, f"(x:{label})") for label in (*NODES, *_PLACEHOLDERS.values())]
    patterns += [("edge", kind, f"()-[x:{kind}]->()") for kind in EDGES]
    patterns += [
        ("hidden", row.type, f"()-[x:{row.type}]->(:{PLACEHOLDER})")
        for row in EDGES.values()
        if row.target == EVENT.label
    ]
    counts = ", ".join(
        f"['{group}', '{name}', COUNT {{ MATCH {pattern} }}]" for group, name, pattern in patterns
    )
    return f"RETURN [{counts}] AS counted"


COUNTS = _counts()
"""How much there is of each kind: one row, for `counts_of`."""


def counts_of(rows: Iterable[Mapping[str, Any]]) -> Counts:
    """What `COUNTS` comes to."""
    (row,) = rows
    numbers = {(group, name): number for group, name, number in row["counted"]}
    hidden = numbers["node", PLACEHOLDER]
    nodes = {label: numbers["node", label] for label in NODES}
    for label, placeholder in _PLACEHOLDERS.items():
        nodes[label] -= numbers["node", placeholder]
    edges = {kind: numbers["edge", kind] - numbers.get(("hidden", kind), 0) for kind in EDGES}
    return Counts(nodes, edges, hidden)


# -- what kinds of things there are ----------------------------------------------------------------

LABELS = "CALL db.labels() YIELD label RETURN label"
TYPES = "CALL db.relationshipTypes() YIELD relationshipType RETURN relationshipType"
COUNT_UNLABELLED = "MATCH (n) WHERE size(labels(n)) = 0 RETURN count(n)"
NODE_PROPERTIES = (
    "MATCH (n) UNWIND labels(n) AS label UNWIND keys(n) AS name RETURN DISTINCT label, name"
)
EDGE_PROPERTIES = "MATCH ()-[e]->() UNWIND keys(e) AS name RETURN DISTINCT type(e), name"
ONLINE_INDEXES = (
    "SHOW INDEXES YIELD name, state, type, labelsOrTypes, properties "
    "WHERE state = 'ONLINE' AND type <> 'LOOKUP' RETURN name, labelsOrTypes, properties"
)
INDEXES_WITHOUT_CONSTRAINT = (
    "SHOW INDEXES YIELD name, owningConstraint WHERE owningConstraint IS NULL RETURN name"
)
CONSTRAINTS = "SHOW CONSTRAINTS YIELD name, ownedIndex RETURN name, ownedIndex"


def quoted(name: str) -> str:
    """A label or type that others chose, in a text."""
    return f"`{name.replace('`', '``')}`"


def count_nodes_text(label: str) -> str:
    """How many nodes bear a label; the store keeps the number."""
    return f"MATCH (n:{quoted(label)}) RETURN count(n)"


def count_edges_text(type_: str) -> str:
    """How many edges are of a type; the store keeps the number."""
    return f"MATCH ()-[e:{quoted(type_)}]->() RETURN count(e)"


def stray_nodes(row: NodeRow) -> str:
    """Pattern and test of nodes of a label that no key leads to."""
    return (
        f"MATCH (n:{row.label}) WHERE {' OR '.join(f'{name} IS NULL' for name in _key(row, 'n'))}"
    )


def stray_placeholders(row: NodeRow) -> str:
    """Pattern and test of nodes with the second label of a row whose first they do not bear."""
    return f"MATCH (n:{row.placeholder}) WHERE NOT n:{row.label}"


def stray_edges(row: EdgeRow) -> str:
    """Pattern and test of edges that do not lead from and to the labels that their row says."""
    ends = " OR ".join(f"b:{label}" for label in (row.target, row.other_target) if label)
    return f"MATCH (a)-[e:{row.type}]->(b) WHERE NOT a:{row.source} OR NOT ({ends})"


STRAYS: dict[str, str] = {
    **{row.label: f"{stray_nodes(row)} RETURN count(n)" for row in NODES.values()},
    **{
        row.placeholder: f"{stray_placeholders(row)} RETURN count(n)"
        for row in NODES.values()
        if row.placeholder
    },
    **{row.type: f"{stray_edges(row)} RETURN count(e)" for row in EDGES.values()},
}
"""By label or type, how many nodes and edges of it cannot be addressed as their row says."""

_OURS = " OR ".join(f"n:{label}" for label in NODES)


def remove_label_text(label: str) -> str:
    """Takes a label from nodes that bear one of ours too, and deletes the others that bear it."""
    name = quoted(label)
    return (
        f"MATCH (n:{name}) CALL (n) {{ WITH n WHERE {_OURS} REMOVE n:{name} }} "
        f"CALL (n) {{ WITH n WHERE NOT ({_OURS}) DETACH DELETE n }}"
    )


REMOVE_UNLABELLED = "MATCH (n) WHERE size(labels(n)) = 0 DETACH DELETE n"


def remove_type_text(type_: str) -> str:
    """Deletes all edges of a type."""
    return f"MATCH ()-[e:{quoted(type_)}]->() DELETE e"


def remove_strays_texts() -> list[str]:
    """Delete what cannot be addressed as its row says; other labels of a node keep it."""
    texts = []
    for row in NODES.values():
        others = " OR ".join(f"n:{label}" for label in NODES if label != row.label)
        texts.append(
            f"{stray_nodes(row)} CALL (n) {{ WITH n WHERE {others} REMOVE n:{row.label} }} "
            f"CALL (n) {{ WITH n WHERE NOT ({others}) DETACH DELETE n }}"
        )
        if row.placeholder:
            texts.append(f"{stray_placeholders(row)} REMOVE n:{row.placeholder}")
    texts += [f"{stray_edges(row)} DELETE e" for row in EDGES.values()]
    return texts


# A reader may meet a node in the midst of the commit that makes it, without all of its values.
READ_CHECKPOINTS = (
    "MATCH (c:Checkpoint) WHERE ($stage IS NULL OR c.stage = $stage) AND "
    "all(value IN [c.position, c.seq, c.digest, c.generation, c.fold_version] "
    "WHERE value IS NOT NULL) "
    "RETURN c.stage AS stage, c.partition AS partition, c.position AS position, c.seq AS seq, "
    "c.digest AS digest, c.generation AS generation, c.fold_version AS fold_version, "
    "coalesce(c.models, '') AS models ORDER BY stage, partition"
)
HOLD_CHECKPOINTS = (
    "UNWIND $partitions AS partition CALL (partition) { "
    f"{node_with_key('c', CHECKPOINT, 'stage: $stage, partition: partition')} "
    "SET c.lock = true REMOVE c.lock } IN TRANSACTIONS OF 1 ROW"
)
"""Waits until the commits that moved them are over: Neo4j shows the parts of a commit one by one, a
checkpoint some milliseconds before its index finds the nodes. Of one at a time, so that who waits
for one partition holds up no other. Changes nothing."""
