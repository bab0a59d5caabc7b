"""What the graph itself says to the questions of a query: columns must answer as it does.

Asked in Cypher, from the same nodes and edges, with the same test of who may see what; the columns'
contract compares (`test_columns.py`). Nothing but tests asks it: it takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from enrichment.event_kinds import FAILED, RETRY, EventKind
from enrichment.names import VALUE
from pipelines.columns.reads import Beside, Mentions
from pipelines.columns.view import CONTEXT_EVENTS
from pipelines.columns.windows import NEIGHBOUR_STEPS
from pipelines.graph.client import SERVER_VERSION
from pipelines.graph.fulltext import found_text, lucene_query
from pipelines.graph.patterns import index_seek
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.facts import (
    ENTITY_COLUMNS,
    IS_KNOWN,
    SAME_HOLDS,
    FactReads,
    entity_name,
)
from pipelines.graph.reads.scope import (
    MAX_SCANNED,
    OVER_FETCH,
    Scope,
    collected,
    fact_visible,
    ids_by_parameter,
    of_viewer,
    passed_over,
    rows_in,
    stands,
    visible,
)
from pipelines.graph.reads.walk import EDGE_VISIBLE
from pipelines.graph.rows import (
    DEFAULT_IMPORTANCE,
    LEAST,
    PREFIXES,
    RETRIEVED,
    EntityName,
    EntitySurroundings,
    Hit,
    Hits,
    Least,
    SessionCandidate,
    SessionCandidates,
    SessionEvent,
    Signalled,
    StepEdge,
)
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    EDGE_CAPS,
    ENTITY,
    EVENT,
    FOLLOWS,
    LINKED_TO,
    MEMBER_OF,
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


class Standing(NamedTuple):
    """What changes of an event that may be ranked.

    Attributes:
        importance: 1 to 10, or more with its boost.
        previous_id: of the event before it in the session.
    """

    event_id: str
    importance: float
    access_count: int
    accessed_at_ms: int
    previous_id: str | None


SHOWN = visible(EVENT, "e")
IMPORTANCE = "toInteger(coalesce(e.importance_score, e.importance_hint, $default_importance))"

_KEPT = f"""
WITH e.event_id AS event_id, score, {of_viewer("e")} AS shown ORDER BY score DESC, event_id
WITH collect(CASE WHEN shown THEN [event_id, score] END)[..$kept] AS hits,
     collect(CASE WHEN NOT shown THEN event_id END) AS withheld
RETURN [hits, withheld] AS rows
"""
TEXT_HITS: Final = f"""
{found_text(EVENT, "e")} AND {stands(EVENT, "e")}
{_KEPT}"""
OF_SESSION: Final = f"""
MATCH (e:{EVENT.label}) {index_seek("e", EVENT, EVENT.indexes[0])}
WHERE e.tenant = $tenant AND e.session_id = $session_id
  AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL"""
VECTOR_HITS: Final = {
    True: f"""CYPHER 25
MATCH (e:{EVENT.label}) SEARCH e IN (VECTOR INDEX {vector_index(EVENT)} FOR $vector
WHERE e.tenant = $tenant LIMIT $most) SCORE AS found
WITH e, 2 * found - 1 AS score WHERE {stands(EVENT, "e")}
{_KEPT}""",
    False: f"""
