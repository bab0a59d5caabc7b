"""Logs that stay bounded while others write to them.

A child prints to a file, not to a pipe: so a supervisor that hangs holds up no child, and its end
loses nothing that was printed. Hence a log is not renamed under its writers, but copied and then
cut; they append, and go on at its new end.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from pipelines.local.private_files import open_private

LOG_BYTES: Final = 10 * 1024 * 1024
"""Of a log, after which it is put aside."""
LOGS_KEPT: Final = 3
"""Put aside beside each log: `.1` is the youngest."""


def keep_small(log: Path) -> None:
    """Put the log aside and begin it anew if it has grown beyond its limit.

    On a full disk nothing can be put aside: then the log is only begun anew, and nobody is told by
    an error, because whoever looks after a child must go on with it.

    Args:
        log: opened for appending by whoever writes to it; it may be missing.
    """
    # FileNotFoundError, too: a target that is dropped takes its log with it.
    with suppress(OSError):
        if log.stat().st_size >= LOG_BYTES:
            turned = RotatingFileHandler(log, backupCount=LOGS_KEPT, delay=True)
            turned.rotator = _copy_and_cut
            turned.doRollover()
            turned.close()


def _copy_and_cut(log: str, copy: str) -> None:
    try:
        with Path(log).open("rb") as source, open_private(Path(copy), "wb") as target:
            shutil.copyfileobj(source, target)
            # What came meanwhile, so that as good as nothing comes between this and the cut.
            shutil.copyfileobj(source, target)
    finally:
        os.truncate(log, 0)
