"""`docs/reference/commands.md`: every command with its arguments and options, from the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pipelines.cli.main import COMMANDS, load

_INTRO: Final = (
    "`recollect COMMAND --help` says the same. Every command takes `--json`, which prints one "
    "document for a program, and `--debug`. Those that reach the services take `--redis URL`, "
    "`--neo4j URL` and `--data DIR` (the data folder of the embedded ones, `.recollect`), else "
    "what the [settings](settings.md) say. How a command ends are [exit codes](errors.md)."
)
_COMMON: Final = frozenset(("--json", "--debug", "--help", "--redis", "--neo4j", "--data"))


def commands_page() -> str:
    """The page without its note: by panel, in the order of `recollect --help`."""
    panels: dict[str, list[str]] = {}
    for name, listed in COMMANDS.items():
        if not listed.hidden:
            panels.setdefault(listed.panel, []).append(name)
    parts = [f"# Commands\n\n{_INTRO}\n"]
    for panel, names in panels.items():
        parts.append(f"\n## {panel}\n")
        for name in names:
            parts += _command(name, load(name), depth=3)
    return "".join(parts)


def _command(name: str, command: Any, depth: int) -> Iterator[str]:
    """A command, and those below it."""
    yield f"\n{'#' * depth} recollect {name}\n\n{_prose(command.help or '')}\n"
    rows = [row for parameter in command.params if (row := _row(parameter))]
    if rows:
        yield "\n| | |\n|---|---|\n"
        yield from (f"| {cells[0]} | {cells[1]} |\n" for cells in rows)
    for inner, below in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {inner}", below, depth + 1)


def _row(parameter: Any) -> tuple[str, str] | None:
    """How a parameter is given, and what it means; None: it is hidden, or many commands have it."""
    if getattr(parameter, "hidden", False) or not _COMMON.isdisjoint(parameter.opts):
        return None
    shown = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument":
        given = f"`{shown}`" if parameter.required else f"`[{shown}]`"
    else:
        takes = "" if parameter.is_flag else f" {shown}"
        given = ", ".join(f"`{way}{takes}`" for way in _ways(parameter))
    return given, _cell(getattr(parameter, "help", None) or "")


def _ways(parameter: Any) -> Sequence[str]:
    """The names of an option, the opposite ones behind."""
    return [*parameter.opts, *parameter.secondary_opts]


def _prose(text: str) -> str:
    """Paragraphs of a help text, each on a line."""
    paragraphs = text.replace("\b", "").replace("\f", "").strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
