"""`python -m tests.acceptance.value_flow`: the figures, and what is wrong when asked."""

from __future__ import annotations

import argparse
import sys

from enrichment.causality import WINDOW
from tests.acceptance.value_flow import evaluate, label


def main() -> int:
    """Print precision and recall on odd, even and all conversations."""
    parser = argparse.ArgumentParser(prog="value_flow", description=__doc__)
    parser.add_argument("--errors", type=int, default=0, help="wrong and missed pairs to list")
    options = parser.parse_args()
    if not evaluate.CONVERSATIONS.exists():
        _say("skipped: the shared data are not here")
        return 0
    found = list(evaluate.conversations())
    halves = {
        "odd (tuned on)": [c for c in found if c.number % 2],
        "even (held out)": [c for c in found if c.number % 2 == 0],
        "all": found,
    }
    for lenient in (False, True):
        _say("any earlier mention counts as a source:" if lenient else "first mention:")
        for name, part in halves.items():
            made = evaluate.score(part, lenient=lenient)
            _say(
                f"  {name:16} precision {made.precision:.4f} ({made.true} of {made.given}), "
                f"recall {made.recall:.4f} ({made.found} of {made.labelled})"
            )
    if evaluate.NEGATIVES.exists():
        judged = evaluate.negatives()
        counted = sum(item["verdict"] == "negative" for item in judged)
        wrong = evaluate.wrong_negatives(found, judged)
        _say(f"judged by hand: {counted} negatives, {len(wrong)} wrongly given")
        for item in wrong:
            _say(f"  {item}")
    cost, measured = evaluate.microseconds_an_event(found)
    _say(f"{cost:.0f} µs an event after {WINDOW} others, {measured:,} events")
    for conversation in halves["odd (tuned on)"]:
        given, true = conversation.inferred(), conversation.labelled()
        for kind, pairs in (("wrong", set(given) - true), ("missed", true - set(given))):
            for pair in sorted(pairs):
                if options.errors > 0:
                    options.errors -= 1
                    uses = [
                        made.use[1:]
                        for made in label.labels(conversation.messages)
                        if made.use.call == pair.call and made.source == pair.source
                    ]
                    _say(f"{kind} {tuple(pair)} {given.get(pair, '')} {uses}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
