"""Some real conversations, enriched in two orders; `tests.acceptance.enriched` does all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from projections.events import Event
from tests.acceptance.enriched import story
from tests.integration.stack import Stack

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        not (story.TAU_BENCH.exists() and story.LOCOMO.exists()),
        reason="the shared data are not here",
    ),
]


@pytest.fixture
def make_stack(redis_url: str, neo4j_url: str, tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Stacks on the session's services."""
    kept = f"sqlite://{tmp_path}/derivations.sqlite"
    with ExitStack() as opened:

        def make(**options: Any) -> Stack:
            made = Stack(redis_url, neo4j_url, **{"derivations_url": kept, **options})
            opened.callback(made.close)
            return made

        yield make


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(lambda: story.tau_bench(3), id="tau-bench", marks=pytest.mark.acceptance_long),
        pytest.param(lambda: story.locomo(80), id="locomo"),
    ],
)
def test_conversations_give_one_graph_in_any_order(
    make_stack: Callable[..., Stack], events: Callable[[], Iterator[Event]]
) -> None:
    figures = story.tell(make_stack, list(events()), lambda text: None)
    assert figures["enriched"] == figures["events"]
    assert figures["replay_changes_nothing"]
    assert figures["rebuild_embeds"] == 0
    assert figures["rebuild_is_the_same"]
    assert figures["shuffled_is_the_same"]
