"""What retrieval asks the graph: channels that find seeds, steps of a walk, nodes, edges.

Every question has the tenant in the key of its patterns, goes by a key or an index, and is bounded
before it sorts. Events and facts of other users than the one in scope are never seen; those of
nobody are everybody's. Texts are made from `projections.schema` once; values are parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from enrichment.facts import VALUE
from pipelines.adapters.fact_reads import FACT_HOLDS, FACT_IS_SHARED_OR_OWN
from pipelines.adapters.fulltext import found_text, lucene_query
from pipelines.adapters.graph_reader import (
    DEFAULT_IMPORTANCE,
    GraphEdge,
    GraphNode,
    GraphRead,
    node_columns,
    plain_properties,
)
from pipelines.adapters.known_then import followed_then, known, until_parameter
from projections.positions import Position
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    EDGES,
    ENTITY,
    EVENT,
    FOLLOWS,
    MEMBER_OF,
    NODES,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
    EdgeRow,
    NodeRow,
    vector_index,
)

CONTEXT_EVENTS: Final = 50
"""The last events of a session among which the most important are looked for."""
MAX_SCANNED: Final = 400
"""Edges of one type at one node that are looked at: a hub costs no more than that."""
DEFAULT_CAP: Final = 10
"""Edges of one type at one node that are followed, where the schema says nothing."""
NEIGHBOUR_STEPS: Final = 3
"""Events before and after a hit that are candidates too: an answer stands beside its question."""
OVER_FETCH: Final = 2
"""Hits that an index is asked for, for one that is kept: it does not know whose they are."""
TEXT_CHARACTERS: Final = 1_000
"""Of an event's text that are compared with the query."""

RETRIEVED: Final = (EVENT, ENTITY, SUMMARY, COMMUNITY)
"""Labels that an answer may hold."""
_PREFIXES: Final = {row.label: f"{row.label.lower()}:" for row in RETRIEVED if row is not EVENT}


class Scope(NamedTuple):
    """Whose memory is read, and as of when.

    Attributes:
        user_id: events and facts of this user or of nobody; None: of nobody.
        now_ms: the clock, for facts that hold or not.
        until: events behind this position are not seen.
    """

    tenant: str
    user_id: str | None
    now_ms: int
    until: Position | None = None

    def parameters(self) -> dict[str, Any]:
        """As the questions take them."""
        return {
            "tenant": self.tenant,
            "user_id": self.user_id,
            "now": self.now_ms,
            "until": None if self.until is None else until_parameter(self.until),
        }


class Hit(NamedTuple):
    """An event that a channel found; `score` as of the channel, higher is better."""

    event_id: str
    score: float


class SessionEvent(NamedTuple):
    """One of the last events of a session."""

    event_id: str
    occurred_at_ms: int
    importance: int
    user_id: str | None
    agent_id: str


class CandidateRow(NamedTuple):
    """What ranking needs to know of an event.

    Attributes:
        importance: 1 to 10, or more with its boost.
        text: its beginning; empty when it has none.
        cosine: plain, with the query's vector; None: one of them has none.
        previous_id: of the event before it in the session.
    """

    event_id: str
    occurred_at_ms: int
    session_id: str
    agent_id: str
    speaker: str | None
    tool_name: str | None
    importance: float
    access_count: int
    accessed_at_ms: int
    text: str
    cosine: float | None
    previous_id: str | None


class StepEdge(NamedTuple):
    """An edge met on a walk, between wire ids; `source` and `target` as in the graph.

    Attributes:
        view: the edge type of a fact (semantic, temporal …); empty for all others.
        properties: those that tell its quality.
        reached: the end that it leads to.
        closed: that is not walked on from.
        at_ms: since when it is so, where that is known.
    """

    type: str
    source: str
    target: str
    view: str
    properties: Mapping[str, Any]
    reached: str
    closed: bool
    at_ms: int | None


def wire_id(label: str, own_id: str) -> str:
    """An id as clients see it."""
    return _PREFIXES.get(label, "") + own_id


def label_and_id(node_id: str) -> tuple[str, str]:
    """What a wire id means."""
    for label, prefix in _PREFIXES.items():
        if node_id.startswith(prefix):
            return label, node_id[len(prefix) :]
    return EVENT.label, node_id


def ids_by_label(node_ids: Iterable[str]) -> dict[str, list[str]]:
    """Own ids of each label that can be retrieved, in order."""
    found: dict[str, list[str]] = {row.label: [] for row in RETRIEVED}
    for node_id in node_ids:
        label, own_id = label_and_id(node_id)
        found[label].append(own_id)
    return found


