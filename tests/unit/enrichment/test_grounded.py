"""What a language model may say of what it was told: nothing that is not in it."""

from __future__ import annotations

import pytest

from enrichment.grounded import is_grounded

SOURCE = """2026-03-02: deploy_bot, for Melanie Ortiz, used set_carrier and charge; about Acme Corp.
2026-03-02, failure: charge on order ord_4711 failed twice: card declined (402), $120.50 of 12%
2026-03-03, resolution: went through with amount 95 instead of 120.50, after "retry later"
learned: Stripe's API needs idempotency-key v2.1; mail ops@acme.example
charge: used 1,204 times, failed 3 times"""

GROUNDED = [
    "The charge on ord_4711 failed, the card was declined with 402.",
    "Melanie Ortiz wanted a charge; deploy_bot used set_carrier.",
    "On 2026-03-03 it went through with 95 instead of 120.50.",
    "It failed three times of 1,204, and twice on ord_4711 with $120.50.",
    "Stripe's API said “retry later”, and then 'retry later' again.",
    "Retrying helped. I was there. Charges of Acme Corp. are declined at 12%.",
    "melanie was told `set_carrier`, at ops@acme.example.\nCards are declined.",
    "MELANIE ORTIZ and the stripe api.",
    "- They failed; later they went through.",
]
UNGROUNDED = {
    "another number": "It failed 4 times.",
    "a part of a number": "It failed 204 times.",
    "a number written otherwise": "It failed 1204 times.",
    "a number in words": "It failed five times.",
    "half of them": "Half of them failed.",
    "another sign": "The amount was -95.",
    "another currency": "It cost €120.50.",
    "a share of a number": "It failed in 95% of cases.",
    "another date": "On 2026-03-04 it went through.",
    "a part of a date": "In 2026 it went through.",
    "a day": "On Monday it went through.",
    "another identifier": "The charge on ord_4712 failed.",
    "an identifier without digits": "It used set_price.",
    "a version": "It needs v2.2 of it.",
    "a host": "See evil.example for more.",
    "an address": "Write to mallory@acme.example.",
    "a name": "The charge of Mallory failed.",
    "a name at the beginning": "Mallory wanted a charge.",
    "a name behind a full stop": "It failed. Mallory wanted it.",
    "a name of two": "Melanie Corp. failed.",
    "two names as one": "The charge of Acme Stripe failed.",
    "in capitals": "The charge of ACMECORP failed.",
    "with capitals within": "It used setCarrier.",
    "in another script": "失敗しました",
    "invented words in quotes": 'It said "come back tomorrow".',
    "invented words in typographic quotes": "It said «come back tomorrow».",
    "invented words in apostrophes": "It said 'come back tomorrow'.",
    "code": "It ran ```charge```.",
    "bold": "The **charge** failed.",
    "a heading": "# charge",
    "a link": "See [charge](charge).",
    "markup": "The <b>charge</b> failed.",
    "health": "The charge failed for a patient in hospital.",
}


@pytest.mark.parametrize("text", GROUNDED)
def test_what_was_told_may_be_said_in_other_words(text: str) -> None:
    assert is_grounded(text, SOURCE)


@pytest.mark.parametrize("text", UNGROUNDED.values(), ids=UNGROUNDED)
def test_what_was_not_told_may_not(text: str) -> None:
    assert not is_grounded(text, SOURCE)


@pytest.mark.parametrize("text", [line for line in UNGROUNDED.values() if "hospital" not in line])
def test_the_same_may_be_said_when_it_was_told_and_is_plain(text: str) -> None:
    plain = not any(mark in text for mark in ("`", "**", "#", "](", "<b"))
    assert is_grounded(text, f"{SOURCE}\n{text}") is plain


def test_typography_and_case_make_no_difference() -> None:
    assert is_grounded("Cafe\u0301 Noir opened at \uff11\uff12", "café  noir\nopens at 12")
    assert is_grounded("O\u2019Brien\u2019s order", "the order of o'brien")


def test_a_long_text_takes_no_long_time() -> None:
    for text in ("'" * 4_000, "a'" * 2_000, '"' * 4_000, "A " * 2_000, "1." * 2_000, "- " * 2_000):
        is_grounded(text, text)
