"""In which order events tell of a person: what they said and had done before what was looked up."""

from __future__ import annotations

from api.retrieval.profiles import Proofs, profile_order
from tests.unit.api.story_builder import Told


def test_what_was_only_looked_up_stands_behind_what_was_done() -> None:
    stories = (
        Told()
        .add(0, "message", "move me to hall 4 please", author="ann", id="wish")
        .add(0, "call", "hall 4", tool="move_desk", id="done")
        .add(1, "call", "ann", tool="get_balance", id="look")
        .add(1, "result", "eur 12", tool="get_balance", id="balance")
        .stories()
    )
    proofs = Proofs(wishes=[], former=[], facts=["balance", "done"])
    order = profile_order(stories, ["balance", "look", "wish", "done"], proofs, {})
    assert order == ["wish", "done", "balance", "look"]
