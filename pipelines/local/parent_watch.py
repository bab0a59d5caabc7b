"""A child that ends with its parent, by the pipe whose other end the parent holds.

Apart from `children`, so that a child need not load what its parent starts it with.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def end_with_standard_input(end: Callable[[], None]) -> None:
    """Call `end` when standard input closes, that is when the parent that holds it is gone."""

    def watch() -> None:
        # Not through sys.stdin: its lock, held by a read, makes the interpreter abort at its end.
        while os.read(0, 4096):
            pass
        end()

    threading.Thread(target=watch, name="leash", daemon=True).start()
