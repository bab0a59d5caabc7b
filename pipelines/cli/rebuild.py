"""`recollect replay`, `rebuild`, `verify`, `recover`: the graph against its ledger."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import FAILED, OK, STAGE_NAMES, Invocation, command, stage_named
from pipelines.cli.verify import SHOWN_DIFFERENCES, Session, Tenant, line, show_verified, verify
from projections.errors import ConfigurationError, UnknownTarget
from projections.positions import START, Position

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.ledger.targets import Target

PANEL = "Graph"


def register(app: typer.Typer) -> None:
    """Put the commands into the application."""
    command(app, "verify", panel=PANEL, example="recollect verify --session checkout-17")(verify)
    command(
        app, "replay", panel=PANEL, example="recollect replay projection --from 1770806400000-0"
    )(replay)
    command(app, "rebuild", panel=PANEL, example="recollect rebuild --into green --switch")(rebuild)
    command(app, "recover", panel=PANEL, example="recollect recover --dry-run")(recover)


def replay(
    invocation: Invocation,
    stage: Annotated[str, typer.Argument(metavar="STAGE", help=STAGE_NAMES)],
    start: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help="from here (inclusive)")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="POSITION", help="to here (inclusive)")
    ] = None,
    session: Session = None,
    tenant: Tenant = None,
) -> None:
    """Run a stage again over a range of the ledger, into the same graph."""
    from pipelines.observe.process import collect_rarely, step_back
    from pipelines.operations.rebuild import replay as run

    collect_rarely()
    step_back(invocation.settings.rebuild_nice)
    row = stage_named(stage, "STAGE")
    first = position(start, "--from")
    with invocation.progress() as progress:
        report = run(
            invocation.services,
            row,
            after=START if first is None else before(first),
            until=position(end, "--to"),
            session=session,
            tenant=tenant,
            progress=progress,
        )
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, f"replayed {stage}", document))


def rebuild(
    invocation: Invocation,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="TARGET[=URI]",
            help="a fresh graph beside the live one; without a URI the registered one, or a "
            "second embedded Neo4j",
        ),
    ] = None,
    switch: Annotated[
        bool, typer.Option("--switch", help="answer reads from it once it is verified")
    ] = False,
    redecide: Annotated[
        str | None,
        typer.Option(
            "--redecide",
            metavar="KIND",
            help="consolidation: then ask anew for summaries, links, boosts, communities and what "
            "is forgotten; with --into needs --switch",
        ),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="of --redecide: as of this moment (ISO 8601 with a zone)",
        ),
    ] = None,
) -> int:
    """Fold the whole ledger again: into a fresh graph, or in place.

    With --into the live graph goes on answering and new events go on flowing until the new one
    has caught up. Without it the graph is folded again in place, and what the ledger no longer
    supports is swept. Recorded decisions are applied; with --redecide they are asked for again
    after that, under the settings of now, and the new ones take the place of the old.
    """
    from pipelines.cli.consolidate import moment
    from pipelines.observe.process import collect_rarely, step_back
    from pipelines.operations.rebuild import rebuild as run
    from pipelines.operations.reconsolidate import REDECIDABLE, rebuild_and_redecide

    collect_rarely()
    if redecide not in (None, *REDECIDABLE):
        raise typer.BadParameter(f"one of {', '.join(REDECIDABLE)}", param_hint="--redecide")
    if switch and into is None:
        raise typer.BadParameter("needs --into", param_hint="--switch")
    if redecide is not None and into is not None and not switch:
        raise typer.BadParameter(
            "needs --switch: only the active graph decides", param_hint="--redecide"
        )
    if now is not None and redecide is None:
        raise typer.BadParameter("needs --redecide", param_hint="--now")
    now_ms = moment(now, "--now")
    target = None if into is None else target_named(invocation, into)
    # Not before: a second Neo4j that was started for it will answer reads after the switch.
    step_back(invocation.settings.rebuild_nice)
    services = invocation.services
    with invocation.progress() as progress:
        report = (
            run(services, into=target, switch=switch, progress=progress)
            if redecide is None
            else rebuild_and_redecide(services, into=target, now_ms=now_ms, progress=progress)
        )
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, "rebuilt", document))
    return OK if document.get("ok", True) else FAILED


def recover(
    invocation: Invocation,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list what is lost and change nothing")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask at a terminal")] = False,
) -> int:
    """After Redis lost entries that the graph has: list what is lost, and let the ledger go on.

    Takes from the graph what the ledger no longer supports, resets the checkpoints, writes the gap
    into the ledger and lets the halted partitions take events again. At a terminal it asks first.
    """
    from pipelines.operations.recover import recover as run

    ask = not (dry_run or yes or invocation.json) and sys.stdin.isatty()
    report = run(invocation.services, apply=not (dry_run or ask))
    if ask and report.gaps:
        document = report.as_dict()
        invocation.answer(document, lambda out: show_report(out, "would recover", document))
        typer.confirm("Take this out of the graph and go on?", abort=True)
        report = run(invocation.services, apply=True)
    document = report.as_dict()
    if not document["graph_ahead"]:
        title = "nothing is lost, nothing to recover"
    else:
        title = "recovered" if report.applied else "would recover (nothing was changed)"
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if document.get("ok", True) else FAILED


def target_named(invocation: Invocation, text: str) -> Target:
    """The target that `--into` names: NAME=URI, a registered NAME, or a new embedded one.

    Raises:
        UnknownTarget: no URI, not registered, and no embedded services to start one with.
    """
    from pipelines.ledger.targets import Target

    name, equals, uri = text.partition("=")
    services = invocation.services
    if services.active().name == name:
        reason = f"--into {name}: it is the active target; leave --into out to rebuild in place"
        raise ConfigurationError(reason=reason)
    known = {target.name: target for target in services.targets.all()}
    if equals:
        return Target(name, uri, services.settings.neo4j_database, "building")
    if name in known:
        return known[name]
    from pipelines import local

    data_dir = services.settings.data_dir
    state = local.read_state(data_dir)
    if state is None or state.redis_url != services.settings.redis_url:
        raise UnknownTarget(name=name, known=", ".join(sorted(known)))
    uri = local.ensure_target(data_dir, name)
    return Target(name, uri, services.settings.neo4j_database, "building")


def position(text: str | None, option: str) -> Position | None:
    """The position an option names.

    Raises:
        typer.BadParameter: it is none.
    """
    if text is None:
        return None
    try:
        return Position.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def before(first: Position) -> Position:
    """The position right before, for ranges that exclude their start."""
    if first.seq:
        return Position(first.ms, first.seq - 1)
    return Position(first.ms - 1, 2**64 - 1) if first.ms else START


def show_report(out: Console, title: str, document: Mapping[str, Any]) -> None:
    """For a person: every figure of a report, lists cut short."""
    good = document.get("ok", True)
    out.print(f"[{'green' if good else 'red'}]{title}[/]")
    for name, value in document.items():
        label = name.replace("_", " ")
        if name == "stages":
            for stage in value.values():
                show_verified(out, stage)
        elif isinstance(value, list):
            out.print(f"  {label}: {len(value):,}")
            for item in value[:SHOWN_DIFFERENCES]:
                text = line(item) if isinstance(item, Mapping) else str(item)
                out.print(f"    {text}", markup=False)
            if len(value) > SHOWN_DIFFERENCES:
                out.print(f"    and {len(value) - SHOWN_DIFFERENCES:,} more (--json lists them)")
        elif isinstance(value, Mapping):
            out.print(f"  {label}: {line(value) or 0}", markup=False)
        elif name != "ok":
            shown = _shown(value)
            out.print(f"  {label}: {shown}", markup=False)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
