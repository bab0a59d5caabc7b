"""`recollect consolidate`: a pass of consolidation in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import OK, Invocation, command
from pipelines.cli.rebuild import PANEL, show_report

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Put the command into the application."""
    command(app, "consolidate", panel=PANEL, example="recollect consolidate --tenant acme")(
        consolidate
    )


def consolidate(
    invocation: Invocation,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="this tenant only (default: all)")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", help="this session only, of --tenant (default: default)"),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="the sessions of this agent only, likewise")
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="as of this moment (ISO 8601 with a zone), which decisions then bear",
        ),
    ] = None,
    dry_run_forgetting: Annotated[
        bool,
        typer.Option(
            "--dry-run-forgetting",
            help="only show what would be forgotten, and why the rest would stay",
        ),
    ] = False,
) -> int:
    """Run a pass now: summarise what changed, and decide what is forgotten.

    What a worker does every six hours; of a session or an agent alone, only what is said of it.
    Refuses while another pass runs anywhere. A pass that ran out of time (complete: no) is gone on
    with by the next one. Where no worker of the consolidation runs, what was decided is applied
    here.
    """
    from pipelines.operations.consolidate import consolidate as run
    from pipelines.operations.passes.scopes import PassScope
    from projections.events import DEFAULT_TENANT

    now_ms = moment(now, "--now")
    if session is not None and agent is not None:
        raise typer.BadParameter("not together with --session", param_hint="--agent")
    part = session is not None or agent is not None
    if dry_run_forgetting:
        if part:
            raise typer.BadParameter("looks at whole tenants", param_hint="--dry-run-forgetting")
        return plan(invocation, None if tenant is None else [tenant], now_ms)
    scopes = None
    if part or tenant is not None:
        scopes = [PassScope(tenant or DEFAULT_TENANT, session, agent)]
    with invocation.progress() as progress, progress.waiting("consolidating"):
        report = run(invocation.services, scopes=scopes, now_ms=now_ms)
    document = report.as_dict()
    title = "consolidated" if report.complete else "out of time; run it again to go on"
    invocation.answer(document, lambda out: show(out, title, document))
    return OK


def plan(invocation: Invocation, tenants: list[str] | None, now_ms: int | None) -> int:
    """Show what would be forgotten."""
    from pipelines.operations.consolidate import planned_forgetting

    with invocation.progress() as progress, progress.waiting("looking at what is old"):
        planned = planned_forgetting(invocation.services, tenants=tenants, now_ms=now_ms)
    document = {
        tenant: [
            {**row._asdict(), "tier": row.tier.value, "reason": str(row.reason)} for row in rows
        ]
        for tenant, rows in planned.items()
    }
    invocation.answer({"tenants": document}, lambda out: show_plan(out, document))
    return OK


def show_plan(out: Console, document: dict[str, list[dict[str, Any]]]) -> None:
    """For a person: a table of each tenant."""
    from rich.table import Table

    for tenant, rows in document.items():
        table = Table(title=tenant, title_justify="left", box=None, header_style="dim")
        for column in ("", "tier", "why", "events", "such as"):
            table.add_column(column, justify="right" if column == "events" else "left")
        for row in rows:
            word = "[red]leaves[/red]" if row["leaves"] else "[green]stays[/green]"
            examples = "\n".join(row["examples"])
            table.add_row(word, row["tier"], row["reason"], f"{row['events']:,}", examples)
        out.print(table if rows else f"{tenant}: no events")


def show(out: Console, title: str, document: dict[str, Any]) -> None:
    """For a person: what the pass did."""
    show_report(out, title, document)


def moment(text: str | None, option: str) -> int | None:
    """The moment an option names, milliseconds since the epoch.

    Raises:
        typer.BadParameter: it is none.
    """
    from projections.events import timestamp_ms

    if text is None:
        return None
    try:
        return timestamp_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
