"""Texts that are about something: real conversations where they are at hand, and made-up ones.

The events of `sample` draw their words from a list of two dozen, so that each of them is like all
others: good enough to write, no good to be searched by meaning.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from projections.events import Event, parse_event

LOCOMO = Path(__file__).parents[2] / "../shared/bench/locomo/data/events.jsonl"
"""Long conversations of two people each, a tenant each: 2,451 turns."""

_WHO = (
    *("The courier", "My sister", "A customer", "The night nurse", "Our landlord", "The agent"),
    *("A colleague", "The trainer", "The new intern", "Their lawyer", "The chef", "A neighbour"),
    *("The mechanic", "Her teacher", "The pharmacist", "An auditor", "The pilot", "Our gardener"),
)
_DID = (
    *("forgot to book", "cancelled", "asked about", "complained about", "finally repaired"),
    *("paid twice for", "was delighted with", "took pictures of", "lost the receipt for"),
    *("wrote a review of", "is saving up for", "dreamt of", "refused to sign for", "postponed"),
)
_WHAT = (
    *("the flight to Lisbon", "a second-hand bicycle", "the dental appointment", "a violin lesson"),
    *("the broken dishwasher", "the vegan wedding cake", "a refund of the deposit", "the marathon"),
    *("the database migration", "a stray kitten", "the tomato seedlings", "the insurance claim"),
    *("an antique clock", "the pottery course", "the chess tournament", "a leaking roof"),
    *("the quarterly report", "the blood test", "a tent for two", "the parking permit"),
)
_WHY = (
    *("because the card was declined", "although it had rained all week", "to surprise the kids"),
    *("after the update failed", "since nobody answered the phone", "just before closing time"),
    *("while the server was down", "for the third time this month", "as a birthday present"),
    *("despite the doctor's advice", "on the way to the station", "without telling anyone"),
)
_WHEN = ("yesterday", "last spring", "on Monday", "at dawn", "two hours ago", "over the holidays")


def locomo_events(most: int | None = None) -> list[Event]:
    """The first `most` turns of real conversations; none where the file is not at hand."""
    if not LOCOMO.exists():
        return []
    now_ms = int(time.time() * 1_000)
    with LOCOMO.open("rb") as lines:
        found = [parse_event(orjson.loads(line), now_ms=now_ms) for line in lines if line.strip()]
    return found[:most]


def made_up_texts(seed: int = 5) -> Iterator[str]:
    """Distinct sentences without end, the same at every run; some more alike than others."""
    rng = random.Random(seed)
    told: set[str] = set()
    while True:
        what = f"{rng.choice(_WHO)} {rng.choice(_DID)} {rng.choice(_WHAT)} {rng.choice(_WHEN)}"
        text = f"{what}, {rng.choice(_WHY)}." if rng.random() < 0.7 else f"{what}."
        if rng.random() < 0.3:
            text += f" {rng.choice(_WHO)} knows {rng.choice(_WHAT)}, number {rng.randrange(9_999)}."
        if text not in told:
            told.add(text)
            yield text
