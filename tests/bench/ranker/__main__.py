"""`make train-ranker`: trains the ranker and the judge, and tells how they do where they were not.

    make train-ranker                                 # the table, and figures by cross-validation
    make train-ranker BENCH_ARGS="--check"            # the figures alone

The set is made anew by the generator of the developers' data (`shared/bench/agents`), so the same
code, models and generator give the same table. A domain is judged by a table that was trained on
the others: its words, tools and phrasings count for nothing in its own figures. The shipped
incident, longer stories of another kind, is never trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import orjson

import api.retrieval
from api.retrieval.story_ranker import TABLE, Model, confidence_of, read_model, story_scores
from tests.bench.ranker.training import trained
from tests.bench.ranker.world import MISTAKEN, Asked, asked, incident, keeping, made, mistaken

HEAD = f"{'':14}{'n':>5}{'first':>8}{'hit@5':>8}{'r@10':>8}"


def figures(rows: Sequence[Asked], model: Model) -> list[str]:
    """A line for all questions and for each kind; a line about abstaining."""
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
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ranker", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write no table")
    parser.add_argument("--keep", type=Path, help="a file that keeps what models said")
    parser.add_argument(
        "--tables", type=Path, help="a folder for the tables by which the domains are judged"
    )
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        models = keeping(options.keep or Path(folder) / "derivations.sqlite")
        events, questions = made(Path(folder))
        rows = list(asked(events, [*questions, *mistaken(questions)], models))
        unlike = list(asked(*incident(), models))
    table = check(rows, unlike, options.tables)
    if not options.check:
        path = Path(api.retrieval.__file__).parent / TABLE
        path.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2) + b"\n")
        tell(f"\nwritten: {TABLE}")


def check(
    rows: Sequence[Asked], unlike: Sequence[Asked], folder: Path | None = None
) -> dict[str, Any]:
    """Tell how tables do, one of the other domains and that of all, which is returned.

    Args:
        unlike: questions that no table is trained on.
        folder: for the tables by which the domains are judged.
    """
    domains = sorted({_domain(row) for row in rows})
    for domain in domains:
        others = [row for row in rows if _domain(row) != domain]
        own = [row for row in rows if _domain(row) == domain]
        tell(f"\n## {domain}, by a table of {', '.join(one for one in domains if one != domain)}")
        table = trained(others)
        tell("\n".join([HEAD, *figures(own, read_model(table))]))
        if folder is not None:
            (folder / f"{domain}.json").write_bytes(orjson.dumps(table))
    table = trained(rows)
    for name, asked_of in (("all", rows), ("the shipped incident", unlike)):
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
