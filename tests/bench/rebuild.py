"""A new target filled from files, all stages: `python -m tests.bench.rebuild --events 100000`.

The events are those of real conversations again and again, each time as other tenants. All of them
are rebuilt once before, so that no model and no rule runs for a single event: what is measured is
a rebuild whose derivations are kept, as workers keep them.
Prints how long each step took, the processor time of Python, of the loading Java and of the new
Neo4j, the most memory the folding processes took together, and the same of a bare fold in this
process as the limit beside it. With `--verify` the new target is proved once more as
`recollect verify` does it, as it is and with one property changed, which must be found.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, cast

from pipelines.graph.memory import MemoryGraph
from pipelines.local.data_folder import connection_settings, live_servers
from pipelines.local.python_process import collect_rarely
from pipelines.local.services import down, drop_target, up
from pipelines.observe.logs import configure_logging
from pipelines.operations.bulk_load import ends_at
from pipelines.operations.rebuild import NewTarget, rebuild
from pipelines.proof.expected import LedgerFold
from pipelines.proof.verify import verify
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from projections.identity import START
from tests.bench.machine import load, say
from tests.bench.stack import child_pids, command_line, cpu_seconds, resident_mb
from tests.bench.texts import locomo_events

_AT_ONCE = 500
_LIMIT_EVENTS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--memory-mb", type=int, default=3_000)
    parser.add_argument("--data", type=Path, help="keep the folder, and use what is there")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="prove the new target once more, and with one property changed",
    )
    options = parser.parse_args()
    collect_rarely()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)).absolute()
        up(folder, detach=True)
        try:
            document = json.dumps(_measured(folder, options), indent=2)
            sys.stdout.write(f"{document}\n")
        finally:
            down(folder)


def _measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    settings = Settings(
        **cast(Any, connection_settings(folder)),
        data_dir=folder,
        log_level="warning",
        rebuild_memory_mb=options.memory_mb,
        rebuild_nice=0,
    )
    configure_logging(settings)
    with Services(settings) as services:
        _fill(services, options.events)
        blue = services.graph(services.active())
        blue.ensure_schema()
        for stage in STAGES.values():
            rules = make_fold(stage, services, services.active())
            blue.ensure_checkpoints(
                stage.name, services.ledger.partitions, stage.fold_version, rules.models
            )
        say("rebuild, which derives")
        rebuild(services, into=NewTarget("green", "files"))
        _drop(services, folder)
        say("limit")
        limit = _limit(services)
        say("rebuild")
        with _Watched() as watched:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            own = time.process_time()
            report = rebuild(services, into=NewTarget("green", "files"))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = time.process_time() - own - watched.took_s
        server = cpu_seconds(live_servers(folder)["green"].pid)
        children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        entries = report.entries
        derivations = sum(one.stat().st_size for one in folder.glob("derivations.sqlite*"))
        disk = sum(
            file.stat().st_size
            for file in (folder / "neo4j-green" / "data").rglob("*")
            if file.is_file()
        )
        document = {
            "events": entries,
            "ok": report.ok,
            "seconds": report.seconds,
            "duration_s": round(report.duration_s, 1),
            "events_per_s": round(entries / report.duration_s),
            "processor_ms_an_event": {
                "folding and loading": round(children / entries * 1e3, 3),
                "this process": round(own / entries * 1e3, 3),
                "new Neo4j": round(server / entries * 1e3, 3),
                "limit: one fold in memory": limit,
            },
            "folding_peak_mb": watched.peak_mb,
            "store_bytes_an_event": round(disk / entries),
            "derivations_bytes_a_turn": round(derivations / min(entries, len(locomo_events()))),
            "load": load(),
        }
        if options.verify:
            document["verify"] = _verified(services)
        _drop(services, folder)
        return document


def _verified(services: Services) -> dict[str, Any]:
    """What a proof of the new target costs, and what it says once a property was changed."""
    say("verify")
    with _Watched() as watched:
        whole = verify(services, target="green")
    client = services.neo4j_graph(services.target("green")).client
    with client.driver.session() as session:
        session.run("MATCH (e:Event) WITH e LIMIT 1 SET e.event_type = 'forged'").consume()
    say("verify, a property changed")
    forged = verify(services, target="green")
    return {
        "ok": whole.ok,
        "duration_s": round(whole.duration_s, 1),
        "folding_peak_mb": watched.peak_mb,
        "this_process_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "forged": [str(one)[:200] for one in forged.differences],
        "forged_duration_s": round(forged.duration_s, 1),
    }


def _drop(services: Services, folder: Path) -> None:
    services.targets.drop("green")
    drop_target(folder, "green")


def _fill(services: Services, events: int) -> None:
    """Append conversations as ever other tenants until there are enough."""
    services.active()
    services.ledger.admit()
    turns = locomo_events()
    held = sum(tail.seq for tail in services.ledger.tails())
    number = held // len(turns)
    while held < events:
        for first in range(0, len(turns), _AT_ONCE):
            some = turns[first : first + _AT_ONCE]
            services.ledger.append([one._replace(tenant=f"{one.tenant}-{number}") for one in some])
        number += 1
        held += len(turns)
    say(f"{held:,} events in the ledger")


def _limit(services: Services) -> float:
    """Processor milliseconds an event of one fold of the first events."""
    whole = _entries(services)
    first = min(_LIMIT_EVENTS, whole)
    last = [
        services.ledger.read(number, START, max(1, tail.seq * first // whole))[-1]
        for number, tail in enumerate(services.ledger.tails())
        if tail.seq
    ]
    rules_of = [make_fold(one, services, services.active()) for one in STAGES.values()]
    fold = LedgerFold(services.ledger, rules_of)
    begun = time.process_time()
    fold.advance(MemoryGraph(), ends_at(services, list(STAGES.values()), last))
    took = time.process_time() - begun
    return round(took / sum(one.seq for one in last) * 1e3, 3)


def _entries(services: Services) -> int:
    return sum(tail.seq for tail in services.ledger.tails())


class _Watched:
    """Looks at the memory of this process's children; a context manager, `took_s` in the end."""

    def __init__(self) -> None:
        self.peak_mb = 0
        self.took_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self.peak_mb = max(self.peak_mb, round(sum(map(resident_mb, _folding()))))
        self.took_s = time.thread_time()

    def __enter__(self) -> _Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _folding() -> list[int]:
    return [pid for pid in child_pids(os.getpid()) if b"proof.shares" in command_line(pid)]


if __name__ == "__main__":
    main()
