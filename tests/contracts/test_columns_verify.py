"""Columns of a Neo4j are compared with it, in process and by the process that holds them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import neo4j
import pytest

from pipelines.columns.client import ColumnsClient
from pipelines.graph.neo4j import Neo4jGraph
from projections.errors import GraphUnavailable, QueryTimeout
from projections.schema import EVENT
from tests.contracts.test_columns import World
from tests.contracts.test_columns_service import (
    PATIENT_MS,
    SCOPE,
    Make,
    loaded,
    make,
    newest,
    write,
)
from tests.unit.pipelines.test_columns_verify import see_that_it_is_mended

pytestmark = pytest.mark.integration
__all__ = ["make"]  # fixtures


@pytest.mark.parametrize(
    "name", ["a vector", "a word", "an edge too many", "an edge too few", "a user", "a time"]
)
def test_what_was_changed_is_named_and_mended(
    neo4j_graph: Neo4jGraph, name: str, tmp_path: Path
) -> None:
    see_that_it_is_mended(neo4j_graph, World(2), name, tmp_path / "columns.sqlite")


def set_by_hand(driver: neo4j.Driver, event_id: str, user_id: str | None) -> None:
    """Change the graph, and tell its feed nothing of it."""
    text = f"MATCH (e:{EVENT.label} {{event_id: $id}}) SET e.user_id = $user"
    driver.execute_query(text, id=event_id, user=user_id)


def test_the_process_finds_what_the_feed_did_not_tell_and_mends_it(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver, make: Make
) -> None:
    ids = [write(neo4j_graph, number) for number in range(4)]
    client = loaded(make())
    sound = client.verify(PATIENT_MS)
    assert (sound.events, sound.counts, sound.first) == (4, {}, [])
    set_by_hand(driver, ids[1], "mallory")
    for mend in (False, True):
        finding = client.verify(PATIENT_MS, mend=mend)
        assert finding.counts == {SCOPE.tenant: {EVENT.label: 1}}
        (one,) = finding.first
        assert (one.key, one.is_held, one.is_expected) == (ids[1], True, True)
        assert one.fields == {"user": ("mallory", None)}
    assert client.verify(PATIENT_MS) == sound
    pid = client.pid
    client.close()
    again = loaded(make())  # which has read the copy
    assert again.verify(PATIENT_MS) == sound
    assert newest(again.reads(SCOPE, PATIENT_MS, fresh=True)) == ids[3]
    assert pid


def test_questions_are_answered_and_writers_write_while_it_compares(
    neo4j_graph: Neo4jGraph, make: Make
) -> None:
    for number in range(300):
        write(neo4j_graph, number)
    client = loaded(make())
    with ThreadPoolExecutor(2) as pool:
        verifies = [pool.submit(client.verify, PATIENT_MS) for _ in range(2)]
        number = 300
        while not all(one.done() for one in verifies) or number == 300:
            event_id = write(neo4j_graph, number)
            assert newest(client.reads(SCOPE, PATIENT_MS, fresh=True)) == event_id
            number += 1
        assert [one.result().counts for one in verifies] == [{}, {}]


def test_whoever_cannot_wait_is_told(make: Make) -> None:
    client = loaded(make())
    with pytest.raises(QueryTimeout):
        client.verify(0)
    with pytest.raises(GraphUnavailable, match="ServiceUnavailable"):
        make(uri="bolt://127.0.0.1:1").verify(PATIENT_MS)
    assert client.verify(PATIENT_MS).counts == {}


def test_a_process_is_asked_how_it_is_and_not_started_for_it(make: Make) -> None:
    client: ColumnsClient = make()
    state = client.state(PATIENT_MS, start=False)
    assert (state.is_loaded, state.reason) == (False, "no process holds them now")
    assert client.pid is None
    assert loaded(make()).state(PATIENT_MS, start=False).is_loaded
    assert client.state(PATIENT_MS, start=False).is_loaded
