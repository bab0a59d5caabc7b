"""Stage 2 on a real Neo4j with real models, as far as that is another one than in memory.

What it does to events, in which order and how often, is tested in `tests/stages`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipelines.ledger.entries import Block
from pipelines.observe import metrics
from pipelines.operations.rebuild import rebuild, replay
from pipelines.work.folds import StageFold
from pipelines.work.services import make_fold
from pipelines.work.stages import ENRICHMENT
from projections.identity import partition_of
from projections.operations import Operations
from projections.schema import SIMILAR_TO
from tests.contracts.test_fence import is_blocked
from tests.factories import event_id
from tests.graph_dump import Dump, dump
from tests.integration.enrichment_support import Enriched, said
from tests.integration.stack import Stack
from tests.memory_stack import MemoryStack
from tests.stages.enriched import embedder, recognizer
from tests.stages.test_enrichment import STRANGE, conversation
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


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


def folded_in_memory(stack: Stack) -> Dump:
    """By the same models, whose answers the caches hold: in another batch they differ a little."""
    models = stack.models(embedder=embedder(), recognizer=recognizer())
    other = MemoryStack(ledger=stack.ledger, models=models)
    enriching = other.new_runner(make_fold(ENRICHMENT, other.services, other.target))
    enriching.prepare(other.ledger.partitions)
    other.fold()
    other.fold(runner=enriching)
    return other.dump()


def test_both_stores_hold_the_same_of_whatever_came(enriched: Enriched) -> None:
    odd = [
        said(100 + n, "", session_id="odd")._replace(payload=payload)
        for n, payload in enumerate(STRANGE.values())
    ]
    events = conversation()
    enriched.take_in(*events[4:], *odd, size=4)
    enriched.take_in(*events[:4], size=1)  # late
    expected = folded_in_memory(enriched.stack)
    assert dump(enriched.stack.graph) == expected
    assert replay(enriched.stack.services, ENRICHMENT).failed == []
    assert dump(enriched.stack.graph) == expected


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


def test_rebuild_in_place_gives_the_same_graph(enriched: Enriched) -> None:
    enriched.take_in(*conversation())
    before = enriched.folded()
    enriched.stack.cypher("MATCH (n:Entity) DETACH DELETE n")
    enriched.stack.cypher("MATCH (h:FactHistory) DELETE h")
    report = rebuild(enriched.stack.services)
    assert report.ok
    assert report.verified.repaired == 0
    assert enriched.folded() == before


def test_two_workers_at_once_do_not_miss_each_others_events(enriched: Enriched) -> None:
    """Of one tenant, in two partitions: the second waits until it sees what the first commits."""
    stack = enriched.stack
    sessions = {
        partition_of("default", f"s{n}", stack.ledger.partitions): f"s{n}" for n in range(9)
    }
    text = "The parcel for Berlin is late again"
    events = [said(n, text, session_id=sessions[n % 2]) for n in range(1, 9)]
    stack.append(*events)
    stack.fold()
    gathered, done = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    rules = enriched.new_stage()

    def fold(batch: Sequence[Any], facts: Any) -> Operations:
        gathered.set()
        driver = stack.graph.client.driver
        wait_until(lambda: done.is_set() or is_blocked(driver), "the other waits, or is done")
        return rules.fold(batch, facts)

    def work(partition: int, stage: StageFold) -> None:
        runner = enriched.new_runner(stage=stage)
        try:
            entries = stack.ledger.read(partition, runner.checkpoint(partition).position, 100)
            runner.apply(Block(partition, tuple(entries)))
        except BaseException as error:
            errors.append(error)

    first = threading.Thread(target=work, args=(0, replace(rules, fold=fold)))
    first.start()
    assert gathered.wait(120)
    work(1, enriched.new_stage())
    done.set()
    first.join()
    assert errors == []
    expected = folded_in_memory(stack)
    assert sum(place[0] == SIMILAR_TO.type for place in expected.edges) == 28
    assert dump(stack.graph) == expected
