"""The tables of Stage 2: words that say little, relations of facts, and the verbs that say them.

The words are English; another language simply loses the filter, nothing else.

`PATTERNS` has a row for a verb's lemma with its object, or with a preposition and what follows it.
States (works_at, likes ...) are read in the present tense only: "worked at" says that it ended.

A relation has a normal form, a view it belongs to, and holds one value at a time or many. S2 names
four edge types and a few relations of each. A relation in the table brings its edge type and
whether it is functional: a functional relation has at most one target at any moment (a person lives
in one place), so that another target ends what was said before. A relation outside the table is
semantic and not functional, unless what states it says otherwise; about a relation in the table
nobody can say otherwise, or what a fact means would depend on who said it first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Between the words of camelCase."""
UNINFLECTED = ("ss", "us", "is")
"""Ends of words whose last `s` is no plural's."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def singular(word: str) -> str:
    """An English noun without its plural's ending: `addresses`, `cities` and `seats`."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(UNINFLECTED) else word


STOP_WORDS = word_set(
    """
    a about above actually after again all almost already also although always am an and another
    any anybody anyone anything anyway are aren't around as ask at away back be became because
    become been before being below between both but by came can can't cannot come could couldn't
    definitely did didn't do does doesn't doing don't done down during each either else ever every
    everyone everything few for from further gave get gets getting give given go goes going gone
    gonna got had hadn't has hasn't have haven't having he her here hers herself hey hi him himself
    his how however i i'd i'll i'm i've if in instead into is isn't it it's its itself just keep
    kept kind know known knows last least let let's like liked likely likes little look looking lot
    made make makes making many may maybe me mean means might mine more most much must my myself
    need needs neither never next no none nor not nothing now of off oh ok okay on once one ones
    only onto or other others our ours ourselves out over own per perhaps please pretty put quite
    rather really said same saw say saying says see seem seen several shall she should shouldn't
    since so some somebody someone something sometimes somewhere soon still such sure take taken
    takes tell than thank thanks that that's the their theirs them themselves then there there's
    these they they're thing things think this those though through thus till to together told too
    took toward towards tried try trying two under unless until up upon us use used using usually
    very via want wanted wants was wasn't way ways we we'd we'll we're we've well went were weren't
    what what's whatever when where which while who whom whose why will with within without won't
    wonder would wouldn't wow yeah yep yes yet you you'd you'll you're you've your yours yourself
    """
)

WRITE_VERBS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(
        word_set(
            "set update change modify edit patch put replace reset switch save write remember "
            "configure adjust assign reassign select choose enable disable move rename relocate "
            "upsert correct amend upgrade downgrade reschedule reroute swap create add append "
            "insert subscribe enroll apply attach revise alter rewrite overwrite retag relabel "
            "allocate reallocate rebook renew extend transfer enrol appoint designate nominate "
            "elect"
        ),
        True,
    ),
    **dict.fromkeys(
        word_set("book register reserve schedule open store record admit park pin"), False
    ),
}
"""Words of a tool's name that say that it writes; false: only the first word does (an order book
is read)."""
READ_VERBS = word_set(
    "ask browse calculate check compare count describe download explain export fetch find get grep "
    "inspect is list load lookup ls peek preview query read retrieve search show think validate "
    "verify view wait"
)
MOVING_VERBS = word_set("move relocate transfer park put reroute")
"""What they name last is where it is then."""
MAKING_VERBS = word_set("create add append insert book reserve record register open")
"""What they name is new: their other arguments say something of that, not of whom it is for."""
ADDING_VERBS = word_set(
    "add append insert assign allocate subscribe enroll enrol attach book reserve"
)
"""What they write stands beside what was there."""
TAKING_VERBS = word_set(
    "remove delete unsubscribe revoke cancel detach drop clear unassign unset unlink unenroll "
    "disconnect withdraw strip"
)
"""What they name of something is so no longer: `remove_label(issue_id, label)`."""
VALUE_VERBS = word_set(
    "set add assign reassign allocate reallocate select choose switch apply attach put appoint "
    "designate nominate elect"
)
"""Their noun is what is set: `set_carrier(order_id, carrier_id)` is about the order."""

CHANGING_VERBS = word_set(
    "set update change modify edit patch put replace write adjust correct amend revise alter"
)
"""What they write is so from then on, sums as well: `amend_mandate(donor, amount)`."""

GREETINGS = word_set(
    """
    absolutely agreed ah aha alright awesome aww bye cheers congrats congratulations cool exactly
    nah wanna
    fine glad good goodbye great haha hello hey hi hmm hooray lol lovely luck morning nice night no
    nope ok okay oops perfect phew right sorry sounds sure thank thanks ugh understood welcome whoa
    woah wonderful woohoo wow yay yeah yep yes yikes yo you yup
    """
)
"""What a turn without content is made of."""

