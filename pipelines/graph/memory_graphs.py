"""Graphs in memory: those that this process holds, and where to ask for that of another process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from pipelines.graph.port import Graph
from pipelines.local.shared_process import socket_folder
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable

MEMORY_SCHEME: Final = "memory://"
SMALL_URI: Final = f"{MEMORY_SCHEME}small"
"""The graph of the small edition: one process of a data folder holds it, and serves it to others.
Whatever else is at `memory://` is its own in each process."""

_held: dict[str, Graph] = {}
_folding: dict[str, Callable[[], str]] = {}
_guard = Lock()


def is_in_memory(uri: str) -> bool:
    """Whether a target is a graph in the memory of some process."""
    return uri.startswith(MEMORY_SCHEME)


def held(uri: str, make: Callable[[], Graph] | None = None) -> Graph | None:
    """The graph at a URI that this process holds.

    Args:
        uri: of the target.
        make: if it holds none, it holds what this returns from now on; None: then the answer is
            None.
    """
    with _guard:
        if uri not in _held and make is not None:
            _held[uri] = make()
        return _held.get(uri)


def note_folding(uri: str, why: Callable[[], str] | None) -> None:
    """Say of a graph that this process holds that it is still folded from the ledger.

    Args:
        uri: of the target.
        why: how far it is, for whoever must wait; None: it is all there.
    """
    with _guard:
        _folding.pop(uri, None)
        if why is not None:
            _folding[uri] = why


def require_whole(uri: str) -> None:
    """Refuse answers from a graph that is still folded from the ledger.

    Raises:
        GraphUnavailable: it is.
    """
    with _guard:
        why = _folding.get(uri)
    if why is not None:
        raise GraphUnavailable(reason=why())


def graph_socket(settings: Settings) -> Path:
    """Where the graph of the small edition on this data folder is served."""
    folder = str(settings.data_dir.absolute())
    name = hashlib.blake2b(folder.encode(), digest_size=8).hexdigest()
    return socket_folder(settings.model_process_dir) / f"{name}.graph"
