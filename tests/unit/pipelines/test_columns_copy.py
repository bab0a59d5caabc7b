"""The copy of the columns on disk: what it says is whole and of this graph, or is not believed."""

from __future__ import annotations

import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipelines.columns import copy as copies
from pipelines.columns.copy import Copy
from pipelines.columns.follow import Columns
from pipelines.columns.loading import Readings
from pipelines.columns.tenant import NODE_PROPERTIES
from pipelines.graph import memory
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.sealing import ERASED_USER
from projections.errors import GraphUnavailable
from projections.identity import Position
from projections.operations import MergeEdge, RemoveNode
from projections.schema import CAUSED_BY, DIRECT, EVENT
from projections.structural import event_node
from tests.contracts.test_graph_feed import A, B, apply, occurred
from tests.factories import event
from tests.unit.pipelines.test_columns_follow import held

EVENTS = 300
FLIPS = 40


class Streamed(MemoryGraph):
    """Counts how often all of it was read; away from so many streams on, if told so."""

    loads = 0
    streams: int | None = None

    def stream(
        self,
        label_or_type: str,
        properties: Sequence[str] = (),
        *,
        tenants: Collection[str] | None = None,
    ) -> Iterator[FoundNode] | Iterator[FoundEdge]:
        if self.streams is not None:
            self.streams -= 1
            if self.streams < 0:
                raise GraphUnavailable(reason="away")
        self.loads += label_or_type == EVENT.label
        return super().stream(label_or_type, properties, tenants=tenants)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "columns" / "copy.sqlite"


@pytest.fixture
def graph() -> Streamed:
    written = Streamed()
    apply(written, *(occurred(("t", f"event {n}"), n) for n in range(EVENTS)))
    link = MergeEdge(type=CAUSED_BY.type, source=A, target=B, values={"mechanism": DIRECT})
    apply(written, occurred(A), occurred(B), link)
    return written


def loaded(graph: Graph, path: Path | None) -> dict[str, Any]:
    """What columns hold that have just been loaded."""
    columns = Columns(graph, path)
    columns.load()
    columns.close()
    return held(columns)


def loads_of(graph: Streamed, path: Path) -> int:
    """Loads columns, which must be right; how often all of the graph was read for it."""
    expected = loaded(graph, None)
    before = graph.loads
    assert loaded(graph, path) == expected
    return graph.loads - before


def test_the_second_start_reads_the_copy_and_what_came_since(graph: Streamed, path: Path) -> None:
    assert loads_of(graph, path) == 1
    apply(graph, RemoveNode(EVENT.label, A), occurred(("t", "new")))
    assert loads_of(graph, path) == 0
    assert loads_of(graph, path) == 0


def test_nobody_else_can_read_it(graph: Streamed, path: Path) -> None:
    columns = Columns(graph, path)
    columns.load()
    apply(graph, occurred(("t", "new")))
    columns.catch_up()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
    columns.close()
    assert len(files) == 4  # with its lock, and what SQLite writes beside it
    assert set(files) == {0o600}


@pytest.mark.parametrize("numbers", [[0.5, -0.25], [0.1, 0.2], []])
def test_vectors_come_back_as_they_were(numbers: list[float]) -> None:
    packed = copies._vector_bytes(numbers)
    assert copies._vector(packed).tolist() == numbers
    assert len(packed) - 1 == len(numbers) * (4 if numbers == [0.5, -0.25] else 8) or not numbers


def test_one_process_has_it(graph: Streamed, path: Path) -> None:
    first = Columns(graph, path)
    first.load()
    assert loads_of(graph, path) == 1, "another one does without"
    apply(graph, occurred(("t", "new")))
    first.catch_up()
    first.close()
    assert loads_of(graph, path) == 0


def test_the_copy_of_a_graph_that_was_left_is_deleted(graph: Streamed, path: Path) -> None:
    """It would keep what is erased from then on."""
    left, held_copy = path.with_name("left.sqlite"), path.with_name("held.sqlite")
    loads_of(graph, left)
    other = Columns(graph, held_copy)
    other.load()
    columns = Columns(graph, path)
    columns.load()
    assert (left.exists(), held_copy.exists(), path.exists()) == (False, True, True)
    other.close()
    apply(graph, event_node(event(9, tenant="t", user_id=f"{ERASED_USER}1"), Position(9, 1)))
    columns.catch_up()
    columns.close()
    assert (held_copy.exists(), path.exists()) == (False, True)


# -- what is not believed --------------------------------------------------------------------------


def test_a_flipped_bit_is_noticed_wherever_it_is(graph: Streamed, path: Path) -> None:
    loads_of(graph, path)
    whole, noticed = path.read_bytes(), 0
    for seed in range(FLIPS):
        draw = random.Random(seed)
        damaged = bytearray(whole)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        noticed += loads_of(graph, path)
    assert noticed > FLIPS // 2, "the rest is room that nothing stands in"