def visible(row: NodeRow, variable: str) -> str:
    """Cypher that is true of a node that a reader in scope may see."""
    tests = [f"NOT {variable}:{row.placeholder}"]
    if row is EVENT:
        tests += [
            f"CASE WHEN {variable}.user_id IS NULL THEN true "
            f"ELSE coalesce({variable}.user_id = $user_id, false) END",
            f"CASE WHEN $until IS NULL THEN true ELSE {known(variable)} END",
        ]
    if any(prop.name == "gone" for prop in row.properties):
        tests.append(f"NOT coalesce({variable}.gone, false)")
    return " AND ".join(tests)


SHOWN = visible(EVENT, "e")
IMPORTANCE = "toInteger(coalesce(e.importance_score, e.importance_hint, $default_importance))"
_EXACT = f"2 * vector.similarity.cosine(e.{EVENT.vector}, $vector) - 1"

TEXT_HITS: Final = f"""
{found_text(EVENT, "e")} AND {SHOWN}
WITH e.event_id AS event_id, score ORDER BY score DESC, event_id LIMIT $kept
RETURN collect([event_id, score]) AS rows
"""
VECTOR_HITS: Final = {
    True: f"""CYPHER 25
MATCH (e:{EVENT.label}) SEARCH e IN (VECTOR INDEX {vector_index(EVENT)} FOR $vector
WHERE e.tenant = $tenant LIMIT $most) SCORE AS found
WHERE {SHOWN}
WITH e.event_id AS event_id, 2 * found - 1 AS score ORDER BY score DESC, event_id LIMIT $kept
RETURN collect([event_id, score]) AS rows
""",
    False: f"""
CALL db.index.vector.queryNodes('{vector_index(EVENT)}', 10 * $most, $vector)
YIELD node AS e, score AS found
WHERE e.tenant = $tenant AND {SHOWN}
WITH e.event_id AS event_id, 2 * found - 1 AS score ORDER BY score DESC, event_id LIMIT $kept
RETURN collect([event_id, score]) AS rows
""",
}
"""By whether the index searches within the tenant (Neo4j 2026) or not (5.26)."""
_SESSION = f"""
MATCH (e:{EVENT.label})
USING INDEX e:{EVENT.label}({", ".join(EVENT.indexes[0])})
WHERE e.tenant = $tenant AND e.session_id = $session_id
  AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL
"""
_SESSION_COLUMNS = f"""
RETURN collect([e.event_id, e.occurred_at.epochMillis, {IMPORTANCE}, e.user_id, e.agent_id]) AS rows
"""
SESSION_EVENTS: Final = f"""
{_SESSION}
WITH e ORDER BY {", ".join(f"e.{name} DESC" for name in EVENT.indexes[0])} LIMIT {CONTEXT_EVENTS}
{_SESSION_COLUMNS}
"""
_NAMED_AGENTS = f"""
UNWIND $names AS name
MATCH (n:{ENTITY.label} {{tenant: $tenant, canonical_name: name}})
WHERE {visible(ENTITY, "n")} AND n.entity_type IN ['agent', 'user'] AND EXISTS {{
  MATCH (n)<-[r:{REFERENCES.type}]-(:{EVENT.label} {{tenant: $tenant}})
  WITH r LIMIT {MAX_SCANNED} WHERE r.role = 'subject' RETURN r
}}
RETURN collect(DISTINCT n.canonical_name) AS names
"""
CONTEXT: Final = f"CALL () {{{SESSION_EVENTS}}} CALL (rows) {{{_NAMED_AGENTS}}} RETURN rows, names"
"""The last events of a session, and those of the names under which somebody speaks or acts.

A code that a text calls a customer's is a user's name too, but nobody's who says anything.
"""
CANDIDATES: Final = f"""
CALL () {{
  UNWIND $around AS id
  MATCH (n:{EVENT.label} {{tenant: $tenant, event_id: id}})
  MATCH (n)-[:{FOLLOWS.type}*0..{NEIGHBOUR_STEPS}]-(e:{EVENT.label} {{tenant: $tenant}})
  RETURN e
  UNION
  UNWIND $ids AS id
  MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
  RETURN e
}}
WITH e WHERE {SHOWN}
RETURN collect([
  e.event_id, e.occurred_at.epochMillis, e.session_id, e.agent_id, e.speaker, e.tool_name,
  {IMPORTANCE} + coalesce(e.importance_boost, 0), coalesce(e.access_count, 0),
  coalesce(e.last_accessed_at.epochMillis, 0), left(coalesce(e.text, ''), {TEXT_CHARACTERS}),
  CASE WHEN $vector IS NULL THEN NULL ELSE coalesce($cosines[e.event_id], {_EXACT}) END,
  head([(e)<-[:{FOLLOWS.type}]-(b) | b.event_id])
]) AS rows
"""
VECTORS: Final = f"""
UNWIND $ids AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE e.{EVENT.vector} IS NOT NULL
RETURN collect([e.event_id, e.{EVENT.vector}]) AS rows
"""


