"""`recollect dead-letters`: entries that a stage could not fold and has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import FAILED, OK, STAGE_NAMES, Invocation, command, stage_named
from pipelines.cli.rebuild import show_report

if TYPE_CHECKING:
    from rich.console import Console

group = typer.Typer(
    help="Look at, retry, drop and release the entries that a stage could not fold."
)
RELEASED_S = 600
StageName = Annotated[str | None, typer.Option("--stage", help="of this stage only")]
Letter = Annotated[
    str | None, typer.Argument(help="STAGE/PARTITION/SEQ as `list` prints it", metavar="LETTER")
]


def register(app: typer.Typer) -> None:
    """Put the group into the application."""
    command(group, "list", example="recollect dead-letters list --json")(list_letters)
    command(group, "show", example="recollect dead-letters show projection/3/1041")(show)
    command(group, "retry", example="recollect dead-letters retry")(retry)
    command(group, "drop", example="recollect dead-letters drop projection/3/1041")(drop)
    command(group, "release", example="recollect dead-letters release projection")(release)
    app.add_typer(group, name="dead-letters", rich_help_panel="Graph", no_args_is_help=True)


def list_letters(
    invocation: Invocation,
    stage: StageName = None,
    dropped: Annotated[bool, typer.Option("--dropped", help="those given up, too")] = False,
) -> None:
    """List the dead letters of the active target."""
    from pipelines.operations import dead_letters

    document = dead_letters.list_(invocation.services, stage=stage, dropped=dropped).as_dict()
    letters = document["dead_letters"]

    def show_list(out: Console) -> None:
        if not letters:
            out.print("[green]none[/green]")
        for letter in letters:
            out.print(f"[bold]{name_of(letter)}[/bold]  {letter['event_id'] or '?'}")
            out.print(f"  {letter['kind']}: {letter['reason']}", style="dim", markup=False)

    invocation.answer(document, show_list)


def show(invocation: Invocation, letter: Annotated[str, Letter]) -> None:
    """Show one dead letter with its event."""
    from pipelines.operations import dead_letters

    stage, partition, seq = place(letter)
    document = dead_letters.show(invocation.services, stage, partition, seq).as_dict()
    invocation.answer(document, lambda out: out.print_json(data=document, default=str))


def retry(invocation: Invocation, letter: Letter = None, stage: StageName = None) -> int:
    """Fold dead letters once more; those that succeed are gone. All of them without LETTER."""
    from pipelines.operations import dead_letters

    with invocation.progress() as progress:
        report = dead_letters.retry(invocation.services, **chosen(letter, stage), progress=progress)
    return answer(invocation, "retried", report.as_dict())


def drop(invocation: Invocation, letter: Letter = None, stage: StageName = None) -> int:
    """Forget dead letters: their events stay in the ledger and out of the graph."""
    from pipelines.operations import dead_letters

    if letter is None and stage is None:
        raise typer.BadParameter("name one, or a --stage", param_hint="LETTER")
    report = dead_letters.drop(invocation.services, **chosen(letter, stage))
    return answer(invocation, "dropped", report.as_dict())


def release(
    invocation: Invocation,
    stage: Annotated[str, typer.Argument(metavar="STAGE", help=STAGE_NAMES)],
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="default: the active one")
    ] = None,
    for_s: Annotated[
        int, typer.Option("--for", metavar="SECONDS", min=1, help="how long")
    ] = RELEASED_S,
) -> None:
    """Let a stage that holds go on: what fails is poison, and may become dead letters.

    A stage holds when so many different entries fail that it is hardly their fault: `recollect
    status` says at which, and why. By itself it goes on when one of them passes.
    """
    from pipelines.operations import dead_letters

    row = stage_named(stage, "STAGE")
    dead_letters.release(invocation.services, row.name, target=target, for_s=for_s)
    document = {"stage": row.name, "target": target, "for_s": for_s}
    invocation.answer(document, lambda out: out.print(f"{row.name} is released for {for_s:,} s"))


def name_of(letter: dict[str, Any]) -> str:
    """STAGE/PARTITION/SEQ."""
    return f"{letter['stage']}/{letter['partition']}/{letter['seq']}"


def place(letter: str) -> tuple[str, int, int]:
    """What a letter's name says: stage, partition, seq.

    Raises:
        typer.BadParameter: it is no such name.
    """
    parts = letter.split("/")
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise typer.BadParameter("STAGE/PARTITION/SEQ as `list` prints it", param_hint="LETTER")
    return parts[0], int(parts[1]), int(parts[2])


def chosen(letter: str | None, stage: str | None) -> dict[str, Any]:
    """Which letters: one, those of a stage, or all."""
    if letter is None:
        return {"stage": stage}
    name, partition, seq = place(letter)
    return {"stage": name, "partition": partition, "seq": seq}


def answer(invocation: Invocation, title: str, document: dict[str, Any]) -> int:
    """Print what became of the letters."""
    invocation.answer(document, lambda out: show_report(out, title, document))
    return OK if document.get("ok", True) else FAILED
