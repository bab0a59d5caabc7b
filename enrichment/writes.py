"""Facts that agents bring about: what the arguments of a write say, once it has succeeded.

1. A call *writes* when a word of its tool's name says so (`WRITE_VERBS`), and no word before it
   says that it reads: first of its last part (`transfer` of `crewList.transfer`), then of all of
   it. Where an argument says what is done, that says it (`projects(op: assign)`; `action` where
   the name is no verb). Of a tool that is declared, the declaration says it. A trial run
   (`dry_run`) writes nothing.
2. What it is about (the subject) is what the declared argument names; else, the first that fits:
   the thing of its only id, or of the id whose noun is in the tool's name (of what sets or assigns
   something, that is the value, and the other id the subject, but for what its last noun is of:
   `set_user_defaults(user, partition)` is about the user), or of the only id that is no
   person's; what a key names by an identifier, as ids do (`move_pallet(pallet: P-7)`,
   `assign_bed(patient: P-2, bed: B-4)`); the event's user, when an argument holds the `user_id`;
   the person or the thing that a key names (`owner`, `repo`); else the event's user, when the tool
   is about people and their settings, or named after its only argument (`set_language(language)`).
   Else the call asserts nothing.
3. Every other argument says what a field of a record says: `has_<argument>`, so that a write ends
   what a record told. `{"field": "city", "value": "Oslo"}` and `{"changes": {"city": "Oslo"}}` mean
   `city: Oslo`; keys of an inner object are joined to its own (`has_address_city`). Options of a
   call (`force`, `notify`) and what is said beside it (`reason`, `query`) are no attributes; nor,
   of a person, is what describes a thing that a call makes for them (`create_order`, `add_slip`).
   A sum that a call changes for the person whom an argument names is of that person
   (`mandate.amend(donor, amount)`: the amount of the mandate).
4. It holds from the first result that answers the call and did not fail, with the call as what says
   it and the result as what confirms it. Without such a result within WINDOW events of the session
   nothing is asserted; a late call or result is taken into account when it comes. A call that has
   its outcome with it (status completed, or a result beside its arguments) confirms itself.
5. An event that says what was changed (`{"setting": …, "from": …, "to": …}`) asserts the new value,
   and the old one up to then.

At most MAX_CLAIMS a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from enrichment.act_names import method
from enrichment.event_kinds import (
    OUTCOME_FIELDS,
    TOOL_FIELDS,
    EventKind,
    argument_field,
    called_tool,
    calls_in,
    is_chat_message,
    is_list,
    parsed_json,
)
from enrichment.facts import Party, named
from enrichment.patterns import CURRENCY
from enrichment.records import (
    NAMING_KEYS,
    OLD_VALUE_KEYS,
    PEOPLE,
    SUM,
    USER_NOUNS,
    VALUE_KEYS,
    Record,
    StatedFact,
    id_keys,
    is_id,
    is_user,
    name_words,
    only_record,
    record_facts,
    thing,
)
from enrichment.vocabulary import (
    ADDING_VERBS,
    CHANGING_VERBS,
    MAKING_VERBS,
    MOVING_VERBS,
    READ_VERBS,
    VALUE_VERBS,
    WRITE_VERBS,
    relation_name,
    singular,
    word_set,
)
from projections.events import Event

MAX_CLAIMS: Final = 10
MAX_CALLS: Final = 10
"""Of one message, whose arguments are looked at."""
_MAX_FIELDS = 50
_LONGEST_ID = 200


class Tool(NamedTuple):
    """What is declared of a tool.

    Attributes:
        writes: whether its calls change something.
        about: the argument that names what they change; None: the rules find it.
    """

    writes: bool
    about: str | None = None


Tools = Mapping[str, Tool]
"""By their names; of all others the name tells."""
UNDECLARED: Final[Tools] = {}


class Claim(NamedTuple):
    """What a call would bring about.

    Attributes:
        functional: one target at a time, unless the table of relations says otherwise.
        call_id: of the call among several of one message; None: the event is one call.
    """

    source: Party
    relation: str
    target: Party
    functional: bool
    call_id: str | None = None


def claims_of(
    event: Event, kind: EventKind, payload: Any, tools: Tools = UNDECLARED
) -> tuple[Claim, ...]:
    """What an event's calls would bring about, at most MAX_CLAIMS; the strongest of each first.

    Args:
        event: any event.
        kind: of the event.
        payload: of the event, parsed, or what `payload_ref` points to.
        tools: that are declared.
    """
    if kind not in (EventKind.CALL, EventKind.RESULT) or not isinstance(payload, Mapping):
        return ()
    once: dict[Claim, None] = {}
    for call_id, tool, arguments in _calls(event, kind, payload):
        for claim in _claims(event, tool, arguments, tools.get(tool)):
            once.setdefault(claim._replace(call_id=call_id))
    return tuple(once)[:MAX_CLAIMS]


def is_confirmed_by_itself(event: Event, kind: EventKind, payload: Any) -> bool:
    """Whether an event holds arguments and what came of them."""
    if not isinstance(payload, Mapping) or is_chat_message(payload):
        return False
    if kind is EventKind.RESULT:
        return argument_field(payload) is not None
    outcome = any(payload.get(name) is not None for name in OUTCOME_FIELDS)
    return kind is EventKind.CALL and (outcome or event.status == "completed")


_Call = tuple[str | None, str, Mapping[str, Any]]


def _calls(event: Event, kind: EventKind, payload: Mapping[str, Any]) -> Iterator[_Call]:
    if is_chat_message(payload):
        for call, _ in zip(calls_in(payload), range(MAX_CALLS), strict=False):
            function = call.get("function")
            holder = function if isinstance(function, Mapping) else call
            field = argument_field(holder)
            arguments = parsed_json(holder[field]) if field else None
            tool = called_tool(call) or event.tool
            if tool and isinstance(arguments, Mapping):
                yield _call_id(call), tool, arguments
        return
    tool = event.tool or called_tool(payload)
    field = argument_field(payload)
    if tool is None or (field is None and kind is not EventKind.CALL):
        return
    arguments = parsed_json(payload[field]) if field else payload
    if isinstance(arguments, Mapping):
        naming = ("id", *TOOL_FIELDS) if field is None and called_tool(payload) == tool else ()
        yield None, tool, {key: item for key, item in arguments.items() if key not in naming}


def _call_id(call: Mapping[str, Any]) -> str | None:
    ids = (call.get(name) for name in ("id", "tool_call_id", "call_id", "tool_use_id"))
    return next((i for i in ids if isinstance(i, str) and 0 < len(i) <= _LONGEST_ID), None)


# -- what one call says ----------------------------------------------------------------------------

_TRIAL = word_set("dry_run dryrun simulate preview validate_only")
_OPTIONS = _TRIAL | word_set(
    "force confirm confirmed notify silent async wait verbose validate upsert overwrite recursive "
    "retry retries timeout timeout_s timeout_ms times limit idempotency_key request_id trace_id "
    "session_id version etag if_match nonce otp"
)
_SAID = word_set(
    "reason note notes comment comments message text body content query question prompt subject "
    "description summary explanation details"
)
_BUNDLES = word_set(
    "changes change updates update fields patch data attributes properties values set new "
    "new_values arguments payload record"
)
_SETTINGS = word_set("preference setting contact option me my")
_THINGS = word_set(
    "repo repository branch bucket table dataset service server cluster database project workspace "
    "environment host device queue topic"
)
_SECRET = re.compile(
    r"(.*_)?(token|nonce|otp|secret|password|passwd|passphrase|credential|credentials|cvv|cvc"
    r"|api_key|private_key|access_key)|to|from|by|as|(from|old)_.*"
)
"""What lets one in is kept nowhere else; a direction is no attribute, nor is what was."""
_DESTINATIONS = word_set("to destination target new_location to_location location place")
_AMOUNT = re.compile(rf"(?:{CURRENCY}|[$€£¥])\s?\S*\d\S*|\S*\d\S*\s?(?:{CURRENCY}|[$€£¥%])")
_NO_FIELDS = frozenset((*_DESTINATIONS, *VALUE_KEYS, *_BUNDLES))
_TO = ("to_", "new_")
"""Before what a field is set to."""
_FILES = re.compile(r"(.*_)?(file|filename|path|directory|folder|url|uri|command|cmd|code|sql)")


class _Verb(NamedTuple):
    """What a call does.

    Attributes:
        verb: of its tool's name, or of the argument that says it.
        nouns: the other words of the name.
        last: of these the one that says what it is done to, `defaults` of `set_user_defaults`.
    """

    verb: str
    nouns: frozenset[str]
    last: str


_OPERATIONS: Final = ("op", "operation", "action", "mode", "command", "cmd", "verb", "method")
"""Arguments that say what a call does."""
_ALWAYS: Final = _OPERATIONS[:2]
"""Those that say it whatever the tool is called; of others it is what a rule does, or how."""
_DOING: Final = READ_VERBS | WRITE_VERBS.keys()
_JOINING: Final = word_set("to for of on in at from with by")


def _verb(tool: str, arguments: Mapping[str, Any], declared: Tool | None) -> _Verb | None:
    """What writes, of a tool's name or of the argument that says it; None: it does not write."""
    words = name_words(tool)
    last = name_words(method(tool))
    done = _operation(arguments, words) if declared is None else None
    if done is not None:
        return None if done in READ_VERBS else _verb_of(done, words, last)
    for names in (last, words):  # in `crewList.transfer` nothing is listed
        for place, word in enumerate(names):
            if word in READ_VERBS and declared is None:
                return None
            row = WRITE_VERBS.get(word)
            if row or (row is not None and place == 0 and names is words):
                return _verb_of(word, words, last)
    if declared is None:
        return None
    return _verb_of("".join(words[:1]), words, last)._replace(nouns=frozenset(map(singular, words)))


