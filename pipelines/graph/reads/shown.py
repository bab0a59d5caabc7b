"""The words of events, for answers as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pipelines.graph.reader import GraphRead
from projections.schema import CAUSED_BY, EVENT, FOLLOWS

TEXTS: Final = f"""
UNWIND $ids AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE NOT e:{EVENT.placeholder}
RETURN id, coalesce(e.text, e.summary, '') AS text
"""


def texts(graph: GraphRead, tenant: str, event_ids: Sequence[str]) -> dict[str, str]:
    """What events say, as far as it was kept, by id; of an event without content nothing."""
    rows = graph.rows(TEXTS, tenant=tenant, ids=list(event_ids))
    return {row["id"]: row["text"] for row in rows if row["text"]}


SURROUNDINGS: Final = f"""
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: $id}})
WHERE NOT e:{EVENT.placeholder}
RETURN e.status AS status,
       EXISTS {{ (e)-[:{CAUSED_BY.type}]-(c:{EVENT.label} {{tenant: $tenant}})
                WHERE NOT c:{EVENT.placeholder} }} AS caused,
       EXISTS {{ (e)-[:{FOLLOWS.type}]-(:{EVENT.label} {{tenant: $tenant}}) }} AS followed
"""


class Surroundings(NamedTuple):
    """How an event stands: `caused` by another or causing one, `followed` or following one."""

    status: str | None
    caused: bool
    followed: bool


def surroundings(graph: GraphRead, tenant: str, event_id: str) -> Surroundings | None:
    """How an event stands in its graph; None: it is not there."""
    for row in graph.rows(SURROUNDINGS, tenant=tenant, id=event_id):
        return Surroundings(row["status"], row["caused"], row["followed"])
    return None
