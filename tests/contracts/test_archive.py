"""The archive on a real Valkey: archived and streamed entries are one sequence."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.cli.graph import picture
from pipelines.ledger.archive import Archive, Boundary
from pipelines.ledger.check import check
from pipelines.ledger.ledger import Appended
from pipelines.operations.status import status
from projections.identity import START
from tests.archive_support import Make, answers, archived_stacks
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration


@pytest.fixture
def make(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with archived_stacks(redis_url, tmp_path, monkeypatch) as stacks:
        yield stacks


@pytest.mark.parametrize("keep", [1, 5, 23])
def test_every_read_answers_as_before_there_was_an_archive(make: Make, keep: int) -> None:
    stack = make()
    before = answers(stack)
    report = stack.archive(keep)
    assert report.archived == 120 - 2 * keep
    assert stack.streamed() == 2 * keep
    assert answers(stack) == before
    assert answers(stack.reopened(archive_url=None)) == before  # the place stands in Redis


def test_it_goes_on_where_it_was(make: Make) -> None:
    stack = make()
    stack.archive(30)
    assert stack.archive(30).archived == 0
    stack.put()
    before = answers(stack)
    assert stack.archive(3).archived > 100
    assert answers(stack) == before


@pytest.mark.parametrize("counts", [(5, 5), (40, 40), (1_000, 1)])
def test_a_boundary_that_moves_while_somebody_reads(
    make: Make, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int]
) -> None:
    """Between the look at the stream and the boundary, and between that and the manifest."""
    stack = make()
    before = stack.entries(0)
    stack.archive(45)
    reader, ask, asked = stack.reopened(), Archive.boundary, list[int]()

    def moving(archive: Archive, partition: int) -> Boundary:
        if archive is not reader.ledger.archive:
            return ask(archive, partition)
        asked.append(partition)
        if len(asked) == 1:
            stack.archive(40)
        boundary = ask(archive, partition)
        if len(asked) == 2:
            stack.archive(5)
        return boundary

    monkeypatch.setattr(Archive, "boundary", moving)
    count, size = counts
    read = reader.ledger.read(0, START, count)
    assert read == before[: len(read)]
    assert len(read) >= min(count, len(before) - 40)
    newest = reader.ledger.newest(0, before[-size].position, 60)
    assert newest == before[-size - 1 :: -1][:60]
    monkeypatch.undo()
    assert reader.entries(0) == before


def test_the_folder_is_its_users_alone(make: Make) -> None:
    stack = make()
    stack.archive()
    modes = {path.stat().st_mode & 0o077 for path in (stack.folder, *stack.folder.rglob("*"))}
    assert modes == {0}


def test_duplicates_of_archived_events_are_told(make: Make) -> None:
    stack = make()
    places = [one for one in stack.ledger.append(stack.events) if isinstance(one, Appended)]
    stack.archive()
    again = stack.ledger.append(stack.events)
    assert again == [place._replace(duplicate=True) for place in places]
    redis: Any = stack.services.redis
    assert not redis.exists(*(stack.ledger.keys.restored(partition) for partition in range(2)))


def test_the_ledger_still_agrees_with_itself(make: Make) -> None:
    stack = make()
    stack.archive(4)
    report = check(stack.ledger, repair=False)
    assert (report.as_dict()["findings"], report.entries, report.rows) == ([], 120, 120)


def test_status_counts_both_and_lag_does_not_change(make: Make) -> None:
    stack = make()
    stack.append(*(numbered_event(number) for number in range(1_000, 1_030)))
    before = status(stack.services)
    assert before["ledger"]["archive"] is None
    stack.archive(10)  # of each partition; what is not folded stays as well
    told = status(stack.services)
    archive = told["ledger"]["archive"]
    assert told["stages"]["projection"]["lag_entries"] == 30
    lags = [
        [(row["seq"], row["lag_entries"]) for row in seen["stages"][stage]["partitions"]]
        for seen in (before, told)
        for stage in ("projection", "enrichment")
    ]
    assert lags[:2] == lags[2:]
    assert (
        told["stages"]["enrichment"]["lag_seconds"] >= before["stages"]["enrichment"]["lag_seconds"]
    )
    assert (archive["entries"] + archive["streamed"], archive["streamed"]) == (
        150,
        stack.streamed(),
    )
    assert archive["entries"] > 100
    assert (archive["url"], archive["problem"]) == (str(stack.folder), None)
    assert told["ledger"]["entries"] == before["ledger"]["entries"] == 150
    shown = io.StringIO()
    Console(file=shown, width=200).print(picture(told))
    assert f"archive {archive['entries']} entries in" in shown.getvalue()


def test_what_a_stage_has_not_folded_stays(make: Make) -> None:
    stack = make()
    folded = {c.partition: c.seq for c in stack.graph.checkpoints("projection")}
    stack.append(*(numbered_event(number) for number in range(1_000, 1_060)))
    report = stack.archive()
    assert {n: stack.ledger.archive.boundary(n).seq for n in range(2)} == folded
    assert report.waits_for == {0: "projection@blue", 1: "projection@blue"}
    assert stack.archive().archived == 0
    stack.fold()
    assert stack.archive().archived == 58
