"""The graph depends on the set of events, and on nothing else that workers do or suffer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.entries import Block
from pipelines.work.runner import Runner
from projections.errors import Fenced, GraphUnavailable
from projections.events import Event, decode_event, event_partition, is_system_event
from projections.identity import START, Position
from projections.operations import Key, MergeEdge, MergeNode, Operations
from projections.schema import CAUSED_BY, EDGES, EVENT, FOLLOWS, FORGOTTEN, SIMILAR_TO
from tests.factories import START_MS, event, event_id
from tests.fakes.ledger import FakeLedger
from tests.fakes.stages import PROJECTING
from tests.faulty_graph import FaultyGraph
from tests.graph_dump import Dump, dump
from tests.reference_fold import SessionGraph, graph_number, session_graph
from tests.strategies import FATES, SESSIONS, TENANTS, Step, histories, schedules

PARTITIONS = 3
Placed = Sequence[tuple[Position, Event]]

relaxed = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Killed(BaseException):
    """The process ends here, whatever it was about to do."""


class Hurried(threading.Event):
    """A stop flag that never waits, so that retries cost no time."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class Workers:
    """Workers of one stage on one graph, killed and replaced as a schedule says."""

    def __init__(self, ledger: FakeLedger, graph: FaultyGraph | None = None) -> None:
        self.ledger = ledger
        self.graph = graph or FaultyGraph()
        self.stale: Block | None = None
        self.start()
        self.runner.prepare(PARTITIONS)

    def start(self) -> None:
        self.runner = Runner(PROJECTING, self.graph, target="blue", stop=Hurried())

    def take(self, step: Step) -> None:
        """Fold the next block of a partition, unless what happens prevents it."""
        at = self.runner.checkpoint(step.partition).position
        entries = self.ledger.read(step.partition, at, step.size)
        if step.fate == "again":
            folded = self.ledger.read(step.partition, START, step.size, at)
            assert self.runner.refold(step.partition, folded) == []
        if step.fate == "late" and self.stale is not None:
            self.send_late(self.stale)
        if not entries:
            return
        block = Block(step.partition, tuple(entries))
        fail = {
            "killed_before": ("before_commit", Killed()),
            "killed_after": ("after_commit", Killed()),
            "unknown_before": ("before_commit", GraphUnavailable(reason="cut")),
            "unknown_after": ("after_commit", GraphUnavailable(reason="cut")),
        }.get(step.fate)
        if fail is not None:
            self.fail_once(*fail)
        try:
            end = self.runner.apply(block)
        except Killed:
            self.start()
        else:
            assert end.position == entries[-1].position
            self.stale = block

    def send_late(self, block: Block) -> None:
        before = dump(self.graph)
        try:
            self.runner.apply(block)
        except Fenced:
            assert dump(self.graph) == before
        else:
            raise AssertionError("a block was applied twice")

    def fail_once(self, moment: str, error: BaseException) -> None:
        def fail() -> None:
            setattr(self.graph, moment, lambda: None)
            raise error

        setattr(self.graph, moment, fail)

    def finish(self, size: int) -> None:
        for partition in range(PARTITIONS):
            while entries := self.ledger.read(
                partition, self.runner.checkpoint(partition).position, size
            ):
                self.runner.apply(Block(partition, tuple(entries)))


def ledger_of(arrivals: Iterable[Event]) -> FakeLedger:
    ledger = FakeLedger(partitions=PARTITIONS)
    ledger.append(list(arrivals))
    return ledger


def placed(ledger: FakeLedger) -> Placed:
    return [
        (entry.position, decode_event(entry.data))
        for partition in range(PARTITIONS)
        for entries in ledger.scan(partition)
        for entry in entries
    ]


def folded(arrivals: Iterable[Event], steps: Iterable[Step] = (), size: int = 500) -> Dump:
    workers = Workers(ledger_of(arrivals))
    for step in steps:
        workers.take(step)
    workers.finish(size)
    return dump(workers.graph)


def seen(graph: Dump) -> SessionGraph:
    """Visible events, and all edges of Stage 1, in the form of the fold."""
    owned = [p.name for p in EVENT.owned("projection")]
    return SessionGraph(
        {
            (key[0], key[1]): tuple(values.get(name) for name in owned)
            for (label, key), (visible, values) in graph.nodes.items()
            if label == EVENT.label and visible
        },
        {
            (type_, source, target): [
                tuple(copy.get(p.name) for p in EDGES[type_].carried("projection"))
                for copy in copies
            ]
            for (type_, source, target, _), copies in graph.edges.items()
            if EDGES[type_].written_by("projection")
        },
    )


