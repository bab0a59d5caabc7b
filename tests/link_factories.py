"""Builders of links between entities: what a test does not name does not matter to it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from consolidation.label_propagation import EntityLink, link_id


def link(
    one: str, other: str, weight: float = 1.0, number: int = 0, *, same: bool = False
) -> EntityLink:
    """A link; `number` tells those of one pair apart."""
    return EntityLink(one, other, weight, link_id("T", one, other, str(number)), same)


def clique(names: Iterable[str]) -> list[EntityLink]:
    """A link between any two of these; a text names entities of one letter."""
    return [link(one, other) for one, other in combinations(names, 2)]
