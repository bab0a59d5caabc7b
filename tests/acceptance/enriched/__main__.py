"""Enrich all of the shared conversations on services of its own, and print the figures.

python -m tests.acceptance.enriched [--tau-bench 200] [--locomo 2451]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pipelines.local.services import LocalServices
from pipelines.observe.logs import configure_logging
from tests.acceptance.enriched import story
from tests.integration.stack import Stack


def main() -> int:
    """Both data sets, one after the other; 1 when something that must be the same is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.enriched")
    parser.add_argument("--tau-bench", type=int, default=200, metavar="CONVERSATIONS")
    parser.add_argument("--locomo", type=int, default=2_451, metavar="TURNS")
    options = parser.parse_args()
    sets = {
        "tau-bench": list(story.tau_bench(options.tau_bench)),
        "LoCoMo": list(story.locomo(options.locomo)),
    }
    failed = False
    for name, events in sets.items():
        if not events:
            continue
        _say(f"# {name}")
        with tempfile.TemporaryDirectory(prefix="recollect-enriched-") as folder:
            figures = _run(Path(folder), events)
        _say(json.dumps(figures, indent=2))
        failed |= not all(value for key, value in figures.items() if key.endswith("_the_same"))
        failed |= figures["enriched"] != len(events) or not figures["replay_changes_nothing"]
    return 1 if failed else 0


def _run(folder: Path, events: list[Any]) -> dict[str, Any]:
    with (
        LocalServices(folder, auth=False, heap_mb=1_024) as services,
        ExitStack() as opened,
    ):
        urls = services.settings

        def make_stack(**options: Any) -> Stack:
            made = Stack(**{**urls, "partitions": 4, "log_level": "warning", **options})
            opened.callback(made.close)
            configure_logging(made.services.settings)  # or each block is told
            return made

        return story.tell(make_stack, events, _say)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
