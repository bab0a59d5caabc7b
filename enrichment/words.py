"""Words that say little, which keywords, summaries and entities leave out; forms of words.

Lists of English; another language simply loses the filter, nothing else.
"""

from __future__ import annotations

import re

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
