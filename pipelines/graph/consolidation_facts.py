"""What the applying half of Stage 3 wants to know of the graph, gathered in its transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import neo4j

from consolidation.access_counts import Access, FactPlace, NodeKey, ShownFact
from consolidation.decay import Retrievals
from consolidation.forgetting_payloads import FactKey
from consolidation.hierarchy import (
    CommunityKey,
    DecidedNode,
    EntityKey,
    ShownCommunity,
    ShownSummary,
    SummaryKey,
)
from consolidation.passes import RequestKey, ShownPass, Sums
from consolidation.stage import PROJECTION, Counted, Derived, Facts, Wanted, wanted
from consolidation.tombstones import EventKey, Leaving, Tombstone, leaving_links
from pipelines.graph import consolidation_cypher as cypher
from pipelines.graph.writer import GraphTransaction
from projections.identity import partition_of
from projections.positions import START, Position
from projections.schema import ENTITY, EVENT
from projections.structural import SessionKey


class ConsolidationFacts:
    """Gathers `consolidation.stage.Facts`; its call is the stage's `gather`.

    Args:
        partitions: of the ledger.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def __call__(self, transaction: GraphTransaction, batch: Sequence[Derived]) -> Facts:
        """Read what the batch wants, under the locks that keep it true until the commit.

        All decisions of a tenant are in one partition, so the checkpoint's lock is enough for what
        only they write. The chains are the projection's: their checkpoints are locked next, in
        order. It never waits for this stage, so nobody waits in a circle. Last come the sums of
        sessions, which every partition adds to.
        """
        return _Gathering(transaction, batch, self._partitions).facts()


