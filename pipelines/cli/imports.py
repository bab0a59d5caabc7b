"""`recollect import`."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.console import Console
from rich.markup import escape

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK, REFUSED
from pipelines.cli.rendering import Progress
from pipelines.operations.formats.mapped import Given
from pipelines.operations.formats.rows import read_mapping
from pipelines.operations.formats.table import FORMS, Format, Items, row_items, sniffed
from pipelines.operations.imports import ImportReport, import_events
from pipelines.operations.sources import Source, peekable
from pipelines.work.services import Services
from pipelines.work.stages import PROJECTION, later_stages
from projections.events import DEFAULT_TENANT
from projections.identity import Position

_POLL_S = 0.1
UTC_NAME = "UTC"

app = typer.Typer()


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
        Format | None,
        typer.Option(
            "--format",
            help="; ".join(f"{name}: {row.meaning}" for name, row in FORMS.items())
            + "; by default what its first record looks like",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="tenant of all events; an envelope that names another is refused"),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="whom events of a foreign format concern that name nobody")
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            "--mapping",
            metavar="FILE",
            help="which column is what, TOML or JSON; the file holds rows then",
        ),
    ] = None,
    timezone: Annotated[
        str,
        typer.Option(help="of times in foreign formats that name none, such as Europe/Berlin"),
    ] = UTC_NAME,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit code 4, too, when a part could not be mapped")
    ] = False,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help="take what a ledger decided itself, too (summaries, what was forgotten …), as "
            "`recollect export` wrote it: into an empty ledger; then `recollect rebuild`, then "
            "workers",
        ),
    ] = False,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="events in one append")] = 500,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="return once they can be asked for: projected, and enriched if that has begun",
        ),
    ] = False,
    wait_timeout_s: Annotated[
        float,
        typer.Option(
            "--wait-timeout", min=0.1, help="give up after so many seconds without progress"
        ),
    ] = 300.0,
) -> int:
    """Append events to the ledger: ours, or those of conversations, traces and memories of others.

    Each event is checked on its own: one that breaks a rule is reported with its line number, field
    and rule, and the others go in. What no event has a place for is counted by field and reason.
    Importing the same file again adds nothing.
    """
    given = Given(tenant or DEFAULT_TENANT, user, _zone(timezone))
    try:
        source = Source(file)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None
    with source.stream, invocation.progress() as progress:
        form, items = _items(peekable(source.stream), form, mapping, given)

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
        folded_by, behind = 0, None
        if wait:
            folded_by, behind = _wait(invocation.services, report.last, progress, wait_timeout_s)
    document = {"format": form, **report.as_dict()}
    if wait:
        document["projected"] = folded_by > 0
        document["behind"] = behind
    invocation.answer(document, lambda out: show(out, report, form))
    if (
        form is Format.EVENTS
        and not decisions
        and any(row.field == "event_type" for row in report.problems)
    ):
        invocation.note("of an export: --decisions takes what the other ledger decided itself")
    if behind:
        invocation.note(
            f"not folded by the {behind}: no progress for {wait_timeout_s:g} s; is a worker "
            f"running (recollect worker {behind})?"
        )
    if report.refused:
        return FAILED if report.halted else REFUSED
    if strict and report.unmapped:
        return REFUSED
    return FAILED if behind else OK


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == UTC_NAME else ZoneInfo(name)  # a small image has no other
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise typer.BadParameter(f"{name} is no time zone", param_hint="--timezone") from None


def _items(
    stream: io.BufferedReader, form: Format | None, mapping: Path | None, given: Given
) -> tuple[Format, Items]:
    """What a file holds, by its format, or by what it looks like."""
    if mapping is not None:
        if form not in (None, Format.ROWS):
            raise typer.BadParameter(f"not with --format {form}", param_hint="--mapping")
        try:
            return Format.ROWS, row_items(stream, given, read_mapping(mapping))
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--mapping") from None
    form = form or sniffed(stream)
    if given.user_id is not None and form in (Format.EVENTS, Format.CHAT):
        raise typer.BadParameter(f"not with --format {form}", param_hint="--user")
    if given.zone != UTC and form in (Format.EVENTS, Format.CHAT, Format.SWE_AGENT):
        rule = f"--format {form} holds no time without a zone"
        raise typer.BadParameter(rule, param_hint="--timezone")
    return form, FORMS[form].items(stream, given)


def show(out: Console, report: ImportReport, form: Format) -> None:
    """For a person: the counts, only those that matter."""
    parts = [f"[bold]{report.new:,}[/bold] new"]
    if report.duplicates:
        parts.append(f"{report.duplicates:,} already there")
    if report.retold:
        parts.append(f"{report.retold:,} told in other words before")
    for count, word in (
        (report.conflicts, "in conflict"),
        (report.invalid, "invalid"),
        (report.halted, "refused by a halted partition (recollect recover)"),
    ):
        if count:
            parts.append(f"[red]{count:,} {word}[/red]")
    source = "" if form is Format.EVENTS else f" of {form}"
    out.print(
        f"{report.read:,} events{source}: {', '.join(parts)}; "
        f"{report.seconds:.1f} s, {report.rate:,.0f} events/s"
    )
    for row in report.unmapped.values():
        place = ", ".join(f"{name} {number}" for name, number in row.first.items())
        field = escape(row.field)
        out.print(f"  [yellow]{row.count:,} x {field}: {row.reason}[/yellow] [dim]({place})[/dim]")
    if report.unmapped_left_out:
        out.print(f"  [yellow]{report.unmapped_left_out:,} x other parts[/yellow]")


def _wait(
    services: Services, last: Mapping[int, Position], progress: Progress, patience_s: float
) -> tuple[int, str | None]:
    """Wait until what was appended can be asked for.

    A later stage that has never begun in the active target is not waited for.

    Returns:
        How many stages have folded it, and the name of one that does not get there.
    """
    begun = {checkpoint.stage for checkpoint in services.graph(services.active()).checkpoints()}
    later = [stage for stage in later_stages(begun) if not stage.decides]
    for number, stage in enumerate([PROJECTION, *later]):
        name = stage.name
        if not wait_until_passed(services, last, progress, patience_s, stage=name, doing=name):
            return number, name
    return 1 + len(later), None


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
