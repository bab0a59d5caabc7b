"""Backup and restore: everything is lost, and comes back the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from pipelines.ledger.archive_files import FENCES_FILE, ArchiveFiles
from pipelines.ledger.check import check
from pipelines.ledger.erasing import begin_erasure
from pipelines.ledger.ledger import Appended
from pipelines.ledger.refill import Refill
from pipelines.ledger.sealing import Subject, erased_user
from pipelines.models.loaded import Models
from pipelines.operations.archive import archive
from pipelines.operations.backup import backup, restore
from pipelines.operations.consolidate import consolidate
from pipelines.operations.erase import seal_tenant
from pipelines.operations.rebuild import rebuild
from pipelines.operations.receipts import backups, receipts, sign_receipt, verified
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from projections.errors import (
    ArchiveDamaged,
    ConfigurationError,
    LedgerUnavailable,
    OperationFailed,
    SubjectErased,
)
from tests.archive_support import ArchivedStack, Make, answers, archived_stacks, small_segments
from tests.damage import flipped
from tests.factories import event
from tests.integration.stack import ValkeyStack
from tests.stages.enriched import EnrichedLedger, embedder, recognizer, said

pytestmark = pytest.mark.integration


@pytest.fixture
def make(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with archived_stacks(redis_url, tmp_path, monkeypatch) as stacks:
        yield stacks


def restored(stack: ArchivedStack, url: str, **options: Any) -> ArchivedStack:
    """The ledger of a backup, in a Redis of which everything is gone."""
    redis.Redis.from_url(stack.services.settings.redis_url).flushall()
    settings = stack.services.settings.model_copy(update=options)
    with Services(settings) as services:
        restore(services, url)
    return stack.reopened(**options)


def test_everything_is_lost_and_comes_back(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledger, archive, graph and derivations; then all stages are folded anew, to the same."""
    small_segments(monkeypatch)
    url, places = str(tmp_path / "backup"), ("the old harbour", "Marseille", "the library")
    events = [
        said(n, f"Ann met Bob at {places[n % 3]} on walk {n}.", session_id=f"session-{n % 3}")
        for n in range(1, 25)
    ]

    archived = {"archive_url": str(tmp_path / "archive")}
    stack = ValkeyStack(redis_url, "memory://live", **archived, derivations_url=kept(tmp_path, 1))
    models = {"embedder": embedder(), "recognizer": recognizer()}
    with closing(stack):
        services = with_models(stack.services, *models.values())
        EnrichedLedger(stack, models).take_in(*events)
        assert consolidate(services).found.episodes_written > 0
        archive(services, keep=4)
        whole = verify(services)
        entries = sum(tail.seq for tail in stack.ledger.tails())
        assert backup(services, url).entries == entries

    redis.Redis.from_url(redis_url).flushall()
    (tmp_path / "archive").rename(tmp_path / "lost")
    fresh = {"neo4j_url": "memory://fresh", "derivations_url": kept(tmp_path, 2)}
    with Services(services.settings.model_copy(update=fresh)) as back:
        assert restore(back, url).entries == entries
        with_models(back, *models.values())
        rebuilt = rebuild(back).verified
        assert rebuilt.ok
        assert sorted(whole.stages) == ["consolidation", "enrichment", "projection"]
        assert [rebuilt.stages[name].digest for name in sorted(rebuilt.stages)] == [
            whole.stages[name].digest for name in sorted(whole.stages)
        ]
        assert check(back.ledger, repair=False).ok
        again = back.ledger.append(events)
        assert all(isinstance(one, Appended) and one.duplicate for one in again)


def kept(folder: Path, number: int) -> str:
    return f"sqlite://{folder}/derivations-{number}.sqlite"


def with_models(services: Services, *models: Any) -> Services:
    """The tests' own, which are loaded already."""
    services.__dict__["models"] = Models(services.settings, *models)
    return services


@pytest.mark.parametrize("archive_of_goal", [None, "goal"])
@pytest.mark.parametrize("keep", [200, 30])
def test_a_restored_ledger_answers_as_before(
    make: Make, tmp_path: Path, keep: int, archive_of_goal: str | None
) -> None:
    stack = make()
    stack.archive(keep)
    before = answers(stack)
    backup(stack.services, str(tmp_path / "backup"))
    goal = None if archive_of_goal is None else str(tmp_path / archive_of_goal)
    back = restored(stack, str(tmp_path / "backup"), archive_url=goal)
    assert answers(back) == before
    assert (back.streamed() < 40) == (goal is not None)
    report = check(back.ledger, repair=False)
    assert (report.ok, report.entries, report.rows) == (True, 120, 120)
    back.put(30)
    assert len(back.ledger.find_many([event.key for event in back.events])) == 150


