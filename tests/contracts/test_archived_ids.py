"""Ids of archived events on a real Valkey: few bytes, and every event is still known by its id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.ledger.archive import Archive
from pipelines.ledger.archived_ids import ArchivedIds, Item, items_in
from pipelines.ledger.check import check
from pipelines.ledger.entries import Entry, LedgerKeys, bucket_of
from pipelines.ledger.ledger import Appended, Outcome
from pipelines.operations.backup import backup, restore
from pipelines.work.services import Services
from projections.errors import ArchiverUnderWay, ArchiveUnavailable, EventConflict
from projections.events import Event, encode_event
from projections.identity import START, event_key_digest
from tests.archive_support import ArchivedStack, Make, answers, archived_stacks
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration
BUCKETS = 64
NEW = [numbered_event(number) for number in range(1_000, 1_010)]


@pytest.fixture
def make(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with archived_stacks(redis_url, tmp_path, monkeypatch) as stacks:
        yield stacks


@pytest.fixture
def stack(make: Make) -> ArchivedStack:
    """All but the last entry of both partitions are archived."""
    made = make()
    made.archive()
    return made


def rows(stack: ArchivedStack) -> int:
    redis: Any = stack.services.redis
    return sum(redis.hlen(LedgerKeys().ids(bucket)) for bucket in range(BUCKETS))


def items(stack: ArchivedStack) -> list[Item]:
    values = stack.ledger.archive.ids.values(range(BUCKETS))
    return [item for value in values for item in items_in(value)]


def event_of(stack: ArchivedStack, event: Event) -> Event:
    """The event of the same id, as the ledger has it."""
    entry = stack.ledger.find(*event.key)
    assert entry is not None
    return entry.event()


def mistake(stack: ArchivedStack, event: Event) -> None:
    """Make a new event look like an archived one of another partition than its own."""
    key, redis = event_key_digest(*event.key), stack.services.redis
    redis.append(LedgerKeys().archived_ids(bucket_of(key, BUCKETS)), Item(key[4:7], 1, 5).packed())


def looks(monkeypatch: pytest.MonkeyPatch, also: Callable[[], None] | None = None) -> list[int]:
    """Of each event that is looked for in the archive, at how many places."""
    told, of_event = list[int](), Archive.of_event

    def looking(archive: Archive, key: bytes, places: list[Item], *others: Any) -> Entry | None:
        told.append(len(places))
        entry = of_event(archive, key, places, *others)
        if also is not None and len(told) == 1:
            also()
        return entry

    monkeypatch.setattr(Archive, "of_event", looking)
    return told


def test_rows_of_archived_events_leave_redis(stack: ArchivedStack) -> None:
    assert (rows(stack), len(items(stack))) == (2, 118)
    places = stack.append(*stack.events)
    assert all(place.duplicate for place in places)
    assert (rows(stack), len(items(stack))) == (2, 118)


def test_other_content_under_the_id_of_an_archived_event_is_told(stack: ArchivedStack) -> None:
    first, second, *_ = stack.events
    altered = first._replace(payload={"text": "otherwise"})
    moved = second._replace(session_id="another, of the other partition")
    outcomes = stack.ledger.append([NEW[0], altered, NEW[1], moved, second])
    assert [type(one) for one in outcomes] == [
        *(Appended, EventConflict, Appended, EventConflict, Appended)
    ]
    told = [one.event_id for one in outcomes if isinstance(one, EventConflict)]
    assert told == [first.event_id, second.event_id]
    assert event_of(stack, first) == first


def test_a_new_event_that_looks_archived_costs_a_look_and_keeps_its_place(
    stack: ArchivedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(stack, NEW[3])
    told = looks(monkeypatch)
    places = stack.append(*NEW, NEW[3])
    assert told == [1, 1]
    assert [place.duplicate for place in places] == [False] * len(NEW) + [True]
    assert [place.position for place in places[:-1]] == sorted(p.position for p in places[:-1])
    assert event_of(stack, NEW[3]) == NEW[3]
    assert stack.ledger.find_many([numbered_event(5_000).key]) == {}


def test_a_place_that_came_while_somebody_looked_is_looked_at_too(
    stack: ArchivedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the event is appended, folded and archived by others."""
    event, other = NEW[3], stack.reopened()
    mistake(stack, event)

    def overtake() -> None:
        other.append(event, *(numbered_event(number) for number in range(2_000, 2_020)))
        other.fold()
        other.archive()

    told = looks(monkeypatch, overtake)
    (place,) = stack.append(event)
    assert (told, place.duplicate) == ([1, 1, 2], True)


