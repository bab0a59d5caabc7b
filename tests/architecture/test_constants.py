"""A constant is said once: no two modules give one name the same value, each for itself."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.architecture.test_house import PACKAGES, ROOT

BY_CHANCE: Final = {
    "POLL_S": "how often one thing looks at another; no two of them have to agree",
    "OK": "a status of HTTP, in two clients of different servers",
}
"""Equal today, and free to differ: name → why."""

NOT_YET: Final = frozenset(("EVENTS_AT_ONCE",))
"""Said more than once so far. Only taken from, never added to."""


def repeated() -> dict[str, list[str]]:
    """Constants of the product that stand in several modules with one value: name → modules."""
    modules: dict[tuple[str, str], list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, value in constants(path):
                modules[name, value].append(str(path.relative_to(ROOT)))
    return {name: paths for (name, _), paths in modules.items() if len(paths) > 1}


def constants(path: Path) -> list[tuple[str, str]]:
    """Constants of a module: name without a leading underscore, value as it is written."""
    found = []
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.append((name, value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.append((name, value))
    return [
        (name.lstrip("_"), ast.dump(value))
        for name, value in found
        if name.isupper() and not ast.unparse(value).startswith("TypeVar(")
    ]


def test_no_constant_is_said_twice() -> None:
    twice = {
        name: paths
        for name, paths in repeated().items()
        if name not in NOT_YET and name not in BY_CHANCE
    }
    assert twice == {}


def test_what_is_said_once_by_now_is_taken_from_the_lists() -> None:
    assert sorted((NOT_YET | set(BY_CHANCE)) - set(repeated())) == []
