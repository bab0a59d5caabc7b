"""What all parts of a pass share: where they read, how they decide, until when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from consolidation.decisions import decision_event
from consolidation.payloads import CONSOLIDATED_EVENT
from pipelines.graph.port import Reads
from pipelines.operations.passes.wording import Words
from projections.events import Event

Append = Callable[[Sequence[Event]], None]

AgentPart = tuple[str, str, tuple[str, ...]]
"""Whose sessions of an agent are told together: (tenant, agent id, users)."""


class UserSession(NamedTuple):
    """A session of one user that was summarised."""

    user_id: str
    ended_at_ms: int
    session_id: str


NO_DIGEST: Final = ""
"""Of what is decided anew: the digest, or fingerprint, of nothing that there is."""


@dataclass
class PassReport:
    """What a pass did.

    Attributes:
        events_forgotten: by tier.
        complete: it had time for all that there was to do.
        told: sessions of one user that were summarised.
        worded: summaries and communities that a language model worded.
        unworded: that it was to word, and the rules did.
    """

    sessions: int = 0
    episodes_written: int = 0
    sessions_written: int = 0
    agents_written: int = 0
    links_written: int = 0
    boosts_written: int = 0
    communities_written: int = 0
    traits_written: int = 0
    worded: int = 0
    unworded: int = 0
    events_forgotten: dict[str, int] = field(default_factory=dict)
    pairs_dropped: int = 0
    entities_archived: int = 0
    entities_returned: int = 0
    facts_expired: int = 0
    complete: bool = True
    agents: set[AgentPart] = field(default_factory=set)
    told: set[UserSession] = field(default_factory=set)

    def add(self, other: PassReport) -> None:
        """Count what another part of the pass did, too."""
        for part in fields(self):
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            if isinstance(mine, bool):
                setattr(self, part.name, mine and theirs)
            elif isinstance(mine, int):
                setattr(self, part.name, mine + theirs)
            elif isinstance(mine, set):
                mine |= theirs
            else:
                for key, number in theirs.items():
                    mine[key] = mine.get(key, 0) + number


@dataclass(frozen=True)
class Deciding:
    """How the parts of a pass read, and decide.

    Attributes:
        graph: that is read.
        append: takes decisions; those that the ledger holds already are the ledger's.
        applied: waits until the stage has applied what was appended.
        now_ms: the clock, which decisions bear.
        in_time: whether the pass may go on.
        run_id: of the pass.
        anew: nothing that was decided counts. Whatever a pass would leave as it is, because nothing
            changed since it was decided, looks changed: every session, every digest, every
            fingerprint. Positions of decisions are read as they are, so that what is decided now is
            another decision than the one before, and what is no more is told. Links and boosts are
            compared by what they say, whenever they were decided.
        words: words what is decided; None: the rules do.
    """

    graph: Reads
    append: Append
    applied: Callable[[], None]
    now_ms: int
    in_time: Callable[[], bool]
    run_id: str
    anew: bool = False
    words: Words | None = None

    def decision(
        self,
        tenant: str,
        payload: Mapping[str, Any],
        *about: object,
        event_type: str = CONSOLIDATED_EVENT,
    ) -> Event:
        """A decision of this pass as an event; see `decision_event`."""
        return decision_event(event_type, tenant, payload, self.now_ms, *about)
