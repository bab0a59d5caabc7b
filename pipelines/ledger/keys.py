"""Keys of sealed events, in a store of their own: random, one for each subject, wrapped.

Each key is encrypted with a master key, or by a service that has one, and the master key is never
in the store. A wrapped key bears the name that it was wrapped under, so that none can take
another's place. A key that was destroyed leaves its id behind, so that it is never made anew:
without that, "no key" would also mean "not made yet".
"""

from __future__ import annotations

import os
import sqlite3
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pipelines.ledger.sealing import NONCE_BYTES, SUBJECT_KEY_BYTES
from pipelines.local.private_files import BUSY_S, connect, make_file, writing
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, KeysUnavailable

_IN_A_REQUEST: Final = 500
"""Keys in one request."""
_TIMEOUT_S: Final = 10.0

Named = Mapping[bytes, bytes]
"""Keys, wrapped or not, by name."""


class Wrapping(Protocol):
    """Wraps keys. It raises KeysUnavailable where that cannot be done now."""

    def wrap(self, keys: Named) -> dict[bytes, bytes]:
        """Each encrypted under its name."""

    def unwrap(self, wrapped: Named) -> dict[bytes, bytes]:
        """And back; raises KeysUnavailable, too, for what was wrapped by another."""

    def close(self) -> None:
        """Close its connections; the next call opens them again."""


class MasterKey:
    """A key of 32 bytes, which every process has."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def wrap(self, keys: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        wrapped = {}
        for name, key in keys.items():
            nonce = os.urandom(NONCE_BYTES)
            wrapped[name] = nonce + self._cipher.encrypt(nonce, key, name)
        return wrapped

    def unwrap(self, wrapped: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        try:
            return {
                name: self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name)
                for name, data in wrapped.items()
            }
        except InvalidTag as error:
            reason = "the master key (master_key) is not the one of the key store"
            raise KeysUnavailable(reason=reason) from error

    def close(self) -> None:
        """It has none."""


class Transit:
    """The transit engine of HashiCorp Vault or OpenBao: the master key never leaves it.

    Args:
        url: of the server, with the engine's mount and the key's name behind it:
            https://vault.example.org:8200/transit/recollect.
        token: that may encrypt and decrypt with this key; None: something in between adds one.
        timeout_s: of a request, each time that nothing comes.
    """

    def __init__(self, url: str, token: str | None, *, timeout_s: float = _TIMEOUT_S) -> None:
        import httpx2  # a fifth of a second, which a process without it does not need

        self._url = url
        parts = urlsplit(url)
        mount, _, key = parts.path.strip("/").rpartition("/")
        self._path = f"/v1/{quote(mount)}/{{}}/{quote(key)}"
        headers = {"X-Vault-Request": "true", **({"X-Vault-Token": token} if token else {})}
        base = f"{parts.scheme}://{parts.netloc}"
        self._connect = partial(httpx2.Client, base_url=base, headers=headers, timeout=timeout_s)
        self._client: httpx2.Client | None = None
        self._failures = (httpx2.HTTPError, orjson.JSONDecodeError, KeyError, TypeError, ValueError)

    def wrap(self, keys: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        texts = {name: b64encode(key).decode() for name, key in keys.items()}
        answers = self._asked("encrypt", texts, "plaintext", "ciphertext")
        return {name: text.encode() for name, text in answers.items()}

    def unwrap(self, wrapped: Named) -> dict[bytes, bytes]:
        """See `Wrapping`."""
        texts = {name: data.decode("utf-8", "replace") for name, data in wrapped.items()}
        answers = self._asked("decrypt", texts, "ciphertext", "plaintext")
        return {name: b64decode(text) for name, text in answers.items()}

    def close(self) -> None:
        """See `Wrapping`."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(
        self, what: str, texts: Mapping[bytes, str], sent: str, wanted: str
    ) -> dict[bytes, str]:
        answers: dict[bytes, str] = {}
        client = self._client = self._client or self._connect()
        left = iter(texts.items())
        while some := list(islice(left, _IN_A_REQUEST)):
            batch = [
                {sent: text, "associated_data": b64encode(name).decode()} for name, text in some
            ]
            try:
                reply = client.post(self._path.format(what), json={"batch_input": batch})
                told = orjson.loads(reply.content)
                if reply.status_code >= 400:
                    raise ValueError(f"{reply.status_code} {_errors_of(told)}")
                results = [row[wanted] for row in told["data"]["batch_results"]]
                answers.update(zip((name for name, _ in some), results, strict=True))
            except self._failures as error:
                raise KeysUnavailable(reason=f"{self._url}: {what}: {error}") from error
        return answers


