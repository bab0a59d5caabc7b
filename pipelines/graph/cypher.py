"""Operations and schema rows → Cypher text and parameters. No driver, no socket.

Every text is made from schema rows once and then always the same, so that the database plans it
once; every value travels as a parameter. Rows are lists, not maps: property names are not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from pipelines.graph.patterns import edges_of_pair, key_pattern, node_by_key, node_with_key
from projections.identity import Key
from projections.operation_rules import edge_values, node_values
from projections.operations import MergeEdge, Operations, SetEdge
from projections.schema import (
    CHANGE,
    CHECKPOINT,
    DEAD_LETTER,
    DECIDED_AT,
    EDGES,
    FEED,
    NODES,
    TENANT_TERM,
    EdgeRow,
    Kind,
    Merge,
    NodeRow,
    stored_names,
    tenant_term_text,
)

Rows = list[list[Any]]


class Statement(NamedTuple):
    """A text and its parameters."""

    text: str
    parameters: dict[str, Any]


def statements(operations: Operations, stage: str) -> list[Statement]:
    """The batch as statements, in the order in which they must run.

    Nodes with content and placeholders are touched by one statement in the order of their keys:
    that is the order in which locks are taken, the same in every worker.

    Raises:
        InvalidOperation: if another stage owns what the batch writes.
    """
    operations.require_stage(stage)
    return [
        *_remove_nodes(operations),
        *_merge_nodes(operations, stage),
        *_set_nodes(operations, stage),
        *_decide_nodes(operations),
        *_clear_edges(operations, stage),
        *_remove_edges(operations, stage),
        *_merge_edges(operations, stage),
        *_set_edges(operations, stage),
        *(
            statement
            for other in sorted(operations.others)
            for statement in statements(operations.others[other], other)
        ),
    ]


def _remove_nodes(operations: Operations) -> Iterator[Statement]:
    for label in sorted({key[0] for key in operations.remove_nodes}):
        rows = [list(op.key) for op in _sorted(operations.remove_nodes) if op.label == label]
        yield Statement(remove_nodes_text(label), {"rows": rows})


def _merge_nodes(operations: Operations, stage: str) -> Iterator[Statement]:
    merged, ensured = operations.merge_nodes, operations.ensure_nodes
    placeholders = {place for place in ensured if place not in merged}
    rows: dict[str, Rows] = {}
    for place in sorted([*merged, *placeholders]):
        label, key = place
        if place in merged:
            values = node_values(label, stage)(merged[place].values)
            row = [*key, *values, True]
        else:
            row = [*key, *(None,) * len(NODES[label].owned(stage)), False]
        rows.setdefault(label, []).append(row)
    waiting = {label for label, _ in placeholders}
    for label in rows:
        text = merge_nodes_text(label, stage, with_placeholders=label in waiting)
        yield Statement(text, {"rows": rows[label]})


def _set_nodes(operations: Operations, stage: str) -> Iterator[Statement]:
    for label in sorted({key[0] for key in operations.set_nodes}):
        in_order = node_values(label, stage)
        rows = [
            [*op.key, *in_order(op.values)]
            for op in _sorted(operations.set_nodes)
            if op.label == label
        ]
        yield Statement(set_nodes_text(label, stage), {"rows": rows})


def _decide_nodes(operations: Operations) -> Iterator[Statement]:
    for label, name in sorted({(key[0], key[2]) for key in operations.decide_nodes}):
        rows = [
            [*op.key, op.value, list(op.position)]
            for op in _sorted(operations.decide_nodes)
            if (op.label, op.name) == (label, name)
        ]
        yield Statement(decide_nodes_text(label, name), {"rows": rows})


def _clear_edges(operations: Operations, stage: str) -> Iterator[Statement]:
    for type_ in sorted({key[0] for key in operations.clear_edges}):
        rows = [list(op.source) for op in _sorted(operations.clear_edges) if op.type == type_]
        yield Statement(clear_edges_text(type_, stage), {"rows": rows})


def _remove_edges(operations: Operations, stage: str) -> Iterator[Statement]:
    kinds = {(op.type, op.label, bool(op.values)) for op in operations.remove_edges.values()}
    for type_, label, keyed in sorted(kinds):
        rows = [
            [*source, *target, *parallel]
            for of_type, source, target, parallel, of_label in sorted(operations.remove_edges)
            if (of_type, of_label, bool(parallel)) == (type_, label, keyed)
        ]
        text = remove_edges_text(type_, stage, keyed=keyed, label=label)
        yield Statement(text, {"rows": rows})


def _merge_edges(operations: Operations, stage: str) -> Iterator[Statement]:
    for (type_, label), rows in _edge_rows(operations.merge_edges, stage):
        yield Statement(merge_edges_text(type_, stage, label=label), {"rows": rows})


def _set_edges(operations: Operations, stage: str) -> Iterator[Statement]:
    for (type_, label), rows in _edge_rows(operations.set_edges, stage):
        yield Statement(set_edges_text(type_, stage, label=label), {"rows": rows})


def _edge_rows(
    group: Mapping[Key, MergeEdge] | Mapping[Key, SetEdge], stage: str
) -> list[tuple[tuple[str, str], Rows]]:
    """[source key…, target key…, value…] of each edge, by type and label, sorted."""
    rows: dict[tuple[str, str], Rows] = {}
    for place in sorted(group):
        type_, source, target, _, label = place
        values = edge_values(type_, stage)(group[place].values)
        rows.setdefault((type_, label), []).append([*source, *target, *values])
    return sorted(rows.items())


def _sorted(group: dict[Any, Any]) -> Iterable[Any]:
    return (group[key] for key in sorted(group))


def _assigned(kind: Kind, value: str) -> str:
    """A parameter as its stored type; times arrive as milliseconds since the epoch."""
    if kind is Kind.TIME:
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE datetime({{epochMillis: {value}}}) END"
    if kind is Kind.TIMES:
        times = f"[ms IN {value} | datetime({{epochMillis: ms}})]"
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE {times} END"
    return value


def _settings(row: NodeRow, stage: str, first: int) -> str:
    """SET items for the stage's properties, each merged as its row says.

    Those that compare with what is there stand behind `earlier`, which is computed under the lock.
    """
    items = []
    for n, p in enumerate(row.owned(stage)):
        new, old = _assigned(p.kind, f"row[{first + n}]"), f"n.{p.name}"
        if p.merge is Merge.EARLIEST:
            new = f"CASE WHEN earlier THEN {new} ELSE {old} END"
        elif p.merge is Merge.LATEST:
            new = (
                f"CASE WHEN {old} IS NULL OR {old}.epochMillis < row[{first + n}] "
                f"THEN {new} ELSE {old} END"
            )
        elif p.merge is Merge.KEPT:
            new = f"coalesce({old}, {new})"
        items.append(f"{old} = {new}")
    if any(p.name in row.fulltext for p in row.owned(stage)):
        items.append(f"n.{TENANT_TERM} = {tenant_term_text(_tenant(row))}")
    return ", ".join(items)


def _tenant(row: NodeRow) -> str:
    return f"row[{row.key.index('tenant')}]"


@cache
def merge_nodes_text(label: str, stage: str, *, with_placeholders: bool) -> str:
    """Rows [key…, value…, visible]: a row that is not visible only makes sure of the key."""
    row: NodeRow = NODES[label]
    first = len(row.key)
    owned = row.owned(stage)
    last = first + len(owned)
    merge = f"MERGE (n:{label} {{{key_pattern(row.key, 'row')}}})"
    if not owned:
        hidden = f" ON CREATE SET n:{row.placeholder}" if row.placeholder else ""
        return f"UNWIND $rows AS row {merge}{hidden}"
    settings = _settings(row, stage, first)
    if row.placeholder is None:
        return f"UNWIND $rows AS row {merge} SET {settings}"
    if row.earliest_by is not None:
        return _merge_earliest(row, stage, merge, settings)
    visible = f"{merge} SET {settings} REMOVE n:{row.placeholder}"
    if not with_placeholders:
        return f"UNWIND $rows AS row {visible}"
    # Two branches, so that only what stays a placeholder ever gets the label; still one pass in
    # the order of the keys, and MERGE takes the lock under which it finds nobody there.
    return (
        "UNWIND $rows AS row "
        f"FOREACH (_ IN CASE WHEN row[{last}] THEN [1] ELSE [] END | {visible}) "
        f"FOREACH (_ IN CASE WHEN row[{last}] THEN [] ELSE [1] END | "
        f"{merge} ON CREATE SET n:{row.placeholder})"
    )


def _merge_earliest(row: NodeRow, stage: str, merge: str, settings: str) -> str:
    """Several workers may write the same node: the lock comes first, then what is there is read."""
    if row.earliest_by is None:
        raise ValueError(row.label)
    place = {p.name: f"row[{len(row.key) + n}]" for n, p in enumerate(row.owned(stage))}
    time, text = row.earliest_by
    last = len(row.key) + len(place)
    earlier = (
        f"n.{time} IS NULL OR {place[time]} < n.{time}.epochMillis "
        f"OR ({place[time]} = n.{time}.epochMillis AND {place[text]} < n.{text})"
    )
    return (
        f"UNWIND $rows AS row {merge} ON CREATE SET n:{row.placeholder} "
        "SET n.lock = true REMOVE n.lock "
        f"WITH n, row, {earlier} AS earlier WHERE row[{last}] SET {settings} "
        f"REMOVE n:{row.placeholder}"
    )


@cache
def set_nodes_text(label: str, stage: str) -> str:
    """Rows [key…, value…]; a node that is not there, or only a placeholder, stays so."""
    row = NODES[label]
    hidden = f" WHERE NOT n:{row.placeholder}" if row.placeholder else ""
    return (
        f"UNWIND $rows AS row {node_by_key('n', row, 'row')}{hidden} "
        f"SET {_settings(row, stage, len(row.key))}"
    )


@cache
def decide_nodes_text(label: str, name: str) -> str:
    """Rows [key…, value, position as [ms, seq]]; the later position stays."""
    row = NODES[label]
    first, at = len(row.key), f"n.{name}{DECIDED_AT}"
    new = _assigned(row.property(name).kind, f"row[{first}]")
    later = f"CASE WHEN {at} IS NULL OR {at} < row[{first + 1}] THEN [1] ELSE [] END"
    created = f" ON CREATE SET n:{row.placeholder}" if row.placeholder else ""
    return (
        f"UNWIND $rows AS row MERGE (n:{label} {{{key_pattern(row.key, 'row')}}}){created} "
        f"SET n.lock = true REMOVE n.lock WITH n, row "
        f"FOREACH (_ IN {later} | SET n.{name} = {new}, {at} = row[{first + 1}])"
    )


@cache
def remove_nodes_text(label: str) -> str:
    """Rows [key…]."""
    return f"UNWIND $rows AS row {node_by_key('n', NODES[label], 'row')} DETACH DELETE n"


def _ends(row: EdgeRow, label: str = "") -> str:
    source, target = NODES[row.source], NODES[label or row.target]
    return (
        f"UNWIND $rows AS row {node_by_key('a', source, 'row')} "
        f"{node_by_key('b', target, 'row', len(source.key))}"
    )


def own_edges(row: EdgeRow, stage: str, variable: str) -> str:
    """Cypher that is true of the stage's edges of a type it shares, empty where it shares none.

    An edge whose shared property is nobody's counts as the owner's, so that it is noticed.
    """
    if row.shared_by is None:
        return ""
    name, values = row.shared_by
    if stage != row.stage:
        return f"{variable}.{name} = '{values[stage]}'"
    others = [f"'{value}'" for other, value in values.items() if other != stage]
    return f"NOT coalesce({variable}.{name}, '') IN [{', '.join(others)}]"


@cache
def merge_edges_text(type_: str, stage: str, *, label: str = "") -> str:
    """Rows [source key…, target key…, value…]; `label` of the target, if not the row's."""
    row = EDGES[type_]
    first = len(NODES[row.source].key) + len(NODES[label or row.target].key)
    carried = row.carried(stage)
    value = {p.name: _assigned(p.kind, f"row[{first + n}]") for n, p in enumerate(carried)}
    keyed = ", ".join(f"{name}: {value[name]}" for name in row.key)
    others = ", ".join(f"e.{p.name} = {value[p.name]}" for p in carried if p.name not in row.key)
    merge = f"{_ends(row, label)} MERGE (a)-[e:{type_}{f' {{{keyed}}}' if keyed else ''}]->(b)"
    if row.decided_by is not None:
        at = f"e.{row.decided_by}"
        later = f"{at} IS NULL OR {at} < {value[row.decided_by]}"
        return (
            f"{merge} SET e.lock = true REMOVE e.lock WITH e, row "
            f"FOREACH (_ IN CASE WHEN {later} THEN [1] ELSE [] END | SET {others})"
        )
    return f"{merge} SET {others}" if others else merge


