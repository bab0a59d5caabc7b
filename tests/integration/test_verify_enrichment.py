"""Verify of Stage 2 names what was tampered with; repair mends it; live work is no difference."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from enrichment.names import entity_id
from enrichment.ports import PayloadResolver
from pipelines.ledger.entries import Block
from pipelines.ledger.payloads import FsspecResolver
from pipelines.proof.report import ProofReport
from pipelines.proof.verify import verify
from pipelines.work.folds import StageFold
from projections.errors import ModelsMismatch, ModelUnavailable, Stopped
from projections.events import Event
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
)
from tests import forked_cli
from tests.factories import event, event_id
from tests.fakes.stages import PROJECTING
from tests.integration.enrichment_support import Enriched, called, returned, said
from tests.integration.stack import Ingest, Proven, Stack
from tests.memory_stack import Worker
from tests.stages.enriched import stated

pytestmark = pytest.mark.integration

ANN, ANNA = (entity_id("default", name, "concept") for name in ("ann", "anna"))
MIA = entity_id("default", "mia_li_3668", "user")
BOOKING = {"reservation_id": "ZFA04Y", "user_id": "mia_li_3668", "status": "active"}
OTHER = {"session_id": "session-2", "trace_id": "trace-2"}


def lives_in(city: str) -> dict[str, object]:
    return {"source": {"name": "Ann"}, "relation": "lives_in", "target": {"name": city}}


# Two sessions, and what was stated beside them: facts that end one another, a sameness, a name.
GRAPH = [
    said(1, "Hello, I am Mia Li. Please cancel my reservation ZFA04Y.", "Mia"),
    called(2, "get_reservation_details", {"reservation_id": "ZFA04Y"}),
    returned(3, "get_reservation_details", BOOKING),
    called(4, "cancel_reservation", {"reservation_id": "ZFA04Y", "user_id": "mia_li_3668"}),
    said(7, "We went to the adoption agency in Boston yesterday.", "Caroline", **OTHER),
    said(8, "The adoption agencies in Boston are very helpful.", "Melanie", **OTHER),
    said(9, "The adoption agencies in Boston are really helpful.", "Caroline", **OTHER),
    stated(13, "memory.fact_asserted", lives_in("Berlin")),
    stated(14, "memory.fact_asserted", lives_in("Paris")),
    stated(15, "memory.same_as", {"pairs": [{"entity_ids": [ANN, ANNA], "confidence": 0.9}]}),
    stated(16, "memory.entity_corrected", {"entity_id": ANN, "correction": "rename", "name": "A."}),
]
EVENTS = 7


def verified(stack: Stack, **options: Any) -> ProofReport:
    return stack.verify(**options)


def digest(report: ProofReport) -> str:
    return report.stages["enrichment"].digest


@pytest.fixture
def enriched(stack: Stack) -> Enriched:
    made = Enriched(stack)
    made.take_in(*GRAPH)
    return made


class Tampering(NamedTuple):
    """One thing done by hand, and what verify must name: kind, element, type, changed fields."""

    text: str
    named: set[tuple[str, str, str, tuple[str, ...]]]


def changed(label: str, *fields: str) -> tuple[str, str, str, tuple[str, ...]]:
    return ("different", "node", label, fields)


def edge(kind: str, type_: str, *fields: str) -> tuple[str, str, str, tuple[str, ...]]:
    return (kind, "edge", type_, fields)


_E = f"MATCH (e:Event {{event_id: '{event_id(4)}'}}) "
_FIRST = f"MATCH (e:Event {{event_id: '{event_id(1)}'}}) "
_ANN = f"MATCH (n:Entity {{entity_id: '{ANN}'}}) "
_MIA = f"MATCH (n:Entity {{entity_id: '{MIA}'}}) "
_LIVES = f"{_ANN}MATCH (n)-[r:RELATES_TO {{relation: 'lives_in'}}]->(o) "
_SIMILAR = "MATCH (a:Event)-[s:SIMILAR_TO]->(b:Event) "

TAMPERINGS: dict[str, Tampering] = {
    "properties are others": Tampering(
        f"{_E}SET e.text = 'x', e.speaker = 7, e.keywords = ['x'], e.importance_score = 9.0",
        {changed(EVENT.label, "text", "speaker", "keywords", "importance_score")},
    ),
    "a summary is gone": Tampering(f"{_FIRST}REMOVE e.summary", {changed(EVENT.label, "summary")}),
    "a mention is gone": Tampering(
        f"{_E}MATCH (e)-[r:REFERENCES]->(:Entity {{entity_id: '{MIA}'}}) DELETE r",
        {edge("missing", REFERENCES.type)},
    ),
    "a mention is made up and another doubled": Tampering(
        f"{_E}MATCH (e)-[r:REFERENCES]->(m:Entity {{entity_id: '{MIA}'}}) WITH e, r, m "
        f"{_ANN}CREATE (e)-[:REFERENCES {{role: 'subject'}}]->(n) "
        "CREATE (e)-[:REFERENCES {role: r.role}]->(m)",
        {edge("extra", REFERENCES.type), edge("different", REFERENCES.type, "copies")},
    ),
    "an inferred cause is gone": Tampering(
        f"{_E}MATCH (e)-[r:CAUSED_BY {{mechanism: 'inferred'}}]->() DELETE r",
        {edge("missing", CAUSED_BY.type)},
    ),
    "an inferred cause is made up": Tampering(
        f"{_FIRST}MATCH (o:Event {{event_id: '{event_id(9)}'}}) CREATE "
        "(e)-[:CAUSED_BY {mechanism: 'inferred', rule: 'reply', confidence: 0.7}]->(o)",
        {edge("extra", CAUSED_BY.type)},
    ),
    "an inferred cause is another": Tampering(
        f"{_E}MATCH (e)-[r:CAUSED_BY {{mechanism: 'inferred'}}]->() "
        "SET r.confidence = 0.5, r.evidence = 'x'",
        {edge("different", CAUSED_BY.type, "confidence", "evidence")},
    ),
    "an embedding is another": Tampering(
        f"{_E}SET e.embedding = [x IN e.embedding | 2 * x], e.embedding_model = 'x'",
        {changed(EVENT.label, "embedding", "embedding_model")},
    ),
    "an embedding is none": Tampering(
        f"{_E}SET e.embedding = 'x'", {changed(EVENT.label, "embedding")}
    ),
    "an entity has another name": Tampering(
        f"{_MIA}SET n.name = 'Mia', n.canonical_name = 'x', n.subtype = 'x'",
        {changed(ENTITY.label, "canonical_name", "name", "subtype")},
    ),
    "an entity was seen at other times": Tampering(
        f"{_MIA}SET n.first_seen = n.first_seen - duration('P1D'), n.last_seen = datetime()",
        {changed(ENTITY.label, "first_seen", "last_seen")},
    ),
    "an entity is made up": Tampering(
        "CREATE (n:Entity {tenant: 'default', entity_id: 'x', name: 'x'}) "
        f"WITH n {_E}CREATE (e)-[:REFERENCES {{role: 'object'}}]->(n)",
        {("extra", "node", ENTITY.label, ()), edge("extra", REFERENCES.type)},
    ),
    "an entity has no key": Tampering(
        "CREATE (:Entity {name: 'x'})", {("extra", "schema", "stray", ())}
    ),
    "an entity is gone": Tampering(
        f"{_MIA}DETACH DELETE n",
        {
            ("missing", "node", ENTITY.label, ()),
            edge("missing", REFERENCES.type),
            edge("missing", RELATES_TO.type),
        },
    ),
    "an entity of facts alone is gone": Tampering(
        f"{_ANN}DETACH DELETE n",
        {
            ("missing", "node", ENTITY.label, ()),
            edge("missing", RELATES_TO.type),
            edge("missing", SAME_AS.type),
        },
    ),
    "an entity is hidden": Tampering(
        f"{_MIA}SET n:Unmentioned", {changed(ENTITY.label, "visible")}
    ),
    "what a person decided is another": Tampering(
        f"{_ANN}SET n.display_name = 'x', n.corrected_type = 'agent'",
        {changed(ENTITY.label, "display_name", "corrected_type")},
    ),
    "a history lost an entry": Tampering(
        "MATCH (h:FactHistory) WHERE size(h.entries) = 2 SET h.entries = h.entries[..1]",
        {changed(FACT_HISTORY.label, "entries")},
    ),
    "a history is gone and another made up": Tampering(
        "MATCH (h:FactHistory) WHERE size(h.entries) = 2 DELETE h "
        "CREATE (:FactHistory {tenant: 'default', history_id: 'x', entries: ['[]']})",
        {
            ("missing", "node", FACT_HISTORY.label, ()),
            ("extra", "node", FACT_HISTORY.label, ()),
        },
    ),
    "a fact is another": Tampering(
        f"{_LIVES}WHERE o.name = 'Berlin' SET r.valid_to = null, r.fact = 'x', r.confidence = 1",
        {edge("different", RELATES_TO.type, "fact", "confidence", "valid_to")},
    ),
    "a fact begins at another time": Tampering(
        f"{_LIVES}WHERE o.name = 'Berlin' SET r.valid_from = 'x'",
        {edge("different", RELATES_TO.type, "valid_from")},
    ),
    "a fact is doubled": Tampering(
        f"{_LIVES}WHERE o.name = 'Berlin' CREATE (n)-[s:RELATES_TO]->(o) SET s = r",
        {edge("different", RELATES_TO.type, "copies")},
    ),
    "a sameness is gone": Tampering(
        "MATCH ()-[r:SAME_AS]->() DELETE r", {edge("missing", SAME_AS.type)}
    ),
    "a sameness is another": Tampering(
        "MATCH ()-[r:SAME_AS]->() SET r.retracted = true, r.decided_at = [9999999999999, 0]",
        {edge("different", SAME_AS.type, "retracted", "decided_at")},
    ),
    "a likeness has another score": Tampering(
        f"{_SIMILAR}SET s.score = 0.99", {edge("different", SIMILAR_TO.type, "score")}
    ),
    "a likeness is made up": Tampering(
        f"{_FIRST}MATCH (o:Event {{event_id: '{event_id(7)}'}}) "
        "CREATE (e)-[:SIMILAR_TO {score: 0.9}]->(o)",
        {edge("extra", SIMILAR_TO.type)},
    ),
    "a likeness is doubled and turned round": Tampering(
        f"{_SIMILAR}CREATE (a)-[:SIMILAR_TO {{score: s.score}}]->(b) "
        "CREATE (b)-[:SIMILAR_TO {score: s.score}]->(a)",
        {edge("extra", SIMILAR_TO.type), edge("different", SIMILAR_TO.type, "copies")},
    ),
}


def named(report: ProofReport) -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {(d.kind, d.element, d.type, tuple(d.fields)) for d in report.differences}


@pytest.fixture(scope="module")
def proven(module_stack: Stack) -> Proven:
    Enriched(module_stack).take_in(*GRAPH)
    return Proven(module_stack)


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named_and_mended(proven: Proven, name: str) -> None:
    tampering = TAMPERINGS[name]
    assert named(proven.damage(tampering.text)) == tampering.named
    proven.mend()


def test_the_untouched_graph_is_right(enriched: Enriched) -> None:
    report = verified(enriched.stack)
    assert (report.ok, report.events, report.system_events) == (True, EVENTS, 4)
    assert list(report.stages) == ["projection", "enrichment"]
    counts = report.compared
    assert {EVENT.label, ENTITY.label, FACT_HISTORY.label, RELATES_TO.type, SAME_AS.type} <= {
        name for name, number in counts.items() if number
    }
    assert report.as_dict()["scope"].startswith(f"compared: projection, enrichment: {EVENTS} Event")


def test_the_order_of_arrival_does_not_change_the_digest(
    make_stack: Callable[..., Stack], enriched: Enriched
) -> None:
    before = digest(verified(enriched.stack))
    enriched.stack.graph.clear()
    other = Enriched(make_stack(prefix="other"))
    events: list[Event] = random.Random(5).sample(GRAPH, len(GRAPH))
    other.take_in(*events[:5], size=2)
    other.take_in(*events[5:], size=3)
    report = verified(other.stack)
    assert report.ok, report.differences
    assert digest(report) == before


def test_what_is_not_enriched_yet_is_lag_and_no_difference(enriched: Enriched) -> None:
    before = verified(enriched.stack)
    late = [
        said(n, f"Late words number {n} about ZFA04Y.", "Mia", at=n - 90) for n in range(92, 95)
    ]
    enriched.stack.append(*late)
    enriched.stack.fold()
    report = verified(enriched.stack)
    assert (report.ok, report.stages["enrichment"].lag_entries) == (True, len(late))
    assert digest(report) == digest(before)
    enriched.fold()
    report = verified(enriched.stack)
    assert (report.ok, report.lag_entries, report.events) == (True, 0, EVENTS + len(late))
    assert digest(report) != digest(before)


def test_a_session_or_a_stage_is_told_of_alone(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.cypher(f"{_FIRST}SET e.text = 'x', e.agent_id = 'x'")
    stack.cypher(f"{_MIA}SET n.name = 'x'")
    good = verified(stack, session="session-2")
    bad = verified(stack, session="session-1")
    assert (good.ok, good.events, bad.ok, bad.events) == (True, 3, False, 4)
    assert {changed(EVENT.label, "agent_id", "text")} == named(bad)
    first = verified(stack, stage="projection")
    assert (list(first.stages), first.difference_count) == (["projection"], 1)
    second = verified(stack, stage="enrichment")
    assert (list(second.stages), second.difference_count) == (["enrichment"], 2)
    assert verified(stack, session="nothing").events == 0
    assert verified(stack, session="session-1", repair=True).ok
    assert named(verified(stack)) == {changed(ENTITY.label, "name")}
    assert verified(stack, stage="enrichment", repair=True).ok
    assert verified(stack).ok


def test_one_tenant_is_compared_alone(enriched: Enriched) -> None:
    stack = enriched.stack
    enriched.take_in(said(40, "Hello from Boston.", tenant="acme"))
    stack.cypher("MATCH (e:Event {tenant: 'acme'}) SET e.text = 'x'")
    good, bad = (verified(stack, tenant=name) for name in ("default", "acme"))
    assert (good.ok, good.events, bad.ok, bad.events) == (True, EVENTS, False, 1)
    assert verified(stack, tenant="acme", repair=True).ok
    assert verified(stack).ok


def test_a_dead_letter_is_not_expected(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.append(stated(50, "memory.fact_asserted", {"source": "no entity"}))
    stack.fold()
    enriched.fold()
    report = verified(stack)
    assert (report.ok, report.dead_letter_count, report.system_events) == (True, 1, 5)
    stack.cypher("MATCH (d:DeadLetter) DELETE d")
    assert named(verified(stack)) == {("missing", "node", "DeadLetter", ())}


class Shelf(PayloadResolver):
    """Payloads by reference, of which some can be read."""

    def __init__(self, **payloads: object) -> None:
        self.payloads = payloads

    def resolve(self, reference: str) -> Any | None:
        return self.payloads.get(reference)


def test_a_payload_that_cannot_be_read_any_more_is_told_and_no_difference(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(one="Caroline lives in Boston.")
    monkeypatch.setattr(FsspecResolver, "from_settings", lambda settings: shelf)
    enriched = Enriched(stack)
    enriched.take_in(*GRAPH, event(20, payload_ref="one"), event(21, payload_ref="two"))
    report = verified(stack)
    assert (report.ok, report.unread, report.events) == (True, 1, EVENTS + 2)
    shelf.payloads = {}
    report = verified(stack)
    assert (report.ok, report.unread) == (True, 2)
    assert report.notes
    stack.cypher(f"{_ANN}DETACH DELETE n")
    assert ("missing", "node", ENTITY.label, ()) in named(verified(stack))
    assert verified(stack, repair=True).ok
    shelf.payloads = {"one": "Caroline lives in Boston."}
    report = verified(stack)
    assert (report.ok, report.unread, report.differences) == (True, 1, [])


def test_other_models_are_told_at_once(enriched: Enriched) -> None:
    enriched.stack.cypher("MATCH (c:Checkpoint {stage: 'enrichment'}) SET c.models = 'x@1 y@2'")
    with pytest.raises(ModelsMismatch):
        verified(enriched.stack)


def test_a_missing_model_is_told_with_what_mends_it(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(nlp_model="no_such_model")
    stack.graph.ensure_checkpoints("enrichment", stack.ledger.partitions, 1)
    with pytest.raises(ModelUnavailable) as caught:
        verify(stack.services)
    assert "make setup" in str(caught.value)


def test_the_command_line_verifies_both_stages(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.cypher(f"{_FIRST}SET e.text = 'x'")
    settings = stack.services.settings
    services = ["--redis", str(settings.redis_url), "--neo4j", str(settings.neo4j_url)]
    environment = {
        **{name: value for name, value in os.environ.items() if "RECOLLECT_" not in name},
        "RECOLLECT_PARTITIONS": str(settings.partitions),
        "RECOLLECT_ID_BUCKETS": str(settings.id_buckets),
    }

    def recollect(*arguments: str) -> tuple[int, dict[str, Any]]:
        command = ["verify", "--json", *arguments, *services]
        done = forked_cli.run(command, environment, timeout_s=300)
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    code, document = recollect()
    part = document["stages"]["enrichment"]
    assert (code, document["ok"], document["difference_count"]) == (1, False, 1)
    assert (part["ok"], document["stages"]["projection"]["ok"]) == (False, True)
    assert [d["fields"].keys() for d in document["differences"]] == [{"text"}]
    code, document = recollect("--stage", "enrichment", "--repair")
    assert (code, document["ok"], list(document["stages"])) == (0, True, ["enrichment"])
    assert (document["events"], document["repaired"]) == (EVENTS, 1)


class Folder(Worker):
    """A thread that folds what comes, for either stage; it may be stopped while it retries."""

    def __init__(self, enriched: Enriched, stage: StageFold) -> None:
        super().__init__(enriched.stack, size=5)
        self._stage = stage

    def _work(self) -> None:
        ledger = self._stack.ledger
        runner = self._stack.new_runner(self._stage, stop=self._stop)
        try:
            while not self._stop.wait(0.01):
                for partition in range(ledger.partitions):
                    at = runner.checkpoint(partition).position
                    if entries := ledger.read(partition, at, self._size):
                        runner.apply(Block(partition, tuple(entries)))
        except Stopped:
            pass
        except BaseException as error:
            self.error = error


def late_words(count: int) -> list[Event]:
    """Events of three sessions in a seeded disorder, which share values and people."""
    rng = random.Random(3)
    return [
        (called if n % 3 else returned)(
            n,
            "look_up",
            {"order_id": f"ORD-{rng.randrange(5)}77{rng.randrange(3)}", "user_id": "mia_li_3668"},
            at=rng.randrange(5_000),
            session_id=f"session-{rng.randrange(3)}",
        )
        for n in range(1_000, 1_000 + count)
    ]


def test_no_false_alarm_while_workers_enrich(enriched: Enriched) -> None:
    stack = enriched.stack
    seen: set[int] = set()
    begun = time.monotonic()
    with (
        Ingest(stack, late_words(5_000), pause_s=0.02),
        Folder(enriched, PROJECTING),
        Folder(enriched, enriched.stage),
    ):
        while time.monotonic() < begun + 10 or len(seen) < 4:
            # the driver waits 120 s for an answer that stays away, and verify looks again
            assert time.monotonic() < begun + 400, "nothing flowed while verify looked"
            report = verified(stack)
            assert report.ok, report.differences[:3]
            seen.add(report.events)
