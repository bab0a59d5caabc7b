"""What an older version wrote is read by this one: its backup, its sealed tenant and its keys."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from pipelines.ledger.check import check
from pipelines.ledger.ledger import Appended
from pipelines.operations.backup import restore
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from projections.errors import KeysUnavailable
from tests.integration.stack import PARTITIONS, ValkeyStack
from tests.releases import MASTER_KEY, RELEASES, events_of, told

pytestmark = pytest.mark.integration
VERSIONS = sorted(path.parent.name for path in RELEASES.glob("*/told.json"))


@pytest.fixture(params=VERSIONS)
def release(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Path]:
    redis.Redis.from_url(redis_url).flushall()
    yield RELEASES / request.param
    redis.Redis.from_url(redis_url).flushall()


def services_of(redis_url: str, folder: Path, **options: Any) -> Services:
    """Of the size that the ledger of a release was made with."""
    places = {"redis_url": redis_url, "neo4j_url": "memory://release", "data_dir": folder}
    return Services(Settings(partitions=PARTITIONS, id_buckets=64, **{**places, **options}))


def test_there_is_one_to_read() -> None:
    assert VERSIONS


def test_it_is_restored_folded_and_proved(release: Path, redis_url: str, tmp_path: Path) -> None:
    """The same entries at the same places, so the same digest, if the rules are the same."""
    shutil.copy(release / "keys.sqlite", tmp_path / "keys.sqlite")
    before = json.loads((release / "told.json").read_bytes())
    with services_of(redis_url, tmp_path, master_key=MASTER_KEY) as services:
        assert restore(services, str(release / "backup")).entries == before["entries"]
        assert check(services.ledger, repair=False).ok
    options = {"data_dir": tmp_path, "master_key": MASTER_KEY}
    with closing(ValkeyStack(redis_url, "memory://release", **options)) as stack:
        stack.fold()
        after = told(stack.services)
        assert after["entries"] == before["entries"]
        if after["projection"]["fold_version"] == before["projection"]["fold_version"]:
            assert after == before


def test_what_it_took_is_known_again_to_the_byte(
    release: Path, redis_url: str, tmp_path: Path
) -> None:
    """A producer that sends once more is told duplicates, sealed or not, and nothing conflicts."""
    shutil.copy(release / "keys.sqlite", tmp_path / "keys.sqlite")
    with services_of(redis_url, tmp_path, master_key=MASTER_KEY) as services:
        restore(services, str(release / "backup"))
        events = events_of(release)
        again = services.ledger.append(events)
        assert all(isinstance(one, Appended) and one.duplicate for one in again)
        held = services.ledger.find_many([event.key for event in events])
        assert [held[event.key].event() for event in events] == events


def test_without_its_keys_what_was_sealed_stays_closed(
    release: Path, redis_url: str, tmp_path: Path
) -> None:
    with services_of(redis_url, tmp_path) as services:
        restore(services, str(release / "backup"))
        events = events_of(release)
        held = services.ledger.find_many([event.key for event in events])
        plain, sealed = held[events[0].key], held[events[-1].key]
        assert plain.event() == events[0]
        with pytest.raises(KeysUnavailable):
            sealed.event()
