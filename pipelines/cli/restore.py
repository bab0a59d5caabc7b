"""`recollect recall-forgotten`: events that were forgotten come back."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from pipelines.cli.consolidate import moment
from pipelines.cli.invocation import FAILED, OK, Invocation, command
from pipelines.cli.rebuild import PANEL, show_report

MAX_EVENTS = 10_000
"""That one call may name."""
_EVENT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUMMARY_ID = re.compile(r"(?:summary:)?([0-9a-f]{32})")


def register(app: typer.Typer) -> None:
    """Put the command into the application."""
    command(
        app,
        "recall-forgotten",
        panel=PANEL,
        example="recollect recall-forgotten --session checkout-17",
    )(recall_forgotten)


def recall_forgotten(
    invocation: Invocation,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="whose events (default: default)")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="those of this session")] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary", metavar="ID", help="those that this summary lists, or those below it"
        ),
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", metavar="ID", help="this one; may be repeated")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="that occurred then or later")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="that occurred by then")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="all of the tenant, where nothing else is named")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only tell how many there are")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask at a terminal")] = False,
) -> int:
    """Bring forgotten events back into the graph, with their edges, from the ledger.

    What is named narrows the choice together. That they came back is written to the ledger; their
    age counts from now, so the next pass lets them be. Whoever is interrupted runs it again.
    """
    from pipelines.graph.reads.tombstones import Selection
    from pipelines.operations.restore import recall_forgotten as run
    from projections.events import DEFAULT_TENANT

    if not (everything or session or summary or event or since or until):
        raise typer.BadParameter(
            "name a --session, a --summary, an --event or a time, or say --all",
            param_hint="--session",
        )
    selection = Selection(
        tenant or DEFAULT_TENANT,
        event_ids(event) if event else None,
        None if summary is None else summary_hash(summary),
        session,
        moment(since, "--since"),
        moment(until, "--until"),
    )
    ask = not (dry_run or yes or invocation.json) and sys.stdin.isatty()
    if dry_run or ask:
        with invocation.progress() as progress, progress.waiting("looking at tombstones"):
            report = run(invocation.services, selection, apply=False)
        if dry_run or not report.away:
            document = report.as_dict()
            invocation.answer(
                document, lambda out: show_report(out, "nothing was changed", document)
            )
            return OK
        typer.confirm(f"Bring {report.away:,} events back?", abort=True)
    with invocation.progress() as progress:
        report = run(invocation.services, selection, progress=progress)
    document = report.as_dict()
    title = "recalled" if document["ok"] else "not all came back; run it again to go on"
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if document["ok"] else FAILED


def event_ids(given: list[str]) -> tuple[str, ...]:
    """Event ids in their one form.

    Raises:
        typer.BadParameter: one is none, or there are too many.
    """
    found = tuple(one.lower() for one in given)
    for one in found:
        if _EVENT_ID.fullmatch(one) is None:
            raise typer.BadParameter(f"{one[:80]!r} is no UUID", param_hint="--event")
    if len(found) > MAX_EVENTS:
        raise typer.BadParameter(f"at most {MAX_EVENTS:,}", param_hint="--event")
    return found


def summary_hash(given: str) -> str:
    """The bare hash of a summary's id.

    Raises:
        typer.BadParameter: it is no such id.
    """
    match = _SUMMARY_ID.fullmatch(given.lower())
    if match is None:
        raise typer.BadParameter("an id as summary:<hash>", param_hint="--summary")
    return match[1]
