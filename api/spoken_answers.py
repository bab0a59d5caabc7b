"""What people said is an answer: not their question, but what was said to it, and when. Pure.

Where tools were used, a record says who and when. Where people talk, somebody tells of others, and
on another day: so the words are the answer, and a time is one that they name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from api.record_fields import Shown, holding, identifiers_in, said_by, summary_of
from api.retrieval.plan import VALUES, StoryAnswer
from api.retrieval.time_spans import TimeSpan, time_spans
from api.retrieval.time_windows import exact_windows
from api.schemas import Node
from enrichment.event_kinds import EventKind
from enrichment.stems import stems_of, telling_stems_of
from projections.events import timestamp_ms
from projections.schema import EVENT

_LOOKED_AT: Final = 5
"""Events at the head of an answer, of which one may be the question that another one answers."""
_SOON_MS: Final = 600_000
"""Within which a question is answered."""
_SENTENCE: Final = re.compile(r"[^.!?]+[.!?]*")
_TAG: Final = re.compile(
    r",\s*(?:did|do|does|is|are|was|were|have|has|will|would|can|could|should|right|ok|okay|no"
    r"|isn't|don't|didn't|won't)\b[^,.!?]{0,30}\?+$",
    re.IGNORECASE,
)
"""A question behind what somebody tells: "he is leaving, did you know?"."""
_UNMARKED: Final = re.compile(
    r"^\W*(?:(?:and|so|but|or|ok|okay)\s+)?(?:who(?!\s+knows)(?:['\u2019]s|\s+\w+)"
    r"|(?:what|where|when|why|which(?:\s+\w+)?|how(?:\s+\w+)?)(?:['\u2019]s|\s+(?:is|are|was|were"
    r"|do|does|did|will|would|can|could|should))\s"
    r"|(?:do|does|did|are|is|was|were|have|has|can|could|will|would)\s+(?:you|he|she|they|we|it)\b)",
    re.IGNORECASE,
)
"""How a question begins that is written without its mark."""
_MOST_BESIDE_IT: Final = 3
_PAST: Final = re.compile(
    r"\b(?:yesterday|today|tonight|this\s+morning|last|past|ago|earlier|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
"""That a time is not ahead, or in which year it is."""
_YEAR: Final = re.compile(r"\b(?:19|20)\d\d\b")
_DAY: Final = timedelta(days=1)
_WEEK: Final = timedelta(days=7)
_SHORTEST_MONTH: Final = timedelta(days=28)
_LONGEST_MONTH: Final = timedelta(days=31)
_SHORTEST_YEAR: Final = timedelta(days=365)


def is_said(node: Node) -> bool:
    """Whether it is what somebody said."""
    return node.attributes.get("kind") == EventKind.MESSAGE


def only_asks(text: str) -> bool:
    """Whether a message tells nothing but a few words beside its question."""
    _, _, words = text.partition(": ")
    sentences = [one.strip() for one in _SENTENCE.findall(words)]
    told = [sentence for sentence in sentences if not _asks(sentence)]
    asks = bool(sentences) and _asks(sentences[-1])
    return asks and all(len(one.split()) <= _MOST_BESIDE_IT for one in told)


def _asks(sentence: str) -> bool:
    if _UNMARKED.match(sentence) and not sentence.endswith("!"):
        return True
    return sentence.endswith("?") and _TAG.search(sentence) is None


def unless_only_asked(story: StoryAnswer, nodes: Sequence[Node], query: str) -> StoryAnswer:
    """The answer; one that nothing tells, if its first event is somebody's asking the same.

    "What is my blood group? I cannot find the card" says no blood group. What else tells it comes
    in its place, where something does.

    Args:
        story: what stories say.
        nodes: what is shown, the best first.
        query: the question.
    """
    events = [node for node in nodes if node.type == EVENT.label]
    first = events[0] if events else None
    if first is None or story.value is not None or story.evidence[:1] != [first.node_id]:
        return story
    wanted = telling_stems_of(query)
    if not (story.decides and is_said(first) and _only_asks_for(first, wanted)):
        return story
    others = events[1:_LOOKED_AT]
    if any(wanted <= stems_of(_told_in(node)) for node in others):
        return story
    return story._replace(confidence=0.0)


def unless_of_others(
    story: StoryAnswer, nodes: Sequence[Node], texts: Mapping[str, str], query: str
) -> StoryAnswer:
    """The answer; one that nothing tells, if what is found is of other things than the named.

    "What is the weight of P-4?" is not told by the weight of P-9, where no session that speaks of
    P-4 says a word of a weight.

    Args:
        story: what stories say.
        nodes: what is shown, the best first.
        texts: what the first events say as a whole, by id.
        query: the question.
    """
    events = {node.node_id: node for node in nodes if node.type == EVENT.label}
    identifiers = identifiers_in(query)
    if story.value is not None or story.plan.operator not in VALUES or not identifiers:
        return story
    shown = Shown(events, texts)
    of_named = [*holding(identifiers, shown)]
    wanted = telling_stems_of(query) - stems_of(" ".join(identifiers))
    first = next(iter(events.values()), None)
    sessions = {node.provenance.session_id for node in of_named}
    if first is None or not sessions or first.provenance.session_id in sessions or not wanted:
        return story
    beside = (node for node in events.values() if node.provenance.session_id in sessions)
    if any(wanted & stems_of(said_by(node, shown)) for node in beside):
        return story
    return story._replace(confidence=0.0)


def _only_asks_for(node: Node, wanted: frozenset[str]) -> bool:
    """Whether a question of a message has all that is asked for, and the rest of it has nothing."""
    text = summary_of(node) or ""
    asking = (one for one in _SENTENCE.findall(text.partition(": ")[2]) if _asks(one.strip()))
    told = telling_stems_of(_told_in(node))
    return any(wanted <= stems_of(one) for one in asking) and told.isdisjoint(wanted)


def _told_in(node: Node) -> str:
    """What an event says, without what it asks."""
    text = summary_of(node) or ""
    if not is_said(node):
        return text
    sentences = (one.strip() for one in _SENTENCE.findall(text.partition(": ")[2]))
    return " ".join(one for one in sentences if not _asks(one))


def said_first(events: Mapping[str, Node]) -> list[str]:
    """The first of some events that tells something: of a question what was said to it.

    Args:
        events: that are shown by id, the best first.
    """
    first = next(iter(events.values()), None)
    if first is None or not _is_question(first):
        return list(events)[:1]
    looked_at = list(events.values())[:_LOOKED_AT]
    answers = [node for node in looked_at if _answers(node, first)]
    telling = [node for node in looked_at if not _is_question(node)]
    chosen = sorted(answers, key=_at_ms)[:1] or telling[:1] or [first]
    return [chosen[0].node_id]


def _is_question(node: Node) -> bool:
    return is_said(node) and only_asks(summary_of(node) or "")


def _answers(node: Node, question: Node) -> bool:
    """Whether somebody else said it soon after a question, in the same session."""
    same = node.provenance.session_id == question.provenance.session_id
    waited = _at_ms(node) - _at_ms(question)
    other = node.provenance.agent_id != question.provenance.agent_id
    return same and other and 0 < waited <= _SOON_MS and not _is_question(node)


def _at_ms(node: Node) -> int:
    at = node.provenance.occurred_at
    return 0 if at is None else timestamp_ms(at)


def said_time(node: Node, zone: tzinfo) -> str | None:
    """The one time that a message tells of, as exactly as it does; None: it tells of none.

    Read off are days before it ("yesterday" is the day before it was said), its own, and what has
    a year. Whether "on Monday" is behind or ahead only the words tell, so these are the answer.
    """
    text, at_ms = summary_of(node) or "", _at_ms(node)
    windows = exact_windows(text, at_ms, zone)
    spans = [window.span for window in windows] or [*time_spans(text, at_ms)]
    named = [window.text for window in windows] or [text]
    if not spans:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(zone).isoformat()
    beside = any(year not in " ".join(named) for year in _YEAR.findall(text))
    if beside or len(set(spans)) > 1 or not all(map(_PAST.search, named)):
        return None
    return _in_words(spans[0], zone)


def _in_words(span: TimeSpan, zone: tzinfo) -> str | None:
    first = datetime.fromtimestamp(span.first_ms / 1_000, UTC).astimezone(zone)
    lasts = timedelta(milliseconds=span.end_ms - span.first_ms)
    if lasts <= _DAY:
        return f"{first:%Y-%m-%d}"
    if lasts <= _WEEK:
        return f"{first:%Y-%m-%d}/{first + lasts - _DAY:%Y-%m-%d}"
    if _SHORTEST_MONTH <= lasts <= _LONGEST_MONTH and first.day == 1:
        return f"{first:%Y-%m}"
    if lasts >= _SHORTEST_YEAR and (first.month, first.day) == (1, 1):
        return f"{first:%Y}"
    return None
