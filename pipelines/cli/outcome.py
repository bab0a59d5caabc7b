"""How a command ends: its exit code, one line for a person or one JSON document for a machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import orjson

OK, FAILED, USAGE, AWAY, REFUSED, WHOLE_GRAPH, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
EXIT_CODES: Mapping[int, str] = {
    OK: "done, and all is well",
    FAILED: "divergence found, or the command could not do what was asked",
    USAGE: "the command line or a setting is wrong",
    AWAY: "a service (Redis or Neo4j) is away; the same command may work later",
    REFUSED: "some of the input was refused, and the rest went in; or it is not ready yet",
    WHOLE_GRAPH: "refused, since it would take a whole graph away and nobody asked for that",
    INTERRUPTED: "interrupted",
}


def write_json_line(document: Mapping[str, Any]) -> None:
    """One of many documents, on a line of its own, at once."""
    sys.stdout.write(orjson.dumps(document).decode() + "\n")
    sys.stdout.flush()


def write_json(document: Mapping[str, Any]) -> None:
    """Print the one JSON document."""
    sys.stdout.write(
        orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str).decode() + "\n"
    )
    sys.stdout.flush()


def report_error(
    kind: str, message: str, *, code: int, json: bool, retryable: bool = False
) -> None:
    """Say what went wrong: one line for a person, one document for a machine."""
    line = " ".join(message.split())
    if json:
        error = {"kind": kind, "message": line, "exit_code": code, "retryable": retryable}
        write_json({"error": error})
    else:
        sys.stderr.write(f"recollect: {line}\n")
