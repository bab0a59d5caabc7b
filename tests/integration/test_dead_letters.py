"""Dead letters: shown, tried again, given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipelines.operations import dead_letters
from projections.errors import OperationFailed
from projections.events import Event, event_partition
from projections.identity import Position
from projections.operations import Operations
from projections.structural import Facts
from tests.factories import event, event_id
from tests.fakes.stages import PROJECTING
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS

pytestmark = pytest.mark.integration


def refusing_bad(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
    if any(made.agent_id == "bad" for _, made in events):
        raise ValueError("a bad agent")
    return PROJECTING.fold(events, facts)


def names_by_partition() -> dict[int, str]:
    """A session's name for each partition."""
    return {
        event_partition(event(1, session_id=name), PARTITIONS): name
        for name in (f"s-{n}" for n in range(20))
    }


@pytest.fixture
def troubled(stack: Stack) -> Stack:
    """Two dead letters in each partition, of numbers 1 and 2, 11 and 12; 5 and 15 are well."""
    for partition, name in names_by_partition().items():
        stack.append(
            event(10 * partition + 1, session_id=name, agent_id="bad", payload="secret"),
            event(10 * partition + 5, session_id=name),
            event(10 * partition + 2, session_id=name, agent_id="bad"),
        )
    stack.fold(runner=stack.new_runner(replace(PROJECTING, fold=refusing_bad)))
    return stack


def listed(stack: Stack) -> list[tuple[int, int, str]]:
    return [
        (letter["partition"], letter["seq"], letter["kind"])
        for letter in dead_letters.list_(stack.services, dropped=True).dead_letters
    ]


def test_they_are_listed_in_order(troubled: Stack) -> None:
    assert listed(troubled) == [
        (0, 1, "poison"),
        (0, 3, "poison"),
        (1, 1, "poison"),
        (1, 3, "poison"),
    ]
    assert dead_letters.list_(troubled.services, stage="enrichment").dead_letters == []


def test_one_is_shown_with_its_event(troubled: Stack) -> None:
    (letter,) = dead_letters.show(troubled.services, "projection", 1, 3).dead_letters
    assert letter["event"]["event_id"] == event_id(12)
    assert letter["reason"] == "ValueError: a bad agent"
    with pytest.raises(OperationFailed):
        dead_letters.show(troubled.services, "projection", 1, 2)


def test_one_comes_back(troubled: Stack) -> None:
    report = dead_letters.retry(troubled.services, stage="projection", partition=1, seq=3)
    assert (report.done, report.failed) == (1, [])
    assert listed(troubled) == [(0, 1, "poison"), (0, 3, "poison"), (1, 1, "poison")]
    assert troubled.verify().ok


def test_those_of_a_partition_come_back(troubled: Stack) -> None:
    report = dead_letters.retry(troubled.services, stage="projection", partition=0)
    assert report.done == 2
    assert listed(troubled) == [(1, 1, "poison"), (1, 3, "poison")]
    assert dead_letters.retry(troubled.services, partition=1).done == 2
    assert listed(troubled) == []
    assert troubled.verify().ok


def test_those_given_up_stay_and_are_not_tried_again(troubled: Stack) -> None:
    dropped = dead_letters.drop(troubled.services, stage="projection", partition=0, seq=1)
    assert dropped.done == 1
    assert len(dead_letters.list_(troubled.services).dead_letters) == 3
    told: list[tuple[int, int | None]] = []
    report = dead_letters.retry(
        troubled.services, progress=lambda done, total, what: told.append((done, total))
    )
    assert report.done == 3
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert listed(troubled) == [(0, 1, "dropped")]
    assert troubled.verify().ok
    # named by its number, it may still come back
    assert dead_letters.retry(troubled.services, stage="projection", partition=0, seq=1).done == 1
    assert listed(troubled) == []


def test_one_whose_entry_is_gone_stays(troubled: Stack) -> None:
    entry = troubled.ledger.read(0, Position(0, 0), 1)[0]
    redis = troubled.services.redis
    redis.xdel(troubled.ledger.keys.stream(0), str(entry.position))
    report = dead_letters.retry(troubled.services, stage="projection", partition=0, seq=1)
    assert report.done == 0
    assert "no longer" in report.failed[0]["reason"]
    assert (0, 1, "poison") in listed(troubled)


def test_one_beyond_the_checkpoint_waits_for_its_worker(troubled: Stack) -> None:
    """After a reset the entry will come again; nothing was folded, so nothing is done."""
    with troubled.graph.transaction() as transaction:
        current = transaction.lock("projection", 0)
        assert current is not None
        first = troubled.ledger.read(0, Position(0, 0), 1)[0]
        transaction.run(
            "MATCH (c:Checkpoint {stage: 'projection', partition: 0}) "
            "SET c.position = $position, c.seq = 1",
            position=str(first.position),
        )
    report = dead_letters.retry(troubled.services, stage="projection", partition=0, seq=3)
    assert report.done == 0
    assert "checkpoint" in report.failed[0]["reason"]
    assert (0, 3, "poison") in listed(troubled)
