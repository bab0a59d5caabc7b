"""`make train-wishes`: learns which sentences are wishes, and tells how it reads those kept apart.

    make train-wishes                              # the table
    make train-wishes BENCH_ARGS="--check -v"      # the figures alone; every sentence misread

`sentences.json` was written for this, in the voices of some 160 people: of trades of all kinds,
customers, friends who chat. What the users of domains (`tests/bench/domains`) say is learned from,
too, but for KEPT_APART, and so are the sentences of the unit tests. On nothing of
`kept_apart.json`, by another writer in the voices of five trades, is anything ever trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

import enrichment
from enrichment.wish_model import TABLE, WishModel, read_model
from enrichment.wishes import is_wish
from tests.bench.domains.__main__ import KEPT_APART, LEARNED_FROM
from tests.bench.wishes.training import Sentence, clauses, made, of_domains, sentences, trained
from tests.unit.enrichment.test_wishes import (
    IN_CONTEXT,
    INSTEAD,
    NEW_OF_ONE_CASE,
    NO_WISHES,
    PREFERRED,
    WISHES,
)

OF_TESTS = 5
"""How often the sentences of the tests are learned, beside once of all others."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.wishes", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write no table")
    parser.add_argument("-v", dest="verbose", action="store_true", help="tell what is misread")
    options = parser.parse_args()
    of_tests = [
        Sentence(text, True, "tests") for text in (*WISHES, *IN_CONTEXT, *PREFERRED, INSTEAD)
    ]
    of_tests += [Sentence(text, False, "tests") for text in (*NO_WISHES, *NEW_OF_ONE_CASE)]
    said = [*sentences("sentences.json"), *of_domains(LEARNED_FROM), *of_tests * OF_TESTS]
    judged = clauses(said)
    more = made(said, judged)
    table = trained([*said, *more], [*judged, *clauses(more)])
    model = read_model(table)
    for name, apart in (
        ("kept apart", sentences("kept_apart.json")),
        *((name, of_domains((name,))) for name in KEPT_APART),
        ("of the tests", of_tests),
    ):
        tell(name, apart, model, verbose=options.verbose)
    written = orjson.dumps(table) + b"\n"
    sys.stdout.write(
        f"{len(said)} sentences, {len(more)} made of them, {len(table['words'])} words, "
        f"{len(table['signs'])} signs, {len(written)} B\n"
    )
    if not options.check:
        Path(enrichment.__file__).with_name(TABLE).write_bytes(written)


def tell(name: str, said: Sequence[Sentence], model: WishModel, *, verbose: bool) -> None:
    """How many wishes are found, and how many other sentences are taken for some."""
    judged = [any(is_wish(part, model) for part in parts) for parts in clauses(said)]
    found = [*zip(judged, said, strict=True)]
    right = sum(is_read and one.is_wish for is_read, one in found)
    wrong = sum(is_read and not one.is_wish for is_read, one in found)
    wishes = sum(one.is_wish for one in said)
    others = len(said) - wishes
    sys.stdout.write(f"{name}: {right}/{wishes} wishes found, {wrong}/{others} others taken for\n")
    if verbose:
        for is_read, one in found:
            if is_read is not one.is_wish:
                sys.stdout.write(f"  {'no wish' if is_read else 'missed'}: {one.text}\n")


if __name__ == "__main__":
    main()
