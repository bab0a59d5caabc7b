"""Which tenants are sealed, who was erased, and the keys at hand.

`{prefix}:fences` in Redis holds both, by 16 bytes: of a tenant its digest, of somebody erased the
id of the key. The append script refuses what carries one of them (`append.lua`): of a sealed tenant
what was not sealed, of somebody erased everything. A fence is never taken away again.

A consent that was withdrawn stands there as well. It keeps nothing out, and no key goes: the
content of what names it is withheld from whoever reads the ledger, so no stage derives anything
of it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import orjson

from consolidation.retention import is_of_class
from pipelines.ledger.connect import RedisClient, call_patiently
from pipelines.ledger.entries import LedgerKeys
from pipelines.ledger.keys import NAMING, KeyStore, key_store
from pipelines.ledger.sealing import (
    KEY_ID_BYTES,
    Opener,
    Subject,
    SubjectKey,
    seal,
    skeleton_of,
    subject_of,
)
from pipelines.work.settings import Settings
from projections.errors import KeysUnavailable, LedgerUnavailable, SubjectErased
from projections.events import Event, encode_event

FORGOTTEN_WITHIN_S: Final = 1.0
"""How long a process may go on with a key that was withdrawn."""
CONSENT: Final = "consent"
"""Of an erasure: it is about a consent that was withdrawn, and no key."""
_CHANGES: Final = b"changes"
"""Counts what was changed about consents, so that processes notice."""
Nobodys = Literal["nobody's"]
NOBODYS: Final[Nobodys] = "nobody's"
"""Stands for the key of an event that has nothing that is anybody's, or of a tenant not sealed."""
NO_FENCE: Final = bytes(KEY_ID_BYTES)
"""Of what is appended whoever was erased."""
_KEPT: Final = 50_000
"""Keys that a process keeps in memory."""

OPENING: Final = "opening"
SEALED: Final = "sealed"


class Withheld(NamedTuple):
    """What of a tenant nobody reads.

    Attributes:
        consents: that were withdrawn, or classes of them.
        decisions: event ids of what was decided of events that name them.
    """

    consents: frozenset[str]
    decisions: frozenset[str]

    def covers(self, event: Event) -> bool:
        """Whether the content of an event of the tenant is withheld."""
        if event.event_id in self.decisions:
            return True
        return event.consent_ref is not None and self.names(event.consent_ref)

    def names(self, consent: str) -> bool:
        """Whether a consent, or its class, was withdrawn."""
        return any(is_of_class(consent, one) for one in self.consents)


class Fenced(NamedTuple):
    """What Redis knows of tenants and of erasures.

    Attributes:
        tenants: state of each tenant that is sealed, or about to be.
        stores: the key store's identity, by tenant.
        erased: what is known of each erasure, by key id.
        withheld: by tenant.
    """

    tenants: Mapping[str, str]
    stores: Mapping[str, str]
    erased: Mapping[bytes, Mapping[str, Any]]
    withheld: Mapping[str, Withheld]

    @classmethod
    def of(
        cls,
        tenants: Mapping[str, str],
        stores: Mapping[str, str],
        erased: Mapping[bytes, Mapping[str, Any]],
    ) -> Fenced:
        """With what is withheld, as the erasures tell it."""
        withheld: dict[str, Withheld] = {}
        for told in erased.values():
            if told.get("kind") == CONSENT:
                before = withheld.get(told["tenant"], Withheld(frozenset(), frozenset()))
                withheld[told["tenant"]] = Withheld(
                    before.consents | {told[CONSENT]}, before.decisions | set(told["decisions"])
                )
        return cls(tenants, stores, erased, withheld)


