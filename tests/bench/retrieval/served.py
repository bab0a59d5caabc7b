"""The services with the conversations in them, ingested over HTTP and enriched by real workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from pipelines.local.services import LocalServices
from pipelines.observe.logs import configure_logging
from pipelines.work.settings import ApiKey
from pipelines.work.stages import ENRICHMENT, PROJECTION
from projections.events import timestamp_ms, timestamp_text
from tests.bench.stack import HEAP_MB, PAGE_CACHE_MB, Stack
from tests.integration.api_support import Api, running_api

EVENTS_AT_ONCE = 500
CLOCK_AFTER_MS = 1_000
"""How long after the last event of a conversation its questions are asked."""

TIMEOUT_MS = 30_000
"""Of a question, and of each channel that it asks."""

_TAKEN = (200, 201)


class Conversations(NamedTuple):
    """What is asked about.

    Attributes:
        events: envelopes.
        questions: as the file has them.
        clocks: when a tenant's questions are asked, RFC 3339.
    """

    events: Sequence[Mapping[str, Any]]
    questions: Sequence[Mapping[str, Any]]
    clocks: Mapping[str, str]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def read_conversations(folder: Path) -> Conversations:
    """Events and questions of a data set laid out like LoCoMo's."""
    events = read_lines(folder / "events.jsonl")
    last: dict[str, int] = {}
    for event in events:
        at_ms = timestamp_ms(event["occurred_at"])
        last[event["tenant"]] = max(at_ms, last.get(event["tenant"], at_ms))
    clocks = {tenant: timestamp_text(at_ms + CLOCK_AFTER_MS) for tenant, at_ms in last.items()}
    return Conversations(events, read_lines(folder / "questions.jsonl"), clocks)


def key_of(tenant: str) -> str:
    """The API key of a tenant of the bench."""
    return f"bench-key-of-{tenant}-0123456789"


@contextmanager
def served(data: Conversations, folder: Path) -> Iterator[Api]:
    """Everything started in a folder, with the conversations in it; stopped at the end.

    A folder that has been used before is taken as it was left.
    """
    done = folder / "enriched"
    local = LocalServices(
        folder / "data",
        targets=("blue",),
        heap_mb=HEAP_MB,
        page_cache_mb=PAGE_CACHE_MB,
        auth=False,
    )
    with local:
        stack = Stack(local, folder)
        configure_logging(stack.settings)  # or each request is told
        stack.services.active()
        stack.ledger.admit()
        keys = tuple(
            ApiKey(name=tenant, key=key_of(tenant), tenant=tenant, role="write")
            for tenant in data.clocks
        )
        options = {
            "api_keys": keys,
            "data_dir": folder,
            "result_cache_s": 0,
            "query_embedding_cache": 0,
            # Quality is measured here: a busy machine must not leave a channel out.
            "channel_timeout_ms": TIMEOUT_MS,
            "activation_timeout_ms": TIMEOUT_MS,
        }
        try:
            with running_api(stack.settings.redis_url, stack.settings.neo4j_url, **options) as api:
                if not done.exists():
                    with stack.worker(PROJECTION.name), stack.worker(ENRICHMENT.name):
                        ingest(api, data)
                        stack.wait_passed(PROJECTION.name)
                        stack.wait_passed(ENRICHMENT.name)
                        # what the enrichment decided meanwhile it applies when it reads it back
                        stack.wait_passed(ENRICHMENT.name)
                    done.touch()
                yield api
        finally:
            stack.blue.close()
            stack.services.close()


def ingest(api: Api, data: Conversations) -> None:
    """Offer every event, each in its tenant."""
    for tenant in data.clocks:
        own = [event for event in data.events if event["tenant"] == tenant]
        with api.client(key_of(tenant)) as client:
            for first in range(0, len(own), EVENTS_AT_ONCE):
                _offer(client, own[first : first + EVENTS_AT_ONCE])


def _offer(client: httpx.Client, events: Sequence[Mapping[str, Any]]) -> None:
    answer = client.post("/v1/events/batch", json=list(events))
    while answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        time.sleep(float(answer.headers.get("retry-after", "1")))
        answer = client.post("/v1/events/batch", json=list(events))
    answer.raise_for_status()
    refused = [one for one in answer.json()["results"] if one["status"] not in _TAKEN]
    if refused:
        raise RuntimeError(f"{len(refused)} events were refused, the first: {refused[0]}")