class _Branch(NamedTuple):
    """Edges of one type at a node of one label, towards one label."""

    row: EdgeRow
    left: str
    right: str
    to: NodeRow
    order: str


_NEWEST = "m.occurred_at DESC, m.event_id"
_BRANCHES: Final[Mapping[str, tuple[_Branch, ...]]] = {
    EVENT.label: (
        _Branch(FOLLOWS, "-", "-", EVENT, "r.delta_ms, m.event_id"),
        _Branch(CAUSED_BY, "-", "-", EVENT, f"coalesce(r.confidence, 1.0) DESC, {_NEWEST}"),
        _Branch(SIMILAR_TO, "-", "-", EVENT, "r.score DESC, m.event_id"),
        _Branch(REFERENCES, "-", "->", ENTITY, "m.entity_id"),
        _Branch(SUMMARIZES, "<-", "-", SUMMARY, "m.level, m.summary_id"),
    ),
    ENTITY.label: (
        _Branch(REFERENCES, "<-", "-", EVENT, _NEWEST),
        _Branch(RELATES_TO, "-", "-", ENTITY, "r.confidence DESC, r.valid_from DESC, m.entity_id"),
        _Branch(SAME_AS, "-", "-", ENTITY, "m.entity_id"),
        _Branch(MEMBER_OF, "-", "->", COMMUNITY, "m.community_id"),
    ),
    SUMMARY.label: (
        _Branch(SUMMARIZES, "-", "->", EVENT, f"m.importance_score DESC, {_NEWEST}"),
        _Branch(SUMMARIZES, "-", "-", SUMMARY, "m.level DESC, m.summary_id"),
    ),
    COMMUNITY.label: (_Branch(MEMBER_OF, "<-", "-", ENTITY, "m.entity_id"),),
}
_EDGE_VISIBLE: Final = {
    RELATES_TO.type: f"{FACT_HOLDS} AND {FACT_IS_SHARED_OR_OWN}",
    SAME_AS.type: "NOT coalesce(r.retracted, false)",
}
_QUALITIES: Final = ("confidence", "score", "delta_ms")
_NONE: Final = [None] * len(_QUALITIES)
_UNSAID: Final[Mapping[str, Any]] = {}


def _quality(row: EdgeRow) -> str:
    known = {prop.name for prop in row.properties}
    return "[" + ", ".join(f"r.{n}" if n in known else "null" for n in _QUALITIES) + "]"


def _branch_text(branch: _Branch) -> str:
    row, to = branch.row, branch.to
    tests = [visible(to, "m")]
    if row.type in _EDGE_VISIBLE:
        tests.append(_EDGE_VISIBLE[row.type])
    own = to.key[1]
    # A literal ("dark mode") is everybody's, so no path leads through it.
    closed = f"coalesce(m.subtype = '{VALUE}', false)" if to is ENTITY else "false"
    view = "r.edge_type" if row is RELATES_TO else "''"
    at = "r.valid_from.epochMillis" if row is RELATES_TO else "null"
    if to is EVENT:
        at = "m.occurred_at.epochMillis"
    return f"""
    MATCH (n){branch.left}[r:{row.type}]{branch.right}(m:{to.label} {{tenant: $tenant}})
    WITH n, r, m LIMIT {MAX_SCANNED}
    WITH n, r, m WHERE {" AND ".join(tests)}
    WITH n, r, m ORDER BY {branch.order} LIMIT {row.cap_per_node or DEFAULT_CAP}
    RETURN [type(r), startNode(r) = n, '{_PREFIXES.get(to.label, "")}' + m.{own}, {view},
            {_quality(row)}, {closed}, {at}] AS edge"""


def _steps_text(row: NodeRow) -> str:
    own = row.key[1]
    branches = "\n    UNION ALL".join(map(_branch_text, _BRANCHES[row.label]))
    return f"""
  UNWIND ${row.label.lower()}_ids AS id
  MATCH (n:{row.label} {{tenant: $tenant, {own}: id}})
  WHERE {visible(row, "n")}
  CALL (n) {{{branches}
  }}
  RETURN '{_PREFIXES.get(row.label, "")}' + id AS node_id, edge"""


