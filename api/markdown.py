"""Answers as text: for who asks with `Accept: text/markdown`."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

MEDIA_TYPE: Final = "text/markdown"


class MarkdownResponse(Response):
    """Text in Markdown, UTF-8."""

    media_type = MEDIA_TYPE


def wants_markdown(accept: str | None) -> bool:
    """Whether an Accept header names Markdown, and JSON not before it."""
    qualities = dict(map(_quality, (accept or "").lower().split(",")))
    return qualities.get(MEDIA_TYPE, 0.0) > qualities.get("application/json", 0.0)


def _quality(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip() for piece in part.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return name, float(value)
            except ValueError:
                return name, 0.0
    return name, 1.0


def also_markdown(description: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI: the same answer as text."""
    content = {MEDIA_TYPE: {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}}
