"""A language model words what a pass found, as far as the pass has time for it.

Without one, or without an answer that is believed, everything stays as the rules have worded it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from consolidation.payloads import CommunityText
from consolidation.wording import Summary, community_question, summary_question, worded
from enrichment.prompts import WORDING, AnswersTogether, versions
from pipelines.observe import metrics

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
