"""`recollect load` against 1, 2, 4 workers and processes: `python -m tests.bench.load_generator`.

So many workers of the first two stages each, one of the consolidation, an API of as many processes,
one after the other on a Valkey and a Neo4j of its own. The first warms Neo4j up for the others, so
give it twice (`--sizes 1,1,2,4`). Latencies are those of a machine that is shared: processor time
is what to compare. It is that of all processes while the load lasted and stages caught up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pipelines.local.processes import free_port
from pipelines.local.workers import is_healthy
from pipelines.operations.api import Place
from pipelines.operations.load_generator import Latency, Load, Outcome, run
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, PROJECTION
from tests.bench.machine import load as load_average
from tests.bench.machine import say
from tests.bench.stack import Stack, child_pids, cpu_seconds, running_stack
from tests.waiting import wait_until

READY_S = 600.0
WARM_S = 15.0
HEADS = (
    *("workers of each stage, API processes", "events/s", "event p50, p95, p99 ms"),
    *("question p50, p95, p99 ms", "not answered", "enrichment caught up after s"),
    *("processor ms an event: API, workers, Neo4j", "load of the machine"),
)


class Used(NamedTuple):
    """Processor time of the processes of a role, seconds."""

    api: float
    workers: float
    neo4j: float


class Deployed(NamedTuple):
    """A running deployment."""

    place: Place
    api: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]
    neo4j_pid: int

    def used(self) -> Used:
        return Used(
            _with_children(self.api.pid),
            sum(_with_children(worker.pid) for worker in self.workers),
            cpu_seconds(self.neo4j_pid),
        )


def _with_children(pid: int) -> float:
    return sum(map(cpu_seconds, (pid, *child_pids(pid))))


@contextmanager
def deployed(stack: Stack, number: int) -> Iterator[Deployed]:
    """So many workers of each of two stages, and an API of so many processes; ended by id."""
    port = free_port()
    logs = (stack.folder / f"all-{number}.log").open("ab")
    open_to_all = {"RECOLLECT_INSECURE_DEV": "true"}
    children = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        child = stack.child(*arguments, environment=environment, stdout=logs, stderr=logs)
        children.append(child)
        return child

    try:
        workers = [
            start("worker", stage, "--target", "blue", RECOLLECT_METRICS_PORT=str(free_port()))
            for stage, many in (
                (PROJECTION.name, number),
                (ENRICHMENT.name, number),
                (CONSOLIDATION.name, 1),
            )
            for _ in range(many)
        ]
        api = start("serve", "--port", str(port), "--processes", str(number), **open_to_all)
        url = f"http://127.0.0.1:{port}"
        ready = f"{url}/health/ready"
        wait_until(lambda: is_healthy(ready), "the API is ready", patience_s=READY_S)
        yield Deployed(Place(url, None), api, workers, stack.local.neo4j["blue"].pid or 0)
    finally:
        for child in reversed(children):
            child.terminate()
        for child in reversed(children):
            child.wait(60)
        logs.close()


def measure(stack: Stack, number: int, wanted: Load) -> tuple[Outcome, Used, float]:
    """One row; what was used, and how busy the machine was."""
    wanted = wanted._replace(seed=number)
    warm = wanted._replace(seed=number + 1_000, for_s=WARM_S)
    with deployed(stack, number) as running:
        run(running.place, warm, lambda done, total, what: None)
        before = running.used()
        outcome = run(running.place, wanted, lambda done, total, what: None)
        spent = zip(running.used(), before, strict=True)
        return outcome, Used(*(after - was for after, was in spent)), load_average()


def row(number: int, outcome: Outcome, used: Used, busy: float) -> str:
    """As Markdown."""

    def latencies(told: Latency) -> str:
        return ", ".join(f"{ms:.0f}" for ms in (told.p50, told.p95, told.p99))

    events, questions = outcome.events, outcome.questions
    caught_up = outcome.caught_up_s.get(ENRICHMENT.name)
    each = ", ".join(f"{1_000 * spent / events.asked:.1f}" for spent in used)
    cells = (
        *(str(number), f"{events.rate:.1f}", latencies(events), latencies(questions)),
        f"{events.failed + questions.failed} of {events.asked + questions.asked}",
        *("longer" if caught_up is None else f"{caught_up:.1f}", each, f"{busy:.1f}"),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    prog = "python -m tests.bench.load_generator"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("--sizes", default="1,2,4", help="workers and API processes")
    parser.add_argument("--rate", type=float, default=40.0, help="events a second")
    parser.add_argument("--questions", type=float, default=2.0, help="questions a second")
    parser.add_argument("--for", type=float, default=30.0, dest="for_s", help="seconds")
    given = parser.parse_args()
    wanted = Load(rate=given.rate, questions=given.questions, for_s=given.for_s, tenant="load")
    sys.stdout.write(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}\n")
    with tempfile.TemporaryDirectory() as place, running_stack(Path(place)) as stack:
        for number in map(int, given.sizes.split(",")):
            say(f"{number} of each")
            sys.stdout.write(f"{row(number, *measure(stack, number, wanted))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
