"""Retrieval is pure where it says so: it calculates with records, and asks nobody."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RETRIEVAL = ROOT / "api" / "retrieval"
PURE = (
    "durations",
    "fact_words",
    "intent",
    "narrative",
    "outstanding",
    "personal",
    "plan",
    "plan_phrases",
    "planning",
    "policy",
    "profiles",
    "query_terms",
    "question_forms",
    "ranking",
    "relevance",
    "story_acts",
    "story_answer",
    "story_counts",
    "story_evidence",
    "story_features",
    "story_limits",
    "story_lists",
    "story_focus",
    "story_proof",
    "story_ranker",
    "story_roles",
    "story_terms",
    "time_spans",
    "time_windows",
)
RECORDS = (
    "api.retrieval.plan",
    "pipelines.columns.graph_scores",
    "pipelines.columns.records",
    "pipelines.columns.walked",
    "pipelines.columns.windows",
    "pipelines.graph.rows",
)
SHELL = ("asyncio", "concurrent", "logging", "os", "random", "threading", "time")
LOADED_BY_NONE = ("fastapi", "neo4j", "prometheus_client", "redis", "structlog")


def imported_modules(path: Path) -> set[str]:
    """All that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return names


def test_the_modules_that_say_they_are_pure_are_those_that_are_tested() -> None:
    documented = {
        path.stem
        for path in RETRIEVAL.glob("*.py")
        if "Pure" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    }
    assert documented == set(PURE)


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_records_and_rules_alone(module: str) -> None:
    imported = imported_modules(RETRIEVAL / f"{module}.py")
    retrieval = {f"api.retrieval.{pure}" for pure in PURE}
    own = {name for name in imported if name.startswith(("api.", "pipelines."))}
    assert own <= {*retrieval, "api.schemas", *RECORDS}
    assert not {name.partition(".")[0] for name in imported} & set(SHELL)


def test_pure_modules_load_no_driver_no_framework_and_no_metrics() -> None:
    names = ", ".join(f"api.retrieval.{module}" for module in PURE)
    code = f"import sys, {names}; print(*sorted(set({LOADED_BY_NONE}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")