STEPS: Final = (
    "CALL () {" + "\n  UNION ALL".join(_steps_text(row) for row in RETRIEVED) + "\n}\n"
    "RETURN collect([node_id, edge]) AS rows"
)
"""One level of a walk, for all nodes of the frontier at once."""


def _nodes_text(row: NodeRow) -> str:
    return f"""
  UNWIND ${row.label.lower()}_ids AS id
  MATCH (n:{row.label} {{tenant: $tenant, {row.key[1]}: id}})
  WHERE {visible(row, "n")}
  RETURN '{row.label}' AS label, {node_columns("n", row)} AS node"""


NODES_OF: Final = (
    "CALL () {" + "\n  UNION ALL".join(map(_nodes_text, RETRIEVED)) + "\n}\n"
    "RETURN collect([label, node]) AS rows"
)
"""Nodes of all kinds with what a reader may see of them."""


def _ends() -> Iterable[tuple[tuple[EdgeRow, ...], NodeRow, NodeRow]]:
    """Edge types by the labels of their ends."""
    pairs: dict[tuple[str, str], list[EdgeRow]] = {}
    for row in EDGES.values():
        for target in filter(None, (row.target, row.other_target)):
            pairs.setdefault((row.source, target), []).append(row)
    for (source, target), rows in pairs.items():
        yield tuple(rows), NODES[source], NODES[target]


def _between_text(rows: Sequence[EdgeRow], source: NodeRow, target: NodeRow) -> str:
    """Edges from one label to another, followed from their source.

    The other end is looked up in a map, which no index answers: were it sought by its key, each
    node of one end would be tried with each of the other.
    """
    types = "|".join(row.type for row in rows)
    tests = [
        f"CASE WHEN type(r) = '{row.type}' THEN {_EDGE_VISIBLE[row.type]} ELSE true END"
        for row in rows
        if row.type in _EDGE_VISIBLE
    ]
    where = "".join(f" AND {test}" for test in tests)
    a, b = source.key[1], target.key[1]
    return f"""
  UNWIND ${source.label.lower()}_ids AS id
  MATCH (a:{source.label} {{tenant: $tenant, {a}: id}})
  MATCH (a)-[r:{types}]->(b)
  WHERE b:{target.label} AND b.tenant = $tenant
    AND $among['{_PREFIXES.get(target.label, "")}' + b.{b}]{where}
  RETURN type(r) AS type, '{_PREFIXES.get(source.label, "")}' + id AS source,
         '{_PREFIXES.get(target.label, "")}' + b.{b} AS target, properties(r) AS properties"""


EDGES_BETWEEN: Final = (
    "CALL () {" + "\n  UNION ALL".join(_between_text(*one) for one in _ends()) + "\n}\n"
    "WITH type, source, target, properties ORDER BY type, source, target\n"
    "RETURN collect([type, source, target, properties]) AS rows"
)


def _by_label(node_ids: Iterable[str]) -> dict[str, list[str]]:
    return {f"{label.lower()}_ids": ids for label, ids in ids_by_label(node_ids).items()}


def _rows(graph: GraphRead, text: str, **parameters: Any) -> list[Any]:
    """All rows of a question in one record: a record costs the driver as much as a hundred rows."""
    (record,) = graph.rows(text, **parameters)
    return list(record["rows"])


def text_hits(graph: GraphRead, scope: Scope, words: Sequence[str], kept: int) -> list[Hit]:
    """Events whose text holds the words, the best first.

    Args:
        graph: the transaction.
        scope: whose memory.
        words: stems count as equal, phrases are words in one string.
        kept: at most so many; the index is asked for OVER_FETCH times as many, for those out of
            scope are left out afterwards.
    """
    asked = lucene_query(EVENT, scope.tenant, words)
    if asked is None:
        return []
    bounds = {"most": OVER_FETCH * kept, "kept": kept}
    rows = _rows(graph, TEXT_HITS, words=asked, **bounds, **scope.parameters())
    return [Hit(*row) for row in rows]


def vector_hits(
    graph: GraphRead, scope: Scope, vector: Sequence[float], kept: int, *, filtered: bool
) -> list[Hit]:
    """The nearest events by plain cosine, the nearest first; see `text_hits`."""
    text = VECTOR_HITS[filtered]
    bounds = {"most": OVER_FETCH * kept, "kept": kept}
    rows = _rows(graph, text, vector=list(vector), **bounds, **scope.parameters())
    return [Hit(*row) for row in rows]


