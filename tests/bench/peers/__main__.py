"""`make bench-peers`: a question asked of Recollect, LanceDB, Chroma and mem0, in one run.

    make bench-peers                                 # 10,000 events, five minutes, eight at first
    make bench-peers BENCH_ARGS="--quick"            # tiny: does it work?
    make bench-peers BENCH_ARGS="--sizes 10000 100000 --json peers.json"
    make bench-peers BENCH_ARGS='--peers "LanceDB hybrid"'

All hold the same texts and vectors and are asked the same questions, a hundred answers each, at the
same rate, in turns; a figure is the median over the turns, and so is a ratio. Recollect is asked
over HTTP as `make bench-query` does it. A peer is a process of its own that a pipe leads to, used
as its documentation says. The vector of a question is computed anew for everyone by the same model
process, and counted for everyone, in processor time (*embedder's*) as in waiting.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.machine import load, machine
from tests.bench.peers.measure import TINY, Extent, measure
from tests.bench.peers.memory import embedded
from tests.bench.peers.peer import PEERS
from tests.bench.peers.report import markdown
from tests.bench.query.__main__ import HEAP_MB, PAGE_CACHE_MB

SIZES = [10_000]
QUICK = [500]
ENVIRONMENT = Path(sys.prefix) / "peers"
"""That the Makefile makes; `make clean` takes it away."""


def main() -> int:
    """Run what the command line asks for."""
    usual = Extent()
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", metavar="EVENTS", help=f"({SIZES})")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, few questions")
    parser.add_argument("--count", type=int, help=f"questions of a turn ({usual.count})")
    parser.add_argument("--turns", type=int, help=f"of each side ({usual.turns})")
    parser.add_argument("--rate", type=float, help=f"questions a second ({usual.rate:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = vars(parser.parse_args())
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        parser.error("there is no environment of peers: run `make bench-peers`")
    given = {name: options[name] for name in ("count", "turns", "rate") if options[name]}
    extent = replace(TINY if options["quick"] else usual, **given)
    document: dict[str, Any] = {
        "machine": machine(heap_mb=HEAP_MB, page_cache_mb=PAGE_CACHE_MB),
        "arguments": sys.argv[1:],
        "sizes": {},
    }
    for size in options["sizes"] or (QUICK if options["quick"] else SIZES):
        memory = embedded(size, ENVIRONMENT)
        document["sizes"][str(size)] = measure(memory, python, options["peers"], extent)
        document["machine"]["load_after"] = load()
        if options["json"] is not None:
            options["json"].write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(markdown(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
