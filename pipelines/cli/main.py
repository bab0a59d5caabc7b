"""`recollect`: the command line. Parses, calls, prints; the work is done elsewhere.

`COMMANDS` says which module holds a command. A module is imported when its command runs or shows
its own help, so that `recollect --help` loads none of them and each may import what it needs.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from pipelines.cli import outcome

HELP = """An agent's memory as a graph that is a fold of an event ledger.

Events go into the ledger (Redis Streams), workers fold them into the graph (Neo4j), and the
graph can be replayed, rebuilt and proved.

[bold]A first tour[/bold]

[cyan]recollect demo[/cyan]                        everything at once, explained\n
[cyan]recollect up --detach --all[/cyan]           start Redis, Neo4j, workers and the API here\n
[cyan]recollect import events.jsonl --wait[/cyan]  put events in\n
[cyan]recollect ask "Why did it fail?"[/cyan]      get an answer with its sources\n
[cyan]recollect status[/cyan]                      see what runs, and how far behind it is\n
[cyan]recollect verify[/cyan]                      check the graph against the ledger\n
[cyan]recollect down[/cyan]                        stop everything; the data stays

Every command takes [cyan]--redis URL --neo4j URL --data DIR[/cyan]. Settings come from the
environment ([cyan]RECOLLECT_REDIS_URL[/cyan] …). Without either, a command uses the embedded
services of the data folder if they are running.
"""
RUNNING, EVENTS, LOOKING, GRAPH = "Running", "Events", "Looking", "Graph"
ERASING = "Erasing"


class Listed(NamedTuple):
    """A command or a group of commands, as `recollect --help` lists it.

    Attributes:
        module: that holds it, below `pipelines.cli`.
        panel: heading that it is listed under.
        summary: the first paragraph of its own help; a test compares them.
        hidden: not for people.
    """

    module: str
    panel: str
    summary: str
    hidden: bool = False


COMMANDS: dict[str, Listed] = {
    "up": Listed(
        "services",
        RUNNING,
        "Start Redis (Valkey) and Neo4j on this machine, without Docker or root.",
    ),
    "down": Listed(
        "services",
        RUNNING,
        "Stop what `recollect up --detach` started on this data folder. The data stays.",
    ),
    "hold-processes": Listed(
        "process_holder",
        RUNNING,
        "Hold workers and the API; `up --detach` with --all or --small starts this.",
        True,
    ),
    "hold-graph": Listed(
        "process_holder",
        RUNNING,
        "Hold the graph in memory, fold into it and serve the API; `up --small` starts this.",
        True,
    ),
    "worker": Listed(
        "workers", RUNNING, "Run a worker of a stage until it is told to stop (SIGTERM, Ctrl-C)."
    ),
    "serve": Listed(
        "workers", RUNNING, "Serve the API until it is told to stop (SIGTERM, Ctrl-C)."
    ),
    "demo": Listed(
        "demo",
        RUNNING,
        "Start everything, import a payment agent's incident, ask why, and stop.",
    ),
    "import": Listed(
        "imports",
        EVENTS,
        "Append events to the ledger: ours, or those of conversations, traces and memories of "
        "others.",
    ),
    "export": Listed(
        "exports",
        EVENTS,
        "Write events, the graph or a session to a file, for other programs and for people.",
    ),
    "load": Listed(
        "load",
        EVENTS,
        "Log sessions of made-up agents at a rate, ask about them, and tell latencies and errors.",
    ),
    "ask": Listed(
        "ask", LOOKING, "Ask the memory a question, and see the answer with its sources."
    ),
    "sessions": Listed(
        "browse", LOOKING, "List sessions, the newest first, with what failed in them."
    ),
    "timeline": Listed(
        "browse", LOOKING, "Show the events of a session in order, with times and failures."
    ),
    "show": Listed("browse", LOOKING, "Show an event as the ledger has it, with its payload."),
    "why": Listed(
        "browse", LOOKING, "Show why an event happened: its causes as a tree, and what helped."
    ),
    "facts": Listed(
        "browse",
        LOOKING,
        "Show what was ever said of an entity: what holds, and what no longer does.",
    ),
    "user": Listed(
        "users",
        LOOKING,
        "Show what is known of a user, correct it, and write all of it to a file.",
    ),
    "tail": Listed("browse", LOOKING, "Print events as the ledger takes them, until Ctrl-C."),
    "mcp": Listed(
        "mcp",
        LOOKING,
        "Serve the memory to a model: tools over standard input and output (MCP).",
    ),
    "status": Listed(
        "graph",
        LOOKING,
        "Show lag, dead letters, the last passes, the graph, ledger, columns and targets.",
    ),
    "top": Listed(
        "top",
        LOOKING,
        "Watch lag, events and questions a second, latencies, dead letters and memory, until "
        "Ctrl-C.",
    ),
    "graph": Listed(
        "graph", LOOKING, "Look at entities, their edges and communities; clear the graph."
    ),
    "verify": Listed(
        "rebuild",
        GRAPH,
        "Fold the ledger again and compare: exit 0 same, 1 divergence.",
    ),
    "archive": Listed(
        "archives",
        EVENTS,
        "Move older entries of the ledger from Redis into the archive, now.",
    ),
    "backup": Listed(
        "archives", EVENTS, "Bring a backup of the ledger up to now, while events come in."
    ),
    "restore": Listed(
        "archives",
        EVENTS,
        "Make the ledger of a backup in an empty Redis; then `recollect rebuild` folds the graph.",
    ),
    "check": Listed(
        "rebuild",
        GRAPH,
        "Compare the ledger with itself: exit 0 all agrees, 1 something is wrong.",
    ),
    "replay": Listed(
        "rebuild", GRAPH, "Run a stage again over a range of the ledger, into the same graph."
    ),
    "rebuild": Listed(
        "rebuild", GRAPH, "Fold the whole ledger again: into a fresh graph, or in place."
    ),
    "recover": Listed(
        "rebuild", GRAPH, "After Redis lost entries that the graph has: list them, and go on."
    ),
    "consolidate": Listed(
        "consolidate", GRAPH, "Run a pass now: summarise what changed, decide what is forgotten."
    ),
    "recall-forgotten": Listed(
        "consolidate",
        GRAPH,
        "Bring forgotten events back into the graph, with their edges, from the ledger.",
    ),
    "targets": Listed(
        "services",
        GRAPH,
        "List, compare, activate, move and drop the graphs that are folded from this ledger.",
    ),
    "seal": Listed(
        "erasing", ERASING, "Encrypt what a new tenant is told, with a key for each of its users."
    ),
    "erase": Listed(
        "erasing", ERASING, "Erase a user of a sealed tenant everywhere, and sign a receipt."
    ),
    "receipts": Listed("erasing", ERASING, "List and verify the receipts of erasures."),
    "rotate-master-key": Listed(
        "erasing", ERASING, "Wrap the keys of sealed tenants with another master key."
    ),
    "dead-letters": Listed(
        "rebuild", GRAPH, "List, show, retry, drop and release entries that a stage could not fold."
    ),
}


def load(name: str) -> Any:
    """A command or group, from its module.

    Raises:
        KeyError: there is none of that name.
    """
    gc.disable()  # what is loaded stays: looking for cycles in it was a sixth of a start
    try:
        module = importlib.import_module(f"{__package__}.{COMMANDS[name].module}")
    finally:
        gc.freeze()
        gc.enable()
    return typer.main.get_group(module.app).commands[name]


class LazyGroup(TyperGroup):
    """Lists commands by their rows, and loads the one that is asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, loaded, and the arguments behind its name."""
        name, listed, further = super().resolve_command(ctx, args)
        return name, None if listed is None else load(str(name)), further


def _exit_codes() -> str:
    rows = (f"[cyan]{code:>3}[/cyan]  {text}" for code, text in outcome.EXIT_CODES.items())
    return "[bold]Exit codes[/bold]\n\n" + "\n\n".join(rows)


def _not_loaded() -> None:
    """Stands in the list for a command whose module is not loaded."""


app = typer.Typer(
    name="recollect",
    cls=LazyGroup,
    help=HELP,
    epilog=_exit_codes(),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"recollect {version('recollect')}\n")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="show the version and exit", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What stands before a command."""


