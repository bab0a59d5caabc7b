"""Stage 2 with real models: whatever the order, one graph."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from enrichment.derived import Derived
from enrichment.stage import Facts
from pipelines.models.embedder import OnnxEmbedder
from pipelines.models.installed import EMBEDDER_INT8
from pipelines.operations.dead_letters import list_, retry
from pipelines.work.live import Decisions
from pipelines.work.settings import DeclaredTool
from pipelines.work.stages import ENRICHMENT, PROJECTION
from projections.errors import ModelsMismatch
from projections.events import Event
from projections.identity import Position
from projections.operations import Operations, RemoveEdge
from projections.schema import ENTITY, SAME_AS, SIMILAR_TO
from tests.factories import START_MS, event_id
from tests.fakes.stages import PROJECTING
from tests.memory_stack import MemoryStack, Worker
from tests.stages.enriched import EnrichedLedger, called, returned, said, stated

Enriched = EnrichedLedger[MemoryStack]


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
        called(16, "set_seat", {"reservation_id": "ZFA04Y", "seat": "4A"}),
        returned(17, "set_seat", {"ok": True}),
        called(18, "set_seat", {"reservation_id": "ZFA04Y", "seat": "9C"}),
        returned(19, "set_seat", "no such seat", status="failed"),
        called(20, "set_seat", {"reservation_id": "ZFA04Y", "seat": "7B"}),
        returned(21, "set_seat", {"ok": True}),
    ]


def fact(city: str) -> dict[str, object]:
    return {
        "source": {"name": "Ann"},
        "relation": "lives_in",
        "target": {"name": city},
    }


STRANGE = {
    "control": "\x00\x01" * 1_000,
    "256k": "x" * 250_000,
    "emoji": "🙂" * 5_000,
    "rtl": "\u202eabc\u202c ‏" * 50,
    "null": {"role": "user", "content": None},
    "nested": {"a": {"b": [[[[{}]]]]}},
    "list": [None, 1, True, 2.5],
    "empty": "",
    "zero": 0,
    "false": False,
}


@pytest.fixture
def enriched() -> Enriched:
    return Enriched(MemoryStack())


def test_facts_have_intervals(enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    assert enriched.facts("lives_in") == [
        ["Ann", "Berlin", START_MS + 13, START_MS + 14],
        ["Ann", "Paris", START_MS + 14, START_MS + 15],
        ["Ann", "Berlin", START_MS + 15, None],
    ]


def test_it_waits_until_all_of_the_earlier_commit_can_be_read(enriched: Enriched) -> None:
    """An event without a node was forgotten: one that is only not shown yet would be lost."""
    events, stack = conversation(), enriched.stack
    stack.append(*events)
    stack.fold()
    stack.graph.unsettled = {
        (one.stage, one.partition) for one in stack.graph.checkpoints(PROJECTION.name) if one.seq
    }
    enriched.fold()
    in_one = Enriched(MemoryStack())
    in_one.take_in(*events)
    assert enriched.folded() == in_one.folded()


def test_a_write_that_succeeded_ends_what_held_before(enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    assert enriched.facts("has_seat") == [
        ["ZFA04Y", "4A", START_MS + 17, START_MS + 21],
        ["ZFA04Y", "7B", START_MS + 21, None],
    ]


def test_a_late_call_is_given_the_result_that_was_anothers(enriched: Enriched) -> None:
    first, done, second, last = (
        called(1, "set_seat", {"reservation_id": "ZFA04Y", "seat": "4A"}),
        returned(4, "set_seat", {"ok": True}),
        called(2, "set_seat", {"reservation_id": "ZFA04Y", "seat": "7B"}),
        returned(6, "set_seat", {"ok": True}),
    )
    enriched.take_in(first, done, last)
    enriched.take_in(second)
    in_order = Enriched(MemoryStack())
    in_order.take_in(first, second, done, last)
    assert enriched.folded() == in_order.folded()
    assert len(enriched.facts("has_seat")) == 2


@pytest.mark.parametrize("size", [1, 4, 500])
def test_the_order_of_arrival_does_not_matter(enriched: Enriched, size: int) -> None:
    events = conversation()
    enriched.take_in(*events)
    expected = enriched.folded()
    shuffled = Enriched(MemoryStack())
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
        enriched.refold()
        assert enriched.stack.dump() == before


def test_a_late_event_changes_the_causes_of_those_behind_it(enriched: Enriched) -> None:
    told = said(1, "My reservation is ZFA04Y.", "Mia")
    repeated = returned(3, "lookup", {"reservation_id": "ZFA04Y"})
    used = called(5, "cancel_reservation", {"reservation_id": "ZFA04Y"})
    enriched.take_in(repeated, used)
    assert enriched.causes(used) == {repeated.event_id: "value_flow"}
    enriched.take_in(told)
    late = enriched.causes(used)
    assert told.event_id in late
    anew = Enriched(MemoryStack())
    anew.take_in(told, repeated, used)
    assert late == anew.causes(used)


def test_enrichment_waits_for_the_projection(enriched: Enriched) -> None:
    enriched.stack.append(*conversation())
    done = threading.Event()

    def enrich() -> None:
        enriched.fold()
        done.set()

    thread = threading.Thread(target=enrich)
    thread.start()
    assert not done.wait(0.3)
    assert enriched.stack.nodes(ENTITY.label) == {}
    enriched.stack.fold()
    assert done.wait(60)
    thread.join()
    assert enriched.texts() == 18


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


def test_what_the_ledger_lost_and_takes_again_is_read_anew(enriched: Enriched) -> None:
    """By a worker that had read it: the id was free again, for whatever its sender says now."""
    first, again = Position(START_MS, 1), Position(START_MS, 2)
    assert [one.text.text for one in enriched.stage.derive([(first, said(1, "one"))])] == ["one"]
    for words in ("one", "two"):
        (derived,) = enriched.stage.derive([(again, said(1, words))])
        assert derived.position == again
        again = Position(again.ms, again.seq + 1)
    assert derived.text.text == "two"


def test_what_comes_back_just_now_is_not_taken_for_forgotten(enriched: Enriched) -> None:
    """Its dead letter of the projection is gone, its node is not shown yet."""
    stack, back = enriched.stack, said(2, "not today")

    def refusing(batch: Sequence[Derived], facts: Facts) -> Operations:
        if any(one.event.event_id == back.event_id for one in batch):
            raise ValueError("no")
        return enriched.stage.fold(batch, facts)

    stack.append(back)
    stack.fold()
    enriched.fold(runner=enriched.new_runner(stage=replace(enriched.stage, fold=refusing)))
    ((partition, seq),) = ((one["partition"], one["seq"]) for one in stack.letters())
    stack.graph.unsettled = {(PROJECTION.name, partition)}
    assert retry(stack.services, stage=ENRICHMENT.name, partition=partition, seq=seq).done == 1
    assert enriched.event(back)["text"] == "not today"


@pytest.mark.parametrize("payload", STRANGE.values(), ids=STRANGE)
def test_a_strange_payload_degrades_alone(enriched: Enriched, payload: object) -> None:
    strange = said(2, "")._replace(payload=payload)
    enriched.take_in(said(1, "Good morning."), strange, said(3, "Good night."))
    assert enriched.event(event_id(1))["text"] == "Good morning."
    assert enriched.event(event_id(3))["text"] == "Good night."
    assert enriched.event(strange)["importance_score"] >= 1
    assert list_(enriched.stack.services).dead_letters == []


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
    types = stack.nodes(ENTITY.label, "entity_type")
    ((one, other, retracted),) = stack.edges(SAME_AS.type, "retracted")
    assert {types[one]["entity_type"], types[other]["entity_type"]} == {"agent", "concept"}
    assert not retracted
    # a replay decides nothing anew, and applies the same
    before = stack.dump()
    enriched.refold()
    assert stack.dump() == before


def test_a_user_is_found_by_the_agent_who_speaks_for_them(enriched: Enriched) -> None:
    stack = enriched.stack
    deciding = enriched.new_runner(decide=Decisions(stack.services, stack.target.name))

    def message(number: int, user_id: str) -> Event:
        payload = {"role": "user", "content": "Good morning to all of you."}
        made = said(number, "", "ada.byron", user_id=user_id)
        return made._replace(event_type="message.user", payload=payload)

    def joined() -> list[bool]:
        with Worker(stack):
            stack.fold()
            enriched.fold(runner=deciding)
        stack.fold()
        enriched.fold(runner=deciding)
        return [not retracted for _, _, retracted in stack.edges(SAME_AS.type, "retracted")]

    stack.append(message(1, "u-77"))
    assert joined() == [True]
    stack.append(message(2, "u-78"))  # a second user: nobody knows who speaks
    assert joined() == [False]
    stack.append(message(3, "u-77"))
    assert joined() == [False]


def test_a_stand_by_target_decides_nothing(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.append(said(1, "Caroline called. We met Caroline."), said(2, "Hi!", "Caroline"))
    stack.fold()
    before = [tail.seq for tail in stack.ledger.tails()]
    enriched.fold(runner=enriched.new_runner(decide=Decisions(stack.services, "green")))
    assert [tail.seq for tail in stack.ledger.tails()] == before


def test_other_models_are_refused(enriched: Enriched) -> None:
    enriched.take_in(said(1, "Hello."))
    for held in enriched.stack.graph.checkpoints(ENRICHMENT.name):
        with enriched.stack.graph.transaction() as transaction:
            transaction.reset(replace(held, models="older@1"))
    enriched.stack.append(said(2, "Again."))
    enriched.stack.fold()
    with pytest.raises(ModelsMismatch, match="rebuild needed"):
        enriched.fold(runner=enriched.new_runner())


def test_a_graph_of_one_embedder_is_not_written_on_by_another(enriched: Enriched) -> None:
    enriched.take_in(said(1, "Hello."))
    enriched.stack.append(said(2, "Again."))
    enriched.stack.fold()
    int8 = enriched.new_stage(embedder=OnnxEmbedder(model=EMBEDDER_INT8))
    with pytest.raises(ModelsMismatch, match=f"has {EMBEDDER_INT8}@.*: rebuild needed"):
        enriched.fold(runner=enriched.new_runner(stage=int8))
    enriched.fold()


def test_a_declared_tool_tells_facts_and_another_declaration_is_a_rebuild(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stack = MemoryStack()
    declared = {"dispense": DeclaredTool(about="patient")}
    settings = stack.services.settings.model_copy(update={"tools": declared})
    monkeypatch.setattr(stack.services, "settings", settings)
    enriched = Enriched(stack)
    first, second = (
        called(number, "dispense", {"patient": "Ines", "dose": dose})
        for number, dose in ((1, "10 mg"), (3, "20 mg"))
    )
    enriched.take_in(second, returned(4, "dispense", {"ok": True}))
    enriched.take_in(first, returned(2, "dispense", {"ok": True}))  # read again from the ledger
    assert enriched.facts("has_dose") == [
        ["Ines", "10 mg", START_MS + 2, START_MS + 4],
        ["Ines", "20 mg", START_MS + 4, None],
    ]
    before = enriched.folded()
    enriched.refold()
    assert enriched.folded() == before
    monkeypatch.undo()
    stack.append(said(5, "Again."))
    stack.fold()
    with pytest.raises(ModelsMismatch, match="rebuild needed"):
        enriched.fold(runner=enriched.new_runner(stage=enriched.new_stage()))


def test_live_enrichment_beside_live_projection(enriched: Enriched) -> None:
    stack = enriched.stack
    with Worker(stack):
        for number in range(1, 21):
            stack.append(said(number, f"Message {number} about pottery class {number}."))
        enriched.fold(5)
    assert enriched.texts() == 20


def test_a_replay_makes_similarity_what_it_was(enriched: Enriched) -> None:
    text = "The parcel for Berlin is late again"
    enriched.take_in(said(1, text), said(2, f"{text}!"))
    made = enriched.stack.edges(SIMILAR_TO.type, "score")
    ((one, other, _),) = made
    batch = Operations()
    batch.add(RemoveEdge(type=SIMILAR_TO.type, source=("default", one), target=("default", other)))
    with enriched.stack.graph.transaction() as transaction:
        transaction.apply(batch, SIMILAR_TO.stage)
    enriched.refold()
    assert enriched.stack.edges(SIMILAR_TO.type, "score") == made
