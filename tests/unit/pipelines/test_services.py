"""Services hand their settings on."""

from __future__ import annotations

from io import StringIO
from typing import cast

from rich.console import Console

from pipelines.cli.services import show_urls
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


def test_the_edition_without_neo4j_shows_no_way_into_one() -> None:
    """The ways into one stay in the folder when it has moved down from a Neo4j."""
    document = {
        "redis_url": "redis://here",
        "neo4j_urls": {},
        "neo4j_user": "neo4j",
        "neo4j_password_file": "run/neo4j-password",
        "data_dir": "memory",
    }
    out = Console(file=StringIO(), width=80)
    show_urls(out, document)
    show_urls(out, {**document, "neo4j_urls": {"blue": "bolt://there"}})
    told = cast(StringIO, out.file).getvalue()
    without, _, beside = told.partition("memory\n")
    assert "neo4j" not in without
    assert "user neo4j, password in run/neo4j-password" in beside
