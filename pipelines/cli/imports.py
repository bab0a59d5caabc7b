"""`recollect import`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK, REFUSED
from pipelines.cli.rendering import Progress
from pipelines.operations.imports import (
    ImportReport,
    Source,
    chat_items,
    event_items,
    import_events,
)
from pipelines.work.services import Services
from projections.identity import Position

_POLL_S = 0.1

app = typer.Typer()


class Format(StrEnum):
    """What a file holds."""

    EVENTS = "events"
    CHAT = "chat"


@command(app, "import", example="recollect import events.jsonl.gz --tenant acme --wait")
def import_(
    invocation: Invocation,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="file to read, gzip or not; - reads standard input",
        ),
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="events: one JSON envelope a line; chat: a JSON list of conversations in the "
            "OpenAI format",
        ),
    ] = Format.EVENTS,
    tenant: Annotated[
        str | None,
        typer.Option(help="tenant of all events; an envelope that names another is refused"),
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help="take what a ledger decided itself, too (summaries, what was forgotten …), as "
            "`recollect export` wrote it; into an empty ledger, before its workers start",
        ),
    ] = False,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="events in one append")] = 500,
    wait: Annotated[
        bool, typer.Option("--wait", help="return once the projection has folded the events")
    ] = False,
    wait_timeout_s: Annotated[
        float,
        typer.Option(
            "--wait-timeout", min=0.1, help="give up after so many seconds without progress"
        ),
    ] = 300.0,
) -> int:
    """Append events, or chat conversations, to the ledger.

    Each line is checked on its own: one that breaks a rule is reported with its line number, field
    and rule, and the others go in. Importing the same file again adds nothing.
    """
    try:
        source = Source(file)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None
    items = (event_items if form is Format.EVENTS else chat_items)(source.stream)
    with source.stream, invocation.progress() as progress:

        def on_batch(report: ImportReport) -> None:
            count = f"{report.read:,} events"
            progress(source.done, source.size, "importing", rate=report.rate, count=count)

        report = import_events(
            invocation.services.ledger,
            items,
            tenant=tenant,
            decisions=decisions,
            batch=batch,
            on_problem=lambda problem: invocation.note(f"refused {problem}"),
            on_batch=on_batch,
        )
        passed = not wait or wait_until_passed(
            invocation.services, report.last, progress, wait_timeout_s
        )
    document = report.as_dict()
    if wait:
        document["projected"] = passed
    invocation.answer(document, lambda out: show(out, report))
    if not passed:
        invocation.note(
            f"not projected: no progress for {wait_timeout_s:g} s; is a worker running "
            "(recollect worker projection)?"
        )
    if report.refused:
        return FAILED if report.halted else REFUSED
    return OK if passed else FAILED


def show(out: Console, report: ImportReport) -> None:
    """For a person: the counts, only those that matter."""
    parts = [f"[bold]{report.new:,}[/bold] new"]
    if report.duplicates:
        parts.append(f"{report.duplicates:,} already there")
    for count, word in (
        (report.conflicts, "in conflict"),
        (report.invalid, "invalid"),
        (report.halted, "refused by a halted partition (recollect recover)"),
    ):
        if count:
            parts.append(f"[red]{count:,} {word}[/red]")
    out.print(
        f"{report.read:,} events: {', '.join(parts)}; "
        f"{report.seconds:.1f} s, {report.rate:,.0f} events/s"
    )


def wait_until_passed(
    services: Services,
    last: Mapping[int, Position],
    progress: Progress,
    patience_s: float,
    *,
    stage: str = "projection",
    doing: str = "projecting",
) -> bool:
    """Wait until a stage has passed `last`, by partition, in the active target.

    False when nothing moved for `patience_s` seconds.
    """
    graph = services.graph(services.active())
    moved_at, before = time.monotonic(), -1
    total = None
    while True:
        checkpoints = {c.partition: c for c in graph.checkpoints(stage)}
        behind = [
            partition
            for partition, position in last.items()
            if partition not in checkpoints or checkpoints[partition].position < position
        ]
        seqs = sum(checkpoint.seq for checkpoint in checkpoints.values())
        if total is None:
            total = sum(tail.seq for tail in services.ledger.tails()) - seqs
            first = seqs
        progress(seqs - first, max(total, 1), doing)
        if not behind:
            return True
        if seqs != before:
            moved_at, before = time.monotonic(), seqs
        elif time.monotonic() - moved_at > patience_s:
            return False
        time.sleep(_POLL_S)
