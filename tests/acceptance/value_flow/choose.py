"""Near-misses of value flow, chosen with a seed, to be judged by reading the conversation.

`python -m tests.acceptance.value_flow.choose --seed 4 --excerpts` prints each candidate with the
words around the value; the verdicts went to `negatives.jsonl`. A candidate is a value in the
arguments of a call and an earlier message that mentions it. Nothing here knows the rule.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from tests.acceptance.value_flow import label
from tests.acceptance.value_flow.evaluate import CONVERSATIONS

Draw = dict[str, int]
"""How many of each kind of near-miss."""

FIRST_DRAW: Draw = {
    "repeat": 16,  # a later result or user message that mentions what came from elsewhere
    "echo": 20,  # a result that mentions what the assistant had brought up
    "small": 10,  # numbers below 100
    "amount": 34,  # numbers from 100 that several results or user messages mention
    "date": 7,
    "name": 32,  # words without digits that several results or user messages mention
    "plain": 3,  # economy, round_trip, yes
}
SECOND_DRAW: Draw = {
    # where the first mention itself may be a coincidence: no later one is drawn
    "first amount": 18,
    "first name": 22,
    "amount": 14,
    "name": 16,
}
THIRD_DRAW: Draw = {
    "first amount": 12,
    "first name": 16,
    "amount": 10,
    "name": 14,
    "echo": 8,
    "repeat": 6,
    "small": 6,
    "date": 4,
}


def candidates(number: int, messages: Sequence[label.Message]) -> list[dict[str, Any]]:
    """All near-misses of a conversation."""
    texts = [label.message_text(message) for message in messages]
    found = []
    for use in label.uses(messages):
        places = label.mentions(use.value, texts[: use.call], any_case=True)
        spoken = [place for place in places if label.is_source(messages[place])]
        for place in spoken:
            kind = _kind(use.value, place, places, spoken, messages)
            if kind:
                item = {"conversation": number, "call": use.call, "argument": use.argument}
                found.append(
                    {
                        **item,
                        "value": use.value,
                        "earlier": place,
                        "kind": kind,
                        "first": place == places[0],
                    }
                )
    return found


def _kind(
    value: str,
    place: int,
    places: Sequence[int],
    spoken: Sequence[int],
    messages: Sequence[label.Message],
) -> str | None:
    number = label.NUMBER.fullmatch(value) is not None
    if number and abs(float(value)) < 100:
        return "small"
    if label.trivial(value):
        return "date" if any(character.isdigit() for character in value) else "plain"
    if number:
        return "amount" if len(spoken) > 1 else None
    if value.isalpha() and len(spoken) > 1:
        return "name"
    if not label.is_source(messages[places[0]]):
        return "echo"
    return "repeat" if place != places[0] else None


def chosen(seed: int, draw: Draw) -> list[dict[str, Any]]:
    """The candidates of all conversations, at most one of each kind from one conversation."""
    with gzip.open(CONVERSATIONS) as stream:
        trajectories = json.load(stream)
    chance = random.Random(seed)
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in draw}
    order = list(enumerate(trajectories, 1))
    chance.shuffle(order)
    for number, trajectory in order:
        found = candidates(number, trajectory["traj"])
        for kind, taken in by_kind.items():
            of_kind = [item for item in found if item["kind"] == kind.removeprefix("first ")]
            if kind.startswith("first "):
                of_kind = [item for item in of_kind if item["first"]]
            if of_kind and len(taken) < draw[kind]:
                taken.append(chance.choice(of_kind))
    return [
        {name: value for name, value in item.items() if name != "first"}
        for taken in by_kind.values()
        for item in taken
    ]


def excerpt(item: dict[str, Any], messages: Sequence[label.Message], width: int = 55) -> str:
    """Every mention of the value up to the call, with what stands around it."""
    pattern = label.mention_pattern(item["value"], any_case=True)
    lines = []
    for place, message in enumerate(messages[: item["call"] + 1]):
        text = label.message_text(message)
        for match in list(pattern.finditer(text))[:1]:
            around = text[max(0, match.start() - width) : match.end() + width].replace("\n", " ")
            mark = "=>" if place == item["earlier"] else "  "
            lines.append(f"  {mark} [{place}] {message['role']}: ...{around}")
    return "\n".join(lines)


def main() -> int:
    """Print the candidates, one JSON object a line, with excerpts when asked."""
    parser = argparse.ArgumentParser(prog="choose", description=__doc__)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--excerpts", action="store_true")
    options = parser.parse_args()
    with gzip.open(CONVERSATIONS) as stream:
        trajectories = json.load(stream)
    seen = set()
    for turn, draw in enumerate((FIRST_DRAW, SECOND_DRAW, THIRD_DRAW)):
        for item in chosen(options.seed + turn, draw):
            place = (item["conversation"], item["call"], item["value"], item["earlier"])
            if place in seen:
                continue
            seen.add(place)
            _show(item, trajectories if options.excerpts else None)
    return 0


def _show(item: dict[str, Any], trajectories: Sequence[Any] | None) -> None:
    sys.stdout.write(json.dumps(item) + "\n")
    if trajectories is not None:
        sys.stdout.write(excerpt(item, trajectories[item["conversation"] - 1]["traj"]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
