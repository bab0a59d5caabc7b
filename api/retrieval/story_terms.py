"""What a question looks for in stories: its words, identifiers and names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy

from api.retrieval.plan import VALUES, Operator, Plan
from api.retrieval.plan_phrases import ASKING_WORDS, MARKS, SAYS_BROKE_DOWN, SAYS_FAILED
from api.retrieval.query_terms import as_meant
from api.retrieval.question_forms import topic_shares
from enrichment.stems import plain, stem, verbs_of, words_in
from enrichment.vocabulary import STOP_WORDS, word_set
from pipelines.columns.records import Array, Joined, StoriesAsked

MAX_STEMS: Final = 32
MAX_IDENTIFIERS: Final = 8
MAX_SESSIONS: Final = 32
_CAPITALISED: Final = re.compile(r"(?<![\w.])[A-Z][\w'’-]+")  # noqa: RUF001
_ASKING: Final = re.compile(r"^\W*(?:[Ww]h\w+|[Hh]ow|[Ii]s|[Aa]re|[Dd]id|[Dd]o|[Dd]oes)\b")
"""How a question begins: with no name, although with a capital letter."""
_FULL_NAME: Final = re.compile(
    r"(?<![\w.'\u2019-])([A-Z][a-z\u00e0-\u024f]+)(?= ([A-Z][a-z\u00e0-\u024f]+(?:-[A-Z]\w+)?))"
)
_HYPHENED: Final = re.compile(r"[\w'’-]+")  # noqa: RUF001
_JOINED: Final = r"(?:[\w.-]|[/#~:](?=\w))"
_IDENTIFIER: Final = re.compile(
    rf"(?<![^\W_])(?={_JOINED}*\d)(?={_JOINED}*[A-Za-z_])\w{_JOINED}{{2,}}\w(?![^\W_])"
    r"|(?<![^\W_])[A-Z]{2,} \d{3,}(?![^\W_])|(?<![^\W_]#)(?<=#)\d{2,}(?![^\W_])"
)
"""With letters and digits, or a number behind capitals or a mark: `acct_77`, `R/75-9611`,
`WO#3391`, `KLX 2437`, `#4821`."""
_MEASURE: Final = re.compile(
    r"\d+[a-z]{1,3}|\d{1,2}:\d\d(?::\d\d)?\s?(?:[ap]m|h|z)?|\d{4}-\d\d-\d\dt.*"
)
"""Quantities, and times."""
_CLAUSE: Final = re.compile(r"(?:[.!?\u2026:]|\.{3})\s+")
_WH: Final = re.compile(r"(?<!\w)(?:wh\w+|how)(?!\w)", re.IGNORECASE)
_REFERS: Final = re.compile(
    r"(?<!\w)(?:it|that|this|they|them|one|there|then|he|she|him)(?!\w)",
    re.IGNORECASE,
)
"""Points to what was said before."""
_CLEFT: Final = re.compile(r"(?<!\w)(?:is|was|has)\s+it\s+(?:been\s+)?that(?!\w)", re.IGNORECASE)
""""How often was it that …?": nothing before is meant."""
_NAMING: Final = re.compile(r"\S*[A-Z\d]\S*")
_SESSION: Final = re.compile(r"[^\s\"'\u2019\u201c\u201d,;?!()\[\]<>]{4,}")
_PARTICLES: Final = word_set("away back by down in off on out over up")
"""Behind a verb: "sign up", `signup`."""
OF_TEXTS: Final = VALUES | frozenset(
    (
        *(Operator.SEARCH, Operator.ACTOR, Operator.TIME, Operator.COUNT, Operator.PROMISE),
        Operator.CALLS,
    )
)
"""Operators whose answer is a part of what an event says: a field, a sentence."""
OF_FACTS: Final = VALUES | frozenset((Operator.ACTOR, Operator.SEARCH))
"""Operators that a fact answers where it says all that is asked for."""
_BY_SPEAKER: Final = VALUES | frozenset(
    (
        *(Operator.LAST, Operator.FIRST, Operator.PREFERENCE, Operator.PROFILE, Operator.PROMISE),
        Operator.SEARCH,
    )
)
_PROMISING: Final = word_set(
    "promise promises promised pledge pledges pledged vow vows vowed undertaking undertakings "
    "undertake undertook assurance assurances assured commitment commitments committed obligation "
    "obligations word words debt debts owe owes owed deliver delivered delivery fulfil fulfill "
    "fulfilled fulfilment unfulfilled honour honoured honor honored discharge discharged redeem "
    "redeemed keep kept unkept broken await awaits awaiting wait waits waiting announce announced "
    "announcement announcements pending outstanding overdue due loose live lived "
    "ends follow followed carry carried dangling hanging remain remains remaining list date deed "
    "deeds"
)
"""By which people ask for what was promised, and is or is not done."""
BY_FAILURE: Final = frozenset(
    (
        *(Operator.COUNT, Operator.USERS, Operator.FAILURES, Operator.SIMILAR, Operator.CAUSE),
        Operator.LESSON,
    )
)
"""Operators that ask about what failed."""
COUNTED: Final = frozenset((Operator.COUNT, Operator.USERS))
"""Operators that are answered by all events which are alike."""
_LED_TO_BY_ANY: Final = COUNTED | {Operator.LAST, Operator.FIRST}
"""Operators of which what leads to the question says nothing."""
_LED_TO: Final = _LED_TO_BY_ANY | frozenset(
    (Operator.CAUSE, Operator.LESSON, Operator.TIME, Operator.ACTOR)
)
"""And those of which it says nothing where the question is whole without it."""
LIKELY_TOLD: Final = 0.5
"""Share from which a word rather says what a question is about than how it is asked."""
_WHOLE: Final = 3
"""Words that tell what it is about; "on what ground?" has one, and is about what stands before."""
GIVING_LEAVE: Final = re.compile(
    r"(?<!\w)(?:g[ia]ve[sn]?|giving)\s+(?:\S+\s+){0,2}?"
    r"(?:ok(?:ay)?|go[- ]?ahead|nod|permission|approval|consent|leave|blessing|thumbs\s+up|green|"
    r"waiver|exemption|clearance|authori[sz]ation|sign-?off)(?!\w)",
    re.IGNORECASE,
)
"""Says that somebody approved, in the words of no tool."""
_HOW_IT_FAILED: Final = re.compile(
    r"(?<!\w)(?:tim(?:ed?|ing)[\s-]*outs?|reject\w*|refus\w+|denied|declined|crash\w*|blocked)(?!\w)"
)
"""Not just that it failed: which failures are meant is told by what they say."""
_TIMED_OUT: Final = ("timeout", "timeouterror", "timeoutexception")
"""One word for it, and how errors are called that say so."""


class StoryTerms(NamedTuple):
    """What a question is compared with stories by.

    Attributes:
        words: that say what it is about, in lower case, each once; a stem each.
        stems: of the words.
        is_asking: of each word, whether it may say how the question asks instead.
        shares: of each word, how likely it says what the question is about, 0 to 1.
        identifiers: words with letters and digits, in lower case.
        capitalised: words with a capital letter, in lower case.
        text: the question in lower case, its words apart by one space.
        sessions: that it may name.
        full_names: what may be a given and a family name, in lower case, the latter's words apart.
        is_aside: of each word, whether it stands beside the clause that says what is asked, and
            not in it: "somebody complains again: how often did the export stop?"; or says that it
            failed, where that is counted.
        is_broken: of each word, whether it says that something came to a bad end, where that is
            counted: "the drain got stuck".
        joined: stems of two words in a row that are written as one ("call sheet", `callsheet`), and
            the places of the two among the stems.
        verbs: stems of the verbs that words are nouns of ("enrolment", `enrol`), names apart.
    """

    words: tuple[str, ...]
    stems: tuple[str, ...]
    is_asking: tuple[bool, ...]
    shares: tuple[float, ...]
    identifiers: tuple[str, ...]
    capitalised: frozenset[str]
    text: str
    sessions: tuple[str, ...]
    full_names: tuple[tuple[str, tuple[str, ...]], ...]
    is_aside: tuple[bool, ...]
    is_broken: tuple[bool, ...]
    joined: tuple[Joined, ...] = ()
    verbs: tuple[Joined, ...] = ()

    @property
    def is_topicless(self) -> bool:
        """Whether it says how it asks and nothing of what about: "which change caused it?"."""
        return all(self.is_asking) and not self.identifiers

    @property
    def may_be_unsaid(self) -> Array:
        """Of each word, whether an answer need not say it: it leads there, or says how it ended."""
        pairs = zip(self.is_aside, self.is_broken, strict=True)
        return numpy.array([aside or broken for aside, broken in pairs], dtype=bool)

    def telling(self, names: Iterable[str]) -> Array:
        """Which of the words say what the question is about, none of them being somebody's name.

        Args:
            names: parts of the names of those whom it means.
        """
        parts = set(names)
        unnamed = numpy.array([word not in parts for word in self.words], dtype=bool)
        strong = unnamed & ~numpy.array(self.is_asking, dtype=bool)
        for chosen in (strong, unnamed):
            if chosen.any():
                return chosen
        return numpy.ones(len(self.words), dtype=bool)


def story_terms(query: str, plan: Plan) -> StoryTerms:
    """The terms of a question.

    Args:
        query: as it is asked.
        plan: of it.
    """
    query = as_meant(query)
    words: dict[str, str] = {}
    content = [plain(word) for word in words_in(plan.topic.lower())]
    asking = _PROMISING if plan.operator is Operator.PROMISE else frozenset()
    for word in content:
        if word not in STOP_WORDS and word not in asking:
            words.setdefault(stem(word), word)
    if not words:
        words = {stem(word): word for word in content}
    chosen = dict(list(words.items())[:MAX_STEMS])
    lowered = (plain(one.lower()) for one in _CAPITALISED.findall(_ASKING.sub("", query)))
    parts = [part for one in lowered for part in (one, *words_in(one))]
    shares = _shares(query, plan, chosen.values())
    broken = _words_of(SAYS_BROKE_DOWN, query) if plan.operator in COUNTED else set()
    aside = _aside(query, plan, dict(zip(chosen, shares, strict=True)))
    return StoryTerms(
        words=tuple(chosen.values()),
        stems=tuple(chosen),
        # where nothing but "me" is left, it is about whoever asks
        is_asking=tuple(word in ASKING_WORDS | STOP_WORDS | asking for word in chosen.values()),
        shares=shares,
        identifiers=_identifiers(query),
        capitalised=frozenset(parts),
        text=f" {' '.join(plain(one) for one in _HYPHENED.findall(query.lower()))} ",
        sessions=tuple(dict.fromkeys(one.rstrip(".:/-") for one in _SESSION.findall(query)))[
            :MAX_SESSIONS
        ],
        full_names=tuple(
            (plain(match[1].lower()), tuple(words_in(plain(match[2].lower()))))
            for match in _FULL_NAME.finditer(query)
        ),
        joined=tuple(dict.fromkeys(_joined(content, tuple(chosen)))),
        verbs=tuple(
            Joined(verb, place, place)
            for place, (noun, word) in enumerate(chosen.items())
            for verb in verbs_of(noun)
            if word not in ASKING_WORDS and word not in parts and verb not in chosen
        ),
        is_aside=tuple(word in aside for word in chosen.values()),
        is_broken=tuple(word in broken for word in chosen.values()),
    )


def _words_of(pattern: re.Pattern[str], query: str) -> set[str]:
    return {word for match in pattern.finditer(query) for word in words_in(match[0].lower())}


def _aside(query: str, plan: Plan, shares: Mapping[str, float]) -> set[str]:
    """Words of what leads to a question that says by itself what it asks about.

    Where the last clause says nothing of that ("the export stopped, so we hear. How many times?"),
    those of the clauses that say little beside the one that says most. And those that say that it
    failed, in whatever way a tool says so.
    """
    is_counted = plan.failed and plan.operator in COUNTED
    failing = _words_of(SAYS_FAILED, query) if is_counted else set()
    clauses = _CLAUSE.split(query.rstrip(" .!?")) if plan.operator in _LED_TO else []
    if len(clauses) < 2:
        return failing
    told = [{plain(word) for word in words_in(clause.lower())} for clause in clauses]
    telling = [
        sum(shares.get(stem(word), 0.0) >= LIKELY_TOLD for word in words - ASKING_WORDS)
        for words in told
    ]
    by_any = plan.operator in _LED_TO_BY_ANY
    if by_any and not telling[-1]:
        is_kept = [2 * many > max(telling) for many in telling]
    elif telling[-1] >= (1 if by_any else _WHOLE) and _is_whole(clauses[-1]):
        is_kept = [place == len(clauses) - 1 for place in range(len(clauses))]
    else:
        return failing
    meant = {word for words, kept in zip(told, is_kept, strict=True) if kept for word in words}
    spoken = (
        word
        for clause, kept in zip(clauses, is_kept, strict=True)
        if not kept
        for word in words_in(_NAMING.sub(" ", clause))
    )
    return failing | ({plain(word) for word in spoken} - meant)


def _is_whole(clause: str) -> bool:
    """Whether a clause asks, and refers to nothing that stands before it."""
    asks = _WH.search(clause) is not None or _ASKING.match(clause) is not None
    return asks and _REFERS.search(_CLEFT.sub(" ", clause)) is None


def _joined(content: Sequence[str], stems: Sequence[str]) -> Iterator[Joined]:
    places = {one: place for place, one in enumerate(stems)}
    for word, behind in pairwise(content):
        is_phrasal = behind in _PARTICLES  # "rolled back", `rollback`
        whole = stem((stem(word) if is_phrasal else word) + behind)
        first = places.get(stem(word))
        second = first if is_phrasal else places.get(stem(behind))
        if first is not None and second is not None and whole.isalpha() and whole not in places:
            yield Joined(whole, first, second)


def _shares(query: str, plan: Plan, words: Iterable[str]) -> tuple[float, ...]:
    """Of each word; of a name, a number and a plain question's all are what it is about."""
    if plan.operator is Operator.SEARCH:
        return tuple(1.0 for _ in words)
    told = {plain(form): share for form, share in topic_shares(query).items()}
    return tuple(told.get(word, 1.0) for word in words)


