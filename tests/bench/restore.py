"""A ledger lost and folded again, derivations and all: `python -m tests.bench.restore`.

Real conversations are folded once by the models, archived, backed up, restored into an empty Redis
with an empty store of derivations, and folded again. Prints what each step took, and what
derivations add to an archived event. The models of the first fold run in processes of their own,
whose processor time is not in it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from pipelines.local.servers import ValkeyServer
from pipelines.observe import logs
from pipelines.operations.archive import archive
from pipelines.operations.backup import backup, restore
from pipelines.operations.rebuild import rebuild
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from tests.bench.machine import load, say
from tests.bench.texts import locomo_events
from tests.servers import running

_AT_ONCE = 500
Result = TypeVar("Result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=2_000, help="turns of conversations")
    options = parser.parse_args()
    logs.configure_logging(Settings(log_level="warning"))
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        live, empty = (
            stack.enter_context(running(ValkeyServer(folder / name))).url
            for name in ("live-valkey", "empty-valkey")
        )
        document = _measured(folder, live, empty, options.events)
    sys.stdout.write(f"{json.dumps(document, indent=2)}\n")


def _measured(folder: Path, live: str, empty: str, events: int) -> dict[str, Any]:
    timed: dict[str, dict[str, float]] = {}

    def step(name: str, work: Callable[[], Result]) -> Result:
        say(name)
        begun, processor = time.monotonic(), time.process_time()
        done = work()
        timed[name] = {
            "s": round(time.monotonic() - begun, 2),
            "processor s": round(time.process_time() - processor, 2),
        }
        return done

    with Services(_settings(folder, "live", live)) as services:
        services.active()
        turns = locomo_events()[:events]
        for first in range(0, len(turns), _AT_ONCE):
            services.ledger.append(turns[first : first + _AT_ONCE])
        cold = step("fold with models", lambda: rebuild(services))
        moved = step("archive", lambda: archive(services, keep=1))
        made = step("back up", lambda: backup(services, str(folder / "backup")))
    with Services(_settings(folder, "back", empty)) as services:
        back = step("restore", lambda: restore(services, str(folder / "backup")))
    with Services(_settings(folder, "back", empty)) as services:
        warm = step("fold again", lambda: rebuild(services))
    files = list((folder / "live-archive").rglob("*.parquet"))
    derived = sum(one.stat().st_size for one in files if ".derivations." in one.name)
    entries = sum(one.stat().st_size for one in files) - derived
    return {
        "events": len(turns),
        "same digest": cold.verified.digest == warm.verified.digest,
        "derivations": {"archived": moved.derivations, "put back": back.derivations},
        "backed up": made.entries,
        "archive bytes an event": {
            "entries": round(entries / moved.archived),
            "derivations": round(derived / moved.archived),
        },
        "steps": timed,
        "load": load(),
    }


def _settings(folder: Path, name: str, redis_url: str) -> Settings:
    return Settings(
        redis_url=redis_url,
        neo4j_url=f"memory://{name}",
        archive_url=str(folder / f"{name}-archive"),
        derivations_url=f"sqlite://{folder}/{name}.sqlite",
        data_dir=folder,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
