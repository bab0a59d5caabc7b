"""A question to the API: to one that runs, or to one in this process for as long as it takes.

Both answer alike; a running one has its models loaded. The API stands on `pipelines`, so it is
imported here by name only.
"""

from __future__ import annotations

import importlib
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
from pydantic import SecretStr

from pipelines.settings import ALL_TENANTS, ApiKey, Settings
from projections.errors import GraphUnavailable, InvalidInput, LedgerUnavailable, OperationFailed

SUBGRAPH = "/v1/query/subgraph"
FACTS = "/v1/query/facts"
MARKDOWN = "text/markdown"
_JSON = "application/json"
_GRACE_S = 10.0


class Answer(NamedTuple):
    """What came back: a document, or text when that was asked for."""

    document: dict[str, Any]
    text: str = ""


class Asked(Protocol):
    """Who answers."""

    def ask(
        self, path: str, body: Mapping[str, Any], tenant: str, *, accept: str = _JSON
    ) -> Answer:
        """The answer to a question.

        Raises:
            InvalidInput: naming the fields that break a rule.
            LedgerUnavailable, GraphUnavailable: a service is away.
            OperationFailed: anything else that is no answer.
        """


class RunningApi:
    """An API somewhere.

    Args:
        url: of its root.
        key: sent as a bearer token; None: none is needed.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._key = key

    def ask(
        self, path: str, body: Mapping[str, Any], tenant: str, *, accept: str = _JSON
    ) -> Answer:
        """See `Asked`."""
        headers = {"Content-Type": _JSON, "Accept": accept, "X-Tenant": tenant}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(  # noqa: S310 - the URL is the user's own, or ours
            self._url + path, data=orjson.dumps(body), headers=headers, method="POST"
        )
        timeout_s = int(body.get("timeout_ms", 5_000)) / 1000 + _GRACE_S
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
                return _answer(answer.status, answer.read(), accept)
        except urllib.error.HTTPError as error:
            return _answer(error.code, error.read(), accept)
        except OSError as error:
            raise OperationFailed(reason=f"no API at {self._url}: {error}") from None

    def close(self) -> None:
        """Nothing is kept open."""


class OwnApi:
    """An API in this process, over the same services, without a port; closed with `close`."""

    def __init__(self, settings: Settings) -> None:
        secret = secrets.token_urlsafe(24)
        key = ApiKey(name="ask", key=SecretStr(secret), tenant=ALL_TENANTS, role="read")
        own = settings.model_copy(update={"api_keys": (key,)})
        self._app = importlib.import_module("api.in_process").InProcess(own)
        self._bearer = f"Bearer {secret}"

    def ask(
        self, path: str, body: Mapping[str, Any], tenant: str, *, accept: str = _JSON
    ) -> Answer:
        """See `Asked`."""
        headers = {
            "content-type": _JSON,
            "accept": accept,
            "x-tenant": tenant,
            "authorization": self._bearer,
        }
        status, data = self._app.post(path, orjson.dumps(body), headers)
        return _answer(status, data, accept)

    def close(self) -> None:
        """End it."""
        self._app.close()


def _answer(status: int, data: bytes, accept: str) -> Answer:
    if status == 200 and accept == MARKDOWN:
        return Answer({}, data.decode())
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        document = {}
    if status == 200:
        return Answer(document)
    errors = tuple((one["field"], one["rule"]) for one in document.get("errors", ()))
    if status == 422 and errors:
        raise InvalidInput(errors)
    kind = str(document.get("type", "")).rpartition(":")[2]
    detail = document.get("detail") or f"status {status}"
    if kind == "ledger-unavailable":
        raise LedgerUnavailable(reason=detail)
    if kind == "graph-unavailable":
        raise GraphUnavailable(reason=detail)
    raise OperationFailed(reason=f"{document.get('title', 'the API did not answer')}: {detail}")


def running_api(data_dir: Path) -> RunningApi | None:
    """The API of the embedded services on a data folder; None: none runs."""
    from pipelines.hosting import read_holder

    if not (data_dir / "run").exists():
        return None
    held = read_holder(data_dir)
    if held is None:
        return None
    key_file = held.get("api_key_file")
    key = Path(key_file).read_text(encoding="utf-8").strip() if key_file else None
    return RunningApi(held["api_url"], key)
