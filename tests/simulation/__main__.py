"""`python -m tests.simulation --seeds 5000 [--first 1]`, or `--seed 17` with its trace."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from multiprocessing import get_context

import structlog

from tests.simulation.run import Failure, carry_out, run, shrink
from tests.simulation.steps import draw


def _note(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Exit code 0: no seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5_000, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, help="only this one: shrunk, with its trace")
    arguments = parser.parse_args()
    _be_quiet()
    if arguments.seed is not None:
        return _explain(arguments.seed)
    begun = time.perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    failed = 0
    with get_context("fork").Pool(arguments.processes, _be_quiet) as pool:
        for number, (seed, failure) in enumerate(pool.imap_unordered(_outcome, seeds, 20), 1):
            if failure is not None:
                failed += 1
                _note(f"seed {seed}: {failure.reason[:600]}")
            if number % 10_000 == 0:
                _note(f"{number} seeds, {failed} failed")
    took_s = time.perf_counter() - begun
    _note(f"{len(seeds)} seeds, {failed} failed, {len(seeds) / took_s:.1f} a second")
    return 1 if failed else 0


def _outcome(seed: int) -> tuple[int, Failure | None]:
    return seed, run(seed)


def _explain(seed: int) -> int:
    failure = run(seed)
    if failure is None:
        _note(f"seed {seed}: every property holds")
        return 0
    steps = draw(seed)
    shorter = shrink(seed, steps)
    _note(f"seed {seed}: {len(steps)} steps, {len(shorter)} are enough")
    failure = carry_out(seed, shorter, _note)
    if failure is not None:
        _note(f"{failure.reason}\n{failure.where}")
    return 1


def _be_quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


if __name__ == "__main__":
    sys.exit(main())
