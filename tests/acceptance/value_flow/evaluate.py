"""Precision and recall of the value-flow rule against the labels.

A *pair* is (call, earlier message). A pair whose earlier message is the call's own parent is left
out on both sides: the direct edge says it already, the rule never may. A pair that the rule gives
is true when the message is the source of a use in the call; a labelled pair is found when the
rule gives it. Conversations are numbered from 1; the rule was tuned on those with odd numbers.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from enrichment.causality import (
    WINDOW,
    Features,
    features,
    inferred_causes,
    value_origins,
)
from pipelines.operations.formats.chat import conversation_events
from projections.events import parse_event
from tests.acceptance.value_flow import label

CONVERSATIONS = Path(__file__).parents[4] / "shared/data/tau-bench/gpt-4o-airline.json.gz"
NEGATIVES = Path(__file__).with_name("negatives.jsonl")
_FAR_FUTURE_MS = 2**45


class Pair(NamedTuple):
    """Places in a conversation (numbered from 1)."""

    conversation: int
    call: int
    source: int


@dataclass
class Conversation:
    """A conversation as messages and as what the rule sees of its events."""

    number: int
    messages: list[dict[str, Any]]
    events: list[Features]
    place_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place_of = {event.event_id: place for place, event in enumerate(self.events)}

    def before(self, place: int) -> list[Features]:
        return self.events[max(0, place - WINDOW) : place]

    def parent(self, place: int) -> int | None:
        return self.place_of.get(self.events[place].parent_event_id or "")

    def labelled(self, *, lenient: bool = False) -> set[Pair]:
        """Every true pair when lenient, else those of the sources."""
        pairs = set()
        for made in label.labels(self.messages):
            sources: Iterable[int | None] = made.lenient if lenient else (made.source,)
            for source in sources:
                if source is not None and source != self.parent(made.use.call):
                    pairs.add(Pair(self.number, made.use.call, source))
        return pairs

    def first_lenient(self) -> set[Pair]:
        """The first earlier result or user message of each use."""
        return {
            Pair(self.number, made.use.call, made.lenient[0])
            for made in label.labels(self.messages)
            if made.lenient and made.lenient[0] != self.parent(made.use.call)
        }

    def inferred(self) -> dict[Pair, str]:
        """Pairs of the rule with their evidence."""
        found = {}
        for place, effect in enumerate(self.events):
            for cause in inferred_causes(self.before(place), effect):
                if cause.rule == "value_flow":
                    source = self.place_of[cause.cause_event_id]
                    found[Pair(self.number, place, source)] = cause.evidence
        return found


class Score(NamedTuple):
    """How the pairs of the rule compare with the labelled ones."""

    given: int
    true: int
    labelled: int
    found: int

    @property
    def precision(self) -> float:
        return self.true / self.given if self.given else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.labelled if self.labelled else 1.0


def conversations(path: Path = CONVERSATIONS) -> Iterator[Conversation]:
    """The conversations of the file, in its order."""
    with gzip.open(path) as stream:
        trajectories = json.load(stream)
    for number, trajectory in enumerate(trajectories, 1):
        mapped = list(conversation_events(trajectory))
        assert all(item.envelope is not None for item in mapped)
        events = [
            features(parse_event(item.envelope, now_ms=_FAR_FUTURE_MS))
            for item in mapped
            if item.envelope is not None
        ]
        yield Conversation(number, trajectory["traj"], events)


def score(found: Sequence[Conversation], *, lenient: bool = False) -> Score:
    """The rule against the labels, summed over conversations."""
    given, true, labelled, hit = 0, 0, 0, 0
    for conversation in found:
        pairs = set(conversation.inferred())
        correct = conversation.labelled(lenient=lenient)
        wanted = conversation.first_lenient() if lenient else correct
        given += len(pairs)
        true += len(pairs & correct)
        labelled += len(wanted)
        hit += len(pairs & wanted)
    return Score(given, true, labelled, hit)


def negatives(path: Path = NEGATIVES) -> list[dict[str, Any]]:
    """The candidates judged by hand, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def wrong_negatives(
    found: Sequence[Conversation], judged: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The judged negatives for whose value the rule names that message as the origin."""
    by_number = {conversation.number: conversation for conversation in found}
    wrong = []
    for item in judged:
        conversation = by_number[item["conversation"]]
        effect = conversation.events[item["call"]]
        cause = conversation.events[item["earlier"]]
        origins = value_origins(conversation.before(item["call"]), effect)
        values = {value.casefold() for value, origin in origins.items() if origin == cause.event_id}
        if item["verdict"] == "negative" and _form(item["value"]) in values:
            wrong.append(item)
    return wrong


def _form(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return value.casefold()
    return str(int(number)) if number == int(number) else str(number)


def microseconds_an_event(found: Sequence[Conversation]) -> tuple[float, int]:
    """CPU time of `inferred_causes` after a full window, and how many events were measured."""
    joined = [event for conversation in found for event in conversation.events]
    places = range(WINDOW, len(joined), 3)
    windows = [(joined[place - WINDOW : place], joined[place]) for place in places]
    begun = time.process_time()
    for window, effect in windows:
        inferred_causes(window, effect)
    return (time.process_time() - begun) / len(windows) * 1e6, len(windows)
