"""What a seed draws: a list of steps, each of which can be carried out in any world.

A step is a kind and a few numbers that are read modulo whatever there is, so any sublist of a
history is a history too, which is what lets a failing one shrink.
"""

from __future__ import annotations

import random
from typing import NamedTuple

WIDTH = 8
"""Numbers of a step."""

KINDS = {
    "append": 22,
    "statement": 6,
    "early_feedback": 2,
    "again": 3,
    "fold": 22,
    "together": 8,
    "lane": 6,
    "caught_up": 5,
    "stall": 4,
    "wake": 4,
    "decide": 20,
    "forget": 5,
    "race": 2,
    "poison": 1,
    "heal": 1,
    "replay": 7,
    "bring_back": 2,
    "rebuild": 2,
    "switch": 1,
    "clock": 2,
}
"""Kinds of steps with their weights, where decisions are drawn."""
DRAWN = ("decide", "forget", "race")
PASSES = {**{kind: weight for kind, weight in KINDS.items() if kind not in DRAWN}, "pass": 12}
"""The same where real passes decide. Not both: drawn decisions name what no pass would make."""
PASSES_EVERY = 4
"""One history in so many has passes."""


class Step(NamedTuple):
    """What happens next."""

    kind: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind}{self.numbers}"


def draw(seed: int) -> list[Step]:
    """The history of a seed, the same in every process and release of Python 3."""
    luck = random.Random(seed)
    weights = KINDS if seed % PASSES_EVERY else PASSES
    kinds = luck.choices(list(weights), list(weights.values()), k=luck.randint(15, 80))
    return [Step(kind, tuple(luck.randrange(65_536) for _ in range(WIDTH))) for kind in kinds]
