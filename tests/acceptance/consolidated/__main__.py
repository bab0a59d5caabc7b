"""Consolidate the shared conversations on services of its own; print summaries and figures.

python -m tests.acceptance.consolidated [--tau-bench 200] [--locomo 2451]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipelines.local.services import LocalServices
from pipelines.observe.logs import configure_logging
from tests.acceptance.consolidated import story
from tests.acceptance.enriched.story import locomo, tau_bench
from tests.integration.stack import Stack


def main() -> int:
    """Both data sets, one after the other; 1 when a check does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.consolidated")
    parser.add_argument("--tau-bench", type=int, default=200, metavar="CONVERSATIONS")
    parser.add_argument("--locomo", type=int, default=2_451, metavar="TURNS")
    options = parser.parse_args()
    sets = {
        "tau-bench": list(tau_bench(options.tau_bench)),
        "LoCoMo": list(locomo(options.locomo)),
    }
    failed = False
    for name, events in sets.items():
        if not events:
            continue
        _say(f"# {name}")
        with tempfile.TemporaryDirectory(prefix="recollect-consolidated-") as folder:
            figures = _run(Path(folder), events)
        _say(json.dumps(figures, indent=2))
        failed |= not all(value for value in figures.values() if isinstance(value, bool))
    return 1 if failed else 0


def _run(folder: Path, events: list[Any]) -> dict[str, Any]:
    with LocalServices(folder, auth=False, heap_mb=1_024) as services:
        assert services.valkey is not None
        stack = Stack(
            services.valkey.url,
            services.neo4j["blue"].url,
            partitions=4,
            log_level="warning",
        )
        configure_logging(stack.services.settings)  # or each block is told
        try:
            return story.tell(stack, events, _say)
        finally:
            stack.close()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
