"""Questions about all events of a sort, which name no topic but a tool. Pure.

"Which tools failed?", "how often did charge_card fail?": nothing is to be found by words, so
nothing is ranked. Columns list and count exactly what is asked for; without a tool and a time, of
the session in which it is asked, where it has any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from api.retrieval.plan import READ_OFF, AnswerType, Operator, Plan, StoryAnswer
from api.retrieval.plan_phrases import ASKING_WORDS
from api.retrieval.story_acts import REFUSING, is_heard_of
from api.retrieval.story_limits import ORDER
from api.retrieval.story_terms import LIKELY_TOLD, StoryTerms, stems_of_ways, ways_of_failing
from enrichment.act_names import DONE, base
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in, words_in
from enrichment.vocabulary import STOP_WORDS
from pipelines.columns.records import Grouped, ListAsked, Listed, Stories

_CALLS: Final = r"tools?|functions?|calls?|commands?|actions?|steps?|invocations?"
_SORTS: Final = (
    (_CALLS, (EventKind.CALL,)),
    (
        r"messages?|words?|questions?|requests?|ask(?:ed|s)?|say|said|sent|tell|told|wr(?:ote|itten)|"
        r"contact(?:ed)?",
        (EventKind.MESSAGE,),
    ),
    (r"results?|answers?", (EventKind.RESULT,)),
    (r"decisions?|decided?", (EventKind.DECISION,)),
)
"""Words for a sort of events, and its kinds; the first that a question holds decides."""
_PEOPLE: Final = r"users?|customers?|clients?|callers?|people|persons?"
_AGENTS: Final = r"agents?|assistants?|bots?"
_SESSIONS: Final = r"sessions?|conversations?|chats?|threads?"
_GROUPS: Final[tuple[tuple[str, Grouped], ...]] = (
    (_SESSIONS, "session"),
    (_AGENTS, "agent"),
    (_PEOPLE, "user"),
)
"""Words for what a question lists instead of events, and the column that tells these apart."""
_TOOLS: Final = r"tools?|functions?|commands?"
_ANYTHING: Final = r"happened|occurred|events?|recorded"
_OTHER: Final = frozenset(
    word
    for words in (
        "message messages send sent question questions request requests asked say said wrote told",
        "event events wrong anything something step steps action actions command commands list",
        "show function functions customer customers client clients caller people person bot",
        "assistant",
        "result results decision decisions decided most often used last first latest newest many",
        "happen happened initially start beginning end lately recently recorded written contact",
        "contacted conversation conversations chat chats thread threads agents assistants bots",
        "callers persons",
    )
    for word in words.split()
)
"""Words that say which events are meant, beside those that say how it is asked."""
_OF_TIME: Final = frozenset(
    word
    for words in (
        "today yesterday tonight morning afternoon evening night hour hours minute minutes day",
        "days week weeks month months year since ago past",
        "monday tuesday wednesday thursday friday saturday sunday",
    )
    for word in words.split()
)
"""Words for a time, in a question of which the time was understood."""
_LAST: Final = r"last|latest|newest|most\s+recent(?:ly)?"
_FIRST_OR_LAST: Final = rf"first|{_LAST}"
_WENT_WRONG: Final = r"(?:went|gone|goes)\s+wrong"
_TOOL_NAME: Final = re.compile(
    r"(?<![\w.])(?:[A-Za-z]\w*(?:[_.]\w+)+|[a-z]{2,}(?:[A-Z][a-z0-9]+)+)(?!\w)"
)
"""How tools are named, and hardly anything else: `charge_card`, `mail.send`, `chargeCard`."""
_HOW_MANY: Final = re.compile(
    r"^\W*(?:and\s+)?(?:(?:in|by|of)\s+)?how\s+(?:many|often)\b", re.IGNORECASE
)
_WHICH: Final = (
    r"^\W*(?:and\s+)?(?:(?:in|of|by|for|with)\s+)?(?:which|what|how\s+many)\s+"
    r"(?:(?:of|the|our|my|all|different|other)\s+){{0,3}}(?:{})(?!\w)"
)
"""How one of those is asked for."""
_COUNTED_ACTS: Final = re.compile(
    r"^\W*(?:and\s+)?(?:how\s+many|which|what)\s+(?:\S+\s+){1,4}?(?:was|were|did|has|have|had)\b"
    r"(?!.*\bhave\W*$)",
    re.IGNORECASE,
)
_MAKING: Final = DONE | {"make"}
_MADE: Final = "|".join(sorted({"there", *_MAKING}))
_SAYING_COUNT: Final = frozenset(("many", "often", "times", "time", "total", "number", "different"))
_STEADY: Final = frozenset((Operator.CALLS, Operator.FAILURES, Operator.COUNT, *ORDER))
_SORTED: Final = re.compile(
    r"^\W*(?:and\s+)?(?:which|what)\s+(?:decisions|messages|questions|results)(?!\w)", re.IGNORECASE
)
"""A sort of events, all of which are asked for."""
_GROUPED: Final = _STEADY | {Operator.SEARCH, Operator.ACTOR, Operator.USERS, Operator.WINDOW}


def list_asked(query: str, plan: Plan, terms: StoryTerms, session_id: str) -> ListAsked | None:
    """What a question asks a list of; None: it is about something, or does not say what it lists.

    Args:
        query: as it is asked.
        plan: of it.
        terms: of it.
        session_id: in which it is asked.
    """
    tools = tuple(_TOOL_NAME.findall(query))
    topic = _TOOL_NAME.sub(" ", plan.topic)
    words = {word for word in words_in(topic.lower()) if word not in STOP_WORDS}
    identifiers = set(terms.identifiers).difference(map(str.lower, tools))
    ways = ways_of_failing(query)
    grouped = _grouped(query)
    is_steady = (
        plan.operator in (_STEADY if grouped is None else _GROUPED)
        or (plan.operator is Operator.CAUSE and _says(query, _WENT_WRONG))
        or (plan.operator is Operator.SEARCH and _SORTED.match(query) is not None)
    )
    if not is_steady or plan.quoted or (ways and not tools):
        return None
    if grouped == "session" and (about := _sessions_about(plan, terms, session_id)) is not None:
        return about
    if identifiers:
        return None
    words = words.difference(word for way in ways for word in words_in(way))
    left = words - ASKING_WORDS - _OTHER - (_OF_TIME if plan.spans else frozenset())
    failed = plan.failed is True or plan.operator is Operator.FAILURES
    by_person = _by_person(query)
    if failed:
        kinds: tuple[EventKind, ...] | None = ()
    else:
        kinds = (EventKind.CALL,) if tools else _kinds(query, plan)
    of_all = grouped is not None and not left and _THERE_ARE.search(query) is not None
    if of_all:  # whoever speaks is an agent of its message
        kinds = _ACTS_OF_AGENTS if grouped == "agent" else ()
    if kinds is None or (grouped is not None and not (kinds or failed or of_all)):
        return None
    if grouped == "user" and kinds == (EventKind.MESSAGE,):
        by_person = True
    of_no_sort = plan.operator in ORDER and not (failed or kinds or _says(query, _ANYTHING))
    if of_no_sort and by_person is None:
        return None
    return ListAsked(
        session=session_id,
        only_session=plan.session,
        kinds=kinds,
        tools=tools,
        only_tools=failed and _says(query, _CALLS),
        failed=failed,
        stems=tuple(stems_of_ways(ways)),
        by_person=by_person,
        windows=plan.spans,
        newest_first=plan.operator in (Operator.LAST, Operator.FAILURES)
        or (plan.operator is Operator.CALLS and _says(query, _LAST)),
        text=terms.text,
        words=tuple(stem_in(word) for word in sorted(left)),
        grouped=grouped or "tool",
    )


_THERE_ARE: Final = re.compile(
    r"(?<!\w)(?:are|were)\s+there(?!\w)|(?<!\w)do\s+(?:we|you|i)\s+have\W*$", re.IGNORECASE
)
_ACTS_OF_AGENTS: Final = (EventKind.CALL, EventKind.THOUGHT, EventKind.DECISION)
_ABOUT: Final = re.compile(
    r"(?<!\w)(?:(?:is|are|was|were)\s+about|concern(?:s|ed)?|mention(?:s|ed)?|involve[sd]?|"
    r"deal(?:s|t)?\s+with|touch(?:es|ed)?|worked\s+on|refer(?:s|red)?\s+to|contain(?:s|ed)?|"
    r"ha(?:ve|s|d)\s+to\s+do\s+with|talk(?:s|ed)?\s+about|belong(?:s|ed)?\s+to)(?!\w)",
    re.IGNORECASE,
)
"""How sessions are asked for by what was said in them."""


def _sessions_about(plan: Plan, terms: StoryTerms, session_id: str) -> ListAsked | None:
    """The sessions in which one event says what the question names by a number; None: nothing."""
    _, *named = _ABOUT.split(plan.timeless, maxsplit=1)
    saying = tuple(dict.fromkeys(map(stem_in, _telling(" ".join(named)))))
    if not any(map(str.isdigit, "".join(saying))):
        return None
    return ListAsked(
        session=session_id,
        windows=plan.spans,
        text=terms.text,
        saying=saying,
        grouped="session",
    )


def _grouped(query: str) -> Grouped | None:
    """What a question lists instead of events; None: events, or tools."""
    return next((column for _, column in _GROUPS if _WAYS[column].match(query)), None)


_WAYS: Final = {
    column: re.compile(_WHICH.format(words), re.IGNORECASE) for words, column in _GROUPS
}
_WHO_ACTED: Final = frozenset(("session", "agent"))
"""What acts are told apart by, instead of being listed."""


def acts_listed(
    query: str, plan: Plan, terms: StoryTerms, session_id: str
) -> tuple[ListAsked, ...]:
    """What a question counts or lists of what was done, what is likelier first; none: it does not.

    "How many transports were booked?", "which parts were rejected?": `book_transport` that worked.
    """
    grouped = _grouped(query)
    by_group = grouped in _WHO_ACTED and plan.operator in (Operator.SEARCH, Operator.ACTOR)
    may_list = plan.operator is Operator.SEARCH and _COUNTED_ACTS.match(query)
    asks_for_acts = plan.operator in (Operator.COUNT, Operator.FAILURES)
    if plan.quoted or not (by_group or may_list or asks_for_acts):
        return ()
    failed = _failed_acts(plan, terms, session_id)
    if failed is not None or plan.operator is Operator.FAILURES:
        return () if failed is None else (failed,)
    content = _telling(plan.timeless)
    done = _telling(_COUNTED_ACTS.sub("", plan.timeless, count=1))  # what is counted is no verb
    if by_group and grouped is not None:
        content = done = _telling(_WAYS[grouped].sub("", plan.timeless, count=1))
    meant = [(content, done)]
    if _HOW_MANY.match(query) and _MAKING.issuperset(done) and _says(query, _MADE):
        # refunds that were made, or that there were: `refund`, or `create_refund`
        things = [word for word in content if word not in _MAKING]
        meant.append((things, [*things, "create"] if things else []))
    return tuple(
        ListAsked(
            session=session_id,
            only_session=plan.session,
            kinds=(EventKind.CALL,) if _says(query, "call(?:s|ed)?") else (),
            windows=plan.spans,
            text=terms.text,
            words=tuple(dict.fromkeys(stem_in(w) for w in words if w not in ASKING_WORDS)),
            verbs=verbs,
            grouped=grouped if by_group and grouped is not None else "tool",
        )
        for words, verbs in ((words, _verbs(named, plan)) for words, named in meant)
        if verbs
    )


_FAILED_ACTS: Final = re.compile(
    r"^\W*(?:and\s+)?(?:how\s+many|which|what)\s+(?P<acts>\w+(?:\s+\w+)?)"
    r"(?:\s+(?:have|has|had))?\s+(?:failed|went\s+wrong|did\s+not\s+(?:work|go\s+through))\W*$",
    re.IGNORECASE,
)


def _failed_acts(plan: Plan, terms: StoryTerms, session_id: str) -> ListAsked | None:
    """Acts of one name that failed: "how many deploys failed?" counts those of `deploy_site`."""
    match = _FAILED_ACTS.match(" ".join(plan.timeless.split()))
    words = [] if match is None else [*dict.fromkeys(match["acts"].lower().split())]
    stems = tuple(stem_in(word) for word in words if word not in ASKING_WORDS | _OTHER)
    if not stems:
        return None
    return ListAsked(
        session=session_id,
        only_session=plan.session,
        failed=True,
        windows=plan.spans,
        text=terms.text,
        words=stems,
        verbs=stems,
    )


def _verbs(words: Iterable[str], plan: Plan) -> tuple[str, ...]:
    """Stems of the words that may say what was done; of failures those that are acts, too."""
    stems = dict.fromkeys(map(stem_in, words))
    return tuple(stem for stem in stems if plan.failed is not True or base(stem) in REFUSING)


def _telling(text: str) -> list[str]:
    return [word for word in words_in(text.lower()) if word not in STOP_WORDS | _SAYING_COUNT]


def acts_answer(query: str, plan: Plan, listed: Listed) -> StoryAnswer:
    """The answer of acts that were counted or are listed."""
    if plan.operator is not Operator.COUNT and _grouped(query) in _WHO_ACTED:
        return list_answer(query, plan, listed)
    counts = plan.operator is Operator.COUNT or _HOW_MANY.match(query) is not None
    operator = Operator.COUNT if counts else Operator.CALLS
    plan = plan._replace(operator=operator, confidence=max(plan.confidence, READ_OFF))
    answer = list_answer(query, plan, listed)
    return answer if counts else answer._replace(value=None)


def is_unheard_of(stories: Stories, terms: StoryTerms, plan: Plan, first: str) -> bool:
    """Whether nobody ever said a word of what a question counts.

    Of a failure the judge says it, as who asks tells in other words what a tool reported; so it
    does of what a person said, where nothing is counted. Else that is most of the words:
    "which size did E-4 use in the end?" asks for a field. Where no row of phrases says how the
    question asks, a word that may say it need not be heard of.

    Args:
        stories: that were found.
        terms: of the question.
        plan: of it.
        first: the id of the event that answers it best.
    """
    counts = plan.operator is Operator.COUNT or _HOW_MANY.match(plan.timeless) is not None
    best = stories.ids.index(first)
    if stories.failed[best] if counts else stories.person[best]:
        return False
    telling = [place for place, asking in enumerate(terms.is_asking) if not asking]
    unsaid = terms.may_be_unsaid
    least = LIKELY_TOLD if plan.guessed else 0.0
    telling = [place for place in telling if not unsaid[place] and terms.shares[place] >= least]
    unheard = sum(not is_heard_of(stories, place) for place in telling)
    return unheard > (0 if counts else len(telling) // 2)


def _kinds(query: str, plan: Plan) -> tuple[EventKind, ...] | None:
    """The kinds that a question counts or lists; none: of any; None: it does not say."""
    if plan.operator is Operator.CALLS:
        return (EventKind.CALL,)
    for pattern, kinds in _SORTS:
        if _says(query, pattern):
            return kinds
    if plan.operator in ORDER or _says(query, rf"{_ANYTHING}|things?"):
        return ()
    return None


_SAID_BY_ME: Final = (
    r"(?:i|we)\s+(?:have\s+|had\s+|ever\s+)*(?:ask(?:ed)?|sa(?:y|id)|t(?:ell|old)|wr(?:ote|ite)|"
    r"mention(?:ed)?|request(?:ed)?|want(?:ed)?)"
)


def _by_person(query: str) -> bool | None:
    if _says(query, _SAID_BY_ME):
        return True
    if _says(query, rf"(?:the|our|this|an?)\s+(?:{_AGENTS})|you"):
        return False
    return True if _says(query, rf"(?:the|our|this|an?)\s+(?:{_PEOPLE})") else None


def _says(query: str, pattern: str) -> bool:
    return re.search(rf"(?<!\w)(?:{pattern})(?!\w)", query, re.IGNORECASE) is not None


def list_answer(query: str, plan: Plan, listed: Listed) -> StoryAnswer:
    """The answer of a list that is not empty."""
    kind: AnswerType = "events"
    value: Any = None
    evidence = listed.ids
    grouped, counts = _grouped(query), _HOW_MANY.match(query) is not None
    names = [name for name, _ in listed.groups]
    is_sort = plan.operator is Operator.SEARCH
    if grouped is not None or is_sort:
        plan = plan._replace(confidence=max(plan.confidence, READ_OFF))
    if grouped is not None:
        evidence = listed.ids[: len(names)]
    if _says(query, "most") and names:
        most = max(range(len(names)), key=lambda place: listed.groups[place][1])
        kind, value = "value", names[most]
        evidence = evidence[most:][:1] if grouped else evidence
    elif grouped is not None:
        kind, value = ("count", len(names)) if counts else ("list", names)
    elif plan.operator is Operator.COUNT:
        kind = "count"
        value = len(names) if _says(query, rf"how\s+many\s+(?:{_TOOLS})") else listed.total
    elif plan.operator in ORDER:
        evidence = listed.ids[:1]
    elif plan.operator is Operator.CALLS and names and _says(query, _FIRST_OR_LAST):
        kind, value, evidence = "value", names[0], listed.ids[:1]
    elif not is_sort and (plan.operator is Operator.CALLS or _says(query, _TOOLS)):
        kind, value = "list", names
    elif is_sort or plan.operator is Operator.FAILURES:
        kind = "list"
    worth = [plan.confidence / (1 + place / len(listed.ids)) for place in range(len(listed.ids))]
    return StoryAnswer(
        plan=plan,
        confidence=plan.confidence,
        order=listed.ids,
        relevance=dict(zip(listed.ids, worth, strict=True)),
        type=kind,
        value=value,
        evidence=evidence,
        decides=True,
        explained={},
    )
