"""The applying half of Stage 3 on a target: what it asks of the graph, in its transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from consolidation.access_counts import Access, FactPlace, NodeKey, ShownFact
from consolidation.decay import Retrievals
from consolidation.decisions import RequestKey, ShownPass, Sums
from consolidation.forgetting import EventKey, Leaving, Tombstone, leaving_links
from consolidation.forgetting_payloads import FactKey
from consolidation.hierarchy import (
    CommunityKey,
    DecidedNode,
    EntityKey,
    ShownCommunity,
    ShownSummary,
    SummaryKey,
)
from consolidation.stage import (
    PROJECTION,
    Counted,
    Derived,
    Facts,
    Wanted,
    consolidate,
    derive,
    reach,
    wanted,
)
from enrichment.vectors import kept_text
from pipelines.graph.port import Transaction
from pipelines.graph.rows import End, FoundEdge, FoundNode
from pipelines.ledger.registry import Target
from pipelines.observe import metrics
from pipelines.work.folds import StageFold
from pipelines.work.gather.likeness import hold_alike
from pipelines.work.gather.projection import neighbours_of
from pipelines.work.services import Services
from pipelines.work.stages import Stage
from projections.errors import UpstreamDeadLetter
from projections.identity import START, Position, SessionKey, partition_of
from projections.operations import Key, Operations
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    CONSOLIDATION_REQUEST,
    DIRECT,
    EDGES,
    ENTITY,
    EVENT,
    FORGOTTEN,
    MEMBER_OF,
    PASS,
    RELATES_TO,
    SCOPE,
    SUMMARIZES,
    SUMMARY,
    TRAIT,
)

_DECIDED = ("decided_at", "gone", "gone_decided_at")
_ACCESSES = ("access_count", "last_accessed_at")
_RETRIEVALS = ("retrieval_count", "last_retrieved_at", "faded_at")


def consolidation_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    """The consolidation as it runs on a ledger."""
    return StageFold(
        stage,
        ConsolidationFacts(services.settings.partitions),
        consolidate,
        derive,
        reach=reach,
        count=count_pruned,
    )


def pruned_counts(operations: Operations) -> Counter[str]:
    """Events that a batch of consolidation takes away, by tier."""
    return Counter(
        str(decided.value)
        for decided in operations.decide_nodes.values()
        if (decided.label, decided.name) == (FORGOTTEN.label, "tier")
    )


def count_pruned(target: str, operations: Operations) -> None:
    """Count what a batch has taken away from a target."""
    for tier, number in pruned_counts(operations).items():
        metrics.PRUNED.labels(target=target, tier=tier).inc(number)


class ConsolidationFacts:
    """Gathers `consolidation.stage.Facts`; its call is the stage's `gather`.

    Args:
        partitions: of the ledger.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def __call__(self, transaction: Transaction, batch: Sequence[Derived]) -> Facts:
        """Read what the batch wants, under the locks that keep it true until the commit.

        All decisions of a tenant are in one partition, so the checkpoint's lock is enough for what
        only they write. The chains are the projection's: their checkpoints are locked next, in
        order. It never waits for this stage, so nobody waits in a circle. Last come the sums of
        sessions, which every partition adds to.
        """
        return _Gathering(transaction, batch, self._partitions).facts()


