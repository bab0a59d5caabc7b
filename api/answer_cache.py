"""The same question again within a minute: its answer is kept, and given while it still stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from api.dependencies import Services
from projections.errors import LedgerError
from projections.positions import Position

A = TypeVar("A")


def known_answer(services: Services, tenant: str, question: bytes, kind: type[A]) -> A | None:
    """What was answered a moment ago; None: nothing, or nobody can say whether it still stands.

    Args:
        services: of the process that answered.
        tenant: of the caller.
        question: everything that the answer depends on, the user and the page included.
        kind: of the answer.
    """
    if not services.settings.result_cache_s:
        return None
    target = services.connections.graph.target
    name = None if target is None else target.name
    try:
        return services.results.get(tenant, question, kind, services.ledger(), name)
    except LedgerError:
        return None


def keep_answer(
    services: Services,
    tenant: str,
    question: bytes,
    answer: object,
    *,
    size: Callable[[], int],
    sessions: Iterable[str | None],
    projected: Mapping[int, Position] | None,
) -> None:
    """Keep an answer, unless nobody knows what the graph held when it was made.

    Args:
        services: of the process that answered.
        tenant: of the caller.
        question: as for `known_answer`.
        answer: that nobody changes.
        size: of it as JSON, bytes; asked for only if it is kept.
        sessions: that it shows, and the one it was asked in; None: of no session.
        projected: by partition, how far the graph was before it was read.
    """
    target = services.connections.graph.target
    if not services.results.is_on or projected is None or target is None:
        return
    services.results.put(
        tenant,
        question,
        answer,
        size=size(),
        target=target.name,
        sessions={session for session in sessions if session is not None},
        projected=projected,
        partitions=services.settings.partitions,
    )
