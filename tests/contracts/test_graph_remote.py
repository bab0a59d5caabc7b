"""A graph that another process holds: whoever goes away, errs or says nonsense does no harm."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy
import pytest

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.memory_graphs import SMALL_URI, graph_socket, held
from pipelines.graph.port import Graph
from pipelines.graph.remote import BEGIN, GraphServer, memory_graph, remote_graph
from pipelines.graph.rows import LAST, End, FoundNode, Span
from pipelines.graph.wire import decoded, encoded
from pipelines.local.python_process import framed
from pipelines.work.settings import Settings
from projections.errors import Fenced, GraphUnavailable
from projections.identity import Position
from projections.operations import Checkpoint, EnsureNode, Operations
from projections.schema import EVENT
from tests.waiting import wait_until

STAGE = "projection"


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "s" / "graph"


@pytest.fixture
def held_graph() -> MemoryGraph:
    graph = MemoryGraph()
    graph.ensure_checkpoints(STAGE, 1, 1)
    return graph


@pytest.fixture
def server(path: Path, held_graph: MemoryGraph) -> Iterator[GraphServer]:
    made = GraphServer(held_graph, path, transaction_s=0.3)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def graph(server: GraphServer, path: Path) -> Graph:
    return remote_graph(path, timeout_s=30.0)


def placeholder(own_id: str) -> Operations:
    batch = Operations()
    batch.add(EnsureNode(EVENT.label, ("default", own_id)))
    return batch


def events(graph: Graph) -> list[str]:
    found = cast(Iterator[FoundNode], graph.stream(EVENT.label))
    return [node.key[1] for node in found]


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30.0)
    client.connect(str(path))
    return client


def test_a_transaction_of_a_process_that_dies_is_taken_back(graph: Graph, path: Path) -> None:
    client = connected(path)
    client.sendall(framed(encoded((BEGIN, (), {}))))
    client.recv(100)
    client.sendall(framed(encoded(("apply", (placeholder("a"), STAGE), {}))))
    client.recv(100)
    client.close()
    wait_until(lambda: events(graph) == [], "it is taken back")
    with graph.transaction() as transaction:
        transaction.apply(placeholder("b"), STAGE)
    assert events(graph) == ["b"]


def test_a_transaction_of_a_process_that_hangs_is_taken_back(graph: Graph) -> None:
    def hang() -> None:
        with graph.transaction() as transaction:
            transaction.apply(placeholder("a"), STAGE)
            threading.Event().wait(1.0)

    with pytest.raises(GraphUnavailable):
        hang()
    assert events(graph) == []


def test_an_error_of_the_graph_is_the_same_error_here(graph: Graph) -> None:
    elsewhere = Checkpoint(STAGE, 0, position=Position(5, 0))
    with pytest.raises(Fenced) as raised, graph.transaction() as transaction:
        transaction.advance(elsewhere, elsewhere)
    assert (raised.value.stage, raised.value.partition) == (STAGE, 0)


def test_an_error_here_takes_the_transaction_back(graph: Graph) -> None:
    def err() -> None:
        with graph.transaction() as transaction:
            transaction.apply(placeholder("a"), STAGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        err()
    assert events(graph) == []


@pytest.mark.parametrize(
    "frame",
    [
        b"no JSON",
        b'["tuple", "nodes"]',
        encoded(("__class__", (), {})),
        encoded(("transaction", (), {})),
        b'["tuple", "nodes", ["NoRecord", 1], ["dict"]]',
    ],
)
def test_what_is_no_question_ends_its_connection_alone(
    graph: Graph, path: Path, frame: bytes
) -> None:
    with connected(path) as client:
        client.sendall(framed(frame))
        assert client.recv(100) == b""
    assert events(graph) == []


def test_a_graph_that_nobody_serves_is_away(path: Path) -> None:
    with pytest.raises(GraphUnavailable, match="recollect up --small"):
        remote_graph(path, timeout_s=1.0).checkpoints()


def test_a_socket_that_a_killed_process_left_is_taken_over(
    path: Path, held_graph: MemoryGraph
) -> None:
    path.parent.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    server = GraphServer(held_graph, path, transaction_s=1.0)
    server.start()
    assert len(remote_graph(path, timeout_s=30.0).checkpoints()) == 1
    server.stop()
    assert not path.exists()


def test_values_pass_as_they_are() -> None:
    for value in (
        *(None, True, 1, 1.5, "ü", b"\x00\xff", (), ["a", ("b",)], {("k", 1): {"x"}}),
        FoundNode(("t", "e"), True, {"at": (1, 2)}, False),
        Span(("t", "s"), LAST, LAST, frozenset({"e"})),
        Checkpoint(STAGE, 3, position=Position(7, 1), models="m"),
        End.EITHER,
    ):
        passed = decoded(encoded(value))
        assert (type(passed), passed) == (type(value), value)
    vector = numpy.arange(3, dtype=numpy.float32)
    assert decoded(encoded(vector)).tolist() == vector.tolist()


def test_a_batch_passes_with_what_it_does_for_others() -> None:
    batch = placeholder("a")
    batch.on_behalf_of("consolidation").add(EnsureNode("Summary", ("default", "s")))
    passed = decoded(encoded(batch))
    assert list(passed) == list(batch)
    assert passed.others.keys() == {"consolidation"}
    assert passed.stage == batch.stage


def test_what_is_no_value_of_the_port_does_not_pass() -> None:
    with pytest.raises(TypeError, match="object"):
        encoded(object())


def test_the_graph_of_the_small_edition_is_asked_for_where_its_folder_says(
    tmp_path: Path, path: Path, held_graph: MemoryGraph
) -> None:
    here = Settings(data_dir=tmp_path / "a", model_process_dir=path.parent)
    other = Settings(data_dir=tmp_path / "b", model_process_dir=path.parent)
    server = GraphServer(held_graph, graph_socket(here), transaction_s=1.0)
    server.start()
    assert held(SMALL_URI) is None
    assert memory_graph(SMALL_URI, here).store_id() == held_graph.store_id()
    with pytest.raises(GraphUnavailable):
        memory_graph(SMALL_URI, other).store_id()
    with pytest.raises(GraphUnavailable, match="another process"):
        memory_graph("memory://theirs", here)
    server.stop()
