"""What routes ask for: who calls, with which body, on which services, within which time."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio import CapacityLimiter
from fastapi import Depends, Header, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from api.access_log import AccessLog
from api.connections import Connections
from api.errors import ApiProblem
from api.result_cache import ResultCache
from api.retrieval.candidates import PassageCache
from api.retrieval.proactive import SessionHistory
from api.watcher import Watch
from pipelines.ledger.ledger import Ledger
from pipelines.models.query_embedder import QueryEmbedder
from pipelines.work.settings import ALL_TENANTS, ApiKey, Role, Settings
from projections.errors import LedgerUnavailable, QueryTimeout
from projections.events import DEFAULT_TENANT

T = TypeVar("T")

KEY_HEADER: Final = "X-API-Key"
TENANT_HEADER: Final = "X-Tenant"
GRACE_MS: Final = 3_000
"""Beyond a query's own limit, for a database that does not enforce it: it hangs, or the network
does. Neo4j looks for expired transactions every 2 s unless configured otherwise."""

QUERIES_AT_ONCE: Final = 6
"""More would wait for the interpreter, and make each other wait."""
CHANNEL_THREADS: Final = 48
"""For the parts of queries that run side by side; they wait for the database, mostly."""

_ROLES: Final[tuple[Role, ...]] = ("read", "write", "admin")
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

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
        found: ApiKey | None = None
        for known, key in self._keys:
            if hmac.compare_digest(known, digest):
                found = key
        return found


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, by the name of the key, and the one tenant this request is about."""

    name: str
    role: Role
    tenant: str


class Services:
    """What the routes of one app share.

    Reads and appends have threads of their own: slow queries never keep events waiting.
    """

    def __init__(self, settings: Settings, connections: Connections, watch: Watch) -> None:
        self.settings = settings
        self.connections = connections
        self.watch = watch
        self.embedder = QueryEmbedder(settings)
        self.channels = ThreadPoolExecutor(CHANNEL_THREADS, thread_name_prefix="channel")
        self.results = ResultCache(settings.result_cache_s, settings.result_cache_bytes)
        self.passages = PassageCache(settings.passage_cache_bytes)
        self.history = SessionHistory()
        self.accesses = AccessLog(self.ledger, lambda: watch.sample.overloaded(settings))
        self._read_threads = CapacityLimiter(32)
        self._query_threads = CapacityLimiter(QUERIES_AT_ONCE)
        self._append_threads = CapacityLimiter(16)

    def close(self) -> None:
        """End what runs beside requests; what still waits for a server is not waited for."""
        self.accesses.stop()
        self.channels.shutdown(wait=False, cancel_futures=True)
        self.embedder.close()

    def ledger(self) -> Ledger:
        """The ledger, unless the last look found it away.

        A call to a Redis that is away goes on trying for seconds; when it is known to be, callers
        hear so at once and no thread waits.

        Raises:
            LedgerUnavailable: it was away a moment ago.
        """
        error = self.watch.sample.ledger_error
        if error is not None:
            raise LedgerUnavailable(reason=error)
        return self.connections.ledger

    async def append(self, work: Callable[[], T]) -> T:
        """Run work that appends; it is never abandoned half-way."""
        return await anyio.to_thread.run_sync(work, limiter=self._append_threads)

    async def read(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run work that reads; given up when even the database's own limit did not end it.

        Raises:
            QueryTimeout: it was.
        """
        return await self._within(work, timeout_ms, self._read_threads)

    async def query(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """As `read`, for what computes as much as it reads: a few at once, the others wait.

        Raises:
            QueryTimeout: it was given up, or its turn did not come.
        """
        return await self._within(work, timeout_ms, self._query_threads)

    async def _within(self, work: Callable[[], T], timeout_ms: int, limiter: CapacityLimiter) -> T:
        result: list[T] = []
        with anyio.move_on_after((timeout_ms + GRACE_MS) / 1000):
            result.append(
                await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
            )
        if not result:
            raise QueryTimeout(timeout_ms=timeout_ms, reason="no answer in time")
        return result[0]


async def services(request: Request) -> Services:
    """The services of the app."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


ServicesOf = Annotated[Services, Depends(services)]


def keyring(request: Request) -> Keyring:
    """The keys of the app."""
    found = request.app.state.keyring
    assert isinstance(found, Keyring)
    return found


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
    if _TENANT.fullmatch(named) is None:
        rule = (TENANT_HEADER, f"matches ^{_TENANT.pattern}$")
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


class Deadline:
    """A time limit that several steps share."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._began_s = time.monotonic()

    def elapsed_ms(self) -> int:
        """Milliseconds since it began."""
        return round((time.monotonic() - self._began_s) * 1000)

    def remaining_ms(self) -> int:
        """What is left, at least 1.

        Raises:
            QueryTimeout: nothing is.
        """
        left = self.timeout_ms - self.elapsed_ms()
        if left <= 0:
            raise QueryTimeout(timeout_ms=self.timeout_ms, reason="no time left")
        return left
