"""What routes ask for: who calls, with which body and cursor, on which services.

A cursor is opaque, and bound to the question it is a page of. It holds the version of its format, a
digest of the question, the clock of the first page and what the route wants to know again, as JSON:
the place of the last item, or the rest of a ranking. What has been ranked once is not ranked again,
so pages are disjoint and complete although the graph changes meanwhile, and any process of the API
can answer the next one. A cursor grants nothing: what it names is read again, within the tenant and
the user's scope. It is checked against damage, not against forgery.
"""

from __future__ import annotations

import base64
import bz2
import hmac
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from uuid import UUID
from zlib import crc32

import orjson
import structlog
from fastapi import Depends, Header, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from api.errors import ApiProblem
from api.retrieval.facts import FactScore, RankedFact
from api.retrieval.ranking import MAX_RANKING, Ranked
from api.services import Services
from pipelines.work.settings import ALL_TENANTS, ApiKey, Role
from projections.errors import InvalidInput
from projections.events import DEFAULT_TENANT, TENANT

M = TypeVar("M", bound=BaseModel)

KEY_HEADER: Final = "X-API-Key"
TENANT_HEADER: Final = "X-Tenant"

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


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, by the name of the key, and the one tenant this request is about."""

    name: str
    role: Role
    tenant: str


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
        caller = Caller(key.name, key.role, _tenant_of(key, x_tenant))
    structlog.contextvars.bind_contextvars(caller=caller.name)
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


Reader = Annotated[Caller, Depends(_require("read"))]
Writer = Annotated[Caller, Depends(_require("write"))]
Admin = Annotated[Caller, Depends(_require("admin"))]


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


def decode_json(body: bytes) -> Any:
    """The JSON value of a body.

    Raises:
        ApiProblem: it is none.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiProblem(
            "malformed-json", f"{error.msg} (line {error.lineno}, column {error.colno})"
        ) from None


