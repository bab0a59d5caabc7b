"""The clients' types by name, for modules that hold a connection and never speak its protocol.

Everything outside the adapters and the transport imports these (under TYPE_CHECKING), so that
the import contract stays true and `recollect --help` loads no driver.
"""

from __future__ import annotations

from neo4j import Driver as GraphDriver
from redis import Redis as RedisClient

__all__ = ["GraphDriver", "RedisClient"]
