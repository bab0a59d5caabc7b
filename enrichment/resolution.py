"""Who is the same as whom: decisions about pairs of entities, and the components they make.

A wrong "same" joins two things in every later answer; a missed one only leaves an answer shorter.
So cosine alone decides nothing: of short names it says how alike they look, and `north gate` and
`south gate`, `claude 2` and `claude 3` look more alike than `ibm` and `i.b.m.`. The rules, the
first that fits:

1. A literal value is never the same as anything.
2. Equal names of different types: the agent or user of that name and the person (`same_name`);
   an identifier of letters and digits, six characters or more (`same_identifier`). Otherwise
   different types, or different subtypes, are never the same.
3. Names of agents, users and resources, names with a digit and names from the pattern recogniser
   (`exact`) are the same when they differ in typography alone (kind of dash, of apostrophe).
4. Equal normal forms (`name_form`) are the same, whatever the cosine (`same_form`).
5. At cosine 0.85 and above: the same when the words are the same in another order
   (`same_words`), or written together (`same_letters`); of concepts also in another inflection or
   spelling (`same_stems`: `get_order` and `get_orders` are two tools), or when one is made of the
   initials of the other (`initials`); else a case for the language model.
6. From 0.70: a case for the language model. Below: new.

Without a language model, or without its answer, a case is new.

A decision is taken once, when an entity is new to the graph. It changes nothing by itself: it is
appended to the ledger as `memory.same_as`, and applied when it is read back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from enrichment.facts import WHOLE_CONFIDENCE, Mention
from enrichment.names import VALUE, EntityType
from enrichment.payloads import (
    MAX_PAIRS,
    SameAsPair,
    same_as_event,
)
from enrichment.vocabulary import UNINFLECTED, word_set
from projections.events import Event
from projections.identity import Position

SAME_COSINE = 0.85
ASK_COSINE = 0.70

Verdict = Literal["same", "ask", "new"]


class KnownEntity(NamedTuple):
    """An entity as far as resolution looks at it; `exact` as in `Mention`."""

    entity_id: str
    canonical_name: str
    entity_type: EntityType
    subtype: str | None = None
    exact: bool = False


class Candidate(NamedTuple):
    """Two entities of one tenant that may be the same, and the plain cosine of their names."""

    first: KnownEntity
    second: KnownEntity
    cosine: float

    @property
    def entity_ids(self) -> tuple[str, str]:
        """Both ids, the smaller first: what the pair is known by."""
        ids = (self.first.entity_id, self.second.entity_id)
        return (min(ids), max(ids))


class Judgement(NamedTuple):
    """What the rules say of a candidate; confidence times 10⁴, 0 unless the same."""

    verdict: Verdict
    rule: str
    confidence: int = 0


_CONFIDENCE: Final = {
    "same_identifier": WHOLE_CONFIDENCE,
    "same_typography": WHOLE_CONFIDENCE,
    "same_form": 9_500,
    "same_name": 9_000,
}


def judge(candidate: Candidate) -> Judgement:
    """Whether two entities are the same, as the rules of this module say."""
    first, second, cosine = candidate
    if first.entity_id == second.entity_id or VALUE in (first.subtype, second.subtype):
        return Judgement("new", "not_compared")
    if first.entity_type != second.entity_type:
        return _across_types(first, second)
    if _kind(first) != _kind(second):
        return Judgement("new", "other_kind")
    if _typography(first.canonical_name) == _typography(second.canonical_name):
        return _same("same_typography")
    if any(_is_exact(entity) for entity in (first, second)):
        return Judgement("new", "exact_names")
    kind = _kind(first)
    form, other_form = name_form(first.canonical_name, kind), name_form(second.canonical_name, kind)
    if form == other_form:
        return _same("same_form")
    if cosine < ASK_COSINE:
        return Judgement("new", "unlike")
    if cosine < SAME_COSINE:
        return Judgement("ask", "alike")
    rule = _same_words(form, other_form, kind, first.entity_type)
    return _same(rule, cosine) if rule else Judgement("ask", "other_words")


def _same(rule: str, cosine: float = 0.0) -> Judgement:
    return Judgement("same", rule, _CONFIDENCE.get(rule, round(cosine * WHOLE_CONFIDENCE)))


def same_as(
    candidates: Iterable[Candidate], answers: Mapping[tuple[str, str], bool] | None = None
) -> list[SameAsPair]:
    """The pairs that are the same, sorted by their ids; each pair once.

    Args:
        candidates: in any order; of one pair given twice the larger cosine counts.
        answers: of the language model to the cases, by `Candidate.entity_ids`.
    """
    best: dict[tuple[str, str], Candidate] = {}
    for candidate in candidates:
        previous = best.setdefault(candidate.entity_ids, candidate)
        if candidate.cosine > previous.cosine:
            best[candidate.entity_ids] = candidate
    pairs = []
    method: Literal["exact", "cosine", "model"]
    for ids in sorted(best):
        candidate = best[ids]
        judgement = judge(candidate)
        cosine = round(max(-1.0, min(1.0, candidate.cosine)) * WHOLE_CONFIDENCE)
        if judgement.verdict == "same":
            method = "exact" if judgement.rule in _CONFIDENCE else "cosine"
            confidence = judgement.confidence
        elif judgement.verdict == "ask" and (answers or {}).get(ids) is True:
            method, confidence = "model", max(0, cosine)
        else:
            continue
        pairs.append(
            SameAsPair(
                entity_ids=ids,
                confidence=confidence,
                cosine=cosine,
                method=method,
                justification=judgement.rule,
            )
        )
    return pairs


def question(candidate: Candidate) -> dict[str, Any]:
    """A case as a language model is asked about it: names and kinds, nothing else."""
    return {
        "entities": [
            {"name": e.canonical_name, "type": e.entity_type, "subtype": e.subtype}
            for e in (candidate.first, candidate.second)
        ]
    }


_PERSONS: Final = frozenset(("agent", "user"))
_IDENTIFIERS: Final = frozenset(("agent", "user", "resource"))
"""Types whose names are keys somewhere: `a-b` and `a_b` may be two of them."""
_MIN_IDENTIFIER = 6
_NO_IDENTIFIERS = frozenset(("date", "amount", "version", "time", "number", "phone"))


def _kind(entity: KnownEntity) -> str:
    return "" if entity.subtype in (None, "concept") else entity.subtype or ""


def _is_exact(entity: KnownEntity) -> bool:
    return entity.exact or entity.entity_type in _IDENTIFIERS or _has_digit(entity.canonical_name)


@lru_cache(100_000)  # a name is compared with two dozen others at each of its first mentions
def _has_digit(name: str) -> bool:
    return any(map(str.isdigit, name))


def _across_types(first: KnownEntity, second: KnownEntity) -> Judgement:
    if first.canonical_name != second.canonical_name:
        return Judgement("new", "other_type")
    name = first.canonical_name
    mixed = _has_digit(name) and any(map(str.isalpha, name))
    unclear = _NO_IDENTIFIERS & {first.subtype, second.subtype}
    if mixed and len(name) >= _MIN_IDENTIFIER and " " not in name and not unclear:
        return _same("same_identifier")
    for person, mention in ((first, second), (second, first)):
        if person.entity_type in _PERSONS and mention.subtype == "person":
            return _same("same_name")
    return Judgement("new", "other_type")


_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe58\ufe63\uff0d"), "-")
_APOSTROPHES = dict.fromkeys(map(ord, "\u2018\u2019\u02bc\u2032\uff07`\u00b4"), "'")


_TYPOGRAPHY = _DASHES | _APOSTROPHES


@lru_cache(maxsize=8_192)
def _typography(name: str) -> str:
    return name.translate(_TYPOGRAPHY)


_COMPANY_FORMS = word_set(
    "inc incorporated corp corporation ltd limited llc llp plc gmbh ag co company kg oy ab sa nv"
)
_TITLES = word_set("mr mrs ms miss mx dr doctor prof professor sir")
_DOTTED = re.compile(r"(?:[^\W\d_]\.){2,}[^\W\d_]?\.?")
_SEPARATORS = re.compile(r"[\s_\-/]+")
_MIN_FIRST_NAME = 3


@lru_cache(maxsize=8_192)  # a new entity is compared with several, and those with others
def name_form(canonical_name: str, kind: str = "") -> str:
    """The normal form of a name without digits; equal ones are the same entity.

    In order: typography; accents of Latin letters; dots of initials (`u.s.a.` is `usa`); `&` is
    `and`; a person's `Smith, John` turned round and titles left out before a full name; blank,
    hyphen and underscore are one; a leading `the`; of an organisation the company's form
    (`Inc.`, `GmbH`) as long as something is left.
    """
    name = _plain_letters(_typography(canonical_name)).replace("&", " and ")
    name = " ".join(p.replace(".", "") if _DOTTED.fullmatch(p) else p for p in name.split())
    if kind == "person" and name.count(",") == 1:
        last, first = (part.strip() for part in name.split(","))
        name = f"{first} {last}" if first and last else name
    words = [word.strip(".,") for word in _SEPARATORS.split(name)]
    words = [word for word in words if word]
    if kind == "person":
        bare = words[1:]
        if words and words[0] in _TITLES and len(bare) > 1 and len(bare[0]) >= _MIN_FIRST_NAME:
            words = bare
        return " ".join(words) or canonical_name
    if len(words) > 1 and words[0] == "the":
        words = words[1:]
    if kind == "organization":
        while len(words) > 1 and words[-1] in _COMPANY_FORMS:
            words = words[:-1]
    return " ".join(words) or canonical_name


def _plain_letters(name: str) -> str:
    """Latin letters without their accents; other scripts as they are, where marks tell words."""
    if name.isascii():
        return name
    letters: list[str] = []
    for letter in unicodedata.normalize("NFD", name):
        if unicodedata.combining(letter) and letters and "a" <= letters[-1][-1] <= "z":
            continue
        letters.append(letter)
    return unicodedata.normalize("NFC", "".join(letters))


_LINKING = word_set("of the and for in a an")
_SPELLINGS: Final = (
    (re.compile(r"(?<=[iy])s(?=(?:e|ed|er|ers|es|ing|ation|ations)$)"), "z"),
    (re.compile(r"our(?=(?:s|ed|ing|ful|ite)?$)"), "or"),
    (re.compile(r"tre(?=s?$)"), "ter"),
)
_NO_INFLECTION = frozenset(("person", "location", "organization", "group"))
_MIN_INITIALS = 3
_NO_LETTERS = re.compile(r"[\s.]+")
_MIN_LETTERS = 5


def _same_words(form: str, other: str, kind: str, entity_type: EntityType) -> str | None:
    """The rule by which two forms that look alike are the same; None: they are not."""
    words, others = form.split(), other.split()
    content, other_content = _content(words), _content(others)
    if content and content == other_content:
        return "same_words"
    letters = _NO_LETTERS.sub("", form)
    if len(letters) >= _MIN_LETTERS and letters == _NO_LETTERS.sub("", other):
        return "same_letters"
    if entity_type != "concept":
        return None
    stems, other_stems = (sorted(_stem(word, kind) for word in c) for c in (content, other_content))
    if stems and stems == other_stems:
        return "same_stems"
    for short, long in ((words, others), (others, words)):
        if len(short) == 1 and len(short[0]) >= _MIN_INITIALS:
            initials = {"".join(w[0] for w in of) for of in (long, _content_in_order(long))}
            if short[0] in initials:
                return "initials"
    return None


def _content_in_order(words: Iterable[str]) -> list[str]:
    return [word for word in words if word not in _LINKING]


def _content(words: Iterable[str]) -> list[str]:
    return sorted(_content_in_order(words))


def _stem(word: str, kind: str) -> str:
    """A word without what inflection and British or American spelling change."""
    for pattern, american in _SPELLINGS:
        word = pattern.sub(american, word)
    if kind in _NO_INFLECTION or len(word) < 5 or word.endswith(UNINFLECTED):
        return word  # Williams is not William
    return word[:-1] if word.endswith("s") else word


MODEL = "model-"
"""Tells a language model's decisions about a newcomer from those of the rules."""

