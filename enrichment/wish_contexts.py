"""Wishes told by what stands around them: a case in front, a reason or a contrast behind.

The words themselves may be those of a request done once ("tell me changes by phone"); that it holds
in general is told by what goes with them. Each is read by parts of speech, the order of words and
small words, never by what the thing is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from enrichment.ports import Token
from enrichment.vocabulary import GREETINGS, MINE, PRAISE, PRESENT_BE, word_set
from enrichment.wish_forms import is_finite

Part = Sequence[Token]


class _Clause(NamedTuple):
    """A clause without courtesies, and what stands between its commas and colons."""

    tokens: Part
    parts: Sequence[Part]
    text: str

    @property
    def head(self) -> Part:
        """What stands before the first comma."""
        return self.parts[0]


_ONE_TIME: Final = re.compile(
    r"\d|\b(?:now|today|tonight|tomorrow|yesterday|this|these\s+days|currently|moment|again|still"
    r"|already|yet|asap|once\s+more|(?:me|us)\s+back|right\s+away|any\s?more|the\s+other\s+day"
    r"|(?:next|last|same)\s+(?!to\b)[a-z]+|overdue|refund"
    r"|(?<!\ba )(?<!every )(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.IGNORECASE,
)
"""What tells that it is about one case."""
_ME: Final = word_set("me us my our myself mine ours")
_CASE_WORDS: Final = word_set(
    "for on at in during with without near above below past after before over under beyond"
)
_IDIOMS: Final = word_set(
    "addition advance advice all answer bit case change course example fact first fun future hand "
    "home hopes instance last least life love luck mind moment most once order payment person "
    "pleasure question result short sure time total view way while"
)
"""Of a phrase that says how something is told, or when it was: "in fact", "at last"."""
_ARTICLES: Final = word_set("a an any every each all")
_INDEFINITE: Final = word_set("anything everything whatever whoever stuff")
_CASE_CLAUSE: Final = re.compile(r"^(?:when|whenever|if|as\s+soon\s+as)\b", re.IGNORECASE)
_HOW: Final = word_set("just only ever then but please always never")
_HEARTY: Final = word_set(
    "appreciate be believe catch celebrate cheer cherish come count dream embrace enjoy feel go "
    "guess hang have hope imagine know let live look love mean need remember see seem sound stay "
    "support thank think trust try wait want wish"
)
"""Verbs that are seldom an order to an agent, or of what one is in."""
_DONE_ONCE: Final = word_set(
    "add buy cancel change check close delete fix hold list move open order park pay pick rebook "
    "refund register remove repair replace reset restart return run show start stop swap take "
    "transfer update"
)
_FOR_NOW: Final = word_set(
    "feel guess hope know mean need promise see swear think understand wait want"
)
"""Verbs of a reason that holds for now: "send it once more, I need it"."""
_IN_A_STATE: Final = word_set(
    "afraid angry away broken busy done empty fine free glad good happy here hungry ill late lost "
    "off out ready sick sorry stuck sure there tired unable wet well"
)
"""How somebody is for now: "send me the file, I am late"."""
_SOMEBODY: Final = word_set("somebody someone nobody everybody everyone")
_NOT_FORBIDDEN: Final = word_set(
    "answer chance clue doubt hurry idea joke kidding longer luck matter more need news one point "
    "pressure problem problems regrets reply rush sign thanks trace way wonder worries"
)
"""What "no" forbids nobody before: "no problem", "no answer"."""
_LAST_WORD: Final = re.compile(
    r",\s*(?:(?:that(?:['\u2019]s|\s+is)\s+(?:all\s+(?:i|we)\s+(?:want|need)|that)|full\s+stop"
    r"|period|end\s+of\s+story|no\s+(?:debate|discussion|exceptions?|ifs|matter\s+what)"
    r"|(?:and\s+)?nothing\s+else))\W*$",
    re.IGNORECASE,
)
_NOT_THE_OTHER: Final = re.compile(
    r",\s*(?:and\s+)?(?:not|never|no)\s+(?!(?:only|just|really|sure|that|yet|even|to|bad|too|so|if"
    r"|because|matter|need|problem|rush|worries|thanks)\b)"
    r"(?:(?:by|on|in|at|with|from|to|into|via)\s+)?[\w-]+(?:\s+[\w'-]+){0,4}(?:,|\W*$)",
    re.IGNORECASE,
)
_THIS_ONE: Final = word_set("it that them those these")
"""What is told of before: what is done with it is done once."""
_PRAISING: Final = GREETINGS | PRAISE
"""What thanks begin with: "great stuff, nothing else"."""
_UNTIL_WORDS: Final = 7
"""Words behind a case within which something is asked for."""


def stands_in_context(tokens: Part, text: str) -> bool:
    """Whether what stands around it tells that a sentence holds in general.

    Args:
        tokens: of the clause, without courtesies and without what introduces it.
        text: of the clause.
    """
    parts = _parts(tokens)
    if len(tokens) < _FEWEST or not parts or _ONE_TIME.search(text):
        return False
    if any(map(_is_past, parts[0])) and not _wants(parts[0]):
        return False
    clause = _Clause(tokens, parts, text)
    return any(form(clause) for form in _CONTEXTS)


_FEWEST: Final = 3


def is_asked_for_case(tokens: Part) -> bool:
    """Whether what stands behind a case and its colon asks for something."""
    if len(tokens) < 2:
        return False
    calls = tokens[0].pos == "NOUN" and _is_uninflected(tokens[0]) and tokens[1].pos == "PROPN"
    return calls or _is_asked_in_case(tokens)


def names_case(lead: str) -> bool:
    """Whether what stands before a colon is a case: "anything urgent:", "letters to sign:"."""
    return _CASE_LEAD.match(lead) is not None and _ONE_TIME.search(lead) is None


_CASE_LEAD: Final = re.compile(
    r"^(?:(?:anything|everything|whatever)\s+(?!else\b)|(?:near|after|before|during|without|above"
    r"|below|past|over|under|outside)\s+(?!that\b|all\b)"
    r"|(?!(?:this|as|is|was|thanks)\b)[a-z]+[^s\W]s\s+(?:to|before|after|above|below|over|under"
    r"|with|without|from|for|in|on|at)\s+(?!me\b|you\b))"
    r"[^:]+:$",
    re.IGNORECASE,
)


def _word(token: Token) -> str:
    return token.text.lower()


def _is_uninflected(token: Token) -> bool:
    return _word(token) == token.lemma.lower()


def _parts(tokens: Part) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text in (",", ";", ":", "\u2013", "\u2014"):
            parts.append([])
        elif token.text not in (".", "!", '"') and _word(token) != "please":
            parts[-1].append(token)
    return [part for part in parts if part]


_PAST_FORMS: Final = word_set(
    "had was were did been got went came gave took made sent told sold lost left bought broke "
    "forgot found felt saw"
)


def _is_past(token: Token) -> bool:
    word = _word(token)
    if token.pos not in ("VERB", "AUX"):
        return False
    main = token.relation in ("ROOT", "conj", "ccomp", "advcl")
    return word in _PAST_FORMS or (main and word.endswith("ed") and not _is_uninflected(token))


def _is_about_me(part: Part) -> bool:
    return any(_word(token) in _ME for token in part)


def _behind_how(part: Part) -> Part:
    return part[sum(1 for _ in takewhile(lambda token: _word(token) in _HOW, part)) :]


def _is_order(part: Part) -> bool:
    """Whether a part is an imperative; the parser takes some for names: "beep me", "scan every"."""
    order = _behind_how(part)
    if len(order) < 2:
        return False
    first, behind = order[0], order[1]
    word = _word(first)
    if word in _HEARTY or first.lemma.lower() in _HEARTY:
        return False
    if first.pos == "VERB" and _is_uninflected(first):
        return True
    takes = behind.pos == "DET" or _word(behind) in ("me", "us", "my", "our")
    return takes and first.pos in ("NOUN", "PROPN", "X", "VERB") and _is_plain(word)


def _is_plain(word: str) -> bool:
    return not word.endswith(("s", "ing", "ed"))


def _forbids(part: Part) -> bool:
    words = [_word(token) for token in part[:2]]
    return words in (["do", "n't"], ["do", "n\u2019t"], ["do", "not"])


def _wants(part: Part) -> bool:
    """Whether a part begins with "I want" or "we only need" some thing."""
    words = [_word(token) for token in part if _word(token) != "only"][:3]
    return len(words) > 2 and words[0] in ("i", "we") and words[1] in ("want", "need")


def _is_obliged(part: Part) -> bool:
    """Whether somebody must be there, or something has to be somehow."""
    words = [_word(token) for token in part]
    has_to = any(pair in (("has", "to"), ("have", "to")) for pair in pairwise(words))
    return words[:1] != ["you"] and (has_to or "must" in words)


def _does(part: Part) -> bool:
    """Whether a part begins with what I do as a habit: "I sit in front"."""
    if len(part) < 3 or _word(part[0]) not in ("i", "we") or part[1].pos != "VERB":
        return False
    return _is_uninflected(part[1]) and part[1].lemma not in _FOR_NOW | _HEARTY


def _verb_of(part: Part) -> int:
    """Place of the first verb of a part; -1: it has none."""
    return next((place for place, token in enumerate(part) if is_finite(token)), -1)


def _is_reason(part: Part) -> bool:
    """Whether a part tells, in the present, what somebody is like or does in general."""
    then = _word(part[0]) in ("then", "else", "later", "otherwise")
    part = part[1:] if then else part
    place = _verb_of(part)
    if not 0 < place <= _MOST_OF_SUBJECT or _goes_on(part):
        return False
    verb = part[place]
    subject = [token for token in part[:place] if token.pos != "ADV"]
    if _word(verb) in ("do", "does") and place + 2 < len(part) and part[place + 1].pos == "PART":
        verb = part[place + 2]
    elif verb.pos == "AUX" and _word(verb) not in PRESENT_BE:
        return False
    is_state = verb.pos == "AUX" and any(_word(token) in _IN_A_STATE for token in part[place:])
    is_state &= not then
    return bool(subject) and not is_state and _gives_reason(subject, verb)


_MOST_OF_SUBJECT: Final = 5


def _goes_on(part: Part) -> bool:
    """Whether it tells of what goes on or was: no reason for what shall always be."""
    going = any(token.pos == "VERB" and token.text.endswith("ing") for token in part[1:3])
    return going or any(map(_is_past, part))


def _gives_reason(subject: Part, verb: Token) -> bool:
    first = _word(subject[0])
    if first in ("i", "we"):
        return len(subject) == 1 and verb.lemma not in _FOR_NOW
    if first in ("he", "she", "they"):
        return len(subject) == 1 and verb.pos == "VERB"
    if first in _SOMEBODY or first in MINE:
        return True
    if subject[0].pos not in ("NOUN", "ADJ", "DET") or subject[-1].pos != "NOUN":
        return False
    return verb.pos == "VERB" or subject[0].pos != "DET"


def _names_more(part: Part) -> bool:
    """Whether a part without a verb names things of a kind, or is limited: "just tea at noon"."""
    first = part[0]
    if len(part) < 2 or any(map(is_finite, part)) or first.pos in ("INTJ", "ADP", "CCONJ", "PRON"):
        return False
    words = [_word(token) for token in part]
    counted = first.pos == "NUM" and words[0] != "one"
    if counted or words[0] in _JUDGING | _NO_KIND or words[-1] in ("here", "there"):
        return False
    if not _has_noun(part):
        return words[1] == "only"
    plural = any(token.pos == "NOUN" and not _is_uninflected(token) for token in part)
    return plural or _is_each(part) or not {"only", "just", "always", "per"}.isdisjoint(words)


_NO_KIND: Final = word_set("the this no not")


def _is_each(part: Part) -> bool:
    """Whether it is "one letter a month"."""
    return len(part) > 2 and _word(part[-2]) == "a" and part[-3].pos == "NOUN"


def _has_noun(part: Part) -> bool:
    return any(token.pos == "NOUN" for token in part)


def _case_end(tokens: Part) -> int:
    """Place behind a phrase about things in general at the start; 0: there is none."""
    first = _word(tokens[0])
    if first in _INDEFINITE:
        return 1
    if first not in _CASE_WORDS:
        return 0
    article = _word(tokens[1]) if tokens[1].pos == "DET" else ""
    start = 2 if article else 4 if _more_than(tokens[1:4]) else 1
    phrase = list(takewhile(_is_of_name, tokens[start:]))
    nouns = [place for place, token in enumerate(phrase, start) if _is_thing(token)]
    if article in ("a", "an") and not nouns:
        nouns = [place for place, token in enumerate(phrase, start) if token.pos == "PROPN"]
    if not nouns or _word(tokens[nouns[-1]]) in _IDIOMS:
        return 0
    is_plural = not _is_uninflected(tokens[nouns[-1]])
    is_general = article in _ARTICLES or is_plural
    is_general |= not article and (first not in _BEFORE_EVENT or _word(tokens[nouns[-1]]) == "dark")
    return nouns[-1] + 1 if is_general else 0


_BEFORE_EVENT: Final = word_set("for on after before during")
"""Before the name of one event: "after lunch show me the list" is done once."""


def _more_than(tokens: Part) -> bool:
    return [_word(token) for token in tokens[:2]] in (["more", "than"], ["less", "than"])


def _is_of_name(token: Token) -> bool:
    described = token.pos == "VERB" and token.relation == "amod"
    return described or token.pos in ("ADJ", "NOUN", "PROPN", "ADV") or token.text == "-"


def _is_thing(token: Token) -> bool:
    return token.pos == "NOUN" or _word(token) == "dark"


def _for_case(clause: _Clause) -> bool:
    """Behind a case: "at night ring the porter", "with rain about I want …", "anything odd: …"."""
    tokens = clause.tokens
    if tokens[0].pos == "VERB" and _word(tokens[0]).endswith("ing"):
        return any(_wants(tokens[place:]) for place in range(2, _UNTIL_WORDS))
    end = _case_end(tokens)
    if not end:
        return False
    for place in range(end, min(len(tokens) - 1, end + _UNTIL_WORDS)):
        left = tokens[place:]
        if left[0].text in (",", ":"):
            return _is_asked_in_case(left[1:])
        if _wants(left) or _begins_order(left) or (_does(left) and _is_explained(clause)):
            return True
        if left[0].relation == "nsubj" and left[0].pos == "PRON":
            return False
    return False


def _is_explained(clause: _Clause) -> bool:
    return any(_is_reason(part) or _word(part[0]) in _OR_NOT for part in clause.parts[1:])


_OR_NOT: Final = word_set("or no never not")


def _is_asked_in_case(part: Part) -> bool:
    if _is_order(part) or _forbids(part) or _wants(part):
        return True
    before_comma = list(takewhile(lambda token: token.text not in (",", "."), part))
    return bool(before_comma) and (
        _is_obliged(before_comma)
        or (_names_more(before_comma) and _word(part[0]) in _HOW)
        or _comes_first(before_comma)
    )


def _comes_first(part: Part) -> bool:
    """Whether it is "the index first"."""
    return (
        1 < len(part) <= _MOST_OF_SUBJECT
        and _word(part[-1]) == "first"
        and not any(map(is_finite, part))
    )


def _begins_order(part: Part) -> bool:
    """Whether an order begins within a clause, with no comma before it."""
    takes = part[1].pos in ("DET", "PRON") or (part[0].pos == "VERB" and part[1].pos == "PROPN")
    return (
        takes and part[0].pos in ("VERB", "NOUN") and _is_uninflected(part[0]) and _is_order(part)
    )


def _in_case(clause: _Clause) -> bool:
    """Behind a clause of case: "when guests come I need …", "if there is rain ask …"."""
    if not _CASE_CLAUSE.match(clause.text) or _suits_you(clause):
        return False
    verb = _verb_of(clause.head)
    if verb < 0:
        return False
    tokens = clause.tokens
    for place in range(verb + 1, len(tokens) - 1):
        left = tokens[place:]
        if left[0].text == ",":
            return _is_asked_in_case(left[1:])
        if _wants(left):
            return _word(clause.head[1]) not in ("i", "we")
        follows = tokens[place - 1].pos not in ("PRON", "PART", "AUX")
        if follows and left[0].relation in ("ROOT", "ccomp") and _is_order(left):
            return left[0].pos == "VERB" and _is_uninflected(left[0])
    return False


_TOLD_BEFORE: Final = word_set("it that this they he she")


def _suits_you(clause: _Clause) -> bool:
    words = [_word(token) for token in clause.head]
    if words[1:2] and words[1] in _TOLD_BEFORE:
        return True  # "when it is ready, …" is done once
    if words[0] == "whenever" and len(clause.parts) > 1 and _word(clause.parts[1][0]) == "but":
        return False
    return "you" in words and "ever" not in words


def _reasoned(clause: _Clause) -> bool:
    """About me, with a reason: "tell me changes by phone, I drive a lot"."""
    if len(clause.parts) < 2 or not _is_about_me(clause.head):
        return False
    reasons = [part for part in clause.parts[1:] if _is_reason(part)]
    if not reasons:
        return False
    if _is_order(clause.head):
        order = _behind_how(clause.head)
        if any(map(_is_lasting, reasons)):
            return order[0].lemma.lower() not in _DONE_ONCE
        if _word(order[1]) in MINE and not _is_kind(order[2:]):
            reasons = [part for part in reasons if _word(part[0]) in ("i", "we", "my")]
    return bool(reasons) and _may_be_lasting(clause.head)


def _is_lasting(reason: Part) -> bool:
    return any(_word(token) in _FOR_LONG for token in reason)


_FOR_LONG: Final = word_set("always never only anyway usually every everything somebody mostly")


def _may_be_lasting(head: Part) -> bool:
    if not _is_order(head):
        return _is_for_me(head)
    order = _behind_how(head)
    return order[0].lemma.lower() not in _DONE_ONCE and not _is_about_one(order)


def _is_about_one(order: Part) -> bool:
    """Whether an order is about one thing: "give me the key", "get me a taxi", "sign it"."""
    words = [_word(token) for token in order]
    start = 2 if words[1] in ("me", "us") else 1
    if len(order) <= start:
        return False
    if words[start] in _ONE_THING or order[start].pos == "NUM":
        return True
    return words[start] == "the" and not _is_kind(order[start + 1 :])


_ONE_THING: Final = word_set("a an another your that this it them some")


def _is_kind(phrase: Part) -> bool:
    """Whether a phrase begins with a plural: "dawn flights", "early trains"."""
    name = list(takewhile(_is_of_name, phrase))
    things = [token for token in name if token.pos == "NOUN"]
    return bool(things) and not _is_uninflected(things[-1])


def _is_for_me(head: Part) -> bool:
    """Whether it is "… for me" or "… next to us", without a verb."""
    verbs = [token for token in head if is_finite(token) and not _may_be_noun(token)]
    if head[0].pos in ("ADP", "INTJ", "PRON", "DET", "CCONJ") or verbs:
        return False
    if _word(head[0]) in MINE | _JUDGING or head[0].pos == "NUM":
        return False
    return _has_noun(head) and _word(head[-1]) in ("me", "us")


_JUDGING: Final = word_set(
    "bad wrong long extra nice great good hard tough more another dear big happy fine awesome"
)
"""Before a thing that is told of: "bad news for me", or of so many that are wanted."""


def _may_be_noun(token: Token) -> bool:
    return token.pos == "VERB" and (_is_uninflected(token) or token.start == 0)


def _reasoned_kind(clause: _Clause) -> bool:
    """Of things in general: "ground floor rooms, I hate stairs", "write in Welsh, I read it"."""
    head = clause.head
    reasons = [part for part in clause.parts[1:] if _is_reason(part)]
    if not _is_order(head):
        threatens = any(
            [_word(token) for token in part[:2]] == ["or", "they"] for part in clause.parts
        )
        return (bool(reasons) or threatens) and _names_more(head)
    order = _behind_how(head)
    kind = _is_bare(order) or (any(map(_is_lasting, reasons)) and _is_kind(order[2:]))
    return bool(reasons) and order[0].lemma.lower() not in _DONE_ONCE and kind


def _is_bare(order: Part) -> bool:
    """Whether an order is about things without an article, or in such a manner: "in Welsh"."""
    behind = order[1]
    if behind.pos == "NOUN" or (behind.pos == "ADJ" and order[-1].pos == "NOUN"):
        return True
    if _word(behind) in ("every", "all", "any"):
        return True
    manner = [_word(token) for token in order].index("in") if "in" in map(_word, order) else 0
    return 0 < manner < len(order) - 1 and order[manner + 1].pos in ("PROPN", "NOUN", "ADJ")


def _contrasted(clause: _Clause) -> bool:
    """With what it shall not be: "follow my list, not the leaflet", "wake the porter, not me"."""
    head = clause.head
    if any(map(_forbids, clause.parts[1:])) and _names_more(head):
        return _word(head[0]) in ("just", "only")
    if _NOT_THE_OTHER.search(clause.text) is None:
        return False
    if not _is_order(head):
        return _is_for_me(head) or _wants_kind(head) or _is_each(head)
    order = _behind_how(clause.head)
    if order[0].lemma.lower() in _DONE_ONCE or _word(order[1]) in _THIS_ONE:
        return False
    if _word(order[1]) in ("me", "us") and _is_about_one(order):
        return False
    return _is_about_me(clause.tokens)


def _wants_kind(head: Part) -> bool:
    """Whether it is "I want printed letters" or "I'd like a person to tell me results"."""
    words = [_word(token) for token in head]
    plural = any(token.pos == "NOUN" and not _is_uninflected(token) for token in head[2:])
    wants = words[:2] == ["i", "want"] or words[1:3] == ["'d", "like"]
    return wants and plural and {"to", "the", "my"}.isdisjoint(words[2:4])


def _closed(clause: _Clause) -> bool:
    """With a last word: "the cheapest wins, full stop", "a text when it comes, nothing else"."""
    one_thing = any(_word(token) in _THIS_ONE for token in clause.head[:2])
    is_praise = any(_word(token) in _PRAISING for token in clause.head[:1])
    return _LAST_WORD.search(clause.text) is not None and not (one_thing or is_praise)


def _no_to_me(clause: _Clause) -> bool:
    """What I do not want: "no pepper in my soup, I hate it"; not "no light on my desk"."""
    head = clause.head
    if len(head) < 3 or _word(head[0]) != "no" or head[1].pos not in ("NOUN", "ADJ"):
        return False
    if _word(head[1]) in _NOT_FORBIDDEN or any(map(is_finite, head)):
        return False
    later = clause.parts[1:]
    if any(_word(part[0]) in ("just", "only") for part in later):
        return True
    if any(_is_loathed(part) for part in later):
        return True
    if _word(head[2]) in ("between", "before", "after", "during") and any(map(_is_order, later)):
        return True
    of_kind = _is_kind(head[1:]) or _word(head[-1]) == "me" or not _is_uninflected(head[-1])
    return of_kind and any(map(_is_reason, later))


def _is_loathed(part: Part) -> bool:
    words = [_word(token) for token in part[:2]]
    return words in (["i", "hate"], ["i", "beg"], ["i", "loathe"], ["i", "dislike"])


def _of_mine(clause: _Clause) -> bool:
    """How mine shall be, in the plural: "give our crates to the porter"."""
    order = _behind_how(clause.head)
    if not _is_order(order) or order[0].lemma.lower() in _DONE_ONCE or _word(order[1]) not in MINE:
        return False
    name = list(takewhile(lambda token: token.pos in ("ADJ", "NOUN"), order[2:]))
    if (
        not name
        or name[-1].pos != "NOUN"
        or _is_uninflected(name[-1])
        or _OVER_THERE.search(clause.text)
    ):
        return False
    return len(order) > 2 + len(name)


_OVER_THERE = re.compile(r"\b(?:there|here)\W*$", re.IGNORECASE)


def _i_do(clause: _Clause) -> bool:
    """What I do and do not: "I clean windows myself, no firm", "I read it, never on a screen"."""
    if not _does(clause.head):
        return False
    words = {_word(token) for token in clause.head}
    myself = not words.isdisjoint(("own", "myself", "alone")) or _is_kind(clause.head[2:])
    return any(
        _forbids(part) or _word(part[0]) == "never" or (_word(part[0]) == "no" and myself)
        for part in clause.parts[1:]
        if len(part) > 1 and _word(part[1]) not in _NOT_FORBIDDEN
    )


_CONTEXTS: Final[tuple[Callable[[_Clause], bool], ...]] = (
    _for_case,
    _in_case,
    _reasoned,
    _reasoned_kind,
    _contrasted,
    _closed,
    _no_to_me,
    _of_mine,
    _i_do,
)
