"""The comparison of embedding models: what it fits, what it takes away, what it calls recall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest

from enrichment.ports import Embedder
from pipelines.models.embedder import OnnxEmbedder
from tests.bench.embedding_models.asked import Question
from tests.bench.embedding_models.known import MODELS, Known, files_of
from tests.bench.embedding_models.vectors import Centred, OfRole, Runtime
from tests.bench.embedding_models.weighed import by_others, fitted, interval, order, recall


def question(tenant: str, gold: Sequence[str], ignored: Sequence[str] = ()) -> Question:
    return Question("?", tenant, "s", None, 0, frozenset(gold), frozenset(ignored))


def test_a_fit_finds_the_column_that_tells_the_answer() -> None:
    chooser = numpy.random.default_rng(1)
    rows = []
    for _ in range(60):
        matrix = chooser.normal(size=(20, 3))
        gold = numpy.zeros(20)
        gold[(2 * matrix[:, 1] + chooser.gumbel(size=20)).argmax()] = 1
        rows.append((matrix, gold))
    weights = fitted(rows)
    assert weights[1] == pytest.approx(2, abs=0.6)
    assert abs(weights[[0, 2]]).max() < 0.5


def test_a_tenant_is_judged_by_weights_of_the_others() -> None:
    better, worse = numpy.array([[1.0], [0.0]]), numpy.array([[0.0], [1.0]])
    questions = [question("a", ["one"]), question("b", ["one"])]
    scores = by_others(questions, [["one", "two"]] * 2, [better, worse])
    # b's question says that less is better, a's that more is; each is told by the other
    assert order(["one", "two"], scores[0]) == ["two", "one"]
    assert order(["one", "two"], scores[1]) == ["two", "one"]


def test_recall_leaves_out_what_is_neither_right_nor_wrong() -> None:
    asked = question("a", ["right", "missing"], ignored=["neither"])
    assert recall(asked, ["neither", "right", "wrong"], 1) == 0.5
    assert recall(asked, ["wrong", "neither", "right"], 1) == 0


def test_an_interval_of_what_is_always_better_leaves_out_nothing() -> None:
    assert interval([1, 1, 1], [0.5, 0.5, 0.5]) == "+0.500 [+0.500, +0.500]"


class _Turned(Embedder):
    """Vectors near to one direction that all have in common."""

    model, revision, dimensions = "turned", "1", 2

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        rows = numpy.array([[1.0, 0.1 if "up" in text else -0.1] for text in texts], "<f4")
        return [row.tobytes() for row in rows]


def test_what_all_vectors_have_in_common_is_taken_away() -> None:
    centred = Centred(_Turned(), ["up", "down"])
    up, down = (numpy.frombuffer(one, "<f4") for one in centred.embed(["up", "down"]))
    assert centred.revision == "1-centred"
    assert up @ down == pytest.approx(-1)
    assert up @ up == pytest.approx(1)


@pytest.mark.parametrize("known", MODELS[:2], ids=lambda known: known.name)
def test_the_first_models_are_those_of_the_product(known: Known) -> None:
    embedder = OfRole(Runtime(known, Path("none")), "passage")
    assert embedder.embed(["a lamp"]) == OnnxEmbedder(model=known.name).embed(["a lamp"])


def test_a_file_that_is_not_the_one_compared_is_refused(tmp_path: Path) -> None:
    known = MODELS[2]
    for name in (f"{known.stem}.onnx", f"{known.stem}-tokenizer.json"):
        (tmp_path / name).write_bytes(b"another")
    with pytest.raises(ValueError, match=r"all-minilm-l6-v2-q\.onnx is damaged"):
        files_of(known, tmp_path)
