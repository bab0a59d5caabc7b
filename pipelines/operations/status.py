"""What is where and how far behind: the document of `recollect status`.

Checkpoints are read before tails, so that entries appended in between count as lag and never as
a ledger that fell behind its graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from threading import Thread
from typing import Any, cast

from pipelines.columns.client import ColumnsClient
from pipelines.graph.memory_graphs import is_in_memory
from pipelines.graph.port import Graph, Reads
from pipelines.graph.rows import FoundNode
from pipelines.ledger.erasing import DONE, erasures
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import Hold, Target
from pipelines.ledger.vault import SEALED
from pipelines.models.derivations import shown_url, tally
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT, STAGES, Stage
from projections.errors import (
    DerivationsUnavailable,
    GraphError,
    GraphUnavailable,
    KeysUnavailable,
    RecollectError,
)
from projections.events import timestamp_text
from projections.identity import Position
from projections.operations import Checkpoint
from projections.schema import CONSOLIDATION_REQUEST, DEAD_LETTER, DROPPED, PASS

TIMEOUT_S = 30.0
"""Of one question, when nobody looks."""
PATIENCE_S = 10.0
"""For a graph to say anything at all, before it is told that it does not answer.

The first question to a Neo4j that has just started takes seconds where the processors are busy.
"""
STORE_PATIENCE_S = 0.5
"""For the store of derivations."""
TENANTS = 100
"""Of which the last pass is told."""


def status(services: Services) -> dict[str, Any]:
    """The document; `errors` names what could not be asked, `ok` that nothing needs attention.

    `held` says of a stage that so many different entries fail that it gives none up.
    A stage that was never `started` on the target has no checkpoint there; its lag is the whole
    ledger, and nobody works it off.

    Raises:
        LedgerUnavailable: without the ledger there is nothing to say.
    """
    target = services.active()
    errors: list[RecollectError] = []
    graph: dict[str, Any] = {}
    passes: list[dict[str, Any]] = []
    checkpoints: dict[str, list[Checkpoint]] = {}
    dead_letters: dict[str, int] = {}
    try:
        store = services.graph(target, timeout_s=TIMEOUT_S)
        _require_answer(store)
        for checkpoint in store.checkpoints():
            checkpoints.setdefault(checkpoint.stage, []).append(checkpoint)
        dead_letters = _dead_letter_counts(store)
        counts = store.counts()
        passes = _passes(store)
        graph = {
            "nodes": dict(counts.nodes),
            "edges": dict(counts.edges),
            "placeholders": counts.placeholders,
        }
    except GraphError as error:
        errors.append(error)
    ledger = services.ledger
    tails = ledger.tails()
    halted = ledger.halted()
    held_out = ledger.held_out()
    holds = services.holds.of_target(target.name, STAGES)
    stages = {
        name: {
            **_stage(
                stage,
                target,
                ledger,
                tails=tails,
                checkpoints=checkpoints.get(name, []),
                models=_models(stage, services.settings, checkpoints.get(name, [])),
            ),
            "dead_letters": dead_letters.get(name, 0),
            "held": _held(holds.get(name)),
        }
        for name, stage in STAGES.items()
        if not errors
    }
    rebuild_needed = any(stage["rebuild_needed"] for stage in stages.values())
    ahead = any(stage["graph_ahead"] for stage in stages.values())
    risk = ledger.risk()
    archived = _archive(ledger, tails)
    return {
        "ok": not (errors or halted or rebuild_needed or ahead or any(held_out) or risk)
        and not (archived and archived["problem"])
        and not any(stage["dead_letters"] or stage["held"] for stage in stages.values()),
        "rebuild_needed": rebuild_needed,
        "graph_ahead": ahead or bool(halted),
        "stages": stages,
        "passes": passes,
        "graph": graph,
        "ledger": {
            **_ledger(ledger, tails, halted),
            "held_out": held_out._asdict(),
            "at_risk": risk or None,
            "archive": archived,
        },
        "sealing": _sealing(ledger),
        "derivations": _derivations(services.settings, ledger, tails),
        "columns": _columns(services.settings, target),
        "active": target.name,
        "rebuilds": [
            {
                "target": one.target,
                "doing": one.doing,
                "done": one.done,
                "total": one.total,
                "begun_at": timestamp_text(round(one.begun_s * 1000)),
            }
            for one in services.rebuilds.all()
        ],
        "recall": recall_mode(services.settings),
        "targets": [
            {
                "name": other.name,
                "uri": other.uri,
                "database": other.database,
                "state": other.state,
                "active": other.name == target.name,
            }
            for other in services.targets.all()
        ],
        "errors": [
            {"kind": type(e).__name__, "message": str(e), "retryable": e.retryable} for e in errors
        ],
    }


def _sealing(ledger: Ledger) -> dict[str, Any]:
    """Which tenants are sealed, whether the keys are at hand, and erasures that are not done."""
    vault = ledger.vault
    tenants = sorted(t for t, state in vault.fences.read().tenants.items() if state == SEALED)
    error = None
    try:
        vault.require_keys()
    except KeysUnavailable as away:
        error = str(away)
    rows = erasures(vault)
    return {
        "tenants": tenants,
        "error": error,
        "erased": sum(row["step"] == DONE for row in rows),
        "under_way": [
            {name: row[name] for name in ("subject", "tenant", "step", "requested_at")}
            for row in rows
            if row["step"] != DONE
        ],
    }


def _columns(settings: Settings, target: Target) -> dict[str, Any] | None:
    """How the columns of the active target are, if a process holds them; None: none ever does."""
    if is_in_memory(target.uri):
        return None
    client = ColumnsClient(target.uri, target.database, settings)
    try:
        state = client.state(start=False)
    finally:
        client.close()
    told = state._asdict()
    return {"loaded": told.pop("is_loaded"), **told, "behind_s": round(state.behind_s, 3)}


def _derivations(settings: Settings, ledger: Ledger, tails: Sequence[Tail]) -> dict[str, Any]:
    """How many events have their derivations kept, by the rules and models of this installation.

    An entry that no enrichment has read since the store was begun counts as an event that lacks
    them: what it is, nobody has looked.
    """
    url, models = settings.derivations_url, ENRICHMENT.models_here(settings)
    told: dict[str, Any] = {
        "store": None if url is None else shown_url(url),
        **dict.fromkeys(("kept", "events", "lacking", "error")),
    }
    if models is None:
        return told | {"error": "not all models are installed here"}
    last_seqs = [tail.seq for tail in tails]
    try:
        counts = tally(settings, ledger.identity, models, last_seqs, within_s=STORE_PATIENCE_S)
    except DerivationsUnavailable as error:
        return told | {"error": str(error)}
    if counts is None:
        return told
    events = sum(last_seqs) - counts.passed
    return told | {
        "kept": counts.derived,
        "events": events,
        "lacking": events - counts.derived,
    }


def _require_answer(store: Graph) -> None:
    """Give up on a graph that hangs; a driver waits for one much longer.

    Raises:
        GraphUnavailable: it does not answer.
    """
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(store.checkpoints())
        except RecollectError as error:
            answers.append(error)

    asking = Thread(target=ask, name="status", daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    if not answers:
        raise GraphUnavailable(reason=f"Neo4j does not answer within {PATIENCE_S:g} s")


def _dead_letter_counts(graph: Reads) -> dict[str, int]:
    """How many dead letters each stage has that nobody dropped; without any it is missing."""
    letters = cast(Iterator[FoundNode], graph.stream(DEAD_LETTER.label, ("kind",)))
    return dict(Counter(letter.key[0] for letter in letters if letter.values["kind"] != DROPPED))


def _passes(graph: Reads) -> list[dict[str, Any]]:
    """The last pass of consolidation of each tenant; times by the clock of the pass.

    Those of so many tenants at most: for whom requests wait before the rest, then by age. There is
    one node for each tenant, and few requests.
    """
    requests = cast(Iterator[FoundNode], graph.stream(CONSOLIDATION_REQUEST.label))
    waiting = Counter(node.key[0] for node in requests)
    ended = cast(Iterator[FoundNode], graph.stream(PASS.label, ("ended_at",)))
    ended_at_ms = {node.key[0]: node.values["ended_at"] or 0 for node in ended}
    tenants = nsmallest(
        TENANTS,
        waiting.keys() | ended_at_ms.keys(),
        key=lambda tenant: (tenant not in waiting, ended_at_ms.get(tenant, 0), tenant),
    )
    names = ("ended_at", "complete", "communities_at")
    nodes = graph.nodes(PASS.label, [(tenant,) for tenant in tenants], names)
    told = {key[0]: node.values for key, node in nodes.items()}
    nothing = dict.fromkeys(names)
    return [
        {
            "tenant": tenant,
            "ended_at": _time(told.get(tenant, nothing)["ended_at"]),
            "complete": told.get(tenant, nothing)["complete"],
            "communities_at": _time(told.get(tenant, nothing)["communities_at"]),
            "requests_waiting": waiting[tenant],
        }
        for tenant in tenants
    ]


def _time(ms: int | None) -> str | None:
    return None if ms is None else timestamp_text(ms)


def recall_mode(settings: Settings) -> str:
    """How facts are recalled where a question does not say it, in the words of S2."""
    if not settings.spreading_activation:
        return "BFS"
    return f"spreading activation (lambda={settings.decay_lambda:g}, hops={settings.max_hops})"


def _stage(
    stage: Stage,
    target: Target,
    ledger: Ledger,
    *,
    tails: list[Tail],
    checkpoints: list[Checkpoint],
    models: dict[str, Any],
) -> dict[str, Any]:
    by_partition = {checkpoint.partition: checkpoint for checkpoint in checkpoints}
    rows: list[dict[str, Any]] = []
    for partition, tail in enumerate(tails):
        checkpoint = by_partition.get(partition)
        seq = checkpoint.seq if checkpoint else 0
        rows.append(
            {
                "partition": partition,
                "position": str(checkpoint.position) if checkpoint else "0-0",
                "seq": seq,
                "lag_entries": tail.seq - seq,
            }
        )
    return {
        "target": target.name,
        "started": bool(checkpoints),
        "lag_entries": sum(max(row["lag_entries"], 0) for row in rows),
        "lag_seconds": round(_lag_seconds(ledger, rows), 3),
        "fold_version": stage.fold_version,
        "models": models,
        "rebuild_needed": any(c.fold_version != stage.fold_version for c in checkpoints)
        or _differ(**models),
        # A negative lag: the graph has folded entries that the ledger does not have.
        "graph_ahead": any(row["lag_entries"] < 0 for row in rows),
        "partitions": rows,
    }


def _held(hold: Hold | None) -> dict[str, Any] | None:
    """At which entry a stage holds, and why; None: it does not."""
    if hold is None:
        return None
    return {
        "partition": hold.partition,
        "seq": hold.seq,
        "position": hold.position,
        "reason": hold.reason,
        "since": timestamp_text(round(hold.since_s * 1000)),
    }


def _models(stage: Stage, settings: Settings, checkpoints: list[Checkpoint]) -> dict[str, Any]:
    """With which models the graph was derived, and which this installation has.

    None: none yet, or not all of them installed here, so that nothing can be said.
    """
    if not stage.runs_models:
        return {}
    # A worker that was stopped in between may have left two.
    held = ", ".join(sorted({checkpoint.models or "none" for checkpoint in checkpoints}))
    return {"graph": held or None, "installed": stage.models_here(settings)}


def _differ(graph: str | None = None, installed: str | None = None) -> bool:
    return graph is not None and installed is not None and graph != installed


def _lag_seconds(ledger: Ledger, rows: list[dict[str, Any]]) -> float:
    """Age of the oldest entry that is not in the graph; 0 when all are."""
    oldest_ms: int | None = None
    for row in rows:
        if row["lag_entries"] > 0:
            ms = ledger.oldest_behind_ms(row["partition"], Position.parse(row["position"]))
            if ms is not None and (oldest_ms is None or ms < oldest_ms):
                oldest_ms = ms
    return 0.0 if oldest_ms is None else max(0.0, (ledger.now_ms() - oldest_ms) / 1000)


def _archive(ledger: Ledger, tails: Sequence[Tail]) -> dict[str, Any] | None:
    """What has left Redis, and what keeps more from it; None: nothing was ever archived.

    Everything is counted by number, so that it does not depend on what a stream says of itself.
    """
    state = ledger.archive.state(len(tails))
    if state is None:
        return None
    archived = sum(boundary.seq for boundary in state.boundaries)
    return {
        "url": state.url or None,
        "entries": archived,
        "segments": sum(boundary.segments for boundary in state.boundaries),
        "streamed": sum(tail.seq for tail in tails) - archived,
        "waits_for": state.waits_for or None,
        "problem": state.problem or None,
    }


def _ledger(ledger: Ledger, tails: list[Tail], halted: dict[int, str]) -> dict[str, Any]:
    used, limit = ledger.memory()
    return {
        "partitions": len(tails),
        "epoch": ledger.epoch(),
        "entries": sum(tail.seq for tail in tails),
        "tails": [
            {"partition": partition, "position": str(tail.position), "seq": tail.seq}
            for partition, tail in enumerate(tails)
        ],
        "halted": {str(partition): reason for partition, reason in halted.items()},
        "memory": {"used_bytes": used, "max_bytes": limit},
    }
