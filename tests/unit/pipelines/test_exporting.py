"""An export holds all that was selected, says what it could not read, and is whole or not there."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from subprocess import PIPE
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Tail
from pipelines.local.private_files import written_whole
from pipelines.operations.export.events import ExportReport, Format, Selection, event_lines
from pipelines.operations.export.graph import EXPORTED, RELATIONS
from pipelines.operations.export.run import export
from projections.errors import InvalidInput, LedgerUnavailable, OperationFailed
from projections.events import encode_event
from projections.identity import START, Position
from projections.schema import (
    ABSTRACTED_FROM,
    DERIVED_FROM,
    EDGES,
    PARENT_SKILL,
    SIMILAR_TO,
    SUMMARY,
)
from tests.factories import event
from tests.fakes.ledger import FakeLedger
from tests.ledger_copies import exported, silent
from tests.proof_world import World, populated, said
from tests.simulation.doubles import SimulatedServices

GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


@pytest.fixture(scope="module")
def world() -> World:
    """Every label and every edge type occurs; nobody changes it."""
    return populated()


def services_of(world: World) -> Any:
    """What commands use."""
    services = SimulatedServices(world.ledger, world.ledger.partitions)
    services.graphs = cast(Any, {"blue": world.graph})
    return services


def written(world: World, file: Path, form: Format, **selected: Any) -> ExportReport:
    return export(services_of(world), form, Selection(**selected), file)


# -- events ----------------------------------------------------------------------------------------


def ids(lines: list[bytes]) -> list[str]:
    return [str(json.loads(line)["event_id"]) for line in lines]


def test_events_come_in_the_order_in_which_the_ledger_took_them(world: World) -> None:
    streams = world.ledger.server.streams.values()
    entries = sorted(chain.from_iterable(streams), key=lambda entry: entry.position)
    assert exported(world.ledger) == [entry.data + b"\n" for entry in entries]


Rule = Callable[[dict[str, Any]], bool]


def test_tenant_session_and_time_select(world: World) -> None:
    everything = [json.loads(line) for line in exported(world.ledger)]
    first, last = "2026-02-02T02:40:00.003Z", "2026-02-02T02:40:00.008Z"
    cases: list[tuple[dict[str, Any], Rule]] = [
        ({"tenant": "acme"}, lambda e: e["tenant"] == "acme"),
        ({"session_id": "session-2"}, lambda e: e["session_id"] == "session-2"),
        (
            {"tenant": "default", "session_id": "session-2"},
            lambda e: e["tenant"] == "default" and e["session_id"] == "session-2",
        ),
        (
            {"since_ms": 1_770_000_000_003, "until_ms": 1_770_000_000_008},
            lambda e: first <= e["occurred_at"] <= last,
        ),
    ]
    for selected, rule in cases:
        expected = [e["event_id"] for e in everything if rule(e)]
        assert 0 < len(expected) < len(everything), selected
        assert ids(exported(world.ledger, **selected)) == expected


def test_what_nobody_can_read_is_left_out_and_told() -> None:
    ledger = FakeLedger(partitions=2)
    ledger.append([said(n, f"word {n}", session_id=f"s-{n}") for n in range(1, 9)])
    entries = list(chain.from_iterable(ledger.server.streams.values()))
    ledger.server.alter(entries[1])
    ledger.server.delete(entries[5])
    report = ExportReport()
    lines = list(event_lines(ledger, Selection(), report, silent))
    assert (len(lines), report.left_out_count, report.as_dict()["ok"]) == (6, 2, False)
    assert {row.partition for row in report.left_out} == {
        entries[1].partition,
        entries[5].partition,
    }


class LongLedger:
    """Partitions of many entries, which are made when they are read."""

    partitions = 4
    length = 6_000

    def tails(self) -> list[Tail]:
        return [Tail(Position(self.length, n), self.length) for n in range(self.partitions)]

    def scan(
        self,
        partition: int,
        after: Position = START,
        until: Position | None = None,
        count: int = 1_000,
    ) -> Iterator[list[Entry]]:
        for first in range(1, self.length + 1, count):
            numbers = range(first, min(first + count, self.length + 1))
            yield [
                Entry(partition, Position(n, partition), n, self._data(n), None) for n in numbers
            ]

    def _data(self, number: int) -> bytes:
        return encode_event(event(number, payload="x" * 2_000))

    def find_many(self, keys: list[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        raise NotImplementedError


def test_what_is_held_in_memory_does_not_grow_with_the_ledger() -> None:
    tracemalloc.start()
    try:
        lines = event_lines(LongLedger(), Selection(), ExportReport(), silent)
        size = sum(map(len, lines))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 40 * 2**20
    assert peak < 12 * 2**20


def test_parquet_holds_the_same_events_in_columns(world: World, tmp_path: Path) -> None:
    from pyarrow import parquet

    file = tmp_path / "events.parquet"
    report = written(world, file, Format.PARQUET)
    rows = parquet.read_table(file).to_pylist()
    assert report.size == file.stat().st_size
    assert [row["event_id"] for row in rows] == ids(exported(world.ledger))
    first = json.loads(exported(world.ledger)[0])
    assert json.loads(rows[0]["payload"]) == first["payload"]
    assert rows[0]["occurred_at"].isoformat(timespec="milliseconds") == first[
        "occurred_at"
    ].replace("Z", "+00:00")


# -- files -----------------------------------------------------------------------------------------


class Failing(FakeLedger):
    """Goes away when the first block was read."""

    error: BaseException = LedgerUnavailable(reason="gone")

    def scan(
        self,
        partition: int,
        after: Position = START,
        until: Position | None = None,
        count: int = 1_000,
    ) -> Iterator[list[Entry]]:
        yield next(super().scan(partition, after, until, 1))
        raise self.error


@pytest.mark.parametrize("error", [LedgerUnavailable(reason="gone"), KeyboardInterrupt()])
def test_a_file_is_whole_or_as_it_was(tmp_path: Path, error: BaseException) -> None:
    ledger = Failing(partitions=1)
    ledger.append([said(n, "word") for n in range(1, 5)])
    ledger.error = error
    file = tmp_path / "events.jsonl"
    file.write_text("an earlier one")
    services: Any = SimulatedServices(ledger, 1)
    with pytest.raises(type(error)):
        export(services, Format.EVENTS, Selection(), file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert file.read_text() == "an earlier one"


def test_a_file_is_for_its_user_alone_and_packed_by_its_name(world: World, tmp_path: Path) -> None:
    plain, packed = tmp_path / "events.jsonl", tmp_path / "events.jsonl.gz"
    report = written(world, plain, Format.EVENTS)
    written(world, packed, Format.EVENTS)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert {path.stat().st_mode & 0o777 for path in (plain, packed)} == {0o600}
    assert report.size == plain.stat().st_size
    before = packed.read_bytes()
    written(world, packed, Format.EVENTS)
    assert packed.read_bytes() == before


def test_a_file_that_cannot_be_written_is_named(world: World, tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "missing" / "events.jsonl"):
        with pytest.raises(OperationFailed, match=file.name):
            written(world, file, Format.EVENTS)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_while_a_file_is_written_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with written_whole(tmp_path / "file") as out:
            out.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert list(tmp_path.iterdir()) == []


_HALF = """
import sys
from pathlib import Path
from pipelines.local.private_files import written_whole
with written_whole(Path(sys.argv[1]), is_large=True) as out:
    out.write(b"half")
    out.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_export_left_goes_with_the_next_one(world: World, tmp_path: Path) -> None:
    file, another = tmp_path / "events[1].jsonl", tmp_path / "another.jsonl"
    with ExitStack() as running:
        for path in (file, another, file):
            process = running.enter_context(
                subprocess.Popen(
                    (sys.executable, "-c", _HALF, path), stdin=PIPE, stdout=PIPE, text=True
                )
            )
            running.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
            if path == another or len(list(tmp_path.iterdir())) < 2:
                process.kill()
                process.wait()
        (under_way,) = tmp_path.glob(f".*.{process.pid}.new")
        killed = [path for path in tmp_path.iterdir() if path != under_way]
        assert len(killed) == 2
        of_others = [tmp_path / f".{file.name}{end}" for end in (".old.new", ".gz.1.new")]
        for path in of_others:
            path.touch()
        for path in (*killed, *of_others, under_way):
            os.utime(path)
        written(world, file, Format.EVENTS)
        assert {*killed, *of_others, under_way} < set(tmp_path.iterdir())  # they are new
        for path in (*killed, *of_others, under_way):
            os.utime(path, (0, 0))
        written(world, file, Format.EVENTS)
        of_others += [path for path in killed if another.name in path.name]
        assert sorted(tmp_path.iterdir()) == sorted([file, under_way, *of_others])


