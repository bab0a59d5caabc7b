"""Services hand their settings on."""

from __future__ import annotations

from pipelines.ledger.registry import Target
from pipelines.work.services import Services
from pipelines.work.settings import Settings


def test_a_graph_has_the_transaction_time_limit_of_the_settings() -> None:
    with Services(Settings(transaction_timeout_s=7)) as services:
        graph = services.neo4j_graph(Target("blue", "bolt://127.0.0.1:1", "neo4j", "active"))
        assert graph.client.timeout_s == 7


def test_graphs_in_memory_are_kept_by_their_uri() -> None:
    def target(uri: str) -> Target:
        return Target("blue", uri, "neo4j", "active")

    with Services(Settings()) as services, Services(Settings()) as others:
        graph = services.graph(target("memory://a"))
        graph.ensure_checkpoints("projection", 1, 1)
        assert others.graph(target("memory://a")) is graph
        assert services.graph(target("memory://b")).checkpoints() == []
