"""What the names of tools and of types of events say was done: verbs, and what else. Pure.

`charge_card` charges, `order.charged` says that an order was; `approval.given` says that somebody
approved. People ask by other words: by a noun, in the past, by another verb for the same.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

from enrichment.stems import same_root, stem, stem_in, words_in
from enrichment.vocabulary import (
    ADDING_VERBS,
    MOVING_VERBS,
    READ_VERBS,
    STOP_WORDS,
    TAKING_VERBS,
    VALUE_VERBS,
    WRITE_VERBS,
    word_set,
)

_SEGMENT: Final = re.compile(r"[^\w-]+|__+")
"""Between where a tool belongs and what it is: `crm.contacts/update`, `crm__update`."""
DONE: Final = word_set("given granted made done completed received confirmed finished succeeded")
"""What becomes of a noun that is a verb itself: `approval.given` says that somebody approved."""
_CHANGED: Final = word_set(
    "changed updated modified edited adjusted altered amended set reset deployed released upgraded "
    "downgraded migrated rotated replaced switched toggled enabled disabled raised lowered moved"
)
_ASKED_FOR: Final = word_set("requested asked needed required pending proposed suggested")
"""What is not done yet where it stands behind such a noun."""
_SAME: Final = {
    stem(verb): same[0]
    for same in (
        *(["change", "update", "modify", "edit", "adjust", "alter", "amend", "correct"],),
        *(["create", "open", "file"], ["book", "reserve"], ["cancel", "abort", "revoke"]),
        *(["send", "mail", "email"], ["delete", "remove"], ["move", "relocate", "transfer"]),
    )
    for verb in same
}
"""Verbs that tools are named by and people do not ask by, and the other way round."""
_PAST: Final = {
    stem(past): stem(verb)
    for past, verb in (
        *(("sent", "send"), ("paid", "pay"), ("built", "build"), ("bought", "buy")),
        *(("sold", "sell"), ("written", "write"), ("wrote", "write"), ("lent", "lend")),
        *(("lost", "lose"), ("chosen", "choose"), ("chose", "choose"), ("drawn", "draw")),
        *(("broken", "break"), ("driven", "drive"), ("held", "hold"), ("met", "meet")),
        *(("left", "leave"), ("begun", "begin"), ("began", "begin"), ("spent", "spend")),
        *(("withdrawn", "withdraw"), ("rebuilt", "rebuild"), ("resent", "resend")),
        *(("frozen", "freeze"), ("stolen", "steal"), ("fed", "feed"), ("taught", "teach")),
    )
}
"""Stems of verbs whose past has another one."""


_VERBS: Final = READ_VERBS | WRITE_VERBS.keys() | MOVING_VERBS | ADDING_VERBS | VALUE_VERBS
_OF_ANYTHING: Final = STOP_WORDS | word_set(
    "data info details detail result results list all id ids new tool tools api status mcp"
)
_LAST_VERBS: Final = (
    READ_VERBS | TAKING_VERBS | {word for word, anywhere in WRITE_VERBS.items() if anywhere}
)
"""Verbs that say what a tool does behind a noun, too."""
_HTTP: Final = re.compile(r"\s*(?P<method>[A-Z]{3,6})\s+/")
_BY_METHOD: Final = {
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "update",
    "DELETE": "delete",
}
"""What a request does by its method; `POST` says nothing."""
_SHORTEST_OBJECT: Final = 3
"""Letters of a word that tools are called after."""


def of_tool(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Stems of the verb of a tool, and of all its words."""
    return frozenset((stem_in(first_word(name)),)), frozenset(
        map(stem_in, words_in(apart(name).lower()))
    )


def of_type(name: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Stems of the words of a type that say what happened, of the others, and what is asked for."""
    words = words_in(apart(name).lower())
    verbs = {base(stem_in(word)) for word in words[1:] or words}
    others = frozenset(map(stem_in, words[:-1]))
    nouns = frozenset(f"{stem_in(word)}-" for word in words[:-1])
    if words and words[-1] in DONE:
        verbs |= nouns
    asked_for = nouns if words and words[-1] in _ASKED_FOR else frozenset()
    return frozenset(verbs), others, asked_for


def tells_of_change(name: str) -> bool:
    """Whether a type says that what holds from then on was changed: `config.changed`."""
    words = words_in(apart(name).lower())
    return bool(words) and words[-1] in _CHANGED


def apart(name: str) -> str:
    """A name in camel case with its words apart."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)


def base(word: str) -> str:
    """The stem of a verb, of a form of it whose stem is another one."""
    return _PAST.get(word, word)


def says_verb(word: str, verbs: AbstractSet[str]) -> bool:
    """Whether the stem of a word of a question means one of the verbs of a name."""
    if word in verbs or _same(word) in map(_same, verbs):
        return True
    return any(same_root(word, verb[:-1]) for verb in verbs if verb.endswith("-"))


def _same(verb: str) -> str:
    return _SAME.get(verb, verb)


def method(tool: str) -> str:
    """The last part of a tool's name, behind what it belongs to: `update` of `crm.update`."""
    return next((part for part in reversed(_SEGMENT.split(tool)) if part), "")


def first_word(tool: str) -> str:
    """The word of a tool's name that says what it does; empty: it has none.

    The first of its last part, where that is no noun before a verb: `wiki_lookup` looks something
    up, and so does `GET /schedule`, whatever its path ends in.
    """
    words = words_in(method(apart(tool)).lower())
    if not words:
        return ""
    by_method = _BY_METHOD.get(http_method(tool) or "")
    if words[0] in (READ_VERBS if by_method in READ_VERBS else _VERBS):
        return words[0]
    if by_method is not None:
        return by_method
    return words[-1] if words[-1] in _LAST_VERBS else words[0]


def http_method(tool: str) -> str | None:
    """`GET` of `GET /exams`; None: a tool that is no request."""
    match = _HTTP.match(tool)
    return None if match is None else match["method"]


def is_reader(tool: str) -> bool:
    """Whether a tool only looks, by its name."""
    return first_word(tool) in READ_VERBS


def objects_of(tool: str) -> list[str]:
    """The words of a tool's name that say what it is done to: those that are no verbs."""
    words = words_in(method(apart(tool)).lower())
    return [
        word
        for word in dict.fromkeys(words)
        if len(word) >= _SHORTEST_OBJECT and word.isalpha() and word not in _VERBS | _OF_ANYTHING
    ]
