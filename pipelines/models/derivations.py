"""What models and rules made of events, kept: bytes by kind and digest, without an expiry.

A store of its own (`derivations_url`: a SQLite file, or a Redis that is not the ledger's), shared
by all workers of an instance. The first value that is recorded stays, so that all use the same one,
whichever worker made it. Each value carries a checksum over itself and what it is of.

A store may be away, damaged or lost at any moment: that is counted, and the caller computes.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from importlib.resources import files
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import redis
import structlog

import enrichment
from pipelines.ledger.connect import connect_redis
from pipelines.local.data_folder import locked
from pipelines.local.private_files import (
    BUSY_S,
    connect,
    delete_beside,
    empty_log,
    is_damage,
    make_file,
    prepare,
    writing,
)
from pipelines.observe import metrics
from pipelines.work.settings import SQLITE_SCHEME, Settings
from projections.errors import DerivationsUnavailable
from projections.events import DIGEST_BYTES

Kind = metrics.KeptKind
"""vector: of a text; analysis: of a text; answer: of a language model; event: what the rules found
in one event."""
Digest = bytes
Met = defaultdict[Kind, dict[Digest, bytes | None]]
"""What was asked for, with its value where it is there."""
PAUSE_S: Final = 5.0
"""How long a store that failed is left alone: no block waits for its time-out again and again."""

_ROUND: Final = 256
"""Values of one round trip; of events they are 140 kB."""
_CHECKSUM_BYTES: Final = 4
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS derivation (
    kind TEXT NOT NULL, digest BLOB NOT NULL, value BLOB NOT NULL, UNIQUE (digest, kind)
);
CREATE TABLE IF NOT EXISTS mark (
    run BLOB NOT NULL, partition INTEGER NOT NULL, stretch INTEGER NOT NULL, bits BLOB NOT NULL,
    PRIMARY KEY (run, partition, stretch)
) WITHOUT ROWID;
"""

_STRETCH: Final = 4_096
"""Entries whose marks are the bits of one row of a file."""

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = structlog.get_logger(__name__)


