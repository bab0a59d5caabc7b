"""`recollect verify`: whether the graph is what the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import FAILED, OK, Invocation
from projections.positions import START

if TYPE_CHECKING:
    from rich.console import Console

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
    all that was decided is folded once more, and accesses are added up; of one session its
    summaries, links, boosts and tombstones.
    """
    from pipelines.observe.process import collect_rarely
    from pipelines.work.stages import STAGES

    if stage is not None and stage not in STAGES:
        raise typer.BadParameter(f"one of {', '.join(STAGES)}", param_hint="--stage")
    if stage in ("projection", "consolidation") and sample is not None:
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
    if stage in (None, "projection"):
        from pipelines.proof.verify import verify as run

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
    from pipelines.proof.enrichment import verify_enrichment

    with invocation.progress() as progress:
        report = verify_enrichment(services, sample=sample, seed=seed, progress=progress, **options)
    return report.as_dict()


def _verify_consolidated(
    invocation: Invocation, stage: str | None, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What the consolidation's verify says; None: it was not asked for, or there is none."""
    if not _is_wanted(invocation, "consolidation", stage, options):
        return None
    from pipelines.proof.consolidation import verify_consolidation

    with invocation.progress() as progress:
        report = verify_consolidation(invocation.services, progress=progress, **options)
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
