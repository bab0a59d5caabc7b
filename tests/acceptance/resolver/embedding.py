"""Vectors of the labelled names, from the embedder that the product uses."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from enrichment.names import canonical_name
from pipelines.models.model_client import SharedEmbedder
from pipelines.work.settings import Settings
from tests.acceptance.resolver.resolving import Labelled, Vectors


def vectors(mentions: Sequence[Labelled]) -> Vectors:
    """By canonical name."""
    names = sorted({canonical_name(one.name) for one in mentions})
    with SharedEmbedder(Settings()) as embedder:
        made = embedder.embed(names)
    return {name: array("f", vector) for name, vector in zip(names, made, strict=True)}
