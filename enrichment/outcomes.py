"""Writes that succeeded: which claims of calls were confirmed, and by which result.

A function of the at most WINDOW events before a result in its session, as inferred causes are; so a
late event opens the results behind it again. What had been concluded without it is found by
leaving it out, and taken back where that is no longer so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from enrichment.causality import WINDOW, call_of
from enrichment.event_kinds import EventKind
from enrichment.facts import Assertion, fact_in_words
from enrichment.features import Features
from enrichment.names import MAX_FACTS
from enrichment.records import STRUCTURED_CONFIDENCE
from enrichment.vocabulary import edge_type_of, is_functional
from enrichment.writes import MAX_CLAIMS, Claim

_FIRST_ORDINAL: Final = MAX_FACTS - MAX_CLAIMS
"""What the words beside a call state comes first."""


class Place(NamedTuple):
    """An event of a chain: its features, if they can be told, and whether it is new to it."""

    features: Features | None
    fresh: bool


class Outcome(NamedTuple):
    """What came about by a result.

    Attributes:
        call: that it answers; the result itself when it holds both.
        result: what came of it.
    """

    call: Features
    result: Features

    def assertions(self, tenant: str) -> list[Assertion]:
        """The facts that hold from then on."""
        call, result = self
        confirmed_by = None if call is result else result.event_id
        return [
            Assertion(
                tenant=tenant,
                source=claim.source,
                relation=claim.relation,
                edge_type=edge_type_of(claim.relation),
                target=claim.target,
                valid_from_ms=result.occurred_at_ms,
                valid_to_ms=None,
                confidence=STRUCTURED_CONFIDENCE,
                fact=fact_in_words(claim.source, claim.relation, claim.target),
                source_kind="system",
                status="staged",
                user_id=call.user_id or result.user_id,
                event_id=call.event_id,
                ordinal=_FIRST_ORDINAL + place,
                position_ms=max(call.position_ms, result.position_ms),
                functional=is_functional(claim.relation, claim.functional),
                confirmed_by=confirmed_by,
            )
            for place, claim in enumerate(call.claims)
            if _answers(result, claim)
        ]


def outcome_of(before: Sequence[Features], result: Features) -> Outcome | None:
    """The write that a result is the first to confirm; None: it confirms none.

    Args:
        before: the at most WINDOW events directly before it; of a longer sequence the last ones.
        result: an event of any kind.
    """
    if result.failed:
        return None
    if result.confirmed and result.kind is EventKind.CALL:
        return Outcome(result, result)
    if result.kind is not EventKind.RESULT:
        return None
    window = before[-WINDOW:]
    call = call_of(window, result)
    if call is None:
        return Outcome(result, result) if result.confirmed else None
    apart = call.user_id and result.user_id and call.user_id != result.user_id
    if not call.claims or call.confirmed or call.failed or apart:
        return None
    place = next(n for n in range(len(window) - 1, -1, -1) if window[n] is call)
    for number in range(place + 1, len(window)):
        earlier = window[number]
        if (
            earlier.kind is EventKind.RESULT
            and not earlier.failed
            and call_of(window[:number], earlier) is call
            and any(_answers(earlier, claim) and _answers(result, claim) for claim in call.claims)
        ):
            return None
    return Outcome(call, result)


def _answers(result: Features, claim: Claim) -> bool:
    """Whether a result is of the call that a claim is of, among several of one message."""
    return claim.call_id is None or not result.call_ids or claim.call_id in result.call_ids


class Changes(NamedTuple):
    """Facts that came about, and those that had been concluded and did not."""

    made: list[Assertion]
    gone: list[Assertion]


def changes(stretches: Mapping[str, Sequence[Sequence[Place]]]) -> Changes:
    """What new events change about the writes of the sessions they are of.

    Args:
        stretches: by tenant; each holds all events from WINDOW before the first fresh one to
            WINDOW behind the last, in the chain's order.
    """
    came: dict[Assertion, None] = {}
    gone: dict[Assertion, None] = {}
    for tenant, several in stretches.items():
        for stretch in several:
            if not any(one.features is not None and one.features.claims for one in stretch):
                continue
            for number in _opened(stretch):
                now, before = _now_and_before(stretch, number)
                if now is not None:
                    came.update(dict.fromkeys(now.assertions(tenant)))
                if before is not None and before != now:
                    gone.update(dict.fromkeys(before.assertions(tenant)))
    return Changes(list(came), [one for one in gone if one not in came])


def _opened(stretch: Sequence[Place]) -> Iterator[int]:
    """Places of the results that are new, or have new events before them."""
    dirty_until = -1
    for number, place in enumerate(stretch):
        if place.fresh:
            dirty_until = number + WINDOW
        features = place.features
        if number > dirty_until or features is None:
            continue
        if features.kind in (EventKind.CALL, EventKind.RESULT):
            yield number


def _now_and_before(stretch: Sequence[Place], number: int) -> tuple[Outcome | None, Outcome | None]:
    """What a result confirms, and what it confirmed as long as nothing fresh was known."""
    place = stretch[number]
    assert place.features is not None
    around = stretch[max(0, number - WINDOW) : number]
    now = outcome_of([o.features for o in around if o.features is not None], place.features)
    if place.fresh:
        return now, None
    old = [one for one in stretch[:number] if not one.fresh][-WINDOW:]
    return now, outcome_of([o.features for o in old if o.features is not None], place.features)
