"""A stage is a row: nobody else compares its name, and what lists stages follows the table."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pipelines.observe import metrics
from pipelines.work import stages as table
from pipelines.work.folds import StageFold
from pipelines.work.gather.projection import projection_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES, Stage, load, stages_before
from projections.events import SYSTEM_EVENTS
from projections.schema import EDGES, NODES

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PURE = [stage.package for stage in STAGES.values()]
CONSTANTS = {name for name, value in vars(table).items() if isinstance(value, Stage)}
SHELL = [path for folder in ("api", "pipelines") for path in (ROOT / folder).rglob("*.py")]
RULES = [
    (path, stage.name) for stage in STAGES.values() for path in (ROOT / stage.package).rglob("*.py")
]
EVERY_ROW = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


# Nobody compares names


def is_a_stage(node: ast.expr, names: set[str]) -> bool:
    """A literal name of a stage, its row, or that row's name; or a collection with one of them."""
    match node:
        case ast.Constant(value=str(value)):
            return value in names
        case ast.Name(id=name):
            return name in CONSTANTS
        case ast.Attribute(value=ast.Name(id=name), attr="name"):
            return name in CONSTANTS
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return any(is_a_stage(element, names) for element in elements)
    return False


def comparisons(source: str, names: set[str]) -> Iterator[int]:
    """Lines where a stage's name decides what happens."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            if any(is_a_stage(operand, names) for operand in (node.left, *node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and is_a_stage(node.value, names):
            yield node.lineno


@pytest.mark.parametrize("path", SHELL, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_compares_the_name_of_a_stage(path: Path) -> None:
    assert list(comparisons(path.read_text("utf-8"), set(STAGES))) == []


@pytest.mark.parametrize(("path", "own"), RULES, ids=lambda value: Path(value).name)
def test_rules_know_no_name_of_a_stage_but_their_own(path: Path, own: str) -> None:
    assert list(comparisons(path.read_text("utf-8"), set(STAGES) - {own})) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('if stage == "enrichment": pass', 1),
        ("if stage.name != ENRICHMENT.name: pass", 1),
        ("if stage is CONSOLIDATION: pass", 1),
        ('if stage in ("projection", "later"): pass', 1),
        ("if CONSOLIDATION in stages: pass", 1),
        ('match stage:\n    case "projection": pass', 1),
        ("checkpoints(ENRICHMENT.name)", 0),
        ("if stage.upstream is None: pass", 0),
        ('if word == "enriched": pass', 0),
    ],
)
def test_the_search_finds_comparisons(source: str, expected: int) -> None:
    assert len(list(comparisons(source, set(STAGES)))) == expected


# The table


def test_each_stage_stands_on_the_one_before_it() -> None:
    rows = list(STAGES.values())
    assert [stage.upstream for stage in rows] == [None, *(stage.name for stage in rows[:-1])]
    assert stages_before(rows[-1]) == rows[:-1]


@EVERY_ROW
def test_what_a_row_names_exists(stage: Stage) -> None:
    entries = (stage.make, stage.installed_models, stage.check, stage.beside)
    assert [entry for entry in entries if entry is not None and not callable(load(entry))] == []
    made = load(stage.make)
    wanted = list(inspect.signature(projection_fold).parameters)
    assert list(inspect.signature(made).parameters)[: len(wanted)] == wanted
    assert get_type_hints(made)["return"] is StageFold
    assert stage.batch_size(Settings()) > 0
    assert stage.rebuild_batch_size(Settings()) > 0
    assert 0 <= stage.nice(Settings()) < 20


@EVERY_ROW
def test_the_metrics_of_a_row_exist_and_appear(stage: Stage) -> None:
    named = [*stage.metrics, *([stage.lag_metric] if stage.lag_metric else [])]
    assert [name for name in named if metrics.PREFIX + name not in metrics.METRICS] == []
    metrics.prepare_stage(stage.name, "shown", stage.metrics)
    exposed = metrics.render_metrics()[0].decode()
    for name in stage.metrics:
        assert re.search(rf'^{metrics.PREFIX}{name}{{.*target="shown"', exposed, re.MULTILINE)


def test_what_is_owned_is_owned_by_a_stage() -> None:
    owners: dict[str, Any] = {kind: row.owner for kind, row in SYSTEM_EVENTS.items()}
    assert {kind for stage in STAGES.values() for kind in stage.owns} == owners.keys()
    nodes = {row.stage for row in NODES.values() if not row.operational}
    assert nodes | {row.stage for row in EDGES.values()} <= set(STAGES)


# What lists them


def test_the_project_lists_the_folders_of_the_stages() -> None:
    tool = PYPROJECT["tool"]
    everything = {"api", "pipelines", *PURE}
    contracts = {one["name"].split(":")[0]: one for one in tool["importlinter"]["contracts"]}
    layers = contracts["Layers"]["layers"]
    assert layers == ["api", "pipelines", *reversed(PURE)]
    assert contracts["The pure folders"]["source_modules"] == PURE
    assert set(tool["hatch"]["build"]["targets"]["wheel"]["packages"]) == everything
    client = "clients/python/src/recollect"
    assert set(tool["importlinter"]["root_packages"]) == {*everything, Path(client).name}
    assert set(tool["mypy"]["files"]) == {*everything, client, "tests"}
    (ours,) = [
        re.findall(r"\w+", rule.partition("(")[2])
        for rule in tool["pytest"]["ini_options"]["filterwarnings"]
        if rule.startswith("error::DeprecationWarning:")
    ]
    assert set(ours) == {*everything, Path(client).name}