def digest_of(*parts: str | bytes) -> Digest:
    """Digest (16 bytes) of parts, kept apart: ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


class Store(Protocol):
    """Where derivations are. Safe for threads and for several processes at once.

    Every call raises DerivationsUnavailable where the store is away, full or damaged.
    """

    def get(self, kind: Kind, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        """The values that are there, by digest."""

    def put(self, kind: Kind, values: Mapping[Digest, bytes]) -> dict[Digest, bytes]:
        """Keep values by digest; returns those that others had kept before, which stay."""

    def forget(self, kind: Kind, digests: Sequence[Digest]) -> None:
        """Drop values, as far as they are there."""

    def mark(self, run: bytes, partition: int, seqs: Sequence[int]) -> None:
        """Note that entries of a partition are done; `run` names by whom, 16 bytes."""

    def marked(self, run: bytes, last_seqs: Sequence[int]) -> int:
        """How many are noted, of each partition up to a number; the first partition is 0."""

    def close(self) -> None:
        """Close its connections."""


class SqliteStore:
    """A file, in WAL mode: of a killed process only what it was writing is lost.

    The file is made when it is first used. One that was deleted or replaced while it is in use is
    noticed at the next call; one that is damaged is put aside as `NAME.damaged`, and begun anew.

    Args:
        path: absolute; its folder exists.
        busy_s: how long to wait for another writer, seconds.
    """

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self._path = path
        self._busy_s = busy_s
        self._guard = threading.Lock()
        self._held: tuple[sqlite3.Connection, tuple[int, int]] | None = None

    def get(self, kind: Kind, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        """The values that are there, by digest."""
        return self._do(lambda db: _select(db, kind, digests))

    def put(self, kind: Kind, values: Mapping[Digest, bytes]) -> dict[Digest, bytes]:
        """Keep values by digest; returns those that others had kept before, which stay."""

        def insert(db: sqlite3.Connection) -> dict[Digest, bytes]:
            with writing(db):
                before = db.total_changes
                db.executemany(
                    "INSERT OR IGNORE INTO derivation (kind, digest, value) VALUES (?, ?, ?)",
                    [(kind, digest, value) for digest, value in values.items()],
                )
                if db.total_changes - before == len(values):
                    return {}
                standing = _select(db, kind, list(values))
            return {digest: held for digest, held in standing.items() if held != values[digest]}

        return self._do(insert)

    def forget(self, kind: Kind, digests: Sequence[Digest]) -> None:
        """Drop values, as far as they are there."""

        def delete(db: sqlite3.Connection) -> None:
            with writing(db):
                db.executemany(
                    "DELETE FROM derivation WHERE kind = ? AND digest = ?",
                    [(kind, digest) for digest in digests],
                )
            empty_log(db)

        self._do(delete)

    def mark(self, run: bytes, partition: int, seqs: Sequence[int]) -> None:
        """Note that entries of a partition are done; `run` names by whom, 16 bytes."""
        wanted: dict[int, int] = {}
        for seq in seqs:
            stretch, bit = divmod(seq, _STRETCH)
            wanted[stretch] = wanted.get(stretch, 0) | 1 << bit

        def add(db: sqlite3.Connection) -> None:
            if _new_bits(db, run, partition, wanted):  # most often a look is enough
                with writing(db):
                    db.executemany(
                        "INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)",
                        [
                            (run, partition, stretch, bits.to_bytes(_STRETCH // 8, "little"))
                            for stretch, bits in _new_bits(db, run, partition, wanted).items()
                        ],
                    )

        self._do(add)

    def marked(self, run: bytes, last_seqs: Sequence[int]) -> int:
        """How many are noted, of each partition up to a number; the first partition is 0."""

        def count(db: sqlite3.Connection) -> int:
            total = 0
            for partition, last in enumerate(last_seqs):
                stretch, bit = divmod(last, _STRETCH)
                up_to_last = (1 << bit + 1) - 1
                rows = db.execute(
                    "SELECT stretch, bits FROM mark "
                    "WHERE run = ? AND partition = ? AND stretch <= ?",
                    (run, partition, stretch),
                )
                for number, data in rows:
                    bits = int.from_bytes(data, "little")
                    total += (bits & up_to_last if number == stretch else bits).bit_count()
            return total

        # who only counts makes no file
        begun = self._path.exists() or not self._path.parent.exists()
        return self._do(count) if begun else 0

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._release()

    def _do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._guard:
            try:
                try:
                    return self._attempt(work)
                except sqlite3.DatabaseError as error:
                    if not is_damage(error):
                        raise
                    self._put_aside(str(error))
                    return self._attempt(work)
            except (sqlite3.Error, OSError) as error:
                reason = f"{self._path}: {getattr(error, 'strerror', None) or error}"
                raise DerivationsUnavailable(reason=reason) from error

    def _attempt(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        if self._held is None or self._held[1] != self._identity():
            # SQLite leaves the write-ahead log of a file alone that is not under its name any more
            self._release()
            self._held = self._open()
        return work(self._held[0])

    def _open(self) -> tuple[sqlite3.Connection, tuple[int, int]]:
        with self._locked():
            make_file(self._path)
            status = self._path.stat()
            identity = status.st_dev, status.st_ino
            db = connect(self._path, busy_s=self._busy_s)
            try:
                prepare(db, _SCHEMA)
            except BaseException:
                self._held = (db, identity)  # which of them is damaged, for who puts it aside
                raise
        return db, identity

    def _put_aside(self, reason: str) -> None:
        """Give a damaged file another name, unless another process has."""
        with self._locked():
            if self._held is not None and self._held[1] == self._identity():
                aside = self._path.with_name(f"{self._path.name}.damaged")
                self._path.replace(aside)
                delete_beside(self._path)
                logger.error("derivations damaged; begun anew", put_aside=str(aside), reason=reason)
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held[0].close()

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self._path.with_name(f"{self._path.name}.lock")):
            yield


def _select(db: sqlite3.Connection, kind: Kind, digests: Sequence[Digest]) -> dict[Digest, bytes]:
    values: dict[Digest, bytes] = {}
    for chunk in _chunks(digests):
        holes = ",".join("?" * len(chunk))
        values.update(
            db.execute(
                f"SELECT digest, value FROM derivation WHERE kind = ? AND digest IN ({holes})",  # noqa: S608  question marks
                (kind, *chunk),
            )
        )
    return values


def _new_bits(
    db: sqlite3.Connection, run: bytes, partition: int, wanted: Mapping[int, int]
) -> dict[int, int]:
    """The marks of stretches that are to have more of them, old and new."""
    changed: dict[int, int] = {}
    for stretch, more in wanted.items():
        row = db.execute(
            "SELECT bits FROM mark WHERE run = ? AND partition = ? AND stretch = ?",
            (run, partition, stretch),
        ).fetchone()
        before = 0 if row is None else int.from_bytes(row[0], "little")
        if before | more != before:
            changed[stretch] = before | more
    return changed


class RedisStore:
    """A Redis, or Valkey, of its own: no eviction, and as durable as it is set.

    Args:
        client: without `decode_responses`.
        prefix: of all keys.
    """

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix.encode()

    def get(self, kind: Kind, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        """The values that are there, by digest."""
        values: dict[Digest, bytes] = {}
        with _redis_errors():
            for chunk in _chunks(digests):
                held: list[bytes | None] = self._client.mget(self._keys(kind, chunk))  # type: ignore[assignment]  # annotated for both kinds of client
                values |= {
                    d: value for d, value in zip(chunk, held, strict=True) if value is not None
                }
        return values

    def put(self, kind: Kind, values: Mapping[Digest, bytes]) -> dict[Digest, bytes]:
        """Keep values by digest; returns those that others had kept before, which stay."""
        standing: dict[Digest, bytes] = {}
        with _redis_errors():
            for chunk in _chunks(list(values)):
                with self._client.pipeline(transaction=False) as pipe:
                    for digest, key in zip(chunk, self._keys(kind, chunk), strict=True):
                        pipe.set(key, values[digest], nx=True, get=True)
                    held = pipe.execute()
                standing |= {
                    digest: value
                    for digest, value in zip(chunk, held, strict=True)
                    if value is not None and value != values[digest]
                }
        return standing

    def forget(self, kind: Kind, digests: Sequence[Digest]) -> None:
        """Drop values, as far as they are there."""
        with _redis_errors():
            for chunk in _chunks(digests):
                self._client.unlink(*self._keys(kind, chunk))

    def mark(self, run: bytes, partition: int, seqs: Sequence[int]) -> None:
        """Note that entries of a partition are done; `run` names by whom, 16 bytes."""
        with _redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for seq in seqs:
                pipe.setbit(self._mark_key(run, partition), seq, 1)
            pipe.execute()

    def marked(self, run: bytes, last_seqs: Sequence[int]) -> int:
        """How many are noted, of each partition up to a number; the first partition is 0."""
        with _redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for partition, last in enumerate(last_seqs):
                pipe.bitcount(self._mark_key(run, partition), 1, last, "BIT")
            return sum(pipe.execute())

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _keys(self, kind: Kind, digests: Iterable[Digest]) -> list[bytes]:
        return [
            b"%b:derivation:%b:%b" % (self._prefix, kind.encode(), digest) for digest in digests
        ]

    def _mark_key(self, run: bytes, partition: int) -> bytes:
        return b"%b:derived:%b:%d" % (self._prefix, run.hex().encode(), partition)


@contextmanager
def _redis_errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise DerivationsUnavailable(reason=f"{type(error).__name__}: {error}"[:200]) from error


def make_store(settings: Settings, *, timeout_s: float | None = None) -> Store | None:
    """The store that the settings name, which connects when first used; None: nothing is kept.

    Args:
        settings: whose `derivations_url`.
        timeout_s: of one command; None: as the settings say.
    """
    url = settings.derivations_url
    if url is None:
        return None
    if url.startswith(SQLITE_SCHEME):
        path = Path(unquote(urlsplit(url).path))
        return SqliteStore(path, busy_s=BUSY_S if timeout_s is None else timeout_s)
    changes = {
        "redis_url": url,
        "redis_password": settings.derivations_password,
        "redis_timeout_s": settings.redis_timeout_s if timeout_s is None else timeout_s,
    }
    return RedisStore(connect_redis(settings.model_copy(update=changes)), settings.prefix)


class Derivations:
    """A store that may be missed: what is found there is whole, whatever goes wrong is counted.

    Args:
        store: None: nothing is kept.
        now: clock, seconds.

    Attributes:
        unkept: values that the store did not take, since this was made.
    """

    def __init__(self, store: Store | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now = now
        self._until_s: float | None = None
        self._met: Met | None = None
        self.unkept = 0

    @property
    def keeps(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    @contextmanager
    def listening(self) -> Iterator[Met]:
        """Keep nothing meanwhile, and note whatever is asked for.

        So what is kept of some events is met by deriving them once more: nobody else has to know by
        what it is kept. What is kept of a whole event is noted and not answered, so that what it
        was made of is asked for, too. It is for one thread, and for no other use of this.

        Yields:
            What was asked for so far, by kind.
        """
        met: Met = defaultdict(dict)
        self._met = met
        try:
            yield met
        finally:
            self._met = None

    @contextmanager
    def forgetting(self) -> Iterator[Met]:
        """Listen, and forget at the end whatever was asked for. See `listening`.

        Raises:
            DerivationsUnavailable: the store failed.
        """
        with self.listening() as met:
            yield met
        if self._store is not None:
            for kind, values in met.items():
                self._store.forget(kind, sorted(values))

    def get(self, kind: Kind, digests: Iterable[Digest]) -> dict[Digest, bytes]:
        """The values that are there and whole, by digest."""
        wanted = list(dict.fromkeys(digests))
        met = self._met
        if met is not None:
            met[kind] |= dict.fromkeys(wanted)
        if self._store is None or not wanted:
            return {}
        store = self._store
        answer = self._tried(lambda: store.get(kind, wanted))
        if answer is None:
            _count(kind, "lost", len(wanted))
            return {}
        whole = _opened(kind, answer)
        _count(kind, "hit", len(whole))
        _count(kind, "miss", len(wanted) - len(answer))
        self.damaged(kind, answer.keys() - whole.keys())
        if met is not None:
            met[kind] |= whole
            return {} if kind == "event" else whole
        return whole

    def put(self, kind: Kind, values: Mapping[Digest, bytes]) -> dict[Digest, bytes]:
        """Keep values by digest; returns for each the one that stands, perhaps another's."""
        if self._store is None or not values or self._met is not None:
            return dict(values)
        store = self._store
        sealed = {digest: _sealed(kind, digest, value) for digest, value in values.items()}
        standing = self._tried(lambda: store.put(kind, sealed))
        if standing is None:
            self.unkept += len(values)
            metrics.DERIVATIONS_UNKEPT.labels(kind=kind).inc(len(values))
            return dict(values)
        whole = _opened(kind, standing)
        if broken := standing.keys() - whole.keys():
            self.damaged(kind, broken)
            self._tried(lambda: store.put(kind, {digest: sealed[digest] for digest in broken}))
        return {**values, **whole}

    def damaged(self, kind: Kind, digests: Iterable[Digest]) -> None:
        """Count values that cannot be used, and drop them: another takes their place."""
        gone = list(digests)
        if gone:
            _count(kind, "damaged", len(gone))
            self.forget(kind, gone)

    def forget(self, kind: Kind, digests: Sequence[Digest]) -> None:
        """Drop values, as far as they are there and the store answers."""
        store = self._store
        if store is not None and digests:
            self._tried(lambda: store.forget(kind, digests))

    def mark(self, run: bytes, partition: int, seqs: Sequence[int]) -> None:
        """Note that entries of a partition are done, if the store answers."""
        store = self._store
        if store is not None and seqs:
            self._tried(lambda: store.mark(run, partition, seqs))

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()

    def _tried(self, call: Callable[[], Result]) -> Result | None:
        """What the store says; None where it fails, or did a moment ago."""
        if self._until_s is not None and self._now() < self._until_s:
            return None
        try:
            answer = call()
        except DerivationsUnavailable as error:
            self._until_s = self._now() + PAUSE_S
            logger.warning("derivations not at hand", reason=str(error), pause_s=PAUSE_S)
            return None
        self._until_s = None
        return answer