@pytest.mark.parametrize(
    ("table", "column"),
    [("node", "data"), ("node", "key"), ("edge", "data"), ("edge", "target"), ("place", "data")],
)
def test_a_value_that_was_changed_is_noticed(
    graph: Streamed, path: Path, table: str, column: str
) -> None:
    loads_of(graph, path)
    with closing(sqlite3.connect(path)) as db, db:
        spaced = f"UPDATE {table} SET {column} = CAST({column} || ' ' AS BLOB)"
        assert db.execute(spaced).rowcount > 0
    assert loads_of(graph, path) == 1
    assert loads_of(graph, path) == 0


@pytest.mark.parametrize("part", [0, 0.001, 0.3, 0.9])
def test_a_file_that_ends_too_early_is_noticed(graph: Streamed, path: Path, part: float) -> None:
    loads_of(graph, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert loads_of(graph, path) == 1
    assert loads_of(graph, path) == 0


def test_a_file_of_something_else_is_dropped(graph: Streamed, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"something else " * 1000)
    assert loads_of(graph, path) == 1
    assert loads_of(graph, path) == 0


def test_another_version_makes_its_own(
    graph: Streamed, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads_of(graph, path)
    monkeypatch.setattr(copies, "_FORMAT", b"another")
    assert loads_of(graph, path) == 1
    assert loads_of(graph, path) == 0


def test_a_place_that_the_feed_keeps_no_longer_leads_nowhere(
    graph: Streamed, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads_of(graph, path)
    monkeypatch.setattr(memory, "FEED_KEPT", 2)
    for n in range(3):
        apply(graph, RemoveNode(EVENT.label, ("t", f"event {n}")))
    assert loads_of(graph, path) == 1
    assert loads_of(graph, path) == 0


def test_the_copy_of_another_graph_is_not_used(graph: Streamed, path: Path) -> None:
    loads_of(graph, path)
    other = Streamed()
    for name in ("a", "b"):  # its feed has come as far
        apply(other, occurred(("other", name)))
    assert graph.feed().numbers == other.feed().numbers
    assert loads_of(other, path) == 1
    assert loads_of(graph, path) == 1
    graph.renew_feed()
    assert loads_of(graph, path) == 1


@pytest.mark.parametrize("streams", range(8))
def test_a_graph_that_goes_away_leaves_no_half_copy(
    graph: Streamed, path: Path, streams: int
) -> None:
    graph.streams = streams
    columns = Columns(graph, path)
    with pytest.raises(GraphUnavailable):
        columns.load()
    columns.close()
    assert (columns.place, held(columns)) == (None, {})
    graph.streams = None
    assert loads_of(graph, path) == 1


def test_a_disk_that_fails_is_done_without(
    graph: Streamed, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = Columns(graph, path)
    columns.load()
    with monkeypatch.context() as broken:
        full = "SELECT no_such_function()"
        broken.setattr(copies, "_drop_edges", lambda db, _: db.execute(full))
        apply(graph, occurred(("t", "new")))
        columns.catch_up()
    apply(graph, occurred(("t", "newer")))
    columns.catch_up()
    assert {"new", "newer"} <= columns.tenant("t").events.rows.keys()
    columns.close()
    assert loads_of(graph, path) == 1


# -- a process that is killed ----------------------------------------------------------------------

_NODES = 500


def written_in(n: int) -> Readings:
    """The readings of a round: all events, with the number of the round."""
    values = dict.fromkeys(NODE_PROPERTIES[EVENT.label])
    said = {"session_id": "s", "global_position": "1-0", "occurred_at": n}
    keys = [("t", str(number)) for number in range(_NODES)]
    nodes = {(EVENT.label, key): FoundNode(key, True, values | said, False) for key in keys}
    return Readings(nodes=dict(nodes))


_WRITES = """
import sys
from pathlib import Path
from pipelines.columns.copy import Copy
from pipelines.graph.rows import FeedPlace
from tests.unit.pipelines.test_columns_copy import written_in
copy, n = Copy(Path(sys.argv[1])), 1
with copy.anew(FeedPlace("x", {"": n})):
    list(copy.keep_nodes((at[0], node) for at, node in written_in(n).nodes.items()))
while True:
    print(n, flush=True)
    n += 1
    copy.keep(written_in(n), FeedPlace("x", {"": n}))
"""


@pytest.mark.parametrize("rounds", [1, 2, 5, 9, 30])
def test_a_killed_process_leaves_what_it_had_finished(path: Path, rounds: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITES, str(path)], stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        for _ in range(rounds):
            assert killed.stdout.readline()
        killed.kill()
    copy = Copy(path)
    place = copy.place()
    assert place is not None
    assert place.numbers[""] >= rounds
    events = (copy.read() or {})["t"].events
    times = events.table["occurred_ms"][: events.table.size].tolist()
    assert times == [place.numbers[""]] * _NODES
    copy.close()