_COMPARED: frozenset[EntityType] = frozenset(("concept", "service"))

EntityKey = tuple[str, str]


class Newcomer(NamedTuple):
    """An entity that the graph did not have before this transaction.

    Attributes:
        vector: of its name; None when the name is not compared by similarity.
        event, position: of its first mention in the batch, which triggers the decision.
    """

    entity: KnownEntity
    vector: bytes | None
    event: Event
    position: Position


class Comparison(NamedTuple):
    """A newcomer and what it may be the same as."""

    newcomer: Newcomer
    candidates: list[Candidate]


def is_comparable(mention: Mention) -> bool:
    """Whether another name may be found to be the same by similarity."""
    return not mention.exact and mention.entity_type in _COMPARED


def comparisons(
    newcomers: Mapping[EntityKey, Newcomer],
    near: Mapping[EntityKey, Sequence[tuple[KnownEntity, float]]],
) -> list[Comparison]:
    """What each entity that is new has to be compared with.

    Args:
        newcomers: by (tenant, entity id).
        near: entities of the graph that each may be the same as, with the cosine of the names.
    """
    candidates: dict[EntityKey, list[Candidate]] = {}
    for key, others in near.items():
        entity = newcomers[key].entity
        candidates[key] = [Candidate(entity, other, cosine) for other, cosine in others]
    for key, candidate in _among(newcomers):
        candidates.setdefault(key, []).append(candidate)
    return [Comparison(newcomers[key], candidates[key]) for key in sorted(candidates)]


