"""The words of events, for answers as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipelines.adapters.graph_reader import GraphRead
from projections.schema import EVENT

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