@pytest.mark.parametrize(
    ("form", "selected", "option"),
    [
        (Format.GRAPHML, {"session_id": "s"}, "--session"),
        (Format.PROV, {"since_ms": 1}, "--since"),
        (Format.MARKDOWN, {"tenant": "default"}, "--session or --user"),
    ],
)
def test_a_selection_that_a_form_does_not_know_is_refused(
    world: World, tmp_path: Path, form: Format, selected: dict[str, Any], option: str
) -> None:
    with pytest.raises(InvalidInput, match=option):
        written(world, tmp_path / "file", form, **selected)
    assert list(tmp_path.iterdir()) == []


# -- the graph -------------------------------------------------------------------------------------


def counted(world: World) -> dict[str, int]:
    """Nodes that can be retrieved, and edges; placeholders are nodes of a file."""
    names = [row.label for row in EXPORTED] + list(EDGES)
    counts = {name: sum(1 for _ in world.graph.stream(name)) for name in names}
    return {name: count for name, count in counts.items() if count}


def test_graphml_holds_every_node_and_edge_with_its_type(world: World, tmp_path: Path) -> None:
    file = tmp_path / "graph.graphml"
    report = written(world, file, Format.GRAPHML)
    assert dict(report.written) == counted(world)
    root = ElementTree.parse(file).getroot()
    keys = {key.get("id"): key.attrib for key in root.iter(f"{GRAPHML}key")}
    nodes = {
        node.get("id"): {d.get("key"): d.text for d in node} for node in root.iter(f"{GRAPHML}node")
    }
    edges = list(root.iter(f"{GRAPHML}edge"))
    assert len(nodes) + len(edges) == report.written.total()
    assert {end for e in edges for end in (e.get("source"), e.get("target"))} <= nodes.keys()
    used = {d.get("key") for element in root.iter(f"{GRAPHML}data") for d in [element]}
    assert used <= keys.keys()
    assert keys["edge.score"]["attr.type"] == "double"
    summaries = [node for node in nodes.values() if node["node.label"] == SUMMARY.label]
    assert all(node["node.content"] for node in summaries if "node.placeholder" not in node)