GENERIC_NOUNS = word_set(
    """
    ability advice afternoon aim amount anyone anything area aspect assistance attempt attention
    bit bunch case chance change chat choice confirmation conversation couple course day days deal
    decision detail details difference difficulty effort end evening event example experience fact
    feeling feelings folk folks following friday friend friends fun future glimpse goal guy guys
    half hand heads-up help hope hour hours id idea ids image images info information inquiry issue
    item job journey kid kids kind life list look lot love luck man manner matter method methods
    mind minute minutes moment moments monday month months morning name need needs news night
    number one ones option options order part past patience people perspective photo photos pic
    pics picture pictures place places plan plans plenty point possibility problem process question
    questions range reason reasons request requests rest result results right row saturday second
    seconds sense set shot side situation size someone something sort spot stage start state step
    steps story stuff sunday support talk term terms thing things thought thoughts thursday time
    times today tomorrow tonight top touch trip try tuesday turn type understanding use value
    variety version view way ways wednesday week weekend weeks while woman word words work world
    year years yesterday
    """
)
"""Heads of noun phrases that name nothing by themselves."""

PLAIN_ACRONYMS = word_set(
    """
    am api asap bst cest cet dms dob edt est eta etc eur faq fyi gbp gmt html http https id ids
    json lol mst nan null ok omg pdf pdt pm pst sms tbd todo url usd utc xml yaml
    """
)
"""Capitals that name nothing: zones, formats, currencies."""

VAGUE_ADJECTIVES = word_set(
    """
    able additional amazing another available awesome bad beautiful best better big breathtaking
    brief certain close cool crazy current cute different difficult early easy eligible entire
    exact exciting extra fantastic favorite favourite few final fine first following former free
    fresh full fun further future general good gorgeous great happy hard huge important incredible
    inspiring interesting key kind large last late later latest least less little long long-lasting
    lovely low main major many minor more most much necessary new next nice old only original other
    overall own past perfect positive possible previous proud quick quite ready real recent
    relevant remaining same second several short similar simple single small solid special specific
    strong stunning such super sure sweet total tough true typical unique upcoming useful usual
    valuable various whole wonderful worth wrong young
    """
)
"""Adjectives that are left off the front of a noun phrase."""


Kind = Literal["name", "place", "home", "person", "phrase", "kept", "any"]


class Pattern(NamedTuple):
    """How a verb says a relation.

    Attributes:
        relation: that it says.
        target: what the object must be: a name (of a place, of where one lives, of a person), a
            plain noun phrase, one of KEPT, or a name or phrase.
        state: it holds until further notice, so only the present tense says it.
        reverse: the object is the source.
        things: the subject may be a plain noun phrase too.
        passive: the verb says it in the passive voice.
    """

    relation: str
    target: Kind = "name"
    state: bool = False
    reverse: bool = False
    things: bool = False
    passive: bool = False


OBJECT = ""
BY = "by"

LIKES: Final = "likes"
PATTERNS: Final[Mapping[tuple[str, str], Pattern]] = {
    ("work", "at"): Pattern("works_at", state=True),
    ("work", "for"): Pattern("works_at", state=True),
    ("work", "as"): Pattern("works_as", "phrase", state=True),
    ("work", "on"): Pattern("works_on", state=True),
    ("live", "in"): Pattern("lives_in", "home", state=True),
    ("live", "at"): Pattern("has_address", "place", state=True),
    ("reside", "in"): Pattern("lives_in", "home", state=True),
    ("bear", "in"): Pattern("born_in", "home", passive=True),
    ("raise", "in"): Pattern("grew_up_in", "place", passive=True),
    ("grow", "in"): Pattern("grew_up_in", "place"),
    ("name", "after"): Pattern("named_after", "any", passive=True),
    ("be", "from"): Pattern("comes_from", "place", state=True),
    ("come", "from"): Pattern("comes_from", "place", state=True),
    ("move", "to"): Pattern("moved_to", "place"),
    ("prefer", OBJECT): Pattern("prefers", "any", state=True),
    ("like", OBJECT): Pattern(LIKES, "any", state=True),
    ("love", OBJECT): Pattern(LIKES, "any", state=True),
    ("enjoy", OBJECT): Pattern(LIKES, "any", state=True),
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
    ("be", "into"): Pattern(LIKES, "any", state=True),
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
    ("reading", OBJECT): Pattern("reads", state=True),
    ("recommend", OBJECT): Pattern("recommended"),
    ("avoid", OBJECT): Pattern("avoids", "any", state=True),
    ("drive", OBJECT): Pattern("drives", "any", state=True),
    ("sing", OBJECT): Pattern("sings", "phrase", state=True),
    ("report", "to"): Pattern("reports_to", state=True),
    ("obsess", "with"): Pattern(LIKES, "any", passive=True),
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
    ("passionate", "about"): Pattern(LIKES, "any", state=True),
    ("fond", "of"): Pattern(LIKES, "any", state=True),
    ("obsessed", "with"): Pattern(LIKES, "any", state=True),
    ("afraid", "of"): Pattern("afraid_of", "any", state=True),
    ("scared", "of"): Pattern("afraid_of", "any", state=True),
    ("terrified", "of"): Pattern("afraid_of", "any", state=True),
    ("married", "to"): Pattern("married_to", "person", state=True),
    ("dependent", "on"): Pattern("depends_on", "any", state=True, things=True),
}
"""What follows a form of "be": "I am allergic to nuts"."""
STAYING: Final = Pattern("lives_in", "home", state=True)
"""What it is to have been in a place since a year, or for years."""
FAN = Pattern(LIKES, "any", state=True)
"""I am a (big) fan of …"""

