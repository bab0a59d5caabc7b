"""Logs: every line of every process is rendered here, as JSON or for a console, without secrets."""

from __future__ import annotations

import logging
import logging.config
import re
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, TextIO

import orjson
import structlog
from pydantic import SecretStr

from pipelines.work.settings import Settings

REDACTED = "[redacted]"
_MAX_DEPTH = 8
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|cookie"
    r"|(^|[_\-.])(auth|pwd)$|(api|access|private|signing|encryption)[_\-]?keys?|^x-api-key$|^keys?$",
    re.IGNORECASE,
)
# Names that hold one of the words above and are no secret; the page token is the caller's own.
_HARMLESS_NAMES = frozenset({"page_token", "tokens", "token_count"})
# Every repetition that may run over a long text is bounded or linear.
_SECRET_TEXT = (
    # redis://:pw@host, bolt://user:pw@host; a password may hold an unescaped slash or @, so up to
    # the last @ before a blank or a quote
    (re.compile(r"(?<=://)[^\s'\"<>]{0,512}@"), f"{REDACTED}@"),
    (
        re.compile(r"(authorization[\"']?\s*[=:]\s*[\"']?)[^\s\"'][^\r\n\"']*", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=:-]{6,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (
        re.compile(
            r"((?:password|passwd|passphrase|secret|token|api[_-]?key|\bauth|\bpwd)"
            r"[\"']?\s*[=:]\s*)(?!\[redacted\])(\"[^\"]*\"|'[^']*'|[^\s,;&})\]]+)",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
)
# Without one of these nothing of the above is found, and most names and values have none.
_MAY_TELL = re.compile(r"[:=\s]")
# Shorter values would cut ordinary words out of every line.
_SHORTEST_SECRET = 4


class Redactor:
    """A structlog processor: no password, key or credential leaves in a log line.

    Three nets: values under a name that sounds secret, text that looks like a credential (in URLs,
    headers, assignments), and the very secrets the settings hold, wherever they appear.

    Args:
        secrets: values that must not come out, in whatever text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        distinct = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        # The longest first, so that a secret which is part of another leaves no rest of it.
        ordered = sorted(distinct, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> dict[str, Any]:
        """The event with secrets replaced; values become JSON types."""
        return {self.text(str(name)): self._field(str(name), event[name], 0) for name in event}

    def text(self, text: str) -> str:
        """`text` with what looks like a secret replaced."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        if _MAY_TELL.search(text) is None:
            return text
        for pattern, replacement in _SECRET_TEXT:
            text = pattern.sub(replacement, text)
        return text

    def _field(self, name: str, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool):
            return value
        if _SECRET_NAME.search(name) and name.lower() not in _HARMLESS_NAMES:
            return REDACTED
        return self._value(value, depth)

    def _value(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, bytes | bytearray):
            return self.text(value.decode("utf-8", "replace"))
        if isinstance(value, str):
            return self.text(value)
        if depth >= _MAX_DEPTH:
            return "…"
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): self._field(str(name), item, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            items = list(value)
            if len(items) == 2 and isinstance(items[0], str | bytes):  # a header
                name = items[0] if isinstance(items[0], str) else items[0].decode("latin-1")
                return [self.text(name), self._field(name, items[1], depth + 1)]
            return [self._value(item, depth + 1) for item in items]
        return self.text(str(value))


def known_secrets(settings: Settings) -> frozenset[str]:
    """Every secret value of the settings, and the passwords inside its URLs."""
    secrets = {key.key.get_secret_value() for key in settings.api_keys}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            secrets.add(value.get_secret_value())
        elif isinstance(value, str) and (match := re.search(r"://[^@\s]*?:(.+)@", value)):
            secrets.add(match.group(1))
    return frozenset(secrets)


def _render_json(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    line: dict[str, Any] = {
        name: event[name] for name in ("timestamp", "level", "event", "logger") if name in event
    }
    line.update((name, value) for name, value in event.items() if name not in line)
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate: text can hold both
        safe = {name: repr(value) for name, value in line.items()}
        return orjson.dumps(
            {name: text.encode("utf-8", "backslashreplace").decode() for name, text in safe.items()}
        ).decode()


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes lines to what is stderr when logging is configured.

    Faust replaces `sys.stderr` by something that logs, so it must not be looked up for each line.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Say that a line is lost; the default prints its arguments as they are, secrets too."""
        try:
            self.stream.write(f"a log line of {record.name} could not be written\n")
        except (OSError, ValueError):  # closed or full: there is nowhere left to say it
            return


_SHARED: tuple[Callable[..., Any], ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)


def logging_config(settings: Settings) -> dict[str, Any]:
    """The `logging.config.dictConfig` that renders every logger of the process in one way.

    For those who insist on configuring logging themselves: Faust (`logging_config=` of the app)
    and uvicorn (`log_config=`). Lines go to stderr, so that stdout stays the command's own.
    """
    console = settings.log_format == "console"
    render: Callable[..., Any] = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The default prints local variables, and with them whatever they hold.
            exception_formatter=structlog.dev.plain_traceback,
        )
        if console
        else _render_json
    )
    level = settings.log_level.upper()
    quiet = level if settings.log_level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "recollect": {
                "()": partial(
                    structlog.stdlib.ProcessorFormatter,
                    foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
                    processors=[
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        # Before redaction, for a traceback quotes what the error was given.
                        structlog.processors.format_exc_info,
                        Redactor(known_secrets(settings)),
                        render,
                    ],
                )
            }
        },
        "handlers": {
            "stderr": {"()": StderrHandler, "formatter": "recollect"},
        },
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {
            # These bring handlers or levels of their own; here they only pass records up.
            "faust": {"handlers": [], "propagate": True},
            "mode": {"handlers": [], "propagate": True},
            "uvicorn": {"handlers": [], "propagate": True},
            "uvicorn.error": {"handlers": [], "propagate": True},
            # The API logs its own requests, with route and request id and without the query.
            "uvicorn.access": {"handlers": [], "propagate": True, "level": quiet},
            "aiohttp.access": {"handlers": [], "propagate": True, "level": quiet},
            "redis": {"handlers": [], "propagate": True, "level": quiet},
            # Its retries at WARNING repeat what the runner reports once.
            "neo4j": {
                "handlers": [],
                "propagate": True,
                "level": level if settings.log_level == "debug" else "ERROR",
            },
        },
    }


def configure_logging(settings: Settings) -> None:
    """Render structlog and stdlib logging of this process as the settings say; may be repeated."""
    logging.config.dictConfig(logging_config(settings))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a second call, as in tests, must reach old loggers
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; the event is a constant text, the data are keywords."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
