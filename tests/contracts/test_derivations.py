"""What was derived is kept: one contract on a SQLite file and on a Valkey, away and damaged."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from enrichment.ports import Analysis, Embedder, Token
from enrichment.stage import derive_event
from enrichment.text import event_text
from enrichment.vectors import pack, unpack
from pipelines.local.processes import free_port
from pipelines.models import derivations
from pipelines.models.analyst import encode_analysis
from pipelines.models.derivations import (
    PAUSE_S,
    Derivations,
    RedisStore,
    SqliteStore,
    Store,
    digest_of,
    make_store,
    passed_of,
    run_of,
    shown_url,
    tally,
)
from pipelines.models.loaded import KeptEmbedder, KeptRecognizer
from pipelines.observe import metrics
from pipelines.work import event_derivations
from pipelines.work.event_derivations import EventDerivations, Source
from pipelines.work.settings import Settings
from projections.errors import DerivationsUnavailable
from projections.identity import Position
from tests.bench.sample import sample_events
from tests.factories import event
from tests.stages.enriched import returned

pytestmark = pytest.mark.integration

A, B, C = (digest_of(name) for name in "abc")
RUN = digest_of("run")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "derivations.sqlite"


@pytest.fixture(params=["sqlite", "redis"])
def settings(request: pytest.FixtureRequest, path: Path) -> Settings:
    """Settings that lead to one of the two."""
    if request.param == "sqlite":
        return Settings(derivations_url=f"sqlite://{path}")
    url = request.getfixturevalue("redis_url")
    return Settings(redis_url="redis://127.0.0.1:1/0", derivations_url=url)


@pytest.fixture
def open_store(settings: Settings) -> Iterator[Callable[[], Store]]:
    """Opens the store once more, as another process would."""
    opened: list[Store] = []

    def make() -> Store:
        store = make_store(settings)
        assert store is not None
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()


@pytest.fixture
def file(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    made.close()


def lookups(outcome: str, kind: str = "vector") -> float:
    value: float = metrics.DERIVATION_LOOKUPS.labels(kind=kind, outcome=outcome)._value.get()
    return value


def unkept(kind: str = "vector") -> float:
    value: float = metrics.DERIVATIONS_UNKEPT.labels(kind=kind)._value.get()
    return value


def raw(settings: Settings, kind: str, digest: bytes, data: bytes) -> None:
    """Put bytes in the place of a value, past the store."""
    url = str(settings.derivations_url)
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite://")) as db:
            changed = db.execute(
                "UPDATE derivation SET value = ? WHERE kind = ? AND digest = ?",
                (data, kind, digest),
            )
            assert changed.rowcount == 1
        db.close()
    else:
        with redis.Redis.from_url(url) as client:
            assert client.set(b"rc:derivation:%b:%b" % (kind.encode(), digest), data, xx=True)


# Both stores


def test_digests_keep_their_parts_apart() -> None:
    parts = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("x\ud800",), ("x?",)]
    assert len({digest_of(*given) for given in parts}) == len(parts)
    assert digest_of("a", b"b") == digest_of(b"a", "b")


def test_what_was_put_is_there_for_another_process(open_store: Callable[[], Store]) -> None:
    values = {digest_of(str(number)): b"%d" % number for number in range(700)}
    assert open_store().put("vector", values) == {}
    other = open_store()
    assert other.get("vector", [*values, A]) == values
    assert other.get("analysis", list(values)) == {}


def test_the_first_value_stays(open_store: Callable[[], Store]) -> None:
    first, second = open_store(), open_store()
    assert first.put("vector", {A: b"first", B: b"same"}) == {}
    assert second.put("vector", {A: b"second", B: b"same", C: b"new"}) == {A: b"first"}
    assert first.get("vector", [A, B, C]) == {A: b"first", B: b"same", C: b"new"}


def test_of_threads_that_put_at_once_one_is_first_for_all(open_store: Callable[[], Store]) -> None:
    digests = [digest_of(str(number)) for number in range(50)]
    stores = [open_store() for _ in range(4)]
    used: list[dict[bytes, bytes]] = []

    def put(number: int) -> None:
        mine = dict.fromkeys(digests, b"%d" % number)
        used.append({**mine, **stores[number % 4].put("vector", mine)})

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(used) == 8
    assert all(one == used[0] for one in used)


def test_what_is_forgotten_is_gone(store: Store) -> None:
    store.put("vector", {A: b"a", B: b"b"})
    store.forget("vector", [A, C])
    assert store.get("vector", [A, B]) == {B: b"b"}
    assert store.put("vector", {A: b"another"}) == {}


def test_marks_are_counted_once_and_up_to_a_number(store: Store) -> None:
    store.mark(RUN, 0, [1, 2, 3])
    store.mark(RUN, 0, [3, 2, 5])
    store.mark(RUN, 2, [1, 900])
    store.mark(digest_of("other run"), 0, [4])
    assert store.marked(RUN, [5, 10, 900]) == 6
    assert store.marked(RUN, [4, 10, 899]) == 4
    assert store.marked(RUN, [0, 0, 0]) == 0
    store.mark(RUN, 1, range(4_000, 12_300))
    assert store.marked(RUN, [5, 12_299, 900]) == 6 + 8_300
    assert [store.marked(RUN, [0, n]) for n in (4_095, 4_096, 8_191, 8_192)] == [
        96,
        97,
        4_192,
        4_193,
    ]
    assert store.marked(digest_of("nobody"), [5, 5, 5]) == 0


def test_values_that_are_no_text_are_kept_as_they_are(store: Store) -> None:
    values = {A: b"", B: bytes(range(256)), C: b"\x00" * 70_000}
    store.put("answer", values)
    assert store.get("answer", [A, B, C]) == values


# In front of them: whole, or computed again


@pytest.mark.parametrize(
    "damage",
    [b"", b"xyz", b"a vector" + b"\x00" * 4, b"b vector" + zlib.crc32(b"a vector").to_bytes(4)],
    ids=["empty", "short", "no checksum", "another's checksum"],
)
def test_a_damaged_value_is_counted_and_takes_no_place(
    store: Store, settings: Settings, damage: bytes
) -> None:
    front = Derivations(store)
    front.put("vector", {A: b"a vector", B: b"another"})
    raw(settings, "vector", A, damage)
    damaged, hits, misses = lookups("damaged"), lookups("hit"), lookups("miss")
    assert front.get("vector", [A, B, C]) == {B: b"another"}
    told = [lookups("damaged") - damaged, lookups("hit") - hits, lookups("miss") - misses]
    assert told == [1, 1, 1]
    assert front.put("vector", {A: b"made again"}) == {A: b"made again"}
    assert front.get("vector", [A]) == {A: b"made again"}


def test_a_value_under_another_name_is_damaged(store: Store, settings: Settings) -> None:
    front = Derivations(store)
    front.put("vector", {A: b"a", B: b"b"})
    raw(settings, "vector", A, store.get("vector", [B])[B])
    assert front.get("vector", [A, B]) == {B: b"b"}


def test_put_finds_a_damaged_value_that_stands_in_its_way(store: Store, settings: Settings) -> None:
    front = Derivations(store)
    front.put("vector", {A: b"a"})
    raw(settings, "vector", A, b"junk")
    assert front.put("vector", {A: b"again"}) == {A: b"again"}
    assert front.get("vector", [A]) == {A: b"again"}


def test_who_is_second_uses_what_stands(open_store: Callable[[], Store]) -> None:
    first, second = Derivations(open_store()), Derivations(open_store())
    assert first.put("vector", {A: b"first"}) == {A: b"first"}
    assert second.put("vector", {A: b"second"}) == {A: b"first"}


def test_without_a_store_nothing_is_kept_or_counted() -> None:
    front = Derivations(None)
    before = lookups("miss"), lookups("lost"), unkept()
    assert front.put("vector", {A: b"a"}) == {A: b"a"}
    assert (front.get("vector", [A]), front.keeps, front.unkept) == ({}, False, 0)
    front.mark(RUN, 0, [1])
    assert (lookups("miss"), lookups("lost"), unkept()) == before


def away(tmp_path: Path) -> list[Settings]:
    """Stores that do not answer."""
    (tmp_path / "folder").mkdir()
    return [
        Settings(derivations_url=f"redis://127.0.0.1:{free_port()}/0"),
        Settings(derivations_url=f"sqlite://{tmp_path}/missing/derivations.sqlite"),
        Settings(derivations_url=f"sqlite://{tmp_path}/folder"),
    ]


@pytest.mark.parametrize("number", [0, 1, 2], ids=["redis", "no folder", "a folder"])
def test_a_store_that_is_away_is_left_alone_for_a_while(tmp_path: Path, number: int) -> None:
    now_s = [100.0]
    settings = away(tmp_path)[number]
    front = Derivations(make_store(settings), now=lambda: now_s[0])
    lost, left = lookups("lost"), unkept()
    assert front.get("vector", [A, B]) == {}
    assert front.put("vector", {A: b"a"}) == {A: b"a"}
    assert (lookups("lost") - lost, unkept() - left, front.unkept) == (2, 1, 1)
    asked: list[object] = []
    front._store = cast_store(asked)
    assert front.get("vector", [A]) == {}
    assert asked == []
    now_s[0] += PAUSE_S
    front.get("vector", [A])
    assert len(asked) == 1
    with pytest.raises(DerivationsUnavailable):
        tally(settings, "ledger", "models", [1], within_s=0.3)


def cast_store(asked: list[object]) -> Any:
    """A store that only remembers that it was asked."""

    class Asked:
        def get(self, *given: object) -> dict[bytes, bytes]:
            asked.append(given)
            return {}

    return Asked()


def test_a_server_that_is_full_refuses_and_nobody_is_stopped(
    redis_url: str,
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        front = Derivations(RedisStore(client, "rc"))
        before = unkept()
        client.config_set("maxmemory", 1)
        try:
            assert front.put("vector", {A: b"a"}) == {A: b"a"}
        finally:
            client.config_set("maxmemory", 0)
        assert unkept() - before == 1


# The file


def test_the_files_are_their_users_alone(file: SqliteStore, path: Path) -> None:
    before = os.umask(0)
    try:
        file.put("vector", {A: b"a"})
    finally:
        os.umask(before)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == dict.fromkeys(
        (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}.lock"), 0o600
    )


def test_who_only_counts_makes_no_file(file: SqliteStore, path: Path) -> None:
    assert file.marked(RUN, [1]) == 0
    assert not path.exists()


@pytest.mark.parametrize("beside", [False, True], ids=["file", "file and log"])
def test_a_file_that_is_deleted_in_use_is_made_anew_and_shared_again(
    file: SqliteStore, path: Path, beside: bool
) -> None:
    other = SqliteStore(path)
    file.put("vector", {A: b"a"})
    assert other.get("vector", [A]) == {A: b"a"}
    path.unlink()
    if beside:
        for name in ("wal", "shm"):
            path.with_name(f"{path.name}-{name}").unlink()
    assert other.get("vector", [A]) == {}
    other.put("vector", {A: b"again"})
    assert file.get("vector", [A]) == {A: b"again"}
    file.put("vector", {B: b"b"})
    assert other.get("vector", [B]) == {B: b"b"}
    file.close()
    other.close()
    assert SqliteStore(path).get("vector", [A, B]) == {A: b"again", B: b"b"}
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def overwrite(path: Path, begin: int, count: int = 4_096) -> None:
    with path.open("r+b") as out:
        out.seek(begin)
        out.write(os.urandom(count))


@pytest.mark.parametrize("begin", [0, 4_096], ids=["head", "page"])
def test_a_damaged_file_is_put_aside_and_begun_anew(
    file: SqliteStore, path: Path, begin: int
) -> None:
    values = {digest_of(str(number)): os.urandom(400) for number in range(500)}
    file.put("vector", values)
    file.close()
    overwrite(path, begin)
    other = SqliteStore(path)
    found = Derivations(other).get("vector", values)
    assert found.items() <= values.items()
    front = Derivations(file)
    front.put("vector", values)
    assert front.unkept == 0
    assert front.get("vector", values) == values
    assert path.with_name(f"{path.name}.damaged").exists()
    assert other.get("vector", [A]) == {}
    other.close()


def test_a_file_that_is_held_too_long_is_not_waited_for(path: Path) -> None:
    short = SqliteStore(path, busy_s=0.05)
    short.put("vector", {A: b"a"})
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(DerivationsUnavailable, match="locked"):
        short.put("vector", {B: b"b"})
    assert short.get("vector", [A]) == {A: b"a"}
    holder.execute("ROLLBACK")
    holder.close()
    assert short.put("vector", {B: b"b"}) == {}
    short.close()


WRITER = """
import sys
from pathlib import Path
from pipelines.models.derivations import Derivations, SqliteStore, digest_of
front = Derivations(SqliteStore(Path(sys.argv[1])))
for number in range(int(sys.argv[2]), 10_000_000, 7):
    values = {digest_of(str(n)): str(n).encode() * 300 for n in range(number, number + 7)}
    front.put("vector", values)
    if number == int(sys.argv[2]):
        print("writing", flush=True)
