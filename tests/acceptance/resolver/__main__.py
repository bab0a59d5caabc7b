"""B-cubed of the resolver on the labelled names: `python -m tests.acceptance.resolver`."""

from __future__ import annotations

import argparse
import sys

from tests.acceptance.resolver.embedding import vectors
from tests.acceptance.resolver.resolving import (
    by_cosine,
    by_name,
    by_rules,
    candidates,
    labelled,
    score,
    wrong_pairs,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pairs", action="store_true", help="list what was missed and what is wrong"
    )
    arguments = parser.parse_args()
    for name in ("aliases", "unseen"):
        mentions = labelled(name)
        pairs = candidates(mentions, vectors(mentions))
        _say(f"{name}: {len(mentions)} mentions, {len({m.cluster for m in mentions})} things")
        _say(f"{'':24} precision recall    F1")
        for label, decide in (
            ("the rules", by_rules),
            ("cosine >= 0.85 alone", by_cosine),
            ("canonical names alone", by_name),
        ):
            result = score(mentions, pairs, decide)
            _say(f"{label:24} {result.precision:9.4f} {result.recall:6.4f} {result.f1:6.4f}")
        if arguments.pairs:
            for line in wrong_pairs(mentions, pairs):
                _say(line)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
