"""`recollect status`."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import orjson
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import AWAY, OK
from pipelines.operations import status as operation

app = typer.Typer()


@command(app, "status", example="recollect status --json | jq .stages")
def status(
    invocation: Invocation,
    watch: Annotated[
        bool, typer.Option("--watch", help="look again every interval, until interrupted")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="seconds between two looks")
    ] = 1.0,
) -> int:
    """Show lag, dead letters, the last passes, the graph, ledger and targets.

    The exit code is 3 when the graph cannot be reached. With --watch --json each look is one line.
    """
    if watch:
        return _watch(invocation, interval_s)
    document = operation.status(invocation.services)
    invocation.answer(document, lambda out: out.print(picture(document)))
    return AWAY if document["errors"] else OK


def _watch(invocation: Invocation, interval_s: float) -> int:
    if invocation.json:
        while True:
            sys.stdout.write(orjson.dumps(operation.status(invocation.services)).decode() + "\n")
            sys.stdout.flush()
            time.sleep(interval_s)
    with Live(console=invocation.out, auto_refresh=False) as live:
        while True:
            live.update(picture(operation.status(invocation.services)), refresh=True)
            time.sleep(interval_s)


def picture(document: dict[str, Any]) -> RenderableType:
    """The document for a person."""
    stages = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("stage", "target", "lag", "seconds behind", "dead letters", ""):
        stages.add_column(column, justify="right" if column in ("lag", "dead letters") else "left")
    for name, stage in document["stages"].items():
        remark = "[red]rebuild needed[/red]" if stage["rebuild_needed"] else ""
        if not stage["started"]:
            remark = f"[dim]never started: recollect worker {name}[/dim]"
        if stage["graph_ahead"]:
            remark = "[red]graph ahead of the ledger: recollect recover[/red]"
        lag, letters = stage["lag_entries"], stage["dead_letters"]
        cells = (
            f"[bold]{name}[/bold]",
            stage["target"],
            f"[{'yellow' if lag else 'green'}]{lag:,}[/]" if stage["started"] else "-",
            f"{stage['lag_seconds']:.1f}" if stage["started"] else "-",
            f"[{'red' if letters else 'green'}]{letters:,}[/]",
            remark,
        )
        stages.add_row(*cells)
    parts: list[RenderableType] = [stages, *_holds(document["stages"])]
    parts += [*_other_models(document["stages"]), ""]
    if document["passes"]:
        parts += [_passes(document["passes"]), ""]
    if document["graph"]:
        parts.append(_counts("nodes", document["graph"]["nodes"]))
        parts.append(_counts("edges", document["graph"]["edges"]))
        if document["graph"]["placeholders"]:
            parts.append(f"[dim]parents not seen yet[/dim] {document['graph']['placeholders']:,}")
    ledger, memory = document["ledger"], document["ledger"]["memory"]
    limit = f" of {memory['max_bytes'] / 2**20:,.0f}" if memory["max_bytes"] else ""
    parts.append(
        f"[dim]ledger[/dim] {ledger['entries']:,} entries in {ledger['partitions']} partitions, "
        f"{memory['used_bytes'] / 2**20:,.1f}{limit} MiB"
    )
    parts.extend(
        f"[red]partition {partition} halted: {reason} (recollect recover)[/red]"
        for partition, reason in ledger["halted"].items()
    )
    parts.append(f"[dim]recall of facts[/dim] {document['recall']}")
    for target in document["targets"]:
        mark = "[green]●[/green]" if target["active"] else "[dim]○[/dim]"
        parts.append(f"{mark} {target['name']} [dim]{target['state']}, {target['uri']}[/dim]")
    parts.extend(f"[red]{error['message']}[/red]" for error in document["errors"])
    return Group(*parts)


def _passes(passes: list[dict[str, Any]]) -> RenderableType:
    """The last pass of consolidation of each tenant."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("tenant", "last pass", "", "requests"):
        table.add_column(column)
    for row in passes:
        if row["ended_at"] is None:
            outcome = ""
        else:
            outcome = "complete" if row["complete"] else "[yellow]cut short[/yellow]"
        waiting = row["requests_waiting"]
        table.add_row(
            f"[bold]{row['tenant']}[/bold]",
            row["ended_at"] or "[dim]never[/dim]",
            outcome,
            f"[yellow]{waiting:,} waiting[/yellow]" if waiting else "[dim]none[/dim]",
        )
    return table


def _holds(stages: dict[str, Any]) -> list[str]:
    """Where stages hold, and what an operator can do."""
    return [
        f"[red]{name} holds since {hold['since']} at {hold['partition']}/{hold['seq']}: "
        f"{escape(hold['reason'])}; if that is poison: recollect dead-letters release {name}[/red]"
        for name, stage in stages.items()
        if (hold := stage["held"])
    ]


def _other_models(stages: dict[str, Any]) -> list[str]:
    """Both names of the models, where they are the reason for a rebuild."""
    return [
        f"[red]{name}: the graph was derived with {models['graph']}; "
        f"installed: {models['installed']}[/red]"
        for name, stage in stages.items()
        if stage["rebuild_needed"]
        and (models := stage["models"])
        and models["graph"] != models["installed"] is not None
    ]


def _counts(what: str, counts: dict[str, int]) -> str:
    shown = "  ".join(f"{name} [bold]{number:,}[/bold]" for name, number in counts.items())
    return f"[dim]{what}[/dim] {shown or 'none'}"