"""


def test_a_writer_that_is_killed_leaves_values_whole_or_absent(path: Path) -> None:
    reached, rounds = 0, 8
    for one in range(rounds):
        command = [sys.executable, "-c", WRITER, str(path), str(one * 100_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"writing\n"
            time.sleep(0.03 * one)
            child.send_signal(signal.SIGKILL)
        store = SqliteStore(path)
        wanted = {
            digest_of(str(number)): str(number).encode() * 300
            for begun in range(one + 1)
            for number in range(begun * 100_000, begun * 100_000 + 3_000)
        }
        damaged = lookups("damaged")
        found = Derivations(store).get("vector", wanted)
        assert found.items() <= wanted.items()
        assert lookups("damaged") == damaged
        assert len(found) >= reached + 7
        reached = len(found)
        store.close()
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()
    assert not path.with_name(f"{path.name}.damaged").exists()


# Where it is


@pytest.mark.parametrize(
    ("ledger", "url"),
    [
        ("redis://127.0.0.1:6379/0", "redis://localhost:6379/0"),
        ("redis://127.0.0.1:6379", "redis://:secret@127.0.0.1/0"),
        ("redis://Cache:7000/2", "redis://cache:7000/2?protocol=3"),
        ("redis://cache:7000?db=2", "rediss://cache:7000/2"),
    ],
)
def test_the_ledgers_own_database_is_refused(ledger: str, url: str) -> None:
    with pytest.raises(ValueError, match=r"(?s)derivations_url.*redis_url"):
        Settings(redis_url=ledger, derivations_url=url)


@pytest.mark.parametrize(
    "url", ["sqlite://relative.sqlite", "sqlite:///", "file:///tmp/x", "redis+sentinel://a/b/0", ""]
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="derivations_url"):
        Settings(derivations_url=url)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/1", "redis://other:6379/0"])
def test_another_database_is_taken(url: str) -> None:
    assert isinstance(make_store(Settings(derivations_url=url)), RedisStore)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:se@cret@host:1/2", "redis://host:1/2"),
        ("rediss://host", "rediss://host"),
        ("sqlite:///a/b@c.sqlite", "sqlite:///a/b@c.sqlite"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_path_with_spaces_is_found(tmp_path: Path) -> None:
    store = make_store(Settings(derivations_url=f"sqlite://{tmp_path}/a%20file.sqlite"))
    assert store is not None
    store.put("vector", {A: b"a"})
    store.close()
    assert (tmp_path / "a file.sqlite").exists()


# Models behind it


class CountingEmbedder(Embedder):
    """Vectors made of the text's length; remembers what it was asked for."""

    def __init__(self, revision: str = "r1", more: float = 0.0, model: str = "model") -> None:
        self.model, self.revision, self.dimensions = model, revision, 4
        self.asked: list[str] = []
        self.more = more

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.asked += texts
        return [struct.pack("<4f", len(text), self.more, 0, 1) for text in texts]