@cache
def remove_edges_text(type_: str, stage: str, *, keyed: bool = False, label: str = "") -> str:
    """Rows [source key…, target key…], with `keyed` the values of the row's key behind them."""
    row = EDGES[type_]
    first = len(NODES[row.source].key) + len(NODES[label or row.target].key)
    carried = {p.name: p for p in row.properties}
    tests = [own_test] if (own_test := own_edges(row, stage, "e")) else []
    if keyed:
        tests += [
            f"e.{name} = {_assigned(carried[name].kind, f'row[{first + n}]')}"
            for n, name in enumerate(row.key)
        ]
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"{_ends(row, label)} {edges_of_pair(type_, 'row', where)} DELETE e"


@cache
def set_edges_text(type_: str, stage: str, *, label: str = "") -> str:
    """Rows [source key…, target key…, value…]; `label` of the target, if not the row's."""
    row = EDGES[type_]
    first = len(NODES[row.source].key) + len(NODES[label or row.target].key)
    values = {
        p.name: _assigned(p.kind, f"row[{first + n}]") for n, p in enumerate(row.carried(stage))
    }
    named = " AND ".join(f"e.{name} = {values[name]}" for name in row.key)
    others = ", ".join(f"e.{name} = {values[name]}" for name in values if name not in row.key)
    where = f" WHERE {named}" if named else ""
    return f"{_ends(row, label)} {edges_of_pair(type_, 'row', where)} SET {others}"


