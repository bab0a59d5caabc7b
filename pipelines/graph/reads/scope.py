"""Who looks at whose memory, as of when, and what of it they may see: the one test of visibility.

Every question that a reader is answered from takes its condition from here. What comes from the
events of a user is that user's alone; what comes from nobody's is shared; what was made from those
of several is for operators. Events and decisions behind a position are left out. Where an event
came late and was spliced in between two others, the edge of the session's order that stood there
before is given instead of the two that replaced it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from pipelines.graph.patterns import index_seek, node_with_key
from pipelines.graph.rows import ids_by_label
from projections.events import EVERYONE
from projections.identity import SEPARATOR, Position
from projections.schema import (
    COMMUNITY,
    ENTITY,
    EVENT,
    FOLLOWS,
    REFERENCES,
    RELATES_TO,
    SUMMARY,
    TRAIT,
    EdgeRow,
    NodeRow,
)

OVER_FETCH: Final = 2
"""Hits that an index is asked for, for one that is kept: it does not know whose they are."""
MAX_SCANNED: Final = 400
"""Edges of one type at one node that are looked at: a hub costs no more than that."""

_NO_USER: Final = f"{SEPARATOR}nobody"
"""As `$user_id`, of nobody: no name may be so, and no condition about it is null."""

QUESTION: Final = "question"
"""The one parameter of a question: a map of all."""
_PARAMETER = re.compile(r"\$(\w+)")
_THEN, _NOW = "/*then*/", "/*now*/"
_ONLY_THEN = re.compile(rf"{re.escape(_THEN)}.*?{re.escape(_NOW)}", re.DOTALL)


class Within(NamedTuple):
    """Which events a search is limited to, whoever looks; None and nothing: all.

    Attributes:
        since_ms: when they occurred, milliseconds since the epoch.
        until_ms: likewise, up to and without.
        kinds: any of these.
        statuses: any of these.
        session_id: of this session.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    kinds: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    session_id: str | None = None


class Scope(NamedTuple):
    """Who looks, and as of when.

    Attributes:
        user_id: what is of this user or of nobody is seen; None: what is of nobody.
        now_ms: the clock, for facts that hold or not.
        until: events and decisions behind this position are not seen.
        everyone: an operator's view: what is of any user is seen, and of several together.
        within: what a search in columns is limited to; what is read by key is not.
    """

    tenant: str
    user_id: str | None
    now_ms: int
    until: Position | None = None
    everyone: bool = False
    within: Within | None = None

    @property
    def viewer(self) -> str | None:
        """As a request names it."""
        return EVERYONE if self.everyone else self.user_id

    def sees_user(self, user_id: str | None) -> bool:
        """Whether what comes from this user's events (None: from nobody's) may be seen."""
        return self.everyone or user_id is None or user_id == self.user_id

    def parameters(self) -> dict[str, Any]:
        """As the questions take them."""
        return {
            "tenant": self.tenant,
            "user_id": _NO_USER if self.user_id is None else self.user_id,
            "everyone": self.everyone,
            "all_entities": self.everyone and self.until is None,
            "now": self.now_ms,
            "until": None if self.until is None else until_parameter(self.until),
        }


def operator_scope(tenant: str, now_ms: int) -> Scope:
    """The view over all users, of the system itself or of a person who may."""
    return Scope(tenant, None, now_ms, everyone=True)


def match_by_id(variable: str, row: NodeRow, own_id: str = "id") -> str:
    """Matches a node of the tenant by its own id, an expression; see `index_seek`."""
    return node_with_key(variable, row, f"tenant: $tenant, {row.key[1]}: {own_id}")


