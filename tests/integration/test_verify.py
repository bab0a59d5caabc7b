"""Verify names what was tampered with and nothing else; repair mends it and nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pipelines.proof.report import ProofReport
from pipelines.proof.sums import digest_text
from projections.errors import EntryHeldOut, FoldVersionMismatch, GraphAhead
from projections.events import Event, event_partition
from projections.identity import START
from projections.operations import Checkpoint
from projections.schema import CAUSED_BY, EVENT, FOLLOWS, PLACEHOLDER, Kind
from tests.factories import event, event_id, full_event, sessions
from tests.integration.stack import Ingest, Proven, Stack, keys_of
from tests.memory_stack import PARTITIONS, Worker
from tests.reference_fold import graph_number, session_graph

pytestmark = pytest.mark.integration

NODE = ("node", EVENT.label)
NEXT = ("edge", FOLLOWS.type)
CAUSE = ("edge", CAUSED_BY.type)


def key(*numbers: int, tenant: str = "default") -> tuple[str, ...]:
    return (tenant, *(event_id(number) for number in numbers))


class Tampering(NamedTuple):
    """One thing done by hand, and how verify must name it: kind, element, type, key, fields."""

    text: str
    named: set[tuple[Any, ...]]


# The graph: sessions `session-0` and `session-1` of events 1 3 5 7 9 and 2 4 6 8 10, each caused by
# the one before; event 11 is alone with every field set and waits for its parent 1000011.
GRAPH = [
    *sessions(2, 5),
    full_event(11, session_id="session-2", at=11),
    *(event(n, tenant="acme", session_id="session-0", at=n) for n in (1, 3)),
]
WAITING = [("default", event_id(1_000_011))]
DIGEST = digest_text(
    graph_number(session_graph([(START, made) for made in GRAPH]))
)  # without positions: the same in every ledger

STRINGS = tuple(
    p.name for p in EVENT.owned("projection") if p.kind is Kind.STRING and p.name != "session_id"
)
NOT_OF_THE_CHAIN = tuple(
    p.name for p in EVENT.owned("projection") if p.name not in ("occurred_at", "session_id")
)

_E = "MATCH (e:Event {tenant: 'default', event_id: $id})"
_PAIR = (
    "MATCH (a:Event {tenant: 'default', event_id: $a}), (b:Event {tenant: 'default', event_id: $b})"
)


def ids(text: str, **numbers: int) -> str:
    """The text with the ids of those numbers in place of its parameters."""
    for name, number in numbers.items():
        text = text.replace(f"${name}", f"'{event_id(number)}'")
    return text


def changed(name: str, value: str, number: int = 11) -> Tampering:
    text = ids(_E, id=number) + f" SET e.{name} = {value}"
    return Tampering(text, {("different", *NODE, key(number), (name,))})


TAMPERINGS: dict[str, Tampering] = {
    "an edge is dropped": Tampering(
        ids(f"{_PAIR} MATCH (a)-[r:FOLLOWS]->(b) DELETE r", a=3, b=5),
        {("missing", *NEXT, key(3, 5), ())},
    ),
    "a cause is dropped": Tampering(
        ids(f"{_PAIR} MATCH (a)-[r:CAUSED_BY]->(b) DELETE r", a=5, b=3),
        {("missing", *CAUSE, key(5, 3), ())},
    ),
    "an edge is doubled": Tampering(
        ids(f"{_PAIR} MATCH (a)-[r:FOLLOWS]->(b) CREATE (a)-[s:FOLLOWS]->(b) SET s = r", a=3, b=5),
        {("different", *NEXT, key(3, 5), ("copies",))},
    ),
    "a cause is doubled": Tampering(
        ids(f"{_PAIR} CREATE (a)-[:CAUSED_BY {{mechanism: 'direct'}}]->(b)", a=5, b=3),
        {("different", *CAUSE, key(5, 3), ("copies",))},
    ),
    "an edge leads to another": Tampering(
        ids(
            f"{_PAIR} CREATE (a)-[:FOLLOWS {{session_id: 'session-0', delta_ms: 1}}]->(b)", a=1, b=7
        ),
        {("extra", *NEXT, key(1, 7), ())},
    ),
    "an edge joins two sessions": Tampering(
        ids(
            f"{_PAIR} CREATE (a)-[:FOLLOWS {{session_id: 'session-0', delta_ms: 1}}]->(b)", a=9, b=2
        ),
        {("extra", *NEXT, key(9, 2), ())},
    ),
    "a cause joins two sessions": Tampering(
        ids(f"{_PAIR} CREATE (a)-[:CAUSED_BY {{mechanism: 'direct'}}]->(b)", a=2, b=9),
        {("extra", *CAUSE, key(2, 9), ())},
    ),
    "a cause of another mechanism": Tampering(
        ids(f"{_PAIR} MATCH (a)-[r:CAUSED_BY]->(b) SET r.mechanism = 'guessed'", a=5, b=3),
        {("different", *CAUSE, key(5, 3), ("mechanism",))},
    ),
    "an edge crosses tenants": Tampering(
        "MATCH (a:Event {tenant: 'acme'}), (b:Event {tenant: 'default', event_id: "
        f"'{event_id(9)}'}}) WHERE a.event_id = '{event_id(3)}' "
        "CREATE (a)-[:CAUSED_BY {mechanism: 'direct'}]->(b)",
        {("extra", *CAUSE, ("acme", event_id(3), "default", event_id(9)), ())},
    ),
    "an edge leads round to itself": Tampering(
        ids(f"{_E} CREATE (e)-[:FOLLOWS {{session_id: 'session-0', delta_ms: 0}}]->(e)", id=9),
        {("extra", *NEXT, key(9, 9), ())},
    ),
    **{
        f"delta_ms is {value}": Tampering(
            ids(f"{_PAIR} MATCH (a)-[r:FOLLOWS]->(b) SET r.delta_ms = {value}", a=3, b=5),
            {("different", *NEXT, key(3, 5), ("delta_ms",))},
        )
        for value in ("21", "20.0", "null")
    },
    "an edge names another session": Tampering(
        ids(f"{_PAIR} MATCH (a)-[r:FOLLOWS]->(b) SET r.session_id = 'x'", a=3, b=5),
        {("different", *NEXT, key(3, 5), ("session_id",))},
    ),
    "every string is another": Tampering(
        ids(_E, id=11) + " SET " + ", ".join(f"e.{name} = 'tampered'" for name in STRINGS),
        {("different", *NODE, key(11), STRINGS)},
    ),
    "everything optional is gone": Tampering(
        ids(_E, id=11) + " SET " + ", ".join(f"e.{name} = null" for name in NOT_OF_THE_CHAIN),
        {("different", *NODE, key(11), NOT_OF_THE_CHAIN)},
    ),
    **{
        f"{name} alone is another": changed(name, "'tampered'")
        for name in ("event_type", "payload_ref", "global_position")
    },
    "schema_version is 1.0": changed("schema_version", "1.0"),
    "schema_version is '1'": changed("schema_version", "'1'"),
    "schema_version is true": changed("schema_version", "true"),
    "importance_hint is 7.0": changed("importance_hint", "7.0"),
    "tool_name is a list": changed("tool_name", "['search']"),
    "tool_name is bytes of a time": changed("tool_name", "date('2026-01-01')"),
    "user_id comes from nowhere": changed("user_id", "'someone'", number=5),
    "status is not a number": changed("status", "0.0 / 0.0", number=5),
    "ended_at is a string": changed("ended_at", "toString(e.ended_at)"),
    "ended_at is a local time": changed("ended_at", "localdatetime(e.ended_at)"),
    "ended_at is a microsecond later": changed(
        "ended_at", "e.ended_at + duration({microseconds: 1})"
    ),
    "occurred_at is later, in the same place": changed(
        "occurred_at", "e.occurred_at + duration({milliseconds: 1})"
    ),
    "occurred_at is a string": changed("occurred_at", "toString(e.occurred_at)"),
    "occurred_at is gone": changed("occurred_at", "null"),
    "session_id is gone": changed("session_id", "null"),
    "session_id is another": changed("session_id", "'session-1'"),
    "session_id is new": changed("session_id", "'session-99'"),
    "session_id is a list": changed("session_id", "['session-2']"),
    "session_id is a number": changed("session_id", "5"),
    "an event of a chain moves to another": Tampering(
        ids(_E, id=5) + " SET e.session_id = 'session-1'",
        {("different", *NODE, key(5), ("session_id",))},
    ),
    "an event is hidden": Tampering(
        ids(_E, id=5) + f" SET e:{PLACEHOLDER}", {("different", *NODE, key(5), ("visible",))}
    ),
    "an event is gone": Tampering(
        ids(_E, id=1) + " DETACH DELETE e",
        {
            ("missing", *NODE, key(1), ()),
            ("missing", *NEXT, key(1, 3), ()),
            ("missing", *CAUSE, key(3, 1), ()),
        },
    ),
    "an event is too many in a session": Tampering(
        "MATCH (o:Event {tenant: 'default', event_id: '" + event_id(3) + "'}) "
        "CREATE (e:Event {event_id: '" + event_id(99) + "'}) "
        "SET e += o{.tenant, .session_id, .occurred_at, .agent_id}",
        {("extra", *NODE, key(99), ())},
    ),
    "an event is too many in a session of its own": Tampering(
        "CREATE (:Event {tenant: 'default', event_id: 'x', session_id: 'new', "
        "occurred_at: datetime()})",
        {("extra", *NODE, ("default", "x"), ())},
    ),
    "a node has no session": Tampering(
        "CREATE (:Event {tenant: 'default', event_id: 'x'})",
        {("extra", *NODE, ("default", "x"), ())},
    ),
    "a node has no key": Tampering(
        "CREATE (:Event {occurred_at: datetime()})",
        {("extra", "schema", "stray", (EVENT.label,), ())},
    ),
    "a placeholder of nobody": Tampering(
        "CREATE (:Event:Placeholder {tenant: 'default', event_id: 'x'})",
        {("extra", *NODE, ("default", "x"), ())},
    ),
    "a placeholder holds more": Tampering(
        ids(_E, id=1_000_011) + " SET e.agent_id = 'x'",
        {("different", *NODE, key(1_000_011), ("agent_id",))},
    ),
    "a placeholder is shown": Tampering(
        ids(_E, id=1_000_011) + " REMOVE e:Placeholder",
        {("different", *NODE, key(1_000_011), ("visible",))},
    ),
    "a placeholder is gone": Tampering(
        ids(_E, id=1_000_011) + " DETACH DELETE e",
        {("missing", *NODE, key(1_000_011), ()), ("missing", *CAUSE, key(11, 1_000_011), ())},
    ),
    "a placeholder follows": Tampering(
        ids(f"{_PAIR} CREATE (a)-[:CAUSED_BY {{mechanism: 'direct'}}]->(b)", a=1_000_011, b=1),
        {("extra", *CAUSE, key(1_000_011, 1), ())},
    ),
}


@pytest.fixture
def projected(stack: Stack) -> Stack:
    stack.append(*GRAPH)
    stack.fold()
    return stack


def named(report: ProofReport) -> set[tuple[Any, ...]]:
    return {(d.kind, d.element, d.type, d.key, tuple(d.fields)) for d in report.differences}


@pytest.fixture(scope="module")
def proven(module_stack: Stack) -> Proven:
    module_stack.append(*GRAPH)
    module_stack.fold()
    made = Proven(module_stack)
    assert (made.report.digest, made.report.waiting_parents) == (DIGEST, WAITING)
    return made


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named_and_mended(proven: Proven, name: str) -> None:
    tampering = TAMPERINGS[name]
    report = proven.damage(tampering.text)
    assert tampering.named <= named(report)
    beside = named(report) - tampering.named
    assert all(element == "edge" for _, element, *_ in beside), beside
    if all(element == "edge" for _, element, *_ in tampering.named):
        assert not beside

    assert proven.mend().waiting_parents == WAITING


@pytest.mark.parametrize("times", [1, 100])
def test_a_checkpoint_read_while_it_is_written_is_no_loss(
    projected: Stack, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """One property of it may be read new, and another old; what is lost stays lost."""
    graph = type(projected.graph)
    whole = graph.checkpoints
    torn: list[int] = []

    def half_written(self: Any, stage: str | None = None) -> list[Checkpoint]:
        first, *others = whole(self, stage)
        if stage is None and len(torn) < times:
            torn.append(first.seq)
            first = replace(first, seq=first.seq + 1)
        return [first, *others]

    monkeypatch.setattr(graph, "checkpoints", half_written)
    if times == 1:
        assert projected.verify().ok
        assert torn
    else:
        with pytest.raises(GraphAhead):
            projected.verify()


def test_the_untouched_graph_is_right(projected: Stack) -> None:
    report = projected.verify()
    assert (report.ok, report.events, report.differences) == (True, len(GRAPH), [])
    assert report.waiting_parents == WAITING
    assert report.digest == DIGEST


def test_what_the_schema_does_not_know_is_named_and_removed(projected: Stack) -> None:
    before, whole = projected.dump(), projected.verify()
    projected.cypher("MATCH (e:Event) WHERE e.occurred_at IS NOT NULL SET e.mood = 'x', e:Marked")
    projected.cypher(
        "MATCH (e:Event {event_id: $id}) "
        "CREATE (e)<-[:SEEN_IN {by: 'test'}]-(:Person {name: 'Ada'})",
        id=event_id(1),
    )
    report = projected.verify()
    assert {(one.kind, one.type, *one.key) for one in report.differences} == {
        ("extra", "label", "Marked"),
        ("extra", "label", "Person"),
        ("extra", "edge type", "SEEN_IN"),
        ("extra", "property", EVENT.label, "mood"),
    }
    assert report.digest == whole.digest
    assert projected.verify(repair=True).ok
    assert projected.dump() == before


def test_one_session_is_compared_alone(projected: Stack) -> None:
    projected.cypher("MATCH (e:Event {event_id: $id}) SET e.agent_id = 'x'", id=event_id(2))
    good = projected.verify(session="session-0")
    bad = projected.verify(session="session-1")
    assert (good.ok, good.events, bad.ok, bad.events) == (True, 5, False, 5)
    assert projected.verify(session="session-0", tenant="acme").events == 2
    assert projected.verify(session="nothing").events == 0
    assert projected.verify(session="session-1", repair=True).ok
    assert projected.verify().ok


def test_much_that_is_wrong_is_counted_and_part_of_it_listed(
    projected: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.proof.proof.LISTED", 3)
    projected.cypher("MATCH (e:Event) WHERE e.occurred_at IS NOT NULL SET e.agent_id = 'x'")
    report = projected.verify()
    assert (report.difference_count, len(report.differences)) == (len(GRAPH), 3)
    assert not report.ok
    assert report.as_dict()["difference_count"] == len(GRAPH)


def test_an_empty_graph_misses_everything_and_is_filled(projected: Stack) -> None:
    whole = projected.verify()
    projected.cypher("MATCH (e:Event) DETACH DELETE e")
    report = projected.verify()
    missing = {d.key for d in report.differences if d.element == "node"}
    assert missing == {e.key for e in GRAPH} | set(WAITING)
    assert projected.verify(repair=True).digest == whole.digest


def test_lag_and_dead_letters_are_told_and_no_difference(stack: Stack) -> None:
    stack.fill()
    stack.append(*(event(n, session_id="later") for n in range(900, 905)))
    report = stack.verify()
    assert (report.ok, report.lag_entries, report.events) == (True, 5, 20)


def test_an_unreadable_entry_that_was_never_recorded_is_a_difference(stack: Stack) -> None:
    stack.append(event(1))
    partition = event_partition(event(1), PARTITIONS)
    odd = stack.append_raw(partition, b"nothing")
    stack.fold()
    assert stack.verify().ok
    stack.cypher("MATCH (d:DeadLetter) DELETE d")
    report = stack.verify()
    assert keys_of(report) == [
        ("missing", "node", "DeadLetter", ("projection", partition, odd.seq))
    ]


def test_a_dead_letter_whose_event_is_in_the_graph_is_a_difference(stack: Stack) -> None:
    (place, *_) = stack.append(event(1), event(2))
    stack.fold()
    with stack.graph.transaction() as transaction:
        transaction.add_dead_letter(
            *("projection", place.partition, 1),
            position=str(place.position),
            tenant="default",
            event_id=event_id(1),
            kind="poison",
            reason="",
            attempts=5,
        )
    letter = ("projection", place.partition, 1)
    assert keys_of(stack.verify()) == [("extra", "node", "DeadLetter", letter)]
    assert stack.verify(repair=True).ok
    assert not stack.graph.dead_letters()


def test_a_tombstone_that_nobody_decided_hides_nothing(stack: Stack) -> None:
    stack.append(*GRAPH)
    stack.cypher("CREATE (:Forgotten {tenant: 'default', event_id: $id})", id=event_id(3))
    stack.fold()
    named_keys = keys_of(stack.verify())
    assert ("extra", "node", "Forgotten", key(3)) in named_keys
    assert ("different", *NODE, key(3)) in named_keys
    assert stack.verify(repair=True).digest == DIGEST


def test_another_order_of_arrival_has_the_same_digest(make_stack: Callable[..., Stack]) -> None:
    one = make_stack()
    one.append(*GRAPH)
    one.fold()
    digest = one.verify().digest
    one.graph.clear()
    other = make_stack(prefix="other", partitions=3)
    for made in random.Random(4).sample(GRAPH, len(GRAPH)):
        other.append(made)
    other.fold(size=2)
    report = other.verify()
    assert report.ok
    assert report.digest == digest
    other.append(event(77))
    other.fold()
    assert other.verify().digest != digest


def test_other_rules_are_told_at_once(projected: Stack) -> None:
    projected.cypher("MATCH (c:Checkpoint) SET c.fold_version = c.fold_version + 1")
    with pytest.raises(FoldVersionMismatch):
        projected.verify()


@pytest.mark.parametrize("count", [1, 2])
def test_an_entry_that_was_deleted_is_told_at_once(projected: Stack, count: int) -> None:
    """Nothing is judged by a ledger that has a hole; sending the event again fills it."""
    before = projected.verify()
    tail = projected.ledger.tails()[0]
    redis: Any = projected.services.redis
    stream = projected.ledger.keys.stream(0)
    lost = projected.ledger.read(0, START, 1_000)[-count:]
    redis.xdel(stream, *(str(entry.position) for entry in lost))
    with pytest.raises(EntryHeldOut) as caught:
        projected.verify()
    assert (caught.value.partition, caught.value.position) == (0, str(tail.position))
    projected.append(*(entry.event() for entry in lost))
    after = projected.verify()
    assert (after.ok, after.digest) == (True, before.digest)


def late_and_early(count: int) -> Iterator[Event]:
    """Events of few sessions in a seeded disorder; parents before and after them."""
    rng = random.Random(11)
    for number in range(1_000, 1_000 + count):
        yield event(
            number,
            at=rng.randrange(50_000),
            session_id=f"session-{rng.randrange(6)}",
            parent=number + rng.choice((-7, -1, 1, 9)),
        )


def test_no_false_alarm_while_late_events_pour_in(stack: Stack) -> None:
    stack.fill()
    begun = time.monotonic()
    seen: list[int] = []
    ingest = Ingest(stack, late_and_early(100_000), pause_s=0.001)
    with ingest, Worker(stack):
        # A busy machine gets more time, to look more than twice.
        while time.monotonic() < begun + (10 if len(set(seen)) > 2 else 180):
            report = stack.verify()
            assert report.ok, report.differences[:5]
            seen.append(report.events)
    assert ingest.appended > 200
    assert len(set(seen)) > 2, "nothing flowed while verify looked"
    stack.fold()
    report = stack.verify()
    assert report.ok
    assert report.events == 20 + ingest.appended
