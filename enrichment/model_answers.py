"""What a large language model adds to what the rules derive from one event.

`questions` says what to ask about an event, `derived_with_model` takes the answers in: a pure
function, so that the same answers give the same graph. The rules' results stay; the model adds
names and facts as far as the limits of an event leave room, and its sentence takes the place of
the extractive summary. Without an answer nothing changes.

Only what people and agents say to each other is shown to the model (S2: conversational text, no
code, configuration or raw data): messages, without fenced code and short fields. Calls, results,
errors and other JSON never leave the machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from enrichment.clauses import speaker_party
from enrichment.event_kinds import EventKind
from enrichment.facts import WHOLE_CONFIDENCE, Assertion, Mention, Party, fact_in_words, party_of
from enrichment.grounded import is_protected
from enrichment.names import MAX_FACTS, MAX_MENTIONS, SUBTYPES, SUMMARY_CHARACTERS, canonical_name
from enrichment.ports import EventText
from enrichment.prompts import (
    AnswersTogether,
    Task,
    is_same,
)
from enrichment.resolution import Candidate, judge, question
from enrichment.text import language_spans
from enrichment.vocabulary import USERS, VOICELESS, cut, is_functional
from projections.events import Event

if TYPE_CHECKING:
    from enrichment.derived import Derived
    from enrichment.stage import EventKey

MIN_CHARACTERS: Final = 20
"""Of a text from which names and facts are asked: "ok, thanks" has none."""
MAX_CONFIDENCE: Final = 8_000
"""Times 10⁴: a model is sure of everything it says, and what a tool returned is surer."""

_WEAK: Final = frozenset(("amount", "date"))
_INSTRUCTING: Final = frozenset(("system", "developer"))
"""What they say is configuration, and the same in every conversation."""
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# As in `text.language_spans`: a value of less than four words is no sentence. `password: x` is not
# sent, whether it was a field beside the words or a line of them.
_FIELD = re.compile(r"^[^\s:]{1,121}:(?: \S+){0,3} *$", re.MULTILINE)


def questions(derived: Derived, tasks: Collection[Task]) -> dict[Task, dict[str, Any]]:
    """What to ask about one event, by task; nothing about most of them.

    A summary is asked for when the text is longer than one.
    """
    event, text = derived.event, derived.text
    if derived.statement is not None or text.kind is not EventKind.MESSAGE or not text.spoken:
        return {}
    if canonical_name(text.speaker or "") in _INSTRUCTING:
        return {}
    conversation = _conversation(text)
    requests: dict[Task, dict[str, Any]] = {}
    if "summary" in tasks and len(conversation) > SUMMARY_CHARACTERS:
        requests["summary"] = {"text": conversation, "speaker": text.speaker or event.agent_id}
    if "extraction" in tasks and len(conversation) >= MIN_CHARACTERS:
        speaker = speaker_party(event, text, derived.mentions)
        called = None if speaker is None else _called(event, text, speaker)
        requests["extraction"] = {"text": conversation, "speaker": called}
    return requests


def _called(event: Event, text: EventText, speaker: Party) -> str:
    """What a model may call the speaker: the name under which the words are said, if it is one."""
    name = text.speaker or event.agent_id
    return speaker.name if canonical_name(name) in (USERS | VOICELESS) else name


def derived_with_model(derived: Derived, answers: Mapping[Task, Mapping[str, Any]]) -> Derived:
    """The event with what the model said of it.

    Args:
        derived: by the rules, before the vectors of names are added.
        answers: validated, by task; a task without an answer is left out.
    """
    summary, extraction = answers.get("summary"), answers.get("extraction")
    if summary is not None:
        who = derived.text.speaker or derived.event.agent_id
        line = cut(f"{who}: {summary['summary']}", SUMMARY_CHARACTERS)
        derived = derived._replace(summary=line)
    if extraction is not None:
        merged = _merged_mentions(derived.mentions, extraction["entities"])
        speaker = speaker_party(derived.event, derived.text, derived.mentions)
        parties = _parties(merged)
        if speaker is not None:
            called = _called(derived.event, derived.text, speaker)
            parties |= dict.fromkeys((canonical_name(called), speaker.canonical_name), speaker)
        derived = derived._replace(
            mentions=tuple(merged[:MAX_MENTIONS]),
            assertions=tuple(_merged_facts(derived, extraction["edges"], parties)),
        )
    return derived


def _conversation(text: EventText) -> str:
    """What is said in a message: language, without code."""
    spoken = "\n".join(text.text[start:end] for start, end in language_spans(text))
    spoken = _FIELD.sub("", _FENCED.sub(" ", spoken)).strip()
    return "" if spoken.startswith(("{", "[{")) else spoken


def _merged_mentions(
    mentions: Iterable[Mention], entities: Iterable[Mapping[str, str]]
) -> list[Mention]:
    """The rules' mentions and the model's, the most trusted first, beyond the limit.

    A name that the rules have a type for keeps it; the model may say more finely what a concept
    is. Its names come before what the rules are least sure of: bare noun phrases, amounts, dates.
    """
    merged = list(mentions)
    places = {mention.canonical_name: place for place, mention in reversed(list(enumerate(merged)))}
    new: list[Mention] = []
    for entity in entities:
        entity_type, subtype = SUBTYPES[entity["type"]]
        canonical = canonical_name(entity["name"])
        place = places.get(canonical)
        if place is None:
            exact = any(letter.isdigit() for letter in canonical)
            person = subtype == "person"
            new.append(
                Mention(
                    name=entity["name"],
                    canonical_name=canonical,
                    entity_type=entity_type,
                    subtype=None if subtype == entity_type else subtype,
                    role="participant" if person else "object",
                    exact=exact,
                )
            )
        elif _is_phrase(merged[place]) and entity_type == "concept" and subtype != "concept":
            merged[place] = merged[place]._replace(subtype=subtype)
    weak = [mention for mention in merged if _is_weak(mention)]
    return [*(mention for mention in merged if not _is_weak(mention)), *new, *weak]


def _is_phrase(mention: Mention) -> bool:
    return mention.entity_type == "concept" and mention.subtype is None and not mention.exact


def _is_weak(mention: Mention) -> bool:
    return _is_phrase(mention) or mention.subtype in _WEAK


def _parties(mentions: Iterable[Mention]) -> dict[str, Party]:
    """Who a name in an answer is; those of the envelope win."""
    parties: dict[str, Party] = {}
    for mention in sorted(
        mentions, key=lambda mention: mention.entity_type not in ("agent", "user")
    ):
        parties.setdefault(mention.canonical_name, party_of(mention))
    return parties


def _merged_facts(
    derived: Derived, edges: Iterable[Mapping[str, Any]], parties: Mapping[str, Party]
) -> list[Assertion]:
    """The rules' facts, then the model's that are others, at most MAX_FACTS.

    What a model says of somebody's health, religion, orientation, politics or ethnicity is refused.
    """
    event = derived.event
    facts = list(derived.assertions)
    stated = {_key(assertion) for assertion in facts}
    for edge in edges:
        source = parties.get(canonical_name(edge["source"]))
        target = parties.get(canonical_name(edge["target"]))
        if source is None or target is None or len(facts) >= MAX_FACTS:
            continue
        relation = edge["relation"]
        words = f"{source.name} {relation} {target.name} {edge['fact'] or ''}".replace("_", " ")
        if is_protected(words) and (_is_somebody(source) or _is_somebody(target)):
            continue
        confidence = min(MAX_CONFIDENCE, round(edge["confidence"] * WHOLE_CONFIDENCE))
        assertion = Assertion(
            tenant=event.tenant,
            source=source,
            relation=relation,
            edge_type=edge["edge_type"],
            target=target,
            valid_from_ms=event.occurred_at_ms,
            valid_to_ms=None,
            confidence=confidence,
            fact=edge["fact"] or fact_in_words(source, relation, target),
            source_kind="conversation",
            status="staged",
            user_id=event.user_id,
            event_id=event.event_id,
            ordinal=len(facts),
            position_ms=derived.position.ms,
            functional=is_functional(relation),
        )
        if assertion.source_id != assertion.target_id and _key(assertion) not in stated:
            stated.add(_key(assertion))
            facts.append(assertion)
    return facts


def _is_somebody(party: Party) -> bool:
    return party.entity_type == "user" or party.subtype == "person"


def _key(assertion: Assertion) -> tuple[str, str, str, str]:
    return (assertion.source_id, assertion.relation, assertion.target_id, assertion.edge_type)


def with_answers(
    model: AnswersTogether, events: Sequence[Derived]
) -> tuple[list[Derived], frozenset[EventKey]]:
    """What events say, with what the model adds; asked together, a batch at a time.

    Returns:
        The events, and the keys of those for which an answer is missing: what a graph holds of
        them is right with and without it.

    Raises:
        Stopped: the model was closed meanwhile.
    """
    tasks = [questions(derived, model.tasks) for derived in events]
    answers = iter(model.answers([item for by_task in tasks for item in by_task.items()]))
    given = [{task: next(answers) for task in by_task} for by_task in tasks]
    return (
        [
            derived_with_model(
                derived, {task: answer for task, answer in by_task.items() if answer}
            )
            for derived, by_task in zip(events, given, strict=True)
        ],
        frozenset(
            derived.event.key
            for derived, by_task in zip(events, given, strict=True)
            if None in by_task.values()
        ),
    )


def same_by_model(
    model: AnswersTogether, candidates: Iterable[Candidate]
) -> dict[tuple[str, str], bool]:
    """The model's word on the cases that the rules leave open, for `resolution.same_as`.

    A case without an answer is missing: the two stay apart.

    Raises:
        Stopped: the model was closed meanwhile.
    """
    cases = [candidate for candidate in candidates if judge(candidate).verdict == "ask"]
    answers = model.answers([("disambiguation", question(case)) for case in cases])
    return {
        case.entity_ids: is_same(answer)
        for case, answer in zip(cases, answers, strict=True)
        if answer is not None
    }