@cache
def clear_edges_text(type_: str, stage: str) -> str:
    """Rows [source key…]."""
    row = EDGES[type_]
    own_test = own_edges(row, stage, "e")
    return (
        f"UNWIND $rows AS row {node_by_key('a', NODES[row.source], 'row')} "
        f"MATCH (a)-[e:{type_}]->(){f' WHERE {own_test}' if own_test else ''} DELETE e"
    )


# -- repair ----------------------------------------------------------------------------------------


@cache
def restore_nodes_text(label: str, *, visible: bool) -> str:
    """Rows [value of each of `NodeRow.stored()`…]; the key comes first."""
    row = NODES[label]
    values = {p.name: _assigned(p.kind, f"row[{n}]") for n, p in enumerate(row.stored())}
    given = ", ".join(f"{name}: {value}" for name, value in values.items())
    merge = f"MERGE (n:{label} {{{key_pattern(row.key, 'row')}}})"
    text = f"UNWIND $rows AS row {merge} SET n = {{{given}}}"
    if row.placeholder is None:
        return text
    return f"{text} {'REMOVE' if visible else 'SET'} n:{row.placeholder}"


@cache
def restore_values_text(label: str, names: tuple[str, ...]) -> str:
    """Rows [key…, value of each name…]; of a node that is not there nothing is made."""
    row = NODES[label]
    kinds = {p.name: p.kind for p in row.stored()}
    values = {
        name: _assigned(kinds[name], f"row[{n}]") for n, name in enumerate(names, len(row.key))
    }
    given = ", ".join(f"n.{name} = {value}" for name, value in values.items())
    return f"UNWIND $rows AS row {node_by_key('n', row, 'row')} SET {given}"


