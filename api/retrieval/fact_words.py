"""How much a fact is what a question asks for: its relation's words, and what it leads to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from enrichment.stems import stem_in, words_in
from enrichment.vocabulary import STOP_WORDS, relation_words, word_set

_EMPTY: Final = word_set("has had is was value")
_WISHING = "prefer preference wish wishes want rather way rule exception case ask like apply avoid"
_ASKED_AS: Final[Mapping[str, str]] = {
    "lives_in": "live city home town residence move where",
    "moved_to": "live city move where",
    "works_at": "work company employer job",
    "works_as": "work job occupation profession role",
    "born_in": "born birth birthplace come where",
    "comes_from": "born come origin where",
    "called": "name call nickname",
    "has_name": "name called who",
    "has_email": "email mail address contact reach",
    "has_phone": "phone telephone number contact reach",
    "has_birthday": "birthday born birth",
    "likes": "like love enjoy hobby hobbies",
    "prefers": _WISHING,
    "avoids": _WISHING,
}
"""By which words people ask for a relation, beside its own."""


def question_stems(query: str, names: Iterable[str] = ()) -> frozenset[str]:
    """Stems of what a question asks for, without whom it names."""
    called = {stem_in(word) for name in names for word in words_in(name.lower())}
    words = (word for word in words_in(query.lower()) if word not in STOP_WORDS or word == "where")
    return frozenset(map(stem_in, words)) - called


def asked_share(stems: frozenset[str], relation: str, target: str) -> float:
    """How much of a fact a question asks for, 0 to 1: half by its relation, half by all it says.

    Args:
        stems: of the question, `question_stems`.
        relation: of the fact.
        target: what it leads to, as it is shown.
    """
    if not stems:
        return 0.0
    own = {stem_in(word) for word in relation_words(relation).split() if word not in _EMPTY}
    others = frozenset(map(stem_in, _ASKED_AS.get(relation, "").split()))
    by_relation = len(own & stems) / len(own) if own else 0.0
    if others & stems:
        by_relation = max(by_relation, 0.9)
    said = own | others | set(map(stem_in, words_in(target.lower())))
    return by_relation / 2 + len(said & stems) / len(stems) / 2
