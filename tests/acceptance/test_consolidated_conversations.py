"""Some real conversations, consolidated; `tests.acceptance.consolidated` does all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from projections.events import Event
from tests.acceptance.consolidated import story
from tests.acceptance.enriched.story import LOCOMO, TAU_BENCH, locomo, tau_bench
from tests.integration.stack import Stack

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        not (TAU_BENCH.exists() and LOCOMO.exists()),
        reason="the shared data are not here",
    ),
]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(lambda: tau_bench(2), id="tau-bench"),
        pytest.param(lambda: locomo(60), id="locomo", marks=pytest.mark.acceptance_long),
    ],
)
def test_conversations_become_a_memory_that_can_be_skimmed_and_forgets(
    redis_url: str, neo4j_url: str, tmp_path: Path, events: Callable[[], Iterator[Event]]
) -> None:
    said: list[str] = []
    kept = f"sqlite://{tmp_path}/derivations.sqlite"
    stack = Stack(redis_url, neo4j_url, derivations_url=kept)
    try:
        figures = story.tell(stack, list(events()), said.append)
    finally:
        stack.close()
    checks = {name: value for name, value in figures.items() if isinstance(value, bool)}
    assert checks == dict.fromkeys(checks, True), "\n".join(said)
    assert len(checks) == 7
    assert figures["first_pass"]["sessions_written"] > 0
