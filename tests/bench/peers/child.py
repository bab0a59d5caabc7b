"""The process of one peer: fills its folder, or answers from it.

    python -m tests.bench.peers.child NAME FOLDER --fill SOURCE
    python -m tests.bench.peers.child NAME FOLDER

SOURCE has `records.json` and `vectors.npy`. Without it, each line of standard input is a JSON list
of a verb and its arguments, and is answered by a line of JSON; it ends with its input.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.bench.peers.peer import PEERS, Peer, Record, Vector

RECORDS, VECTORS = "records.json", "vectors.npy"


def packed(vector: Vector) -> str:
    """A vector as text."""
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()


def unpacked(text: str) -> Vector:
    """And back."""
    return np.frombuffer(base64.b64decode(text), "<f4")


def opened(name: str, folder: Path) -> Peer:
    """A peer on its folder."""
    store: Peer = import_module(PEERS[name]).Store(folder)
    return store


def fill(peer: Peer, source: Path) -> None:
    """What a folder holds, into an empty peer."""
    rows = json.loads((source / RECORDS).read_text(encoding="utf-8"))
    peer.fill([Record(*row) for row in rows], np.load(source / VECTORS))


def resident_mb() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def serve(peer: Peer, questions: TextIO, answers: TextIO) -> None:
    """Answer until there are no more questions."""
    verbs: dict[str, Callable[..., Any]] = {
        "ask": lambda text, vector, k: peer.ask(text, unpacked(vector), k),
        "add": lambda record, vector: peer.add(Record(*record), unpacked(vector)),
        "version": lambda: f"{peer.package} {version(peer.package)}",
        "spent": lambda: [time.process_time(), resident_mb()],
    }
    for line in questions:
        verb, *arguments = json.loads(line)
        answers.write(json.dumps(verbs[verb](*arguments)) + "\n")
        answers.flush()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.peers.child", description=__doc__)
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fill", type=Path, metavar="SOURCE")
    given = parser.parse_args()
    # What a peer prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = opened(given.name, given.folder)
    if given.fill is not None:
        fill(peer, given.fill)
    else:
        serve(peer, sys.stdin, answers)


if __name__ == "__main__":
    main()
