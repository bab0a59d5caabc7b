"""Forms of a sentence that lays something down without saying so: no "always", no case.

Each is told by its words' order and by what it is about, things in general: a bare plural, what is
of the speaker in the plural, "everything", "each". What is said of one thing is done once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from enrichment.ports import Token
from enrichment.vocabulary import word_set


class Sentence(NamedTuple):
    """A sentence of an analysis.

    Attributes:
        tokens: of the whole text.
        first, last: places of its tokens; `last` is behind them.
        text: as it is written.
        is_led: the one before it took back what was asked for before, or tells of a new wish.
    """

    tokens: Sequence[Token]
    first: int
    last: int
    text: str
    is_led: bool = False

    def below(self, index: int) -> list[int]:
        """Places of the tokens that depend on one."""
        return [
            place
            for place in range(self.first, self.last)
            if place != index and self.tokens[place].head == index
        ]


_EVERYTHING: Final = word_set("everything anything nothing whatever")
_EACH: Final = word_set("every each any all")
_PLEASE: Final = word_set("please")
_NOT: Final = word_set("no not never without")
_WELL_WISHING: Final = word_set(
    "enjoy cherish embrace believe trust hang stay remember follow dream imagine keep have take "
    "hope live feel love hold share let look thank go come get see try know tell think appreciate "
    "count bring celebrate support cheer catch check spread find"
)
"""What is told to do in general with these is seldom asked of an agent: "enjoy every moment"."""
_MANNER: Final = ("ADJ", "ADV", "VERB")
_LIKING: Final = word_set("like prefer favour favor")
_SERVES: Final = re.compile(
    r"^(?!(?:it|that|this|there|what|he|she|they|you|which|who)\b)(?:[\w'\u2019-]+\s+){1,6}"
    r"(?:(?:is|are|works?|suits?)\s+(?:the\s+)?(?:best|better|easiest|easier|fine|how|enough)\b"
    r".*\b(?:for|to|you|reach|contact|call|write|suits?)\s+(?:(?:to\s+)?(?:reach|contact|call|write"
    r"(?:\s+to)?)\s+)?(?:me|us)\b|suits?\s+(?:me|us)\b|(?:works?|is|are)\s+(?:best|better|fine)"
    r"\s+(?:for|with)\s+(?:me|us)\b)",
    re.IGNORECASE,
)
_KIND_OF_PERSON: Final = re.compile(
    r"^i(?:\s+am|'m|\u2019m)\s+(?:more\s+of\s+)?an?\s+(?:[\w-]+\s+){1,2}person\b", re.IGNORECASE
)
_ABSTAIN: Final = re.compile(
    r"^(?:avoid|skip|omit|leave\s+out|stop|quit)\s+(?!(?:it|that|this|the|my|there|by)\b)[a-z]",
    re.IGNORECASE,
)
_RATHER: Final = re.compile(r"\b(?:instead\s+of|rather\s+than)\s+([a-z]+ing|[a-z]+s)\b", re.I)
_ASKING_FIRST: Final = re.compile(
    r"^(?:ask|check|confirm|tell|warn|call|write|show|wait|consult|get)\b.*\bbefore\s+you\s+\w",
    re.IGNORECASE,
)
_FOR_CASE: Final = re.compile(
    r"^(?:for|in\s+case\s+of|with|on|during|at|after|before)\s+(?:an?|any|anything|every|each|all"
    r"|[a-z]+s)\s",
    re.IGNORECASE,
)
_CONCESSIVE: Final = re.compile(
    r"^(?:whatever|whoever|wherever|however|no\s+matter)\b[^,]*,\s*(?P<rest>.+)$", re.IGNORECASE
)
_SAID_OF_MINE: Final = re.compile(
    r"^(?:my|our)\s+(?:[\w-]+\s+){0,2}[a-z]+s\s+(?:should|must|shall|have\s+to|need\s+to)\s+",
    re.IGNORECASE,
)
_UNWANTED: Final = re.compile(
    r"^i\s+(?:do\s+not|don['\u2019]t)\s+(?:want|need|like|eat|drink)\s+(?:any\s+)?"
    r"(?!(?:to|it|that|this|them|you|the|my|your|a|an|how|what|as|when|any\w*)\b)"
    r"[a-z](?!.*\sto\s+[a-z])",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"\b(?:there|here|again)\W*$", re.IGNORECASE)
"""How a sentence ends that needs another one: "send everything there"."""
_MAX_CASE: Final = 9
"""Words before which it is asked for something, behind "for" and what for."""
_CALLED: Final = re.compile(
    r"^(?:(?i:call|address)\s+me\s+(?:by\s+my|as|[A-Z][a-z]+\W*$)|(?i:call\s+me\s+by\s))"
)
_REACH_ME: Final = re.compile(
    r"^(?:just\s+)?(?:write|e-?mail|mail|text|message|call|phone|ring|contact|ping|notify|reach)\s+"
    r"(?:to\s+)?(?:me|us)\b[^,;]{0,40}\binstead\W*$",
    re.IGNORECASE,
)
"""By which means somebody wants to be reached, where another one was spoken of."""
_POLITE: Final = re.compile(r"\bplease\b|\bif\s+possible\b", re.IGNORECASE)
_EVERYWHERE: Final = re.compile(r"\beverywhere\b", re.IGNORECASE)
_EVER: Final = re.compile(r"^no\s.+,\s*ever\W*$", re.IGNORECASE)
_PER: Final = re.compile(
    r"\b(?:per\s+[a-z]+|at\s+most|at\s+least|(?:no|not)\s+more\s+than|everywhere"
    r"|in\s+writing|only)\b",
    re.IGNORECASE,
)


def lays_down(sentence: Sentence, clause: Sequence[Token], text: str) -> bool:
    """Whether a sentence lays something down by its form.

    Args:
        sentence: with its tree.
        clause: its tokens without courtesies and without what introduces it.
        text: of the clause.
    """
    if not clause or _ELSEWHERE.search(text):
        return False
    if any(form.match(text) for form in (_SERVES, _KIND_OF_PERSON, _CALLED, _EVER, _REACH_ME)):
        return True
    if _UNWANTED.match(text) or _SAID_OF_MINE.match(text):
        return True
    if _is_order(clause, text) or _is_liking(clause) or _is_fragment(sentence, clause, text):
        return True
    return sentence.is_led and _is_said_anew(clause, text)


def _is_base(token: Token) -> bool:
    """Whether a word may be an imperative: the parser takes some for a name at the start."""
    word = token.text.lower()
    if word != token.lemma.lower():
        return False
    return token.pos == "VERB"


def _is_order(clause: Sequence[Token], text: str) -> bool:
    """An imperative about things in general, or for a case that is told without "when"."""
    if _ABSTAIN.match(text) and not any(token.pos == "PROPN" for token in clause):
        return _is_open(clause[1:])
    concession = _CONCESSIVE.match(text)
    if concession is not None:
        return _begins_as_order(clause, text, concession["rest"])
    if _FOR_CASE.match(text):
        return _orders_for_case(clause)
    if not _is_base(clause[0]) or clause[0].lemma.lower() in _WELL_WISHING:
        return _ASKING_FIRST.match(text) is not None and clause[0].text.lower() != "tell"
    if _ASKING_FIRST.match(text) or _RATHER.search(text):
        return True
    words = [token.text.lower() for token in clause]
    if words[1] in _EVERYTHING and len(words) > 2:
        return True
    return _about_mine(clause)


def _begins_as_order(clause: Sequence[Token], text: str, order: str) -> bool:
    offset = clause[0].start + text.find(order)
    left = [token for token in clause if token.start >= offset]
    words = [token.text.lower() for token in left[:2]]
    forbids = words[:1] in (["never"], ["don't"]) or words == ["do", "not"]
    return bool(left) and (forbids or words == ["do", "n't"] or _is_base(left[0]))


def _orders_for_case(clause: Sequence[Token]) -> bool:
    """Whether behind "for a gift", with a comma or without, something is asked for."""
    for place in range(2, min(len(clause) - 1, _MAX_CASE)):
        token, before, behind = clause[place], clause[place - 1], clause[place + 1]
        if before.relation == "nsubj" or token.text.lower() in ("i", "we", "you"):
            return False
        word = token.text
        if word != token.lemma or token.pos not in ("VERB", "NOUN"):
            continue
        takes = behind.pos in ("DET", "PRON") or behind.text.lower() in _EVERYTHING
        if takes and before.pos in ("NOUN", "PRON", "PROPN", "PUNCT", "ADJ"):
            return token.pos == "VERB" or word not in _WELL_WISHING
    return False


def _about_mine(clause: Sequence[Token]) -> bool:
    """Whether it says how what is mine in the plural shall be: "send my bills printed"."""
    for place, token in enumerate(clause[:-1]):
        if token.text in (",", ";", ".", "!"):
            return False
        if not place or token.text.lower() not in ("my", "our"):
            continue
        noun = place + 1
        while (
            noun < len(clause) - 1
            and clause[noun].pos in ("ADJ", "NOUN")
            and (clause[noun + 1].pos == "NOUN")
        ):
            noun += 1
        thing = clause[noun]
        if thing.pos != "NOUN" or thing.text.lower() == thing.lemma.lower():
            return False
        behind = clause[noun + 1] if noun + 1 < len(clause) else None
        if behind is None:
            return False
        on_bare = behind.text.lower() in ("on", "in", "by", "as", "without") and (
            noun + 2 < len(clause) and clause[noun + 2].pos in ("NOUN", "ADJ", "PROPN")
        )
        return behind.pos in _MANNER or on_bare
    return False


def _is_open(tokens: Sequence[Token]) -> bool:
    """Whether things are told of in general: no number, no single one."""
    return bool(tokens) and not any(token.pos == "NUM" for token in tokens)


def _is_liking(clause: Sequence[Token]) -> bool:
    """Of things in general, told more closely: "I like long letters with a plan"."""
    words = [token.text.lower() for token in clause]
    if words[:1] != ["i"] or len(clause) < 5 or clause[1].lemma.lower() not in _LIKING:
        return False
    if clause[1].text.lower() != clause[1].lemma.lower() or clause[2].pos not in ("ADJ", "NOUN"):
        return False
    noun = next((token for token in clause[2:5] if token.pos == "NOUN"), None)
    if noun is None or noun.text.lower() == noun.lemma.lower():
        return False
    behind = clause[list(clause).index(noun) + 1 :]
    return bool(behind) and behind[0].pos in ("ADP", "ADV", "SCONJ", "PRON")


def _is_fragment(sentence: Sentence, clause: Sequence[Token], text: str) -> bool:
    """Things in general, without a verb, and how they shall be: "four spaces, no tabs"."""
    if text.endswith("!"):
        return False
    parts = _at_commas(clause)
    head, polite = parts[0], _POLITE.search(sentence.text) is not None
    if not head or not head[0].text.isalpha() or any(is_finite(token) for token in head):
        return False
    if not _names_kind(head):
        bare = all(token.pos in ("ADJ", "NOUN", "ADV") for token in head)
        return bare and polite and _EVERYWHERE.search(text) is not None
    later = [part for part in parts[1:] if part]
    contrasts = any(part[0].text.lower() in _NOT for part in later)
    if contrasts:
        return not any(is_finite(token) for part in later[:1] for token in part)
    limited = _PER.search(" ".join(token.text for token in head)) is not None
    if limited:
        return True
    told = any(token.pos == "ADP" for token in head[1:])
    reasoned = any(is_finite(token) for part in later if part[0].pos != "CCONJ" for token in part)
    return told and (polite or reasoned)


def _at_commas(clause: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in clause:
        if token.text in (",", ";", "\u2013", "-"):
            parts.append([])
        elif token.pos != "PUNCT" and token.text.lower() not in _PLEASE:
            parts[-1].append(token)
    return parts


def is_finite(token: Token) -> bool:
    """Whether a word is a verb of a clause, and not one that describes a thing."""
    if token.text.lower() in _PLEASE:
        return False
    return token.pos == "AUX" or (
        token.pos == "VERB" and token.relation not in ("amod", "pcomp", "acl", "compound")
    )


def _names_kind(head: Sequence[Token]) -> bool:
    """Whether a phrase begins with a bare plural, "everything", or one of each."""
    first = head[0]
    if first.text.lower() in _EVERYTHING:
        return True
    for place, token in enumerate(head):
        word = token.text.lower()
        if token.pos in ("DET", "PRON", "PROPN", "ADP", "INTJ") and word not in _EACH:
            return False
        if token.pos == "NOUN":
            after = head[place + 1] if place + 1 < len(head) else None
            if after is not None and after.pos == "NOUN":
                continue
            plural = word != token.lemma.lower()
            limits = _PER.search(" ".join(one.text for one in head)) is not None
            return plural or (first.pos == "NUM" and limits)
    return False


def _is_said_anew(clause: Sequence[Token], text: str) -> bool:
    """What stands behind "scrap that" or "new rule": an order, a thing, or what I am or like."""
    if any(char.isdigit() and char != "0" for char in text.split()[0]) or _ONE_CASE.search(text):
        return False
    first = clause[0]
    if _is_base(first):
        return first.lemma.lower() not in _WELL_WISHING | _ONCE
    words = [token.text.lower() for token in clause]
    if first.pos == "ADP" and len(text.split()) <= _MIN_PHRASE:
        return False  # "thanks for your time"
    if words[0] == "i":
        return len(words) > 2 and words[1] in ("am", "'m", "like", "prefer", "want", "need", "only")
    return not any(is_finite(token) for token in _at_commas(clause)[0])


_MIN_PHRASE: Final = 3
_ONE_CASE: Final = re.compile(
    r"(?<!\w)(?:today|tonight|tomorrow|yesterday|it|this|(?:next|this|last)\s+\w+)(?!\w)",
    re.IGNORECASE,
)
_ONCE: Final = word_set(
    "cancel order buy pay start stop run restart show give list open close move delete remove add "
    "change update"
)


def leads(text: str) -> bool:
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
    r"|procedure|arrangement|preference)s?"
    r"|(?:scrap|scratch|forget|disregard)\s+(?:that|it|the|what|my)|differently"
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


_GETTING = word_set("get go come need")


def _needs_one(sentence: Sentence, below: Sequence[int]) -> bool:
    """Whether what is needed is a certain thing: "kids need love" says what they are like."""
    objects = [place for place in below if sentence.tokens[place].relation == "dobj"]
    articles = [
        sentence.tokens[part].text.lower() for place in objects for part in sentence.below(place)
    ]
    return "the" in articles


def in_general(sentence: Sentence) -> bool:
    """Whether things in general are said to get something, or to go somewhere."""
    tokens = sentence.tokens
    for verb in range(sentence.first, sentence.last):
        token = tokens[verb]
        if token.lemma not in _GETTING or not _is_told_first(sentence, verb):
            continue
        below = sentence.below(verb)
        relations = {tokens[child].relation for child in below}
        if relations & {"aux", "auxpass", "neg"} or token.text.lower() in ("got", "went", "came"):
            return False
        if token.lemma == "need" and not _needs_one(sentence, below):
            return False
        told = "dobj" if token.lemma in ("get", "need") else "prep"
        if told not in relations and "prt" not in relations:
            return False
        subjects = [child for child in below if tokens[child].relation == "nsubj"]
        return len(subjects) == 1 and _is_general(sentence, subjects[0])
    return False


def _is_told_first(sentence: Sentence, verb: int) -> bool:
    """Whether a verb is of the main clause, or of what stands before it behind a comma."""
    token = sentence.tokens[verb]
    if token.relation == "ROOT":
        return True
    before = sentence.tokens[sentence.first : verb]
    first = (
        token.relation == "ccomp"
        and token.head > verb
        and not any(token.pos in ("VERB", "AUX") for token in before)
    )
    return first and not token.text.endswith("ing")


def _is_general(sentence: Sentence, index: int) -> bool:
    """Whether a noun is a bare plural, or "a" one of its kind."""
    token = sentence.tokens[index]
    below = sentence.below(index)
    kinds = {sentence.tokens[child].relation for child in below}
    articles = {
        sentence.tokens[c].text.lower() for c in below if sentence.tokens[c].relation == "det"
    }
    if token.text.lower() in ("everything", "anything", "nothing"):
        return True
    if token.pos != "NOUN" or kinds & {"poss", "nummod", "relcl", "appos"}:
        return False
    return token.text.lower() != token.lemma if not articles else articles <= {"a", "an", "every"}