def _operation(arguments: Mapping[str, Any], words: Sequence[str]) -> str | None:
    """The verb that an argument says what is done by; None: none does."""
    for key in _OPERATIONS:
        told = _first_word(arguments.get(key))
        if _DOING.isdisjoint(told) or not (key in _ALWAYS or _DOING.isdisjoint(words)):
            continue
        return told[0]
    return None


def _first_word(value: Any) -> list[str]:
    return name_words(value)[:1] if isinstance(value, str) else []


def _verb_of(verb: str, words: Sequence[str], last: Sequence[str]) -> _Verb:
    nouns = [word for word in takewhile(_is_no_joining, last) if word != verb]
    nouns = nouns or [word for word in words if word != verb]
    last_noun = singular(nouns[-1]) if nouns else ""
    return _Verb(verb, frozenset(singular(w) for w in words if w != verb), last_noun)


def _is_no_joining(word: str) -> bool:
    return word not in _JOINING


def _claims(
    event: Event, tool: str, arguments: Mapping[str, Any], declared: Tool | None
) -> Iterator[Claim]:
    if declared is not None and not declared.writes:
        return
    verb = _verb(tool, arguments, declared)
    if verb is None or any(arguments.get(name) is True for name in _TRIAL):
        return
    saying = {key for key in _OPERATIONS if _first_word(arguments.get(key)) == [verb.verb]}
    fields = _flat({key: item for key, item in arguments.items() if key not in saying})
    if declared is None or declared.about is None:
        subject = _subject(event, verb, fields)
    else:
        subject = _declared_subject(event, declared.about, fields)
    if subject is None:
        return
    left = {
        key: item
        for key, item in fields.items()
        if key not in _OPTIONS | _SAID and not _SECRET.fullmatch(key) and key != subject.key
    }
    sums = False
    if declared is None and subject.party.entity_type == "user":
        left = _of_person(verb, left)
        if sums := bool(verb.verb in CHANGING_VERBS and subject.key):
            left = _with_noun(tool, verb, left)
    several = verb.verb in ADDING_VERBS
    if verb.verb in MOVING_VERBS:
        yield from _moved(subject, fields)
    stated = record_facts(subject, left, verb.nouns, sums=sums)
    for fact in sorted(stated, key=lambda fact: fact.rank):
        yield _claim(fact, functional=fact.functional and not several)


