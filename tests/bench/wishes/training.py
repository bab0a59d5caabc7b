"""A linear model of the sentences that lay down how somebody wants things done in general."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy
import orjson

from enrichment.wish_model import plain_word, signs_of
from enrichment.wishes import Clause, clauses_of, is_base
from pipelines.models.nlp import SpacyRecognizer
from tests.bench.adam import fitted_sparse, in_bytes

FOLDER: Final = Path(__file__).parent
DOMAINS: Final = FOLDER.parent / "domains"
LEAST_USES, LEAST_WRITERS = 4, 3
"""Of a word that counts as itself: sentences that have it, and writers who used it, among whom the
tests count as one, and so does what is made of the sentences of others."""
WRITERS: Final = 15
"""Of the lists of a file, whose sentences stand in a row."""
LEAST_SENTENCES: Final = 4
"""That a sign stands in, to be learned."""
EPOCHS, BATCH = 20, 128
LEFT_OUT: Final = 0.5
"""Share of the signs of a sentence that it is learned without each time."""
TURNS: Final = 3
"""Fits, each in another order, whose weights are averaged."""
SURE: Final = 1.6
"""Log odds from which a sentence is taken for a wish."""
LIKELY: Final = 4.0
"""By so much surer, in log odds, is what was announced as new, or is asked for in a case; of all
that is written here half was written to look like a wish, and misleads as to these."""
ALWAYS: Final = (
    "Always",
    "Never",
    "From now on",
    "In future",
    "By default",
    "As a rule",
    "From today on",
    "Every time",
    "Please always",
    "please never",
)
"""Before an order that is done once, they make a wish of it."""
_ALTERNATIVES: Final = re.compile(r"(\[[^\]]*\])")
_GAP: Final = re.compile(r"\{(\w+)\}")
_CASE: Final = re.compile(
    r"(?:when|if|unless|in case|once|as soon as)\b[^,?]{5,60},\s", re.IGNORECASE
)
"""A case in front, up to its comma."""
_SAID_BY_USERS: Final = frozenset(("open", "opens", "again", "ask", "say", "request", "tell"))
"""Keys of a domain's stories under which stands what its users say."""


class Sentence(NamedTuple):
    """What somebody wrote.

    Attributes:
        text: one sentence, or a few.
        is_wish: whether it lays something down.
        writer: who wrote it, or of which domain it is.
    """

    text: str
    is_wish: bool
    writer: str


def sentences(name: str) -> list[Sentence]:
    """Those of a file."""
    told = orjson.loads((FOLDER / name).read_bytes())
    return [
        Sentence(text, key == "wishes", f"{name} {place * WRITERS // len(texts)}")
        for key, texts in told.items()
        for place, text in enumerate(texts)
    ]


def of_domains(names: Iterable[str]) -> list[Sentence]:
    """What the users of domains say: wishes, and all else but remarks, which may be either."""
    said = []
    for name in names:
        told = orjson.loads((DOMAINS / f"{name}.json").read_bytes())
        for topic in told["PREF"]:
            wishes = [one[0] for one in topic["options"]] + [one[1] for one in topic["narrow"]]
            said += [Sentence(way, True, name) for text in wishes for way in _ways(text)]
        stories = {key: told[key] for key in told if key not in ("PREF", "PHRASES", "SLOTS")}
        others = [*_texts(told["GREET"]), *_texts(told["THANKS"]), *_said(stories)]
        said += [Sentence(_filled(w, told["SLOTS"]), False, name) for t in others for w in _ways(t)]
    return said


def _said(told: Any) -> Iterator[str]:
    if isinstance(told, dict):
        for key, value in told.items():
            yield from _texts(value) if key in _SAID_BY_USERS else _said(value)
    elif isinstance(told, list):
        for value in told:
            yield from _said(value)


def _texts(value: Any) -> Iterator[str]:
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            yield text


def _ways(text: str) -> list[str]:
    """A text in each of its alternatives, "[please|pls]"."""
    parts = [
        part[1:-1].split("|") if part.startswith("[") else [part]
        for part in _ALTERNATIVES.split(text)
    ]
    most = max(map(len, parts))
    ways = ("".join(part[way % len(part)] for part in parts) for way in range(most))
    return list(dict.fromkeys(ways))


