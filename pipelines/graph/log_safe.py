"""Parameters that do not print what they hold.

The driver prints all parameters of a statement for a log message, whether anybody reads it or not;
of vectors and rows that takes longer than sending them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class _List(list[Any]):
    def __repr__(self) -> str:
        return f"[{len(self)} items]"


class _Map(dict[str, Any]):
    def __repr__(self) -> str:
        return f"{{{len(self)} items}}"


def unprinted(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The same parameters; lists and maps print how many items they hold."""
    return {name: _unprinted(value) for name, value in parameters.items()}


def _unprinted(value: Any) -> Any:
    if isinstance(value, list):
        return _List(value)
    return _Map(value) if isinstance(value, dict) else value
