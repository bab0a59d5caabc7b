"""`make test-containers`: the contracts, on the official images of Redis, Valkey and Neo4j.

Needs a container engine, which the other tests do not. Arguments go on to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tests.servers import NEO4J_URL, REDIS_URL


class Pair(NamedTuple):
    """What a deployment may consist of, by image."""

    redis: str
    neo4j: str


PAIRS = (
    Pair("redis:7.4-alpine", "neo4j:5.26-community"),
    Pair("redis:8.2-alpine", "neo4j:2026.08.1-community"),
    Pair("valkey/valkey:9-alpine", "neo4j:2026.08.1-community"),
)


def contracts(pair: Pair, arguments: list[str]) -> int:
    """Run the contracts on a pair; pytest's exit code."""
    redis = DockerContainer(pair.redis).with_exposed_ports(6379)
    redis.waiting_for(LogMessageWaitStrategy("Ready to accept connections"))
    neo4j = DockerContainer(pair.neo4j).with_exposed_ports(7687).with_env("NEO4J_AUTH", "none")
    neo4j.waiting_for(LogMessageWaitStrategy("Started."))
    with redis, neo4j:
        given = {
            REDIS_URL: f"redis://127.0.0.1:{redis.get_exposed_port(6379)}/0",
            NEO4J_URL: f"bolt://127.0.0.1:{neo4j.get_exposed_port(7687)}",
        }
        command = [sys.executable, "-m", "pytest", "tests/contracts", *arguments]
        return subprocess.run(command, env=os.environ | given, check=False).returncode


def main(arguments: list[str]) -> int:
    """All pairs, one after the other; how many of them failed."""
    failed = [pair for pair in PAIRS if contracts(pair, arguments)]
    for pair in PAIRS:
        outcome = "failed" if pair in failed else "passed"
        sys.stdout.write(f"{outcome}: {pair.redis}, {pair.neo4j}\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
