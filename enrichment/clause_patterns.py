"""The tables of `clauses`: which verb says which relation, and words that spoil a statement.

`PATTERNS` has a row for a verb's lemma with its object, or with a preposition and what follows it.
States (works_at, likes ...) are read in the present tense only: "worked at" says that it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from enrichment.words import word_set

Kind = Literal["name", "place", "person", "phrase", "kept", "any"]


class Pattern(NamedTuple):
    """How a verb says a relation.

    Attributes:
        relation: that it says.
        target: what the object must be: a name (of a place, of a person), a plain noun phrase, one
            of KEPT, or a name or phrase.
        state: it holds until further notice, so only the present tense says it.
        reverse: the object is the source.
        things: the subject may be a plain noun phrase too.
    """

    relation: str
    target: Kind = "name"
    state: bool = False
    reverse: bool = False
    things: bool = False


OBJECT = ""
BY = "by"

PATTERNS: Final[Mapping[tuple[str, str], Pattern]] = {
    ("work", "at"): Pattern("works_at", state=True),
    ("work", "for"): Pattern("works_at", state=True),
    ("work", "as"): Pattern("works_as", "phrase", state=True),
    ("work", "on"): Pattern("works_on", state=True),
    ("live", "in"): Pattern("lives_in", "place", state=True),
    ("reside", "in"): Pattern("lives_in", "place", state=True),
    ("be", "from"): Pattern("comes_from", "place", state=True),
    ("come", "from"): Pattern("comes_from", "place", state=True),
    ("move", "to"): Pattern("moved_to", "place"),
    ("prefer", OBJECT): Pattern("prefers", "any", state=True),
    ("like", OBJECT): Pattern("likes", "any", state=True),
    ("love", OBJECT): Pattern("likes", "any", state=True),
    ("enjoy", OBJECT): Pattern("likes", "any", state=True),
    ("dislike", OBJECT): Pattern("dislikes", "any", state=True),
    ("hate", OBJECT): Pattern("dislikes", "any", state=True),
    ("use", OBJECT): Pattern("uses", "any", state=True, things=True),
    ("know", OBJECT): Pattern("knows", "person", state=True),
    ("play", OBJECT): Pattern("plays", "any", state=True),
    ("speak", OBJECT): Pattern("speaks", state=True),
    ("teach", OBJECT): Pattern("teaches", "phrase", state=True),
    ("manage", OBJECT): Pattern("manages", state=True),
    ("lead", OBJECT): Pattern("leads", state=True),
    ("own", OBJECT): Pattern("owns", state=True),
    ("depend", "on"): Pattern("depends_on", state=True, things=True),
    ("rely", "on"): Pattern("depends_on", state=True, things=True),
    ("found", OBJECT): Pattern("founded"),
    ("create", OBJECT): Pattern("created"),
    ("write", OBJECT): Pattern("wrote"),
    ("develop", OBJECT): Pattern("developed"),
    ("marry", OBJECT): Pattern("married_to", "person"),
    ("visit", OBJECT): Pattern("visited", "place"),
    ("travel", "to"): Pattern("visited", "place"),
    ("go", "to"): Pattern("visited", "place"),
    ("be", "to"): Pattern("visited", "place"),
    ("be", "into"): Pattern("likes", "any", state=True),
    ("participate", "in"): Pattern("participated_in", "any"),
    ("collaborate", "with"): Pattern("collaborated_with", "any"),
    ("apply", "to"): Pattern("applied_to", "any"),
    ("build", OBJECT): Pattern("built", "any"),
    ("mentor", OBJECT): Pattern("mentors", "any", state=True),
    ("join", OBJECT): Pattern("joined", "any"),
    ("attend", OBJECT): Pattern("attended", "any"),
    ("adopt", OBJECT): Pattern("adopted", "any"),
    ("buy", OBJECT): Pattern("bought", "any"),
    ("win", OBJECT): Pattern("won", "any"),
    ("read", OBJECT): Pattern("read"),
    ("watch", OBJECT): Pattern("watched"),
    ("meet", OBJECT): Pattern("met", "person"),
    ("start", OBJECT): Pattern("started", "any"),
    ("paint", OBJECT): Pattern("painted", "any"),
    ("have", OBJECT): Pattern("has", "kept", state=True),
    ("study", OBJECT): Pattern("studies", "phrase", state=True),
    ("collect", OBJECT): Pattern("collects", "phrase", state=True),
    ("volunteer", "at"): Pattern("volunteers_at", "any", state=True),
    ("study", "at"): Pattern("studied_at"),
    ("graduate", "from"): Pattern("graduated_from"),
    ("belong", "to"): Pattern("belongs_to", state=True, things=True),
    ("cause", OBJECT): Pattern("caused", "any", things=True),
    ("cause", BY): Pattern("caused", "any", reverse=True, things=True),
    ("trigger", OBJECT): Pattern("triggered", "any", things=True),
    ("trigger", BY): Pattern("triggered", "any", reverse=True, things=True),
    ("lead", "to"): Pattern("led_to", "any", things=True),
    ("result", "in"): Pattern("resulted_in", "any", things=True),
    ("follow", OBJECT): Pattern("followed_by", reverse=True),
    ("precede", OBJECT): Pattern("preceded_by", reverse=True),
    ("happen", "during"): Pattern("happened_during", things=True),
}

ADJECTIVES: Final[Mapping[tuple[str, str], Pattern]] = {
    ("interested", "in"): Pattern("interested_in", "any", state=True),
    ("allergic", "to"): Pattern("allergic_to", "any", state=True),
    ("passionate", "about"): Pattern("likes", "any", state=True),
    ("dependent", "on"): Pattern("depends_on", "any", state=True, things=True),
}
"""What follows a form of "be": "I am allergic to nuts"."""
FAN = Pattern("likes", "any", state=True)
"""I am a (big) fan of …"""

KEPT: Final = word_set(
    "dog cat puppy kitten horse parrot son daughter brother sister wife husband fiance "
    "fiancee girlfriend boyfriend partner cousin uncle aunt niece nephew mother father mom "
    "dad grandmother grandfather grandma grandpa boss manager doctor therapist colleague "
    "roommate neighbor neighbour car house garden allergy degree"
)
"""Whom and what one has in a lasting way: "my dog Max" says `has_dog Max` wherever it stands."""
DOING = word_set("likes dislikes started prefers")
"""Relations whose object may be an activity."""

MODALS = word_set(
    "would could might may should will shall can must 'd 'll \u2019d \u2019ll wo ca ought"
)
NEGATIONS = word_set("not n't n\u2019t never no hardly barely neither nor without")
HEDGES = word_set("maybe perhaps possibly probably supposedly allegedly almost nearly")
CONDITIONS = word_set("if whether unless suppose supposing imagine wish")
QUOTES = frozenset('"“”«»')
PRESENT_BE = word_set("am is are 'm 's 're \u2019m \u2019s \u2019re")
PLACES = frozenset(("GPE", "LOC", "FAC"))
NO_NAMES = frozenset(
    ("DATE", "TIME", "CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY", "LANGUAGE")
)
USERS = word_set("user customer human client")
VOICELESS = word_set("assistant system developer tool function agent bot")
# Nouns that say nothing by themselves, and praise: "a star", "the best thing".
EMPTY_NOUNS = word_set(
    "thing things stuff lot lots kind sort type bit way ways idea one ones time times day "
    "days week weeks part piece place places people person everyone everything something "
    "anything someone nothing fact point reason case fun change fan star gem hero inspiration "
    "blessing genius legend rock dream must joy treat delight challenge pleasure shame beauty "
    "mess friend lifesaver reminder difference number couple bunch step chance vibe vibes "
    "feeling feelings experience moment view views look sense example problem issue success "
    "hit while"
)
ASIDE = word_set("with in on at during after before by")
# Verbs that say little without what follows them: "I love going …", "I like to take …".
LIGHT_VERBS = word_set(
    "go be do have get make see take spend try look use give keep help let start come know "
    "say think feel find want put become show tell hear talk bring watch"
)
PRAISE = word_set(
    "great good amazing big huge awesome lovely real true best wonderful fantastic nice cool "
    "perfect beautiful such same other new own different special bad terrible more many much "
    "few super incredible total complete little"
)
