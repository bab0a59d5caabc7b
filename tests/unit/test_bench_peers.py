"""The harness of `make bench-peers`, with the one peer that needs no package: comparing by hand."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.models.installed import DIMENSIONS
from pipelines.operations.load_generator import Latency
from tests.bench.peers.measure import (
    Extent,
    Turn,
    figures,
    filled_peers,
    of_waits,
    ratios,
    taken_in_turns,
)
from tests.bench.peers.memory import EmbeddedMemory, embedded
from tests.bench.peers.peer import BY_HAND, LANCEDB, PEERS, Vector, Vectors
from tests.bench.peers.process import PeerFailed, PeerProcess, environment, write_source
from tests.bench.peers.report import markdown
from tests.bench.peers.sides import RECOLLECT, Embedder
from tests.bench.query import newest
from tests.bench.query.graph import Memory
from tests.bench.query.newest import waits_for_new

SIZE = 200
PYTHON = Path(sys.executable)


class HashedWords(Embedder):
    """A direction for each word, so that texts with the same words are alike."""

    def __init__(self) -> None:
        pass

    def embed(self, text: str) -> Vector:
        vector = np.zeros(DIMENSIONS, np.float32)
        for word in text.lower().strip("?").split():
            vector[hashlib.blake2b(word.encode()).digest()[0]] += 1
        unit: Vector = vector / np.linalg.norm(vector)
        return unit

    def cpu_s(self) -> float:
        return 0.0


@pytest.fixture(scope="module")
def memory() -> EmbeddedMemory:
    vectors = [HashedWords().embed(event["text"]) for event in Memory(SIZE).events()]
    return EmbeddedMemory(SIZE, vectors=np.array(vectors))


@pytest.fixture
def source(memory: EmbeddedMemory, tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    write_source(folder, memory.records(), memory.vectors)
    return folder


def peer(name: str, tmp_path: Path) -> PeerProcess:
    folder = tmp_path / "peer"
    folder.mkdir()
    return PeerProcess(PYTHON, name, folder)


@pytest.fixture
def by_hand(source: Path, tmp_path: Path) -> Iterator[PeerProcess]:
    process = peer(BY_HAND, tmp_path)
    process.fill(source)
    with process:
        yield process


def nearest(memory: EmbeddedMemory, vector: Vector, k: int) -> list[str]:
    order = np.argsort(-(memory.vectors @ vector), kind="stable")
    return [memory.event_id(int(place)) for place in order[:k]]


def test_a_process_that_did_not_fill_the_folder_answers_from_it(
    by_hand: PeerProcess, memory: EmbeddedMemory
) -> None:
    distinct = np.random.default_rng(3).normal(size=DIMENSIONS).astype(np.float32)
    assert by_hand.ask("", distinct, 7) == nearest(memory, distinct, 7)
    assert len(by_hand.ask("", distinct, 2 * SIZE)) == SIZE
    assert by_hand.version() == f"numpy {np.__version__}"


def test_what_is_added_is_found(by_hand: PeerProcess, memory: EmbeddedMemory) -> None:
    vector = HashedWords().embed("quagga")
    record = memory.records()[0]._replace(id="new", text="quagga")
    assert "new" not in by_hand.ask("quagga", vector, SIZE)
    by_hand.add(record, vector)
    assert by_hand.ask("quagga", vector, 1) == ["new"]


def test_what_a_peer_used_grows_as_it_is_asked(
    by_hand: PeerProcess, memory: EmbeddedMemory
) -> None:
    before = by_hand.spent()
    for vector in memory.vectors:
        by_hand.ask("", vector, 10)
    assert by_hand.spent().cpu_s > before.cpu_s
    assert by_hand.spent().memory_mb > 10


def test_a_peer_whose_package_is_not_there_says_so(source: Path, tmp_path: Path) -> None:
    process = peer("Chroma", tmp_path)
    with pytest.raises(PeerFailed, match="No module named 'chromadb'"):
        process.fill(source)
    with process, pytest.raises(PeerFailed, match="No module named 'chromadb'"):
        process.version()


def test_a_peer_that_fails_at_a_question_has_its_words_in_the_error(by_hand: PeerProcess) -> None:
    with pytest.raises(PeerFailed, match="matmul"):
        by_hand.ask("", np.zeros(3, np.float32), 1)
    with pytest.raises(PeerFailed, match="matmul"):  # it is gone, and nothing is waited for
        by_hand.version()


def test_a_peer_gets_nothing_of_our_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RECOLLECT_NEO4J_PASSWORD", "secret")
    given = environment(tmp_path)
    assert "secret" not in given.values()
    assert (given["ANONYMIZED_TELEMETRY"], given["MEM0_TELEMETRY"]) == ("False", "False")


def test_every_peer_has_a_module() -> None:
    root = Path(__file__).parents[2]
    assert [
        name
        for name in PEERS
        if not (root / PEERS[name].replace(".", "/")).with_suffix(".py").exists()
    ] == []


def test_the_figures_of_a_run(memory: EmbeddedMemory) -> None:
    extent = Extent(count=5, turns=2, rate=100, warm=2, new=2)
    with filled_peers(PYTHON, [BY_HAND], memory, HashedWords()) as sides:
        turns = taken_in_turns(sides, memory, extent)
        row = figures(sides[0], turns, extent)
    assert [turn.latency.asked for turn in turns[BY_HAND]] == [5, 5]
    assert (row["asked"], row["failed"]) == (10, 0)
    assert (
        0 < row["cpu_ms"] == pytest.approx(row["cpu_alone_ms"] + row["cpu_embedder_ms"], abs=0.02)
    )
    assert 0 < row["p50_ms"] <= row["p95_ms"]
    assert row["accepted_ms"] > 0
    assert row["found_ms"] > 0
    assert row["disk_mb"] >= round(memory.vectors.nbytes / 2**20, 1)
    assert "cpu_ratio" not in row


def turn(cpu_ms: float, p95_ms: float) -> Turn:
    latency = Latency("", 10.0, 5, p95_ms / 2, p95_ms, p95_ms, 0)
    return Turn(latency, cpu_ms - 1, 1)


def test_a_ratio_is_the_median_over_the_turns() -> None:
    mine = [turn(30, 10), turn(20, 40), turn(90, 90)]
    its = [turn(10, 10), turn(20, 20), turn(45, 30)]
    assert ratios(mine, its) == {"cpu_ratio": 2.0, "p95_ratio": 2.0}
    assert ratios(mine, None) == {}


@pytest.mark.parametrize(("ratio", "word"), [(1.5, "met"), (1.51, "missed")])
def test_the_report_says_whether_the_aim_is_met(ratio: float, word: str) -> None:
    row = {
        **dict.fromkeys(("cpu_alone_ms", "cpu_embedder_ms", "cpu_ms", "p50_ms", "p95_ms"), 2.0),
        **dict.fromkeys(("accepted_ms", "found_ms", "disk_mb", "memory_mb"), 3.0),
        "asked": 10,
        "lost": 2,
        "new": 20,
        "failed": 1,
        "cpu_ratio": ratio,
        "p95_ratio": 4.0,
    }
    about = dict.fromkeys(("system", "architecture", "cores", "python", "load_before"), "x")
    document = {
        "machine": about | {"neo4j_heap_mb": 1_024, "neo4j_page_cache_mb": 1_024},
        "arguments": ["--quick", "--json", "peers.json"],
        "sizes": {"10000": {RECOLLECT: row, LANCEDB: row | {"version": "lancedb 1.2"}}},
    }
    lines = markdown(document).splitlines()
    assert {line.count("|") for line in lines[:4]} == {16}
    assert lines[3].startswith("| 10,000 | LanceDB hybrid (lancedb 1.2) | 2.0 | 2.0 | 2.0 |")
    assert lines[3].endswith("| 1 of 10 | 3 | 3 | 2 of 20 | 3 | 3 |")
    assert lines[5] == (
        f"10,000 events: {ratio} x LanceDB's processor time a question; aim ≤ 1.5: {word}."
    )
    assert lines[6].endswith('Made by `make bench-peers BENCH_ARGS="--quick"`.')


def test_a_memory_wants_a_vector_for_each_event(memory: EmbeddedMemory) -> None:
    first = next(memory.events())
    assert first["vector"] == memory.vectors[0].tolist()
    short: Vectors = memory.vectors[:-1]
    with pytest.raises(ValueError, match="shorter"):
        list(EmbeddedMemory(SIZE, vectors=short).events())


def test_vectors_are_of_the_model_and_are_kept(tmp_path: Path) -> None:
    vectors = embedded(3, tmp_path).vectors
    assert vectors.shape == (3, DIMENSIONS)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    assert not np.allclose(vectors[0], vectors[1], atol=0.01)
    (file,) = tmp_path.iterdir()
    np.save(file, np.zeros_like(vectors))
    assert not embedded(3, tmp_path).vectors.any()
    assert embedded(2, tmp_path).vectors.any()


def test_an_event_that_is_never_found_is_lost_and_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(newest, "PATIENCE_S", 0.01)
    accepted: list[str] = []

    def ask(question: str) -> list[str]:
        return accepted[1:2]

    waits = waits_for_new(lambda event_id, text: accepted.append(event_id), ask, 3)
    assert [math.isfinite(wait.found) for wait in waits] == [False, True, False]
    row = of_waits(waits)
    assert (row["lost"], row["new"]) == (2, 3)
    assert row["found_ms"] == round(waits[1].found, 2)
    assert of_waits(waits[:1])["found_ms"] is None
