"""What sealing costs: append and read of a sealed tenant beside one that is not.

    python -m tests.bench.sealing --events 20000 [--json]

Both in turns, round by round, on one Valkey of the bench's own, so that a busy machine slows both;
the ratios are medians over the rounds. Read is XRANGE and the decoded events, as a worker does it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.keys import MasterKey, SqliteKeys
from pipelines.ledger.ledger import Appended, BesideRedis, Ledger
from pipelines.ledger.vault import SEALED
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.events import Event
from projections.identity import Position
from tests.bench.sample import sample_events

BATCH = 500
ROUNDS = 20
USERS = 50
MASTER = "00" * 32
PLAIN_TENANT, SEALED_TENANT = "plain", "sealed"


def measure(events: int, url: str, folder: Path) -> dict[str, Any]:
    """Figures of one run on an empty server at `url`."""
    settings = Settings(redis_url=url, master_key=SecretStr(MASTER), data_dir=folder)
    SqliteKeys.create(folder / "keys.sqlite", MasterKey(bytes.fromhex(MASTER))).close()
    client: Any = connect_redis(settings)
    ledger = Ledger(client, checkpoints=dict, beside=BesideRedis.of(settings, client))
    store = ledger.vault.require_store()
    ledger.vault.fences.put_tenant(SEALED_TENANT, SEALED, store.identity)
    sample = sample_events(events)
    per_round = max(BATCH, events // ROUNDS // BATCH * BATCH)
    ledger.admit()
    figures: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for first in range(0, events, per_round):
        part = list(islice(sample, min(per_round, events - first)))
        for tenant in (PLAIN_TENANT, SEALED_TENANT):
            own = [
                one._replace(tenant=tenant, user_id=f"user-{n % USERS}")
                for n, one in enumerate(part)
            ]
            ends = [tail.position for tail in ledger.tails()]
            before = _used(client)
            figures.setdefault(f"append {tenant}", []).append(_seconds(_append, ledger, own))
            sizes[tenant] = sizes.get(tenant, 0) + _used(client) - before
            figures.setdefault(f"read {tenant}", []).append(_seconds(_read, ledger, ends))
    return {
        "events": events,
        **{
            f"{what}_{tenant}_events_per_s": round(
                per_round / statistics.median(figures[f"{what} {tenant}"])
            )
            for what in ("append", "read")
            for tenant in (PLAIN_TENANT, SEALED_TENANT)
        },
        **{
            f"{what}_sealed_to_plain_ratio": round(
                statistics.median(
                    plain / sealed
                    for plain, sealed in zip(
                        figures[f"{what} {PLAIN_TENANT}"],
                        figures[f"{what} {SEALED_TENANT}"],
                        strict=True,
                    )
                ),
                3,
            )
            for what in ("append", "read")
        },
        "redis_bytes_per_event_plain": round(sizes[PLAIN_TENANT] / events),
        "redis_bytes_per_event_sealed": round(sizes[SEALED_TENANT] / events),
    }


def _append(ledger: Ledger, events: Sequence[Event]) -> None:
    for first in range(0, len(events), BATCH):
        outcomes = ledger.append(events[first : first + BATCH])
        assert all(isinstance(one, Appended) and not one.duplicate for one in outcomes)


def _read(ledger: Ledger, ends: Sequence[Position]) -> None:
    for partition, end in enumerate(ends):
        for entries in ledger.scan(partition, end):
            for entry in entries:
                assert entry.event().user_id is not None


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    before = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - before


def _used(client: Any) -> int:
    return int(client.info("memory")["used_memory_dataset"])


def main() -> int:
    """Start a Valkey, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        server.start()
        try:
            server.wait_ready()
            figures = measure(options.events, server.url, Path(folder))
        finally:
            server.stop()
    if options.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        for name, value in figures.items():
            sys.stdout.write(f"{name:34} {value:>12,}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
