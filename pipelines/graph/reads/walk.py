"""The edges that a walk and a question for causes follow, and what answers show of the graph.

Every question begins at nodes of the tenant, by a key or an index that it names, and is bounded
before it sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from consolidation.payloads import CAUSE
from enrichment.event_kinds import EventKind
from pipelines.graph.patterns import edges_at, index_seek
from pipelines.graph.reader import (
    EVENT_COLUMNS,
    GraphEdge,
    GraphNode,
    GraphRead,
    column_names,
    event_node,
    node_values,
    plain_properties,
)
from pipelines.graph.reads.events import followed_then
from pipelines.graph.reads.facts import ENTITY_NODE, FACT_HOLDS, seen_entity
from pipelines.graph.reads.scope import (
    Scope,
    ScopedReads,
    collected,
    fact_visible,
    ids_by_parameter,
    match_by_id,
    summaries_of,
    visible,
)
from pipelines.graph.rows import PREFIXES, RETRIEVED, ids_by_label, wire_id
from projections.schema import (
    CAUSED_BY,
    EDGES,
    ENTITY,
    EVENT,
    LINKED_TO,
    NODES,
    RELATES_TO,
    SAME_AS,
    SUMMARY,
    NodeRow,
)

EDGE_VISIBLE: Final = {
    RELATES_TO.type: f"{FACT_HOLDS} AND {fact_visible('r')}",
    SAME_AS.type: "NOT coalesce(r.retracted, false)",
}


def _wire_id(variable: str) -> str:
    cases = " ".join(
        f"WHEN {variable}:{row.label} "
        f"THEN '{PREFIXES.get(row.label, '')}' + {variable}.{row.key[1]}"
        for row in RETRIEVED
    )
    return f"CASE {cases} END"


def _edges_text() -> str:
    """The edges between nodes that an answer shows, all of which are visible.

    The other end is sought among them, which no index answers: were it sought by its key, each
    node of one end would be tried with each of the other.
    """
    types = "|".join(row.type for row in EDGES.values() if row.source in _LABELS)
    tests = "".join(
        f" AND CASE WHEN type(r) = '{type_}' THEN {test} ELSE true END"
        for type_, test in EDGE_VISIBLE.items()
    )
    return (
        f"COLLECT {{ UNWIND among AS a MATCH (a)-[r:{types}]->(b) WHERE b IN among{tests} "
        f"RETURN [type(r), {_wire_id('a')}, {_wire_id('b')}, properties(r)] }}"
    )


_TEXTS: Final = f"""COLLECT {{
  UNWIND among AS e
  WITH e, CASE WHEN e:{EVENT.label} THEN $told[e.event_id] END AS whatever
  WHERE whatever OR (NOT whatever AND coalesce(e.kind <> '{EventKind.MESSAGE}', true))
  RETURN [e.event_id, coalesce(e.text, e.summary, '')] }}"""


def _nodes_text(row: NodeRow) -> str:
    return f"""
  UNWIND ${row.label.lower()}_ids AS id
  {match_by_id("n", row)}
  WHERE {visible(row, "n")}
  RETURN n, ['{row.label}', {ENTITY_NODE if row is ENTITY else node_values("n", row)}] AS node
