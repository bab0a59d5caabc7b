"""`recollect archive`: the ledger's older entries go where there is more room."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.rendering import show_report
from pipelines.operations.archive import archive as archive_entries

app = typer.Typer()


@command(app, "archive", example="RECOLLECT_ARCHIVE_URL=/backup/ledger recollect archive")
def archive(
    invocation: Invocation,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="keep in Redis only what a stage has not folded, and the last entries"
        ),
    ] = False,
) -> None:
    """Move older entries of the ledger from Redis into the archive, now.

    To the folder or bucket that RECOLLECT_ARCHIVE_URL names, where every command and process goes
    on reading them. What a stage has not folded yet stays, and the newest entries stay
    (RECOLLECT_ARCHIVE_KEEP_ENTRIES). `recollect worker archive` does it all the time.
    """
    with invocation.progress() as progress, progress.waiting("archiving"):
        report = archive_entries(invocation.services, keep=1 if everything else None)
    title = f"{report.archived:,} entries archived"
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, title, document))