def summaries_of(variable: str, session_id: str) -> str:
    """Matches the summaries of a session, of whichever scope, by their index.

    Its last property is one that all have: an index of several is of use where all are asked for.

    Args:
        variable: of a summary.
        session_id: an expression.
    """
    return (
        f"MATCH ({variable}:{SUMMARY.label}) "
        f"{index_seek(variable, SUMMARY, SUMMARY.indexes[0])} "
        f"WHERE {variable}.tenant = $tenant AND {variable}.session_id = {session_id} "
        f"AND {variable}.summary_id IS NOT NULL"
    )


def of_viewer(variable: str) -> str:
    """Cypher that is true of an event or a fact that is of the viewer, or of nobody."""
    return f"($everyone OR {variable}.user_id IS NULL OR {variable}.user_id = $user_id)"


def _of_viewer_alone(variable: str) -> str:
    """The same of what was made from many events; made before users were noted, for operators."""
    each = f"all(source IN {variable}.user_ids WHERE source = $user_id)"
    return f"($everyone OR coalesce({each}, false))"


def fact_visible(variable: str) -> str:
    """Cypher that is true of a fact that may be seen, whether it holds or not."""
    event = f"{variable}_e"
    source = match_by_id(event, EVENT, f"{variable}.event_id")
    said_later = f"EXISTS {{ {source} WHERE NOT {known(event)} }}"
    return of_viewer(variable) + _then(f"NOT {said_later}")


def _met_by_viewer(variable: str) -> str:
    """An entity is seen through the events that mention it and the facts that it stands in."""
    event, fact = f"{variable}_e", f"{variable}_r"
    return (
        f"($all_entities OR EXISTS {{ "
        f"MATCH ({variable})<-[:{REFERENCES.type}]-({event}:{EVENT.label} {{tenant: $tenant}}) "
        f"WHERE {visible(EVENT, event)} }} "
        f"OR EXISTS {{ MATCH ({variable})-[{fact}:{RELATES_TO.type}]-() "
        f"WHERE {fact_visible(fact)} }})"
    )


def stands(row: NodeRow, variable: str) -> str:
    """Cypher that is true of a node that is in the graph, whoever may see it."""
    tests, then = [f"NOT {variable}:{row.placeholder}"], ""
    if any(prop.name == "gone" for prop in row.properties):
        tests.append(f"NOT coalesce({variable}.gone, false)")
    if row is EVENT:
        then = _then(known(variable))
    if row in (SUMMARY, COMMUNITY, TRAIT):
        then = _then(f"{variable}.decided_at <= $until")
    return " AND ".join(tests) + then


def allowed(row: NodeRow, variable: str) -> str:
    """Cypher that is true of a node that the viewer may see, if it stands."""
    if row is EVENT:
        return of_viewer(variable)
    if row is ENTITY:
        return _met_by_viewer(variable)
    return _of_viewer_alone(variable)


def visible(row: NodeRow, variable: str) -> str:
    """Cypher that is true of a node that a reader in scope sees."""
    return f"{stands(row, variable)} AND {allowed(row, variable)}"


def _first_seen_by_viewer(variable: str) -> str:
    """How an entity is written is what its first event says, which may be another user's."""
    user_id = f"{variable}.first_user_id"
    return f"$everyone OR {user_id} IS NULL OR {user_id} = $user_id"


def of_first_event(variable: str, name: str) -> str:
    """Cypher for what an entity has from its first event, if that is the viewer's to see."""
    return f"CASE WHEN {_first_seen_by_viewer(variable)} THEN {variable}.{name} END"


SUPPORT: Final = (
    *("name", "occurred_at", "event_id", "global_position"),
    *("session_id", "agent_id", "trace_id"),
)
"""What is told of an event that an entity is known from; its name is what it is called there."""


