"""What goes over the wire of changes: which are asked for, and what one says."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from api.read_schemas import MAX_PAGE
from api.schemas import Name, PositionText, StoredEvent, Wire
from enrichment.event_kinds import EventKind
from projections.identity import Position

NOW: Final = "now"
DEFAULT_PAGE: Final = 100


def _place(text: str) -> str:
    try:
        return text if text == NOW else str(Position.parse(text))
    except ValueError:
        raise ValueError(
            "`now`, `0` for the beginning, or a position as a change or a write gave it"
        ) from None


Place = Annotated[str, Field(max_length=50), AfterValidator(_place)]
"""Where to begin, of a request."""


class ChangesQuery(Wire):
    """Which changes, and from where on."""

    from_: Place = Field(
        default=NOW,
        alias="from",
        description="Behind which the changes begin: `now`, `0` (the beginning), or a position: a "
        "`global_position`, the `id` of the last change that came. The header `Last-Event-ID` "
        "goes before it.",
        examples=["now", "0", "1707644400000-0"],
    )
    session: Name | None = Field(default=None, description="Only events of this session.")
    kinds: list[EventKind] = Field(
        default_factory=list,
        max_length=8,
        description="Only events of these kinds; empty: all, those about the memory itself, too.",
    )
    user_id: Name | None = Field(
        default=None,
        description="In whose view: this user's events, and nobody's. `*` is the view over all "
        "users, for keys that may. Default: the key's user, else nobody.",
    )
    wait: bool = Field(
        default=True,
        description="Send what comes, as server-sent events; false: a page of what is there.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PAGE,
        description=f"Changes of a page, with `wait=false`; default {DEFAULT_PAGE}.",
    )

    @field_validator("limit")
    @classmethod
    def _of_a_page(cls, limit: int | None, info: ValidationInfo) -> int | None:
        if limit is not None and info.data.get("wait", True):
            raise ValueError("goes with wait=false")
        return limit


class Change(StoredEvent):
    """An event that the ledger has taken."""

    kind: EventKind | None = Field(
        description="What it is; null: a statement about the memory itself (`memory.*`)."
    )


class ChangeList(Wire):
    """A page of changes."""

    changes: list[Change] = Field(description="In the order of the ledger.")
    position: PositionText = Field(
        description="`from` of the next page. It moves on where there was nothing to be seen, too."
    )
    is_end: bool = Field(description="Nothing was behind this page.")
