"""`python -m pipelines.local fetch | supervise`: what `make setup` and `up --detach` start."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipelines.local.servers import fetch_neo4j
from pipelines.local.services import supervise
from pipelines.local.training import train_neo4j
from projections.errors import OperationFailed, RecollectError


def main() -> int:
    """Run one command; exit code 1 and one message on standard error when it fails."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="make sure the Neo4j jars are cached")
    hold = commands.add_parser("supervise", help="hold services until SIGTERM")
    hold.add_argument("--data", type=Path, required=True, help="folder of everything")
    hold.add_argument("--name", default="main", help="of this supervisor; main runs Valkey too")
    hold.add_argument("--target", action="append", required=True, help="target to run")
    given = parser.parse_args()
    try:
        if given.command == "fetch":
            fetch_neo4j(progress=True)
            sys.stderr.write("preparing Neo4j for faster starts (once) ...\n")
            try:
                train_neo4j()
            except RecollectError as error:  # only the speed of later starts is lost
                sys.stderr.write(f"went on without: {error}\n")
        else:
            supervise(given.data, given.target, supervisor=given.name, detached=True)
    except OperationFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
