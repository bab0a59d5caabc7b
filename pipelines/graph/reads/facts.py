"""What a recall of facts asks the graph: entities by their names, who is the same, their facts.

Every question begins at nodes of the tenant, by a key or an index that it names. Lists of
ids are asked 490 at a time (S2, SA-INV-09).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from enrichment.names import edges_of_sameness
from pipelines.graph.fulltext import found_text, lucene_query
from pipelines.graph.patterns import edges_at, index_seek
from pipelines.graph.reader import node_columns
from pipelines.graph.reads.scope import (
    MAX_SCANNED,
    OVER_FETCH,
    SUPPORT,
    Scope,
    ScopedReads,
    allowed,
    collected,
    fact_visible,
    match_by_id,
    of_first_event,
    of_viewer,
    stands,
    supports,
    visible,
)
from pipelines.graph.rows import EntityName, FactEnd, FactRow
from projections.events import LAST_MS
from projections.schema import (
    ENTITY,
    EVENT,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    Kind,
    Property,
)

IDS_AT_ONCE: Final = 490
MAX_MENTIONS: Final = 10_000
"""Mentions of one entity that are counted. Which they are of more, the database chooses."""


def _name(variable: str) -> str:
    """What an entity is called: by a person, else as first seen, else in its plain form."""
    return (
        f"coalesce({variable}.display_name, {of_first_event(variable, 'name')}, "
        f"{variable}.canonical_name)"
    )


_TYPE = "coalesce({0}.corrected_type, {0}.entity_type)"
BY_NAME: Final = index_seek("n", ENTITY, ENTITY.indexes[0])
"""By their canonical names, or in their order."""
IS_KNOWN: Final = visible(ENTITY, "n")
"""Of an entity that the viewer knows, by an event or a fact."""
ENTITY_NODE: Final = node_columns(
    "n",
    ENTITY,
    name=of_first_event("n", "name"),
    subtype=of_first_event("n", "subtype"),
    first_seen=of_first_event("n", "first_seen.epochMillis"),
    first_event_id=of_first_event("n", "first_event_id"),
    first_user_id=of_first_event("n", "first_user_id"),
    supports=supports("n"),
)
"""An entity with everything that the viewer may see of it; `seen_entity` makes properties of it."""


class FactFilter(NamedTuple):
    """Which facts count.

    Attributes:
        at_ms: valid at this moment.
        edge_types: of these types; empty: of all.
        per_entity: of one entity at most so many, the most trusted first.
    """

    at_ms: int
    edge_types: Sequence[str] = ()
    per_entity: int = 100


def _columns(variable: str, properties: Iterable[Property]) -> str:
    def value(prop: Property) -> str:
        expression = f"{variable}.{prop.name}"
        return f"{expression}.epochMillis" if prop.kind is Kind.TIME else expression

    return "{" + ", ".join(f"{prop.name}: {value(prop)}" for prop in properties) + "}"


ENTITY_COLUMNS: Final = (
    f"n.entity_id AS entity_id, {_name('n')} AS name, {_TYPE.format('n')} AS entity_type, "
    f"{of_first_event('n', 'subtype')} AS subtype, "
    f"[n.canonical_name, {of_first_event('n', 'name')}, n.display_name] AS names"
)
_AS_ROW = (
    "{entity_id: entity_id, name: name, entity_type: entity_type, subtype: subtype, names: names}"
)
FOUND_BY_TEXT: Final = f"""
{found_text(ENTITY, "n", limit="fetched")}
AND {IS_KNOWN}
RETURN {ENTITY_COLUMNS}, score
ORDER BY score DESC, entity_id LIMIT $most
"""
FOUND_BY_NAME: Final = f"""
UNWIND $names AS name
MATCH (n:{ENTITY.label} {{tenant: $tenant, canonical_name: name}}) {BY_NAME}
WHERE {IS_KNOWN}
RETURN DISTINCT {ENTITY_COLUMNS}
ORDER BY entity_id LIMIT $most
"""
FOUND: Final = f"""
CALL () {{
  CALL () {{{FOUND_BY_TEXT}}}
  RETURN {_AS_ROW} AS row
  UNION ALL
  CALL () {{{FOUND_BY_NAME}}}
  RETURN {_AS_ROW} AS row
}}
RETURN collect(row) AS rows
"""
"""By text and by name, in one record: the driver takes as long for a record as for many rows."""
FOUND_BY_ID: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
WHERE {IS_KNOWN}
RETURN DISTINCT {ENTITY_COLUMNS}
"""
SAME_HOLDS: Final = "NOT coalesce(s.retracted, false)"
SAME: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
MATCH (n)-[s:{SAME_AS.type}]-(o:{ENTITY.label} {{tenant: $tenant}})
WHERE {SAME_HOLDS} AND {visible(ENTITY, "n")} AND {visible(ENTITY, "o")}
RETURN id AS one, o.entity_id AS other
"""
_MENTIONS = f"""{edges_at("n", REFERENCES.type, "e", leaves=False)} WITH e LIMIT {MAX_MENTIONS}
  WHERE e:{EVENT.label} AND e.tenant = $tenant AND {visible(EVENT, "e")}"""
NEWEST_MENTIONS: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
WHERE {IS_KNOWN}
CALL (n) {{
  {_MENTIONS}
  WITH DISTINCT e ORDER BY e.occurred_at DESC, e.event_id LIMIT $limit
  RETURN collect(e.event_id) AS newest
}}
RETURN id, newest
"""
MENTIONED: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
WHERE {IS_KNOWN}
RETURN id, COUNT {{ {_MENTIONS} RETURN DISTINCT e }} AS mentions
"""
# What ends a fact says until when it holds; a fact that expired without such an end holds until
# then.
FACT_HOLDS: Final = """r.valid_from <= datetime({epochMillis: $now})
    AND CASE WHEN r.valid_to IS NOT NULL THEN r.valid_to > datetime({epochMillis: $now})
             WHEN r.expired_at IS NOT NULL THEN r.expired_at > datetime({epochMillis: $now})
             ELSE true END"""
_COUNTS = f"""{FACT_HOLDS}
      AND CASE WHEN size($edge_types) = 0 THEN true ELSE r.edge_type IN $edge_types END
      AND {fact_visible("r")}"""
_FACT_COLUMNS = f"""s.entity_id AS source_id, {_name("s")} AS source_name,
       {_TYPE.format("s")} AS source_type, {of_first_event("s", "subtype")} AS source_subtype,
       t.entity_id AS target_id, {_name("t")} AS target_name,
       {_TYPE.format("t")} AS target_type, {of_first_event("t", "subtype")} AS target_subtype,
       {_columns("r", RELATES_TO.properties)} AS properties"""
FACTS_OF: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
CALL (n) {{
  MATCH (n)-[r:{RELATES_TO.type}]-(o:{ENTITY.label} {{tenant: $tenant}})
  WHERE {_COUNTS}
  RETURN DISTINCT r ORDER BY r.confidence DESC, r.valid_from DESC, r.event_id, r.relation
  LIMIT $per_entity
}}
WITH DISTINCT r, startNode(r) AS s, endNode(r) AS t
RETURN {_FACT_COLUMNS}
"""
_HISTORY_PLACE: Final = (
    "r.event_id + ' ' + r.relation + ' ' + r.edge_type + ' ' + s.entity_id + ' ' + t.entity_id"
)
HISTORY_OF: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
MATCH (n)-[r:{RELATES_TO.type}]-(:{ENTITY.label} {{tenant: $tenant}})
WHERE {fact_visible("r")}
WITH DISTINCT r, startNode(r) AS s, endNode(r) AS t
WITH r, s, t, -r.valid_from.epochMillis AS since, {_HISTORY_PLACE} AS place
WHERE since > $since OR (since = $since AND place > $place)
WITH r, s, t, since, place ORDER BY since, place LIMIT $limit
RETURN {_FACT_COLUMNS}, -since AS valid_from, place
ORDER BY since, place
"""
FACTS_BETWEEN: Final = f"""
UNWIND $ends AS pair
{match_by_id("s", ENTITY, "pair[0]")}
{match_by_id("t", ENTITY, "pair[1]")}
CALL (pair, s, t) {{
  MATCH (s)-[r:{RELATES_TO.type}]->(t)
  WHERE r.event_id IN pair[2] AND {fact_visible("r")}
  RETURN r
}}
RETURN {_FACT_COLUMNS}
"""
WITHHELD_NAMES: Final = f"""
CALL () {{
  {found_text(ENTITY, "n", limit="fetched")}
  RETURN n
  UNION
  UNWIND $names AS name
  MATCH (n:{ENTITY.label} {{tenant: $tenant, canonical_name: name}}) {BY_NAME}
  RETURN n
}}
WITH n WHERE {stands(ENTITY, "n")} AND NOT {allowed(ENTITY, "n")}
RETURN count(n) AS withheld
"""
WITHHELD_FACTS: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
MATCH (n)-[r:{RELATES_TO.type}]-(:{ENTITY.label} {{tenant: $tenant}})
WITH r LIMIT {MAX_SCANNED}
WITH DISTINCT r WHERE NOT {of_viewer("r")}
RETURN count(r) AS withheld
"""
SESSIONS: Final = f"""
UNWIND $ids AS id
{match_by_id("e", EVENT)}
WHERE e.session_id IS NOT NULL AND {visible(EVENT, "e")}
RETURN DISTINCT e.session_id AS session_id
"""
COSINES: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
WHERE n.{ENTITY.vector} IS NOT NULL AND {IS_KNOWN}
RETURN id, 2 * vector.similarity.cosine(n.{ENTITY.vector}, $vector) - 1 AS cosine
"""


class FactReads(ScopedReads):
    """Facts, and the entities that they are about, as one viewer sees them."""

    def found_by_text(self, words: Sequence[str], limit: int) -> list[EntityName]:
        """Entities with a name that has a word beginning with one of the words, the best first."""
        search = lucene_query(ENTITY, self._scope.tenant, words, prefixes=words)
        if search is None:
            return []
        return self._entities(
            FOUND_BY_TEXT, **_searched(search, words), fetched=OVER_FETCH * limit, most=limit
        )

    def found_by_name(self, names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities with one of the canonical names."""
        return self._entities(FOUND_BY_NAME, names=list(names), most=limit) if names else []

    def found(self, words: Sequence[str], names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities by the words of their names, then by a canonical name; each once.

        Args:
            words: a name has one that begins with one of them.
            names: canonical ones.
            limit: of either kind.
        """
        search = lucene_query(ENTITY, self._scope.tenant, words, prefixes=words)
        if search is None:
            return self.found_by_name(names, limit)
        search_parameters = {**_searched(search, words), "names": list(names)}
        bounds = {"fetched": OVER_FETCH * limit, "most": limit}
        rows = collected(self._graph, self._scope, FOUND, **search_parameters, **bounds)
        return list({row["entity_id"]: entity_name(row) for row in rows}.values())

    def withheld_names(self, words: Sequence[str], names: Sequence[str], limit: int) -> int:
        """How many entities `found` would have had are kept from the viewer."""
        search = lucene_query(ENTITY, self._scope.tenant, words, prefixes=words)
        if search is None:
            return 0
        search_parameters = {**_searched(search, words), "names": list(names)}
        (row,) = self._rows(WITHHELD_NAMES, **search_parameters, fetched=OVER_FETCH * limit)
        return int(row["withheld"])

    def found_by_id(self, ids: Sequence[str]) -> list[EntityName]:
        """Entities of the ids."""
        return self._entities(FOUND_BY_ID, ids=list(ids)) if ids else []

    def same_as(self, ids: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs that were found to be the same, from the ids on as far as five steps lead."""
        rows = edges_of_sameness(ids, lambda wanted: self.chunked(SAME, wanted))
        return [(row["one"], row["other"]) for row in rows]

    def mentioned(self, ids: Iterable[str]) -> dict[str, int]:
        """How many events that the viewer sees mention an entity that it knows, by id.

        Of one that more than MAX_MENTIONS mention, so many are counted.
        """
        rows = self.chunked(MENTIONED, sorted(ids))
        return {row["id"]: row["mentions"] for row in rows}

    def newest_mentions(self, ids: Iterable[str], limit: int) -> dict[str, list[str]]:
        """Ids of the newest events that the viewer sees and that mention an entity, by its id.

        Of one that more than MAX_MENTIONS mention, they are of so many. Of those of one
        moment the smaller id comes first; an entity that none mentions is left out.
        """
        rows = self.chunked(NEWEST_MENTIONS, sorted(ids), limit=limit)
        return {row["id"]: row["newest"] for row in rows if row["newest"]}

    def facts_of(self, ids: Iterable[str], wanted: FactFilter) -> list[FactRow]:
        """Facts at either end of which one of the entities stands, each once."""
        rows = self.chunked(
            FACTS_OF,
            sorted(ids),
            now=wanted.at_ms,
            edge_types=list(wanted.edge_types),
            per_entity=wanted.per_entity,
        )
        facts = (_fact(row) for row in rows)
        return list({fact.key: fact for fact in facts}.values())

    def history(
        self, ids: Iterable[str], behind: tuple[int, str] | None, limit: int
    ) -> list[tuple[tuple[int, str], FactRow]]:
        """Facts of entities, whether they hold or not, what began last first, each with its place.

        Args:
            ids: of the entities, at most IDS_AT_ONCE.
            behind: the place of the last fact of the page before; None: the first page.
            limit: of facts.
        """
        since, place = behind or (LAST_MS, "")
        rows = self._rows(
            HISTORY_OF, ids=sorted(ids)[:IDS_AT_ONCE], since=-since, place=place, limit=limit
        )
        return [((row["valid_from"], row["place"]), _fact(row)) for row in rows]

    def withheld(self, ids: Iterable[str]) -> int:
        """How many facts of the entities are kept from the viewer, of the first MAX_SCANNED."""
        return sum(row["withheld"] for row in self.chunked(WITHHELD_FACTS, sorted(ids)))

    def facts_between(self, ends: Iterable[tuple[str, str, str]]) -> list[FactRow]:
        """Facts from one entity to another that an event said: (source, target, event id) each.

        Whether they hold is not asked.
        """
        events_of: dict[tuple[str, str], list[str]] = {}
        for source_id, target_id, event_id in ends:
            events_of.setdefault((source_id, target_id), []).append(event_id)
        pairs = [[*pair, events] for pair, events in events_of.items()]
        facts: list[FactRow] = []
        for first in range(0, len(pairs), IDS_AT_ONCE):
            chunk = pairs[first : first + IDS_AT_ONCE]
            facts += map(_fact, self._rows(FACTS_BETWEEN, ends=chunk))
        return facts

    def sessions(self, event_ids: Iterable[str]) -> set[str]:
        """Sessions of the events that are in the graph."""
        return {row["session_id"] for row in self.chunked(SESSIONS, sorted(set(event_ids)))}

    def cosines(self, ids: Iterable[str], vector: Sequence[float]) -> dict[str, float]:
        """Plain cosine of each entity's name and a vector; entities without one are missing."""
        rows = self.chunked(COSINES, sorted(ids), vector=list(vector))
        return {row["id"]: row["cosine"] for row in rows}

    def _entities(self, text: str, **parameters: Any) -> list[EntityName]:
        rows = self._rows(text, **parameters)
        return [entity_name(row) for row in rows]

    def chunked(self, text: str, ids: Sequence[str], **parameters: Any) -> Iterator[Any]:
        """Rows of a question about ids, so many of them at a time as may be asked."""
        for first in range(0, len(ids), IDS_AT_ONCE):
            chunk = list(ids[first : first + IDS_AT_ONCE])
            yield from self._rows(text, ids=chunk, **parameters)


def _searched(search: str, words: Sequence[str]) -> dict[str, Any]:
    """What is searched for: in the words of a full-text index, and for a store without one."""
    return {"words": search, "terms": list(words)}


def seen_entity(columns: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Properties of an entity from ENTITY_NODE, absent ones left out; `supports` as rows.

    To a user it was seen last when it was in an event that the user may see, and where its name is
    another user's it is called as in that event.
    """
    properties = {name: value for name, value in columns.items() if value is not None}
    supports = sorted(columns["supports"], key=_newest_first)
    names = [name for name, *_ in supports]
    properties["supports"] = [dict(zip(SUPPORT[1:], told, strict=True)) for _, *told in supports]
    if "name" not in properties and any(names):
        properties["name"] = next(filter(None, names))
    if not scope.everyone:
        properties.pop("last_seen", None)
        if properties["supports"]:
            properties["last_seen"] = properties["supports"][0]["occurred_at"]
    return properties


def _newest_first(support: Sequence[Any]) -> tuple[int, str]:
    _, occurred_at, event_id, *_ = support
    return -occurred_at, event_id


def entity_name(row: Mapping[str, Any]) -> EntityName:
    """The entity of a row of ENTITY_COLUMNS."""
    names = tuple(dict.fromkeys(name for name in row["names"] if name))
    return EntityName(
        entity_id=row["entity_id"],
        name=row["name"] or "",
        entity_type=row["entity_type"],
        subtype=row["subtype"],
        names=names,
    )


def _fact(row: Mapping[str, Any]) -> FactRow:
    def end(side: str) -> FactEnd:
        return FactEnd(
            row[f"{side}_id"],
            row[f"{side}_name"] or "",
            row[f"{side}_type"],
            row[f"{side}_subtype"],
        )

    properties = {name: value for name, value in row["properties"].items() if value is not None}
    target = end("target")
    as_stated = target._replace(name=_as_stated(target.name, properties.get("fact") or ""))
    return FactRow(end("source"), as_stated, properties)


def _as_stated(name: str, fact: str) -> str:
    """A name as its fact writes it, where the viewer sees none but its form in lower case.

    That is so of an entity that only events of others name as it is written.
    """
    stated = fact[-len(name) :]
    return stated if name.islower() and stated.lower() == name else name
