"""Facts that plain sentences state, found by dependency patterns.

Precision is worth more than recall: a fact that nobody said is worse than one that was missed. So
a clause counts only when it asserts: not in a question, under a negation, a modal (would, might,
will …), a condition, or as the object of another verb ("I think that", "I hope to"); and only when
both ends can be told: a name, the speaker as "I", and for some relations a plain noun phrase
("hiking", "dark mode") without anything that narrows it down ("people who help").

`vocabulary` has the table of verbs and relations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from enrichment.clause_ends import WHERE, Ends
from enrichment.dependencies import Sentences
from enrichment.facts import Assertion, Mention, Party, literal, named, party_of
from enrichment.names import MAX_FACTS, EntityType, canonical_name
from enrichment.people import NAME_PARTS, People
from enrichment.persons import speaks_as_user, spoken_fact
from enrichment.ports import Analysis, EventText
from enrichment.vocabulary import (
    ADJECTIVES,
    ATTRIBUTES,
    BEST,
    BY,
    CANNOT,
    CONDITIONS,
    DOES,
    DOING,
    EMPLOYERS,
    EMPTY_NOUNS,
    FAN,
    FAVOURITE,
    GENERIC_NOUNS,
    HEDGES,
    LIKES,
    LONG,
    LONG_AGO,
    MINE,
    MODALS,
    NEGATIONS,
    OBJECT,
    PATTERNS,
    PERFECT,
    PRESENT_BE,
    REFUSED,
    STAYING,
    STILL,
    USERS,
    VOICELESS,
    Pattern,
    is_functional,
    person_relation,
    relation_name,
)
from projections.events import Event

TEXT_CONFIDENCE = 8_000
PHRASE_CONFIDENCE = 7_000
"""When an end is a noun phrase, not a name."""
_MAX_VALUE_CHARACTERS = 60


class _Clause(NamedTuple):
    verb: int
    subject: int


def text_facts(
    event: Event,
    text: EventText,
    analysis: Analysis,
    mentions: Sequence[Mention],
    *,
    position_ms: int,
) -> list[Assertion]:
    """Facts that the sentences of a message or a text state, in their order, at most 20.

    Args:
        event: that says them.
        text: of the event.
        analysis: of that text.
        mentions: of the event; an end of a fact that is one of them is that entity.
        position_ms: when the ledger took the event in.
    """
    if not text.spoken:
        return []
    sentences = Sentences(text.text, analysis)
    reader = _Reader(sentences, speaker_party(event, text, mentions), _by_name(mentions))
    triples: dict[tuple[Party, str, Party], None] = {}
    for first, last in sentences.bounds:
        for fact in reader.facts(first, last):
            triples.setdefault(fact)
    return [
        spoken_fact(
            event,
            source,
            relation,
            target,
            position_ms=position_ms,
            confidence=PHRASE_CONFIDENCE if _is_phrase(source, target) else TEXT_CONFIDENCE,
            functional=is_functional(relation, _is_single(relation, target)),
            ordinal=index,
        )
        for index, (source, relation, target) in enumerate(list(triples)[:MAX_FACTS])
    ]


def _is_single(relation: str, target: Party) -> bool:
    """Whether one has one of that kind: a favourite, and what is a number or has one in it."""
    is_number = any(map(str.isdigit, target.name))
    return relation.startswith("has_favorite_") or (relation.startswith("has_") and is_number)


def _is_phrase(*parties: Party) -> bool:
    return any(party.entity_type == "concept" and party.subtype is None for party in parties)


def _by_name(mentions: Sequence[Mention]) -> dict[str, Mention]:
    """Mentions by name; the speakers of the envelope come last and win."""
    order = sorted(mentions, key=lambda m: m.entity_type in ("agent", "user"))
    return {mention.canonical_name: mention for mention in order}


def speaker_party(event: Event, text: EventText, mentions: Sequence[Mention]) -> Party | None:
    """Whom "I" means: None for an assistant, whose I is a manner of speaking.

    Who speaks as the event's user is that user, whatever the agent is called.
    """
    if event.user_id is not None and speaks_as_user(event, text.kind):
        return named(event.user_id, "user", exact=True)
    name = text.speaker or event.agent_id
    canonical = canonical_name(name)
    if canonical in VOICELESS:
        return None
    entity_type: EntityType = "agent"
    if canonical in USERS:
        if event.user_id is None:
            return None
        name, entity_type = event.user_id, "user"
        canonical = canonical_name(name)
    for mention in mentions:
        if mention.canonical_name == canonical and mention.entity_type in ("agent", "user"):
            return party_of(mention, name)
    return named(name, entity_type)


class _Reader:
    """Facts of one text."""

    def __init__(
        self, sentences: Sentences, speaker: Party | None, mentions: Mapping[str, Mention]
    ) -> None:
        self.sentences = sentences
        self.tokens = sentences.tokens
        self.speaker = speaker
        self.mentions = mentions
        self.people = People(sentences, speaker, mentions)
        self.ends = Ends(sentences, self.people, speaker, mentions)

    def facts(self, first: int, last: int) -> Iterator[tuple[Party, str, Party]]:
        """The facts of one sentence, its tokens given."""
        if self.sentences.quotes(first, last):
            return
        yield from self.people.who_is_who(first, last)
        words = {self.sentences.word(index) for index in range(first, last)}
        is_asked = "?" in words
        if not is_asked:
            yield from self.people.contracted(first, last)
        for verb in range(first, last):
            if self.tokens[verb].pos not in ("VERB", "AUX"):
                continue
            if is_asked and not self._before_question(verb):
                continue
            yield from self._called(verb)
            yield from self._favourites(verb)
            clause = self._clause(verb)
            if clause is None:
                continue
            yield from self._refused(clause)
            if self._asserted(clause):
                yield from self._stated(clause)
                yield from self._kinds(clause)
                yield from self._attributes(clause)
                yield from self._lasting(clause)
                yield from self._former(clause)

    def _before_question(self, verb: int) -> bool:
        """Whether a clause stands before the question alone: "I hate calls, could you write?"."""
        token = self.tokens[verb]
        if token.relation != "ccomp" or not verb < token.head or not self._comma(verb):
            return False
        subjects = self.sentences.below(token.head, "nsubj")
        auxiliaries = self.sentences.below(token.head, "aux")
        mine = self.sentences.words_below(verb, "nsubj") == {"i"}
        return mine and bool(subjects and auxiliaries) and verb < auxiliaries[0] < subjects[0]

    def _clause(self, verb: int) -> _Clause | None:
        """The verb with its subject, which a coordinated verb shares with the first."""
        at = verb
        while True:
            subjects = self.sentences.below(at, "nsubj", "nsubjpass")
            if len(subjects) == 1 or (subjects and self._is_before(subjects[-1], at)):
                return _Clause(verb, subjects[-1])
            if subjects or self.tokens[at].relation != "conj" or self.tokens[at].head == at:
                return None
            at = self.tokens[at].head

    def _is_before(self, subject: int, verb: int) -> bool:
        """Whether a comma parts a subject from what stands in front: "trains, I avoid flying"."""
        return subject + 1 == verb and subject > 0 and self.sentences.word(subject - 1) == ","

    def _asserted(self, clause: _Clause) -> bool:
        """Whether the clause says that something is so."""
        at = clause.verb
        between = range(clause.subject + 1, clause.verb)
        if any(self.sentences.word(index) in MODALS for index in between):
            return False  # whatever the parser makes of it: a typographic "I'd" is punctuation
        shares = True
        while True:
            token = self.tokens[at]
            for child in self.sentences.children[at]:
                word, relation = self.sentences.word(child), self.tokens[child].relation
                words = {word, *map(self.sentences.word, self.sentences.below(child, "neg", "det"))}
                if relation not in ("advmod", "neg"):
                    words = {word}  # "no longer" negates the clause, "has no tail" only the tail
                if shares and (words & (NEGATIONS | HEDGES) or relation == "neg"):
                    return False
                if shares and word in MODALS and relation in ("aux", "auxpass"):
                    return False
                if word in CONDITIONS or (relation == "aux" and word in ("did", "do", "does")):
                    return False
            if token.relation == "ROOT" or token.head == at:
                return token.lemma not in CONDITIONS
            if token.relation not in ("conj", "parataxis") and not self._goes_on(at):
                return False
            # what has a subject of its own shares no "not" and no "could": "I can't, I swell up"
            shares = shares and not self.sentences.below(at, "nsubj", "nsubjpass")
            at = token.head

    def _goes_on(self, verb: int) -> bool:
        """Whether a clause below another asserts all the same: because …, that's why …, run-ons."""
        token = self.tokens[verb]
        marks = {self.sentences.word(child) for child in self.sentences.below(verb, "mark")}
        adverbs = {self.sentences.word(child) for child in self.sentences.below(verb, "advmod")}
        if token.relation in ("advcl", "ccomp") and "why" in adverbs:
            return self.tokens[token.head].lemma == "be"
        if token.relation == "advcl":
            return bool(marks) and marks <= {"because", "since", "as"}
        # run-on sentences are parsed as "I work at Acme" being the object of what follows it
        return token.relation == "ccomp" and not marks and verb < token.head and self._comma(verb)

    def _comma(self, verb: int) -> bool:
        head = self.tokens[verb].head
        between = (self.sentences.word(index) for index in range(verb, head))
        return any(word in (",", ";", "-", "\u2013", "…", "...", "!") for word in between)

    def _present(self, verb: int) -> bool:
        token = self.tokens[verb]
        word = token.text.lower()
        auxiliaries = self.sentences.words_below(verb, "aux", "auxpass")
        if auxiliaries & PERFECT and (word == "got" or self._until_now(verb)):
            return True
        if word.endswith("ing"):
            return bool(auxiliaries & PRESENT_BE)
        if auxiliaries:
            return False
        if token.lemma == "be":
            return word in PRESENT_BE
        return word == token.lemma or word.endswith("s")

    def _until_now(self, verb: int) -> bool:
        """Whether it is said since when: "I've worked here since 2019", "for two years"."""
        for prep in self.sentences.below(verb, "prep"):
            ends = self.sentences.below(prep, "pobj")
            word = self.sentences.word(prep)
            if word == "since" and any(self.tokens[end].pos == "NUM" for end in ends):
                return True
            if word == "for" and any(self.tokens[end].lemma in LONG for end in ends):
                return True
        return False

    def _lasting(self, clause: _Clause) -> Iterator[tuple[Party, str, Party]]:
        """What people are, and when they were born."""
        who = self.ends.subject(clause.subject, things=False)
        if who is None or not self._present(clause.verb):
            return
        if self.tokens[clause.verb].lemma == "be":
            yield from self.people.states(clause.verb, clause.subject, who)
        yield from self.people.turns(clause.verb, who)

    def _refused(self, clause: _Clause) -> Iterator[tuple[Party, str, Party]]:
        """What one does not take or bear: "I can't eat almonds", "he can't stand coriander"."""
        verb = clause.verb
        relation = REFUSED.get(self.tokens[verb].lemma)
        helping = self.sentences.words_below(verb, "aux")
        if relation is None or not self.sentences.below(verb, "neg"):
            return
        who = self.ends.subject(clause.subject, things=False)
        # what who speaks does not want is a wish, and told as such
        wished = who == self.speaker and not helping & CANNOT
        if who is None or wished or not helping or not helping <= CANNOT | DOES:
            return
        if self.sentences.below(verb, "advcl", "mark") or (helping & DOES and relation != "avoids"):
            return
        for end in self.sentences.below(verb, "dobj"):
            for target in self.ends.targets(end, "any"):
                yield who, relation, target

    def _employs(self, place: int) -> bool:
        return self.sentences.label(place) == "ORG" or self.tokens[place].lemma in EMPLOYERS

    def _stated(self, clause: _Clause) -> Iterator[tuple[Party, str, Party]]:
        """Facts of the verb's table rows."""
        verb = clause.verb
        passive = bool(self.sentences.below(verb, "auxpass", "nsubjpass"))
        for pattern, via, end in self._rows(verb, passive):
            if pattern is None or not self._happens(verb, pattern, via, passive):
                continue
            subject = self.ends.subject(clause.subject, things=pattern.things)
            activity = self.tokens[end].pos == "VERB"
            if subject is None or (activity and (pattern.relation not in DOING or via)):
                continue
            for target in self.ends.targets(end, pattern.target):
                if target.canonical_name == subject.canonical_name:
                    continue
                if pattern.reverse:
                    yield target, pattern.relation, subject
                else:
                    yield subject, pattern.relation, target
                if pattern.relation == "moved_to" and self._lately(verb):
                    yield subject, "lives_in", target

    def _lately(self, verb: int) -> bool:
        """Whether nothing says that it was long ago: a year, "when I was ten"."""
        words = {
            self.sentences.word(place)
            for place in range(len(self.tokens))
            if self._under(place, verb)
        }
        return words.isdisjoint(LONG_AGO) and not any(w.isdigit() and len(w) == 4 for w in words)

    def _under(self, place: int, verb: int) -> bool:
        while place != verb and self.tokens[place].head != place:
            place = self.tokens[place].head
        return place == verb

    def _rows(self, verb: int, passive: bool) -> list[tuple[Pattern | None, str, int]]:
        """What the tables say of a verb with each of its ends: (row, preposition, end)."""
        lemma = self.tokens[verb].lemma
        if lemma == "get" and self.sentences.words_below(verb, "aux") & PERFECT:
            lemma = "have"  # "I've got a dog"
        ends: list[tuple[str, int]] = []
        if not passive:
            ends += [(OBJECT, child) for child in self.sentences.below(verb, "dobj", "xcomp")]
        ends += self._after(verb)
        under_way = self.tokens[verb].text.lower() if self.ends.gerund(verb) else lemma
        rows = [
            (PATTERNS.get((under_way, via)) or PATTERNS.get((lemma, via)), via, end)
            for via, end in ends
        ]
        if lemma == "be":
            if self.sentences.words_below(verb, "aux") & PERFECT and self._until_now(verb):
                rows += [(STAYING, via, end) for via, end in ends if via == "in"]
            for adjective in self.sentences.below(verb, "acomp"):
                word = self.sentences.word(adjective)
                rows += [(ADJECTIVES.get((word, v)), v, e) for v, e in self._after(adjective)]
            for noun in self.sentences.below(verb, "attr"):
                if self.sentences.word(noun) in ("fan", "lover"):
                    rows += [(FAN, via, e) for via, e in self._after(noun) if via == "of"]
        return rows

    def _happens(self, verb: int, pattern: Pattern, via: str, passive: bool) -> bool:
        """Whether the verb's form says that it is so: "I'm moving to" is a plan, or under way."""
        if passive and via != BY:
            return pattern.passive
        if pattern.passive:
            return False
        if pattern.state:
            return self._present(verb)
        return via == BY or not self.tokens[verb].text.lower().endswith("ing")

    def _after(self, index: int) -> list[tuple[str, int]]:
        """(preposition, what follows it) of what hangs on a token."""
        ends = [
            (self.sentences.word(prep), child)
            for prep in self.sentences.below(index, "prep", "agent")
            for child in self.sentences.below(prep, "pobj", "pcomp")
        ]
        roles = [child for word, child in ends if word == "as"]
        return ends + [(word, end) for role in roles for word, end in self._after(role)]

    def _kinds(self, clause: _Clause) -> Iterator[tuple[Party, str, Party]]:
        """What something is, and what it is part of: "X is a Y", "X is part of Y"."""
        verb = clause.verb
        if self.tokens[verb].lemma != "be" or not self._present(verb):
            return
        for attribute in self.sentences.below(verb, "attr"):
            subject = self.ends.subject(clause.subject, things=False)
            if subject is None:
                return
            if self.sentences.word(attribute) == "part":
                for prep in self.sentences.below(attribute, "prep"):
                    for end in self.sentences.below(prep, "pobj"):
                        whole = self.ends.name(end) if self.sentences.word(prep) == "of" else None
                        if whole is not None:
                            yield subject, "part_of", whole
                continue
            articles = {self.sentences.word(c) for c in self.sentences.below(attribute, "det")}
            kind = self.ends.phrase(attribute, praised=True) if articles & {"a", "an"} else None
            if kind is not None:
                yield subject, "is_a", kind
            role = self._role(attribute) if articles == {"the"} else None
            if role is not None and subject != self.speaker:
                yield subject, "works_as", role

    def _role(self, noun: int) -> Party | None:
        """What one alone is in a group: "Agnes is the project lead"."""
        parts = self.sentences.below(noun, "compound")
        plain = {self.tokens[child].relation for child in self.sentences.children[noun]}
        if not parts or self.tokens[noun].pos != "NOUN" or not plain <= {"det", "compound"}:
            return None
        if (
            self.tokens[noun].lemma in EMPTY_NOUNS
            or self.tokens[noun].text != self.tokens[noun].lemma
        ):
            return None
        return named(self.sentences.between(min(parts), noun), "concept")

    def _former(self, clause: _Clause) -> Iterator[tuple[Party, str, Party]]:
        """What somebody was somewhere: "I was a data engineer at a railway company"."""
        if self.sentences.word(clause.verb) != "was" or self.sentences.below(clause.verb, "aux"):
            return
        who = self.ends.subject(clause.subject, things=False)
        for end in self.sentences.below(clause.verb, "attr"):
            where = [place for via, place in self._after(end) if via in WHERE]
            nouns = [end, *self.sentences.below(end, "compound")]
            kinds = {self.tokens[child].relation for child in self.sentences.children[end]}
            plain = kinds <= {"det", "compound", "prep", "punct"}
            if who is None or not plain or not any(map(self._employs, where)):
                continue
            work = named(self.sentences.between(min(nouns), end), "concept")
            if {"a", "an"} & self.sentences.words_below(end, "det") and work is not None:
                yield who, "worked_as", work

    def _attributes(self, clause: _Clause) -> Iterator[tuple[Party, str, Party]]:
        """What one has, and who is what to one: "my address is X", "X is our accountant"."""
        if self.speaker is None or self.tokens[clause.verb].lemma != "be":
            return
        if not self._present(clause.verb):
            return
        for end in self.sentences.below(clause.verb, "attr", "acomp"):
            noun = self._mine(end)
            who = self.ends.name(clause.subject) if noun is not None else None
            if noun is not None and who is not None and clause.subject < clause.verb:
                yield self.speaker, f"has_{noun}", who
            noun = self._mine(clause.subject)
            value = self._value(end, favourite="favorite_" in (noun or "")) if noun else None
            if noun is not None and value is not None:
                yield self.speaker, person_relation(f"has_{noun}"), value

    def _favourites(self, verb: int) -> Iterator[tuple[Party, str, Party]]:
        """What somebody likes best: "drawing flowers is one of my faves", "teal is my favorite"."""
        if self.speaker is None or self.tokens[verb].lemma != "be" or not self._present(verb):
            return
        subjects = self.sentences.below(verb, "nsubj", "csubj")
        if len(subjects) != 1 or subjects[0] > verb or self.sentences.below(verb, "neg"):
            return
        if self.tokens[verb].relation not in ("ROOT", "conj", "parataxis"):
            return
        for end in self.sentences.below(verb, "attr"):
            nouns = [noun for via, noun in self._after(end) if via == "of"]
            several = self.sentences.word(end) == "one" and len(nouns) == 1
            if not self._is_favourite(nouns[0] if several else end, several=several):
                continue
            for target in self.ends.targets(subjects[0], "any"):
                yield self.speaker, LIKES, target

    def _is_favourite(self, noun: int, *, several: bool) -> bool:
        """Whether it is what the speaker likes best, told by that word alone or of several."""
        if self.sentences.words_below(noun, "poss") != {"my"}:
            return False
        alone = self.tokens[noun].lemma in BEST
        return alone or (several and bool(self.sentences.words_below(noun, "amod") & FAVOURITE))

    def _mine(self, index: int) -> str | None:
        """The noun of what is the speaker's, as it stands in a relation: `favorite_color`."""
        token = self.tokens[index]
        owner = self.sentences.below(index, "poss")
        if token.pos != "NOUN" or len(owner) != 1 or token.text.lower() != token.lemma:
            return None
        named_one = token.lemma == "name" and self._mine(owner[0])
        if named_one:
            return named_one  # "my dog's name is"
        if self.sentences.word(owner[0]) not in MINE:
            return None
        if token.lemma in EMPTY_NOUNS | GENERIC_NOUNS and token.lemma not in ATTRIBUTES:
            return None
        words = []
        for child in self.sentences.children[index]:
            relation, word = self.tokens[child].relation, self.sentences.word(child)
            if relation == "amod" and word in FAVOURITE:
                words.append("favorite")
            elif relation == "compound":
                words.append(word)
            elif relation not in ("poss", "amod", "case", "punct") or (
                relation == "amod" and word not in STILL
            ):
                return None
        return relation_name("_".join([*words, token.lemma]))

    def _value(self, end: int, *, favourite: bool) -> Party | None:
        """What an attribute is: a name, a number or an address, to the end of what hangs on it."""
        token = self.tokens[end]
        places = [place for place in range(end, len(self.tokens)) if self._hangs_on(place, end)]
        first = min([end, *self.sentences.below(end, *NAME_PARTS)])
        text = self.sentences.between(first, places[-1] if places else end).strip(" .!,")
        telling = token.pos in ("PROPN", "NUM", "X") or any(map(str.isdigit, text)) or "@" in text
        if len(text) > _MAX_VALUE_CHARACTERS or not (telling or favourite):
            return None
        if not telling and (len(places) > 1 or token.pos not in ("NOUN", "ADJ")):
            return None
        name = self.ends.name(end) if token.pos == "PROPN" and len(places) < 2 else None
        return name or literal(text)

    def _hangs_on(self, place: int, end: int) -> bool:
        """Whether a token belongs to what another one is the head of."""
        at = place
        while at != end:
            token = self.tokens[at]
            if token.head == at or token.relation in ("cc", "conj", "relcl", "advmod", "prep"):
                return False
            at = token.head
        return True

    def _called(self, verb: int) -> Iterator[tuple[Party, str, Party]]:
        """How one wants to be called: "call me Ana"."""
        if self.tokens[verb].lemma != "call" or self.speaker is None:
            return
        objects = [self.sentences.word(child) for child in self.sentences.below(verb, "dobj")]
        if objects != ["me"] or self.sentences.below(verb, "nsubj", "neg", "aux"):
            return
        for end in self.sentences.below(verb, "oprd"):
            name = literal(self.tokens[end].text) if self.tokens[end].pos == "PROPN" else None
            if name is not None:
                yield self.speaker, "called", name
