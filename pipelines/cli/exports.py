"""`recollect export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK
from pipelines.cli.rendering import moment
from pipelines.operations.export.events import ExportReport, Format, Selection
from pipelines.operations.export.run import FORMS, STANDARD_OUTPUT, document, export
from projections.events import DEFAULT_TENANT

app = typer.Typer()


File = Annotated[
    Path,
    typer.Argument(
        metavar="[FILE]", help="file to write, packed if it ends in .gz; - is standard output"
    ),
]
Form = Annotated[
    Format,
    typer.Option(
        "--format", help="; ".join(f"{name}: {row.meaning}" for name, row in FORMS.items())
    ),
]


@command(app, "export", example="recollect export events.jsonl.gz --tenant acme")
def export_(
    invocation: Invocation,
    file: File = STANDARD_OUTPUT,
    form: Form = Format.EVENTS,
    tenant: Annotated[
        str | None,
        typer.Option(help="of this tenant alone; all by default, of a session or user `default`"),
    ] = None,
    session: Annotated[str | None, typer.Option(help="of this session alone")] = None,
    user: Annotated[str | None, typer.Option(help="of this user alone")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="what occurred then or later, RFC 3339")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="what occurred until then, RFC 3339")
    ] = None,
) -> int:
    """Write events, the graph or a session to a file, for other programs and for people.

    A file appears when all of it is written, so none is half. Events come as they were sent, with
    what Recollect decided itself: `recollect import --decisions` into an empty ledger, and
    `recollect rebuild`, make the same graph of them.
    """
    owner = tenant or (DEFAULT_TENANT if (session, user) != (None, None) else None)
    begin_ms, end_ms = moment(since, "--since"), moment(until, "--until")
    return write(invocation, form, Selection(owner, session, begin_ms, end_ms, user_id=user), file)


def write(invocation: Invocation, form: Format, selection: Selection, file: Path) -> int:
    """Write what is selected, and say what was written; the exit code."""
    if invocation.json and file == STANDARD_OUTPUT:
        raise typer.BadParameter("a file, with --json", param_hint="FILE")
    with invocation.progress() as progress:
        report = export(
            invocation.services,
            form,
            selection,
            file,
            progress=progress,
        )
    for row in report.left_out:
        invocation.note(
            f"left out: entry {row.position} of partition {row.partition}: {row.reason}"
        )
    if file == STANDARD_OUTPUT:
        show(invocation.err, report)
    else:
        invocation.answer(document(report, form, file), lambda out: show(out, report))
    return FAILED if report.left_out_count else OK


def show(out: Console, report: ExportReport) -> None:
    """For a person."""
    counts = ", ".join(f"{number:,} {name}" for name, number in report.written.items())
    out.print(f"[bold]{counts or 'nothing'}[/bold]; {report.size:,} bytes, {report.seconds:.1f} s")
    if report.left_out_count:
        out.print(
            f"[red]{report.left_out_count:,} entries of the ledger cannot be read and are not in "
            "it[/red] (recollect check)"
        )
    for note in report.notes:
        out.print(f"[yellow]{note}[/yellow]")
