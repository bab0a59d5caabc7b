"""The data set's own scorer, as it prints and as figures."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

OVERALL = "overall 1-4"
MULTI_HOP = "1 multi-hop"


class Change(NamedTuple):
    """Mean of paired differences, and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class Scorer:
    """Scores results of some questions.

    Args:
        folder: that holds `score.py`.
        questions: those that were asked, as JSON lines.
    """

    def __init__(self, folder: Path, questions: Path) -> None:
        self._path = folder / "score.py"
        self._file = questions
        self._own = runpy.run_path(str(self._path))
        self._questions = self._own["read"](questions)

    def printed(self, results: Path, against: Path) -> str:
        """What the scorer prints."""
        files = [str(path) for path in (self._path, self._file, results)]
        command = [sys.executable, *files, "--against", str(against)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def figures(self, results: Path) -> Mapping[str, Mapping[str, float]]:
        """Rows by name, as `OVERALL`; a category nobody was asked about has none."""
        table = self._own["table"](self._questions, self._scores(results))
        assert isinstance(table, dict)
        return table

    def change(self, results: Path, base: Path, column: str) -> Change:
        """What the results have more than others, over the categories that count."""
        own, other = self._scores(results), self._scores(base)
        return Change(*self._own["interval"](self._questions, own, other, column))

    def _scores(self, results: Path) -> Any:
        scores, _, _ = self._own["per_question"](self._questions, self._own["read"](results))
        return scores
