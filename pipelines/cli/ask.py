"""`recollect ask`: a question to the memory, answered for a person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.answers import SHOWN, explained, show_answer
from pipelines.cli.invocation import FAILED, OK, Invocation, command
from projections.events import DEFAULT_TENANT
from projections.schema import INTENTS

if TYPE_CHECKING:
    from pipelines.cli.api_client import Asked

EXAMPLE = 'recollect ask "Why was order 4711 charged twice?" --session checkout-4711'
TIMEOUT_MS = 10_000
NO_SESSION = "ask"
HINT = "what belongs to a user is seen with --user, or --session of that user"


def register(app: typer.Typer) -> None:
    """Put the command into the application."""
    command(app, "ask", panel="Looking", example=EXAMPLE)(ask)


def ask(
    invocation: Invocation,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="in plain words")],
    session: Annotated[
        str, typer.Option("--session", help="in which it is asked; its user is the user")
    ] = NO_SESSION,
    agent: Annotated[str, typer.Option("--agent", help="that asks")] = "ask",
    user: Annotated[
        str | None, typer.Option("--user", help="see what is of this user, and of nobody")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="whose memory")] = DEFAULT_TENANT,
    intent: Annotated[
        str | None, typer.Option("--intent", help="why, when, what, related or general")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100, help="show at most so many")
    ] = SHOWN,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=50, help="print text for a language model, so long"),
    ] = None,
    api: Annotated[
        str | None, typer.Option("--api", metavar="URL", help="ask this API, not the services")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", help="of --api", exists=True, dir_okay=False, readable=True),
    ] = None,
) -> int:
    """Ask the memory, and see what it says with its sources.

    Asks the API of the embedded services when it runs; else the services themselves, which takes
    a few seconds until the model of queries is loaded. Nothing that is asked here counts as read.
    """
    from pipelines.cli.api_client import MARKDOWN, SUBGRAPH

    if intent is not None and intent not in INTENTS:
        raise typer.BadParameter(f"one of {', '.join(INTENTS)}", param_hint="--intent")
    body: dict[str, Any] = {
        "query": question,
        "session_id": session,
        "agent_id": agent,
        "timeout_ms": TIMEOUT_MS,
        "record_access": False,
    }
    body |= {name: value for name, value in (("intent", intent), ("user_id", user)) if value}
    asked = _asked(invocation, api, key_file)
    try:
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
            text = asked.ask(SUBGRAPH, body, tenant, accept=MARKDOWN).text
            invocation.answer({"text": text}, lambda out: out.print(text, markup=False, end=""))
            return OK
        document = asked.ask(SUBGRAPH, body, tenant).document
        start = explained(document)
        lineage = None if start is None else asked.lineage(start, tenant)
    finally:
        asked.close()
    if session == NO_SESSION and user is None and not invocation.json:
        invocation.note(HINT)
    invocation.answer(document, lambda out: show_answer(out, question, document, limit, lineage))
    return OK if document["nodes"] else FAILED


def _asked(invocation: Invocation, url: str | None, key_file: Path | None) -> Asked:
    """Who answers: the API that is named, the one of the data folder, else one of our own."""
    from pipelines.cli.api_client import OwnApi, RunningApi, running_api
    from pipelines.cli.invocation import log_to_stderr

    if url is not None:
        key = None if key_file is None else key_file.read_text(encoding="utf-8").strip()
        return RunningApi(url, key)
    if invocation.redis is None and invocation.neo4j is None:
        running = running_api(invocation.settings.data_dir)
        if running is not None:
            return running
    log_to_stderr(invocation.settings, debug=invocation.debug)
    return OwnApi(invocation.settings)