for _name, _listed in COMMANDS.items():
    app.command(_name, help=_listed.summary, rich_help_panel=_listed.panel, hidden=_listed.hidden)(
        _not_loaded
    )


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    json, debug = "--json" in given, "--debug" in given
    if not debug:
        sys.excepthook = _one_line(json)
    _take_interrupts()
    code: Any = None

    def leave() -> None:
        """The last to run: Python gives signals back to the system when it ends.

        An interrupt would then kill a process that has its exit code already; and one that went
        through `exec` of a string, as of a dataclass that is being imported, would do so again.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if code == outcome.INTERRUPTED:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # its reader may be gone
                    stream.flush()
            os._exit(code)

    atexit.register(leave)
    try:
        code = typer.main.get_command(app).main(given, "recollect", standalone_mode=False)
    except typer.TyperException as error:
        code = error.exit_code
        show = getattr(error, "show", None)  # a usage error shows the usage, too
        if json or show is None:
            message = error.format_message()
            outcome.report_error("UsageError", message, code=code, json=json)
        else:
            show()
    except (typer.Abort, KeyboardInterrupt):
        code = outcome.INTERRUPTED
    except Exception as error:
        from projections.errors import was_interrupted  # help takes none of it

        if debug or not was_interrupted(error):
            raise
        code = outcome.INTERRUPTED
    _exit(code)


def _exit(code: Any) -> NoReturn:
    if code == outcome.INTERRUPTED:
        # At once, `leave` last: an exit waits for threads first, and for ever for one whose pool
        # was interrupted before it knew of it.
        atexit._run_exitfuncs()
    sys.exit(code)


def _one_line(
    json: bool,
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """An excepthook for what no command foresaw: one line, and how to see more."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        last = "".join(traceback.format_exception_only(kind, error)).strip()
        message = f"unexpected: {last} (--debug shows where)"
        outcome.report_error(kind.__name__, message, code=outcome.FAILED, json=json)

    return hook


def _take_interrupts() -> None:
    sys.unraisablehook = interrupted_again
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: object) -> None:
    """Raise what is a cancellation, too, so that the Neo4j driver drops the connection in use.

    To end in order it would read on, and wait for ever for what was being read just now. Within an
    event loop it would be a cancellation of the task alone, and so no interrupt.
    """
    asyncio: Any = sys.modules.get("asyncio")  # not loaded for this: help takes none of it
    if not hasattr(asyncio, "CancelledError") or asyncio._get_running_loop() is not None:
        raise KeyboardInterrupt
    raise type("Interrupted", (KeyboardInterrupt, asyncio.CancelledError), {})


_AGAIN_S = 0.05


def interrupted_again(problem: sys.UnraisableHookArgs) -> None:
    """An interrupt that a destructor swallowed comes again, when the destructor is through."""
    if not isinstance(problem.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
        return
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


if __name__ == "__main__":
    # `-m` puts the current folder first on the import path, where a user's own `api/` may lie.
    if not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(__file__).parents[2]:
        del sys.path[0]
    main()
