"""A peer in a process of its own, with the Python of the peers' environment."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from tests.bench.peers.child import RECORDS, VECTORS, packed
from tests.bench.peers.peer import Record, Vector, Vectors

_ROOT = Path(__file__).parents[3]
_PROGRAM = ("-m", "tests.bench.peers.child")
_LOG_CHARACTERS = 2_000


class PeerFailed(Exception):
    """A peer's process ended; the message has its last words."""


class Spent(NamedTuple):
    """By all threads of a peer's process since it began, s, and what it holds, MB."""

    cpu_s: float
    memory_mb: float


def environment(folder: Path) -> dict[str, str]:
    """Of a peer's process: nothing of ours, nothing to report to anybody, a home of its own."""
    return {
        "PATH": os.defpath,
        "HOME": str(folder),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(_ROOT),
        "ANONYMIZED_TELEMETRY": "False",
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(folder / "mem0"),
        "LANGSMITH_TRACING": "false",
        "HF_HUB_OFFLINE": "1",
        # Its threads spin for the next product, and what they spin would be counted.
        "OPENBLAS_NUM_THREADS": "1",
        # It warns at each query that another version will answer otherwise.
        "LANCEDB_LOG": "error",
    }


def write_source(folder: Path, records: Sequence[Record], vectors: Vectors) -> None:
    """What every peer is filled with."""
    (folder / RECORDS).write_text(json.dumps(records), encoding="utf-8")
    np.save(folder / VECTORS, vectors)


class PeerProcess:
    """A peer that answers from its folder; a context manager.

    Safe for use by several threads, which take turns.

    Args:
        python: of the environment that has the peer.
        name: one of `PEERS`.
        folder: the peer's alone, of an existing one's data.
    """

    def __init__(self, python: Path, name: str, folder: Path) -> None:
        self.name = name
        self._command = [str(python), *_PROGRAM, name, str(folder)]
        self._environment = environment(folder)
        self._log = folder.with_suffix(".log")
        self._guard = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def fill(self, source: Path) -> None:
        """Fill the folder, by a process that ends.

        Args:
            source: folder that `write_source` wrote.

        Raises:
            PeerFailed: it could not.
        """
        with self._log.open("ab") as log:
            ended = subprocess.run(
                [*self._command, "--fill", str(source)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if ended.returncode:
            raise self._failure()

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()  # what it has is ours to throw away
            self._process.communicate()

    def ask(self, text: str, vector: Vector, k: int) -> list[str]:
        """The ids of its best k.

        Raises:
            PeerFailed: it ended.
        """
        ids: list[str] = self._answer("ask", text, packed(vector), k)
        return ids

    def add(self, record: Record, vector: Vector) -> None:
        """Put one in.

        Raises:
            PeerFailed: it ended.
        """
        self._answer("add", record, packed(vector))

    def spent(self) -> Spent:
        """So far.

        Raises:
            PeerFailed: it ended.
        """
        return Spent(*self._answer("spent"))

    def version(self) -> str:
        """Its package, and which version of it.

        Raises:
            PeerFailed: it ended.
        """
        return str(self._answer("version"))

    def _answer(self, *question: Any) -> Any:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the peer was not entered")
        with self._guard:
            try:
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise self._failure()
        return json.loads(line)

    def _failure(self) -> PeerFailed:
        words = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
        return PeerFailed(f"{self.name}: {words}")
