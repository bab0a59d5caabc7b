"""Draws the graphs of all-MiniLM-L6-v2 and of its int8: `python -m tests.minilm_graph`.

Needs the package `onnx`, which is only there for development. Operators are the standard's own
(opset 20): the runtime's fused attention was measured and is no faster on a CPU. Products of int8
are the runtime's: it makes whole numbers of what it is given, multiplies, and scales the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
from onnx import TensorProto, helper, numpy_helper

from pipelines.models import embedder
from pipelines.models.embedder import LAYERS, MAX_TOKENS
from pipelines.models.installed import DIMENSIONS, EMBEDDER, EMBEDDER_INT8

GRAPH = Path(embedder.__file__).with_name("minilm.onnx")
INT8_GRAPH = GRAPH.with_name("minilm-int8.onnx")

_RUNTIMES_OWN = "com.microsoft"

_HEADS = 12
_WIDE = 4 * DIMENSIONS
_WORDS = 30_522
_EPSILON = 1e-12
# Added to the attention a padding token would get: e to its power is 0 in float32.
_IGNORED = -1e4


class _Drawing:
    """Nodes and initializers in the order they are drawn; linear layers as int8 if asked for."""

    def __init__(self, *, int8: bool) -> None:
        self._int8 = int8
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: Any, kind: type[numpy.generic]) -> str:
        self.initializers.append(numpy_helper.from_array(numpy.array(value, kind), name))
        return name

    def weight(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        """A weight whose values are handed over when a session is made."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        place = tensor.external_data.add()
        place.key, place.value = "location", "handed over"
        self.initializers.append(tensor)
        return name

    def linear(self, name: str, given: str, wide_in: int, wide_out: int) -> str:
        if self._int8:
            return self._linear_int8(name, given, wide_in, wide_out)
        weight = self.weight(f"{name}.weight", wide_in, wide_out)
        product = self.node("MatMul", [given, weight], f"{name}.product")
        return self.node("Add", [product, self.weight(f"{name}.bias", wide_out)], f"{name}.sum")

    def _linear_int8(self, name: str, given: str, wide_in: int, wide_out: int) -> str:
        weight = self.weight(f"{name}.weight", wide_in, wide_out, kind=TensorProto.INT8)
        step, bias = (self.weight(f"{name}.{part}", wide_out) for part in ("step", "bias"))
        inputs = [given, weight, step, "", bias]
        return self.node("DynamicQuantizeMatMul", inputs, f"{name}.sum", domain=_RUNTIMES_OWN)

    def normal(self, name: str, given: str) -> str:
        scale = self.weight(f"{name}.scale", DIMENSIONS)
        shift = self.weight(f"{name}.shift", DIMENSIONS)
        inputs = [given, scale, shift]
        return self.node("LayerNormalization", inputs, name, axis=-1, epsilon=_EPSILON)


def draw(*, int8: bool = False) -> Any:
    """The model: `ids` and `mask` (batch, length) in, `embedding` (batch, 384) of length 1 out."""
    it = _Drawing(int8=int8)
    state, ignored = _words(it)
    it.constant("heads", [0, 0, _HEADS, DIMENSIONS // _HEADS], numpy.int64)
    it.constant("flat", [0, 0, DIMENSIONS], numpy.int64)
    it.constant("scale", (DIMENSIONS // _HEADS) ** -0.5, numpy.float32)
    for number in range(LAYERS):
        state = _layer(it, f"layer.{number}", state, ignored)
    _pool(it, state)
    graph = helper.make_graph(
        nodes=it.nodes,
        name=EMBEDDER_INT8 if int8 else EMBEDDER,
        inputs=[
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in ("ids", "mask")
        ],
        outputs=[
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", DIMENSIONS])
        ],
        initializer=it.initializers,
    )
    opsets = [helper.make_opsetid("", 20)]
    if int8:
        opsets.append(helper.make_opsetid(_RUNTIMES_OWN, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="recollect")


def _words(it: _Drawing) -> tuple[str, str]:
    words = it.node("Gather", [it.weight("words.table", _WORDS, DIMENSIONS), "ids"], "word")
    shape = it.node("Shape", ["ids"], "shape")
    unit = it.constant("one", 1, numpy.int64)
    length = it.node("Gather", [shape, unit], "length")
    places = it.node("Range", [it.constant("zero", 0, numpy.int64), length, unit], "places")
    table = it.weight("positions.table", MAX_TOKENS, DIMENSIONS)
    positions = it.node("Gather", [table, places], "position")
    placed = it.node("Add", [words, positions], "placed")
    real = it.node("Cast", ["mask"], "real", to=TensorProto.FLOAT)
    padding = it.node("Sub", [it.constant("unit", 1, numpy.float32), real], "padding")
    lost = it.node("Mul", [padding, it.constant("lost", _IGNORED, numpy.float32)], "lost.flat")
    axes = it.constant("over.heads", [1, 2], numpy.int64)
    return it.normal("words", placed), it.node("Unsqueeze", [lost, axes], "ignored")


def _layer(it: _Drawing, name: str, state: str, ignored: str) -> str:
    attend = it.linear(f"{name}.attend", state, DIMENSIONS, 3 * DIMENSIONS)
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    it.nodes.append(helper.make_node("Split", [attend], parts, axis=-1, num_outputs=3))
    turned = []
    for part, order in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True):
        split = it.node("Reshape", [part, "heads"], f"{part}.split")
        turned.append(it.node("Transpose", [split], f"{part}.turned", perm=order))
    query, key, value = turned
    scores = it.node("MatMul", [query, key], f"{name}.scores")
    scaled = it.node("Mul", [scores, "scale"], f"{name}.scaled")
    masked = it.node("Add", [scaled, ignored], f"{name}.masked")
    shares = it.node("Softmax", [masked], f"{name}.shares", axis=-1)
    mixed = it.node("MatMul", [shares, value], f"{name}.mixed")
    back = it.node("Transpose", [mixed], f"{name}.back", perm=(0, 2, 1, 3))
    flat = it.node("Reshape", [back, "flat"], f"{name}.flat")
    joined = it.linear(f"{name}.join", flat, DIMENSIONS, DIMENSIONS)
    attended = it.normal(
        f"{name}.attended", it.node("Add", [joined, state], f"{name}.attended.raw")
    )
    wide = it.linear(f"{name}.widen", attended, DIMENSIONS, _WIDE)
    active = it.node("Gelu", [wide], f"{name}.active")
    narrow = it.linear(f"{name}.narrow", active, _WIDE, DIMENSIONS)
    return it.normal(f"{name}.out", it.node("Add", [narrow, attended], f"{name}.out.raw"))


def _pool(it: _Drawing, state: str) -> None:
    """The mean over a text's own tokens; scaled to length 1, their sum is as good."""
    last = it.constant("last", [-1], numpy.int64)
    column = it.node("Unsqueeze", ["real", last], "real.column")
    masked = it.node("Mul", [state, column], "kept")
    middle = it.constant("over.tokens", [1], numpy.int64)
    total = it.node("ReduceSum", [masked, middle], "total", keepdims=0)
    norm = it.node("ReduceL2", [total, last], "norm", keepdims=1)
    it.node("Div", [total, norm], "embedding")


def drawn(*, int8: bool) -> bytes:
    """The content of the file."""
    content: bytes = draw(int8=int8).SerializeToString(deterministic=True)
    return content


if __name__ == "__main__":
    GRAPH.write_bytes(drawn(int8=False))
    INT8_GRAPH.write_bytes(drawn(int8=True))
