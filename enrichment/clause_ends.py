"""Parties of a fact at the ends of a clause: names, titles, plain noun phrases. Pure.

An end counts only when it can be told: of "people who help", or "his three dogs", nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from enrichment.dependencies import Sentences
from enrichment.facts import Mention, Party, named, party_of
from enrichment.names import LABELS, MIN_NAME_CHARACTERS, EntityType, canonical_name
from enrichment.people import NAME_PARTS, People, party_named
from enrichment.vocabulary import (
    ASIDE,
    EMPTY_NOUNS,
    HOUSEHOLD,
    KEPT,
    LIGHT_VERBS,
    NO_NAMES,
    PLACES,
    PRAISE,
    Kind,
)

MAX_PHRASE_TOKENS = 4
WHERE = ("at", "for", "in", "with")
"""Prepositions behind a role: "as a nurse at Acme"."""
_UNKNOWN: tuple[EntityType, str | None] = ("concept", None)


class Ends:
    """The ends of the clauses of one text.

    Args:
        sentences: of the text.
        people: whom it speaks of.
        speaker: who says it; None: nobody that is known.
        mentions: what is mentioned, by the normal form of its name.
    """

    def __init__(
        self,
        sentences: Sentences,
        people: People,
        speaker: Party | None,
        mentions: Mapping[str, Mention],
    ) -> None:
        self.sentences = sentences
        self.tokens = sentences.tokens
        self.people = people
        self.speaker = speaker
        self.mentions = mentions

    def targets(self, end: int, kind: Kind) -> Iterator[Party]:
        """The end and what is coordinated with it, as long as each can be told."""
        target = self._end(end, kind)
        if target is None:
            return  # "the freedom and connection it brings": what holds for one holds for all
        yield target
        for child in self.sentences.below(end, "conj"):
            yield from self.targets(child, kind)

    def gerund(self, index: int) -> bool:
        """Whether a token is written as a gerund."""
        return self.tokens[index].text.lower().endswith("ing")

    def subject(self, index: int, *, things: bool) -> Party | None:
        """Whom or, with `things`, what a clause is about; None: it cannot be told."""
        if self.sentences.word(index) == "i":
            return self.speaker if not self.sentences.below(index, "conj") else None
        head = self.tokens[self.tokens[index].head]
        if self.sentences.word(index) == "we" and head.lemma in HOUSEHOLD:
            return self.speaker
        if (meant := self.people.meant(index)) is not None:
            return meant
        beside = self.sentences.below(index, "appos")
        if len(beside) == 1 and beside[0] in self.people.kin:
            return self.people.name(beside[0])
        if self.sentences.below(index, "conj", "appos", "relcl"):
            return None  # "Anna and I": each, or both together?
        after = index + 1
        if after < len(self.tokens) and self.tokens[after].text == ",":
            return None  # somebody is addressed: "Anna, love that"
        return self.name(index) or (self.phrase(index) if things else None)

    def _end(self, index: int, kind: Kind) -> Party | None:
        if kind in ("name", "any") and (title := self._title(index)) is not None:
            return title
        label = self.sentences.label(index)
        if kind == "home":
            return self._home(index)
        name = self.name(index)
        if kind == "place":
            return name if label in PLACES else self._way(index)
        if kind == "person":
            return name if label == "PERSON" else None
        if kind == "name":
            return name
        if kind == "any" and name is not None:
            return name
        if kind == "kept" and self.tokens[index].lemma not in KEPT:
            return None
        return self.phrase(index)

    def _whole(self, index: int) -> Party | None:
        """A name of several words, one of which hangs on another by a preposition."""
        span = self.sentences.span(index)
        inside = [
            child
            for child in self.sentences.below(index, "prep")
            if self.sentences.span(child) == span
        ]
        if span is None or not inside or len(inside) < len(self.sentences.below(index, "prep")):
            return None
        if self.sentences.below(index, "poss", "relcl") or span.label not in LABELS:
            return None
        text = self.sentences.text[span.start : span.end].strip()
        mention = self.mentions.get(canonical_name(text))
        return party_of(mention, text) if mention is not None else named(text, *LABELS[span.label])

    def _title(self, index: int) -> Party | None:
        """What is called by a title: "Dune", "a novel called "The Name of the Wind""."""
        title = self.sentences.titles.get(index)
        for called in self.sentences.below(index, "acl"):
            for end in self.sentences.below(called, "oprd"):
                title = title or self.sentences.titles.get(end)
        return None if title is None else party_named(self.mentions, title)

    def _home(self, index: int) -> Party | None:
        """A place that one lives in: a name, whatever the recogniser takes it for."""
        name, text = self.name(index), self.tokens[index].text
        plain = self.tokens[index].pos == "PROPN" and not self.sentences.children[index]
        written = text[:1].isupper() and len(text) >= MIN_NAME_CHARACTERS
        if name is not None or not (plain and written) or self.sentences.label(index):
            return name
        return named(text, *LABELS["GPE"]) if index and self._is_preposition(index - 1) else None

    def _way(self, index: int) -> Party | None:
        """The other end of a way from or to a place: "from Lisbon to Faro"."""
        prep = self.tokens[index].head
        ways = {
            self.sentences.word(way): self.sentences.below(way, "pobj")
            for way in self.sentences.below(self.tokens[prep].head, "prep")
        }
        ends = [end for word in ("from", "to") for end in ways.get(word, ())]
        is_way = any(self.sentences.label(end) in PLACES for end in ends)
        is_other = is_way and index in ends and not self.sentences.label(index)
        return self._home(index) if is_other else None

    def _is_preposition(self, index: int) -> bool:
        return self.tokens[index].pos == "ADP"

    def name(self, index: int) -> Party | None:
        """The name that a token is the head of."""
        token = self.tokens[index]
        label = self.sentences.label(index)
        if token.pos != "PROPN" or label in NO_NAMES or not token.text[:1].isupper():
            return None
        if (whole := self._whole(index)) is not None:
            return whole
        below = [self.tokens[child].relation for child in self.sentences.children[index]]
        if "poss" in below or "prep" in below or "relcl" in below:
            return None  # "Acme's office", "University of Oslo": not this name alone
        parts = [index, *self.sentences.below(index, *NAME_PARTS)]
        first = min(parts)
        if any(self.tokens[i].relation not in ("compound", "flat") for i in range(first, index)):
            return None
        last = index
        while last + 1 < len(self.tokens) and self.tokens[last + 1].pos == "NUM":
            last += 1  # "The Witcher 3"
        if last + 1 < len(self.tokens) and self.tokens[last + 1].pos == "PROPN":
            return None  # a part of a longer name
        text = self.sentences.between(first, last)
        mention = self.mentions.get(canonical_name(text))
        if mention is not None:
            return party_of(mention, text)
        if not label or len(text) < MIN_NAME_CHARACTERS:
            return None
        entity_type, subtype = LABELS.get(label, _UNKNOWN)
        return named(text, entity_type, subtype)

    def phrase(self, index: int, *, praised: bool = False) -> Party | None:
        """The plain noun phrase, or activity, that a token is the head of.

        `praised`: words of praise are left out, "a great city" is a city.
        """
        token = self.tokens[index]
        word = self.sentences.word(index)
        if token.pos == "VERB":
            return self._activity(index)
        small = token.pos == "PROPN" and token.text.islower()  # "allergic to latex"
        is_noun = token.pos == "NOUN" or small
        if not is_noun or self._is_joined(index) or {word, token.lemma} & EMPTY_NOUNS:
            return None
        first = self._phrase_start(index, praised)
        if first is None or index - first + 1 > MAX_PHRASE_TOKENS:
            return None
        while self._is_joined(first - 2):
            first -= 2
        text = self.sentences.between(first, index)
        if len(text) < MIN_NAME_CHARACTERS or not text.replace(" ", "").replace("-", "").isalnum():
            return None
        mention = self.mentions.get(canonical_name(text))
        if mention is not None:
            return party_of(mention, text)
        return named(text, "concept")

    def _is_joined(self, index: int) -> bool:
        """Whether a hyphen joins a token to the next, "e-mail", whatever the parser makes of it."""
        if not 0 <= index < len(self.tokens) - 2:
            return False
        part, hyphen, after = self.tokens[index : index + 3]
        ends = (part.start + len(part.text), hyphen.start + 1)
        return hyphen.text == "-" and ends == (hyphen.start, after.start)

    def _phrase_start(self, index: int, praised: bool) -> int | None:
        """The first token of a plain phrase; None: something narrows it down."""
        first = index
        for child in self.sentences.children[index]:
            relation, low = self.tokens[child].relation, self.sentences.word(child)
            if relation in ("compound", "amod"):
                if low in PRAISE and praised:
                    continue
                if low in PRAISE or self.sentences.children[child]:
                    return None
                first = min(first, child)
            elif relation == "det" and low in ("a", "an"):
                continue
            elif relation == "prep" and low in WHERE and self._is_role(index):
                continue  # "as a nurse at Acme" works at Acme, whatever the parser hangs it on
            elif relation not in ("cc", "conj", "punct", "preconj"):
                return None  # of, who, my, this, three
        return first

    def _is_role(self, index: int) -> bool:
        """Whether a noun is what somebody is or works as: "as a nurse"."""
        return self.sentences.word(self.tokens[index].head) == "as"

    def _activity(self, index: int) -> Party | None:
        """A gerund or infinitive with its plain object: "playing guitar", "to travel"."""
        token = self.tokens[index]
        gerund, last = self.gerund(index), index
        infinitive = not gerund and token.text.lower() == token.lemma
        if not (gerund or infinitive) or len(token.text) < MIN_NAME_CHARACTERS:
            return None
        for child in self.sentences.children[index]:
            relation = self.tokens[child].relation
            if relation == "dobj":
                plain = {self.tokens[c].relation for c in self.sentences.children[child]}
                if plain - {"amod", "compound", "cc", "conj", "punct"} or (
                    self.tokens[child].pos != "NOUN" or self.sentences.word(child) in EMPTY_NOUNS
                ):
                    return None
                last = child
            elif relation == "aux":
                if self.sentences.word(child) != "to" or not infinitive:
                    return None
            elif (
                relation in ("neg", "auxpass", "xcomp", "ccomp", "acomp", "attr", "prt", "nsubj")
                or child < index
                or (relation == "prep" and not self._aside(child, index, last))
            ):
                return None
        if last == index and self._light(index):
            return None
        if any(self.tokens[place].pos == "PUNCT" for place in range(index, last)):
            return None
        text = self.sentences.between(index, last)
        return named(text[:1].lower() + text[1:], "concept")

    def _aside(self, prep: int, verb: int, last: int) -> bool:
        """Whether the phrase can be left out: where and with whom, not "escaping *to*".

        By what somebody does it ("relax by reading") is what they like.
        """
        if any(self.tokens[child].pos == "VERB" for child in self.sentences.children[prep]):
            return False
        return self.sentences.word(prep) in ASIDE and (last > verb or not self._light(verb))

    def _light(self, index: int) -> bool:
        return self.tokens[index].lemma in LIGHT_VERBS
