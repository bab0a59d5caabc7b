"""Wishes are told by what was learned of how they are put, whatever they are about."""

from __future__ import annotations

from enrichment.ports import Token
from enrichment.wish_model import WishModel, form_of, signs_of, wish_model, wish_score
from enrichment.wishes import is_wish
from tests.bench.domains.__main__ import KEPT_APART, LEARNED_FROM
from tests.bench.wishes.training import clauses, of_domains, sentences

FOUND, MISTAKEN = 0.5, 0.02
"""Of the sentences kept apart: so many wishes at least, and so many of the others at most."""


def token(text: str, pos: str, lemma: str | None = None, relation: str = "dep") -> Token:
    return Token(text, lemma or text.lower(), pos, 0, 0, relation)


def test_most_wishes_that_nothing_was_trained_on_are_found_and_few_others() -> None:
    apart = sentences("kept_apart.json")
    found = [any(map(is_wish, parts)) for parts in clauses(apart)]
    told = list(zip(found, apart, strict=True))
    wishes = sum(one.is_wish for one in apart)
    assert sum(is_read for is_read, one in told if one.is_wish) >= FOUND * wishes
    assert sum(is_read for is_read, one in told if not one.is_wish) <= MISTAKEN * (
        len(apart) - wishes
    )


def test_nothing_kept_apart_is_trained_on() -> None:
    learned = {one.text for one in (*sentences("sentences.json"), *of_domains(LEARNED_FROM))}
    assert learned.isdisjoint(one.text for one in sentences("kept_apart.json"))
    assert set(KEPT_APART).isdisjoint(LEARNED_FROM)


def test_a_word_that_few_used_counts_as_its_shape() -> None:
    words = frozenset(("no", "please"))
    assert form_of(token("No", "DET"), words) == "no"
    assert form_of(token("lanterns", "NOUN", "lantern"), words) == "NOUNs"
    assert form_of(token("lantern", "NOUN"), words) == "NOUN"
    assert form_of(token("glued", "VERB", "glue"), words) == "VERBed"
    assert form_of(token("gluing", "VERB", "glue"), words) == "VERBing"
    assert form_of(token("4711", "NUM"), words) == "NUM"
    assert form_of(token("\u2026", "PUNCT"), words) == "PUNCT"


def test_what_it_is_about_changes_nothing() -> None:
    words = frozenset(("no",))
    signs = [
        signs_of([token("No", "DET"), token(thing, "NOUN", thing[:-1])], words)
        for thing in ("lanterns", "invoices")
    ]
    assert signs[0] == signs[1]
    assert {"no NOUNs", "^ no NOUNs", "first| no", "~no"} <= signs[0]


def test_what_says_so_by_its_form_is_surer() -> None:
    model = WishModel(frozenset(), {"NOUNs": 5}, bias=-20, likely=30)
    tokens = [token("lanterns", "NOUN", "lantern")]
    assert wish_score(tokens, is_likely=False, model=model) == -15
    assert wish_score(tokens, is_likely=True, model=model) == 15


def test_the_table_knows_no_trade() -> None:
    """A word counts as itself when several writers used it, so that names stay shapes."""
    model = wish_model()
    assert {"always", "never", "please", "when", "i"} <= model.words
    assert not {"ostrander", "peppol", "vautrin"} & model.words
    assert len(model.weights) > 10_000