class Fences:
    """The fences in Redis. All methods raise LedgerUnavailable when it is away.

    Args:
        client: of the ledger's Redis.
        keys: names of its keys.
    """

    def __init__(self, client: RedisClient, keys: LedgerKeys) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._key = keys.fences

    def read(self) -> Fenced:
        """All of them."""
        rows = call_patiently(lambda: self._redis.hgetall(self._key))
        tenants: dict[str, str] = {}
        stores: dict[str, str] = {}
        erased: dict[bytes, Mapping[str, Any]] = {}
        for field, value in rows.items():
            told = orjson.loads(value)
            if field == _CHANGES:
                continue
            if "step" in told:
                erased[field] = told
            else:
                tenants[told["tenant"]] = told["state"]
                stores[told["tenant"]] = told["keys"]
        return Fenced.of(tenants, stores, erased)

    def changes(self) -> int:
        """Another number once something about a consent was changed."""
        return int(call_patiently(lambda: self._redis.hget(self._key, _CHANGES)) or 0)

    def copied(self) -> dict[str, Any]:
        """All of them, for a copy of the ledger: without them it would not be sealed."""
        rows = call_patiently(lambda: self._redis.hgetall(self._key))
        return {field.hex(): orjson.loads(value) for field, value in rows.items()}

    def put_tenant(self, tenant: str, state: str, store: str) -> None:
        """Let nothing in that is not sealed; while it is `OPENING` nothing at all."""
        told = orjson.dumps({"tenant": tenant, "state": state, "keys": store})
        call_patiently(lambda: self._redis.hset(self._key, tenant_fence(tenant), told))

    def drop_opening(self, tenant: str) -> None:
        """Take a tenant's fence away that was about to be sealed, and is not."""
        call_patiently(lambda: self._redis.hdel(self._key, tenant_fence(tenant)))

    def put_erasure(self, key_id: bytes, told: Mapping[str, Any]) -> None:
        """Record an erasure, and how far it has come: `told["step"]`."""
        call_patiently(lambda: self._redis.hset(self._key, key_id, orjson.dumps(told)))
        if told.get("kind") == CONSENT:
            call_patiently(lambda: self._redis.hincrby(self._key, _CHANGES, 1))


@lru_cache(maxsize=1_024)
def tenant_fence(tenant: str) -> bytes:
    """What stands for a tenant among the fences, and before its events that are not sealed."""
    return blake2b(tenant.encode(), digest_size=KEY_ID_BYTES, person=b"recollect:tenant").digest()


