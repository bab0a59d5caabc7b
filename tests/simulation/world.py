"""A deployment in memory: ledger, targets, workers that are killed, and passes that decide."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from consolidation.decay import DAY_MS
from consolidation.retention import RetentionPolicy
from enrichment import similarity
from enrichment.names import canonical_name, entity_id
from pipelines.ledger.entries import Block
from pipelines.ledger.ledger import Appended
from pipelines.operations.dead_letters import retry
from pipelines.operations.passes.run import CommunitySettings, Pass
from pipelines.work import enriching, poison
from pipelines.work.catch_up import fold_partition
from pipelines.work.folds import StageFold
from pipelines.work.live import Decisions, LiveRunner
from pipelines.work.poison import UNBRAKED
from pipelines.work.recalled import fold_again, returning
from pipelines.work.runner import Runner
from pipelines.work.services import make_fold
from pipelines.work.stages import CONSOLIDATION, STAGES, Stage, stages_before
from projections.errors import EventConflict
from projections.events import PARTITION_KEY, Event
from projections.identity import partition_of
from projections.operations import Checkpoint
from tests.factories import START_MS, event, event_id
from tests.fakes.ledger import FakeLedger, FakeServer
from tests.simulation.decisions import EPISODE, FORGET, decide, look
from tests.simulation.doubles import (
    FATES,
    AtOnce,
    BrokenProperty,
    Clock,
    Fate,
    Killed,
    SimulatedGraph,
    SimulatedServices,
    Stop,
)
from tests.simulation.steps import Step

PARTITIONS = 3
WORKERS = 3
IDS = 61
"""Event ids of a tenant: few enough that some come twice with other content."""
TENANTS = ("acme", "globex")
NAMES = ("Ada", "Bob", "Bobby", "Carol", "Dan", "Acme")
TEXTS = (
    "the flight to Oslo was booked by {0} for HATHAT",
    "the flight to Oslo was booked by {0} for {1}",
    "{0} met {1} about order 481516",
    "order 481516 failed says {0}",
    "nothing to see",
    "",
)
USERS = (None, "ann", "ben")
TYPES = ("agent.message.sent", "tool.call", "tool.result", "agent.message.sent")
STAGE_LIST = tuple(STAGES.values())


@dataclass
class Worker:
    """One process: a runner for each stage, where it reads on, and a block it may have in hand."""

    target: str
    runners: dict[str, LiveRunner]
    lanes: dict[tuple[str, int], Checkpoint] = field(default_factory=dict)
    in_hand: tuple[str, Block] | None = None


class World:
    """Carries out steps. Nothing in it depends on anything but the steps.

    Args:
        clock: that its waits move; make the world, and use it, within `no_luck`.
        trace: called with a line for each thing that happens.
    """

    def __init__(self, clock: Clock, trace: Callable[[str], None] = lambda line: None) -> None:
        self.trace = trace
        self.server = FakeServer()
        self.services = SimulatedServices(None, PARTITIONS)
        self.ledger = FakeLedger(
            self.server, partitions=PARTITIONS, checkpoints=self.services.checkpoints
        )
        self.services.ledger = self.ledger
        self.clock = clock
        self.stop = Stop(self.clock)
        self.poison: dict[str, int] = {}
        self.appended: list[Event] = []
        self.policy = UNBRAKED
        self._add_target("blue")
        self.workers = [self._worker("blue") for _ in range(WORKERS)]

    # -- parts -------------------------------------------------------------------------------------

    def _add_target(self, name: str) -> None:
        graph = self.services.graphs[name] = SimulatedGraph()
        for stage in STAGE_LIST:
            models = make_fold(stage, cast(Any, self.services), self.services.target(name)).models
            graph.ensure_checkpoints(stage.name, PARTITIONS, stage.fold_version, models)

    def fold_of(self, stage: Stage, target: str) -> StageFold:
        """The real stage, with the poison of this moment."""
        rules = make_fold(stage, cast(Any, self.services), self.services.target(target))

        def fold(derived: Any, facts: Any) -> Any:
            self._refuse_poison(stage.name, derived)
            return rules.fold(derived, facts)

        return replace(rules, fold=fold)

    def _refuse_poison(self, stage: str, derived: Any) -> None:
        residue = self.poison.get(stage)
        for item in derived if residue is not None else ():
            made = item.event if hasattr(item, "event") else item[1]
            if not made.event_type.startswith("memory.") and made.occurred_at_ms % 7 == residue:
                raise ValueError("poison")

    def _worker(self, target: str) -> Worker:
        decisions = Decisions(cast(Any, self.services), target)
        runners = {
            stage.name: LiveRunner(
                self.fold_of(stage, target),
                self.services.graphs[target],
                cast(Any, self.ledger),
                target=target,
                policy=self.policy,
                stop=self.stop,
                decide=decisions,
            )
            for stage in STAGE_LIST
        }
        return Worker(target, runners)

    def runner(self, stage: Stage, target: str) -> Runner:
        """As commands make it."""
        return Runner(
            self.fold_of(stage, target),
            self.services.graphs[target],
            target=target,
            policy=replace(UNBRAKED, max_attempts=1),
            stop=self.stop,
        )

    # -- steps -------------------------------------------------------------------------------------

    def carry_out(self, step: Step) -> None:
        """One step; one that has nothing to work on does nothing."""
        self.stop.renew()
        self.server.now_ms += step.numbers[-1] % 50
        self.trace(str(step))
        getattr(self, f"_do_{step.kind}")(*step.numbers)

    def _do_clock(self, forward: int, *_: int) -> None:
        self.server.now_ms += forward * 60_000

    def _do_append(self, number: int, at: int, *more: int) -> None:
        count = 1 + more[0] % 4 if more[1] % 2 else 1
        batch = [
            _event(number + n, at + n * (1 + more[2] % 3), tuple(m + n for m in more))
            for n in range(count)
        ]
        self._append(batch)

    def _append(self, batch: list[Event]) -> None:
        for made, outcome in zip(batch, self.ledger.append(batch), strict=True):
            if isinstance(outcome, Appended):
                if not outcome.duplicate:
                    self.appended.append(made)
                    self.trace(f"  {outcome.partition}/{outcome.position} {_line(made)}")
            elif not isinstance(outcome, EventConflict):
                raise outcome

    def _do_again(self, which: int, *_: int) -> None:
        if self.appended:
            self._append([self.appended[which % len(self.appended)]])

    def _do_early_feedback(self, number: int, tenant: int, *_: int) -> None:
        """A producer judges what the ledger may not hold yet."""
        name = TENANTS[tenant % len(TENANTS)]
        who = entity_id(name, canonical_name(NAMES[number % len(NAMES)]), "user")
        made = event(
            2_000 + number,
            tenant=name,
            event_type="memory.feedback",
            session_id="memory",
            payload={"useful": [event_id(1 + number % IDS), f"entity:{who}"]},
        )
        self._append([made])

    def _do_statement(self, kind: int, tenant: int, *more: int) -> None:
        event_type, payload = _statement(kind, TENANTS[tenant % len(TENANTS)], more)
        made = event(
            1_000 + more[4] % 97,
            at=more[0] % 500,
            tenant=TENANTS[tenant % len(TENANTS)],
            event_type=event_type,
            session_id="memory",
            user_id=USERS[more[0] // 17 % len(USERS)],
            payload=payload,
        )
        self._append([made])

    def _do_fold(self, worker: int, stage: int, partition: int, size: int, *more: int) -> None:
        chosen = self.workers[worker % WORKERS]
        name = STAGE_LIST[stage % len(STAGE_LIST)].name
        block = self._next(chosen, name, partition % PARTITIONS, 1 + size % 5)
        if block is not None:
            fate = Fate(FATES[more[0] % len(FATES)] if more[1] % 3 == 0 else "done", more[2] % 12)
            self._apply(worker % WORKERS, name, [block], fate)

    def _do_together(self, worker: int, stage: int, size: int, *more: int) -> None:
        chosen = self.workers[worker % WORKERS]
        name = STAGE_LIST[stage % len(STAGE_LIST)].name
        nexts = (self._next(chosen, name, p, 1 + size % 9) for p in range(PARTITIONS))
        fate = Fate(FATES[more[0] % len(FATES)] if more[1] % 4 == 0 else "done", more[2] % 20)
        self._apply(worker % WORKERS, name, [block for block in nexts if block], fate)

    def _do_lane(self, worker: int, partition: int, size: int, *more: int) -> None:
        """One partition goes through all stages, while the others are nobody's.

        Most often it is one with decisions, which may be about what is in the others.
        """
        chosen = self.workers[worker % WORKERS]
        if more[0] % 3:
            tenant = TENANTS[partition % len(TENANTS)]
            partition = partition_of(tenant, PARTITION_KEY, PARTITIONS)
        for stage in STAGE_LIST:
            self.stop.renew()
            block = self._next(chosen, stage.name, partition % PARTITIONS, 1 + size % 30)
            self._apply(worker % WORKERS, stage.name, [block] if block else [], Fate("done"))

    def _do_caught_up(self, worker: int, *_: int) -> None:
        for stage in STAGE_LIST:
            for _again in range(2):
                self.stop.renew()
                chosen = self.workers[worker % WORKERS]
                nexts = [self._next(chosen, stage.name, p, 50) for p in range(PARTITIONS)]
                self._apply(worker % WORKERS, stage.name, [b for b in nexts if b], Fate("done"))

    def _catch_up_active(self, which: int) -> None:
        for number in range(which, which + WORKERS):
            if self.workers[number % WORKERS].target == self.services.active_name:
                self._do_caught_up(number)
                return

    def _do_stall(self, worker: int, stage: int, partition: int, size: int, *_: int) -> None:
        chosen = self.workers[worker % WORKERS]
        name = STAGE_LIST[stage % len(STAGE_LIST)].name
        block = self._next(chosen, name, partition % PARTITIONS, 1 + size % 5)
        chosen.in_hand = (name, block) if block else None

    def _do_wake(self, worker: int, *_: int) -> None:
        chosen = self.workers[worker % WORKERS]
        if chosen.in_hand is not None:
            name, block = chosen.in_hand
            chosen.in_hand = None
            self._apply(worker % WORKERS, name, [block], Fate("done"))

    def _next(self, worker: Worker, stage: str, partition: int, size: int) -> Block | None:
        lane = worker.lanes.get((stage, partition))
        if lane is None:
            lane = worker.lanes[stage, partition] = worker.runners[stage].checkpoint(partition)
        entries = self.ledger.read(partition, lane.position, size)
        return Block(partition, tuple(entries)) if entries else None

    def _apply(self, number: int, stage: str, blocks: list[Block], fate: Fate) -> None:
        if not blocks:
            return
        worker = self.workers[number]
        graph = self.services.graphs[worker.target]
        graph.arm(fate)
        try:
            outcomes = worker.runners[stage].apply_together(blocks)
        except Killed:
            self.trace(f"  worker {number} {fate.kind}")
            self.workers[number] = self._worker(worker.target)
            return
        finally:
            graph.disarm()
        for block in blocks:
            error = outcomes[block.partition]
            place = (stage, block.partition)
            last = block.entries[-1]
            if error is None and place in worker.lanes:
                worker.lanes[place] = replace(
                    worker.lanes[place], position=last.position, seq=last.seq
                )
            else:
                worker.lanes.pop(place, None)
            shown = "" if error is None else f" {type(error).__name__}"
            self.trace(f"  {worker.target} {stage} {block.partition}/{last.seq}{shown}")

    def _do_decide(self, tenant: int, *numbers: int) -> None:
        """A pass; half of them look at a graph that is up to date."""
        if numbers[-1] % 2:
            self._catch_up_active(tenant)
        graph = self.services.graphs[self.services.active_name]
        shown = look(graph, TENANTS[tenant % len(TENANTS)], (*numbers, tenant))
        self._record(decide(shown, self.server.now_ms))

    def _do_forget(self, tenant: int, *numbers: int) -> None:
        """What has to come one after the other: an episode, and that members of it leave."""
        self._catch_up_active(tenant)
        graph = self.services.graphs[self.services.active_name]
        for kind in (EPISODE, FORGET):
            shown = look(graph, TENANTS[tenant % len(TENANTS)], (kind, *numbers))
            self._record(decide(shown, self.server.now_ms))
            if kind == EPISODE or numbers[-1] % 2:
                self._catch_up_active(tenant)

    def _record(self, made: list[Event]) -> None:
        if made:
            new = Decisions(cast(Any, self.services), self.services.active_name).append(made)
            self.trace(f"  {new} of {[_line(one) for one in made]}")

    def _do_pass(self, tenant: int, later: int, stops: int, *numbers: int) -> None:
        """A pass as workers run it; often it ends early, or nobody applies what it decides."""
        if numbers[0] % 4:
            self._catch_up_active(tenant)
        graph = self.services.graphs[self.services.active_name]
        steps_left = iter(range(stops % 40))
        days = (0, 2, 9, 40)[later % 4]
        made = Pass(
            graph,
            self._record_in_pass,
            (lambda: self._catch_up_active(tenant)) if numbers[1] % 4 else (lambda: None),
            now_ms=self.server.now_ms + days * DAY_MS,
            run_id=str(uuid.UUID(int=numbers[2])),
            in_time=lambda: stops % 3 > 0 or next(steps_left, None) is not None,
            policy_of=lambda _: RetentionPolicy(similar_score=0.8),
            communities=CommunitySettings(every_ms=0, chunk_edges=7),
            anew=numbers[3] % 6 == 0,
        )
        made.run()

    def _record_in_pass(self, made: Sequence[Event]) -> None:
        self._record(list(made))

    def _do_race(self, tenant: int, *numbers: int) -> None:
        """Two passes look at the same graph and decide, each by its own clock and in its words."""
        graph = self.services.graphs[self.services.active_name]
        shown = look(graph, TENANTS[tenant % len(TENANTS)], (*numbers, tenant))
        first = decide(shown, self.server.now_ms)
        other = (*numbers[:4], *(number + 1 for number in numbers[4:]), tenant)
        second = decide(shown._replace(numbers=other), self.server.now_ms + 1)
        self._record(first)
        self._record(second)

    def _do_poison(self, stage: int, residue: int, *_: int) -> None:
        """Of the stages whose dead letters lose nothing that only counts up."""
        self.poison[STAGE_LIST[stage % 2].name] = residue % 7

    def _do_heal(self, *_: int) -> None:
        self.poison.clear()
        retry(cast(Any, self.services))

    def _do_replay(self, stage: int, partition: int, first: int, count: int, *more: int) -> None:
        chosen = (*STAGE_LIST, STAGE_LIST[-1])[stage % (len(STAGE_LIST) + 1)]
        count = 0 if more[1] % 2 else count
        target = self._target(more[0])
        partition %= PARTITIONS
        entries = self.ledger.server.streams.get(partition, [])
        at = first % (len(entries) + 1) if more[1] % 3 else 0
        self.runner(chosen, target).refold(partition, entries[at : at + 1 + count % 20])

    def _do_bring_back(self, which: int, *_: int) -> None:
        self.bring_back(self._target(which))

    def bring_back(self, target: str) -> int:
        """Fold what was recalled and is away, with runners of this world."""
        keys = returning(self.services.graphs[target], enriched=True)
        runners = [self.runner(stage, target) for stage in stages_before(CONSOLIDATION)]
        fold_again(cast(Any, self.ledger), runners, keys)
        return len(keys)

    def _target(self, which: int) -> str:
        names = sorted(self.services.graphs)
        return names[which % len(names)]

    def _do_rebuild(self, which: int, size: int, *_: int) -> None:
        """A second target: folded as far as the ledger goes now, or by live workers alone."""
        if "green" not in self.services.graphs:
            self._add_target("green")
        if size % 2:
            self._fold_all("green", 1 + size % 7)
        self.workers[which % WORKERS] = self._worker("green")

    def _fold_all(self, target: str, size: int) -> None:
        for stage in STAGE_LIST:
            tails = self.ledger.tails()
            runner = self.runner(stage, target)
            for partition, tail in enumerate(tails):
                self.stop.renew()
                for _ in fold_partition(cast(Any, self.ledger), runner, partition, tail, size):
                    pass
        self.bring_back(target)

    def _do_switch(self, *_: int) -> None:
        """The second target answers from now on, and what decides sees it."""
        if "green" in self.services.graphs:
            self._do_heal()
            self._fold_all("green", 100)
            self.services.active_name = "green"

    # -- the end -----------------------------------------------------------------------------------

    def settle(self) -> None:
        """All that is in the way is gone, and workers fold until there is nothing left to do."""
        self.poison.clear()
        for _ in range(6):
            for number, target in enumerate(sorted(self.services.graphs)):
                self.workers[number] = self._worker(target)
                self._do_caught_up(number)
            for target in sorted(self.services.graphs):
                self._retry(target)
            came = sum(self.bring_back(target) for target in sorted(self.services.graphs))
            if not came and self._is_settled():
                return
        raise BrokenProperty("the workers do not come to an end")

    def _retry(self, target: str) -> None:
        active, self.services.active_name = self.services.active_name, target
        report = retry(cast(Any, self.services))
        self.services.active_name = active
        if report.failed:
            raise BrokenProperty(f"dead letters of {target} stay: {report.failed[:3]}")

    def _is_settled(self) -> bool:
        tails = [tail.seq for tail in self.ledger.tails()]
        return all(
            [c.seq for c in graph.checkpoints(stage.name)] == tails
            for graph in self.services.graphs.values()
            for stage in STAGE_LIST
        )

    def fresh(self) -> SimulatedGraph:
        """The ledger folded in one go, each stage whole before the next, into an empty store."""
        self.stop.renew()
        self._add_target("fresh")
        self._fold_all("fresh", 1_000)
        return self.services.graphs.pop("fresh")


@contextmanager
def no_luck(seed: int, clock: Clock) -> Iterator[None]:
    """Clocks, jitter and threads of the product follow the seed while the block runs."""
    state = random.getstate()
    random.seed(seed)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(poison, "time", clock)
            patched.setattr(enriching, "ThreadPoolExecutor", lambda *_, **__: AtOnce())
            # so few events are seldom like more than ten others
            patched.setattr(similarity, "CAP", 3)
            yield
    finally:
        random.setstate(state)


def _event(number: int, at: int, more: tuple[int, ...]) -> Event:
    """An event of few ids, sessions and texts, at a time that is often shared or late."""
    n = number % IDS
    parent = more[3] % (2 * IDS)
    user_id = USERS[more[3] // 13 % len(USERS)]
    names = (NAMES[more[2] % len(NAMES)], NAMES[more[1] % len(NAMES)])
    # one of them writes everything in capitals
    text = TEXTS[more[4] % len(TEXTS)].format(
        *(name.upper() if user_id == USERS[-1] else name for name in names)
    )
    writes = more[2] // 3 % 2 == 1
    tool = "set_plan" if writes else "search"
    kind = more[4] // 11 % len(TYPES)
    payload: dict[str, Any] | None = {"text": text} if text else None
    if kind == 1 and writes:
        payload = {"arguments": {"user_id": names[0], "plan": f"P{more[1] % 3}"}}
    elif kind in (0, 3) and text and more[1] % 2:
        payload = {"role": "user", "content": text}
    return event(
        1 + n,
        at=at % 40 if more[0] % 2 else 60 * (at % 5_000),
        tenant=TENANTS[more[2] // 7 % len(TENANTS)],
        event_type=TYPES[kind],
        session_id=f"session-{more[1] // 5 % 4}",
        agent_id=f"agent-{1 + more[0] // 3 % 2}",
        tool_name=tool if kind in (1, 2) else None,
        parent_event_id=event_id(1 + parent) if parent < IDS and parent != n else None,
        status="failed" if more[3] % 11 == 0 else None,
        user_id=user_id,
        payload=payload,
    )


def _statement(kind: int, tenant: str, more: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    name = NAMES[more[1] % len(NAMES)]
    source = {"name": name, "type": "user"}
    target = {"name": NAMES[more[2] % len(NAMES)], "type": "user"}
    relation = ("works_at", "lives_in", "knows")[more[3] % 3]
    stated = {"source": source, "relation": relation, "target": target}
    corrected = {"entity_id": entity_id(tenant, canonical_name(name), "user")}
    match kind % 8:
        case 0 | 1 | 2:
            return "memory.fact_asserted", stated
        case 4 | 5:
            correction = {"correction": "rename", "name": f"{name} {more[3] % 9}"}
            return "memory.entity_corrected", corrected | correction
        case 6:
            correction = {"correction": "alias", **target}
            return "memory.entity_corrected", corrected | correction
        case 3:
            return "memory.fact_retracted", stated
        case _:
            return "memory.consolidation_requested", {"reason": "by hand"}


def _line(made: Event) -> str:
    number = made.event_id[-4:]
    at = made.occurred_at_ms - START_MS
    parent = (made.parent_event_id or "-")[-4:]
    return f"{made.tenant} {made.event_type} {number} {made.session_id}@{at} parent {parent}"
