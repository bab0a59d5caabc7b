"""Whoever is told to end ends, whatever its look after others waits for."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from pipelines.local import companions
from pipelines.local.companions import noted, watched
from pipelines.local.data_folder import locked, run_dir


def test_a_holder_ends_while_down_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`down` holds the lock until the holders have ended, so none may wait for it to end."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", "pass"])
    monkeypatch.setattr(companions, "LOOK_EVERY_S", 0.05)
    run_dir(tmp_path).mkdir(parents=True, exist_ok=True)
    asked = threading.Event()
    waited = locked

    def asking(path: Path) -> object:
        if path.name == "up.lock":
            asked.set()
        return waited(path)

    monkeypatch.setattr(companions, "locked", asking)
    # one that is noted and whose lock nobody holds: it was killed, and is to be started again
    with (
        noted(tmp_path, "other", lock=tmp_path / "other.lock", log=tmp_path / "other.log"),
        locked(run_dir(tmp_path) / "up.lock"),
    ):
        ended = threading.Event()

        def hold() -> None:
            with watched(tmp_path, "mine"):
                asked.wait(30)
            ended.set()

        threading.Thread(target=hold, daemon=True).start()
        assert asked.wait(30)
        assert ended.wait(30)
