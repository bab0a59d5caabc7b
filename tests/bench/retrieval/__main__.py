"""`make bench-retrieval`: the scorer's table of every method, and on request what each part brings.

    make bench-retrieval                                        # all questions, each method
    make bench-retrieval BENCH_ARGS="--ablation --narrative"    # an hour
    make bench-retrieval BENCH_ARGS="--questions 25 --out results"

The data set is a folder with `data/events.jsonl`, `data/questions.jsonl`, `data/anchor.jsonl` and
`score.py`. Every question is asked in its tenant, by its text alone, from a session that nobody
knows, with the clock just after the last event and all caches off. An answer that lacks something
for want of time is asked for again; those that still do are counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import orjson

from tests.bench.retrieval.asking import DEFAULT_METHOD, METHODS, Answered, Asking
from tests.bench.retrieval.scores import MULTI_HOP, OVERALL, Scorer
from tests.bench.retrieval.served import (
    Conversations,
    read_conversations,
    read_lines,
    served,
)
from tests.bench.retrieval.switches import SWITCHES

DATA: Final = Path(__file__).resolve().parents[4] / "shared/bench/locomo"
NARRATIVE_TOKENS: Final = (1_000, 2_000, 4_000)
WARM_UP: Final = 20
"""Questions before the first that counts: plans are made, the model of queries is loaded."""
ABLATION_QUESTIONS: Final = 50
"""Of each conversation, that each part is switched off for; an hour for all of them."""
FIRST: Final = 10
ADVERSARIAL: Final = 5
"""Category of questions that are put to the wrong speaker: not in the scorer's overall figure."""

Questions = Sequence[Mapping[str, Any]]


