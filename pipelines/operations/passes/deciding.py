"""What all parts of a pass share: where they read, how they decide and word it, until when.

A language model words what a pass found, as far as the pass has time for it. Without one, or
without an answer that is believed, everything stays as the rules have worded it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

import structlog

from consolidation.decisions import decision_event
from consolidation.payloads import CONSOLIDATED_EVENT, CommunityText
from consolidation.wording import Summary, community_question, summary_question, worded
from enrichment.prompts import WORDING, AnswersTogether, versions
from pipelines.graph.port import Reads
from pipelines.observe import metrics
from projections.events import Event

_TOGETHER: Final = 4
"""Times as many questions are put together as the model is asked at once."""

logger = structlog.get_logger(__name__)


class Words:
    """Asks one language model during one pass.

    Args:
        model: validates its answers.
        name: of the model.
        concurrency: questions that it is asked at once.
        within_s: how long the pass waits for it, all questions together; then it is asked no more.
        now: clock, seconds.

    Attributes:
        by: who words: the model, and the version of the prompt.
        at_once: how many questions are best put together.
        worded, unworded: questions so far that it answered, and that it did not.
    """

    def __init__(
        self,
        model: AnswersTogether,
        name: str,
        *,
        concurrency: int,
        within_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        shown = "".join(letter for letter in name if letter.isprintable())
        self.by: str = f"{shown}@{versions((WORDING,))}"
        self.at_once: int = _TOGETHER * concurrency
        self.worded = 0
        self.unworded = 0
        self._model = model
        self._left_s = within_s
        self._now = now

    def summaries(self, by_rules: Sequence[Summary]) -> list[Summary]:
        """Summaries as the model words them, those as they are of which it says nothing.

        Raises:
            Stopped: the model was closed meanwhile.
        """
        texts = self._texts([summary_question(summary) for summary in by_rules])
        return [
            summary if text is None else worded(summary, text, self.by)
            for summary, text in zip(by_rules, texts, strict=True)
        ]

    def community(self, by_rules: CommunityText) -> CommunityText:
        """A community's text, likewise; its name stays.

        Raises:
            Stopped: the model was closed meanwhile.
        """
        (text,) = self._texts([community_question(by_rules)])
        return by_rules if text is None else by_rules._replace(summary=text, worded_by=self.by)

    def _texts(self, questions: Sequence[Mapping[str, Any] | None]) -> list[str | None]:
        batch = [question for question in questions if question is not None]
        self.unworded += len(batch)  # for the time being
        if self._left_s <= 0:
            metrics.count_unanswered(WORDING, "suspended", len(batch))
            return [None] * len(questions)
        begun_s = self._now()
        answers = self._model.answers([(WORDING, question) for question in batch])
        self._left_s -= self._now() - begun_s
        believed = len(batch) - answers.count(None)
        self.worded += believed
        self.unworded -= believed
        if self._left_s <= 0:
            logger.warning("the rest of the pass is worded by rules", waited_for=self.by)
        texts = iter(None if answer is None else answer["text"] for answer in answers)
        return [None if question is None else next(texts) for question in questions]


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
