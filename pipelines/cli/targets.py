"""`recollect targets`: the graphs that are folded from this ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.invocation import Invocation, command

if TYPE_CHECKING:
    from rich.console import Console

group = typer.Typer(help="List, activate and drop the graphs that are folded from this ledger.")
Name = Annotated[str, typer.Argument(help="name of the target", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Put the group into the application."""
    command(group, "list", example="recollect targets list")(list_targets)
    command(group, "activate", example="recollect targets activate green")(activate)
    command(group, "move", example="recollect targets move blue bolt://graph-2:7687")(move)
    command(group, "drop", example="recollect targets drop blue")(drop)
    app.add_typer(group, name="targets", rich_help_panel="Graph", no_args_is_help=True)


def list_targets(invocation: Invocation) -> None:
    """List the registered targets and which one answers reads."""
    services = invocation.services
    active = services.active().name
    targets = services.targets.all()
    document = {
        "active": active,
        "targets": [
            {
                "name": target.name,
                "uri": target.uri,
                "database": target.database,
                "state": target.state,
                "active": target.name == active,
            }
            for target in targets
        ],
    }

    def show(out: Console) -> None:
        for target in targets:
            mark = "[green]●[/green]" if target.name == active else "[dim]○[/dim]"
            out.print(
                f"{mark} [bold]{target.name}[/bold] {target.state:<8} [dim]{target.uri}[/dim]"
            )

    invocation.answer(document, show)


def activate(invocation: Invocation, name: Name) -> None:
    """Answer reads from this target from now on; the API follows within a second."""
    services = invocation.services
    services.active()  # registers the settings' target on a fresh ledger
    services.targets.get(name)
    generation = services.targets.activate(name)
    invocation.answer(
        {"active": name, "generation": generation},
        lambda out: out.print(f"reads are answered from [bold]{name}[/bold] now"),
    )


def drop(invocation: Invocation, name: Name) -> None:
    """Forget a target: it is no longer kept in step.

    A graph in an embedded Neo4j is deleted with it; any other is left as it is.
    """
    from pipelines import local

    services = invocation.services
    target = services.targets.get(name)
    services.targets.drop(name)
    data_dir = services.settings.data_dir
    state = local.read_state(data_dir)
    embedded = state is not None and state.neo4j_urls.get(name) == target.uri
    if embedded:
        local.drop_target(data_dir, name)
    invocation.answer(
        {"dropped": name, "deleted": embedded}, lambda out: out.print(f"{name} is dropped")
    )


def move(
    invocation: Invocation,
    name: Name,
    uri: Annotated[str, typer.Argument(help="bolt://HOST:PORT", metavar="URI")],
) -> None:
    """Say where a target's server is now, with the same graph in it."""
    targets = invocation.services.targets
    targets.register(replace(targets.get(name), uri=uri))
    invocation.answer({"name": name, "uri": uri}, lambda out: out.print(f"{name} is at {uri} now"))
