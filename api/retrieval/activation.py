"""Spreading activation (SYNAPSE, S2): what the seeds light up, hop by hop.

Pure: edges come in, a map of activations comes out. Edges may be given all at once (`activation`)
or hop by hop as they are read (`Activation`). Time is the caller's: nothing here waits (SA-INV-07).

    spread = activation · decay_lambda · confidence · recency     (SA-INV-02)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pipelines.work.settings import Settings

EDGES_AT_ONCE: Final = 490
"""Ids of one question for edges (SA-INV-09)."""


class Link(NamedTuple):
    """An edge, read as undirected.

    Attributes:
        confidence: 0 to 1; how much of an activation passes.
        age_days: of what it says; the future counts as now.
    """

    a: str
    b: str
    confidence: float = 1.0
    age_days: float = 0.0


class ActivationConfig(NamedTuple):
    """S2's parameters, by its names."""

    decay_lambda: float = 0.85
    max_hops: int = 3
    activation_threshold: float = 0.1
    inhibition_threshold: float = 0.8
    max_activated_nodes: int = 50
    temporal_decay_rate: float = 0.01


def activation_config(settings: Settings, max_hops: int) -> ActivationConfig:
    """As the settings say, with at most so many hops."""
    return ActivationConfig(
        decay_lambda=settings.decay_lambda,
        max_hops=max_hops,
        activation_threshold=settings.activation_threshold,
        inhibition_threshold=settings.inhibition_threshold,
        max_activated_nodes=settings.max_activated_nodes,
        temporal_decay_rate=settings.temporal_decay_rate,
    )


def recency_weight(age_days: float, temporal_decay_rate: float) -> float:
    """1 / (1 + age · rate), as the temporal decay of facts has it (SA-INV-05)."""
    return 1.0 / (1.0 + max(0.0, age_days) * temporal_decay_rate)


class Activation:
    """Activations as they spread, from 0 to 1 (SA-INV-06).

    Args:
        seeds: by id; those below the threshold are skipped (SA-INV-01). Those that are kept spread
            in the first hop whatever their score, and stay.
        config: how far and how much.
    """

    def __init__(self, seeds: Mapping[str, float], config: ActivationConfig) -> None:
        self.config = config
        self.hops = 0
        self.scores: dict[str, float] = {
            own_id: min(1.0, score)
            for own_id, score in seeds.items()
            if score >= config.activation_threshold
        }
        self._prune()

    def active(self) -> list[str]:
        """The ids that spread in the next hop, sorted; none after the last hop."""
        if self.hops >= self.config.max_hops:
            return []
        least = self.config.activation_threshold
        return sorted(own_id for own_id, score in self.scores.items() if score >= least)

    def spread(self, links: Iterable[Link]) -> None:
        """One hop along the edges around the active nodes."""
        config, before = self.config, self.scores
        following: dict[str, float] = {}
        active = set(self.active())
        self.hops += 1
        for link in sorted(set(links)):
            passed = link.confidence * recency_weight(link.age_days, config.temporal_decay_rate)
            for here, there in ((link.a, link.b), (link.b, link.a)):
                if here not in active or here == there:
                    continue
                # Inhibited by what it had, or by what this hop has brought already (SA-INV-03).
                had = max(before.get(there, 0.0), following.get(there, 0.0))
                if had >= config.inhibition_threshold:
                    continue
                spread = before[here] * config.decay_lambda * passed
                if spread > 0:
                    old = following.get(there, before.get(there, 0.0))
                    following[there] = min(1.0, old + spread)
        self.scores = {**before, **following}
        self._prune()

    def activated(self) -> dict[str, float]:
        """Ids at or above the threshold with their activation, the most active first."""
        return dict(self._ordered())

    def _ordered(self) -> list[tuple[str, float]]:
        least = self.config.activation_threshold
        kept = [item for item in self.scores.items() if item[1] >= least]
        return sorted(kept, key=lambda item: (-item[1], item[0]))

    def _prune(self) -> None:
        """Never more nodes than allowed: the most active ones stay (SA-INV-04)."""
        if len(self.scores) > self.config.max_activated_nodes:
            ordered = sorted(self.scores.items(), key=lambda item: (-item[1], item[0]))
            self.scores = dict(ordered[: self.config.max_activated_nodes])


def activation(
    seeds: Mapping[str, float], links: Iterable[Link], config: ActivationConfig
) -> dict[str, float]:
    """What is active after all hops, the most active first; see `Activation`."""
    known = list(links)
    spreading = Activation(seeds, config)
    while spreading.active():
        before = spreading.scores
        spreading.spread(known)
        if spreading.scores == before:
            break
    return spreading.activated()