def test_where_the_archive_is_away_only_what_may_be_in_it_waits(
    stack: ArchivedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = stack.folder.rename(stack.folder.with_name("elsewhere"))
    fresh = stack.reopened()
    told = looks(monkeypatch)
    first, second, *_ = stack.events
    outcomes: list[Outcome] = fresh.ledger.append([NEW[0], first, NEW[1], second, NEW[2]])
    assert [type(one) for one in outcomes] == [
        *(Appended, ArchiveUnavailable, Appended, ArchiveUnavailable, Appended)
    ]
    assert told == [1], "a place that is away is asked once, not for each event"
    away.rename(stack.folder)
    again = fresh.append(NEW[0], first, NEW[1], second, NEW[2])
    assert all(place.duplicate for place in again)


def test_rows_that_an_earlier_archiver_left_are_packed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = make()
    with monkeypatch.context() as patched:
        patched.setattr(ArchivedIds, "packed_up_to", lambda *_: [1_000, 1_000])
        stack.archive(20)
    assert (rows(stack), items(stack)) == (120, [])
    assert stack.archive(20).archived == 0
    assert (rows(stack), len(items(stack))) == (40, 80)


def test_an_archiver_that_was_overtaken_packs_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, pack, overtaken = make(), ArchivedIds.pack, list[bool]()
    before, other = answers(stack), stack.reopened()

    def overtake(*arguments: Any, **options: Any) -> bool:
        if not overtaken:
            overtaken.append(True)
            stack.services.redis.delete(stack.ledger.keys.archive_lease)
            other.archive()
        return pack(*arguments, **options)

    monkeypatch.setattr(ArchivedIds, "pack", overtake)
    with pytest.raises(ArchiverUnderWay, match="packed the ids of 0"):
        stack.archive()
    assert answers(stack) == before
    assert len(items(stack)) == 118


def test_a_bucket_has_each_item_once_and_little_room(stack: ArchivedStack) -> None:
    keys = LedgerKeys("small")
    ids, redis = ArchivedIds(stack.services.redis, keys, id_buckets=1), stack.services.redis
    entries = [
        Entry(0, START, number, encode_event(numbered_event(number))) for number in range(1, 701)
    ]
    for first in range(0, 700, 100):
        some = entries[first : first + 100]
        assert ids.pack("", some)
        assert ids.pack("", some), "the answer to the first call was lost"
        assert not ids.pack("", entries[:50]), "another archiver was here"
        assert not ids.pack("5 5-0 aa 1", some)
    (value,) = ids.values([0])
    assert list(items_in(value)) == [Item.of(entry) for entry in entries]
    assert 8 * 700 <= len(value or b"") <= 8 * 700 * 9 / 8
    assert int(redis.strlen(keys.archived_ids(0))) == len(value or b"")


def test_items_that_are_gone_or_lead_elsewhere_are_told_and_mended(stack: ArchivedStack) -> None:
    redis: Any = stack.services.redis
    event = stack.events[7]
    key = event_key_digest(*event.key)
    bucket = LedgerKeys().archived_ids(bucket_of(key, BUCKETS))
    redis.delete(bucket)
    mistake(stack, NEW[0])
    mistake(stack, NEW[1])
    assert stack.ledger.find(*event.key) is None
    report = check(stack.ledger, repair=False)
    assert set(report.found) == {"index missing", "index stale"}
    assert report.found["index stale"] == 2
    assert check(stack.ledger, repair=True).ok
    assert event_of(stack, event) == event
    assert all(place.duplicate for place in stack.append(*stack.events))
    after = check(stack.ledger, repair=False)
    assert (after.as_dict()["findings"], after.rows, len(items(stack))) == ([], 120, 118)


def test_a_restore_fills_redis_with_few_bytes_of_each_id(make: Make, tmp_path: Path) -> None:
    stack, url = make(), str(tmp_path / "backup")
    stack.archive(30)
    backup(stack.services, url)
    before, redis = answers(stack), stack.services.redis
    redis.flushall()
    goal = stack.services.settings.model_copy(update={"archive_url": str(tmp_path / "goal")})
    with Services(goal) as services:
        restore(services, url)
    back = stack.reopened(archive_url=str(tmp_path / "goal"))
    assert answers(back) == before
    assert rows(back) == back.streamed() < 40
    assert len(items(back)) == 120 - back.streamed()
    assert all(place.duplicate for place in back.append(*stack.events))
