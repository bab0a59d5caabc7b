"""`recollect archive`, `backup`, `restore`: the ledger's entries in a folder or a bucket."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.rendering import show_report
from pipelines.operations.archive import archive as archive_entries
from pipelines.operations.backup import backup as back_up
from pipelines.operations.backup import restore as bring_back

app = typer.Typer()
Place = Annotated[
    str, typer.Argument(help="an absolute path, or like s3://bucket/prefix", metavar="URL")
]


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


@command(app, "backup", example="recollect backup /backup/memory")
def backup(
    invocation: Invocation,
    url: Place,
    keep_days: Annotated[
        float | None,
        typer.Option(
            "--keep-days",
            min=0,
            metavar="DAYS",
            help="after how many days you will delete it; the receipts of erasures say so",
        ),
    ] = None,
) -> None:
    """Bring a backup of the ledger up to now, while events come in.

    It holds every event up to the moment it began, archived or not, and what models and rules made
    of it; what was there from the last time is not written again. Graphs are folded from it anew.
    """
    with invocation.progress() as progress:
        report = back_up(invocation.services, url, keep_days=keep_days, progress=progress)
    title = f"{report.entries:,} entries are in the backup"
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, title, document))


@command(app, "restore", example="recollect restore /backup/memory")
def restore(invocation: Invocation, url: Place) -> None:
    """Make the ledger of a backup in an empty Redis; then `recollect rebuild` folds the graph.

    Everything is read and compared before anything is written. Of an archive, what was still in
    Redis is missing. Stop workers and API before.
    """
    with invocation.progress() as progress:
        report = bring_back(invocation.services, url, progress=progress)
    title = f"{report.entries:,} entries restored: `recollect rebuild` folds them"
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, title, document))
