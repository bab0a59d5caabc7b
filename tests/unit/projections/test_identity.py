"""Golden values: a ledger that exists is placed by these numbers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from projections.events import event_partition
from projections.identity import event_key_digest, partition_of
from tests.fakes.events import numbered_event

EVENT_ID = "018f0000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("tenant", "session_id", "partitions", "expected"),
    [
        ("default", "s-1", 8, 4),
        ("default", "memory", 8, 5),
        ("acme", "Sitzung-ü-1", 8, 6),
        ("acme", "s-1", 256, 227),
        ("a", "b", 1, 0),
    ],
)
def test_partitions_never_change(
    tenant: str, session_id: str, partitions: int, expected: int
) -> None:
    assert partition_of(tenant, session_id, partitions) == expected


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        ("default", "a6392f98fe7a1835d6a4b78866834cd3"),
        ("acme", "7e945bf7144a029ab1fc4abef0ff69db"),
    ],
)
def test_keys_never_change(tenant: str, expected: str) -> None:
    assert event_key_digest(tenant, EVENT_ID).hex() == expected


def test_another_process_agrees() -> None:
    program = "from projections.identity import partition_of; print(partition_of('t', 's', 256))"
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert int(printed) == partition_of("t", "s", 256)


def test_tenant_and_session_are_kept_apart() -> None:
    assert event_key_digest("ab", "c") != event_key_digest("a", "bc")


def test_sessions_spread_evenly() -> None:
    counts = [0] * 8
    for number in range(8_000):
        counts[partition_of("default", f"session-{number}", 8)] += 1
    assert min(counts) > 850
    assert max(counts) < 1_150


def test_system_events_ignore_their_session() -> None:
    event = numbered_event(1, event_type="memory.accessed", session_id="any")
    assert event_partition(event, 8) == partition_of("default", "memory", 8)
    assert event_partition(numbered_event(1, session_id="any"), 8) == partition_of(
        "default", "any", 8
    )
