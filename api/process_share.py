"""What one process of an API has to do with the others that serve on the same port."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Share:
    """The place of one process among those of an API.

    Attributes:
        processes: of the API, this one included.
        number: of the place, from 0; who takes the place of one that ended has the same.
        folder: of what they count together, private; None: the process is alone.
        waits: connections are taken once it is warm, because others take them meanwhile.
    """

    processes: int = 1
    number: int = 0
    folder: Path | None = None
    waits: bool = False

    @property
    def counts(self) -> Path | None:
        """The file of what is counted for limits; None: memory of this process."""
        return None if self.folder is None else self.folder / "limits"

    @property
    def streams(self) -> Path | None:
        """The file whose bytes are locked for streams; None: the process is alone."""
        return None if self.folder is None else self.folder / "streams"

    def of(self, amount: int) -> int:
        """The part of an amount that is this process' own, at least 1 of 1 or more."""
        return -(-amount // self.processes)


ALONE: Final = Share()