def shown_url(url: str) -> str:
    """A store's URL without what may be a password."""
    scheme, _, place = url.partition("://")
    server, slash, path = place.partition("/")
    return f"{scheme}://{server.rpartition('@')[2]}{slash}{path}"


class Tally(NamedTuple):
    """How many entries have all that is derived from them, and how many need nothing."""

    derived: int
    passed: int


def tally(
    settings: Settings, ledger: str, models: str, last_seqs: Sequence[int], *, within_s: float
) -> Tally | None:
    """What a store knows of a ledger's entries under the present rules; None: nothing is kept.

    Args:
        settings: whose store.
        ledger: tells it from any other.
        models: as a checkpoint names them.
        last_seqs: of each partition, the number of its last entry.
        within_s: how long to wait for the store, seconds.

    Raises:
        DerivationsUnavailable: it does not answer in time, or is damaged.
    """
    store = make_store(settings, timeout_s=within_s)
    if store is None:
        return None
    with closing(store):
        runs = run_of(ledger, models), passed_of(ledger)
        return Tally(*(store.marked(run, last_seqs) for run in runs))


@cache
def rules_digest() -> bytes:
    """Digest (16 bytes) of the sources of `enrichment`: other rules, other derivations."""
    sources = [path for path in files(enrichment).iterdir() if path.name.endswith(".py")]
    sources.sort(key=attrgetter("name"))
    return digest_of(*(part for path in sources for part in (path.name, path.read_bytes())))


