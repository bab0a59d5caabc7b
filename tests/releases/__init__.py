"""What releases wrote, kept as they wrote it: a backup, its keys, and what was read from it.

`python -m tests.releases FOLDER` writes the same with the code that is there: run it once, when a
version is released, into a folder of that version's name. What stands in an older folder is never
written again: it proves that a later version still reads it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from pipelines.operations.backup import backup
from pipelines.operations.demo import scenario_path
from pipelines.operations.erase import seal_tenant
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from pipelines.work.stages import STAGES
from projections.events import Event, parse_event
from tests.integration.stack import ValkeyStack

RELEASES: Final = Path(__file__).parent
MASTER_KEY: Final = "5e" * 32
"""Of what is kept here, and of nothing else."""
SEALED_TENANT: Final = "sealed"
EVENTS: Final = "events.jsonl"
AT_MS: Final = 1_772_700_000_000
"""After the last event of the scenario; the clock of the append is the ledger's own."""


def events_of(folder: Path) -> list[Event]:
    """What a release was told: an incident, by a tenant that is not sealed and by one that is."""
    lines = (folder / EVENTS).read_bytes().splitlines()
    return [
        parse_event(json.loads(line), now_ms=AT_MS, tenant=tenant)
        for tenant in ("plain", SEALED_TENANT)
        for line in lines
    ]


def write_release(redis_url: str, data_dir: Path, folder: Path) -> None:
    """Fill an empty Redis, back it up, and note what was in it.

    Args:
        redis_url: of an empty Redis.
        data_dir: in which the keys are made.
        folder: of the version; it must not be there.
    """
    folder.mkdir(parents=True)
    shutil.copy(scenario_path(), folder / EVENTS)
    stack = ValkeyStack(redis_url, "memory://release", data_dir=data_dir, master_key=MASTER_KEY)
    services = stack.services
    try:
        seal_tenant(services, SEALED_TENANT)
        stack.append(*events_of(folder))
        stack.fold()
        backup(services, str(folder.absolute() / "backup"))
        (data_dir / "keys.sqlite").rename(folder / "keys.sqlite")
        (folder / "told.json").write_text(json.dumps(told(services), indent=2) + "\n", "utf-8")
    finally:
        stack.close()


def told(services: Services) -> dict[str, Any]:
    """What a ledger and the graph of its events say, wherever they are."""
    report = verify(services)
    assert report.ok
    return {
        "entries": sum(tail.seq for tail in services.ledger.tails()),
        "projection": {
            "fold_version": STAGES["projection"].fold_version,
            "digest": report.stages["projection"].digest,
        },
    }
