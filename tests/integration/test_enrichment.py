"""Stage 2 on real services with real models: whatever the order, one graph."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pipelines.ledger.connect import Block
from pipelines.observe import metrics
from pipelines.operations.dead_letters import list_, retry
from pipelines.operations.rebuild import rebuild, replay
from pipelines.work.live import Decisions
from pipelines.work.stages import ENRICHMENT
from projections.events import Event
from tests.factories import START_MS, event_id
from tests.fakes.stages import PROJECTING
from tests.integration.enrichment_support import Enriched, called, embedder, returned, said, stated
from tests.integration.stack import Stack, Worker

pytestmark = pytest.mark.integration


def conversation() -> list[Event]:
    """Two sessions that share people and a reservation, and what was stated beside them."""
    booking = {"reservation_id": "ZFA04Y", "user_id": "mia_li_3668", "status": "active"}
    other = {"session_id": "session-2", "trace_id": "trace-2"}
    return [
        said(1, "Hello, I am Mia Li. Please cancel my reservation ZFA04Y.", "Mia"),
        called(2, "get_reservation_details", {"reservation_id": "ZFA04Y"}),
        returned(3, "get_reservation_details", booking),
        called(4, "cancel_reservation", {"reservation_id": "ZFA04Y", "user_id": "mia_li_3668"}),
        returned(5, "cancel_reservation", {**booking, "status": "cancelled"}),
        said(6, "Your reservation ZFA04Y was cancelled.", "agent-1"),
        said(7, "We went to the adoption agency in Boston yesterday.", "Caroline", **other),
        said(8, "The adoption agencies in Boston are very helpful.", "Melanie", **other),
        said(9, "The adoption agencies in Boston are really helpful.", "Caroline", **other),
        called(10, "refund", {"amount": 219.37, "card": "card_8812"}, **other),
        returned(11, "refund", "gateway timeout", status="failed", **other),
        called(12, "refund", {"amount": 219.37, "card": "card_8812"}, **other),
        stated(13, "memory.fact_asserted", fact("Berlin")),
        stated(14, "memory.fact_asserted", fact("Paris")),
        stated(15, "memory.fact_asserted", fact("Berlin")),
    ]


def fact(city: str) -> dict[str, object]:
    return {
        "source": {"name": "Ann"},
        "relation": "lives_in",
        "target": {"name": city},
    }


@pytest.fixture
def enriched(stack: Stack) -> Enriched:
    return Enriched(stack)


def test_every_event_is_enriched(enriched: Enriched) -> None:
    events = conversation()
    enriched.take_in(*events)
    first = enriched.event(events[0])
    assert first["text"] == "Hello, I am Mia Li. Please cancel my reservation ZFA04Y."
    assert first["summary"]
    assert "zfa04y" in [word.lower() for word in first["keywords"]]
    assert 1 <= first["importance_score"] <= 10
    assert first["embedding_model"] == f"{embedder().model}@{embedder().revision}"
    assert len(first["embedding"]) == 384
    assert enriched.stack.cypher("MATCH (e:Event) WHERE e.text IS NULL RETURN count(e)") == [0]
    assert enriched.causes(events[3])[events[2].event_id] == "value_flow"
    assert "retry" in enriched.causes(events[11]).values()
    pairs = enriched.stack.cypher(
        "MATCH (a)-[s:SIMILAR_TO]->(b) RETURN a.event_id, b.event_id, s.score"
    )
    assert [event_id(8), event_id(9)] in [row[:2] for row in pairs]
    assert all(one < other and 0.85 < score <= 1 for one, other, score in pairs)


def test_facts_have_intervals(enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    assert enriched.facts("lives_in") == [
        ["Ann", "Berlin", START_MS + 13, START_MS + 14],
        ["Ann", "Paris", START_MS + 14, START_MS + 15],
        ["Ann", "Berlin", START_MS + 15, None],
    ]


@pytest.mark.parametrize("size", [1, 4, 500])
def test_the_order_of_arrival_does_not_matter(make_stack: Callable[..., Stack], size: int) -> None:
    events = conversation()
    in_order = Enriched(make_stack())
    in_order.take_in(*events)
    expected = in_order.folded()
    in_order.stack.cypher("MATCH (n) DETACH DELETE n")
    shuffled = Enriched(make_stack(prefix=f"shuffled-{size}"))
    random.Random(size).shuffle(events)
    for first in range(0, len(events), 5):
        # the projection is ahead by a part; some parts come twice
        part = events[first : first + 5]
        shuffled.stack.append(*part, *part[:2])
        shuffled.stack.fold(size)
        if first % 10:
            shuffled.fold(size)
    shuffled.fold(size)
    assert shuffled.folded() == expected


def test_replay_changes_nothing(enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    before = enriched.stack.dump()
    for _ in range(2):
        runner = enriched.new_runner(stage=enriched.new_stage())
        for partition in range(2):
            for entries in enriched.stack.ledger.scan(partition):
                assert runner.refold(partition, entries) == []
        assert enriched.stack.dump() == before


def test_a_late_event_changes_the_causes_of_those_behind_it(enriched: Enriched) -> None:
    told = said(1, "My reservation is ZFA04Y.", "Mia")
    repeated = returned(3, "lookup", {"reservation_id": "ZFA04Y"})
    used = called(5, "cancel_reservation", {"reservation_id": "ZFA04Y"})
    enriched.take_in(repeated, used)
    assert enriched.causes(used) == {repeated.event_id: "value_flow"}
    enriched.take_in(told)
    late = enriched.causes(used)
    anew = Enriched(enriched.stack)
    assert told.event_id in late
    assert late == anew.causes(used)


def test_a_warm_cache_embeds_nothing(make_stack: Callable[..., Stack], enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    asked = metrics.MODEL_TEXTS.labels(model="embedding")
    before = asked._value.get()
    enriched.stack.cypher("MATCH (n) DETACH DELETE n")
    enriched.stack.runner.prepare(2)
    fresh = Enriched(enriched.stack)
    enriched.stack.fold(runner=enriched.stack.new_runner())
    fresh.fold()
    assert enriched.stack.cypher("MATCH (e:Event) WHERE e.embedding IS NULL RETURN count(e)") == [0]
    assert asked._value.get() == before


def test_enrichment_waits_for_the_projection(enriched: Enriched) -> None:
    enriched.stack.append(*conversation())
    done = threading.Event()

    def enrich() -> None:
        enriched.fold()
        done.set()

    thread = threading.Thread(target=enrich)
    thread.start()
    assert not done.wait(0.3)
    assert enriched.stack.cypher("MATCH (n:Entity) RETURN count(n)") == [0]
    enriched.stack.fold()
    assert done.wait(60)
    thread.join()
    assert enriched.stack.cypher("MATCH (e:Event) WHERE e.text IS NULL RETURN count(e)") == [0]


def test_what_the_projection_could_not_fold_is_blocked_until_it_is_retried(
    enriched: Enriched,
) -> None:
    bad = said(2, "not today")
    stack = enriched.stack

    def refusing(events: Sequence[tuple[object, Event]], facts: object) -> object:
        if any(event.event_id == bad.event_id for _, event in events):
            raise ValueError("no")
        return PROJECTING.fold(events, facts)

    stack.append(said(1, "one"), bad, said(3, "three"))
    stack.fold(runner=stack.new_runner(replace(PROJECTING, fold=refusing)))  # type: ignore[arg-type]
    enriched.fold()
    letters = [(one["stage"], one["kind"]) for one in list_(stack.services).dead_letters]
    assert letters == [("enrichment", "blocked_by"), ("projection", "poison")]
    assert enriched.event(event_id(3))["text"] == "three"
    assert retry(stack.services, stage="projection").done == 2
    assert enriched.event(bad)["text"] == "not today"
    assert list_(stack.services).dead_letters == []


@pytest.mark.parametrize(
    "payload",
    [
        "\x00\x01" * 1_000,
        "x" * 250_000,
        "🙂" * 5_000,
        "\u202eabc\u202c ‏" * 50,
        {"role": "user", "content": None},
        {"a": {"b": [[[[{}]]]]}},
        [None, 1, True, 2.5],
        "",
        0,
        False,
    ],
    ids=["control", "256k", "emoji", "rtl", "null", "nested", "list", "empty", "zero", "false"],
)
def test_a_strange_payload_degrades_alone(enriched: Enriched, payload: object) -> None:
    strange = said(2, "")._replace(payload=payload)
    enriched.take_in(said(1, "Good morning."), strange, said(3, "Good night."))
    assert enriched.event(event_id(1))["text"] == "Good morning."
    assert enriched.event(event_id(3))["text"] == "Good night."
    assert enriched.event(strange)["importance_score"] >= 1
    assert list_(enriched.stack.services).dead_letters == []


def test_two_workers_make_one_entity(enriched: Enriched) -> None:
    stack = enriched.stack
    events = [
        said(n, "The adoption agency in Boston helped us.", session_id=f"session-{n}")
        for n in range(1, 25)
    ]
    stack.append(*events)
    stack.fold()
    errors: list[BaseException] = []

    def work(partition: int) -> None:
        runner = enriched.new_runner(stage=enriched.new_stage())
        try:
            while entries := stack.ledger.read(partition, runner.checkpoint(partition).position, 3):
                runner.apply(Block(partition, tuple(entries)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    names = stack.cypher("MATCH (n:Entity {entity_type: 'concept'}) RETURN n.canonical_name")
    assert len(names) == len(set(names)) > 0
    assert stack.cypher(
        "MATCH (n:Entity {canonical_name: 'adoption agency'}) RETURN COUNT { (n)<--(:Event) }"
    ) == [24]


def test_sameness_is_decided_once_and_applied_when_read_back(enriched: Enriched) -> None:
    stack = enriched.stack
    deciding = enriched.new_runner(decide=Decisions(stack.services, stack.target.name))
    stack.append(said(1, "Caroline called. We met Caroline."), said(2, "Hi!", "Caroline"))
    with Worker(stack):
        enriched.fold(runner=deciding)
    decided = [
        entry
        for partition in range(2)
        for block in stack.ledger.scan(partition)
        for entry in block
        if b"memory.same_as" in entry.data
    ]
    assert len(decided) == 1
    stack.fold()
    enriched.fold(runner=deciding)
    rows = stack.cypher(
        "MATCH (a)-[s:SAME_AS]->(b) RETURN a.entity_type, b.entity_type, s.retracted"
    )
    assert [sorted(row[:2]) + row[2:] for row in rows] == [["agent", "concept", False]]
    # a replay decides nothing anew, and applies the same
    before = stack.dump()
    assert replay(stack.services, ENRICHMENT).failed == []
    assert stack.dump() == before


def test_a_stand_by_target_decides_nothing(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.append(said(1, "Caroline called. We met Caroline."), said(2, "Hi!", "Caroline"))
    stack.fold()
    before = [tail.seq for tail in stack.ledger.tails()]
    enriched.fold(runner=enriched.new_runner(decide=Decisions(stack.services, "green")))
    assert [tail.seq for tail in stack.ledger.tails()] == before


def test_rebuild_in_place_gives_the_same_graph(enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    before = enriched.folded()
    enriched.stack.cypher("MATCH (n:Entity) DETACH DELETE n")
    enriched.stack.cypher("MATCH (h:FactHistory) DELETE h")
    report = rebuild(enriched.stack.services)
    assert report.ok
    assert report.verified.repaired == 0
    assert enriched.folded() == before


def test_other_models_are_refused(enriched: Enriched) -> None:
    enriched.take_in(said(1, "Hello."))
    enriched.stack.cypher("MATCH (c:Checkpoint {stage: 'enrichment'}) SET c.models = 'older@1'")
    enriched.stack.append(said(2, "Again."))
    enriched.stack.fold()
    with pytest.raises(Exception, match="rebuild needed"):
        enriched.fold(runner=enriched.new_runner())


def test_live_enrichment_beside_live_projection(enriched: Enriched) -> None:
    stack = enriched.stack
    with Worker(stack):
        for number in range(1, 21):
            stack.append(said(number, f"Message {number} about pottery class {number}."))
        enriched.fold(5)
    assert stack.cypher("MATCH (e:Event) WHERE e.text IS NOT NULL RETURN count(e)") == [20]


def test_a_replay_leaves_similarity_to_the_first_fold(enriched: Enriched) -> None:
    """A second search sees later events too, and would find a little more at every replay."""
    text = "The parcel for Berlin is late again"
    enriched.take_in(said(1, text), said(2, f"{text}!"))
    alike = "MATCH (:Event)-[r]->(:Event) WHERE r.score > 0"
    (found,) = enriched.stack.cypher(f"{alike} RETURN count(r)")
    enriched.stack.cypher(f"{alike} DELETE r")
    assert replay(enriched.stack.services, ENRICHMENT).failed == []
    assert (found, enriched.stack.cypher(f"{alike} RETURN r")) == (1, [])