"""


def _united_text() -> str:
    """Nodes of all kinds with what a reader may see of them; each is looked up once."""
    return f"CALL () {{{'  UNION ALL'.join(map(_nodes_text, RETRIEVED))}\n}}"


_LABELS: Final = frozenset(row.label for row in RETRIEVED)
_NAMES: Final = {row.label: column_names(row) for row in RETRIEVED}
NODES_OF: Final = f"{_united_text()}\nRETURN collect(node) AS rows"
SHOWN_OF: Final = f"""{_united_text()}
WITH collect(n) AS among, collect(node) AS nodes
RETURN [nodes, {_edges_text()}, {_TEXTS}] AS rows"""
"""Nodes, the edges between them, and what some of them say as a whole."""


class Shown(NamedTuple):
    """What an answer shows of the graph.

    Attributes:
        nodes: that are in the graph and in scope, by wire id.
        edges: of every type both of whose ends are among them, sorted.
        texts: what events say, as far as it was kept, by id; of those that it was asked of.
    """

    nodes: dict[str, GraphNode]
    edges: list[GraphEdge]
    texts: dict[str, str]


def nodes(
    graph: GraphRead,
    scope: Scope,
    node_ids: Iterable[str],
    supporting: Mapping[str, Sequence[str]],
) -> dict[str, GraphNode]:
    """The nodes that are in the graph and in scope, by wire id.

    Args:
        graph: the transaction.
        scope: who looks.
        node_ids: wire ids.
        supporting: of entities, by own id: the newest events that mention them. Whoever only asks
            which nodes there are has none.
    """
    asked_for = ids_by_parameter(node_ids)
    rows = collected(graph, scope, NODES_OF, supporting=supporting, **asked_for)
    return _by_id(scope, rows)


def shown(
    graph: GraphRead,
    scope: Scope,
    node_ids: Iterable[str],
    supporting: Mapping[str, Sequence[str]],
    told: Mapping[str, bool] = MappingProxyType({}),
) -> Shown:
    """The nodes, the edges between them, and what some of them say.

    Of a session's order those that stood there before events came that are not seen.

    Args:
        graph: the transaction.
        scope: who looks.
        node_ids: wire ids.
        supporting: see `nodes`.
        told: events that are asked what they say as a whole, by id; False: unless somebody said it.
    """
    asked_for = ids_by_parameter(dict.fromkeys(node_ids))
    rows, between, texts = collected(
        graph, scope, SHOWN_OF, supporting=supporting, told=dict(told), **asked_for
    )
    seen = _by_id(scope, rows)
    edges = [
        GraphEdge(type_, source, target, plain_properties(properties))
        for type_, source, target, properties in between
    ]
    if scope.until is not None:
        edges += followed_then(graph, scope, ids_by_label(seen)[EVENT.label])
    edges.sort(key=itemgetter(0, 1, 2))  # the type, and both ends
    return Shown(seen, edges, {event_id: text for event_id, text in texts if text})


def _by_id(scope: Scope, rows: Iterable[Sequence[Any]]) -> dict[str, GraphNode]:
    nodes = {}
    for label, values in rows:
        if label == ENTITY.label:
            properties = seen_entity(values, scope)
        else:
            of_all = zip(_NAMES[label], values, strict=True)
            properties = {name: value for name, value in of_all if value is not None}
        node_id = wire_id(label, properties.pop(NODES[label].key[1]))
        nodes[node_id] = GraphNode(label, node_id, properties)
    return nodes


def edges_between(graph: GraphRead, scope: Scope, node_ids: Iterable[str]) -> list[GraphEdge]:
    """The edges alone; see `shown`."""
    return shown(graph, scope, node_ids, {}).edges


ALIKE_REASON: Final = "similar_failure"
"""Of a link between sessions that failed alike."""
MAX_LINKED: Final = 20
"""Links of one session that are looked at, the strongest first."""
MAX_GISTS: Final = 50
"""Episodes of one session of which lessons are read, the first."""

STORY: Final = f"""
MATCH (e:{EVENT.label}) {index_seek("e", EVENT, EVENT.indexes[0])}
WHERE e.tenant = $tenant AND e.session_id = $session_id
  AND e.occurred_at >= datetime({{epochMillis: $first_ms}})
  AND e.occurred_at <= datetime({{epochMillis: $last_ms}})
  AND e.event_id IS NOT NULL AND {visible(EVENT, "e")}
WITH e ORDER BY e.occurred_at, e.event_id LIMIT $limit
RETURN {EVENT_COLUMNS} AS node, coalesce(e.text, '') AS text
"""
CAUSES: Final = f"""
UNWIND $ids AS id
{match_by_id("a", EVENT)}
MATCH (a)-[r:{CAUSED_BY.type}]->(e:{EVENT.label})
WHERE e.tenant = $tenant AND {visible(EVENT, "a")} AND {visible(EVENT, "e")}
WITH id, r, e ORDER BY id, e.occurred_at DESC, e.event_id LIMIT $limit
RETURN id AS effect, properties(r) AS properties, {EVENT_COLUMNS} AS node,
       coalesce(e.text, '') AS text
"""
LINKED_CAUSES: Final = f"""
UNWIND $ids AS id
{match_by_id("a", EVENT)}
WHERE {visible(EVENT, "a")}
WITH id, a.session_id AS session_id
{summaries_of("p", "session_id")} AND {visible(SUMMARY, "p")}
{edges_at("p", LINKED_TO.type, "s", leaves=True)}
WITH id, r, s
WHERE r.reason = '{CAUSE}' AND r.effect_event_id = id
  AND s:{SUMMARY.label} AND s.tenant = $tenant AND {visible(SUMMARY, "s")}
{match_by_id("e", EVENT, "r.cause_event_id")}
WHERE {visible(EVENT, "e")}
WITH DISTINCT id, e, r.score AS confidence, r.evidence AS evidence, r.event_id AS decided_by
ORDER BY id, confidence DESC, e.event_id LIMIT $limit
RETURN id AS effect, confidence, evidence, decided_by, {EVENT_COLUMNS} AS node,
       coalesce(e.text, '') AS text
