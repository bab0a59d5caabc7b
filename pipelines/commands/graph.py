"""`recollect replay`, `rebuild`, `verify`, `recover`: the graph against its ledger."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.commands.invocation import FAILED, OK, Invocation, command
from projections.errors import ConfigurationError, UnknownTarget
from projections.positions import START, Position

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.adapters.targets import Target

PANEL = "Graph"
SHOWN_DIFFERENCES = 50
SAMPLE = 200
"""Events of the enrichment that a verify of everything looks at, when not told otherwise."""
Session = Annotated[str | None, typer.Option("--session", help="this session only")]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="of --session (default: default); alone: all its")
]


def register(app: typer.Typer) -> None:
    """Put the commands into the application."""
    command(app, "verify", panel=PANEL, example="recollect verify --session checkout-17")(verify)
    command(
        app, "replay", panel=PANEL, example="recollect replay projection --from 1770806400000-0"
    )(replay)
    command(app, "rebuild", panel=PANEL, example="recollect rebuild --into green --switch")(rebuild)
    command(app, "recover", panel=PANEL, example="recollect recover --dry-run")(recover)


def verify(
    invocation: Invocation,
    session: Session = None,
    tenant: Tenant = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="this graph, not the active one")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="mend exactly what differs, then verify again")
    ] = False,
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage",
            metavar="STAGE",
            help="projection, enrichment or consolidation alone; default: the projection whole, "
            "a sample of the enrichment and the consolidation whole where there are some",
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            min=1,
            help="of the enrichment only sessions with so many events together (default: all "
            f"with --stage enrichment, else {SAMPLE})",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="the same sample again (default: another)"),
    ] = None,
) -> int:
    """Fold the ledger again and compare with the graph: exit 0 same, 1 divergence.

    The digest is the same for the same events in another ledger. Of the enrichment all that the
    events determine is recomputed; of embeddings and SIMILAR_TO it is checked what must hold of
    any. Its memory grows with entities and facts, with a sample it does not. Of the consolidation
    all that was decided is folded once more; what only counts up (accesses) is not compared.
    """
    from pipelines.collector import collect_rarely
    from pipelines.stages import STAGES

    if stage is not None and stage not in STAGES:
        raise typer.BadParameter(f"one of {', '.join(STAGES)}", param_hint="--stage")
    if stage in ("projection", "consolidation") and sample is not None:
        raise typer.BadParameter(f"the {stage} is always compared whole", param_hint="--sample")
    if stage == "consolidation" and session is not None:
        raise typer.BadParameter(f"the {stage} is always compared whole", param_hint="--session")
    if session is not None and sample is not None:
        raise typer.BadParameter("a session is always compared whole", param_hint="--sample")
    collect_rarely()
    options: dict[str, Any] = {
        "target": target,
        "session": session,
        "tenant": tenant,
        "repair": repair,
    }
    document: dict[str, Any] | None = None
    if stage in (None, "projection"):
        from pipelines.verify import verify as run

        with invocation.progress() as progress:
            document = run(invocation.services, progress=progress, **options).as_dict()
        if stage is None and not document["repaired"]:
            # what the projection brought back is bare: then all of the enrichment is looked at
            sample = sample or SAMPLE
    for name, found in (
        ("enrichment", _verify_enriched(invocation, stage, sample, seed, options)),
        ("consolidation", _verify_consolidated(invocation, stage, options)),
    ):
        if document is None:
            document = found
        elif found is not None:
            document.setdefault("stages", {})[name] = found
            document["ok"] = document["ok"] and found["ok"]
    assert document is not None
    _answer_verified(invocation, document)
    return OK if document["ok"] else FAILED


def _answer_verified(invocation: Invocation, document: Mapping[str, Any]) -> None:
    invocation.answer(document, lambda out: show_verified(out, document))


def _verify_enriched(
    invocation: Invocation,
    stage: str | None,
    sample: int | None,
    seed: int | None,
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """What the enrichment's verify says; None: it was not asked for, or nothing is enriched."""
    services = invocation.services
    if not _is_wanted(invocation, "enrichment", stage, options):
        return None
    from pipelines.verify_enrichment import verify_enrichment

    with invocation.progress() as progress:
        report = verify_enrichment(services, sample=sample, seed=seed, progress=progress, **options)
    return report.as_dict()


