"""The question why, and its answer: a tree of causes, and what helped."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from api.read_schemas import (
    MAX_NODES,
    MAX_QUERY_CHARACTERS,
    GraphReadQuery,
    MaxTokens,
)
from api.schemas import Edge, Meta, Name, Node, Wire

MAX_STEPS: Final = 40
"""A chain of causes is long and thin: `max_nodes` bounds what it costs."""


class WhyQuery(GraphReadQuery):
    """A question for causes, and who asks it."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        description="The question, as it is.",
        examples=["Why was order 4711 charged twice?"],
    )
    session_id: Name = Field(description="The session in which it is asked.")
    agent_id: Name = Field(description="The agent that asks.")
    max_nodes: int = Field(default=30, ge=1, le=MAX_NODES, description="Events in the tree.")
    max_depth: int = Field(
        default=MAX_STEPS, ge=1, le=MAX_STEPS, description="Steps from the head."
    )
    head: Name | None = Field(
        default=None,
        description="The id of the event to explain. Default: the one that the question is about.",
    )
    max_tokens: MaxTokens = 2_000


class TreeNode(Wire):
    """An event in the tree of causes, the head first, then by steps from it."""

    node_id: str
    cause_of: str | None = Field(description="The event that it is a cause of; null: the head.")
    mechanism: Literal["direct", "inferred"] | None = Field(
        description="`direct`: its producer named it. Null: the head."
    )
    rule: str | None = Field(
        description="By which it was inferred. `shared_name`: recorded, a change in another "
        "session that names what the failure names. Read together and recorded nowhere: "
        "`same_failure`, an earlier failure of the story that names the same; `named_before`, what "
        "led to a change in another session."
    )
    confidence: float = Field(ge=0, le=1)
    line: str = Field(description="What happened, in one line.")
    evidence: list[str] = Field(default_factory=list, description="What both events name.")
    decided_by: str | None = Field(
        default=None, description="The ledger's event that recorded the step."
    )


class ArgumentChange(Wire):
    """An argument that was different when it went through."""

    name: str
    before: str | None = Field(description="Null: it was added.")
    after: str | None = Field(description="Null: it was left out.")
    source_event_id: str | None = Field(
        description="The event between the two calls that said the new value first."
    )


class LessonShown(Wire):
    """A failure, and what was different when the same went through."""

    text: str
    tool: str
    error: str
    attempts: int
    differences: list[ArgumentChange]
    failed_event_ids: list[str]
    solved_event_ids: list[str]
    helped_by: list[str] = Field(description="Events between failure and success.")
    session_id: str
    summary_id: str = Field(description="Of the episode that tells of it.")
    same_story: bool = Field(description="False: it is of a similar failure in another session.")


class WhyAnswer(Wire):
    """Why, as a tree."""

    type: Literal["tree"] = "tree"
    head: str | None = Field(
        description="The event that the question is about; null: nothing was found."
    )
    confidence: float = Field(ge=0, le=1, description="That the head is what was asked about.")
    doubtful: bool = Field(description="Another story is nearly as likely what was asked about.")
    tree: list[TreeNode]
    helped: list[LessonShown] = Field(description="What helped, of this story first.")
    text: str = Field(description="The same in Markdown, within `max_tokens`.")


class WhyResponse(Wire):
    """Why, with the events that say so, in the order of the answer, and the edges between them."""

    nodes: list[Node]
    edges: list[Edge]
    meta: Meta
    answer: WhyAnswer
