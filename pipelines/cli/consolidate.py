"""`recollect consolidate`: a pass in the foreground; `recall-forgotten`: what one took away."""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK
from pipelines.cli.rendering import moment, show_report
from pipelines.ledger.epoch import PASS_PATIENCE_S
from pipelines.operations import consolidate as operation
from pipelines.operations import restore
from pipelines.operations.passes.scopes import PassScope
from pipelines.operations.past_answers import PastAnswers
from projections.events import DEFAULT_TENANT

MAX_EVENTS = 10_000
"""That one call may name."""
_EVENT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUMMARY_ID = re.compile(r"(?:summary:)?([0-9a-f]{32})")

app = typer.Typer()


@command(app, "consolidate", folds=True, example="recollect consolidate --tenant acme")
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
        str | None, typer.Option("--agent", help="the sessions of this agent only, of --tenant")
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="decide as of this time (ISO 8601 with a zone), and date the decisions so",
        ),
    ] = None,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="how long to wait for a pass that runs elsewhere to end "
            f"(default: {PASS_PATIENCE_S:g})",
        ),
    ] = PASS_PATIENCE_S,
    dry_run_forgetting: Annotated[
        bool,
        typer.Option(
            "--dry-run-forgetting",
            help="only show what would be forgotten, why the rest would stay, and which past "
            "answers showed what would go",
        ),
    ] = False,
) -> int:
    """Run a pass now: summarise what changed, decide what is forgotten.

    This is what a worker does every six hours; for a session or an agent alone, only the part that
    concerns it. Waits for a pass that runs elsewhere, and refuses if that takes longer. The next
    pass continues one that ran out of time (complete: no). If no consolidation worker runs, this
    command applies the decisions itself.
    """
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
        report = operation.consolidate(
            invocation.services, scopes=scopes, now_ms=now_ms, patience_s=wait_s
        )
    document = report.as_dict()
    title = "consolidated" if report.complete else "out of time; run it again to go on"
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK


def plan(invocation: Invocation, tenants: list[str] | None, now_ms: int | None) -> int:
    """Show what would be forgotten, and which past answers showed it."""
    with invocation.progress() as progress, progress.waiting("looking at what is old"):
        planned = operation.planned_forgetting(invocation.services, tenants=tenants, now_ms=now_ms)
    document = {
        tenant: [
            {**row._asdict(), "tier": row.tier.value, "reason": str(row.reason)}
            for row in forgetting.rows
        ]
        for tenant, forgetting in planned.items()
    }
    samples = {tenant: forgetting.answers for tenant, forgetting in planned.items()}
    answers = {
        tenant: {**sample._asdict(), "newest": [answer._asdict() for answer in sample.newest]}
        for tenant, sample in samples.items()
    }
    policy_of = invocation.settings.retention_of
    off = [tenant for tenant in document if not policy_of(tenant).enabled]

    def show(out: Console) -> None:
        show_plan(out, document, off)
        show_answers(out, samples)

    invocation.answer({"tenants": document, "switched_off": off, "past_answers": answers}, show)
    return OK


def show_plan(
    out: Console, document: dict[str, list[dict[str, Any]]], off: Container[str] = ()
) -> None:
    """For a person: a table of each tenant; of those in `off` nothing is forgotten as it is."""
    for tenant, rows in document.items():
        remark = ": forgetting is switched off; if it were on" if tenant in off else ""
        table = Table(title=f"{tenant}{remark}", title_justify="left", box=None, header_style="dim")
        for column in ("", "tier", "why", "events", "such as"):
            table.add_column(column, justify="right" if column == "events" else "left")
        for row in rows:
            word = "[red]leaves[/red]" if row["leaves"] else "[green]stays[/green]"
            examples = "\n".join(row["examples"])
            cells = (word, row["tier"], row["reason"], f"{row['events']:,}", examples)
            table.add_row(*cells)
        out.print(table if rows else f"{tenant}: no events")


