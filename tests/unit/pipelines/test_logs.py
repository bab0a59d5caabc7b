"""Log lines hold what they should, and no secret."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from structlog.contextvars import bound_contextvars

from pipelines.observe import logs
from pipelines.work.settings import ApiKey, Settings

REDIS_PASSWORD = "p/w@with:odd%chars"
NEO4J_PASSWORD = 'quoted"and\\slashed'
API_KEY = "k-0123456789abcdef"
SECRETS = (REDIS_PASSWORD, NEO4J_PASSWORD, API_KEY)


def settings(**given: Any) -> Settings:
    return Settings(
        redis_url=f"redis://user:{REDIS_PASSWORD}@127.0.0.1:6379/0",
        redis_password=SecretStr(REDIS_PASSWORD),
        neo4j_password=SecretStr(NEO4J_PASSWORD),
        api_keys=(ApiKey(name="agent", key=SecretStr(API_KEY), role="write"),),
        **given,
    )


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Logging as it was before, so that no other test inherits our handlers and levels."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ["faust", "mode", "uvicorn", "uvicorn.error", "uvicorn.access", "aiohttp.access"]
    named = [logging.getLogger(name) for name in [*names, "redis", "neo4j"]]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in named]
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for logger, its_handlers, its_level, propagate in before:
        logger.handlers[:] = its_handlers
        logger.setLevel(its_level)
        logger.propagate = propagate


Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(restored_logging: None, monkeypatch: pytest.MonkeyPatch) -> Lines:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.configure_logging(settings())
    return lambda: [json.loads(line) for line in stderr.getvalue().splitlines()]


def test_a_line_is_json_with_utc_time_level_logger_and_context(lines: Lines) -> None:
    with bound_contextvars(request_id="r-1", stage="projection", target="blue", partition=3):
        logs.get_logger("pipelines.work.runner").info("block applied", entries=500)
    [line] = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "event": "block applied",
        "logger": "pipelines.work.runner",
        "entries": 500,
        "request_id": "r-1",
        "stage": "projection",
        "target": "blue",
        "partition": 3,
    }


@pytest.mark.parametrize("name", ["faust.worker", "mode.services", "uvicorn.error", "other"])
def test_foreign_loggers_go_through_the_same_renderer(lines: Lines, name: str) -> None:
    with bound_contextvars(request_id="r-2"):
        logging.getLogger(name).warning("lost %s", "connection")
    [line] = lines()
    assert (line["logger"], line["event"], line["request_id"]) == (name, "lost connection", "r-2")


@pytest.mark.parametrize("name", ["neo4j.pool", "redis.connection"])
def test_errors_of_the_drivers_go_through_the_same_renderer(lines: Lines, name: str) -> None:
    logging.getLogger(name).error("cannot connect to %s", settings().redis_url)
    [line] = lines()
    assert line["event"] == "cannot connect to redis://[redacted]@127.0.0.1:6379/0"


def test_uvicorn_and_faust_keep_no_handler_of_their_own(
    restored_logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("uvicorn", "faust"):
        logging.getLogger(name).addHandler(logging.StreamHandler(sys.stderr))
    logs.configure_logging(settings())
    logging.getLogger("uvicorn").error("once")
    logging.getLogger("faust").error("once")
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_lines_below_the_level_are_left_out(lines: Lines) -> None:
    logs.get_logger("x").debug("not shown")
    logging.getLogger("x").debug("not shown")
    logging.getLogger("uvicorn.access").info("GET /v1/nodes?key=value")
    assert lines() == []


def test_warnings_of_python_are_lines_too(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old and tired", UserWarning, stacklevel=1)
    [line] = lines()
    assert "old and tired" in line["event"]


@dataclass
class Holder:
    secret_inside: str


LEAKS: dict[str, Callable[[structlog.stdlib.BoundLogger], object]] = {
    "the settings": lambda log: log.info("start", settings=settings()),
    "the settings' fields": lambda log: log.info("start", **settings().model_dump()),
    "a URL": lambda log: log.info("connect", url=settings().redis_url),
    "a URL in the text": lambda log: log.info("connect to " + settings().redis_url),
    "a secret among words": lambda log: log.info(f"got {API_KEY}, {NEO4J_PASSWORD}"),
    "bytes": lambda log: log.info("got", body=API_KEY.encode()),
    "a nested mapping": lambda log: log.info("got", a={"b": [{"c": (NEO4J_PASSWORD,)}]}),
    "a key of a mapping": lambda log: log.info("got", a={API_KEY: 1}),
    "an object": lambda log: log.info("got", holder=Holder(REDIS_PASSWORD)),
    "an exception as a value": lambda log: log.info("got", error=ValueError(API_KEY)),
    "positional arguments": lambda log: log.info("got %s", API_KEY),
    "a foreign line": lambda log: logging.getLogger("f").error("got %s", API_KEY),
    "a foreign extra": lambda log: logging.getLogger("f").error("got", extra={"x": API_KEY}),
}


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("leak", LEAKS)
def test_no_secret_of_the_settings_comes_out(
    restored_logging: None, capsys: pytest.CaptureFixture[str], leak: str, log_format: Any
) -> None:
    logs.configure_logging(settings(log_format=log_format))
    LEAKS[leak](logs.get_logger("x"))
    text = capsys.readouterr().err
    assert "[redacted]" in text
    assert [secret for secret in SECRETS if is_in(secret, text)] == []


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_comes_out_of_a_traceback(
    restored_logging: None, capsys: pytest.CaptureFixture[str], log_format: Any
) -> None:
    logs.configure_logging(settings(log_format=log_format))
    local = API_KEY
    try:
        try:
            raise ConnectionError(f"refused by {settings().redis_url}")
        except ConnectionError as error:
            raise ValueError(f"with {local}") from error
    except ValueError:
        logs.get_logger("x").exception("failed")
        logging.getLogger("f").exception("failed")
    text = capsys.readouterr().err
    assert text.count("ValueError: with [redacted]") == 2
    assert [secret for secret in SECRETS if is_in(secret, text)] == []


def is_in(secret: str, text: str) -> bool:
    """Whether a secret is in the text, as it is or as JSON or `repr` would write it."""
    return any(form in text for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]))


UNKNOWN = "Zx9-unknown-value"


@pytest.mark.parametrize(
    "fields",
    [
        {"password": UNKNOWN},
        {"neo4j_password": UNKNOWN},
        {"api_key": UNKNOWN},
        {"key": UNKNOWN},
        {"X-Api-Key": UNKNOWN},
        {"Authorization": f"Digest {UNKNOWN}"},
        {"access_token": UNKNOWN},
        {"client_secret": UNKNOWN},
        {"auth": (UNKNOWN, UNKNOWN)},
        {"set-cookie": UNKNOWN},
        {"headers": {"authorization": UNKNOWN}},
        {"headers": [("authorization", UNKNOWN)]},
        {"headers": [(b"authorization", UNKNOWN.encode())]},
        {"secret": 123456},
        {"text": f"Authorization: Bearer {UNKNOWN}"},
        {"text": f"Authorization: Digest username=x, response={UNKNOWN}"},
        {"text": f"sent bearer {UNKNOWN} to it"},
        {"text": f"redis://:{UNKNOWN}@host:6379/0"},
        {"text": f"redis://:a/b@{UNKNOWN}@host:6379/0"},
        {"text": f"redis+sentinel://:{UNKNOWN}@a:1,b:2/main/0"},
        {"text": f"https://{UNKNOWN}@host/path"},
        {"text": f"password={UNKNOWN} port=1"},
        {"text": f'{{"password": "{UNKNOWN}"}}'},
        {"text": f"neo4j_password='{UNKNOWN} and more'"},
        {"text": f"?api_key={UNKNOWN}&x=1"},
        {"text": f"X-API-Key: {UNKNOWN}"},
        {"text": f"token: {UNKNOWN}"},
    ],
)
def test_what_looks_like_a_credential_is_redacted(fields: dict[str, Any]) -> None:
    redact = logs.Redactor()
    text = json.dumps(redact(None, "info", {"event": "x", **fields}))
    assert "[redacted]" in text
    assert [rest for rest in (UNKNOWN, "123456", "and more") if rest in text] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "redis://127.0.0.1:6379/0", "entries": 5, "ratio": 0.5, "ok": True, "none": None},
        {"event_id": "0190…", "session_id": "s@example.org", "partition_key": "default/s"},
        {"text": "the author asks: who holds the keys of partition 3?"},
        {"position": "1770806400000-0", "items": ["a", "b", "c"]},
    ],
)
def test_ordinary_fields_come_out_as_they_are(fields: dict[str, Any]) -> None:
    redact = logs.Redactor(SECRETS)
    assert redact(None, "info", {"event": "x", **fields}) == {"event": "x", **fields}


around = st.text(st.characters(exclude_characters="§"), max_size=40)


@given(
    secret=st.text(min_size=4, max_size=40), before=around, after=around, depth=st.integers(0, 4)
)
def test_a_known_secret_never_survives(secret: str, before: str, after: str, depth: int) -> None:
    secret = f"§{secret}§"
    value: object = before + secret + after
    for _ in range(depth):
        value = {"inner": [value]}
    redacted = logs.Redactor([secret])(None, "info", {"event": value})
    assert "§" not in str(redacted)


def test_a_long_text_is_redacted_in_linear_time() -> None:
    """200 kB of the worst input; a quadratic pattern would take minutes, not a second."""
    redact = logs.Redactor(SECRETS)
    for worst in ("://" * 70_000, "password" * 25_000, "a:" * 100_000, "token=" * 33_000):
        assert isinstance(redact.text(worst), str)


@pytest.mark.timeout(20)
def test_values_json_cannot_hold_still_make_a_line(lines: Lines) -> None:
    log = logs.get_logger("x")
    log.info("big", number=2**80)
    log.info("lone", text="\ud800")
    loop: list[object] = []
    loop.append(loop)
    log.info("loop", loop=loop)
    assert [line["event"].strip("'") for line in lines()] == ["big", "lone", "loop"]


def test_short_values_are_not_taken_for_secrets() -> None:
    redact = logs.Redactor(["a", "is"])
    assert redact.text("this is a line") == "this is a line"


def test_a_line_that_cannot_be_rendered_does_not_print_its_arguments(
    restored_logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure_logging(settings())
    logging.getLogger("f").error("%d", API_KEY)
    assert capsys.readouterr().err == "a log line of f could not be written\n"
