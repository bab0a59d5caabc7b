"""Dead letters: look at them, try them again when their cause is gone, or give them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.graph.port import Graph
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.sealing import unsealed_part
from pipelines.work.poison import UNBRAKED
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import STAGES
from projections.errors import OperationFailed, UndecodableEntry
from projections.events import as_envelope
from projections.identity import Position
from projections.schema import BLOCKED_BY, DROPPED


@dataclass
class LettersReport:
    """Dead letters, and what became of them.

    Attributes:
        done: how many were brought back or dropped.
        failed: those that failed again, with the reason of this time.
    """

    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": not self.failed,
            "count": len(self.dead_letters),
            "done": self.done,
            "dead_letters": self.dead_letters,
            "failed": self.failed,
        }


def list_(services: Services, *, stage: str | None = None, dropped: bool = False) -> LettersReport:
    """The dead letters of the active target, without those that were dropped unless asked."""
    letters = _graph(services).dead_letters(stage)
    return LettersReport([dict(d) for d in letters if dropped or d["kind"] != DROPPED])


def show(services: Services, stage: str, partition: int, seq: int) -> LettersReport:
    """One dead letter with its event, as far as the entry can be read.

    Raises:
        OperationFailed: there is none.
    """
    letter = dict(_find(services, stage, partition, seq))
    entry = services.ledger.entry_at(partition, Position.parse(letter["position"]), seq)
    if entry is not None:
        try:
            letter["event"] = as_envelope(entry.event())
        except UndecodableEntry:
            letter["data"] = unsealed_part(entry.data)[:2_000].decode("utf-8", "replace")
    return LettersReport([letter])


def retry(
    services: Services,
    *,
    stage: str | None = None,
    partition: int | None = None,
    seq: int | None = None,
    progress: Progress | None = None,
) -> LettersReport:
    """Fold dead letters once more: one, those of a stage or partition, or all not dropped.

    The record goes in the transaction that folds the entry; one that fails again stays. Letters of
    later stages that were blocked by a chosen one are tried after it.
    """
    order = list(STAGES)
    chosen = _chosen(services, stage, partition, seq)
    while blocked := [letter for letter in _blocked(services, chosen) if letter not in chosen]:
        chosen += blocked
    chosen.sort(key=lambda letter: order.index(letter["stage"]))
    report = LettersReport(chosen)
    target = services.active()
    runners: dict[str, Runner] = {}
    for number, letter in enumerate(report.dead_letters, 1):
        name = letter["stage"]
        if name not in runners:
            runners[name] = Runner(
                make_fold(STAGES[name], services, target),
                services.graph(target),
                target=target.name,
                policy=UNBRAKED,
            )
        runner = runners[name]
        place = letter["partition"], Position.parse(letter["position"]), letter["seq"]
        entry = services.ledger.entry_at(*place)
        if entry is None:
            reason = "its entry is no longer in the ledger"
        elif runner.checkpoint(letter["partition"]).position < entry.position:
            reason = "it lies beyond the checkpoint, the worker will come to it"
        else:
            failed = runner.refold(letter["partition"], [entry])
            reason = failed[0][1] if failed else ""
        if reason:
            report.failed.append({**letter, "reason": reason})
        else:
            report.done += 1
        if progress:
            progress(number, len(report.dead_letters), "retrying dead letters")
    return report


def drop(
    services: Services,
    *,
    stage: str | None = None,
    partition: int | None = None,
    seq: int | None = None,
) -> LettersReport:
    """Give dead letters up. The entry stays in the ledger, the record says that it was dropped."""
    report = LettersReport(_chosen(services, stage, partition, seq))
    graph = _graph(services)
    for letter in report.dead_letters:
        report.done += _drop_one(graph, letter)
    return report


def release(services: Services, stage: str, *, target: str | None, for_s: int) -> None:
    """Let the workers of a stage that holds give entries up again, for so many seconds.

    Args:
        services: ledger and targets.
        stage: name.
        target: name; None: the active one.
        for_s: how long there is no brake.

    Raises:
        UnknownTarget: there is none of that name.
    """
    chosen = services.targets.get(target) if target else services.active()
    services.holds.release(stage, chosen.name, for_s)


def _graph(services: Services) -> Graph:
    return services.graph(services.active())


def _drop_one(graph: Graph, letter: Mapping[str, Any]) -> int:
    """Mark a letter as dropped; 0 when it is gone meanwhile."""
    stage, partition, seq = letter["stage"], letter["partition"], letter["seq"]
    with graph.transaction() as transaction:
        transaction.lock(stage, partition)
        for held in transaction.dead_letters_of(stage, partition):
            if held["seq"] == seq:
                transaction.add_dead_letter(**{**held, "kind": DROPPED})
                return 1
    return 0


def _find(services: Services, stage: str, partition: int, seq: int) -> dict[str, Any]:
    for letter in _graph(services).dead_letters(stage, partition):
        if letter["seq"] == seq:
            return dict(letter)
    raise OperationFailed(reason=f"no dead letter {stage}/{partition}/{seq}")


def _blocked(services: Services, chosen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Letters of later stages about the same entries."""
    entries = {(letter["partition"], letter["seq"], letter["stage"]) for letter in chosen}
    return [
        dict(letter)
        for letter in _graph(services).dead_letters()
        if letter["kind"] == BLOCKED_BY
        and (letter["partition"], letter["seq"], STAGES[letter["stage"]].upstream) in entries
    ]


def _chosen(
    services: Services, stage: str | None, partition: int | None, seq: int | None
) -> list[dict[str, Any]]:
    if stage is not None and partition is not None and seq is not None:
        return [_find(services, stage, partition, seq)]
    return [
        letter
        for letter in list_(services, stage=stage).dead_letters
        if partition in (None, letter["partition"]) and seq in (None, letter["seq"])
    ]
