"""Texts to vectors: all-MiniLM-L6-v2 on ONNX Runtime, or on torch by sentence-transformers.

Both take the same weights and give the same space, so one index serves both and a graph may be
written by either.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy

from enrichment.ports import Embedder
from pipelines.models import minilm
from pipelines.observe import metrics as telemetry
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable

BATCH = 8
"""Texts of one run of the model: with more, more is padded, and nothing gets faster (measured)."""

# 256 tokens are about 1,000 characters of English. What lies far beyond cannot matter, and a text
# of 256 KiB would keep the tokenizer busy for a fifth of a second.
_MAX_CHARACTERS = 16_384


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
        self.model: str = minilm.NAME
        self.revision: str = minilm.REVISION
        self.dimensions: int = minilm.DIMENSIONS
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
                found = self._run([encodings[index].ids for index in batch])
                for index, vector in zip(batch, found, strict=True):
                    vectors[index] = vector.tobytes()
            telemetry.MODEL_SECONDS.labels(model="embedding").inc(perf_counter() - begun)
        telemetry.MODEL_TEXTS.labels(model="embedding").inc(len(texts))
        return vectors

    def _run(self, ids: list[list[int]]) -> Any:
        longest = max(map(len, ids))
        tokens = numpy.zeros((len(ids), longest), numpy.int64)
        mask = numpy.zeros_like(tokens)
        for row, numbers in enumerate(ids):
            tokens[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        try:
            (found,) = self._session.run(None, {"ids": tokens, "mask": mask})
        except self._failures as error:
            raise ModelFailed(model=self.model, reason=str(error)[:200]) from error
        return numpy.ascontiguousarray(found, dtype="<f4")

    def _load(self) -> None:
        if self._session is not None:
            return
        # Here and not above: `import onnxruntime` takes 30 MB, and only one worker embeds.
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as state
        from tokenizers import Tokenizer

        model = minilm.load_minilm(self._folder)
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
        tokenizer.enable_truncation(minilm.MAX_TOKENS)
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
        self.model: str = minilm.NAME
        self.revision: str = minilm.REVISION
        self.dimensions: int = minilm.DIMENSIONS
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
                found = self._reference.encode(
                    [_bounded(text) for text in texts],
                    batch_size=BATCH,
                    normalize_embeddings=True,
                    show_progress_bar=False,
                )
            except RuntimeError as error:
                raise ModelFailed(model=self.model, reason=str(error)[:200]) from error
            telemetry.MODEL_SECONDS.labels(model="embedding").inc(perf_counter() - begun)
        telemetry.MODEL_TEXTS.labels(model="embedding").inc(len(texts))
        return [numpy.ascontiguousarray(vector, dtype="<f4").tobytes() for vector in found]

    def _load(self) -> None:
        if self._reference is not None:
            return
        folder = minilm.model_folder(self._folder)
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
        reference.max_seq_length = minilm.MAX_TOKENS
        self._reference = reference


def _batches(order: list[int]) -> Iterator[list[int]]:
    """Parts of `order`, which goes from short to long, that are computed at once."""
    return (order[first : first + BATCH] for first in range(0, len(order), BATCH))


def _bounded(text: str) -> str:
    """Cut, and fit for UTF-8: half a surrogate pair, which JSON may smuggle in, becomes `?`."""
    return text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
