"""The client that awaits; `log` and tools are those of the one that blocks, as they never wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
from typing_extensions import Self, Unpack

from recollect import questions
from recollect.answers import Answer, Facts, Page, Person
from recollect.calls import Call, Flush, Pause, Plan, Step
from recollect.changes import NOW, Following
from recollect.connection import (
    LINKS,
    QUEUE_EVENTS,
    TIMEOUT_S,
    Links,
    as_reply,
    checked_url,
    headers_of,
    parts_of,
    require_stream,
    sender,
    told,
)
from recollect.delivery import Outbox, Told
from recollect.errors import RecollectError
from recollect.local import LocalServices, data_folder
from recollect.models import AskOptions, Change, ContextOptions, EntityItem, FactsOptions
from recollect.sessions import Recorder, Session
from recollect.why import Why, WhyOptions

T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page[Any])


class AsyncMemory(Recorder):
    """A memory behind an API, for code that awaits.

        async with AsyncMemory("http://127.0.0.1:8080", key) as memory:
            with memory.session("s-1", agent="payments") as session:
                session.log("user", "My card was charged twice")
            print((await memory.ask("why was the card charged twice?")).text)

    Arguments are those of `Memory`. Events are sent by a thread, so no loop waits for them.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        agent: str = "agent",
        user: str | None = None,
        tenant: str | None = None,
        queue_events: int = QUEUE_EVENTS,
        on_undelivered: Told | None = None,
    ) -> None:
        options: dict[str, Any] = {"base_url": checked_url(url), "headers": headers_of(key, tenant)}
        self._links = Links(
            lambda: httpx.AsyncClient(**options, limits=LINKS), asyncio.get_running_loop
        )
        self._delivery = Links(lambda: httpx.Client(**options))
        outbox = Outbox(sender(self._delivery), most=queue_events, told=on_undelivered)
        super().__init__(outbox, agent=agent, user=user, background=True)
        self._local: LocalServices | None = None

    @classmethod
    async def local(cls, data: str | Path | None = None, **options: Any) -> Self:
        """A memory on this machine: starts the embedded services, or joins those that run.

        Needs the distribution `recollect`, which holds them. `close` stops what was started
        here; without it, that stays, and `recollect down` stops it.

        Args:
            data: folder of everything; made when it is not there. Default: RECOLLECT_DATA_DIR, or
                `.recollect` here, as the command has it.
            options: as of `AsyncMemory`.

        Raises:
            LocalServicesFailed: `recollect` is not installed, or the services do not start.
        """
        services = await asyncio.to_thread(LocalServices.start, data_folder(data))
        memory = cls(services.url, services.key, **options)
        memory._local = services
        return memory

    # -- questions ---------------------------------------------------------------------------------

    async def ask(
        self,
        question: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        text: bool = True,
        fresh: bool = False,
        timeout_s: float = TIMEOUT_S,
        **options: Unpack[AskOptions],
    ) -> Answer:
        """What the memory knows that helps with a question.

        As `Memory.ask`.

        Raises:
            RecollectError: see `recollect.errors`.
        """
        who = self.asker(session, agent, user, timeout_s=timeout_s, fresh=fresh)
        return await self.carry_out(questions.ask(who, question, text, options))

    async def why(
        self,
        question: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        fresh: bool = True,
        timeout_s: float = TIMEOUT_S,
        **options: Unpack[WhyOptions],
    ) -> Why:
        """Why something happened: what the question is about, and the tree of its causes.

        Arguments are those of `ask`; as causes are edges, it waits for the graph.
        """
        who = self.asker(session, agent, user, timeout_s=timeout_s, fresh=fresh)
        return await self.carry_out(questions.why(who, question, options))

    async def context(
        self,
        session: str | None = None,
        question: str | None = None,
        *,
        user: str | None = None,
        text: bool = True,
        fresh: bool = True,
        timeout_s: float = TIMEOUT_S,
        **options: Unpack[ContextOptions],
    ) -> Answer:
        """A session's best events: recent, important, often read; with a question, what answers it.

        Raises:
            NotFound: the graph has no event of the session.
        """
        who = self.asker(session, None, user, timeout_s=timeout_s, fresh=fresh)
        return await self.carry_out(questions.context(who, question, text, options))

    async def facts(
        self,
        question: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        text: bool = True,
        fresh: bool = True,
        timeout_s: float = TIMEOUT_S,
        **options: Unpack[FactsOptions],
    ) -> Facts:
        """Facts about what a question names; made of events by the enrichment, soon after them."""
        who = self.asker(session, agent, user, timeout_s=timeout_s, fresh=fresh)
        return await self.carry_out(questions.facts(who, question, text, options))

    async def person(
        self,
        user: str,
        *,
        max_tokens: int = 500,
        text: bool = True,
        fresh: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> Person:
        """What is known of a user: wishes, facts that hold, what ended; NotFound: nothing is."""
        who = self.asker(None, None, user, timeout_s=timeout_s, fresh=fresh)
        return await self.carry_out(questions.person(who, user, text, max_tokens))

    async def entities(
        self,
        name: str | None = None,
        *,
        type: str | None = None,
        user: str | None = None,
        page: int = 100,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncIterator[EntityItem]:
        """All entities of that name, or that begin so, page by page as they are needed."""
        who = self.asker(None, None, user, timeout_s=timeout_s, fresh=False)
        first = await self.carry_out(questions.entities(who, name, type, page))
        async for each in self.pages(first):
            for item in each:
                yield item

    async def pages(self, first: PageT) -> AsyncIterator[PageT]:
        """An answer, and those behind it, of the same ranking; they have no text."""
        page: PageT | None = first
        while page is not None:
            yield page
            page = await self.carry_out(questions.next_page(page))

    async def changes(
        self,
        *,
        session: str | None = None,
        kinds: Sequence[str] = (),
        since: str = NOW,
        user: str | None = None,
        wait: bool = True,
    ) -> AsyncIterator[Change]:
        """What the memory takes, whoever logs it, in its order, each event once.

        As `Memory.changes`.

        Raises:
            RecollectError: the API refuses, or is not there at the beginning.
        """
        user = user or self.current_session.user
        following = Following(session=session, kinds=kinds, user=user, since=since)
        while not wait and not following.is_end:
            for change in await self.carry_out(following.page()):
                yield change
        while wait and not self._links.here().is_closed:
            failure: RecollectError | None = None
            try:
                with told():
                    async with self._links.here().stream(**parts_of(following.call())) as response:
                        if response.status_code >= 400:
                            await response.aread()
                        require_stream(response)
                        async for part in response.aiter_bytes():
                            for change in following.take(part):
                                yield change
            except RecollectError as error:
                failure = error
            await asyncio.sleep(following.pause_s(failure))

    # -- what was logged ---------------------------------------------------------------------------

    async def flush(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Wait until what was logged is in the ledger, or cannot be; whether that is so."""
        return await asyncio.to_thread(self._outbox.flush, timeout_s)

    async def wait(self, timeout_s: float = 30.0) -> None:
        """Wait until what was logged is in the graph, and can be walked to.

        Raises:
            TimeLimit: the graph does not get there in time.
            NoAnswer: nor does the API take what was logged.
        """
        end_s = time.monotonic() + timeout_s
        await self.carry_out(questions.wait(self._outbox, lambda: end_s - time.monotonic()))

    async def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Send what waits, tell what cannot be sent, stop what `local` started."""
        await asyncio.to_thread(self._outbox.close, timeout_s)
        await asyncio.to_thread(self._delivery.here().close)
        await self._links.here().aclose()
        if self._local is not None:
            await asyncio.to_thread(self._local.stop)

    async def __aenter__(self) -> Self:
        """Use it until the block ends."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()

    # -- the shell ---------------------------------------------------------------------------------

    def asker(
        self,
        session: Session | str | None = None,
        agent: str | None = None,
        user: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        fresh: bool = False,
    ) -> questions.Asker:
        """Who asks, where and how, for plans of questions."""
        return questions.asker(
            self,
            self._outbox,
            session=session,
            agent=agent,
            user=user,
            timeout_s=timeout_s,
            fresh=fresh,
        )

    async def carry_out(self, plan: Plan[T]) -> T:
        """Do the steps of a plan; adapters of frameworks have plans of their own."""
        try:
            step = next(plan)
            while True:
                try:
                    came = await self._do(step)
                except RecollectError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(came)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def _do(self, step: Step) -> Any:
        match step:
            case Call():
                with told():
                    return as_reply(await self._links.to_ask().request(**parts_of(step)))
            case Pause():
                await asyncio.sleep(step.seconds)
            case Flush():
                return self.counts.waiting == 0 or await self.flush(step.timeout_s)
        return None
