"""What arguments of tools share: a model of them refuses what it does not know."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema

from projections.events import MAX_NAME_CHARACTERS

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
MAX_TEXT_CHARACTERS = 8_192
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
EventId = Annotated[str, Field(min_length=36, max_length=36)]
Position = Annotated[
    str | None,
    Field(description="`position` that `remember` gave: the answer waits until it knows that."),
]
MaxTokens = Annotated[
    int, Field(ge=50, le=32_000, description="Of the text, at most; it is estimated.")
]


class Untitled(GenerateJsonSchema):
    """Schemas without a title for each field: a model reads them, and pays for each word."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Whether a field has its name for a title, too."""
        return False


class Arguments(BaseModel):
    """Of one tool."""

    model_config = ConfigDict(extra="forbid")


class OfUser(Arguments):
    """Of a tool that reads or writes in somebody's view."""

    user_id: Name | None = Field(
        default=None, description="The person concerned, if not the one this client is set up for."
    )


class InSession(OfUser):
    """Of a tool that is called by an agent in a session."""

    session_id: Name | None = Field(
        default=None,
        description="The conversation or run. Default: the agent's session of today.",
    )
    agent_id: Name | None = Field(default=None, description="Default: this client.")
