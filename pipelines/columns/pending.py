"""Events that were accepted and that the graph does not have yet, or without their words.

They are rows of the columns like others, so the same tests decide who sees them; whatever the
graph holds of an event replaces what is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from enrichment.text import event_text, stored_text
from pipelines.columns.events import PROPERTIES
from pipelines.columns.loading import Readings, tenant_of
from pipelines.columns.tenant import Tenant
from pipelines.graph.rows import Advanced, FoundNode
from pipelines.ledger.entries import Entry
from pipelines.ledger.sealing import sealed_by
from projections.events import is_system_event
from projections.identity import START, Position
from projections.operations import Checkpoint, Key
from projections.schema import EVENT
from projections.structural import event_node

MOST_PENDING: Final = 10_000
"""Of a partition, the newest ones; what is older is found when the graph has it."""
_FOLDS: Final = EVENT.stage
_READS: Final = next(event.stage for event in EVENT.properties if event.name in EVENT.fulltext)
"""The stages that give the graph an event, and its words."""


class Accepted(NamedTuple):
    """An event of the ledger, as enrichment would give it to the graph without a model.

    Attributes:
        partition: of the ledger.
        seq: number in the partition.
        values: by `events.PROPERTIES`.
    """

    key: Key
    partition: int
    seq: int
    values: Mapping[str, Any]


def accepted(entry: Entry) -> Accepted | None:
    """What the columns take of an entry; None: nothing, as of what the memory itself decided.

    Raises:
        UndecodableEntry: it is no event.
    """
    if entry.fault:
        return None  # the ledger's own readers see to that
    if sealed_by(entry.data) is not None:
        return None  # this process has no keys: what is sealed is found once the graph has it
    event = entry.event()
    if is_system_event(event.event_type) or event.consent_ref is not None:
        return None  # nor does it know which consents were withdrawn
    words = event_text(event)
    values = dict.fromkeys(PROPERTIES)
    folded = event_node(event, entry.position).values
    values.update((name, folded[name]) for name in folded.keys() & values.keys())
    values.update(
        kind=words.kind.value, text=stored_text(words.text) or None, speaker=words.speaker
    )
    return Accepted(event.key, entry.partition, entry.seq, values)


class Passed(NamedTuple):
    """How far a stage has come in a partition: an entry's number, 0 before the first."""

    seq: int
    position: Position


class _Lane:
    """The pending events of a partition by number, the oldest first."""

    def __init__(self) -> None:
        self.unfolded: dict[int, Accepted] = {}
        """That the graph does not have."""
        self.unread: dict[int, Accepted] = {}
        """That it has without words."""


