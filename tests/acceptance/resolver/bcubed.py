"""B-cubed precision and recall of a clustering of mentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import NamedTuple


class BCubed(NamedTuple):
    """Averages over mentions, 0 to 1."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def b_cubed(gold: Mapping[int, Hashable], found: Mapping[int, Hashable]) -> BCubed:
    """Compare what each mention's cluster holds with what it should hold.

    Precision of a mention: the share of its found cluster that is of its gold cluster; recall: the
    share of its gold cluster that is in its found cluster.
    """
    precision = recall = 0.0
    both = Counter((gold[one], found[one]) for one in gold)
    in_gold, in_found = Counter(gold.values()), Counter(found[one] for one in gold)
    for one in gold:
        precision += both[gold[one], found[one]] / in_found[found[one]]
        recall += both[gold[one], found[one]] / in_gold[gold[one]]
    return BCubed(precision / len(gold), recall / len(gold))
