"""What a report says of the machine, and of a run while it goes on."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any


def machine(*, heap_mb: int, page_cache_mb: int) -> dict[str, Any]:
    """The part of a document that is about the machine.

    Args:
        heap_mb: of each Neo4j.
        page_cache_mb: likewise.
    """
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "neo4j_heap_mb": heap_mb,
        "neo4j_page_cache_mb": page_cache_mb,
        "load_before": load(),
    }


def load() -> float:
    """Runnable processes, the mean of a minute."""
    return round(os.getloadavg()[0], 1)


def say(text: str) -> None:
    """Tell how far the run is, on standard error."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()