@cache
def clear_pairs_text(type_: str, label: str = "") -> str:
    """Rows [source key…, target key…]: deletes all edges of the type, whoever made them."""
    return f"{_ends(EDGES[type_], label)} {edges_of_pair(type_, 'row')} DELETE e"


@cache
def restore_edges_text(type_: str, label: str = "") -> str:
    """Rows [source key…, target key…, value of each property…]: one more edge for each."""
    row = EDGES[type_]
    first = len(NODES[row.source].key) + len(NODES[label or row.target].key)
    given = ", ".join(
        f"{p.name}: {_assigned(p.kind, f'row[{first + n}]')}" for n, p in enumerate(row.properties)
    )
    return f"{_ends(row, label)} CREATE (a)-[e:{type_}]->(b) SET e = {{{given}}}"


# -- the schema ------------------------------------------------------------------------------------

HOLD_SCHEMA = "CREATE INDEX schema_being_created FOR (n:SchemaBeingCreated) ON (n.held)"
"""Waits for whoever has run it in a transaction that is still open; never committed."""


def drop_index_text(name: str) -> str:
    """Drop an index, by its name in the schema."""
    return f"DROP INDEX {name} IF EXISTS"


def name_statements() -> list[Statement]:
    """Tell the database every label, type and property that a graph may come to have.

    What was planned while one of its names was unknown is planned again when the first node or
    edge with it is there, even what is planned once: as a graph began, questions of seconds.
    """
    labels, types, properties = stored_names()
    procedures = {
        "db.createLabel": labels,
        "db.createRelationshipType": types,
        "db.createProperty": [*properties, "lock"],
    }
    return [
        Statement(f"UNWIND $names AS name CALL {procedure}(name) RETURN count(*)", {"names": names})
        for procedure, names in procedures.items()
    ]


