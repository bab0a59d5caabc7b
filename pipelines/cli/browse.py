"""`recollect sessions`, `timeline`, `show`, `why`, `facts`, `tail`: look at what was remembered.

What the explorer shows in a browser, in a terminal; by the same routes of the API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import quote
from uuid import UUID

import typer
from rich.console import Console
from rich.json import JSON
from rich.markup import escape
from rich.table import Table

from pipelines.cli.ask import COLOURS, Api, KeyFile, client_for, cut, show_why
from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK, write_json_line
from pipelines.operations.api import FAILURES, TIMEOUT_MS, WHY
from pipelines.operations.demo import summary as one_line
from projections.events import DEFAULT_TENANT, EVERYONE, timestamp_ms, timestamp_text

app = typer.Typer()

Tenant = Annotated[str, typer.Option("--tenant", help="tenant whose memory is looked at")]
User = Annotated[
    str,
    typer.Option("--user", help="see what this user may; * sees what is of all users"),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="how many to show at most")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="POSITION", help="see what was known at this position"),
]
LOOK_AGAIN_S: Final = 0.5
"""After the end, until the next look for what is new."""
_CHARACTERS: Final = 70
"""Of what an event says."""
_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1_000, 60_000, 3_600_000


@contextmanager
def _looking(
    invocation: Invocation, api: str | None, key_file: Any
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Looks at a route of the graph as one viewer: `look(path, tenant, user, **query)`."""
    with closing(client_for(invocation, api, key_file)) as client:

        def look(path: str, tenant: str, user: str, **query: Any) -> dict[str, Any]:
            seen_as = {"user_id": user, "record_access": "false", "timeout_ms": TIMEOUT_MS}
            return client.look(path, {**query, **seen_as}, tenant)

        yield look


@command(app, "sessions", example="recollect sessions refund --failed")
def sessions(
    invocation: Invocation,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]", help="in the id, or in the name of an agent, user, tool or status"
        ),
    ] = None,
    day: Annotated[
        str | None,
        typer.Option("--day", metavar="YYYY-MM-DD", help="with events of that day (UTC)"),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="in which something failed")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    limit: Limit = 20,
    as_of: AsOf = None,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """List sessions, the newest first, with what failed in them."""
    with _looking(invocation, api, key_file) as look:
        document = look(
            "/v1/sessions",
            tenant,
            user,
            query=query,
            failed="true" if failed else None,
            limit=limit,
            as_of_position=as_of,
            **_of_day(day),
        )
    invocation.answer(document, lambda out: show_sessions(out, document["sessions"]))


def _of_day(day: str | None) -> dict[str, str]:
    """A day as a stretch of time.

    Raises:
        typer.BadParameter: it is none.
    """
    if day is None:
        return {}
    try:
        since = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter("a day such as 2026-03-04", param_hint="--day") from None
    until = since + timedelta(days=1)
    return {
        name: at.isoformat().replace("+00:00", "Z")
        for name, at in (("since", since), ("until", until))
    }


def show_sessions(out: Console, listed: Sequence[Mapping[str, Any]]) -> None:
    """Sessions as a table."""
    if not listed:
        out.print("[dim]no session[/dim]")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("session", "from", "for", "events", "failed", "who", ""):
        right = head in ("for", "events", "failed")
        table.add_column(head, justify="right" if right else "left", no_wrap=head == "session")
    for row in listed:
        length = timestamp_ms(row["last_at"]) - timestamp_ms(row["first_at"])
        text = row["failure"] or row["begins"] or ""
        colour = "red" if row["failure"] else "dim"
        cells = (
            f"[bold]{escape(row['session_id'])}[/bold]",
            _moment(row["first_at"]),
            duration(length),
            f"{row['event_count']:,}",
            f"[red]{row['failed_count']:,}[/red]" if row["failed_count"] else "",
            escape(", ".join(row["agents"][:2])),
            f"[{colour}]{escape(cut(text, _CHARACTERS))}[/{colour}]",
        )
        table.add_row(*cells)
    out.print(table)


@command(app, "timeline", example="recollect timeline checkout-4711")
def timeline(
    invocation: Invocation,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="id of the session")],
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    limit: Limit = 200,
    as_of: AsOf = None,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """Show the events of a session in order, with times and failures."""
    with _looking(invocation, api, key_file) as look:
        path = f"/v1/sessions/{quote(session, safe='')}/events"
        document = look(path, tenant, user, limit=limit, as_of_position=as_of)
    invocation.answer(document, lambda out: _show_timeline(out, document))


def _show_timeline(out: Console, document: Mapping[str, Any]) -> None:
    nodes = document["nodes"]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("at", "after", "who", "what", ""):
        table.add_column(head, justify="right" if head == "after" else "left", no_wrap=head == "")
    before = None
    for node in nodes:
        attributes, at = node["attributes"], timestamp_ms(node["provenance"]["occurred_at"])
        colour = COLOURS.get(attributes["status"] or "", "")
        text = escape(cut(attributes["summary"] or attributes["event_type"]))
        state = f" ({attributes['status']})" if attributes["status"] in FAILURES else ""
        cells = (
            f"[dim]{_moment(node['provenance']['occurred_at'])}[/dim]",
            "" if before is None else f"[dim]{duration(at - before)}[/dim]",
            escape(node["provenance"]["agent_id"] or ""),
            f"[{colour}]{text}{state}[/{colour}]" if state and colour else text,
            f"[dim]{node['node_id']}[/dim]",
        )
        table.add_row(*cells)
        before = at
    out.print(table)
    left = document["event_count"] - len(nodes)
    if left:
        out.print(f"[dim]and {left:,} more (--limit)[/dim]")


