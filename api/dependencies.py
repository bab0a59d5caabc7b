"""What routes ask for: who calls, with which body, on which services."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, TypeVar

import orjson
import structlog
from fastapi import Depends, Header, Path, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ValidationError

from api.errors import ApiProblem
from api.services import Caller, Services
from pipelines.work.settings import ALL_TENANTS, ApiKey, Role
from projections.errors import InvalidInput
from projections.events import DEFAULT_TENANT, MAX_NAME_CHARACTERS, TENANT

M = TypeVar("M", bound=BaseModel)

PathName = Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)]
"""A name or an id in the path, as long as those of events may be."""

KEY_HEADER: Final = "X-API-Key"
TENANT_HEADER: Final = "X-Tenant"
ADMITTED: Final = "admitted"
"""In the state of a request that is part of one which was counted; nothing from outside sets it."""

_ROLES: Final[tuple[Role, ...]] = ("read", "write", "admin")

_bearer = HTTPBearer(auto_error=False, description="One of the configured API keys.")
_key_header = APIKeyHeader(
    name=KEY_HEADER, auto_error=False, description="The same keys, for tools without bearer tokens."
)


class Keyring:
    """The configured keys, by digest."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = [(_digest(key.key.get_secret_value()), key) for key in keys]

    def __bool__(self) -> bool:
        """Whether any key is configured."""
        return bool(self._keys)

    def find(self, presented: str) -> ApiKey | None:
        """The key that was presented.

        Compares with every key, in constant time and to the end: how long it takes tells nothing
        about which key, or how much of one, was right.
        """
        digest = _digest(presented)
        matching: ApiKey | None = None
        for configured, key in self._keys:
            if hmac.compare_digest(configured, digest):
                matching = key
        return matching


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


async def services(request: Request) -> Services:
    """The services of the app."""
    shared = request.app.state.services
    assert isinstance(shared, Services)
    return shared


ServicesOf = Annotated[Services, Depends(services)]


def keyring(request: Request) -> Keyring:
    """The keys of the app."""
    keys = request.app.state.keyring
    assert isinstance(keys, Keyring)
    return keys


