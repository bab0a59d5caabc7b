"""What the ledger says a graph must hold: folded again into memory, by the stages themselves.

The rules, the runner and the store's contract are those of the graph that is proved, so nothing is
told twice. A model runs only where its cache has no answer; decisions are the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph, Reads, Transaction
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import LOST, Block, Entry
from pipelines.proof.compare import same
from pipelines.work.folds import Placed, StageFold
from pipelines.work.poison import UNBRAKED, PoisonPolicy
from pipelines.work.recalled import fold_again, returning
from pipelines.work.runner import Runner
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, PROJECTION, stages_before
from projections.errors import EntryHeldOut, GraphAhead, RecollectError
from projections.events import is_system_event
from projections.identity import Position
from projections.operations import (
    Checkpoint,
    DecideNode,
    Key,
    MergeEdge,
    Operations,
    RemoveEdge,
    SetEdge,
)
from projections.schema import (
    DEAD_LETTER,
    DECIDED_AT,
    DROPPED,
    EDGES,
    EVENT,
    FORGOTTEN,
    NODES,
    Kind,
)

BLOCK: Final = 500
"""Entries a transaction."""
_REPORTED: Final = ("kind", "reason", "attempts")
"""What a dead letter says that does not follow from its entry."""

_SHOWN_BY: Final = {PROJECTION.name: "", ENRICHMENT.name: "importance_score"}
"""What an event has, or its tombstone, once a stage has folded it; empty: it is there."""

Place = tuple[int, int]
"""Partition, seq."""
StagePartition = tuple[str, int]
"""Stage, partition."""


class ReadLedger(Protocol):
    """What is asked of the ledger; `Ledger` and its stand-in have it."""

    def read(
        self,
        partition: int,
        after: Position,
        count: int,
        until: Position | None = None,
        *,
        after_seq: int | None = None,
    ) -> list[Entry]:
        """Entries of a partition in their order."""
        ...

    def entry_at(self, partition: int, position: Position, seq: int | None = None) -> Entry | None:
        """The entry at a position, or of a number."""
        ...

    def find_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        """Entries by tenant and event id."""
        ...

    def missing_checkpoints(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Those whose entry the ledger does not hold."""
        ...


class _Undo(Exception):
    """Takes a trial back."""


class _QuietRunner(Runner):
    """One that keeps to itself what it passes: the workers have said it already."""

    def _note_dead_letter(self, entry: Entry, reason: str) -> None:
        pass

    def _follows(self, start: Checkpoint, entries: Sequence[Entry]) -> bool:
        """Entries of other tenants may be left out, but for the last."""
        return start.seq < entries[0].seq


