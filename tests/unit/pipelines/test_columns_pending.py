"""Events of the ledger in columns until the graph has them: what stays, what goes, what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelines.columns import pending
from pipelines.columns.follow import Columns
from pipelines.columns.pending import accepted
from pipelines.columns.view import View
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.entries import Entry
from projections.events import encode_event
from projections.identity import Position
from projections.operations import EnsureNode, Operations, SetNode
from projections.schema import EVENT
from projections.structural import event_node
from tests.factories import event, event_id

TENANT = "default"


def entry(number: int, **fields: Any) -> Entry:
    """The entry of that number in partition 0, whose event says `word`."""
    made = event(number, **{"payload": {"content": "word"}, **fields})
    return Entry(0, Position(7, number), number, encode_event(made))


def folded(one: Entry) -> Any:
    return event_node(one.event(), one.position)


def enriched(one: Entry, text: str | None) -> SetNode:
    values = dict.fromkeys(prop.name for prop in EVENT.owned("enrichment"))
    return SetNode(label=EVENT.label, key=one.event().key, values=values | {"text": text})


class World:
    """A graph, columns that follow it, and the ledger's entries."""

    def __init__(self) -> None:
        self.graph = MemoryGraph()
        self.graph.ensure_schema()
        for stage in ("projection", "enrichment"):
            self.graph.ensure_checkpoints(stage, 1, 1)
        self.columns = Columns(self.graph)
        self.columns.load()

    def tell(self, *entries: Entry) -> None:
        events = [one for one in map(accepted, entries) if one is not None]
        self.columns.pending.put(self.columns.tenants, events)

    def commit(self, stage: str, to: int, *operations: Any) -> None:
        """A stage folds entries up to one of that number."""
        batch = Operations()
        batch.extend(operations)
        (start,) = self.graph.checkpoints(stage)
        with self.graph.transaction() as transaction:
            transaction.lock(stage, 0)
            transaction.apply(batch, stage)
            transaction.advance(start, replace(start, position=Position(7, to), seq=to, digest="d"))
        self.columns.catch_up()

    def found(self, word: str = "word", user_id: str | None = None) -> dict[int, bool]:
        """Numbers of the events that hold a word, and whether they are pending."""
        view = View(self.columns.tenant(TENANT), Scope(TENANT, user_id, 0))
        ids = [hit.event_id for hit in view.text_hits([word], 100).shown]
        marked = view.pending(ids)
        numbers = {event_id(number): number for number in range(100)}
        return {numbers[one]: one in marked for one in sorted(ids)}


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_found_until_the_graph_says_what_it_says(world: World) -> None:
    one = entry(1)
    world.tell(one)
    assert world.found() == {1: True}
    world.commit("projection", 1, folded(one))
    assert world.found() == {1: False}
    world.commit("enrichment", 1, enriched(one, "sentence"))
    assert (world.found(), world.found("sentenc")) == ({}, {1: False})
    world.tell(one)  # late, and again
    assert world.found() == {}


def test_what_the_graph_has_without_words_gets_them(world: World) -> None:
    one = entry(1)
    world.commit("projection", 1, folded(one))
    assert world.found() == {}
    world.tell(one)
    assert world.found() == {1: False}
    world.commit("enrichment", 1)  # it has given the event up
    assert world.found() == {}


def test_what_the_projection_passed_without_it_goes(world: World) -> None:
    world.tell(entry(1), entry(2), entry(3))
    world.commit("projection", 2, folded(entry(2)))
    assert world.found() == {2: False, 3: True}
    world.tell(entry(1))
    assert world.found() == {2: False, 3: True}


def test_a_placeholder_does_not_replace_it(world: World) -> None:
    one = entry(2)
    world.tell(one)
    world.commit("projection", 1, EnsureNode(EVENT.label, one.event().key))
    assert world.found() == {2: True}


def test_it_stays_when_everything_is_loaded_anew(world: World) -> None:
    world.tell(entry(1), entry(2))
    world.commit("projection", 1, folded(entry(1)))
    world.graph.renew_feed()
    world.columns.catch_up()
    assert world.found() == {1: False, 2: True}


def test_another_ledger_has_none_of_them(world: World) -> None:
    world.tell(entry(1), entry(2))
    world.commit("projection", 1, folded(entry(1)))
    world.columns.pending.clear(world.columns.tenants)
    assert world.found() == {}


def test_it_is_seen_by_its_user_alone(world: World) -> None:
    world.tell(entry(1, user_id="ann"), entry(2))
    assert world.found() == {2: True}
    assert world.found(user_id="ann") == {1: True, 2: True}


def test_the_newest_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MOST_PENDING", 3)
    world.tell(*map(entry, range(1, 6)))
    assert world.found() == {3: True, 4: True, 5: True}


def test_the_memorys_own_events_and_damaged_entries_are_none() -> None:
    assert accepted(entry(1, event_type="memory.feedback")) is None
    assert accepted(entry(1)._replace(data=b"", fault="altered")) is None
    assert accepted(entry(1)) is not None


def test_verify_takes_them_for_what_they_are(world: World) -> None:
    told_before, told_after, alone = entry(1), entry(2), entry(3)
    world.tell(told_before, alone)
    world.commit("projection", 2, folded(told_before), folded(told_after))
    world.tell(told_after)
    assert world.found() == {1: False, 2: False, 3: True}
    assert world.columns.verify(mend=True).difference_count == 0
    events = world.columns.tenant(TENANT).events
    events.table["user"][events.rows[event_id(2)]] = events.names.number("somebody else")
    assert world.found() == {1: False, 3: True}
    assert world.columns.verify(mend=True).difference_count == 1
    assert world.found() == {1: False, 2: False, 3: True}
    world.commit("enrichment", 2, enriched(told_before, "word"), enriched(told_after, "word"))
    assert world.found() == {1: False, 2: False, 3: True}
    assert world.columns.verify().difference_count == 0


def test_no_context_is_made_of_them(world: World) -> None:
    world.tell(entry(1), entry(2))
    world.commit("projection", 1, folded(entry(1)))
    view = View(world.columns.tenant(TENANT), Scope(TENANT, None, 0))
    candidates = view.session_candidates(entry(1).event().session_id, 9)
    assert [one.event_id for one in candidates.best] == [event_id(1)]
    assert (candidates.total, candidates.withheld) == (1, 0)
