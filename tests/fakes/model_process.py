"""A model process whose model does what its texts say, and writes down what it computed.

Started as the real one is, with a folder before the other arguments. In that folder `computed` has
a line for each text, in order, and `started` one for each process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from pipelines.models import model_process
from pipelines.models.installed import DIMENSIONS
from projections.errors import ModelFailed, ModelUnavailable

ROOT = Path(__file__).resolve().parents[2]


def fake_program(folder: Path) -> list[str]:
    """The command line of a process whose files are in a folder."""
    start = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from tests.fakes import model_process as m"
    )
    return [sys.executable, "-P", "-c", f"{start}; m.main(*sys.argv[1:])", str(folder)]


def vector_of(text: str, nice: int = 0) -> bytes:
    """What the model gives."""
    said = array("f", (len(text), nice, *text.encode()[:100]))
    return said.tobytes().ljust(4 * DIMENSIONS, b"\0")


class ObedientEmbedder:
    """Texts are orders: `wait NAME`, `kill NAME` (once), `kill always`, `fail`, `nice`."""

    model, revision, dimensions = "obedient", "1", DIMENSIONS

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self) -> None:
        if (self.folder / "missing").exists():
            raise ModelUnavailable(model=self.model, reason="it is missing", fix="bring it back")

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.load()
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        order, _, name = text.partition(" ")
        self._note("computed", text)
        if order == "wait":
            while not (self.folder / name).exists():
                time.sleep(0.01)
        if order == "kill" and self._is_first_time(name):
            os.kill(os.getpid(), signal.SIGKILL)
        if order == "fail":
            raise ModelFailed(model=self.model, reason="as it was told")
        return vector_of(text, os.getpriority(os.PRIO_PROCESS, 0) if order == "nice" else 0)

    def _is_first_time(self, name: str) -> bool:
        if name == "always":
            return True
        try:
            (self.folder / f"killed-{name}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _note(self, file: str, line: str) -> None:
        with (self.folder / file).open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")


def main(folder: str, *arguments: str) -> None:
    """As `pipelines.models.model_process.main`, with that embedder."""
    embedder = ObedientEmbedder(Path(folder))
    embedder._note("started", str(os.getpid()))
    model_process.serve(embedder, *arguments[:3])