KEPT: Final = word_set(
    "dog cat puppy pup kitten kitty horse parrot son daughter brother sister wife husband fiance "
    "fiancee girlfriend boyfriend partner cousin uncle aunt niece nephew mother father mom "
    "dad grandmother grandfather grandma grandpa boss manager doctor therapist colleague "
    "roommate neighbor neighbour car house garden allergy degree friend flatmate housemate "
    "classmate teammate supervisor teacher tutor coach dentist lawyer vet landlord landlady mentor "
    "rabbit hamster pony tortoise stepson stepdaughter"
)
"""Whom and what one has in a lasting way: "my dog Max" says `has_dog Max` wherever it stands."""
MINE = word_set("my our")
STILL = word_set(
    "new current present full real home first favorite favourite preferred work office"
)
"""What may stand before a noun that one has, without saying that it is no more."""
FAVOURITE = word_set("favorite favourite preferred fave")
BEST = word_set("favorite favourite fave")
"""What one likes best, as a noun."""
ATTRIBUTES = word_set("name number birthday address email phone")
"""What one tells of oneself in general terms, though these say little by themselves."""
EMPLOYERS = word_set(
    "company firm agency bank school hospital startup university office shop store factory lab "
    "clinic restaurant newspaper college library"
)
"""For whom one works, where no name says it."""
LONG_AGO = word_set("ago when then originally back before once after")
HOUSEHOLD = word_set("live move reside love enjoy have get")
"""What "we" do is done by who speaks, too."""
DOING = word_set("likes dislikes started prefers avoids afraid_of")
"""Relations whose object may be an activity."""

MODALS = word_set(
    "would could might may should will shall can must 'd 'll \u2019d \u2019ll wo ca ought"
)
NEGATIONS = word_set("not n't n\u2019t never no hardly barely neither nor without")
HEDGES = word_set("maybe perhaps possibly probably supposedly allegedly almost nearly")
CONDITIONS = word_set("if whether unless suppose supposing imagine wish")
PERFECT = word_set("have has 've \u2019ve")
LONG = word_set("year years month months")
"""What one has done something for, that has not ended."""
REFUSED: Final = {"eat": "avoids", "drink": "avoids", "stand": "dislikes", "bear": "dislikes"}
"""What one does not, or cannot: "he doesn't eat pork", "I can't stand noise"."""
CANNOT = word_set("ca can cannot could")
DOES = word_set("do does")
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
    "hit while classic"
)
ASIDE = word_set("with in on at during after before by")
# Verbs that say little without what follows them: "I love going …", "I like to take …".
LIGHT_VERBS = word_set(
    "go be do have get make see take spend try look use give keep help let start come know "
    "say think feel find want put become show tell hear talk bring watch play share"
)
PRAISE = word_set(
    "great good amazing big huge awesome lovely real true best wonderful fantastic nice cool "
    "perfect beautiful such same other new own different special bad terrible more many much "
    "few super incredible total complete little"
)


EdgeType = Literal["semantic", "temporal", "causal", "entity"]
EDGE_TYPES: Final[tuple[str, ...]] = get_args(EdgeType)
"""Lower case only (S2): `Semantic` is an error."""

MAX_RELATION_CHARACTERS = 64

_BETWEEN = re.compile(r"[\s\-_./]+")
_RELATION = re.compile(rf"[a-z][a-z0-9_]{{0,{MAX_RELATION_CHARACTERS - 1}}}")


