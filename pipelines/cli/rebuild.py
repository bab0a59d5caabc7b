"""The graph and its ledger: `recollect verify`, `check`, `replay`, `rebuild`, `recover`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

from pipelines.cli.invocation import STAGE_NAMES, Invocation, command, stage_named
from pipelines.cli.outcome import FAILED, OK, WHOLE_GRAPH, report_error
from pipelines.cli.rendering import moment, show_report, show_verified
from pipelines.ledger.check import check as check_ledger
from pipelines.ledger.entries import before
from pipelines.ledger.registry import Target
from pipelines.local.data_folder import read_state
from pipelines.local.python_process import collect_rarely, step_back
from pipelines.operations import dead_letters as letters_operation
from pipelines.operations import rebuild as operation
from pipelines.operations.bulk_load import FILES_FROM, Route
from pipelines.operations.bulk_load import plan as plan_load
from pipelines.operations.rebuild import REDECIDABLE, NewTarget, rebuild_and_redecide
from pipelines.operations.recover import recover as recover_ledger
from pipelines.operations.traces import FEWEST_CHARACTERS, traces
from pipelines.proof.verify import prove_columns, verify_sample
from pipelines.proof.verify import verify as prove
from pipelines.work.stages import STAGES
from projections.errors import ConfigurationError, UnknownTarget
from projections.events import DEFAULT_TENANT
from projections.identity import START, Position

RELEASED_S = 600
StageArgument = Annotated[str, typer.Argument(metavar="STAGE", help=STAGE_NAMES)]
Session = Annotated[str | None, typer.Option("--session", help="this session only")]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", help="tenant of --session (default: default); alone, all of it"),
]
StageName = Annotated[
    str | None,
    typer.Option(
        "--stage",
        callback=lambda name: name and stage_named(name, "--stage").name,
        help="of this stage only",
    ),
]
Letter = Annotated[
    str | None, typer.Argument(help="STAGE/PARTITION/SEQ as `list` prints it", metavar="LETTER")
]

app = typer.Typer()
dead_letters = typer.Typer(
    help="List, show, retry, drop and release entries that a stage could not fold."
)
app.add_typer(dead_letters, name="dead-letters", no_args_is_help=True)


@command(app, "check", example="recollect check --repair")
def check(
    invocation: Invocation,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="mend index, counters and clock; no entry is changed"),
    ] = False,
) -> int:
    """Compare the ledger with itself: exit 0 all agrees, 1 something is wrong.

    Every entry with its digest, its number and its row of the id index; the counters, the clock,
    and streams that were renamed. Events may come in meanwhile. What an entry said cannot be made
    up: one that is altered or gone is put right by sending its event again.
    """
    with invocation.progress() as progress, progress.waiting("reading the ledger"):
        report = check_ledger(invocation.services.ledger, repair=repair)
    title = (
        "the ledger agrees with itself" if report.ok else "the ledger does not agree with itself"
    )
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if report.ok else FAILED


@command(app, "replay", folds=True, example="recollect replay projection --from 1770806400000-0")
def replay(
    invocation: Invocation,
    stage: StageArgument,
    start: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help="start here (inclusive)")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="POSITION", help="end here (inclusive)")
    ] = None,
    session: Session = None,
    tenant: Tenant = None,
) -> None:
    """Run a stage again over a range of the ledger, into the same graph."""
    collect_rarely()
    step_back(invocation.settings.rebuild_nice)
    row = stage_named(stage, "STAGE")
    first = position(start, "--from")
    with invocation.progress() as progress:
        report = operation.replay(
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


@command(app, "rebuild", folds=True, example="recollect rebuild --into green --switch")
def rebuild(
    invocation: Invocation,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="TARGET[=URI]",
            help="build a fresh graph beside the live one: in the registered target, at the URI, "
            "or in a second embedded Neo4j",
        ),
    ] = None,
    switch: Annotated[
        bool, typer.Option("--switch", help="answer reads from the new graph once it is verified")
    ] = False,
    route: Annotated[
        str | None,
        typer.Option(
            "--route",
            metavar="ROUTE",
            help="of a new embedded graph: files, which Neo4j loads into an empty store, or bolt; "
            f"default: files from {FILES_FROM:,} entries on",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="tell how, with what memory and disk, and do nothing")
    ] = False,
    redecide: Annotated[
        str | None,
        typer.Option(
            "--redecide",
            metavar="KIND",
            help="consolidation: afterwards decide again on summaries, links, boosts, communities "
            "and what is forgotten; with --into this needs --switch",
        ),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="with --redecide: decide as of this time (ISO 8601 with a zone)",
        ),
    ] = None,
) -> int:
    """Fold the whole ledger again: into a fresh graph, or in place.

    With --into, the live graph keeps answering and new events keep flowing until the new graph
    has caught up. Without it, the graph is folded again in place, and whatever the ledger no
    longer supports is removed. Recorded decisions are applied; with --redecide they are then made
    again under the current settings, and the new ones replace the old.
    """
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
    if route not in (None, "bolt", "files"):
        raise typer.BadParameter("bolt or files", param_hint="--route")
    now_ms = moment(now, "--now")
    target = None if into is None else target_named(invocation, into)
    if isinstance(target, NewTarget):
        target = NewTarget(target.name, cast(Route | None, route))
    elif route == "files":
        reason = "only a new target of the data folder is filled from files"
        raise typer.BadParameter(reason, param_hint="--route")
    if plan:
        by = target.route if isinstance(target, NewTarget) else "bolt"
        document = plan_load(invocation.services, by).as_dict()
        invocation.answer(document, lambda out: show_report(out, "would rebuild", document))
        return OK
    # Not before: a second Neo4j that was started for it will answer reads after the switch.
    step_back(invocation.settings.rebuild_nice)
    services = invocation.services
    with invocation.progress() as progress:
        report = (
            operation.rebuild(services, into=target, switch=switch, progress=progress)
            if redecide is None
            else rebuild_and_redecide(services, into=target, now_ms=now_ms, progress=progress)
        )
    document = report.as_dict()
    invocation.answer(document, lambda out: show_report(out, "rebuilt", document))
    return OK if document.get("ok", True) else FAILED


@command(app, "recover", folds=True, example="recollect recover --dry-run")
def recover(
    invocation: Invocation,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list what is lost, and change nothing")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask at a terminal")] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="also where nothing of a graph would be left")
    ] = False,
) -> int:
    """After Redis lost entries that the graph has: list them, and go on.

    Removes from the graph what the ledger no longer supports, resets the checkpoints, records the
    gap in the ledger and lets the halted partitions take events again. At a terminal it asks first.
    An empty ledger is more often a wrong address than a loss: that is refused (exit code 5).
    """
    ask = not (dry_run or yes or invocation.json) and sys.stdin.isatty()
    report = recover_ledger(invocation.services, apply=False)
    if report.nothing_left and not (everything or dry_run):
        names = ", ".join(report.nothing_left)
        reason = (
            f"the ledger holds nothing of what {names} was folded from: is it the right address "
            "and database, and was a backup restored? `recover --everything` takes the graph away"
        )
        report_error("OperationFailed", reason, code=WHOLE_GRAPH, json=invocation.json)
        return WHOLE_GRAPH
    if ask and report.gaps:
        looked = report.as_dict()
        invocation.answer(looked, lambda out: show_report(out, "would recover", looked))
        typer.confirm("Take this out of the graph and go on?", abort=True)
    if not dry_run:
        report = recover_ledger(invocation.services, apply=True, everything=everything)
    document = report.as_dict()
    if not document["graph_ahead"]:
        title = "nothing is lost, nothing to recover"
    else:
        title = "recovered" if report.applied else "would recover (nothing was changed)"
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if document.get("ok", True) else FAILED


def target_named(invocation: Invocation, text: str) -> Target | NewTarget:
    """The target that `--into` names: NAME=URI, a registered NAME, or a new embedded one.

    Raises:
        UnknownTarget: no URI, not registered, and no embedded services to start one with.
    """
    name, equals, uri = text.partition("=")
    services = invocation.services
    if services.active().name == name:
        reason = f"--into {name}: it is the active target; leave --into out to rebuild in place"
        raise ConfigurationError(reason=reason)
    registered = {target.name: target for target in services.targets.all()}
    if equals:
        return Target(name, uri, services.settings.neo4j_database, "building")
    if name in registered:
        return registered[name]
    data_dir = services.settings.data_dir
    state = read_state(data_dir)
    if state is None or state.redis_url != services.settings.redis_url:
        raise UnknownTarget(name=name, known=", ".join(sorted(registered)))
    return NewTarget(name)


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


@command(app, "verify", folds=True, example="recollect verify --session checkout-17")
def verify(
    invocation: Invocation,
    session: Session = None,
    tenant: Tenant = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="NAME", help="verify this graph instead of the active one"
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="repair exactly what differs, then verify again")
    ] = False,
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage",
            metavar="STAGE",
            help=f"tell only of what one stage writes ({', '.join(STAGES)})",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast", help="the projection alone, by sums; in little memory, and without models"
        ),
    ] = False,
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="the projection of so many of the sessions, drawn at random, by sums: 0.01 is one "
            "in a hundred",
        ),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            "--subject",
            metavar="USER",
            help="instead: look for this user of --tenant in ledger, graphs and files; exit 1 if "
            "anything is left",
        ),
    ] = None,
    words: Annotated[
        Path | None,
        typer.Option(
            "--words", metavar="FILE", help="with --subject: words to look for, too, one a line"
        ),
    ] = None,
) -> int:
    """Fold the ledger again and compare: exit 0 same, 1 divergence.

    A large graph is added up by tenant first, by as many processes as there are cores, in the
    memory that RECOLLECT_REBUILD_MEMORY_MB says; a tenant whose sums differ is then compared
    exactly. Every node, edge and property of all stages counts, and the last line says how much
    that was. The digest is the same for the same events in another ledger. Vectors are judged by
    what their texts say. Of the whole active graph, the columns in memory are then compared with
    it.
    """
    if words is not None and subject is None:
        raise typer.BadParameter("goes with --subject", param_hint="--words")
    if subject is not None:
        if fast or sample or stage or session or target or repair:
            raise typer.BadParameter("goes with --tenant and --words alone", param_hint="--subject")
        return find_traces(invocation, tenant or DEFAULT_TENANT, subject, words)
    row = None if stage is None else stage_named(stage, "--stage")
    if fast and (stage or session or tenant):
        raise typer.BadParameter("the fast look is about the whole graph", param_hint="--fast")
    if sample is not None and not sample:
        raise typer.BadParameter("above 0", param_hint="--sample")
    if sample and (fast or stage or session or tenant or repair):
        raise typer.BadParameter("goes with --target alone", param_hint="--sample")
    collect_rarely()
    with invocation.progress() as progress:
        if sample is not None:
            report = verify_sample(invocation.services, sample, target=target, progress=progress)
        else:
            report = prove(
                invocation.services,
                target=target,
                stage=None if row is None else row.name,
                session=session,
                tenant=tenant,
                repair=repair,
                fast=fast,
                progress=progress,
            )
        if not (fast or sample or stage or session or tenant):
            with progress.waiting("comparing the columns"):
                prove_columns(invocation.services, report, repair=repair)
    invocation.answer(report.as_dict(), lambda out: show_verified(out, report.as_dict()))
    return OK if report.ok else FAILED


def find_traces(invocation: Invocation, tenant: str, user: str, words: Path | None) -> int:
    """Tell where something of a user is left."""
    lines: list[str] = []
    if words is not None:
        try:
            lines = [line for line in words.read_text().splitlines() if line]
        except (OSError, UnicodeError) as error:
            raise typer.BadParameter(str(error), param_hint="--words") from None
        if any(len(line) < FEWEST_CHARACTERS for line in lines):
            rule = f"words of {FEWEST_CHARACTERS} characters at least"
            raise typer.BadParameter(rule, param_hint="--words")
    with invocation.progress() as progress, progress.waiting("looking for what is left"):
        report = traces(invocation.services, tenant, user, lines)

    def show(out: Console) -> None:
        places = {"ledger": report.ledger, **report.graphs, **report.files}
        for place, count in places.items():
            colour = "red" if count else "green"
            out.print(f"[{colour}]{count:>7,}[/{colour}]  {escape(place)}", soft_wrap=True)

    invocation.answer(report.as_dict(), show)
    return OK if report.ok else FAILED


@command(dead_letters, "list", example="recollect dead-letters list --json")
def list_letters(
    invocation: Invocation,
    stage: StageName = None,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="list those that were given up, too")
    ] = False,
) -> None:
    """List the dead letters of the active target."""
    document = letters_operation.list_(invocation.services, stage=stage, dropped=dropped).as_dict()
    letters = document["dead_letters"]

    def show_list(out: Console) -> None:
        if not letters:
            out.print("[green]none[/green]")
        for letter in letters:
            out.print(f"[bold]{letter_name(letter)}[/bold]  {letter['event_id'] or '?'}")
            out.print(f"  {letter['kind']}: {letter['reason']}", style="dim", markup=False)

    invocation.answer(document, show_list)


@command(dead_letters, "show", example="recollect dead-letters show projection/3/1041")
def show_letter(invocation: Invocation, letter: Annotated[str, Letter]) -> None:
    """Show one dead letter with its event."""
    stage, partition, seq = letter_place(letter)
    document = letters_operation.show(invocation.services, stage, partition, seq).as_dict()
    invocation.answer(document, lambda out: out.print_json(data=document, default=str))


@command(dead_letters, "retry", folds=True, example="recollect dead-letters retry")
def retry_letters(invocation: Invocation, letter: Letter = None, stage: StageName = None) -> int:
    """Fold dead letters again, all of them without LETTER; those that succeed are gone."""
    with invocation.progress() as progress:
        report = letters_operation.retry(
            invocation.services, **chosen_letters(letter, stage), progress=progress
        )
    return _answer_letters(invocation, "retried", report.as_dict())


@command(dead_letters, "drop", example="recollect dead-letters drop projection/3/1041")
def drop_letters(invocation: Invocation, letter: Letter = None, stage: StageName = None) -> int:
    """Give dead letters up: their events stay in the ledger, and out of the graph."""
    if letter is None and stage is None:
        raise typer.BadParameter("name one, or give a --stage", param_hint="LETTER")
    report = letters_operation.drop(invocation.services, **chosen_letters(letter, stage))
    return _answer_letters(invocation, "dropped", report.as_dict())


@command(dead_letters, "release", example="recollect dead-letters release projection")
def release(
    invocation: Invocation,
    stage: StageArgument,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="on this target (default: the active one)"),
    ] = None,
    for_s: Annotated[
        int, typer.Option("--for", metavar="SECONDS", min=1, help="for how long")
    ] = RELEASED_S,
) -> None:
    """Let a stage that holds go on: what fails is poison, and may become dead letters.

    A stage holds when so many different entries fail that they are hardly the cause; `recollect
    status` says at which entry it holds, and why. It goes on by itself once one of them passes.
    """
    row = stage_named(stage, "STAGE")
    letters_operation.release(invocation.services, row.name, target=target, for_s=for_s)
    document = {"stage": row.name, "target": target, "for_s": for_s}
    invocation.answer(document, lambda out: out.print(f"{row.name} is released for {for_s:,} s"))


def letter_name(letter: dict[str, Any]) -> str:
    """STAGE/PARTITION/SEQ."""
    return f"{letter['stage']}/{letter['partition']}/{letter['seq']}"


def letter_place(letter: str) -> tuple[str, int, int]:
    """What a letter's name says: stage, partition, seq.

    Raises:
        typer.BadParameter: it is no such name.
    """
    parts = letter.split("/")
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise typer.BadParameter("STAGE/PARTITION/SEQ as `list` prints it", param_hint="LETTER")
    return parts[0], int(parts[1]), int(parts[2])


def chosen_letters(letter: str | None, stage: str | None) -> dict[str, Any]:
    """Which letters: one, those of a stage, or all."""
    if letter is None:
        return {"stage": stage}
    name, partition, seq = letter_place(letter)
    return {"stage": name, "partition": partition, "seq": seq}


def _answer_letters(invocation: Invocation, title: str, document: dict[str, Any]) -> int:
    """Print what became of the letters."""
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if document.get("ok", True) else FAILED
