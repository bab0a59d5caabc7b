"""Relations of facts: their normal form, which view they belong to, which hold one value at a time.

S2 names four edge types and a few relations of each. A relation in the table brings its edge type
and whether it is functional: a functional relation has at most one target at any moment (a person
lives in one place), so that another target ends what was said before. A relation outside the
table is semantic and not functional, unless what states it says otherwise; about a relation in the
table nobody can say otherwise, or what a fact means would depend on who said it first.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, get_args

from enrichment.words import CAMEL

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
    "mentors"
)
_TEMPORAL = "preceded_by followed_by happened_during"
_CAUSAL = "caused triggered resulted_in led_to"
_ENTITY = "is_a part_of instance_of alias_of"
_FUNCTIONAL = (
    "lives_in works_at located_in has_status has_state has_email has_name has_title has_phone "
    "has_address has_owner has_user has_version has_price has_membership has_priority has_type"
)

RELATIONS: Final[dict[str, Relation]] = {
    **dict.fromkeys(_SEMANTIC.split(), Relation("semantic")),
    **dict.fromkeys(_TEMPORAL.split(), Relation("temporal")),
    **dict.fromkeys(_CAUSAL.split(), Relation("causal")),
    **dict.fromkeys(_ENTITY.split(), Relation("entity")),
    **dict.fromkeys(_FUNCTIONAL.split(), Relation("semantic", functional=True)),
}


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
