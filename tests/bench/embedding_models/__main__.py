"""`python -m tests.bench.embedding_models`: recall and processor time of embedding models.

    python -m tests.bench.embedding_models                     # half an hour, two cores
    python -m tests.bench.embedding_models --agents --only "e5-small-v2 int8, centred"

Each model is judged as it was published, and centred: less the mean of its vectors of texts of
another set. Processor time is that of one thread of this process.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from enrichment.ports import Embedder
from enrichment.text import event_text
from pipelines.models.derivations import Derivations, make_store
from pipelines.models.loaded import KeptEmbedder, LoadedEmbedder, Models
from pipelines.observe.logs import configure_logging
from pipelines.work.settings import Settings
from projections.events import Event
from tests.bench.embedding_models.asked import Asked, Question, agents, asked, people
from tests.bench.embedding_models.known import MODELS, Known
from tests.bench.embedding_models.late import again
from tests.bench.embedding_models.vectors import Array, Centred, OfRole, Role, Runtime, costs
from tests.bench.embedding_models.weighed import (
    by_others,
    features,
    interval,
    order,
    recall,
    summed,
)
from tests.bench.ranker import world
from tests.bench.ranker.__main__ import check

SAMPLE: Final = 120
"""Texts of each role that processor time is measured with."""
CENTRE: Final = 300
"""Texts that a mean is made of."""
Data = tuple[list[Event], list[Question]]


class Variant(NamedTuple):
    """A model as it was published, or centred."""

    known: Known
    centred: bool

    @property
    def name(self) -> str:
        return f"{self.known.name}, centred" if self.centred else self.known.name


class Judged(NamedTuple):
    """Scores and rankings of the questions about people."""

    rows: list[Asked]
    scores: list[Array]

    def rankings(self) -> list[list[str]]:
        """The pool of each question, the best first."""
        return [order(row.found.ids, own) for row, own in zip(self.rows, self.scores, strict=True)]


class Bench:
    """The sets, and a file in which vectors and analyses are kept.

    Args:
        folder: of the models' files.
        kept: the file.
    """

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder = folder
        self.settings = Settings(derivations_url=f"sqlite:///{kept}", log_level="warning")
        configure_logging(self.settings)
        self.derivations = Derivations(make_store(self.settings))
        self.people, self.agents = people(), agents()
        self._base: list[float] = []

    def spent(self, models: Sequence[Known]) -> Iterator[str]:
        """Processor time of a text and of a question."""
        runtimes = [Runtime(known, self.folder) for known in models]
        events, questions = self.people
        said = _sampled(texts_of(events), SAMPLE)
        asked_for = _sampled([one.text for one in questions], SAMPLE)
        texts, short = costs(runtimes, said, "passage"), costs(runtimes, asked_for, "question")
        yield "| model | ms of processor a turn | a question |"
        yield "|---|---:|---:|"
        for known, text, question in zip(models, texts, short, strict=True):
            yield f"| {known.name} | {text:.1f} | {question:.1f} |"

    def found(self, variant: Variant) -> str:
        """How well a model does on both sets."""
        runtime = Runtime(variant.known, self.folder)
        centred = variant.centred
        judged = self.judged(runtime, self.people, self.agents if centred else None)
        sums = [summed(row) for row in judged.rows]
        ranked = judged.rankings()
        first = _recalls(judged.rows, ranked, 10)
        self._base = self._base or first
        hops = [at for at, row in enumerate(judged.rows) if row.question.hops]
        acting = self._asked(runtime, self.agents, self.people if centred else None)
        figures = (
            fmean(_recalls(judged.rows, sums, 10)),
            fmean(_recalls(judged.rows, sums, 20)),
            fmean(first),
            fmean(_recalls(judged.rows, ranked, 20)),
            fmean(first[at] for at in hops),
            fmean(_recalls(acting, [summed(row) for row in acting], 10)),
            fmean(_recalls(acting, [row.stories for row in acting], 10)),
        )
        told = " | ".join(f"{one:.3f}" for one in figures)
        return f"| {variant.name} | {told} | {interval(first, self._base)} |"

    def late(self, known: Known) -> str:
        """The best fifty of the ranking as it is, again by the tokens of a model."""
        today = self.judged(Runtime(MODELS[0], self.folder), self.people, None)
        texts = {event.event_id: event_text(event).text for event in self.people[0]}
        ordered = again(today.rows, today.scores, texts, Runtime(known, self.folder))
        before = _recalls(today.rows, today.rankings(), 10)
        after = _recalls(today.rows, ordered.rankings, 10)
        later = fmean(_recalls(today.rows, ordered.rankings, 20))
        return (
            f"| {known.name} | {fmean(after):.3f} | {later:.3f} | {interval(after, before)} | "
            f"{ordered.ms:.1f} | {ordered.tokens:.0f} |"
        )

    def acted(self, variant: Variant) -> None:
        """The developers' set of agents' work, with tables that are trained anew."""
        runtime = Runtime(variant.known, self.folder)
        other = self.people if variant.centred else None
        models = Models(self.settings, self._embedder(runtime, "passage", other))
        questions = KeptEmbedder(self._embedder(runtime, "question", other), self.derivations)
        with TemporaryDirectory() as folder:
            rows = list(world.asked(*world.made(Path(folder)), models, questions))
        incident = list(world.asked(*world.incident(), models, questions))
        check(rows, (), {"the shipped incident": incident})

    def judged(self, runtime: Runtime, data: Data, other: Data | None) -> Judged:
        """Ranked by relevance, with weights of the other conversations."""
        rows = self._asked(runtime, data, other)
        matrices = [features(row.terms, row.found) for row in rows]
        ids = [row.found.ids for row in rows]
        return Judged(rows, by_others([row.question for row in rows], ids, matrices))

    def _asked(self, runtime: Runtime, data: Data, other: Data | None) -> list[Asked]:
        events, questions = data
        models = Models(self.settings, self._embedder(runtime, "passage", other))
        tenants = world.folded(events, models)
        return list(asked(questions, tenants, self._embedder(runtime, "question", other)))

    def _embedder(self, runtime: Runtime, role: Role, other: Data | None) -> LoadedEmbedder:
        """Of texts of a role; `other` is the set whose mean is taken away."""
        embedder = OfRole(runtime, role)
        if other is None:
            return embedder
        events, questions = other
        texts = texts_of(events) if role == "passage" else [one.text for one in questions]
        kept: Embedder = KeptEmbedder(embedder, self.derivations)
        return Centred(kept, _sampled(texts, CENTRE))


def texts_of(events: Sequence[Event]) -> list[str]:
    """What is embedded of events, where they say something."""
    return [text for event in events if (text := event_text(event).text)]


def _sampled(texts: Sequence[str], most: int) -> list[str]:
    return random.Random(1).sample(texts, min(most, len(texts)))


def _recalls(rows: Sequence[Asked], ranked: Sequence[Sequence[str]], cut: int) -> list[float]:
    return [recall(row.question, own, cut) for row, own in zip(rows, ranked, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.embedding_models")
    parser.add_argument("--folder", type=Path, help="of the models' files, to keep them")
    parser.add_argument("--keep", type=Path, help="a file that keeps what models said")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these alone, as in the tables")
    parser.add_argument("--agents", action="store_true", help="the set of agents' work alone")
    options = parser.parse_args()
    variants = [
        one
        for one in (Variant(known, centred) for known in MODELS for centred in (False, True))
        if not options.only or one.name in options.only
    ]
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bench = Bench(options.folder or folder, options.keep or folder / "kept.sqlite")
        if options.agents:
            for variant in variants:
                tell(f"\n# {variant.name}")
                bench.acted(variant)
            return
        for line in report(bench, variants):
            tell(line)


def report(bench: Bench, variants: Sequence[Variant]) -> Iterator[str]:
    """The tables, line by line."""
    models = list(dict.fromkeys(variant.known for variant in variants))
    yield from bench.spent(models)
    yield (
        "\n| model | sum @10 | @20 | ranked @10 | @20 | multi-hop @10 | agents: sum @10 "
        "| stories @10 | ranked @10, against the first |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    yield from map(bench.found, variants)
    yield "\n| tokens of | ranked @10 | @20 | @10 against without | ms a question | tokens a turn |"
    yield "|---|---:|---:|---|---:|---:|"
    yield from (bench.late(known) for known in models if known.artifact)


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