def body_of(model: type[M]) -> Callable[[JsonBytes], M]:
    """A dependency: the body as the model, judged with the errors of the other routes.

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


def documented_body(schema: type[BaseModel] | Mapping[str, Any]) -> dict[str, Any]:
    """The request body for OpenAPI: a model by its name, or a schema.

    Routes take bytes, to be judged by our own rules.
    """
    if isinstance(schema, type):
        schema = {"$ref": f"#/components/schemas/{schema.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


T = TypeVar("T")

VERSION: Final = 2
CURSOR_RULE: Final = "a `next_cursor` of the same question, as it was given"
MAX_BYTES: Final = 120_000
"""Of what a cursor holds, unpacked."""
_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<B8sq")
_SCALE: Final = 65_535
"""Scores are kept as 16 bits."""
_MAX_FACT_SCORE: Final = 2.0
"""Of what facts are sorted by; all other scores are at most 1."""

_Share = Annotated[int, Field(ge=0, le=_SCALE)]
_Id = Annotated[str, Field(max_length=100)]
_Hops = Annotated[int, Field(ge=0, le=1_000)]


class _NodeRow(NamedTuple):
    """A node of a ranking."""

    node_id: _Id
    rank: _Share
    relevance: _Share
    depth: _Hops | None


class _FactRow(NamedTuple):
    """A fact of a ranking."""

    source_id: _Id
    target_id: _Id
    event_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    digest: _Id
    confidence: _Share
    match: _Share
    hop: _Hops
    composite: _Share
    score: _Share


_NODES = TypeAdapter(list[_NodeRow])
_FACTS = TypeAdapter(list[_FactRow])


def cursor_of(question: Sequence[Any], content: Any, now_ms: int = 0) -> str:
    """A cursor.

    Args:
        question: what must be the same on the next page: route, tenant, parameters.
        content: what the next page goes on from, as JSON can say it.
        now_ms: the clock of the question.
    """
    # bz2 packs ids in hexadecimal an eighth smaller than zlib, and 500 facts must fit.
    packed = bz2.compress(orjson.dumps(content, default=tuple))
    body = _HEAD.pack(VERSION, _question_digest(question), now_ms) + packed
    # Over the compressed bytes: some of their bits could change without a change of what they say.
    checked = _CHECKSUM.pack(crc32(body)) + body
    return base64.urlsafe_b64encode(checked).decode().rstrip("=")


def content_of(question: Sequence[Any], cursor: str, shape: TypeAdapter[T]) -> tuple[T, int]:
    """What a cursor holds, and the clock of its question.

    Args:
        question: as when the cursor was made.
        cursor: from the client.
        shape: of the content.

    Raises:
        InvalidInput: it is no cursor, was changed, or is of another question.
    """
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        (checksum,) = _CHECKSUM.unpack_from(packed)
        body = packed[_CHECKSUM.size :]
        version, digest, now_ms = _HEAD.unpack_from(body)
        if (version, digest, checksum) != (VERSION, _question_digest(question), crc32(body)):
            raise ValueError(version)
        unpacker = bz2.BZ2Decompressor()
        text = unpacker.decompress(body[_HEAD.size :], MAX_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError(len(packed))
        return shape.validate_json(text, strict=True), now_ms
    except (ValueError, OSError, struct.error):
        raise InvalidInput((("cursor", CURSOR_RULE),)) from None


def _question_digest(question: Sequence[Any]) -> bytes:
    return blake2b(orjson.dumps(question, default=str), digest_size=8).digest()


def ranking_cursor(question: Sequence[Any], ranking: Sequence[Ranked], now_ms: int) -> str | None:
    """The cursor of the nodes that are still to come; None: none are.

    Args:
        question: what must be the same on the next page.
        ranking: behind this page.
        now_ms: the clock of the question.
    """
    rows = [
        _NodeRow(node.node_id, _share(node.rank), _share(node.relevance), node.depth)
        for node in ranking[:MAX_RANKING]
    ]
    return cursor_of(question, rows, now_ms) if rows else None


def ranking_of(question: Sequence[Any], cursor: str) -> tuple[list[Ranked], int]:
    """The rest of a ranking, the best first, and the clock of the question.

    Raises:
        InvalidInput: as `content_of`.
    """
    rows, now_ms = content_of(question, cursor, _NODES)
    ranking = [
        Ranked(row.node_id, row.rank / _SCALE, row.relevance / _SCALE, row.depth) for row in rows
    ]
    return ranking, now_ms


def facts_cursor(question: Sequence[Any], facts: Iterable[RankedFact], now_ms: int) -> str | None:
    """The cursor of the facts that are still to come, at most 500; None: none are.

    Args:
        question: what must be the same on the next page.
        facts: behind this page.
        now_ms: the clock of the question.
    """
    rows = [
        _FactRow(
            source_id=fact.source_id,
            target_id=fact.target_id,
            event_id=fact.event_id.replace("-", ""),  # 500 facts must fit
            digest=fact.digest,
            confidence=_share(fact.scores.confidence),
            match=_share(fact.scores.match),
            hop=fact.scores.hop,
            composite=_share(fact.scores.composite),
            score=_share(fact.scores.score / _MAX_FACT_SCORE),
        )
        for fact in facts
    ]
    return cursor_of(question, rows, now_ms) if rows else None


def facts_of(question: Sequence[Any], cursor: str) -> tuple[list[RankedFact], int]:
    """The rest of a ranking of facts, the best first, and the clock of the question.

    Raises:
        InvalidInput: as `content_of`.
    """
    rows, now_ms = content_of(question, cursor, _FACTS)
    return [_ranked_fact(row) for row in rows], now_ms


def _ranked_fact(row: _FactRow) -> RankedFact:
    scores = FactScore(
        confidence=row.confidence / _SCALE,
        match=row.match / _SCALE,
        hop=row.hop,
        composite=row.composite / _SCALE,
        score=row.score / _SCALE * _MAX_FACT_SCORE,
    )
    event_id = str(UUID(row.event_id))
    return RankedFact(
        source_id=row.source_id,
        target_id=row.target_id,
        event_id=event_id,
        digest=row.digest,
        scores=scores,
    )


def _share(value: float) -> int:
    return round(min(1.0, max(0.0, value)) * _SCALE)