def test_a_backup_writes_only_what_is_new(make: Make, tmp_path: Path) -> None:
    stack, url = make(), str(tmp_path / "backup")
    assert backup(stack.services, url).written == 120
    assert backup(stack.services, url).written == 0
    stack.put(50)
    stack.archive(3)
    report = backup(stack.services, url)
    assert (report.entries, report.written) == (170, 50)
    before = answers(stack)
    assert answers(restored(stack, url, archive_url=None)) == before


def test_an_archive_is_a_backup_of_what_is_in_it(make: Make) -> None:
    stack = make()
    entries = stack.entries(0), stack.entries(1)
    stack.archive(20)
    back = restored(stack, str(stack.folder))
    for partition, whole in enumerate(entries):
        assert back.entries(partition) == whole[:-20]


def test_a_damaged_backup_changes_nothing(make: Make, tmp_path: Path) -> None:
    stack, url = make(), tmp_path / "backup"
    backup(stack.services, str(url))
    file = sorted((url / "1").glob("*.parquet"))[-1]
    file.write_bytes(flipped(file.read_bytes()))
    with pytest.raises(ArchiveDamaged, match=rf"{file.name} .* its SHA-256 is the manifest's"):
        restored(stack, str(url))
    assert redis.Redis.from_url(stack.services.settings.redis_url).keys("*") == []


@pytest.mark.parametrize("name", ["backup.json", "fences.json"])
@pytest.mark.parametrize("content", ["", "[]", '{"manifests": ["one"]', '{"manifests": ["one"]}'])
def test_a_file_about_a_backup_that_is_damaged_is_named(
    make: Make, tmp_path: Path, name: str, content: str
) -> None:
    stack, url = make(), tmp_path / "backup"
    backup(stack.services, str(url))
    (url / name).write_text(content)
    with pytest.raises(ArchiveDamaged, match=name):
        restored(stack, str(url))
    assert redis.Redis.from_url(stack.services.settings.redis_url).keys("*") == []


def test_a_ledger_is_never_restored_over(make: Make, tmp_path: Path) -> None:
    stack, url = make(), str(tmp_path / "backup")
    backup(stack.services, url)
    before = answers(stack)
    with pytest.raises(OperationFailed, match="Redis holds a ledger"):
        restore(stack.services, url)
    assert answers(stack) == before


