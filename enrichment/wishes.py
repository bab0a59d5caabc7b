"""Wishes: what a user wants to be done always, never, or in a certain case.

A sentence of the event's user is a wish when it lays down a habit: "I prefer aisle seats", "when it
is late, write to me", "four spaces, no tabs", "anything urgent: call me", "large print, my eyes are
weak". Whether one does is learned (`wish_model`), of its words and how they stand together: no list
of forms was ever long enough. Less is enough behind what announces that something shall be
otherwise ("scrap that: …"), where a case is told in front, and of what shall not be done to things
in general.

Not in a question, not with an identifier (order 4711 is one case), not of several lines or longer
than 160 characters, and not what is in brackets, a note of what is no text.

The fact is `user prefers that` or, of what is forbidden, `user avoids that`; *that* is the sentence
without courtesies and without what introduces it ("I changed my mind: …"), with its case; of "do
not ring, knock" the one is avoided and the other preferred. Wishes stand side by side: a narrower
one does not end the general one. One that is introduced as new ("scrap that", "other rule from
today") says so in the words of its fact, `user now prefers that`: whoever reads it puts what it
replaces behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from enrichment.facts import Assertion, Party, fact_in_words, literal
from enrichment.names import MAX_FACT_CHARACTERS
from enrichment.patterns import identifiers
from enrichment.persons import speaker_of, spoken_fact
from enrichment.ports import Analysis, EventText, Token
from enrichment.vocabulary import word_set
from enrichment.wish_model import WishModel, wish_score
from projections.events import Event

WISH_CONFIDENCE: Final = 7_000
MAX_WISHES: Final = 5
ANEW: Final = "now"
"""Before the relation in the words of a wish that takes the place of one that was told before."""
MAX_WISH_CHARACTERS: Final = 160
_MIN_WORDS = 3

_COURTESY = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|please|and|but|so|also|oh|ah|good (?:morning|afternoon|evening)"
    r"|thanks|thank you)\b[\s,!.:;-]*)+|[\s,]*\bplease\b(?=[.!]?$)",
    re.IGNORECASE,
)
_LEAD = re.compile(r"^[^:]{3,50}:\s+(?=\S)")
_CASES = word_set("when if whenever unless while")
_ONE_TIME = word_set("now yet today tonight tomorrow yesterday noon this these")
_SUITING = word_set("you there anything anyone")
_COMPLETE = word_set("out done ready over finished complete available live back here there up")
_ONE_CASE = frozenset(
    ("id", "code", "number", "uuid", "path", "url", "hex", "email", "key", "ip", "host", "date")
)
_FORBIDDING = re.compile(
    r"^(?:i )?(?:do not|don['\u2019]?t|never|no|not|avoid|stop)\b",
    re.IGNORECASE,
)


def wish_facts(
    event: Event, text: EventText, analysis: Analysis, *, position_ms: int
) -> list[Assertion]:
    """What the user asks for in general, in the order of the text, at most MAX_WISHES.

    Args:
        event: that says it.
        text: of the event.
        analysis: of that text.
        position_ms: when the ledger took the event in.
    """
    user = speaker_of(event, text)
    if user is None:
        return []
    stated: dict[tuple[str, Party], bool] = {}
    for clause in clauses_of(text.text, analysis):
        if is_wish(clause):
            for relation, words in _parts_of(clause):
                target = literal(words)
                if target is not None:
                    stated.setdefault((relation, target), clause.is_announced)
    return [
        spoken_fact(
            event,
            user,
            relation,
            target,
            position_ms=position_ms,
            confidence=WISH_CONFIDENCE,
            functional=False,
            ordinal=index,
        )._replace(fact=_in_words(user, relation, target, is_anew=is_anew))
        for index, ((relation, target), is_anew) in enumerate(list(stated.items())[:MAX_WISHES])
    ]


def told_once(stated: Sequence[Assertion], wished: Sequence[Assertion]) -> list[Assertion]:
    """Facts of sentences and wishes, without what one of them says again in fewer words.

    "I prefer tea" is a fact, and no wish beside it; "I prefer tea at night" a wish alone.
    """
    whole = {
        (fact.source, f"i prefer {fact.target.canonical_name}")
        for fact in stated
        if fact.relation == "prefers"
    }
    wishes = [one for one in wished if (one.source, one.target.canonical_name) not in whole]
    return [*(fact for fact in stated if not any(_repeats(fact, w) for w in wishes)), *wishes]


def _repeats(fact: Assertion, wish: Assertion) -> bool:
    name = re.escape(fact.target.canonical_name)
    sentence = re.search(rf"\bprefer\b.*(?<!\w){name}(?!\w)", wish.target.canonical_name)
    alike = fact.relation == wish.relation == "prefers" and fact.source == wish.source
    return alike and sentence is not None


def _in_words(user: Party, relation: str, target: Party, *, is_anew: bool) -> str:
    """`u-77 now prefers tea`, where it takes the place of another wish."""
    words = fact_in_words(user, relation, target)
    verb = f" {relation} "
    return words.replace(verb, f" {ANEW}{verb}", 1)[:MAX_FACT_CHARACTERS] if is_anew else words


class Clause(NamedTuple):
    """A sentence without courtesies and without what announces it.

    Attributes:
        text: as it is written, a case in front included: "anything urgent: call me".
        tokens: of that text, at least one.
        is_announced: it or the sentence before it announces that something shall be otherwise.
        is_put_politely: as a question that is none.
    """

    text: str
    tokens: Sequence[Token]
    is_announced: bool = False
    is_put_politely: bool = False


def clauses_of(text: str, analysis: Analysis) -> Iterator[Clause]:
    """The sentences of a text that may be wishes, in their order."""
    bounds = [*analysis.sentences, len(analysis.tokens)]
    is_announced = False
    for first, last in pairwise(bounds):
        tokens = analysis.tokens[first:last]
        if tokens:
            start, final = tokens[0].start, tokens[-1]
            written = text[start : final.start + len(final.text)].strip()
            clause = _clause(written, tokens, is_announced=is_announced)
            if clause is not None:
                yield clause
            is_announced = _announces(written)


def is_wish(clause: Clause, model: WishModel | None = None) -> bool:
    """Whether a clause asks for something in general; model None: that of the table."""
    is_likely = (
        clause.is_announced or _is_asked_in_case(clause.tokens) or _is_forbidden(clause.tokens)
    )
    return clause.is_put_politely or wish_score(clause.tokens, is_likely=is_likely, model=model) > 0


def _is_asked_in_case(tokens: Sequence[Token]) -> bool:
    """Whether it asks to do something in a case: "when it rains, close the roof"."""
    words = [token.text.lower() for token in tokens]
    if words[0] not in _CASES or "," not in words or not _ONE_TIME.isdisjoint(words):
        return False
    behind = words.index(",") + 1
    return any(map(is_base, tokens[behind : behind + 1])) and not _is_once(words[1 : behind - 1])


def _is_once(case: Sequence[str]) -> bool:
    """Whether a case occurs once: as it suits the other, or when one thing is done.

    "If you need help, …", "when you can, …", "when it's out, …", "when the parcel is there, …".
    """
    suits = bool(case) and case[0] in _SUITING
    return suits or bool(set(case[2:]) & _COMPLETE)


def _is_forbidden(tokens: Sequence[Token]) -> bool:
    """Whether it says in general what is not to be done: "do not deliver on Wednesdays"."""
    words = [token.text.lower() for token in tokens[:2]]
    forbids = words[:1] == ["do"] and words[1:] and words[1] in ("not", "n't", "n\u2019t")
    things = [token for token in tokens[3:] if token.pos == "NOUN"]
    in_general = any(token.text.lower() != token.lemma.lower() for token in things)
    is_now = any(token.text.lower() in _ONE_TIME for token in tokens)
    return bool(forbids) and in_general and not is_now and any(map(is_base, tokens[2:3]))


def is_base(token: Token) -> bool:
    """Whether a word is a verb as an imperative has it."""
    return token.pos == "VERB" and token.text.lower() == token.lemma.lower()


def _clause(written: str, tokens: Sequence[Token], *, is_announced: bool) -> Clause | None:
    """A sentence as it is judged; None: it cannot be a wish."""
    text, is_led = _bare(written)
    asked_politely = _POLITELY.match(text)
    if asked_politely is not None:
        wish = f"{asked_politely['when']} {asked_politely['what']}"
        return Clause(wish, tokens, is_announced=True, is_put_politely=True)
    if (asked_to_stop := _STOP_IT.match(text)) is not None:
        return Clause(asked_to_stop["what"], tokens, is_put_politely=True)
    if text.endswith(":") or any(mark in text for mark in "?\n") or text.startswith("["):
        return None  # a question, several lines, a note of what is no text: "[shares a photo]"
    if len(text) > MAX_WISH_CHARACTERS:
        return None
    if len(text.split()) < _MIN_WORDS or any(s.label in _ONE_CASE for s in identifiers(text)):
        return None
    begins = tokens[0].start + max(0, written.find(text))
    judged = [token for token in tokens if token.start >= begins]
    return Clause(text.rstrip(".! "), judged, is_announced or is_led)


def _bare(text: str) -> tuple[str, bool]:
    """A sentence without courtesies and without what announces it, and whether something does."""
    text = _COURTESY.sub("", text).strip()
    lead = _LEAD.match(text)
    is_announced = lead is not None and _announces(lead[0])
    if lead is not None and is_announced:
        text = _COURTESY.sub("", text[lead.end() :]).strip()
    return text, is_announced


_POLITELY: Final = re.compile(
    r"^(?P<when>from (?:now|today)(?: on)?),?\s+(?:can|could|would|will) you\s+(?:please\s+)?"
    r"(?P<what>[a-z]+\s[^?\n]{3,120})\?$",
    re.IGNORECASE,
)
"""What is asked for from now on is no question, however it is put."""
_STOP_IT: Final = re.compile(
    r"^(?:can|could|would|will) you\s+(?:please\s+)?(?P<what>stop\s+[a-z]+ing\s+"
    r"(?:to\s+)?(?:me|us)\b[^?\n]{0,80})\?$",
    re.IGNORECASE,
)
"""Likewise what shall end that was done to somebody more than once."""
_INSTEAD = re.compile(
    r"^(?P<no>(?:(?:do not|don['\u2019]t|never)\s+[^,;.]+?))(?:[,;]\s*|\s+)(?:but\s+|instead\s+"
    r"|just\s+|rather\s+)?(?P<but>(?<=[,;] )[a-z]+\s[^,;]+|(?<=but )[^,;]+|(?<=instead )[^,;]+)$",
    re.IGNORECASE,
)


def _parts_of(wish: Clause) -> list[tuple[str, str]]:
    """The relations and targets of a wish: what is done instead of what is avoided is its own."""
    contrast = _INSTEAD.match(wish.text)
    if contrast is not None:
        first = contrast["but"].split()[0].lower()
        orders = any(token.text.lower() == first and is_base(token) for token in wish.tokens)
        if orders and first not in _CASES:
            return [("prefers", contrast["but"]), ("avoids", contrast["no"])]
    return [("avoids" if _FORBIDDING.match(wish.text) else "prefers", wish.text)]


def _announces(text: str) -> bool:
    """Whether a text takes back what was asked for before, or tells of a new wish."""
    if _LEADS.match(text.strip()):
        return True
    is_short = len(text.split()) <= _MOST_OF_LEAD and not text.rstrip().endswith("?")
    return is_short and _ANEW.search(text) is not None


_MOST_OF_LEAD: Final = 9
"""Words of what announces that something shall be otherwise: "about the post, new plan"."""
_ANEW: Final = re.compile(
    r"(?<!\w)(?:second\s+thoughts|re-?think|re-?thought|re-?considered|thought\s+again"
    r"|tak(?:e|es|ing)\s+(?:(?:it|that|this)\s+)?back(?!\s+to)|change\s+of\s+(?:plans?|mind)"
    r"|chang(?:ed|es)\s+(?:my|our|its|his|her)\s+minds?"
    r"|(?:new|other|another|different|revised|changed)\s+(?:plan|rule|deal|idea|wish|way|story"
    r"|procedure|arrangement|preference|policy|regime|regimen|routine|practice|method|opinion|view"
    r"|mind|approach|habit|custom|instruction|try|attempt)s?"
    r"|(?:scrap|scratch|forget|disregard)\s+(?:that|it|the|what|my)|differently"
    r"|(?:,\s*(?:revised|amended)|take\s+two"  # an invoice may be revised as well
    r"|(?:wish|want|like)\s+to\s+(?:alter|change|revise|amend))(?=\W*$)"
    r"|correct(?:ing)?\s+myself|decided\s+(?:otherwise|anew)"
    r"|(?:should|must|shall)\s+(?:look|be|go|work|run)\s+different"
    r"|from\s+(?:now|today)(?:\s+on)?|different(?:ly)?\s+now)(?!\w)",
    re.IGNORECASE,
)


_LEADS: Final = re.compile(
    r"^(?:(?:ok|okay|oh|actually|sorry|well|please|no|hi|hey|hello)\b[\s,.!]*)*"
    r"(?:(?:forget|scrap|ignore|drop|disregard|strike|cancel|skip)\s+(?:about\s+)?(?:that|it|this"
    r"|what\s+i\b.*|(?:my|the)\s+(?:last|earlier|old|previous|former)\b.*)"
    r"|(?:i(?:'ve|\u2019ve| have)?\s+)?(?:just\s+)?(?:changed\s+my\s+mind|reconsidered"
    r"|(?:thought|was thinking)\s+about\s+(?:it|that)(?:\s+again)?|thought\s+again)"
    r"|on\s+second\s+thou?ghts?"
    r"|(?:a\s+)?(?:new|other|another|different|changed|updated)\s+(?:wish|rule|preference|habit"
    r"|instruction|arrangement|plan)s?\b.{0,30}"
    r"|(?:as\s+)?(?:from|of|since)\s+(?:now|today)(?:\s+on)?)\s*[.:!,-]*$",
    re.IGNORECASE,
)
