"""Signatures of errors, and retries that resolved them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.actions import (
    MAX_FAILURES,
    SIGNATURE_CHARACTERS,
    Failure,
    failure_signature,
    failures_of,
)
from consolidation.sources import Cause, SourceEvent
from tests.factories import event_id
from tests.source_factories import called, returned, said

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 31, in place
    total = int(amount)
            ^^^^^^^^^^^
ValueError: invalid literal for int() with base 10: '12,50'
"""

# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Error: user not found", "error: user not found"),
        (
            "Error: payment method gift_card_7 not found.",
            "error: payment method <value> not found",
        ),
        (
            "Error: flight HAT136 not available on date 2024-05-20",
            "error: flight <value> not available on date <value>",
        ),
        (
            "Error: payment amount does not add up, total price is 612, but paid 480",
            "error: payment amount does not add up, total price is <value>, but paid <value>",
        ),
        (TRACEBACK, "valueerror: invalid literal for int() with base <value>: <value>"),
        (
            'java.lang.NullPointerException: Cannot invoke "Cart.total()"\n\tat Cart(C.java:9)',
            "java.lang.nullpointerexception: cannot invoke <value>",
        ),
        (
            "HTTPSConnectionPool(host='api.example.com', port=443): Read timed out.",
            "httpsconnectionpool(host=<value>, port=<value>): read timed out",
        ),
        (
            "connect to 10.0.0.12:5432 refused after 30s",
            "connect to <value>:<value> refused after <value>s",
        ),
        ("seats [12, 13, 14] are taken", "seats [<value>] are taken"),
        ("Insufficient funds: 84.00 EUR of $1,250.00", "insufficient funds: <value> of <value>"),
        ("can't open '/etc/app.toml': it isn't there", "can't open <value>: it isn't there"),
        ("\n\n  No seats\ncode: E42", "no seats"),
        (
            "unknown setting payments.gateway.timeout_s",
            "unknown setting payments.gateway.timeout_s",
        ),
        ("", ""),
        ("4711", ""),
    ],
)
def test_a_signature_says_what_failed_but_not_for_whom(text: str, expected: str) -> None:
    assert failure_signature(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP 503", "HTTP 404"),
        ("request failed with status code 429", "request failed with status code 500"),
        ("[Errno 2] failed", "[Errno 13] failed"),
        ("user not found", "order not found"),
    ],
)
def test_other_failures_have_other_signatures(one: str, other: str) -> None:
    assert failure_signature(one) != failure_signature(other)


TEMPLATES = (
    "Error: reservation {} not found",
    "order {}: {} of {} items are sold out",
    "cannot charge '{}' to account {}",
    "timeout after {} ms while calling https://api.example.com/v2/orders/{}",
    "duplicate key (user_id)=({}) in row {}",
)
values = (
    st.integers(0, 10**12).map(str)
    | st.from_regex(r"[A-Z]{3}[0-9]{3}", fullmatch=True)
    | st.from_regex(r"ord_[0-9]{4,8}", fullmatch=True)
    | st.uuids().map(str)
)


@given(st.sampled_from(TEMPLATES), st.lists(values, min_size=6, max_size=6))
def test_whatever_the_values_the_signature_is_the_same(template: str, drawn: list[str]) -> None:
    one, other = (template.format(*some) for some in (drawn[:3], drawn[3:]))
    assert failure_signature(one) == failure_signature(other)


@given(st.text(max_size=2_000))
def test_every_text_has_a_bounded_signature_on_one_line(text: str) -> None:
    signature = failure_signature(text)
    assert len(signature) <= SIGNATURE_CHARACTERS
    assert len(signature.splitlines()) <= 1


# -- failures and their resolution -----------------------------------------------------------------


def retry(number: int, of: int, tool: str = "book_flight", **fields: Any) -> SourceEvent:
    return called(number, tool, causes=(Cause(event_id(of), "retry", 0.9),), **fields)


def result(number: int, of: int, tool: str = "book_flight", **fields: Any) -> SourceEvent:
    """What call `of` returned, found by rule."""
    return returned(number, tool, causes=(Cause(event_id(of), "tool_result", 0.98),), **fields)


FAILED = result(2, 1, error="Error: no seats")
WAY = ("book_flight", "error: no seats")


@pytest.mark.parametrize(
    ("after", "resolution"),
    [
        ([], None),
        ([retry(3, 2)], None),
        ([retry(3, 2), result(4, 3)], 4),
        ([retry(3, 2), returned(4, "book_flight", after=[3])], 4),
        ([retry(3, 2), result(4, 3, error="Error: no seats")], None),
        ([retry(3, 2), result(4, 3, error="Error: no seats"), retry(5, 4), result(6, 5)], 6),
        ([retry(3, 2, status="completed")], 3),
        ([retry(3, 2, status="completed"), result(4, 3, error="Error: no seats")], None),
        ([retry(3, 2), returned(4, "list_flights", after=[3])], None),
        ([retry(3, 2), said(4, "assistant", "Once more.", after=[3])], None),
        ([called(3, "book_flight", after=[2]), result(4, 3)], None),  # no retry: other arguments
    ],
)
def test_a_failure_is_resolved_by_the_outcome_of_its_last_retry(
    after: list[SourceEvent], resolution: int | None
) -> None:
    found = failures_of([called(1, "book_flight"), FAILED, *after])
    resolved = None if resolution is None else event_id(resolution)
    assert found == (Failure(*WAY, event_id(2), resolved),)


def test_equal_failures_are_one_and_resolved_if_one_of_them_is() -> None:
    events = [
        returned(1, "book_flight", error="Error: no seats on HAT136"),
        returned(2, "book_flight", error="Error: no seats on HAT201"),
        retry(3, 2),
        result(4, 3),
    ]
    way = ("book_flight", "error: no seats on <value>")
    assert failures_of(reversed(events)) == (Failure(*way, event_id(1), event_id(4)),)


def test_what_was_retried_had_failed_whatever_its_status() -> None:
    events = [returned(1, "book_flight", "no seats", status=None), retry(2, 1), result(3, 2)]
    assert failures_of(events) == (Failure("book_flight", "no seats", event_id(1), event_id(3)),)


def test_what_no_tool_did_or_what_says_nothing_is_no_failure_to_compare() -> None:
    events = [said(1, "assistant", "I failed.", status="failed"), returned(2, "pay", error="4711")]
    assert failures_of(events) == ()


def test_retries_that_go_in_circles_end() -> None:
    one = retry(1, 2, status="failed", text="Error: no seats")
    other = retry(2, 1, status="failed", text="Error: no seats")
    assert failures_of([one, other]) == (Failure(*WAY, event_id(1)),)


def test_a_tool_that_fails_in_ever_new_ways_is_bounded() -> None:
    words = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    events = [returned(n, "pay", error=f"Error: {word}") for n, word in enumerate(words, 1)]
    assert len(failures_of(events)) == MAX_FAILURES