CALL db.index.vector.queryNodes('{vector_index(EVENT)}', 10 * $most, $vector)
YIELD node AS e, score AS found
WITH e, 2 * found - 1 AS score WHERE e.tenant = $tenant AND {stands(EVENT, "e")}
{_KEPT}""",
}
"""By whether the index searches within the tenant (Neo4j 2026) or not (5.26)."""
_NEWEST_IN_SESSION: Final = ", ".join(f"e.{name} DESC" for name in EVENT.indexes[0])
_SESSION_COLUMNS = f"""
RETURN collect([e.event_id, e.occurred_at.epochMillis, {IMPORTANCE}, e.user_id, e.agent_id]) AS rows
"""
SESSION_EVENTS: Final = f"""
{OF_SESSION}
WITH e ORDER BY {_NEWEST_IN_SESSION} LIMIT {CONTEXT_EVENTS}
WITH e WHERE {SHOWN}
{_SESSION_COLUMNS}
"""
_NAMED_AGENTS = f"""
UNWIND $names AS name
MATCH (n:{ENTITY.label} {{tenant: $tenant, canonical_name: name}})
WHERE {visible(ENTITY, "n")} AND n.entity_type IN ['agent', 'user'] AND EXISTS {{
  MATCH (n)<-[r:{REFERENCES.type}]-(e:{EVENT.label} {{tenant: $tenant}})
  WITH r, e LIMIT {MAX_SCANNED} WHERE r.role = 'subject' AND {SHOWN} RETURN r
}}
RETURN collect(DISTINCT n.canonical_name) AS names
"""
CONTEXT: Final = f"CALL () {{{SESSION_EVENTS}}} CALL (rows) {{{_NAMED_AGENTS}}} RETURN rows, names"
"""The last events of a session, and those of the names under which somebody speaks or acts.

A code that a text calls a customer's is a user's name too, but nobody's who says anything.
"""
STANDINGS: Final = f"""
CALL () {{
  UNWIND $around AS id
  MATCH (n:{EVENT.label} {{tenant: $tenant, event_id: id}})
  WITH n WHERE {visible(EVENT, "n")}
  MATCH (n)((:{EVENT.label})-[:{FOLLOWS.type}]-(step:{EVENT.label}
            WHERE step.tenant = $tenant AND {visible(EVENT, "step")})
        ){{0,{NEIGHBOUR_STEPS}}}(e:{EVENT.label})
  RETURN e
  UNION
  UNWIND $ids AS id
  MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
  RETURN e
}}
WITH e WHERE {SHOWN}
RETURN collect([
  e.event_id, {IMPORTANCE} + coalesce(e.importance_boost, 0), coalesce(e.access_count, 0),
  coalesce(e.last_accessed_at.epochMillis, 0),
  head([(e)<-[:{FOLLOWS.type}]-(b:{EVENT.label} {{tenant: $tenant}}) WHERE {visible(EVENT, "b")}
        | b.event_id])
]) AS rows
"""


def text_hits(graph: GraphRead, scope: Scope, words: Sequence[str], limit: int) -> Hits:
    """Events whose text holds the words, the best first.

    Args:
        graph: the transaction.
        scope: whose memory.
        words: stems count as equal, phrases are words in one string.
        limit: at most so many; the index is asked for OVER_FETCH times as many, for those out of
            scope are left out afterwards.
    """
    search = lucene_query(EVENT, scope.tenant, words)
    if search is None:
        return Hits([], [])
    bounds = {"most": OVER_FETCH * limit, "kept": limit}
    return _hits(collected(graph, scope, TEXT_HITS, words=search, **bounds))


def vector_hits(
    graph: GraphRead, scope: Scope, vector: Sequence[float], limit: int, *, filtered: bool
) -> Hits:
    """The nearest events by plain cosine, the nearest first; see `text_hits`."""
    text = VECTOR_HITS[filtered]
    bounds = {"most": OVER_FETCH * limit, "kept": limit}
    return _hits(collected(graph, scope, text, vector=list(vector), **bounds))


def _hits(rows: Sequence[Sequence[Any]]) -> Hits:
    shown, withheld = rows
    return Hits([Hit(*row) for row in shown], list(withheld))


def session_and_agents(
    graph: GraphRead, scope: Scope, session_id: str, names: Sequence[str]
) -> tuple[list[SessionEvent], list[str]]:
    """The last events of a session, and those of the names under which somebody speaks or acts."""
    (record,) = rows_in(
        graph,
        scope,
        CONTEXT,
        session_id=session_id,
        names=list(names),
        default_importance=DEFAULT_IMPORTANCE,
    )
    return [SessionEvent(*row) for row in record["rows"]], sorted(record["names"])


def standings(
    graph: GraphRead, scope: Scope, *, around: Sequence[str], ids: Sequence[str]
) -> list[Standing]:
    """What changes of events that are in scope, in no order.

    Args:
        graph: the transaction.
        scope: whose memory.
        around: these, and up to NEIGHBOUR_STEPS events before and after each in its session.
        ids: these alone.
    """
    rows = collected(
        graph,
        scope,
        STANDINGS,
        around=list(around),
        ids=list(ids),
        default_importance=DEFAULT_IMPORTANCE,
    )
    return [Standing(*row) for row in rows]


# The decay score falls with age alone once importance and access count are given, so the best k
# of each such group contain the best k of the session: the formula stays in one place, in Python,
# and a session of 100,000 events sends a few hundred rows.
CANDIDATES: Final = f"""
{OF_SESSION} AND {stands(EVENT, "e")}
WITH e, {of_viewer("e")} AS shown,
     coalesce(e.importance_score, e.importance_hint, $default_importance) AS importance,
     coalesce(e.access_count, 0) AS access_count, e.occurred_at.epochMillis AS occurred_at,
     coalesce(e.last_accessed_at.epochMillis, 0) AS accessed_at
