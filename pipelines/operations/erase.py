"""Seal a tenant, and erase somebody: what was said is destroyed, what was made of it is made anew.

An erasure goes through `STEPS`; how far it has come stands in its fence (`vault.Fences`), so one
that was killed goes on there, and each step may be done twice. The order is the point: nothing
more is taken first; then nobody reads with the key any more; only when all that was read with it
has been folded, what is derived from it can be found, and the key goes; then the graphs are made
what the ledger says now, by the proof that also verifies them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Final

from consolidation.decisions import decision_event
from enrichment.payloads import REQUESTED_EVENT
from pipelines.graph.port import Graph
from pipelines.graph.rows import End
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import Entry
from pipelines.ledger.erasing import (
    DESTROYED,
    DONE,
    FORGOTTEN,
    PURGED,
    STEPS,
    Told,
    every_entry,
    naming,
)
from pipelines.ledger.keys import SqliteKeys, keys_path, require_wrapping
from pipelines.ledger.registry import Target
from pipelines.ledger.sealing import (
    ERASED_EVENT,
    Opener,
    Subject,
    SubjectKey,
    sealed_by,
    subject_of,
)
from pipelines.ledger.vault import CONSENT, FORGOTTEN_WITHIN_S, OPENING, SEALED
from pipelines.operations.receipts import covered_digest, sign_receipt
from pipelines.proof.report import ProofReport, held_digest
from pipelines.proof.verify import COLUMNS, prove_columns, verify
from pipelines.work.catch_up import fold_unserved
from pipelines.work.folds import Placed
from pipelines.work.poison import PoisonPolicy
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import ENRICHMENT, Stage
from projections.errors import OperationFailed, StageBehind, UndecodableEntry
from projections.events import (
    PARTITION_KEY,
    SYSTEM_EVENTS,
    Event,
    canonical_json,
    is_system_event,
    timestamp_text,
)
from projections.identity import partition_of
from projections.operations import Key
from projections.schema import ENTITY, REFERENCES, RELATES_TO

WAIT_S: Final = 60.0
"""For stages to fold what was read before the key was withdrawn."""
PURGES: Final = 3
"""Of purging one graph while workers go on."""
_DERIVED_AT_ONCE: Final = 200
"""Events that are derived together."""
_LOOK_S: Final = 0.1
_IDS: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_ERASED: Final = "erased"
"""The reason of a dead letter whose own reason may have quoted what was erased."""


# -- sealing ---------------------------------------------------------------------------------------


def seal_tenant(services: Services, tenant: str) -> None:
    """Let a tenant that has no events yet be sealed, for good.

    Makes the key store when there is none.

    Raises:
        ConfigurationError: there is no master key.
        OperationFailed: the tenant has events already.
        KeysUnavailable: the key store is away, or another one than other tenants have.
        LedgerUnavailable: Redis is away.
    """
    vault = services.ledger.vault
    wrapping = require_wrapping(services.settings)
    if not vault.fences.read().tenants:
        SqliteKeys.create(keys_path(services.settings), wrapping).close()
    if vault.known().tenants.get(tenant) == SEALED:
        return
    store = vault.require_store()
    # Nothing of it is taken while it is looked for: what comes between would be plain.
    vault.fences.put_tenant(tenant, OPENING, store.identity)
    if _has_events(services, tenant):
        vault.fences.drop_opening(tenant)
        raise OperationFailed(
            reason=f"tenant {tenant} has events that are not sealed; export them, and import them "
            "into a tenant that is sealed"
        )
    vault.fences.put_tenant(tenant, SEALED, store.identity)
    vault.renew()


def _has_events(services: Services, tenant: str) -> bool:
    return any(entry.tenant == tenant for entry in every_entry(services.ledger))


# -- erasing ---------------------------------------------------------------------------------------


def finish(
    services: Services,
    key_id: bytes,
    progress: Progress | None = None,
    *,
    patience_s: float = 0.0,
) -> Told:
    """Do what is left of an erasure that was begun; what its fence says at the end.

    Args:
        services: ledger, targets and keys.
        key_id: of the key that is withdrawn.
        progress: called with done, total and what is being done.
        patience_s: for a pass, or who erases elsewhere, to end.

    Raises:
        PassUnderWay: a pass decides, or another process erases, for longer than that; nothing was
            done.
        StageBehind: a stage does not fold; see to its workers.
        KeysUnavailable, LedgerUnavailable, GraphUnavailable: a service is away. The same call goes
            on where this one ended.
        OperationFailed: no such erasure was begun, or a graph still differs from the ledger.
    """
    told = services.ledger.vault.fences.read().erased.get(key_id)
    if told is None or "of" in told:
        raise OperationFailed(reason=f"no erasure {key_id.hex()} was begun")
    erasure = _Erasure(services, key_id, dict(told), progress or (lambda done, total, what: None))
    with services.pass_lease(patience_s):
        erasure.run()
    return erasure.told


class _Withdrawn(Opener):
    """Opens what the one key that was withdrawn has sealed."""

    def __init__(self, key: SubjectKey) -> None:
        self._key = key

    def opening(self, key_id: bytes) -> SubjectKey | None:
        return self._key if key_id == self._key.key_id else None

    def withholds(self, event: Event) -> bool:
        return False

    def withdrawn(self) -> int:
        return 0


def _readable(entries: Iterable[Entry]) -> Iterator[Placed]:
    """Positions and events of entries; one that no stage can read either is passed over."""
    for entry in entries:
        with suppress(UndecodableEntry):
            yield entry.position, entry.event()


def _whole_words(words: Iterable[str]) -> re.Pattern[str]:
    """Finds any of them in text in small letters, but not as a part of a longer word."""
    choices = "|".join(re.escape(word.casefold()) for word in sorted(words))
    return re.compile(rf"(?<!\w)(?:{choices})(?!\w)" if choices else r"(?!)")


class _Erasure:
    def __init__(self, services: Services, key_id: bytes, told: Told, progress: Progress) -> None:
        self._services = services
        self._key_id = key_id
        self._progress = progress
        self._ledger = services.ledger
        self._vault = services.ledger.vault
        self._tenant = str(told["tenant"])
        self._consent: str | None = told.get(CONSENT)
        self.told = told

    def run(self) -> None:
        steps = {
            FORGOTTEN: self._forget,
            DESTROYED: self._destroy,
            PURGED: self._purge,
            DONE: self._record,
        }
        for number, name in enumerate(STEPS[STEPS.index(self.told["step"]) + 1 :]):
            self._progress(number, None, name)
            steps[name]()
            self.told["step"] = name
            self._vault.fences.put_erasure(self._key_id, self.told)

    # -- what is derived ---------------------------------------------------------------------------

    def _forget(self) -> None:
        if self._consent is None:
            self._vault.require_store().withdraw([self._key_id])
        self._vault.renew()
        time.sleep(FORGOTTEN_WITHIN_S)  # until every process has noticed
        self._await_stages()
        self.told["before"] = self._digests()
        concerned = list(self._concerned())
        positions = sorted(entry.position for entry in concerned)
        self.told["entries"] = len(concerned)
        self.told["positions"] = [str(one) for one in (*positions[:1], *positions[-1:])]
        events = self._as_taken(concerned)
        self.told["stores"]["derivations"] = {"forgotten": self._forget_derivations(events)}
        mixed = self._mixed(events)
        if self._consent is None:
            keys = {self._vault.key_id(self._tenant, subject) for _, subject in mixed}
            self.told["mixed"] = sorted(key_id.hex() for key_id in keys)
        else:
            self.told["mixed"] = sorted(event.event_id for event, _ in mixed)

    def _digests(self) -> dict[str, dict[str, str]]:
        """What each graph holds of the tenant, by target and stage, as a receipt may tell it."""
        store = self._vault.store
        if store is None:
            return {}
        graphs = {one.name: self._services.graph(one) for one in self._services.targets.all()}
        return {
            name: {
                stage: covered_digest(store, held_digest(graph, stage, tenant=self._tenant))
                for stage in sorted({at.stage for at in graph.checkpoints()})
            }
            for name, graph in graphs.items()
        }

    def _concerned(self) -> Iterator[Entry]:
        """Entries of the subject, or that name the consent."""
        if self._consent is not None:
            yield from naming(self._ledger, self._tenant, self._consent)
            return
        for entry in every_entry(self._ledger):
            if not entry.fault and sealed_by(entry.data) == self._key_id:
                yield entry

    def _as_taken(self, concerned: Sequence[Entry]) -> list[Placed]:
        """What these entries said; nothing, of somebody whose key is gone already."""
        if self._consent is not None:
            return list(_readable(concerned))
        store = self._vault.require_store()
        key = store.get([self._key_id], withdrawn=True).get(self._key_id)
        if key is None:  # it was erased before, and an older ledger was put back
            return []
        opener = _Withdrawn(SubjectKey.of(self._key_id, key))
        return list(_readable(entry.opened_by(opener) for entry in concerned))

    def _await_stages(self) -> None:
        """Wait until all that may have been read with the key is in the graphs, to be found there.

        A block that was read before and is folded later would bring it back.
        """
        until_s = time.monotonic() + WAIT_S
        tails = self._ledger.tails()
        for target in self._services.targets.all():
            fold_unserved(self._services, target, self._runner_of(target))
            graph = self._services.graph(target)
            while behind := [
                (at.stage, tails[at.partition].seq - at.seq)
                for at in graph.checkpoints()
                if at.seq < tails[at.partition].seq
            ]:
                if time.monotonic() > until_s:
                    stage, entries = max(behind, key=itemgetter(1))
                    raise StageBehind(stage=stage, target=target.name, entries=entries)
                time.sleep(_LOOK_S)
            for stage in {at.stage for at in graph.checkpoints()}:
                graph.settle(stage, range(len(tails)))

    def _runner_of(self, target: Target) -> Callable[[Stage], Runner]:
        def runner_of(stage: Stage) -> Runner:
            return Runner(
                make_fold(stage, self._services, target),
                self._services.graph(target),
                target=target.name,
                policy=PoisonPolicy.of_command(self._services.settings),
            )

        return runner_of

    def _forget_derivations(self, entries: Sequence[Placed]) -> int:
        """Derive what was said once more, to know by what its derivations are kept."""
        services = self._services
        if services.settings.derivations_url is None or not self._is_enriched():
            return 0
        models = services.models
        rules = make_fold(ENRICHMENT, services, services.active())
        placed = [entry for entry in entries if not is_system_event(entry[1].event_type)]
        with models.from_memory(), models.derivations.forgetting() as met:
            for first in range(0, len(placed), _DERIVED_AT_ONCE):
                self._progress(first, len(placed), "forgetting what was derived")
                rules.derive(placed[first : first + _DERIVED_AT_ONCE])
        return sum(map(len, met.values()))

    def _is_enriched(self) -> bool:
        services = self._services
        return any(
            services.graph(target).checkpoints(ENRICHMENT.name) for target in services.targets.all()
        )

    def _mixed(self, placed: Sequence[Placed]) -> list[tuple[Event, Subject]]:
        """Decisions that name what only these events gave: they go, too, to be made anew.

        With a user go their own decisions by the key; of a consent these have to be found as well.
        """
        if not placed:
            return []
        events = {event.event_id for _, event in placed}
        users = {event.user_id for _, event in placed if event.user_id is not None}
        graph = self._services.graph(self._services.active())
        entities = self._own_entities(graph, events, users)
        ids = events | entities.keys()
        words = _whole_words([*entities.values(), *(users if self._consent is None else ())])
        kinds = ("decision",) if self._consent is None else ("decision", "user")
        partition = partition_of(self._tenant, PARTITION_KEY, self._ledger.partitions)
        mixed: list[tuple[Event, Subject]] = []
        decisions = (
            entry
            for entries in self._ledger.scan(partition)
            for entry in entries
            if not entry.fault and sealed_by(entry.data) != self._key_id
        )
        for _, event in _readable(decisions):
            row, subject = SYSTEM_EVENTS.get(event.event_type), subject_of(event)
            if event.tenant != self._tenant or row is None or row.public:
                continue
            if subject is None or subject.kind not in kinds:
                continue
            text = canonical_json(event.payload).decode()
            if not ids.isdisjoint(_IDS.findall(text)) or words.search(text.casefold()):
                mixed.append((event, subject))
        return mixed

    def _own_entities(self, graph: Graph, events: set[str], users: set[str]) -> Mapping[str, str]:
        """Entities that nobody else has mentioned: hash of the id → name."""
        keys: list[Key] = [(self._tenant, event_id) for event_id in sorted(events)]
        mentions = graph.edges(REFERENCES.type, keys)
        mentioned = sorted({edge.target for edges in mentions.values() for edge in edges})
        facts = graph.edges(RELATES_TO.type, mentioned, ("user_id",), by=End.EITHER)
        stated = [
            key
            for key in mentioned
            if all(edge.values["user_id"] in users for edge in facts.get(key, ()))
        ]
        mentioning = graph.edges(REFERENCES.type, stated, by=End.TARGET)
        alone = [
            key
            for key in stated
            if all(edge.source[1] in events for edge in mentioning.get(key, ()))
        ]
        nodes = graph.nodes(ENTITY.label, alone, ("canonical_name",))
        return {str(key[1]): str(node.values["canonical_name"]) for key, node in nodes.items()}

    # -- keys, graphs ------------------------------------------------------------------------------

    def _destroy(self) -> None:
        if self._consent is not None:
            self.told["decisions"] = self.told["mixed"]
            self._vault.fences.put_erasure(self._key_id, self.told)
            self._vault.renew()
            time.sleep(FORGOTTEN_WITHIN_S)  # until every process has noticed
            return
        mixed = [bytes.fromhex(one) for one in self.told["mixed"]]
        for key_id in mixed:
            fence = {"step": DONE, "tenant": self._tenant, "of": self._key_id.hex()}
            self._vault.fences.put_erasure(key_id, fence)
        self._vault.require_store().destroy([self._key_id, *mixed])
        self._vault.renew()
        time.sleep(FORGOTTEN_WITHIN_S)  # for the keys of decisions, which others may still have

    def _purge(self) -> None:
        for target in self._services.targets.all():
            graph = self._services.graph(target)
            if not graph.checkpoints():
                continue
            letters = self._blank_letters(graph)
            report = self._made_right(target)
            self.told["stores"][f"graph {target.name}"] = {
                "found": report.found_count + letters,
                "removed": report.repaired + letters,
                "rescanned": report.difference_count,
                "digests_before": self.told["before"].get(target.name, {}),
                "digests": {n: one.digest for n, one in report.stages.items() if one.digest},
            }

    def _made_right(self, target: Target) -> ProofReport:
        """Make a graph what the ledger says, which tells nothing of the subject any more."""
        services, differences, repaired = self._services, 0, 0
        for _ in range(PURGES):
            report = verify(services, target=target.name, tenant=self._tenant, repair=True)
            if report.ok and COLUMNS not in report.stages:
                prove_columns(services, report, repair=True)
            differences += report.found_count
            repaired += report.repaired
            if report.ok:
                report.found_count, report.repaired = differences, repaired
                return report
        raise OperationFailed(
            reason=f"{report.difference_count} differences are left on {target.name}; "
            "the same command goes on"
        )

    def _blank_letters(self, graph: Graph) -> int:
        """Take the reasons from dead letters: they may quote what could not be folded."""
        keys = {(entry.partition, entry.seq) for entry in self._concerned()}
        letters = [
            dead_letter
            for dead_letter in graph.dead_letters()
            if (dead_letter["partition"], dead_letter["seq"]) in keys
        ]
        for letter in letters:
            stage, partition = letter["stage"], letter["partition"]
            with graph.transaction() as transaction:
                transaction.lock(stage, partition)
                for held in transaction.dead_letters_of(stage, partition):
                    if held["seq"] == letter["seq"]:
                        transaction.add_dead_letter(**{**held, "reason": _ERASED})
        return len(letters)

    def _record(self) -> None:
        now_ms = self._ledger.now_ms()
        self.told["finished_at"] = timestamp_text(now_ms)
        number = None
        if self._vault.store is not None:  # who seals nothing has nothing to sign with
            number = sign_receipt(self._services, self._key_id, self.told)["number"]
        self.told["receipt"] = number
        payload = {"key_id": self._key_id.hex(), "receipt": number}
        about = (ERASED_EVENT, self._key_id.hex())
        erased = decision_event(ERASED_EVENT, self._tenant, payload, now_ms, *about)
        request = decision_event(REQUESTED_EVENT, self._tenant, {}, now_ms, *about)
        # A pass decides anew what is missing.
        self._ledger.append([erased, request._replace(payload=None)])
