"""`make bench-retrieval`: the scorer's table of every method, and on request what each part brings.

    make bench-retrieval                                        # all questions, each method
    make bench-retrieval BENCH_ARGS="--ablation --narrative"    # an hour
    make bench-retrieval BENCH_ARGS="--every 8 --out results"   # each eighth question

The data set is a folder with `data/events.jsonl`, `data/questions.jsonl`, `data/anchor.jsonl` and
`score.py`. Every question is asked in its tenant, by its text alone, from a session that nobody
knows, with the clock just after the last event and all caches off.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import httpx
import orjson

from projections.schema import EVENT
from tests.bench.retrieval.served import (
    TIMEOUT_MS,
    Conversations,
    key_of,
    read_conversations,
    read_lines,
    served,
)
from tests.bench.retrieval.switches import SWITCHES
from tests.integration.api_support import Api

DATA: Final = Path(__file__).resolve().parents[4] / "shared/bench/locomo"
METHODS: Final = ("intent_weighted", "ppr", "activation")
NARRATIVE_TOKENS: Final = (1_000, 2_000, 4_000)
MAX_NODES: Final = 100
WARM_UP: Final = 20
"""Questions before the first that counts: plans are made, the model of queries is loaded."""
ADVERSARIAL: Final = 5
"""Category of questions that are put to the wrong speaker: not in the scorer's overall figure."""