def _identifiers(query: str) -> tuple[str, ...]:
    mixed = dict.fromkeys(one.lower() for one in _IDENTIFIER.findall(query))
    return tuple(one for one in mixed if not _MEASURE.fullmatch(one))[:MAX_IDENTIFIERS]


def stems_of_parts(identifier: str) -> list[str]:
    """What an identifier is looked up by: a stem for each of its parts, in their order."""
    return [stem(plain(part)) for part in words_in(identifier)]


def ways_of_failing(query: str) -> list[str]:
    """What a question says of how something failed, in lower case."""
    return _HOW_IT_FAILED.findall(query.lower())


def stems_of_ways(ways: Iterable[str]) -> list[str]:
    """By which an event says that it failed so."""
    stems = [stem(word) for way in ways for word in words_in(way) if word not in STOP_WORDS]
    return [*stems, *(_TIMED_OUT if any(way.startswith("tim") for way in ways) else ())]


def stories_asked(
    terms: StoryTerms,
    plan: Plan,
    *,
    hits: Sequence[str],
    vector: Sequence[float] | None,
    session_id: str,
) -> StoriesAsked:
    """What columns are asked for.

    Args:
        terms: of the question.
        plan: of it.
        hits: ids of events that the channels found, the best first.
        vector: of the question; None: it has none.
        session_id: in which it is asked.
    """
    operator = plan.operator
    return StoriesAsked(
        hits=hits,
        stems=terms.stems,
        joined=terms.joined,
        verbs=terms.verbs,
        identifiers=[stems_of_parts(identifier) for identifier in terms.identifiers],
        vector=vector,
        capitalised=sorted(terms.capitalised),
        text=terms.text,
        sessions=[*terms.sessions, *([session_id] if plan.session else ())],
        windows=plan.spans,
        marks=_marks(terms, operator),
        by_window=operator is Operator.WINDOW,
        by_speaker=operator in _BY_SPEAKER,
        by_failure=operator in BY_FAILURE,
        by_fact=operator in OF_FACTS or operator is Operator.PROFILE,
        by_cause=operator in (Operator.CAUSE, Operator.LESSON),
        by_change=plan.elsewhere,
        by_promise=operator is Operator.PROMISE,
        promising=PROMISED if operator is Operator.PROMISE else (),
        speaking=SPEAKING,
    )


_MARK_STEMS: Final = {
    name: tuple(sorted({*map(stem, words.split())})) for name, words in MARKS.items()
}
PROMISED: Final = _MARK_STEMS[Operator.PROMISE]
"""Stems of words by which something is promised."""
_SPEAKING: Final = "i we you me us i'll we'll you'll i'm we're let shall promise"
SPEAKING: Final = tuple(sorted({*map(stem, _SPEAKING.split())}))
"""Stems of words by which somebody speaks of themselves, or to somebody."""


def _marks(terms: StoryTerms, operator: Operator) -> Sequence[str]:
    if operator in COUNTED:
        return sorted({*stems_of_ways(ways_of_failing(terms.text))})
    return _MARK_STEMS.get(operator, ())
