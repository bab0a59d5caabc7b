"""`recollect graph`: look at what was remembered, and clear it; `status`: what runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import AWAY, FAILED, OK, write_json_line
from pipelines.cli.rendering import show_table
from pipelines.graph.reads.scope import Scope
from pipelines.operations import browse
from pipelines.operations import status as operation
from pipelines.operations.browse import clear_graph
from projections.events import DEFAULT_TENANT, EVERYONE

app = typer.Typer()
graph = typer.Typer(help="Look at entities, their edges and communities; clear the graph.")
app.add_typer(graph, name="graph", no_args_is_help=True)
Tenant = Annotated[str, typer.Option("--tenant", help="tenant whose graph is read")]
User = Annotated[
    str,
    typer.Option("--user", help="see what this user may; * sees what is of all users"),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="how many to list at most")]


@command(graph, "entities", example='recollect graph entities "payment"')
def entities(
    invocation: Invocation,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="words of a name, or its beginning")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", help="agent, tool, user, service, resource or concept"),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    limit: Limit = 50,
) -> None:
    """Search entities by name; without a query, list them all."""
    listed = browse.entities(
        invocation.services, _view(tenant, user), query=query, entity_type=kind, limit=limit
    )

    def show(out: Console) -> None:
        rows = [
            (
                row["name"],
                _kind(row),
                f"{row['mentions']:,}",
                _day(row["last_seen"]),
                row["entity_id"],
            )
            for row in listed
        ]
        show_table(out, ("name", "type", "mentions", "last seen", ""), rows, "no entity", right=2)

    invocation.answer({"entities": listed}, show)


@command(graph, "edges", example='recollect graph edges "order 4711"')
def edges(
    invocation: Invocation,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="name or id of the entity")],
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    limit: Limit = 100,
) -> None:
    """Show what is known about an entity, and which events it comes from."""
    entry = browse.edges(invocation.services, _view(tenant, user), entity, limit)

    def show(out: Console) -> None:
        others = [name for name in entry["names"] if name != entry["name"]]
        also = f"  [dim]also {escape(', '.join(others))}[/dim]" if others else ""
        out.print(
            f"[bold]{escape(entry['name'])}[/bold]  [dim]{entry['type']}, "
            f"{entry['mentions']:,} mentions, {entry['entity_id']}[/dim]{also}"
        )
        rows = [
            (
                edge["source"],
                edge["relation"],
                edge["target"],
                edge["edge_type"],
                f"{edge['confidence']:.2f}",
                _day(edge["valid_from"]),
                edge["event_id"],
            )
            for edge in entry["edges"]
        ]
        heads = ("", "", "", "type", "confidence", "since", "said by")
        show_table(out, heads, rows, "nothing is known about it", right=4)

    invocation.answer(entry, show)


@command(graph, "communities", example="recollect graph communities")
def communities(
    invocation: Invocation,
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    limit: Limit = 50,
) -> None:
    """List the communities of entities, the largest first."""
    listed = browse.communities(invocation.services, _view(tenant, user), limit)

    def show(out: Console) -> None:
        rows = [
            (
                row["name"] or "",
                f"{row['members'] or 0:,}",
                row["summary"] or "",
                row["community_id"],
            )
            for row in listed
        ]
        nothing = "no community yet: a pass of consolidation makes them (recollect consolidate)"
        show_table(out, ("name", "members", "", ""), rows, nothing, right=1)

    invocation.answer({"communities": listed}, show)


def _view(tenant: str, user: str) -> Scope:
    """What is looked at: who reaches the services themselves may see what is of all users."""
    now_ms = time.time_ns() // 1_000_000
    everyone = user == EVERYONE
    return Scope(tenant, None if everyone else user, now_ms, everyone=everyone)


@command(graph, "stats", example="recollect graph stats --json")
def stats(invocation: Invocation) -> None:
    """Count entities, edges, communities and the rest of the active graph."""
    document = browse.stats(invocation.services)
    invocation.answer(document, lambda out: _show_counts(out, document))


@command(graph, "clear", example="recollect graph clear")
def clear(
    invocation: Invocation,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
) -> int:
    """Delete everything in the active graph, of all tenants. The ledger keeps every event.

    The ledger records that the graph was cleared. Running workers fold it again at once, exactly
    as it was; if none runs, it stays empty until one does. This does not erase anybody's data for
    good: the ledger brings it back.
    """
    services = invocation.services
    document = browse.stats(services)
    if not yes:
        if invocation.json or not sys.stdin.isatty():
            raise typer.BadParameter("needed where nobody can be asked", param_hint="--yes")
        _show_counts(invocation.out, document)
        typer.confirm(f"Delete all of this from {document['target']}?", abort=True)
    report = clear_graph(services).as_dict()

    def show(out: Console) -> None:
        nodes, edges = sum(report["nodes"].values()), sum(report["edges"].values())
        out.print(
            f"[green]cleared[/green] {report['target']}: {nodes:,} nodes, {edges:,} edges "
            f"[dim](event {report['event_id']} at {report['position']})[/dim]"
        )
        out.print("workers that run fold it again; recollect status shows how far they are")

    invocation.answer(report, show)
    return OK if report["ok"] else FAILED


def _kind(row: Mapping[str, Any]) -> str:
    return f"{row['type']}/{row['subtype']}" if row["subtype"] else str(row["type"])


def _day(moment: str | None) -> str:
    return "" if moment is None else moment[:10]


def _show_counts(out: Console, document: Mapping[str, Any]) -> None:
    out.print(f"[bold]{document['target']}[/bold]")
    for what in ("nodes", "edges"):
        counts = {name: number for name, number in document[what].items() if number}
        shown = "  ".join(f"{name} [bold]{number:,}[/bold]" for name, number in counts.items())
        out.print(f"  [dim]{what}[/dim] {shown or 'none'}")


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
    """Show lag, dead letters, the last passes, the graph, ledger, columns and targets.

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
            write_json_line(operation.status(invocation.services))
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
    parts += _archive(ledger["archive"])
    parts.extend(
        f"[red]partition {partition} halted: {reason} (recollect recover)[/red]"
        for partition, reason in ledger["halted"].items()
    )
    parts.extend(
        f"[red]{number:,} entries of the ledger are {kind}: send their events again[/red]"
        for kind, number in ledger["held_out"].items()
        if number
    )
    if ledger["at_risk"]:
        parts.append(f"[red]events may get lost: {escape(ledger['at_risk'])}[/red]")
    parts += _sealing(document["sealing"])
    parts.append(f"[dim]derivations[/dim] {_derivations(document['derivations'])}")
    parts += _columns(document["columns"])
    parts.append(f"[dim]recall of facts[/dim] {document['recall']}")
    for target in document["targets"]:
        mark = "[green]●[/green]" if target["active"] else "[dim]○[/dim]"
        parts.append(f"{mark} {target['name']} [dim]{target['state']}, {target['uri']}[/dim]")
    parts += [_rebuild(told) for told in document["rebuilds"]]
    parts.extend(f"[red]{error['message']}[/red]" for error in document["errors"])
    return Group(*parts)