# -- checkpoints, and all of a graph ---------------------------------------------------------------

# Neo4j is read-committed: a test before the lock does not fence, two transactions would both pass
# it. SET takes the lock first, WITH puts the test behind it.
_OF_PARTITION = "stage: $stage, partition: $partition"
_LOCK = f"{node_with_key('c', CHECKPOINT, _OF_PARTITION)} SET c.lock = true WITH c "
ADVANCE = (
    f"{_LOCK}WHERE c.generation = $generation AND c.position = $position "
    "AND c.fold_version = $fold_version "
    "SET c.position = $to_position, c.seq = $to_seq, c.digest = $to_digest REMOVE c.lock "
    "RETURN COUNT { (:Forgotten) } AS forgotten, COUNT { (:DeadLetter) } AS dead_letters"
)
LOCK = (
    f"{_LOCK}REMOVE c.lock RETURN c.position AS position, c.seq AS seq, c.digest AS digest, "
    "c.generation AS generation, c.fold_version AS fold_version, "
    "coalesce(c.models, '') AS models, "
    "COUNT { (:Forgotten) } AS forgotten, COUNT { (:DeadLetter) } AS dead_letters"
)
CREATE_CHECKPOINTS = (
    "UNWIND $partitions AS partition MERGE (c:Checkpoint {stage: $stage, partition: partition}) "
    "ON CREATE SET c.position = $position, c.seq = 0, c.digest = '', c.generation = 1, "
    "c.fold_version = $fold_version, c.models = $models"
)
RESET_CHECKPOINT = (
    f"{_LOCK}SET c.position = $position, c.seq = $seq, c.digest = $digest, "
    "c.generation = c.generation + 1, c.fold_version = $fold_version, c.models = $models "
    "REMOVE c.lock "
    "RETURN c.generation AS generation"
)

STORE_ID = "CALL db.info() YIELD id RETURN id"
CLEAR = (
    f"MATCH (n) WHERE {' OR '.join(f'n:{label}' for label in (*NODES, CHANGE.label))} "
    "CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 5000 ROWS"
)
"""Deletes what Recollect wrote, and nothing else; runs outside a transaction."""
_FOLDED = (row.label for row in (*NODES.values(), CHANGE) if row is not CHECKPOINT)
CLEAR_MEMORY = (
    f"MATCH (n) WHERE {' OR '.join(f'n:{label}' for label in _FOLDED)} "
    "CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 5000 ROWS"
)
"""The same without the checkpoints, which whoever empties the graph holds meanwhile."""
CREATE_DEAD_LETTER = (
    "MERGE (d:DeadLetter {stage: $stage, partition: $partition, seq: $seq}) "
    "SET d.position = $position, d.tenant = $tenant, d.event_id = $event_id, d.kind = $kind, "
    "d.reason = $reason, d.attempts = $attempts"
)
DELETE_DEAD_LETTERS = (
    f"UNWIND $seqs AS seq {node_with_key('d', DEAD_LETTER, f'{_OF_PARTITION}, seq: seq')} DELETE d"
)
DELETE_LATER_DEAD_LETTERS = (
    f"{node_with_key('d', DEAD_LETTER, _OF_PARTITION)} WHERE d.seq > $seq DELETE d"
)

# -- the change feed -------------------------------------------------------------------------------

