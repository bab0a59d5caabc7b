"""`recollect graph`: look at what was remembered, and clear it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import FAILED, OK, Invocation, command
from projections.events import DEFAULT_TENANT

if TYPE_CHECKING:
    from rich.console import Console

group = typer.Typer(help="Look at entities, their edges and communities; clear the graph.")
Tenant = Annotated[str, typer.Option("--tenant", help="whose graph")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="at most so many")]


def register(app: typer.Typer) -> None:
    """Put the group into the application."""
    command(group, "entities", example='recollect graph entities "payment"')(entities)
    command(group, "edges", example='recollect graph edges "order 4711"')(edges)
    command(group, "communities", example="recollect graph communities")(communities)
    command(group, "stats", example="recollect graph stats --json")(stats)
    command(group, "clear", example="recollect graph clear")(clear)
    app.add_typer(group, name="graph", rich_help_panel="Looking", no_args_is_help=True)


def entities(
    invocation: Invocation,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="words of names, or how they begin")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", help="agent, tool, user, service, resource or concept"),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    limit: Limit = 50,
) -> None:
    """Search entities; without a query list them by name."""
    from pipelines.operations.browse import entities as find

    found = find(invocation.services, tenant, query, kind, limit)

    def show(out: Console) -> None:
        rows = [
            (
                one["name"],
                _kind(one),
                f"{one['mentions']:,}",
                _day(one["last_seen"]),
                one["entity_id"],
            )
            for one in found
        ]
        _table(out, ("name", "type", "mentions", "last seen", ""), rows, "no entity", right=2)

    invocation.answer({"entities": found}, show)


def edges(
    invocation: Invocation,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="its name or id")],
    tenant: Tenant = DEFAULT_TENANT,
    limit: Limit = 100,
) -> None:
    """Show what is known about an entity, and which events say so."""
    from rich.markup import escape

    from pipelines.operations.browse import edges as find

    found = find(invocation.services, tenant, entity, time.time_ns() // 1_000_000, limit)

    def show(out: Console) -> None:
        others = [name for name in found["names"] if name != found["name"]]
        also = f"  [dim]also {escape(', '.join(others))}[/dim]" if others else ""
        out.print(
            f"[bold]{escape(found['name'])}[/bold]  [dim]{found['type']}, "
            f"{found['mentions']:,} mentions, {found['entity_id']}[/dim]{also}"
        )
        rows = [
            (
                one["source"],
                one["relation"],
                one["target"],
                one["edge_type"],
                f"{one['confidence']:.2f}",
                _day(one["valid_from"]),
                one["event_id"],
            )
            for one in found["edges"]
        ]
        heads = ("", "", "", "type", "confidence", "since", "said by")
        _table(out, heads, rows, "nothing is known about it", right=4)

    invocation.answer(found, show)


def communities(invocation: Invocation, tenant: Tenant = DEFAULT_TENANT, limit: Limit = 50) -> None:
    """List the communities of entities, the largest first."""
    from pipelines.operations.browse import communities as find

    found = find(invocation.services, tenant, limit)

    def show(out: Console) -> None:
        rows = [
            (
                one["name"] or "",
                f"{one['members'] or 0:,}",
                one["summary"] or "",
                one["community_id"],
            )
            for one in found
        ]
        nothing = "no community yet: a pass of consolidation makes them (recollect consolidate)"
        _table(out, ("name", "members", "", ""), rows, nothing, right=1)

    invocation.answer({"communities": found}, show)


def stats(invocation: Invocation) -> None:
    """Count entities, edges, communities and the rest of the active graph."""
    from pipelines.operations.browse import stats as count

    document = count(invocation.services)
    invocation.answer(document, lambda out: _show_counts(out, document))


def clear(
    invocation: Invocation,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> int:
    """Delete everything in the active graph, of all tenants. The ledger keeps every event.

    That it was cleared is written to the ledger. Workers that run fold the graph again at once,
    exactly as it was; without any it stays empty until one runs. To take a person's data away for
    good is another matter: the ledger would bring it back.
    """
    from pipelines.operations.browse import stats as count
    from pipelines.operations.clear import clear as run

    services = invocation.services
    document = count(services)
    if not yes:
        if invocation.json or not sys.stdin.isatty():
            raise typer.BadParameter("needed where nobody can be asked", param_hint="--yes")
        _show_counts(invocation.out, document)
        typer.confirm(f"Delete all of this from {document['target']}?", abort=True)
    report = run(services).as_dict()

    def show(out: Console) -> None:
        nodes, edges = sum(report["nodes"].values()), sum(report["edges"].values())
        out.print(
            f"[green]cleared[/green] {report['target']}: {nodes:,} nodes, {edges:,} edges "
            f"[dim](event {report['event_id']} at {report['position']})[/dim]"
        )
        out.print("workers that run fold it again; recollect status shows how far they are")

    invocation.answer(report, show)
    return OK if report["ok"] else FAILED


def _kind(one: Mapping[str, Any]) -> str:
    return f"{one['type']}/{one['subtype']}" if one["subtype"] else str(one["type"])


def _day(moment: str | None) -> str:
    return "" if moment is None else moment[:10]


def _table(
    out: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], nothing: str, *, right: int
) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not rows:
        out.print(f"[dim]{nothing}[/dim]")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(heads):
        last = number == len(heads) - 1
        table.add_column(
            head,
            justify="right" if number == right else "left",
            style="dim" if last else "",
            no_wrap=last,
        )
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)


def _show_counts(out: Console, document: Mapping[str, Any]) -> None:
    out.print(f"[bold]{document['target']}[/bold]")
    for what in ("nodes", "edges"):
        counts = {name: number for name, number in document[what].items() if number}
        shown = "  ".join(f"{name} [bold]{number:,}[/bold]" for name, number in counts.items())
        out.print(f"  [dim]{what}[/dim] {shown or 'none'}")
