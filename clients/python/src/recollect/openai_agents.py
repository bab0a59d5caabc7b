"""The session of the OpenAI Agents SDK, kept as events.

from recollect.openai_agents import RecollectSession

session = RecollectSession("s-1", memory, user="ana")
await Runner.run(agent, "My card was charged twice", session=session)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from recollect.conversations import (
    Item,
    Kept,
    Part,
    called,
    happened,
    returned,
    said,
    thought,
)
from recollect.frameworks import needed
from recollect.histories import AnyMemory, awaited

with needed("openai-agents"):
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings, resolve_session_limit

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

_FAILED: Final = "An error occurred while running the tool"
"""What the SDK says instead of the result of a tool that raised, unless it is told otherwise."""


class RecollectSession(Kept, SessionABC):
    """A conversation of an agent. Whoever names the same session and user has the same items.

    Words, thoughts, calls and results become events of the session, and the memory answers from
    them; do not log tools with `memory.tool` as well. What is popped or cleared is no more in the
    conversation, but the ledger and the memory keep it: erasing is another matter.

    Args:
        session_id: of the conversation.
        memory: a `Memory` or an `AsyncMemory`.
        agent: who acts; default the memory's.
        user: the person concerned; default the memory's.
        session_settings: of the SDK: how many items are read where nobody says.
    """

    def __init__(
        self,
        session_id: str,
        memory: AnyMemory,
        *,
        agent: str | None = None,
        user: str | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        super().__init__(session_id, memory, agent=agent, user=user)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The latest items, the earliest of them first.

        Args:
            limit: how many; default the settings', else all.
        """
        most = resolve_session_limit(limit, self.session_settings)
        return await awaited(self._memory, self._conversation.items(most))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items, all or none, behind those that are there.

        Raises:
            ApiError: one cannot be an event: `errors` names field and rule.
        """
        told = [Item(dict(item), _parts(item)) for item in items]
        await awaited(self._memory, self._conversation.add(told))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the latest item back."""
        item: TResponseInputItem | None
        item = await awaited(self._memory, self._conversation.pop())
        return item

    async def clear_session(self) -> None:
        """Take all items back."""
        await awaited(self._memory, self._conversation.clear())


def _parts(item: Mapping[str, Any]) -> list[Part]:
    kind = item.get("type") or "message"
    if kind == "message" and isinstance(item.get("role"), str):
        return [said(**item)]
    if kind == "function_call":
        return [called(item["name"], item["arguments"], item["call_id"])]
    if kind == "function_call_output":
        value = item["output"]
        is_failed = isinstance(value, str) and value.startswith(_FAILED)
        return [returned(None, value, item["call_id"], is_failed=is_failed)]
    if kind == "reasoning":
        listed = [*(item.get("summary") or ()), *(item.get("content") or ())]
        words = "\n".join(each["text"] for each in listed if each.get("text"))
        return [thought(words)] if words else []
    word = re.sub("[^a-z0-9_]", "_", str(kind).lower())
    return [happened(f"conversation.item_{word}", item)]
