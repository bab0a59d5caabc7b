"""Vectors of texts by any of the models, one run a text as the product does, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy

from enrichment.ports import Embedder
from pipelines.models.embedder import MAX_TOKENS, OnnxEmbedder
from pipelines.models.installed import DIMENSIONS
from tests.bench.embedding_models.known import Known, files_of

Array = Any
Role = Literal["question", "passage"]


class Runtime:
    """One model in this process, on one thread.

    Args:
        known: which.
        folder: of the fetched files.
    """

    def __init__(self, known: Known, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self.known = known
        self._own: OnnxEmbedder | None = None
        if not known.artifact:
            self._own = OnnxEmbedder(model=known.name)
            self._own.load()
            return
        graph, tokenizer = files_of(known, folder)
        self._tokenizer: Any = Tokenizer.from_str(tokenizer.read_text("utf-8"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(graph), options, providers=["CPUExecutionProvider"]
        )

    def vector(self, text: str, role: Role) -> bytes:
        """Of unit length, little-endian float32."""
        if self._own is not None:
            return self._own.embed([text])[0]
        tokens = self.tokens(text, role)
        return _unit(tokens[0] if self.known.first else tokens.mean(axis=0))

    def tokens(self, text: str, role: Role) -> Array:
        """A row for each token, as the last layer leaves it."""
        whole = getattr(self.known, role) + text
        ids = numpy.array([self._tokenizer.encode(whole).ids], numpy.int64)
        given = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}
        (rows,) = self._session.run(None, {**given, "token_type_ids": numpy.zeros_like(ids)})
        return rows[0]


class OfRole(Embedder):
    """A model for texts of one role: questions, or what is looked for."""

    def __init__(self, runtime: Runtime, role: Role) -> None:
        prefix = getattr(runtime.known, role)
        self.model: str = runtime.known.name.replace(" ", "-")
        self.revision: str = f"bench-{role}" if prefix else "bench"
        self.dimensions: int = DIMENSIONS
        self._runtime = runtime
        self._role: Role = role

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text."""
        return [self._runtime.vector(text, self._role) for text in texts]

    def load(self) -> None:
        """It is."""

    def close(self) -> None:
        """It stays."""


class Centred(Embedder):
    """Vectors of an embedder less what all have in common: the mean of those of some texts.

    Args:
        embedder: that computes, or remembers.
        texts: of another set, so that what is judged tells nothing about itself.
    """

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self.model: str = embedder.model
        self.revision: str = f"{embedder.revision}-centred"
        self.dimensions: int = embedder.dimensions
        self._embedder = embedder
        self._mean = numpy.mean([_row(one) for one in embedder.embed(texts)], axis=0)

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text."""
        return [_unit(_row(one) - self._mean) for one in self._embedder.embed(texts)]

    def load(self) -> None:
        """It is."""

    def close(self) -> None:
        """It stays."""


def _row(vector: bytes) -> Array:
    return numpy.frombuffer(vector, "<f4")


def _unit(row: Array) -> bytes:
    return numpy.ascontiguousarray(row / numpy.linalg.norm(row), "<f4").tobytes()


def costs(runtimes: Sequence[Runtime], texts: Sequence[str], role: Role) -> list[float]:
    """Milliseconds of processor a text, by each model; they take turns, text by text."""
    spent: list[list[float]] = [[] for _ in runtimes]
    for runtime in runtimes:
        runtime.vector("ready", role)
    for text in texts:
        for runtime, own in zip(runtimes, spent, strict=True):
            began_ns = time.process_time_ns()
            runtime.vector(text, role)
            own.append((time.process_time_ns() - began_ns) / 1e6)
    return [fmean(own) for own in spent]
