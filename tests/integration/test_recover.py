"""A ledger that lost what its graph had folded: found, listed, mended, recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.ledger.ledger import Appended
from pipelines.local.servers import ValkeyServer
from pipelines.operations import recover as module
from pipelines.operations.recover import GAP_RECORDED, recover
from pipelines.proof.verify import verify
from pipelines.work.poison import Retries
from pipelines.work.runner import Runner
from projections.errors import GraphAhead, OperationFailed, Stopped
from projections.events import Event, decode_event
from tests.factories import event, event_id, sessions
from tests.integration.enrichment_support import Enriched, said
from tests.integration.stack import Stack
from tests.memory_stack import Worker
from tests.servers import kill_synced
from tests.stages.enriched import stated
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

KEPT, LOST = 30, 12


class Killed(BaseException):
    """The process ends here."""


class Outage:
    """A ledger and graph of a test's own, to lose entries of."""

    def __init__(self, folder: Path, neo4j_url: str) -> None:
        self.server = ValkeyServer(folder)
        self.server.start()
        self.server.wait_ready()
        self.neo4j_url = neo4j_url
        self.stack = Stack(self.server.url, neo4j_url)
        self.events = sessions(6, (KEPT + LOST) // 6)
        self.lost: list[Event] = []

    def fill(self) -> None:
        for made in self.events:
            self.stack.append(made)
        self.stack.fold()

    def lose(self, count: int = LOST) -> None:
        """Kill the server and cut the last entries off its append-only file."""
        self.stack.close()
        kill_synced(self.server)
        cut_entries(self.server, count)
        self.server.start()
        self.server.wait_ready()
        self.lost = self.events[-count:]
        self.stack = Stack(self.server.url, self.neo4j_url)

    def lost_ids(self) -> list[str]:
        return sorted(made.event_id for made in self.lost)

    def graph_ids(self) -> list[str]:
        text = "MATCH (e:Event) WHERE NOT e:Placeholder RETURN e.event_id ORDER BY e.event_id"
        found: list[str] = self.stack.cypher(text)
        return found

    def ledger_events(self) -> list[Event]:
        ledger = self.stack.ledger
        return [
            decode_event(entry.data)
            for partition in range(ledger.partitions)
            for entries in ledger.scan(partition)
            for entry in entries
        ]

    def assert_recovered(self) -> None:
        """Everything that is left is right, new events flow, and nothing of them is skipped."""
        stack = self.stack
        assert stack.ledger.halted() == {}
        assert stack.ledger.missing_checkpoints(stack.graph.checkpoints()) == []
        new = sessions(6, 3, agent_id="later")
        new = [made._replace(event_id=event_id(5_000 + n)) for n, made in enumerate(new)]
        stack.append(*new)
        stack.fold()
        report = stack.verify()
        assert report.ok, report.differences
        kept = [made for made in self.events if made not in self.lost]
        assert self.graph_ids() == sorted(made.event_id for made in [*kept, *new])
        assert report.events == len(kept) + len(new)
        assert report.lag_entries == 0


def cut_entries(server: ValkeyServer, count: int) -> None:
    """Cut an append-only file in front of the transaction that holds the `count`-th last entry."""
    (path,) = (server.data_dir / "appendonlydir").glob("*.incr.aof")
    data = path.read_bytes()
    offsets = [match.start() for match in re.finditer(rb"\*\d+\r\n\$4\r\nXADD\r\n", data)]
    path.write_bytes(data[: offsets[-count]])


@pytest.fixture
def outage(tmp_path: Path, neo4j_url: str) -> Iterator[Outage]:
    made = Outage(tmp_path / "valkey", neo4j_url)
    made.fill()
    yield made
    made.stack.close()
    made.server.kill()


def gap_events(outage: Outage) -> list[Event]:
    return [made for made in outage.ledger_events() if made.event_type == GAP_RECORDED]


def test_nothing_lost_is_nothing_to_recover(outage: Outage) -> None:
    for apply in (False, True):
        report = recover(outage.stack.services, apply=apply).as_dict()
        assert (report["ok"], report["graph_ahead"], report["lost"]) == (True, False, [])
    assert gap_events(outage) == []
    outage.assert_recovered()


def test_the_loss_is_found_and_listed_and_nothing_is_touched(outage: Outage) -> None:
    outage.lose()
    graph = outage.stack.dump()
    outcomes = outage.stack.ledger.append(outage.lost)
    assert any(isinstance(outcome, GraphAhead) for outcome in outcomes)
    assert not any(isinstance(outcome, Appended) for outcome in outcomes)

    report = recover(outage.stack.services, apply=False).as_dict()
    assert (report["ok"], report["graph_ahead"], report["applied"]) == (False, True, False)
    assert report["lost_event_ids"] == outage.lost_ids()
    assert sum(gap["entries_lost"] for gap in report["gaps"]) == LOST
    assert {gap["target"] for gap in report["gaps"]} == {"blue"}
    assert outage.stack.dump() == graph
    assert outage.stack.ledger.halted()


def test_recovered_it_goes_on_without_what_was_lost(outage: Outage) -> None:
    outage.lose()
    before = {c.partition: c for c in outage.stack.graph.checkpoints()}
    report = recover(outage.stack.services, apply=True)
    assert report.as_dict()["ok"]
    assert report.as_dict()["lost_event_ids"] == outage.lost_ids()
    assert all(one.ok for one in report.verified)
    for gap in report.gaps:
        after = outage.stack.graph.checkpoints("projection")[gap.checkpoint.partition]
        assert after.generation == before[after.partition].generation + 1
        assert after.position <= gap.kept
    (recorded,) = gap_events(outage)
    assert recorded.payload["lost_event_ids"] == outage.lost_ids()
    assert outage.graph_ids() == sorted(
        made.event_id for made in outage.events if made not in outage.lost
    )
    outage.assert_recovered()


def test_producers_may_send_again_what_was_lost(outage: Outage) -> None:
    whole = outage.stack.verify().digest
    outage.lose()
    recover(outage.stack.services, apply=True)
    assert not any(place.duplicate for place in outage.stack.append(*outage.lost))
    outage.stack.fold()
    report = outage.stack.verify()
    assert (report.ok, report.digest) == (True, whole)


def test_recovering_twice_is_harmless(outage: Outage) -> None:
    outage.lose()
    recover(outage.stack.services, apply=True)
    graph = outage.stack.dump()
    again = recover(outage.stack.services, apply=True).as_dict()
    assert (again["ok"], again["graph_ahead"], again["lost"]) == (True, False, [])
    assert outage.stack.dump() == graph
    assert len(gap_events(outage)) == 1
    outage.assert_recovered()


@pytest.mark.parametrize("step", ["verify", "_release", "_record", "_reset"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_between_its_steps_it_is_run_again(
    outage: Outage, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    outage.lose()
    whole: Callable[..., Any] = getattr(module, step)

    def killed(*arguments: Any, **options: Any) -> Any:
        if moment == "after":
            whole(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, step, killed)
        with pytest.raises(Killed):
            recover(outage.stack.services, apply=True)
    # A partition that is released already takes what was lost before the second run.
    outage.stack.ledger.append(outage.lost[:1])
    report = recover(outage.stack.services, apply=True)
    assert report.as_dict()["ok"], report.as_dict()
    ids: set[str] = set()
    for recorded in gap_events(outage):
        ids.update(recorded.payload["lost_event_ids"])
    assert sorted(ids) == outage.lost_ids(), "the ledger says what it lost"
    sent_again = [made for made in outage.lost if made in outage.ledger_events()]
    outage.lost = [made for made in outage.lost if made not in sent_again]
    outage.assert_recovered()


def test_a_worker_that_halts_again_between_two_steps_is_waited_for(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage.lose()
    ledger = outage.stack.ledger
    append, halts = ledger.append, iter(range(3))

    def found_again(events: Sequence[Event], **options: Any) -> Any:
        if next(halts, None) is not None:
            for checkpoint in outage.stack.graph.checkpoints("projection"):
                ledger.halt("blue", checkpoint)
        return append(events, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "append", found_again)
        assert recover(outage.stack.services, apply=True).as_dict()["ok"]
    assert next(halts, None) is None
    assert len(gap_events(outage)) == 1
    outage.assert_recovered()


def test_a_worker_and_a_producer_never_stop(outage: Outage) -> None:
    """Both try all the time; what is accepted is folded, from the first entry on."""
    outage.lose()
    stack = outage.stack
    accepted: list[Event] = []

    def produce(numbers: Sequence[int]) -> None:
        for number in numbers:
            made = event(number, session_id=f"session-{number % 6}")
            (outcome,) = stack.ledger.append([made])
            if isinstance(outcome, Appended):
                accepted.append(made)

    produce(range(7_000, 7_020))
    assert len(accepted) < 20
    assert recover(stack.services, apply=True).as_dict()["ok"]
    with Worker(stack):
        produce(range(8_000, 8_030))
        assert {made.event_id for made in accepted} >= {event_id(n) for n in range(8_000, 8_030)}
        wait_until(
            lambda: (
                [c.seq for c in stack.graph.checkpoints("projection")]
                == [tail.seq for tail in stack.ledger.tails()]
            ),
            "the worker has folded what came",
        )
    assert stack.verify().ok
    assert {made.event_id for made in accepted} <= set(outage.graph_ids())


def test_everything_lost(outage: Outage) -> None:
    """An empty server beside a full graph: the graph is emptied, and a new history begins."""
    outage.stack.close()
    outage.server.kill()
    for path in (outage.server.data_dir / "appendonlydir").iterdir():
        path.unlink()
    outage.server.start()
    outage.server.wait_ready()
    outage.lost = outage.events
    outage.stack = Stack(outage.server.url, outage.neo4j_url)
    with pytest.raises(OperationFailed, match="holds nothing"):
        recover(outage.stack.services, apply=True)
    assert recover(outage.stack.services, apply=False).nothing_left == ["blue"]

    report = recover(outage.stack.services, apply=True, everything=True).as_dict()
    assert report["ok"]
    assert report["lost_event_ids"] == outage.lost_ids()
    assert outage.graph_ids() == []
    outage.assert_recovered()


def test_a_stage_that_went_past_the_loss_meanwhile_goes_back_too(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its upstream's lost checkpoint has a higher number than what came since."""
    Enriched(outage.stack).fold()
    lost = [said(900 + n, f"Ann met Zebulon at lake {n}.", "Ann") for n in range(4)]
    outage.events += lost
    for made in lost:
        outage.stack.append(made)
    outage.stack.fold()
    outage.lose(len(lost))
    stack = outage.stack
    stack.ledger.admit()
    for partition in stack.ledger.halted():
        stack.ledger.release(partition)
    new = said(950, "Ann met Bob at the observatory.", "Ann")
    stack.append(new)
    with monkeypatch.context() as patched:
        patched.setattr(Retries, "pause", waits)
        with pytest.raises(Stopped):
            Enriched(stack).fold()
        patched.setattr(Runner, "_await_upstream", lambda *_: None)  # as before it waited for that
        Enriched(stack).fold()
    report = recover(stack.services, apply=True)
    assert report.as_dict()["ok"]
    stack.fold()
    Enriched(stack).fold()
    again = verify(stack.services)
    assert again.ok, again.differences
    assert new.event_id in outage.graph_ids()


def waits(*_: object) -> None:
    raise Stopped()


def test_what_was_derived_from_lost_events_goes_too(outage: Outage) -> None:
    enriched = Enriched(outage.stack)
    kept = said(900, "Ann met Bob at the observatory.", "Ann")
    fact = {"source": {"name": "Ann"}, "relation": "lives_in", "target": {"name": "Berlin"}}
    lost = [
        said(901, "Ann met Zebulon at the lake.", "Ann"),
        stated(902, "memory.fact_asserted", fact),
    ]
    outage.events += [kept, *lost]
    outage.stack.append(kept)
    for made in lost:
        outage.stack.append(made)
    outage.stack.fold()
    enriched.fold()
    names = "MATCH (n:Entity) RETURN n.canonical_name ORDER BY n.canonical_name"
    assert {"zebulon", "berlin"} <= set(outage.stack.cypher(names))
    outage.lose(len(lost))
    report = recover(outage.stack.services, apply=True)
    assert report.as_dict()["ok"]
    found = set(outage.stack.cypher(names))
    assert not {"zebulon", "berlin"} & found
    assert "bob" in found
    assert outage.stack.cypher("MATCH (h:FactHistory) RETURN count(h)") == [0]
    again = verify(outage.stack.services)
    assert again.ok, again.differences
