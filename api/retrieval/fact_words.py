"""How much a fact is what a question asks for: its relation's words, and what it leads to. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from enrichment.stems import same_root, stem_in, stems_of, words_in
from enrichment.vocabulary import STOP_WORDS, relation_words, word_set

_WHEN: Final = "now|from|before|today|currently|previously|then|these|this|last|at|in|on|until|back"
_LIVE: Final = rf"(?:live|living|reside)(?=\W*$|\s+(?:{_WHEN})\b)"
_OTHERWISE: Final = tuple(
    (re.compile(rf"^\W*{pattern}", re.IGNORECASE), meaning)
    for pattern, meaning in (
        (rf"where\s+(?:do|am|will|shall)\s+i\s+(?:now\s+|be\s+)?{_LIVE}", "what is my address"),
        (rf"where\s+did\s+i\s+{_LIVE}", "what was my address"),
        (rf"where\s+(?:does|do|is)\s+(.+?)\s+{_LIVE}", r"what is the address of \1"),
        (rf"where\s+did\s+(.+?)\s+{_LIVE}", r"what was the address of \1"),
        (r"what\s+(is|was)\s+the\s+status\s+(?:of|for)\b", r"what \1 the state of"),
        (r"how\s+old\s+(?:is|are)\s+(.+?)(?=\W*$)", r"what is the age of \1"),
    )
)
"""Questions in words that records do not have, and the same in theirs."""
_EMPTY: Final = word_set("has had is was value")
_WISHING = "prefer preference wish wishes want rather way rule exception case ask like apply avoid"
_ASKED_AS: Final[Mapping[str, str]] = {
    "lives_in": "live city home town residence move where",
    "moved_to": "live city move where",
    "works_at": "work company employer job",
    "works_as": "work job occupation profession role",
    "born_in": "born birth birthplace come where",
    "comes_from": "born come origin where",
    "located_in": "where location place position located",
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


WISHES: Final = ("prefers", "avoids")
_FILLING: Final = frozenset(
    map(stem_in, ("who", "name", "kind", "sort", "now", "new", "current", "currently", "today"))
)
"""What a question may have beside what it asks for."""
_BY_ANOTHER_WORD: Final = 0.9
_ASKS_PLACE: Final = re.compile(r"(?<!\w)(?:in|on|at|to)\s+(?:which|what)(?!\w)", re.IGNORECASE)
AUXILIARY: Final = r"(?:is|are|was|were|did|do|does|has|have|had|should|will)"
_WHICH: Final = re.compile(
    r"^\W*(?:and\s+)?(?:(?:in|on|at|to|from|with|for|under|by|of|until|since)\s+)?(?:"
    rf"(?:which|what)\s+(?P<noun>\w+(?:\s+\w+)?)\s+{AUXILIARY}\b|"
    rf"which\s+(?P<subject>\w+)\s+(?!{AUXILIARY}\b)\w)",
    re.IGNORECASE,
)
"""Its noun may be what did it: "which carrier took the order"."""
_ANYTHING: Final = frozenset(
    map(stem_in, word_set("person people user one thing place day date time value"))
)
_ASKING: Final = frozenset(word for words in _ASKED_AS.values() for word in words.split())


def in_words_of_records(query: str) -> str | None:
    """The question in the words of a record: people live somewhere, records have addresses."""
    for pattern, meaning in _OTHERWISE:
        if match := pattern.match(query):
            return match.expand(meaning) + query[match.end() :]
    return None


def question_stems(query: str) -> frozenset[str]:
    """Stems of the words of a question that ask for something, or name it."""
    words = (w for w in words_in(query.lower()) if w not in STOP_WORDS or w in _ASKING)
    return frozenset(map(stem_in, words))


def noun_asked(query: str) -> str:
    """What a question asks for by "which" or "what"; empty: it asks otherwise."""
    match = _WHICH.match(query)
    return (match["noun"] or match["subject"]) if match else ""


def is_of_noun(query: str, relation: str, target: str) -> bool:
    """Whether a fact may be what a question calls by a noun: "which helmet" asks for no order."""
    wanted = stems_of(noun_asked(query)) - _FILLING - _ANYTHING
    others = asked_as(relation) | stems_of(target)
    return not wanted or _shared(wanted, others) > 0 or is_place_asked(query, relation)


def is_place_asked(query: str, relation: str) -> bool:
    """Whether a question asks what something is in, and a relation says where it is."""
    return relation == "located_in" and _ASKS_PLACE.search(query) is not None


def asked_share(stems: frozenset[str], relation: str, ends: tuple[str, str]) -> float:
    """How much of a fact a question asks for, 0 to 1: half by its relation, half by all it says.

    Args:
        stems: of the question, `question_stems`.
        relation: of the fact.
        ends: names of its source and of its target; the source's says nothing of what is asked.
    """
    source, target = map(stems_of, ends)
    wanted = stems - source
    if not wanted:
        return 0.0
    named = _words(relation)
    others = frozenset(map(stem_in, _ASKED_AS.get(relation, "").split()))
    by_relation = _shared(named, wanted) / len(named) if named else 0.0
    if others & wanted:
        by_relation = max(by_relation, _BY_ANOTHER_WORD)
    if relation in WISHES:
        # of two wishes about the same the newer counts, however they are worded
        return by_relation / 2 + (0.0 if target.isdisjoint(wanted - others) else 0.5)
    return by_relation / 2 + _shared(wanted, named | others | target) / len(wanted) / 2


def says_all(stems: frozenset[str], relation: str, target: str) -> bool:
    """Whether a fact is all that a question asks for: each of its words is one of the relation's.

    Args:
        stems: of the question, without the name of whom it is about.
        relation: of the fact.
        target: what it leads to.
    """
    itself = frozenset(_words(relation))
    telling = stems - _FILLING
    if relation in WISHES or not telling or not itself:
        return False
    others = asked_as(relation)
    known_words = itself | others | stems_of(target)
    return bool(telling & (itself | others)) and telling <= known_words


def _shared(stems: AbstractSet[str], others: AbstractSet[str]) -> int:
    """How many stems the others have: who *operates* a machine is its *operator*."""
    return sum(stem in others or any(same_root(stem, other) for other in others) for stem in stems)


def has_words(relation: str) -> bool:
    """Whether a relation says what it is about: `has_address` does, `has_value` does not."""
    return bool(_words(relation))


def asked_as(relation: str) -> frozenset[str]:
    """Stems by which people ask for a relation: its own words, and others for the same."""
    others = words_in(_ASKED_AS.get(relation, ""))
    return frozenset(map(stem_in, [*words_in(relation_words(relation)), *others]))


def _words(relation: str) -> set[str]:
    return {stem_in(word) for word in relation_words(relation).split() if word not in _EMPTY}
