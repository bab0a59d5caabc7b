"""`python -m tests.acceptance.chaos`: as many seeded faults as asked for, and a table."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.chaos.storm import Storm, Tally


def main() -> int:
    """Storms one after the other, each with its own seed and services."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first storm; the next has +1")
    parser.add_argument("--at-once", type=int, default=100, help="faults of one storm")
    parser.add_argument("--go-on", action="store_true", help="after a failure, with the next seed")
    options = parser.parse_args()
    total, seed, failures = Tally(), options.seed, 0
    begun, todo = time.monotonic(), options.faults
    while todo > 0:
        size = min(todo, options.at_once)
        done_before = options.faults - todo

        def tell(text: str, done_before: int = done_before) -> None:
            minutes = (time.monotonic() - begun) / 60
            _say(f"{minutes:6.1f} min, {done_before} faults before; {text}")

        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
        storm = Storm(folder, seed, size, tell)
        try:
            storm.run()
            shutil.rmtree(folder)
        except AssertionError as failure:
            failures += 1
            _say(f"FAILED\n{failure}")
            if not options.go_on:
                total.add(storm.tally)
                break
        total.add(storm.tally)
        todo -= size
        seed += 1
    _say(total.table())
    _say(f"seeds {options.seed} to {max(options.seed, seed - 1)}; failures: {failures}")
    return 1 if failures else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