def _errors_of(told: Mapping[str, object]) -> str:
    """What an answer says was wrong, as a whole or with the first key."""
    errors = told.get("errors")
    if isinstance(errors, list) and errors:
        return " ".join(str(errors[0]).split())
    data = told.get("data")
    rows = data.get("batch_results", ()) if isinstance(data, Mapping) else ()
    return next((str(row["error"]) for row in rows if row.get("error")), "no reason was told")


def wrapping_of(settings: Settings) -> Wrapping | None:
    """What the settings name; None: nothing.

    Raises:
        ConfigurationError: they name two.
    """
    if settings.transit_url is None:
        key = settings.master_key
        return None if key is None else MasterKey(bytes.fromhex(key.get_secret_value()))
    if settings.master_key is not None:
        raise ConfigurationError(reason="master_key, transit_url: set one of them")
    token = settings.transit_token
    return Transit(settings.transit_url, None if token is None else token.get_secret_value())


def require_wrapping(settings: Settings) -> Wrapping:
    """What the settings name.

    Raises:
        ConfigurationError: nothing, or two.
    """
    wrapping = wrapping_of(settings)
    if wrapping is None:
        reason = "master_key or transit_url: needed where tenants are sealed"
        raise ConfigurationError(reason=reason)
    return wrapping


NAMING: Final = "naming"
"""Names the key of which the ids of all others are keyed digests."""
SIGNING: Final = "signing"
"""Names the key that receipts are signed with."""

