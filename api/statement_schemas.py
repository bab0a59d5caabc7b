"""What goes over the wire of statements: corrections of entities, requests for a pass."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, RootModel

from api.schemas import Name, Wire
from enrichment.derived import EntityType
from enrichment.payloads import MAX_REASON_CHARACTERS, MAX_REQUEST_REASON_CHARACTERS, MAX_SPLIT


class _Corrected(Wire):
    event_id: str | None = Field(
        default=None,
        description="Of the event that this becomes. With one, sending the same request again is "
        "safe; without, each is a correction of its own, and the last one counts.",
        json_schema_extra={"format": "uuid"},
    )
    reason: str | None = Field(default=None, min_length=1, max_length=MAX_REASON_CHARACTERS)


Subtype = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9_]{0,63}$", description="Finer than the type, snake_case."),
]
EntityId = Annotated[
    str, Field(pattern=r"^(entity:)?[0-9a-f]{16,64}$", examples=["entity:" + "0f" * 16])
]


class Rename(_Corrected):
    """The name to display; the entity's id and its other names stay."""

    correction: Literal["rename"]
    name: Name


class Retype(_Corrected):
    """What it is shown as, type, subtype or both; its id stays."""

    correction: Literal["retype"]
    type: EntityType | None = None
    subtype: Subtype | None = None


class Alias(_Corrected):
    """The same was seen under another name."""

    correction: Literal["alias"]
    name: Name
    type: EntityType
    subtype: Subtype | None = None


class Split(_Corrected):
    """Entities that it is not the same as."""

    correction: Literal["split"]
    apart_from: list[EntityId] = Field(alias="from", min_length=1, max_length=MAX_SPLIT)


class EntityCorrection(
    RootModel[Annotated[Rename | Retype | Alias | Split, Field(discriminator="correction")]]
):
    """A person's correction of one entity.

    This documents the rules; `enrichment.payloads` judges.
    """


class ReconsolidationRequest(Wire):
    """Asks for a pass of consolidation: of a session, of an agent, else of the whole tenant.

    This documents the rules; `enrichment.payloads` judges.
    """

    event_id: str | None = Field(
        default=None,
        description="Of the event that this becomes. With one, sending the same request again is "
        "safe; without, each asks anew.",
        json_schema_extra={"format": "uuid"},
    )
    session_id: Name | None = Field(default=None, description="Not together with agent_id.")
    agent_id: Name | None = None
    reason: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_REQUEST_REASON_CHARACTERS,
        description="For people.",
    )
