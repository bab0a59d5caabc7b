"""Names of entities in normal form, the ids made of them, and which ids are one entity.

Bounds of what is derived from one event stand here too: rules and prompts have them in common.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, TypeVar

from projections.identity import SEPARATOR

EntityType = Literal["agent", "tool", "user", "service", "resource", "concept"]
Role = Literal["subject", "object", "tool", "target", "participant"]

ACTIVE: Final = "active"
"""The status of an entity that is not archived."""
MAX_MENTIONS = 10
MAX_FACTS = 20
"""An event gives at most this many."""
MAX_FACT_CHARACTERS = 500
SUMMARY_CHARACTERS = 200
MIN_NAME_CHARACTERS = 3
"""Of a name found in text or fields; a tool called `ls` is named by the envelope."""
MAX_NAME_BYTES = 512
ID_DIGEST_BYTES = 16
LABELS: Final[dict[str, tuple[EntityType, str]]] = {
    "PERSON": ("concept", "person"),
    "NORP": ("concept", "group"),
    "ORG": ("concept", "organization"),
    "GPE": ("concept", "location"),
    "LOC": ("concept", "location"),
    "FAC": ("concept", "location"),
    "PRODUCT": ("concept", "product"),
    "EVENT": ("concept", "event"),
    "WORK_OF_ART": ("concept", "work"),
    "LAW": ("concept", "work"),
    "LANGUAGE": ("concept", "language"),
}
"""Labels of the recogniser → type and subtype. Labels that are not here are dropped: CARDINAL,
ORDINAL, PERCENT, QUANTITY, TIME are numbers; DATE and MONEY come from the patterns, which find the
absolute ones and leave `yesterday` and `three dollars` alone."""
SUBTYPES: Final[dict[str, tuple[EntityType, str]]] = {
    "person": ("concept", "person"),
    "organization": ("concept", "organization"),
    "location": ("concept", "location"),
    "project": ("concept", "project"),
    "product": ("concept", "product"),
    "technology": ("concept", "technology"),
    "language": ("concept", "language"),
    "event": ("concept", "event"),
    "concept": ("concept", "concept"),
    "tool": ("tool", "tool"),
    "file": ("resource", "file"),
    "config": ("resource", "config"),
}
"""S2 speaks of twelve types of entity without naming them; these are ours, as type and subtype.
What a language model calls otherwise is a concept (S2, #2079)."""


def canonical_name(name: str) -> str:
    """The normal form of a name: two mentions with the same one are of the same entity.

    NFKC, lower case, whitespace runs as one space, without control, bidi and other invisible
    characters, at most 512 bytes of UTF-8 cut at a character. Each step can undo another (lower
    case of a composed letter decomposes, a removed mark lets its neighbours compose), so they are
    repeated until nothing changes: `canonical_name(canonical_name(x)) == canonical_name(x)`.
    """
    if name.isascii() and name.isprintable() and len(name) <= MAX_NAME_BYTES:
        return " ".join(name.lower().split())  # as most are; a second round changes nothing
    for _ in range(_MAX_ROUNDS):
        before = name
        name = _normal(name)
        if name == before:
            break
    return name


_MAX_ROUNDS = 16  # three suffice for every string met; the bound only says that it ends


def _normal(name: str) -> str:
    if name.isascii():
        name = name.lower()
    else:
        name = unicodedata.normalize("NFKC", name)
        name = unicodedata.normalize("NFKC", name.lower())
    if not (name.isascii() and name.isprintable()):  # as most are, and then all of it is visible
        name = "".join(map(_visible, name))
    name = " ".join(name.split())
    encoded = name.encode()
    if len(encoded) > MAX_NAME_BYTES:
        name = encoded[:MAX_NAME_BYTES].decode(errors="ignore").rstrip()
    return name


def _visible(character: str) -> str:
    if " " <= character <= "~":
        return character
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs") or "\ufe00" <= character <= "\ufe0f":
        return ""
    return character


def entity_id(tenant: str, canonical_name: str, entity_type: str) -> str:
    """BLAKE2b-128 of (tenant, type, canonical name), 32 hexadecimal digits.

    The name comes last and neither a tenant nor a type can hold the separator, so no two triples
    are joined to the same text. Part of the stored format: it never changes.
    """
    text = SEPARATOR.join(("entity", tenant, entity_type, canonical_name))
    return blake2b(text.encode(), digest_size=ID_DIGEST_BYTES).hexdigest()


def user_entity_id(tenant: str, user_id: str) -> str:
    """The id of a user's entity, by the `user_id` of envelopes."""
    return entity_id(tenant, canonical_name(user_id), "user")


SAME_AS_ROUNDS: Final = 5
"""Steps along SAME_AS: a component that is wider is cut, and named by a nearer member."""
Row = TypeVar("Row", bound=Mapping[str, Any])


def edges_of_sameness(ids: Iterable[str], ask: Callable[[list[str]], Iterable[Row]]) -> list[Row]:
    """The edges around entities, around those that they lead to, and so on.

    Args:
        ids: of the entities.
        ask: gives the edges at entities; `other` of a row is the id at the far end.
    """
    edges: list[Row] = []
    visited: set[str] = set()
    wanted = set(ids)
    for _ in range(SAME_AS_ROUNDS):
        if not wanted:
            break
        visited |= wanted
        rows = list(ask(sorted(wanted)))
        edges += rows
        wanted = {row["other"] for row in rows} - visited
    return edges


def components(edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The canonical id, the smallest of its component, of every entity that has an edge."""
    parents: dict[str, str] = {}

    def root(entity: str) -> str:
        parents.setdefault(entity, entity)
        while parents[entity] != entity:
            parents[entity] = parents[parents[entity]]
            entity = parents[entity]
        return entity

    for first, second in edges:
        smaller, larger = sorted((root(first), root(second)))
        parents[larger] = smaller  # so that a root is the smallest id of its tree
    return {entity: root(entity) for entity in sorted(parents)}


VALUE = "value"
"""Subtype of a literal."""
