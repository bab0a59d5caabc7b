"""What is derived is kept, counted by `status`, and made again when it is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pipelines.models import derivations
from pipelines.operations.status import status
from pipelines.work import event_derivations
from projections.errors import ModelFailed
from projections.events import Event
from tests.integration.enrichment_support import embedder, recognizer, returned, said
from tests.integration.stack import ValkeyStack
from tests.stages.enriched import EnrichedLedger, stated

pytestmark = pytest.mark.integration

EVENTS: list[Event] = [
    said(1, "Yesterday Ann walked to the old harbour with Bob Miller."),
    said(2, "Did you like the old harbour there?", "Bob"),
    returned(3, "get_order", {"id": "order-17", "status": "shipped", "user_id": "u_1"}),
    said(4, "It was cold.", session_id="session-2"),
]
STATEMENT = stated(
    9,
    "memory.fact_asserted",
    {"source": {"name": "Ann"}, "relation": "lives_in", "target": {"name": "Oslo"}},
)


class NoModel:
    """Stands where a model was, and is never asked."""

    def __init__(self, real: Any) -> None:
        self.model, self.revision = real.model, real.revision
        self.dimensions = getattr(real, "dimensions", 0)

    def load(self) -> None:
        """It is not there."""

    def close(self) -> None:
        """It is not there."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        raise AssertionError(f"embedded: {texts}")

    def analyze_encoded(self, texts: Sequence[str]) -> list[bytes | None]:
        raise AssertionError(f"analysed: {texts}")


def no_models() -> dict[str, Any]:
    return {"embedder": NoModel(embedder()), "recognizer": NoModel(recognizer())}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "derivations.sqlite"


@pytest.fixture
def stack(redis_url: str, path: Path) -> Iterator[ValkeyStack]:
    made = ValkeyStack(redis_url, f"memory://{uuid4().hex}", derivations_url=f"sqlite://{path}")
    yield made
    made.close()


@pytest.fixture
def enriched(stack: ValkeyStack) -> EnrichedLedger[ValkeyStack]:
    models = {"embedder": embedder(), "recognizer": recognizer()}
    made = EnrichedLedger(stack, models)
    made.take_in(*EVENTS, STATEMENT)
    return made


def told(stack: ValkeyStack) -> tuple[int | None, int | None, int | None]:
    document = status(stack.services)["derivations"]
    assert document["error"] is None
    return document["kept"], document["events"], document["lacking"]


def test_every_event_that_is_enriched_is_counted(
    enriched: EnrichedLedger[ValkeyStack], path: Path
) -> None:
    stack = enriched.stack
    assert told(stack) == (4, 4, 0)
    assert status(stack.services)["derivations"]["store"] == f"sqlite://{path}"
    stack.append(said(5, "One more."))
    assert told(stack) == (4, 5, 1)
    stack.fold()
    enriched.fold()
    assert told(stack) == (5, 5, 0)


def test_a_graph_is_folded_again_without_a_model(enriched: EnrichedLedger[ValkeyStack]) -> None:
    before = enriched.folded()
    runner = enriched.new_runner(stage=enriched.new_stage(**no_models()))
    for partition in range(enriched.stack.ledger.partitions):
        for entries in enriched.stack.ledger.scan(partition):
            assert runner.refold(partition, entries) == []
    assert enriched.folded() == before
    assert told(enriched.stack) == (4, 4, 0)


def derived(enriched: EnrichedLedger[ValkeyStack], **models: Any) -> list[Any]:
    """What a worker that has just started derives from the ledger."""
    ledger, stage = enriched.stack.ledger, enriched.new_stage(**models)
    placed = [
        (entry.position, entry.event())
        for partition in range(ledger.partitions)
        for entries in ledger.scan(partition)
        for entry in entries
    ]
    return list(stage.derive(placed))


def test_what_is_kept_is_what_would_be_derived(
    enriched: EnrichedLedger[ValkeyStack], path: Path
) -> None:
    held = derived(enriched, **no_models())
    path.unlink()
    assert derived(enriched) == held
    assert any(one.assertions for one in held)
    assert any(one.names for one in held)


def test_other_rules_take_the_kept_analyses(
    enriched: EnrichedLedger[ValkeyStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = derived(enriched)
    for module in (derivations, event_derivations):
        monkeypatch.setattr(module, "rules_digest", lambda: bytes(16))
    assert told(enriched.stack) == (0, 4, 4)
    assert derived(enriched, **no_models()) == held
    enriched.refold()
    assert told(enriched.stack) == (4, 4, 0)


def test_after_a_loss_all_lack_until_they_are_derived_again(
    enriched: EnrichedLedger[ValkeyStack], path: Path
) -> None:
    before = enriched.folded()
    path.unlink()
    # what the fifth entry is, nobody has looked
    assert told(enriched.stack) == (0, 5, 5)
    enriched.refold()
    assert told(enriched.stack) == (4, 4, 0)
    assert enriched.folded() == before


class Choosy:
    """The real model, which gives up on a text."""

    def __init__(self, real: Any, refused: str) -> None:
        self.model, self.revision = real.model, real.revision
        self.dimensions = getattr(real, "dimensions", 0)
        self._real, self._refused = real, refused

    def load(self) -> None:
        """It is."""

    def close(self) -> None:
        """It stays."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        if any(self._refused in text for text in texts):
            raise ModelFailed(model=self.model, reason="it gave up")
        found: list[bytes] = self._real.embed(texts)
        return found

    def analyze_encoded(self, texts: Sequence[str]) -> list[bytes | None]:
        found = self._real.analyze_encoded(texts)
        return [
            None if self._refused in text else one for text, one in zip(texts, found, strict=True)
        ]


@pytest.mark.parametrize("which", ["embedder", "recognizer"])
def test_an_event_that_went_without_something_lacks_it_until_it_has_it(
    stack: ValkeyStack, which: str
) -> None:
    real: dict[str, Any] = {"embedder": embedder(), "recognizer": recognizer()}
    enriched = EnrichedLedger(stack, real | {which: Choosy(real[which], "cold")})
    enriched.take_in(*EVENTS)
    assert told(stack) == (3, 4, 1)
    enriched._models = real
    enriched.refold()
    assert told(stack) == (4, 4, 0)


def test_a_store_that_is_away_is_told_and_stops_nobody(redis_url: str, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/missing/derivations.sqlite"
    stack = ValkeyStack(redis_url, f"memory://{uuid4().hex}", derivations_url=url)
    enriched = EnrichedLedger(stack, {"embedder": embedder(), "recognizer": recognizer()})
    enriched.take_in(*EVENTS)
    document = status(stack.services)["derivations"]
    assert (document["kept"], document["lacking"]) == (None, None)
    assert "No such file" in document["error"]
    stack.close()


def test_without_a_store_nothing_is_told_to_be_kept(redis_url: str) -> None:
    stack = ValkeyStack(redis_url, f"memory://{uuid4().hex}")
    enriched = EnrichedLedger(stack, {"embedder": embedder(), "recognizer": recognizer()})
    enriched.take_in(*EVENTS)
    assert set(status(stack.services)["derivations"].values()) == {None}
    stack.close()
