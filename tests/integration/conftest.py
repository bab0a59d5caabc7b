"""A projected ledger for tests of the shell, a client for tests of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api_support import Api
from tests.integration.stack import Stack


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


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    """An empty ledger and an empty graph."""
    return make_stack()
