"""Memories behind the API that the environment names; workers keep its graph up."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from recollect import AsyncMemory, Memory

URL = os.environ["RECOLLECT_TEST_URL"]
KEY = os.environ["RECOLLECT_TEST_KEY"]


@pytest.fixture
def tenant() -> str:
    """Of its own for each test, as questions are answered from all that a tenant has."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
def memory(tenant: str) -> Iterator[Memory]:
    with Memory(URL, KEY, agent="payments", tenant=tenant) as opened:
        yield opened


@pytest.fixture
async def awaiting(tenant: str) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(URL, KEY, agent="payments", tenant=tenant) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    """Of a session that no other test has."""
    return f"s-{uuid.uuid4().hex}"
