"""Identifiers as agent traffic writes them, and what only looks like one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enrichment.patterns import RECOGNISERS, identifiers
from enrichment.vocabulary import word_set


def found(text: str) -> list[tuple[str, str]]:
    return [(text[span.start : span.end], span.label) for span in identifiers(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail mia.li3818@example.com.", ("mia.li3818@example.com", "email")),
        ("see https://ex.com/a(b)?x=1.", ("https://ex.com/a(b)?x=1", "url")),
        ("(www.example.org/x)", ("www.example.org/x", "url")),
        ("in s3://bucket/key now", ("s3://bucket/key", "url")),
        ("019cb8a0-0088-7000-8000-000000000001", ("019cb8a0-0088-7000-8000-000000000001", "uuid")),
        ("at /etc/nginx/nginx.conf,", ("/etc/nginx/nginx.conf", "path")),
        (r"open C:\logs\app.log", (r"C:\logs\app.log", "path")),
        ("edit src/app/main.py", ("src/app/main.py", "path")),
        ("the report.pdf", ("report.pdf", "path")),
        ("from 10.0.0.12:", ("10.0.0.12", "ip")),
        ("on fe80::1 too", ("fe80::1", "ip")),
        ("runs v1.2", ("v1.2", "version")),
        ("released 2.10.3-rc1", ("2.10.3-rc1", "version")),
        ("costs $1,250.00!", ("$1,250.00", "amount")),
        ("paid 84.00 EUR", ("84.00 EUR", "amount")),
        ("since 2024-05-20T10:00:00Z", ("2024-05-20T10:00:00Z", "date")),
        ("on May 20th, 2024", ("May 20th, 2024", "date")),
        ("at 3 pm", ("3 pm", "time")),
        ("call +49 30 901820", ("+49 30 901820", "phone")),
        ("call (555) 010-9999", ("(555) 010-9999", "phone")),
        ("ask @maya_ops", ("@maya_ops", "handle")),
        ("set payments.gateway.timeout_s", ("payments.gateway.timeout_s", "key")),
        ("to api.example.com:8443", ("api.example.com:8443", "host")),
        ("user mia_li_3668", ("mia_li_3668", "id")),
        ("invoice-2024-001 is due", ("invoice-2024-001", "id")),
        ("ORD_123", ("ORD_123", "id")),
        ("pay-4711-a", ("pay-4711-a", "id")),
        ("GPT-4 said", ("GPT-4", "id")),
        ("flight HAT123", ("HAT123", "code")),
        ("**4WQ150**", ("4WQ150", "code")),
        ("revision r2209", ("r2209", "code")),
        ("- **Reservation ID**: HATHAT", ("HATHAT", "code")),
        ("commit 9f2c1ab", ("9f2c1ab", "hex")),
        ("number 4421486", ("4421486", "number")),
        ("order 4711", ("4711", "number")),
        ("see #4711", ("4711", "number")),
    ],
)
def test_an_identifier_is_found_with_its_kind(text: str, expected: tuple[str, str]) -> None:
    assert found(text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "a plain sentence, and/or two.",
        "the 20th of 30 items, 500MB in 24h",
        "in the 1990s, e.g. i.e. U.S. a.m.",
        "top-10 of mid-2024 with a 20-year-old",
        "sha256 and utf8 and mp3",
        "about 1000000 people, 12,000 of them",
        "your order ID please, and its reservation code as well",
        "well-known state-of-the-art",
        "basic_economy and cancel_reservation",
        "3.14 and 84.00",
        "50% of 3 s",
    ],
)
def test_plain_words_and_small_numbers_are_no_identifiers(text: str) -> None:
    assert found(text) == []


def test_near_names_are_told_apart() -> None:
    assert found("invoice-2024-001 and invoice-2024-002") == [
        ("invoice-2024-001", "id"),
        ("invoice-2024-002", "id"),
    ]


def test_the_longest_from_the_left_wins() -> None:
    assert found("https://example.com/mia_li_3668?mail=a@b.com") == [
        ("https://example.com/mia_li_3668?mail=a@b.com", "url")
    ]


HOSTILE = word_set(
    "a a. a@ 1 1. /a a/ a- a_1- ab1| a+ +a http:// 1: :: , $1 (555 @a @ a1 é order| May|2 0x - a.b_"
    " C:\\a\\ (1 +1| #1 a:// ((( ))) ..... ---- '_ 1,000 2024-0 f:f: www. .. x@x.x@"
)


@pytest.mark.parametrize("unit", sorted(HOSTILE))
def test_anything_takes_time_in_proportion_to_its_length(unit: str) -> None:
    unit = unit.replace("|", " ")
    seconds = []
    for size in (16 * 1024, 64 * 1024):
        text = unit * (size // len(unit))
        start = time.process_time()
        identifiers(text)
        seconds.append(time.process_time() - start)
    # four times the text; quadratic would be sixteen times. Below that, timer and caches decide.
    assert seconds[1] < max(10 * seconds[0], 2)


@settings(deadline=None)  # machines that run tests are shared
@given(st.text(max_size=200) | st.text("aA1_-./@:#$(), €\\x2é", max_size=80))
def test_spans_are_ordered_and_apart_and_within_the_text(text: str) -> None:
    spans = identifiers(text)
    edges = [edge for span in spans for edge in (span.start, span.end)]
    assert (edges, all(a < b for a, b, _ in spans)) == (sorted(edges), True)
    assert {edge for edge in edges if edge not in range(len(text) + 1)} == set()


def test_every_label_is_documented() -> None:
    assert [row.label for row in RECOGNISERS if not row.meaning or not row.needs] == []
