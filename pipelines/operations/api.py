"""The API as commands use it: served by this process, asked over HTTP, or asked in this process.

A running one has its models loaded; one in this process lives for as long as the question takes.
Both answer alike. The API stands on `pipelines`, so commands reach it by name, and only here.
"""

from __future__ import annotations

import importlib
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from pydantic import SecretStr

from pipelines.local.data_folder import read_holder
from pipelines.local.processes import usable_cores
from pipelines.work.settings import ALL_TENANTS, ApiKey, Settings
from projections.errors import GraphUnavailable, InvalidInput, LedgerUnavailable, OperationFailed

SUBGRAPH = "/v1/query/subgraph"
WHY = "/v1/query/why"
WHY_INTENT = "why"
_OF_WHY = (
    *("query", "session_id", "agent_id", "user_id", "timeout_ms", "record_access"),
    *("as_of", "as_of_position", "min_position"),
)
"""Fields of a query for a subgraph that a question for causes has, too."""
MARKDOWN = "text/markdown"
_JSON = "application/json"
_GRACE_S = 10.0
TIMEOUT_MS = 30_000
"""A person waits, as for the first plans of a server that has just been started."""
FAILURES = ("failed", "timeout")
"""The statuses of an event that failed."""


class ApiAnswer(NamedTuple):
    """What came back: a document, or text when that was asked for."""

    document: dict[str, Any]
    text: str = ""


class ApiClient:
    """Asks an API; `_send` is how it is reached."""

    def ask(
        self, path: str, body: Mapping[str, Any], tenant: str, *, accept: str = _JSON
    ) -> ApiAnswer:
        """The answer to a question.

        Raises:
            InvalidInput: naming the fields that break a rule.
            LedgerUnavailable: Redis is away.
            GraphUnavailable: Neo4j is away.
            OperationFailed: anything else that is no answer.
        """
        headers = {"content-type": _JSON, "accept": accept, "x-tenant": tenant}
        limit_s = int(body.get("timeout_ms", 5_000)) / 1000
        return _answer(
            *self._send("POST", path, headers, body=orjson.dumps(body), limit_s=limit_s), accept
        )

    def look(self, path: str, query: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        """What a route shows that takes its question as parameters; None among them is left out.

        Raises:
            As `ask`; OperationFailed, too, for what is not there.
        """
        return self._looked(path, query, tenant, _JSON).document

    def read(self, path: str, query: Mapping[str, Any], tenant: str) -> str:
        """The same as text in Markdown."""
        return self._looked(path, query, tenant, MARKDOWN).text

    def _looked(self, path: str, query: Mapping[str, Any], tenant: str, accept: str) -> ApiAnswer:
        given = {name: value for name, value in query.items() if value is not None}
        headers = {"accept": accept, "x-tenant": tenant}
        limit_s = TIMEOUT_MS / 1000
        target = f"{path}?{urlencode(given)}"
        return _answer(*self._send("GET", target, headers, body=b"", limit_s=limit_s), accept)

    def metrics(self) -> str:
        """What it shows to Prometheus.

        Raises:
            OperationFailed: it does not answer, or something else does.
        """
        status, data = self._send("GET", "/metrics", {}, body=b"", limit_s=TIMEOUT_MS / 1000)
        if status != 200:
            raise OperationFailed(reason=f"no metrics: status {status}")
        return data.decode()

    def why(
        self, question: Mapping[str, Any], answer: Mapping[str, Any], tenant: str
    ) -> dict[str, Any] | None:
        """The tree of causes that a question is also answered by; None: it asks for none.

        Args:
            question: the body of the query for a subgraph.
            answer: to it.
            tenant: whose memory is asked.
        """
        if answer["meta"]["intent"] != WHY_INTENT or not answer["nodes"]:
            return None
        body = {name: question[name] for name in _OF_WHY if name in question}
        document = self.ask(WHY, body, tenant).document
        return document if document["answer"]["tree"] else None

    def close(self) -> None:
        """End what was kept open."""

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], *, body: bytes, limit_s: float
    ) -> tuple[int, bytes]:
        raise NotImplementedError


