"""`python -m pipelines.local fetch | supervise`: what `make setup` and `up --detach` start."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from pipelines.local.processes import log_tail
from pipelines.local.python_process import python_command
from pipelines.local.servers import Neo4jServer, ValkeyServer, fetch_neo4j, learnt_path
from pipelines.local.services import supervise
from projections.errors import OperationFailed, RecollectError


def main() -> int:
    """Run one command; exit code 1 and one message on standard error when it fails."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="make sure the Neo4j jars are cached")
    hold = commands.add_parser("supervise", help="hold services until SIGTERM")
    hold.add_argument("--data", type=Path, required=True, help="folder of everything")
    hold.add_argument("--name", default="main", help="of this supervisor; main runs Valkey too")
    hold.add_argument("--target", action="append", default=[], help="target to run")
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


_ANSWERED_S = 300.0
_ASSEMBLED_S = 600.0
"""For the server to end: a second Java process writes the file then."""


def train_neo4j() -> Path:
    """Make the file of classes and profiles beside the jars, unless it is there.

    Later starts, and the first questions after them, take a third less processor time. Java checks
    that the file fits its version and the jars, and does without it when it does not, so this is
    never more than a matter of speed.

    Returns:
        The file (an ahead-of-time cache, JEP 483, 514 and 515).

    Raises:
        OperationFailed: it could not be made.
    """
    learnt = learnt_path(fetch_neo4j())
    if learnt.exists():
        return learnt
    with tempfile.TemporaryDirectory(dir=learnt.parent, prefix=".training-") as name:
        folder = Path(name)
        new = folder / learnt.name
        server = Neo4jServer(folder / "neo4j", java_flags=(f"-XX:AOTCacheOutput={new}",))
        valkey = ValkeyServer(folder / "valkey")
        try:
            valkey.start()
            server.start()
            valkey.wait_ready()
            server.wait_ready()
            _ask(folder, valkey, server)
        finally:
            valkey.stop()
            server.stop(timeout_s=_ASSEMBLED_S)
        if not new.exists():
            raise OperationFailed(reason=f"nothing was learnt:\n{log_tail(server.log_path)}")
        new.replace(learnt)
    return learnt


def _ask(folder: Path, valkey: ValkeyServer, server: Neo4jServer) -> None:
    """Make the schema and ask a question, as a first session does; what is answered is not seen."""
    # Not loaded by supervisors, which live as long as what they hold.
    from pipelines.graph.client import connect_neo4j
    from pipelines.graph.neo4j import Neo4jGraph
    from pipelines.work.settings import Settings

    with connect_neo4j(server.url, Settings()) as driver:
        Neo4jGraph(driver).ensure_schema()
    places = ("--data", str(folder), "--redis", valkey.url, "--neo4j", server.url)
    question = ("ask", "What happened before, and why?", "--user", "*")
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            python_command("pipelines.cli.main", *question, *places),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWERED_S,
            check=False,
        )


if __name__ == "__main__":
    sys.exit(main())
