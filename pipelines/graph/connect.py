"""Connections to a target's Neo4j."""

from __future__ import annotations

import neo4j

from pipelines.work.settings import Settings
from projections.errors import ConfigurationError

GraphDriver = neo4j.Driver
"""For modules that hold a connection and never speak its protocol."""

_GRAPH_SCHEMES = ("bolt://", "bolt+s", "neo4j://", "neo4j+s")


def connect_neo4j(uri: str, settings: Settings) -> neo4j.Driver:
    """A driver of a target's server; connects when first used.

    Raises:
        ConfigurationError: the URI is none that the driver knows.
    """
    if not uri.startswith(_GRAPH_SCHEMES):
        raise ConfigurationError(reason="neo4j_url: begins with bolt or neo4j")
    secret = settings.neo4j_password
    auth = None if secret is None else (settings.neo4j_user, secret.get_secret_value())
    try:
        return neo4j.GraphDatabase.driver(
            uri,
            auth=auth,
            connection_timeout=5.0,
            connection_acquisition_timeout=30.0,
            user_agent="recollect",
            # Neo4j warns of every property that no node has yet, with the whole query
            notifications_min_severity="OFF",
        )
    except (ValueError, neo4j.exceptions.ConfigurationError) as error:
        raise ConfigurationError(reason=f"neo4j_url: {type(error).__name__}") from None
