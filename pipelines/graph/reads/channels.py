"""What retrieval asks the graph: channels that find events, and what ranking must know of them.

Every question has the tenant in the key of its patterns, goes by a key or an index, and is bounded
before it sorts. Events of other users than the one in scope are never seen; those of nobody are
everybody's. Texts are made from `projections.schema` once; values are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipelines.graph.fulltext import found_text, lucene_query
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.events import NEWEST, OF_SESSION
from pipelines.graph.reads.scope import (
    MAX_SCANNED,
    OVER_FETCH,
    Scope,
    collected,
    of_viewer,
    rows_in,
    stands,
    visible,
)
from pipelines.graph.rows import DEFAULT_IMPORTANCE, Content, Hit, Hits, SessionEvent, Standing
from projections.schema import ENTITY, EVENT, FOLLOWS, REFERENCES, vector_index

CONTEXT_EVENTS: Final = 50
"""The last events of a session among which the most important are looked for."""
NEIGHBOUR_STEPS: Final = 3
"""Events before and after a hit that are candidates too: an answer stands beside its question."""
TEXT_CHARACTERS: Final = 1_000
"""Of an event's text that are compared with the query."""


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
_SESSION_COLUMNS = f"""
RETURN collect([e.event_id, e.occurred_at.epochMillis, {IMPORTANCE}, e.user_id, e.agent_id]) AS rows
"""
SESSION_EVENTS: Final = f"""
{OF_SESSION}
WITH e ORDER BY {NEWEST} LIMIT {CONTEXT_EVENTS}
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
CONTENTS: Final = f"""
UNWIND $ids AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE {SHOWN}
RETURN collect([
  e.event_id, e.occurred_at.epochMillis, e.agent_id, e.speaker, e.tool_name,
  left(e.text, {TEXT_CHARACTERS}), e.{EVENT.vector}
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


def contents(graph: GraphRead, scope: Scope, event_ids: Sequence[str]) -> list[Content]:
    """What events in scope say, in no order."""
    rows = collected(graph, scope, CONTENTS, ids=list(event_ids))
    return [Content(*row) for row in rows]
