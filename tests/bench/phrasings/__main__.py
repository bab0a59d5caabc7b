"""`make train-phrasings`: learns how questions are put, and tells how it reads those kept apart.

    make train-phrasings                              # the table
    make train-phrasings BENCH_ARGS="--check -v"      # the figures alone; every question misread

`phrasings.json` and `fillers.json` were written for this, by people who ask and not by who built
it, `voices.json` as single people of single trades would ask. How the writers of domains
(`tests/bench/domains`) put their questions is learned from, too, but for KEPT_APART. On nothing of
`kept_apart.json`, by another writer, is anything ever trained.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy
import orjson

import api.retrieval
from api.retrieval.planning import rows_matching
from api.retrieval.question_forms import (
    ELSEWHERE,
    TABLE,
    Forms,
    likely,
    read_forms,
    reading,
    without_asking,
)
from enrichment.stems import stems_of
from pipelines.models.embedder import OnnxEmbedder
from tests.bench.domains.__main__ import LEARNED_FROM
from tests.bench.phrasings.training import (
    IN_ONE_VOICE,
    Filled,
    filled,
    of_domains,
    phrasings,
    trained,
)
from tests.unit.api.test_plan import PHRASINGS

SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.phrasings", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write no table")
    parser.add_argument("-v", dest="verbose", action="store_true", help="tell what is misread")
    options = parser.parse_args()
    whole = [Filled(one.value, text, ()) for one, texts in PHRASINGS.items() for text in texts]
    whole += [
        Filled(one.operator, one.text, (), elsewhere=one.kind == ELSEWHERE)
        for one in phrasings("as_asked.json")
    ]
    ways = [
        *phrasings("phrasings.json"),
        *phrasings("voices.json", IN_ONE_VOICE),
        *of_domains(LEARNED_FROM),
    ]
    table = trained(ways, whole, embedded)
    model = read_forms(table)
    apart = [*filled(phrasings("kept_apart.json"), Random(SEED), times=1)]
    of_another = [*filled(of_domains(("lawfirm",)), Random(SEED), times=1)]
    for name, questions in (
        ("kept apart", apart),
        ("of lawfirm", of_another),
        ("of the tests of plans", whole),
    ):
        tell(name, questions, model, verbose=options.verbose)
    said = orjson.dumps(table) + b"\n"
    sys.stdout.write(f"{len(table['grams'])} grams, {len(table['topic'])} signs, {len(said)} B\n")
    if not options.check:
        Path(api.retrieval.__file__).with_name(TABLE).write_bytes(said)


def embedded(texts: Sequence[str]) -> Any:
    """The vectors of texts, a row each; of one text once."""
    different = [*dict.fromkeys(texts)]
    embedder = OnnxEmbedder(threads=1)
    embedder.load()
    # A question is too short to be shared among processors: each takes questions of its own.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        vectors = threads.map(lambda text: embedder.embed([text])[0], different)
        told = dict(zip(different, vectors, strict=True))
    return numpy.array([numpy.frombuffer(told[text], "<f4") for text in texts])


def tell(name: str, questions: Sequence[Filled], model: Forms, *, verbose: bool) -> None:
    """How many are read as they are meant, by the table and by the rows alone; and their topics."""
    read: Counter[str] = Counter()
    elsewhere: Counter[tuple[bool, bool]] = Counter()
    meant = told = both = 0
    for one, vector in zip(questions, embedded([one.text for one in questions]), strict=True):
        rows = rows_matching(one.text)
        shares, is_elsewhere = reading(one.text, rows, model, vector=vector)
        best = max(shares, key=shares.__getitem__)
        read["table"] += best == one.operator
        by_words = likely(one.text, rows, model)
        read["without vectors"] += max(by_words, key=by_words.__getitem__) == one.operator
        read["rows"] += max(rows, key=rows.__getitem__, default="search") == one.operator
        if one.operator == "cause":
            elsewhere[one.elsewhere, is_elsewhere] += 1
        if verbose and best != one.operator:
            sys.stdout.write(f"  {one.operator} read as {best} {shares[best]:.2f}: {one.text}\n")
        wanted = stems_of(" ".join(one.text[start:end] for start, end in one.topics))
        topic = stems_of(without_asking(one.text, one.text, model))
        if wanted:
            meant, told, both = (
                meant + len(wanted),
                told + len(topic),
                both + len(wanted & topic),
            )
    shares_read = {way: round(times / len(questions), 3) for way, times in read.items()}
    topics = f"; topics: precision {both / told:.3f}, recall {both / meant:.3f}" if meant else ""
    sys.stdout.write(f"{name}, {len(questions)}: {shares_read}{topics}\n")
    for is_so, way in ((True, "a change elsewhere"), (False, "a cause where it happened")):
        of_all = elsewhere[is_so, True] + elsewhere[is_so, False]
        sys.stdout.write(f"  asked for {way}: {elsewhere[is_so, is_so]}/{of_all}\n")


if __name__ == "__main__":
    main()
