"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
    checked_url,
    headers_of,
    parts_of,
    reply_of,
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


class Memory(Recorder):
    """A memory behind an API.

        memory = Memory("http://127.0.0.1:8080", key)
        with memory.session("s-1", agent="payments") as session:
            session.log("user", "My card was charged twice")
        print(memory.ask("why was the card charged twice?").text)

    Threads may share one.

    Args:
        url: of the API.
        key: for it.
        agent: who acts, where a session does not say.
        user: the person concerned, where a session does not say.
        tenant: for keys of all tenants.
        background: whether `log` returns at once and sends later; else it raises what goes wrong.
        queue_events: how many may wait; more are dropped, counted and told.
        on_undelivered: called from another thread for each event that is not delivered.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        agent: str = "agent",
        user: str | None = None,
        tenant: str | None = None,
        background: bool = True,
        queue_events: int = QUEUE_EVENTS,
        on_undelivered: Told | None = None,
    ) -> None:
        options: dict[str, Any] = {"base_url": checked_url(url), "headers": headers_of(key, tenant)}
        self._links = Links(lambda: httpx.Client(**options, limits=LINKS))
        outbox = Outbox(sender(self._links), most=queue_events, told=on_undelivered)
        super().__init__(outbox, agent=agent, user=user, background=background)
        self._local: LocalServices | None = None

    @classmethod
    def local(cls, data: str | Path | None = None, **options: Any) -> Self:
        """A memory on this machine: starts the embedded services, or joins those that run.

        Needs the distribution `recollect`, which holds them. `close` stops what was started
        here; without it, that stays, and `recollect down` stops it.

        Args:
            data: folder of everything; made when it is not there. Default: RECOLLECT_DATA_DIR, or
                `.recollect` here, as the command has it.
            options: as of `Memory`.

        Raises:
            LocalServicesFailed: `recollect` is not installed, or the services do not start.
        """
        services = LocalServices.start(data_folder(data))
        memory = cls(services.url, services.key, **options)
        memory._local = services
        return memory

    # -- questions ---------------------------------------------------------------------------------

    def ask(
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

        What this client logged before is with the API when it is asked, and found by its words.

        Args:
            question: as it is.
            session: in which it is asked; default the current one.
            agent: that asks; default the session's.
            user: in whose view; `*`: over all users, for keys that may.
            text: whether to ask for text, too: a second request.
            fresh: wait until the graph has what this client logged before in the session, so that
                it is found with what it is connected to.
            timeout_s: for the API.
            options: `max_nodes`, `max_tokens`, `intent`, `as_of` … of `POST /v1/query/subgraph`.

        Raises:
            RecollectError: see `recollect.errors`.
        """
        who = self.asker(session, agent, user, timeout_s=timeout_s, fresh=fresh)
        return self.carry_out(questions.ask(who, question, text, options))

    def why(
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
        return self.carry_out(questions.why(who, question, options))

    def context(
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
        return self.carry_out(questions.context(who, question, text, options))

    def facts(
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
        return self.carry_out(questions.facts(who, question, text, options))

    def person(
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
        return self.carry_out(questions.person(who, user, text, max_tokens))

    def entities(
        self,
        name: str | None = None,
        *,
        type: str | None = None,
        user: str | None = None,
        page: int = 100,
        timeout_s: float = TIMEOUT_S,
    ) -> Iterator[EntityItem]:
        """All entities of that name, or that begin so, page by page as they are needed."""
        who = self.asker(None, None, user, timeout_s=timeout_s, fresh=False)
        first = self.carry_out(questions.entities(who, name, type, page))
        for each in self.pages(first):
            yield from each

    def pages(self, first: PageT) -> Iterator[PageT]:
        """An answer, and those behind it, of the same ranking; they have no text."""
        page: PageT | None = first
        while page is not None:
            yield page
            page = self.carry_out(questions.next_page(page))

    def changes(
        self,
        *,
        session: str | None = None,
        kinds: Sequence[str] = (),
        since: str = NOW,
        user: str | None = None,
        wait: bool = True,
    ) -> Iterator[Change]:
        """What the memory takes, whoever logs it, in its order, each event once.

        It begins when the first one is asked for, and waits for more, over breaks of the
        connection and restarts of the API, until the iterator or this client is closed.

        Args:
            session: only events of this one; default all.
            kinds: only events of these: `message`, `call`, `result`, `failure`, `decision` …
            since: `now`, `0` for the beginning, or the `global_position` of an event, behind which
                it begins.
            user: in whose view; default the current session's.
            wait: whether it goes on where all that is there has been seen.

        Raises:
            RecollectError: the API refuses, or is not there at the beginning.
        """
        user = user or self.current_session.user
        following = Following(session=session, kinds=kinds, user=user, since=since)
        while not wait and not following.is_end:
            yield from self.carry_out(following.page())
        while wait and not self._links.here().is_closed:
            failure: RecollectError | None = None
            try:
                with told(), self._links.here().stream(**parts_of(following.call())) as response:
                    if response.status_code >= 400:
                        response.read()
                    require_stream(response)
                    for part in response.iter_bytes():
                        yield from following.take(part)
            except RecollectError as error:
                failure = error
            time.sleep(following.pause_s(failure))

    # -- what was logged ---------------------------------------------------------------------------

    def flush(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Wait until what was logged is in the ledger, or cannot be; whether that is so."""
        return self._outbox.flush(timeout_s)

    def wait(self, timeout_s: float = 30.0) -> None:
        """Wait until what was logged is in the graph, and can be walked to.

        Raises:
            TimeLimit: the graph does not get there in time.
            NoAnswer: nor does the API take what was logged.
        """
        end_s = time.monotonic() + timeout_s
        self.carry_out(questions.wait(self._outbox, lambda: end_s - time.monotonic()))

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Send what waits, tell what cannot be sent, stop what `local` started."""
        self._outbox.close(timeout_s)
        self._links.here().close()
        if self._local is not None:
            self._local.stop()

    def __enter__(self) -> Self:
        """Use it until the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

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

    def carry_out(self, plan: Plan[T]) -> T:
        """Do the steps of a plan; adapters of frameworks have plans of their own."""
        try:
            step = next(plan)
            while True:
                try:
                    came = self._do(step)
                except RecollectError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(came)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _do(self, step: Step) -> Any:
        match step:
            case Call():
                return reply_of(lambda: self._links.to_ask().request(**parts_of(step)))
            case Pause():
                time.sleep(step.seconds)
            case Flush():
                return self._outbox.flush(step.timeout_s)
        return None