def _tell(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Asking:
    """Asks questions, each in its tenant.

    Args:
        api: that answers.
        data: the conversations that it holds.
    """

    def __init__(self, api: Api, data: Conversations) -> None:
        self._data = data
        self._stack = ExitStack()
        self._clients = {
            tenant: self._stack.enter_context(api.client(key_of(tenant))) for tenant in data.clocks
        }

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(
        self, question: Mapping[str, Any], method: str, accept: str, **fields: Any
    ) -> httpx.Response:
        """The answer to one question."""
        tenant = question["sample_id"]
        body = {
            "query": question["question"],
            "session_id": "bench",
            "agent_id": "bench",
            "retrieval_method": method,
            "max_nodes": MAX_NODES,
            "timeout_ms": TIMEOUT_MS,
            "record_access": False,
            "as_of": self._data.clocks[tenant],
            **fields,
        }
        answer = self._clients[tenant].post(
            "/v1/query/subgraph", json=body, headers={"Accept": accept}
        )
        answer.raise_for_status()
        return answer

    def warm_up(self, questions: Sequence[Mapping[str, Any]]) -> None:
        """Ask until plans are made and models loaded; what is not answered in time is no error."""
        for question in questions:
            for method in METHODS:
                with suppress(httpx.HTTPStatusError):
                    self.ask(question, method, "application/json")

    def ranked(
        self, question: Mapping[str, Any], method: str
    ) -> tuple[list[str], float, list[str]]:
        """Ids of the events found, the best first, milliseconds, and what was left out."""
        began_s = time.perf_counter()
        answer = self.ask(question, method, "application/json")
        ms = (time.perf_counter() - began_s) * 1_000
        document = answer.json()
        found = [node["node_id"] for node in document["nodes"] if node["type"] == EVENT.label]
        return found, ms, list(document["meta"].get("degraded") or ())

    def told(self, question: Mapping[str, Any], tokens: int) -> str | None:
        """The narrative; None: the API gives none."""
        answer = self.ask(question, METHODS[0], "text/markdown", max_tokens=tokens)
        kind = answer.headers["content-type"]
        return answer.text if kind.startswith("text/markdown") else None


def run(asking: Asking, questions: Sequence[Mapping[str, Any]], method: str, out: Path) -> None:
    """Ask all questions by a method, and write what the scorer reads."""
    times, lines, degraded = [], [], 0
    for question in questions:
        found, ms, left_out = asking.ranked(question, method)
        times.append(ms)
        degraded += bool(left_out)
        lines.append({"question_id": question["question_id"], "ranked_event_ids": found})
    out.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    ordered = sorted(times)
    p50, p95 = ordered[len(ordered) // 2], ordered[int(0.95 * len(ordered))]
    _tell(f"{len(times)} questions, p50 {p50:.0f} ms, p95 {p95:.0f} ms, {degraded} degraded")


def score(folder: Path, questions: Path, results: Path, *options: str) -> str:
    """What the data set's own scorer prints."""
    command = [sys.executable, str(folder / "score.py"), str(questions), str(results), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def overall(folder: Path, questions: Path, results: Path) -> Mapping[str, Any]:
    """The scorer's figures over all categories that count."""
    table = orjson.loads(score(folder, questions, results, "--json"))
    return {name.partition(" ")[0]: row for name, row in table.items()}


def ablation_rows(
    asking: Asking, asked: Sequence[Mapping[str, Any]], folder: Path, questions: Path, out: Path
) -> Iterable[str]:
    """The table of what is lost without each part, row by row."""
    full = overall(folder, questions, out / f"{METHODS[0]}.jsonl")
    yield "| without | recall@10 | recall@20 | multi-hop @10 | change of @10 |"
    yield "|---|---:|---:|---:|---:|"
    yield _row("nothing", full, full)
    for number, (name, switch) in enumerate(SWITCHES.items()):
        results = out / f"without-{number}.jsonl"
        with switch():
            run(asking, asked, METHODS[0], results)
        yield _row(name, overall(folder, questions, results), full)


def _row(name: str, found: Mapping[str, Any], full: Mapping[str, Any]) -> str:
    own, multi = found["overall"], found.get("1", {}).get("recall@10", float("nan"))
    change = own["recall@10"] - full["overall"]["recall@10"]
    figures = f"{own['recall@10']:.3f} | {own['recall@20']:.3f} | {multi:.3f} | {change:+.3f}"
    return f"| {name} | {figures} |"


def narrative_line(asking: Asking, questions: Sequence[Mapping[str, Any]], tokens: int) -> str:
    """Share of a question's evidence that the narrative of so many tokens holds."""
    shares = []
    for question in questions:
        gold = set(question["gold_event_ids"])
        if not gold or question["category"] == ADVERSARIAL:
            continue
        text = asking.told(question, tokens)
        if text is None:
            return f"{tokens:,} tokens: the API gives no narrative of a subgraph"
        shares.append(sum(event_id in text for event_id in gold) / len(gold))
    return f"{tokens:,} tokens: evidence recall {fmean(shares):.3f} of {len(shares)} questions"


def _asked_for(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.retrieval")
    parser.add_argument("--data", type=Path, default=DATA, help="the data set's folder")
    parser.add_argument("--out", type=Path, help="keep the results in this folder")
    parser.add_argument("--services", type=Path, help="keep the services' data in this folder")
    parser.add_argument("--every", type=int, default=1, help="ask each n-th question alone")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--ablation", action="store_true", help="each part off in turn")
    parser.add_argument("--narrative", action="store_true", help="evidence within tokens")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    options = _asked_for(arguments)
    if not (options.data / "data").is_dir():
        _tell(f"the data set is not here: {options.data.name}")
        return 1
    data = read_conversations(options.data / "data")
    asked = data.questions[:: options.every]
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary) / "results"
        out.mkdir(parents=True, exist_ok=True)
        questions = out / "questions.jsonl"
        questions.write_bytes(b"\n".join(map(orjson.dumps, asked)) + b"\n")
        anchor = out / "anchor.jsonl"
        ids = {question["question_id"] for question in asked}
        kept = [
            r for r in read_lines(options.data / "data/anchor.jsonl") if r["question_id"] in ids
        ]
        anchor.write_bytes(b"\n".join(map(orjson.dumps, kept)) + b"\n")
        began_s = time.monotonic()
        services = options.services or Path(temporary) / "services"
        with served(data, services) as api, Asking(api, data) as asking:
            _tell(f"{len(data.events):,} events enriched in {time.monotonic() - began_s:.0f} s")
            asking.warm_up(asked[:WARM_UP])
            for method in options.methods:
                _tell(f"\n## {method}\n")
                results = out / f"{method}.jsonl"
                run(asking, asked, method, results)
                _tell(score(options.data, questions, results, "--against", str(anchor)))
            if options.narrative:
                _tell("\n## Narrative\n")
                for tokens in NARRATIVE_TOKENS:
                    _tell(narrative_line(asking, asked, tokens))
            if options.ablation:
                _tell("\n## Ablation\n")
                for row in ablation_rows(asking, asked, options.data, questions, out):
                    _tell(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