def test_a_restore_that_was_killed_begins_anew(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, url = make(), str(tmp_path / "backup")
    backup(stack.services, url)
    before, put, calls = answers(stack), Refill.put, list[int]()

    def killed(*arguments: Any, **options: Any) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        put(*arguments, **options)

    monkeypatch.setattr(Refill, "put", killed)
    with pytest.raises(KeyboardInterrupt):
        restored(stack, url, archive_url=None)
    with pytest.raises(LedgerUnavailable, match="a restore has begun and not ended"):
        stack.reopened()
    with Services(stack.services.settings.model_copy(update={"archive_url": None})) as services:
        restore(services, url)
    assert answers(stack.reopened(archive_url=None)) == before


def test_a_restore_with_an_archive_that_was_killed_begins_anew(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, url, goal = make(), str(tmp_path / "backup"), str(tmp_path / "goal")
    backup(stack.services, url)
    before = answers(stack)
    redis.Redis.from_url(stack.services.settings.redis_url).flushall()
    settings = stack.services.settings.model_copy(update={"archive_url": goal})
    with Services(settings) as services:
        for place, step in ((Refill, "put"), (ArchiveFiles, "claim")):
            killed_at(monkeypatch, place, step, lambda: restore(services, url))
            with pytest.raises(ConfigurationError, match=r"there is no .*ledger\.json"):
                restore(services, goal)
        killed_at(monkeypatch, Refill, "finish", lambda: restore(services, url))
        restore(services, url)
    assert answers(stack.reopened(archive_url=goal)) == before


def killed_at(
    monkeypatch: pytest.MonkeyPatch, place: type, step: str, work: Callable[[], object]
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(place, step, killed)
        with pytest.raises(KeyboardInterrupt):
            work()


def test_of_two_backups_into_one_place_and_of_two_restores_the_second_is_refused(
    make: Make, tmp_path: Path
) -> None:
    stack, url, seen = make(), str(tmp_path / "backup"), list[str]()

    def second(work: Callable[..., Any]) -> Callable[..., None]:
        def run(*_: Any) -> None:
            with (
                Services(stack.services.settings) as services,
                pytest.raises(OperationFailed, match="another one is under way"),
            ):
                work(services, url)
            seen.append(work.__name__)

        return run

    backup(stack.services, url, progress=second(backup))
    redis.Redis.from_url(stack.services.settings.redis_url).flushall()
    with Services(stack.services.settings.model_copy(update={"archive_url": None})) as services:
        restore(services, url, progress=second(restore))
    assert {"backup", "restore"} == set(seen)


def test_places_that_are_no_backup_are_refused(make: Make, tmp_path: Path) -> None:
    stack = make()
    stack.archive(20)
    with pytest.raises(ConfigurationError, match="the archive is there"):
        backup(stack.services, str(stack.folder))
    with pytest.raises(ConfigurationError, match="URL: Input should be an absolute path"):
        backup(stack.services, "some/folder")
    backup(stack.services, str(tmp_path / "backup"))
    with pytest.raises(ConfigurationError, match=r"there is no .*ledger\.json"):
        restored(stack, str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="partitions 2, id_buckets 64, prefix rc"):
        restored(stack, str(tmp_path / "backup"), partitions=3)
    with pytest.raises(OperationFailed, match=r"archive/ledger\.json is there: restore from it"):
        restored(stack, str(tmp_path / "backup"))


def test_a_backup_of_before_an_erasure_gives_nobody_back(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    stack = make(master_key="5e" * 32, data_dir=tmp_path)
    seal_tenant(stack.services, "shop")
    ann, bob, late, new = (
        event(number, tenant="shop", user_id=user, payload={"content": f"words of {user}"})
        for number, user in ((901, "ann"), (902, "bob"), (903, "ann"), (904, "bob"))
    )
    stack.append(ann, bob)
    backup(stack.services, str(folder))
    key_id = begin_erasure(stack.ledger, "shop", Subject("user", "ann"), reason="", by="x")
    stack.ledger.vault.require_store().destroy([key_id])

    back = restored(stack, str(folder), archive_url=None)

    told = {key: entry.event() for key, entry in back.ledger.find_many([ann.key, bob.key]).items()}
    assert (told[ann.key].user_id, told[ann.key].payload) == (erased_user(key_id), None)
    assert told[bob.key] == bob
    assert isinstance(back.ledger.append([late])[0], SubjectErased)
    resent = back.ledger.append([ann, bob])[1]
    assert isinstance(resent, Appended)
    assert resent.duplicate
    back.append(new)
    entry = back.ledger.find(*new.key)
    assert entry is not None
    assert b"words" not in entry.data, "its tenant is still sealed"

    (folder / FENCES_FILE).unlink()
    with pytest.raises(ArchiveDamaged, match="it has the fence of tenant shop, which is sealed"):
        restored(stack, str(folder), archive_url=None)
    assert redis.Redis.from_url(stack.services.settings.redis_url).keys("*") == []


def signed(stack: ArchivedStack, user: str) -> None:
    """The receipt of an erasure, as its last step signs it."""
    key_id = begin_erasure(stack.ledger, "shop", Subject("user", user), reason="asked", by="x")
    told = stack.ledger.vault.fences.read().erased[key_id]
    done = {"finished_at": "", "entries": 1, "positions": [], "stores": {}, "mixed": []}
    sign_receipt(stack.services, key_id, {**done, **told})


def test_receipts_and_the_list_of_backups_come_back(make: Make, tmp_path: Path) -> None:
    stack = make(master_key="5e" * 32, data_dir=tmp_path)
    seal_tenant(stack.services, "shop")
    stack.append(event(901, tenant="shop", user_id="ann"), event(902, tenant="shop", user_id="bob"))
    backup(stack.services, str(tmp_path / "earlier"), keep_days=30)
    signed(stack, "ann")
    signed(stack, "bob")
    before = receipts(stack.services)
    assert [len(receipt["backups"]) for receipt in before] == [1, 1]
    backup(stack.services, str(tmp_path / "backup"))
    noted = backups(stack.services)
    assert [row["url"].rpartition("/")[2] for row in noted] == ["backup", "earlier"]

    back = restored(stack, str(tmp_path / "backup"), archive_url=None)

    assert receipts(back.services) == before
    assert backups(back.services) == noted
    back.append(event(903, tenant="shop", user_id="carl"))
    signed(back, "carl")
    assert len(receipts(back.services)) == 3
    assert verified(receipts(back.services)).problems == []
