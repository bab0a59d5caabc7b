"""A projected ledger for tests of the shell, a client for tests of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import neo4j
import pytest

from pipelines.local.servers import Neo4jServer, ValkeyServer
from tests.integration.api_support import Api, running_api
from tests.integration.query_support import Memory
from tests.integration.stack import Stack
from tests.integration.workers import Workers, working
from tests.servers import emptied_neo4j, emptied_valkey
from tests.stages.consolidated import without_models


@pytest.fixture
def memory(neo4j_url: str) -> Iterator[Memory]:
    """What tests write into the graph behind the ledger's back."""
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        yield Memory(driver)


@pytest.fixture
def api(redis_url: str, neo4j_url: str) -> Iterator[Api]:
    """The API of an empty ledger and an empty graph."""
    with running_api(redis_url, neo4j_url) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[httpx.Client]:
    """Of the running API of a module."""
    with api.client() as opened:
        yield opened


@pytest.fixture
def make_stack(redis_url: str, neo4j_url: str, tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Makes stacks on the session's services: `make_stack(prefix="other")`."""
    kept = f"sqlite://{tmp_path}/derivations.sqlite"
    with ExitStack() as opened:

        def make(**options: Any) -> Stack:
            places = {"redis_url": redis_url, "neo4j_url": neo4j_url, "derivations_url": kept}
            made = Stack(**{**places, **options})
            opened.callback(made.close)
            return made

        yield make


@pytest.fixture(scope="module")
def module_stack(
    valkey: ValkeyServer, neo4j: Neo4jServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The same, made once for tests that stand together in a module: another `stack` empties it."""
    kept = f"sqlite://{tmp_path_factory.mktemp('kept')}/derivations.sqlite"
    made = Stack(emptied_valkey(valkey), emptied_neo4j(neo4j), derivations_url=kept)
    yield made
    made.close()


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    """An empty ledger and an empty graph."""
    return make_stack()


@pytest.fixture
def stack_api(stack: Stack) -> Iterator[Api]:
    """The API of the stack's ledger and graph."""
    settings = stack.services.settings
    options = {"partitions": settings.partitions, "id_buckets": settings.id_buckets}
    with running_api(settings.redis_url, settings.neo4j_url, **options) as running:
        yield running


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule stands in for the models of the enrichment."""
    monkeypatch.setattr("pipelines.operations.consolidate.make_fold", without_models)
    monkeypatch.setattr("pipelines.proof.verify.make_fold", without_models)


@pytest.fixture(scope="module")
def workers(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Workers]:
    """Workers of all stages."""
    with working(valkey, neo4j) as made:
        yield made
