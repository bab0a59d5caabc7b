"""`python -m tests.acceptance.soak`: minutes of load and faults, the proof, and a table."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.soak.storm import Soak


def main() -> int:
    """0: nothing was lost, doubled, leaked or away for too long; 1: something was."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{options.seed}-"))
    begun = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{(time.monotonic() - begun) / 60:6.1f} min  {text}\n")
        sys.stdout.flush()

    soak = Soak(folder, options.seed, tell)
    failure = ""
    try:
        soak.run(60 * options.minutes)
    except AssertionError as error:
        failure = f"FAILED: {error}; logs: {folder}"
    tell(f"\n{soak.table()}\n{failure}")
    if failure or soak.failures():
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
