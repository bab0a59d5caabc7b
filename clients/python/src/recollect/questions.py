"""The plans of all questions: which requests they make, and what their answers are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from recollect.answers import Answer, Entities, Facts, Page, Person
from recollect.calls import GRACE_S, Call, Flush, Plan, exchange, model_reader
from recollect.delivery import Outbox
from recollect.errors import ConnectionFailed, NoAnswer, TimeLimit
from recollect.models import AtlasResponse, EntityList, FactsResponse
from recollect.models import Person as PersonResponse
from recollect.sessions import Recorder, Session
from recollect.why import Why, why_call

LONGEST_MS: Final = 30_000
"""The API takes no longer for one read."""
SHORTEST_MS: Final = 100
PageT = TypeVar("PageT", bound="Page[Any]")


class Asker(NamedTuple):
    """Who asks, where, how long it may take, and whether own events must be in the graph."""

    session_id: str
    agent: str
    user: str | None
    timeout_s: float
    fresh: bool
    outbox: Outbox

    @property
    def timeout_ms(self) -> int:
        """As the API takes it."""
        return max(SHORTEST_MS, min(LONGEST_MS, int(self.timeout_s * 1000)))

    def fields(self) -> dict[str, Any]:
        """What every question says."""
        position = None
        if self.fresh:
            position = self.outbox.position(self.session_id)
        fields = {"user_id": self.user, "timeout_ms": self.timeout_ms, "min_position": position}
        return {name: value for name, value in fields.items() if value is not None}

    def body(self, question: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Of a question that is asked in a session."""
        here = {"query": question, "session_id": self.session_id, "agent_id": self.agent}
        return {**here, **self.fields(), **options}


def asker(
    recorder: Recorder,
    outbox: Outbox,
    *,
    session: Session | str | None,
    agent: str | None,
    user: str | None,
    timeout_s: float,
    fresh: bool,
) -> Asker:
    """Who asks: what is said, else what the session says that is given, else the current one."""
    here = session if isinstance(session, Session) else recorder.current_session
    return Asker(
        session_id=session if session and isinstance(session, str) else here.id,
        agent=agent or here.agent,
        user=user or here.user,
        timeout_s=timeout_s,
        fresh=fresh,
        outbox=outbox,
    )


def ask(who: Asker, question: str, text: bool, options: Mapping[str, Any]) -> Plan[Answer]:
    """Nodes and text that help with a question."""
    yield Flush(who.timeout_s)
    call = Call(
        "POST",
        "/v1/query/subgraph",
        model_reader(AtlasResponse),
        body=who.body(question, options),
        timeout_s=who.timeout_s + GRACE_S,
    )
    response = yield from exchange(call)
    words = (yield from exchange(call.as_text())) if text else ""
    return Answer(response, words.strip(), call)


def context(
    who: Asker, question: str | None, text: bool, options: Mapping[str, Any]
) -> Plan[Answer]:
    """A session's best events, and text."""
    yield Flush(who.timeout_s)
    fields = {**who.fields(), "query": question, **options}
    call = Call(
        "GET",
        f"/v1/context/{quote(who.session_id, safe='')}",
        model_reader(AtlasResponse),
        query={name: value for name, value in fields.items() if value is not None},
        timeout_s=who.timeout_s + GRACE_S,
    )
    response = yield from exchange(call)
    words = (yield from exchange(call.as_text())) if text else ""
    return Answer(response, words.strip(), call)


def facts(who: Asker, question: str, text: bool, options: Mapping[str, Any]) -> Plan[Facts]:
    """Facts about what a question names, and their narrative."""
    yield Flush(who.timeout_s)
    call = Call(
        "POST",
        "/v1/query/facts",
        model_reader(FactsResponse),
        body=who.body(question, options),
        timeout_s=who.timeout_s + GRACE_S,
    )
    response = yield from exchange(call)
    words = (yield from exchange(call.as_text())) if text else ""
    return Facts(response, words.strip(), call)


def why(who: Asker, question: str, options: Mapping[str, Any]) -> Plan[Why]:
    """Why something happened."""
    yield Flush(who.timeout_s)
    body = who.body(question, options)
    return Why((yield from exchange(why_call(body, who.timeout_s + GRACE_S))))


def entities(who: Asker, name: str | None, kind: str | None, limit: int) -> Plan[Entities]:
    """A page of the entities of that name and type."""
    yield Flush(who.timeout_s)
    fields = {**who.fields(), "query": name, "type": kind, "limit": limit}
    call = Call(
        "GET",
        "/v1/entities",
        model_reader(EntityList),
        query={name: value for name, value in fields.items() if value is not None},
        timeout_s=who.timeout_s + GRACE_S,
    )
    return Entities((yield from exchange(call)), "", call)


def person(who: Asker, user: str, text: bool, max_tokens: int) -> Plan[Person]:
    """What is known of a user, in the view of that user."""
    yield Flush(who.timeout_s)
    path = f"/v1/users/{quote(user, safe='')}"
    fields = {name: value for name, value in who.fields().items() if name != "user_id"}
    call = Call(
        "GET",
        path,
        model_reader(PersonResponse),
        query=fields,
        timeout_s=who.timeout_s + GRACE_S,
    )
    response = yield from exchange(call)
    words = ""
    if text:
        block = replace(call.as_text(), path=f"{path}/context")
        words = yield from exchange(block.with_fields(max_tokens=max_tokens))
    return Person(response, words.strip(), call)


def next_page(page: PageT) -> Plan[PageT | None]:
    """The page behind a page; None: there is none."""
    if page.next_cursor is None:
        return None
    call = page.call.with_fields(cursor=page.next_cursor)
    response = yield from exchange(call)
    return type(page)(response, "", call)


def wait(outbox: Outbox, left_s: Callable[[], float]) -> Plan[None]:
    """Until the graph has what was accepted of this client until now."""
    if not (yield Flush(left_s())):
        waiting = outbox.counts.waiting
        raise NoAnswer(f"{waiting} events are not with the API in time; they are sent all the same")
    for session_id, position in outbox.unread().items():
        while True:
            timeout_ms = max(SHORTEST_MS, min(LONGEST_MS, int(left_s() * 1000)))
            query = {
                "limit": 1,
                "min_position": position,
                "record_access": False,
                "timeout_ms": timeout_ms,
            }
            call = Call("GET", "/v1/entities", bytes, query=query, timeout_s=timeout_ms / 1000 + 5)
            try:
                yield from exchange(call)
                outbox.note_read(session_id, position)
                break
            except (TimeLimit, ConnectionFailed):  # the graph is behind, or the API restarts
                if left_s() <= 0:
                    raise