_KEYS_FILE: Final = "keys.sqlite"
_IDS_AT_ONCE: Final = 500
_ACTIVE, _WITHDRAWN, _DESTROYED = range(3)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS store (name TEXT PRIMARY KEY, wrapped BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subject (
    key_id BLOB PRIMARY KEY, state INTEGER NOT NULL, wrapped BLOB
) WITHOUT ROWID;
"""

Result = TypeVar("Result")


class KeyStore(Protocol):
    """Where keys are. Safe for threads and for several processes at once.

    Every call raises KeysUnavailable where the store is away, or the master key is another.
    """

    @property
    def identity(self) -> str:
        """What tells it from any other store."""

    def own(self, name: str) -> bytes:
        """A key of the store itself (32 bytes): `NAMING` or `SIGNING`."""

    def get(
        self, key_ids: Iterable[bytes], *, withdrawn: bool = False
    ) -> dict[bytes, bytes | None]:
        """Keys by id, None for one that was withdrawn or destroyed; absent ones are left out.

        Args:
            key_ids: of 16 bytes.
            withdrawn: give those, too, for who erases.
        """

    def make(self, key_ids: Iterable[bytes]) -> None:
        """Make the keys that there never were; durable when it returns."""

    def withdraw(self, key_ids: Iterable[bytes]) -> None:
        """Let nobody have these any more but who erases."""

    def destroy(self, key_ids: Iterable[bytes]) -> None:
        """Destroy these for good; durable when it returns."""

    def version(self) -> int:
        """Another number once another process has changed the store."""

    def gone(self) -> int:
        """How many keys were withdrawn or destroyed."""

    def rotate(self, wrapping: Wrapping) -> int:
        """Wrap all keys anew, and go on with that; how many there are."""

    def close(self) -> None:
        """Close its connections."""


class SqliteKeys:
    """A file, for the processes of one machine, that only its user can read.

    What is deleted is overwritten in the file. A change is on the disk before a call returns.

    Args:
        path: of a store that is there.
        wrapping: of the keys in it.
        busy_s: how long to wait for another writer, seconds.
    """

    def __init__(self, path: Path, wrapping: Wrapping, *, busy_s: float = BUSY_S) -> None:
        self._path = path
        self._wrapping = wrapping
        self._own: dict[tuple[str, bytes], bytes] = {}
        self._busy_s = busy_s
        self._guard = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._file = 0
        self._openings = 0

    @classmethod
    def create(cls, path: Path, wrapping: Wrapping) -> SqliteKeys:
        """Make a store, unless there is one.

        Raises:
            KeysUnavailable: it cannot be written; or there is one of another master key.
        """
        store = cls(path, wrapping)
        wrapped_own = wrapping.wrap(_new_keys(name.encode() for name in (NAMING, SIGNING)))
        try:  # where there is a file, too: it may be as far as one came that was killed
            make_file(path)
            with closing(_opened(path, BUSY_S)) as db:
                db.executescript(_SCHEMA)
                with writing(db):
                    for name, wrapped in wrapped_own.items():
                        row = (name.decode(), wrapped)
                        db.execute("INSERT OR IGNORE INTO store VALUES (?, ?)", row)
        except (sqlite3.Error, OSError) as error:
            raise KeysUnavailable(reason=f"{path}: {error}") from error
        store.own(NAMING)
        return store

    @property
    def identity(self) -> str:
        """What tells it from any other store."""
        return blake2b(key=self.own(NAMING), digest_size=8, person=b"recollect:store").hexdigest()

    def own(self, name: str) -> bytes:
        """A key of the store itself (32 bytes)."""

        def read(db: sqlite3.Connection) -> bytes:
            row = db.execute("SELECT wrapped FROM store WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise KeysUnavailable(reason=f"{self._path} is no key store")
            return bytes(row[0])

        wrapped = self._do(read)
        if (name, wrapped) not in self._own:  # it may be wrapped anew, for which ours is no good
            self._own[name, wrapped] = self._unwrapped({name.encode(): wrapped})[name.encode()]
        return self._own[name, wrapped]

    def get(
        self, key_ids: Iterable[bytes], *, withdrawn: bool = False
    ) -> dict[bytes, bytes | None]:
        """Keys by id, None for one that was withdrawn or destroyed; absent ones are left out."""
        usable = (_ACTIVE, _WITHDRAWN) if withdrawn else (_ACTIVE,)

        rows = self._do(lambda db: _rows(db, list(key_ids)))
        closed = dict.fromkeys(key_id for key_id, state, _ in rows if state not in usable)
        wrapped = {key_id: data for key_id, state, data in rows if state in usable}
        return {**closed, **(self._unwrapped(wrapped) if wrapped else {})}

    def make(self, key_ids: Iterable[bytes]) -> None:
        """Make the keys that there never were; durable when it returns."""
        self.own(NAMING)  # with another master key nothing may be wrapped
        wrapped = self._wrapping.wrap(_new_keys(sorted(key_ids)))
        rows = [(key_id, _ACTIVE, data) for key_id, data in wrapped.items()]
        self._write("INSERT OR IGNORE INTO subject VALUES (?, ?, ?)", rows)

    def withdraw(self, key_ids: Iterable[bytes]) -> None:
        """Let nobody have these any more but who erases."""
        self._write(
            "UPDATE subject SET state = ? WHERE key_id = ? AND state = ?",
            [(_WITHDRAWN, key_id, _ACTIVE) for key_id in key_ids],
        )

    def destroy(self, key_ids: Iterable[bytes]) -> None:
        """Destroy these for good; durable when it returns."""
        self._write(
            "INSERT INTO subject VALUES (?1, ?2, NULL) "
            "ON CONFLICT (key_id) DO UPDATE SET state = ?2, wrapped = NULL",
            [(key_id, _DESTROYED) for key_id in key_ids],
        )

    def version(self) -> int:
        """Another number once another process has changed the store."""
        version = self._do(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0]))
        return (self._openings << 32) + version  # each connection counts for itself

    def gone(self) -> int:
        """How many keys were withdrawn or destroyed."""
        counted = f"SELECT count(*) FROM subject WHERE state != {_ACTIVE}"  # noqa: S608  a number
        return self._do(lambda db: int(db.execute(counted).fetchone()[0]))

    def rotate(self, wrapping: Wrapping) -> int:
        """Wrap all keys anew, and go on with that; how many there are."""

        def rewrap(db: sqlite3.Connection) -> int:
            with writing(db):
                count = 0
                for table, column in (("store", "name"), ("subject", "key_id")):
                    stored = db.execute(
                        f"SELECT {column}, wrapped FROM {table} WHERE wrapped IS NOT NULL"  # noqa: S608  names of ours
                    ).fetchall()
                    rows = {id_.encode() if table == "store" else id_: data for id_, data in stored}
                    again = wrapping.wrap(self._unwrapped(rows)) if rows else {}
                    db.executemany(
                        f"UPDATE {table} SET wrapped = ? WHERE {column} = ?",  # noqa: S608  names of ours
                        [(again[name], id_) for name, (id_, _) in zip(rows, stored, strict=True)],
                    )
                    count = len(stored)
            return count

        count = self._do(rewrap)
        self._wrapping = wrapping
        return count

    def close(self) -> None:
        """Close the file, and the connections of what wraps."""
        self._wrapping.close()
        with self._guard:
            db, self._db = self._db, None
        if db is not None:
            db.close()

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def write(db: sqlite3.Connection) -> None:
            with writing(db):
                db.executemany(statement, rows)

        if rows:
            self._do(write)

    def _do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._guard:
            try:
                return work(self._connected())
            except FileNotFoundError:  # nobody but `create` may begin one anew
                raise KeysUnavailable(reason=f"there is no key store at {self._path}") from None
            except (sqlite3.Error, OSError) as error:
                raise KeysUnavailable(reason=f"{self._path}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        """To the file that is there now: the store may have been put back from a copy."""
        file = self._path.stat().st_ino
        if self._db is not None and file != self._file:
            self._db.close()
            self._db = None
        if self._db is None:
            self._db, self._file = _opened(self._path, self._busy_s), file
            self._openings += 1
        return self._db

    def _unwrapped(self, wrapped: Named) -> dict[bytes, bytes]:
        try:
            return self._wrapping.unwrap(wrapped)
        except KeysUnavailable as error:
            raise KeysUnavailable(reason=f"{self._path}: {error.reason}") from error


def _opened(path: Path, busy_s: float) -> sqlite3.Connection:
    db = connect(path, busy_s=busy_s)
    # No write-ahead log: it would keep the old pages, and with them keys that were destroyed.
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("PRAGMA synchronous = EXTRA")
    db.execute("PRAGMA secure_delete = ON")
    return db


def _rows(db: sqlite3.Connection, key_ids: Sequence[bytes]) -> list[tuple[bytes, int, bytes]]:
    rows: list[tuple[bytes, int, bytes]] = []
    for first in range(0, len(key_ids), _IDS_AT_ONCE):
        chunk = key_ids[first : first + _IDS_AT_ONCE]
        holes = ",".join("?" * len(chunk))
        rows += db.execute(
            f"SELECT key_id, state, wrapped FROM subject WHERE key_id IN ({holes})",  # noqa: S608  question marks
            chunk,
        ).fetchall()
    return rows


def _new_keys(names: Iterable[bytes]) -> dict[bytes, bytes]:
    return {name: os.urandom(SUBJECT_KEY_BYTES) for name in names}


def keys_path(settings: Settings) -> Path:
    """The file of the key store."""
    return settings.keys_file or settings.data_dir / _KEYS_FILE


def key_store(settings: Settings) -> KeyStore | None:
    """The store that the settings name; None: they name nothing that wraps keys."""
    wrapping = wrapping_of(settings)
    return None if wrapping is None else SqliteKeys(keys_path(settings), wrapping)