WITH e, shown, importance, access_count, occurred_at,
     CASE WHEN accessed_at > occurred_at THEN accessed_at ELSE occurred_at END AS used_at
ORDER BY used_at DESC, occurred_at DESC, e.event_id
WITH shown, importance, access_count, count(e) AS total,
     collect([e.event_id, occurred_at, used_at])[..$limit] AS best
RETURN shown, importance, access_count, total, CASE WHEN shown THEN best ELSE [] END AS best
"""


SESSION_LINES: Final = f"""
MATCH (e:{EVENT.label}) WHERE e.tenant = $tenant AND e.session_id IS NOT NULL
  AND {visible(EVENT, "e")}
WITH e ORDER BY e.occurred_at, e.event_id
WITH e.session_id AS session_id, collect(e.event_id) AS ids, count(e) AS events,
     min(e.occurred_at.epochMillis) AS first_ms, max(e.occurred_at.epochMillis) AS last_ms,
     sum(CASE WHEN e.status IN $failed OR e.kind = $failure THEN 1 ELSE 0 END) AS failed
ORDER BY last_ms DESC, session_id
RETURN session_id, first_ms, last_ms, events, failed, ids
"""


def session_lines(graph: GraphRead, scope: Scope) -> list[tuple[Any, ...]]:
    """Id, first and last time, how many events, how many failed, and the ids, of each session."""
    parameters = {"failed": list(FAILED), "failure": EventKind.FAILURE}
    return [tuple(row) for row in rows_in(graph, scope, SESSION_LINES, **parameters)]


def session_candidates(
    graph: GraphRead, scope: Scope, session_id: str, limit: int
) -> SessionCandidates:
    """Events among which the session's `limit` best by decay score are, and how many it has."""
    rows = rows_in(
        graph,
        scope,
        CANDIDATES,
        session_id=session_id,
        limit=limit,
        default_importance=DEFAULT_IMPORTANCE,
    )
    best = [
        SessionCandidate(
            event_id,
            occurred_at,
            used_at,
            importance=row["importance"],
            access_count=row["access_count"],
        )
        for row in rows
        for event_id, occurred_at, used_at in row["best"]
    ]
    total = sum(row["total"] for row in rows if row["shown"])
    return SessionCandidates(best, total, sum(row["total"] for row in rows) - total)


ALIKE_RESOLVED: Final = f"""
  UNWIND $session_ids AS id
  MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: id}})-[l:{LINKED_TO.type}]->
        (o:{SUMMARY.label} {{tenant: $tenant}})
  WHERE l.resolution_event_id IS NOT NULL AND l.score >= $least_score
    AND {visible(SUMMARY, "s")} AND {visible(SUMMARY, "o")}
  WITH l ORDER BY l.score DESC, l.resolution_event_id LIMIT $most
  MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: l.resolution_event_id}})
  WHERE {SHOWN}
  RETURN 'recurring_pattern' AS signal, e.event_id AS event_id, l.score AS score"""
