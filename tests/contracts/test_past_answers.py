"""The sample of past answers, read backwards from a real ledger: its bounds, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.operations import past_answers
from pipelines.operations.past_answers import AnswerSample, PastAnswers
from pipelines.work.settings import Settings
from tests.decision_factories import system
from tests.factories import event_id
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    """Of one partition, so that all tenants and sessions share it."""
    redis = connect_redis(Settings(redis_url=redis_url))
    return Ledger(redis, partitions=1, id_buckets=64, checkpoints=dict)


def answered(ledger: Ledger, number: int, *shown: int, tenant: str = "default") -> int:
    """A record of an answer that showed these events; when the ledger took it in."""
    payload: dict[str, Any] = {"events": {event_id(one): 1 for one in shown}}
    (outcome,) = ledger.append([system(number, "memory.accessed", payload, tenant=tenant)])
    assert isinstance(outcome, Appended)
    return outcome.position.ms


def sampled(ledger: Ledger, *leaving: int, until_ms: int | None = None) -> PastAnswers:
    until_ms = ledger.now_ms() + 1_000 if until_ms is None else until_ms
    sample = AnswerSample(ledger, "default", until_ms)
    for number in leaving:
        sample.leaves(event_id(number))
    return sample.told()


def test_a_sample_has_the_newest_and_says_that_there_may_be_older_ones(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        answered(ledger, 100 + number, number)
        ledger.append([numbered_event(number)])
    assert (sampled(ledger).sampled, sampled(ledger).whole) == (5, True)
    monkeypatch.setattr(past_answers, "ENTRIES_AT_ONCE", 2)
    assert (sampled(ledger).sampled, sampled(ledger).whole) == (5, True)

    with monkeypatch.context() as few:
        few.setattr(past_answers, "MAX_ANSWERS", 3)
        told = sampled(ledger, 1, 2, 4)
        assert (told.sampled, told.changed, told.whole) == (3, 1, False)
        assert told.newest[0].event_ids == (event_id(4),)
    with monkeypatch.context() as few:
        few.setattr(past_answers, "MAX_SHOWN", 1)
        assert (sampled(ledger).sampled, sampled(ledger).whole) == (2, False)
    with monkeypatch.context() as few:
        few.setattr(past_answers, "MAX_ENTRIES", 4)
        assert (sampled(ledger).sampled, sampled(ledger).whole) == (2, False)


def test_of_those_that_change_the_newest_are_told_with_some_events(ledger: Ledger) -> None:
    for number in range(past_answers.NEWEST + 2):
        answered(ledger, 100 + number, *range(1, 14), 50 + number)
    told = sampled(ledger, *range(1, 13), 99)
    assert (told.sampled, told.changed) == (past_answers.NEWEST + 2,) * 2
    assert len(told.newest) == past_answers.NEWEST
    assert [answer.at for answer in told.newest] == sorted(
        (answer.at for answer in told.newest), reverse=True
    )
    newest = told.newest[0]
    assert (newest.shown, newest.leaving) == (14, 12)
    assert newest.event_ids == tuple(map(event_id, range(1, past_answers.EVENTS_NAMED + 1)))


def test_answers_of_others_of_later_and_of_no_events_are_left_out(ledger: Ledger) -> None:
    answered(ledger, 100, 1)
    answered(ledger, 101, 1, tenant="other")
    entity = {"entities": {"a" * 32: 1}}
    ledger.append([system(102, "memory.accessed", entity), system(103, "memory.accessed", {})])
    ledger.append([numbered_event(1, payload={"text": "memory.accessed"})])
    told = sampled(ledger, 1)
    assert (told.sampled, told.changed, told.whole) == (1, 1, True)
    assert sampled(ledger, 1, until_ms=1).sampled == sampled(ledger, 1, until_ms=-5).sampled == 0
    assert sampled(ledger, 1, until_ms=1).since is None