async def authenticated(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    api_key: Annotated[str | None, Security(_key_header)],
    x_tenant: Annotated[
        str | None,
        Header(
            alias=TENANT_HEADER,
            description="Names the tenant for keys of all tenants; default `default`.",
        ),
    ] = None,
) -> Caller:
    """The caller, from the key; without any configured key (insecure_dev) everybody is admin."""
    for name in (TENANT_HEADER, KEY_HEADER, "Authorization"):
        if len(request.headers.getlist(name)) > 1:
            # Which of them counts is read differently by whoever stands between.
            raise ApiProblem(
                "invalid-input", f"{name} is there twice.", errors=[(name, "sent once")]
            )
    keys = keyring(request)
    if not keys:
        caller = Caller("insecure-dev", "admin", _named_tenant(x_tenant))
    else:
        presented = bearer.credentials if bearer is not None else api_key
        key = keys.find(presented) if presented else None
        if key is None:
            raise ApiProblem(
                "unauthenticated",
                f"Send `Authorization: Bearer KEY` or `{KEY_HEADER}: KEY`.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        tenant = _tenant_of(key, x_tenant)
        caller = Caller(key.name, key.role, tenant, key.user_id, all_users=key.all_users)
    structlog.contextvars.bind_contextvars(caller=caller.name)
    if not getattr(request.state, ADMITTED, False):
        request.app.state.services.limits.admit_request(caller.name, caller.tenant)
    return caller


def _tenant_of(key: ApiKey, named: str | None) -> str:
    if key.tenant == ALL_TENANTS:
        return _named_tenant(named)
    if named is not None and named != key.tenant:
        # Answering about the key's own tenant instead would look like an answer about the other.
        raise ApiProblem("forbidden", f"This key is of another tenant than {TENANT_HEADER} names.")
    return key.tenant


def _named_tenant(named: str | None) -> str:
    if named is None:
        return DEFAULT_TENANT
    if TENANT.fullmatch(named) is None:
        rule = (TENANT_HEADER, f"matches ^{TENANT.pattern}$")
        raise ApiProblem("invalid-input", "The header does not name a tenant.", errors=[rule])
    return named


def _require(role: Role) -> Callable[[Caller], Awaitable[Caller]]:
    async def check(caller: Annotated[Caller, Depends(authenticated)]) -> Caller:
        if _ROLES.index(caller.role) < _ROLES.index(role):
            raise ApiProblem("forbidden", f"This needs a key with the role {role}.")
        return caller

    return check


async def _operator(caller: Annotated[Caller, Depends(_require("admin"))]) -> Caller:
    """Who may do what is about whichever user: no key that is bound to one of them.

    Raises:
        ApiProblem: it is bound.
    """
    if caller.user_id is not None:
        raise ApiProblem("forbidden", "This needs a key that is not bound to a user.")
    return caller


Reader = Annotated[Caller, Depends(_require("read"))]
Writer = Annotated[Caller, Depends(_require("write"))]
Admin = Annotated[Caller, Depends(_operator)]


async def no_query(request: Request) -> None:
    """Refuse query parameters where there are none."""
    names = list(dict.fromkeys(request.query_params))
    if names:
        raise ApiProblem(
            "invalid-input",
            f"Unknown query parameters: {', '.join(names)}",
            errors=[(name, "unknown query parameter") for name in names],
        )


async def json_bytes(request: Request) -> bytes:
    """The body, of at most `max_body_bytes`, said to be JSON."""
    declared = request.headers.get("content-type", "application/json")
    media_type, _, parameters = declared.partition(";")
    charset = dict(
        part.strip().lower().split("=", 1) for part in parameters.split(";") if "=" in part
    ).get("charset", "utf-8")
    if media_type.strip().lower() != "application/json" or charset.strip('"') != "utf-8":
        raise ApiProblem("unsupported-media-type", "Send the body as application/json in UTF-8.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiProblem("unsupported-media-type", "Send the body without Content-Encoding.")
    return await request.body()


JsonBytes = Annotated[bytes, Depends(json_bytes)]


_KEY: Final = re.compile(rb'"[ \t\r\n]*:')


def _key_count(value: Any) -> int:
    """Keys of all objects in a JSON value."""
    if isinstance(value, dict):
        return len(value) + sum(
            _key_count(item) for item in value.values() if isinstance(item, dict | list)
        )
    if isinstance(value, list):
        return sum(_key_count(item) for item in value if isinstance(item, dict | list))
    return 0


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InvalidInput(((name[:100], "stands once in its object"),))


def decode_json(body: bytes) -> Any:
    """The JSON value of a body.

    orjson keeps the last of two equal keys and says nothing. Where the text has more keys than the
    value, or texts that look like some, a slower parser looks again.

    Raises:
        ApiProblem: it is none.
        InvalidInput: an object has a key twice.
    """
    try:
        value = orjson.loads(body)
        if len(_KEY.findall(body)) != _key_count(value):
            json.loads(body, object_pairs_hook=_each_once, parse_int=str, parse_float=str)
        return value
    except RecursionError:
        raise ApiProblem("malformed-json", "nested too deep to be looked through") from None
    except orjson.JSONDecodeError as error:
        raise ApiProblem(
            "malformed-json", f"{error.msg} (line {error.lineno}, column {error.colno})"
        ) from None


def body_of(model: type[M]) -> Callable[[JsonBytes], Awaitable[M]]:
    """A dependency: the body as the model, judged with the errors of the other routes.

    A coroutine, for a plain function would be called on a thread of its own for each request.

    Raises, when it is called:
        ApiProblem: it is no JSON.
        RequestValidationError: it breaks a rule of the model; every one is named.
    """

    async def parse(body: JsonBytes) -> M:
        decode_json(body)  # with our problems: no JSON, and keys that stand twice
        try:
            # JSON has types: "100" is no number, and what is taken for one hides a mistake.
            return model.model_validate_json(body, strict=True)
        except ValidationError as error:
            broken = [
                {**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)
            ]
            raise RequestValidationError(broken) from None

    return parse


def documented_body(
    schema: type[BaseModel] | Mapping[str, Any], *, required: bool = True
) -> dict[str, Any]:
    """The request body for OpenAPI: a model by its name, or a schema.

    Routes take bytes, to be judged by our own rules.
    """
    if isinstance(schema, type):
        schema = {"$ref": f"#/components/schemas/{schema.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}