class LedgerFold:
    """The ledger folded into memory, as far as another graph has come.

    Args:
        ledger: what is folded.
        rules: of the stages that the other graph holds, in their order.
        policy: when an entry is given up.
        tenants: which of them what it says is folded of; None: everything.
        read: gives the entries between two checkpoints, a transaction's at a time, where somebody
            has read them before; None: the ledger is read.
        may_lack: whether the ledger may have lost what the other graph has folded; then what is
            left is folded.
        progress: called with done, total and what is being done.

    Attributes:
        graph: what must be there.
        entries: how many were folded, by stage.
    """

    def __init__(
        self,
        ledger: ReadLedger,
        rules: Sequence[StageFold],
        *,
        policy: PoisonPolicy = UNBRAKED,
        tenants: Callable[[str], bool] | None = None,
        read: Callable[[Checkpoint, Checkpoint], Iterable[list[Entry]]] | None = None,
        may_lack: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._ledger = ledger
        self._rules = rules if tenants is None else [_within(tenants, rule) for rule in rules]
        self._policy = policy
        self._tenants = tenants
        self._read = read or self._read_ledger
        self._may_lack = may_lack
        self._progress = progress or (lambda done, total, what: None)
        self.restart()

    def restart(self) -> None:
        """Fold everything anew at the next `advance`."""
        self.graph = MemoryGraph()
        self.entries = {rules.stage.name: 0 for rules in self._rules}
        self._runners = [
            _QuietRunner(rules, self.graph, target="expected", policy=self._policy)
            for rules in self._rules
        ]
        before = {stage.name for stage in stages_before(CONSOLIDATION)}
        self._makers = [runner for runner in self._runners if runner.stage.name in before]
        self._reached: dict[StagePartition, Checkpoint] = {}
        self._total = 0

    def is_of(self, tenant: str) -> bool:
        """Whether what a tenant did is folded."""
        return self._tenants is None or self._tenants(tenant)

    def stands_at(self, checkpoints: Sequence[Checkpoint]) -> bool:
        """Whether it was folded exactly as far, under the same generation."""
        return self._reached == {
            (checkpoint.stage, checkpoint.partition): checkpoint for checkpoint in checkpoints
        }

    def advance(self, shown: Graph, to: Sequence[Checkpoint]) -> None:
        """Fold on up to checkpoints; from the start where one has gone back.

        Args:
            shown: the other graph, which is asked whether it shows the effect of an entry that it
                has a dead letter for.
            to: its checkpoints.

        Raises:
            FoldVersionMismatch, ModelsMismatch: the other graph was folded by other rules.
            GraphAhead: the ledger does not lead to one of the checkpoints.
            EntryHeldOut: it does not hold what the other graph has folded.
        """
        wanted = {(one.stage, one.partition): one for one in to}
        if any(self._is_behind(key, wanted.get(key)) for key in self._reached):
            self.restart()
        self._total = sum(one.seq for one in to)
        dead = _dead_letters(shown, self._tenants)
        self._shown = shown
        read: dict[tuple[int, int, int], list[list[Entry]]] = {}
        for runner in self._runners:
            self._replay(runner, dead.get(runner.stage.name, {}))
            mine = [one for one in to if one.stage == runner.stage.name]
            for checkpoint in mine:
                runner.rules.refuse_other(checkpoint)
            if mine:
                runner.prepare(1 + max(one.partition for one in mine))
            for checkpoint in mine:
                at = runner.checkpoint(checkpoint.partition)
                stretch = checkpoint.partition, at.seq, checkpoint.seq
                if stretch not in read:
                    read[stretch] = list(self._read(at, checkpoint))
                self._fold(runner, read[stretch], checkpoint, dead=dead.get(runner.stage.name, {}))
        self._bring_back()
        self._reached = wanted

    def _is_behind(self, key: StagePartition, now: Checkpoint | None) -> bool:
        before = self._reached[key]
        return now is None or now.seq < before.seq or now.generation != before.generation

    def _read_ledger(self, at: Checkpoint, to: Checkpoint) -> Iterator[list[Entry]]:
        """Entries behind one checkpoint, up to another, read once for all stages.

        Those of other tenants are left out, but for the last of each list.
        """
        chosen: list[Entry] = []
        for entries in blocks_between(self._ledger, at, to):
            last = entries[-1]
            chosen += [entry for entry in entries if entry is last or self._is_wanted(entry)]
            if len(chosen) >= BLOCK or last.seq >= to.seq:
                yield chosen
                chosen = []
            elif not self._is_wanted(last):
                chosen.pop()
        if chosen:
            yield chosen

    def _is_wanted(self, entry: Entry) -> bool:
        """Whether an entry is of the tenants, or nobody can tell."""
        if entry.fault:
            return True
        tenant = entry.tenant
        return tenant is None or self.is_of(tenant)

    def _fold(
        self,
        runner: Runner,
        read: Sequence[Sequence[Entry]],
        to: Checkpoint,
        *,
        dead: Mapping[Place, Mapping[str, Any]],
    ) -> None:
        at = runner.checkpoint(to.partition)
        for entries in read:
            self._refuse_damage(entries, dead)
            for block in _split(entries, dead):
                before = at.seq
                letter = dead.get((block[0].partition, block[0].seq))
                if letter is None:
                    at = runner.apply(Block(to.partition, tuple(block)))
                else:
                    at = self._judge(runner, at, block[0], letter)
                self.entries[runner.stage.name] += at.seq - before
            done = min(sum(self.entries.values()), self._total)
            self._progress(done, self._total, f"folding {runner.stage.name} again")
        is_there = (at.seq, at.position, at.digest) == (to.seq, to.position, to.digest)
        if not is_there and not self._may_lack:
            if at.seq < to.seq and not self._ledger.missing_checkpoints([to]):
                raise EntryHeldOut(partition=to.partition, position=str(to.position), reason=LOST)
            raise GraphAhead(
                partition=to.partition, position=str(to.position), reason="its entry is gone"
            )

    @staticmethod
    def _refuse_damage(entries: Sequence[Entry], dead: Mapping[Place, Mapping[str, Any]]) -> None:
        """Refuse to judge a graph by entries that it has folded and the ledger has no more.

        Without them it would look wrong where it is right, and a repair would take that away.

        Raises:
            EntryHeldOut: there is such an entry.
        """
        for entry in entries:
            if entry.fault and (entry.partition, entry.seq) not in dead:
                entry.event()

    # -- dead letters ------------------------------------------------------------------------------

    def _replay(self, runner: Runner, dead: Mapping[Place, Mapping[str, Any]]) -> None:
        """Fold what was passed here, for which the other graph has no dead letter any more."""
        for letter in self.graph.dead_letters(runner.stage.name):
            if (letter["partition"], letter["seq"]) not in dead:
                at = Position.parse(letter["position"])
                entry = self._ledger.entry_at(letter["partition"], at, letter["seq"])
                runner.refold(letter["partition"], [] if entry is None else [entry])

    def _judge(
        self, runner: Runner, at: Checkpoint, entry: Entry, letter: Mapping[str, Any]
    ) -> Checkpoint:
        """Fold or pass an entry for which the other graph has a dead letter.

        It is passed where it can be folded here and that graph does not show its effect. Where it
        does, the dead letter is a ghost. An entry that fails here too is left to the runner, which
        records it as it was recorded there.
        """
        operations = self._try(runner, at, entry)
        if operations is None or self._shows(runner, entry, operations):
            end = runner.apply(Block(entry.partition, (entry,)))
            if operations is None and letter["kind"] == DROPPED:
                with self.graph.transaction() as transaction:
                    self._record(transaction, runner, entry, {"kind": DROPPED})
            return end
        with self.graph.transaction() as transaction:
            transaction.advance(at, _end_of(at, entry))
            self._record(transaction, runner, entry, {name: letter[name] for name in _REPORTED})
        return runner.checkpoint(entry.partition)

    def _record(
        self, transaction: Transaction, runner: Runner, entry: Entry, wording: Mapping[str, Any]
    ) -> None:
        """Put down a dead letter, as the other graph words it."""
        key = runner.stage.name, entry.partition, entry.seq
        names = tuple(p.name for p in DEAD_LETTER.properties)
        held = transaction.nodes(DEAD_LETTER.label, [key], names).get(key)
        values = {"position": str(entry.position), **_named(entry)} if held is None else held.values
        transaction.add_dead_letter(*key, **{**values, **wording})

    def _try(self, runner: Runner, at: Checkpoint, entry: Entry) -> Operations | None:
        """What an entry comes to when it is folded alone; None: it cannot be."""
        rules = runner.rules
        operations = Operations()
        try:
            event = entry.event()
            derived = rules.derive([(entry.position, event)])
            with self.graph.transaction() as transaction:
                transaction.advance(at, _end_of(at, entry))
                operations = rules.fold(derived, rules.gather(transaction, derived))
                raise _Undo
        except _Undo:
            return operations
        except Exception:  # noqa: BLE001  whatever it is, the runner will say
            return None

    def _shows(self, runner: Runner, entry: Entry, operations: Operations) -> bool:
        """Whether the other graph shows what an entry does; nothing is always shown."""
        if not any(operations.counts().values()):
            return True
        event = entry.event()
        if is_system_event(event.event_type):
            return shows_any(self._shown, operations, entry.position)
        if runner.stage.name not in _SHOWN_BY:
            return True  # counted in sums of which nobody can tell who is in them
        name = _SHOWN_BY[runner.stage.name]
        return any(
            node.visible and (not name or node.values[name] is not None)
            for label in (EVENT.label, FORGOTTEN.label)
            for node in self._shown.nodes(label, [event.key], (name,) if name else ()).values()
        )

    # -- recalled ----------------------------------------------------------------------------------

    @property
    def is_enriched(self) -> bool:
        """Whether more than the first stage makes an event whole."""
        return len(self._makers) > 1

    def _bring_back(self) -> None:
        """Fold once more what was forgotten and recalled."""
        keys = returning(self.graph, enriched=self.is_enriched)
        if keys:
            fold_again(self._ledger, self._makers, keys)


def blocks_between(ledger: ReadLedger, at: Checkpoint, to: Checkpoint) -> Iterator[list[Entry]]:
    """Entries behind one checkpoint, up to another, so many at a time, until one is missing."""
    position, seq = at.position, at.seq
    while seq < to.seq:
        entries = ledger.read(to.partition, position, BLOCK, to.position, after_seq=seq)
        if not entries:
            # No entry behind the last ones shows that they were lost, or put right by their events.
            numbers = range(seq + 1, 1 + min(to.seq, seq + BLOCK))
            again = (ledger.entry_at(to.partition, to.position, number) for number in numbers)
            entries = [entry for entry in again if entry is not None]
        if [entry.seq for entry in entries] != list(range(seq + 1, seq + 1 + len(entries))):
            return
        if not entries:
            return
        yield entries
        position, seq = entries[-1].position, entries[-1].seq


def _within(tenants: Callable[[str], bool], rules: StageFold) -> StageFold:
    """A stage that heeds the events of some tenants alone."""

    def derive(placed: Sequence[Placed]) -> Sequence[Any]:
        return rules.derive([(at, event) for at, event in placed if tenants(event.tenant)])

    return replace(rules, derive=derive)


def shows_any(graph: Reads, operations: Operations, position: Position) -> bool:
    """Whether a graph holds anything that an entry at this position writes.

    In doubt it does: what was folded in vain is as good as a replay, and mends what is missing. To
    believe a dead letter that is none would take away what is true.
    """
    nodes = [*operations.merge_nodes.values(), *operations.set_nodes.values()]
    edges: list[MergeEdge | SetEdge] = [*operations.merge_edges.values()]
    edges += operations.set_edges.values()
    removed = operations.remove_edges.values()
    gone = [
        (remove_node.label, remove_node.key) for remove_node in operations.remove_nodes.values()
    ]
    return (
        any(
            _is_decided(graph, decide_node, tuple(position))
            for decide_node in operations.decide_nodes.values()
        )
        or any(_shows_node(graph, node.label, node.key, node.values) for node in nodes)
        or any(_shows_edge(graph, edge) for edge in edges)
        or not all(_shows_edge(graph, one) for one in removed)
        or not all(graph.nodes(label, [key]) for label, key in gone)
        or any(shows_any(graph, other, position) for other in operations.others.values())
    )


def _is_decided(graph: Reads, decided: DecideNode, at: tuple[int, ...]) -> bool:
    name = f"{decided.name}{DECIDED_AT}"
    node = graph.nodes(decided.label, [decided.key], (name,)).get(decided.key)
    return node is not None and node.values[name] == at


def _shows_node(graph: Reads, label: str, key: Key, values: Mapping[str, Any]) -> bool:
    node = graph.nodes(label, [key], tuple(values)).get(key)
    return node is not None and node.visible and _holds(NODES[label], values, node)


def _shows_edge(graph: Reads, edge: MergeEdge | SetEdge | RemoveEdge) -> bool:
    pair = edge.source, edge.target
    copies = graph.between(edge.type, [pair], tuple(edge.values), label=edge.label).get(pair, ())
    return any(_holds(EDGES[edge.type], edge.values, copy) for copy in copies)


def _holds(row: Any, values: Mapping[str, Any], shown: FoundNode | FoundEdge) -> bool:
    """Whether these values are there; of a list of texts, perhaps among others."""
    properties = {p.name: p for p in row.properties}
    return all(
        set(value) <= set(shown.values[name] or ())
        if properties[name].kind is Kind.STRINGS and value is not None
        else same(properties[name], _as_read(value), shown.values[name])
        for name, value in values.items()
        if name in properties
    )


def _as_read(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _dead_letters(
    graph: Graph, tenants: Callable[[str], bool] | None
) -> dict[str, dict[Place, Mapping[str, Any]]]:
    """Dead letters that may be true, by stage; of some tenants and nobody, if it is said which."""
    letters: dict[str, dict[Place, Mapping[str, Any]]] = {}
    for letter in graph.dead_letters():
        if tenants is not None and letter["tenant"] and not tenants(letter["tenant"]):
            continue
        letters.setdefault(letter["stage"], {})[letter["partition"], letter["seq"]] = letter
    return letters


def _split(
    entries: Sequence[Entry], dead: Mapping[Place, Mapping[str, Any]]
) -> Iterator[list[Entry]]:
    """Blocks in order; an entry with a dead letter stands alone."""
    block: list[Entry] = []
    for entry in entries:
        if (entry.partition, entry.seq) in dead:
            if block:
                yield block
            yield [entry]
            block = []
        else:
            block.append(entry)
    if block:
        yield block


def _end_of(at: Checkpoint, entry: Entry) -> Checkpoint:
    return Checkpoint(
        at.stage,
        at.partition,
        position=entry.position,
        seq=entry.seq,
        digest=entry.digest,
        generation=at.generation,
        fold_version=at.fold_version,
        models=at.models,
    )


def _named(entry: Entry) -> dict[str, str | None]:
    try:
        tenant, event_id = entry.event().key
    except RecollectError:
        return {"tenant": None, "event_id": None}
    return {"tenant": tenant, "event_id": event_id}
