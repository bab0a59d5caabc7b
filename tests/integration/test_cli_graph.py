"""`recollect graph`: what was remembered, seen from the command line, and cleared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from enrichment.names import entity_id
from pipelines.cli.main import app
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.browse import GRAPH_CLEARED, clear_graph
from projections.errors import Fenced
from projections.events import decode_event
from projections.identity import START
from tests.factories import event_id, sessions
from tests.integration.enrichment_support import Enriched
from tests.integration.facts_support import Facts, party
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

pytestmark = pytest.mark.integration


def story() -> Facts:
    facts = Facts(first=100)
    for relation, target in (("depends_on", "Ledger Store"), ("owned_by", "payments team")):
        facts.say("Charge Service", relation, target, tenant="default")
    facts.say(party("charge_card", "tool"), "calls", "Charge Service", tenant="default")
    facts.say("Charge Service", "depends_on", "another", tenant="other")
    corrected = entity_id("other", "charge service", "concept")
    retype = {"entity_id": f"entity:{corrected}", "correction": "retype", "type": "service"}
    facts.correct(retype, tenant="other")
    return facts


@pytest.fixture(scope="module")
def stack(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Stack]:
    made = Stack(emptied_valkey(valkey), emptied_neo4j(neo4j))
    try:
        Enriched(made).take_in(*sessions(2, 3), *story().events)
        yield made
    finally:
        made.close()


class Recollect:
    """The command line in this process, on the services of a stack."""

    def __init__(self, stack: Stack) -> None:
        settings = stack.services.settings
        self._options = ["--redis", settings.redis_url, "--neo4j", settings.neo4j_url]
        self._environment = {
            "RECOLLECT_PARTITIONS": str(PARTITIONS),
            "RECOLLECT_ID_BUCKETS": "64",
        }

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner(env=self._environment).invoke(app, [*arguments, *self._options])
        assert done.exit_code == code, done.output
        return done.stdout

    def document(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--json"))
        return found


@pytest.fixture
def recollect(stack: Stack) -> Recollect:
    return Recollect(stack)


def test_entities_are_searched_and_listed(recollect: Recollect) -> None:
    text = recollect("graph", "entities", "charge")
    assert "Charge Service" in text
    assert "charge_card" in text
    assert "Ledger Store" not in text
    tools = recollect.document("graph", "entities", "--type", "tool")["entities"]
    assert [one["name"] for one in tools] == ["charge_card"]
    assert "no entity" in recollect("graph", "entities", "xylophone")


def test_edges_say_what_is_known_and_by_which_event(recollect: Recollect) -> None:
    text = recollect("graph", "edges", "charge service")
    for word in ("Charge Service", "depends_on", "Ledger Store", "payments team", event_id(100)):
        assert word in text
    assert "another" not in text
    found = recollect.document("graph", "edges", "Charge Service", "--tenant", "other")
    assert [one["target"] for one in found["edges"]] == ["another"]
    assert found["type"] == "service", "the type that a person corrected it to"
    own_id = found["entity_id"]
    assert recollect.document("graph", "edges", own_id, "--tenant", "other") == found
    recollect("graph", "edges", own_id, code=1)


def test_communities_that_nobody_made_are_none(recollect: Recollect) -> None:
    assert "no community yet" in recollect("graph", "communities")
    assert recollect.document("graph", "communities") == {"communities": []}


def test_counts_are_those_of_the_graph(recollect: Recollect, stack: Stack) -> None:
    counts = stack.services.reader(stack.target).counts()
    document = recollect.document("graph", "stats")
    assert (document["nodes"], document["edges"]) == (dict(counts.nodes), dict(counts.edges))
    assert "RELATES_TO" in recollect("graph", "stats")


def test_where_nobody_can_be_asked_clear_wants_yes(recollect: Recollect, stack: Stack) -> None:
    before = stack.dump()
    recollect("graph", "clear", code=2)
    recollect("graph", "clear", "--json", code=2)
    assert stack.dump() == before


def test_what_is_cleared_is_an_event_and_comes_back_from_the_ledger(
    recollect: Recollect, stack: Stack
) -> None:
    before = stack.dump()
    verified = stack.verify()
    runner = stack.runner
    at = {n: runner.checkpoint(n) for n in range(stack.ledger.partitions)}
    text = recollect("graph", "clear", "--yes")
    assert "cleared" in text
    assert stack.dump() == []
    events = [
        decode_event(entry.data)
        for partition in range(stack.ledger.partitions)
        for block in stack.blocks(partition)
        for entry in block.entries
    ]
    (said,) = [one for one in events if one.event_type == GRAPH_CLEARED]
    assert said.payload["target"] == stack.target.name
    assert said.payload["nodes"]["Event"] == 6
    assert all(found.position == START for found in stack.graph.checkpoints())
    # a worker that holds what it had before writes nothing
    with pytest.raises(Fenced), stack.graph.transaction() as transaction:
        transaction.advance(at[0], at[0])
    stack.runner = stack.new_runner()
    stack.runner.prepare(stack.ledger.partitions)
    stack.fold()
    Enriched(stack).fold()
    assert stack.dump() == before
    assert stack.verify().digest == verified.digest
    assert stack.verify().ok


def test_a_clear_of_nothing_is_no_error(stack: Stack) -> None:
    clear_graph(stack.services)
    again = clear_graph(stack.services)
    assert again.nodes.get("Event", 0) == 0
