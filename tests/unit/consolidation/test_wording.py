"""What a language model is asked of what the rules found, and what becomes of its words."""

from __future__ import annotations

import pytest

from consolidation.episodes import episodes
from consolidation.payloads import MAX_SUMMARY_CHARACTERS, CommunityText
from consolidation.sources import SourceEvent
from consolidation.summaries import summarize_agent, summarize_episode, summarize_session
from consolidation.summary_payloads import CONTENT_CHARACTERS, SessionSummary, parse_summary
from consolidation.wording import (
    as_before,
    community_question,
    summary_question,
    worded,
)
from tests.source_factories import called, mentioned, returned, said

BY = "large@wording1"
ON = (mentioned("HAT136", "target"),)
OPENING = "2026-02-02: assistant, for user, used book; about HAT136."


def failing(asked: str = "Book a flight to Seattle.", argument: str = "amount") -> SessionSummary:
    """A session in which something failed, and then went through."""
    return session_of(
        said(2, "user", asked),
        called(5, "book", f"{argument}: 5", mentions=ON, importance=6),
        returned(6, "book", error="payment does not add up", after=(5,), importance=7),
        called(7, "book", f"{argument}: 55", mentions=ON, importance=6),
        returned(8, "book", "HATHAT", after=(7,), importance=6),
    )


def session_of(*events: SourceEvent) -> SessionSummary:
    return summarize_session([summarize_episode(one) for one in episodes(events)])


def lines(summary: SessionSummary) -> list[str]:
    question = summary_question(summary)
    assert question is not None
    text: str = question["text"]
    return text.split("\n")


def test_the_rules_findings_are_sent_and_nothing_else() -> None:
    summary = failing()
    assert summary_question(summary) == {
        "of": "a session of agents and users",
        "text": "\n".join(
            [
                OPENING,
                "2026-02-02, request: user asked: Book a flight to Seattle.",
                "2026-02-02, resolution: book on HAT136 failed: payment does not add up; "
                "went through with amount 55 instead of 5",
                "learned: book failed: payment does not add up; "
                "went through with amount 55 instead of 5",
                "book: used 2 times, failed 1 times",
            ]
        ),
        "longest": CONTENT_CHARACTERS - len(OPENING) - 1,
    }
    agent = summary_question(summarize_agent("assistant", [summary]))
    assert agent is not None
    assert agent["of"] == "all that an agent did"
    assert agent["text"].startswith("assistant, 1 session, 2026-02-02: ")


@pytest.mark.parametrize("asked", ["Ann is a Catholic, call her.", "My password: hunter2 is lost."])
def test_what_is_protected_or_lets_somebody_in_is_not_sent(asked: str) -> None:
    assert [line for line in lines(failing()) if "request" in line]
    assert [line for line in lines(failing(asked)) if "request" in line] == []


def test_no_lesson_about_a_secret_is_sent() -> None:
    assert "with api_key 55 instead of 5" in failing(argument="api_key").content
    assert lines(failing(argument="api_key")) == [
        OPENING,
        "2026-02-02, request: user asked: Book a flight to Seattle.",
        "book: used 2 times, failed 1 times",
    ]


def test_nothing_is_asked_about_what_may_not_be_sent() -> None:
    assert summary_question(session_of(said(1, "user", "A diabetes, and a doctor for it."))) is None
    text = CommunityText("Ann and Bob", "Ann (person) and Bob (person): Ann prays.")
    assert community_question(text) is None
    assert community_question(text._replace(summary="Ann and Bob: Ann knows Bob.")) == {
        "of": "things that belong together",
        "text": "Ann and Bob\nAnn and Bob: Ann knows Bob.",
        "longest": MAX_SUMMARY_CHARACTERS,
    }


def test_words_stand_behind_the_first_line_and_all_else_stays() -> None:
    summary = failing()
    again = worded(summary, "The payment did not add up.", BY)
    assert again.content == f"{OPENING}\nThe payment did not add up."
    assert again.overview() == summary.overview()
    assert again.digest == summary.digest
    assert parse_summary(again.payload()) == again
    assert "worded_by" not in summary.payload()


def test_what_did_not_change_keeps_its_words() -> None:
    summary = failing()
    before = worded(summary, "The payment did not add up.", BY)
    assert as_before(summary, before) is before
    other = failing("Book a flight to Portland.")
    assert as_before(other, before) is other
    assert as_before(summary, None) is summary
    assert as_before(other, summary) is other
