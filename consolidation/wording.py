"""What a language model is asked to word of what a pass found, and what becomes of its words.

It is told what the rules found worth telling, and no event beside it. Its words take the place of
the lines below the first one; highlights, counts and lessons stay as they are. They are recorded
with the decision, so nobody is asked twice, and what did not change keeps the words that it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from consolidation.payloads import MAX_SUMMARY_CHARACTERS, CommunityText
from consolidation.summary_payloads import (
    CONTENT_CHARACTERS,
    AgentSummary,
    SessionSummary,
    by_time,
)
from enrichment.grounded import is_protected
from projections.times import day_text

Summary = TypeVar("Summary", SessionSummary, AgentSummary)

_OF: Final = {"session": "a session of agents and users", "agent": "all that an agent did"}
_SECRETS: Final = (
    r"(?:token|nonce|otp|secret|passw(?:or)?d|passphrase|credential|cvv|cvc"
    r"|(?:api|private|access)[ _-]?key)s?"
)
_SECRET: Final = re.compile(
    rf"{_SECRETS}[\"']?\s*[:=]|\bwith(?:out)? \w*{_SECRETS} ", re.IGNORECASE
)
"""Before what lets somebody in, as fields and lessons write it."""


def summary_question(summary: SessionSummary | AgentSummary) -> dict[str, Any] | None:
    """What to ask about a summary that the rules have worded; None: there is nothing to tell."""
    if not (notes := [line for line in _notes(summary) if _may_be_sent(line)]):
        return None
    opening = _opening(summary)
    about = [opening] if _may_be_sent(opening) else []
    return {
        "of": _OF[summary.scope],
        "text": "\n".join([*about, *notes]),
        "longest": CONTENT_CHARACTERS - len(opening) - 1,
    }


def worded(summary: Summary, text: str, by: str) -> Summary:
    """The summary with words of a model behind its first line.

    Args:
        summary: as the rules have worded it.
        text: of the model's answer, validated.
        by: which model, asked how.
    """
    content = f"{_opening(summary)}\n{text}"
    return summary.model_copy(update={"content": content, "worded_by": by})


def as_before(summary: Summary, before: Summary | None) -> Summary:
    """The summary as it was worded before, if it was by a model and says nothing else now."""
    if before is None or before.worded_by is None:
        return summary
    by_rules = before.model_copy(update={"content": summary.content, "worded_by": None})
    return before if by_rules.payload() == summary.payload() else summary


def community_question(text: CommunityText) -> dict[str, Any] | None:
    """What to ask about a community; None: nothing that may be sent."""
    notes = f"{text.name}\n{text.summary}"
    if not _may_be_sent(notes):
        return None
    return {"of": "things that belong together", "text": notes, "longest": MAX_SUMMARY_CHARACTERS}


def _opening(summary: SessionSummary | AgentSummary) -> str:
    return summary.content.partition("\n")[0]


def _notes(summary: SessionSummary | AgentSummary) -> Iterator[str]:
    for highlight in by_time(summary.highlights):
        yield f"{day_text(highlight.occurred_at_ms)}, {highlight.kind}: {highlight.text}"
    for lesson in summary.lessons or ():
        yield f"learned: {lesson.text}"
    for tool in summary.tools:
        failed = f", failed {tool.failed:,} times" if tool.failed else ""
        yield f"{tool.name}: used {tool.calls:,} times{failed}"


def _may_be_sent(line: str) -> bool:
    return not is_protected(line) and _SECRET.search(line) is None
