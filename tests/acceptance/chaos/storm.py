"""A storm: seeded faults in small groups, and what must be true after each group."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import neo4j
import redis

from pipelines.operations import dead_letters
from pipelines.operations.recover import recover
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from projections.errors import OperationFailed, RecollectError
from projections.events import decode_event, encode_event, is_system_event
from tests.acceptance.chaos.deployment import Deployment, Worker
from tests.acceptance.chaos.producer import Accepted, Producer

KINDS = {
    "kill -9 a worker": 24,
    "kill -9 all workers": 2,
    "SIGTERM a worker": 4,
    "stop a worker past its lease": 3,
    "cut all Redis connections": 3,
    "kill -9 Valkey": 3,
    "kill -9 Neo4j": 1,
    "a poison event": 2,
}
"""Faults and their weights."""

_WORKERS = 2
_FULL_CHECK_EVERY = 10
_ONCE_A_GROUP = {
    "stop a worker past its lease",
    "kill -9 all workers",
    "kill -9 Valkey",
    "kill -9 Neo4j",
    "a poison event",
}
_POSTPONED_WRITE_MS = 2_500
"""Valkey puts a write to its file off by up to 2 s while a sync of the file is under way."""
_CONSTRAINT = "chaos_tool_name"

Finish = Callable[[], None]


@dataclass
class Tally:
    """Figures of one storm or of several."""

    faults: Counter[str] = field(default_factory=Counter)
    under_load: Counter[str] = field(default_factory=Counter)
    settled_s: dict[str, list[float]] = field(default_factory=dict)
    events: int = 0
    duplicates: int = 0
    conflicts: int = 0
    unavailable: int = 0
    letters: int = 0
    losses: int = 0
    lost_events: int = 0
    full_checks: int = 0
    fenced: int = 0
    rewinds: int = 0
    duration_s: float = 0.0

    def add(self, other: Tally) -> None:
        """Add another storm's."""
        self.faults += other.faults
        self.under_load += other.under_load
        for kind, times in other.settled_s.items():
            self.settled_s.setdefault(kind, []).extend(times)
        for name, value in vars(other).items():
            if isinstance(value, int | float):
                setattr(self, name, getattr(self, name) + value)

    def table(self) -> str:
        """For a person."""
        lines = [f"{'fault':<30}{'count':>7}{'under load':>12}{'lag 0 after, mean':>19}{'max':>8}"]
        for kind in KINDS:
            times = self.settled_s.get(kind) or [0.0]
            lines.append(
                f"{kind:<30}{self.faults[kind]:>7}{self.under_load[kind]:>12}"
                f"{sum(times) / len(times):>17.1f} s{max(times):>6.1f} s"
            )
        count = self.faults.total()
        lines += [
            f"{'all':<30}{count:>7}{self.under_load.total():>12}",
            f"events accepted {self.events:,}, sent again {self.duplicates:,}, refused as "
            f"conflicts {self.conflicts:,}; appends tried again {self.unavailable:,}",
            f"dead letters made and brought back {self.letters:,}; blocks fenced {self.fenced:,}; "
            f"partitions started again {self.rewinds:,}",
            f"Valkey lost acknowledged events in {self.losses} kills ({self.lost_events} events), "
            "recovered and sent again",
            f"full checks {self.full_checks:,}; {self.duration_s:,.0f} s, "
            f"{self.duration_s / max(count, 1):.2f} s a fault: 1,000 faults take about "
            f"{self.duration_s / max(count, 1) * 1000 / 60:.0f} minutes",
        ]
        return "\n".join(lines)