def hidden(graph: Dump) -> set[tuple[str, Key]]:
    """Placeholders."""
    return {node for node, (visible, _) in graph.nodes.items() if not visible}


def waiting(events: Iterable[Event]) -> set[tuple[str, tuple[str, str]]]:
    """The placeholders there should be, by the rule's words."""
    kept = [made for made in events if not is_system_event(made.event_type)]
    present = {made.key for made in kept}
    parents = {
        (made.tenant, made.parent_event_id) for made in kept if made.parent_event_id is not None
    }
    return {(EVENT.label, parent) for parent in parents - present}


# -- the reference itself --------------------------------------------------------------------------


def by_hand(events: Iterable[Event]) -> set[tuple[object, ...]]:
    """All edges, written down as the rules say, in another way than the code under test."""
    kept = [made for made in events if not is_system_event(made.event_type)]
    edges: set[tuple[object, ...]] = set()
    for made in kept:
        if made.parent_event_id:
            edges.add((CAUSED_BY.type, made.tenant, made.event_id, made.parent_event_id, "direct"))
        later = [
            other
            for other in kept
            if (other.tenant, other.session_id) == (made.tenant, made.session_id)
            and (other.occurred_at_ms, other.event_id) > (made.occurred_at_ms, made.event_id)
        ]
        if later:
            after = min(later, key=lambda other: (other.occurred_at_ms, other.event_id))
            delta_ms = after.occurred_at_ms - made.occurred_at_ms
            edges.add(
                (
                    *(FOLLOWS.type, made.tenant, made.event_id, after.event_id),
                    *(made.session_id, delta_ms),
                )
            )
    return edges


def flat(graph: SessionGraph) -> set[tuple[object, ...]]:
    assert all(len(copies) == 1 for copies in graph.edges.values())
    assert all(source[0] == target[0] for _, source, target in graph.edges), "crosses tenants"
    return {
        (type_, *source, target[1], *copies[0])
        for (type_, source, target), copies in graph.edges.items()
    }


@relaxed
@given(histories())
def test_the_reference_is_what_the_rules_say(history: list[Event]) -> None:
    graph = session_graph(placed(ledger_of(history)))
    assert flat(graph) == by_hand(history)
    assert set(graph.nodes) == {e.key for e in history if not is_system_event(e.event_type)}


# -- workers ---------------------------------------------------------------------------------------


@relaxed
@given(histories(), schedules(PARTITIONS), st.data())
def test_any_arrival_and_any_fate_give_the_same_graph(
    history: list[Event], steps: list[Step], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(history), max_size=4)) if history else []
    arrivals = data.draw(st.permutations([*history, *again]))
    size = data.draw(st.integers(1, 5) | st.just(500))

    ledger = ledger_of(arrivals)
    workers = Workers(ledger)
    for step in steps:
        workers.take(step)
    workers.finish(size)

    graph = dump(workers.graph)
    expected = session_graph(placed(ledger))
    assert seen(graph) == expected
    assert flat(seen(graph)) == by_hand(history)
    assert hidden(graph) == waiting(history)
    assert all(set(graph.nodes[node][1]) == set(EVENT.key) for node in hidden(graph))
    assert [one.position for one in workers.graph.checkpoints()] == [
        tail.position for tail in ledger.tails()
    ]
    assert not workers.graph.dead_letters()


@relaxed
@given(histories(), st.data())
def test_the_digest_does_not_know_the_order_of_arrival(
    history: list[Event], data: st.DataObject
) -> None:
    one = folded(history)
    other = folded(data.draw(st.permutations(history)), size=data.draw(st.integers(1, 4)))
    assert graph_number(seen(one)) == graph_number(seen(other))


@relaxed
@given(histories().filter(bool), st.data())
def test_the_digest_tells_histories_apart(history: list[Event], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(history) - 1))
    changed = list(history)
    change: tuple[str, Any] = data.draw(
        st.sampled_from(
            [
                ("occurred_at_ms", history[number].occurred_at_ms + 1),
                ("agent_id", "agent-2"),
                ("schema_version", 2),
                ("status", "failed"),
                ("session_id", "delta"),
                ("user_id", "user-2"),
            ]
        )
    )
    changed[number] = history[number]._replace(**{change[0]: change[1]})
    same = is_system_event(history[number].event_type)
    equal = graph_number(seen(folded(history))) == graph_number(seen(folded(changed)))
    assert equal == same


def forget(graph: FaultyGraph, keys: Iterable[tuple[str, str]]) -> None:
    """Leave tombstones."""
    batch = Operations()
    values = dict.fromkeys((p.name for p in FORGOTTEN.owned("consolidation")), None)
    batch.extend(MergeNode(label=FORGOTTEN.label, key=key, values=values) for key in keys)
    with graph.transaction() as transaction:
        transaction.apply(batch, "consolidation")


