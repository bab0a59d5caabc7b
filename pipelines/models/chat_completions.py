"""One request to an OpenAI-compatible server: messages in, the text of the answer out.

On `http.client`, so that an optional feature brings no dependency. It follows no redirect and
heeds no proxy variable: the key goes where the settings say and nowhere else. What a server says
about an error is not repeated, because servers quote keys and texts.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr

from pipelines.observe.metrics import LlmOutcome
from projections.errors import ConfigurationError

MAX_ANSWER_BYTES: Final = 2**20
"""Of a body; the longest answer that is asked for has some 10 KiB."""

_OK: Final = 200
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = range(500, 600)
_REQUEST_TIMEOUTS: Final = (408, 425)


class CompletionFailed(Exception):
    """A request without a usable answer.

    Attributes:
        outcome: what went wrong, a label of the metrics.
        status: of the HTTP answer, if there was one.
        again: whether the same request may succeed in a moment.
        retry_after_s: what the server advises.
    """

    def __init__(
        self,
        outcome: LlmOutcome,
        *,
        status: int | None = None,
        again: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(outcome if status is None else f"{outcome} ({status})")
        self.outcome = outcome
        self.status = status
        self.again = again
        self.retry_after_s = retry_after_s


class ChatCompletions:
    """The `chat/completions` of one server. Safe for use by several threads.

    Args:
        url: what comes before `/chat/completions`.
        model: its name on that server.
        api_key: sent as a bearer token.
        timeout_s: from the first packet to the last byte of the answer, seconds.
        response_format: json_schema, json_object or text.

    Raises:
        ConfigurationError: the URL or the key cannot be sent.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: SecretStr | None = None,
        *,
        timeout_s: float = 30.0,
        response_format: str = "json_schema",
    ) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            raise ConfigurationError(reason="llm_url: no usable URL") from None
        if not self._host or not url.isascii() or not url.isprintable():
            raise ConfigurationError(reason="llm_url: no usable URL")
        key = api_key.get_secret_value() if api_key is not None else ""
        # The header's own check would quote the value.
        if not key.isascii() or not key.isprintable():
            raise ConfigurationError(reason="llm_api_key: printable ASCII only")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/") + "/chat/completions"
        self._model = model
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._response_format = response_format
        self._guard = threading.Lock()
        self._closed = False
        self._opened: set[socket.socket] = set()

    def close(self) -> None:
        """End the requests that are under way, and those that come: none of them is answered."""
        with self._guard:
            self._closed = True
            opened = list(self._opened)
        for connection in opened:
            _end(connection)

    def complete(
        self,
        messages: Sequence[dict[str, str]],
        *,
        name: str,
        schema: dict[str, Any],
        max_tokens: int,
    ) -> Any:
        """The JSON value that the model answered.

        Args:
            messages: of the conversation.
            name: of the schema.
            schema: that the answer should have; a server may ignore it.
            max_tokens: of the answer.

        Raises:
            CompletionFailed: there is none.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            # As repeatable as servers allow, which is not very: hence the cache.
            "temperature": 0,
            "seed": 0,
            "max_tokens": max_tokens,
            "stream": False,
        }
        if self._response_format == "json_schema":
            described = {"name": name, "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
        elif self._response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return _json_of(self._post(orjson.dumps(body)))

    def _post(self, body: bytes) -> bytes:
        connection = self._connection()
        late = threading.Event()
        began_s = time.monotonic()
        try:
            connection.connect()
            left_s = self._timeout_s - (time.monotonic() - began_s)
            with (
                self._under_way(connection.sock),
                _deadline(connection.sock, max(0.0, left_s), late),
            ):
                connection.request("POST", self._path, body, self._headers())
                with connection.getresponse() as answer:
                    if answer.status != _OK:
                        raise _failure(answer)
                    data = answer.read(MAX_ANSWER_BYTES + 1)
                    missing = answer.length or 0
        except TimeoutError:
            raise CompletionFailed("timeout") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set():
                raise CompletionFailed("timeout") from None
            refused = isinstance(error, ssl.SSLCertVerificationError)
            raise CompletionFailed("unreachable", again=not refused) from None
        finally:
            connection.close()
        if late.is_set():  # a body without a length ends where the connection does
            raise CompletionFailed("timeout")
        if len(data) > MAX_ANSWER_BYTES:
            raise CompletionFailed("malformed")
        if missing:
            raise CompletionFailed("unreachable", again=True)
        return data

    @contextlib.contextmanager
    def _under_way(self, opened: socket.socket) -> Iterator[None]:
        with self._guard:
            if self._closed:
                raise CompletionFailed("unreachable")
            self._opened.add(opened)
        try:
            yield
        finally:
            with self._guard:
                self._opened.discard(opened)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._tls
        )

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        return headers


@contextlib.contextmanager
def _deadline(opened: socket.socket, timeout_s: float, late: threading.Event) -> Iterator[None]:
    """End a connection that takes longer than it may.

    The socket's own limit is one of each read: a server that sends a byte a second would hold a
    worker for days.
    """

    def end() -> None:
        late.set()
        _end(opened)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(opened: socket.socket) -> None:
    """Whoever reads from it, or writes to it, sees the end at once."""
    with contextlib.suppress(OSError):
        # The system's call and not that of TLS, which another thread is in the middle of.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _failure(answer: http.client.HTTPResponse) -> CompletionFailed:
    status = answer.status
    advised = _retry_after_s(answer.headers.get("Retry-After"))
    if status == _TOO_MANY:
        return CompletionFailed("rate_limited", status=status, again=True, retry_after_s=advised)
    if status in _SERVER_ERRORS or status in _REQUEST_TIMEOUTS:
        return CompletionFailed("server_error", status=status, again=True, retry_after_s=advised)
    return CompletionFailed("refused", status=status)


def _retry_after_s(header: str | None) -> float | None:
    """Seconds, from either form of the header; None when there is none or it is nonsense."""
    if header is None:
        return None
    try:
        if header.strip().isdecimal():
            return float(header)
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _json_of(body: bytes) -> Any:
    """The value inside `choices[0].message.content`."""
    try:
        content = orjson.loads(body)["choices"][0]["message"]["content"]
        if not isinstance(content, str):
            raise CompletionFailed("malformed")
        return orjson.loads(_bare(content))
    except (ValueError, LookupError, TypeError):
        raise CompletionFailed("malformed") from None


def _bare(content: str) -> str:
    """An answer without the thoughts before it and the fence around it, which some models add."""
    text = content.rpartition("</think>")[2].strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json").strip()
    return text