class Storm:
    """Faults on one deployment.

    Args:
        folder: for data and logs; empty.
        seed: of the faults, their moments and the events.
        faults: how many. Each kind comes at least once when there are enough.
        tell: where progress goes.
    """

    def __init__(
        self, folder: Path, seed: int, faults: int, tell: Callable[[str], None] | None = None
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.tally = Tally()
        self._rng = random.Random(f"storm/{seed}")
        self._kinds = _drawn(self._rng, faults)
        self._tell = tell or (lambda text: None)
        self._log = (folder / "storm.log").open("w", buffering=1, encoding="utf-8")
        self._notes: list[str] = []
        self._begun = time.monotonic()
        self._poisoned = 0
        self._system_entries = 0
        self._valkey_killed_at_ms: int | None = None
        self._down = {"valkey": False, "neo4j": False}

    def run(self) -> Tally:
        """All faults.

        Raises:
            AssertionError: with the seed, the last notes and the folder of the logs.
        """
        self.deployment = Deployment(self.folder)
        services = Services(self.deployment.settings)
        try:
            self.producer = Producer(self.deployment.ledger(services), self.seed)
            self.producer.start()
            for _ in range(_WORKERS):
                self.deployment.start_worker()
            self.deployment.wait(
                lambda: len(self.deployment.readers()) == self.deployment.settings.partitions,
                "all partitions are read",
            )
            self._warm_up()
            done = checked = 0
            while done < len(self._kinds):
                group = self._next_group(done)
                self._note(f"faults {done + 1} to {done + len(group)}: {', '.join(group)}")
                self._strike(group)
                done += len(group)
                if done - checked >= _FULL_CHECK_EVERY or done == len(self._kinds):
                    checked = done
                    self._check_everything()
                self._tell(
                    f"seed {self.seed}: {done}/{len(self._kinds)} faults, "
                    f"{len(self.producer.accepted):,} events, "
                    f"{time.monotonic() - self._begun:.0f} s"
                )
            self._leave()
        except BaseException as error:
            raise AssertionError(self._account(error)) from error
        finally:
            self._count()
            self.deployment.close()
            self.producer.stop()
            services.close()
            self._log.close()
        return self.tally

    def _warm_up(self) -> None:
        """Neo4j plans each query once, which takes as long as hundreds of blocks."""
        self.producer.resume()
        self.deployment.wait(lambda: len(self.producer.accepted) > 200, "the first events")
        self._settle()
        self._check_counts()

    # -- a group of faults -----------------------------------------------------------------------

    def _next_group(self, done: int) -> list[str]:
        size = self._rng.choices((1, 2, 3), (5, 3, 2))[0]
        group: list[str] = []
        for kind in self._kinds[done : done + size]:
            if kind in group and kind in _ONCE_A_GROUP:
                break
            group.append(kind)
        # Its constraint needs a graph that is there.
        return sorted(group, key=lambda kind: kind != "a poison event")

    def _strike(self, group: Sequence[str]) -> None:
        """Begin the faults one after the other while events flow, end them, let it settle."""
        faults: dict[str, Callable[[], Finish]] = {
            "kill -9 a worker": self._kill_worker,
            "kill -9 all workers": self._kill_workers,
            "SIGTERM a worker": self._terminate_worker,
            "stop a worker past its lease": self._stop_worker,
            "cut all Redis connections": self._cut_connections,
            "kill -9 Valkey": self._kill_valkey,
            "kill -9 Neo4j": self._kill_neo4j,
            "a poison event": self._poison,
        }
        self._valkey_killed_at_ms = None
        self.producer.resume()
        time.sleep(self._rng.uniform(0.05, 0.6))
        finishes: list[tuple[str, Finish]] = []
        for kind in group:
            lag = self._lag()
            self._note(f"{kind} at lag {lag}")
            finishes.append((kind, faults[kind]()))
            self.tally.faults[kind] += 1
            self.tally.under_load[kind] += bool(lag)
            time.sleep(self._rng.uniform(0, 0.4))
        # Services first, since a worker that was stopped loses its lease by Redis' clock; dead
        # letters last, since one that was stopped in a transaction keeps its partition locked.
        order = {"kill -9 Valkey": 0, "kill -9 Neo4j": 0, "a poison event": 2}
        for _, finish in sorted(finishes, key=lambda pair: order.get(pair[0], 1)):
            finish()
        time.sleep(self._rng.uniform(0.05, 0.4))
        took = self._settle()
        for kind in group:
            self.tally.settled_s.setdefault(kind, []).append(took)
        self._check_counts()

    def _lag(self) -> int | None:
        """None while a service is away."""
        if any(self._down.values()):
            return None
        try:
            return self.deployment.lag()
        except (RecollectError, redis.RedisError):
            return None

    def _kill_worker(self) -> Finish:
        self._replace(self._victim())
        return _nothing

    def _kill_workers(self) -> Finish:
        for worker in [w for w in self.deployment.workers if not w.stopped]:
            self._replace(worker)
        return _nothing

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        self.deployment.remove(worker)
        self._note(f"  {worker} killed, {self.deployment.start_worker()} started")

    def _terminate_worker(self) -> Finish:
        worker = self._victim(ready=True)
        worker.signal(signal.SIGTERM)
        self.deployment.remove(worker)
        self._note(f"  {worker} told to end, {self.deployment.start_worker()} started")

        def finish() -> None:
            code = worker.wait_end()
            if code != 0:
                raise AssertionError(f"{worker} ended with {code} on SIGTERM")

        return finish

    def _stop_worker(self) -> Finish:
        worker = self._victim(ready=True)
        worker.signal(signal.SIGSTOP)
        worker.stopped = True
        self._note(f"  {worker} stopped")

        def finish() -> None:
            took = self.deployment.wait(
                lambda: worker.pid not in self.deployment.readers().values(),
                f"{worker} loses its leases",
            )
            time.sleep(self._rng.uniform(0, 1.5))
            worker.signal(signal.SIGCONT)
            worker.stopped = False
            self._note(f"  {worker} lost its leases after {took:.1f} s and goes on")

        return finish

    def _victim(self, *, ready: bool = False) -> Worker:
        """A running worker; a ready one has read a partition before."""
        candidates = [w for w in self.deployment.workers if not w.stopped]
        if ready and not any(w.seen_reading for w in candidates):
            if self._down["valkey"] or self._down["neo4j"]:
                self._restart_services()
            self.deployment.wait(
                lambda: self.deployment.readers() and any(w.seen_reading for w in candidates),
                "a worker reads",
            )
        at_work = [w for w in candidates if w.seen_reading]
        # Sometimes one that is only starting.
        choice = at_work if at_work and (ready or self._rng.random() < 0.9) else candidates
        return self._rng.choice(choice)

    def _cut_connections(self) -> Finish:
        for _ in range(self._rng.randrange(1, 4)):
            if self._down["valkey"]:
                break
            client: Any = redis.Redis(port=self.deployment.valkey.port)
            with client:
                killed = client.execute_command("CLIENT", "KILL", "TYPE", "normal")
            self._note(f"  {killed} connections cut")
            time.sleep(self._rng.uniform(0, 0.2))
        return _nothing

    def _kill_valkey(self) -> Finish:
        self._valkey_killed_at_ms = time.time_ns() // 1_000_000
        self._down["valkey"] = True
        self.deployment.valkey.kill()
        return self._restart_services

    def _kill_neo4j(self) -> Finish:
        self._down["neo4j"] = True
        self.deployment.neo4j.kill()
        return self._restart_services

    def _restart_services(self) -> None:
        if any(self._down.values()):
            time.sleep(self._rng.uniform(0, 1.0))
        for name, server in (
            ("valkey", self.deployment.valkey),
            ("neo4j", self.deployment.neo4j),
        ):
            if self._down[name]:
                server.start()
                server.wait_ready()
                self._down[name] = False
                self._note(f"  {name} is back")

    def _poison(self) -> Finish:
        """One or two events whose tool name a constraint, made by hand, refuses."""
        self._poisoned += 1
        names = [f"poison-{self._poisoned}-{n}" for n in range(self._rng.randrange(1, 3))]
        self._in_graph(
            f"CREATE CONSTRAINT {_CONSTRAINT} FOR (e:Event) REQUIRE e.tool_name IS UNIQUE"
        )
        self._in_graph("UNWIND $names AS name CREATE (:Event {tool_name: name})", names=names)
        story = self.producer.story
        poison = [story.event(tool_name=name) for name in names]
        poison.append(story.event(parent=poison[0].event_id))
        self.producer.enqueue(poison)

        def finish() -> None:
            self._settle()
            letters = dead_letters.list_(self.deployment.services).dead_letters
            keys = {(letter["tenant"], letter["event_id"]) for letter in letters}
            if keys != {event.key for event in poison if event.tool_name}:
                raise AssertionError(f"dead letters: {letters}")
            if {letter["attempts"] for letter in letters} != {5}:
                raise AssertionError(f"attempts: {letters}")
            # Their neighbours flowed, and the nodes made by hand stand where they would.
            counts = self._counts()
            if counts.nodes["Event"] != len(self.producer.accepted):
                raise AssertionError(f"{counts} beside {self.producer.expected()}")
            again = dead_letters.retry(self.deployment.services)
            if again.done or len(again.failed) != len(names):
                raise AssertionError(f"retried while the cause is there: {again.as_dict()}")
            self._in_graph(
                "MATCH (e:Event) WHERE e.tool_name IN $names AND e.tenant IS NULL DELETE e",
                names=names,
            )
            self._in_graph(f"DROP CONSTRAINT {_CONSTRAINT}")
            self.producer.resume()  # the retry meets a live worker
            report = dead_letters.retry(self.deployment.services)
            if report.failed or report.done != len(names):
                raise AssertionError(f"retry: {report.as_dict()}")
            self.tally.letters += report.done

        return finish

    def _in_graph(self, text: str, **parameters: Any) -> None:
        """By hand, in a transaction that is repeated when it meets the workers'."""
        services = self.deployment.services
        driver: neo4j.Driver = services.driver(services.active())
        driver.execute_query(text, parameters)

    # -- what must be true -----------------------------------------------------------------------

    def _settle(self) -> float:
        """No more events; wait until all are folded. Returns how long that took, seconds."""
        self.producer.pause()
        self._make_good_what_valkey_lost()
        took = self.deployment.wait(self.deployment.caught_up, "lag 0")
        self._note(f"  lag 0 after {took:.1f} s, {len(self.producer.accepted):,} events")
        return took

    def _check_counts(self) -> None:
        """Cheap: entries, nodes, edges and dead letters, by their number."""
        self.deployment.readers()
        expected = self.producer.expected()
        entries = sum(tail.seq for tail in self.deployment.services.ledger.tails())
        if entries != expected.nodes + self._system_entries:
            raise AssertionError(f"{entries} entries of {expected.nodes} accepted events")
        counts = self._counts()
        found = (
            counts.nodes["Event"],
            counts.edges["FOLLOWS"],
            counts.edges["CAUSED_BY"],
            counts.placeholders,
        )
        if found != tuple(expected):
            raise AssertionError(f"the graph counts {found}, not {expected}")
        if counts.nodes["DeadLetter"]:
            raise AssertionError(f"{counts.nodes['DeadLetter']} dead letters")
        if halted := self.deployment.services.ledger.halted():
            raise AssertionError(f"halted: {halted}")

    def _counts(self) -> Any:
        services = self.deployment.services
        return services.reader(services.active()).counts()

    def _check_everything(self) -> None:  # noqa: C901 - one look after another
        """Each accepted event in the ledger, once, where it was acknowledged; verify; digest."""
        ledger, accepted = self.deployment.services.ledger, self.producer.accepted
        places = {(one.partition, one.position): one for one in accepted.values()}
        for partition in range(ledger.partitions):
            seq = 0
            for block in ledger.scan(partition):
                for entry in block:
                    seq += 1
                    if entry.seq != seq:
                        raise AssertionError(f"entry {entry} is not number {seq}")
                    one = places.pop((partition, entry.position), None)
                    if one is None:
                        event = decode_event(entry.data)
                        if not is_system_event(event.event_type):
                            raise AssertionError(f"never acknowledged: {entry}")
                    elif encode_event(one.event) != entry.data:
                        raise AssertionError(f"{entry} is not {one}")
        if places:
            raise AssertionError(f"not in the ledger: {list(places.values())[:5]}")
        report = verify(self.deployment.services)
        if not report.ok or report.events != len(accepted) or report.lag_entries:
            raise AssertionError(f"verify: {report.as_dict()}")
        if report.digest != self.producer.digest():
            raise AssertionError(f"digest {report.digest}, of the fold {self.producer.digest()}")
        took = self.deployment.wait(lambda: self.deployment.pending() == 0, "nothing pending", 30)
        self.tally.full_checks += 1
        self._note(f"  verified, nothing pending after {took:.1f} s; digest {report.digest[:16]}")

    def _make_good_what_valkey_lost(self) -> None:
        """After a kill of Valkey, acknowledged events may be gone: then recover, send them again.

        While a sync of its file is under way, Valkey puts the next write to the file off, but not
        its answers. So also the kill of the process alone can lose what came in those moments.
        """
        producer = self.producer
        tails = self.deployment.services.ledger.tails()
        missing = len(producer.accepted) + self._system_entries - sum(tail.seq for tail in tails)
        if not missing and not producer.reborn and not producer.refused:
            return
        self._note(
            f"  {missing} entries are missing, {len(producer.refused)} events refused, "
            f"{len(producer.reborn)} taken twice"
        )
        if self._valkey_killed_at_ms is None:
            raise AssertionError(f"{missing} acknowledged events are gone, and no kill of Valkey")
        ledger = self.deployment.services.ledger
        held = {
            (partition, entry.position)
            for partition in range(ledger.partitions)
            for block in ledger.scan(partition)
            for entry in block
        }
        lost = [o for o in producer.accepted.values() if (o.partition, o.position) not in held]
        self._test_lost([*lost, *producer.reborn], held)
        self._recover()
        producer.forget(lost)
        again = [one.event for one in lost] + producer.refused
        producer.refused, producer.reborn = [], []
        again.sort(key=lambda event: event.payload.get("n", 0))
        producer.send([event for event in again if event.key not in producer.accepted])
        if producer.refused:
            raise AssertionError(f"still halted after recover: {ledger.halted()}")
        self.tally.losses += 1
        self.tally.lost_events += len(lost)

    def _test_lost(self, lost: Sequence[Accepted], held: set[tuple[int, Any]]) -> None:
        since_ms = (self._valkey_killed_at_ms or 0) - _POSTPONED_WRITE_MS
        for one in lost:
            if one.position.ms < since_ms:
                raise AssertionError(f"lost, though written long before the kill: {one}")
            if (one.partition, one.position) in held:
                raise AssertionError(f"taken twice, and both are there: {one}")

    def _recover(self) -> None:
        services = self.deployment.services
        for attempt in range(5):
            try:
                report = recover(services, apply=True)
                break
            except OperationFailed as error:
                if attempt == 4:
                    raise
                self._note(f"  recover again: {error}")
        self._note(f"  recovered: {report.as_dict()}")
        self._system_entries = sum(
            is_system_event(decode_event(entry.data).event_type)
            for partition in range(services.ledger.partitions)
            for block in services.ledger.scan(partition)
            for entry in block
        )

    def _leave(self) -> None:
        """At the end all workers are told to go, and exit with 0."""
        self.deployment.wait(
            lambda: (
                self.deployment.readers()
                and all(worker.seen_reading for worker in self.deployment.workers)
            ),
            "all workers read",
        )
        workers = list(self.deployment.workers)
        for worker in workers:
            worker.signal(signal.SIGTERM)
        for worker in workers:
            code = worker.wait_end()
            self.deployment.remove(worker)
            if code != 0:
                raise AssertionError(f"{worker} ended with {code} on SIGTERM")
        self._check_counts()

    # -- the account -----------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        line = f"{time.monotonic() - self._begun:8.2f} {text}"
        self._notes.append(line)
        self._log.write(line + "\n")

    def _count(self) -> None:
        producer = self.producer
        self.tally.events = len(producer.accepted)
        self.tally.duplicates = producer.duplicates
        self.tally.conflicts = producer.conflicts
        self.tally.unavailable = producer.unavailable
        self.tally.duration_s = time.monotonic() - self._begun
        for log in self.folder.glob("worker-*.log"):
            text = log.read_text(encoding="utf-8", errors="replace")
            self.tally.fenced += text.count("another worker has moved it")
            self.tally.rewinds += text.count("starts again at its checkpoint")

    def _account(self, error: BaseException) -> str:
        """What a person needs to find the cause and to play it again."""
        parts = [
            f"{error}",
            f"seed {self.seed}, {len(self._kinds)} faults; again: python -m tests.acceptance.chaos "
            f"--seed {self.seed} --faults {len(self._kinds)} --at-once {len(self._kinds)}",
            f"logs: {self.folder}",
            *self._notes[-40:],
        ]
        for worker in self.deployment.workers[-3:]:
            text = worker.log.read_text(encoding="utf-8", errors="replace")
            parts.append(f"--- {worker}\n" + "\n".join(text.splitlines()[-15:]))
        return "\n".join(parts)


def _drawn(rng: random.Random, count: int) -> list[str]:
    """Kinds by weight; when there is room each comes once at least."""
    kinds = list(KINDS) if count >= 2 * len(KINDS) else []
    kinds += rng.choices(list(KINDS), list(KINDS.values()), k=count - len(kinds))
    rng.shuffle(kinds)
    return kinds


def _nothing() -> None:
    """A fault that is over when it has begun."""
