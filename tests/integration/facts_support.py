"""A ledger of stated facts, folded by the real stages, and an API that answers from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.events import Event, timestamp_text
from tests.factories import START_MS, event
from tests.integration.api_support import Api, running_api
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

TENANT, OTHER = "acme", "other"
DAY_MS = 86_400_000


@contextmanager
def told(
    valkey: ValkeyServer, neo4j: Neo4jServer, events: Sequence[Event], **options: Any
) -> Iterator[tuple[Stack, Api]]:
    """The services after all of the events were folded by the first two stages."""
    redis_url, neo4j_url = emptied_valkey(valkey), emptied_neo4j(neo4j)
    stack = Stack(redis_url, neo4j_url)
    try:
        Enriched(stack).take_in(*events)
        with running_api(
            redis_url, neo4j_url, partitions=PARTITIONS, id_buckets=64, **options
        ) as api:
            yield stack, api
    finally:
        stack.close()


def party(name: str, kind: str = "concept", subtype: str | None = None) -> dict[str, Any]:
    """An end of a fact."""
    made = {"name": name, "type": kind}
    return made if subtype is None else {**made, "subtype": subtype}


class Facts:
    """Numbers and states facts, so that each is an event of its own."""

    def __init__(self, first: int = 1) -> None:
        self._next = first
        self.events: list[Event] = []

    def say(self, source: Any, relation: str, target: Any, **said: Any) -> Event:
        """A fact: `day` is since when it holds; `user_id` and `tenant` are the event's.

        A name as the target is a concept; `literal` makes it a value.
        """
        literal = said.pop("literal", False)
        fields = {name: said.pop(name) for name in ("user_id", "tenant") if name in said}
        day = said.pop("day", 0)
        payload = {
            "source": source if isinstance(source, dict) else party(source),
            "relation": relation,
            "target": target if literal or isinstance(target, dict) else party(target),
            "valid_from": timestamp_text(START_MS + day * DAY_MS),
            **said,
        }
        return self._add("memory.fact_asserted", payload, **fields)

    def correct(self, payload: dict[str, Any], **fields: Any) -> Event:
        """A correction of an entity."""
        return self._add("memory.entity_corrected", payload, **fields)

    def _add(self, event_type: str, payload: dict[str, Any], **fields: Any) -> Event:
        made = event(
            self._next,
            event_type=event_type,
            session_id="memory",
            payload=payload,
            **{"tenant": TENANT, **fields},
        )
        self._next += 1
        self.events.append(made)
        return made
