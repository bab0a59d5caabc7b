"""What a message promises: the sentence that does, and not the first one, nor a rule."""

from __future__ import annotations

import pytest

from api.retrieval.promises import promised_in


@pytest.mark.parametrize(
    ("said", "promised"),
    [
        (
            "The kiln is at 900 degrees. I will send you a photo tomorrow.",
            "I will send you a photo tomorrow.",
        ),
        (
            "It waits for the board. Usually that takes a week. I'll call you when it is decided.",
            "I'll call you when it is decided.",
        ),
        (
            "Version 4.2.1 is out; I'll tell you by nine.",
            "Version 4.2.1 is out; I'll tell you by nine.",
        ),
        ("Your glaze will be refunded on Monday.", "Your glaze will be refunded on Monday."),
        (
            "Done. We are going to fire it again. You will get the rest then.",
            "We are going to fire it again.",
        ),
        ("As a rule we will answer within a week.", None),
        ("Shall I open it, or will you?", None),
        ("The glaze is blue.", None),
    ],
)
def test_the_sentences_that_promise_are_told(said: str, promised: str | None) -> None:
    assert promised_in(said) == promised