class _Gathering:
    def __init__(self, transaction: Transaction, batch: Sequence[Derived], partitions: int) -> None:
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
            traits={
                _pair(key): _subject(node)
                for key, node in self._nodes(TRAIT.label, self._wanted.traits, _DECIDED).items()
            },
            joined=joined,
            entities=entities,
            tombstones=tombstones,
            present={_pair(key) for key in self._nodes(EVENT.label, self._wanted.members)},
            leaving=leaving,
            neighbours=neighbours_of(self._transaction, leaving_links(leaving)) if leaving else {},
            listed=self._listed(tombstones),
            proving=self._proving(leaving),
            parted=self._parted(),
            accesses=self._accesses(),
            shown_facts=self._shown_facts(),
            came=self._came(),
            passes=self._passes(),
            requests=self._requests(),
        )

    def _nodes(self, label: str, keys: Any, properties: Sequence[str] = ()) -> dict[Key, FoundNode]:
        return self._transaction.nodes(label, sorted(keys), properties) if keys else {}

    # -- events that leave or come back ------------------------------------------------------------

    def _lock_chains(self) -> None:
        """Lock what is alike, and the projection's partitions, where events leave."""
        forgotten = self._wanted.forgotten
        if not forgotten:
            return
        hold_alike(self._transaction, {tenant for tenant, _ in forgotten})
        summaries = {(tenant, named) for (tenant, _), named in forgotten.items()}
        named = self._nodes(SUMMARY.label, summaries, ("session_id",))
        if len(named) < len(summaries):  # it is not known where they are: anywhere
            partitions = set(range(self._partitions))
        else:
            events = self._nodes(EVENT.label, forgotten, ("session_id",))
            sessions = {
                (key[0], node.values["session_id"])
                for key, node in (*named.items(), *events.items())
                if node.values["session_id"]
            }
            partitions = {partition_of(*session, self._partitions) for session in sessions}
        for partition in sorted(partitions):
            self._transaction.lock(PROJECTION, partition)

    def _leaving(self) -> dict[EventKey, Leaving]:
        if not self._wanted.forgotten:
            return {}
        shown = ("session_id", "user_id", "occurred_at", "importance_score", "embedding")
        # locked: one that is enriched again meanwhile shall tell its importance
        leaving = sorted(self._wanted.forgotten)
        nodes = self._transaction.lock_nodes(EVENT.label, leaving, shown)
        effects = self._direct(nodes, End.TARGET)
        causes = self._direct(nodes, End.SOURCE)
        named = {edge.target for edges in causes.values() for edge in edges}
        waiting = {
            key: self._ending_at(key)
            for key, node in self._nodes(EVENT.label, named).items()
            # one that holds more than its key waits for an event that was recalled
            if not node.visible and node.bare
        }
        return {
            _pair(key): Leaving(
                session_id=node.values["session_id"],
                occurred_at_ms=node.values["occurred_at"],
                importance=node.values["importance_score"],
                effects=tuple(edge.source[1] for edge in effects.get(key, ())),
                causes={
                    edge.target[1]: waiting[edge.target]
                    for edge in causes.get(key, ())
                    if edge.target in waiting
                },
                user_id=node.values["user_id"],
                vector=kept_text(node.values["embedding"]),
            )
            for key, node in nodes.items()
        }

    def _direct(self, nodes: Mapping[Key, FoundNode], by: End) -> dict[Key, list[FoundEdge]]:
        edges = self._transaction.edges(CAUSED_BY.type, nodes, ("mechanism",), by=by)
        return {
            key: [edge for edge in some if edge.values["mechanism"] == DIRECT]
            for key, some in edges.items()
        }

    def _ending_at(self, key: Key) -> tuple[str, ...]:
        """Ids of the events that have an edge to one, and an empty text for every other node."""
        return tuple(
            edge.source[1] if row.source == EVENT.label else ""
            for row in EDGES.values()
            if EVENT.label in (row.target, row.other_target)
            for edge in self._transaction.edges(
                row.type, [key], by=End.TARGET, label=EVENT.label
            ).get(key, ())
        )

    def _tombstones(self) -> dict[EventKey, Tombstone]:
        shown = ("recalled", "recalled_decided_at", "summary_id")
        return {
            _pair(key): Tombstone(
                bool(node.values["recalled"]),
                _position(node.values["recalled_decided_at"]) or START,
                node.values["summary_id"],
            )
            for key, node in self._nodes(FORGOTTEN.label, self._wanted.members, shown).items()
        }

    def _listed(self, tombstones: Mapping[EventKey, Tombstone]) -> set[tuple[str, str, str]]:
        members: dict[SummaryKey, set[str]] = {}
        for tenant, event_id in self._wanted.recalled:
            tombstone = tombstones.get((tenant, event_id))
            named = self._wanted.forgotten.get((tenant, event_id))
            summary_id = (tombstone and tombstone.summary_id) or named
            if summary_id is not None:
                members.setdefault((tenant, summary_id), set()).add(event_id)
        nodes = self._nodes(SUMMARY.label, members, ("source_event_ids",))
        return {
            (*_pair(key), event_id)
            for key, node in nodes.items()
            for event_id in members[_pair(key)].intersection(node.values["source_event_ids"] or ())
        }

    def _proving(self, leaving: Mapping[EventKey, Leaving]) -> set[tuple[str, str, str]]:
        """Traits that recalled events prove: they are of the user of the event."""
        recalled = self._wanted.recalled
        if not recalled:
            return set()
        whose = {key: leaving[key].user_id for key in recalled & leaving.keys()}
        for key, node in self._nodes(FORGOTTEN.label, recalled, ("user_id",)).items():
            whose[_pair(key)] = node.values["user_id"]
        users = {(tenant, user_id) for (tenant, _), user_id in whose.items() if user_id}
        if not users:
            return set()
        of_users = self._transaction.find(
            TRAIT.label, TRAIT.indexes[0], sorted(users), ("event_ids",)
        )
        return {
            (*_pair(node.key), event_id)
            for (tenant, _), traits in of_users.items()
            for node in traits
            for event_id in node.values["event_ids"]
            if (tenant, event_id) in recalled
        }

    def _parted(self) -> dict[EventKey, Sequence[str]]:
        parted: dict[EventKey, list[str]] = {}
        for label in (EVENT.label, FORGOTTEN.label):
            for key, node in self._nodes(label, self._wanted.parted, ("parted_from",)).items():
                if node.values["parted_from"]:
                    parted.setdefault(_pair(key), []).extend(node.values["parted_from"])
        return dict(parted)

    # -- sums --------------------------------------------------------------------------------------

    def _counted(self) -> dict[EventKey, Counted]:
        """Of ordinary events what they count for, be it told by their tombstones.

        Tombstones are read last: an event that leaves meanwhile has left one.
        """
        if not self._transaction.advanced:
            return {}
        keys = {one.event.key for one in self._batch if one.decision is None}
        nodes = self._nodes(EVENT.label, keys, ("importance_score",))
        thinned = self._transaction.has_tombstones
        absent = {key for key in keys if thinned or key not in nodes or not nodes[key].visible}
        shown = ("importance_score", "recalled", "session_id")
        tombstones = self._nodes(FORGOTTEN.label, absent, shown)
        counted = {}
        for key in sorted(keys):
            node, tombstone = nodes.get(key), tombstones.get(key)
            importance = node.values["importance_score"] if node else None
            if tombstone is None:
                counted[key] = Counted(importance, forgotten=False, placed=False)
                continue
            if importance is None:
                importance = tombstone.values["importance_score"]
            counted[key] = Counted(
                importance,
                forgotten=not tombstone.values["recalled"],
                placed=tombstone.values["session_id"] is not None,
            )
        return counted

    def _scopes(self) -> dict[SessionKey, Sums]:
        keys = set(self._wanted.sessions)
        if self._transaction.advanced:
            ordinary = (one.event for one in self._batch if one.decision is None)
            keys.update((event.tenant, event.session_id) for event in ordinary)
        if not keys:
            return {}
        nodes = self._transaction.lock_nodes(SCOPE.label, sorted(keys), Sums._fields, make=True)
        return {
            _pair(key): Sums(*(node.values[name] or 0 for name in Sums._fields))
            for key, node in nodes.items()
        }

    def _accesses(self) -> dict[NodeKey, Access]:
        """Of nodes whose accesses are counted, by the transaction that may count."""
        if not self._transaction.advanced:
            return {}
        accesses: dict[NodeKey, Access] = {}
        for label in (EVENT.label, ENTITY.label):
            keys = {key[1:] for key in self._wanted.accessed if key[0] == label}
            for key, node in self._nodes(label, keys, _ACCESSES).items():
                times, last_ms = (node.values[name] for name in _ACCESSES)
                accesses[label, key[0], key[1]] = Access(times or 0, last_ms)
        return accesses

    def _came(self) -> dict[EventKey, Position]:
        """Where the ledger has events whose accesses are counted, or that lose similar ones.

        One that the projection could not fold has a dead letter; it may be tried again meanwhile,
        so those without a letter are looked for once more.
        """
        counted = {(key[1], key[2]) for key in self._wanted.accessed if key[0] == EVENT.label}
        keys = counted | self._wanted.parted
        came = self._positions(keys)
        missing = keys - came.keys()
        if missing and self._transaction.dead_letters:
            for partition in range(self._partitions):
                for letter in self._transaction.dead_letters_of(PROJECTION, partition):
                    key = (letter["tenant"], letter["event_id"])
                    if key in missing:
                        came[key] = Position.parse(letter["position"])
            came |= self._positions(missing - came.keys())
        return came

    def _positions(self, keys: Set[EventKey]) -> dict[EventKey, Position]:
        nodes = self._nodes(EVENT.label, keys, ("global_position",))
        return {
            _pair(key): Position.parse(node.values["global_position"])
            for key, node in nodes.items()
            if node.visible
        }

    def _shown_facts(self) -> dict[FactPlace, ShownFact]:
        wanted_facts = self._wanted.facts
        if not wanted_facts:
            return {}
        pairs = sorted(
            {((tenant, key.source_id), (tenant, key.target_id)) for tenant, key in wanted_facts}
        )
        shown: dict[FactPlace, ShownFact] = {}
        edges = self._transaction.between(RELATES_TO.type, pairs, (*RELATES_TO.key, *_RETRIEVALS))
        for (source, target), parallel in edges.items():
            for edge in parallel:
                relation, edge_type, valid_from_ms, event_id = (
                    edge.values[name] for name in RELATES_TO.key
                )
                key = FactKey(
                    source_id=source[1],
                    relation=relation,
                    edge_type=edge_type,
                    target_id=target[1],
                    valid_from_ms=valid_from_ms,
                    event_id=event_id,
                )
                if (source[0], key) in wanted_facts:
                    weight, last_ms, faded_at_ms = (edge.values[name] for name in _RETRIEVALS)
                    retrievals = None if weight is None else Retrievals(weight, last_ms)
                    shown[source[0], key] = ShownFact(retrievals, faded_at_ms)
        self._require_enriched(wanted_facts - shown.keys())
        return shown

    def _require_enriched(self, missing: Set[FactPlace]) -> None:
        """A fact may be missing because nobody says it any more, but not because of poison.

        What brings a fact about may be another event than the one that says it (the result of a
        call), of the same session and so of the same partition.

        Raises:
            UpstreamDeadLetter: when it is tried again, the decision about its fact must follow.
        """
        if not missing or not self._transaction.dead_letters:
            return
        said_by = {(tenant, key.event_id) for tenant, key in missing}
        nodes = self._nodes(EVENT.label, said_by, ("session_id",))
        partitions = {
            partition_of(str(key[0]), node.values["session_id"], self._partitions)
            for key, node in nodes.items()
            if node.visible
        }
        tenants = {tenant for tenant, _ in said_by}
        for stage in (PROJECTION, RELATES_TO.stage):
            for partition in range(self._partitions):
                for letter in self._transaction.dead_letters_of(stage, partition):
                    key = (letter["tenant"], letter["event_id"])
                    if key in said_by or (partition in partitions and key[0] in tenants):
                        raise UpstreamDeadLetter(
                            reason="blocked", stage=stage, event_id=str(letter["event_id"])
                        )

    # -- subjects of decisions ---------------------------------------------------------------------

    def _summaries(self) -> dict[SummaryKey, ShownSummary]:
        shown = (*_DECIDED, "link_count_decided_at")
        nodes = self._nodes(SUMMARY.label, self._wanted.summaries, shown)
        if not nodes:
            return {}
        above = self._transaction.edges(SUMMARIZES.type, nodes, by=End.TARGET, label=SUMMARY.label)
        return {
            _pair(key): ShownSummary(
                _subject(node),
                _position(node.values["link_count_decided_at"]),
                frozenset(edge.source[1] for edge in above.get(key, ())),
            )
            for key, node in nodes.items()
        }

    def _communities(self) -> dict[CommunityKey, ShownCommunity]:
        wanted_communities = self._wanted.communities
        nodes = self._nodes(COMMUNITY.label, wanted_communities, ("run_id", *_DECIDED))
        whole = [key for key in nodes if wanted_communities[_pair(key)]]
        members = (
            self._transaction.edges(MEMBER_OF.type, whole, ("run_id",), by=End.TARGET)
            if whole
            else {}
        )
        return {
            _pair(key): ShownCommunity(
                _subject(node),
                node.values["run_id"],
                tuple((edge.source[1], edge.values["run_id"]) for edge in members.get(key, ())),
            )
            for key, node in nodes.items()
        }

    def _memberships(self) -> tuple[dict[EntityKey, Position], set[EntityKey]]:
        nodes = self._nodes(ENTITY.label, self._wanted.entities)
        if not nodes:
            return {}, set()
        edges = self._transaction.edges(MEMBER_OF.type, nodes, ("decided_at",))
        joined = {
            _pair(key): max(Position(*edge.values["decided_at"]) for edge in some)
            for key, some in edges.items()
        }
        return joined, {_pair(key) for key in nodes}

    def _passes(self) -> dict[str, ShownPass]:
        shown = ("decided_at", "answered_until", "communities_at", "traits_until")
        nodes = self._nodes(PASS.label, {(tenant,) for tenant in self._wanted.tenants}, shown)
        return {
            key[0]: ShownPass(
                _position(node.values["decided_at"]) or START,
                _position(node.values["answered_until"]) or START,
                node.values["communities_at"],
                _position(node.values["traits_until"]),
            )
            for key, node in nodes.items()
        }

    def _requests(self) -> dict[RequestKey, Position]:
        nodes = self._nodes(CONSOLIDATION_REQUEST.label, self._wanted.requests, ("position",))
        return {_pair(key): Position(*node.values["position"]) for key, node in nodes.items()}


def _pair(key: Key) -> tuple[str, str]:
    return key[0], key[1]


def _position(value: Sequence[int] | None) -> Position | None:
    return None if value is None else Position(*value)


def _subject(node: FoundNode) -> DecidedNode:
    """What was last decided: that it holds what it holds, or that it is no more."""
    if node.values["gone"]:
        return DecidedNode(_position(node.values["gone_decided_at"]), True)
    return DecidedNode(_position(node.values["decided_at"]))