class Vault(Opener):
    """Seals what is appended and opens what is read, with the keys of a store. Safe for threads.

    Args:
        fences: in the ledger's Redis.
        store: of keys; None: this process has none, and sealed events stay closed.
    """

    def __init__(self, fences: Fences, store: KeyStore | None) -> None:
        self.fences = fences
        self.store = store
        self._guard = threading.RLock()
        self._fenced: Fenced | None = None
        self._erased: frozenset[bytes] = frozenset()
        self._by_id: OrderedDict[bytes, SubjectKey | None] = OrderedDict()
        self._ids: OrderedDict[tuple[str, Subject], bytes] = OrderedDict()
        self._naming: bytes | None = None
        self._version: int | None = None
        self._gone = 0
        self._changes = 0
        self._look_again_s = 0.0
        self._is_mine = False
        self.withdrawals = 0
        """Another number once a key may have gone: what was derived in memory goes, too."""

    # -- appending ---------------------------------------------------------------------------------

    def sealer(self, events: Sequence[Event]) -> Sealer:
        """What encodes events for one append; makes the keys that they need.

        Raises:
            KeysUnavailable: a tenant of theirs is sealed, and keys are not at hand.
            LedgerUnavailable: Redis is away.
        """
        fenced = self.known()
        if not fenced.tenants:
            return Sealer({}, [])
        # Every event passes here, so what is the same for all of a user is made once, and an event
        # keeps the number of its subject: to hash tenant, kind and name again costs more.
        subjects: dict[tuple[str, Subject], int] = {}  # counted from 1; 0 is nobody's
        of_users: dict[tuple[str, str | None], int] = {}
        numbers: list[int] = []
        for event in events:
            number = of_users.get((event.tenant, event.user_id))
            if number is None:
                subject = subject_of(event) if event.tenant in fenced.tenants else None
                number = 0
                if subject is not None:
                    number = subjects.setdefault((event.tenant, subject), len(subjects) + 1)
                if event.user_id is not None:
                    of_users[event.tenant, event.user_id] = number
            numbers.append(number)
        for tenant in {tenant for tenant, _ in subjects}:
            if fenced.tenants[tenant] != SEALED:
                raise KeysUnavailable(reason=f"tenant {tenant} is about to be sealed")
        keys = self._keys_of(subjects) if subjects else {}
        by_number: list[SubjectKey | Nobodys | None] = [NOBODYS, *(keys[one] for one in subjects)]
        return Sealer(fenced.tenants, [by_number[number] for number in numbers])

    def _keys_of(
        self, subjects: Iterable[tuple[str, Subject]]
    ) -> dict[tuple[str, Subject], SubjectKey | None]:
        """The key of each; None of one that was erased."""
        self._refresh()
        ids = {place: self.key_id(*place) for place in subjects}
        with self._guard:
            keys = {key_id: self._by_id[key_id] for key_id in ids.values() if key_id in self._by_id}
        missing = [key_id for key_id in ids.values() if key_id not in keys.keys() | self._erased]
        if missing:
            store = self.require_store()
            held = store.get(missing)
            if absent := [key_id for key_id in missing if key_id not in held]:
                store.make(absent)  # before any event that is sealed with it can be in the ledger
                held |= store.get(absent)
            keys |= self._keep(held)
        return {place: keys.get(key_id) for place, key_id in ids.items()}

    def key_id(self, tenant: str, subject: Subject) -> bytes:
        """The id of a subject's key: it names nobody to who has not the store.

        Raises:
            KeysUnavailable: the store is away.
        """
        place = (tenant, subject)
        with self._guard:
            known_id = self._ids.get(place)
            if known_id is not None:
                return known_id
        if self._naming is None:
            self._naming = self.require_store().own(NAMING)
        digest = blake2b(key=self._naming, digest_size=KEY_ID_BYTES)
        for part in (tenant, subject.kind, subject.name):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
        with self._guard:
            self._ids[place] = digest.digest()
            while len(self._ids) > _KEPT:
                self._ids.popitem(last=False)
            return self._ids[place]

    # -- reading -----------------------------------------------------------------------------------

    def opening(self, key_id: bytes) -> SubjectKey | None:
        """The key of an entry; None: it was withdrawn or destroyed.

        Raises:
            KeysUnavailable: it is not at hand: no store, another one, or one that lost it.
        """
        if time.monotonic() >= self._look_again_s:
            self._refresh()
        key = self._by_id.get(key_id)
        if key is not None:  # nearly always, and so without the lock
            return key
        with self._guard:
            if key_id in self._by_id:
                return self._by_id[key_id]
        self.known()
        if key_id in self._erased:  # however old the store is that was put back
            return None
        keys = self._keep(self.require_store().get([key_id]))
        if key_id not in keys:
            # Not "erased": of a key that got lost the events must come back with the store.
            raise KeysUnavailable(reason=f"the key store has no key {key_id.hex()}")
        return keys[key_id]

    def withholds(self, event: Event) -> bool:
        """Whether consent to the content of an event was withdrawn.

        Raises:
            LedgerUnavailable: Redis is away, and has to be asked.
        """
        self._refresh()
        withheld = self._known().withheld.get(event.tenant)
        return withheld is not None and withheld.covers(event)

    def withdrawn(self) -> int:
        """Another number than before once a key may have gone, as far as Redis and store answer."""
        with suppress(LedgerUnavailable):
            self._refresh()
        return self.withdrawals

    # -- what is known -----------------------------------------------------------------------------

    def renew(self) -> None:
        """Ask Redis and the store again before the next answer."""
        with self._guard:
            self._fenced = None
            self._look_again_s, self._version = 0.0, None
            self._forget()

    def known(self) -> Fenced:
        """What Redis knows, as this process last read it.

        Raises:
            KeysUnavailable: a tenant was sealed with another key store.
            LedgerUnavailable: Redis is away.
        """
        fenced = self._known()
        if fenced.tenants and self.store is not None and not self._is_mine:
            mine = self.store.identity
            if other := sorted(t for t, store in fenced.stores.items() if store != mine):
                raise KeysUnavailable(
                    reason=f"tenant {other[0]} was sealed with another key store than {mine}"
                )
            self._is_mine = True
        return fenced

    def _known(self) -> Fenced:
        """The same, whatever the key store is."""
        with self._guard:
            if self._fenced is not None:
                return self._fenced
        fenced = self.fences.read()
        with self._guard:
            self._fenced = fenced
            self._erased = frozenset(fenced.erased)
            self._is_mine = False
        return fenced

    def _refresh(self) -> None:
        """Notice what other processes changed, at most so often as keys may be believed."""
        now_s = time.monotonic()
        if now_s < self._look_again_s:  # asked for every entry, so callers may ask first
            return
        changes, version, gone = self.fences.changes(), None, self._gone
        try:
            if self.store is not None:
                version = self.store.version()
                gone = gone if version == self._version else self.store.gone()
        except KeysUnavailable:
            if self.fences.read().tenants:  # asked now: a store that is lost is never "no keys"
                raise
        with self._guard:
            if (gone, changes) != (self._gone, self._changes):
                self._forget()
                self._fenced = None
            self._version, self._gone, self._changes = version, gone, changes
            self._look_again_s = now_s + FORGOTTEN_WITHIN_S / 2

    def _forget(self) -> None:
        self._by_id.clear()
        self.withdrawals += 1

    def _keep(self, held: Mapping[bytes, bytes | None]) -> dict[bytes, SubjectKey | None]:
        """Remember keys; returns them, for another thread may make this forget them at once."""
        keys = {
            key_id: None if key is None else SubjectKey.of(key_id, key)
            for key_id, key in held.items()
        }
        with self._guard:
            self._by_id.update(keys)
            while len(self._by_id) > _KEPT:
                self._by_id.popitem(last=False)
        return keys

    def require_store(self) -> KeyStore:
        """The store of keys.

        Raises:
            KeysUnavailable: this process has none.
        """
        if self.store is None:
            raise KeysUnavailable(
                reason="this process has no master key (RECOLLECT_MASTER_KEY or "
                "RECOLLECT_TRANSIT_URL)"
            )
        return self.store

    def require_keys(self) -> None:
        """Where a tenant is sealed, see that the keys are at hand, before work that would wait.

        Raises:
            KeysUnavailable: they are not.
            LedgerUnavailable: Redis is away.
        """
        self.renew()
        if self.fences.read().tenants:
            self.require_store().own(NAMING)
            self.known()