def _of_person(verb: _Verb, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields that say something of a person: of what makes a thing for one, only what it makes.

    `add_allergy(patient, allergy)` tells an allergy, `create_order(customer, priority)` nothing.
    """
    if verb.verb not in MAKING_VERBS or verb.nouns & USER_NOUNS:
        return fields
    return {key: item for key, item in fields.items() if _is_of(verb, key)}


def _with_noun(tool: str, verb: _Verb, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with a bare sum called as what the tool changes: of `rates/update` the rate's."""
    nouns = (singular(word) for word in reversed(name_words(tool)))
    noun = next((word for word in nouns if word in verb.nouns - USER_NOUNS), None)
    if noun is None:
        return fields
    return {
        f"{noun}_{key}" if "_" not in key and SUM.fullmatch(key) else key: item
        for key, item in fields.items()
    }


def _is_of(verb: _Verb, key: str) -> bool:
    """Whether a tool is named after an argument."""
    return any(singular(word) in verb.nouns for word in key.split("_"))


def _moved(subject: Record, fields: Mapping[str, Any]) -> Iterator[Claim]:
    """Where something is, by where it was moved to."""
    for key in sorted(_DESTINATIONS & fields.keys()):
        if _AMOUNT.fullmatch(str(fields[key])):  # `quota.put` sets a target in money
            continue
        for fact in record_facts(subject, {"place": fields[key]}):
            yield _claim(fact._replace(relation="located_in"), functional=True)
            return


def _claim(fact: StatedFact, *, functional: bool) -> Claim:
    return Claim(fact.source, fact.relation, fact.target, functional)


def _flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as fields of a record: bundles opened, inner keys joined to their own."""
    fields: dict[str, Any] = {}
    for key in sorted(arguments, key=str)[:_MAX_FIELDS]:
        item = parsed_json(arguments[key])
        name = relation_name(str(key))
        if name is None:
            continue
        if name in _BUNDLES and is_list(item):
            for change in item[:_MAX_FIELDS]:
                fields |= _changed(change) if isinstance(change, Mapping) else {}
        elif name in _BUNDLES and isinstance(item, Mapping):
            fields |= _flat(item)
        elif isinstance(record := only_record(item), Mapping) and not id_keys(record):
            for inner, v in islice(record.items(), _MAX_FIELDS):
                if (joined := relation_name(f"{name}_{inner}")) is not None:
                    fields[joined] = v
        else:
            fields[name] = item
    for name in [field for field in fields if field.startswith(_TO) and field not in _NO_FIELDS]:
        fields.setdefault(name.split("_", 1)[1], fields.pop(name))
    return _changed(fields)


def _changed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with a pair like `field: city, value: Oslo` as `city: Oslo`."""
    names = [key for key in fields if key in NAMING_KEYS and isinstance(fields[key], str)]
    value = next((key for key in VALUE_KEYS if key in fields), None)
    field = next((key for key in names if key in ("field", "attribute", "property")), None)
    field = field or (names[0] if len(names) == 1 else None)
    if field is None or value is None:
        return dict(fields)
    changed = relation_name(fields[field].strip("/ ").replace("/", "_"))
    left = {k: v for k, v in fields.items() if k not in (field, value, "op", *OLD_VALUE_KEYS)}
    return {**left, changed: fields[value]} if changed else left


def _subject(event: Event, verb: _Verb, fields: Mapping[str, Any]) -> Record | None:
    ids = id_keys(fields)
    chosen = _chosen_id(ids, verb)
    if chosen is not None:
        key, noun = chosen
        container = next((n for n in sorted(verb.nouns) if noun is None), None)
        party = _user(event, fields[key]) or thing(noun or container, fields[key])
        return Record(party, key, noun or container) if party else None
    if ids:
        return None
    name = _chosen_name(verb, fields)
    if name is not None:
        party = _user(event, fields[name]) or thing(name, fields[name])
        return Record(party, name, name) if party else None
    for key in sorted(fields):
        if (party := _user(event, fields[key])) is not None:
            return Record(party, key, "user")
    return _named_by_key(verb, fields) or _own_user(event, verb, fields)


def _declared_subject(event: Event, about: str, fields: Mapping[str, Any]) -> Record | None:
    """What the argument names; None: it is not there, or names nothing."""
    value = fields.get(about)
    if value is None or not is_id(value):
        return None
    noun = about.removesuffix("_id").removesuffix("_name")
    party = _user(event, value) or thing(noun, value)
    return Record(party, about, noun) if party else None


def _named_by_key(verb: _Verb, fields: Mapping[str, Any]) -> Record | None:
    """The person or the thing that a key names, or that the tool is named after."""
    for keys in (USER_NOUNS, _THINGS):
        for key in sorted(fields):
            noun = key.removesuffix("_name")
            if noun in keys and is_id(fields[key]) and key != "name":
                party = thing(noun, fields[key])
                return Record(party, key, noun) if party else None
    for key in sorted(fields):
        last = key.removesuffix("_name").rsplit("_", 1)[-1]
        if last in verb.nouns and len(fields) > 1 and verb.verb not in VALUE_VERBS:
            party = thing(key, fields[key]) if is_id(fields[key]) else None
            return Record(party, key, key) if party else None
    return None


def _chosen_id(ids: Sequence[tuple[str, str | None]], verb: _Verb) -> tuple[str, str | None] | None:
    if len(ids) < 2 or ids[0][0] == "id":
        return ids[0] if ids else None
    told = [(key, noun) for key, noun in ids if noun and noun.rsplit("_", 1)[-1] in verb.nouns]
    if verb.verb in VALUE_VERBS:
        owners: Sequence[tuple[str, str | None]]
        owners = [pair for pair in told if not _is_last(verb, pair[0].removesuffix("_id"))]
        owners = owners or [pair for pair in ids if pair not in told]
        return owners[0] if len(owners) == 1 else None
    if len(told) == 1:
        return told[0]
    things = [(key, noun) for key, noun in ids if noun and noun.rsplit("_", 1)[-1] not in PEOPLE]
    return things[0] if len(things) == 1 else None


def _chosen_name(verb: _Verb, fields: Mapping[str, Any]) -> str | None:
    """The key whose value names what a call is about, where keys say what ids say elsewhere."""
    naming = [key for key in sorted(fields) if _is_name(fields[key]) and key not in _DESTINATIONS]
    told = [key for key in fields if not verb.nouns.isdisjoint(key.split("_"))]
    if verb.verb in VALUE_VERBS:
        owners = [key for key in naming if key in told and not _is_last(verb, key)]
        others = [key for key in naming if key not in told] if told else []
        naming = owners or others
    else:
        naming = [key for key in naming if key.rsplit("_", 1)[-1] in verb.nouns]
    return naming[0] if len(naming) == 1 and len(fields) > 1 else None


def _is_last(verb: _Verb, key: str) -> bool:
    """Whether a key is called as what a tool sets, and not as whose that is."""
    return singular(key.rsplit("_", 1)[-1]) == verb.last


def _is_name(value: Any) -> bool:
    """Whether a value is made as identifiers are, of letters and digits: `P-204`."""
    if not isinstance(value, str) or not is_id(value):
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _user(event: Event, value: Any) -> Party | None:
    """The event's user, when the value is the user's id."""
    return named(str(event.user_id), "user", exact=True) if is_user(event, value) else None


def _own_user(event: Event, verb: _Verb, fields: Mapping[str, Any]) -> Record | None:
    """The event's user, where the tool is about people or named after what it sets."""
    if event.user_id is None or any(_FILES.fullmatch(key) for key in fields):
        return None
    about = verb.nouns & (USER_NOUNS | _SETTINGS)
    named_after = [key for key in fields if _is_of(verb, key)]
    if not about and not (named_after and verb.verb not in ADDING_VERBS):
        return None
    if not about and fields.keys() - set(named_after) - _OPTIONS - _SAID:
        return None  # it may be about what they say: `lift.put(lift, day, hour)`
    party = named(event.user_id, "user", exact=True)
    return Record(party, "", "user") if party else None
