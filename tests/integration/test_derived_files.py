"""What models and rules made goes into archive and backup, and comes back; of nobody erased."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from pipelines.ledger.check import ARCHIVE_DAMAGED, check
from pipelines.ledger.erasing import begin_erasure
from pipelines.ledger.sealing import Subject
from pipelines.models.loaded import Models
from pipelines.operations.archive import archive
from pipelines.operations.backup import BackupReport, backup, restore
from pipelines.operations.erase import finish, seal_tenant
from pipelines.operations.rebuild import rebuild
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from projections.errors import ModelFailed
from tests.archive_support import small_segments
from tests.damage import flipped
from tests.integration.stack import ValkeyStack
from tests.stages.enriched import EnrichedLedger, embedder, recognizer, said

pytestmark = pytest.mark.integration
MASTER = "5e" * 32
PLACES = ("the old harbour", "Marseille", "the library")
USERS = ("ann", "bob")
EVENTS = [
    said(
        n,
        f"{USERS[n % 2].title()} met Carla Weiss at {PLACES[n % 3]} on walk {n}.",
        session_id=f"session-{n % 2}",
        user_id=USERS[n % 2],
        consent_ref="walks" if n == 7 else None,
    )
    for n in range(1, 25)
]
TENANT = EVENTS[0].tenant
Kept = set[tuple[str, bytes, bytes]]
MakeStack = Callable[..., ValkeyStack]


class NoModel:
    """A model that must not be needed."""

    def __init__(self, real: Any) -> None:
        self.model, self.revision = real.model, real.revision
        self.dimensions = getattr(real, "dimensions", 0)

    def embed(self, texts: list[str]) -> list[bytes]:
        raise ModelFailed(model=self.model, reason=f"asked for {texts}")

    def analyze_encoded(self, texts: list[str]) -> list[bytes | None]:
        raise ModelFailed(model=self.model, reason=f"asked for {texts}")

    def load(self) -> None:
        pass

    def close(self) -> None:
        pass


def store_of(folder: Path, name: str) -> str:
    return f"sqlite://{folder}/{name}.sqlite"


def kept(folder: Path, name: str) -> Kept:
    """All values of a store of derivations."""
    with closing(sqlite3.connect(folder / f"{name}.sqlite")) as db:
        return set(db.execute("SELECT kind, digest, value FROM derivation").fetchall())


def with_models(services: Services, *models: Any) -> Services:
    services.__dict__["models"] = Models(services.settings, *models)
    return services


@pytest.fixture
def make(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStack]:
    """A ledger that is enriched, with an archive; of a sealed tenant where there are keys."""
    small_segments(monkeypatch)
    made: list[ValkeyStack] = []

    def stack(**options: Any) -> ValkeyStack:
        places = {
            "archive_url": str(tmp_path / "archive"),
            "derivations_url": store_of(tmp_path, "live"),
            "data_dir": tmp_path,
        }
        one = ValkeyStack(redis_url, f"memory://{uuid4().hex}", **{**places, **options})
        made.append(one)
        if "master_key" in options:
            seal_tenant(one.services, TENANT)
        models = {"embedder": embedder(), "recognizer": recognizer()}
        with_models(one.services, *models.values())
        EnrichedLedger(one, models).take_in(*EVENTS)
        return one

    yield stack
    for one in made:
        one.close()


def restored(stack: ValkeyStack, folder: Path, **options: Any) -> tuple[Services, BackupReport]:
    """Of the backup, where everything else is gone, on a machine whose models must not be asked."""
    redis.Redis.from_url(stack.services.settings.redis_url).flushall()
    changes = {
        "neo4j_url": f"memory://{uuid4().hex}",
        "derivations_url": store_of(folder, "fresh"),
        "archive_url": str(folder / "goal"),
        **options,
    }
    with Services(stack.services.settings.model_copy(update=changes)) as services:
        report = restore(services, str(folder / "backup"))
    services = Services(stack.services.settings.model_copy(update=changes))
    return with_models(services, NoModel(embedder()), NoModel(recognizer())), report


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_restored_is_folded_without_a_model(
    make: MakeStack, tmp_path: Path, sealed: bool
) -> None:
    stack = make(**({"master_key": MASTER} if sealed else {}))
    moved = archive(stack.services, keep=4)
    assert moved.archived > 0
    assert moved.derivations > 0
    live, digests = kept(tmp_path, "live"), verify(stack.services).stages
    made = backup(stack.services, str(tmp_path / "backup"))
    assert made.derivations >= len(live)  # each segment has what its own entries need

    back, report = restored(stack, tmp_path)
    with back:
        assert (report.derivations, report.closed, report.damaged) == (made.derivations, 0, 0)
        assert kept(tmp_path, "fresh") == live
        rebuilt = rebuild(back).verified
        assert rebuilt.ok
        assert rebuilt.stages["enrichment"].digest == digests["enrichment"].digest
        assert check(back.ledger, repair=False).ok
    # and so it is from the archive that the restore has made
    assert any((tmp_path / "goal").rglob("*.derivations.parquet"))


def test_files_of_a_sealed_tenant_are_closed_without_its_keys(
    make: MakeStack, tmp_path: Path
) -> None:
    stack = make(master_key=MASTER)
    backup(stack.services, str(tmp_path / "backup"))
    pages = [one.read_bytes() for one in (tmp_path / "backup").rglob("*.derivations.parquet")]
    assert pages
    digests = [digest for _, digest, _ in kept(tmp_path, "live")]
    for digest in digests:
        assert not any(digest in page or digest.hex().encode() in page for page in pages)
    back, report = restored(stack, tmp_path, master_key=None)
    with back:
        assert report.derivations == 0
        assert report.closed > 0


def test_whoever_is_erased_does_not_come_back_with_an_older_backup(
    make: MakeStack, tmp_path: Path
) -> None:
    stack = make(master_key=MASTER)
    before = kept(tmp_path, "live")
    backup(stack.services, str(tmp_path / "backup"))
    key_id = begin_erasure(stack.ledger, TENANT, Subject("user", "ann"), reason="asked", by="me")
    finish(stack.services, key_id)
    after = kept(tmp_path, "live")
    gone = before - after
    assert {kind for kind, *_ in gone} == {"event", "analysis", "vector"}
    backup(stack.services, str(tmp_path / "backup"))  # writes the fences, and no segment anew

    back, report = restored(stack, tmp_path)
    with back:
        assert report.closed > 0
        assert not kept(tmp_path, "fresh") & gone
        assert kept(tmp_path, "fresh") >= {one for one in before & after if one[0] == "event"}


def test_all_that_was_derived_of_somebody_is_forgotten(make: MakeStack, tmp_path: Path) -> None:
    """Analyses, too, which nobody asks for as long as what was made of them is kept."""
    stack = make(master_key=MASTER)
    before = kept(tmp_path, "live")
    for user in USERS:
        key_id = begin_erasure(stack.ledger, TENANT, Subject("user", user), reason="asked", by="me")
        finish(stack.services, key_id)
    assert before
    assert not {one[:2] for one in before} & {one[:2] for one in kept(tmp_path, "live")}


def test_a_page_of_a_withdrawn_consent_is_not_read(make: MakeStack, tmp_path: Path) -> None:
    stack = make()
    before = kept(tmp_path, "live")
    backup(stack.services, str(tmp_path / "backup"))
    consent = begin_erasure(
        stack.ledger, TENANT, Subject("consent", "walk*"), reason="asked", by="me"
    )
    finish(stack.services, consent)
    gone = before - kept(tmp_path, "live")
    assert gone
    backup(stack.services, str(tmp_path / "backup"))
    back, report = restored(stack, tmp_path)
    with back:
        assert report.closed > 0
        assert not kept(tmp_path, "fresh") & gone


def test_a_damaged_file_is_told_and_costs_no_more_than_time(
    make: MakeStack, tmp_path: Path
) -> None:
    stack = make()
    archive(stack.services, keep=1)
    backup(stack.services, str(tmp_path / "backup"))
    for folder in ("archive", "backup"):
        file = next((tmp_path / folder).rglob("*.derivations.parquet"))
        file.write_bytes(flipped(file.read_bytes()))
    report = check(stack.ledger, repair=False)
    assert dict(report.found) == {ARCHIVE_DAMAGED: 1}
    assert "derivations" in report.told[0].detail
    back, told = restored(stack, tmp_path)
    with with_models(back, embedder(), recognizer()):
        assert told.damaged == 1
        assert rebuild(back).verified.ok


def test_without_a_store_nothing_is_derived_for_it(make: MakeStack, tmp_path: Path) -> None:
    stack = make(derivations_url=None)
    assert archive(stack.services, keep=4).derivations == 0
    assert backup(stack.services, str(tmp_path / "backup")).derivations == 0
    assert not list(tmp_path.rglob("*.derivations.parquet"))


def test_a_store_that_is_away_holds_no_entry_back(make: MakeStack, tmp_path: Path) -> None:
    stack = make()
    away = f"sqlite://{tmp_path}/missing/derivations.sqlite"
    settings = stack.services.settings.model_copy(update={"derivations_url": away})
    with Services(settings) as services:
        services.__dict__["graph"] = stack.services.graph  # the graph in memory is the stack's
        moved = archive(services, keep=4)
    assert (moved.archived > 0, moved.derivations) == (True, 0)
