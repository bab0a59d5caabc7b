"""What a message promises: the sentence that does, and not the first one, nor a rule."""

from __future__ import annotations

import pytest

from api.retrieval.outstanding import promised_in, promising_first
from api.retrieval.ranking import Ranked


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
        ("Good idea. I add a lid after the firing.", "I add a lid after the firing."),
        ("The potter visits you on Friday.", "The potter visits you on Friday."),
        ("You get a new bowl, I take care of it.", "You get a new bowl, I take care of it."),
        ("Sold out. I'm sending a bowl the day it comes.", "I'm sending a bowl the day it comes."),
        ("We are firing a new lid for you, before Friday.",) * 2,
        ("I get a smith to mend it as early as Friday.",) * 2,
        ("I'm opening the kiln.", None),
        ("I checked the kiln before the firing.", None),
        ("I think it cracked after the firing.", None),
        ("Count on me: a new lid by Friday.", "Count on me: a new lid by Friday."),
        ("A new lid is put on the van, promise.", "A new lid is put on the van, promise."),
        ("The glaze comes on Tuesday.", "The glaze comes on Tuesday."),
        ("You shall have the glaze by Tuesday.", "You shall have the glaze by Tuesday."),
        ("A potter will come to you on Tuesday.", "A potter will come to you on Tuesday."),
        ("The glaze should arrive on Tuesday.", None),
        ("Here it comes, bowl by bowl.", None),
        ("The kiln is ready on Monday.", None),
        ("As a rule we will answer within a week.", None),
        ("Shall I open it, or will you?", None),
        ("The glaze is blue.", None),
        ("Absolutely, we'll stick to that.", None),
        ("Noted, I will keep that in mind.", None),
        ("Of course, I will respect it.", None),
        ("I'll follow up on it tomorrow.", "I'll follow up on it tomorrow."),
        ("Let me glaze the lids anew, you have them before Monday.",) * 2,
        ("I ask the potter and let you know what she says.",) * 2,
        ("The lid is chipped. I have it mended for Friday.", None),
        ("I have the lid mended and sent over before Friday.",) * 2,
        ("One is left. I keep it for you at the desk.", "I keep it for you at the desk."),
        ("I saw it for you.", None),
        ("Very good, that's how it will be done.", None),
        ("So it shall be.", None),
        ("A potter looks at it, I arrange that for Friday.",) * 2,
        ("We fired it and let you know.", None),
        ("Let me know by Monday.", None),
        ("Let me look.", None),
        ("You have it on your desk.", None),
    ],
)
def test_the_sentences_that_promise_are_told(said: str, promised: str | None) -> None:
    assert promised_in(said) == promised


def test_what_promises_stands_before_what_is_read_with_it() -> None:
    ranking = [Ranked(name, 1 - place / 4, 0.5) for place, name in enumerate("abcd")]
    texts = {"a": "The kiln is hot.", "c": "I will open it tomorrow.", "d": "We will close it."}
    order = promising_first(ranking, texts)
    assert [one.node_id for one in order] == ["c", "b", "d", "a"]
    assert [one.rank for one in order] == [1.0, 0.75, 0.5, 0.25]
