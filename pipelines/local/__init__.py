"""The embedded services for one machine: real Valkey and real Neo4j as child processes.

Nothing outlives the process that started it, even when that is killed. `LocalServices` holds the
services inside this process; `up`, `down`, `ensure_target` keep them under supervisors of their
own, so that they stay after this process ends.
"""

from pipelines.local.jars import NEO4J_VERSION, fetch_neo4j
from pipelines.local.neo4j_server import Neo4jServer
from pipelines.local.services import LocalServices, target_dir
from pipelines.local.supervisor import (
    LocalState,
    ServerState,
    connection_settings,
    down,
    drop_target,
    ensure_target,
    read_state,
    up,
)
from pipelines.local.valkey_server import ValkeyServer

__all__ = [
    "NEO4J_VERSION",
    "LocalServices",
    "LocalState",
    "Neo4jServer",
    "ServerState",
    "ValkeyServer",
    "connection_settings",
    "down",
    "drop_target",
    "ensure_target",
    "fetch_neo4j",
    "read_state",
    "target_dir",
    "up",
]