def session_events(graph: GraphRead, tenant: str, session_id: str) -> list[SessionEvent]:
    """The last events of a session, the newest first; whoever's they are."""
    rows = _rows(
        graph,
        SESSION_EVENTS,
        tenant=tenant,
        session_id=session_id,
        default_importance=DEFAULT_IMPORTANCE,
    )
    return [SessionEvent(*row) for row in rows]


def session_and_agents(
    graph: GraphRead, tenant: str, session_id: str, names: Sequence[str]
) -> tuple[list[SessionEvent], list[str]]:
    """The last events of a session, and those of the names under which somebody speaks or acts."""
    (record,) = graph.rows(
        CONTEXT,
        tenant=tenant,
        session_id=session_id,
        names=list(names),
        default_importance=DEFAULT_IMPORTANCE,
    )
    return [SessionEvent(*row) for row in record["rows"]], sorted(record["names"])


def session_user(events: Iterable[SessionEvent]) -> str | None:
    """The user of a session, by its last events, newest first; None: they are of nobody."""
    return next((one.user_id for one in events if one.user_id is not None), None)


def candidates(
    graph: GraphRead,
    scope: Scope,
    *,
    around: Sequence[str],
    ids: Sequence[str],
    vector: Sequence[float] | None,
    cosines: Mapping[str, float],
) -> list[CandidateRow]:
    """What ranking needs to know of events that are in scope, in no order.

    Args:
        graph: the transaction.
        scope: whose memory.
        around: these, and up to NEIGHBOUR_STEPS events before and after each in its session.
        ids: these alone.
        vector: of the query.
        cosines: with it, by event id, as far as they are known: to compute them is half the cost.
    """
    rows = _rows(
        graph,
        CANDIDATES,
        around=list(around),
        ids=list(ids),
        vector=None if vector is None else list(vector),
        cosines=dict(cosines),
        default_importance=DEFAULT_IMPORTANCE,
        **scope.parameters(),
    )
    return [CandidateRow(*row) for row in rows]


def vectors(graph: GraphRead, tenant: str, event_ids: Sequence[str]) -> dict[str, list[float]]:
    """The vectors of the events that have one; they are compared, and never leave the API."""
    return dict(_rows(graph, VECTORS, tenant=tenant, ids=list(event_ids)))


def steps(graph: GraphRead, scope: Scope, node_ids: Iterable[str]) -> list[StepEdge]:
    """The edges around some nodes, at most a few of each type at each node, the best of them."""
    rows = _rows(graph, STEPS, **_by_label(node_ids), **scope.parameters())
    return [_step_edge(node_id, *edge) for node_id, edge in rows]


def _step_edge(
    here: str,
    type_: str,
    forward: bool,
    there: str,
    view: str | None,
    qualities: Sequence[Any],
    closed: bool,
    at_ms: int | None,
) -> StepEdge:
    properties = _UNSAID
    if qualities != _NONE:
        properties = {n: v for n, v in zip(_QUALITIES, qualities, strict=True) if v is not None}
    source, target = (here, there) if forward else (there, here)
    return StepEdge(type_, source, target, view or "", properties, there, closed, at_ms)


def nodes(graph: GraphRead, scope: Scope, node_ids: Iterable[str]) -> dict[str, GraphNode]:
    """The nodes that are in the graph and in scope, by wire id."""
    found = {}
    for label, row in _rows(graph, NODES_OF, **_by_label(node_ids), **scope.parameters()):
        properties = {name: value for name, value in row.items() if value is not None}
        node_id = wire_id(label, properties.pop(NODES[label].key[1]))
        found[node_id] = GraphNode(label, node_id, properties)
    return found


def edges_between(graph: GraphRead, scope: Scope, node_ids: Iterable[str]) -> list[GraphEdge]:
    """Edges of every type both of whose ends are among the nodes, sorted.

    Of a session's order those that stood there before events came that are not seen.
    """
    ids = list(node_ids)
    among = dict.fromkeys(ids, True)
    rows = _rows(graph, EDGES_BETWEEN, among=among, **_by_label(ids), **scope.parameters())
    found = [
        GraphEdge(type_, source, target, plain_properties(properties))
        for type_, source, target, properties in rows
    ]
    if scope.until is None:
        return found
    events = ids_by_label(ids)[EVENT.label]
    found += followed_then(graph, scope.tenant, events, scope.until)
    return sorted(found, key=lambda edge: (edge.type, edge.source, edge.target))