@command(app, "show", example="recollect show 019cb8a0-4711-7000-8000-000000000016")
def show(
    invocation: Invocation,
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="id of the event")],
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """Show an event as the ledger has it, with its payload."""
    path = f"/v1/events/{quote(event_id, safe='')}"
    with closing(client_for(invocation, api, key_file)) as client:
        document = client.look(path, {"user_id": user, "record_access": "false"}, tenant)

    def tell(out: Console) -> None:
        for name, value in document.items():
            if name not in ("payload", "provenance") and value is not None:
                out.print(f"[dim]{name.replace('_', ' ')}[/dim]  {escape(str(value))}")
        out.print(JSON.from_data(document["payload"]))

    invocation.answer(document, tell)


@command(app, "why", example="recollect why 019cb8a0-4711-7000-8000-000000000016")
def why(
    invocation: Invocation,
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="id of the event, or a question in words")
    ],
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    as_of: AsOf = None,
    api: Api = None,
    key_file: KeyFile = None,
) -> int:
    """Show why an event happened: its causes as a tree, and what helped."""
    try:
        asked_about = {"query": "why?", "head": str(UUID(event))}
    except ValueError:
        asked_about = {"query": event}
    body = {
        **asked_about,
        "session_id": "why",
        "agent_id": "why",
        "user_id": user,
        "timeout_ms": TIMEOUT_MS,
        "record_access": False,
    }
    if as_of is not None:
        body["as_of_position"] = as_of
    with closing(client_for(invocation, api, key_file)) as client:
        document = client.ask(WHY, body, tenant).document
    told = bool(document["answer"]["tree"])

    def tell(out: Console) -> None:
        if told:
            show_why(out, document)
        else:
            unknown = (
                "no such event is in the graph" if "head" in body else "nothing is known of it"
            )
            out.print(f"[dim]{unknown}[/dim]")

    invocation.answer(document, tell)
    return OK if told else FAILED


@command(app, "facts", example="recollect facts checkout")
def facts(
    invocation: Invocation,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="name or id of the entity")],
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    limit: Limit = 50,
    as_of: AsOf = None,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """Show what was ever said of an entity: what holds, and what no longer does."""
    with _looking(invocation, api, key_file) as look:
        path = f"/v1/facts/{quote(entity, safe='')}"
        document = look(path, tenant, user, limit=limit, as_of_position=as_of)
    invocation.answer(document, lambda out: show_facts(out, document["facts"]))


@command(app, "tail", example="recollect tail --session checkout-4711 --from 0")
def tail(
    invocation: Invocation,
    session: Annotated[
        str | None, typer.Option("--session", help="only events of this session")
    ] = None,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="begin behind it; 0: with the first event"),
    ] = "now",
    stop: Annotated[bool, typer.Option("--stop", help="stop at what is the end now")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    user: User = EVERYONE,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """Print events as the ledger takes them, until Ctrl-C.

    With --json each event is one line.
    """
    query = {"from": begin, "wait": "false", "session": session, "user_id": user}
    with closing(client_for(invocation, api, key_file)) as client:
        while True:
            page = client.look("/v1/changes", query, tenant)
            for change in page["changes"]:
                if invocation.json:
                    write_json_line(change)
                else:
                    _show_change(invocation.out, change)
            query["from"] = page["position"]
            if page["is_end"]:
                if stop:
                    return
                time.sleep(LOOK_AGAIN_S)


def _show_change(out: Console, change: Mapping[str, Any]) -> None:
    status = change["status"] or ""
    name = change["tool_name"] or change["event_type"]
    colour = COLOURS.get(status, "cyan")
    out.print(
        f"[dim]{_moment(change['occurred_at'])}[/dim]  {escape(change['session_id'])}  "
        f"{escape(change['agent_id'])}  [{colour}]{escape(name)}[/{colour}]  "
        f"{escape(one_line(change['payload']))}  [dim]{change['event_id']}[/dim]"
    )


def show_facts(out: Console, listed: Sequence[Mapping[str, Any]]) -> None:
    """Facts as a table."""
    if not listed:
        out.print("[dim]nothing is known about it[/dim]")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("", "", "", "since", "until", "", "said by"):
        table.add_column(head, no_wrap=head == "said by", style="dim" if head == "said by" else "")
    for fact in listed:
        state, colour = _state(fact)
        ended = fact["valid_to"] or fact["expired_at"]
        cells = (
            escape(fact["source"]["name"]),
            escape(fact["relation"].replace("_", " ")),
            f"[bold]{escape(fact['target']['name'])}[/bold]",
            _moment(fact["valid_from"]),
            "" if ended is None else _moment(ended),
            f"[{colour}]{state}[/{colour}]",
            fact["provenance"]["event_id"],
        )
        table.add_row(*cells)
    out.print(table)


def _state(fact: Mapping[str, Any]) -> tuple[str, str]:
    """How a fact stands, and its colour."""
    if fact["valid_to"] is None and fact["expired_at"] is None:
        return "holds", "green"
    if fact["valid_to"] == fact["valid_from"]:
        return "withdrawn", "red"
    return ("contradicted", "yellow") if fact["expired_at"] else ("ended", "dim")


def _moment(text: str) -> str:
    """A moment to the second, UTC."""
    return timestamp_text(timestamp_ms(text))[:19].replace("T", " ")


def duration(length_ms: int) -> str:
    """A length of time as a person says it: 340 ms, 3.2 s, 6 min, 2 h."""
    if length_ms < _SECOND_MS:
        return f"{length_ms} ms"
    if length_ms < _MINUTE_MS:
        return f"{length_ms / _SECOND_MS:.1f} s"
    if length_ms < _HOUR_MS:
        return f"{length_ms / _MINUTE_MS:.0f} min"
    return f"{length_ms / _HOUR_MS:,.1f} h"
