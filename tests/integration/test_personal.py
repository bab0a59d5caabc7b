"""Questions about a person, on all that was recorded of them: what an agent reads and then does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.local.data_folder import read_holder
from projections.schema import ABOUT_PERSONS
from recollect import Memory
from tests.bench.personal import ORDERS, compared, events, fill, share
from tests.bench.small import Edition, own_edition

pytestmark = pytest.mark.integration

WORDS = {
    event["event_id"]: event["payload"].get("content", event.get("tool_name")) for event in events()
}


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with own_edition("personal") as edition:
        fill(edition)
        yield edition


def lines(document: Any) -> list[tuple[str, str]]:
    """The lines of an answer, each with what the event says that proves it."""
    answer = document["answer"]
    assert len(answer["value"]) == len(answer["evidence"])
    return [
        (line, WORDS[event_id])
        for line, event_id in zip(answer["value"], answer["evidence"], strict=True)
    ]


def test_with_it_an_agent_does_as_people_wish(edition: Edition) -> None:
    choices = compared(edition)
    shares = {arm: share(ways) for arm, ways in choices.items()}
    assert shares["no memory"] < shares["plain question"] < shares["personalize"]
    assert shares["personalize"] >= 0.9


def test_the_wish_whose_case_is_met_comes_first(edition: Edition) -> None:
    words = "What should I keep in mind for Mara when it rains?"
    document = edition.ask(words, user_id="mara")
    assert document["meta"]["plan"]["operator"] == "personalize"
    rain = "When it rains, move the delivery to the next dry day"
    assert lines(document)[0] == (f"wants: {rain} (since 2026-11-02)", f"{rain}.")
    told = [line for line, _ in lines(document)]
    assert "lives in Uppsala (since 2026-11-02)" in told
    assert not any("Swedish" in line for line in told)


def test_how_somebody_does_something_is_told_by_habits_and_steps(edition: Edition) -> None:
    document = edition.ask("How does Mara usually order lavender?", user_id="mara")
    assert document["meta"]["intent"] == "how_does"
    told = dict(lines(document))
    habit = ", then ".join(ORDERS)
    assert any(line.startswith(f"usually: {habit} (4 sessions") for line in told)
    steps = {line: tool for line, tool in told.items() if line.startswith("step ")}
    assert list(steps.values()) == list(ORDERS)
    (skill,) = (line for line in told if line.startswith("carries through: "))
    assert skill.startswith(f"carries through: {' + '.join(sorted(ORDERS))} (4 sessions")


TASK = "Plan the delivery for Mara, it rains on Monday."
RAIN = "wants: When it rains, move the delivery to the next dry day"


def test_what_to_heed_is_asked_by_command_and_by_client(edition: Edition) -> None:
    asked_so = ("--user", "mara", "--intent", "personalize", "--max-tokens", "250")
    assert RAIN in edition.run("ask", TASK, *asked_so)
    held = read_holder(edition.folder / "data")
    assert held is not None
    key = Path(held["api_key_file"]).read_text(encoding="utf-8").strip()
    with Memory(held["api_url"], key) as memory:
        answer = memory.ask(TASK, user="mara", intent="personalize", max_tokens=250)
    assert RAIN in answer.text


@pytest.mark.parametrize("intent", ABOUT_PERSONS)
def test_a_lineage_takes_the_intents_about_a_person(edition: Edition, intent: str) -> None:
    event_id = next(iter(WORDS))
    path = f"/v1/nodes/{event_id}/lineage"
    document = edition.read(path, intent=intent, user_id="mara")
    assert document["meta"]["intent"] == intent


def test_a_page_tells_the_parts_of_a_skill_behind_it(edition: Edition) -> None:
    page = edition.run("user", "show", "mara")
    told = [line.partition(" (")[0] for line in page.splitlines()]
    told = [line for line in told if line.startswith(("skill: ", "  part: "))]
    names = [re.split(r" \d", line, maxsplit=1)[0] for line in told]
    parts = [f"  part: {tool}" for tool in sorted(ORDERS)]
    assert names[0] == f"skill: {' + '.join(sorted(ORDERS))}"
    assert sorted(names[1:]) == parts


def test_of_whom_nothing_is_known_it_is_a_question_like_any_other(edition: Edition) -> None:
    document = edition.ask("How does the terrace usually work?", user_id="tove")
    assert document["meta"]["plan"]["operator"] != "how_does"


def test_somebody_elses_habits_are_not_told(edition: Edition) -> None:
    document = edition.ask("How does Mara usually order lavender?", user_id="jon")
    assert document["meta"]["plan"]["operator"] != "how_does"
    assert "reserve_plants" not in str(document)
