"""`recollect consolidate`: a pass of consolidation in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.commands.graph import PANEL, show_report
from pipelines.commands.invocation import OK, Invocation, command

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
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="as of this moment (ISO 8601 with a zone), which decisions then bear",
        ),
    ] = None,
) -> int:
    """Run a pass now: summarise what changed, and decide what is forgotten.

    What a worker does every six hours. Refuses while another pass runs anywhere. A pass that ran
    out of time (complete: no) is gone on with by the next one. Where no worker of the
    consolidation runs, what was decided is applied here.
    """
    from pipelines.consolidate import consolidate as run

    now_ms = moment(now, "--now")
    with invocation.progress() as progress, progress.waiting("consolidating"):
        report = run(
            invocation.services, tenants=None if tenant is None else [tenant], now_ms=now_ms
        )
    document = report.as_dict()
    title = "consolidated" if report.complete else "out of time; run it again to go on"
    invocation.answer(document, lambda out: show(out, title, document))
    return OK


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