class Relation(NamedTuple):
    """One row of the table."""

    edge_type: EdgeType
    functional: bool = False


_SEMANTIC = (
    # S2
    "uses knows prefers depends_on works_on "
    # from text
    "likes dislikes owns speaks plays teaches manages leads founded created wrote developed "
    "studied_at graduated_from works_as visited moved_to comes_from belongs_to married_to "
    "has started painted joined attended adopted bought won read watched met studies collects "
    "volunteers_at interested_in allergic_to participated_in collaborated_with applied_to built "
    "mentors avoids born_in grew_up_in named_after reads recommended drives sings reports_to "
    "afraid_of is_currently worked_as"
)
_TEMPORAL = "preceded_by followed_by happened_during"
_CAUSAL = "caused triggered resulted_in led_to"
_ENTITY = "is_a part_of instance_of alias_of"
_FUNCTIONAL = (
    "lives_in works_at located_in has_status has_state has_email has_name has_title has_phone "
    "has_address has_owner has_user has_version has_price has_membership has_priority has_type "
    "called has_birthday has_age"
)

RELATIONS: Final[dict[str, Relation]] = {
    **dict.fromkeys(_SEMANTIC.split(), Relation("semantic")),
    **dict.fromkeys(_TEMPORAL.split(), Relation("temporal")),
    **dict.fromkeys(_CAUSAL.split(), Relation("causal")),
    **dict.fromkeys(_ENTITY.split(), Relation("entity")),
    **dict.fromkeys(_FUNCTIONAL.split(), Relation("semantic", functional=True)),
}


SAME_RELATION: Final[Mapping[str, str]] = {
    **dict.fromkeys(word_set("has_city has_home_city has_city_name has_residence"), "lives_in"),
    **dict.fromkeys(word_set("has_employer has_company has_company_name"), "works_at"),
    **dict.fromkeys(word_set("has_occupation has_job has_job_title has_profession"), "works_as"),
    **dict.fromkeys(
        word_set("has_email_address has_mail has_e_mail has_mail_address has_contact_email"),
        "has_email",
    ),
    **dict.fromkeys(
        word_set(
            "has_phone_number has_telephone has_mobile has_telephone_number has_mobile_number"
        ),
        "has_phone",
    ),
    **dict.fromkeys(word_set("has_full_name has_display_name has_legal_name"), "has_name"),
    **dict.fromkeys(word_set("has_nickname has_preferred_name has_nick_name"), "called"),
    **dict.fromkeys(word_set("has_home_address has_postal_address"), "has_address"),
    **dict.fromkeys(word_set("has_date_of_birth has_birth_date has_dob"), "has_birthday"),
}
"""Of people: what a record calls otherwise than a sentence does, so that each ends the other."""


def person_relation(relation: str) -> str:
    """The relation under which what is said of a person is kept."""
    return SAME_RELATION.get(relation, relation)


def relation_name(text: str) -> str | None:
    """The normal form, snake_case ASCII: `Works At`, `works-at`, `worksAt` → `works_at`.

    None: `text` has no such form (empty, a digit first, letters beyond ASCII, too long).
    """
    if len(text) > 4 * MAX_RELATION_CHARACTERS:
        return None
    name = _BETWEEN.sub("_", CAMEL.sub("_", text.strip())).strip("_").lower()
    return name if _RELATION.fullmatch(name) else None


def edge_type_of(relation: str) -> EdgeType:
    """The edge type of a relation that is stated without one."""
    row = RELATIONS.get(relation)
    return row.edge_type if row else "semantic"


def is_functional(relation: str, flag: bool = False) -> bool:
    """Whether the relation has one target at a time; `flag` counts outside the table only."""
    row = RELATIONS.get(relation)
    return row.functional if row else flag


def relation_words(relation: str) -> str:
    """As one reads it: `works_at` → `works at`."""
    return relation.replace("_", " ")


_WORD_REACH = 40


def cut(text: str, characters: int) -> str:
    """The beginning of a text, at most so many characters, `…` last when something is missing.

    Ends between words if there is a gap near the end, and never before a combining mark.
    """
    if len(text) <= characters:
        return text
    end = characters - 1
    for place in range(end, max(end - _WORD_REACH, characters // 2), -1):
        if text[place].isspace():
            end = place
            break
    else:
        while end > max(characters - _WORD_REACH, 1) and _joins(text[end - 1], text[end]):
            end -= 1
    return text[:end].rstrip() + "…"


def _joins(before: str, after: str) -> bool:
    return (
        unicodedata.combining(after) > 0
        or after in "\u200d\ufe0f"
        or before == "\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
    )