"""Sessions that failed alike, and the event that resolved it there."""
SIMILAR_RESOLVED: Final = f"""
  UNWIND $event_ids AS id
  MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
        -[s:{SIMILAR_TO.type}]-(b:{EVENT.label} {{tenant: $tenant}})
  WHERE b.session_id <> a.session_id AND b.status IN $failures AND {visible(EVENT, "b")}
    AND {visible(EVENT, "a")}
  MATCH (b)<-[c:{CAUSED_BY.type}]-(e:{EVENT.label} {{tenant: $tenant}})
  WHERE c.rule = $retry AND e.status = $success AND {SHOWN}
  WITH e, max(s.score * coalesce(c.confidence, 1.0)) AS score
  RETURN 'recurring_pattern' AS signal, e.event_id AS event_id, score
  ORDER BY score DESC, event_id LIMIT $most"""
"""Events of other sessions that are alike and failed, and the retry that succeeded."""
IMPORTANT_MENTIONS: Final = f"""
  UNWIND $entity_ids AS id
  MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}})
  WHERE {visible(ENTITY, "n")}
  CALL (n) {{
    MATCH (n)<-[:{REFERENCES.type}]-(e:{EVENT.label} {{tenant: $tenant}})
    WITH DISTINCT e LIMIT {MAX_SCANNED}
    WITH e, {IMPORTANCE} + coalesce(e.importance_boost, 0) AS importance
    WHERE importance >= $least_importance AND {SHOWN}
    RETURN e, importance ORDER BY importance DESC, e.occurred_at DESC, e.event_id LIMIT $most
  }}
  RETURN 'entity_context' AS signal, e.event_id AS event_id,
         CASE WHEN importance > 10 THEN 1.0 ELSE importance / 10.0 END AS score"""
"""Important events about what the query is about."""
READ_AGAIN: Final = f"""
  UNWIND $history AS id
  MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
  WHERE coalesce(e.access_count, 0) >= $least_accesses AND {SHOWN}
  RETURN 'retrieval_history' AS signal, e.event_id AS event_id,
         CASE WHEN e.access_count > 10 THEN 1.0 ELSE e.access_count / 10.0 END AS score"""
"""Events that the session was shown before, and that were read again."""
PROACTIVE: Final = (
    "CALL () {"
    + "\n  UNION ALL".join((ALIKE_RESOLVED, SIMILAR_RESOLVED, IMPORTANT_MENTIONS, READ_AGAIN))
    + "\n}\nRETURN signal, event_id, score ORDER BY score DESC, event_id"
)


def proactive(
    graph: GraphRead, scope: Scope, beside: Beside, least: Least = LEAST
) -> list[Signalled]:
    """Events nobody asked for, the most telling first; one may come by several signals."""
    rows = rows_in(
        graph,
        scope,
        PROACTIVE,
        **beside._asdict(),
        least_score=least.score,
        least_importance=least.importance,
        least_accesses=least.accesses,
        most=least.most,
        failures=list(FAILED),
        success="completed",
        retry=RETRY,
        default_importance=DEFAULT_IMPORTANCE,
    )
    return [Signalled(row["event_id"], row["signal"], row["score"]) for row in rows]


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
        _Branch(FOLLOWS, left="-", right="-", to=EVENT, order="r.delta_ms, m.event_id"),
        _Branch(
            CAUSED_BY,
            left="-",
            right="-",
            to=EVENT,
            order=f"coalesce(r.confidence, 1.0) DESC, {_NEWEST}",
        ),
        _Branch(SIMILAR_TO, left="-", right="-", to=EVENT, order="r.score DESC, m.event_id"),
        _Branch(REFERENCES, left="-", right="->", to=ENTITY, order="m.entity_id"),
        _Branch(SUMMARIZES, left="<-", right="-", to=SUMMARY, order="m.level, m.summary_id"),
    ),
    ENTITY.label: (
        _Branch(REFERENCES, left="<-", right="-", to=EVENT, order=_NEWEST),
        _Branch(
            RELATES_TO,
            left="-",
            right="-",
            to=ENTITY,
            order="r.confidence DESC, r.valid_from DESC, m.entity_id",
        ),
        _Branch(SAME_AS, left="-", right="-", to=ENTITY, order="m.entity_id"),
        _Branch(MEMBER_OF, left="-", right="->", to=COMMUNITY, order="m.community_id"),
    ),
    SUMMARY.label: (
        _Branch(
            SUMMARIZES, left="-", right="->", to=EVENT, order=f"m.importance_score DESC, {_NEWEST}"
        ),
        _Branch(SUMMARIZES, left="-", right="-", to=SUMMARY, order="m.level DESC, m.summary_id"),
    ),
    COMMUNITY.label: (_Branch(MEMBER_OF, left="<-", right="-", to=ENTITY, order="m.entity_id"),),
}
_QUALITIES: Final = ("confidence", "score", "delta_ms")
_NONE: Final = [None] * len(_QUALITIES)
_UNSAID: Final[Mapping[str, Any]] = {}