class CountingRecognizer:
    """Finds the whole text as a word; goes without for `bad`."""

    model, revision = "nlp", "r1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def analyze_encoded(self, texts: Sequence[str]) -> list[bytes | None]:
        self.asked += texts
        return [None if text == "bad" else encode_analysis(word(text)) for text in texts]


def word(text: str) -> Analysis:
    return Analysis(tokens=(Token(text, text, "NOUN", 0, 0, "ROOT"),))


def test_a_text_is_embedded_once_and_fresh_is_as_kept(open_store: Callable[[], Store]) -> None:
    embedder = CountingEmbedder()
    first = KeptEmbedder(embedder, Derivations(open_store())).embed(["a", "bb", "a", ""])
    again = KeptEmbedder(embedder, Derivations(open_store())).embed(["bb", "a", "", "a"])
    without = KeptEmbedder(CountingEmbedder(), Derivations(None)).embed(["a", "bb", "a", ""])
    assert embedder.asked == ["a", "bb", ""]
    assert first == without == [again[1], again[0], again[3], again[2]]
    assert first == unpack(pack(CountingEmbedder().embed(["a", "bb", "a", ""])))


def test_of_two_processors_the_first_ones_vector_is_used(open_store: Callable[[], Store]) -> None:
    texts = ["a", "bb"]
    first = KeptEmbedder(CountingEmbedder(), Derivations(open_store()))
    store = open_store()
    late = KeptEmbedder(CountingEmbedder(more=0.5), Derivations(store))
    blind: Any = late._derivations
    blind.get = lambda kind, digests: {}  # it looked before the first one wrote
    assert first.embed(texts) == late.embed(texts)


