"""The channels of a query, side by side, each within its time; and what came of it all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from api.retrieval.plan import Intent, StoryAnswer
from api.retrieval.ranking import Ranked
from api.schemas import Bound, Channel, RetrievalMethod
from consolidation.decay import DecayWeights
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.observe import metrics
from projections.errors import GraphUnavailable, QueryTimeout, RecollectError

GRACE_MS: Final = 50
"""Beyond a channel's time, for the database to end it and say so."""
Status = Literal["ok", "timeout", "failed", "unavailable", "off"]
Work = Callable[[int], Any]
"""What a channel does, given its milliseconds."""


class Outcome(NamedTuple):
    """What became of a channel; `value` is None unless the status is `ok`."""

    value: Any
    status: Status
    ms: int


def run_side_by_side(
    pool: Executor, channels: Mapping[str, Work], timeout_ms: int
) -> dict[str, Outcome]:
    """All channels at once, each within `timeout_ms`; what is not back by then is given up.

    A channel that is given up may go on until the database ends it; nobody waits for it.
    """
    begun_s = time.monotonic()
    deadline_s = begun_s + (timeout_ms + GRACE_MS) / 1000
    futures = {name: pool.submit(_timed, work, timeout_ms) for name, work in channels.items()}
    return {name: _outcome(future, begun_s, deadline_s) for name, future in futures.items()}


def _timed(work: Work, timeout_ms: int) -> tuple[Any, int]:
    begun_s = time.monotonic()
    value = work(timeout_ms)
    return value, round((time.monotonic() - begun_s) * 1000)


def _outcome(future: Future[tuple[Any, int]], begun_s: float, deadline_s: float) -> Outcome:
    status: Status = "failed"
    try:
        value, ms = future.result(timeout=max(0.0, deadline_s - time.monotonic()))
    except (FutureTimeout, QueryTimeout):
        future.cancel()
        status = "timeout"
    except GraphUnavailable:
        status = "unavailable"
    except RecollectError:
        status = "failed"
    else:
        return Outcome(value, "ok", ms)
    return Outcome(None, status, round((time.monotonic() - begun_s) * 1000))


@dataclass(slots=True)
class Notes:
    """How an answer came about.

    Attributes:
        outcomes: of the channels; the value is what they found.
        cut_by: bounds beyond which there is more.
        degraded: what had to be left out, in words.
        unknown_seeds: references that were given, and lead to nothing that the viewer sees.
    """

    outcomes: dict[Channel, Outcome] = field(default_factory=dict)
    cut_by: set[Bound] = field(default_factory=set)
    degraded: list[str] = field(default_factory=list)
    unknown_seeds: list[str] = field(default_factory=list)

    def take(self, channel: Channel, outcome: Outcome) -> None:
        """Note how a channel did."""
        self.outcomes[channel] = outcome
        if outcome.status != "ok":
            metrics.CHANNEL_FAILURES.labels(channel=channel).inc()
            self.degraded.append(f"the channel {channel}: {outcome.status}")

    def cut(self, reason: str) -> None:
        """Note what time did not suffice for."""
        self.cut_by.add(Bound.TIME)
        self.degraded.append(reason)


@dataclass(slots=True)
class Subgraph:
    """A page of a ranking, and how it came about.

    Attributes:
        ranking: the best first; what is shown, once it was read.
        behind: of the ranking, behind what is shown.
        nodes: those that are shown, by id.
        pending: of those that are shown, the events that the graph does not have yet, by id.
        edges: between them.
        seed_names: of the entities among the seeds, by wire id.
        story: what stories say to the question; None: they were not asked, or not in time.
        summary: of the session that a summary was asked of, or what was learned where it is asked
            how something was solved; None: there is none.
        texts: what the first events say as a whole, by id, where a value is read from them.
        withheld: ids of what the channels met and kept from the viewer; nobody is told which.
    """

    intents: Mapping[Intent, float]
    inferred: Mapping[Intent, float]
    weights: DecayWeights
    method: RetrievalMethod
    notes: Notes = field(default_factory=Notes)
    seeds: list[str] = field(default_factory=list)
    seed_names: dict[str, str] = field(default_factory=dict)
    ranking: list[Ranked] = field(default_factory=list)
    behind: list[Ranked] = field(default_factory=list)
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    edges: list[GraphEdge] = field(default_factory=list)
    withheld: frozenset[str] = frozenset()
    story: StoryAnswer | None = None
    summary: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
