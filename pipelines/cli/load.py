"""`recollect load`: agents at work, made up, to see what a memory does under load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.cli.ask import Api, KeyFile, api_place
from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK
from pipelines.operations import load_generator
from projections.errors import OperationFailed

app = typer.Typer()


@command(app, "load", example="recollect load --rate 50 --questions 2 --for 30")
def load(
    invocation: Invocation,
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, help="events a second, of all agents together")
    ] = 50.0,
    questions: Annotated[
        float, typer.Option("--questions", min=0.0, help="questions a second")
    ] = 2.0,
    for_s: Annotated[float, typer.Option("--for", min=1.0, help="seconds")] = 30.0,
    agents: Annotated[
        int, typer.Option("--agents", min=1, max=500, help="sessions that go on at once")
    ] = 16,
    users: Annotated[int, typer.Option("--users", min=1, help="people they are for")] = 20,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="of what they say; each gives sessions of its own")
    ] = 1,
    whose: Annotated[
        str,
        typer.Option(
            "--tenant",
            metavar="TENANT",
            help="tenant whose memory it becomes; - for that of the key",
        ),
    ] = "load",
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=0.0, help="seconds that stages may take to catch up"),
    ] = 300.0,
    api: Api = None,
    key_file: KeyFile = None,
) -> int:
    """Log sessions of made-up agents at a rate, ask about them, and tell latencies and errors.

    Agents call tools that fail and are tried again, for several users; every event is a request of
    its own by the Python client (`pip install recollect-client`). What they say stays in the memory
    of the tenant. A latency counts from when a step was due, so that a service that falls behind
    shows it. The exit code is 1 where something was not answered.
    """
    place = api_place(invocation, api, key_file)
    if place is None:
        reason = "no API runs here: `recollect up --detach --all` starts one, --api URL names one"
        raise OperationFailed(reason=reason)
    wanted = load_generator.Load(
        rate=rate,
        questions=questions,
        for_s=for_s,
        agents=agents,
        users=users,
        seed=seed,
        tenant=None if whose == "-" else whose,
        patience_s=patience_s,
    )
    with invocation.progress() as progress:
        document = load_generator.run(place, wanted, progress).as_dict()
    invocation.answer(document, lambda out: _show(out, document))
    return FAILED if document["errors"] else OK


def _show(out: Console, document: Mapping[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("", "in all", "a second", "p50 ms", "p95 ms", "p99 ms", "not answered"):
        table.add_column(head, justify="right" if head else "left")
    for name in ("events", "questions"):
        row = document[name]
        colour = "red" if row["failed"] else "green"
        table.add_row(
            f"[bold]{name}[/bold]",
            f"{row['asked']:,}",
            f"{row['rate']:,.1f}",
            *(f"{row[share]:,.0f}" for share in ("p50", "p95", "p99")),
            f"[{colour}]{row['failed']:,}[/{colour}]",
        )
    out.print(table)
    out.print(f"[dim]sessions[/dim] {document['sessions']:,}")
    for stage, behind in document["behind"].items():
        took = document["caught_up_s"][stage]
        if took is None:
            caught_up = "[yellow]and had not caught up when nobody waited any more[/yellow]"
        else:
            caught_up = f"caught up within {took:,.1f} s"
        out.print(f"[dim]{stage}[/dim] {behind:,} entries behind at the end, {caught_up}")
    for name, number in document["errors"].items():
        out.print(f"[red]{name}: {number:,}[/red]")