def _quality(row: EdgeRow) -> str:
    properties = {prop.name for prop in row.properties}
    return "[" + ", ".join(f"r.{n}" if n in properties else "null" for n in _QUALITIES) + "]"


def _branch_text(branch: _Branch) -> str:
    row, to = branch.row, branch.to
    # What an event that is seen mentions, and what a fact that is seen joins, is seen.
    seen_by_it = to is ENTITY and row in (REFERENCES, RELATES_TO)
    tests = [stands(to, "m") if seen_by_it else visible(to, "m")]
    if row.type in EDGE_VISIBLE:
        tests.append(EDGE_VISIBLE[row.type])
    id_name = to.key[1]
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
    WITH n, r, m ORDER BY {branch.order} LIMIT $caps.{row.type}
    RETURN [type(r), startNode(r) = n, '{PREFIXES.get(to.label, "")}' + m.{id_name}, {view},
            {_quality(row)}, {closed}, {at}] AS edge"""


def _followed_then_text(forward: bool) -> str:
    """The next event of the session that was known at `$until`, over those that were not."""
    return f"""
    MATCH (n){passed_over(FOLLOWS, forward)}(m:{EVENT.label})
    WHERE m.tenant = $tenant AND {visible(EVENT, "m")}
    RETURN ['{FOLLOWS.type}', {str(forward).lower()}, m.event_id, '',
            [null, null, abs(m.occurred_at.epochMillis - n.occurred_at.epochMillis)], false,
            m.occurred_at.epochMillis] AS edge"""


def _branches(row: NodeRow, then: bool) -> Iterable[str]:
    for branch in _BRANCHES[row.label]:
        if then and branch.row is FOLLOWS:
            yield from map(_followed_then_text, (True, False))
        else:
            yield _branch_text(branch)


def _steps_text(row: NodeRow, then: bool) -> str:
    id_name = row.key[1]
    branches = "\n    UNION ALL".join(_branches(row, then))
    return f"""
  UNWIND ${row.label.lower()}_ids AS id
  MATCH (n:{row.label} {{tenant: $tenant, {id_name}: id}})
  WHERE {visible(row, "n")}
  CALL (n) {{{branches}
  }}
  RETURN '{PREFIXES.get(row.label, "")}' + id AS node_id, edge"""


def _level_text(then: bool) -> str:
    texts = "\n  UNION ALL".join(_steps_text(row, then) for row in RETRIEVED)
    return f"CALL () {{{texts}\n}}\nRETURN collect([node_id, edge]) AS rows"


STEPS: Final = {then: _level_text(then) for then in (False, True)}
"""One level of a walk, for all nodes of the frontier at once; by whether it is as of a position."""


def steps(
    graph: GraphRead,
    scope: Scope,
    node_ids: Iterable[str],
    caps: Mapping[str, int] = EDGE_CAPS,
) -> list[StepEdge]:
    """The edges around some nodes, at most `caps` of each type at each node, the best of them."""
    text = STEPS[scope.until is not None]
    rows = collected(graph, scope, text, caps=caps, **ids_by_parameter(node_ids))
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
    return StepEdge(
        type=type_,
        source=source,
        target=target,
        view=view or "",
        properties=properties,
        reached=there,
        closed=closed,
        at_ms=at_ms,
    )


SESSION_USER: Final = f"""
{OF_SESSION}
WITH e, split(e.global_position, '-') AS position
ORDER BY toInteger(position[0]), toInteger(position[1])
RETURN head(collect(e.user_id)) AS user_id
"""


def session_user(graph: GraphRead, tenant: str, session_id: str) -> str | None:
    """Whose session it is: by its first event of a user; None: nobody's."""
    (row,) = graph.rows(SESSION_USER, tenant=tenant, session_id=session_id)
    user_id: str | None = row["user_id"]
    return user_id


