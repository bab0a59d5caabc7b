"""Rules of the house that neither the linter nor the import contracts can express."""

from __future__ import annotations

import importlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

CLIENT = ROOT / "clients/python/src/recollect"
"""A distribution of its own."""
REFUSED_NAMES = {"utils", "helpers", "common", "manager", "core"}
# Spelled in pieces, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [
    "py" + "pi.org",
    "pythonhosted" + ".org",
    "repo.maven" + ".apache.org",
    "repo1.maven" + ".org",
    "registry.npm" + "js.org",
    "hugging" + "face.co",
]
MACHINE_PATHS = [r"(?<![\w.])/" + folder + r"/\w" for folder in ("home", "root", "work", "Users")]
# Containers have paths of their own.
PATHS_ALLOWED_IN = ("deploy/", "docker-compose")


def repository_files() -> list[Path]:
    """Every file git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_imported_from_this_checkout(package: str) -> None:
    assert importlib.import_module(package).__file__ == str(ROOT / package / "__init__.py")


def test_every_code_folder_is_in_the_wheel_and_under_contract() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert folders == set(PACKAGES)
    assert folders | {CLIENT.name} == set(PYPROJECT["tool"]["importlinter"]["root_packages"])
    checked = set(PYPROJECT["tool"]["mypy"]["files"])
    assert folders | {CLIENT.relative_to(ROOT).as_posix()} <= checked


@pytest.mark.parametrize("package", PACKAGES)
def test_package_tells_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_no_module_is_named_after_nothing() -> None:
    named = [path for path in repository_files() if path.suffix == ".py"]
    parts = {part for path in named for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & REFUSED_NAMES == set()


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    hosts = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)), re.IGNORECASE)
    paths = re.compile("|".join(MACHINE_PATHS))
    found = []
    for path in repository_files():
        name = path.relative_to(ROOT).as_posix()
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            machine = not name.startswith(PATHS_ALLOWED_IN) and paths.search(line)
            if hosts.search(line) or machine:
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def modules_with(pattern: str) -> set[str]:
    """Modules of the product in which a pattern occurs."""
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix()
        for path in modules
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }


def test_python_children_are_started_in_one_way() -> None:
    """Only with -P (or -I) does a child not see a user's own `api/` in the folder it starts in."""
    assert modules_with(r"sys\.executable, \"-m\"") == set()
    started = modules_with(r"\[sys\.executable")
    assert started == {
        "pipelines/local/processes.py",  # -I: the watcher where the kernel does not watch
        "pipelines/local/python_process.py",  # `python_command`, `task_command`
    }
    for name in started:
        for flags in re.findall(r"\[sys\.executable, (\"-\w\")", (ROOT / name).read_text("utf-8")):
            assert flags in ('"-P"', '"-I"'), name


def test_pipelines_reach_the_api_by_name_in_one_place() -> None:
    assert modules_with(r"import_module\(\s*f?\"api\b") == {"pipelines/operations/api.py"}
