"""Verify of Stage 2: recompute from the ledger what it must have made, and compare the graph.

The whole run streams events, then entities and histories; a run over one session, or a sample of
sessions, compares their events and looks whether entities and histories have taken them in. The
chain itself and that every event has its node is Stage 1's part (`pipelines.proof.verify`), which
comes first. The models' analyses come from their cache where it still has them; no vector is
computed: of embeddings and SIMILAR_TO it is checked what must hold whatever they say.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice

import structlog

from enrichment import NAME
from pipelines.graph.audits.enrichment import EnrichmentAudit
from pipelines.ledger.registry import Target
from pipelines.models.cache import ByteCache
from pipelines.models.llm import make_language_model
from pipelines.models.loaded import Models
from pipelines.proof.enriched_differences import FoundEvent
from pipelines.proof.enriched_entities import EntityChecker
from pipelines.proof.enriched_events import EventChecker
from pipelines.proof.enriched_report import EnrichmentReport
from pipelines.proof.expected_enrichment import ExpectedGraph
from pipelines.proof.recompute import Recomputer
from pipelines.proof.report import looked, tell
from pipelines.work.enriching import enrichment_fold
from pipelines.work.runner import Runner
from pipelines.work.services import Progress, Services
from pipelines.work.stages import ENRICHMENT
from projections.errors import FoldVersionMismatch, GraphAhead, GraphUnavailable, ModelsMismatch
from projections.events import DEFAULT_TENANT
from projections.operations import Checkpoint
from projections.structural import SessionKey

logger = structlog.get_logger(__name__)


def verify_enrichment(
    services: Services,
    *,
    target: str | None = None,
    session: str | None = None,
    tenant: str | None = None,
    sample: int | None = None,
    seed: int | None = None,
    repair: bool = False,
    models: Models | None = None,
    progress: Progress | None = None,
) -> EnrichmentReport:
    """Compare Stage 2 of a target (default: the active one) with what follows from the ledger.

    The result is kept for the API to show, unless it is that of one session or of a sample
    without a difference.

    Args:
        services: ledger and targets.
        target: name of the target.
        session: only this session.
        tenant: of the session, `default` if not given.
        sample: only whole sessions, or the beginning of one, with so many events together.
        seed: which sessions; default: the time.
        repair: mend what differs, then look again.
        models: default those of the settings.
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        ModelUnavailable: a model is not installed.
        FoldVersionMismatch, ModelsMismatch: the graph was derived otherwise: rebuild it.
        GraphAhead: the ledger lost what the graph was derived from; `recover` comes first.
    """
    begun = time.perf_counter()
    chosen = services.targets.get(target) if target else services.active()
    verifier = EnrichmentVerifier(
        services, chosen, models or services.models, progress or (lambda done, total, what: None)
    )
    verifier.test()
    if session is None and sample is not None and seed is None:
        seed = time.time_ns() % 1_000_000
    only = (tenant or DEFAULT_TENANT, session) if session else None

    def mend() -> int:
        try:
            return verifier.repair()
        except GraphUnavailable as error:
            # a deadlock with live work; the next look shows what was mended, or that it is away
            logger.info("not all was repaired", target=chosen.name, reason=str(error))
            return 0

    report = looked(begun, lambda: verifier.run(only, sample, seed), mend if repair else None)
    # A part that is right says nothing about the rest, and takes back nothing that was found there.
    if only is None and (sample is None or not report.ok):
        tell(services, NAME, chosen.name, report)
    return report


class EnrichmentVerifier:
    """Compares Stage 2 of one target with the ledger.

    Args:
        services: ledger and targets.
        target: which.
        models: with which the graph must have been derived.
        progress: called with done, total and what is being done.
    """

    def __init__(
        self, services: Services, target: Target, models: Models, progress: Progress
    ) -> None:
        self._services = services
        self._target = target
        self._models = models
        self._progress = progress
        self._ledger = services.ledger
        self._graph = services.neo4j_graph(target)
        self._audit = EnrichmentAudit(services.driver(target), target.database)
        self._events: EventChecker | None = None
        self._entities: EntityChecker | None = None
        self._report = EnrichmentReport(target.name)
        self._runner: Runner | None = None

    def test(self) -> None:
        """Refuse a graph that other rules or models derived, or whose ledger lost entries.

        Raises:
            FoldVersionMismatch, ModelsMismatch: rebuild it.
            GraphAhead: recover first.
        """
        checkpoints = self._graph.checkpoints(NAME)
        for found in checkpoints:
            if found.fold_version != ENRICHMENT.fold_version:
                raise FoldVersionMismatch(
                    stage=NAME, found=found.fold_version, expected=ENRICHMENT.fold_version
                )
            if found.models != self._models.names:
                raise ModelsMismatch(
                    stage=NAME, found=found.models or "none", expected=self._models.names
                )
        for lost in self._ledger.missing_checkpoints(checkpoints):
            raise GraphAhead(
                partition=lost.partition, position=str(lost.position), reason="its entry is gone"
            )

    def run(
        self, only: SessionKey | None = None, sample: int | None = None, seed: int | None = None
    ) -> EnrichmentReport:
        """Compare everything, one session or a sample, up to the checkpoints as they are now."""
        services = self._services
        report = self._report = EnrichmentReport(
            self._target.name, sample=None if only else sample, seed=None if only else seed
        )
        whole = only is None and sample is None
        checkpoints = {
            partition: Checkpoint(NAME, partition) for partition in range(self._ledger.partitions)
        } | {one.partition: one for one in self._graph.checkpoints(NAME)}
        dead: dict[int, set[int]] = {}
        for letter in self._graph.dead_letters(NAME):  # each came with its checkpoint or before
            dead.setdefault(letter["partition"], set()).add(letter["seq"])
            report.dead_letter_count += 1
        for partition, tail in enumerate(self._ledger.tails()):
            report.lag_entries += tail.seq - checkpoints[partition].seq
        expected = ExpectedGraph() if whole else None
        answers = ByteCache.from_settings(services.redis, services.settings, "llm")
        language_model = make_language_model(services.settings, answers, asks=False)
        recomputer = Recomputer(self._ledger, self._models, language_model)
        self._events = EventChecker(
            recomputer,
            self._graph,
            self._audit,
            model=f"{self._models.embedder.model}@{self._models.embedder.revision}",
            partitions=self._ledger.partitions,
            checkpoints=checkpoints,
            dead=dead,
            expected=expected,
            report=report,
        )
        total = sum(one.seq for one in checkpoints.values()) if whole else sample
        for done in self._events.compare(self._stream(only, sample, seed)):
            self._progress(done, total, "comparing events")
        self._events.judge()
        self._entities = None
        if expected is not None:
            self._entities = EntityChecker(
                self._ledger,
                recomputer,
                self._graph,
                self._audit,
                expected=expected,
                checkpoints=checkpoints,
                dead=dead,
                tombstones=self._audit.tombstones(),
                report=report,
            )
            self._entities.passed_over.update(self._events.passed_over)
            self._progress(0, None, "comparing entities and facts")
            self._entities.add_statements()
            self._entities.judge(self._entities.compare())
        return report

    def repair(self) -> int:
        """Mend what the last run found; returns how many differences were dealt with."""
        count = self._report.difference_count
        if self._runner is None:
            rules = enrichment_fold(ENRICHMENT, self._services, self._target, self._models)
            self._runner = Runner(rules, self._graph, target=self._target.name)
        if self._events is not None:
            self._events.repair(self._runner)
        if self._entities is not None:
            self._entities.repair()
        logger.info("repaired", stage=NAME, target=self._target.name, differences=count)
        return count

    def _stream(
        self, only: SessionKey | None, sample: int | None, seed: int | None
    ) -> Iterator[FoundEvent]:
        if only is None and sample is None:
            yield from self._audit.stream_enriched()
            return
        if only is not None:
            self._report.sessions = 1
            yield from self._audit.stream_enriched(only)
            return
        left = sample or 0
        for session in chosen_sessions(self._audit.sessions(), left, seed or 0):
            if left <= 0:
                break
            self._report.sessions += 1
            for found in islice(self._audit.stream_enriched(session), left):
                left -= 1
                yield found


def chosen_sessions(sessions: Iterable[SessionKey], most: int, seed: int) -> list[SessionKey]:
    """At most so many sessions, in an order that depends on the seed alone.

    Memory is bounded by `most`: as every session has an event, more cannot be needed.
    """

    def place(session: SessionKey) -> bytes:
        data = "\x1f".join((str(seed), *map(str, session)))
        return blake2b(data.encode("utf-8", "replace"), digest_size=16).digest()

    known = (session for session in sessions if all(isinstance(part, str) for part in session))
    return heapq.nsmallest(most, known, key=place)