@relaxed
@given(histories().filter(bool), schedules(PARTITIONS), st.data())
def test_tombstoned_events_stay_away_and_are_bridged(
    history: list[Event], steps: list[Step], data: st.DataObject
) -> None:
    forgotten = set(data.draw(st.lists(st.sampled_from([e.key for e in history]), max_size=3)))
    ledger = ledger_of(data.draw(st.permutations(history)))
    workers = Workers(ledger)
    forget(workers.graph, forgotten)
    for step in steps:
        workers.take(step)
    workers.finish(3)
    graph = dump(workers.graph)
    assert seen(graph) == session_graph(placed(ledger), forgotten)
    assert flat(seen(graph)) == by_hand(e for e in history if e.key not in forgotten)


@relaxed
@given(histories(), schedules(PARTITIONS))
def test_what_others_wrote_is_left_alone(history: list[Event], steps: list[Step]) -> None:
    before = FaultyGraph()
    others = MergeEdge(
        type=SIMILAR_TO.type,
        source=("acme", "a"),
        target=("acme", "b"),
        values={"score": 0.9},
    )
    with before.transaction() as transaction:
        transaction.restore_nodes(
            EVENT.label,
            [
                FoundNode(key, False, {"importance_score": 8}, False)
                for key in {made.key for made in history} | {others.source, others.target}
            ],
        )
        transaction.restore_edges(
            others.type,
            [FoundEdge(others.source, others.target, EVENT.label, others.values)],
        )
    workers = Workers(ledger_of(history), before)
    for step in steps:
        workers.take(step)
    workers.finish(2)
    graph = dump(workers.graph)
    place = (others.type, others.source, others.target, EVENT.label)
    assert graph.edges[place] == [others.values]
    for made in history:
        assert graph.nodes[EVENT.label, made.key][1]["importance_score"] == 8


# -- cases that shrinking has to find are also written down ---------------------------------------


def test_equal_times_are_ordered_by_id_and_stand_0_ms_apart() -> None:
    history = [event(number, at=5) for number in (3, 1, 2)]
    edges = flat(seen(folded(history, size=1)))
    assert edges == {
        (FOLLOWS.type, "default", event_id(a), event_id(b), "session-1", 0)
        for a, b in [(1, 2), (2, 3)]
    }


def test_a_late_event_splits_an_edge() -> None:
    edges = flat(seen(folded([event(1), event(9), event(4)], size=1)))
    assert edges == {
        (FOLLOWS.type, "default", event_id(1), event_id(4), "session-1", 3),
        (FOLLOWS.type, "default", event_id(4), event_id(9), "session-1", 5),
    }


def test_a_block_of_500_with_everything_late() -> None:
    early = [event(number, at=2 * number) for number in range(1, 251)]
    late = [event(number, at=2 * number - 499) for number in range(251, 501)]
    history = [*reversed(early), *late]
    for size in (1, 7, 250, 500):
        assert flat(seen(folded(history, size=size))) == by_hand(history)


def test_a_parent_may_come_later_and_from_another_partition() -> None:
    names = {event_partition(event(1, session_id=n), PARTITIONS): n for n in SESSIONS}
    assert len(names) > 1
    child, parent = (event(n, session_id=names[p]) for n, p in zip((1, 2), names, strict=False))
    child = child._replace(parent_event_id=parent.event_id)
    for history in ([child, parent], [parent, child]):
        graph = folded(history, size=1)
        assert not hidden(graph)
        assert flat(seen(graph)) == by_hand(history)


def test_tenants_with_equal_ids_share_nothing() -> None:
    history = [
        event(number, tenant=tenant, parent=3 - number) for tenant in TENANTS for number in (1, 2)
    ]
    graph = folded(history, size=1)
    assert len(graph.nodes) == 4
    assert flat(seen(graph)) == by_hand(history)


@given(st.sampled_from(FATES), st.integers(0, 3))
@example("unknown_after", 1)
@settings(deadline=None)
def test_each_fate_at_each_block(fate: str, number: int) -> None:
    history = [event(n, parent=n + 1 if n < 8 else None) for n in range(1, 9)]
    partition = event_partition(history[0], PARTITIONS)
    steps = [Step(partition, 2, fate if n == number else "done") for n in range(4)]
    graph = folded(history, steps)
    assert flat(seen(graph)) == by_hand(history)
    assert graph.nodes[EVENT.label, history[-1].key][1]["occurred_at"] == START_MS + 8