def _rebuild(told: dict[str, Any]) -> str:
    """What a rebuild that runs is at, and how far."""
    total = told["total"]
    far = "" if total is None else f": {told['done']:,} of {total:,}"
    return (
        f"[yellow]{escape(told['target'])} is rebuilt[/yellow] {escape(told['doing'])}{far} "
        f"[dim]since {told['begun_at']}[/dim]"
    )


def _archive(told: dict[str, Any] | None) -> list[str]:
    """What has left Redis, what keeps more from it, and what the archiver waits for."""
    if told is None:
        return []
    parts = []
    if told["url"]:
        parts.append(
            f"[dim]archive[/dim] {told['entries']:,} entries in {told['segments']:,} segments, "
            f"{told['streamed']:,} in Redis [dim]{escape(told['url'])}[/dim]"
        )
    if told["waits_for"]:
        parts.append(f"[dim]archive waits for {escape(told['waits_for'])}[/dim]")
    if told["problem"]:
        parts.append(f"[red]nothing is archived: {escape(told['problem'])}[/red]")
    return parts


def _sealing(told: dict[str, Any]) -> list[str]:
    """Which tenants are sealed, and erasures that are not done."""
    if not told["tenants"]:
        return []
    rows = [f"[dim]sealed[/dim] {', '.join(told['tenants'])}; {told['erased']:,} erased"]
    if told["error"]:
        rows.append(f"[red]{escape(told['error'])}[/red]")
    rows.extend(
        f"[yellow]erasing {row['subject']} of {row['tenant']}: {row['step']} since "
        f"{row['requested_at']}[/yellow]"
        for row in told["under_way"]
    )
    return rows


def _derivations(told: dict[str, Any]) -> str:
    """How many events have theirs kept, or why that cannot be said."""
    if told["error"]:
        return f"[yellow]{escape(told['error'])}[/yellow]"
    if told["store"] is None:
        return "not kept: RECOLLECT_DERIVATIONS_URL says where"
    counted = f"{told['kept']:,} of {told['events']:,} events"
    return f"{counted}; {told['lacking']:,} lack one" if told["lacking"] else counted


def _columns(told: dict[str, Any] | None) -> list[str]:
    """What they hold and how old that is, or why they hold nothing."""
    if told is None:
        return []
    reason = escape(told["reason"])
    if not told["loaded"]:
        return [f"[dim]columns[/dim] {reason or 'being loaded'}"]
    held = f"{told['events']:,} events in {told['memory_bytes'] / 2**20:,.0f} MiB"
    behind = f"{told['behind_s']:.1f} s behind"
    if reason:
        behind = f"[yellow]{behind}: {reason}[/yellow]"
    return [f"[dim]columns[/dim] {held}, {behind}"]


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