def _tell(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    """Write JSON lines."""
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def spread(questions: Questions, count: int) -> Questions:
    """So many questions of each conversation, evenly spread; 0: all."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for question in questions:
        groups.setdefault(question["sample_id"], []).append(question)
    chosen = []
    for group in groups.values():
        taken = min(count or len(group), len(group))
        chosen += [group[place * len(group) // taken] for place in range(taken)]
    return chosen


def counts(question: Mapping[str, Any]) -> bool:
    """Whether a question is in the scorer's overall figure."""
    return bool(question["gold_event_ids"]) and question["category"] != ADVERSARIAL


def run(asking: Asking, questions: Questions, method: str, path: Path) -> list[Answered]:
    """Ask all questions by a method, and write what the scorer reads."""
    answers = list(asking.each(lambda question: asking.ranked(question, method), questions))
    write_lines(
        path,
        (
            {"question_id": question["question_id"], "ranked_event_ids": answer.event_ids}
            for question, answer in zip(questions, answers, strict=True)
        ),
    )
    return answers


def told_of(answers: Sequence[Answered], at_once: int) -> str:
    """A line about how they came; times tell nothing when questions wait for each other."""
    times = sorted(answer.ms for answer in answers)
    p50, p95 = times[len(times) // 2], times[int(0.95 * len(times))]
    partial = f"{sum(answer.partial for answer in answers)} partial answers"
    took = f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, " if at_once == 1 else ""
    return f"{len(times)} questions, {took}{partial}"


class Bench:
    """The questions of one call, and where their results go.

    Args:
        asking: the API.
        folder: of the data set.
        asked: the questions.
        out: for results.
    """

    def __init__(self, asking: Asking, folder: Path, asked: Questions, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._asking = asking
        self._asked = asked
        self._out = out
        self._scorer = Scorer(folder, write_lines(out / "questions.jsonl", asked))
        ids = {question["question_id"] for question in asked}
        rows = read_lines(folder / "data/anchor.jsonl")
        kept = (row for row in rows if row["question_id"] in ids)
        self._anchor = write_lines(out / "anchor.jsonl", kept)

    def method(self, name: str) -> Iterator[str]:
        """The scorer's table of a method against the baseline, and against the default method."""
        results = self._out / f"{name}.jsonl"
        yield told_of(run(self._asking, self._asked, name, results), self._asking.at_once)
        yield self._scorer.printed(results, self._anchor).rstrip()
        base = self._out / f"{DEFAULT_METHOD}.jsonl"
        if name != DEFAULT_METHOD and base.exists():
            for column in ("recall@10", "recall@20"):
                change = self._scorer.change(results, base, column)
                yield f"{column} minus {DEFAULT_METHOD} {change}"

    def narrative(self, tokens: int) -> str:
        """Share of a question's evidence that the narrative of so many tokens holds."""
        counted = list(filter(counts, self._asked))
        told = list(self._asking.each(lambda one: self._asking.told(one, tokens), counted))
        shares = [
            fmean(event_id in narrative.text for event_id in set(question["gold_event_ids"]))
            for question, narrative in zip(counted, told, strict=True)
        ]
        count = len(shares)
        whole = sum(share == 1 for share in shares)
        partial = sum(narrative.partial for narrative in told)
        mean = fmean(shares) if shares else float("nan")
        return f"| {tokens:,} | {mean:.3f} | {whole / max(1, count):.3f} | {count} | {partial} |"

    def ablation(self) -> Iterator[str]:
        """The table of what is lost without each part, row by row."""
        base = self._out / "with-all.jsonl"
        full = run(self._asking, self._asked, DEFAULT_METHOD, base)
        figures = self._scorer.figures(base)
        sizes = [round(figures[row]["n"]) if row in figures else 0 for row in (OVERALL, MULTI_HOP)]
        came = told_of(full, self._asking.at_once)
        yield f"{sizes[0]} questions that count, {sizes[1]} of them multi-hop; {came}"
        yield ""
        yield (
            "| without | recall@10 | recall@20 | multi-hop @10 | change of recall@10 (95 %) "
            "| other first ten | partial |"
        )
        yield "|---|---:|---:|---:|---|---:|---:|"
        yield self._ablated("nothing", full, full, base)
        for number, (name, switch) in enumerate(SWITCHES.items()):
            results = self._out / f"without-{number}.jsonl"
            with switch():
                answers = run(self._asking, self._asked, DEFAULT_METHOD, results)
            yield self._ablated(name, answers, full, results)

    def _ablated(
        self, name: str, answers: Sequence[Answered], full: Sequence[Answered], results: Path
    ) -> str:
        figures = self._scorer.figures(results)
        own, multi = figures[OVERALL], figures.get(MULTI_HOP, {}).get("recall@10", float("nan"))
        change = self._scorer.change(results, self._out / "with-all.jsonl", "recall@10")
        other = sum(
            one.event_ids[:FIRST] != before.event_ids[:FIRST]
            for one, before in zip(answers, full, strict=True)
        )
        partial = sum(answer.partial for answer in answers)
        recalls = f"{own['recall@10']:.3f} | {own['recall@20']:.3f} | {multi:.3f}"
        return f"| {name} | {recalls} | {change} | {other} | {partial} |"


def _asked_for(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.retrieval")
    parser.add_argument("--data", type=Path, default=DATA, help="the data set's folder")
    parser.add_argument("--out", type=Path, help="keep the results in this folder")
    parser.add_argument("--services", type=Path, help="keep the services' data in this folder")
    parser.add_argument("--conversations", nargs="+", metavar="ID", help="these alone are asked")
    parser.add_argument(
        "--questions", type=int, default=0, help="of each conversation, evenly spread; 0: all"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, help="questions under way; times count with 1 alone"
    )
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--narrative", action="store_true", help="evidence within tokens")
    parser.add_argument("--ablation", action="store_true", help="each part off in turn")
    parser.add_argument(
        "--ablation-questions",
        type=int,
        default=ABLATION_QUESTIONS,
        help="of each conversation's that count, evenly spread; 0: all that are asked",
    )
    return parser.parse_args(arguments)


def report(
    asking: Asking, data: Conversations, options: argparse.Namespace, out: Path
) -> Iterator[str]:
    """What was asked for, a piece at a time."""
    asked = spread(data.questions, options.questions)
    if options.conversations:
        asked = [one for one in asked if one["sample_id"] in options.conversations]
    asking.warm_up(asked[:WARM_UP])
    bench = Bench(asking, options.data, asked, out)
    for method in options.methods:
        yield f"\n## {method}\n"
        yield from bench.method(method)
    if options.narrative:
        yield f"\n## Evidence within tokens of narrative, {DEFAULT_METHOD}\n"
        yield "| tokens | evidence recall | all of it | questions | partial |"
        yield "|---:|---:|---:|---:|---:|"
        yield from map(bench.narrative, NARRATIVE_TOKENS)
    if options.ablation:
        yield f"\n## Ablation, {DEFAULT_METHOD}\n"
        sample = spread(list(filter(counts, asked)), options.ablation_questions)
        yield from Bench(asking, options.data, sample, out / "ablation").ablation()


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    options = _asked_for(arguments)
    if not (options.data / "data").is_dir():
        _tell(f"the data set is not here: {options.data.name}")
        return 1
    data = read_conversations(options.data / "data")
    with tempfile.TemporaryDirectory() as temporary:
        began_s = time.monotonic()
        services = options.services or Path(temporary) / "services"
        with served(data, services) as api, Asking(api, data, options.at_once) as asking:
            _tell(f"{len(data.events):,} events ready after {time.monotonic() - began_s:.0f} s")
            for piece in report(asking, data, options, options.out or Path(temporary) / "results"):
                _tell(piece)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
