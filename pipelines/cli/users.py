"""`recollect user`: what is known of a user, what they say is wrong of it, and all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape

from pipelines.cli.ask import Api, KeyFile, client_for
from pipelines.cli.browse import AsOf, Limit, Tenant, show_facts, show_sessions
from pipelines.cli.exports import File, Form, write
from pipelines.cli.invocation import Invocation, command
from pipelines.operations.api import TIMEOUT_MS
from pipelines.operations.export.events import Format, Selection
from pipelines.operations.export.run import STANDARD_OUTPUT
from projections.events import DEFAULT_TENANT

app = typer.Typer()
user_group = typer.Typer(
    help="Show what is known of a user, correct it, and write all of it to a file."
)
app.add_typer(user_group, name="user", no_args_is_help=True)

UserId = Annotated[str, typer.Argument(metavar="USER", help="`user_id` of the events")]


@command(user_group, "show", example="recollect user show cust-ana")
def show(
    invocation: Invocation,
    user_id: UserId,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=50, help="print a block for a prompt instead"),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    user: Annotated[
        str | None,
        typer.Option("--user", help="see what this user may; default: the user themselves"),
    ] = None,
    limit: Limit = 50,
    as_of: AsOf = None,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """Show what is known of a user: wishes, facts that hold and held, habits, sessions."""
    path = f"/v1/users/{quote(user_id, safe='')}"
    seen_as = {
        "user_id": user or user_id,
        "record_access": "false",
        "as_of_position": as_of,
        "timeout_ms": TIMEOUT_MS,
    }
    with closing(client_for(invocation, api, key_file)) as client:
        if max_tokens is not None:
            text = client.read(f"{path}/context", {**seen_as, "max_tokens": max_tokens}, tenant)
            document: dict[str, Any] = {"text": text}
        else:
            document = client.look(path, {**seen_as, "limit": limit}, tenant)
    invocation.answer(document, lambda out: _show_person(out, document))


_TRAITS: Final = ("patterns", "skills", "interests")


def _show_person(out: Console, person: Mapping[str, Any]) -> None:
    if "text" in person:
        out.print(person["text"], end="", markup=False)
        return
    names = [name for name in person["names"] if name != person["user_id"]]
    known_as = f", known as {', '.join(names)}" if names else ""
    out.print(f"[bold]{escape(person['user_id'])}[/bold]{escape(known_as)}")
    told = [*person["wishes"], *person["facts"], *person["former"]]
    if told or not any(person[kind] for kind in _TRAITS):
        show_facts(out, told)
    for kind in _TRAITS:
        for trait in _by_parent(person[kind]):
            seen = f"{trait['session_count']} sessions, {trait['strength']:.0%}"
            since, last = trait["first_seen"][:10], trait["last_seen"][:10]
            part = "  part" if trait.get("part_of") else kind[:-1]
            out.print(f"{part}: {escape(trait['name'])} [dim]{seen}, {since} to {last}[/dim]")
            out.print(f"  [dim]{', '.join(trait['event_ids'][:3])}[/dim]")
    if person["sessions"]:
        out.print()
        show_sessions(out, person["sessions"])


def _by_parent(traits: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Traits in their order, what is a part of another behind that."""
    parts: dict[str | None, list[Mapping[str, Any]]] = {}
    for trait in traits:
        parts.setdefault(trait.get("part_of"), []).append(trait)
    return [one for whole in parts.get(None, ()) for one in (whole, *parts.get(whole["name"], ()))]


@command(user_group, "correct", example="recollect user correct cust-ana lives_in Porto")
def correct(
    invocation: Invocation,
    user_id: UserId,
    relation: Annotated[str, typer.Argument(help="of the fact, as it is shown: lives_in")],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[VALUE]",
            help="what is so; with --wrong what is not, which may be left out where there is one "
            "at a time",
        ),
    ] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="it is not so")] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type", help="of an entity that VALUE names: agent, tool, user, service, resource …"
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="why it is wrong")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    api: Api = None,
    key_file: KeyFile = None,
) -> None:
    """State what is so of a user, or what is not; it outranks what was concluded.

    It becomes an event, so every target and every rebuild follows it.
    """
    if target is None and not wrong:
        raise typer.BadParameter("required without --wrong", param_hint="VALUE")
    if reason is not None and not wrong:
        raise typer.BadParameter("only with --wrong", param_hint="--reason")
    value = {"name": target, "type": kind} if target is not None and kind is not None else target
    fields = {"relation": relation, "target": value, "reason": reason}
    body = {name: each for name, each in fields.items() if each is not None}
    body["correction"] = "retract" if wrong else "state"
    with closing(client_for(invocation, api, key_file)) as client:
        path = f"/v1/users/{quote(user_id, safe='')}/corrections"
        document = client.ask(path, body, tenant).document
    invocation.answer(document, lambda out: out.print(f"event {document['event_id']}"))


@command(user_group, "export", example="recollect user export cust-ana ana.md --format markdown")
def export_(
    invocation: Invocation,
    user_id: UserId,
    file: File = STANDARD_OUTPUT,
    form: Form = Format.EVENTS,
    tenant: Tenant = DEFAULT_TENANT,
) -> int:
    """Write all that was recorded of a user, and decided and corrected about them, to a file.

    As `recollect export --user` does: events for other programs, or Markdown for people.
    """
    return write(invocation, form, Selection(tenant, user_id=user_id), file)