def run_of(ledger: str, models: str) -> bytes:
    """By whom entries are marked that have their derivations: these rules and models (16 bytes).

    Args:
        ledger: tells it from any other.
        models: as a checkpoint names them.
    """
    return digest_of("derived", ledger, rules_digest(), models)


def passed_of(ledger: str) -> bytes:
    """By whom entries are marked that need no derivation, under any rules (16 bytes)."""
    return digest_of("passed", ledger)


def _count(kind: Kind, outcome: metrics.KeptOutcome, count: int) -> None:
    if count:
        metrics.DERIVATION_LOOKUPS.labels(kind=kind, outcome=outcome).inc(count)


def _checksum(kind: Kind, digest: Digest, value: bytes) -> bytes:
    begun = zlib.crc32(digest, zlib.crc32(kind.encode()))
    return zlib.crc32(value, begun).to_bytes(_CHECKSUM_BYTES, "big")


def _sealed(kind: Kind, digest: Digest, value: bytes) -> bytes:
    return value + _checksum(kind, digest, value)


def _opened(kind: Kind, sealed: Mapping[Digest, bytes]) -> dict[Digest, bytes]:
    """The values that are as they were written, by digest."""
    opened: dict[Digest, bytes] = {}
    for digest, data in sealed.items():
        value, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if checksum == _checksum(kind, digest, value):
            opened[digest] = value
    return opened


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    left = iter(items)
    while chunk := list(islice(left, _ROUND)):
        yield chunk
