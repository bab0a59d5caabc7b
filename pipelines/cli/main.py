"""`recollect`: the command line. Parses, calls, prints; the work is done elsewhere.

Nothing heavy is imported here or at the top of a command's module, so that `--help` is quick.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import TracebackType

import typer

from pipelines.cli import (
    ask,
    consolidate,
    dead_letters,
    demo,
    graph,
    imports,
    invocation,
    processes,
    rebuild,
    restore,
    status,
    targets,
)

HELP = """An agent's memory as a graph that is a fold of an event ledger.

Events go into the ledger (Redis Streams), workers fold them into the graph (Neo4j), and the
graph can be replayed, rebuilt and proved.

[bold]A first tour[/bold]

[cyan]recollect demo[/cyan]                        everything at once, explained\n
[cyan]recollect up --detach --all[/cyan]           Redis, Neo4j, workers and the API, here\n
[cyan]recollect import events.jsonl --wait[/cyan]  events in\n
[cyan]recollect ask "Why did it fail?"[/cyan]      an answer with its sources\n
[cyan]recollect status[/cyan]                      what is where, and how far behind\n
[cyan]recollect verify[/cyan]                      does the graph say what the ledger says?\n
[cyan]recollect down[/cyan]                        stop; the data stay

Every command takes [cyan]--redis URL --neo4j URL --data DIR[/cyan], settings come from the
environment ([cyan]RECOLLECT_REDIS_URL[/cyan] …), and without either the embedded services of the
data folder are used when they run.
"""


def _exit_codes() -> str:
    rows = (f"[cyan]{code:>3}[/cyan]  {text}" for code, text in invocation.EXIT_CODES.items())
    return "[bold]Exit codes[/bold]\n\n" + "\n\n".join(rows)


app = typer.Typer(
    name="recollect",
    help=HELP,
    epilog=_exit_codes(),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

for module in (
    processes,
    imports,
    ask,
    graph,
    status,
    rebuild,
    consolidate,
    restore,
    targets,
    dead_letters,
    demo,
):
    module.register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    json, debug = "--json" in given, "--debug" in given
    if not debug:
        sys.excepthook = _one_line(json)
    try:
        code = typer.main.get_command(app).main(given, "recollect", standalone_mode=False)
    except typer.TyperException as error:
        code = error.exit_code
        show = getattr(error, "show", None)  # a usage error tells the usage, too
        if json or show is None:
            message = error.format_message()
            invocation.report_error("UsageError", message, code=code, json=json)
        else:
            show()
    except typer.Abort:
        code = invocation.INTERRUPTED
    sys.exit(code)


def _one_line(
    json: bool,
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """An excepthook for what no command foresaw: one line, and how to see the rest."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        last = "".join(traceback.format_exception_only(kind, error)).strip()
        message = f"unexpected: {last} (--debug shows where)"
        invocation.report_error(kind.__name__, message, code=invocation.FAILED, json=json)

    return hook


if __name__ == "__main__":
    main()
