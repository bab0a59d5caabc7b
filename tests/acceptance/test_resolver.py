"""The resolver on labelled names, hostile ones included, with the embedder of the product."""

from __future__ import annotations

import pytest

from enrichment.names import components
from enrichment.resolution import Candidate
from tests.acceptance.resolver.embedding import vectors
from tests.acceptance.resolver.resolving import (
    Labelled,
    by_cosine,
    by_rules,
    candidates,
    known,
    labelled,
    score,
)

MIN_PRECISION = 0.97
MIN_F1 = {"aliases": 0.90, "unseen": 0.85}


@pytest.fixture(scope="module")
def mentions() -> list[Labelled]:
    return labelled()


@pytest.fixture(scope="module")
def pairs(mentions: list[Labelled]) -> list[Candidate]:
    return candidates(mentions, vectors(mentions))


def test_the_set_is_large_enough_to_mean_something(mentions: list[Labelled]) -> None:
    assert len(mentions) >= 200


@pytest.mark.parametrize("name", MIN_F1)
def test_the_rules_are_precise_and_find_most(name: str) -> None:
    names = labelled(name)
    found = score(names, candidates(names, vectors(names)), by_rules)
    assert found.precision >= MIN_PRECISION
    assert found.f1 >= MIN_F1[name]


def test_the_rules_beat_cosine_alone(mentions: list[Labelled], pairs: list[Candidate]) -> None:
    assert score(mentions, pairs, by_rules).f1 > score(mentions, pairs, by_cosine).f1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GPT-4", "gpt-4o"),
        ("invoice-2024-001", "invoice-2024-002"),
        ("Microsoft", "Mi\u0441rosoft"),
        ("Paul Jones", "\u0420\u0430ul Jones"),
        ("north gate", "south gate"),
    ],
)
def test_these_stay_apart(
    one: str, other: str, mentions: list[Labelled], pairs: list[Candidate]
) -> None:
    ids = {mention.name: known(mention).entity_id for mention in mentions}
    canonical = components(by_rules(pairs))
    assert canonical.get(ids[one], ids[one]) != canonical.get(ids[other], ids[other])