class Pending:
    """The pending events of the columns; whoever calls holds their lock."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._by_key: dict[Key, Accepted] = {}
        self._passed: dict[tuple[str, int], Passed] = {}

    def restart(self, tenants: dict[str, Tenant], checkpoints: Iterable[Checkpoint]) -> None:
        """The columns were loaded anew, from a graph that is so far."""
        events = list(self._by_key.values())
        self._lanes.clear()
        self._by_key.clear()
        self._passed = {
            (event.stage, event.partition): Passed(event.seq, event.position)
            for event in checkpoints
        }
        self.put(tenants, events)

    def clear(self, tenants: dict[str, Tenant]) -> None:
        """Drop all of them: the ledger is another one."""
        for event in list(self._by_key.values()):
            self._drop(tenants, event)

    def read_to(self, partition: int) -> Passed:
        """Up to where the graph has the events of a partition with all their words."""
        return min(self._at(stage, partition) for stage in (_FOLDS, _READS))

    def put(self, tenants: dict[str, Tenant], events: Iterable[Accepted]) -> None:
        """Take in what the ledger has, unless the graph is as far."""
        for event in events:
            if event.key not in self._by_key and event.seq > self.read_to(event.partition).seq:
                self._put(tenants, event)

    def _put(self, tenants: dict[str, Tenant], event: Accepted) -> None:
        tenant = tenant_of(tenants, event.key)
        events, event_id = tenant.events, event.key[1]
        row = events.rows.get(event_id)
        lane = self._lanes.setdefault(event.partition, _Lane())
        if row is not None and events.table["stands"][row]:
            if (
                events.table["is_enriched"][row]
                or event.seq <= self._at(_READS, event.partition).seq
            ):
                return
            if event.values["text"] is None:
                return
            events.say(row, event.values["speaker"], event.values["text"])
            lane.unread[event.seq] = event
        elif event.seq <= self._at(_FOLDS, event.partition).seq:
            return  # the graph will never have it
        else:
            _add(tenant, event)
            lane.unfolded[event.seq] = event
        self._by_key[event.key] = event
        for held in (lane.unread, lane.unfolded):
            if len(lane.unread) + len(lane.unfolded) > MOST_PENDING and held:
                self._drop(tenants, held[next(iter(held))])

    def repeat(self, tenants: dict[str, Tenant]) -> None:
        """Put all of them into other columns of the same graph."""
        for event in self._by_key.values():
            tenant = tenant_of(tenants, event.key)
            row = tenant.events.rows.get(event.key[1])
            if row is not None and tenant.events.table["stands"][row]:
                tenant.events.say(row, event.values["speaker"], event.values["text"])
            else:
                _add(tenant, event)

    def filled(self, readings: Readings) -> Readings:
        """What is read of the graph, with the words of the events that it has without."""
        nodes = dict(readings.nodes)
        for (label, key), node in readings.nodes.items():
            event = self._by_key.get(key) if label == EVENT.label else None
            if event is not None and _lacks_words(event, node):
                words = {name: event.values[name] for name in ("text", "speaker")}
                assert node is not None
                nodes[label, key] = node._replace(values={**node.values, **words})
        return replace(readings, nodes=nodes)

    def settle(
        self, tenants: dict[str, Tenant], readings: Readings, advanced: Sequence[Advanced]
    ) -> None:
        """Leave to the graph what it has now, or passed.

        Args:
            tenants: in which the readings were set.
            readings: as the graph has them.
            advanced: where its checkpoints were moved to.
        """
        for key in readings.removed.get(EVENT.label, ()):
            if key in self._by_key:
                self._drop(tenants, self._by_key[key])
        for (label, key), node in readings.nodes.items():
            event = self._by_key.get(key) if label == EVENT.label else None
            if event is not None:
                self._follow(tenants, event, node)
        for to in advanced:
            self._passed[to.stage, to.partition] = Passed(to.seq, to.position)
        for partition in {to.partition for to in advanced}:
            self._pass(tenants, partition)

    def _follow(self, tenants: dict[str, Tenant], event: Accepted, node: FoundNode | None) -> None:
        """What the graph has of a pending event may have changed."""
        self._forget(event)
        if node is None or not node.visible:  # a placeholder, for another event names it
            self._put(tenants, event)
        elif _lacks_words(event, node):
            events = tenant_of(tenants, event.key).events
            events.table["is_enriched"][events.rows[event.key[1]]] = False
            self._lanes[event.partition].unread[event.seq] = event
            self._by_key[event.key] = event

    def _pass(self, tenants: dict[str, Tenant], partition: int) -> None:
        """Drop what a stage has passed, and did not put into the graph."""
        lane = self._lanes.get(partition)
        if lane is not None:
            for held, stage in ((lane.unfolded, _FOLDS), (lane.unread, _READS)):
                passed = self._at(stage, partition)
                while held and (seq := next(iter(held))) <= passed.seq:
                    self._drop(tenants, held[seq])

    def _drop(self, tenants: dict[str, Tenant], event: Accepted) -> None:
        """Take away what was said here of an event."""
        events = tenant_of(tenants, event.key).events
        row = events.rows[event.key[1]]
        if events.table["pending"][row]:
            events.remove(event.key[1])
        elif events.table["stands"][row]:
            events.say(row, None, None)
        self._forget(event)

    def _forget(self, event: Accepted) -> None:
        del self._by_key[event.key]
        lane = self._lanes[event.partition]
        lane.unfolded.pop(event.seq, None)
        lane.unread.pop(event.seq, None)

    def _at(self, stage: str, partition: int) -> Passed:
        return self._passed.get((stage, partition), Passed(0, START))


def _add(tenant: Tenant, event: Accepted) -> None:
    """An event that the graph does not have."""
    event_id = event.key[1]
    tenant.set_node(EVENT.label, event_id, FoundNode(event.key, True, event.values, False))
    tenant.events.table["pending"][tenant.events.rows[event_id]] = True


def _lacks_words(event: Accepted, node: FoundNode | None) -> bool:
    """Whether the graph has an event, and not what it says."""
    if node is None or not node.visible:
        return False
    return node.values["text"] is None and event.values["text"] is not None
