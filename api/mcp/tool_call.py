"""One call of a tool: whom it asks, and for whom."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from api.mcp.api_client import Asking, Defaults, Unanswered
from projections.events import timestamp_text

UNNAMED_AGENT: Final = "mcp"
"""Of a client that does not say what it is."""
EVENTS: Final = "/v1/events"
_NO_NAME: Final = re.compile(r"[^a-z0-9._-]+")
_MAX_CLIENT_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool works with.

    Attributes:
        api: asked as the caller.
        defaults: who and where, by the configuration of the client.
        client: what the program calls itself that calls for the model.
    """

    api: Asking
    defaults: Defaults
    client: str = ""

    def agent(self, named: str | None) -> str:
        """The agent: as the call names it, as the client is configured, or the client itself."""
        own_name = _NO_NAME.sub("-", self.client.lower()).strip("-")[:_MAX_CLIENT_CHARACTERS]
        return named or self.defaults.agent_id or own_name or UNNAMED_AGENT

    def user(self, named: str | None) -> str | None:
        """The person concerned; None: nobody in particular."""
        return named or self.defaults.user_id

    def session(self, named: str | None, agent_id: str, user_id: str | None) -> str:
        """The session: as named, or as configured, or one for each agent, user and day.

        The protocol knows no sessions. Those of a day are one, so that what belongs together stays
        together however often a client is started; users never share one.
        """
        day = timestamp_text(time.time_ns() // 1_000_000)[:10]
        parts = (agent_id, day) if user_id is None else (agent_id, user_id, day)
        return named or self.defaults.session_id or "-".join(parts)

    async def append(self, envelope: dict[str, Any], event_id: str | None) -> dict[str, Any]:
        """Append an event; sent again with the same id it is a duplicate, whenever that was.

        Args:
            envelope: without id; without `occurred_at` it happened now.
            event_id: chosen by the caller; None: a new one.

        Raises:
            Unanswered: it is refused, or the id is taken by another event.
        """
        now = timestamp_text(time.time_ns() // 1_000_000)
        sent = {
            **{name: value for name, value in envelope.items() if value is not None},
            "event_id": event_id.lower() if event_id else str(uuid4()),
        }
        try:
            return await self.api.post(EVENTS, {"occurred_at": now, **sent})
        except Unanswered as error:
            if error.kind != "event-conflict" or "occurred_at" in sent:
                raise
            stored = await self._stored(sent["event_id"], sent.get("user_id"))
            if any(stored.get(name) != value for name, value in sent.items()):
                raise
            position = stored["global_position"]
            return {**sent, "global_position": position, "duplicate": True}

    async def _stored(self, event_id: str, user_id: str | None) -> dict[str, Any]:
        try:
            return await self.api.read(f"{EVENTS}/{event_id}", user_id=user_id, record_access=False)
        except Unanswered:
            return {}


def required_user(call: Call, named: str | None, what_for: str) -> str:
    """The person concerned, where a tool is about one.

    Raises:
        Unanswered: neither the call nor the client names one.
    """
    user_id = call.user(named)
    if user_id is None:
        raise Unanswered("invalid-input", f"- user_id: required: {what_for}")
    return user_id
