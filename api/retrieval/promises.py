"""What a message promises: the sentences in which somebody says what they will do. Pure."""

from __future__ import annotations

import re
from typing import Final

_SENTENCE: Final = re.compile(r"[^.!?\n]*(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*")
_WILL: Final = re.compile(
    r"(?<!\w)(?:(?:i|we)\s*(?:['\u2019]ll|\s(?:will|shall|promise|am\s+going\s+to|are\s+going\s+to))|"
    r"(?:i['\u2019]m|we['\u2019]re)\s+going\s+to|i\s+(?:\w+\s+)?will)(?!\w)",
    re.IGNORECASE,
)
"""Somebody says what they themselves will do."""
_TO_COME: Final = re.compile(
    r"(?<!\w)(?:(?:you|it|this|that|they|\w+)\s*(?:['\u2019]ll|\swill)\s+(?:be|get|receive|have|hear)|"
    r"you\s+(?:get|receive|hear))(?!\w)",
    re.IGNORECASE,
)
"""Somebody says what will be done."""
_AS_A_RULE: Final = re.compile(
    r"(?<!\w)(?:as\s+a\s+rule|usually|normally|typically|generally|in\s+general|in\s+most\s+cases|"
    r"mostly|often|(?:cannot|can['\u2019]?t|could\s+not)\s+promise)(?!\w)",
    re.IGNORECASE,
)
"""What is so in general is promised to nobody."""


def promised_in(text: str) -> str | None:
    """The sentences that promise something, as they were said; None: none does.

    What somebody will do themselves before what will be done; what is so as a rule is no promise.
    """
    sentences = [found.strip() for found in _SENTENCE.findall(text)]
    told = [
        sentence
        for sentence in sentences
        if sentence and not (sentence.endswith("?") or _AS_A_RULE.search(sentence))
    ]
    for pattern in (_WILL, _TO_COME):
        if promising := [one for one in told if pattern.search(one)]:
            return " ".join(promising)
    return None