_FEED_ITSELF = "name: 'identity'"
_IDENTITY = node_with_key("i", FEED, _FEED_ITSELF)
"""No transaction that folds locks it."""
_CHAIN = f"(f:{FEED.label} {{name: $chain}})"
_CHAINS = f"(f:{FEED.label}) USING INDEX f:{FEED.label}(name) WHERE f.name IS NOT NULL"
_CHANGES = f"(c:{CHANGE.label}) USING INDEX SEEK c:{CHANGE.label}(chain, number)"
_AT_ONCE = 20
"""Old changes that a transaction deletes at most: one comes, so a few small ones may go."""
TELL = (
    f"MERGE {_CHAIN} ON CREATE SET f.number = 0, f.bytes = 0 "
    "SET f.lock = true REMOVE f.lock WITH f "
    "SET f.number = f.number + 1, f.bytes = f.bytes + $size "
    f"CREATE (:{CHANGE.label} "
    "{chain: $chain, number: f.number, payload: $payload, bytes: f.bytes}) "
    "WITH f.number AS number, f.bytes AS bytes "
    f"CALL (number, bytes) {{ MATCH {_CHANGES} WHERE c.chain = $chain AND c.number < number "
    f"WITH c, number, bytes ORDER BY c.chain, c.number LIMIT {_AT_ONCE} "
    "WHERE c.number <= number - $kept OR c.bytes <= bytes - $most DELETE c }"
)
"""Numbers a change in its chain; the last statement of a transaction, for it holds the counter's
lock. As with checkpoints the lock comes first, so numbers have no gaps and rise in the order of the
commits."""
HOLD_CHAINS = (
    f"UNWIND $chains AS chain CALL (chain) {{ {node_with_key('f', FEED, 'name: chain')} "
    "SET f.lock = true REMOVE f.lock } IN TRANSACTIONS OF 1 ROW"
)
"""Waits until the commits of the newest changes are over; of one at a time, so that who waits for
one chain holds up no other. Changes nothing."""
HOLD = (
    f"UNWIND $names AS name MERGE (h:{FEED.label} {{name: 'hold/' + name}}) "
    "SET h.lock = true REMOVE h.lock"
)
"""Waits for whoever holds a name; its node, beside the chains, has no number and stays."""
CLOSE_FEED = f"{_IDENTITY} REMOVE i.identity"
ENSURE_FEED = (
    f"MERGE (i:{FEED.label} {{{_FEED_ITSELF}}}) SET i.identity = coalesce(i.identity, randomUUID())"
)
RENEW_FEED = f"MERGE (i:{FEED.label} {{{_FEED_ITSELF}}}) SET i.identity = randomUUID()"
READ_FEED = (
    f"{_IDENTITY} WHERE i.identity IS NOT NULL WITH i.identity AS identity "
    f"OPTIONAL MATCH {_CHAINS} AND f.number IS NOT NULL "
    "RETURN identity, collect([f.name, f.number]) AS chains"
)
READ_CHANGES = (
    f"{_IDENTITY} WHERE i.identity IS NOT NULL WITH i.identity AS identity "
    f"OPTIONAL MATCH {_CHAINS} AND f.number IS NOT NULL "
    "WITH identity, f.name AS chain, $numbers[f.name] AS after, f.number AS newest "
    "WITH identity, count(after) AS known, collect(CASE WHEN newest <> coalesce(after, 0) "
    "THEN [chain, coalesce(after, 0), newest] END) AS moved "
    "CALL (moved) { UNWIND moved AS at "
    f"MATCH {_CHANGES} WHERE c.chain = at[0] AND c.number > at[1] AND c.number <= at[2] "
    "AND c.number <= at[1] + $most "
    "WITH c, c.number - at[1] AS place ORDER BY place, c.chain LIMIT $most "
    "RETURN collect([c.chain, c.number, c.payload]) AS changes } "
    "RETURN identity, known, [at IN moved | [at[0], at[2]]] AS newest, changes"
)
"""The newest numbers are read before the changes: all before them are committed by then. Of many
chains each has its turn."""

# Reading a graph to compare it with the ledger


READ_DEAD_LETTERS = (
    "MATCH (d:DeadLetter) WHERE ($stage IS NULL OR d.stage = $stage) "
    "AND ($partition IS NULL OR d.partition = $partition) "
    "RETURN d.stage AS stage, d.partition AS partition, d.seq AS seq, d.position AS position, "
    "d.tenant AS tenant, d.event_id AS event_id, d.kind AS kind, d.reason AS reason, "
    "d.attempts AS attempts ORDER BY stage, partition, seq"
)