def decisions(compared: Iterable[Comparison]) -> list[Event]:
    """The `memory.same_as` events that the rules come to, one for each newcomer."""
    return [
        event
        for comparison in compared
        for event in _events(comparison.newcomer, same_as(comparison.candidates))
    ]


def open_cases(compared: Iterable[Comparison]) -> list[Comparison]:
    """What is left for a language model."""
    cases = [
        comparison._replace(
            candidates=[c for c in comparison.candidates if judge(c).verdict == "ask"]
        )
        for comparison in compared
    ]
    return [case for case in cases if case.candidates]


def answered(cases: Iterable[Comparison], answers: Mapping[tuple[str, str], bool]) -> list[Event]:
    """The `memory.same_as` events that a language model's answers come to."""
    return [
        event
        for case in cases
        for event in _events(case.newcomer, same_as(case.candidates, answers), MODEL)
    ]


def _among(newcomers: Mapping[EntityKey, Newcomer]) -> Iterable[tuple[EntityKey, Candidate]]:
    """Pairs of newcomers of one tenant: alike by their vectors, or of one name."""
    tenants: dict[str, list[EntityKey]] = {}
    for key in sorted(newcomers):
        tenants.setdefault(key[0], []).append(key)
    for keys in tenants.values():
        cosines = _cosines([newcomers[key].vector for key in keys])
        names: dict[str, list[EntityKey]] = {}
        for key in keys:
            names.setdefault(newcomers[key].entity.canonical_name, []).append(key)
        pairs = {
            (keys[i], keys[j]): cosines[i, j]
            for i, j in zip(*np.nonzero(np.triu(cosines, k=1) >= ASK_COSINE), strict=True)
        }
        for same in names.values():
            for n, first in enumerate(same):
                pairs.update({(first, second): 1.0 for second in same[n + 1 :]})
        for (first, second), cosine in sorted(pairs.items()):
            yield first, Candidate(newcomers[first].entity, newcomers[second].entity, float(cosine))


def _cosines(vectors: Sequence[bytes | None]) -> np.ndarray:
    """Cosines of all pairs; -1 where a vector is missing."""
    given = [n for n, vector in enumerate(vectors) if vector is not None]
    cosines = np.full((len(vectors), len(vectors)), -1.0)
    if given:
        rows = np.stack([np.frombuffer(vectors[n] or b"", dtype="<f4") for n in given])
        cosines[np.ix_(given, given)] = rows @ rows.T
    return cosines


def _events(newcomer: Newcomer, pairs: Sequence[SameAsPair], by: str = "") -> list[Event]:
    return [
        same_as_event(
            newcomer.entity.entity_id,
            newcomer.event,
            newcomer.position,
            pairs[first : first + MAX_PAIRS],
            chunk=f"{by}{first // MAX_PAIRS}",
        )
        for first in range(0, len(pairs), MAX_PAIRS)
    ]
