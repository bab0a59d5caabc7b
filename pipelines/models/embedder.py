"""Texts to vectors: all-MiniLM-L6-v2 on ONNX Runtime, or on torch by sentence-transformers.

Both take the same weights and give the same space, so one index serves both and a graph may be
written by either. The model is a checked-in graph and the weights as published: `minilm.onnx`
(17 kB) is the graph alone, drawn by `tests/minilm_graph.py`; its weights are handed to the runtime
straight from the safetensors file. So there is no converted copy that could be half written or grow
stale, and the model has one digest. all-MiniLM-L6-v2-int8 is a second graph (`minilm-int8.onnx`)
over the same file, whose weights are made whole numbers when they are loaded (0.03 s).

Every text is a run of its own. So its vector is the same to the last bit whatever else is computed
with it or beside it, which in a batch it is not: sums are made in another order there, and what
int8 multiplies is scaled by the largest number of the run. Runs of four would take a tenth less
(measured), and a question would wait for four texts instead of none.

Products load no embedder; they ask the one of the machine (`shared_embedder`).
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from enrichment.ports import Embedder
from pipelines.models.installed import (
    DIMENSIONS,
    EMBEDDER,
    EMBEDDER_INT8,
    EMBEDDER_REVISION,
    TOKENIZER,
    WEIGHTS,
    EmbedderChoice,
    embedder_folder,
)
from pipelines.models.wire import bounded
from projections.errors import ModelFailed, ModelUnavailable

LAYERS = 6
MAX_TOKENS = 256
"""Longer texts are cut, as the reference does (its `max_seq_length`)."""
LARGEST_INT8 = 64
"""Of a weight of int8. Two products with a number of 0 to 255 then fit into 16 bits, so that
processors which add them up there (without VNNI) compute what all others do."""
_GRAPHS = {EMBEDDER: "minilm.onnx", EMBEDDER_INT8: "minilm-int8.onnx"}
Array = NDArray[Any]


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


def load_minilm(folder: Path | None = None, model: str = EMBEDDER) -> MiniLm:
    """Read and check everything; about 0.3 s and 90 MB.

    Args:
        folder: with the files; none: the installed package's.
        model: EMBEDDER or EMBEDDER_INT8.

    Raises:
        ModelUnavailable: a file is missing or is not the one that was published.
    """
    from safetensors.numpy import load_file

    checked = embedder_folder(folder)
    weights = initializers(load_file(checked / WEIGHTS))
    return MiniLm(
        graph=files("pipelines.models").joinpath(_GRAPHS[model]).read_bytes(),
        initializers=whole_numbers(weights) if model == EMBEDDER_INT8 else weights,
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


def whole_numbers(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of `minilm-int8.onnx`: matrices as int8, and what one is worth in each column."""
    narrow = dict(weights)
    for name, matrix in weights.items():
        if name.startswith("layer.") and name.endswith(".weight"):
            step = abs(matrix).max(axis=0) / LARGEST_INT8
            narrow[name] = numpy.rint(matrix / step).astype(numpy.int8)
            narrow[f"{name.removesuffix('weight')}step"] = step
    return narrow


def make_embedder(choice: EmbedderChoice) -> MiniLmEmbedder:
    """The embedder that was chosen; its model is loaded when first used."""
    folder = None if choice.folder is None else Path(choice.folder)
    if choice.backend == "sentence-transformers":
        return SentenceTransformersEmbedder(folder, threads=choice.threads)
    return OnnxEmbedder(folder, threads=choice.threads, model=choice.model)


class MiniLmEmbedder(Embedder):
    """The embedder in this process; safe for use by several threads.

    Args:
        folder: with the files of the model; none: the installed package's.
        threads: that compute one text.
        model: EMBEDDER or EMBEDDER_INT8, which only `OnnxEmbedder` has.
    """

    def __init__(
        self, folder: Path | None = None, *, threads: int = 1, model: str = EMBEDDER
    ) -> None:
        self.model: str = model
        self.revision: str = EMBEDDER_REVISION
        self.dimensions: int = DIMENSIONS
        self._folder = folder
        self._threads = threads
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the model if it is not.

        Raises:
            ModelUnavailable: it, or what runs it, is not installed, or its files are damaged.
        """
        with self._lock:
            self._load()

    @abstractmethod
    def _load(self) -> None:
        """The same, of one thread at a time."""


class OnnxEmbedder(MiniLmEmbedder):
    """By ONNX Runtime on the CPU; threads compute side by side.

    Args:
        folder: with `model.safetensors` and `tokenizer.json`; none: the installed package's.
        threads: that compute one text.
        model: EMBEDDER or EMBEDDER_INT8.
    """

    _session: Any = None
    _tokenizer: Any = None
    _weights: Any = None
    _failures: tuple[type[Exception], ...] = ()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text: little-endian float32, 384 long.

        A text is cut after 256 tokens; an empty one has a vector too. A vector depends on its text
        alone.

        Raises:
            ModelUnavailable: the model is not installed, or its files are damaged.
            ModelFailed: the runtime gave up.
        """
        if texts:
            self.load()
        return [self._run(text) for text in texts]

    def _run(self, text: str) -> bytes:
        ids = self._tokenizer.encode(bounded(text)).ids
        tokens = numpy.array([ids], numpy.int64)
        try:
            (vectors,) = self._session.run(None, {"ids": tokens, "mask": numpy.ones_like(tokens)})
        except self._failures as error:
            raise ModelFailed(model=self.model, reason=str(error)[:200]) from error
        return numpy.ascontiguousarray(vectors[0], dtype="<f4").tobytes()

    def _load(self) -> None:
        if self._session is not None:
            return
        # Here and not above: `import onnxruntime` takes 30 MB.
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as state
        from tokenizers import Tokenizer

        model = load_minilm(self._folder, self.model)
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


class SentenceTransformersEmbedder(MiniLmEmbedder):
    """By sentence-transformers and torch, for who has them (a GPU, say); threads take turns."""

    _reference: Any = None

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text, as `OnnxEmbedder.embed`."""
        if not texts:
            return []
        with self._lock:
            self._load()
            try:
                vectors = self._reference.encode(
                    [bounded(text) for text in texts],
                    batch_size=1,
                    normalize_embeddings=True,
                    show_progress_bar=False,
                )
            except RuntimeError as error:
                raise ModelFailed(model=self.model, reason=str(error)[:200]) from error
        return [numpy.ascontiguousarray(vector, dtype="<f4").tobytes() for vector in vectors]

    def _load(self) -> None:
        if self._reference is not None:
            return
        folder = embedder_folder(self._folder)
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
