"""Services hand their settings on."""

from __future__ import annotations

from pipelines.ledger.targets import Target
from pipelines.work.services import Services
from pipelines.work.settings import Settings


def test_a_graph_has_the_transaction_time_limit_of_the_settings() -> None:
    with Services(Settings(transaction_timeout_s=7)) as services:
        graph = services.neo4j_graph(Target("blue", "bolt://127.0.0.1:1", "neo4j", "active"))
        assert graph.client.timeout_s == 7
