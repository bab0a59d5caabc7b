"""Context that nobody asked for and the graph finds relevant (S0): few, marked, at the end.

Pure. Three signals: a failure met before whose resolution is known (`recurring_pattern`), something
important about an entity of the question (`entity_context`), and what this session was shown
before and is read again and again (`retrieval_history`, at half weight). They take at most a fifth
of the page, within it, and stand behind what was asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from api.retrieval.ranking import Ranked, is_event
from pipelines.graph.reads.proactive import Signalled
from pipelines.observe.metrics import Signal

SHARE: Final = 0.2
"""Of the nodes of a page, at most."""
WEIGHTS: Final[Mapping[Signal, float]] = {
    "recurring_pattern": 1.0,
    "entity_context": 0.8,
    "retrieval_history": 0.5,
}
BEST_EVENTS: Final = 10
"""Of an answer, that proactive context starts from."""
BEST_ENTITIES: Final = 5

MAX_SESSIONS: Final = 2_000
MAX_SHOWN: Final = 100


def with_proactive(
    ranked: Sequence[Ranked], signalled: Iterable[Signalled], max_nodes: int
) -> list[Ranked]:
    """The ranking with the best of what nobody asked for, behind the rest of the first page.

    Args:
        ranked: what was asked for, the best first.
        signalled: what the graph adds.
        max_nodes: of a page.
    """
    shown = {one.node_id for one in ranked[:max_nodes]}
    best: dict[str, tuple[float, Signal]] = {}
    for one in signalled:
        score = WEIGHTS[one.signal] * min(1.0, one.score)
        if one.event_id not in shown and score > best.get(one.event_id, (0.0, ""))[0]:
            best[one.event_id] = (score, one.signal)
    most = int(max_nodes * SHARE)
    chosen = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:most]
    if not chosen:
        return list(ranked)
    direct = ranked[: max_nodes - len(chosen)]
    ceiling = direct[-1].rank if direct else 1.0
    added = [
        Ranked(event_id, ceiling * score, score, None, ("proactive",), signal)
        for event_id, (score, signal) in chosen
    ]
    ids = {event_id for event_id, _ in chosen}
    rest = [one for one in ranked[len(direct) :] if one.node_id not in ids]
    # The page first: what comes behind it ranks no higher, whatever its number was.
    return [*direct, *added, *rest]


class SessionHistory:
    """Which events each session was shown, in the memory of this process; the last ones of each.

    Safe for use by several threads.
    """

    def __init__(self) -> None:
        self._shown: OrderedDict[tuple[str, str], OrderedDict[str, None]] = OrderedDict()
        self._lock = threading.Lock()

    def shown(self, tenant: str, session_id: str) -> list[str]:
        """Ids of the events that the session was shown, the last ones last."""
        with self._lock:
            return list(self._shown.get((tenant, session_id), ()))

    def show(self, tenant: str, session_id: str, node_ids: Iterable[str]) -> None:
        """Note what the session is shown now."""
        key = (tenant, session_id)
        with self._lock:
            known = self._shown.setdefault(key, OrderedDict())
            self._shown.move_to_end(key)
            for node_id in filter(is_event, node_ids):
                known[node_id] = None
                known.move_to_end(node_id)
            while len(known) > MAX_SHOWN:
                known.popitem(last=False)
            while len(self._shown) > MAX_SESSIONS:
                self._shown.popitem(last=False)
