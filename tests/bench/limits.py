"""What somebody would write by hand for one purpose: the limits the product is compared with.

They know neither duplicates nor fences, retries, dead letters, tombstones or placeholders, and
their rows are made before the clock starts.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import neo4j
import redis

from pipelines.graph.reads import chains
from projections.events import Event
from projections.identity import Link, Position
from projections.structural import neighbours_in

# The product's constraint and index, and the one that finds a checkpoint.
_SCHEMA = (
    "CREATE CONSTRAINT event_key IF NOT EXISTS "
    "FOR (n:Event) REQUIRE (n.tenant, n.event_id) IS UNIQUE",
    "CREATE INDEX event_index_0 IF NOT EXISTS "
    "FOR (n:Event) ON (n.tenant, n.session_id, n.occurred_at, n.event_id)",
    "CREATE CONSTRAINT checkpoint_key IF NOT EXISTS "
    "FOR (n:Checkpoint) REQUIRE (n.stage, n.partition) IS UNIQUE",
    "CALL db.awaitIndexes(300)",
)
_NODES = (
    "UNWIND $rows AS row MERGE (e:Event {tenant: row[0], event_id: row[1]}) "
    "SET e.event_type = row[2], e.occurred_at = datetime({epochMillis: row[3]}), "
    "e.session_id = row[4], "
    "e.agent_id = row[5], e.trace_id = row[6], e.tool_name = row[7], e.status = row[8], "
    "e.ended_at = CASE WHEN row[9] IS NULL THEN NULL ELSE datetime({epochMillis: row[9]}) END, "
    "e.parent_event_id = row[10], e.user_id = row[11], "
    "e.schema_version = row[12], e.payload_ref = row[13], e.importance_hint = row[14], "
    "e.global_position = row[15]"
)
_ENDS = "UNWIND $rows AS row MATCH (a:Event {tenant: row[0], event_id: row[1]}) "
_UNLINK = (
    f"{_ENDS}MATCH (b:Event {{tenant: row[0], event_id: row[2]}}) "
    "MATCH (a)-[f:FOLLOWS]->(b) DELETE f"
)
_FOLLOWS = (
    f"{_ENDS}MATCH (b:Event {{tenant: row[0], event_id: row[2]}}) "
    "MERGE (a)-[f:FOLLOWS]->(b) SET f.session_id = row[3], f.delta_ms = row[4]"
)
# A cause of another partition may not be there yet: MERGE makes it.
_CAUSED_BY = (
    f"{_ENDS}MERGE (b:Event {{tenant: row[0], event_id: row[2]}}) "
    "MERGE (a)-[:CAUSED_BY {mechanism: 'direct'}]->(b)"
)
_CHECKPOINT = (
    "MERGE (c:Checkpoint {stage: 'hand', partition: $partition}) "
    "SET c.position = $position, c.seq = $seq"
)


class Block(NamedTuple):
    """Ready-made rows of one transaction."""

    events: int
    nodes: list[list[Any]]
    causes: list[list[Any]]
    unlinked: list[list[Any]]
    links: list[list[Any]]
    checkpoint: dict[str, Any]


class HandWritten:
    """UNWIND loops on one connection: the events' nodes, edges and checkpoint, in that order."""

    def __init__(self, driver: neo4j.Driver) -> None:
        self._driver = driver
        self._chains: dict[tuple[str, str], list[Link]] = {}
        with driver.session() as session:
            for text in _SCHEMA:
                session.run(text).consume()

    def block(self, partition: int, seq: int, events: Sequence[tuple[Position, Event]]) -> Block:
        """Rows of events that lie side by side in a partition, and end at `seq`."""
        nodes, causes = [], []
        added: set[tuple[str, str, str, Link, Link]] = set()
        removed: set[tuple[str, str, str, Link, Link]] = set()
        for position, event in events:
            tenant, session = event.tenant, event.session_id
            nodes.append(
                [
                    *(tenant, event.event_id, event.event_type, event.occurred_at_ms, session),
                    *(event.agent_id, event.trace_id, event.tool_name, event.status),
                    *(
                        event.ended_at_ms,
                        event.parent_event_id,
                        event.user_id,
                        event.schema_version,
                    ),
                    *(event.payload_ref, event.importance_hint, str(position)),
                ]
            )
            if event.parent_event_id is not None:
                causes.append([tenant, event.event_id, event.parent_event_id])
            chain = self._chains.setdefault((tenant, session), [])
            link = Link(event.occurred_at_ms, event.event_id)
            before, after, _ = neighbours_in(chain, link)
            insort(chain, link)
            if before and after:
                old = (tenant, session, "", before, after)
                if old in added:
                    added.remove(old)
                else:
                    removed.add(old)
            if before:
                added.add((tenant, session, "", before, link))
            if after:
                added.add((tenant, session, "", link, after))
        return Block(
            len(nodes),
            nodes,
            causes,
            [[tenant, a.event_id, b.event_id] for tenant, _, _, a, b in removed],
            [
                [tenant, a.event_id, b.event_id, session, b.occurred_at_ms - a.occurred_at_ms]
                for tenant, session, _, a, b in added
            ],
            {"partition": partition, "position": str(events[-1][0]), "seq": seq},
        )

    def write(self, block: Block) -> float:
        """Write a block in one transaction; seconds it took."""
        begun = time.perf_counter()
        with self._driver.session() as session, session.begin_transaction() as transaction:
            run = transaction.run
            run(_NODES, rows=block.nodes).consume()
            if block.unlinked:
                run(_UNLINK, rows=block.unlinked).consume()
            run(_FOLLOWS, rows=block.links).consume()
            run(_CAUSED_BY, rows=block.causes).consume()
            run(_CHECKPOINT, block.checkpoint).consume()
            transaction.commit()
        return time.perf_counter() - begun


def bare_read(client: redis.Redis, streams: Sequence[str], driver: neo4j.Driver) -> float:
    """Read all that verify reads, and do nothing with it; seconds it took."""
    begun = time.perf_counter()
    for stream in streams:
        for _ in bare_scan(client, stream):
            pass
    for _ in bare_stream(driver):
        pass
    return time.perf_counter() - begun


def bare_scan(client: Any, stream: str, count: int = 1_000) -> Iterator[Mapping[bytes, bytes]]:
    """Every entry of a stream as redis-py gives it."""
    after = "-"
    while entries := client.xrange(stream, after, "+", count=count):
        yield from entries
        after = f"({entries[-1][0].decode()}"


def bare_stream(driver: neo4j.Driver) -> Iterator[neo4j.Record]:
    """Every event with its edges, in the order of the chains, as the driver gives it."""
    with driver.session(fetch_size=5_000, default_access_mode=neo4j.READ_ACCESS) as session:
        yield from session.run(chains.STREAM_EVENTS)
