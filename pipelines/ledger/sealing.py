"""Events of sealed tenants: what a person gave is encrypted where the event is encoded.

This is the boundary. An entry is sealed once, when it is encoded for the append, and opened when
its event is asked for (`Entry.event`). Whatever lies between takes its bytes as they are: the
append script, the id index, digests, checkpoints, whoever copies entries elsewhere.

A sealed entry is the JSON of the envelope without the personal fields, a zero byte, which no JSON
has, and bytes: the key's id (16), nonce (12), ciphertext and tag. The envelope before it is the
associated data. The nonce is a keyed digest of all that is sealed, so the same event sealed twice
is the same bytes: a resend is known as a duplicate, and a digest of the entry tells nothing to who
has not the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.errors import KeysUnavailable, UndecodableEntry
from projections.events import (
    SYSTEM_EVENTS,
    Event,
    decode_event,
    encode_fields,
    is_system_event,
    personal_fields,
    skeleton_fields,
)

ERASED_USER: Final = "erased:"
"""Before a key's id: the user of an event whose key was destroyed."""
ERASED_EVENT: Final = "memory.erased"
"""What a system event is whose key was destroyed, or whose content is withheld: no stage applies
anything of it."""

SUBJECT_KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 16
NONCE_BYTES: Final = 12
SEALED_MARK: Final = b"\0"
"""Stands in every sealed entry, behind what can be read without a key, and in no other."""

_WORDLESS: Final = frozenset(
    name
    for name in SYSTEM_EVENTS
    if name.removeprefix("memory.")
    in ("accessed", "forgotten", "recalled", "erased", "gap_recorded", "graph_cleared")
)
_WORDLESS_KINDS: Final = frozenset(("boosts", "gone", "pass"))
"""Of `memory.consolidated`: these, and the events above, hold ids and numbers alone."""

Kind = Literal["user", "session", "decision", "consent"]


class Subject(NamedTuple):
    """Whose key seals an event: a user's; of what has no user its session's, or its own.

    A `consent` has no key. What names it is withheld once it is withdrawn.
    """

    kind: Kind
    name: str


class SubjectKey(NamedTuple):
    """The key of a subject of a tenant, ready for use.

    Attributes:
        key_id: a keyed digest of tenant and subject (16 bytes).
        cipher: AES-256-GCM.
        nonces: begins the keyed digests that are nonces.
    """

    key_id: bytes
    cipher: AESGCM
    nonces: blake2b

    @classmethod
    def of(cls, key_id: bytes, material: bytes) -> SubjectKey:
        """From the 32 random bytes that are kept."""
        cipher, nonce_key = (
            blake2b(key=material, digest_size=SUBJECT_KEY_BYTES, person=use).digest()
            for use in (b"recollect:seal", b"recollect:nonce")
        )
        nonces = blake2b(key=nonce_key, digest_size=NONCE_BYTES)
        return cls(key_id, AESGCM(cipher), nonces)


class Opener(Protocol):
    """What knows keys."""

    def opening(self, key_id: bytes) -> SubjectKey | None:
        """The key of an entry; None: it was destroyed.

        Raises:
            KeysUnavailable: it is not at hand.
        """

    def withholds(self, event: Event) -> bool:
        """Whether nobody may read the content of an event: consent to that was withdrawn."""

    def withdrawn(self) -> int:
        """Another number than before once a key, or consent, may have gone."""


def subject_of(event: Event) -> Subject | None:
    """Whose key seals an event; None: it has nothing that is anybody's.

    What Recollect decided belongs to the user whose events it was made from. What was made from
    events of several, or of nobody, has a key of its own, so that it can go with any of them.
    """
    if event.user_id is not None:
        return Subject("user", event.user_id)
    if not is_system_event(event.event_type):
        return Subject("session", event.session_id)
    row = SYSTEM_EVENTS.get(event.event_type)
    if event.event_type in _WORDLESS or event.payload is None:
        return None
    if row is None or row.public:
        return Subject("session", event.session_id)
    payload: Mapping[str, Any] = event.payload if isinstance(event.payload, Mapping) else {}
    if payload.get("kind") in _WORDLESS_KINDS:
        return None
    users = _users_of(payload)
    return Subject("user", users[0]) if len(users) == 1 else Subject("decision", event.event_id)


