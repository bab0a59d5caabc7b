"""What a peer is: a memory of texts in a folder, as its documentation says to use it.

Modules of peers run in an environment of their own (`requirements.txt`), which has nothing of
Recollect; so this module, theirs and `child` import numpy and the standard library, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Of unit length, 384 long."""
Vectors = NDArray[np.float32]
"""A row for each text."""

BY_HAND = "by hand"
LANCEDB = "LanceDB hybrid"
PEERS = {
    BY_HAND: "tests.bench.peers.by_hand",
    LANCEDB: "tests.bench.peers.lance",
    "Chroma": "tests.bench.peers.chroma",
    "mem0 without a model": "tests.bench.peers.mem0_raw",
}
"""Each peer's module by its name; the class in it is called `Store`."""


class Record(NamedTuple):
    """A text, and what is kept beside it."""

    id: str
    text: str
    session: str
    agent: str
    at_ms: int

    def metadata(self) -> dict[str, Any]:
        """All but id and text."""
        return {"session": self.session, "agent": self.agent, "at_ms": self.at_ms}


class Peer(Protocol):
    """A store in a folder; what was filled is there when the folder is opened again.

    Attributes:
        package: whose version is told.
    """

    package: str

    def fill(self, records: Sequence[Record], vectors: Vectors) -> None:
        """Put many in at once, into a folder that is empty; done when they can be asked for."""
        ...

    def add(self, record: Record, vector: Vector) -> None:
        """Put another in."""
        ...

    def ask(self, text: str, vector: Vector, k: int) -> list[str]:
        """The ids of the best k, best first, read with their texts and metadata."""
        ...