"""
GISTS: Final = f"""
UNWIND $session_ids AS session_id
{summaries_of("p", "session_id")}
  AND p.scope = 'episode' AND p.gist CONTAINS '"lessons":' AND {visible(SUMMARY, "p")}
WITH p ORDER BY p.session_id, p.summary_id LIMIT $limit
RETURN p.summary_id AS summary_id, p.session_id AS session_id, p.gist AS gist
"""
ALIKE: Final = f"""
{summaries_of("p", "$session_id")}
MATCH (p)-[r:{LINKED_TO.type}]->(s:{SUMMARY.label})
WHERE s.tenant = $tenant AND r.reason = '{ALIKE_REASON}'
  AND {visible(SUMMARY, "p")} AND {visible(SUMMARY, "s")}
WITH s.session_id AS session_id, max(r.score) AS score
RETURN session_id, score ORDER BY score DESC, session_id LIMIT {MAX_LINKED}
"""


class StoryEvent(NamedTuple):
    """An event with all that was kept of its words."""

    node: GraphNode
    text: str


class CauseEdge(NamedTuple):
    """A step from an effect to a cause.

    Attributes:
        effect: id of the effect.
        cause: the event that it goes back to.
        mechanism: direct or inferred.
        rule: that inferred it.
        confidence: 0 to 1; 1 of what a producer named.
        evidence: what both name.
        decided_by: id of the decision, if one recorded it.
    """

    effect: str
    cause: StoryEvent
    mechanism: str
    rule: str | None
    confidence: float
    evidence: tuple[str, ...] = ()
    decided_by: str | None = None


class Gist(NamedTuple):
    """What is known of an episode from which something was learned."""

    summary_id: str
    session_id: str
    gist: str


class CauseReads(ScopedReads):
    """Causes and lessons as one viewer sees them."""

    def story(self, session_id: str, first_ms: int, last_ms: int, limit: int) -> list[StoryEvent]:
        """The events of a session in a stretch of time, by time."""
        rows = self._rows(
            STORY, session_id=session_id, first_ms=first_ms, last_ms=last_ms, limit=limit
        )
        return [_story_event(row) for row in rows]

    def causes(self, event_ids: Iterable[str], limit: int) -> list[CauseEdge]:
        """The steps to the causes of events, by effect, the latest causes first."""
        rows = self._rows(CAUSES, ids=sorted(set(event_ids)), limit=limit)
        return [_cause_edge(row) for row in rows]

    def linked_causes(self, event_ids: Iterable[str], limit: int, rule: str) -> list[CauseEdge]:
        """The steps to causes in other sessions that were recorded, the most certain first.

        Args:
            event_ids: of effects.
            limit: how many at most.
            rule: that found them.
        """
        rows = self._rows(LINKED_CAUSES, ids=sorted(set(event_ids)), limit=limit)
        return [
            CauseEdge(
                effect=row["effect"],
                cause=_story_event(row),
                mechanism="inferred",
                rule=rule,
                confidence=row["confidence"],
                evidence=tuple(row["evidence"] or ()),
                decided_by=row["decided_by"],
            )
            for row in rows
        ]

    def gists(self, session_ids: Sequence[str]) -> list[Gist]:
        """The episodes of sessions from which something was learned."""
        rows = self._rows(GISTS, session_ids=list(session_ids), limit=MAX_GISTS)
        return [Gist(row["summary_id"], row["session_id"], row["gist"]) for row in rows]

    def alike(self, session_id: str) -> list[str]:
        """The sessions that failed like one, the most alike first."""
        return [row["session_id"] for row in self._rows(ALIKE, session_id=session_id)]


def _story_event(row: Any) -> StoryEvent:
    return StoryEvent(event_node(row), row["text"])


def _cause_edge(row: Any) -> CauseEdge:
    properties: Mapping[str, Any] = plain_properties(row["properties"])
    confidence, evidence = properties.get("confidence"), properties.get("evidence")
    return CauseEdge(
        effect=row["effect"],
        cause=_story_event(row),
        mechanism=properties["mechanism"],
        rule=properties.get("rule"),
        confidence=1.0 if confidence is None else confidence,
        evidence=() if evidence is None else (evidence,),
    )
