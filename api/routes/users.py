"""Users: what is known of one of them, and how it is erased."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hmac import compare_digest
from operator import itemgetter
from typing import Annotated, Any, Final, NamedTuple

from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.answers import MEDIA_TYPE, JsonResponse, MarkdownResponse, page_meta
from api.browse_schemas import Person, PersonQuery, SessionItem
from api.cursors import page_of, time_place
from api.dependencies import Admin, PathName, Reader, ServicesOf
from api.entity_answers import fact_history, fact_of, named_events, session_item
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.persons import person_markdown, person_of
from api.retrieval.facts import RecalledFact
from api.retrieval.recall import entity_named
from api.services import Caller, Services, begin_read
from enrichment.names import user_entity_id
from pipelines.columns.reads import SessionLine, SessionsAsked
from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.entities import EntityGroup, EntityReads
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.facts import FactReads
from pipelines.graph.rows import ENTITY_PREFIX
from pipelines.ledger.erasing import (
    MAX_REASON_CHARACTERS,
    begin_erasure,
    confirmation,
    entries_of,
    erasable,
    erasures,
)
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.sealing import Subject
from pipelines.observe.logs import get_logger
from projections.errors import OperationFailed

_log = get_logger(__name__)
_PROBLEMS: Final = (
    *("unauthenticated", "forbidden", "not-found", "invalid-input", "rate-limited"),
    *("ledger-unavailable", "keys-unavailable", "internal"),
)

router = APIRouter(prefix="/v1", tags=["memory"])


class Erasure(BaseModel):
    """An erasure, or what it would take away."""

    subject: str = Field(description="Stands for the user, and tells nothing of who that is.")
    entries: int | None = Field(description="Of the ledger; none while they are not counted.")
    step: str | None = Field(
        description="How far it has come: fenced, forgotten, destroyed, purged, done; none: it "
        "was not begun."
    )
    confirm: str | None = Field(
        default=None, description="To be sent with the second request, which begins it."
    )
    receipt: int | None = Field(default=None, description="Number of the receipt, once it is done.")


_SESSIONS: Final = 5


@router.get(
    "/users/{user_id:path}/context",
    response_class=MarkdownResponse,
    responses={
        200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
        **problem_responses(*READ_PROBLEMS, "not-found"),
    },
)
async def read_user_context(
    user_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[PersonQuery, Query()],
) -> Response:
    """What is known of a user for a prompt, of at most `max_tokens`: wishes, then what holds."""
    person = await _person(user_id, caller, services, query, sessions=0)
    return MarkdownResponse(person_markdown(person, query.max_tokens))


@router.get(
    "/users/{user_id:path}",
    response_model=Person,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_user(
    user_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[PersonQuery, Query()],
) -> Response:
    """What is known of a user: facts that hold, wishes, what ended, and the newest sessions."""
    return JsonResponse(await _person(user_id, caller, services, query, sessions=_SESSIONS))


class _Read(NamedTuple):
    """What was read of a user; facts with their places, one more than the page has."""

    group: EntityGroup
    names: list[str]
    facts: list[tuple[tuple[int, str], RecalledFact]]
    traits: list[GraphNode]
    sessions: list[SessionItem]
    withheld: int | None


async def _person(
    user_id: str, caller: Caller, services: Services, query: PersonQuery, *, sessions: int
) -> Person:
    """What is known of a user, with so many of their newest sessions."""
    if query.user_id is None and caller.user_id is None:  # who is named is who may see it
        query = query.model_copy(update={"user_id": user_id})
    context = await begin_read(services, caller, query)
    question = ("user", caller.tenant, context.scope.viewer, user_id, query.as_of_position)
    behind = time_place(question, query.cursor)

    def work() -> _Read | None:
        with services.connections.graph.opened() as graph:
            columns = context.columns(graph.columns)
            own_id = user_entity_id(caller.tenant, user_id)
            group = entity_named(columns, own_id)
            if group is None:
                return None
            lines: Sequence[SessionLine] = ()
            if sessions:
                lines = columns.sessions(SessionsAsked(user_id, limit=sessions)).sessions

            def ask(read: GraphRead) -> _Read:
                reads, events = FactReads(read, context.scope), EventReads(read, context.scope)
                quoted = events.events(named_events(lines)) if lines else {}
                return _Read(
                    group=group,
                    names=sorted({entity.name for entity in reads.found_by_id(group.ids)}),
                    facts=fact_history(
                        reads,
                        group.ids,
                        behind=behind,
                        limit=query.limit + 1,
                        now_ms=context.now_ms,
                    ),
                    traits=EntityReads(read, context.scope).traits(group.ids),
                    sessions=[session_item(line, quoted) for line in lines],
                    withheld=context.withheld(lambda: reads.withheld(group.ids)),
                )

            return context.read(graph.reader, ask)

    read = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if read is None:
        raise ApiProblem("not-found", "Nobody of that user_id is known to the viewer.")
    page, next_cursor = page_of(question, read.facts, query.limit, itemgetter(0))
    own_id = ENTITY_PREFIX + read.group.canonical
    context.record([own_id], [fact.key for _, fact in page])
    return person_of(
        user_id,
        own_id,
        read.names,
        [fact_of(fact) for _, fact in page if fact.source.entity_id in read.group.ids],
        now_ms=context.now_ms,
        traits=read.traits,
        sessions=read.sessions,
        next_cursor=next_cursor,
        meta=page_meta(
            context,
            len(read.facts),
            withheld=read.withheld,
            begun_at=[own_id],
            next_cursor=next_cursor,
        ),
    )


@router.delete(
    "/users/{user_id:path}",
    response_model=Erasure,
    responses={202: {"model": Erasure}, **problem_responses(*_PROBLEMS)},
)
async def erase_user(
    user_id: PathName,
    caller: Admin,
    services: ServicesOf,
    confirm: Annotated[
        str | None, Query(max_length=64, description="As the first answer says.")
    ] = None,
    reason: Annotated[
        str, Query(max_length=MAX_REASON_CHARACTERS, description="For the receipt.")
    ] = "",
) -> Response:
    """Erase a user of a sealed tenant, in two steps: ask, then send `confirm` with it.

    From the second request on nothing more is taken about the user, and nobody reads what is
    sealed. The consolidation's worker does the rest; ask again to see how far it is.
    """
    ledger = services.ledger()
    subject = Subject("user", user_id)
    erase = partial(_erase, ledger, caller, subject, confirm=confirm, reason=reason)
    erasure = await to_thread.run_sync(erase)
    status = 200
    if confirm is not None:
        status = 202
        _log.warning("erasure asked for", tenant=caller.tenant, subject=erasure.subject)
    return JsonResponse(erasure, status_code=status)


def _erase(
    ledger: Ledger, caller: Caller, subject: Subject, *, confirm: str | None, reason: str
) -> Erasure:
    vault, tenant = ledger.vault, caller.tenant
    try:
        key_id = erasable(vault, tenant, subject)
    except OperationFailed as error:
        raise ApiProblem("not-found", str(error)) from None
    under_way = _begun(ledger, key_id)
    if under_way is not None:
        return under_way
    entries = entries_of(ledger, key_id)
    token = confirmation(vault, key_id, entries)
    if confirm is None:
        return Erasure(subject=key_id.hex(), entries=entries, step=None, confirm=token)
    if not compare_digest(confirm.encode(), token.encode()):
        rule = ("confirm", "what the first answer says; the user may have more events by now")
        raise ApiProblem("invalid-input", "The confirmation is another.", errors=[rule])
    begin_erasure(ledger, tenant, subject, reason=reason, by=caller.name)
    begun = _begun(ledger, key_id)
    assert begun is not None
    return begun


def _begun(ledger: Ledger, key_id: bytes) -> Erasure | None:
    told: dict[str, Any] | None = next(
        (erasure for erasure in erasures(ledger.vault) if erasure["subject"] == key_id.hex()), None
    )
    if told is None:
        return None
    return Erasure(
        subject=told["subject"],
        entries=told.get("entries"),
        step=told["step"],
        receipt=told.get("receipt"),
    )