FOUND_NEAR: Final = {
    True: f"""
CYPHER 25
MATCH (n:{ENTITY.label}) SEARCH n IN (VECTOR INDEX {vector_index(ENTITY)} FOR $vector
WHERE n.tenant = $tenant LIMIT $fetched) SCORE AS score
WHERE {IS_KNOWN}
RETURN {ENTITY_COLUMNS}, score
""",
    False: f"""
CALL db.index.vector.queryNodes('{vector_index(ENTITY)}', 10 * $fetched, $vector)
YIELD node AS n, score AS found
WHERE n.tenant = $tenant AND {IS_KNOWN}
RETURN {ENTITY_COLUMNS}, vector.similarity.cosine(n.{ENTITY.vector}, $vector) AS score
""",
}
"""By whether the index searches within the tenant (Neo4j 2026) or not (5.26)."""
STRUCTURES: Final = f"""
UNWIND $ids AS id
MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}})
WHERE {IS_KNOWN}
RETURN id,
       COUNT {{ MATCH (n)-[r:{RELATES_TO.type}]-() WHERE {fact_visible("r")} RETURN r }} AS degree,
       size(COLLECT {{ MATCH (n)-[r:{RELATES_TO.type}]-() WHERE {fact_visible("r")}
                      RETURN DISTINCT r.edge_type LIMIT 4 }}) AS edge_types,
       head([(n)-[:{MEMBER_OF.type}]->(c:{COMMUNITY.label} {{tenant: $tenant}})
             WHERE {visible(COMMUNITY, "c")} | c.community_id]) AS community_id,
       EXISTS {{ (n)-[s:{SAME_AS.type}]-({{tenant: $tenant}})
                WHERE {SAME_HOLDS} }} AS is_same
"""
EVENTS_OF: Final = f"""
UNWIND $ids AS id
MATCH (:{ENTITY.label} {{tenant: $tenant, entity_id: id}})<-[:{REFERENCES.type}]-
      (e:{EVENT.label} {{tenant: $tenant}})
WITH DISTINCT e WHERE {stands(EVENT, "e")}
RETURN e.event_id AS id, e.occurred_at.epochMillis AS at, {of_viewer("e")} AS shown
ORDER BY at DESC, id
"""


class GraphNames(FactReads):
    """Entities as a viewer of the graph finds them."""

    def found_near(self, vector: Sequence[float], limit: int) -> list[tuple[EntityName, float]]:
        """Entities with the nearest names, and the plain cosine, the nearest first."""
        version = str(self._graph.rows(SERVER_VERSION)[0]["version"])
        text = FOUND_NEAR[not version.startswith("5.")]
        fetched = OVER_FETCH * limit
        rows = self._rows(text, vector=list(vector), fetched=fetched)
        scored = [(entity_name(row), 2 * row["score"] - 1) for row in rows]
        return sorted(scored, key=lambda match: (-match[1], match[0].entity_id))[:limit]

    def surroundings(self, ids: Iterable[str]) -> dict[str, EntitySurroundings]:
        """How an entity stands in the graph of facts, by id."""
        return {
            row["id"]: EntitySurroundings(
                row["degree"], row["edge_types"], row["community_id"], row["is_same"]
            )
            for row in self.chunked(STRUCTURES, sorted(ids))
        }

    def mentions(self, ids: Iterable[str], before: tuple[int, str], limit: int) -> Mentions:
        """The newest events that mention any of the entities, behind (time, event id)."""
        rows = self._rows(EVENTS_OF, ids=list(ids))
        at_ms, event_id = before
        shown = [(row["at"], row["id"]) for row in rows if row["shown"]]
        behind = [
            (at, own_id)
            for at, own_id in shown
            if at < at_ms or (at == at_ms and own_id > event_id)
        ]
        return Mentions(behind[:limit], len(rows) - len(shown))
