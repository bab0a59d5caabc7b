"""`Memory.local()`: five lines that start everything, and leave nothing running."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pipelines.local.data_folder import read_holder, read_state
from recollect import Memory

pytestmark = pytest.mark.acceptance_long


def test_local_starts_what_is_missing_joins_what_runs_and_stops_what_it_started(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with Memory.local(data) as memory:
        with memory.session("s-1", agent="payments") as session:
            session.log("user", "My card was charged twice")
        assert "charged twice" in memory.ask("why was the card charged twice?", timeout_s=30).text
        with Memory.local(data) as second:
            assert "charged twice" in second.context("s-1", timeout_s=30).text
        holder = read_holder(data)
        assert holder is not None
        assert httpx.get(f"{holder['api_url']}/health/live").status_code == 200
    assert (read_holder(data), read_state(data)) == (None, None)