def _filled(text: str, slots: Mapping[str, Any]) -> str:
    def filler(gap: re.Match[str]) -> str:
        told = slots.get(gap[1])
        if isinstance(told, list):
            return str(told[0])
        return "Ann Lee" if gap[1] == "full" else "A-4711"

    return _GAP.sub(filler, text)


def clauses(said: Sequence[Sentence]) -> list[list[Clause]]:
    """What of each is judged."""
    texts = [one.text for one in said]
    recognizer = SpacyRecognizer()
    try:
        analyses = recognizer.analyze(texts)
    finally:
        recognizer.close()
    return [[*clauses_of(text, told)] for text, told in zip(texts, analyses, strict=True)]


def made(said: Sequence[Sentence], judged: Sequence[Sequence[Clause]]) -> list[Sentence]:
    """What others ask to be done once, asked for always, and in the cases that all name.

    "Pack the kettle" is a wish behind "always" and behind "when guests are loud", which stood in
    one; behind "when it is ready", which stood in another sentence, it is none.
    """
    orders = [
        f"{one.text[0].lower()}{one.text[1:]}"
        for one, parts in zip(said, judged, strict=True)
        if not one.is_wish and len(parts) == 1 and _is_order(parts[0])
    ]
    told = [
        Sentence(f"{way} {order}", True, "orders")
        for way, order in zip(cycle(ALWAYS), orders, strict=False)
    ]
    for is_wish, orders_of in ((True, orders), (False, orders[::-1])):
        cases = [
            case[0] for one in said if one.is_wish is is_wish and (case := _CASE.match(one.text))
        ]
        told += [
            Sentence(f"{case}{order}", is_wish, "cases")
            for case, order in zip(dict.fromkeys(cases), cycle(orders_of), strict=False)
        ]
    return told


def _is_order(clause: Clause) -> bool:
    first = clause.tokens[0]
    return is_base(first) and first.relation == "ROOT"


def trained(said: Sequence[Sentence], judged: Sequence[Sequence[Clause]]) -> dict[str, Any]:
    """The table.

    Args:
        said: what is learned from; of a wish of more than one clause nothing is.
        judged: the clauses of each.
    """
    learned = [
        (clause, one)
        for one, parts in zip(said, judged, strict=True)
        if not one.is_wish or len(parts) == 1
        for clause in parts
    ]
    words = _words(learned)
    held = [signs_of(clause.tokens, words) for clause, _ in learned]
    counts = Counter(sign for one in held for sign in one)
    names = sorted(sign for sign, times in counts.items() if times >= LEAST_SENTENCES)
    places = {name: place for place, name in enumerate(names)}
    rows = [sorted(places[sign] for sign in one if sign in places) for one in held]
    wanted = numpy.array([one.is_wish for _, one in learned], dtype=numpy.float32)
    fits = [
        fitted_sparse(
            rows,
            len(names),
            wanted,
            numpy.ones(len(rows)),
            epochs=EPOCHS,
            batch=BATCH,
            left_out=LEFT_OUT,
            seed=seed,
        )
        for seed in range(TURNS)
    ]
    weights, bias = (sum(parts) / TURNS for parts in zip(*fits, strict=True))
    levels, scale = in_bytes(weights)
    used = numpy.abs(levels) > 1
    return {
        "words": sorted(words),
        "signs": [name for name, is_used in zip(names, used, strict=True) if is_used],
        "weights": b64encode(levels[used].tobytes()).decode(),
        "bias": round((bias - SURE) / scale),
        "likely": round(LIKELY / scale),
    }


def _words(learned: Sequence[tuple[Clause, Sentence]]) -> frozenset[str]:
    uses: Counter[str] = Counter()
    writers: dict[str, set[str]] = {}
    for clause, one in learned:
        for word in {plain_word(token) for token in clause.tokens}:
            uses[word] += 1
            writers.setdefault(word, set()).add(one.writer)
    return frozenset(
        word
        for word, times in uses.items()
        if times >= LEAST_USES
        and len(writers[word]) >= LEAST_WRITERS
        and word.replace("'", "").isalpha()
    )