def _verify_consolidated(
    invocation: Invocation, stage: str | None, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What the consolidation's verify says; None: it was not asked for, or there is none."""
    if options["session"] or not _is_wanted(invocation, "consolidation", stage, options):
        return None
    from pipelines.verify_consolidation import verify_consolidation

    with invocation.progress() as progress:
        report = verify_consolidation(
            invocation.services,
            target=options["target"],
            repair=options["repair"],
            progress=progress,
        )
    return report.as_dict()


def _is_wanted(
    invocation: Invocation, name: str, stage: str | None, options: Mapping[str, Any]
) -> bool:
    """Whether a stage is verified: it was asked for, or all were and it has folded something."""
    if stage is not None:
        return stage == name
    services, named = invocation.services, options["target"]
    target = services.targets.get(named) if named else services.active()
    return any(one.position != START for one in services.writer(target).checkpoints(name))


def show_verified(out: Console, document: Mapping[str, Any]) -> None:
    """For a person: the verdict, the digest, and what differs."""
    stages = document.get("stages", {})
    alone = document["difference_count"] == 0
    verdict = "[green]✓ same[/green]" if alone else "[red]✗ divergence[/red]"
    title = f"{document['stage']}  " if "stage" in document else ""
    if document.get("sample"):
        title += f"sample of {document['sessions']:,} sessions (--seed {document['seed']})  "
    out.print(
        f"{verdict}  {title}{document['events']:,} events  digest [bold]{document['digest']}[/bold]"
    )
    for name, remark in (
        ("repaired", "differences mended"),
        ("lag_entries", "entries not folded yet"),
        ("waiting_parent_count", "parents never seen"),
        ("dead_letter_count", "dead letters (recollect dead-letters list)"),
        ("unread", "events whose payload cannot be read, not compared"),
        ("without_embedding", "events without an embedding"),
    ):
        if document.get(name):
            out.print(f"  [yellow]{document[name]:,} {remark}[/yellow]")
    differences = document["differences"]
    for difference in differences[:SHOWN_DIFFERENCES]:
        text = difference if isinstance(difference, str) else _line(difference)
        out.print(f"  {text}", markup=False)
    if document["difference_count"] > SHOWN_DIFFERENCES:
        more = document["difference_count"] - SHOWN_DIFFERENCES
        out.print(f"  and {more:,} more (--json lists up to {len(differences):,})")
    for stage in stages.values():
        show_verified(out, stage)


def replay(
    invocation: Invocation,
    stage: Annotated[
        str, typer.Argument(metavar="STAGE", help="projection, enrichment or consolidation")
    ],
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
    from pipelines.collector import collect_rarely
    from pipelines.priority import step_back
    from pipelines.rebuild import replay as run
    from pipelines.stages import STAGES

    collect_rarely()
    step_back(invocation.settings.rebuild_nice)
    if stage not in STAGES:
        raise typer.BadParameter(f"one of {', '.join(STAGES)}", param_hint="STAGE")
    first = position(start, "--from")
    with invocation.progress() as progress:
        report = run(
            invocation.services,
            STAGES[stage],
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
        typer.Option("--redecide", metavar="KIND", help="take the decisions of a kind anew"),
    ] = None,
) -> int:
    """Fold the whole ledger again: into a fresh graph, or in place.

    With --into the live graph goes on answering and new events go on flowing until the new one
    has caught up. Without it the graph is folded again in place, and what the ledger no longer
    supports is swept.
    """
    from pipelines.collector import collect_rarely
    from pipelines.priority import step_back
    from pipelines.rebuild import rebuild as run

    collect_rarely()
    if redecide is not None:
        raise typer.BadParameter(
            f"{redecide}: decisions are not taken anew yet; a rebuild applies what is recorded, "
            "and `recollect consolidate` decides about what changed",
            param_hint="--redecide",
        )
    if switch and into is None:
        raise typer.BadParameter("needs --into", param_hint="--switch")
    target = None if into is None else target_named(invocation, into)
    # Not before: a second Neo4j that was started for it will answer reads after the switch.
    step_back(invocation.settings.rebuild_nice)
    with invocation.progress() as progress:
        report = run(invocation.services, into=target, switch=switch, progress=progress)
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
    from pipelines.recover import recover as run

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
    from pipelines.adapters.targets import Target

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
                text = _line(item) if isinstance(item, Mapping) else str(item)
                out.print(f"    {text}", markup=False)
            if len(value) > SHOWN_DIFFERENCES:
                out.print(f"    and {len(value) - SHOWN_DIFFERENCES:,} more (--json lists them)")
        elif isinstance(value, Mapping):
            out.print(f"  {label}: {_line(value) or 0}", markup=False)
        elif name != "ok":
            shown = _shown(value)
            out.print(f"  {label}: {shown}", markup=False)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _line(fields: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