def test_another_model_of_the_same_weights_is_another_vector(store: Store) -> None:
    front = Derivations(store)
    plain = KeptEmbedder(CountingEmbedder(), front).embed(["a"])
    int8 = CountingEmbedder(model="model-int8", more=0.5)
    assert (
        KeptEmbedder(int8, front).embed(["a"])
        != plain
        == KeptEmbedder(CountingEmbedder(), front).embed(["a"])
    )
    assert int8.asked == ["a"]


def test_another_revision_is_another_vector(store: Store) -> None:
    front = Derivations(store)
    KeptEmbedder(CountingEmbedder("r1"), front).embed(["a"])
    newer = CountingEmbedder("r2")
    assert (KeptEmbedder(newer, front).revision, newer.asked) == ("r2", [])
    KeptEmbedder(newer, front).embed(["a"])
    assert newer.asked == ["a"]


def test_a_vector_of_another_length_is_computed_again(store: Store) -> None:
    front, embedder = Derivations(store), CountingEmbedder()
    front.put("vector", {digest_of("model", "r1", "a"): b"short"})
    before = lookups("damaged")
    made = KeptEmbedder(embedder, front)
    assert made.embed(["a"]) == made.embed(["a"])
    assert (embedder.asked, lookups("damaged") - before) == (["a"], 1)