def _users_of(payload: Mapping[str, Any]) -> list[str]:
    summary = payload.get("summary")
    told = summary if isinstance(summary, Mapping) else payload
    users = told.get("user_ids")
    return [user for user in users if isinstance(user, str)] if isinstance(users, list) else []


def skeleton_of(event: Event) -> tuple[bytes, bytes]:
    """Canonical JSON of an event without its personal fields, and of these alone.

    The second is what is encrypted; the first stays readable and in order.

    Raises:
        ValueError: the payload breaks a rule of canonical JSON.
    """
    return encode_fields(skeleton_fields(event)), encode_fields(
        personal_fields(event, {}), event.payload
    )


def seal(skeleton: bytes, personal: bytes, key: SubjectKey) -> bytes:
    """What stays readable, with what is sealed behind it: of an event, its entry."""
    digest = key.nonces.copy()
    digest.update(b"\0".join((skeleton, personal)))
    nonce = digest.digest()
    ciphertext = key.cipher.encrypt(nonce, personal, skeleton)
    return b"".join((skeleton, SEALED_MARK, key.key_id, nonce, ciphertext))


def unseal(data: bytes, key: SubjectKey) -> bytes:
    """What `seal` has sealed.

    Raises:
        InvalidTag: not with this key, or it was altered since.
    """
    end = data.index(SEALED_MARK)
    nonce = end + 1 + KEY_ID_BYTES
    ciphertext = nonce + NONCE_BYTES
    return key.cipher.decrypt(data[nonce:ciphertext], data[ciphertext:], data[:end])


def unsealed_part(data: bytes) -> bytes:
    """What anybody can read of an entry: its envelope as JSON, all of it where it is not sealed."""
    return data.partition(SEALED_MARK)[0]


def sealed_by(data: bytes) -> bytes | None:
    """The id of the key that an entry is sealed with; None: it is not sealed."""
    begin = data.find(SEALED_MARK) + 1
    return data[begin : begin + KEY_ID_BYTES] if begin else None


def opened(data: bytes, keys: Opener | None, *, partition: int = -1, position: str = "?") -> Event:
    """The event of an entry, sealed or not; what is left of one that was erased or is withheld.

    Raises:
        KeysUnavailable: it is sealed, and its key is not at hand.
        UndecodableEntry: it is no event, or was sealed with another key than its id says.
    """
    end = data.find(SEALED_MARK)
    erased = None
    if end >= 0:
        if keys is None:
            raise KeysUnavailable(reason="this process has no key store (keys_url, master_key)")
        skeleton, key_id = data[:end], data[end + 1 : end + 1 + KEY_ID_BYTES]
        key = keys.opening(key_id)
        if key is None:
            data, erased = skeleton, key_id
        else:
            try:
                personal = unseal(data, key)
            except InvalidTag as error:
                reason = "not sealed with the key that it names, or altered since"
                raise UndecodableEntry(
                    partition=partition, position=position, reason=reason
                ) from error
            data = b",".join((skeleton[:-1], personal[1:]))
    event = decode_event(data, partition=partition, position=position)
    if erased is not None:
        event = _erased(event, erased)
    if not is_withheld(keys, event):
        return event
    bare = _applied_by_nobody(event)
    return bare._replace(payload=None, payload_ref=None)


def is_withheld(keys: Opener | None, event: Event) -> bool:
    """Whether the content of an event is withheld from whoever reads it with these keys."""
    if keys is None or (event.consent_ref is None and not is_system_event(event.event_type)):
        return False  # nothing that could be withheld
    return keys.withholds(event)


def _erased(event: Event, key_id: bytes) -> Event:
    """The user is nobody who can ask, so what is left of the event is for operators."""
    return _applied_by_nobody(event)._replace(user_id=erased_user(key_id))


def _applied_by_nobody(event: Event) -> Event:
    """The event; of what Recollect itself reads, one of which it applies nothing."""
    if is_system_event(event.event_type):
        return event._replace(event_type=ERASED_EVENT)
    return event


def erased_user(key_id: bytes) -> str:
    """What stands for the user of events whose key was destroyed."""
    return f"{ERASED_USER}{key_id.hex()}"
