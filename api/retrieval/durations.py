"""How long it took: a session, a call until its outcome, a failure until it was solved. Pure."""

from __future__ import annotations

from typing import Final

import numpy

from api.retrieval.plan import READ_OFF, Operator, Plan, StoryAnswer
from api.retrieval.plan_phrases import ASKING_WORDS
from api.retrieval.story_features import Features
from api.retrieval.story_terms import StoryTerms
from enrichment.act_names import of_type
from enrichment.stems import words_in
from enrichment.vocabulary import word_set
from pipelines.columns.records import Array, ListAsked, Listed, Stories

_SAYING_LONG: Final = word_set("long last lasted run running duration time")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MOST_UNITS: Final = 2
_BOTH: Final = 2


def duration_text(ms: int) -> str:
    """A stretch of time in its two largest units: `2 min 20 s`; below a second `320 ms`."""
    if ms < 1_000:
        return f"{ms} ms"
    left_s = round(ms / 1_000)
    parts: list[str] = []
    for unit_s, name in _UNITS:
        count, left_s = divmod(left_s, unit_s)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(filter(None, parts[:_MOST_UNITS]))


def sessions_asked(plan: Plan, terms: StoryTerms, session_id: str) -> list[ListAsked]:
    """The sessions of which a question may ask how long they lasted.

    Args:
        plan: of the question.
        terms: of it.
        session_id: in which it is asked.
    """
    if plan.session:
        return [ListAsked(session=session_id, only_session=True)]
    telling = set(terms.words) - ASKING_WORDS - _SAYING_LONG
    return [
        ListAsked(session=name, only_session=True)
        for name in terms.sessions
        if telling <= {*words_in(name.lower())}
    ]


def session_lasted(plan: Plan, oldest: Listed, newest: Listed) -> StoryAnswer:
    """How long a session lasted.

    Args:
        plan: of the question.
        oldest: its events by time, at least one.
        newest: the same, the newest first.
    """
    ids = list(dict.fromkeys((oldest.ids[0], newest.ids[0])))
    return StoryAnswer(
        plan=plan,
        confidence=max(plan.confidence, READ_OFF),
        order=ids,
        relevance=dict.fromkeys(ids, READ_OFF),
        type="value",
        value=duration_text(oldest.last_ms - oldest.first_ms),
        evidence=ids,
        decides=True,
        explained={},
    )


def stretch(stories: Stories, features: Features, plan: Plan, best: int) -> Array | None:
    """The places of the two events between which it lay; None: nobody can say.

    Args:
        stories: that were found.
        features: of their events.
        plan: of the question.
        best: place of the event that answers it best.
    """
    calls = features.roles.call_of.tolist()
    outcome = next((place for place, call in enumerate(calls) if call == best), best)
    start = calls[outcome]
    if plan.operator is Operator.LESSON:
        failed = stories.failed & (stories.story == stories.story[best])
        failed &= stories.occurred_ms <= stories.occurred_ms[outcome]
        start = int(numpy.flatnonzero(failed)[0]) if failed.any() else -1
    return numpy.array([start, outcome]) if start >= 0 and start != outcome else None


def from_type_to_type(stories: Stories, features: Features, best: int) -> Array | None:
    """From the first to the last event of what a question names, whose types are of one thing.

    `alert.raised` until `alert.resolved`, both of the same alert; where it is named by no
    identifier, of the story of the event that answers best.
    """
    of_it = stories.holds.all(axis=1)
    if not stories.holds.shape[1]:
        of_it = (stories.story == stories.story[best]) & (stories.counts > 0).all(axis=1)
    telling = features.roles.other & (stories.type >= 0) & of_it
    places = numpy.flatnonzero(telling)
    places = places[numpy.argsort(stories.occurred_ms[places], kind="stable")]
    if len(places) < _BOTH:
        return None
    ends = places[[0, -1]]
    first, last = (of_type(stories.types[int(stories.type[place])]) for place in ends.tolist())
    return ends if first[1] & last[1] and first[0] != last[0] else None