def test_a_text_is_analysed_once_and_a_failed_one_again(store: Store) -> None:
    recognizer, front = CountingRecognizer(), Derivations(store)
    made = KeptRecognizer(recognizer, front)
    expected = [word("a"), Analysis()]
    assert [made.analyze(["a", "bad"]), made.analyze(["a", "bad"])] == [expected] * 2
    assert recognizer.asked == ["a", "bad", "bad"]


@pytest.mark.parametrize("damage", [b"", b"junk", zlib.compress(b"{}"), zlib.compress(b"[[[]]")])
def test_an_analysis_that_is_none_is_made_again(store: Store, damage: bytes) -> None:
    recognizer, front = CountingRecognizer(), Derivations(store)
    front.put("analysis", {digest_of("nlp", "r1", "a"): damage})
    made = KeptRecognizer(recognizer, front)
    assert made.analyze(["a"]) == made.analyze(["a"]) == [word("a")]
    assert recognizer.asked == ["a"]


# What the rules found


BOOKING = {"reservation_id": "R1", "status": "cancelled", "user_id": "u_1", "price": 12.5}
EVENTS = [
    *sample_events(40),
    event(9_000, payload={"content": "Ada pays 12.50 EUR", "role": "user"}),
    returned(9_001, "cancel_reservation", BOOKING),
]
SOURCES = [Source((Position(1_000 + n, n), one)) for n, one in enumerate(EVENTS)]


