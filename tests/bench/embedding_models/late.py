"""Late interaction: the best fifty again by how near each token of the question is to theirs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy

from tests.bench.embedding_models.asked import Asked
from tests.bench.embedding_models.vectors import Role, Runtime
from tests.bench.embedding_models.weighed import by_others, order

Array = Any
BEST: Final = 50


class Again(NamedTuple):
    """Rankings in which the best fifty are ordered anew.

    Attributes:
        rankings: one for each question.
        ms: of processor for the comparison of tokens, a question.
        tokens: of an event, each of them a vector to keep.
    """

    rankings: list[list[str]]
    ms: float
    tokens: float


def again(
    rows: Sequence[Asked], scores: Sequence[Array], texts: Mapping[str, str], runtime: Runtime
) -> Again:
    """The best fifty of each question by score and by tokens, weighed on the other conversations.

    Args:
        scores: of the events that each question found.
        texts: of the events, by id.
    """
    tokens = {event_id: _tokens(runtime, text, "passage") for event_id, text in texts.items()}
    asked = [_tokens(runtime, row.terms.embedding_text, "question")[1:-1] for row in rows]
    tops = [numpy.argsort(-own, kind="stable")[:BEST] for own in scores]
    began_ns = time.process_time_ns()
    nearness = [
        [float((own @ tokens[row.found.ids[at]].T).max(axis=1).mean()) for at in top]
        for row, own, top in zip(rows, asked, tops, strict=True)
    ]
    ms = (time.process_time_ns() - began_ns) / 1e6 / len(rows)
    matrices = [
        numpy.stack([own[top], near], axis=1)
        for own, top, near in zip(scores, tops, nearness, strict=True)
    ]
    ids = [[row.found.ids[at] for at in top] for row, top in zip(rows, tops, strict=True)]
    fresh = by_others([row.question for row in rows], ids, matrices)
    rankings = []
    for row, own, best, rescored in zip(rows, scores, ids, fresh, strict=True):
        rest = order(row.found.ids, own)[BEST:]
        rankings.append(order(best, rescored) + rest)
    return Again(rankings, ms, float(numpy.mean([len(one) for one in tokens.values()])))


def _tokens(runtime: Runtime, text: str, role: Role) -> Array:
    rows = runtime.tokens(text, role)
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
