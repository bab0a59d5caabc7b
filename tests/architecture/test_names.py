"""A call tells what its arguments are, and a name tells what it holds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.architecture.test_house import CLIENT, PACKAGES, ROOT

MOST_POSITIONAL: Final = 4
"""Arguments that are told by their place alone; what is unpacked (`*row`) is not counted."""
EMPTY: Final = frozenset(("one", "found", "known", "own", "asked", "said", "made", "kept", "rest"))
"""Names that say nothing, but for the few words of a comprehension."""

Check = Callable[[ast.AST], Iterator[int]]
"""The lines of a module that break a rule."""
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def positional_calls(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            plain = [value for value in node.args if not isinstance(value, ast.Starred)]
            if len(plain) > MOST_POSITIONAL:
                yield node.lineno


def empty_names(tree: ast.AST) -> Iterator[int]:
    """Bound in a function, or as its argument; fields of records are the wire's words."""
    excused: set[int] = set()
    inside: dict[int, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, _COMPREHENSION):
            excused.update(id(part) for each in node.generators for part in ast.walk(each.target))
        elif isinstance(node, _FUNCTION):
            inside.update((id(part), part) for part in ast.walk(node))
    for number in inside.keys() - excused:
        match inside[number]:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line) if name in EMPTY:
                yield line
            case ast.arg(arg=name, lineno=line) if name in EMPTY:
                yield line


@pytest.mark.parametrize("check", [positional_calls, empty_names])
def test_no_line_breaks_the_rule(check: Check) -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in (*(ROOT / package for package in PACKAGES), CLIENT)
        for path in sorted(folder.rglob("*.py"))
        for line in check(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert broken == []


def test_the_rules_find_what_they_forbid() -> None:
    source = "def f(x):\n    found = g(1, 2, 3, 4, 5)\n    return [one for one in g(*x, 1)]"
    assert list(positional_calls(ast.parse(source))) == [2]
    assert list(empty_names(ast.parse(source))) == [2]
