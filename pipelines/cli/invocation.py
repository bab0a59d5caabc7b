"""What every command shares: the options, the exit codes, one way to answer and to fail.

A machine (`--json`) gets exactly one JSON document on standard output; everything for people
(progress, reports of bad lines, logs) goes to standard error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from pipelines.cli.outcome import (
    AWAY,
    FAILED,
    OK,
    REFUSED,
    USAGE,
    report_error,
    write_json,
)
from pipelines.cli.rendering import Progress
from pipelines.local.data_folder import connection_settings
from pipelines.observe.logs import configure_logging
from pipelines.work.settings import Settings, load_settings
from pipelines.work.stages import STAGES, Stage
from projections.errors import (
    ArchiveUnavailable,
    ConfigurationError,
    EventConflict,
    GraphUnavailable,
    InvalidInput,
    KeysUnavailable,
    LedgerUnavailable,
    RecollectError,
    StageBehind,
    UnknownTarget,
    was_interrupted,
)
from projections.events import TENANT

if TYPE_CHECKING:
    from pipelines.work.services import Services

STAGE_NAMES = f"one of {', '.join(STAGES)}"
_PIPE_COLUMNS = 200
CONNECTION, OUTPUT = "Services", "Output"

_SHARED: tuple[tuple[str, Any, Any], ...] = (
    (
        "redis",
        Annotated[
            str | None,
            typer.Option(
                "--redis",
                metavar="URL",
                help="where the ledger is: redis://HOST:PORT/DB or "
                "redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB",
                rich_help_panel=CONNECTION,
            ),
        ],
        None,
    ),
    (
        "neo4j",
        Annotated[
            str | None,
            typer.Option(
                "--neo4j",
                metavar="URL",
                help="where the graph is: bolt://…",
                rich_help_panel=CONNECTION,
            ),
        ],
        None,
    ),
    (
        "data",
        Annotated[
            Path | None,
            typer.Option(
                "--data",
                metavar="DIR",
                help="data folder of the embedded services (default .recollect)",
                rich_help_panel=CONNECTION,
            ),
        ],
        None,
    ),
    (
        "debug",
        Annotated[bool, typer.Option("--debug", help="show tracebacks", rich_help_panel=OUTPUT)],
        False,
    ),
)
_JSON: tuple[str, Any, Any] = (
    "json",
    Annotated[
        bool,
        typer.Option(
            "--json", help="print one JSON document to standard output", rich_help_panel=OUTPUT
        ),
    ],
    False,
)


@dataclass
class Invocation:
    """One run of a command: what the shared options said, and how to answer."""

    redis: str | None = None
    neo4j: str | None = None
    data: Path | None = None
    json: bool = False
    debug: bool = False
    folds: bool = False
    _services: list[Services] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def settings(self) -> Settings:
        """Options over environment over the embedded services of the data folder over defaults."""
        return settings_of(self.redis, self.neo4j, self.data)

    @property
    def services(self) -> Services:
        """The connections, closed when the command ends.

        Raises:
            KeysUnavailable: the command folds, tenants are sealed, and it has no keys.
        """
        if not self._services:
            from pipelines.work.services import Services  # with the drivers of both databases

            log_to_stderr(self.settings, debug=self.debug)
            self.require_ledger()
            self._services.append(Services(self.settings))
            if self.folds:
                # A fold would wait for them, as a worker does.
                self._services[0].ledger.vault.require_keys()
        return self._services[0]

    def require_ledger(self) -> None:
        """Notice at once that Redis is away, not after each call's own patience.

        Raises:
            LedgerUnavailable: it is.
        """
        from pipelines.ledger.connect import require_answer  # with the driver

        require_answer(self.settings)

    def advice(self, error: RecollectError) -> str:
        """Which service is away, and what to do about it, where that is known."""
        settings = self.settings
        if isinstance(error, ArchiveUnavailable | KeysUnavailable):
            return ""  # it says itself what is wrong
        name = "Redis" if isinstance(error, LedgerUnavailable) else "Neo4j"
        if "redis_url" in settings.model_fields_set:
            return f" (that is {name})"
        folder = settings.data_dir
        start = f"`recollect up --detach --data {folder}` starts them"
        return f" (that is {name}); no embedded services run on {folder}: {start}"

    @cached_property
    def out(self) -> Console:
        """For the answer to a person."""
        # In a pipe a line is a line, however long: scripts look at it.
        return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)

    @cached_property
    def err(self) -> Console:
        """For everything beside the answer."""
        return Console(stderr=True, highlight=False)

    def progress(self) -> Progress:
        """A progress bar on standard error; silent for machines and in pipes."""
        return Progress(self.err, shown=not self.json and sys.stderr.isatty())

    def note(self, text: str) -> None:
        """Say something on standard error."""
        self.err.print(text, markup=False, soft_wrap=True)

    def answer(self, document: Mapping[str, Any], show: Callable[[Console], None]) -> None:
        """The answer: `document` for a machine, what `show` prints for a person."""
        if self.json:
            write_json(document)
        else:
            show(self.out)

    def close(self) -> None:
        """Close the connections."""
        for services in self._services:
            services.close()


def settings_of(redis: str | None, neo4j: str | None, data: Path | None) -> Settings:
    """Options over environment over the embedded services of the data folder over defaults."""
    given: dict[str, Any] = {"redis_url": redis, "neo4j_url": neo4j, "data_dir": data}
    settings = load_settings(**given)
    chosen = settings.model_fields_set
    embedded = connection_settings(
        settings.data_dir, settings.neo4j_url if "neo4j_url" in chosen else None
    )
    if "redis_url" in chosen and settings.redis_url != embedded.get("redis_url"):
        return settings
    for name, value in embedded.items():
        # The user's word about the graph stands; the embedded ledger is still theirs to use.
        if name not in chosen:
            given[name] = value
    return load_settings(**given)


def log_to_stderr(settings: Settings, *, debug: bool = False) -> None:
    """Send logs to standard error, and of a command only what a person must see.

    A worker and the API configure logging again, as the settings say.
    """
    changes: dict[str, str] = {}
    if "log_level" not in settings.model_fields_set:
        changes["log_level"] = "info" if debug else "warning"
    if "log_format" not in settings.model_fields_set:
        changes["log_format"] = "console"
    configure_logging(settings.model_copy(update=changes))


def exit_code(error: RecollectError) -> int:
    """The exit code that an error ends a command with."""
    if isinstance(error, LedgerUnavailable | GraphUnavailable):
        return AWAY
    if isinstance(error, InvalidInput | EventConflict | StageBehind):
        return REFUSED
    if isinstance(error, ConfigurationError | UnknownTarget):
        return USAGE
    return FAILED


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    machine: bool = True,
    folds: bool = False,
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Register a function as a command with the shared options.

    The function takes an `Invocation` and its own options, and returns its exit code (None: 0).

    Args:
        app: of the module, or of a group in it; `main.COMMANDS` names the module.
        name: the word on the command line.
        example: one command line, shown under the help.
        machine: whether there is something to say with `--json`.
        folds: whether it folds entries of all tenants, and so needs the keys of those sealed.
    """
    shared = (*_SHARED, _JSON) if machine else _SHARED

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        signature = inspect.signature(function, eval_str=True)
        options = [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
            for option, kind, default in shared
        ]

        def run(**values: Any) -> None:
            common = {option: values.pop(option) for option, _, _ in shared}
            invocation = Invocation(**common, folds=folds)
            require_tenant(values.get("tenant"))
            try:
                code = function(invocation, **values)
            except RecollectError as error:
                if invocation.debug:
                    raise
                if was_interrupted(error):
                    raise KeyboardInterrupt from error
                code = exit_code(error)
                report_error(
                    type(error).__name__,
                    str(error) + (invocation.advice(error) if code == AWAY else ""),
                    code=code,
                    json=invocation.json,
                    retryable=error.retryable,
                )
            finally:
                invocation.close()
            raise typer.Exit(code or OK)

        run.__doc__ = function.__doc__
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(signature.parameters.values())[1:]
        ]
        run.__signature__ = inspect.Signature([*parameters, *options])  # type: ignore[attr-defined]  # read by inspect.signature
        run.__annotations__ = {p.name: p.annotation for p in [*parameters, *options]}
        app.command(
            name,
            epilog=f"[bold]Example:[/bold] [cyan]{example}[/cyan]",
        )(run)
        return function

    return register


def require_tenant(name: str | None) -> None:
    """See that what --tenant names can be a tenant: under any other name nothing would be found.

    Raises:
        typer.BadParameter: it cannot.
    """
    if name is not None and TENANT.fullmatch(name) is None:
        raise typer.BadParameter(f"matches ^{TENANT.pattern}$", param_hint="--tenant")


def stage_named(name: str, option: str) -> Stage:
    """The row of the stage that an option or argument names.

    Raises:
        typer.BadParameter: there is no such stage.
    """
    if name not in STAGES:
        raise typer.BadParameter(STAGE_NAMES, param_hint=option)
    return STAGES[name]
