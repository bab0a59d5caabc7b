"""A stack whose ledger is enriched too: real models behind a store of what they computed."""

from __future__ import annotations

from typing import Any

from pipelines.models.loaded import Models
from tests.integration.stack import Stack
from tests.stages.enriched import EnrichedLedger
from tests.stages.enriched import called as called
from tests.stages.enriched import embedder as embedder
from tests.stages.enriched import recognizer as recognizer
from tests.stages.enriched import returned as returned
from tests.stages.enriched import said as said
from tests.stages.enriched import stated as stated


class Enriched(EnrichedLedger[Stack]):
    """Stage 2 of a stack."""

    def __init__(self, stack: Stack, **options: Any) -> None:
        services = stack.services
        # The models of the tests' process, also for what verify and rebuild do in it.
        services.__dict__["models"] = Models(services.settings, embedder(), recognizer())
        super().__init__(stack, {"embedder": embedder(), "recognizer": recognizer()}, **options)
