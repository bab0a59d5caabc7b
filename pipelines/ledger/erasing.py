"""How an erasure begins, and how far it has come: its fence, which also keeps out what is new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from pipelines.ledger.entries import Entry
from pipelines.ledger.keys import NAMING
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.sealing import (
    ERASED_USER,
    KEY_ID_BYTES,
    SEALED_MARK,
    Opener,
    Subject,
    SubjectKey,
    sealed_by,
)
from pipelines.ledger.vault import CONSENT, SEALED, Vault, Withheld
from projections.errors import OperationFailed, UndecodableEntry
from projections.events import Event, timestamp_text

FENCED: Final = "fenced"
FORGOTTEN: Final = "forgotten"
DESTROYED: Final = "destroyed"
PURGED: Final = "purged"
DONE: Final = "done"
STEPS: Final = (FENCED, FORGOTTEN, DESTROYED, PURGED, DONE)
"""What an erasure has done: nothing more is taken, and nobody reads; what was derived is
forgotten; keys are destroyed; graphs and columns hold nothing any more; it is recorded.

A consent that is withdrawn goes through the same steps: what names it is taken, and its content is
withheld from the first step on; what was decided of it is withheld from the third on."""
MAX_REASON_CHARACTERS: Final = 200
ERASURE_REQUESTED: Final = "erasure.requested"
"""Type of the event by which a user asks to be forgotten; people decide."""
_CONFIRMATION_BYTES: Final = 16
_CONSENT_MARK: Final = b'"consent_ref":'

Told = dict[str, Any]
"""An erasure, as its fence records it."""


def begin_erasure(ledger: Ledger, tenant: str, subject: Subject, *, reason: str, by: str) -> bytes:
    """Let nothing more in about somebody, and nobody read; returns the id of the key.

    Begun twice is begun once. Of a consent that is withdrawn, the id is no key's.

    Args:
        ledger: of the tenant.
        tenant: that is sealed, unless it is about a consent.
        subject: who.
        reason: for the receipt; it stays.
        by: who asked, likewise.

    Raises:
        OperationFailed: the tenant is not sealed, or there is nothing of that subject.
        KeysUnavailable, LedgerUnavailable: a service is away.
    """
    vault = ledger.vault
    key_id = erasable(vault, tenant, subject)
    if key_id in vault.known().erased:
        return key_id
    vault.fences.put_erasure(
        key_id,
        {
            "step": FENCED,
            "tenant": tenant,
            "kind": subject.kind,
            "reason": reason,
            "by": by,
            "requested_at": timestamp_text(ledger.now_ms()),
            "stores": {},
            **({"consent": subject.name, "decisions": []} if subject.kind == CONSENT else {}),
        },
    )
    if subject.kind != CONSENT:
        vault.require_store().withdraw([key_id])
    vault.renew()
    return key_id


def erasable(vault: Vault, tenant: str, subject: Subject) -> bytes:
    """The id of the key that would be destroyed, or was.

    Raises:
        OperationFailed: the tenant is not sealed, or there is nothing of that subject.
        KeysUnavailable, LedgerUnavailable: a service is away.
    """
    vault.renew()
    if subject.kind == CONSENT:
        return _consent_id(tenant, subject.name)
    if vault.known().tenants.get(tenant) != SEALED:
        raise OperationFailed(reason=f"tenant {tenant} is not sealed: it has no keys to destroy")
    key_id = vault.key_id(tenant, subject)
    erased = vault.known().erased
    if key_id not in erased and key_id not in vault.require_store().get([key_id], withdrawn=True):
        raise OperationFailed(reason=f"tenant {tenant} holds nothing of this {subject.kind}")
    return key_id


def _consent_id(tenant: str, consent: str) -> bytes:
    digest = blake2b(digest_size=KEY_ID_BYTES, person=b"recollect:consnt")
    digest.update(b"%b\0%b" % (tenant.encode(), consent.encode("utf-8", "surrogatepass")))
    return digest.digest()


class _Whole(Opener):
    """Opens what a vault opens, and withholds nothing."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def opening(self, key_id: bytes) -> SubjectKey | None:
        return self._vault.opening(key_id)

    def withholds(self, event: Event) -> bool:
        return False

    def withdrawn(self) -> int:
        return self._vault.withdrawn()


def naming(ledger: Ledger, tenant: str, consent: str) -> Iterator[Entry]:
    """Entries whose event names a consent, as they were taken; reads the whole ledger.

    Raises:
        KeysUnavailable: the tenant is sealed, and its keys are not at hand.
    """
    withheld, opener = Withheld(frozenset((consent,)), frozenset()), _Whole(ledger.vault)
    for entry in every_entry(ledger):
        if entry.fault or not (_CONSENT_MARK in entry.data or SEALED_MARK in entry.data):
            continue
        whole = entry.opened_by(opener)
        with suppress(UndecodableEntry):
            event = whole.event()
            if event.tenant == tenant and withheld.covers(event):
                yield whole


def every_entry(ledger: Ledger) -> Iterator[Entry]:
    """All entries of a ledger, partition by partition."""
    for partition in range(ledger.partitions):
        for entries in ledger.scan(partition):
            yield from entries


def entries_of(ledger: Ledger, key_id: bytes) -> int:
    """How many entries a key has sealed; reads the whole ledger, and needs no key."""
    return sum(sealed_by(entry.data) == key_id for entry in every_entry(ledger))


class Wish(NamedTuple):
    """That a user wants to be forgotten."""

    user_id: str
    occurred_at: str
    event_id: str


def wishes(ledger: Ledger, tenant: str) -> list[Wish]:
    """Of users who are not erased, in the order of the ledger's partitions; reads all of it.

    Raises:
        KeysUnavailable: the tenant is sealed, and this process has no keys.
        LedgerUnavailable: Redis is away.
    """
    mark = ERASURE_REQUESTED.encode()
    events = (
        entry.event() for entry in every_entry(ledger) if mark in entry.data and not entry.fault
    )
    return [
        Wish(event.user_id, timestamp_text(event.occurred_at_ms), event.event_id)
        for event in events
        if event.event_type == ERASURE_REQUESTED
        and event.tenant == tenant
        and event.user_id is not None
        and not event.user_id.startswith(ERASED_USER)
    ]


def confirmation(vault: Vault, key_id: bytes, entries: int) -> str:
    """What has to be said again to erase these entries, and no others."""
    key = vault.require_store().own(NAMING)
    digest = blake2b(key=key, digest_size=_CONFIRMATION_BYTES, person=b"recollect:erase")
    digest.update(key_id + entries.to_bytes(8, "big"))
    return digest.hexdigest()


def erasures(vault: Vault) -> list[Told]:
    """All erasures by the time of their request; decisions that went with one are left out.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    erased = vault.fences.read().erased
    rows = [{"subject": key.hex(), **told} for key, told in erased.items() if "of" not in told]
    return sorted(rows, key=lambda row: str(row["requested_at"]))
