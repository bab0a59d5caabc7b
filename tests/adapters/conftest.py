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
def memory() -> Iterator[Memory]:
    with Memory(URL, KEY, agent="payments") as opened:
        yield opened


@pytest.fixture
async def awaiting() -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(URL, KEY, agent="payments") as opened:
        yield opened


@pytest.fixture
def name() -> str:
    """Of a session that no other test has."""
    return f"s-{uuid.uuid4().hex}"