def derived_of(sources: Sequence[Source]) -> dict[tuple[str, str], Any]:
    made = {}
    for (position, one), content in sources:
        text = event_text(one, content)
        analysis = word(text.text) if text.text else Analysis()
        made[one.key] = derive_event(position, one, text, analysis, content=content)
    return made


def events_of(store: Store, recognizer: str = "nlp@r1", models: str = "m") -> EventDerivations:
    return EventDerivations(Derivations(store), recognizer=recognizer, ledger="rc:1", models=models)


def test_what_the_rules_found_is_read_as_it_was(open_store: Callable[[], Store]) -> None:
    derived = derived_of(SOURCES)
    assert any(one.assertions for one in derived.values())
    assert any(one.mentions for one in derived.values())
    events_of(open_store()).write(SOURCES, derived)
    assert events_of(open_store()).read(SOURCES) == derived


def test_a_derivation_is_of_one_event_and_of_what_is_behind_its_reference(store: Store) -> None:
    kept_events = events_of(store)
    kept_events.write(SOURCES, derived_of(SOURCES))
    (at, one), _ = SOURCES[0]
    assert kept_events.read([Source((at, one), {"other": 1})]) == {}
    assert kept_events.read([Source((at, one._replace(user_id="else")))]) == {}
    moved = Position(77, 7)
    (found,) = kept_events.read([Source((moved, one))]).values()
    assert found == derived_of([Source((moved, one))])[one.key]


def test_other_rules_and_other_models_make_their_own_in_its_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = derived_of(SOURCES)
    events_of(store).write(SOURCES, derived)
    assert events_of(store, recognizer="nlp@r2").read(SOURCES) == {}
    monkeypatch.setattr(event_derivations, "rules_digest", lambda: bytes(16))
    newer = events_of(store)
    assert newer.read(SOURCES) == {}
    newer.write(SOURCES, derived)
    assert newer.read(SOURCES) == derived
    monkeypatch.undo()
    assert events_of(store).read(SOURCES) == {}


def test_of_two_workers_the_first_ones_derivation_is_used(open_store: Callable[[], Store]) -> None:
    derived = derived_of(SOURCES[:3])
    key, one = next(iter(derived.items()))
    assert events_of(open_store()).write(SOURCES[:3], derived) == derived
    late = {**derived, key: one._replace(summary="of another processor")}
    assert events_of(open_store()).write(SOURCES[:3], late) == derived
    assert events_of(open_store()).read(SOURCES[:3]) == derived


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"[1", b'[["message","x",null,0],[],"",1]'])
def test_a_derivation_that_is_none_is_damaged(store: Store, damage: bytes) -> None:
    kept_events = events_of(store)
    front = Derivations(store)
    (digest,) = event_derivations._by_digest(SOURCES[:1])
    front.put("event", {digest: kept_events._made_by + damage})
    before = lookups("damaged", "event")
    assert kept_events.read(SOURCES[:1]) == {}
    assert lookups("damaged", "event") - before == 1
    kept_events.write(SOURCES[:1], derived_of(SOURCES[:1]))
    assert kept_events.read(SOURCES[:1]) == derived_of(SOURCES[:1])


def test_marks_are_by_rules_and_models_and_passing_is_not(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [(n % 2, n // 2 + 1, one) for n, one in enumerate(EVENTS[:20])]
    keys = [one.key for one in EVENTS[:20]]
    events_of(store).mark(entries, set(keys[:12]), set(keys[18:]))

    def told(ledger: str = "rc:1", models: str = "m") -> tuple[int, ...]:
        counted = tally(settings, ledger, models, [10, 10], within_s=1.0)
        assert counted is not None
        return tuple(counted)

    assert told() == (12, 2)
    assert told(models="others") == (0, 2)
    assert told(ledger="another") == (0, 0)
    monkeypatch.setattr(derivations, "rules_digest", lambda: bytes(16))
    assert told() == (0, 2)
    assert run_of("rc:1", "m") != passed_of("rc:1")
    assert tally(Settings(), "rc:1", "m", [10, 10], within_s=1.0) is None