def supports(variable: str) -> str:
    """Cypher for the newest events that the viewer knows an entity from: `$supporting` says which.

    Each is a list of SUPPORT.

    A map of lists of their ids by the entity's id, from `newest_mentions`: to find them here, all
    mentions would have to be read and sorted. Nor is the edge followed from the entity: an event
    mentions few.
    """
    event = f"{variable}_m"
    return (
        f"COLLECT {{ UNWIND $supporting[{variable}.entity_id] AS {event}_id "
        f"{match_by_id(event, EVENT, f'{event}_id')} "
        f"MATCH ({event})-[{event}_r:{REFERENCES.type}]->({event}_n) "
        f"WHERE {event}_n = {variable} AND {visible(EVENT, event)} "
        f"WITH {event}, max({event}_r.name) AS name "
        f"RETURN [name, {event}.occurred_at.epochMillis, "
        f"{', '.join(f'{event}.{column}' for column in SUPPORT[2:])}] }}"
    )


def ids_by_parameter(node_ids: Iterable[str]) -> dict[str, list[str]]:
    """Own ids by the name of the parameter: `event_ids`, `entity_ids` and so on."""
    return {f"{label.lower()}_ids": ids for label, ids in ids_by_label(node_ids).items()}


class Asked(Protocol):
    """Who answers questions."""

    def rows(self, text: str, **parameters: Any) -> list[Any]:
        """The rows of one question."""


def _then(test: str) -> str:
    """A further condition of reads as of a position; `rows_in` leaves it out of all others."""
    return f"{_THEN} AND {test}{_NOW}"


@cache
def in_scope(text: str, *, then: bool) -> str:
    """A question as it is asked, of a map of its parameters; `then`: as of a position.

    The database plans a text again for each type of each parameter, and lists of no, one, ten and
    a hundred items are of different types: a step of a walk, which takes lists of four kinds of
    nodes, was planned anew, for seconds, for most of their combinations. Of what is in a map it
    does not ask the types.
    """
    shorter = text if then else _ONLY_THEN.sub("", text)
    return _PARAMETER.sub(rf"${QUESTION}.\1", shorter)


def rows_in(graph: Asked, scope: Scope, text: str, /, **parameters: Any) -> list[Any]:
    """The rows of a question in scope.

    What only reads as of a position need is cut out for all others: planning it would take the
    database longer than all the rest.
    """
    text = in_scope(text, then=scope.until is not None)
    return graph.rows(text, **{QUESTION: scope.parameters() | parameters})


def collected(graph: Asked, scope: Scope, text: str, /, **parameters: Any) -> list[Any]:
    """All rows of a question in one record: a record costs the driver as much as a hundred rows."""
    (record,) = rows_in(graph, scope, text, **parameters)
    return list(record["rows"])


class ScopedReads:
    """Questions asked in one read, in one scope.

    Args:
        graph: the read.
        scope: who looks, and as of when.
    """

    def __init__(self, graph: Asked, scope: Scope) -> None:
        self._graph = graph
        self._scope = scope

    def _rows(self, text: str, /, **parameters: Any) -> list[Any]:
        return rows_in(self._graph, self._scope, text, **parameters)


MAX_LATER: Final = 200
"""Events in a row that came later and are passed over: an order with more between is not shown."""
_MAX_INTEGER: Final = 2**63 - 1


def until_parameter(position: Position) -> list[int]:
    """A position as `$until`: the database holds integers of 63 bits, which no event is behind."""
    return [min(part, _MAX_INTEGER) for part in position]


def known(variable: str) -> str:
    """Cypher that is true of an event that is not behind the position `$until`."""
    position = f"split({variable}.global_position, '-')"
    return f"[toInteger({position}[0]), toInteger({position}[1])] <= $until"


LATER: Final = f"(x:{EVENT.label} WHERE x.tenant = $tenant AND NOT {known('x')})"


def passed_over(row: EdgeRow, forward: bool) -> str:
    """Cypher of the step to the next event; of the order of sessions, to the next known one."""
    left, right = ("-", "->") if forward else ("<-", "-")
    step = f"{left}[:{row.type}]{right}"
    if row is not FOLLOWS:
        return step
    return f"((:{EVENT.label}){step}{LATER}){{0,{MAX_LATER}}}(:{EVENT.label}){step}"
