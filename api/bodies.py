"""Bodies of questions: JSON that a model describes, judged with the errors of the other routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from api.dependencies import JsonBytes
from api.routes.events import decode_json

M = TypeVar("M", bound=BaseModel)


def body_of(model: type[M]) -> Callable[[JsonBytes], M]:
    """A dependency: the body as the model.

    Raises, when it is called:
        ApiProblem: it is no JSON.
        RequestValidationError: it breaks a rule of the model; every one is named.
    """

    def parse(body: JsonBytes) -> M:
        value = decode_json(body)
        try:
            # JSON has types: "100" is no number, and what is taken for one hides a mistake.
            return model.model_validate(value, strict=True)
        except ValidationError as error:
            broken = [
                {**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)
            ]
            raise RequestValidationError(broken) from None

    return parse


def documented_body(model: type[BaseModel]) -> dict[str, Any]:
    """The request body for OpenAPI, by the model's name."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    return {"requestBody": {"required": True, "content": content}}
