"""Wishes: what a user wants to be done always, never, or in a certain case.

A sentence of the event's user is a wish when it lays down a habit, which its form tells:

- it says so (prefer, would rather, always, never, from now on, by default) and asks for it:
  "dogs always cheer us up" tells, "always happy to help" offers;
- it is an imperative with a case (when, if, unless … you do that), or a negated one; not one that
  is done once as it suits the other ("let me know if you need help");
- it is an imperative, or "I want", about things in general: a plural without article or number
  ("write commit messages in the imperative"), told more than the bare object, and no verb of
  looking or starting something ("show invoices" is done once);
- it is said of things in general, in the present: "gifts get a ribbon";
- it names things in general and how they shall be, without a verb ("four spaces, no tabs", "one
  topic per mail, please"), or says what suits ("a phone call is best for me", "I like long letters
  with a plan", "I am a paper person"), what each of mine shall be ("send my reports printed"), or
  when to ask first ("ask before you book anything"): `wish_forms`;
- what stands around it tells that it holds in general: `wish_contexts`. A case in front, a phrase
  about things in general ("at night ring the porter", "for long trips I need a pillow", "anything
  urgent: call me"); a reason behind, in the present, of what somebody is like or does ("tell me
  changes by phone, I drive a lot"), where it is not about one thing ("get me a taxi, I hate rain");
  what it shall not be ("follow my list, not the leaflet"), or a last word ("full stop", "nothing
  else"); what I do and do not ("I read it on paper, never on a screen"), what I want none of ("no
  pepper in my soup, I hate it") and how mine in the plural shall be ("give our crates to the
  porter"). None of these with a figure, a day of the week, now, today, this, still or again.

Not in a question, not with an identifier (order 4711 is one case), not longer than 160 characters.

The fact is `user prefers that` or, of what is forbidden, `user avoids that`; *that* is the sentence
without courtesies and without what introduces it ("I changed my mind: …"), with its case; of "do
not ring, knock" the one is avoided and the other preferred. Wishes stand side by side: a narrower
one does not end the general one. One that is introduced as new ("scrap that", "other rule from
today") says so in the words of its fact, `user now prefers that`: whoever reads it puts what it
replaces behind it. What friends say to hearten and to advise ("don't give up") is none.
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
from enrichment.vocabulary import NEGATIONS, READ_VERBS, word_set
from enrichment.wish_contexts import is_asked_for_case, names_case, stands_in_context
from enrichment.wish_forms import Sentence, in_general, lays_down, leads
from projections.events import Event

WISH_CONFIDENCE: Final = 7_000
MAX_WISHES: Final = 5
ANEW: Final = "now"
"""Before the relation in the words of a wish that takes the place of one that was told before."""
MAX_WISH_CHARACTERS: Final = 160
_MIN_WORDS = 3

_SAID = re.compile(
    r"\b(?:i(?:'d| would)? (?:much )?(?:prefer|rather)|always|never|from now on|from today(?: on)?"
    r"|in (?:the )?future|by default|as a rule|whenever|every time|each time"
    r"|no longer|at all times)\b",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|please|and|but|so|also|oh|ah|good (?:morning|afternoon|evening)"
    r"|thanks|thank you)\b[\s,!.:;-]*)+|[\s,]*\bplease\b(?=[.!]?$)",
    re.IGNORECASE,
)
_LEAD = re.compile(r"^[^:]{3,50}:\s+(?=\S)")
_CASES = word_set("when if whenever unless while")
_DOING_ONCE = READ_VERBS | word_set(
    "run execute start stop restart cancel delete remove close open deploy install send give tell "
    "try go come do let see fix book order pay repeat continue stay wait look thank have hold"
)
_ONE_CASE = frozenset(
    ("id", "code", "number", "uuid", "path", "url", "hex", "email", "key", "ip", "host", "date")
)
_LAID_DOWN = re.compile(
    r"^(?:(?:always|never)\s+(?!(?:i|you|he|she|it|we|they|been|had|was|were|did|have|has|heard"
    r"|got|seen|a|an|the)\b)[a-z]+\s|(?:do not|don't|don\u2019t)\s+ever\s)",
    re.IGNORECASE,
)
"""How a sentence begins that lays something down, whatever it tells behind that."""
_HEARTENING = re.compile(
    r"^(?:(?:(?:do not|don['\u2019]t|never)\s+(?:ever\s+)?(?:give|quit|worry|forget|hesitate|be"
    r"|feel|let|mind|stress|sweat|beat|get|stop|lose|miss|sell)|keep\s+(?:it|up|going|at|on|pushing)"
    r"|make\s+sure|not\s+(?:only|just))\b(?!.*\b(?:me|my)\b)|(?:.*,\s+)?check\s+out\b"
    r"|[a-z]+\b.*\byour(?:self)?\s+(?:dreams?|heart|passions?|values?|life|goals?|own|best|day"
    r"|family|friends|mind|thing|taste)\b)",
    re.IGNORECASE,
)
"""What one person says to hearten or to advise another, and nobody asks an agent for."""
_FORBIDDING = re.compile(
    r"^(?:do not|don't|don’t|never|no|not|avoid|stop|i (?:do not|don't|don’t))\b",  # noqa: RUF001
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
    for sentence in _sentences(text.text, analysis):
        wish = _wish(sentence)
        if wish is None:
            continue
        tokens = sentence.tokens[sentence.first : sentence.last]
        for relation, words in _parts_of(wish.text, tokens):
            target = literal(words)
            if target is not None:
                stated.setdefault((relation, target), wish.is_anew)
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


def _sentences(text: str, analysis: Analysis) -> Iterator[Sentence]:
    bounds = [*analysis.sentences, len(analysis.tokens)]
    is_led = False
    for first, last in pairwise(bounds):
        if first < last:
            start = analysis.tokens[first].start
            final = analysis.tokens[last - 1]
            end = final.start + len(final.text)
            written = text[start:end].strip()
            yield Sentence(analysis.tokens, first, last, text=written, is_led=is_led)
            is_led = leads(written)


def _in_words(user: Party, relation: str, target: Party, *, is_anew: bool) -> str:
    """`u-77 now prefers tea`, where it takes the place of another wish."""
    words = fact_in_words(user, relation, target)
    verb = f" {relation} "
    return words.replace(verb, f" {ANEW}{verb}", 1)[:MAX_FACT_CHARACTERS] if is_anew else words


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


class _Wish(NamedTuple):
    """What is asked for, and whether that takes the place of what was asked for before."""

    text: str
    is_anew: bool


def _wish(sentence: Sentence) -> _Wish | None:
    """What a sentence asks for in general; None: it does not."""
    text, lead = _bare(sentence.text)
    asked_politely = _POLITELY.match(text)
    if asked_politely is not None:
        return _Wish(f"{asked_politely['when']} {asked_politely['what']}", is_anew=True)
    if (asked_to_stop := _STOP_IT.match(text)) is not None:
        return _Wish(asked_to_stop["what"], is_anew=False)
    sentence = sentence._replace(is_led=sentence.is_led or leads(lead))
    if text.endswith(":") or "?" in text or "\n" in text or len(text) > MAX_WISH_CHARACTERS:
        return None
    if len(text.split()) < _MIN_WORDS or any(s.label in _ONE_CASE for s in identifiers(text)):
        return None
    if _HEARTENING.match(text):
        return None
    offset = sentence.text.find(text)
    begins = sentence.tokens[sentence.first].start + max(0, offset)
    case = f"{lead} " if names_case(lead) and not sentence.is_led else ""
    wish = _Wish(f"{case}{text}".rstrip(".! "), sentence.is_led)
    laid_down = _LAID_DOWN.match(text) is not None or (
        _SAID.search(text) is not None and not _is_report(sentence)
    )
    if laid_down and _asks(sentence, begins):
        return wish
    if _imperative(sentence, begins) or in_general(sentence):
        return wish
    tokens = sentence.tokens[sentence.first : sentence.last]
    clause = [token for token in tokens if token.start >= begins]
    if lays_down(sentence, clause, text) or stands_in_context(clause, text):
        return wish
    return wish if case and is_asked_for_case(clause) else None


def _bare(text: str) -> tuple[str, str]:
    """A sentence without courtesies and without what introduces it, and what that is."""
    text = _COURTESY.sub("", text).strip()
    lead = _LEAD.match(text)
    if lead is not None:
        text = text[lead.end() :]
    return _COURTESY.sub("", text).strip(), lead[0].strip() if lead else ""


_INSTEAD = re.compile(
    r"^(?P<no>(?:(?:do not|don['\u2019]t|never)\s+[^,;.]+?))(?:[,;]\s*|\s+)(?:but\s+|instead\s+"
    r"|just\s+|rather\s+)?(?P<but>(?<=[,;] )[a-z]+\s[^,;]+|(?<=but )[^,;]+|(?<=instead )[^,;]+)$",
    re.IGNORECASE,
)


def _parts_of(wish: str, tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """The relations and targets of a wish: what is done instead of what is avoided is its own."""
    contrast = _INSTEAD.match(wish)
    if contrast is not None:
        first = contrast["but"].split()[0].lower()
        orders = any(
            token.text.lower() == first and token.pos == "VERB" and first == token.lemma.lower()
            for token in tokens
        )
        if orders and first not in _CASES:
            return [("prefers", contrast["but"]), ("avoids", contrast["no"])]
    return [("avoids" if _FORBIDDING.match(wish) else "prefers", wish)]


def _is_report(sentence: Sentence) -> bool:
    """Whether it tells what was, or what others do: "he never called", "I always wanted"."""
    for place in range(sentence.first, sentence.last):
        token = sentence.tokens[place]
        if token.relation == "ROOT" and token.pos in ("VERB", "AUX"):
            word = token.text.lower()
            past = word != token.lemma and not word.endswith("s")
            subjects = {
                sentence.tokens[c].text.lower()
                for c in sentence.below(place)
                if sentence.tokens[c].relation in ("nsubj", "nsubjpass")
            }
            helped = any(
                sentence.tokens[c].relation in ("aux", "auxpass")
                and sentence.tokens[c].text.lower() in ("have", "has", "had", "was", "were", "did")
                for c in sentence.below(place)
            )
            others = bool(subjects & _OTHERS) or (bool(subjects) and token.lemma == "be")
            others |= bool(subjects) and word != token.lemma and not _SAID_BY_ME.search(word)
            mine = "i" in subjects and not _SAID_BY_ME.search(sentence.text)
            return past or helped or others or mine
    return False


_OBLIGING = word_set("must should shall")


def _asks(sentence: Sentence, begins: int) -> bool:
    """Whether a sentence with "always", "never" and the like asks for it, and does not tell of it.

    "Always reply in German" does, "dogs always cheer us up" and "always happy to help" do not.
    """
    if _I_WANT.search(sentence.text):
        return _I_SHALL.search(sentence.text) is None  # tells what is planned
    if in_general(sentence):
        return True
    if _FROM_NOW.match(sentence.text[begins - _start(sentence) :]):
        return True
    clause = [one for one in sentence.tokens[sentence.first : sentence.last] if one.start >= begins]
    told_of = any(token.text in ("'s", "\u2019s") for token in clause)
    if not told_of and _SUITS.search(sentence.text) is None and not any(map(_is_verb, clause)):
        return True  # "four spaces, never tabs"
    subjects = [token for token in clause if token.relation in ("nsubj", "nsubjpass")]
    told = any(token.text.lower() in _PERSONS for token in subjects)
    if not told and any(token.text.lower() in _OBLIGING for token in clause):
        return True
    if _ordered_behind_case(sentence, clause):
        return True
    return any(_is_asked_for(sentence, part) for part in _parts(clause))


def _ordered_behind_case(sentence: Sentence, clause: Sequence[Token]) -> bool:
    """Whether an order follows its case without a comma: "if it is late always write to me"."""
    if not clause or clause[0].text.lower() not in _CASES:
        return False
    for token, order in pairwise(clause):
        if token.text.lower() in ("always", "never") and _is_base(order):
            place = sentence.tokens.index(order)
            kinds = {sentence.tokens[child].relation for child in sentence.below(place)}
            return order.relation == "ROOT" and kinds.isdisjoint(("nsubj", "nsubjpass", "aux"))
    return False


_PERSONS = word_set("i we you he she it they that this there")
_I_WANT = re.compile(
    r"\b(?:i|we)(?:['\u2019]d| would)?\s+(?:\w+\s+)?(?:prefer|rather|want|need|expect|wish)\b",
    re.IGNORECASE,
)
_I_SHALL = re.compile(r"\b(?:i|we)(?:['\u2019]ll| will| shall)\b", re.IGNORECASE)
_FROM_NOW = re.compile(r"from (?:now|today)\b", re.IGNORECASE)
_HOW_OFTEN = re.compile(
    r"(?:(?:just|always|never|ever|from now on|from today(?: on)?|in (?:the )?future|by default"
    r"|as a rule|at all times|every time|each time|please|no longer|do not|don't|don\u2019t)"
    r"\b[\s,]*)*",
    re.IGNORECASE,
)
_SUITS = re.compile(r"\b(?:when|whenever|if)\s+(?:you|there|anything|anyone)\b", re.IGNORECASE)


def _start(sentence: Sentence) -> int:
    return sentence.tokens[sentence.first].start


def _is_verb(token: Token) -> bool:
    return token.pos in ("VERB", "AUX") and token.text.lower() != "please"


def _parts(clause: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """A clause, and what stands behind its commas: "whenever it is late, write to me"."""
    yield clause
    for place, token in enumerate(clause):
        if token.text == ",":
            yield clause[place + 1 :]


def _is_asked_for(sentence: Sentence, part: Sequence[Token]) -> bool:
    """Whether a part begins with what shall be done, perhaps behind how often."""
    if not part:
        return False
    start = part[0].start
    often = _HOW_OFTEN.match(sentence.text[start - _start(sentence) :])
    offset = start + (0 if often is None else often.end())
    left = [token for token in part if token.start >= offset]
    if not left:
        return False
    first, word = left[0], left[0].text.lower()
    if not any(map(_is_verb, part)):
        return _WHENEVER.match(sentence.text) is not None and part[0].start > _start(sentence)
    # what follows "always" or "never" is often taken for a noun
    plain = ("VERB", "NOUN", "PROPN", "AUX") if offset > start else ("VERB",)
    base = first.pos in plain and word == first.lemma.lower() and not word.endswith("ing")
    suits = first.lemma in _DOING_ONCE and _SUITS.search(sentence.text) is not None
    return base and not suits and word not in _STATES


_WHENEVER = re.compile(r"(?:when|whenever|if)\b", re.IGNORECASE)
_STATES = word_set("know feel think believe seem want need like love hope guess mean belong matter")
"""Verbs of what one is in and cannot be asked to do: "don't know what to do" leaves out the I."""


_OTHERS = word_set("he she they it that this there")
_SAID_BY_ME = re.compile(r"\b(?:prefer|rather|want|need|expect|wish)\b", re.IGNORECASE)


def _imperative(sentence: Sentence, begins: int) -> bool:
    """Whether it asks to do something in general.

    By the words' order, not by the tree: of imperatives the parser often makes something else.
    """
    tokens = sentence.tokens[sentence.first : sentence.last]
    clause = [token for token in tokens if token.start >= begins]
    while clause and (clause[0].pos in ("INTJ", "PUNCT", "CCONJ") or clause[0].text == "just"):
        clause = clause[1:]
    words = [token.text.lower() for token in clause]
    if words and words[0] in _CASES and "," in words:  # "when it is late, write to me"
        behind = words.index(",") + 1
        asked_for = clause[behind:]
        if not asked_for or not _is_base(asked_for[0]):
            return False
        return not _is_once(asked_for[0], clause[1:behind])
    if words[:1] == ["do"] and words[1:2] and words[1] in NEGATIONS:
        return len(words) > 2 and clause[2].pos == "VERB" and clause[2].lemma not in _STATES
    wanted = words[:2] in (["i", "want"], ["i", "need"], ["we", "want"], ["we", "need"])
    if wanted and words[2:3] == ["to"]:
        return False
    first = clause[1] if wanted else clause[0] if clause else None
    if first is None or not _is_base(first):
        return False
    for place, token in enumerate(clause[2:], 2):
        if token.pos in ("SCONJ", "ADV") and token.text.lower() in _CASES:
            return not _is_once(first, clause[place + 1 :])
    return (wanted or first.lemma not in _DOING_ONCE) and _is_about_things(clause)


def _is_once(first: Token, case: Sequence[Token]) -> bool:
    """Whether something is to be done once: as it suits the other, or when one thing is done.

    "Let me know if you need help", "show me when you can", "keep me posted when it's out".
    """
    words = [token.text.lower() for token in case if token.text not in ".!,"]
    suits = bool(words) and words[0] in _SUITING and first.lemma in _DOING_ONCE
    return suits or (len(words) > 2 and words[0] in _OTHERS and words[2] in _COMPLETE)


_SUITING = word_set("you there anything anyone")
_COMPLETE = word_set("out done ready over finished complete available live back here there up")


def _is_base(token: Token) -> bool:
    """Whether a word is a verb as an imperative has it."""
    return token.pos == "VERB" and token.text.lower() == token.lemma


def _is_about_things(clause: Sequence[Token]) -> bool:
    """Whether the object is a bare plural, with more told of it before the clause ends."""
    for place, token in enumerate(clause[:-1]):
        if token.text in (",", ";", ".", "!"):
            return False
        before = clause[place - 1] if place else token
        every = before.text.lower() in ("every", "any", "all")
        if token.pos != "NOUN" or (token.text.lower() == token.lemma and not every):
            continue
        if token.text.lower() in _PEOPLE:
            return False
        more = clause[place + 1]
        bare = every or (before.pos in ("VERB", "ADJ", "NOUN") and not _is_counted(clause, place))
        return bare and more.pos in ("ADP", "ADV", "ADJ", "VERB", "SCONJ", "AUX")
    return False


_PEOPLE = word_set("people folks friends kids children others men women")


def _is_counted(clause: Sequence[Token], place: int) -> bool:
    """Whether it is said how many: "I need 40 more wool blankets for the hall" is one case."""
    first = place
    while first and clause[first - 1].pos in ("ADJ", "NOUN", "PROPN", "NUM"):
        first -= 1
    return any(token.pos == "NUM" for token in clause[first:place])
