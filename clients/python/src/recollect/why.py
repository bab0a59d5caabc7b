"""Why something happened: the tree that `POST /v1/query/why` answers; all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import Field
from typing_extensions import TypedDict

from recollect.calls import Call, model_reader
from recollect.models import Answered, Edge, Node

PATH: Final = "/v1/query/why"


class WhyOptions(TypedDict, total=False):
    """What may be said beside the question."""

    as_of: str
    as_of_position: str
    head: str
    """Id of the event to explain. Default: the one that the question is about."""
    max_depth: int
    max_nodes: int
    max_tokens: int
    record_access: bool


class Cause(Answered):
    """A line of the tree.

    Attributes:
        node_id: what happened.
        cause_of: node id of its effect; None: the head, which was asked about.
        mechanism: how the cause is known: direct, or inferred.
        rule: that inferred it.
        confidence: from 0 to 1.
        line: in words.
        evidence: what both events name.
    """

    node_id: str
    cause_of: str | None = None
    mechanism: str | None = None
    rule: str | None = None
    confidence: float | None = None
    line: str = ""
    evidence: list[str] = Field(default_factory=list)


class Lesson(Answered):
    """A failure, and what was different when the same went through."""

    text: str = ""


class Tree(Answered):
    """What was asked about, and what it goes back to."""

    head: Any = None
    confidence: float | None = None
    doubtful: bool = False
    tree: list[Cause] = Field(default_factory=list)
    helped: list[Lesson] = Field(default_factory=list)
    text: str = ""


class WhyResponse(Answered):
    """The answer as the API gives it."""

    answer: Tree | None = None
    nodes: list[Node] = Field(default_factory=list)
    edges: list[Edge] = Field(default_factory=list)
    meta: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Why:
    """Why something happened."""

    response: WhyResponse = field(repr=False)

    def __str__(self) -> str:
        """The tree in words."""
        return self.text

    @property
    def text(self) -> str:
        """The tree in words; empty: nothing is known."""
        return "" if self.response.answer is None else self.response.answer.text

    @property
    def causes(self) -> list[Cause]:
        """The lines of the tree, the head first."""
        return [] if self.response.answer is None else self.response.answer.tree

    @property
    def helped(self) -> list[Lesson]:
        """What helped: in this story first, then in similar ones."""
        return [] if self.response.answer is None else self.response.answer.helped

    @property
    def confidence(self) -> float | None:
        """That the head is what was asked about, from 0 to 1."""
        return None if self.response.answer is None else self.response.answer.confidence

    @property
    def is_doubtful(self) -> bool:
        """Whether the head may be something else than what was asked about."""
        return self.response.answer is None or self.response.answer.doubtful


def why_call(body: Mapping[str, Any], timeout_s: float) -> Call[WhyResponse]:
    """The request of a question, as `ask` makes it."""
    read = model_reader(WhyResponse)
    return Call("POST", PATH, read, body=body, timeout_s=timeout_s)