def test_of_one_tenant_there_is_nothing_of_another(world: World, tmp_path: Path) -> None:
    file = tmp_path / "graph.graphml"
    written(world, file, Format.GRAPHML, tenant="acme")
    root = ElementTree.parse(file).getroot()
    assert {str(n.get("id")).partition("/")[0] for n in root.iter(f"{GRAPHML}node")} == {"acme"}


def test_characters_that_xml_has_not_are_replaced(tmp_path: Path) -> None:
    world = World()
    world.take_in(said(1, "a <b> & \ufffe c"))
    file = tmp_path / "graph.graphml"
    written(world, file, Format.GRAPHML)
    texts = [
        str(d.text)
        for d in ElementTree.parse(file).iter(f"{GRAPHML}data")
        if d.get("key") == "node.text"
    ]
    assert texts == ["a <b> & \ufffd c"]


def test_prov_says_of_each_type_what_the_schema_says() -> None:
    assert RELATIONS.keys() == EDGES.keys()
    for name, relation in RELATIONS.items():
        prov = EDGES[name].prov
        assert ("(none;" in prov) == (relation is None) or "inverse" in prov
        assert relation is None or relation.name in prov


def test_prov_json_is_one_document_of_named_things(world: World, tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    report = written(world, file, Format.PROV)
    document = json.loads(file.read_text())
    things = {name for kind in ("entity", "activity", "agent") for name in document[kind]}
    statements = {
        member: list(rows.values())
        for member, rows in document.items()
        if member not in ("prefix", "entity", "activity", "agent")
    }
    named = {
        value
        for rows in statements.values()
        for row in rows
        for role, value in row.items()
        if role.startswith("prov:") and role not in ("prov:time", "prov:type")
    }
    assert named <= things
    counts = counted(world)
    rows = (SIMILAR_TO, ABSTRACTED_FROM, DERIVED_FROM, PARENT_SKILL)
    assert all(counts[row.type] for row in rows)
    assert len(statements["wasDerivedFrom"]) == sum(counts[row.type] for row in rows)
    mapped = sum(counts[name] for name, row in RELATIONS.items() if row and name in counts)
    generated = len(statements["wasGeneratedBy"]) + len(statements["wasAssociatedWith"])
    assert sum(map(len, statements.values())) - generated == mapped
    assert report.notes == ["FOLLOWS is not in the file: PROV has no term for it"]


# -- a session -------------------------------------------------------------------------------------


def test_a_session_is_told_in_the_order_of_time(tmp_path: Path) -> None:
    world = World()
    world.take_in(
        said(2, "# Not a heading\nsecond line", occurred_at_ms=1_770_000_002_000),
        said(1, "hello", occurred_at_ms=1_770_000_001_000, user_id="maya"),
        said(3, "elsewhere", session_id="session-2"),
    )
    file = tmp_path / "session.md"
    report = written(world, file, Format.MARKDOWN, tenant="default", session_id="session-1")
    text = file.read_text()
    assert report.written["events"] == 2
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings[0] == "# Session session-1"
    assert [line.split()[1] for line in headings[1:]] == [
        "2026-02-02T02:40:01.000Z",
        "2026-02-02T02:40:02.000Z",
    ]
    assert "> # Not a heading\n> second line" in text
    assert "about maya" in text
    assert "elsewhere" not in text


def test_what_is_of_a_user_is_told_over_all_sessions(tmp_path: Path) -> None:
    world = World()
    world.take_in(
        said(1, "hello", user_id="maya"),
        said(2, "of nobody"),
        said(3, "elsewhere", session_id="session-2", user_id="maya"),
    )
    lines = tmp_path / "maya.jsonl"
    assert written(world, lines, Format.EVENTS, user_id="maya").written["events"] == 2
    file = tmp_path / "maya.md"
    written(world, file, Format.MARKDOWN, tenant="default", user_id="maya")
    text = file.read_text()
    assert text.startswith("# User maya\n")
    assert "hello" in text
    assert "elsewhere" in text
    assert "of nobody" not in text


def test_a_session_that_is_not_there_is_named(world: World, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="nobody"):
        written(world, tmp_path / "f.md", Format.MARKDOWN, tenant="default", session_id="nobody")
    assert list(tmp_path.iterdir()) == []
