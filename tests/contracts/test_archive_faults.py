"""What goes wrong with an archive: nothing is lost or doubled, and it says what, and where."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipelines.ledger.archive import Archive, Boundary
from pipelines.ledger.archive_files import ArchiveStore
from pipelines.ledger.check import check
from pipelines.ledger.damage import HeldOut
from pipelines.ledger.epoch import ArchiveLease
from pipelines.ledger.ledger import Appended
from pipelines.local.python_process import python_command, python_environment
from pipelines.operations.status import status
from projections.errors import (
    ArchiveDamaged,
    ArchiverUnderWay,
    ArchiveUnavailable,
    ConfigurationError,
    EntryHeldOut,
)
from projections.identity import START, Position
from projections.operations import Checkpoint
from tests.archive_support import (
    ArchivedStack,
    Make,
    answers,
    archived_stacks,
    contents,
    small_segments,
)
from tests.damage import flipped, write_stream_anew
from tests.fakes.events import numbered_event

pytestmark = pytest.mark.integration


@pytest.fixture
def make(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with archived_stacks(redis_url, tmp_path, monkeypatch) as stacks:
        yield stacks


# -- archivers that are killed, and that are two ---------------------------------------------------


def test_killed_at_each_step_it_loses_and_doubles_nothing(make: Make, redis_url: str) -> None:
    stack = make()
    arguments = [redis_url, str(stack.folder)]
    command = python_command("tests.killed_archiver")
    with subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=python_environment(),
        text=True,
    ) as killed:
        assert killed.stdin is not None
        assert killed.stdout is not None
        outcomes = []
        for step in range(1, 25):
            stack.put(20)
            before = contents(stack)
            killed.stdin.write(f"{step}\n")
            killed.stdin.flush()
            outcomes.append(killed.stdout.readline().strip())
            assert contents(stack) == before, step
        killed.stdin.close()
    assert outcomes == ["killed"] * 24
    before = answers(stack)
    assert all(place.duplicate for place in stack.append(*stack.events))
    stack.services.redis.delete(stack.ledger.keys.archive_lease)
    stack.archive()
    assert answers(stack.reopened()) == before
    assert stack.streamed() == 2
    derived: set[str] = set()
    for partition in range(2):  # what the killed ones left is gone
        boundary = stack.ledger.archive.boundary(partition)
        manifest = stack.ledger.archive.manifest(partition, boundary)
        names = {path.name for path in (stack.folder / str(partition)).iterdir()}
        beside = {row.derivations_file for row in manifest.rows if row.derivations}
        assert names == {manifest.file, *(row.file for row in manifest.rows), *beside}
        derived |= beside
    assert derived
    assert check(stack.ledger, repair=False).ok  # it reads what was derived, too


def test_a_second_archiver_is_told_of_the_first(make: Make) -> None:
    stack = make()
    with (
        ArchiveLease(stack.services.redis, "rc", lease_ms=60_000),
        pytest.raises(ArchiverUnderWay, match="process"),
    ):
        stack.archive()
    assert stack.archive().archived == 118


@pytest.mark.parametrize("further", [-20, 5])
@pytest.mark.parametrize("step", ["put", "move"])
def test_an_archiver_that_was_overtaken_changes_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, step: str, further: int
) -> None:
    """By one that archives further than its own segment, or less far."""
    stack = make()
    keep = stack.ledger.tails()[0].seq - 7 + further
    before, other, overtaken = answers(stack), stack.reopened(), list[bool]()
    owner: Any = Archive if step == "move" else ArchiveStore
    act = getattr(owner, step)

    def overtake(*arguments: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            stack.services.redis.delete(stack.ledger.keys.archive_lease)
            other.archive(keep)
        return act(*arguments)

    monkeypatch.setattr(owner, step, overtake)
    with pytest.raises(ArchiverUnderWay, match="moved the boundary of 0"):
        stack.archive()
    assert answers(stack) == answers(other) == before
    stack.archive()
    assert answers(stack) == before
    assert stack.streamed() == 2


def test_the_archive_of_another_ledger_is_refused(make: Make, redis_url: str) -> None:
    stack = make()
    stack.archive()
    other = ArchivedStack(redis_url, stack.folder, prefix="other")
    other.put()
    with pytest.raises(ConfigurationError, match=r"ledger\.json is of another"):
        other.archive()
    assert other.ledger.archive.boundary(0) == Boundary()
    other.close()


# -- files that are damaged, or gone ---------------------------------------------------------------


def test_a_flipped_byte_is_never_served(make: Make) -> None:
    stack = make()
    entries = stack.entries(0)
    within = entries[9].event()
    stack.archive()
    file = stack.segments(0)[1]
    sound = file.read_bytes()
    file.write_bytes(flipped(sound))
    fresh = stack.reopened()
    rule = rf"{file.name} breaks the rule that its SHA-256 is the manifest's"
    with pytest.raises(ArchiveDamaged, match=rule):
        fresh.entries(0)
    with pytest.raises(ArchiveDamaged, match=rule):
        fresh.ledger.find(*within.key)
    assert fresh.ledger.read(0, START, 7, after_seq=0) == entries[:7]
    new = numbered_event(1_000)
    outcomes = fresh.ledger.append([new, within])
    assert [type(outcome) for outcome in outcomes] == [Appended, ArchiveDamaged]
    report = check(fresh.ledger, repair=False).as_dict()
    assert [(one["kind"], one["seq"]) for one in report["findings"]] == [("archive damaged", 8)]
    file.write_bytes(sound)
    assert check(stack.reopened().ledger, repair=False).ok


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda file: file.unlink(), "the manifest of its boundary is there"),
        (lambda file: file.write_bytes(b"{"), "is a manifest"),
        (
            lambda file: file.write_bytes(
                file.read_bytes().replace(b'"held_out": 0', b'"held_out": 1', 1)
            ),
            "the digest chain holds at 000000000001-",
        ),
    ],
)
def test_a_manifest_that_is_missing_or_altered_is_named(
    make: Make, damage: Callable[[Path], None], rule: str
) -> None:
    stack = make()
    stack.archive()
    (file,) = (stack.folder / "1").glob("manifest-*.json")
    damage(file)
    fresh = stack.reopened()
    with pytest.raises(ArchiveDamaged, match=rf"1/{file.name} breaks the rule that .*{rule}"):
        fresh.entries(1)
    assert fresh.entries(0) == stack.entries(0)
    (finding,) = check(fresh.ledger, repair=False).as_dict()["findings"]
    assert (finding["kind"], finding["partition"]) == ("archive damaged", 1)
    fresh.events = stack.events
    fresh.put(60)
    streamed = fresh.streamed()
    with pytest.raises(ArchiveDamaged, match=file.name):
        fresh.archive()
    assert fresh.streamed() == streamed


def test_a_segment_that_is_gone_is_named(make: Make) -> None:
    stack = make()
    stack.archive()
    file = stack.segments(0)[0]
    file.unlink()
    with pytest.raises(
        ArchiveDamaged, match=f"0/{file.name} .* a segment of the manifest is there"
    ):
        stack.reopened().entries(0)


# -- a place that is away, slow or full ------------------------------------------------------------


def test_a_folder_that_is_away_hides_only_what_is_in_it(make: Make) -> None:
    stack = make()
    stack.archive(20)
    before = answers(stack)
    away = stack.folder.rename(stack.folder.with_name("elsewhere"))
    fresh = stack.reopened()
    with pytest.raises(ArchiveUnavailable, match=r"no ledger\.json is there"):
        fresh.entries(0)
    tail = fresh.ledger.tails()[0]
    assert len(fresh.ledger.newest(0, tail.position, 10)) == 10
    fresh.put(40)
    with pytest.raises(ArchiveUnavailable, match=r"no ledger\.json is there"):
        fresh.archive()
    assert fresh.streamed() == 80
    told = status(fresh.services)
    assert not told["ok"]
    assert "no ledger.json" in told["ledger"]["archive"]["problem"]
    away.rename(stack.folder)
    assert fresh.archive(20).archived == 40
    assert status(fresh.services)["ledger"]["archive"]["problem"] is None
    found = answers(fresh)["found"]
    assert {key: found[key] for key in before["found"]} == before["found"]


def test_a_full_disk_trims_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = make()
    before, sync, written = answers(stack), os.fsync, []

    def full(handle: int) -> None:
        written.append(handle)
        if len(written) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArchiveUnavailable, match="No space left on device"):
        stack.archive()
    assert answers(stack) == before
    boundary = stack.ledger.archive.boundary(0)
    assert (boundary.seq, stack.streamed()) == (7, 113)  # what was whole before is kept
    monkeypatch.undo()
    small_segments(monkeypatch)
    stack.archive()
    assert (answers(stack), stack.streamed()) == (before, 2)


def test_a_place_that_is_a_file_says_so(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    stack = make(archive_url=str(tmp_path / "file" / "archive"))
    with pytest.raises(ArchiveUnavailable, match="NotADirectoryError"):
        stack.archive()
    assert stack.streamed() == 120


class SlowBucket(MemoryFileSystem):  # type: ignore[misc]
    """An object store whose answers take as long as the test says."""

    protocol = ("slow",)
    store: ClassVar[dict[str, Any]] = {}
    pause_s = 0.0

    def pipe_file(self, *arguments: Any, **options: Any) -> None:
        time.sleep(self.pause_s)
        super().pipe_file(*arguments, **options)

    def cat_file(self, *arguments: Any, **options: Any) -> bytes:
        time.sleep(self.pause_s)
        data: bytes = super().cat_file(*arguments, **options)
        return data


def test_a_bucket_that_hangs_is_given_up_in_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.register_implementation("slow", SlowBucket, clobber=True)
    stack = make(archive_url="slow://bucket/ledger", archive_timeout_s=0.5)
    before = answers(stack)
    stack.archive(30)
    assert stack.streamed() == 60
    monkeypatch.setattr(SlowBucket, "pause_s", 2.0)
    with pytest.raises(ArchiveUnavailable, match=r"no answer within 0\.5 s about "):
        stack.archive()
    assert stack.streamed() == 60
    fresh = stack.reopened()
    outcomes = fresh.ledger.append([*stack.events[:9], numbered_event(1_000)])
    assert [type(one) for one in outcomes] == [*[ArchiveUnavailable] * 9, Appended]
    monkeypatch.setattr(SlowBucket, "pause_s", 0.0)
    assert stack.ledger.find_many([event.key for event in stack.events]) == before["found"]
    assert all(place.duplicate for place in fresh.append(*stack.events))


# -- entries that are held out, and ledgers that went back -----------------------------------------


def test_entries_that_are_held_out_stay_so_and_can_be_put_right(make: Make) -> None:
    stack = make()
    lost, altered = stack.entries(0)[20], stack.entries(0)[30]
    redis: Any = stack.services.redis
    redis.xdel(stack.ledger.keys.stream(0), str(lost.position))
    write_stream_anew(
        redis, 0, {altered.position: lambda fields: {**fields, b"e": flipped(fields[b"e"])}}
    )
    before = answers(stack)
    assert before["held out"] == HeldOut(altered=1, lost=1)
    stack.archive()
    assert answers(stack) == before
    with pytest.raises(EntryHeldOut):
        stack.entries(0)[30].event()
    again = stack.ledger.append(stack.events)
    assert all(isinstance(outcome, Appended) and outcome.duplicate for outcome in again)
    right = stack.entries(0)
    assert (right[20].data, right[30]) == (lost.data, altered)
    assert stack.ledger.find(*altered.event().key) == altered
    assert stack.ledger.held_out() == HeldOut()
    assert check(stack.ledger, repair=False).ok


def test_what_was_put_right_before_the_move_is_written_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = make()
    altered = stack.entries(0)[3]
    write_stream_anew(
        stack.services.redis,
        0,
        {altered.position: lambda fields: {**fields, b"e": flipped(fields[b"e"])}},
    )

    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Archive, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            stack.archive()
    stack.ledger.append([altered.event()])
    before = answers(stack)
    stack.archive()
    assert stack.entries(0)[3] == altered
    assert (answers(stack), stack.streamed()) == (before, 2)
    assert stack.ledger.held_out() == HeldOut()
    assert len(list((stack.folder / "0").glob("000000000001-*"))) == 1


def test_a_checkpoint_in_the_archive_is_compared_with_it(make: Make) -> None:
    stack = make()
    entry = stack.entries(1)[10]
    held = Checkpoint("projection", 1, entry.position, entry.seq, digest=entry.digest)
    others = [
        replace(held, digest="00" * 16),
        replace(held, position=Position(entry.position.ms, entry.position.seq + 1)),
        replace(held, seq=10_000),
    ]
    stack.archive()
    assert stack.ledger.missing_checkpoints([held, *others]) == others


def copied(stack: ArchivedStack) -> dict[bytes, bytes]:
    redis: Any = stack.services.redis
    return {key: redis.dump(key) for key in redis.keys("*")}


def put_back(stack: ArchivedStack, copy: dict[bytes, bytes]) -> None:
    redis: Any = stack.services.redis
    redis.flushall()
    for key, value in copy.items():
        redis.restore(key, 0, value)


def test_a_redis_that_forgot_a_move_is_moved_again(make: Make) -> None:
    stack = make()
    stack.archive(40)
    copy, before = copied(stack), answers(stack)
    stack.archive()
    put_back(stack, copy)
    assert (answers(stack), stack.streamed()) == (before, 80)
    report = stack.archive()
    assert (report.archived, report.segments) == (78, 0)  # nothing was written again
    assert (answers(stack), stack.streamed()) == (before, 2)


def test_entries_that_only_the_archive_has_are_never_written_over(make: Make) -> None:
    stack = make()
    copy = copied(stack)
    stack.put(60)
    stack.archive()
    put_back(stack, copy)
    before = stack.ledger.find_many([event.key for event in stack.events])
    assert len(before) == 120
    files = {path: path.read_bytes() for path in stack.folder.rglob("*.*")}
    with pytest.raises(ArchiveDamaged, match=r"the ledger has what it holds; .*recollect restore"):
        stack.archive()
    # Others take their numbers.
    stack.append(*(numbered_event(number) for number in range(1_000, 1_200)))
    with pytest.raises(ArchiveDamaged, match=r"\.parquet .* it holds what the stream holds"):
        stack.archive()
    assert {path: path.read_bytes() for path in stack.folder.rglob("*.*")} == files
    assert {key: stack.ledger.find(*key) for key in before} == before