class RunningApi(ApiClient):
    """An API somewhere.

    Args:
        url: of its root.
        key: sent as a bearer token; None: none is needed.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._key = key

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], *, body: bytes, limit_s: float
    ) -> tuple[int, bytes]:
        sent = dict(headers)
        if self._key is not None:
            sent["authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(  # noqa: S310 - the URL is the user's own, or ours
            self._url + path, data=body or None, headers=sent, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=limit_s + _GRACE_S) as answer:  # noqa: S310
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            raise OperationFailed(reason=f"no API at {self._url}: {error}") from None


class InProcessApi(ApiClient):
    """An API in this process, over the same services, without a port; closed with `close`."""

    def __init__(self, settings: Settings) -> None:
        secret = secrets.token_urlsafe(24)
        key = ApiKey(name="ask", key=SecretStr(secret), tenant=ALL_TENANTS, all_users=True)
        keyed = settings.model_copy(update={"api_keys": (key,)})
        self._app = _of_api("main", "InProcess")(keyed)
        self._bearer = f"Bearer {secret}"

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], *, body: bytes, limit_s: float
    ) -> tuple[int, bytes]:
        sent = {**headers, "authorization": self._bearer}
        status, data = self._app.request(method, path, body, sent)
        return int(status), bytes(data)

    def close(self) -> None:
        """End it."""
        self._app.close()


def serve_api(settings: Settings) -> None:
    """Serve the API until a signal stops it, by as many processes as the settings say.

    One serves in this process; none said: as many as there are cores.

    Raises:
        ConfigurationError: there is no API key and `insecure_dev` is not set.
        OperationFailed: a process does not start.
        OSError: it cannot listen where the settings say.
    """
    processes = settings.api_processes or usable_cores()
    if processes == 1:
        _of_api("main", "serve")(settings)
    else:
        _of_api("processes", "serve")(settings, processes)


def _of_api(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"api.{module}"), name)


def _answer(status: int, data: bytes, accept: str) -> ApiAnswer:
    if status == 200 and accept == MARKDOWN:
        return ApiAnswer({}, data.decode())
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        document = {}
    if status in (200, 202):
        return ApiAnswer(document)
    errors = tuple((error["field"], error["rule"]) for error in document.get("errors", ()))
    if status == 422 and errors:
        raise InvalidInput(errors)
    kind = str(document.get("type", "")).rpartition(":")[2]
    detail = document.get("detail") or f"status {status}"
    if kind == "ledger-unavailable":
        raise LedgerUnavailable(reason=detail)
    if kind == "graph-unavailable":
        raise GraphUnavailable(reason=detail)
    raise OperationFailed(reason=f"{document.get('title', 'the API did not answer')}: {detail}")


class Place(NamedTuple):
    """Where an API is, and the key for it; None: it needs none."""

    url: str
    key: str | None


def running_place(data_dir: Path) -> Place | None:
    """Where the API of the embedded services on a data folder is; None: none runs."""
    if not (data_dir / "run").exists():
        return None
    held = read_holder(data_dir)
    if held is None:
        return None
    key_file = held.get("api_key_file")
    return Place(held["api_url"], read_key(Path(key_file)) if key_file else None)


def read_key(path: Path) -> str:
    """The key that a file holds."""
    return path.read_text(encoding="utf-8").strip()


def serve_tools(
    place: Place,
    *,
    tenant: str | None,
    agent_id: str | None,
    user_id: str | None,
    session_id: str | None,
) -> None:
    """Serve the tools for models over standard input and output, until the input ends.

    Args:
        place: of the API that is asked.
        tenant: for a key of all tenants.
        agent_id: who asks; None: the program that calls.
        user_id: in whose view; None: nobody's.
        session_id: where; None: one for each agent, user and day.
    """
    defaults = _of_api("mcp.tool_call", "Defaults")(agent_id, user_id, session_id)
    _of_api("mcp.server", "serve")(place.url, place.key, tenant, defaults)
