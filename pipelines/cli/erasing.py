"""`recollect seal`, `erase`, `receipts` and `rotate-master-key`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import FAILED, OK, REFUSED
from pipelines.ledger.epoch import PASS_PATIENCE_S
from pipelines.ledger.erasing import (
    MAX_REASON_CHARACTERS,
    begin_erasure,
    entries_of,
    erasable,
    naming,
    wishes,
)
from pipelines.ledger.keys import SqliteKeys, keys_path, require_wrapping
from pipelines.ledger.sealing import Subject
from pipelines.ledger.vault import CONSENT
from pipelines.operations import erase as operation
from pipelines.operations.receipts import Verified, receipts, verified
from pipelines.work.settings import load_settings
from projections.events import DEFAULT_TENANT

app = typer.Typer()
group = typer.Typer(help="List and verify the receipts of erasures.")
app.add_typer(group, name="receipts", no_args_is_help=True)
Tenant = Annotated[str, typer.Option(help="the tenant")]


@command(app, "seal", example="recollect seal --tenant acme")
def seal(invocation: Invocation, tenant: Tenant = DEFAULT_TENANT) -> int:
    """Encrypt what a new tenant is told, with a key for each of its users.

    It is decided once, before the first event, and stays. It needs a master key
    (RECOLLECT_MASTER_KEY), which every process has to have from then on.
    """
    operation.seal_tenant(invocation.services, tenant)
    document = {
        "tenant": tenant,
        "sealed": True,
        "keys_file": str(keys_path(invocation.settings).absolute()),
    }
    invocation.answer(
        document,
        lambda out: out.print(
            f"tenant {tenant} is sealed; its keys are in {document['keys_file']}: back them up "
            "apart from the ledger, and the master key apart from both",
            soft_wrap=True,
        ),
    )
    return OK


@command(app, "erase", example="recollect erase --tenant acme --user ann --yes")
def erase(
    invocation: Invocation,
    user: Annotated[str | None, typer.Option("--user", help="who is erased")] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", help="instead: what was said in a session without any user"),
    ] = None,
    consent: Annotated[
        str | None,
        typer.Option(
            "--consent",
            metavar="REF",
            help="instead: withdraw a consent, or with `*` at its end a class of them; whatever "
            "names it keeps its place, and nothing is derived or told of its content any more",
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    reason: Annotated[
        str, typer.Option("--reason", help="for the receipt, which stays; nothing personal")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="without it, only tell what would go")] = False,
    requested: Annotated[
        bool, typer.Option("--requested", help="instead: list the users who asked to be forgotten")
    ] = False,
) -> int:
    """Erase a user of a sealed tenant everywhere, and sign a receipt.

    Nothing more is taken about the user, the keys are destroyed, and what was made of the events
    is made anew without them. It cannot be undone. What was interrupted goes on with the same
    command. A consent can be withdrawn of any tenant, also before an event names it; no key goes,
    so the ledger keeps the content, and nobody reads it.
    """
    if requested:
        return _list_wishes(invocation, tenant)
    named = [Subject("user", user)] if user is not None else []
    named += [Subject("session", session)] if session is not None else []
    named += [Subject(CONSENT, consent)] if consent is not None else []
    if any(not one.name for one in named):
        raise typer.BadParameter("names nobody", param_hint=f"--{named[0].kind}")
    if len(named) != 1:
        raise typer.BadParameter("one of --user, --session and --consent", param_hint="--user")
    if len(reason) > MAX_REASON_CHARACTERS:
        limit = f"at most {MAX_REASON_CHARACTERS} characters"
        raise typer.BadParameter(limit, param_hint="--reason")
    (subject,) = named
    services = invocation.services
    key_id = erasable(services.ledger.vault, tenant, subject)
    if not yes:
        count = (
            entries_of(services.ledger, key_id)
            if consent is None
            else sum(1 for _ in naming(services.ledger, tenant, consent))
        )
        plan = {"subject": key_id.hex(), "entries": count, "erased": False}
        invocation.answer(
            plan,
            lambda out: out.print(f"{count:,} events would be erased; --yes erases them for good"),
        )
        return REFUSED
    begin_erasure(services.ledger, tenant, subject, reason=reason, by="command line")
    with invocation.progress() as progress:
        told = operation.finish(services, key_id, progress, patience_s=PASS_PATIENCE_S)
    document = {"subject": key_id.hex(), "erased": True, **told}
    invocation.answer(document, lambda out: _show(out, told))
    return OK


def _list_wishes(invocation: Invocation, tenant: str) -> int:
    asked_for = wishes(invocation.services.ledger, tenant)

    def show(out: Console) -> None:
        for wish in asked_for:
            out.print(f"{wish.occurred_at}  {wish.user_id}  {wish.event_id}", highlight=False)

    invocation.answer({"requests": [wish._asdict() for wish in asked_for]}, show)
    return OK


def _show(out: Console, told: dict[str, Any]) -> None:
    out.print(
        f"[bold]erased[/bold]: {told['entries']:,} events, {len(told['mixed'])} decisions; "
        f"receipt {told['receipt'] or 'none, for nothing is sealed'}"
    )
    for name, counted in told["stores"].items():
        counts = ", ".join(
            f"{key} {value:,}" for key, value in counted.items() if isinstance(value, int)
        )
        out.print(f"  {name}: {counts}")


@command(group, "list", example="recollect receipts list --json > receipts.json")
def list_receipts(invocation: Invocation) -> int:
    """List the receipts, the oldest first."""
    rows = receipts(invocation.services)

    def show(out: Console) -> None:
        for row in rows:
            out.print(
                f"{row['number']}  {row['finished_at']}  {row['tenant']}  {row['subject']}  "
                f"{row['entries']:,} events"
            )

    invocation.answer({"receipts": rows}, show)
    return OK


@command(group, "verify", example="recollect receipts verify receipts.json")
def verify_receipts(
    invocation: Invocation,
    file: Annotated[
        Path | None, typer.Argument(help="of `receipts list --json`; the ledger's by default")
    ] = None,
) -> int:
    """Verify that receipts are signed, follow each other, and were not changed."""
    rows = receipts(invocation.services) if file is None else _read(file)
    report = verified(rows)
    document = {"ok": not report.problems, **report._asdict()}
    invocation.answer(document, lambda out: _tell(out, report))
    return FAILED if report.problems else OK


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = orjson.loads(file.read_bytes())["receipts"]
    except (OSError, KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="FILE") from None
    return rows


def _tell(out: Console, report: Verified) -> None:
    for problem in report.problems:
        out.print(f"[red]{problem}[/red]")
    if not report.problems:
        out.print(f"{report.receipts} receipts, all signed by {report.public_key or 'nobody'}")


@command(app, "rotate-master-key", example="recollect rotate-master-key new-key.txt")
def rotate_master_key(
    invocation: Invocation,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="that holds the new key: 64 hexadecimal digits; without it the newest version of "
            "the key at RECOLLECT_TRANSIT_URL is used"
        ),
    ] = None,
) -> int:
    """Wrap the keys of sealed tenants with another master key.

    No event is written anew. Every process has to be started again with the new key; until then it
    takes and tells nothing new of sealed tenants. What copies of the key store were made before
    can be read with the old key alone.
    """
    settings = invocation.settings
    wrapping = require_wrapping(settings)
    store = SqliteKeys(keys_path(settings), wrapping)
    if (file is None) != (settings.transit_url is not None):
        rule = "needed with a master key, and with RECOLLECT_TRANSIT_URL alone left out"
        raise typer.BadParameter(rule, param_hint="FILE")
    if file is not None:
        try:
            text = file.read_text().strip()
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="FILE") from None
        wrapping = require_wrapping(load_settings(master_key=text))
    count = store.rotate(wrapping)
    store.close()
    invocation.answer({"keys": count}, lambda out: out.print(f"{count:,} keys are wrapped anew"))
    return OK
