"""Properties run in memory, where nothing comes back by itself while somebody waits for it."""

from __future__ import annotations

import pytest

from pipelines.proof import proof


@pytest.fixture(autouse=True)
def waiting_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proof waits for what a worker may bring back."""
    monkeypatch.setattr(proof, "RETURN_WAIT_S", 0.0)
