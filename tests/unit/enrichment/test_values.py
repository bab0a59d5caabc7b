"""Which values are distinctive by their form, and in which form they are kept."""

from __future__ import annotations

import pytest
from hypothesis import given

from enrichment.features import (
    MAX_CHARACTERS,
    MAX_VALUE_CHARACTERS,
    MAX_VALUES,
    value_kind,
    values_in,
)
from tests.strategies import json_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my id is mia_li_3668.", {"mia_li_3668"}),
        ("see ORD-4711-X, please", {"ord-4711-x"}),
        ("flight (HAT136)", {"hat136"}),
        ("reservation HATHAT", {"HATHAT"}),
        ("write to ana@example.com", {"ana@example.com", "example.com"}),
        ("open /var/log/app.log now", {"/var/log/app.log", "app.log"}),
        ("set payments.gateway.timeout_s", {"payments.gateway.timeout_s"}),
        (
            "https://shop.example/orders/ch_9913",
            {"https://shop.example/orders/ch_9913", "ch_9913"},
        ),
        ("host 10.20.30.41", {"10.20.30.41"}),
        ("call 555-0100-222", {"555-0100-222"}),
        ("number 1234567", {"1234567"}),
        ("order=4711x23 done", {"4711x23", "order=4711x23"}),
    ],
)
def test_identifiers_are_found_by_their_form(text: str, expected: set[str]) -> None:
    assert values_in(text).stated == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$1,625 in all", {"1625"}),
        ("it is 255.0", {"255"}),
        ("129.90 EUR", {"129.9"}),
        ("(350 - 122) * 2", {"350", "122"}),
    ],
)
def test_numbers_are_kept_without_signs_separators_and_noughts(
    text: str, expected: set[str]
) -> None:
    assert values_in(text).stated == expected


@pytest.mark.parametrize(
    "content",
    [
        True,
        None,
        "yes",
        "economy",
        "round_trip",
        "EUR",
        "Monday",
        "two bags for 3 people and 42 more",
        [1, 99, 100, 500, 3000, 2024],
        "on 2024-05-20 at 15:00:00, 03:00:00+1 or 12:30pm",
        "2024-05-01T09:08:54",
        "20240501",
        "the 20th, in 30s, 24-hour",
        "may 27 or 27may",
        "ab\u202e12345x cd\u200b12345x ef\ud80012345x gh\x0712345x",
        "x" * (MAX_VALUE_CHARACTERS + 1) + "1",
    ],
)
def test_what_coincides_easily_is_no_value(content: object) -> None:
    assert values_in(content).stated == frozenset()


def test_words_of_sentences_are_stated_but_not_followed() -> None:
    values = values_in(["a word of Kevin with HXDUBJ1 and HXDUBJ", "Smith", {"origin": "JFK"}])

    assert values.stated - values.followed == {"Kevin"}
    assert values.followed == {"hxdubj1", "HXDUBJ", "Smith", "JFK"}


def test_json_in_strings_and_keys_of_objects_are_looked_into() -> None:
    assert values_in('{"card_4421486": [{"n": 255.0}]}').stated == {"card_4421486", "255"}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("mia_li_3668", "identifier"),
        ("HATHAT", "identifier"),
        ("1234567", "identifier"),
        ("4711", "number"),
        ("1299.95", "number"),
        ("JFK", "word"),
        ("Smith", "word"),
    ],
)
def test_the_form_tells_the_kind(value: str, kind: str) -> None:
    assert value_kind(value) == kind


@pytest.mark.parametrize(
    "content",
    [
        " ".join(f"id-{n:06d}" for n in range(30_000)),
        " ".join(f"{n}" for n in range(101, 60_000)),
        " ".join("Ab" + chr(97 + n % 26) + chr(97 + n // 26 % 26) for n in range(30_000)),
        list(range(10**6, 10**6 + 50_000)),
        "[" * 200_000,
        "/a" * 100_000,
        "@" * 200_000,
        "1," * 100_000,
    ],
)
def test_large_content_gives_a_bounded_number_of_values(content: object) -> None:
    assert len(values_in(content).stated) <= MAX_VALUES


def test_what_lies_beyond_the_characters_looked_at_is_not_seen() -> None:
    assert values_in("a " * (MAX_CHARACTERS // 2) + "ORD-4711-X").stated == frozenset()


@given(json_values)
def test_every_json_value_has_values_of_bounded_length(content: object) -> None:
    values = values_in(content)

    assert values == values_in(content)
    assert values.followed <= values.stated
    assert all(3 <= len(value) <= MAX_VALUE_CHARACTERS for value in values.stated)