def show_answers(out: Console, answers: Mapping[str, PastAnswers]) -> None:
    """For a person: how many of each tenant's sampled answers would change, and the newest."""
    for tenant, sample in answers.items():
        if not sample.sampled:
            where = "" if sample.whole else "among the newest entries of its partition "
            out.print(f"{tenant}: no past answer is recorded {where}until {sample.until}")
            continue
        extent = "all" if sample.whole else "the newest"
        out.print(
            f"{tenant}: {sample.changed:,} of {sample.sampled:,} records of past answers showed "
            f"events that would leave ({extent} from {sample.since} to {sample.until}, each of up "
            "to a second)"
        )
        for answer in sample.newest:
            unnamed = answer.leaving - len(answer.event_ids)
            named = ", ".join(answer.event_ids) + (f" and {unnamed:,} more" if unnamed else "")
            counts = f"{answer.leaving:,} of {answer.shown:,} events"
            out.print(f"  {answer.at}: {counts}: {named}", soft_wrap=True)


@command(
    app, "recall-forgotten", folds=True, example="recollect recall-forgotten --session checkout-17"
)
def recall_forgotten(
    invocation: Invocation,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="tenant whose events come back (default: default)"),
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="events of this session")] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary", metavar="ID", help="events that this summary lists, or a summary below it"
        ),
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", metavar="ID", help="this event; may be repeated")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="events that occurred then or later"),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="events that occurred by then")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="all forgotten events of the tenant")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only show how many there are")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="do not ask for confirmation at a terminal")
    ] = False,
) -> int:
    """Bring forgotten events back into the graph, with their edges, from the ledger.

    Events must match every option that is given. The ledger records that they came back; their age
    counts from now, so the next pass leaves them alone. After an interruption, run it again.
    """
    if not (everything or session or summary or event or since or until):
        raise typer.BadParameter(
            "name a --session, a --summary, an --event or a time, or say --all",
            param_hint="--session",
        )
    selection = restore.Selection(
        tenant=tenant or DEFAULT_TENANT,
        event_ids=event_ids(event) if event else None,
        summary_id=None if summary is None else summary_hash(summary),
        session_id=session,
        since_ms=moment(since, "--since"),
        until_ms=moment(until, "--until"),
    )
    ask = not (dry_run or yes or invocation.json) and sys.stdin.isatty()
    if dry_run or ask:
        with invocation.progress() as progress, progress.waiting("looking at tombstones"):
            report = restore.recall_forgotten(invocation.services, selection, apply=False)
        if dry_run or not report.away:
            document = report.as_dict()
            invocation.answer(
                document, lambda out: show_report(out, "nothing was changed", document)
            )
            return OK
        typer.confirm(f"Bring {report.away:,} events back?", abort=True)
    with invocation.progress() as progress:
        report = restore.recall_forgotten(invocation.services, selection, progress=progress)
    document = report.as_dict()
    title = "recalled" if document["ok"] else "not all came back; run it again to go on"
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if document["ok"] else FAILED


def event_ids(given: list[str]) -> tuple[str, ...]:
    """Event ids in their one form.

    Raises:
        typer.BadParameter: one is none, or there are too many.
    """
    ids = tuple(text.lower() for text in given)
    for text in ids:
        if _EVENT_ID.fullmatch(text) is None:
            raise typer.BadParameter(f"{text[:80]!r} is no UUID", param_hint="--event")
    if len(ids) > MAX_EVENTS:
        raise typer.BadParameter(f"at most {MAX_EVENTS:,}", param_hint="--event")
    return ids


def summary_hash(given: str) -> str:
    """The bare hash of a summary's id.

    Raises:
        typer.BadParameter: it is no such id.
    """
    match = _SUMMARY_ID.fullmatch(given.lower())
    if match is None:
        raise typer.BadParameter("an id as summary:<hash>", param_hint="--summary")
    return match[1]
