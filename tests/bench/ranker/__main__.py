"""`make train-ranker`: trains the ranker and the judge, and tells how they do where they were not.

    make train-ranker                                 # the table, and figures of what it never saw
    make train-ranker BENCH_ARGS="--check"            # the figures alone
    make train-ranker BENCH_ARGS="--judge"            # the judge alone, for the ranker as it stands

The sets are made anew by the generator of the developers' data (`shared/bench/agents`), so the same
code, models and generator give the same table: the ranker learns from that data's own domains, the
judge from small memories of those of `tests/bench/domains` besides. Each of the set's own is judged
by a table that was trained without it, so its words, tools and phrasings count for nothing in its
own figures; the domains that are kept apart, and the shipped incident, longer stories of another
kind, are never trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import orjson

import api.retrieval
from api.retrieval.story_ranker import TABLE, Model, confidence_of, read_model, story_scores
from pipelines.models.loaded import Models
from pipelines.work.settings import Settings
from tests.bench.domains.__main__ import KEPT_APART, LEARNED_FROM, make
from tests.bench.ranker.training import trained
from tests.bench.ranker.world import (
    MISTAKEN,
    UNTIL,
    Asked,
    asked,
    incident,
    keeping,
    made,
    trained_on,
    written,
)

THRESHOLD = float(Settings.model_fields["answer_threshold"].default)
"""Of confidence, from which on a question counts as answered."""
HEAD = f"{'':14}{'n':>5}{'first':>8}{'hit@5':>8}{'r@10':>8}"


def figures(rows: Sequence[Asked], model: Model) -> list[str]:
    """A line for all questions and for each kind; lines about abstaining."""
    groups: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    known: list[float] = []
    unknown: list[float] = []
    mixed_up: list[float] = []
    for row in rows:
        confidence = 0.0
        grades = row.gold()
        if row.features is not None:
            scores = story_scores(row.features, row.plan, model)
            confidence = confidence_of(row.features, scores, row.plan, model)
            grades = grades[numpy.argsort(-scores, kind="stable")]
        if row.question["kind"] == MISTAKEN:
            mixed_up.append(confidence)
        else:
            (unknown if row.question["abstain"] else known).append(confidence)
        if not row.question["gold"]:
            continue
        best = min(10, sum(grade == 3 for grade in row.question["gold"].values()))
        measured = (
            float((grades[:1] >= 2).any()),
            float((grades[:5] >= 2).any()),
            float((grades[:10] == 3).sum()) / best,
        )
        groups["all"].append(measured)
        groups[row.question["kind"]].append(measured)
    lines = [
        f"{name:14}{len(group):5}"
        + "".join(f"{one:8.2f}" for one in numpy.mean(group, axis=0).tolist())
        for name, group in groups.items()
    ]
    for name, others in (("that nobody can answer", unknown), ("that name another", mixed_up)):
        if others:
            above = numpy.subtract.outer(known, others)
            area = float((above > 0).mean() + 0.5 * (above == 0).mean())
            lines.append(f"confidence: AUROC {area:.3f} over {len(others)} {name}")
    told = sum(one >= THRESHOLD for one in unknown)
    withheld = sum(one < THRESHOLD for one in known)
    lines.append(
        f"at {THRESHOLD}: {withheld} of {len(known)} that are known are withheld, "
        f"{told} of {len(unknown)} that nobody can answer are answered"
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ranker", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write no table")
    parser.add_argument("--judge", action="store_true", help="train no ranker")
    parser.add_argument("--keep", type=Path, help="a file that keeps what models said")
    parser.add_argument(
        "--tables", type=Path, help="a folder for the tables by which the domains are judged"
    )
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        models = keeping(options.keep or Path(folder) / "derivations.sqlite")
        rows = list(trained_on(*made(Path(folder)), models))
        others = [row for name in LEARNED_FROM for row in _small(name, Path(folder), models)]
        unseen = {name: list(_small(name, Path(folder), models)) for name in KEPT_APART}
        unseen["the shipped incident"] = list(asked(*incident(), models))
    path = Path(api.retrieval.__file__).parent / TABLE
    ranker = orjson.loads(path.read_bytes()) if options.judge else None
    table = check(rows, others, unseen, folder=options.tables, ranker=ranker)
    if not options.check:
        path.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2) + b"\n")
        tell(f"\nwritten: {TABLE}")


def _small(name: str, folder: Path, models: Models) -> Iterator[Asked]:
    """Questions about a small memory of a domain that stands in this repository."""
    make(name, folder / name, sizes=("S",), asked_at=datetime.fromisoformat(UNTIL))
    return trained_on(*written(folder / name), models)


def check(
    rows: Sequence[Asked],
    others: Sequence[Asked],
    unseen: Mapping[str, Sequence[Asked]],
    *,
    folder: Path | None = None,
    ranker: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Tell how tables do, one without each of the set's own domains and that of all; return it.

    Args:
        rows: of the set's own domains.
        others: that all judges are trained on besides.
        unseen: questions that no table is trained on, by what they are about.
        folder: for the tables by which the domains are judged.
        ranker: a table whose ranker is taken into that of all; None: it is trained.
    """
    domains = sorted({_domain(row) for row in rows})
    for domain in domains:
        own = [row for row in rows if _domain(row) == domain]
        tell(f"\n## {domain}, by a table without it")
        table = trained([row for row in rows if _domain(row) != domain], others)
        tell("\n".join([HEAD, *figures(own, read_model(table))]))
        if folder is not None:
            (folder / f"{domain}.json").write_bytes(orjson.dumps(table))
    table = trained(rows, others, ranker=ranker)
    for name, asked_of in {"all": [*rows, *others], **unseen}.items():
        tell(f"\n## {name}, by the table of all")
        tell("\n".join([HEAD, *figures(asked_of, read_model(table))]))
    return table


def _domain(row: Asked) -> str:
    return str(row.question["tenant"]).rpartition("-")[0]


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
