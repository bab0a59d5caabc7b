"""What stands behind failures in other sessions: a setting that was changed, an order of before."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from pipelines.columns.view import View

MAX_STEPS: Final = 5
"""From a failure to a cause."""
MAX_CAUSES: Final = 100
MAX_FAILURES: Final = 60
"""That are looked behind, in their order."""


def causes_elsewhere(view: View, failures: Iterable[int]) -> dict[int, int]:
    """Rows of the causes that stand in another session than their failure, and that failure's row.

    Of one that stands behind several failures the first counts.
    """
    session, causes = view.tenant.events.table["session"], view.tenant.causes
    elsewhere: dict[int, int] = {}
    for failure in islice(failures, MAX_FAILURES):
        met, level = {failure}, [failure]
        for _ in range(MAX_STEPS):
            behind = (edge.target for row in level for edge in causes.out(row))
            level = [row for row in dict.fromkeys(behind) if row not in met and view.seen[row]]
            met.update(level)
            for row in level:
                if session[row] != session[failure]:
                    elsewhere.setdefault(row, failure)
        if len(elsewhere) >= MAX_CAUSES:
            break
    return elsewhere
