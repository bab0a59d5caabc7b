"""`recollect verify`: whether the graph is what the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import FAILED, OK, STAGE_NAMES, Invocation, stage_named
from projections.positions import START

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.work.stages import Stage

SHOWN_DIFFERENCES = 50
SAMPLE = 200
"""Events of the enrichment that a verify of everything looks at, when not told otherwise."""
Session = Annotated[str | None, typer.Option("--session", help="this session only")]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="of --session (default: default); alone: all its")
]


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
            help=f"{STAGE_NAMES} alone; default: the projection whole, a sample of the "
            "enrichment and the consolidation whole where there are some",
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
    all that was decided is folded once more, and accesses are added up; of one session its
    summaries, links, boosts and tombstones.
    """
    from pipelines.observe.process import collect_rarely
    from pipelines.work.stages import STAGES, load

    if stage is not None and not stage_named(stage, "--stage").sampled and sample is not None:
        raise typer.BadParameter(f"the {stage} is always compared whole", param_hint="--sample")
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
    for row in STAGES.values() if stage is None else [STAGES[stage]]:
        if stage is None and not _has_begun(invocation, row, target):
            continue
        sampling = {"sample": sample, "seed": seed} if row.sampled else {}
        with invocation.progress() as progress:
            run = load(row.verify)
            report = run(invocation.services, progress=progress, **sampling, **options)
        found = report.as_dict()
        if document is None:
            document = found
            if stage is None and not found["repaired"]:
                # what the projection brought back is bare: then all of the rest is looked at
                sample = sample or SAMPLE
        else:
            document.setdefault("stages", {})[row.name] = found
            document["ok"] = document["ok"] and found["ok"]
    assert document is not None
    _answer_verified(invocation, document)
    return OK if document["ok"] else FAILED


def _answer_verified(invocation: Invocation, document: Mapping[str, Any]) -> None:
    invocation.answer(document, lambda out: show_verified(out, document))


def _has_begun(invocation: Invocation, stage: Stage, named: str | None) -> bool:
    """Whether a stage has folded anything; the first one counts as begun everywhere."""
    if stage.upstream is None:
        return True
    services = invocation.services
    target = services.targets.get(named) if named else services.active()
    return any(one.position != START for one in services.graph(target).checkpoints(stage.name))


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
        text = difference if isinstance(difference, str) else line(difference)
        out.print(f"  {text}", markup=False)
    if document["difference_count"] > SHOWN_DIFFERENCES:
        more = document["difference_count"] - SHOWN_DIFFERENCES
        out.print(f"  and {more:,} more (--json lists up to {len(differences):,})")
    for stage in stages.values():
        show_verified(out, stage)


def line(fields: Mapping[str, Any]) -> str:
    """What is told of one thing, in one line."""
    return "  ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