class _Gathering:
    def __init__(
        self, transaction: GraphTransaction, batch: Sequence[Derived], partitions: int
    ) -> None:
        self._transaction = transaction
        self._batch = batch
        self._partitions = partitions
        self._wanted: Wanted = wanted(batch)

    def facts(self) -> Facts:
        self._lock_chains()
        leaving = self._leaving()
        tombstones = self._tombstones()
        joined, entities = self._memberships()
        return Facts(
            counting=self._transaction.advanced,
            counted=self._counted(),
            scopes=self._scopes(),
            summaries=self._summaries(),
            communities=self._communities(),
            joined=joined,
            entities=entities,
            tombstones=tombstones,
            present=self._present(),
            leaving=leaving,
            neighbours=self._transaction.neighbours(leaving_links(leaving)) if leaving else {},
            listed=self._listed(tombstones),
            parted={
                _event(row): row["parted"] for row in self._ask(cypher.PARTED, self._wanted.parted)
            },
            accesses=self._accesses(),
            shown_facts=self._shown_facts(),
            passes=self._passes(),
            requests=self._requests(),
        )

    def _ask(self, text: str, keys: Collection[Any], **more: Any) -> list[neo4j.Record]:
        if not keys:
            return []
        rows = [list(key) if isinstance(key, tuple) else key for key in sorted(keys)]
        return self._transaction.ask(text, {"keys": rows, **more})

    # -- events that leave or come back ------------------------------------------------------------

    def _lock_chains(self) -> None:
        """Lock the checkpoints of the projection's partitions from which events leave."""
        forgotten = self._wanted.forgotten
        if not forgotten:
            return
        summaries = {(tenant, named) for (tenant, _), named in forgotten.items()}
        found = self._ask(cypher.SESSIONS_OF_SUMMARIES, summaries)
        sessions = {(row["tenant"], row["session_id"]) for row in found if row["session_id"]}
        if len(found) < len(summaries):  # it is not known where they are: anywhere
            partitions = set(range(self._partitions))
        else:
            rows = self._ask(cypher.SESSIONS_OF_EVENTS, forgotten)
            sessions |= {(row["tenant"], row["session_id"]) for row in rows}
            partitions = {partition_of(*session, self._partitions) for session in sessions}
        self._ask(cypher.LOCK_CHAINS, partitions, stage=PROJECTION)

    def _leaving(self) -> dict[EventKey, Leaving]:
        return {
            _event(row): Leaving(
                row["session_id"],
                row["occurred_at_ms"],
                row["importance"],
                tuple(row["effects"]),
                {cause: tuple(others) for cause, others in row["causes"]},
            )
            for row in self._ask(cypher.LEAVING, self._wanted.forgotten)
        }

    def _tombstones(self) -> dict[EventKey, Tombstone]:
        return {
            _event(row): Tombstone(
                row["recalled"], _position(row["decided_at"]) or START, row["summary_id"]
            )
            for row in self._ask(cypher.TOMBSTONES, self._wanted.members)
        }

    def _present(self) -> set[EventKey]:
        return {_event(row) for row in self._ask(cypher.PRESENT_EVENTS, self._wanted.members)}

    def _listed(self, tombstones: Mapping[EventKey, Tombstone]) -> set[tuple[str, str, str]]:
        asked = set()
        for key in self._wanted.recalled:
            known = tombstones.get(key)
            summary_id = (known and known.summary_id) or self._wanted.forgotten.get(key)
            if summary_id is not None:
                asked.add((key[0], summary_id, key[1]))
        rows = self._ask(cypher.LISTED, asked)
        return {(row["tenant"], row["summary_id"], row["event_id"]) for row in rows}

    # -- sums --------------------------------------------------------------------------------------

    def _counted(self) -> dict[EventKey, Counted]:
        if not self._transaction.advanced:
            return {}
        keys = {one.event.key for one in self._batch if one.decision is None}
        return {
            _event(row): Counted(row["importance"], row["forgotten"], row["placed"])
            for row in self._ask(cypher.COUNTED, keys)
        }

    def _scopes(self) -> dict[SessionKey, Sums]:
        keys = set(self._wanted.sessions)
        if self._transaction.advanced:
            ordinary = (one.event for one in self._batch if one.decision is None)
            keys.update((event.tenant, event.session_id) for event in ordinary)
        return {
            (row["tenant"], row["session_id"]): Sums(*(row[name] or 0 for name in Sums._fields))
            for row in self._ask(cypher.LOCK_SCOPES, keys)
        }

    def _accesses(self) -> dict[NodeKey, Access]:
        """Of nodes whose accesses are counted, by the transaction that may count."""
        if not self._transaction.advanced:
            return {}
        found = {}
        for label, text in _ACCESSES.items():
            keys = {key[1:] for key in self._wanted.accessed if key[0] == label}
            for row in self._ask(text, keys):
                access = Access(row["times"] or 0, row["last_ms"])
                found[label, row["tenant"], row["id"]] = access
        return found

    def _shown_facts(self) -> dict[FactPlace, ShownFact]:
        found = {}
        for row in self._ask(
            cypher.FACTS, {(tenant, *key.parts) for tenant, key in self._wanted.facts}
        ):
            tenant, *key = row["key"]
            weight, faded_at_ms = row["weight"], row["faded_at_ms"]
            retrievals = None if weight is None else Retrievals(weight, row["last_ms"])
            found[tenant, FactKey(*key)] = ShownFact(retrievals, faded_at_ms)
        return found

    # -- subjects of decisions ---------------------------------------------------------------------

    def _summaries(self) -> dict[SummaryKey, ShownSummary]:
        return {
            (row["tenant"], row["summary_id"]): ShownSummary(
                _subject(row), _position(row["linked_at"]), frozenset(row["above"])
            )
            for row in self._ask(cypher.SUMMARIES, self._wanted.summaries)
        }

    def _communities(self) -> dict[CommunityKey, ShownCommunity]:
        keys = [(*key, whole) for key, whole in self._wanted.communities.items()]
        return {
            (row["tenant"], row["community_id"]): ShownCommunity(
                _subject(row),
                row["run_id"],
                tuple((entity_id, run_id) for entity_id, run_id in row["members"]),
            )
            for row in self._ask(cypher.COMMUNITIES, keys)
        }

    def _memberships(self) -> tuple[dict[EntityKey, Position], set[EntityKey]]:
        joined, present = {}, set()
        for row in self._ask(cypher.MEMBERSHIPS, self._wanted.entities):
            key = (row["tenant"], row["entity_id"])
            present.add(key)
            if row["joined_at"]:
                joined[key] = max(Position(*at) for at in row["joined_at"])
        return joined, present

    def _passes(self) -> dict[str, ShownPass]:
        rows = self._ask(cypher.PASSES, {(tenant,) for tenant in self._wanted.tenants})
        return {
            row["tenant"]: ShownPass(
                _position(row["decided_at"]) or START,
                _position(row["answered_until"]) or START,
                row["communities_at_ms"],
            )
            for row in rows
        }

    def _requests(self) -> dict[RequestKey, Position]:
        rows = self._ask(cypher.REQUESTS, self._wanted.requests)
        return {_event(row): Position(*row["position"]) for row in rows}


_ACCESSES = {EVENT.label: cypher.EVENT_ACCESSES, ENTITY.label: cypher.ENTITY_ACCESSES}


def _event(row: neo4j.Record) -> EventKey:
    return row["tenant"], row["event_id"]


def _position(value: Sequence[int] | None) -> Position | None:
    return None if value is None else Position(*value)


def _subject(row: neo4j.Record) -> DecidedNode:
    """What was last decided: that it holds what it holds, or that it is no more."""
    if row["gone"]:
        return DecidedNode(_position(row["gone_decided_at"]), True)
    return DecidedNode(_position(row["decided_at"]))
