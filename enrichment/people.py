"""What sentences tell of people by who they are to whom: names, ages, what lasts of them.

"My sister Elena", "our cat Pepper", "Jonas's father Herman", "my mother is here. Lucia." say who
somebody is to whom; "she's 13" and "I'm vegan" what they are. *She* and *he* are somebody whom the
same text has named, and only if it is one alone that they can be: a text that speaks of two names
nobody for sure, and what another message named is not looked for.

What touches health, faith and the like is told of who says it, and of nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from enrichment.dependencies import Sentences
from enrichment.facts import Mention, Party, literal, named, party_of
from enrichment.grounded import is_protected
from enrichment.names import MIN_NAME_CHARACTERS, canonical_name
from enrichment.vocabulary import KEPT, relation_name, word_set

Triple = tuple[Party, str, Party]

NAME_PARTS: Final = ("compound", "nmod", "nummod", "flat")
OWNED: Final = word_set("my our")
_SHE: Final = word_set("she her")
_HE: Final = word_set("he his him")
_WOMEN: Final = word_set(
    "daughter sister wife fiancee girlfriend aunt niece mother mom grandmother grandma landlady"
)
_MEN: Final = word_set(
    "son brother husband fiance boyfriend uncle nephew father dad grandfather grandpa landlord"
)
_THINGS: Final = word_set("car house garden allergy degree")
_NEAR: Final = word_set("little younger older elder youngest oldest big best new")
"""What may stand before whom one has, without saying that it is no more."""
_LASTING: Final = word_set(
    "vegan vegetarian pescatarian diabetic asthmatic celiac coeliac dyslexic autistic colorblind "
    "colourblind deaf blind lactose-intolerant pregnant single married engaged divorced widowed "
    "retired unemployed self-employed freelance left-handed bilingual trilingual"
)
"""States that last; how somebody feels or fares does not."""
_ITS: Final = word_set("his her its their")
_CALLED: Final = word_set("name call")
_GETTING: Final = word_set("have get adopt own")
_SAID_OF: Final = ("nsubj", "nsubjpass", "dobj", "pobj", "appos", "poss", "attr", "conj", "oprd")
"""How a name stands in a sentence that speaks of somebody, and not to them."""
_OLDEST: Final = 115


class People:
    """Of one text."""

    def __init__(
        self, sentences: Sentences, speaker: Party | None, mentions: Mapping[str, Mention]
    ) -> None:
        self.sentences = sentences
        self.tokens = sentences.tokens
        self.speaker = speaker
        self.mentions = mentions
        self.kin = {
            name: (owner, noun)
            for owner, noun, name in (
                *self._beside(),
                *self._called(),
                *self._behind(),
                *self._told_apart(),
            )
        }

    def who_is_who(self, first: int, last: int) -> Iterator[Triple]:
        """Whom somebody has, of one sentence: said in passing, and so even in a question."""
        for name, (owner, noun) in sorted(self.kin.items()):
            source = self.owner(owner) if first <= name < last else None
            relation = relation_name(f"has_{self.tokens[noun].lemma}")
            party = self.name(name)
            if source is not None and party is not None and relation is not None:
                yield source, relation, party

    def owner(self, index: int) -> Party | None:
        """Whose somebody is: "my", "our", "Jonas's", "her" of whom the text has named."""
        word = self.sentences.word(index)
        if word in OWNED or word in ("i", "we"):
            return self.speaker
        if self.tokens[index].pos == "PROPN" and self.sentences.label(index) == "PERSON":
            return self.name(index)
        return self.meant(index)

    def meant(self, index: int) -> Party | None:
        """Whom "she" or "he" means; None: nobody else is named, or several are."""
        word = self.sentences.word(index)
        if word not in _SHE | _HE:
            return None
        others, opposite = (_MEN, _SHE) if word in _SHE else (_WOMEN, _HE)
        places: dict[str, int] = {}
        for place in range(index):
            if self.sentences.word(place) in opposite or self._is_unnamed(place):
                return None  # there is somebody else that is spoken of
            if self._is_spoken_of(place):
                places[self.tokens[place].text.lower()] = place
        if len(places) != 1:
            return None
        (place,) = places.values()
        noun = self.kin[place][1] if place in self.kin else None
        if noun is not None and self.tokens[noun].lemma in others:
            return None
        return self.name(place)

    def name(self, index: int) -> Party | None:
        """The name of somebody, as it stands beside who they are: often in no recogniser's list."""
        token = self.tokens[index]
        if not token.text[:1].isupper() or len(token.text) < MIN_NAME_CHARACTERS:
            return None
        mention = self.mentions.get(canonical_name(token.text))
        if mention is not None:
            return Party(token.text, *mention[1:4], mention.exact)
        return named(token.text, "concept", "person" if self.sentences.label(index) else None)

    def states(self, verb: int, subject: int, who: Party) -> Iterator[Triple]:
        """What lasts of somebody: "I'm 34", "she's 13 years old", "I'm vegan", "I'm Ana Berg"."""
        for end in self.sentences.below(verb, "attr", "acomp"):
            token = self.tokens[end]
            age = self._age(end)
            mine = self.sentences.word(subject) == "i"
            value = literal(token.text)
            if age is not None:
                yield who, "has_age", age
            elif self.sentences.word(end) in _LASTING and value is not None:
                if (mine or not is_protected(token.text)) and not self.sentences.children[end]:
                    yield who, "is_currently", value
            elif mine and token.pos == "PROPN" and self.sentences.label(end) == "PERSON":
                yield from self._introduced(end, who)

    def turns(self, verb: int, who: Party) -> Iterator[Triple]:
        """On which day somebody becomes how old: "turns 40 on December 2nd"."""
        if self.tokens[verb].lemma != "turn" or not any(
            self.tokens[child].pos == "NUM" for child in self.sentences.below(verb, "dobj")
        ):
            return
        for prep in self.sentences.below(verb, "prep"):
            for day in self.sentences.below(prep, "pobj"):
                places = [day, *self._all_below(day)]
                text = self.sentences.between(min(places), max(places))
                date = literal(text.removeprefix("the "))
                is_date = self.sentences.label(day) == "DATE" and any(map(str.isdigit, text))
                if self.sentences.word(prep) == "on" and is_date and date is not None:
                    yield who, "has_birthday", date

    def contracted(self, first: int, last: int) -> Iterator[Triple]:
        """As in "Luc's a teacher": no owner stands before an article, so it is a verb."""
        for index in range(first, last - 3):
            article, noun = index + 2, self.tokens[index + 2].head
            if self.tokens[index].pos != "PROPN" or self.sentences.word(index + 1) != "'s":
                continue
            if self.sentences.word(article) not in ("a", "an") or not article < noun < last:
                continue
            plain = {self.tokens[child].relation for child in self.sentences.children[noun]}
            who = self.name(index)
            kind = named(self.sentences.between(article + 1, noun), "concept")
            parts = plain <= {"det", "poss", "compound", "punct", "nsubj", "advcl", "cop"}
            if self.tokens[noun].pos == "NOUN" and parts and who is not None and kind is not None:
                yield who, "is_a", kind

    def _introduced(self, end: int, who: Party) -> Iterator[Triple]:
        """As in "I'm Ana Berg, 34": both names, and how old."""
        parts = [end, *self.sentences.below(end, *NAME_PARTS)]
        name = literal(self.sentences.between(min(parts), end))
        if len(parts) > 1 and name is not None:
            yield who, "has_name", name
        for beside in self.sentences.below(end, "appos"):
            age = self._age(beside)
            if age is not None:
                yield who, "has_age", age

    def _age(self, end: int) -> Party | None:
        """A number alone, or of years: "34", "34 years old"."""
        token, number = self.tokens[end], end
        if token.lemma == "old":
            years = [c for c in self.sentences.below(end, "npadvmod") if self._is_years(c)]
            numbers = [n for year in years for n in self.sentences.below(year, "nummod")]
            if len(numbers) != 1:
                return None
            (number,) = numbers
        elif self.sentences.children[end] and not self._only_punctuation(end):
            return None
        text = self.tokens[number].text
        if self.tokens[number].pos != "NUM" or not text.isdigit() or not 0 < int(text) <= _OLDEST:
            return None
        return literal(text)

    def _is_years(self, index: int) -> bool:
        return self.tokens[index].lemma == "year"

    def _only_punctuation(self, index: int) -> bool:
        return all(self.tokens[child].pos == "PUNCT" for child in self.sentences.children[index])

    def _all_below(self, index: int) -> Iterator[int]:
        for child in self.sentences.children[index]:
            if self.tokens[child].relation in ("advcl", "relcl", "conj", "cc"):
                continue
            if self.tokens[child].pos != "PUNCT":
                yield child
                yield from self._all_below(child)

    # -- who is named ------------------------------------------------------------------------------

    def _beside(self) -> Iterator[tuple[int, int, int]]:
        """Finds owner, noun and name side by side: "my little sister Anna", "my dog, Max"."""
        for noun, token in enumerate(self.tokens[:-1]):
            owners = self.sentences.below(noun, "poss")
            if token.lemma not in KEPT or not owners or not self._is_plain(noun, owners[0]):
                continue
            name = noun + 1
            comma = self.sentences.word(name) == ","
            name += comma
            if name >= len(self.tokens):
                continue
            following = self.tokens[name]
            together = following.head == noun or (token.head == name and not comma)
            apart = following.relation in ("nsubj", "npadvmod", "conj")
            if comma and following.relation != "appos":
                continue
            if together and not apart and following.pos == "PROPN":
                yield owners[0], noun, name

    def _is_plain(self, noun: int, owner: int) -> bool:
        """Whether nothing but how near they are stands between."""
        between = {self.sentences.word(place) for place in range(owner + 1, noun)}
        return between <= _NEAR | {"'s", "\u2019s"} and owner < noun

    def _called(self) -> Iterator[tuple[int, int, int]]:
        """As in "we got another cat named Bailey", "my sister is called Anna"."""
        for verb, token in enumerate(self.tokens):
            if token.lemma not in _CALLED or self.sentences.word(verb) not in ("named", "called"):
                continue
            names = [n for n in self.sentences.below(verb, "oprd") if self.tokens[n].pos == "PROPN"]
            noun = token.head if token.relation == "acl" else None
            if noun is None:
                noun = next(iter(self.sentences.below(verb, "nsubjpass")), None)
            if len(names) != 1 or noun is None or self.tokens[noun].lemma not in KEPT:
                continue
            owners = self.sentences.below(noun, "poss")
            if owners and self._is_plain(noun, owners[0]):
                yield owners[0], noun, names[0]
            elif not owners and (subject := self._getting(noun)) is not None:
                yield subject, noun, names[0]

    def _getting(self, noun: int) -> int | None:
        """Who has what is called so: "I have a dog named Max"."""
        head = self.tokens[noun].head
        if self.tokens[noun].relation != "dobj" or self.tokens[head].lemma not in _GETTING:
            return None
        subjects = self.sentences.below(head, "nsubj", "nsubjpass")
        mine = [subject for subject in subjects if self.sentences.word(subject) in ("i", "we")]
        return mine[0] if mine and not self.sentences.below(head, "neg") else None

    def _behind(self) -> Iterator[tuple[int, int, int]]:
        """A name that opens the next sentence: "my mother is visiting. Lucia. She lands …"."""
        for (first, last), (begin, end) in zip(
            self.sentences.bounds, self.sentences.bounds[1:], strict=False
        ):
            nouns = [place for place in range(first, last) if self._is_unnamed_in(place, last)]
            if len(nouns) != 1 or self.tokens[begin].pos != "PROPN" or begin + 1 >= end:
                continue
            noun, after = nouns[0], self.sentences.word(begin + 1)
            word = self.sentences.word(begin + 2) if begin + 2 < end else ""
            lemma = self.tokens[noun].lemma
            goes_on = after == "," and word in (_HE | _SHE)
            fits = not ((word in _HE and lemma in _WOMEN) or (word in _SHE and lemma in _MEN))
            alone = after == "." and end == begin + 2
            if (alone or goes_on) and fits:
                yield self.sentences.below(noun, "poss")[0], noun, begin

    def _told_apart(self) -> Iterator[tuple[int, int, int]]:
        """As in "I got a puppy. Her name is Shadow!": whose name it is was said before."""
        for subject, token in enumerate(self.tokens):
            its = self.sentences.words_below(subject, "poss")
            if token.lemma != "name" or token.relation != "nsubj" or not its & _ITS:
                continue
            names = self.sentences.below(token.head, "attr")
            had = [
                (owner, noun) for noun in range(subject) if (owner := self._had(noun)) is not None
            ]
            if len(had) == 1 and len(names) == 1 and self.tokens[names[0]].pos == "PROPN":
                yield *had[0], names[0]

    def _had(self, noun: int) -> int | None:
        """Who has somebody whose name is not said beside it."""
        token = self.tokens[noun]
        if token.lemma not in KEPT - _THINGS or token.text.lower() != token.lemma:
            return None
        owners = self.sentences.below(noun, "poss")
        if owners:
            mine = self.sentences.word(owners[0]) in OWNED and self._is_plain(noun, owners[0])
            return owners[0] if mine else None
        return self._getting(noun)

    def _is_unnamed_in(self, noun: int, last: int) -> bool:
        """Whether somebody of the speaker's is spoken of without a name, in a sentence."""
        token = self.tokens[noun]
        owners = self.sentences.below(noun, "poss")
        lasting = KEPT - _THINGS
        if token.lemma not in lasting or token.text.lower() != token.lemma or not owners:
            return False
        if self.sentences.word(owners[0]) not in OWNED or not self._is_plain(noun, owners[0]):
            return False
        return not any(
            self.tokens[place].pos == "PROPN" for place in range(noun, min(noun + 3, last))
        )

    def _is_unnamed(self, place: int) -> bool:
        """Whether it is somebody whom one has, and who has no name in this text."""
        token = self.tokens[place]
        if token.lemma not in KEPT - _THINGS or token.pos != "NOUN":
            return False
        return all(noun != place for _, noun in self.kin.values())

    def _is_spoken_of(self, place: int) -> bool:
        """Whether it is the name of a person whom the sentence tells of."""
        token = self.tokens[place]
        if token.pos != "PROPN" or not token.text[:1].isupper():
            return False
        if place in self.kin:
            return True
        label = self.sentences.label(place)
        if label != "PERSON" or token.relation not in _SAID_OF:
            return False
        canonical = canonical_name(token.text)
        return self.speaker is None or canonical != self.speaker.canonical_name


def party_named(mentions: Mapping[str, Mention], title: str) -> Party | None:
    """What is called by a title."""
    mention = mentions.get(canonical_name(title))
    return party_of(mention, title) if mention is not None else named(title, "concept", "work")
