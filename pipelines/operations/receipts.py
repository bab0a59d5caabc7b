"""Receipts of erasures: signed, each with a digest of the one before, kept in the ledger's Redis.

A receipt names its subject by the id of the key, which tells nothing to who has not the key store,
and holds no content and no digest of any. What a graph came to before the erasure is told by a
digest under a key of the store: the plain one, less that of afterwards, would be a digest of what
was erased, by which a guess could be confirmed. Who has the store, and what `verify` printed
before, can compare (`covered_digest`).

Beside them is noted which backups were made, which no erasure reaches. Both are in every backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b, sha256
from typing import Any, Final, NamedTuple

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from consolidation.decay import DAY_MS
from pipelines.ledger.connect import call_patiently, tell
from pipelines.ledger.entries import LedgerKeys
from pipelines.ledger.keys import NAMING, SIGNING, KeyStore
from pipelines.ledger.vault import CONSENT
from pipelines.work.services import Services
from projections.events import canonical_json, timestamp_text

VERSION: Final = 1
_RECEIPTS: Final = "receipts"
_BACKUPS: Final = "backups"
NOT_REACHED: Final = (
    "backups, exports and logs that were made before",
    "append-only files and store files until they are rewritten",
    "what others said about the subject",
)
"""What an erasure does not reach, as each receipt says."""
_TOLD: Final = (
    "tenant",
    "kind",
    "reason",
    "by",
    "requested_at",
    "finished_at",
    "entries",
    "positions",
)

Receipt = dict[str, Any]


class Verified(NamedTuple):
    """What looking at receipts found.

    Attributes:
        receipts: how many.
        public_key: that signed them; empty: there is none.
        problems: of each that is not right.
    """

    receipts: int
    public_key: str
    problems: list[str]


def receipts(services: Services) -> list[Receipt]:
    """All receipts, the oldest first.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    redis: Any = services.redis
    key = services.ledger.keys.receipts
    return [orjson.loads(row) for row in call_patiently(lambda: redis.lrange(key, 0, -1))]


def backups(services: Services) -> list[dict[str, Any]]:
    """The backups that were made of a ledger, by where they are: when, and until when they stay.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    redis: Any = services.redis
    rows = call_patiently(lambda: redis.hgetall(services.ledger.keys.backups))
    return [{"url": url.decode(), **orjson.loads(told)} for url, told in sorted(rows.items())]


def note_backup(services: Services, url: str, keep_days: float | None) -> None:
    """Remember a backup, for the receipts of later erasures, which do not reach it.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    ms = services.ledger.now_ms()
    until = None if keep_days is None else timestamp_text(ms + round(keep_days * DAY_MS))
    told = orjson.dumps({"made_at": timestamp_text(ms), "kept_until": until})
    tell(services.redis, services.ledger.keys.backups, {url: told})


def erasure_records(services: Services) -> dict[str, Any]:
    """What is recorded of erasures beside the ledger: receipts, and the backups not reached.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    return {_RECEIPTS: receipts(services), _BACKUPS: backups(services)}


def put_erasure_records(services: Services, told: Mapping[str, Any]) -> None:
    """Put such records where they were; what is missing there is empty, twice is as once.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    keys = LedgerKeys(services.settings.prefix)
    rows = [orjson.dumps(receipt) for receipt in told.get(_RECEIPTS, ())]
    notes = {
        str(row["url"]): orjson.dumps({name: row[name] for name in row if name != "url"})
        for row in told.get(_BACKUPS, ())
    }

    def write() -> None:
        pipeline: Any = services.redis.pipeline(transaction=True)
        pipeline.delete(keys.receipts, keys.backups)
        if rows:
            pipeline.rpush(keys.receipts, *rows)
        if notes:
            pipeline.hset(keys.backups, mapping=notes)
        pipeline.execute()

    call_patiently(write)


def sign_receipt(services: Services, key_id: bytes, told: Mapping[str, Any]) -> Receipt:
    """The receipt of an erasure, kept behind the others; made twice it is the first.

    Raises:
        KeysUnavailable, LedgerUnavailable: a service is away.
    """
    before = receipts(services)
    subject = key_id.hex()
    for receipt in before:
        if receipt["subject"] == subject:
            return receipt
    store = services.ledger.vault.require_store()
    signing = Ed25519PrivateKey.from_private_bytes(store.own(SIGNING))
    receipt = {
        "version": VERSION,
        "number": len(before) + 1,
        "subject": subject,
        **{name: told[name] for name in _TOLD},
        "decisions": len(told["mixed"]),
        "stores": told["stores"],
        "backups": backups(services),
        "keys_destroyed": 0 if CONSENT in told else 1 + len(told["mixed"]),
        "not_reached": list(NOT_REACHED),
        "prior": sha256(_signed(before[-1])).hexdigest() if before else "",
        "public_key": signing.public_key().public_bytes_raw().hex(),
    }
    receipt["signature"] = signing.sign(_signed(receipt)).hex()
    redis: Any = services.redis
    key = services.ledger.keys.receipts
    call_patiently(lambda: redis.rpush(key, orjson.dumps(receipt)))
    return receipt


def covered_digest(store: KeyStore, digest: str) -> str:
    """A digest under a key of the store: it tells nothing to who has not that."""
    key = store.own(NAMING)
    return blake2b(digest.encode(), key=key, digest_size=32, person=b"recollect:before").hexdigest()


def verified(rows: Iterable[Receipt]) -> Verified:
    """Whether receipts are signed by one key, and none is missing or was changed."""
    problems: list[str] = []
    public_key = prior = ""
    number = 0
    for number, receipt in enumerate(rows, 1):
        public_key = public_key or str(receipt.get("public_key"))
        if not _is_signed(receipt, public_key):
            problems.append(f"receipt {number} is not signed by {public_key}")
        if (receipt.get("number"), receipt.get("prior")) != (number, prior):
            problems.append(f"receipt {number} does not follow the one before it")
        prior = sha256(_signed(receipt)).hexdigest()
    return Verified(number, public_key, problems)


def _signed(receipt: Receipt) -> bytes:
    return canonical_json({n: value for n, value in receipt.items() if n != "signature"})


def _is_signed(receipt: Receipt, public_key: str) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(str(receipt.get("signature"))), _signed(receipt))
    except (InvalidSignature, ValueError):
        return False
    return receipt.get("public_key") == public_key
