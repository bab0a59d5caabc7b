"""`python -m tests.client_models`: the Python client's models, made from the API's own OpenAPI.

What comes from the API becomes pydantic models that take more than they know: fields and values
of a newer API are no errors. What a caller may say beside a question becomes typed dictionaries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from api.main import create_app
from pipelines.work.settings import ApiKey, Settings

TARGET: Final = Path(__file__).parents[1] / "clients/python/src/recollect/models.py"
ANSWERS: Final = (
    *("AtlasResponse", "BatchAccepted", "ChangeList", "EntityList", "FactsResponse", "Person"),
    "Problem",
)
"""What the client reads, with all that these hold."""
OPTIONS: Final = {
    "AskOptions": ("body", "SubgraphQuery"),
    "FactsOptions": ("body", "FactsQuery"),
    "ContextOptions": ("parameters", "/v1/context/{session_id}"),
}
"""What may be said beside a question, and which part of the document has it."""
SAID_OTHERWISE: Final = frozenset(
    (
        *("agent_id", "cursor", "min_position", "query", "session", "session_id", "timeout_ms"),
        "user_id",
    )
)
"""What the client has arguments for, or says itself."""
HEADER: Final = '''"""Models of the API's answers and options of its questions; generated.

`python -m tests.client_models` makes this from the API's OpenAPI, and a test compares the two.
Answers take fields that are not known here, so that a newer API can be read.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Answered(BaseModel):
    """Base of everything here."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())
'''

Schema = Mapping[str, Any]


def source(document: Mapping[str, Any]) -> str:
    """The module for an OpenAPI document, formatted."""
    schemas = document["components"]["schemas"]
    parts = [HEADER]
    parts += [_model(name, schemas[name], schemas) for name in _needed(schemas)]
    for name, (place, key) in OPTIONS.items():
        fields = _body(schemas[key]) if place == "body" else _parameters(document["paths"][key])
        parts.append(_options(name, key, fields, schemas))
    ruff = [str(Path(sys.executable).parent / "ruff"), "format", "--stdin-filename", TARGET.name]
    done = subprocess.run(
        [*ruff, "-"], input="\n\n".join(parts), capture_output=True, text=True, check=True
    )
    return done.stdout


def _needed(schemas: Mapping[str, Schema]) -> list[str]:
    """The answers and what they hold, what is held before what holds it."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order or not _is_object(schemas[name]):
            return
        for inner in references(schemas[name]):
            visit(inner)
        order.append(name)

    for name in ANSWERS:
        visit(name)
    return order


def _is_object(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema


def references(schema: Any) -> Iterator[str]:
    """Names of the models that a schema refers to."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def _model(name: str, schema: Schema, schemas: Mapping[str, Schema]) -> str:
    lines = [f"class {name}(Answered):", f'    """{schema.get("description", name)}"""', ""]
    required = schema.get("required", ())
    for field, said in schema["properties"].items():
        kind = _type(said, schemas)
        lines.append(f"    {field}: {kind}{_default(said, kind, field in required)}")
        lines += _comment(said)
    return "\n".join(lines)


def _comment(said: Schema) -> list[str]:
    """A description, as a docstring of its field."""
    if "description" not in said:
        return []
    words, lines, line = said["description"].split(), [], '    """'
    for word in words:
        if len(line) + len(word) > 94 and line.strip():
            lines.append(line.rstrip())
            line = "    "
        line += word + " "
    return [*lines, line.rstrip() + '"""']


def _default(said: Schema, kind: str, is_required: bool) -> str:
    if is_required:
        return ""
    if "default" in said:
        return f" = {said['default']!r}"
    if kind.startswith("list["):
        return " = Field(default_factory=list)"
    if kind.startswith("dict["):
        return " = Field(default_factory=dict)"
    return " = None" if kind == "Any" or kind.endswith("None") else ""


def _options(name: str, key: str, fields: Mapping[str, Schema], schemas: Any) -> str:
    lines = [
        f"class {name}(TypedDict, total=False):",
        f'    """Beside the question: `{key}`."""',
        "",
    ]
    for field, said in fields.items():
        if field not in SAID_OTHERWISE:
            lines.append(f"    {field}: {_type(said, schemas, options=True)}")
            lines += _comment(said)
    return "\n".join(lines)


def _body(schema: Schema) -> Mapping[str, Schema]:
    fields: Mapping[str, Schema] = schema["properties"]
    return fields


def _parameters(path: Mapping[str, Any]) -> Mapping[str, Schema]:
    return {row["name"]: row["schema"] for row in path["get"]["parameters"] if row["in"] == "query"}


_PLAIN: Final = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}


def _type(said: Schema, schemas: Mapping[str, Schema], *, options: bool = False) -> str:
    """The annotation; of what is one of a list of words, only that it is a text."""
    if "$ref" in said:
        name = said["$ref"].rpartition("/")[2]
        if not _is_object(schemas[name]):
            return _type(schemas[name], schemas, options=options)
        return "dict[str, Any]" if options else name
    if "anyOf" in said:
        kinds = dict.fromkeys(_type(kind, schemas, options=options) for kind in said["anyOf"])
        return " | ".join(sorted(kinds, key=lambda kind: kind == "None"))
    if said.get("type") == "null":
        return "None"
    if said.get("type") == "array":
        return f"list[{_type(said.get('items', {}), schemas, options=options)}]"
    if said.get("type") == "object":
        values = said.get("additionalProperties")
        inner = _type(values, schemas, options=options) if isinstance(values, Mapping) else "Any"
        return f"dict[str, {inner}]"
    return _PLAIN.get(said.get("type", ""), "Any")


def openapi_document() -> Mapping[str, Any]:
    """Of an API."""
    return create_app(Settings(api_keys=(ApiKey(name="models", key="k" * 32),))).openapi()


def generated() -> str:
    """The module as it should be."""
    return source(openapi_document())


if __name__ == "__main__":
    TARGET.write_text(generated(), encoding="utf-8")
