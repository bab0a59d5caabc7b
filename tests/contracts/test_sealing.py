"""Sealed tenants on a real ledger: what stands in Redis, what is read, told apart and refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipelines.ledger.check import check
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.keys import MasterKey, SqliteKeys
from pipelines.ledger.ledger import Appended, BesideRedis, Ledger
from pipelines.ledger.sealing import Subject, erased_user, sealed_by, subject_of
from pipelines.ledger.vault import SEALED, make_vault
from pipelines.work.settings import Settings
from projections.errors import EventConflict, KeysUnavailable, SubjectErased
from projections.events import Event, encode_event
from tests.decision_factories import TRAITS, derived
from tests.factories import event

pytestmark = pytest.mark.integration
MASTER, OTHER_MASTER = "ab" * 32, "cd" * 32
TENANT = "acme"
CANARY = "zebrafinch"
Open = Callable[..., Ledger]


def said(number: int, user: str | None = "ann", **fields: Any) -> Event:
    payload = {"text": f"{CANARY} {number}", "sealed": "x", "numbers": [1.5, "é"]}
    return event(number, tenant=TENANT, user_id=user, payload=payload, **fields)


@pytest.fixture
def open_ledger(redis_url: str, tmp_path: Path) -> Open:
    """Opens the ledger as a process of its own does, by default with the keys."""

    def opened(master: str | None = MASTER, file: Path = tmp_path / "keys.sqlite") -> Ledger:
        settings = Settings(
            redis_url=redis_url,
            master_key=None if master is None else SecretStr(master),
            keys_file=file,
        )
        client = connect_redis(settings)
        return Ledger(
            client,
            partitions=2,
            id_buckets=64,
            checkpoints=dict,
            patience_s=0.2,
            beside=BesideRedis(vault=make_vault(settings, client)),
        )

    SqliteKeys.create(tmp_path / "keys.sqlite", MasterKey(bytes.fromhex(MASTER))).close()
    return opened


def sealed_ledger(open_ledger: Open) -> Ledger:
    ledger = open_ledger()
    assert ledger.vault.store is not None
    ledger.vault.fences.put_tenant(TENANT, SEALED, ledger.vault.store.identity)
    return ledger


def all_bytes(ledger: Ledger) -> bytes:
    """Every value in Redis, as it is dumped."""
    redis: Any = ledger.client
    return b"".join(redis.dump(key) for key in redis.scan_iter()) + b"".join(
        b"".join(fields.values())
        for partition in range(ledger.partitions)
        for _, fields in redis.xrange(ledger.keys.stream(partition))
    )


def test_what_is_sealed_is_read_back_and_stands_nowhere(open_ledger: Open) -> None:
    ledger = sealed_ledger(open_ledger)
    events = [said(1), said(2, None), said(3, "bob", payload_ref="s3://x/y", consent_ref="c")]
    assert all(isinstance(one, Appended) for one in ledger.append(events))
    found = [open_ledger().find(*one.key) for one in events]
    assert [one.event() for one in found if one is not None] == events
    assert check(ledger, repair=False).ok
    held = all_bytes(ledger)
    assert [word for word in (CANARY, '"ann"', '"bob"', "s3://") if word.encode() in held] == []


def test_a_resend_is_a_duplicate_and_other_content_a_conflict(open_ledger: Open) -> None:
    first = sealed_ledger(open_ledger).append([said(1)])[0]
    again, other = open_ledger().append([said(1), said(1)._replace(payload="x")])
    assert isinstance(first, Appended)
    assert again == first._replace(duplicate=True)
    assert isinstance(other, EventConflict)


def test_digests_of_equal_events_differ_between_key_stores(
    open_ledger: Open, tmp_path: Path
) -> None:
    """So nobody can try what was said against a digest."""
    keys = SqliteKeys.create(tmp_path / "other.sqlite", MasterKey(bytes.fromhex(MASTER)))
    first = sealed_ledger(open_ledger)
    first.append([said(1)])
    entry = first.find(*said(1).key)
    first.client.flushall()
    second = open_ledger(file=tmp_path / "other.sqlite")
    second.vault.fences.put_tenant(TENANT, SEALED, keys.identity)
    second.append([said(1)])
    other = second.find(*said(1).key)
    assert entry is not None
    assert other is not None
    assert len(entry.data) == len(other.data)
    assert entry.digest != other.digest


def test_a_process_that_did_not_know_seals_all_the_same(open_ledger: Open) -> None:
    late = open_ledger()
    assert isinstance(late.append([event(7, tenant="open")])[0], Appended)  # it looks at fences
    sealed_ledger(open_ledger)
    outcomes = late.append([event(8, tenant="open"), said(1), said(2, session_id="s2")])
    assert all(isinstance(one, Appended) for one in outcomes)
    entry, plain = late.find(*said(1).key), late.find("open", event(8).event_id)
    assert entry is not None
    assert plain is not None
    assert sealed_by(entry.data) is not None
    assert plain.data == encode_event(event(8, tenant="open"))


def test_without_keys_nothing_of_a_sealed_tenant_is_taken_or_told(open_ledger: Open) -> None:
    sealed_ledger(open_ledger).append([said(1)])
    for master, why in ((None, "RECOLLECT_MASTER_KEY"), (OTHER_MASTER, "is not the one of")):
        ledger = open_ledger(master)
        with pytest.raises(KeysUnavailable, match=why) as refused:
            ledger.append([said(2)])
        entry = ledger.find(*said(1).key)
        assert entry is not None
        with pytest.raises(KeysUnavailable, match=why):
            entry.event()
        assert refused.value.retryable
    assert isinstance(open_ledger(None).append([event(9, tenant="open")])[0], Appended)


def test_a_key_store_that_is_lost_is_not_begun_anew(open_ledger: Open, tmp_path: Path) -> None:
    """Or all that was sealed would look erased."""
    sealed_ledger(open_ledger).append([said(1)])
    gone = open_ledger(file=tmp_path / "gone.sqlite")
    with pytest.raises(KeysUnavailable, match="no key store at"):
        gone.append([said(2)])
    SqliteKeys.create(tmp_path / "gone.sqlite", MasterKey(bytes.fromhex(MASTER)))
    entry = gone.find(*said(1).key)
    assert entry is not None
    with pytest.raises(KeysUnavailable, match="another key store"):
        entry.event()


def test_a_key_store_that_is_put_back_is_used_by_who_runs(
    open_ledger: Open, tmp_path: Path
) -> None:
    """A process that kept the deleted file would refuse new users, and miss erasures, for ever."""
    ledger = sealed_ledger(open_ledger)
    ledger.append([said(1)])
    file, bobs = tmp_path / "keys.sqlite", said(2, user="bob")
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(KeysUnavailable, match="no key store at"):
        ledger.append([bobs])
    file.write_bytes(kept)
    ledger.append([bobs])
    entry = open_ledger().find(*bobs.key)
    assert entry is not None
    assert entry.event() == bobs


def test_a_key_store_whose_making_was_killed_is_made(tmp_path: Path) -> None:
    file = tmp_path / "keys.sqlite"
    file.touch()
    store = SqliteKeys.create(file, MasterKey(bytes.fromhex(MASTER)))
    assert SqliteKeys.create(file, MasterKey(bytes.fromhex(MASTER))).identity == store.identity


def test_a_master_key_before_anything_is_sealed_stops_nothing(
    open_ledger: Open, tmp_path: Path
) -> None:
    """Only with a sealed tenant is a key store missed, and then by whoever began before, too."""
    plain = event(9, tenant="open")
    open_ledger(None).append([plain])
    early = open_ledger(file=tmp_path / "none.sqlite")
    entry = early.find("open", plain.event_id)
    assert entry is not None
    assert entry.event() == plain
    assert not early.vault.withholds(plain)
    early.vault.require_keys()
    assert isinstance(early.append([event(10, tenant="open")])[0], Appended)
    assert not (tmp_path / "none.sqlite").exists()
    sealed_ledger(open_ledger).append([said(1)])
    early.vault.renew()
    with pytest.raises(KeysUnavailable, match="no key store at"):
        early.vault.withholds(plain)
    with pytest.raises(KeysUnavailable, match="no key store at"):
        early.append([said(2)])


def test_after_its_key_is_gone_an_event_is_a_skeleton(open_ledger: Open) -> None:
    ledger = sealed_ledger(open_ledger)
    ledger.append([said(1), said(2, "bob")])
    vault = ledger.vault
    assert vault.store is not None
    key_id = vault.key_id(TENANT, Subject("user", "ann"))
    before = ledger.find(*said(1).key)
    vault.fences.put_erasure(key_id, {"step": "fenced"})
    vault.store.destroy([key_id])
    vault.renew()
    after, bob = ledger.find(*said(1).key), ledger.find(*said(2).key)
    assert before is not None
    assert after is not None
    assert bob is not None
    assert after.event() == said(1)._replace(payload=None, user_id=erased_user(key_id))
    assert (after.digest, bob.event()) == (before.digest, said(2, "bob"))
    for process in (ledger, open_ledger()):
        outcomes = process.append([said(1), said(5), said(6, "bob")])
        assert [type(one) for one in outcomes] == [SubjectErased, SubjectErased, Appended]


def test_the_fence_holds_against_a_process_that_still_has_the_key(open_ledger: Open) -> None:
    ledger, busy = sealed_ledger(open_ledger), open_ledger()
    busy.append([said(1)])
    key_id = ledger.vault.key_id(TENANT, Subject("user", "ann"))
    ledger.vault.fences.put_erasure(key_id, {"step": "fenced"})
    outcomes = busy.append([said(1), said(2), said(3, "bob")])
    assert [type(one) for one in outcomes] == [SubjectErased, SubjectErased, Appended]


def test_an_older_key_store_that_is_put_back_gives_nobody_back(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = sealed_ledger(open_ledger)
    ledger.append([said(1)])
    file = tmp_path / "keys.sqlite"
    older = file.read_bytes()
    key_id = ledger.vault.key_id(TENANT, Subject("user", "ann"))
    ledger.vault.fences.put_erasure(key_id, {"step": "fenced"})
    assert ledger.vault.store is not None
    ledger.vault.store.destroy([key_id])
    ledger.vault.store.close()
    file.write_bytes(older)
    entry = open_ledger().find(*said(1).key)
    assert entry is not None
    assert entry.event().payload is None


def test_the_master_key_changes_and_no_entry_does(open_ledger: Open, tmp_path: Path) -> None:
    ledger = sealed_ledger(open_ledger)
    ledger.append([said(1)])
    store = SqliteKeys(tmp_path / "keys.sqlite", MasterKey(bytes.fromhex(MASTER)))
    assert store.rotate(MasterKey(bytes.fromhex(OTHER_MASTER))) == 1
    rotated = open_ledger(OTHER_MASTER)
    entry = rotated.find(*said(1).key)
    assert entry is not None
    assert entry.event() == said(1)
    assert all(getattr(one, "duplicate", False) for one in rotated.append([said(1)]))
    with pytest.raises(KeysUnavailable, match="is not the one of"):
        open_ledger(MASTER).append([said(2)])


def test_the_file_of_keys_is_private_and_keeps_nothing_that_was_destroyed(tmp_path: Path) -> None:
    file = tmp_path / "keys.sqlite"
    store = SqliteKeys.create(file, MasterKey(bytes.fromhex(MASTER)))
    store.make([b"a" * 16, b"b" * 16])
    db = sqlite3.connect(file)
    wrapped = db.execute("SELECT wrapped FROM subject WHERE key_id = ?", (b"a" * 16,)).fetchone()[0]
    db.close()
    assert (file.stat().st_mode & 0o777, wrapped in file.read_bytes()) == (0o600, True)
    store.destroy([b"a" * 16])
    store.make([b"a" * 16])
    assert wrapped not in file.read_bytes()
    assert store.get([b"a" * 16], withdrawn=True) == {b"a" * 16: None}
    assert [path.name for path in tmp_path.iterdir()] == ["keys.sqlite"]


def decided(payload: dict[str, Any], event_type: str = "memory.consolidated") -> Event:
    return event(1, event_type=event_type, payload=payload, session_id="memory")


@pytest.mark.parametrize(
    ("one", "subject"),
    [
        (event(1, user_id="ann"), Subject("user", "ann")),
        (event(1, session_id="s"), Subject("session", "s")),
        (decided({"kind": "episode", "summary": {"user_ids": ["ann"]}}), Subject("user", "ann")),
        (decided({"kind": "links", "user_ids": ["ann"]}), Subject("user", "ann")),
        (derived(1, TRAITS[0]), Subject("user", "ann")),
        (
            decided({"kind": "community", "user_ids": ["ann", "bob"]}),
            Subject("decision", event(1).event_id),
        ),
        (decided({"kind": "boosts"}), None),
        (decided({"kind": "events"}, "memory.forgotten"), None),
        (decided({"pairs": []}, "memory.same_as"), Subject("decision", event(1).event_id)),
        (decided({"x": 1}, "memory.fact_asserted"), Subject("session", "memory")),
    ],
)
def test_whose_key_seals_an_event(one: Event, subject: Subject | None) -> None:
    assert subject_of(one) == subject