def make_vault(settings: Settings, client: RedisClient) -> Vault:
    """The vault of a process; without a master key in its settings it has no keys."""
    return Vault(Fences(client, LedgerKeys(settings.prefix)), key_store(settings))


class Sealer:
    """Encodes the events of one append.

    Args:
        tenants: that are sealed.
        keys: of each event in its order; None of who was erased. Without any, nothing is sealed.
    """

    def __init__(
        self, tenants: Mapping[str, str], keys: Sequence[SubjectKey | Nobodys | None]
    ) -> None:
        self.tenants = tenants
        self._keys = keys

    def encode(self, index: int, event: Event) -> tuple[bytes, int, bytes]:
        """The bytes of the entry, how many the event has itself, and what fences it.

        Args:
            index: of the event in the append.
            event: that stands there.

        Raises:
            ValueError: the payload breaks a rule of canonical JSON.
            SubjectErased: whoever it is about was erased.
        """
        key = self._keys[index] if self._keys else NOBODYS
        if key is None:
            raise SubjectErased()
        if isinstance(key, str):
            data = encode_event(event)
            is_sealed = event.tenant in self.tenants
            return data, len(data), NO_FENCE if is_sealed else tenant_fence(event.tenant)
        skeleton, personal = skeleton_of(event)
        size = len(skeleton) + len(personal)
        return seal(skeleton, personal, key), size, key.key_id
